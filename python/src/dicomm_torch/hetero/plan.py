# SPDX-License-Identifier: BSD-3-Clause
"""A plan: which ranks compute which layers, on which part of the batch.

The file is that of `dicomm-plan search -o` (docs/planner.md, "Files").
"""

import dataclasses
import json
import typing

SCHEDULES = ("1f1b", "gpipe", "interleaved")
INTERLEAVE_MOST = 64


class PlanError(ValueError):
    """A plan that makes no sense; the text names file, place and value."""


@dataclasses.dataclass(frozen=True)
class StagePlan:
    """Ranks that hold the layers first to last of one pipeline together; the
    tensor-parallel degree is their number."""

    ranks: typing.Tuple[int, ...]
    first: int
    last: int
    recompute: bool = False

    @property
    def degree(self):
        return len(self.ranks)

    @property
    def places(self):
        """The ranks in the order in which torch numbers those of a group."""
        return sorted(self.ranks)


@dataclasses.dataclass(frozen=True)
class PipelinePlan:
    """Stages that hold all layers together; micro_batch is in sequences.
    A device group, the ranks of a stage, holds so many stages as interleave
    says, its chunks: those that are a multiple of `groups` apart."""

    stages: typing.Tuple[StagePlan, ...]
    micro_batch: int
    micro_batches: int
    interleave: int = 1

    @property
    def groups(self):
        return len(self.stages) // self.interleave

    def chunks(self, group):
        """The numbers of the stages that a device group holds, in order."""
        return range(group, len(self.stages), self.groups)

    @property
    def sequences(self):
        return self.micro_batch * self.micro_batches


@dataclasses.dataclass(frozen=True)
class Plan:
    """All pipelines. global_batch is in sequences, of `sequence` tokens; zero
    is the stage of ZeRO, 0 for none; ahead is described in
    schedule.passes(). So many pipelines as experts says, one after the other,
    share the experts of each layer; capacity is described in Experts."""

    pipelines: typing.Tuple[PipelinePlan, ...]
    schedule: str
    global_batch: int
    sequence: int
    zero: int
    file: str
    ahead: int = 0
    experts: int = 1
    capacity: float = 0.0

    @property
    def layers(self):
        return self.pipelines[0].stages[-1].last + 1

    def first_sequence(self, pipeline):
        """Where the part of a pipeline begins in the global batch."""
        return sum(p.sequences for p in self.pipelines[:pipeline])

    def weight(self, pipeline):
        """The part of the global batch that a pipeline has. All sequences
        are equally long, so it is that of the tokens."""
        return self.pipelines[pipeline].sequences / self.global_batch

    def alike(self, pipeline, stage):
        """That stage of all pipelines that share experts with one, itself
        included."""
        first = pipeline - pipeline % self.experts
        return [self.pipelines[p].stages[stage]
                for p in range(first, first + self.experts)]

    def peers(self, pipeline, stage, place):
        """The ranks that have a place in alike(), in torch's order."""
        return sorted(of.places[place] for of in self.alike(pipeline, stage))

    def among(self, ranks):
        """The same for a group of some of the ranks, numbered as in a group:
        for a plan of `dicomm-plan replan`, those that are left."""
        number = {rank: i for i, rank in enumerate(sorted(ranks))}

        def stage(of):
            try:
                return dataclasses.replace(
                    of, ranks=tuple(number[rank] for rank in of.ranks))
            except KeyError as error:
                raise PlanError(f"{self.file}: rank {error}: wanted one of"
                                f" {sorted(ranks)}") from None

        return dataclasses.replace(self, pipelines=tuple(
            dataclasses.replace(pipeline, stages=tuple(
                map(stage, pipeline.stages)))
            for pipeline in self.pipelines))

    def find(self, rank):
        """(pipeline, first stage) of a rank; (None, None) if it has no
        part."""
        for p, g, first in self.groups():
            if rank in first.ranks:
                return p, g
        return None, None

    def groups(self):
        """(pipeline, number, first stage) of all device groups, whose number
        is that of this stage."""
        for p, pipeline in enumerate(self.pipelines):
            for g in range(pipeline.groups):
                yield p, g, pipeline.stages[g]


