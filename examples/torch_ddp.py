# SPDX-License-Identifier: BSD-3-Clause
"""Data parallel training with PyTorch over libdicomm.

    torchrun --nproc-per-node 2 examples/torch_ddp.py

One word differs from a program that uses gloo or NCCL: the backend.
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("dicomm")  # before torch 2.14: import dicomm_torch
rank = dist.get_rank()

torch.manual_seed(0)
model = DistributedDataParallel(
    nn.Sequential(nn.Linear(32, 128), nn.GELU(), nn.Linear(128, 1)))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

generator = torch.Generator().manual_seed(rank)  # each rank its own data
for step in range(50):
    x = torch.randn(64, 32, generator=generator)
    loss = nn.functional.mse_loss(model(x), x.sum(1, keepdim=True))
    optimizer.zero_grad()
    loss.backward()  # gradients are averaged over the ranks meanwhile
    optimizer.step()

loss = loss.detach()
dist.all_reduce(loss, dist.ReduceOp.AVG)
if rank == 0:
    print(f"loss after 50 steps: {loss.item():.4f}")
dist.destroy_process_group()
