# SPDX-License-Identifier: BSD-3-Clause
"""Windows: puts into the tensor of another rank, which calls nothing meanwhile.

What dist.distributed_c10d._new_window() returns, in the shape of torch's own
Window, of which Python can make none. See docs/one-sided.md for when a put is
there.
"""

import ctypes
import types

import torch._C._distributed_c10d as c10d

from . import _library as lib
from ._operations import _Call, _plain
from ._types import moved

_call = lib.library


class Window:
    """A tensor of each rank of a group, into which the others put.

    The methods are collective only where they say so. A put is not signalled
    by itself: signal() counts behind all puts of this rank to that peer, and
    ends one wait_signal() there. Each window has a signal of its own between
    each two ranks; the 4,097th window of a group has that of the first.
    """

    _registered = None  # the tensor, if this owns it

    def __init__(self, group, tensor=None):
        self._group = group
        number = next(group._communicator.windows)
        self._context, self._signal = divmod(
            number % (lib.SIGNALS * lib.SIGNAL_CONTEXTS), lib.SIGNALS)
        self._handle = ctypes.c_void_p()
        if tensor is not None:
            self.tensor_register(tensor)

    def tensor_register(self, tensor, owning=True):
        """Collective: every rank gives a contiguous tensor of one type, which
        may be of another length on each. Puts write it from now on until
        tensor_deregister(). Without owning the caller keeps it alive."""
        if self._handle:
            raise ValueError("dicomm window: it has a tensor already")
        comm = self._group._communicator
        if tensor.device.type != comm.kind:
            raise ValueError(
                f"dicomm window: the tensor is on {tensor.device}, but this"
                f" rank of group {comm.name} is bound to {comm.device}")
        if not _plain(tensor):
            raise ValueError("dicomm window: a contiguous tensor is needed")
        size = tensor.numel() * tensor.element_size()
        with comm.lock:
            result = _call.dicomm_comm_window_register(
                comm.usable(), tensor.data_ptr() if size else None, size,
                ctypes.byref(self._handle), 0)
        if result:
            raise comm.error(result, "window")
        if owning:
            self._registered = tensor.detach()
            comm.window_tensors[self._handle.value] = self._registered
        self._type = tensor.dtype

    def tensor_deregister(self):
        """Collective: returns when nothing is put into the tensor any more."""
        handle = self._usable()
        comm = self._group._communicator
        self._handle = ctypes.c_void_p()
        with comm.lock:
            result = _call.dicomm_comm_window_deregister(comm.usable(), handle)
        self._registered = None
        comm.window_tensors.pop(handle.value, None)
        if result:
            raise comm.error(result, "window")

    def put(self, tensor, dst_rank, target_offset_nelems, async_op, opts=None):
        """Write a tensor into that of dst_rank, from an element of it on.
        Returns a Work; it is done when the tensor is the caller's again."""
        handle = self._usable()
        self._check_rank(dst_rank, "put")
        if tensor.dtype != self._type:
            raise TypeError(f"dicomm put: the window is of {self._type}, not of"
                            f" {tensor.dtype}")
        if target_offset_nelems < 0:
            raise ValueError("dicomm put: target_offset_nelems"
                             f" {target_offset_nelems} is negative")
        call = _Call("put", [])
        source = self._group._source(call, tensor)
        kind, multiple = moved(tensor.dtype, tensor.element_size())
        call.set(_call.dicomm_put_signal, source.data_ptr(),
                 source.numel() * multiple, kind, dst_rank, handle,
                 target_offset_nelems * tensor.element_size(), lib.NO_SIGNAL,
                 0, 0)
        return self._run(call, async_op, opts, dst_rank)

    def signal(self, peer_rank, async_op, opts=None):
        """Count a signal at a peer, behind all puts of this rank to it."""
        self._usable()
        self._check_rank(peer_rank, "signal")
        call = _Call("signal", [])
        call.set(_call.dicomm_signal, peer_rank, self._signal, self._context, 0)
        return self._run(call, async_op, opts, peer_rank)

    def wait_signal(self, peer_rank, async_op, opts=None):
        """Wait for one signal of a peer, and take it."""
        self._usable()
        self._check_rank(peer_rank, "wait_signal")
        call = _Call("wait_signal", [])
        awaited = lib.AwaitedSignal(1, peer_rank, self._signal, self._context)
        call.set(_call.dicomm_wait_signal, 1, ctypes.byref(awaited))
        return self._run(call, async_op, opts)

    def map_remote_tensor(self, rank):
        """The tensor itself, of this rank only."""
        self._usable()
        self._check_rank(rank, "map_remote_tensor")
        if rank != self._group._communicator.rank or self._registered is None:
            raise NotImplementedError(
                f"dicomm window: the tensor of rank {rank} cannot be mapped:"
                " put into it")
        return self._registered

    def get_attr(self, peer_rank):
        self._usable()
        self._check_rank(peer_rank, "get_attr")
        # Unified: what a put wrote is in the tensor. From torch 2.14 on.
        return c10d.WindowAttr()

    # -- how ----------------------------------------------------------------

    def _usable(self):
        if not self._handle:
            raise ValueError("dicomm window: it has no tensor: call"
                             " tensor_register()")
        return self._handle

    def _check_rank(self, rank, what):
        size = self._group._communicator.size
        if not 0 <= rank < size:
            raise ValueError(f"dicomm {what}: rank {rank} is no rank of a group"
                             f" of {size}")

    def _run(self, call, async_op, opts, target=None):
        """Make a call. target is the rank that it acts at, in the order of the
        calls: as each has a stream for itself, it begins when the one before
        it has left this rank. The library sees to that, whatever the peer does
        meanwhile."""
        options = types.SimpleNamespace(
            asyncOp=async_op, timeout=getattr(opts, "timeout", None))
        latest = self._group._communicator.latest_puts
        before = latest.pop(target, None)
        if before is not None:
            before.join()
        work = self._group._run([call], options)
        if target is not None and async_op:
            latest[target] = work._operation
        return work


class Windows:
    """What a group or backend has for windows, beside its operations."""

    @property
    def supports_window(self):
        """For tensors on the host; those of GPUs have not been tried."""
        return self._communicator.kind == "cpu"

    def new_window(self, tensor=None):
        """Collective; see Window."""
        return Window(self, tensor)
