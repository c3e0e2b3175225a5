# SPDX-License-Identifier: BSD-3-Clause
"""Keeps what ranks hold of parameters, for ranks that hold them otherwise.

A folder that all ranks see has a file of each rank that writes, and an index
of which box of which parameter is in which file. The index is replaced last:
so the folder has one whole state at any time.
"""

import json
import os
import pathlib
import re

import torch
import torch.distributed as dist

from .redistribution import Moved, Redistribution

INDEX = "index.json"
_OWN = re.compile(r"\d+-\d+\.pt~?")  # files that write() makes
_VERSION = 1


class CheckpointError(ValueError):
    """A folder does not have what is wanted; the text names both."""


class Lost(CheckpointError):
    """Ranks do not have it; each of them finds that, of what all have told."""


def _replace(file, write):
    """Make a file that is there wholly, or as it was."""
    beside = file.with_name(file.name + "~")
    with open(beside, "wb") as out:
        write(out)
        out.flush()
        os.fsync(out.fileno())
    os.replace(beside, file)


def taken(parameter, optimizer):
    """What is kept of a parameter: tensors of its shape, and the rest."""
    tensors, rest = {"parameter": parameter.detach().cpu()}, {}
    state = optimizer.state.get(parameter, {}) if optimizer else {}
    for key, value in state.items():
        if torch.is_tensor(value) and value.shape == parameter.shape:
            tensors[f"optimizer.{key}"] = value.detach().cpu()
        else:
            rest[key] = value
    return tensors, rest


def is_whole(shape, lo, hi):
    return not any(lo) and list(hi) == list(shape)


def is_shaped(rest):
    """Has the optimizer tensors of another shape than the parameter, such as
    Adafactor's, of which nobody knows what belongs to which part?"""
    return any(torch.is_tensor(value) and value.numel() > 1
               for value in rest.values())


_SHAPED = "the optimizer's state has not its shape, and ranks have parts of it"


def check_rest(name, rest, whole):
    if not whole and is_shaped(rest):
        raise CheckpointError(f"{name}: {_SHAPED}")


def _own(value, parameter, optimizer):
    """No memory of a file, which may go; and where the optimizer wants it:
    as in Optimizer.load_state_dict(), some keep all on the device."""
    if not torch.is_tensor(value):
        return value
    for group in optimizer.param_groups:
        if any(of is parameter for of in group["params"]) and (
                group.get("fused") or group.get("capturable")):
            return value.to(parameter.device, copy=True)
    return value.clone()


def given(parameter, optimizer, tensors, rest):
    """The reverse. An optimizer of which nothing was kept stays as it is."""
    with torch.no_grad():
        parameter.copy_(tensors["parameter"])
    if optimizer and (rest or len(tensors) > 1):
        optimizer.state[parameter] = {
            **{key: _own(value, parameter, optimizer)
               for key, value in rest.items()},
            **{key.partition(".")[2]: value.to(parameter.device)
               for key, value in tensors.items() if key != "parameter"}}


def fetch(home, group, every, wanted, held):
    """Move what ranks hold to those that want it: {name: (tensors, rest)}.

    every: (name, type, shape) of all parameters, alike on all ranks. wanted:
    {name: (shape, lo, hi)} of this rank; held: {name: (that, tensors, rest)}.
    """
    told = [None] * home.size
    dist.all_gather_object(told, ({
        name: ({key: tensor.dtype for key, tensor in tensors.items()}, rest)
        for name, (_, tensors, rest) in held.items()},
        {name for name, (box, *_) in held.items() if not is_whole(*box)}
        | {name for name, box in wanted.items() if not is_whole(*box)}),
        group=group)
    parted = set().union(*(parts for _, parts in told))
    moved, sources, targets, made = [], [], [], {}
    for name, _, shape in every:
        of = [has[name] for has, _ in told if name in has]
        if not of:
            raise Lost(f"{name}: no rank has it any more")
        if name in parted and any(is_shaped(rest) for _, rest in of):
            raise Lost(f"{name}: {_SHAPED}")
        if name in wanted:
            made[name] = {}, of[0][1]
        for key, dtype in sorted(of[0][0].items()):
            mine = held.get(name)
            source = [(home.rank, 0, *mine[0][1:])] if mine else []
            target = []
            sources.append(mine[1][key].contiguous().to(home.place)
                           if mine else None)
            targets.append(None)
            if name in wanted:
                _, lo, hi = wanted[name]
                target = [(home.rank, 0, lo, hi)]
                targets[-1] = made[name][0][key] = torch.empty(
                    [b - a for a, b in zip(lo, hi)], dtype=dtype,
                    device=home.place)
            moved.append(Moved(f"{key} of {name}", dtype, shape, source,
                               target))
    try:
        plan = Redistribution(home, moved, own=True)
    except ValueError as error:  # layouts are checked by all ranks alike
        raise Lost(
            f"not all of it is held by a rank any more: {error}") from error
    plan.run(*[[None if tensor is None else tensor.data_ptr()
                for tensor in tensors] for tensors in (sources, targets)])
    if not home.on_host and home.synchronize():
        raise CheckpointError("the redistribution failed")
    plan.close()
    return made


