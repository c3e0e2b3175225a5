#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Time training beside gloo, by hand: training_speed.py [RANKS] [ROUNDS]

Steps of DDP and FSDP2 with 25.2 M parameters, and the same steps without any
communication; all_reduce of 1 to 100 MiB. gloo and dicomm have a group in the
same processes and take turns in each round, so that other work on the machine
hits both. Prints medians over the rounds and, of the ratios of a round, the
median and the extremes.

On hosts that tests/net/shaped makes, as root, one rank on each:

    sh tests/net/shaped OUT 10gbit,10gbit python3 \
        python/tests/training_speed.py
"""

import datetime
import os
import statistics
import sys
import time
import warnings

warnings.simplefilter("ignore")

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.distributed.device_mesh import DeviceMesh  # noqa: E402
from torch.distributed.fsdp import fully_shard  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

torch.set_num_threads(1)

LAYERS, WIDTH, BATCH = 24, 1024, 64
MEBIBYTES = (1, 10, 25, 100)
BACKENDS = ("gloo", "dicomm")
PORT = 4343


def layers():
    torch.manual_seed(0)
    return nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)))


def stepper(model):
    """A step of training: forward, backward, and a small change of all
    parameters."""
    x = torch.ones(BATCH, WIDTH)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)

    def step():
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    return step


def sharded(group):
    model = layers()
    mesh = DeviceMesh.from_group(group, "cpu")
    for layer in model:
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def cases():
    """(name, function that makes what is timed of a group, calls in a round);
    what is timed without a group is a step without communication."""
    yield "DDP step", lambda group: stepper(DistributedDataParallel(
        layers(), process_group=group)), 2
    yield "FSDP2 step", lambda group: stepper(sharded(group)), 2
    for mebibytes in MEBIBYTES:
        def reducing(group, mebibytes=mebibytes):
            tensor = torch.zeros(mebibytes << 18)
            return lambda: dist.all_reduce(tensor, group=group)

        yield f"all_reduce {mebibytes} MiB", reducing, max(
            1, 20 // mebibytes)


def measure(store, rank, n, rounds):
    """Seconds by case and contender: a list with one entry for each round."""
    dist.init_process_group(
        "gloo", store=dist.PrefixStore("gloo", store), rank=rank,
        world_size=n, timeout=datetime.timedelta(seconds=300))
    groups = dict(zip(BACKENDS, (
        dist.group.WORLD, dist.new_group(backend="dicomm"))))
    results = {}
    for name, make, calls in cases():
        contenders = {backend: make(group)
                      for backend, group in groups.items()}
        if name.endswith("step"):
            contenders["alone"] = stepper(layers())
        times = results[name] = {who: [] for who in contenders}
        for turn in range(rounds + 1):
            for who, function in contenders.items():
                dist.barrier()
                began = time.perf_counter()
                for _ in range(calls):
                    function()
                if turn:  # the first one warms up
                    times[who].append((time.perf_counter() - began) / calls)
        del contenders
    dist.destroy_process_group()
    return results


def _ratio(over, under):
    ratios = sorted(a / b for a, b in zip(over, under))
    return (f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to"
            f" {ratios[-1]:.2f})")


def tell(results, n, rounds):
    """A table: milliseconds, how many times as fast as gloo dicomm is, and
    how many times as long as without communication a step of both takes."""
    print(f"\n{n} ranks, medians of {rounds} rounds, in ms (least to most)\n\n"
          "| | gloo | dicomm | times faster | alone | gloo over alone"
          " | dicomm over alone |\n|---|---|---|---|---|---|---|")
    for name, times in results.items():
        gloo, dicomm, alone = (
            times["gloo"], times["dicomm"], times.get("alone"))
        cells = [f"{statistics.median(gloo) * 1e3:.4g}",
                 f"{statistics.median(dicomm) * 1e3:.4g}",
                 _ratio(gloo, dicomm)]
        cells += [f"{statistics.median(alone) * 1e3:.4g}",
                  _ratio(gloo, alone), _ratio(dicomm, alone)] if alone else (
            [""] * 3)
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


def main():
    import dicomm_torch  # noqa: F401

    n = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 9
    if "DICOMM_RANK" in os.environ:  # a host of tests/net/shaped
        rank, n = (int(os.environ[name])
                   for name in ("DICOMM_RANK", "DICOMM_SIZE"))
        os.environ["GLOO_SOCKET_IFNAME"] = os.environ["DICOMM_SOCKET_IFNAME"]
        address = os.environ["DICOMM_COMM_ID"].partition(":")[0]
        store = dist.TCPStore(address, PORT, n, rank == 0)
        results = measure(store, rank, n, rounds)
        if rank:
            return
    else:
        import ranks

        results = ranks.values(
            ranks.run(n, measure, rounds, seconds=1800))[0]
    tell(results, n, rounds)


if __name__ == "__main__":
    main()
