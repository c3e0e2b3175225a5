# SPDX-License-Identifier: BSD-3-Clause
"""Cuts causal language models of Hugging Face's transformers into layers.

    model = hetero.huggingface.cut("Qwen/Qwen2.5-0.5B", tokens=1024)
    trainer = hetero.Trainer(plan, model.layers, model.loss, model.activation,
                             tied=model.tied)
    trainer.load_weights(model.weights(folder))     # pretrained ones

transformers is imported here, and nowhere else.
"""

import copy
import importlib
import math

import torch
import torch.nn.functional as F
from torch import nn

from .layers import ColumnLinear, RowLinear, Shared
from .pretrained import Weights

# Rotary embeddings, RMS norms, gated feed-forward parts; and by which name
# their classes begin.
_LLAMAS = {"llama": "Llama", "mistral": "Mistral", "qwen2": "Qwen2",
           "qwen3": "Qwen3"}
# Dropout would differ between the ranks of a stage: it is off.
_DROPOUTS = ("attention_dropout", "resid_pdrop", "embd_pdrop", "attn_pdrop",
             "hidden_dropout")


class _Undivided(Shared):
    """What no team of ranks can split."""

    def __init__(self, why):
        super().__init__()
        self._why = why

    def split(self, team, peers):
        if team.size > 1:
            raise ValueError(f"a stage of {team.size} ranks: wanted 1:"
                             f" {self._why}")


@torch.no_grad()
def _initialize(module, deviation, blocks):
    """As transformers does."""
    for name, part in module.named_modules():
        if isinstance(part, (nn.Linear, nn.Embedding, ColumnLinear, RowLinear)
                      ) or type(part).__name__ == "Conv1D":
            # GPT-2's, which two of each block add to what goes through.
            narrow = name.endswith(".c_proj")
            nn.init.normal_(part.weight, std=deviation / (
                math.sqrt(2 * blocks) if narrow else 1))
            if getattr(part, "bias", None) is not None:
                nn.init.zeros_(part.bias)
            if getattr(part, "padding_idx", None) is not None:
                part.weight[part.padding_idx].zero_()
    return module


def _replace(module, name, kind, unit):
    old = getattr(module, name)
    new = kind(old.in_features, old.out_features, old.bias is not None, unit)
    setattr(module, name, new)


class _Head(nn.Module):
    """What is after the blocks. A tied matrix is whole, as the embedding."""

    def __init__(self, norm, config):
        super().__init__()
        self.norm = norm
        self.lm_head = (
            nn.Linear(config.hidden_size, config.vocab_size, bias=False)
            if config.tie_word_embeddings else
            ColumnLinear(config.hidden_size, config.vocab_size, bias=False,
                         gather=True))

    def forward(self, x):
        return self.lm_head(self.norm(x))


class _Llama:
    """How models of _LLAMAS are cut."""

    names = {"embedding": "model.", "block": "model.layers.{}.",
             "norm": "model.norm.", "lm_head": "lm_head."}
    tied = "0.embed_tokens.weight"

    def __init__(self, config):
        kind = config.model_type
        self._config = config
        self._of = importlib.import_module(
            f"transformers.models.{kind}.modeling_{kind}")
        self._name = _LLAMAS[kind]

    def _class(self, what):
        return getattr(self._of, self._name + what)

    def embedding(self):
        return _LlamaEmbedding(self._config)

    def block(self, number):
        config = self._config
        block = _LlamaBlock(self._class("DecoderLayer")(config, number),
                            self._class("RotaryEmbedding")(config))
        attention, mlp = block.layer.self_attn, block.layer.mlp
        width, groups = attention.head_dim, attention.num_key_value_groups
        if hasattr(attention, "q_norm"):
            block.undivided = _Undivided(
                f"{config.model_type} norms the heads by what all ranks have")
            return block
        _replace(attention, "q_proj", ColumnLinear, width * groups)
        for name in "k_proj", "v_proj":
            _replace(attention, name, ColumnLinear, width)
        _replace(attention, "o_proj", RowLinear, width * groups)
        for name in "gate_proj", "up_proj":
            _replace(mlp, name, ColumnLinear, 1)
        _replace(mlp, "down_proj", RowLinear, 1)
        return block

    def norm(self):
        return self._class("RMSNorm")(self._config.hidden_size,
                                      self._config.rms_norm_eps)


