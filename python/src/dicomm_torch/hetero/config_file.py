# SPDX-License-Identifier: BSD-3-Clause
"""The model of a config.json, to be timed: random weights and tokens."""

import importlib.util
import json
import sys

import torch
import torch.nn.functional as F
from torch import nn

from . import huggingface
from .layers import Attention, ColumnLinear, FeedForward


class _Block(nn.Module):
    def __init__(self, hidden, heads, inner):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.attention = Attention(hidden, heads)
        self.feed_forward = FeedForward(hidden, inner)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.feed_forward(self.norm2(x))


def _loss(output, targets):
    return F.cross_entropy(output.flatten(0, 1).float(), targets.flatten())


def _plain(table, file, tokens):
    """A model of a file without model_type, as dicomm-plan takes them."""
    def size(key):
        if type(table.get(key)) is not int or table[key] < 1:
            raise ValueError(f"{file}: {key}: {table.get(key)!r}: wanted an"
                             " integer from 1 on")
        return table[key]

    hidden, vocabulary = size("hidden_size"), size("vocab_size")
    heads, inner = size("num_attention_heads"), size("intermediate_size")
    for key, plain in (("num_experts", 0), ("gated", False),
                       ("tie_word_embeddings", False),
                       ("num_key_value_heads", heads),
                       ("head_dim", hidden // heads)):
        if table.get(key, plain if key != "gated" else True) != plain:
            raise ValueError(
                f"{file}: {key}: {table.get(key, True)!r}: wanted {plain!r},"
                " a model_type, or --layers")
    return {
        "layers": [
            lambda: nn.Embedding(vocabulary, hidden),
            *[lambda: _Block(hidden, heads, inner)] * size(
                "num_hidden_layers"),
            lambda: nn.Sequential(nn.LayerNorm(hidden), ColumnLinear(
                hidden, vocabulary, bias=False, gather=True))],
        "loss": _loss, "activation": (tokens, hidden)}


def _cut(table, tokens):
    from transformers import AutoConfig

    table = dict(table)
    model = huggingface.cut(
        AutoConfig.for_model(table.pop("model_type"), **table), tokens)
    return {"layers": model.layers, "loss": model.loss,
            "activation": model.activation, "tied": model.tied}


class Model:
    """Of a config.json, with random weights and tokens."""

    def __init__(self, file):
        self._file = file
        with open(file) as text:
            try:
                self._table = json.load(text)
            except ValueError as error:
                raise ValueError(f"{file}: no JSON: {error}") from None
        if not isinstance(self._table, dict):
            raise ValueError(f"{file}: {type(self._table).__name__}: wanted"
                             " an object")
        kind = self._table.get("dtype", self._table.get("torch_dtype"))
        self._compute = (getattr(torch, kind)
                         if kind in ("bfloat16", "float16") else None)

    def __call__(self, plan):
        """What Trainer wants, and what it is to train with."""
        tokens = plan.sequence
        made = (_cut(self._table, tokens) if "model_type" in self._table
                else _plain(self._table, self._file, tokens))
        if self._compute:
            made["compute"] = self._compute
        vocabulary = self._table["vocab_size"]
        generator = torch.Generator().manual_seed(1)
        text = torch.randint(vocabulary, (plan.global_batch, tokens + 1),
                             generator=generator)
        return {**made, "batch": (text[:, :-1], text[:, 1:])}


def load_layers(place):
    """The function of "FILE.py:NAME"."""
    file, _, name = place.rpartition(":")
    spec = importlib.util.spec_from_file_location("trial_layers", file)
    if not file or spec is None:
        raise ValueError(f"--layers: {place!r}: wanted FILE.py:FUNCTION")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # as dataclasses and pickle want it
    spec.loader.exec_module(module)
    if not callable(getattr(module, name, None)):
        raise ValueError(f"--layers: {place!r}: {file} has no function"
                         f" {name!r}")
    return getattr(module, name)
