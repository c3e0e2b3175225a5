# SPDX-License-Identifier: BSD-3-Clause
"""Plans of unlike pipelines train as one process does; failures are named;
modules are compared.

DICOMM_TEST_HETERO_STEPS is how many steps are trained, 8 by default.
"""

import atexit
import contextlib
import datetime
import importlib.util
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn

import frameworks
import ranks
from dicomm_torch import hetero

CASES = []
TOP = pathlib.Path(__file__).resolve().parent.parent.parent
PLANS = TOP / "examples" / "plans"
STEPS = int(os.environ.get("DICOMM_TEST_HETERO_STEPS", 8))
# The second shows the gradients of the first.
EXPERT_STEPS = max(2, STEPS // 4)
RELATIVE = 1e-5
BOUND_S = 45  # for what takes 7 s on a machine that is not busy

_spec = importlib.util.spec_from_file_location(
    "hetero_gpt", TOP / "examples" / "hetero_gpt.py")
gpt = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(gpt)


def case(function):
    CASES.append((function.__name__.replace("_", " "), function))
    return function


def text():
    return gpt.Text(TOP / "LICENSE")


def alone(steps, **options):
    return list(gpt.train_alone(text(), steps, **options))


def begin(store, rank, n, seconds=60):
    dist.init_process_group(
        "dicomm", store=store, rank=rank, world_size=n,
        timeout=datetime.timedelta(seconds=seconds))


def _train(store, rank, n, plan, steps, options, device_of):
    if rank in device_of:
        os.environ["DICOMM_DEVICE"] = device_of[rank]
    begin(store, rank, n)
    torch.set_default_dtype(options.get("dtype", torch.float32))
    return list(gpt.train(text(), steps, plan, **options))


def shape_of(plan):
    """Of a plan: groups of ranks, by stages of each where they are several,
    of each pipeline."""
    return ", ".join(
        f"{of.groups}" + (f" x {of.interleave}" if of.interleave > 1 else "")
        for of in hetero.read_plan(plan).pipelines)


def ranks_of(plan):
    """How many a plan has."""
    return sum(stage.degree
               for _, _, stage in hetero.read_plan(plan).groups())


def trained(plan, steps=None, device_of=(), **options):
    """Losses of a plan, which all ranks have alike."""
    every = ranks.values(ranks.run(
        ranks_of(plan), _train, plan, steps or STEPS, options, dict(device_of),
        seconds=500))
    assert all(losses == every[0] for losses in every), every
    return every[0]


def deviation(losses, reference):
    assert len(losses) == len(reference) > 0
    return max(abs(a - b) / abs(b) for a, b in zip(losses, reference))


def close(losses, reference, *about):
    """Are losses those of one process, within what rounding makes of them?"""
    apart = deviation(losses, reference)
    words = " ".join(map(str, about))
    assert apart < RELATIVE, f"{words}: losses differ by {apart:.3g}"
    print(f"# {apart:.2g} apart{words and f': {words}'}", flush=True)


def as_one(plan, steps=None, **options):
    close(trained(plan, steps, **options), alone(steps or STEPS))


def _at_the_end(function):
    """Call it as this process ends. Ranks are forked, and end before."""
    mine = os.getpid()
    atexit.register(lambda: os.getpid() == mine and function())


def stage(of_ranks, first, last, **more):
    return {"ranks": of_ranks, "tp": len(of_ranks), "layers": [first, last],
            **more}


def pipeline(micro_batch, micro_batches, *stages):
    return {"micro_batch": micro_batch, "micro_batches": micro_batches,
            "stages": list(stages)}


def plan_file(*pipelines, **more):
    """A plan of our own, in a file that the end of this process removes."""
    with tempfile.NamedTemporaryFile(
            "w", prefix="dicomm-plan-", suffix=".json", delete=False) as out:
        several = any("interleave" in of for of in pipelines)
        json.dump({"version": 1, "sequence": gpt.TOKENS,
                   "schedule": "interleaved" if several else "1f1b",
                   "global_batch": gpt.BATCH, "pipelines": pipelines, **more},
                  out)
    _at_the_end(lambda: os.unlink(out.name))
    return out.name


# -- as one process -----------------------------------------------------------

@case
def unlike_degrees():
    as_one(PLANS / "degrees.json")


@case
def uneven_batches():
    as_one(PLANS / "batches.json")


@case
def uneven_layers_and_depths():
    as_one(PLANS / "layers.json")


@case
def heads_that_a_team_of_three_shares_unevenly():
    """Between teams of three and two no cut of the layers is the same."""
    plan = plan_file(
        pipeline(1, 3, stage([0, 1, 2], 0, 5)),
        pipeline(5, 1, stage([3, 4], 0, 5, recompute=True)))
    as_one(plan, 4)


@case
def a_team_whose_ranks_are_not_in_order():
    """torch numbers the ranks of a group in order, whatever a plan says."""
    as_one(plan_file(pipeline(8, 1, stage([1, 0], 0, 5))), 3)


@case
def gpipe_blocking_channels_and_all_ways():
    options = [("gpipe", {"way": "direct"}),
               ("gpipe", {"asynchronous": False, "way": "scatter"}),
               ("1f1b", {"asynchronous": False, "way": "leader"}),
               ("1f1b", {"ahead": 1, "way": "scatter"})]
    reference = alone(3)
    for schedule, more in options:
        plan = plan_file(
            pipeline(1, 8, stage([0], 0, 1), stage([2, 1], 2, 3),
                     stage([3], 4, 5)), schedule=schedule)
        close(trained(plan, 3, **more), reference, schedule, more)


@case
def a_plan_that_holds_more_micro_batches():
    plan = plan_file(pipeline(1, 8, stage([0], 0, 2), stage([1], 3, 5)),
                     ahead=1)
    assert hetero.read_plan(plan).ahead == 1
    assert hetero.read_plan(PLANS / "degrees.json").ahead == 0
    as_one(plan, 3)


@case
def a_rank_that_the_plan_does_not_use():
    plan = plan_file(pipeline(4, 2, stage([0], 0, 2), stage([1], 3, 5)))
    every = ranks.values(ranks.run(3, _train, plan, 3, {}, {}, seconds=120))
    assert every[0] == every[2]
    close(every[2], alone(3))


@case
def pipelines_of_equal_weight_train_something_else():
    losses = trained(PLANS / "batches.json", weights="equal")
    apart = deviation(losses, alone(STEPS))
    assert apart > 10 * RELATIVE, f"losses differ by {apart:.3g} only"


@case
def a_rank_on_an_opencl_device():
    """Its buffers are in memory of the device, PoCL's."""
    plan = PLANS / "degrees.json"
    for rank in 1, 2:
        try:
            losses = trained(plan, device_of={rank: "opencl:0"})
        except AssertionError as error:
            if "no such device" in str(error) or "OpenCL has no" in str(error):
                print("# no OpenCL device: skipped", flush=True)
                return
            raise
        close(losses, alone(STEPS), "rank", rank)


# -- interleaved --------------------------------------------------------------

def _interleaved(micro_batch, micro_batches, chunks, *groups):
    """A pipeline of six layers in chunks that are as even as it goes."""
    cuts = [6 * s // (chunks * len(groups))
            for s in range(chunks * len(groups) + 1)]
    stages = [stage(groups[s % len(groups)], first, after - 1)
              for s, (first, after) in enumerate(zip(cuts, cuts[1:]))]
    return {**pipeline(micro_batch, micro_batches, *stages),
            "interleave": chunks}


@case
def interleaved_passes_wait_for_nobody_in_a_circle():
    """Of groups whose channels each send one message at a time, which ends
    as it is received, and begin to receive one message ahead."""
    from dicomm_torch.hetero import schedule
    for groups in 2, 3, 4:
        for chunks in 2, 3, 4:
            for micro_batches in range(groups, 4 * groups + 1, groups):
                orders = [schedule.passes("interleaved", group, groups,
                                          micro_batches, 0, chunks)
                          for group in range(groups)]
                for order in orders:
                    assert len(set(order)) == len(order) == (
                        2 * chunks * micro_batches), order
                _simulate(orders, chunks)


def _simulate(orders, chunks):
    groups = len(orders)
    stages = groups * chunks

    def ends(kind, group, chunk, number):
        """What a pass receives and what it sends; None for neither."""
        stage = group + chunk * groups
        into, out = ((stage - 1, stage), (stage, stage + 1))
        if kind == "backward":
            into, out = ((stage + 1, stage), (stage, stage - 1))
        return [(kind, *pair, number) if min(pair) >= 0
                and max(pair) < stages else None for pair in (into, out)]

    def channel(message):
        kind, sender, receiver, _ = message
        return kind, sender % groups, receiver % groups

    sent, expected, every = {}, {}, []  # lists of messages by channel
    for group, order in enumerate(orders):
        every.append([ends(kind, group, chunk, number)
                      for kind, chunk, number in order])
        for into, _ in every[-1]:
            if into:
                sent.setdefault(channel(into), [])
                expected.setdefault(channel(into), []).append(into)
    begun = dict.fromkeys(expected, 1)

    def run(group):
        """Do the passes of a group; yields where it has to wait."""
        for into, out in every[group]:
            if into:
                at = expected[channel(into)].index(into)
                while len(sent[channel(into)]) <= at:
                    yield
                begun[channel(into)] = at + 2
            if out:
                while begun[channel(out)] < len(sent[channel(out)]):
                    yield
                sent[channel(out)].append(out)

    waiting = [run(group) for group in range(groups)]
    while waiting:
        before = sum(map(len, sent.values())), sum(begun.values())
        still = [of for of in waiting if next(of, "done") != "done"]
        after = sum(map(len, sent.values())), sum(begun.values())
        assert len(still) < len(waiting) or before != after, (
            groups, chunks, sent)
        waiting = still
    assert sent == expected, (groups, chunks)


@case
def what_interleaved_plans_cannot_do_is_refused():
    for more, words in (({"asynchronous": False}, "asynchronous False: wanted"
                         " True with the schedule 'interleaved'"),
                        ({"ahead": 1}, "ahead 1: wanted 0 with the")):
        try:
            hetero.Trainer(hetero.read_plan(PLANS / "interleaved.json"), [],
                           None, (), **more)
        except ValueError as error:
            assert words in str(error), error
            continue
        raise AssertionError(f"{more} are taken")


@case
def interleaved_pipelines_of_two_groups_and_of_three():
    reference = alone(STEPS)
    for plan in (
            [_interleaved(2, 4, 2, [0], [1])],
            [_interleaved(1, 6, 2, [2], [0], [1]),
             pipeline(2, 1, stage([3], 0, 5))],
            [_interleaved(1, 4, 2, [4, 2], [0]),
             _interleaved(2, 2, 3, [1], [3])]):
        file = plan_file(*plan)
        close(trained(file), reference, shape_of(file))
    close(trained(PLANS / "interleaved.json"), reference, "interleaved.json")


# -- experts ------------------------------------------------------------------

EXPERTS = 8


def _sharing(micro_batches, cuts, *of_ranks, **more):
    """Pipelines with the same cuts of the layers, one for each tuple of
    ranks."""
    return [pipeline(1, micro_batches, *[
        stage([rank], first, last, **more)
        for rank, (first, last) in zip(line, cuts)]) for line in of_ranks]


ONE, TWO = [(0, 5)], [(0, 2), (3, 5)]


@case
def experts_on_two_and_on_four_ranks():
    """Ranks are in another order than pipelines, and one plan has two groups
    that share experts each, with unlike parts of the batch, in which one
    pipeline is to recompute."""
    reference = alone(EXPERT_STEPS, experts=EXPERTS)
    for share, plan in (
            (2, _sharing(4, ONE, [1], [0])),
            (4, _sharing(2, ONE, [3], [0], [2], [1])),
            (2, [*_sharing(3, ONE, [3], recompute=True),
                 *_sharing(3, ONE, [0]), *_sharing(1, ONE, [1], [2])])):
        close(trained(plan_file(*plan, expert_parallel=share), EXPERT_STEPS,
                      experts=EXPERTS), reference, "shared by", share)


@case
def experts_of_two_stages():
    reference = alone(EXPERT_STEPS, experts=EXPERTS)
    own = plan_file(*_sharing(4, TWO, [0, 3], [2, 1], recompute=True),
                    expert_parallel=2, schedule="gpipe")
    chunks = plan_file(_interleaved(1, 4, 2, [0], [3]),
                       _interleaved(1, 4, 2, [2], [1]), expert_parallel=2)
    for plan, more in ((PLANS / "experts.json", {}),
                       (PLANS / "experts.json", {"ahead": 1}),
                       (own, {"asynchronous": False}), (chunks, {})):
        close(trained(plan, EXPERT_STEPS, experts=EXPERTS, **more),
              reference, shape_of(plan), more)


@case
def experts_as_exactly_as_float64_tells():
    """A token that goes to another expert for a rounding would hide what is
    wrong a little."""
    torch.set_default_dtype(torch.float64)
    try:
        reference = alone(max(2, STEPS // 2), experts=EXPERTS)
    finally:
        torch.set_default_dtype(torch.float32)
    apart = deviation(trained(PLANS / "experts.json", max(2, STEPS // 2),
                              experts=EXPERTS, dtype=torch.float64), reference)
    assert apart < 1e-11, f"{apart:.3g}"


@case
def experts_that_a_stage_shares_or_that_are_beside_such_a_stage():
    both = [pipeline(2, 2, stage([3, 2], 0, 5)),
            pipeline(2, 2, stage([0, 1], 0, 5))]
    beside = [pipeline(1, 4, stage([0], 0, 4), stage([2, 1], 5, 5)),
              pipeline(1, 4, stage([4], 0, 4), stage([3], 5, 5))]
    reference = alone(EXPERT_STEPS, experts=EXPERTS)
    for plan, share in ((beside, 2), (both, 2), (
            [pipeline(1, 3, stage([0, 1, 2], 0, 5)),
             pipeline(5, 1, stage([3], 0, 5, recompute=True))], 1)):
        close(trained(plan_file(*plan, expert_parallel=share), EXPERT_STEPS,
                      experts=EXPERTS), reference, "shared by", share)


def _micro_batches_alone(steps, size, capacity):
    """One process that trains micro-batches, of which each drops tokens."""
    lines, losses = text(), []
    model = hetero.build_all(gpt.layers(len(lines.characters), 0.0, EXPERTS))
    for module in model.modules():
        if isinstance(module, hetero.Experts):
            module.capacity = capacity
    optimizer = gpt.optimizer_of(model.parameters())
    for step in range(steps):
        inputs, targets = lines.batch(step)
        optimizer.zero_grad()
        every = [gpt.loss_of(model(x), y) * size / gpt.BATCH
                 for x, y in zip(inputs.split(size), targets.split(size))]
        sum(every).backward()
        optimizer.step()
        losses.append(sum(every).item())
    return losses


@case
def experts_drop_what_is_beyond_the_capacity_of_the_plan():
    pipelines = json.loads((PLANS / "experts.json").read_text())["pipelines"]
    plan = plan_file(*pipelines, expert_parallel=2, capacity=1.25)
    losses = trained(plan, EXPERT_STEPS, experts=EXPERTS)
    close(losses, _micro_batches_alone(EXPERT_STEPS, 2, 1.25))
    apart = deviation(losses, alone(EXPERT_STEPS, experts=EXPERTS))
    assert apart > 10 * RELATIVE, f"nothing is dropped: {apart:.3g}"


def _by_hand(experts, x, capacity):
    """What a mixture of experts makes of tokens, one by one."""
    probabilities = experts.router(x).softmax(-1)
    taken = {e: [] for e in range(experts.count)}
    for t, row in enumerate(probabilities.tolist()):
        best = sorted(range(len(row)), key=lambda e: -row[e])[:experts.active]
        whole = sum(row[e] for e in best) if experts.renormalize else 1
        for e in best:
            taken[e].append((row[e] / whole, t))
    y = torch.zeros_like(x)
    for e, tokens in taken.items():
        for gate, t in sorted(tokens, reverse=True)[:capacity]:
            z = experts.into[e] @ x[t]
            z = (nn.functional.silu(experts.gate[e] @ x[t]) * z
                 if experts.gated else nn.functional.gelu(z))
            y[t] += gate * (experts.out[e] @ z)
    return y


@case
def experts_compute_what_their_tokens_would_one_by_one():
    torch.manual_seed(3)
    x = torch.randn(40, 6, dtype=torch.float64)
    for gated, renormalize, capacity, most in (
            (False, True, 0.0, 40), (True, False, 0.0, 40),
            (True, True, 1.0, 16), (False, False, 1.15, 19)):
        experts = hetero.Experts(6, 10, 5, 2, gated, renormalize,
                                 capacity).double()
        with torch.no_grad():
            apart = (experts(x.view(4, 10, 6)).view(40, 6)
                     - _by_hand(experts, x, most)).abs().max()
            assert apart < 1e-14, (gated, renormalize, capacity, apart)
    for arguments, words in (((5, 6), "active 6: wanted 1 to the 5 experts"),
                             ((5, 2, False, True, 0.5), "capacity 0.5")):
        try:
            hetero.Experts(6, 10, *arguments)
        except ValueError as error:
            assert words in str(error)
            continue
        raise AssertionError(f"{arguments} are taken")


def _refused(store, rank, n, plans, experts):
    begin(store, rank, n)
    told = []
    for plan in plans:
        try:
            next(gpt.train(text(), 1, plan, experts=experts))
        except hetero.PlanError as error:
            told.append(str(error))
    dist.destroy_process_group()
    return told


@case
def experts_that_cannot_be_shared_so_are_refused_by_all():
    split = plan_file(
        pipeline(1, 4, stage([0, 1], 0, 5)),
        pipeline(1, 4, stage([2], 0, 5)), expert_parallel=2)
    crossed = plan_file(
        pipeline(1, 4, stage([0, 3], 0, 5)),
        pipeline(1, 4, stage([1, 2], 0, 5)), expert_parallel=2)
    thirds = plan_file(
        *_sharing(2, ONE, [0], [1], [2]), expert_parallel=3, global_batch=6)
    for experts, words in (
            (EXPERTS, ["pipelines[1].stages[0].tp: 1: wanted 2, as of",
                       "pipelines[0].stages[0].ranks: [0, 3]: wanted",
                       "expert_parallel: 3: wanted a divisor of the 8 experts"
                       " of layer 1"]),
            (0, ["expert_parallel: 2: wanted 1: no layer has experts",
                 "expert_parallel: 2: wanted 1: no layer has experts",
                 "expert_parallel: 3: wanted 1: no layer has experts"])):
        for told in ranks.values(
                ranks.run(4, _refused, [split, crossed, thirds], experts)):
            assert len(told) == 3, told
            for text, wanted in zip(told, words):
                assert wanted in text, told


# -- checkpoints --------------------------------------------------------------

@contextlib.contextmanager
def _folder():
    """One that ranks, which are forked, do not remove as they end."""
    folder = tempfile.mkdtemp(prefix="dicomm-checkpoint-")
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def _some_steps(store, rank, n, plan, first, last, folder, experts,
                forget=False):
    """Steps of a plan after those that a folder has, into which they go."""
    begin(store, rank, n)
    lines = text()
    trainer = hetero.Trainer(
        hetero.read_plan(plan), gpt.layers(len(lines.characters), 0.0, experts),
        gpt.loss_of, (gpt.TOKENS, gpt.HIDDEN), grace_s=2)
    parameters = trainer.parameters()
    optimizer = gpt.optimizer_of(parameters) if parameters else None
    if first:
        trainer.load(folder, None if forget else optimizer)
    losses = []
    for step in range(first, last):
        losses.append(trainer.step(*lines.batch(step)))
        if optimizer:
            optimizer.step()
    trainer.save(folder, optimizer)
    unequal = trainer.unequal_copies()
    trainer.close()
    assert not unequal, unequal
    return losses


def _resumed(plans, experts=0, forget=False):
    """Losses of two steps of each of some plans, of so many ranks, one after
    the other."""
    losses = []
    with _folder() as folder:
        for at, (n, plan) in enumerate(plans):
            every = ranks.values(ranks.run(
                n, _some_steps, plan, 2 * at, 2 * at + 2, folder, experts,
                forget))
            assert all(of == every[0] for of in every), every
            losses += every[0]
            files = sorted(os.listdir(folder))
            assert files.pop() == "index.json"
            assert len({file.split("-")[0] for file in files}) == 1, files
    return losses


@case
def another_plan_goes_on_where_one_has_ended():
    """The last one has a rank without a part."""
    spare = plan_file(pipeline(4, 2, stage([0], 0, 2), stage([1], 3, 5)))
    plans = [(4, PLANS / "degrees.json"), (3, PLANS / "batches.json"),
             (4, PLANS / "interleaved.json"), (3, spare)]
    reference = alone(8)
    close(_resumed(plans), reference)
    # Without the state of the optimizer it is something else.
    apart = deviation(_resumed(plans[:2], forget=True), reference[:4])
    assert apart > 10 * RELATIVE, f"{apart:.3g}"


@case
def experts_go_on_where_others_have_ended():
    plans = [(4, PLANS / "experts.json"),
             (4, plan_file(*_sharing(2, ONE, [3], [0], [2], [1]),
                           expert_parallel=4)),
             (3, plan_file(pipeline(8, 1, stage([0, 1, 2], 0, 5)))),
             (4, plan_file(pipeline(2, 2, stage([3, 2], 0, 5)),
                           pipeline(2, 2, stage([0, 1], 0, 5)),
                           expert_parallel=2))]
    close(_resumed(plans, EXPERTS), alone(8, experts=EXPERTS))


@case
def a_folder_that_has_something_else_is_told_by_all():
    def told(experts, first):
        words = []
        for rank in ranks.run(2, _some_steps, plan, first, first + 1, folder,
                              experts):
            assert rank.status == 1, rank.value
            words.append(rank.text)
        return words

    plan = plan_file(pipeline(8, 1, stage([0, 1], 0, 5)))
    with _folder() as folder:
        for words in told(0, 1):
            assert "index.json" in words and folder in words, words
        ranks.values(ranks.run(2, _some_steps, plan, 0, 1, folder, EXPERTS))
        for words in told(2 * EXPERTS, 1):
            assert (f"{folder}: 1.feed_forward.into: [8, 64, 32]: wanted"
                    " [16, 64, 32]") in words, words
        for words in told(0, 1):
            assert (f"{folder}: 1.feed_forward.into.weight: not all of it is"
                    " there") in words, words


# -- weights ------------------------------------------------------------------

def _frozen(store, rank, n, plan):
    begin(store, rank, n)
    lines = text()
    layers = gpt.layers(len(lines.characters))
    layers[1] = lambda make=layers[1]: make().requires_grad_(False)
    trainer = hetero.Trainer(hetero.read_plan(plan), layers, gpt.loss_of,
                             (gpt.TOKENS, gpt.HIDDEN))
    optimizer = torch.optim.AdamW(trainer.parameters(), 0.1, weight_decay=0.5)
    before = [p.detach().clone() for p in trainer.parameters()]
    trainer.step(*lines.batch(0))
    optimizer.step()
    changed = {p.requires_grad: not torch.equal(p, was)
               for p, was in zip(trainer.parameters(), before)}
    trainer.close()
    return changed


@case
def what_is_frozen_does_not_decay():
    plan = plan_file(pipeline(8, 1, stage([0], 0, 5)))
    assert ranks.values(ranks.run(1, _frozen, plan)) == [
        {True: True, False: False}]


TIED = ("0.character.weight", "5.out.weight")


# Of two chunks of a group of _interleaved(), which splits them.
TIED_BLOCKS = ("1.attention.into.weight", "4.attention.into.weight")


def _tied_alone(steps, *groups):
    lines, losses = text(), []
    model = hetero.tie(hetero.build_all(gpt.layers(len(lines.characters))),
                       *groups)
    optimizer = gpt.optimizer_of(model.parameters())
    for step in range(steps):
        inputs, targets = lines.batch(step)
        loss = gpt.loss_of(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@case
def a_tied_weight_is_trained_as_one():
    """In one stage and in two, split in the last one or not."""
    reference = _tied_alone(3, TIED)
    split = plan_file(
        pipeline(1, 4, stage([0], 0, 2), stage([2, 1], 3, 5)),
        pipeline(2, 2, stage([3], 0, 5)))
    for plan in PLANS / "degrees.json", split:
        close(trained(plan, 3, tied=[TIED]), reference, shape_of(plan))
    assert deviation(trained(split, 3), reference) > 10 * RELATIVE
    chunks = plan_file(_interleaved(1, 4, 2, [0], [2, 1]),
                       pipeline(2, 2, stage([3], 0, 5)))
    groups = TIED, TIED_BLOCKS
    close(trained(chunks, 3, tied=groups), _tied_alone(3, *groups),
          shape_of(chunks))


def _refused_ties(store, rank, n, plan):
    begin(store, rank, n)
    lines = text()
    layers = gpt.layers(len(lines.characters))
    shared = nn.Linear(gpt.HIDDEN, gpt.HIDDEN)
    told = []
    for made, tied in (
            (layers, [TIED]), (layers, [("0.character.weight", "5.out.w")]),
            (layers, [("0.character.weight", "5.norm.weight")]),
            (layers, [("9.a", "5.b")]), (layers, [("0.a",)]),
            ([layers[0], *[lambda: shared] * 4, layers[5]], [])):
        try:
            hetero.Trainer(hetero.read_plan(plan), made, gpt.loss_of,
                           (gpt.TOKENS, gpt.HIDDEN), tied=tied)
        except ValueError as error:
            told.append(str(error))
    dist.destroy_process_group()
    return told


@case
def what_cannot_be_tied_is_refused_by_all():
    plan = plan_file(pipeline(8, 1, stage([0, 1], 0, 5)))
    for told in ranks.values(ranks.run(2, _refused_ties, plan)):
        assert len(told) == 6, told
        for words, wanted in zip(told, (
                "pipelines[0].stages[0].tp: 2: wanted 1, or",
                "tied: '5.out.w': no such parameter trains",
                "tied: '5.norm.weight': [32]: wanted [",
                "tied: '9.a': wanted the number of one of the 6 layers",
                "tied: ('0.a',): wanted two names or more",
                "layers: '1.weight' and '2.weight' are one parameter")):
            assert wanted in words, words


def _clipped(store, rank, n, plan, most, source):
    begin(store, rank, n)
    lines = text()
    trainer = hetero.Trainer(
        hetero.read_plan(plan), gpt.layers(len(lines.characters)),
        gpt.loss_of, (gpt.TOKENS, gpt.HIDDEN))
    trainer.load_weights(hetero.Weights(source))
    optimizer = torch.optim.SGD(trainer.parameters(), 0.5)
    losses, norms = [], []
    for step in range(3):
        losses.append(trainer.step(*lines.batch(step)))
        norms.append(trainer.clip_gradients(most))
        optimizer.step()
    unequal = trainer.unequal_copies()
    trainer.close()
    assert not unequal, unequal
    return losses, norms


def _safetensors(file, tensors):
    table, at = {}, 0
    for name, tensor in tensors.items():
        length = tensor.numel() * tensor.element_size()
        table[name] = {"dtype": "F32", "shape": list(tensor.shape),
                       "data_offsets": [at, at + length]}
        at += length
    head = json.dumps(table).encode()
    with open(file, "wb") as out:
        out.write(len(head).to_bytes(8, "little") + head)
        for tensor in tensors.values():
            out.write(tensor.numpy().tobytes())


@case
def weights_are_loaded_and_gradients_clipped_as_by_one_process():
    lines, losses, norms = text(), [], []
    model = hetero.build_all(gpt.layers(len(lines.characters)), seed=7)
    state = {name: tensor.detach().clone()
             for name, tensor in model.named_parameters()}
    optimizer, most = torch.optim.SGD(model.parameters(), 0.5), 0.3
    for step in range(3):
        inputs, targets = lines.batch(step)
        optimizer.zero_grad()
        losses.append(gpt.loss_of(model(inputs), targets))
        losses[-1].backward()
        norms.append(nn.utils.clip_grad_norm_(model.parameters(), most))
        optimizer.step()
    assert all(norm > most for norm in norms), norms
    with _folder() as folder:
        half = len(state) // 2
        for at, part in enumerate((list(state)[:half], list(state)[half:])):
            _safetensors(f"{folder}/{at}.safetensors",
                         {name: state[name] for name in part})
        torch.save(state, f"{folder}/all.pt")
        for source, plan in ((folder, "degrees.json"),
                             (f"{folder}/all.pt", "interleaved.json")):
            every = ranks.values(ranks.run(
                4, _clipped, PLANS / plan, most, source))
            assert all(found == every[0] for found in every), every
            for got, wanted in zip(every[0], (losses, norms)):
                close(got, [x.item() for x in wanted], plan)
        os.truncate(f"{folder}/1.safetensors", 5000)
        torch.save(state, f"{folder}/old.bin",
                   _use_new_zipfile_serialization=False)
        for path, name in ((folder, "1.safetensors: "),
                           (f"{folder}/old.bin", "old.bin: ")):
            try:
                hetero.Weights(path)
            except hetero.CheckpointError as error:
                assert name in str(error), error
            else:
                raise AssertionError(f"{name} is taken")


def _narrow_alone(steps, pipelines):
    """One process whose micro-batches compute in 16 bits: (size, number) of
    each pipeline."""
    lines, losses = text(), []
    masters = hetero.build_all(gpt.layers(len(lines.characters)))
    optimizer = gpt.optimizer_of(masters.parameters())
    for step in range(steps):
        inputs, targets = lines.batch(step)
        narrow = hetero.build_all(gpt.layers(len(lines.characters)))
        narrow.load_state_dict(masters.state_dict())
        narrow.to(torch.bfloat16)
        optimizer.zero_grad()
        total, at = 0.0, 0
        for size, number in pipelines:
            weight = size * number / len(inputs)
            for _ in range(number):
                loss = gpt.loss_of(narrow(inputs[at:at + size]),
                                   targets[at:at + size])
                at += size
                total += weight * loss.double().item() / number
                narrow.zero_grad()
                (loss / number).backward()
                for master, parameter in zip(masters.parameters(),
                                             narrow.parameters()):
                    grad = parameter.grad.float() * weight
                    master.grad = grad if master.grad is None else (
                        master.grad + grad)
        optimizer.step()
        losses.append(total)
    return losses


@case
def sixteen_bits_compute_and_thirty_two_are_trained():
    narrow, wide = _narrow_alone(6, [(1, 6), (2, 1)]), alone(6)
    chunks = plan_file(_interleaved(1, 6, 2, [2], [0], [1]),
                       pipeline(2, 1, stage([3], 0, 5)))
    for plan in PLANS / "batches.json", chunks:
        losses = trained(plan, 6, compute=torch.bfloat16)
        # A weight that is rounded the other way is 2^-9 off.
        apart = deviation(losses, narrow)
        assert apart < 1e-3, f"{plan}: {apart:.3g}"
        apart = deviation(losses, wide)
        assert 10 * RELATIVE < apart < 1e-2, f"{plan}: {apart:.3g}"


def _distributed(store, rank, n, plan, first, folder):
    """Two steps, of what a folder has but at first; then it has them."""
    begin(store, rank, n)
    lines = text()
    trainer = hetero.Trainer(
        hetero.read_plan(plan), gpt.layers(len(lines.characters)),
        gpt.loss_of, (gpt.TOKENS, gpt.HIDDEN))
    optimizer = gpt.optimizer_of(trainer.parameters())
    if first:
        trainer.load_distributed(f"{folder}/{first}", optimizer)
    losses = []
    for step in range(first, first + 2):
        losses.append(trainer.step(*lines.batch(step)))
        optimizer.step()
    trainer.save_distributed(f"{folder}/{first + 2}", optimizer)
    trainer.close()
    return losses


@case
def checkpoints_of_torch_are_written_and_read():
    """By other plans, and by one process that knows nothing of plans."""
    import torch.distributed.checkpoint as dcp
    lines, losses = text(), []
    with _folder() as folder:
        for n, plan in (4, "interleaved.json"), (3, "batches.json"):
            every = ranks.values(ranks.run(
                n, _distributed, PLANS / plan, len(losses), folder))
            losses += every[0]
        close(losses, alone(4))
        model = hetero.build_all(gpt.layers(len(lines.characters)))
        optimizer = gpt.optimizer_of(model.parameters())
        names = [name for name, _ in model.named_parameters()]
        for parameter in model.parameters():
            optimizer.state[parameter] = {
                "step": torch.tensor(0.0),
                "exp_avg": torch.zeros_like(parameter),
                "exp_avg_sq": torch.zeros_like(parameter)}
        state = {"model": model.state_dict(), "optim": {"state": dict(
            zip(names, optimizer.state.values()))}}
        dcp.load(state, checkpoint_id=f"{folder}/4", no_dist=True)
        for step in 4, 5:
            inputs, targets = lines.batch(step)
            optimizer.zero_grad()
            losses.append(gpt.loss_of(model(inputs), targets))
            losses[-1].backward()
            optimizer.step()
            losses[-1] = losses[-1].item()
        dcp.save(state, checkpoint_id=f"{folder}/6", no_dist=True)
        losses += ranks.values(ranks.run(
            4, _distributed, PLANS / "interleaved.json", 6, folder))[0]
        close(losses, alone(8))


def _cut_off(store, rank, n, plan, folder):
    begin(store, rank, n)
    trainer = hetero.Trainer(
        hetero.read_plan(plan), gpt.layers(len(text().characters)),
        gpt.loss_of, (gpt.TOKENS, gpt.HIDDEN))
    trainer.save_distributed(folder)
    hetero.distributed_checkpoint.Reader(folder)
    dist.barrier()  # the next one begins by taking it back

    def full(self, index):
        raise OSError("no space is left")

    if rank == 1:
        hetero.distributed_checkpoint._SavePlanner.lookup_object = full
    try:
        trainer.save_distributed(folder)
    except hetero.StageError as error:
        return str(error)


@case
def a_checkpoint_of_torch_that_was_cut_off_does_not_load():
    plan = plan_file(pipeline(4, 2, stage([0], 0, 2), stage([1], 3, 5)))
    with _folder() as folder:
        for told in ranks.values(ranks.run(2, _cut_off, plan, folder)):
            assert f"{folder}: rank 1: OSError: no space is left" in told, told
        try:
            hetero.distributed_checkpoint.Reader(folder)
        except hetero.CheckpointError as error:
            assert folder in str(error), error
        else:
            raise AssertionError("it loads")


def _refused_takes(store, rank, n, plan, folder):
    begin(store, rank, n)
    trainer = hetero.Trainer(
        hetero.read_plan(plan), gpt.layers(len(text().characters)),
        gpt.loss_of, (gpt.TOKENS, gpt.HIDDEN))
    told = []

    def take(optimizer=None):
        try:
            trainer.take(trainer, optimizer, optimizer)
        except hetero.CheckpointError as error:
            told.append(str(error))

    trainer.step(*text().batch(0))
    optimizer = gpt.optimizer_of(trainer.parameters())
    if rank == 0:
        optimizer.step()
    take(optimizer)
    trainer._clips = rank
    take()
    trainer._clips = 0
    optimizer = torch.optim.Adafactor(trainer.parameters())
    optimizer.step()
    take(optimizer)
    take()
    # The next one fails at once, and aborts what another rank has under way.
    store.set(f"taken{rank}", "")
    store.wait([f"taken{other}" for other in range(n)])
    try:
        trainer.save_distributed(folder, optimizer)
    except hetero.StageError as error:
        told.append(str(error))
    return told


@case
def states_that_do_not_fit_together_are_refused_by_all():
    plan = plan_file(pipeline(8, 1, stage([0, 1], 0, 5)))
    with _folder() as folder:
        for told in ranks.values(ranks.run(2, _refused_takes, plan, folder)):
            assert len(told) == 4, told
            for words, wanted in zip(told, (
                    "ranks have made [0, 1] updates by the optimizer",
                    "ranks have made [0, 1] clips of gradients",
                    "the optimizer's state has not its shape",
                    "the optimizer's state has not its shape")):
                assert wanted in words, words


def _after_a_death(store, rank, n, old, new, culprit, folder):
    """Losses of two steps of a plan, and of two more of another one, by the
    ranks that are left; and why those have had to load."""
    begin(store, rank, n)
    lines = text()

    def begin_plan(plan):
        trainer = hetero.Trainer(
            plan, gpt.layers(len(lines.characters)), gpt.loss_of,
            (gpt.TOKENS, gpt.HIDDEN), grace_s=5)
        return trainer, gpt.optimizer_of(trainer.parameters())

    before, its_optimizer = begin_plan(hetero.read_plan(old))
    losses = []
    for step in range(2):
        losses.append(before.step(*lines.batch(step)))
        its_optimizer.step()
    before.save(folder, its_optimizer)
    if rank == culprit:
        _kill()
    try:
        before.step(*lines.batch(2))
        raise AssertionError("nobody has noticed")
    except hetero.StageError as error:
        assert error.culprits == [culprit], error
    before.close()
    dist.destroy_process_group()
    left = [r for r in range(n) if r != culprit]
    begin(dist.FileStore(store.path + "-left", len(left)), left.index(rank),
          len(left))
    trainer, optimizer = begin_plan(hetero.read_plan(new).among(left))
    told = None
    try:
        trainer.take(before, optimizer, its_optimizer)
    except hetero.CheckpointError as error:
        told = str(error)
        trainer.load(folder, optimizer)
    for step in range(2, 4):
        losses.append(trainer.step(*lines.batch(step)))
        optimizer.step()
    assert not trainer.unequal_copies()
    trainer.close()
    return losses, told


def _replanned(plan, lost):
    """What `dicomm-plan replan` of the build makes of a plan, in a file of its
    own; None if the build has no dicomm-plan."""
    program = pathlib.Path(os.environ["LIBDICOMM_FILE"]).parent.parent / (
        "dicomm-plan")
    if not program.exists():
        print("# no dicomm-plan: a plan by hand", flush=True)
        return None
    new = plan_file()
    with _folder() as folder:
        cluster, model = f"{folder}/cluster.json", f"{folder}/model.json"
        pathlib.Path(cluster).write_text(json.dumps({
            "nodes": [{"ranks": ranks_of(plan), "inside_gbit_per_s": 10,
                       "device": "host"}],
            "devices": {"host": {"tflops": 0.1, "memory_gib": 4}}}))
        pathlib.Path(model).write_text(json.dumps(
            gpt.model_of(len(text().characters))))
        subprocess.run(
            [program, "replan", "--cluster", cluster, "--model", model,
             "--plan", plan, "--lost", str(lost), "-o", new], check=True,
            stdout=subprocess.DEVNULL, timeout=BOUND_S)
    return new


@case
def those_that_are_left_go_on_by_another_plan():
    reference = alone(4)

    def go_on(old, new, culprit):
        with _folder() as folder:
            every = ranks.values(ranks.run(
                culprit + 1, _after_a_death, old, new, culprit, folder,
                seconds=100)[:culprit])
        assert all(of == every[0] for of in every), every
        losses, told = every[0]
        close(losses, reference)
        return told

    left = _replanned(PLANS / "degrees.json", 3) or plan_file(
        pipeline(1, 8, stage([0, 1], 0, 3), stage([2], 4, 5)))
    assert go_on(PLANS / "degrees.json", left, 3) is None
    left = plan_file(_interleaved(2, 4, 3, [2], [1, 0]))
    assert go_on(PLANS / "interleaved.json", left, 3) is None
    # Of the only pipeline, a stage is gone, or a part of one.
    left = plan_file(pipeline(1, 8, stage([0], 0, 3), stage([1], 4, 5)))
    for last, words in (
            ([stage([1], 2, 3), stage([2], 4, 5)], "no rank has it any more"),
            ([stage([1, 2], 2, 5)], "not all of it is held by a rank")):
        told = go_on(plan_file(pipeline(1, 8, stage([0], 0, 1), *last)),
                     left, 2)
        assert words in told, told


# -- models of Hugging Face ---------------------------------------------------

def _transformers():
    """transformers, of this environment or of the folder that frameworks.py
    fills; None, said loudly, where neither has it. Names of models are found
    in a folder of this process, HF_HUB_CACHE, and nowhere else."""
    if "transformers" not in sys.modules:
        ready, site = frameworks.installed()
        if ready and site not in sys.path:
            sys.path.append(site)
        os.environ["HF_HUB_OFFLINE"] = "1"
        os.environ["HF_HUB_CACHE"] = folder = tempfile.mkdtemp(
            prefix="dicomm-hub-")
        _at_the_end(lambda: shutil.rmtree(folder))
    try:
        import transformers
    except ImportError:
        print("# no transformers: skipped (frameworks.py installs it)",
              flush=True)
        return None
    # transformers asks; there is nothing of NVIDIA behind it (environment).
    torch.cuda.is_current_stream_capturing = lambda: False
    return transformers


def _published(name, config):
    """Have a name stand for a model, as if its configuration had been got
    from Hugging Face's hub."""
    folder = pathlib.Path(os.environ["HF_HUB_CACHE"],
                          "models--" + name.replace("/", "--"))
    (folder / "refs").mkdir(parents=True)
    (folder / "refs" / "main").write_text("0" * 40)
    config.save_pretrained(folder / "snapshots" / ("0" * 40))


def _hugging(kind, tied):
    import transformers
    sizes = {"vocab_size": 97, "hidden_size": 32, "num_hidden_layers": 4,
             "num_attention_heads": 4, "tie_word_embeddings": tied,
             "max_position_embeddings": 16}
    if kind == "gpt2":
        return transformers.GPT2Config(**sizes)
    return transformers.AutoConfig.for_model(
        kind, **sizes, num_key_value_heads=2, intermediate_size=64,
        head_dim=8, pad_token_id=None)


def _hugging_batch(step):
    generator = torch.Generator().manual_seed(step)
    x = torch.randint(97, (8, 1), generator=generator)
    x = (3 * x + 7 * torch.arange(17)) % 97
    return x[:, :-1], x[:, 1:]


def _hugging_losses(step_of, parameters, n):
    optimizer = gpt.optimizer_of(parameters) if parameters else None
    losses = []
    for step in range(n):
        losses.append(step_of(*_hugging_batch(step)))
        if optimizer:
            optimizer.step()
            optimizer.zero_grad()
    return losses


def _hugging_ranks(store, rank, n, name, plan, folder):
    begin(store, rank, n)
    model = hetero.huggingface.cut(name, 16)
    trainer = hetero.Trainer(
        hetero.read_plan(plan), model.layers, model.loss, model.activation,
        tied=model.tied)
    trainer.load_weights(model.weights(folder))
    losses = _hugging_losses(trainer.step, trainer.parameters(), 3)
    trainer.close()
    return losses


@case
def models_of_hugging_face_train_as_they_do_there():
    """By name; with their own weights, in their own class, beside plans."""
    transformers = _transformers()
    if not transformers:
        return
    split = [pipeline(1, 4, stage([0, 1], 0, 2), stage([2], 3, 5)),
             pipeline(2, 2, stage([3], 0, 5))]
    whole = [pipeline(1, 4, stage([0], 0, 2), stage([2], 3, 5)),
             pipeline(2, 2, stage([1], 0, 5))]
    one = [pipeline(2, 2, stage([2], 0, 5))]
    for kind, tied, plans in (
            ("gpt2", True, [whole, [_interleaved(1, 4, 3, [1], [0]), *one]]),
            ("llama", False, [split, [_interleaved(1, 4, 2, [3, 1], [0]),
                                      *one]]),
            ("qwen2", True, [split]), ("mistral", False, [split]),
            ("qwen3", True, [whole])):
        config = _hugging(kind, tied)
        name = f"dicomm-test/{kind}"
        _published(name, config)
        torch.manual_seed(1)
        model = transformers.AutoModelForCausalLM.from_config(
            config, attn_implementation="sdpa").eval()  # without dropout

        def step_of(inputs, targets):
            loss = hetero.huggingface.Cut.loss(model(inputs).logits, targets)
            loss.backward()
            return loss.item()

        with _folder() as folder:
            model.save_pretrained(folder)
            reference = _hugging_losses(
                step_of, list(model.parameters()), 3)
            for plan in plans:
                file = plan_file(*plan, sequence=16)
                close(ranks.values(ranks.run(
                    ranks_of(file), _hugging_ranks, name, file, folder))[0],
                    reference, kind, shape_of(file))
    for config, tokens, words in (
            (transformers.GPTNeoXConfig(), 16, "model_type 'gpt_neox'"),
            (_hugging("llama", False), 32, "tokens 32: wanted at most 16")):
        try:
            hetero.huggingface.cut(config, tokens)
        except ValueError as error:
            assert words in str(error), error
            continue
        raise AssertionError("it is taken")


@case
def models_of_hugging_face_begin_as_they_do_there():
    if not _transformers():
        return
    model = hetero.huggingface.cut(_hugging("gpt2", True), 16)
    mlp = hetero.layers.build(model.layers[1], 0, 1).layer.mlp
    for part, wanted in (mlp.c_fc, 0.02), (mlp.c_proj, 0.02 / 8 ** 0.5):
        assert abs(part.weight.std().item() / wanted - 1) < 0.1, wanted
    config = _hugging("llama", False)
    config.pad_token_id = 3
    model = hetero.huggingface.cut(config, 16)
    weight = hetero.layers.build(model.layers[0], 0, 0).embed_tokens.weight
    assert [at for at, row in enumerate(weight) if not row.any()] == [3]


# -- profiles -----------------------------------------------------------------

SLEEP_MS = 3.0


def _profile(store, rank, n, file):
    begin(store, rank, n)
    lines = text()
    device = ("slow", "slow", "fast")[rank]
    profile = hetero.Profile(
        gpt.layers(len(lines.characters), SLEEP_MS), gpt.loss_of,
        gpt.optimizer_of, (2, 1), (1, 2), device=device)
    told = []
    for bad in ({"degrees": (4,)}, {"micro_batches": (0,)}):
        try:
            hetero.Profile([], None, None, **bad)
        except ValueError as error:
            told.append(str(error))
    inputs, targets = lines.batch(0)
    try:
        profile.measure(inputs[:1], targets)
    except ValueError as error:
        told.append(str(error))
    profile.measure(inputs, targets, repeats=2)
    profile.save(file)
    table = profile.table()
    dist.destroy_process_group()
    return told, table


@case
def profiles_tell_what_layers_take_and_hold():
    """Ranks 0 and 1 are the only team of two. Nothing is faster than it
    sleeps; how much slower is up to the machine."""
    with tempfile.NamedTemporaryFile(suffix=".json") as out:
        every = ranks.values(ranks.run(3, _profile, out.name))
        table = json.load(out)
    assert all(found == (every[0][0], table) for found in every), every
    told = every[0][0]
    assert told == [
        "degrees: 4: wanted 1 or more, at most the 3 ranks of the group",
        "micro_batches: 0: wanted 1 or more",
        "inputs: wanted 2 sequences, not 1"], told
    assert table["sequence"] == gpt.TOKENS
    slow, fast = (table["devices"][name] for name in ("slow", "fast"))
    assert {size: sorted(of) for size, of in slow.items()} == {
        "1": ["1", "2"], "2": ["1", "2"]}, slow
    assert {size: sorted(of) for size, of in fast.items()} == {
        "1": ["1"], "2": ["1"]}, fast
    for devices in slow, fast:
        for size, degrees in devices.items():
            for degree, layers in degrees.items():
                assert sorted(layers) == list("012345"), layers
                for number, (f, b, u) in layers.items():
                    # The embedding is not split.
                    parts = int(degree) if number != "0" else 1
                    least = SLEEP_MS * 1e-3 * int(size) / parts
                    assert f >= least and b >= 2 * least and u > 0, (
                        size, degree, number, f, b, u)
    whole = gpt.layers(len(text().characters))
    for degree in 1, 2:
        of = table["layers"][str(degree)]
        for number, make in enumerate(whole):
            parts = sum(
                p.numel() for p in layers_of(make, number, degree))
            assert of[str(number)]["params_floats"] == parts, (degree, number)
        edge = 4 * gpt.TOKENS * gpt.HIDDEN
        assert [of[n]["act_input_bytes"] for n in "0123"] == [
            0, edge, edge, edge]
        # Norms, heads and the inner part at the least.
        assert of["1"]["act_mem_bytes"] > 3 * edge, of["1"]
    assert (table["layers"]["2"]["1"]["act_mem_bytes"]
            < table["layers"]["1"]["1"]["act_mem_bytes"])


def layers_of(make, number, degree):
    """Parameters that the fullest rank of a team has of a layer."""
    from dicomm_torch.hetero import layers
    layer = layers.split(layers.build(make, 0, number), layers.Team(degree))
    return layer.parameters()


# -- failures -----------------------------------------------------------------

def _until_it_fails(store, rank, n, plan, culprit, seconds, before,
                    experts=0):
    """Train until an exception, which one rank brings about before its third
    step; returns (kind, text, culprits, seconds that it took)."""
    begin(store, rank, n, seconds)
    steps = gpt.train(text(), 1000, plan, experts=experts, grace_s=5)
    for _ in range(3):
        next(steps)
    began = time.monotonic()
    try:
        if rank == culprit:
            before()
        while True:
            next(steps)
    except hetero.StageError as error:
        return str(error), error.culprits, time.monotonic() - began


def _kill():
    os.kill(os.getpid(), signal.SIGKILL)


def _stop():
    os.kill(os.getpid(), signal.SIGSTOP)


def _fault():
    raise KeyError("a fault of the program")


def _named(every, culprit, where):
    for number, rank in enumerate(every):
        if number == culprit:
            continue
        assert rank.status == 0, f"{number}: {rank.status}: {rank.text[-900:]}"
        words, culprits, took = rank.value
        assert culprits == [culprit], f"rank {number}: {culprits}: {words}"
        assert where in words, f"rank {number}: {words}"
        assert took < BOUND_S, f"rank {number}: {took:.1f} s: {words}"


FAILING = [("interleaved.json", 4, 2, "rank 2 (pipeline 0, stages 1, 3)"),
           ("layers.json", 5, 0, "rank 0 (pipeline 0, stage 0)")]


@case
def a_killed_stage_is_named_by_all():
    for plan, n, culprit, where in FAILING:
        every = ranks.run(n, _until_it_fails, PLANS / plan, culprit, 60, _kill,
                          seconds=100)
        assert every[culprit].status == -signal.SIGKILL
        _named(every, culprit, where)


@case
def a_killed_stage_is_named_by_those_that_share_its_experts():
    every = ranks.run(4, _until_it_fails, PLANS / "experts.json", 1, 60, _kill,
                      EXPERTS, seconds=100)
    assert every[1].status == -signal.SIGKILL
    _named(every, 1, "rank 1 (pipeline 0, stage 1)")


@case
def a_stopped_stage_is_named_by_all():
    for plan, n, culprit, where in FAILING[1:]:
        def resume(every):
            end = time.monotonic() + 80
            others = [rank for rank in every if rank is not every[culprit]]
            while time.monotonic() < end and not all(
                    [rank.reap(os.WNOHANG) for rank in others]):
                time.sleep(0.05)
            os.kill(every[culprit].pid, signal.SIGCONT)

        every = ranks.run(n, _until_it_fails, PLANS / plan, culprit, 8, _stop,
                          seconds=100, during=resume)
        _named(every, culprit, where)
        # It hears of it, too, when it goes on.
        assert every[culprit].status == 0, every[culprit].text[-900:]
        assert every[culprit].value[1] == [culprit], every[culprit].value


@case
def a_rank_that_ends_by_a_fault_is_named_by_all():
    plan, n, culprit, where = FAILING[0]
    every = ranks.run(n, _until_it_fails, PLANS / plan, culprit, 60, _fault,
                      seconds=100)
    assert every[culprit].status == 1
    _named(every, culprit, where)


def _bad_batch(store, rank, n, plan, culprit):
    begin(store, rank, n)
    inputs, targets = text().batch(0)
    began = time.monotonic()
    try:
        trainer = hetero.Trainer(
            hetero.read_plan(plan), gpt.layers(len(text().characters)),
            gpt.loss_of, (gpt.TOKENS, gpt.HIDDEN), grace_s=30)
        trainer.step(inputs[:3] if rank == culprit else inputs, targets)
    except hetero.StageError as error:
        return str(error), error.culprits, time.monotonic() - began


@case
def a_wrong_batch_is_told_to_all():
    plan, n, culprit, where = FAILING[1]
    every = ranks.run(n, _bad_batch, PLANS / plan, culprit, seconds=100)
    _named(every, culprit, where)
    for rank in every:
        assert "wanted 8 sequences on rank 0, not 3" in rank.value[0]


# -- plans --------------------------------------------------------------------

@case
def a_wrong_plan_is_refused_by_place_and_value():
    good = json.loads((PLANS / "degrees.json").read_text())

    def changed(change):
        plan = json.loads(json.dumps(good))
        change(plan)
        with tempfile.NamedTemporaryFile("w", suffix=".json") as out:
            json.dump(plan, out)
            out.flush()
            try:
                hetero.plan.check_plan(hetero.read_plan(out.name), 6, 4)
            except hetero.PlanError as error:
                text = str(error)
                assert text.startswith(out.name), text
                return text
        raise AssertionError("it is taken")

    def stages(plan):
        return plan["pipelines"][0]["stages"]

    def chunks(p, **more):
        p["pipelines"][0].update(
            {**_interleaved(1, 4, 2, [0], [1, 2]), **more})
        p.update(schedule="interleaved")

    for change, words in (
            (lambda p: chunks(p, interleave=65),
             "pipelines[0].interleave: 65: wanted 1 to 64"),
            (lambda p: chunks(p, interleave=0),
             "pipelines[0].interleave: 0: wanted an integer from 1 on"),
            (lambda p: chunks(p, interleave=3),
             "pipelines[0].interleave: 3: wanted 1, or what divides the 4"),
            (lambda p: chunks(p, interleave=4),
             "pipelines[0].interleave: 4: wanted 1, or what divides the 4"
             " stages among two or more groups"),
            (lambda p: chunks(p, micro_batches=3),
             "pipelines[0].micro_batches: 3: wanted a multiple of 2, the"),
            (lambda p: (chunks(p), stages(p)[2].update(ranks=[4])),
             "pipelines[0].stages[2].ranks: [4]: wanted [0], as of stages[0]"),
            (lambda p: (chunks(p), stages(p)[3].update(ranks=[2, 1])),
             "pipelines[0].stages[3].ranks: [2, 1]: wanted [1, 2], as of"),
            (lambda p: (chunks(p), p.update(schedule="1f1b")),
             "pipelines[0].interleave: 2: wanted 1 with the schedule '1f1b'"),
            (lambda p: p.update(schedule="interleaved"),
             "schedule: 'interleaved': wanted 1f1b or gpipe, or a pipeline"),
            (lambda p: (chunks(p), p.update(ahead=1)),
             "ahead: 1: wanted 0 with the schedule 'interleaved'"),
            (lambda p: (chunks(p), p.update(expert_parallel=2, pipelines=[
                p["pipelines"][0], pipeline(1, 4, *[
                    stage([3 + s], *of["layers"])
                    for s, of in enumerate(stages(p))])])),
             "pipelines[1].interleave: 1: wanted 2, as of pipelines[0]"),
            (lambda p: stages(p)[1].update(layers=[2, 5]),
             "pipelines[0].stages[1].layers: [2, 5]: wanted 3 first"),
            (lambda p: p.update(expert_parallel=3),
             "expert_parallel: 3: wanted a divisor of the 2 pipelines"),
            (lambda p: p.update(expert_parallel=2),
             "pipelines[1].micro_batch: 2: wanted 1, as of pipelines[0], with"
             " which it shares experts"),
            (lambda p: p.update(expert_parallel=2, pipelines=[{
                **line, "micro_batch": 1, "micro_batches": 4}
                for line in p["pipelines"]]),
             "pipelines[1].stages[0].layers: [0, 5]: wanted [0, 2], as of"),
            (lambda p: p.update(capacity=0.5),
             "capacity: 0.5: wanted a number from 1 on"),
            (lambda p: stages(p)[0].update(tp=3),
             "pipelines[0].stages[0].tp: 3: wanted 2"),
            (lambda p: stages(p)[1].update(ranks=[0]),
             "pipelines[0].stages[1].ranks[0]: 0: wanted a rank that is not"),
            (lambda p: stages(p)[1].update(ranks=[4]),
             "pipelines[0].stages[1].ranks[0]: 4: wanted a rank below 4"),
            (lambda p: stages(p)[1].pop("ranks"),
             "pipelines[0].stages[1].ranks: missing"),
            (lambda p: stages(p)[1].update(layers=[3, 4]),
             "pipelines[1].stages: 5: wanted 4"),
            (lambda p: p["pipelines"][1].update(micro_batch=0),
             "pipelines[1].micro_batch: 0: wanted an integer from 1 on"),
            (lambda p: p["pipelines"][1].update(micro_batches=3),
             "global_batch: 8: wanted 10"),
            (lambda p: p["pipelines"][1].update(weight=0.25),
             "pipelines[1].weight: 0.25: wanted 0.5"),
            (lambda p: p.update(schedule="zero-bubble"),
             "schedule: 'zero-bubble': wanted 1f1b or gpipe"),
            (lambda p: p.update(zero=2), "zero: 2: wanted 0"),
            (lambda p: p.update(pipelines=[]), "pipelines: []: wanted")):
        told = changed(change)
        assert words in told, f"{told!r} lacks {words!r}"


# -- comparison ---------------------------------------------------------------

class _Wrong(hetero.RowLinear):
    """A device that multiplies a little wrong."""

    def forward(self, x):
        return super().forward(x) * 1.0005


def _model():
    return hetero.build_all(gpt.layers(60))


def _tokens():
    return torch.randint(60, (2, gpt.TOKENS),
                         generator=torch.Generator().manual_seed(1))


@case
def a_module_on_the_host_is_like_itself_in_float64():
    report = hetero.compare(_model(), _tokens())
    assert report.passed, str(report)[:900]
    assert {d.what.rstrip("0123456789 ") for d in report} >= {
        "output", "gradient of input", "gradient of weight"}
    assert {"2.attention.into", "5.out", "0.character", ""} <= {
        d.module for d in report}


@case
def the_module_that_computes_wrong_comes_first():
    model = _model()
    wrong = hetero.build_all(gpt.layers(60))
    wrong[2].feed_forward.out.__class__ = _Wrong
    report = hetero.compare(model, _tokens(), against=wrong)
    assert not report.passed
    assert report[0].module == "2.feed_forward.out", str(report)[:900]
    inside = [d for d in report if not d.passed and not d.inherited]
    assert {d.module for d in inside} == {"2.feed_forward.out"}, str(report)


@case
def narrow_types_have_their_own_tolerance():
    linear = nn.Linear(16, 16)
    x = torch.randn(4, 16)
    for dtype, tolerance in ((torch.bfloat16, 1e-3), (torch.float16, 1e-4),
                             (torch.float64, 1e-8)):
        report = hetero.compare(linear, x, dtype=dtype)
        assert all(d.tolerance == tolerance for d in report)
        assert hetero.compare(linear, x, dtype=dtype, tolerance=0.1).passed
    assert hetero.compare(linear, x, dtype=torch.float64).passed


def _ranks_alike(store, rank, n):
    begin(store, rank, n)
    torch.manual_seed(rank)  # each has another model; that of rank 1 counts
    model = nn.Sequential(nn.Linear(8, 8), nn.GELU(), hetero.RowLinear(8, 4))
    if rank == 2:
        model[2].__class__ = _Wrong
    reports = hetero.compare_ranks(model, torch.randn(3, 8), reference=1)
    dist.destroy_process_group()
    return {other: (report.passed, report[0].module)
            for other, report in reports.items()}


@case
def ranks_are_compared_with_one_of_them():
    every = ranks.values(ranks.run(3, _ranks_alike))
    for found in every:
        assert found[0][0] and found.keys() == {0, 2}, found
        assert found[2] == (False, "2"), found
