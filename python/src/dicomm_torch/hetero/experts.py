# SPDX-License-Identifier: BSD-3-Clause
"""A mixture of experts, which several pipelines may hold together.

Each pipeline that shares experts has its own tokens and some of the experts.
Copies of the tokens go to the experts that the router has chosen, by an
all-to-all, and what these make of them comes back.
"""

import math

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

from .layers import (ALONE, PIPELINES, Enter, Join, Leave, Shared, extents,
                     gather, keep_part)


class _Same(torch.autograd.Function):
    """What the first of a team has; gradients stay as they are."""

    @staticmethod
    def forward(ctx, x, team):
        x = x.contiguous().clone()
        dist.broadcast(x, group=team.group, group_src=0)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad, None


class _Exchange(torch.autograd.Function):
    """Rows go to peers: sent[i] of them to peer i, received[i] come from it.
    Their gradients go back."""

    @staticmethod
    def forward(ctx, x, sent, received, group):
        ctx.about = received, sent, group
        return _exchange(x, sent, received, group)

    @staticmethod
    def backward(ctx, grad):
        return _exchange(grad, *ctx.about), None, None, None


def _exchange(x, sent, received, group):
    rows = x.new_empty((sum(received), *x.shape[1:]))
    dist.all_to_all_single(rows, x.contiguous(), received, sent, group=group)
    return rows


def _sum_part(x, team, parts):
    x = x.contiguous().clone()
    dist.all_reduce(x, group=team.group)
    return x.narrow(0, sum(parts[:team.place]), parts[team.place])


class _Gather(torch.autograd.Function):
    """All get the rows of all; the gradients of each row add up."""

    @staticmethod
    def forward(ctx, x, team, parts):
        ctx.about = team, parts
        return gather(x, team, parts, 0)

    @staticmethod
    def backward(ctx, grad):
        return _sum_part(grad, *ctx.about), None, None


class _Scatter(torch.autograd.Function):
    """Terms of a sum come out of parts: each gets some rows of the sum."""

    @staticmethod
    def forward(ctx, x, team, parts):
        ctx.about = team, parts
        return _sum_part(x, team, parts)

    @staticmethod
    def backward(ctx, grad):
        return gather(grad, *ctx.about, 0), None, None