def write(folder, number, rank, pieces):
    """Write pieces, {name: (shape, lo, hi, tensors, rest)}; returns what the
    index is to say of them."""
    if not pieces:
        return []
    file = f"{number}-{rank}.pt"
    _replace(pathlib.Path(folder, file), lambda out: torch.save(
        {name: (tensors, rest)
         for name, (*_, tensors, rest) in pieces.items()}, out))
    return [[name, list(shape), list(lo), list(hi), file]
            for name, (shape, lo, hi, *_) in pieces.items()]


def publish(folder, entries):
    """Make these the state that the folder has, and remove the one before."""
    folder = pathlib.Path(folder)
    _replace(folder / INDEX, lambda out: out.write(json.dumps(
        {"version": _VERSION, "pieces": entries}).encode()))
    files = {entry[-1] for entry in entries}
    for file in folder.iterdir():
        if _OWN.fullmatch(file.name) and file.name not in files:
            file.unlink()


class Reader:
    """Reads boxes of parameters out of a folder."""

    def __init__(self, folder):
        self._folder = pathlib.Path(folder)
        try:
            table = json.loads((self._folder / INDEX).read_text())
        except (OSError, ValueError) as error:
            raise CheckpointError(f"{folder}: {error}") from None
        if table.get("version") != _VERSION:
            raise CheckpointError(
                f"{folder}: version {table.get('version')!r}: wanted"
                f" {_VERSION}")
        self._pieces = {}
        for name, *piece in table["pieces"]:
            self._pieces.setdefault(name, []).append(piece)
        self._files = {}

    def _file(self, name):
        if name not in self._files:
            self._files[name] = torch.load(
                self._folder / name, map_location="cpu", weights_only=True,
                mmap=True)
        return self._files[name]

    def box(self, name, shape, lo, hi):
        """(tensors, rest) of a box of a parameter; see taken()."""
        made, rest, missing = {}, {}, 1
        for n in (b - a for a, b in zip(lo, hi)):
            missing *= n
        for its_shape, low, high, file in self._pieces.get(name, ()):
            if its_shape != list(shape):
                raise CheckpointError(
                    f"{self._folder}: {name}: {its_shape}: wanted"
                    f" {list(shape)}")
            both = [(max(a, c), min(b, d))
                    for a, b, c, d in zip(lo, hi, low, high)]
            if any(a >= b for a, b in both):
                continue
            tensors, rest = self._file(file)[name]
            if (list(lo), list(hi)) != (low, high) and is_shaped(rest):
                raise CheckpointError(
                    f"{self._folder}: {name}: the optimizer's state has not"
                    " its shape, so it fits the parts that were kept only")
            into = tuple(slice(a - x, b - x) for (a, b), x in zip(both, lo))
            out_of = tuple(slice(a - x, b - x) for (a, b), x in zip(both, low))
            for key, tensor in tensors.items():
                if key not in made:
                    made[key] = tensor.new_empty(
                        [b - a for a, b in zip(lo, hi)])
                made[key][into] = tensor[out_of]
            found = 1
            for a, b in both:
                found *= b - a
            missing -= found
        if missing:
            raise CheckpointError(f"{self._folder}: {name}: not all of it is"
                                  " there")
        return made, rest
