# SPDX-License-Identifier: BSD-3-Clause
"""Weights that were trained elsewhere, read layer by layer.

A rank reads only what it holds: files are mapped, not loaded.
"""

import json
import mmap
import pathlib
import struct

import torch

from .checkpoint import CheckpointError

_TYPES = {
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16,
    "BF16": torch.bfloat16, "I64": torch.int64, "I32": torch.int32,
    "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8,
    "BOOL": torch.bool}
_HEADER_MOST = 100 << 20  # as safetensors has it


def _open(file):
    """The tensors of a file of safetensors, by name."""
    def wrong(what):
        return CheckpointError(f"{file}: {what}")

    with open(file, "rb") as data:
        head = data.read(8)
        if len(head) < 8:
            raise wrong(f"{len(head)} bytes: wanted a file of safetensors")
        length, = struct.unpack("<Q", head)
        if length > _HEADER_MOST:
            raise wrong(f"a header of {length} bytes: wanted a file of"
                        " safetensors")
        try:
            table = json.loads(data.read(length))
        except ValueError as error:
            raise wrong(f"the header: {error}") from None
        # Copied where it is written to; nobody does.
        whole = mmap.mmap(data.fileno(), 0, access=mmap.ACCESS_COPY)
    if not isinstance(table, dict):
        raise wrong("the header: wanted an object")
    tensors = {}
    for name, about in table.items():
        if name == "__metadata__":
            continue
        try:
            kind, shape = _TYPES[about["dtype"]], about["shape"]
            low, high = (8 + length + at for at in about["data_offsets"])
            flat = torch.frombuffer(whole, dtype=torch.uint8)[low:high]
            if len(flat) != high - low:
                raise ValueError(f"ends at byte {high} of {len(whole)}")
            # Nothing says that data are where their type wants them.
            if (8 + length + about["data_offsets"][0]) % kind.itemsize:
                flat = flat.clone()
            tensors[name] = flat.view(kind).view(shape)
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            raise wrong(f"{name}: {error}") from None
    return tensors


def _load(file):
    try:
        return torch.load(file, map_location="cpu", weights_only=True,
                          mmap=True)
    except Exception as error:  # of an old format, cut off, no tensors
        raise CheckpointError(f"{file}: {error}") from error


class Weights:
    """The tensors of a file, or of all files of a folder: *.safetensors, or
    else what torch.save() made of a state dictionary (*.bin, *.pt)."""

    def __init__(self, path):
        path = pathlib.Path(path)
        self.path = path
        files = [path] if path.is_file() else []
        for pattern in "*.safetensors", "*.bin", "*.pt":
            files = files or sorted(path.glob(pattern))
        if not files:
            raise CheckpointError(
                f"{path}: wanted a file or folder of *.safetensors, *.bin or"
                " *.pt")
        self._tensors = {}
        for file in files:
            self._tensors.update(
                _open(file) if file.suffix == ".safetensors" else _load(file))

    def __contains__(self, name):
        return name in self._tensors

    def __iter__(self):
        return iter(self._tensors)

    def __getitem__(self, name):
        if name not in self._tensors:
            raise CheckpointError(f"{self.path}: {name}: not there")
        return self._tensors[name]


def part(source, name, shape, lo, hi):
    """A box of a tensor that a mapping has."""
    try:
        whole = source[name]
    except KeyError:
        raise CheckpointError(f"weights: {name}: not there") from None
    if list(whole.shape) != list(shape):
        raise CheckpointError(f"{name}: {list(whole.shape)}: wanted"
                              f" {list(shape)}")
    return whole[tuple(slice(a, b) for a, b in zip(lo, hi))]
