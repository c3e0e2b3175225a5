#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Two stages over a link of a given rate: asynchronous channels beside
blocking ones. By hand, on hosts that tests/net/shaped makes:

    sh tests/net/shaped OUT 200mbit,200mbit python3 python/tests/slow_link.py

A stage takes 70 ms forward and 140 ms backward, in which it sleeps, as if
another processor computed. The message is 1 MiB: 42 ms at 200 Mbit/s, a fifth
of a stage. Prints the median, least and most seconds of a step, in turns.
"""

import datetime
import json
import os
import statistics
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn

from dicomm_torch import hetero

FORWARD_S, BACKWARD_S = 0.07, 0.14
MICRO_BATCHES, HIDDEN, ROUNDS = 16, 1 << 18, 3

class OneByOne(hetero.Trainer):
    """Blocking send and receive, one after the other: of two neighbours one
    sends first, the other receives first."""

    def _exchange(self, channel, message, leaves, next_pass):
        def receive():
            expected = self._expect(next_pass) if next_pass else None
            if expected:
                expected.flush()

        if self.stage % 2:
            receive()
        if channel:
            channel.put(message, leaves)
            channel.flush()
        if not self.stage % 2:
            receive()


MODES = {
    "blocking, one by one": (OneByOne, {"asynchronous": False}),
    "blocking, both at once": (hetero.Trainer, {"asynchronous": False}),
    "asynchronous": (hetero.Trainer, {}),
    "asynchronous, ahead=1": (hetero.Trainer, {"ahead": 1})}


class _Take(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        time.sleep(FORWARD_S)
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        time.sleep(BACKWARD_S)
        return grad


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(HIDDEN))

    def forward(self, x):
        return _Take.apply(x * self.scale)


def main():
    rank = int(os.environ["DICOMM_RANK"])
    address = os.environ["DICOMM_COMM_ID"].partition(":")[0]
    torch.set_num_threads(1)
    dist.init_process_group(
        "dicomm", rank=rank, world_size=2,
        store=dist.TCPStore(address, 4343, 2, rank == 0),
        timeout=datetime.timedelta(seconds=60))
    plan = {"sequence": 1, "global_batch": MICRO_BATCHES, "pipelines": [{
        "micro_batch": 1, "micro_batches": MICRO_BATCHES, "stages": [
            {"ranks": [0], "layers": [0, 0]},
            {"ranks": [1], "layers": [1, 1]}]}]}
    with tempfile.NamedTemporaryFile("w", suffix=".json") as out:
        json.dump(plan, out)
        out.flush()
        read = hetero.read_plan(out.name)
    trainers = {
        mode: kind(read, [Layer, Layer], lambda y, _: y.square().mean(),
                   (HIDDEN,), **how)
        for mode, (kind, how) in MODES.items()}
    x = torch.randn(MICRO_BATCHES, HIDDEN)
    losses, seconds = {}, {mode: [] for mode in MODES}
    for turn in range(ROUNDS + 1):  # the first one makes connections
        for mode, trainer in trainers.items():
            dist.barrier()
            began = time.monotonic()
            losses[mode] = trainer.step(x, x)
            if turn:
                seconds[mode].append(time.monotonic() - began)
    if rank == 0:
        base = statistics.median(seconds["blocking, one by one"])
        for mode, took in seconds.items():
            print(f"{mode}: {statistics.median(took):.3f} s ({min(took):.3f}"
                  f" to {max(took):.3f}), {base / statistics.median(took):.3f}"
                  " times as fast as the first, loss"
                  f" {losses[mode]:.6f}", flush=True)
    for trainer in trainers.values():
        trainer.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
