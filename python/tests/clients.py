# SPDX-License-Identifier: BSD-3-Clause
"""What people train with: the losses over dicomm are those over gloo.

Each client runs twice in the same processes, once with either backend, on the
same data. A transformer of 55 thousand parameters; losses of some steps are
compared, averaged over the ranks.
"""

import datetime
import os
import shutil
import tempfile
import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as functional
from torch.nn.parallel import DistributedDataParallel

import ranks

VOCABULARY, WIDTH, LENGTH = 64, 32, 16


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.norm1 = nn.LayerNorm(WIDTH)
        self.norm2 = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, 4 * WIDTH)
        self.down = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        q, k, v = self.attention(self.norm1(x)).chunk(3, -1)
        x = x + self.out(functional.scaled_dot_product_attention(
            q, k, v, is_causal=True))
        return x + self.down(functional.gelu(self.up(self.norm2(x))))


class Model(nn.Module):
    def __init__(self, blocks=4):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(blocks))
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, x):
        x = self.embedding(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def batch(step, part):
    generator = torch.Generator().manual_seed(1000 * step + part)
    tokens = torch.randint(
        0, VOCABULARY, (4, LENGTH + 1), generator=generator)
    return tokens[:, :-1], tokens[:, 1:]


def loss_of(out, target):
    return functional.cross_entropy(
        out.reshape(-1, VOCABULARY), target.reshape(-1))


def train(model, steps=5, part=None, **of_optimizer):
    """Losses of some steps; every part of the data trains the same model."""
    part = dist.get_rank() if part is None else part
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, **of_optimizer)
    losses = []
    for step in range(steps):
        x, y = batch(step, part)
        loss = loss_of(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(mean(loss))
    return losses


def mean(loss):
    total = loss.detach().double()
    dist.all_reduce(total)
    return total.item() / dist.get_world_size()


CLIENTS = []


def client(*sizes):
    def add(function):
        CLIENTS.append((function.__name__.replace("_", " "), sizes, function))
        return function
    return add


@client(2, 4)
def ddp():
    return train(DistributedDataParallel(Model(), bucket_cap_mb=0.05))


@client(2)
def ddp_with_unused_parameters():
    model = Model()
    model.unused = nn.Linear(4, 4)
    return train(DistributedDataParallel(
        model, find_unused_parameters=True, gradient_as_bucket_view=True))


@client(2, 4)
def ddp_with_hooks():
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
    from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook

    model = DistributedDataParallel(Model(), bucket_cap_mb=0.05)
    model.register_comm_hook(None, default_hooks.bf16_compress_hook)
    losses = train(model)
    # One bucket: its callback calls all_reduce, which with several is in no
    # order with what the main thread calls, and ends the process with gloo.
    model = DistributedDataParallel(Model())
    model.register_comm_hook(
        powerSGD_hook.PowerSGDState(None, 1, start_powerSGD_iter=2),
        powerSGD_hook.powerSGD_hook)
    losses += train(model)
    for name in "ALLREDUCE", "FP16_COMPRESS":  # of C++
        model = DistributedDataParallel(Model(), bucket_cap_mb=0.05)
        model._register_builtin_comm_hook(getattr(
            dist.BuiltinCommHookType, name))
        losses += train(model, 3)
    return losses


@client(2, 4)
def ddp_with_join_and_zero_redundancy():
    from torch.distributed.algorithms.join import Join
    from torch.distributed.optim import ZeroRedundancyOptimizer

    rank = dist.get_rank()
    model = DistributedDataParallel(Model())
    with Join([model]):
        for step in range(3 + rank):
            x, y = batch(step, rank)
            loss_of(model(x), y).backward()
    sums = [model.module.head.weight.grad.sum().item()]
    model = DistributedDataParallel(Model())
    optimizer = ZeroRedundancyOptimizer(
        model.parameters(), torch.optim.AdamW, lr=1e-2)
    for step in range(3):
        x, y = batch(step, rank)
        optimizer.zero_grad()
        loss_of(model(x), y).backward()
        optimizer.step()
    optimizer.consolidate_state_dict(0)
    return sums + [model.module.head.weight.sum().item()]


def sharded(model, mesh=None, policy=None):
    from torch.distributed.fsdp import fully_shard

    more = {"mp_policy": policy} if policy else {}
    for block in model.blocks:
        fully_shard(block, mesh=mesh, **more)
    return fully_shard(model, mesh=mesh, **more)


@client(2, 4)
def fsdp2():
    from torch.distributed.fsdp import MixedPrecisionPolicy

    losses = train(sharded(Model()))
    policy = MixedPrecisionPolicy(
        param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    return losses + train(sharded(Model(), policy=policy))


@client(2)
def fsdp1():
    from torch.distributed.fsdp import FullyShardedDataParallel

    return train(FullyShardedDataParallel(
        Model(), device_id=torch.device("cpu")))


@client(4)
def hsdp():
    from torch.distributed.device_mesh import init_device_mesh

    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("copy", "shard"))
    return train(sharded(Model(), mesh))


def tensor_parallel(model, mesh):
    from torch.distributed.tensor.parallel import (
        ColwiseParallel, RowwiseParallel, parallelize_module)

    for block in model.blocks:
        parallelize_module(
            block, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    return model


@client(2)
def tensor_parallel_and_dtensor():
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import (
        DTensor, Partial, Replicate, Shard, distribute_tensor)

    n = dist.get_world_size()
    mesh = init_device_mesh("cpu", (n,))
    out = train(tensor_parallel(Model(), mesh), part=0, foreach=False)
    rows = distribute_tensor(
        torch.arange(35.0).view(7, 5), mesh, [Shard(0)])
    columns = rows.redistribute(mesh, [Shard(1)])
    out.append((columns @ columns.t()).full_tensor().sum().item())
    out.append(columns.redistribute(mesh, [Replicate()]).to_local().sum()
               .item())
    parts = DTensor.from_local(torch.ones(3), mesh, [Partial()])
    out.append(parts.redistribute(mesh, [Shard(0)]).full_tensor().sum().item())
    flags = torch.tensor([True, False, True])
    out.append(distribute_tensor(flags, mesh, [Replicate()]).full_tensor()
               .sum().item())
    return out


@client(4)
def fsdp2_and_tensor_parallel_on_a_2x2_mesh():
    from torch.distributed.device_mesh import init_device_mesh

    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "tensor"))
    model = tensor_parallel(Model(), mesh["tensor"])
    return train(sharded(model, mesh["data"]),
                 part=mesh["data"].get_local_rank(), foreach=False)


