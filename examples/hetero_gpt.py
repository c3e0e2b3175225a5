# SPDX-License-Identifier: BSD-3-Clause
"""A small GPT, trained by a plan: stages, tensor-parallel degrees and parts of
the batch may differ from pipeline to pipeline.

    torchrun --nproc-per-node 4 examples/hetero_gpt.py examples/plans/degrees.json

Without a plan one process trains it whole, with the same losses:

    python examples/hetero_gpt.py

It learns the text that --text names, by default the licence.
"""

import argparse
import os
import pathlib

import torch
from torch import nn
import torch.nn.functional as F

from dicomm_torch import hetero

HIDDEN, HEADS, BLOCKS, TOKENS, BATCH = 32, 4, 4, 32, 8
TOP = pathlib.Path(__file__).resolve().parent.parent


class Embedding(nn.Module):
    def __init__(self, characters):
        super().__init__()
        self.character = nn.Embedding(characters, HIDDEN)
        self.place = nn.Embedding(TOKENS, HIDDEN)

    def forward(self, x):
        return self.character(x) + self.place(
            torch.arange(x.shape[1], device=x.device))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(HIDDEN), nn.LayerNorm(HIDDEN)
        self.attention = hetero.Attention(HIDDEN, HEADS)
        self.feed_forward = hetero.FeedForward(HIDDEN, 4 * HIDDEN)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.feed_forward(self.norm2(x))


class Head(nn.Module):
    def __init__(self, characters):
        super().__init__()
        self.norm = nn.LayerNorm(HIDDEN)
        self.out = hetero.ColumnLinear(HIDDEN, characters, gather=True)

    def forward(self, x):
        return self.out(self.norm(x))


def layers(characters):
    """Functions that make each layer."""
    return [lambda: Embedding(characters), *[Block] * BLOCKS,
            lambda: Head(characters)]


def loss_of(output, targets):
    return F.cross_entropy(output.flatten(0, 1), targets.flatten())


class Text:
    """Random pieces of a text, the same ones everywhere."""

    def __init__(self, file):
        text = pathlib.Path(file).read_text()
        self.characters = sorted(set(text))
        number = {c: i for i, c in enumerate(self.characters)}
        self.text = torch.tensor([number[c] for c in text])

    def batch(self, step):
        """Inputs and targets of a step: each character's is the next one."""
        generator = torch.Generator().manual_seed(step)
        at = torch.randint(len(self.text) - TOKENS, (BATCH, 1),
                           generator=generator)
        at = at + torch.arange(TOKENS)
        return self.text[at], self.text[at + 1]


def optimizer_of(parameters):
    return torch.optim.AdamW(parameters, lr=3e-3, eps=1e-6)


def train_alone(text, steps):
    """One process; yields the loss of each step."""
    model = hetero.build_all(layers(len(text.characters)))
    optimizer = optimizer_of(model.parameters())
    for step in range(steps):
        inputs, targets = text.batch(step)
        loss = loss_of(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss.item()


def train(text, steps, plan, **options):
    """This rank of a plan; yields the loss of each step."""
    trainer = hetero.Trainer(
        hetero.read_plan(plan), layers(len(text.characters)), loss_of,
        (TOKENS, HIDDEN), **options)
    # A rank that the plan does not use has nothing to optimize.
    parameters = trainer.parameters()
    optimizer = optimizer_of(parameters) if parameters else None
    for step in range(steps):
        loss = trainer.step(*text.batch(step))
        if optimizer:
            optimizer.step()
        yield loss
    unequal = trainer.unequal_copies()
    if unequal:
        raise SystemExit(f"copies of parameters differ: {unequal}")
    trainer.close()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("plan", nargs="?")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--text", default=TOP / "LICENSE")
    arguments = parser.parse_args()
    text = Text(arguments.text)
    torch.set_num_threads(1)
    if not arguments.plan:
        for step, loss in enumerate(train_alone(text, arguments.steps)):
            print(f"step {step}: loss {loss:.7f}", flush=True)
        return
    torch.distributed.init_process_group("dicomm")
    for step, loss in enumerate(
            train(text, arguments.steps, arguments.plan)):
        if os.environ["RANK"] == "0":
            print(f"step {step}: loss {loss:.7f}", flush=True)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
