# SPDX-License-Identifier: BSD-3-Clause
"""What a group does, for people."""

import ctypes

import torch.distributed as dist

from . import _library as lib
from ._operations import Operations
from ._types import FLOAT32

_OPERATIONS = ("allreduce", "allgather", "reduce_scatter", "broadcast",
               "alltoall")
_BYTES = (8, 64 << 10, 16 << 20)


def _operations_of(group):
    group = group or dist.group.WORLD
    if isinstance(group, Operations):
        return group
    for device in getattr(group, "_device_types", ()):
        backend = group._get_backend(device)
        if isinstance(backend, Operations):
            return backend
    raise ValueError(f"{group!r} is no process group of dicomm")


def explain(group=None):
    """Say how a group communicates: device, what it has sent by which way, and
    for some operations and sizes the algorithm that is taken and why.

    group is a process group, None for the default one. Returns text for
    people, which all ranks can ask for at any time and from any thread;
    nothing is sent. Raises DistBackendError if the group is broken or shut
    down.
    """
    comm = _operations_of(group)._communicator
    handle = comm.usable()
    stats = lib.Stats(size=ctypes.sizeof(lib.Stats))
    lib.check(lib.library.dicomm_comm_stats(handle, ctypes.byref(stats)),
              handle, "stats")
    version = ctypes.c_int()
    lib.library.dicomm_get_version(ctypes.byref(version))
    number = version.value
    lines = [
        f"libdicomm {number // 10000}.{number // 100 % 100}.{number % 100},"
        f" group {comm.name}: rank {comm.rank} of {comm.size} on"
        f" {comm.device}",
        "so far: " + ", ".join(
            f"{name} {getattr(stats, name)}" for name, _ in stats._fields_[1:]
            if getattr(stats, name)),
    ]
    text = ctypes.create_string_buffer(16384)
    for operation in _OPERATIONS:
        for size in _BYTES:
            lib.check(
                lib.library.dicomm_comm_explain(
                    handle, operation.encode(), max(1, size // 4), FLOAT32,
                    text, len(text)),
                handle, "explain")
            lines += ["", text.value.decode(errors="replace").rstrip()]
    return "\n".join(lines)
