# SPDX-License-Identifier: BSD-3-Clause
"""What TORCH_DISTRIBUTED_DEBUG=DETAIL adds: shapes are compared, too.

The library tells calls that differ in kind, type or length, at no cost, but takes
tensors of other shapes with as many elements, as gloo and NCCL do. At this level
those compare what the ranks call, in an exchange before each collective; so does
this, with the words of theirs. The group stays whole.
"""

import json

import torch
import torch._C._distributed_c10d as c10d
import torch.distributed as dist

from . import _library as lib
from ._completion import _OP_TYPES as OP_TYPES

_BYTES = 1024  # of what a rank tells
_SHAPES = 600  # characters of it

# Between two ranks only, or several calls of which some may be
_NOT_COMPARED = {c10d.OpType.SEND, c10d.OpType.RECV, c10d.OpType.COALESCED}


def _if_alike(others, tensors):
    """Lists of unlike shapes are allowed, and then each rank's is its own."""
    return tensors if len({other.shape for other in others}) < 2 else []


# The tensors of a call that all ranks have alike, from what it keeps
_COMPARED = {
    "all_reduce": lambda call: call.keep[:1],
    "broadcast": lambda call: call.keep[:1],
    "reduce": lambda call: call.keep[:1],
    "all_gather": lambda call: _if_alike(call.outputs, call.keep[-1:]),
    "all_gather_into_tensor": lambda call: call.keep[:1],
    "gather": lambda call: (
        call.keep[:1] if call.function is lib.library.dicomm_gather
        else call.keep[-1:]),
    "scatter": lambda call: call.keep[:1],
    "reduce_scatter": lambda call: _if_alike(call.keep[1:], call.keep[:1]),
    "reduce_scatter_tensor": lambda call: call.keep[:2],
}

_ASPECTS = {"OpType": "Op type", "TensorShape": "Tensor shapes",
            "TensorDtypes": "Tensor dtypes"}


def is_wanted():
    """Does the environment, or the program, ask for this level?"""
    return dist.get_debug_level() == dist.DebugLevel.DETAIL


def _describe(title, calls):
    about = {"OpType": OP_TYPES[title].name}
    tensors = _COMPARED[title](calls[0]) if title in _COMPARED else []
    if tensors:
        about["TensorShape"] = ", ".join(
            str(list(tensor.shape)) for tensor in tensors)[:_SHAPES]
        about["TensorDtypes"] = ", ".join(
            str(tensor.dtype).removeprefix("torch.") for tensor in tensors)
    return about


def _words(about, number):
    return "CollectiveFingerPrint(" + ", ".join(
        f"{name}={value}" for name, value in
        {"SequenceNumber": number, **about}.items()) + ")"


def compare(group, calls, title):
    """Raise RuntimeError if another rank begins another collective now."""
    if OP_TYPES.get(title, c10d.OpType.SEND) in _NOT_COMPARED:
        return
    comm = group._communicator
    about = _describe(title, calls)
    mine = json.dumps(about).encode().ljust(_BYTES)
    every = torch.empty(comm.size * _BYTES, dtype=torch.uint8, device="cpu")
    call = group._allgather(
        every, torch.frombuffer(bytearray(mine), dtype=torch.uint8), title)
    waiting = c10d.AllgatherOptions()
    waiting.asyncOp = False
    group._start([call], waiting, title, True).wait()
    comm.sequence -= 1  # it is none of the user's
    comm.compared += 1
    every = bytes(every.tolist())
    for rank in range(comm.size):
        its = every[rank * _BYTES:(rank + 1) * _BYTES]
        if its == mine:
            continue
        for call in calls:
            if call.reduction:
                call.reduction.close()
        its = json.loads(its)
        differ = "; ".join(
            f"{words}: {about.get(name)} vs {its.get(name)}"
            for name, words in _ASPECTS.items()
            if about.get(name) != its.get(name))
        raise RuntimeError(
            "Detected mismatch between collectives on ranks. Rank"
            f" {comm.rank} is running collective:"
            f" {_words(about, comm.compared)}, but Rank {rank} is running"
            f" collective: {_words(its, comm.compared)}. Collectives differ"
            f" in the following aspects: {differ} (group {comm.name})")
