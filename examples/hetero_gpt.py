# SPDX-License-Identifier: BSD-3-Clause
"""A small GPT, trained by a plan: stages, tensor-parallel degrees and parts of
the batch may differ from pipeline to pipeline.

    torchrun --nproc-per-node 4 examples/hetero_gpt.py examples/plans/degrees.json

Without a plan one process trains it whole, with the same losses:

    python examples/hetero_gpt.py

It learns the text that --text names, by default the licence.

--experts N makes the blocks mixtures of so many experts, which the pipelines of
examples/plans/experts.json share.

--profile FILE also measures its layers with as many ranks as the plan has, for
`dicomm-plan simulate --profile`; --layer-ms MS makes each layer sleep so long
in the forward pass of a sequence and twice as long in the backward pass, the
ranks of a stage their part of it each, as if a device computed that the
ranks do not share.
"""

import argparse
import json
import os
import pathlib
import statistics
import time

import torch
from torch import nn
import torch.nn.functional as F

from dicomm_torch import hetero

HIDDEN, HEADS, BLOCKS, TOKENS, BATCH = 32, 4, 4, 32, 8
ACTIVE = 2  # experts of a token
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
    def __init__(self, experts=0):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(HIDDEN), nn.LayerNorm(HIDDEN)
        self.attention = hetero.Attention(HIDDEN, HEADS)
        self.feed_forward = (
            hetero.Experts(HIDDEN, 2 * HIDDEN, experts, ACTIVE) if experts
            else hetero.FeedForward(HIDDEN, 4 * HIDDEN))

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


class _Sleep(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, seconds):
        ctx.seconds = seconds
        time.sleep(seconds)
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        time.sleep(2 * ctx.seconds)
        return grad, None


class Paced(nn.Module):
    """A layer that takes longer."""

    def __init__(self, layer, seconds):
        super().__init__()
        self.layer, self.seconds = layer, seconds

    def forward(self, x):
        degree = max((module.team.size for module in self.modules()
                      if hasattr(module, "team")), default=1)
        return _Sleep.apply(
            self.layer(x), self.seconds * len(x) / degree)


def layers(characters, layer_ms=0.0, experts=0):
    """Functions that make each layer."""
    made = [lambda: Embedding(characters), *[lambda: Block(experts)] * BLOCKS,
            lambda: Head(characters)]
    if not layer_ms:
        return made
    return [lambda make=make: Paced(make(), layer_ms * 1e-3) for make in made]


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


def model_of(characters):
    """The sizes, for dicomm-plan."""
    return {"name": "hetero_gpt", "num_hidden_layers": BLOCKS,
            "hidden_size": HIDDEN, "num_attention_heads": HEADS,
            "intermediate_size": 4 * HIDDEN, "gated": False,
            "vocab_size": characters, "dtype": "float32"}


def optimizer_of(parameters):
    return torch.optim.AdamW(parameters, lr=3e-3, eps=1e-6)


def train_alone(text, steps, layer_ms=0.0, experts=0):
    """One process; yields the loss of each step."""
    model = hetero.build_all(layers(len(text.characters), layer_ms, experts))
    optimizer = optimizer_of(model.parameters())
    for step in range(steps):
        inputs, targets = text.batch(step)
        loss = loss_of(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss.item()


def train(text, steps, plan, layer_ms=0.0, between=None, experts=0,
          **options):
    """This rank of a plan; yields the loss of each step. between(step) is
    called before each of them."""
    trainer = hetero.Trainer(
        hetero.read_plan(plan), layers(len(text.characters), layer_ms,
                                       experts),
        loss_of, (TOKENS, HIDDEN), **options)
    # A rank that the plan does not use has nothing to optimize.
    parameters = trainer.parameters()
    optimizer = optimizer_of(parameters) if parameters else None
    for step in range(steps):
        if between:
            between(step)
        loss = trainer.step(*text.batch(step))
        if optimizer:
            optimizer.step()
        yield loss
    unequal = trainer.unequal_copies()
    if unequal:
        raise SystemExit(f"copies of parameters differ: {unequal}")
    trainer.close()


class Timing:
    """Seconds of steps, and of layers in turns with them: the first step and
    those after layers were measured do not count."""

    def __init__(self, text, plan, layer_ms, every):
        plan = hetero.read_plan(plan)
        self.seconds = []
        self._every, self._text, self._began = every, text, None
        self._profile = hetero.Profile(
            layers(len(text.characters), layer_ms), loss_of, optimizer_of,
            {p.micro_batch for p in plan.pipelines},
            {s.degree for p in plan.pipelines for s in p.stages})

    def between(self, step):
        now = time.perf_counter()
        if self._began is not None:
            self.seconds.append(now - self._began)
        if step % self._every == 0:
            self._profile.measure(*self._text.batch(step), repeats=3)
        self._began = time.perf_counter() if step % self._every else None

    def save(self, file, characters):
        """The profile, and beside it the sizes of the model, which
        dicomm-plan wants to know, too."""
        self._profile.save(file)
        if os.environ["RANK"] != "0":
            return
        with open(f"{file}.model", "w") as out:
            json.dump(model_of(characters), out)
            out.write("\n")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("plan", nargs="?")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--text", default=TOP / "LICENSE")
    parser.add_argument("--layer-ms", type=float, default=0.0)
    parser.add_argument("--experts", type=int, default=0, metavar="N")
    parser.add_argument("--profile", metavar="FILE")
    arguments = parser.parse_args()
    if arguments.experts and arguments.experts < ACTIVE:
        parser.error(f"--experts {arguments.experts}: wanted 0, or {ACTIVE}"
                     " or more")
    if arguments.experts and arguments.profile:
        parser.error("--profile: wanted no --experts: a profile does not tell"
                     " of experts")
    if arguments.layer_ms < 0:
        parser.error(f"--layer-ms {arguments.layer_ms}: wanted 0 or more")
    if arguments.profile and not (arguments.plan and arguments.steps > 2):
        parser.error("--profile: wanted a plan, and at least three steps")
    text = Text(arguments.text)
    torch.set_num_threads(1)
    if not arguments.plan:
        for step, loss in enumerate(train_alone(
                text, arguments.steps, arguments.layer_ms,
                arguments.experts)):
            print(f"step {step}: loss {loss:.7f}", flush=True)
        return
    torch.distributed.init_process_group("dicomm")
    timing = None
    if arguments.profile:
        timing = Timing(text, arguments.plan, arguments.layer_ms,
                        max(3, -(-arguments.steps // 3)))
    for step, loss in enumerate(
            train(text, arguments.steps, arguments.plan, arguments.layer_ms,
                  timing.between if timing else None, arguments.experts)):
        if os.environ["RANK"] == "0":
            print(f"step {step}: loss {loss:.7f}", flush=True)
    if timing:
        timing.save(arguments.profile, len(text.characters))
        if os.environ["RANK"] == "0":
            print(f"seconds of a step: {statistics.median(timing.seconds):.6f}"
                  f" ({min(timing.seconds):.6f} to"
                  f" {max(timing.seconds):.6f})", flush=True)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
