# SPDX-License-Identifier: BSD-3-Clause
"""Pipeline parallel training with PyTorch over libdicomm: each rank holds one
stage of a model, activations and their gradients go from rank to rank.

    torchrun --nproc-per-node 2 examples/torch_pipeline.py
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

dist.init_process_group("dicomm")
rank, ranks = dist.get_rank(), dist.get_world_size()
last = ranks - 1

torch.manual_seed(rank)
stage = nn.Sequential(nn.Linear(32, 32), nn.Tanh())
if rank == last:
    stage.append(nn.Linear(32, 1))
schedule = Schedule1F1B(
    PipelineStage(stage, rank, ranks, torch.device("cpu")),
    n_microbatches=4, loss_fn=nn.functional.mse_loss)
optimizer = torch.optim.AdamW(stage.parameters(), lr=1e-2)

generator = torch.Generator().manual_seed(0)
for step in range(50):
    x = torch.randn(64, 32, generator=generator)
    losses = []
    optimizer.zero_grad()
    schedule.step(*([x] if rank == 0 else []),
                  **({"target": x[:, :1], "losses": losses}
                     if rank == last else {}))
    optimizer.step()

if rank == last:
    loss = torch.stack([part.detach() for part in losses]).mean()
    print(f"loss after 50 steps: {loss.item():.4f}")
dist.destroy_process_group()
