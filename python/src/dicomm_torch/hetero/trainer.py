# SPDX-License-Identifier: BSD-3-Clause
"""Trains the layers that a plan gives this rank."""

import hashlib
import itertools
import os
import time

import torch
import torch.distributed as dist
import torch.utils.checkpoint

from .._communicator import Communicator
from . import channels, checkpoint, pretrained, schedule
from . import distributed_checkpoint as dcp
from .experts import Experts
from .failures import Inquest
from .layers import ALONE, Team, build, held_by, split, whole_box
from .masters import Masters
from .plan import check_experts, check_plan
from .redistribution import Moved, Redistribution
from .tied import Tied, refuse_shared

_numbers = itertools.count()


class Trainer:
    """This rank's stage of a plan, or stages.

    layers is a list of functions, each of which makes a whole layer: a module
    of one tensor that gives one. What it has of ColumnLinear and RowLinear is
    shared by the ranks of its stage. loss(output, targets) is the mean over a
    micro-batch, whose sequences are equally long. activation is the shape of
    what goes from layer to layer, of one sequence; dtype its type. Experts of
    layers are shared by the pipelines that share experts in the plan.

    compute, of 16 bits, is the type of the layers (and of dtype, if that is
    None); parameters() are then their masters, of the type in which they were
    made, and gradients add up in that. tied has groups of names that are one
    parameter each.

    weights is "tokens" for the mean over the global batch, or "equal" for the
    mean over the means of the pipelines, which is something else where their
    parts of the batch differ. ahead is described in schedule.passes(), and
    that of the plan if it is None. way is
    one of the library's redistribution. grace_s: see failures.Inquest.

    All ranks of the group (the default one, of the backend "dicomm") make it
    and call its methods together, from one thread. Those that the plan does
    not use do so, too, and hold nothing.
    """

    def __init__(self, plan, layers, loss, activation, dtype=None,
                 group=None, seed=0, weights="tokens", asynchronous=True,
                 ahead=None, way="auto", grace_s=5.0, compute=None, tied=()):
        if weights not in ("tokens", "equal"):
            raise ValueError(f"weights {weights!r}: wanted tokens or equal")
        ahead = plan.ahead if ahead is None else ahead
        if ahead < 0:
            raise ValueError(f"ahead {ahead}: wanted 0 or more")
        for name, value, wanted in (("ahead", ahead, 0),
                                    # Blocking ranks would wait for each other.
                                    ("asynchronous", asynchronous, True)):
            if plan.schedule == "interleaved" and value != wanted:
                raise ValueError(f"{name} {value}: wanted {wanted} with the"
                                 f" schedule {plan.schedule!r}")
        group = group or dist.group.WORLD
        self._home = getattr(group, "_communicator", None)
        if self._home is None:
            raise ValueError("hetero.Trainer: wanted a group of the backend"
                             f" dicomm, not {dist.get_backend(group)}")
        self._rank, self._ranks = self._home.rank, self._home.size
        check_plan(plan, len(layers), self._ranks)
        made = [build(factory, seed, number, "meta")
                for number, factory in enumerate(layers)]
        refuse_shared(made)
        self._experts = [[module.count for module in layer.modules()
                          if isinstance(module, Experts)] for layer in made]
        check_experts(plan, self._experts)
        self._tied = Tied(tied, len(layers))
        self._compute = compute
        self._steps = self._clips = 0
        self.plan = plan
        self._group = group
        self._loss = loss
        self._asynchronous = asynchronous
        self._ahead = ahead
        self._store = dist.PrefixStore(
            f"dicomm_hetero/{next(_numbers)}", group.get_group_store())
        self._inquest = Inquest(
            self._store, self._rank, self._ranks, self._words, grace_s)
        self.pipeline, self.stage = plan.find(self._rank)
        self._stages = () if self.pipeline is None else (
            plan.pipelines[self.pipeline].chunks(self.stage))
        self._weights = [
            plan.weight(p) if weights == "tokens" else 1 / len(plan.pipelines)
            for p in range(len(plan.pipelines))]
        self._make_layers(layers, seed)
        self._boundaries = channels.Boundaries(
            plan, self._rank, self._communicator, tuple(activation),
            dtype or compute or torch.float32, way)
        try:
            self._plan_parameters(layers)
        except dist.DistBackendError as error:
            # A rank that has done its part may have failed in a step since.
            raise self._inquest.hold(error, self._abort) from error
        self._inquest.open()
        self.align()

    # -- what this rank holds ----------------------------------------------

    def _words(self, rank):
        p, s = self.plan.find(rank)
        if p is None:
            return f"rank {rank} (not in the plan)"
        stages = [str(s) for s in self.plan.pipelines[p].chunks(s)]
        return (f"rank {rank} (pipeline {p}, stage{'s' * (len(stages) > 1)}"
                f" {', '.join(stages)})")

    def _communicator(self, name):
        return Communicator(
            dist.PrefixStore(name, self._store), self._rank, self._ranks,
            self._home.timeout, f"{self._home.name}/{name}",
            self._home.device)

    def _make_layers(self, factories, seed):
        self.layers = torch.nn.ModuleDict()
        self._masters = None
        self._team = self._peers = ALONE
        self._make_teams()
        for number in itertools.chain(*map(self._numbers, self._stages)):
            layer = split(build(factories[number], seed, number), self._team,
                          self._peers)
            for module in layer.modules():
                if isinstance(module, Experts) and self.plan.capacity:
                    module.capacity = self.plan.capacity
            self.layers[str(number)] = layer.to(self._home.place)
        self._tied.join(self.layers)
        if self._compute:
            self._masters = Masters(self.layers, self._compute)

    def _make_teams(self):
        """All ranks make all groups, in one order: torch names a group by how
        many its ranks have made before."""
        for p, s, stage in self.plan.groups():
            team = self._make_team(stage.places,
                                   f"pipelines[{p}].stages[{s}].tp")
            if self._rank in stage.ranks:
                self._team = team
            if p % self.plan.experts or not self._has_experts(p, s):
                continue
            for place in range(stage.degree):
                ranks = self.plan.peers(p, s, place)
                peers = self._make_team(ranks, "expert_parallel")
                if self._rank in ranks:
                    self._peers = peers

    def _has_experts(self, p, group):
        stages = [self.plan.pipelines[p].stages[s]
                  for s in self.plan.pipelines[p].chunks(group)]
        return any(any(self._experts[of.first:of.last + 1]) for of in stages)

    def _make_team(self, ranks, where):
        if len(ranks) == 1:
            return ALONE
        if self._group is not dist.group.WORLD:
            raise NotImplementedError(
                f"{where}: {len(ranks)}: teams are of the default group only")
        group = dist.new_group(ranks)
        if self._rank not in ranks:
            return ALONE
        return Team(len(ranks), ranks.index(self._rank), group)

    def _numbers(self, stage):
        """Of the layers of a stage of this pipeline."""
        of = self.plan.pipelines[self.pipeline].stages[stage]
        return range(of.first, of.last + 1)

    def parameters(self):
        """What the optimizer of this rank is to update."""
        return [parameter for _, parameter in self.named_parameters()]

    def named_parameters(self):
        """(name, parameter): the number of the layer, a dot, its name there;
        the parameter is what this rank holds of it, or its master."""
        if self._masters:
            return list(self._masters.named.items())
        return list(self.layers.named_parameters())

    def _plan_parameters(self, factories):
        """One redistribution that sums the gradients of all parameters, and
        one that gives all copies the values of pipeline 0."""
        gradients, values, self._held = [], [], []
        self._boxes = {}  # of this rank: (shape, lo, hi)
        self._mine = {}  # likewise, the parameters; by names in checkpoints
        self._kept = []  # which of them it writes into checkpoints
        self._every = []  # of all ranks: (name, type, shape)
        groups = self._held_by_groups(factories)
        planned = set()
        for name in [name for (p, _), held in groups.items() if p == 0
                     for name in held]:
            group = self._tied.group(name)
            if group[0] in planned:
                continue
            planned.add(group[0])
            self._plan_parameter(group, [
                (p, s, held[here]) for (p, s), held in groups.items()
                for here in [next((n for n in group if n in held), None)]
                if here], values, gradients)
        self._sum = self._align = None
        if gradients:
            self._sum = Redistribution(self._home, gradients, own=True)
            self._align = Redistribution(self._home, values, own=True)

    def _held_by_groups(self, factories):
        """{(pipeline, device group): {name: Held}}."""
        known, groups = {}, {}
        for p, g, first in self.plan.groups():
            held = groups[p, g] = {}
            pipeline = self.plan.pipelines[p]
            for stage in [pipeline.stages[s] for s in pipeline.chunks(g)]:
                for number in range(stage.first, stage.last + 1):
                    key = number, first.degree
                    if key not in known:
                        known[key] = held_by(factories[number], *key,
                                             self.plan.experts)
                    held.update((of.name, of) for of in known[key])
            self._tied.check_group(self.plan, p, g, held)
        self._copies = [known[key] for key in sorted(known)]
        self._tied.check({of.name for held in self._copies for of in held})
        return groups

    def _plan_parameter(self, group, homes, values, gradients):
        """homes: (pipeline, device group, what that holds of it)."""
        held, name = homes[0][2], group[0]
        # Experts have one gradient of the pipelines that share them, whose
        # parts of the batch are equal.
        share = self.plan.experts if held.spread else 1
        weights = [self._weights[p] for p, _, _ in homes][::share]
        boxes = []
        for home, (p, s, of) in enumerate(homes):
            if of.shape != held.shape or of.dtype != held.dtype:
                raise ValueError(
                    f"tied: {of.name!r}: {of.shape} of {of.dtype}: wanted"
                    f" {held.shape} of {held.dtype}, as of {held.name!r}")
            for place, rank in enumerate(
                    self.plan.pipelines[p].stages[s].places):
                peer = (self.plan.peers(p, s, place).index(rank)
                        if share > 1 else 0)
                boxes.append((rank, home // share, *of.box((place, peer))))
        first = [box for box in boxes if box[1] == 0]
        if not held.splits:  # one rank is enough to get it from
            first = first[:1]
        self._every.append((name, held.dtype, held.shape))
        mine = dict(self.named_parameters())
        mine = next((mine[n] for n in group if n in mine), None)
        for _, _, lo, hi in self._own(boxes):
            self._boxes[name] = held.shape, lo, hi
            self._mine[name] = mine
        if self._own(first):
            self._kept.append(name)
        if len(boxes) < 2:
            return
        values.append(Moved(
            f"value of {name}", held.dtype, held.shape, self._own(first),
            self._own(boxes)))
        gradients.append(Moved(
            f"gradient of {name}", held.dtype, held.shape,
            self._own(first if weights == [1] else boxes),
            self._own(boxes), None if weights == [1] else weights))
        self._held.append(mine)

    def _own(self, boxes):
        return [box for box in boxes if box[0] == self._rank]

    def _redistribute(self, plan, tensors, sources=None):
        if plan is None:
            return
        at = [t if t is None else t.data_ptr() for t in tensors]
        plan.run(at, at)
        if not self._home.on_host:
            result = self._home.synchronize()
            if result:
                raise self._home.error(result, "redistribute")

    def align(self):
        """Give all copies of each parameter the values of pipeline 0."""
        self._guard(self._redistribute, self._align,
                    [p if p is None else p.data for p in self._held])

    # -- a step --------------------------------------------------------------

    def step(self, inputs, targets):
        """Forward and backward passes of a global batch, whose sequences are
        along the first axis; all ranks pass the same, but inputs may be None
        where there is no first stage, and targets where there is no last one.

        Afterwards each parameter has the gradient of the mean loss over the
        global batch, equal in all copies. Returns that mean. Raises
        StageError if a rank failed, after which the trainer is of no use.
        """
        loss = self._guard(self._step, inputs, targets)
        self._steps += 1
        return loss

    def _guard(self, function, *arguments):
        try:
            return function(*arguments)
        except checkpoint.Lost:
            raise  # by all ranks, and nothing is under way
        except Exception as error:
            raise self._inquest.hold(error, self._abort) from error

    def _step(self, inputs, targets):
        if self._masters:
            self._masters.refresh()
        for parameter in self.parameters():
            if not parameter.requires_grad:
                continue  # a gradient of 0 would have its weights decay
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(
                    parameter, memory_format=torch.contiguous_format)
            else:
                parameter.grad.zero_()
        losses = []
        if self.pipeline is not None:
            losses = self._passes(inputs, targets)
        gradients = [p if p is None else p.grad for p in self._held]
        self._redistribute(self._sum, gradients)
        return self._mean(losses)

    def clip_gradients(self, most):
        """After step(): make the norm of all gradients, as of one model, at
        most that; returns what it was. Called by all ranks."""
        if not most > 0:
            raise ValueError(f"most {most}: wanted a number above 0")
        norm = self._guard(self._clip_gradients, most)
        self._clips += 1
        return norm

    @torch.no_grad()
    def _clip_gradients(self, most):
        # Each element counts once, however many ranks hold it.
        square = torch.zeros(1, dtype=torch.float64)
        for name in self._kept:
            square += self._mine[name].grad.double().square().sum().cpu()
        dist.all_reduce(square, group=self._group)
        norm = square.sqrt().item()
        if norm > most:
            for parameter in self._mine.values():
                parameter.grad.mul_(most / norm)
        return norm

    def _mean(self, losses):
        mean = torch.zeros(1, dtype=torch.float64)
        if losses and self._team.place == 0:
            mean[0] = self.plan.weight(self.pipeline) * sum(
                loss.double().item() for loss in losses) / len(losses)
        dist.all_reduce(mean, group=self._group)
        return mean.item()

    def _part(self, tensor, number, what):
        """Micro-batch `number` of this pipeline, out of a global batch."""
        plan, pipeline = self.plan, self.plan.pipelines[self.pipeline]
        if tensor is None or len(tensor) != plan.global_batch:
            raise ValueError(
                f"{what}: wanted {plan.global_batch} sequences on rank"
                f" {self._rank}, not"
                f" {'None' if tensor is None else len(tensor)}")
        at = (plan.first_sequence(self.pipeline)
              + number * pipeline.micro_batch)
        return tensor[at:at + pipeline.micro_batch].to(self._home.place)

    def _passes(self, inputs, targets):
        pipeline = self.plan.pipelines[self.pipeline]
        m = pipeline.micro_batches
        order = schedule.passes(
            self.plan.schedule, self.stage, pipeline.groups, m, self._ahead,
            pipeline.interleave)
        waiting = {}  # by chunk and micro-batch: what came in, what it became
        losses = []
        self._coming = {}  # by channel: what it is still to expect, in order
        for one in order if self._asynchronous else ():
            channel, message = self._needs(*one)
            if channel:
                self._coming.setdefault(channel, []).append(message)
        for channel in self._coming:
            self._more(channel)
        if not self._asynchronous:
            self._expect(order[0])
        for at, one in enumerate(order):
            kind, chunk, number = one
            came = self._arrived(self._needs(*one)[0])
            channel, message = self._gives(*one)
            if kind == schedule.FORWARD:
                x = self._input(inputs, came, number)
                y = self._forward(x, self._stages[chunk])
                leaves = y.detach()
                if channel is None:
                    y = self._loss(y, self._part(targets, number, "targets"))
                    losses.append(y.detach())
                    y = y / m
                waiting[chunk, number] = x, y
            else:
                x, y = waiting.pop((chunk, number))
                y.backward(came)
                leaves = x.grad if channel else None
            if self._asynchronous:
                if channel:
                    channel.put(message, leaves)
            else:
                self._exchange(channel, message, leaves,
                               order[at + 1] if at + 1 < len(order) else None)
        for kind in schedule.STEPS:
            channel = self._boundaries.channel(kind, True)
            if channel:
                channel.flush()
        return losses

    def _needs(self, kind, chunk, number):
        """(channel, message) that a pass begins with; None for the channel
        if it begins with nothing of another rank."""
        stage = self._stages[chunk]
        other = stage - schedule.STEPS[kind]
        return self._channel(kind, False, other), (other, stage, number)

    def _gives(self, kind, chunk, number):
        """The same of what a pass makes."""
        stage = self._stages[chunk]
        other = stage + schedule.STEPS[kind]
        return self._channel(kind, True, other), (stage, other, number)

    def _channel(self, kind, sends, other):
        stages = self.plan.pipelines[self.pipeline].stages
        return (self._boundaries.channel(kind, sends)
                if 0 <= other < len(stages) else None)

    def _exchange(self, channel, message, leaves, next_pass):
        """Send what a pass made and receive what the next one needs, both at
        once, and wait for both."""
        if channel:
            channel.put(message, leaves)
        expected = self._expect(next_pass) if next_pass else None
        for channel in channel, expected:
            if channel:
                channel.flush()

    def _expect(self, next_pass):
        """Begin to receive what a pass needs; returns the channel, if any."""
        channel, message = self._needs(*next_pass)
        if channel:
            channel.expect(message)
        return channel

    def _more(self, channel):
        """Begin to receive the next one, while this one is computed with."""
        coming = self._coming.get(channel)
        if coming:
            channel.expect(coming.pop(0))

    def _arrived(self, channel):
        if channel is None:
            return None
        came = channel.take()
        self._more(channel)
        return came

    def _input(self, inputs, came, number):
        if came is None:
            return self._part(inputs, number, "inputs")
        return came.requires_grad_() if came.is_floating_point() else came

    def _forward(self, x, stage):
        # Who computes experts again needs the tokens again, of all.
        recompute = any(of.recompute for of in self.plan.alike(
            self.pipeline, stage))
        for number in self._numbers(stage):
            layer = self.layers[str(number)]
            x = (torch.utils.checkpoint.checkpoint(
                layer, x, use_reentrant=False) if recompute else layer(x))
        return x

    # -- keeping it ----------------------------------------------------------

    def save(self, folder, optimizer=None):
        """Keep all parameters that train, and what the optimizer of this rank
        knows of them, in a folder that all ranks see. load() takes them under
        any plan. What the folder had before stays until all is written."""
        self._guard(self._save, folder, optimizer)

    def load(self, folder, optimizer=None):
        """Take what save() has kept, of a model with the same layers."""
        self._guard(self._load, folder, optimizer)

    def _save(self, folder, optimizer):
        numbers = [None] * self._ranks
        dist.all_gather_object(numbers, time.time_ns(), group=self._group)
        os.makedirs(folder, exist_ok=True)
        told = checkpoint.write(folder, numbers[0], self._rank, {
            name: (*self._boxes[name],
                   *checkpoint.taken(self._mine[name], optimizer))
            for name in self._kept})
        every = [None] * self._ranks
        dist.all_gather_object(every, told, group=self._group)
        if self._rank == 0:
            checkpoint.publish(folder, list(itertools.chain(*every)))
        dist.barrier(group=self._group)

    def _load(self, folder, optimizer):
        reader = checkpoint.Reader(folder)
        for name, parameter in self._mine.items():
            checkpoint.given(parameter, optimizer,
                             *reader.box(name, *self._boxes[name]))
        # A later save() may remove what a slow rank still reads.
        dist.barrier(group=self._group)

    def take(self, other, optimizer=None, other_optimizer=None):
        """Take all from the trainer of another plan, which this process has
        had until now: after ranks have died, too, if this group is of those
        that are left. By one redistribution, in which nothing moves that is
        there already. Raises CheckpointError, at all ranks, if nobody has
        some of it any more, or not all ranks are after the same step; this
        trainer is as it was, and load() has it."""
        self._guard(self._take, other, optimizer, other_optimizer)

    def _take(self, other, optimizer, other_optimizer):
        every = [None] * self._ranks
        dist.all_gather_object(every, other._done(other_optimizer),
                               group=self._group)
        for what, of in zip(("steps", "clips of gradients",
                             "updates by the optimizer"), zip(*every)):
            of = sorted({n for n in of if n is not None})
            if len(of) > 1:
                raise checkpoint.Lost(
                    f"ranks have made {of} {what}: wanted as many of each")

        def state(trainer, of):
            return {name: (trainer._boxes[name],
                           *checkpoint.taken(parameter, of))
                    for name, parameter in trainer._mine.items()}

        fetched = checkpoint.fetch(
            self._home, self._group, self._every, self._boxes,
            state(other, other_optimizer))
        for name, parameter in self._mine.items():
            checkpoint.given(parameter, optimizer, *fetched[name])
        self._steps, self._clips, _ = every[0]

    def _done(self, optimizer):
        """(steps, clips, updates): a rank may have gone through one of them
        where another one has heard of a failure. Optimizers may not count."""
        states = [optimizer.state.get(parameter, {})
                  for parameter in self._mine.values()] if optimizer else []
        return self._steps, self._clips, max(
            (int(state.get("step", 0)) for state in states), default=None)

    def _whole(self, name):
        return checkpoint.is_whole(*self._boxes[name])

    def load_weights(self, source):
        """Take the values of all parameters, also those that do not train,
        from a mapping of names as in named_parameters() to whole tensors,
        such as hetero.Weights. Each rank takes its part. What is tied has the
        first name of its group."""
        self._guard(self._load_weights, source)

    @torch.no_grad()
    def _load_weights(self, source):
        places = self._team.place, self._peers.place
        masters = self._masters.named if self._masters else {}
        for name, parameter in self.layers.named_parameters():
            parameter = masters.get(name, parameter)
            name = self._tied.first(name)
            parameter.copy_(pretrained.part(
                source, name, *whole_box(parameter, places)))

    def save_distributed(self, folder, optimizer=None, name_of=str):
        """The same as save(), for torch.distributed.checkpoint: tensors
        model.NAME and optim.state.NAME.KEY, NAME being name_of(our name). What
        the folder had before is gone as this begins."""
        self._guard(self._save_distributed, folder, optimizer, name_of)

    def load_distributed(self, folder, optimizer=None, name_of=str):
        """Take what torch.distributed.checkpoint has saved, of ranks that
        hold it in any way."""
        self._guard(self._load_distributed, folder, optimizer, name_of)

    def _save_distributed(self, folder, optimizer, name_of):
        pieces = {}
        for name in self._kept:
            shape, lo, _ = self._boxes[name]
            tensors, rest = checkpoint.taken(self._mine[name], optimizer)
            checkpoint.check_rest(name, rest, self._whole(name))
            pieces["model", name_of(name)] = dcp.Piece(
                tensors.pop("parameter"), lo, shape)
            state = "optim", "state", name_of(name)
            for key, tensor in tensors.items():
                pieces[*state, key.partition(".")[2]] = dcp.Piece(
                    tensor, lo, shape)
            # A number beside a parameter is the same in all its parts.
            for key, value in {} if any(lo) else rest.items():
                pieces[*state, key] = dcp.whole(torch.as_tensor(value))
        dcp.save(folder, pieces, self._group)

    def _load_distributed(self, folder, optimizer, name_of):
        reader = dcp.Reader(folder)
        given = []
        for name, parameter in self._mine.items():
            shape, lo, hi = self._boxes[name]
            tensors, rest = {"parameter": reader.part(
                f"model.{name_of(name)}", shape, lo, hi)}, {}
            state = f"optim.state.{name_of(name)}."
            for key in reader.keys(state) if optimizer else ():
                if reader.shape(state + key) == torch.Size(shape):
                    tensors[f"optimizer.{key}"] = reader.part(
                        state + key, shape, lo, hi)
                else:
                    rest[key] = reader.whole(state + key)
            checkpoint.check_rest(name, rest, self._whole(name))
            given.append((parameter, tensors, rest))
        reader.read(self._group)
        for parameter, tensors, rest in given:
            checkpoint.given(parameter, optimizer, tensors, rest)

    # -- looking at it -------------------------------------------------------

    def unequal_copies(self):
        """Names of parameters of which two ranks hold unlike bits of the same
        elements; [] if all copies are equal. For tests, and for doubts."""
        return self._guard(self._unequal_copies)

    def _unequal_copies(self):
        cuts = {}
        for held in itertools.chain.from_iterable(self._copies):
            for split in held.splits:
                known = cuts.setdefault(
                    self._tied.first(held.name), {}).setdefault(
                        split.axis, set())
                for place in range(len(split.parts)):
                    known.update(split.interval(place))
        mine = {}
        for name, parameter in self.named_parameters():
            name = self._tied.first(name)
            values = parameter.detach().cpu()
            pieces = {(): values}  # by what they are of each axis
            for axis, at in sorted(cuts.get(name, {}).items()):
                low = self._low(parameter, axis)
                high, at = low + values.shape[axis], sorted(at)
                pieces = {
                    (*key, (a, b)): piece.narrow(axis, a - low, b - a)
                    for key, piece in pieces.items()
                    for a, b in zip(at, at[1:]) if low <= a and b <= high}
            for intervals, piece in pieces.items():
                mine[name, intervals] = hashlib.sha256(
                    piece.contiguous().view(torch.uint8).numpy().tobytes()
                ).hexdigest()
        every = [None] * self._ranks
        dist.all_gather_object(every, mine, group=self._group)
        first, unequal = {}, set()
        for of_rank in every:
            for key, digest in of_rank.items():
                if first.setdefault(key, digest) != digest:
                    unequal.add(key[0])
        return sorted(unequal)

    def _low(self, parameter, axis):
        """Where this rank's part of an axis begins in the whole."""
        return sum(
            split.interval((self._team.place, self._peers.place)[split.among])
            [0] for split in getattr(parameter, "dicomm_splits", ())
            if split.axis == axis)

    def explain(self):
        """Which ways activations and gradients take, for people."""
        return self._boundaries.explain() + (
            self._sum.explain() if self._sum else "")

    # -- the end -------------------------------------------------------------

    def _abort(self):
        for communicator in (*self._boundaries.communicators, self._home):
            communicator.abort()
        for team in self._team, self._peers:
            communicator = getattr(team.group, "_communicator", None)
            if communicator:
                communicator.abort()

    def close(self):
        """End what the trainer has made, before the end of the group. Also
        after a failure."""
        for plan in self._sum, self._align:
            if plan:
                plan.close()
        self._boundaries.close()
        self._inquest.close()
