#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Steps that dicomm-plan predicts beside steps that examples/hetero_gpt.py
takes. By hand, on a machine that is idle:

    python python/tests/predicted.py BUILD [PLAN...]

BUILD is where libdicomm was built. In each round each plan runs once, as a job
that measures its layers and its steps in turns; dicomm-plan predicts the step
with the layers' times and the rate between two processes, which dicomm-perf
measures. Prints a Markdown table: medians of the rounds, and of each round the
predicted beside the measured step. The status is 1 if a plan is further off
than --bound.

By default layers sleep most of their time (--layer-ms), so that ranks need not
share cores, and what is tested is the order of the passes, the messages and
the sums. --layer-ms 0 tests the passes, too; a machine needs a core for each rank
then, as a profile knows nothing of ranks that wait and leave it theirs.
"""

import argparse
import json
import os
import pathlib
import re
import socket
import statistics
import subprocess
import sys
import tempfile

TOP = pathlib.Path(__file__).resolve().parent.parent.parent
PLANS = [TOP / "examples" / "plans" / f"{name}.json"
         for name in ("degrees", "batches", "layers")]
JOB_S = 600


def fail(text, output=""):
    sys.exit(f"{output}\npredicted.py: {text}" if output else
             f"predicted.py: {text}")


def run(command, **more):
    """Its output; ends this program if it fails."""
    try:
        done = subprocess.run(
            [str(word) for word in command], stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, timeout=JOB_S, **more)
    except subprocess.TimeoutExpired:
        fail(f"{command[0]}: not done after {JOB_S} s")
    if done.returncode:
        fail(f"{command[0]}: status {done.returncode}", done.stdout)
    return done.stdout


def ranks_of(plan):
    pipelines = json.loads(plan.read_text())["pipelines"]
    return 1 + max(rank for pipeline in pipelines
                   for stage in pipeline["stages"] for rank in stage["ranks"])


def gbit_per_s(build, work):
    """What dicomm-perf says that two processes here send each other."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    out = work / "rate.json"
    command = [build / "dicomm-perf", "sendrecv", "-b", "1M", "-e", "1M",
               "-n", "50", "-w", "5", "-J", out]
    environment = {**os.environ, "DICOMM_SIZE": "2",
                   "DICOMM_COMM_ID": f"127.0.0.1:{port}"}
    other = subprocess.Popen(
        [str(word) for word in command[:-2]],
        env={**environment, "DICOMM_RANK": "1"}, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL)
    try:
        run(command, env={**environment, "DICOMM_RANK": "0"})
    finally:
        other.kill()
        other.wait()
    row = json.loads(out.read_text())["results"][-1]
    return 8 * row["out_of_place"]["alg_bw"]


def measure(plan, arguments, work):
    """A job of a plan: seconds of its steps, and the file of its profile."""
    profile = work / "profile.json"
    out = run([sys.executable, "-m", "torch.distributed.run", "--standalone",
               "--nproc-per-node", ranks_of(plan),
               TOP / "examples" / "hetero_gpt.py", plan, "--steps",
               arguments.steps, "--layer-ms", arguments.layer_ms, "--profile",
               profile])
    found = re.search(r"^seconds of a step: ([0-9.]+)", out, re.M)
    if not found:
        fail("hetero_gpt.py did not say how long its steps take", out)
    return float(found[1]), profile


def predict(build, plan, profile, cluster):
    return json.loads(run([
        build / "dicomm-plan", "simulate", "--json", "--cluster", cluster,
        "--model", f"{profile}.model", "--profile", profile, "--plan", plan]))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("plans", nargs="*", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=15)
    parser.add_argument("--layer-ms", type=float, default=5.0)
    parser.add_argument("--bound", type=float, default=0.15)
    arguments = parser.parse_args()
    build, plans = arguments.build.resolve(), arguments.plans or PLANS
    os.environ.setdefault("LIBDICOMM_FILE",
                          str(build / ".libs" / "libdicomm.so.1"))
    os.environ.setdefault("DICOMM_SOCKET_IFNAME", "lo")
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    taken, said = {}, {}
    with tempfile.TemporaryDirectory(prefix="dicomm-predicted-") as work:
        work = pathlib.Path(work)
        rate = gbit_per_s(build, work)
        for _ in range(arguments.rounds):
            for plan in plans:
                cluster = work / "cluster.json"
                cluster.write_text(json.dumps({
                    "nodes": [{"ranks": ranks_of(plan), "device": "host",
                               "inside_gbit_per_s": rate}],
                    # Neither counts beside measured times.
                    "devices": {"host": {"tflops": 0.1, "memory_gib": 16}}}))
                seconds, profile = measure(plan, arguments, work)
                taken.setdefault(plan, []).append(seconds)
                said.setdefault(plan, []).append(
                    predict(build, plan, profile, cluster)["step_s"])
    print(f"{arguments.rounds} rounds of {arguments.steps} steps, layers of"
          f" {arguments.layer_ms:g} ms, {os.cpu_count()} cores, load"
          f" {os.getloadavg()[0]:.1f} at the end, {rate:.1f} Gbit/s between"
          " ranks\n")
    print("| plan | ranks | measured, ms | predicted, ms | off | of each"
          " round |")
    print("|---|---|---|---|---|---|")
    worst = 0
    for plan in plans:
        a, b = (statistics.median(x[plan]) for x in (taken, said))
        worst = max(worst, abs(b / a - 1))
        each = ", ".join(f"{100 * (y / x - 1):+.1f} %"
                         for x, y in zip(taken[plan], said[plan]))
        print(f"| {plan.stem} | {ranks_of(plan)} | {1e3 * a:.1f} |"
              f" {1e3 * b:.1f} | {100 * (b / a - 1):+.1f} % | {each} |")
    return 1 if worst > arguments.bound else 0


if __name__ == "__main__":
    sys.exit(main())
