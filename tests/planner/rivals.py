#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Searches on random clusters, beside simple plans and beside themselves:
  tests/planner/rivals.py PROGRAM [-n CASES] [-s SEED] [-r ROUNDS] [--simple]
PROGRAM is dicomm-plan; --simple: beside simple plans only. Two to six device types with unlike links. Simple plans:
one type a stage with layers by speed (as H2), symmetric ones (as Megatron), a
pipeline for each node. Restricted searches: each micro-batch size, each ZeRO
stage, beside one that tries all. All are judged by `simulate`. Status 1: a simple plan is better by more
than 1 %, or a restricted search by more than 2 %."""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile

MODELS = {
    "1b": dict(num_hidden_layers=16, hidden_size=2048, num_attention_heads=32,
               intermediate_size=8192, vocab_size=32000),
    "7b": dict(num_hidden_layers=32, hidden_size=4096, num_attention_heads=32,
               intermediate_size=11008, vocab_size=32000),
    "13b": dict(num_hidden_layers=40, hidden_size=5120, num_attention_heads=40,
                intermediate_size=13824, vocab_size=32000),
}
SIMPLE, RESTRICTED = 1.01, 1.02


class Case:
    def __init__(self, program, folder, seed, rounds):
        self.program, self.folder, self.rounds = program, folder, rounds
        draw = random.Random(seed)
        types = draw.randint(2, 6)
        nodes, left = [], 24
        for t in range(types):
            for _ in range(draw.randint(1, 2)):
                ranks = draw.choice([1, 2, 4, 4, 8])
                if left - ranks < types - t - 1:
                    ranks = 1
                left -= ranks
                nodes.append({
                    "ranks": ranks, "device": f"t{t}",
                    "gbit_per_s": draw.choice([5, 10, 25, 100, 200, 400]),
                    "inside_gbit_per_s": draw.choice([100, 200, 400, 2400]),
                    "latency_us": draw.choice([2, 10, 50])})
        cluster = {"nodes": nodes, "devices": {
            f"t{t}": {"tflops": draw.randint(60, 1000),
                      "efficiency": draw.randint(35, 60) / 100,
                      "memory_gib": draw.choice([16, 24, 32, 48, 64, 80]),
                      "memory_gbyte_per_s": draw.choice([900, 2000, 3300])}
            for t in range(types)}}
        if draw.random() < 0.4:
            for node in nodes:
                node["island"] = draw.choice("ab")
            cluster["islands"] = [
                {"name": name, "gbit_per_s": draw.choice([5, 20, 100])}
                for name in sorted({node["island"] for node in nodes})]
        self.cluster, self.nodes = cluster, nodes
        self.name = draw.choice(sorted(MODELS))
        self.model = MODELS[self.name]
        self.sequence = draw.choice([2048, 4096])
        self.batch = draw.choice([24, 32, 60, 64, 128])
        self.files = []
        for name, what in (("cluster", cluster), ("model", self.model)):
            self.files += [f"--{name}", self.write(name, what)]

    def write(self, name, what):
        path = os.path.join(self.folder, name + ".json")
        with open(path, "w", encoding="utf-8") as f:
            json.dump(what, f)
        return path

    def run(self, *arguments):
        done = subprocess.run([self.program, *arguments, *self.files],
                              capture_output=True, text=True, check=False)
        if done.returncode not in (0, 7):
            sys.exit(f"{' '.join(done.args)}: status {done.returncode}: "
                     f"{done.stderr}")
        return json.loads(done.stdout) if done.returncode == 0 else None

    def search(self, *arguments):
        plan = self.run("search", "--json", "-g", str(self.batch), "-s",
                        str(self.sequence), "--rounds", str(self.rounds),
                        *arguments)
        return plan["predicted"]["step_s"] if plan else None

    def simulate(self, pipelines, zero=0):
        plan = {"version": 1, "model": self.name, "sequence": self.sequence,
                "global_batch": self.batch, "schedule": "1f1b",
                "overlap": "p2p", "zero": zero, "pipelines": pipelines}
        cost = self.run("simulate", "--json", "--plan",
                        self.write("plan", plan))
        return cost["step_s"] if cost and cost["fits"] else None

    # Layers of a pipeline, in proportion to the speed of its stages.
    def stages(self, teams, recompute):
        units = self.model["num_hidden_layers"] + 2
        if len(teams) > units:
            return None
        speed = [self.cluster["devices"][d]["tflops"] * len(ranks) *
                 self.cluster["devices"][d]["efficiency"]
                 for d, ranks in teams]
        stages, first, before = [], 0, 0.0
        for i, (_, ranks) in enumerate(teams):
            before += speed[i]
            end = round(units * before / sum(speed))
            end = min(max(end, first + 1), units - (len(teams) - 1 - i))
            stages.append({"ranks": ranks, "tp": len(ranks),
                           "layers": [first, end - 1],
                           "recompute": recompute})
            first = end
        return stages

    def first_ranks(self):
        first = 0
        for node in self.nodes:
            yield node, first
            first += node["ranks"]

    # Each type is one stage, or some, of each pipeline.
    def one_type_a_stage(self):
        memory = {d: t["memory_gib"]
                  for d, t in self.cluster["devices"].items()}
        for tp in (1, 2, 4, 8):
            teams = {}
            for node, first in self.first_ranks():
                own = min(tp, node["ranks"])
                for r in range(first, first + node["ranks"], own):
                    teams.setdefault(node["device"], []).append(
                        list(range(r, r + own)))
            for back in (False, True):
                order = sorted(teams, key=lambda d: memory[d], reverse=back)
                most = min(len(t) for t in teams.values())
                for lines in range(1, most + 1):
                    yield [[(d, teams[d][k * lines + i]) for d in order
                            for k in range(len(teams[d]) // lines)]
                           for i in range(lines)]

    def a_pipeline_each(self):
        for tp in (1, 2, 4, 8):
            lines = []
            for node, first in self.first_ranks():
                own = min(tp, node["ranks"])
                lines.append([(node["device"], list(range(r, r + own)))
                              for r in range(first, first + node["ranks"],
                                             own)])
            yield lines

    def shares(self, lines, size):
        speed = [sum(len(ranks) * self.cluster["devices"][d]["tflops"]
                     for d, ranks in line) for line in lines]
        total, given = self.batch // size, 0
        out = []
        for i, s in enumerate(speed):
            n = round(total * sum(speed[:i + 1]) / sum(speed)) - given
            out.append(n)
            given += n
        return out if min(out) > 0 else None

    def simple(self, spreads):
        best = None
        for lines in spreads:
            for size in (1, 2, 4):
                shares = self.shares(lines, size)
                if self.batch % size or not shares:
                    continue
                for recompute in (False, True):
                    pipelines = [
                        {"micro_batch": size, "micro_batches": n,
                         "stages": self.stages(line, recompute)}
                        for line, n in zip(lines, shares)]
                    if not all(p["stages"] for p in pipelines):
                        continue
                    step = self.simulate(pipelines)
                    if step and (not best or step < best):
                        best = step
                    if step:
                        break
        return best

    def simple_plans(self):
        yield "one type a stage", SIMPLE, self.simple(self.one_type_a_stage())
        yield "pipeline a node", SIMPLE, self.simple(self.a_pipeline_each())
        yield "symmetric", SIMPLE, self.search("--symmetric")

    def restricted(self):
        for size in range(1, 17):
            if self.batch % size == 0:
                yield (f"micro-batch {size}", RESTRICTED,
                       self.search("--micro-batch", str(size),
                                   "--zero", "any"))
        for zero in range(4):
            yield f"zero {zero}", RESTRICTED, self.search("--zero", str(zero))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("-n", type=int, default=200, help="cases")
    parser.add_argument("-s", type=int, default=1, help="seed of the first")
    parser.add_argument("-r", type=int, default=64, help="rounds of a search")
    parser.add_argument("--simple", action="store_true",
                        help="no restricted searches")
    parser.add_argument("-v", action="store_true", help="say all")
    o = parser.parse_args()
    bad, lost, possible = 0, {}, 0

    def compare(seed, case, found, rivals):
        nonlocal bad
        for name, bar, step in rivals:
            if not step:
                continue
            times = found / step if found else float("inf")
            lost[name] = max(lost.get(name, 0), times)
            bad += times > bar
            if times > bar or o.v:
                print(f"case {seed}, {case.name}: {found} s, {name} "
                      f"{step} s: x {times:.4f}", flush=True)

    with tempfile.TemporaryDirectory() as folder:
        for seed in range(o.s, o.s + o.n):
            case = Case(o.program, folder, seed, o.r)
            found = case.search()
            possible += found is not None
            compare(seed, case, found, case.simple_plans())
            if not o.simple:
                compare(seed, case, case.search("--zero", "any"),
                        case.restricted())
    print(f"{o.n} cases, {possible} possible, {bad} rivals better; the best "
          "of each, beside searches: " +
          ", ".join(f"{name} {x:.4f}" for name, x in lost.items()))
    return 1 if bad or not possible else 0


if __name__ == "__main__":
    sys.exit(main())
