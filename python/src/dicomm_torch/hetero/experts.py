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

from .layers import ALONE, PIPELINES, Enter, Leave, Shared, extents, keep_part


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
    experts have some of them each.
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
            gates = Enter.apply(gates, self.team)
        rows = tokens.index_select(0, token)
        rows = (self._compute_apart(rows, counts) if self.peers.size > 1
                else self._compute(rows, [counts.tolist()]))
        rows = rows * gates.index_select(0, copies).unsqueeze(1)
        y = torch.zeros_like(tokens).index_add(0, token, rows)
        if self.team.size > 1:
            y = Leave.apply(y, self.team)
        return y.view(x.shape)

    def _route(self, tokens):
        """Probabilities and numbers of the experts of each token."""
        logits = self.router(tokens)
        if logits.dtype in (torch.float16, torch.bfloat16):
            logits = logits.float()
        gates, chosen = logits.softmax(-1).topk(self.active, -1)
        if self.renormalize:
            gates = gates / gates.sum(-1, keepdim=True)
        return gates.to(tokens.dtype), chosen

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

    def _compute_apart(self, rows, counts):
        """Outputs of experts that peers have some of each."""
        group, peers = self.peers.group, self.peers.size
        parts = extents(self.count, peers)
        mine = parts[self.peers.place]
        sent = [part.tolist() for part in counts.split(parts)]
        theirs = counts.new_empty(peers * mine)
        dist.all_to_all_single(theirs, counts, [mine] * peers, parts,
                               group=group)
        received = theirs.view(peers, mine).tolist()
        sums = [sum(part) for part in sent], [sum(part) for part in received]
        rows = _Exchange.apply(rows, *sums, group)
        return _Exchange.apply(self._compute(rows, received), *sums[::-1],
                               group)

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
