# SPDX-License-Identifier: BSD-3-Clause
"""What came of plans that were tried: a file, a ranking, a table."""

import contextlib
import json
import os
import statistics

from .plan import PlanError, read_plan


class Result:
    """Of one plan. seconds are those of the steps that count; failed says why
    there are none; begun: a job has taken it up."""

    def __init__(self, file):
        self.file = file
        self.plan = None
        self.predicted = None
        self.seconds = []
        self.failed = None
        self.begun = False
        try:
            self.plan = read_plan(file)
            with open(file) as text:
                found = json.load(text).get("predicted")
            if isinstance(found, dict):
                self.predicted = found.get("step_s")
        except (PlanError, OSError) as error:
            self.failed = str(error)

    @property
    def ranks(self):
        return 1 + max(rank for pipeline in self.plan.pipelines
                       for stage in pipeline.stages for rank in stage.ranks)

    @property
    def open(self):
        return not self.failed and not self.seconds

    @property
    def measured(self):
        return statistics.median(self.seconds) if self.seconds else None

    def of_token(self, seconds):
        return seconds / (self.plan.global_batch * self.plan.sequence)


def _write(file, table):
    """All of it, or nothing."""
    with open(f"{file}~", "w") as out:
        json.dump(table, out, indent=1)
        out.write("\n")
    os.replace(f"{file}~", file)


class Results:
    """Of all plans, in a file that outlives the processes of a job."""

    def __init__(self, files, ranks, path):
        self.all = [Result(file) for file in files]
        self._path = path
        # A file of another run is none of an earlier life of this one.
        self._run = os.environ.get("TORCHELASTIC_RUN_ID", "")
        for result in self.all:
            if result.open and result.ranks > ranks:
                result.failed = (f"wants {result.ranks} ranks, and there are"
                                 f" {ranks}")

    def state(self):
        return [{"plan": result.file, "run": self._run,
                 "predicted_s": result.predicted,
                 "measured_s": result.measured, "steps_s": result.seconds,
                 "failed": result.failed, "begun": result.begun}
                for result in self.all]

    def take(self, state):
        """What an earlier life of the job has found out."""
        if [(kept["plan"], kept["run"]) for kept in state] != [
                (result.file, self._run) for result in self.all]:
            return
        for result, kept in zip(self.all, state):
            result.seconds = kept["steps_s"]
            result.failed, result.begun = kept["failed"], kept["begun"]

    def read(self):
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError), \
                open(self._path) as text:
            self.take(json.load(text))

    def write(self):
        _write(self._path, self.state())

    def blame(self, how):
        """The job ended in the middle of a plan."""
        for result in self.all:
            if result.open and result.begun:
                result.failed = how

    def left(self):
        return [n for n, result in enumerate(self.all) if result.open]

    def ranking(self):
        """Those that were measured, the fastest by token first."""
        return sorted((result for result in self.all if result.seconds),
                      key=lambda result: result.of_token(result.measured))

    def report(self, out):
        ranking = self.ranking()
        width = max([4, *(len(result.file) for result in self.all)])
        print(f"   {'plan':{width}}  predicted s  measured s (least to most)"
              "     off", file=out)
        for place, result in enumerate(ranking):
            step, known = result.measured, result.predicted
            print(f"{place + 1:2} {result.file:{width}}  "
                  + (f"{known:11.4f}" if known else f"{'-':>11}")
                  + f"  {step:10.4f} ({min(result.seconds):.4f} to"
                  f" {max(result.seconds):.4f})"
                  + (f"  {100 * (known / step - 1):+6.1f} %" if known else ""),
                  file=out)
        for result in self.all:
            if not result.seconds:
                print(f"-- {result.file:{width}}  "
                      + (result.failed or "not tried"), file=out)
        for a, b in zip(ranking, ranking[1:]):
            if b.of_token(min(b.seconds)) <= a.of_token(max(a.seconds)):
                print(f"{a.file} and {b.file} overlap: more steps would tell"
                      " them apart, or none", file=out)
        told = [result for result in ranking if result.predicted]
        if len(told) > 1:
            wanted = sorted(told, key=lambda r: r.of_token(r.predicted))
            print("the order is " + ("as predicted" if wanted == told else
                  "not as predicted: "
                  + ", ".join(result.file for result in wanted)), file=out)

    def save_best(self, file):
        best = self.ranking()[0]
        with open(best.file) as text:
            table = json.load(text)
        table["measured"] = {
            "step_s": best.measured, "least_s": min(best.seconds),
            "most_s": max(best.seconds), "steps": len(best.seconds)}
        _write(file, table)
