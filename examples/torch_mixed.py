# SPDX-License-Identifier: BSD-3-Clause
"""Data parallel training on unlike devices in one process group.

    torchrun --nproc-per-node 2 examples/torch_mixed.py

Rank 0 trains on the CPU, the last rank on a GPU if torch sees one. If none is
there, the last rank is bound to an OpenCL device that works on host memory
(PoCL's), where this machine has one, whose tensors are those of the CPU. Which
it was is printed; the losses are the same.
"""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
device = torch.device("cpu")
if rank == ranks - 1 and rank > 0:
    if torch.cuda.is_available():
        device = torch.device("cuda", 0)
        os.environ["DICOMM_DEVICE"] = (
            "hip:0" if torch.version.hip else "cuda:0")
    else:
        os.environ["DICOMM_DEVICE"] = "opencl:0"
try:
    dist.init_process_group("dicomm")
except (ValueError, dist.DistBackendError) as error:
    raise SystemExit(f"rank {rank}: no device to mix with: {error}")

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(32, 128), nn.GELU(), nn.Linear(128, 1))
model = DistributedDataParallel(model.to(device))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

generator = torch.Generator().manual_seed(rank)
for step in range(50):
    x = torch.randn(64, 32, generator=generator).to(device)
    loss = nn.functional.mse_loss(model(x), x.sum(1, keepdim=True))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

loss = loss.detach()
dist.all_reduce(loss, dist.ReduceOp.AVG)
print(f"rank {rank} of {ranks}: tensors on {device}, bound to"
      f" {os.environ.get('DICOMM_DEVICE', 'host')}")
if rank == 0:
    print(f"loss after 50 steps: {loss.item():.4f}")
dist.destroy_process_group()