class _Reader:
    """Takes values out of the JSON of one file, or says what is wrong."""

    def __init__(self, file):
        self.file = file

    def fail(self, where, value, wanted):
        raise PlanError(f"{self.file}: {where}: {value!r}: wanted {wanted}")

    def get(self, table, key, where, default=None):
        path = f"{where}.{key}" if where else key
        if not isinstance(table, dict):
            self.fail(where or "the file", table, "an object")
        if key not in table and default is not None:
            return default, path
        if key not in table:
            raise PlanError(f"{self.file}: {path}: missing")
        return table[key], path

    def integer(self, value, path, least):
        if type(value) is not int or value < least:
            self.fail(path, value, f"an integer from {least} on")
        return value

    def number(self, table, key, where, least, default=None):
        value, path = self.get(table, key, where, default)
        return self.integer(value, path, least)

    def items(self, table, key, where):
        value, path = self.get(table, key, where)
        if not isinstance(value, list) or not value:
            self.fail(path, value, "a list that is not empty")
        return value, path

    def stage(self, table, where, next_layer):
        ranks, path = self.items(table, "ranks", where)
        for i, rank in enumerate(ranks):
            self.integer(rank, f"{path}[{i}]", 0)
        degree = self.number(table, "tp", where, 1, len(ranks))
        if degree != len(ranks):
            self.fail(f"{where}.tp", degree, f"{len(ranks)}, the ranks")
        layers, path = self.items(table, "layers", where)
        if len(layers) != 2:
            self.fail(path, layers, "the first layer and the last one")
        first = self.integer(layers[0], f"{path}[0]", 0)
        last = self.integer(layers[1], f"{path}[1]", first)
        if first != next_layer:
            self.fail(path, layers, f"{next_layer} first, as the stages"
                      " before end there")
        recompute, path = self.get(table, "recompute", where, False)
        if not isinstance(recompute, bool):
            self.fail(path, recompute, "true or false")
        return StagePlan(tuple(ranks), first, last, recompute)

    def pipeline(self, table, where):
        stages, layer = [], 0
        items, path = self.items(table, "stages", where)
        for i, item in enumerate(items):
            stages.append(self.stage(item, f"{path}[{i}]", layer))
            layer = stages[-1].last + 1
        made = PipelinePlan(
            tuple(stages), self.number(table, "micro_batch", where, 1),
            self.number(table, "micro_batches", where, 1),
            self.number(table, "interleave", where, 1, 1))
        if made.interleave > 1:
            self.interleaved(made, where)
        return made

    def interleaved(self, made, where):
        chunks, stages = made.interleave, made.stages
        if chunks > INTERLEAVE_MOST:
            self.fail(f"{where}.interleave", chunks,
                      f"1 to {INTERLEAVE_MOST}")
        if len(stages) % chunks or made.groups < 2:
            self.fail(f"{where}.interleave", chunks,
                      f"1, or what divides the {len(stages)} stages among two"
                      " or more groups of ranks")
        for s, (stage, first) in enumerate(zip(stages[made.groups:], stages),
                                           made.groups):
            if stage.ranks != first.ranks:
                self.fail(f"{where}.stages[{s}].ranks", list(stage.ranks),
                          f"{list(first.ranks)}, as of stages"
                          f"[{s - made.groups}], as interleave is {chunks}")
        if made.micro_batches % made.groups:
            self.fail(f"{where}.micro_batches", made.micro_batches,
                      f"a multiple of {made.groups}, the groups of ranks of an"
                      " interleaved pipeline")

    def weight(self, table, where, part):
        # It follows from the micro-batches; another would be another mean.
        weight, path = self.get(table, "weight", where, part)
        if (type(weight) not in (int, float)
                or not abs(weight - part) <= 1e-3):
            self.fail(path, weight, f"{part:.4g}, its part of the global"
                      " batch, or none")

    def plan(self, table):
        items, path = self.items(table, "pipelines", "")
        pipelines, used = [], {}
        for i, item in enumerate(items):
            pipelines.append(self.pipeline(item, f"{path}[{i}]"))
            for s, stage in enumerate(
                    pipelines[-1].stages[:pipelines[-1].groups]):
                for r, rank in enumerate(stage.ranks):
                    here = f"{path}[{i}].stages[{s}].ranks[{r}]"
                    if rank in used:
                        self.fail(here, rank, "a rank that is not used twice"
                                  f" ({used[rank]})")
                    used[rank] = here
            last, of_first = (pipelines[n].stages[-1].last for n in (-1, 0))
            if last != of_first:
                self.fail(f"{path}[{i}].stages", last,
                          f"{of_first} as the last layer, as in pipeline 0")
        schedule, where = self.get(table, "schedule", "", "1f1b")
        if schedule not in SCHEDULES:
            self.fail(where, schedule, " or ".join(SCHEDULES))
        ahead = self.number(table, "ahead", "", 0, 0)
        self.scheduled(schedule, ahead, path, pipelines)
        batch = self.number(table, "global_batch", "", 1)
        whole = sum(pipeline.sequences for pipeline in pipelines)
        if batch != whole:
            self.fail("global_batch", batch, f"{whole}, the micro_batch times"
                      " micro_batches of all pipelines")
        for i, (item, pipeline) in enumerate(zip(items, pipelines)):
            self.weight(item, f"{path}[{i}]", pipeline.sequences / batch)
        experts = self.number(table, "expert_parallel", "", 1, 1)
        if len(pipelines) % experts:
            self.fail("expert_parallel", experts,
                      f"a divisor of the {len(pipelines)} pipelines")
        for i, pipeline in enumerate(pipelines):
            self.in_step(f"{path}[{i}]", pipeline,
                         i - i % experts, pipelines[i - i % experts])
        return Plan(
            tuple(pipelines), schedule, batch,
            self.number(table, "sequence", "", 1),
            self.number(table, "zero", "", 0, 0), self.file, ahead, experts,
            self.capacity(table))

    def scheduled(self, schedule, ahead, path, pipelines):
        """Has a plan the schedule that its pipelines want?"""
        several = [i for i, pipeline in enumerate(pipelines)
                   if pipeline.interleave > 1]
        if schedule == "interleaved" and not several:
            self.fail("schedule", schedule, "1f1b or gpipe, or a pipeline"
                      " whose interleave is above 1")
        if schedule == "interleaved" and ahead:
            self.fail("ahead", ahead, f"0 with the schedule {schedule!r}")
        if schedule != "interleaved" and several:
            self.fail(f"{path}[{several[0]}].interleave",
                      pipelines[several[0]].interleave,
                      f"1 with the schedule {schedule!r}, or that to be"
                      " 'interleaved'")

    def capacity(self, table):
        value, path = self.get(table, "capacity", "", 0.0)
        if type(value) not in (int, float) or (value and not value >= 1):
            self.fail(path, value, "a number from 1 on, or 0 for no limit")
        return float(value)

    def in_step(self, where, pipeline, other, like):
        """Do two pipelines that share experts exchange tokens alike?"""
        def same(place, value, wanted):
            if value != wanted:
                self.fail(f"{where}.{place}", value, f"{wanted}, as of"
                          f" pipelines[{other}], with which it shares experts")

        same("micro_batch", pipeline.micro_batch, like.micro_batch)
        same("micro_batches", pipeline.micro_batches, like.micro_batches)
        same("interleave", pipeline.interleave, like.interleave)
        for s, (mine, its) in enumerate(zip(pipeline.stages, like.stages)):
            same(f"stages[{s}].layers", [mine.first, mine.last],
                 [its.first, its.last])