class Experts(Shared):
    """A feed-forward part of `count` experts, of which each token takes
    `active`: those that the router gives the largest probabilities, by which
    their outputs count (renormalize: divided by their sum).

    An expert is two linear layers without biases and GELU between them;
    gated, a third one whose SiLU is a factor of what is between.

    capacity: an expert takes at most so many times the mean of a micro-batch
    of one pipeline, and drops the tokens of the smallest probabilities, which
    are as if that expert had made 0 of them. 0: none is dropped. That of the
    plan counts, if it has one.

    The ranks of a stage have a part of each expert; pipelines that share
    experts have some of them each. Then each rank of a stage sends a part of
    the tokens, and the stage that gets them gathers them.
    """

    def __init__(self, hidden, inner, count, active, gated=False,
                 renormalize=True, capacity=0.0):
        super().__init__()
        if not 1 <= active <= count:
            raise ValueError(f"active {active}: wanted 1 to the {count}"
                             " experts")
        if capacity and not capacity >= 1:
            raise ValueError(f"capacity {capacity}: wanted 1 or more, or 0")
        self.count, self.active, self.inner = count, active, inner
        self.gated, self.renormalize = gated, renormalize
        self.capacity = capacity
        self.router = nn.Linear(hidden, count, bias=False)
        self.into = self._weight(count, inner, hidden)
        self.gate = self._weight(count, inner, hidden) if gated else None
        self.out = self._weight(count, hidden, inner)
        self.team, self.peers = ALONE, ALONE

    @staticmethod
    def _weight(count, rows, columns):
        most = 1 / math.sqrt(columns)  # as nn.Linear begins
        return nn.Parameter(
            torch.empty(count, rows, columns).uniform_(-most, most))

    def split(self, team, peers):
        self.team, self.peers = team, peers
        names = ("into", "gate", "out") if self.gated else ("into", "out")
        for name in names:
            if peers.size > 1:
                keep_part(self, name, 0, extents(self.count, peers.size),
                          peers, PIPELINES)
            if team.size > 1:
                if team.size > self.inner:
                    raise ValueError(f"experts {self.inner} wide cannot be"
                                     f" shared by {team.size} ranks")
                keep_part(self, name, 2 if name == "out" else 1,
                          extents(self.inner, team.size), team)

    def forward(self, x):
        tokens = x.reshape(-1, x.shape[-1])
        gates, chosen = self._route(tokens)
        copies, token, counts = self._sort(gates, chosen)
        gates = gates.flatten()
        if self.team.size > 1:
            tokens = Enter.apply(tokens, self.team)
        if self.peers.size > 1:
            rows = self._compute_apart(tokens, token, counts)
        else:
            rows = self._compute(tokens.index_select(0, token),
                                 [counts.tolist()])
        # Rows of this stage's experts are terms of a sum still.
        terms = self.team.size > 1 and self.peers.size == 1
        if terms:
            gates = Enter.apply(gates, self.team)
        rows = rows * gates.index_select(0, copies).unsqueeze(1)
        y = torch.zeros_like(tokens).index_add(0, token, rows)
        if terms:
            y = Leave.apply(y, self.team)
        return y.view(x.shape)

    def _route(self, tokens):
        """Probabilities and numbers of the experts of each token."""
        logits = self.router(tokens)
        if logits.dtype in (torch.float16, torch.bfloat16):
            logits = logits.float()
        probabilities = logits.softmax(-1)
        chosen = probabilities.detach().topk(self.active, -1).indices
        if self.team.size > 1:
            # Unlike devices round otherwise: a tie must fall one way for all.
            dist.broadcast(chosen, group=self.team.group, group_src=0)
        gates = probabilities.gather(-1, chosen)
        if self.renormalize:
            gates = gates / gates.sum(-1, keepdim=True)
        gates = gates.to(tokens.dtype)
        if self.team.size > 1:  # by which the capacity drops copies
            gates = _Same.apply(gates, self.team)
        return gates, chosen

    def _sort(self, gates, chosen):
        """Copies of tokens by the experts that take them: which copies these
        are, of which token each is, and how many each expert takes."""
        expert = chosen.flatten()
        counts = torch.bincount(expert, minlength=self.count)
        if not self.capacity:
            copies = expert.argsort(stable=True)
            return copies, copies // self.active, counts
        most = math.ceil(self.capacity * len(expert) / self.count)
        copies = gates.detach().flatten().argsort(descending=True, stable=True)
        copies = copies[expert[copies].argsort(stable=True)]
        first = counts.cumsum(0) - counts
        within = torch.arange(len(copies), device=copies.device) - first[
            expert[copies]]
        copies = copies[within < most]
        return copies, copies // self.active, counts.clamp(max=most)

    def _compute_apart(self, tokens, token, counts):
        """Outputs of experts that peers have some of each. token and counts
        are what _sort() gives, of which each rank of the stage has a part."""
        team, group, peers = self.team, self.peers.group, self.peers.size
        parts = extents(self.count, peers)
        mine = parts[self.peers.place]
        theirs = counts.new_empty(peers * mine)
        dist.all_to_all_single(theirs, counts, [mine] * peers, parts,
                               group=group)
        # By place in a stage, and then: of the experts, what comes from here;
        # of the peers, what comes from there for each expert.
        places = range(team.size)
        ours = self._shares(counts.tolist())
        theirs = self._shares(theirs.tolist())
        theirs = [[shares[peer * mine:(peer + 1) * mine]
                   for peer in range(peers)] for shares in theirs]
        here = iter(ours[team.place])
        sent = [sum(next(here) for _ in range(part)) for part in parts]
        received = [sum(of_peer) for of_peer in theirs[team.place]]
        # token is by expert, and then by place.
        pieces = token.split([n for shares in zip(*ours) for n in shares])
        rows = tokens.index_select(0, torch.cat(
            pieces[team.place::team.size]))
        rows = _Exchange.apply(rows, sent, received, group)
        gathered = [sum(map(sum, of_place)) for of_place in theirs]
        if team.size > 1:
            rows = _Gather.apply(rows, team, gathered)
        rows = self._compute(
            rows, [of_peer for of_place in theirs for of_peer in of_place])
        if team.size > 1:
            rows = _Scatter.apply(rows, team, gathered)
        rows = _Exchange.apply(rows, received, sent, group)
        if team.size == 1:
            return rows
        rows = Join.apply(rows, team, [sum(shares) for shares in ours], 0)
        pieces = rows.split([n for shares in ours for n in shares])
        return torch.cat([pieces[place * self.count + expert]
                          for expert in range(self.count)
                          for place in places])

    def _shares(self, counts):
        """What each place in a stage has of each of some counts."""
        return list(zip(*[extents(n, self.team.size) for n in counts]))

    def _compute(self, rows, counts):
        """Outputs of this rank's experts. Rows are by the peer that they come
        from and then by expert, counts[peer][expert] of them.

        Experts without rows compute, too: the graph must not depend on the
        rows, as all peers have to exchange as often in a backward pass.
        """
        pieces = iter(rows.split([n for of_peer in counts for n in of_peer]))
        pieces = [[next(pieces) for _ in of_peer] for of_peer in counts]
        into, out = self.into.unbind(), self.out.unbind()
        gate = self.gate.unbind() if self.gated else None
        for number in range(len(into)):
            x = torch.cat([of_peer[number] for of_peer in pieces])
            y = F.linear(x, into[number])
            y = F.silu(F.linear(x, gate[number])) * y if gate else F.gelu(y)
            y = F.linear(y, out[number])
            made = y.split([of_peer[number] for of_peer in counts])
            for of_peer, piece in zip(pieces, made):
                of_peer[number] = piece
        return torch.cat([piece for of_peer in pieces for piece in of_peer])
