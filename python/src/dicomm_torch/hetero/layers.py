# SPDX-License-Identifier: BSD-3-Clause
"""Layers that the ranks of a stage hold together (tensor parallelism).

A layer is made whole, and then split() leaves what this rank holds of it. So
its first parameters do not depend on the degree. Parts may be uneven: three
ranks can share four heads.
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn


def extents(units, parts):
    """So many units as even as it goes: a list of the length parts."""
    return [units // parts + (part < units % parts) for part in range(parts)]


class Team:
    """Ranks that hold something together: this one's place among them, and
    their process group (None for a team of one, or where nothing runs)."""

    def __init__(self, size=1, place=0, group=None):
        self.size = size
        self.place = place
        self.group = group


ALONE = Team()


class Enter(torch.autograd.Function):
    """What all have goes into parts: the gradients of the parts add up."""

    @staticmethod
    def forward(ctx, x, team):
        ctx.team = team
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        grad = grad.contiguous().clone()
        dist.all_reduce(grad, group=ctx.team.group)
        return grad, None


class Leave(torch.autograd.Function):
    """Terms of a sum come out of parts: all get the sum."""

    @staticmethod
    def forward(ctx, x, team):
        x = x.contiguous().clone()
        dist.all_reduce(x, group=team.group)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad, None


def gather(x, team, parts, axis):
    """All parts of an axis, of which each rank has one."""
    every = [x.new_empty((*x.shape[:axis], part, *x.shape[axis + 1:]))
             for part in parts]
    dist.all_gather(every, x.contiguous(), group=team.group)
    return torch.cat(every, axis)


class Join(torch.autograd.Function):
    """Parts of an axis: all get all of it."""

    @staticmethod
    def forward(ctx, x, team, parts, axis):
        ctx.at = axis, sum(parts[:team.place]), parts[team.place]
        return gather(x, team, parts, axis)

    @staticmethod
    def backward(ctx, grad):
        return grad.narrow(*ctx.at).contiguous(), None, None, None


# Whom the parts of a parameter are for: the ranks of a stage, or the stages of
# the pipelines that share experts.
STAGE, PIPELINES = 0, 1


class Split:
    """How ranks hold a parameter: extents of their parts along an axis, and
    which ranks these are."""

    def __init__(self, axis, parts, among=STAGE):
        self.axis = axis
        self.parts = parts
        self.among = among

    def interval(self, place):
        low = sum(self.parts[:place])
        return low, low + self.parts[place]


def keep_part(module, name, axis, parts, team, among=STAGE):
    """Leave of a parameter the part of this rank."""
    whole = getattr(module, name)
    split = Split(axis, parts, among)
    low, high = split.interval(team.place)
    part = nn.Parameter(
        whole.detach().narrow(axis, low, high - low).clone(
            memory_format=torch.contiguous_format),
        requires_grad=whole.requires_grad)
    part.dicomm_splits = (*getattr(whole, "dicomm_splits", ()), split)
    setattr(module, name, part)


class Shared(nn.Module):
    """What several ranks hold together. split(team, peers) leaves this rank's
    part: team are the ranks of its stage, peers those of the pipelines that
    share experts which have the same stage."""


class _Parallel(Shared):
    def __init__(self, features_in, features_out, bias, unit, divided, what):
        super().__init__()
        if unit < 1 or divided % unit:
            raise ValueError(f"unit {unit}: wanted a divisor of {what},"
                             f" {divided}")
        whole = nn.Linear(features_in, features_out, bias)
        self.weight = whole.weight
        self.bias = whole.bias
        self.unit = unit
        self.units = divided // unit
        self.team = ALONE

    def _parts(self, team):
        if team.size > self.units:
            raise ValueError(f"{self.units} parts of {self.unit} cannot be"
                             f" shared by {team.size} ranks")
        return [self.unit * n for n in extents(self.units, team.size)]


class ColumnLinear(_Parallel):
    """A linear layer of which each rank of the team has some outputs.

    They are shared in whole units (say, of a head). All ranks give the same
    input. Each gets its outputs, or with gather=True all of them.
    """

    def __init__(self, features_in, features_out, bias=True, unit=1,
                 gather=False):
        super().__init__(features_in, features_out, bias, unit, features_out,
                         "features_out")
        self.gather = gather
        self.parts = [features_out]

    def split(self, team, peers):
        if team.size < 2:
            return
        self.team = team
        self.parts = self._parts(team)
        keep_part(self, "weight", 0, self.parts, team)
        if self.bias is not None:
            keep_part(self, "bias", 0, self.parts, team)

    def forward(self, x):
        if self.team.size > 1:
            x = Enter.apply(x, self.team)
        x = F.linear(x, self.weight, self.bias)
        if self.gather and self.team.size > 1:
            x = Join.apply(x, self.team, self.parts, x.dim() - 1)
        return x


class RowLinear(_Parallel):
    """A linear layer of which each rank of the team has some inputs, in whole
    units: those that a ColumnLinear of as many units gives. All ranks get the
    same output. The bias is held by all."""

    def __init__(self, features_in, features_out, bias=True, unit=1):
        super().__init__(features_in, features_out, bias, unit, features_in,
                         "features_in")

    def split(self, team, peers):
        if team.size < 2:
            return
        self.team = team
        keep_part(self, "weight", 1, self._parts(team), team)

    def forward(self, x):
        x = F.linear(x, self.weight)
        if self.team.size > 1:
            x = Leave.apply(x, self.team)
        return x if self.bias is None else x + self.bias


class Attention(nn.Module):
    """Causal attention of which each rank of the team has some heads."""

    def __init__(self, hidden, heads):
        super().__init__()
        if hidden % heads:
            raise ValueError(f"hidden {hidden}: wanted a multiple of the"
                             f" {heads} heads")
        self.width = hidden // heads
        # Of each head: query, key and value, so that heads stay whole.
        self.into = ColumnLinear(hidden, 3 * hidden, unit=3 * self.width)
        self.out = RowLinear(hidden, hidden, unit=self.width)

    def forward(self, x):
        batch, length, _ = x.shape
        q, k, v = self.into(x).view(
            batch, length, -1, 3, self.width).permute(3, 0, 2, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(batch, length, -1))


class FeedForward(nn.Module):
    """Two linear layers, of which each rank of the team has a part."""

    def __init__(self, hidden, inner):
        super().__init__()
        self.into = ColumnLinear(hidden, inner)
        self.out = RowLinear(inner, hidden)

    def forward(self, x):
        return self.out(F.gelu(self.into(x)))


def split(layer, team, peers=ALONE):
    """Leave of a whole layer what one rank holds: see Shared."""
    for module in layer.modules():
        if isinstance(module, Shared):
            module.split(team, peers)
    return layer


def build(factory, seed, number, device="cpu"):
    """Make layer `number` by its factory, whole, as it is in every plan."""
    with torch.random.fork_rng(devices=[]), torch.device(device):
        torch.manual_seed(seed * 1000003 + number)
        return factory()


def build_all(factories, seed=0):
    """All layers, whole, in one module: what one process would train."""
    return nn.Sequential(*[build(factory, seed, number)
                           for number, factory in enumerate(factories)])


class Held:
    """A parameter as ranks hold it. shape is that of the whole."""

    def __init__(self, name, parameter):
        self.name = name
        self.splits = getattr(parameter, "dicomm_splits", ())
        self.shape = list(parameter.shape)
        self.dtype = parameter.dtype
        for split in self.splits:
            self.shape[split.axis] = sum(split.parts)

    @property
    def spread(self):
        """Do pipelines that share experts have a part of it each?"""
        return any(split.among == PIPELINES for split in self.splits)

    def box(self, places):
        """(lo, hi) of what a rank has. places are its place in its stage, and
        that of its pipeline among those that share experts."""
        lo, hi = [0] * len(self.shape), list(self.shape)
        for split in self.splits:
            axis = split.axis
            lo[axis], hi[axis] = split.interval(places[split.among])
        return lo, hi


def whole_box(parameter, places):
    """(shape of the whole, lo, hi) of what this rank has of a parameter."""
    held = Held("", parameter)
    return held.shape, *held.box(places)


def held_by(factory, number, degree, peers=1):
    """What a stage of a degree, of so many pipelines that share experts, holds
    of a layer, without making it."""
    layer = split(build(factory, 0, number, "meta"), Team(degree), Team(peers))
    return [Held(f"{number}.{name}", parameter)
            for name, parameter in layer.named_parameters()
            if parameter.requires_grad]