def read_plan(file):
    """Read a plan. Raises PlanError, or OSError if there is no such file."""
    with open(file) as text:
        try:
            table = json.load(text)
        except ValueError as error:
            raise PlanError(f"{file}: no JSON: {error}") from None
    return _Reader(str(file)).plan(table)


def check_experts(plan, counts):
    """Can experts be shared as a plan says? counts has the numbers of experts
    of each layer, a list. Raises PlanError."""
    reader = _Reader(plan.file)
    if plan.experts == 1:
        return
    if not any(counts):
        reader.fail("expert_parallel", plan.experts,
                    "1: no layer has experts")
    for layer, experts in enumerate(counts):
        for count in experts:
            if count % plan.experts:
                reader.fail("expert_parallel", plan.experts,
                            f"a divisor of the {count} experts of layer"
                            f" {layer}")
    for p in range(0, len(plan.pipelines), plan.experts):
        for s, stage in enumerate(plan.pipelines[p].stages):
            if any(counts[stage.first:stage.last + 1]):
                _check_peers(reader, p, s, plan.alike(p, s))


def _check_peers(reader, first, s, stages):
    """Can stages share experts, those of the pipelines from `first` on?"""
    degree = stages[0].degree
    for i, stage in enumerate(stages):
        if stage.degree != degree:
            reader.fail(f"pipelines[{first + i}].stages[{s}].tp",
                        stage.degree, f"{degree}, as of pipelines[{first}],"
                        " with which it shares experts")
    # Ranks of one place are a group, and torch numbers these in order.
    orders = [sorted(range(len(stages)), key=lambda i: stages[i].places[place])
              for place in range(degree)]
    for i, stage in enumerate(stages):
        if any(order.index(i) != orders[0].index(i) for order in orders):
            reader.fail(f"pipelines[{first + i}].stages[{s}].ranks",
                        list(stage.ranks), "each rank below or above that of"
                        " the same place wherever experts are shared")


def check_plan(plan, layers, ranks):
    """Does a plan fit so many layers and ranks? Raises PlanError."""
    reader = _Reader(plan.file)
    if plan.layers != layers:
        reader.fail("pipelines[0].stages", plan.layers,
                    f"{layers} layers, those of the model")
    for p, g, stage in plan.groups():
        for r, rank in enumerate(stage.ranks):
            if rank >= ranks:
                reader.fail(
                    f"pipelines[{p}].stages[{g}].ranks[{r}]", rank,
                    f"a rank below {ranks}, those of the group")
    if plan.zero:
        reader.fail("zero", plan.zero, "0: this trainer keeps the state of"
                    " the optimizer whole")