class Stage(nn.Module):
    """One of so many parts of a model."""

    def __init__(self, model, index, of):
        super().__init__()
        self.block = model.blocks[index]
        self.embedding = model.embedding if index == 0 else None
        self.head = model.head if index == of - 1 else None

    def forward(self, x):
        if self.embedding is not None:
            x = self.embedding(x)
        x = self.block(x)
        return x if self.head is None else self.head(x)


def pipeline(schedule, stages_of_rank=1):
    from torch.distributed.pipelining import PipelineStage

    rank, n = dist.get_rank(), dist.get_world_size()
    count = n * stages_of_rank
    model = Model(count)
    mine = [Stage(model, i, count) for i in range(rank, count, n)]
    stages = [PipelineStage(stage, rank + i * n, count, torch.device("cpu"))
              for i, stage in enumerate(mine)]
    schedule = schedule(stages if stages_of_rank > 1 else stages[0],
                        n_microbatches=4, loss_fn=loss_of)
    optimizer = torch.optim.AdamW(
        [p for stage in mine for p in stage.parameters()], lr=1e-2)
    out = []
    for step in range(4):
        x, y = batch(step, 0)
        losses = []
        optimizer.zero_grad()
        schedule.step(*([x] if rank == 0 else []),
                      **({"target": y, "losses": losses}
                         if rank == n - 1 else {}))
        optimizer.step()
        loss = (torch.stack([part.detach() for part in losses]).mean()
                if losses else torch.zeros(()))
        dist.broadcast(loss, n - 1)
        out.append(loss.item())
    return out


@client(2, 4)
def pipeline_1f1b():
    from torch.distributed.pipelining import Schedule1F1B

    return pipeline(Schedule1F1B)