class _LlamaEmbedding(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.embed_tokens = nn.Embedding(
            config.vocab_size, config.hidden_size, config.pad_token_id)

    def forward(self, x):
        return self.embed_tokens(x)


class _LlamaBlock(nn.Module):
    def __init__(self, layer, rotary):
        super().__init__()
        self.layer, self.rotary = layer, rotary

    def forward(self, x):
        places = torch.arange(x.shape[1], device=x.device)[None]
        return _only(self.layer(x, position_embeddings=self.rotary(x, places),
                                position_ids=places))


class _Gpt2:
    names = {"embedding": "transformer.", "block": "transformer.h.{}.",
             "norm": "transformer.ln_f.", "lm_head": "lm_head."}
    tied = "0.wte.weight"

    def __init__(self, config):
        self._config = config
        self._of = importlib.import_module(
            "transformers.models.gpt2.modeling_gpt2")

    def embedding(self):
        return _Gpt2Embedding(self._config)

    def block(self, number):
        block = _Gpt2Block(self._of.GPT2Block(self._config, number))
        block.undivided = _Undivided(
            "GPT-2 has queries, keys and values in one matrix")
        return block

    def norm(self):
        return nn.LayerNorm(self._config.hidden_size,
                            self._config.layer_norm_epsilon)


class _Gpt2Embedding(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.wte = nn.Embedding(config.vocab_size, config.hidden_size)
        self.wpe = nn.Embedding(config.n_positions, config.hidden_size)

    def forward(self, x):
        return self.wte(x) + self.wpe(
            torch.arange(x.shape[1], device=x.device))


class _Gpt2Block(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return _only(self.layer(x))


def _only(y):
    """Some versions return a tuple of one."""
    return y[0] if isinstance(y, tuple) else y


class _Named:
    """Weights by names of the layers."""

    def __init__(self, weights, name_of):
        self._weights, self._name_of = weights, name_of

    def __getitem__(self, name):
        name = self._name_of(name)
        bare = name.partition(".")[2]  # checkpoints of the model without head
        return self._weights[
            bare if name not in self._weights and bare in self._weights
            else name]


class Cut:
    """layers, loss, activation and tied are what hetero.Trainer wants."""

    def __init__(self, config, tokens, deviation):
        family = _Gpt2 if config.model_type == "gpt2" else _Llama
        self._family = family(config)
        self.config = config
        self.blocks = config.num_hidden_layers
        self.activation = (tokens, config.hidden_size)
        made = self._family

        def layer(make, *arguments):
            return lambda: _initialize(make(*arguments), deviation,
                                       self.blocks)

        self.layers = [
            layer(made.embedding),
            *[layer(made.block, number) for number in range(self.blocks)],
            layer(lambda: _Head(made.norm(), config))]
        self.tied = ([(made.tied, f"{self.blocks + 1}.lm_head.weight")]
                     if config.tie_word_embeddings else [])

    @staticmethod
    def loss(output, targets):
        return F.cross_entropy(output.flatten(0, 1).float(),
                               targets.flatten())

    def name_of(self, name):
        """The name that transformers gives a parameter of a layer."""
        number, _, rest = name.partition(".")
        names = self._family.names
        if int(number) == 0:
            return names["embedding"] + rest
        if int(number) <= self.blocks:
            return (names["block"].format(int(number) - 1)
                    + rest.partition(".")[2])
        part, _, rest = rest.partition(".")
        return names[part] + rest

    def weights(self, path):
        """Pretrained ones, for Trainer.load_weights(): path is a folder of
        save_pretrained(), or a file of it."""
        return _Named(Weights(path), self.name_of)


def cut(model, tokens):
    """model: a name or folder of Hugging Face, or a configuration; tokens: of
    a sequence. Dropout is off."""
    if isinstance(model, str) or hasattr(model, "__fspath__"):
        from transformers import AutoConfig
        model = AutoConfig.from_pretrained(model)
    config = copy.deepcopy(model)
    kind = config.model_type
    if kind not in _LLAMAS and kind != "gpt2":
        raise ValueError(f"model_type {kind!r}: wanted one of gpt2,"
                         f" {', '.join(_LLAMAS)}")
    window = getattr(config, "sliding_window", None)
    if window and window < tokens and getattr(config, "use_sliding_window",
                                              True):
        raise ValueError(f"sliding_window {window}: wanted at least the"
                         f" {tokens} tokens of a sequence")
    if config.max_position_embeddings < tokens:
        raise ValueError(f"tokens {tokens}: wanted at most"
                         f" {config.max_position_embeddings}, the places that"
                         " the model has")
    if getattr(config, "reorder_and_upcast_attn", False):
        raise ValueError("reorder_and_upcast_attn: true: wanted false")
    for name in _DROPOUTS:
        if hasattr(config, name):
            setattr(config, name, 0.0)
    config._attn_implementation = "sdpa"
    return Cut(config, tokens, config.initializer_range)
