#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Time dicomm beside gloo, by hand: timings.py [RANKS] [ROUNDS]

Both have a group in the same processes, and take turns in each round, so that
other work on the machine hits both. Prints medians and, of the ratios of a
round, the median and the extremes. Also what a call costs this layer itself:
the processor time of a call on a group of one.
"""

import datetime
import statistics
import sys
import time
import warnings

warnings.simplefilter("ignore")

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.nn as nn  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

import ranks  # noqa: E402

torch.set_num_threads(1)


def measurements(group, rank, n):
    """(name, function, calls of it in one round)"""
    small, byte = torch.ones(2), torch.ones(1, dtype=torch.uint8)
    peer = rank ^ 1

    def asynchronous():
        dist.all_reduce(small, group=group, async_op=True).wait()

    def by_future():
        dist.all_reduce(
            small, group=group, async_op=True).get_future().wait()

    def ping_pong():
        for to_send in (True, False) if rank < peer else (False, True):
            (dist.send if to_send else dist.recv)(
                small, peer, group=group)

    yield "all_reduce 8 B", lambda: dist.all_reduce(small, group=group), 300
    yield "all_reduce 8 B, async, wait", asynchronous, 300
    yield "all_reduce 8 B, async, future", by_future, 300
    yield "barrier", lambda: dist.barrier(group=group), 300
    yield "ping-pong 8 B", ping_pong, 100
    out = [None] * n
    yield "all_gather_object", lambda: dist.all_gather_object(
        out, rank, group=group), 50
    for mebibytes in (1, 25, 100):
        tensor = torch.ones(mebibytes << 18)
        yield (f"all_reduce {mebibytes} MiB",
               lambda tensor=tensor: dist.all_reduce(tensor, group=group),
               max(1, 20 // mebibytes))
    part, whole = torch.ones(25 << 18), torch.ones((25 << 18) * n)
    yield "all_gather_into_tensor 25 MiB", (
        lambda: dist.all_gather_into_tensor(whole, part, group=group)), 2
    yield "reduce_scatter_tensor 25 MiB", (
        lambda: dist.reduce_scatter_tensor(part, whole, group=group)), 2
    theirs = torch.empty_like(whole)
    yield "all_to_all_single 25 MiB a rank", (
        lambda: dist.all_to_all_single(theirs, whole, group=group)), 2
    layers = [nn.Linear(1024, 1024) for _ in range(12)]
    model = DistributedDataParallel(
        nn.Sequential(*layers), process_group=group)
    x = torch.ones(8, 1024)

    def step():
        model(x).sum().backward()

    step()
    yield "DDP step, 12.6 M parameters", step, 1
    del byte


def measure(store, rank, n, rounds):
    dist.init_process_group(
        "gloo", store=dist.PrefixStore("gloo", store), rank=rank,
        world_size=n, timeout=datetime.timedelta(seconds=120))
    groups = [dist.group.WORLD, dist.new_group(backend="dicomm")]
    pairs = zip(*(list(measurements(group, rank, n)) for group in groups))
    results = []
    for (name, first, calls), (_, second, _) in pairs:
        both = ([], [])
        for round in range(rounds + 1):
            for times, function in zip(both, (first, second)):
                dist.barrier(group=groups[0])
                began = time.perf_counter()
                for _ in range(calls):
                    function()
                if round:  # the first one warms up
                    times.append((time.perf_counter() - began) / calls)
        results.append((name, *both))
    dist.destroy_process_group()
    return results


def cost(store, rank, n):
    """Processor time of a call on a group of one, in seconds, by name."""
    dist.init_process_group("dicomm", store=store, rank=rank, world_size=n)
    tensor = torch.ones(2)
    options = torch._C._distributed_c10d.AllreduceOptions()
    group = dist.group.WORLD
    handle = group._communicator.handle
    from dicomm_torch import _library

    def library():
        at = tensor.data_ptr()
        _library.library.dicomm_allreduce(at, at, 2, 7, 0, handle, None)

    def blocking():
        options.asyncOp = False
        group.allreduce([tensor], options)

    def asynchronous():
        options.asyncOp = True
        group.allreduce([tensor], options).wait()

    def by_dist():
        dist.all_reduce(tensor)

    costs = {}
    for name, function in (
            ("the library by ctypes", library),
            ("the group, blocking", blocking),
            ("the group, asynchronous, and its wait", asynchronous),
            ("dist.all_reduce", by_dist)):
        best = float("inf")
        for _ in range(20):
            began = time.process_time()
            for _ in range(500):
                function()
            best = min(best, (time.process_time() - began) / 500)
        costs[name] = best
    dist.destroy_process_group()
    return costs


def main():
    n = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 9
    import dicomm_torch  # noqa: F401

    costs, = ranks.values(ranks.run(1, cost))
    for name, seconds in costs.items():
        print(f"{name}: {seconds * 1e6:.1f} us of processor time")
    every = ranks.values(ranks.run(n, measure, rounds, seconds=900))
    print(f"\n{n} ranks, medians of {rounds} rounds\n\n"
          "| operation | gloo, us | dicomm, us | times faster"
          " (least to most) |\n|---|---|---|---|")
    for name, first, second in every[0]:
        ratios = sorted(a / b for a, b in zip(first, second))
        print(f"| {name} | {statistics.median(first) * 1e6:.0f}"
              f" | {statistics.median(second) * 1e6:.0f}"
              f" | {statistics.median(ratios):.2g} ({ratios[0]:.2g} to"
              f" {ratios[-1]:.2g}) |")


if __name__ == "__main__":
    main()