@client(2)
def pipelines_gpipe_and_interleaved():
    from torch.distributed.pipelining import (
        ScheduleGPipe, ScheduleInterleaved1F1B)

    return pipeline(ScheduleGPipe) + pipeline(ScheduleInterleaved1F1B, 2)


@client(2)
def a_distributed_checkpoint():
    import torch.distributed.checkpoint as checkpoint
    from torch.distributed.checkpoint.state_dict import (
        get_state_dict, set_state_dict)

    model = sharded(Model())
    losses = train(model, 2)
    optimizer = torch.optim.AdamW(model.parameters())
    x, y = batch(0, dist.get_rank())
    loss_of(model(x), y).backward()
    optimizer.step()
    folder = [tempfile.mkdtemp() if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(folder, 0)
    try:
        of_model, of_optimizer = get_state_dict(model, optimizer)
        checkpoint.save({"model": of_model, "optimizer": of_optimizer},
                        checkpoint_id=folder[0])
        torch.manual_seed(5)
        other = sharded(Model())
        optimizer = torch.optim.AdamW(other.parameters())
        of_model, of_optimizer = get_state_dict(other, optimizer)
        checkpoint.load({"model": of_model, "optimizer": of_optimizer},
                        checkpoint_id=folder[0])
        set_state_dict(other, optimizer, model_state_dict=of_model,
                       optim_state_dict=of_optimizer)
        equal = all(torch.equal(a.full_tensor(), b.full_tensor())
                    for a, b in zip(model.parameters(), other.parameters()))
    finally:
        dist.barrier()
        if dist.get_rank() == 0:
            shutil.rmtree(folder[0], ignore_errors=True)
    return losses + [other.head.weight.full_tensor().sum().item(), equal]


@client(2)
def averages_of_a_model():
    from torch.distributed.algorithms.model_averaging.averagers import (
        PeriodicModelAverager)

    model = Model()
    averager = PeriodicModelAverager(period=2, warmup_steps=0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(4):
        x, y = batch(step, dist.get_rank())
        optimizer.zero_grad()
        loss_of(model(x), y).backward()
        optimizer.step()
        averager.average_parameters(model.parameters())
    return [model.head.weight.sum().item()]


@client()
def ddp_compiled():
    """By hand: it takes 20 s to start."""
    model = DistributedDataParallel(Model())
    return train(torch.compile(model, backend="aot_eager"), 3)


def _all(store, rank, n, clients):
    results = {}
    for name, function in clients:
        losses = {}
        for backend in ("gloo", "dicomm"):
            began = time.monotonic()
            dist.init_process_group(
                backend, rank=rank, world_size=n,
                store=dist.PrefixStore(f"{name}/{backend}", store),
                timeout=datetime.timedelta(seconds=60))
            torch.manual_seed(0)
            try:
                losses[backend] = function()
            except Exception as error:
                raise AssertionError(f"{name} over {backend}") from error
            dist.barrier()
            dist.destroy_process_group()
            losses[backend + " seconds"] = time.monotonic() - began
        results[name] = losses
    return results


def run(tell):
    """Run all; tell(name, failure or None, seconds) hears of each.

    DICOMM_TEST_CLIENTS names some by a part of their names."""
    only = os.environ.get("DICOMM_TEST_CLIENTS", "")
    for n in (2, 4):
        chosen = [(name, function) for name, sizes, function in CLIENTS
                  if only in name and (n in sizes or (only and not sizes))]
        try:
            every = chosen and ranks.values(
                ranks.run(n, _all, chosen, seconds=400))
        except AssertionError as error:
            tell(f"clients, {n} ranks", error)
            continue
        for name, _ in chosen:
            wrong = []
            for rank, results in enumerate(every):
                a, b = results[name]["gloo"], results[name]["dicomm"]
                # Sums in another order differ in the last digits.
                if len(a) != len(b) or any(
                        abs(x - y) > 1e-4 * max(1, abs(x))
                        for x, y in zip(a, b)):
                    wrong.append(f"rank {rank}: gloo {a}\ndicomm {b}")
            tell(f"client {name}, {n} ranks", "\n".join(wrong) or None,
                 every[0][name]["dicomm seconds"])
