# SPDX-License-Identifier: BSD-3-Clause
"""A communicator of the library for one process group of torch."""

import atexit
import ctypes
import itertools
import logging
import math
import os
import threading
import time
import weakref
from _thread import start_new_thread

import torch
import torch.distributed as dist

from . import _completion
from . import _library as lib
from ._meeting import Meeting

_log = logging.getLogger("dicomm_torch")
_call = lib.library
_alive = weakref.WeakSet()  # communicators that are to be ended at exit

# How long the end of a group waits for what is still under way.
GRACE_S = 10.0
# How long the end of the process waits for collectives that are under way
LEAVE_S = 0.5
# How long the end of the process waits for callbacks of what has failed by then
CALLBACKS_S = 1.0

# Kinds of devices of the library and what torch calls their tensors.
TORCH_KINDS = {"host": "cpu", "opencl": "cpu", "cuda": "cuda", "hip": "cuda",
               "ze": "xpu"}


def _milliseconds(timeout):
    """A timedelta as the library takes it: longer than an int says, or none
    at all, is for ever, which is 0."""
    milliseconds = math.ceil(timeout.total_seconds() * 1000)
    return milliseconds if 0 < milliseconds < 1 << 31 else 0


def _end(handle, tensors):
    """Peers may put into these tensors until the communicator has ended."""
    _call.dicomm_comm_destroy(handle)
    tensors.clear()


class Communicator:
    """A handle of the library, made by all ranks of a group.

    It ends by close(), or when nobody has it any more.

    device is a name of the library ("host", "cuda:0"), None for that of
    DICOMM_DEVICE, else the host. Calls go through call(), which lets one
    thread at a time onto the handle; abort() and the queries need no lock.
    """

    handle = None
    not_yet = None  # why there is no handle, if none was used
    store = None  # keys that nobody used before, if it was made by a store

    def __init__(self, store, rank, size, timeout, name, device=None):
        config = self._config(timeout, name, device)
        meeting = Meeting(store, rank, size, timeout, name)
        config.bootstrap_allgather = lib.ALLGATHER(meeting.gather)
        handle = ctypes.c_void_p()
        result = _call.dicomm_comm_init_rank_config(
            ctypes.byref(handle), size, lib.UniqueId(), rank,
            ctypes.byref(config))
        if meeting.failure:
            raise meeting.failure
        lib.check(result, None, f"init of group {name}")
        self._begin(handle.value, rank, size, timeout, name)
        self.store = meeting.store()

    @classmethod
    def at(cls, meeting, rank, size, timeout, name, device=None):
        """One whose ranks meet by an id of the library, its text."""
        config = cls._config(timeout, name, device)
        handle = ctypes.c_void_p()
        lib.check(
            _call.dicomm_comm_init_rank_config(
                ctypes.byref(handle), size, lib.UniqueId(meeting.encode()),
                rank, ctypes.byref(config)),
            None, f"init of group {name}")
        self = cls.__new__(cls)
        self._begin(handle.value, rank, size, timeout, name)
        return self

    @staticmethod
    def _config(timeout, name, device=None):
        config = lib.Config()
        config.name = name.encode()
        config.device = device.encode() if device else None
        config.timeout_ms = _milliseconds(timeout)
        if config.timeout_ms:
            config.bootstrap_timeout_ms = config.timeout_ms
        return config

    def _begin(self, handle, rank, size, timeout, name):
        self.handle = handle
        self.rank = rank
        self.size = size
        self.name = name
        self.timeout = timeout
        self.lock = threading.RLock()
        self.in_flight = set()
        self.sequence = 0  # operations so far
        self.compared = 0  # collectives that _detail.py has compared
        self.batches = {}  # calls that a thread coalesces
        self.is_timed = os.environ.get(
            "TORCH_NCCL_ENABLE_TIMING", "0") not in ("", "0")
        self.latest_puts = {}  # operations into windows, by target
        self.windows = itertools.count()  # numbers, alike on all ranks
        # Tensors that peers put into. A window that was dropped has not ended.
        self.window_tensors = {}
        self.patience = _completion.Patience()
        self.aborted = False
        self._pid = os.getpid()
        self.device = self._device()
        kind, _, index = self.device.partition(":")
        self.kind = TORCH_KINDS.get(kind, kind)
        self.on_host = kind == "host"
        # Where tensors have to be, for torch; and the devices of a future.
        self.place = torch.device(
            self.kind, int(index or 0)) if self.kind != "cpu" else (
            torch.device("cpu"))
        self.devices = [] if self.kind == "cpu" else [self.place]
        _alive.add(self)

    def shrink(self, exclude, timeout):
        """The communicator of those that remain without the ranks in exclude,
        which all of them call. This one may be broken; it stays as it is.

        Raises DistBackendError if more ranks are gone than exclude says.
        """
        name = f"{self.name}:shrunk"
        config = self._config(timeout, name, self.device)
        handle = ctypes.c_void_p()
        with self.lock:
            lib.check(
                _call.dicomm_comm_shrink(
                    self.usable(), (ctypes.c_int * len(exclude))(*exclude),
                    len(exclude), ctypes.byref(handle), ctypes.byref(config)),
                None, f"shrink (group {self.name})")
        size, rank = ctypes.c_int(), ctypes.c_int()
        _call.dicomm_comm_count(handle, ctypes.byref(size))
        _call.dicomm_comm_user_rank(handle, ctypes.byref(rank))
        if size.value != self.size - len(exclude):
            _call.dicomm_comm_abort(handle)
            _call.dicomm_comm_destroy(handle)
            raise dist.DistBackendError(
                f"dicomm shrink (group {self.name}): {size.value} of"
                f" {self.size} ranks are left without {exclude}: others have"
                " died, or did not call; exclude them, too")
        new = Communicator.__new__(Communicator)
        new._begin(handle.value, rank.value, size.value, timeout, name)
        return new

    def __del__(self):
        # A group that was dropped, not destroyed. Its end may have to wait for
        # peers, which must not hold up the garbage collector.
        if self.handle is not None and not self.forked():
            start_new_thread(_end, (self.handle, self.window_tensors))

    def _device(self):
        name = ctypes.c_char_p()
        lib.check(
            _call.dicomm_comm_device(self.handle, ctypes.byref(name)),
            self.handle, "comm_device")
        return name.value.decode()

    def forked(self):
        """Is this the child of a fork, where nothing of it can be used?"""
        return os.getpid() != self._pid

    def usable(self):
        """The handle; raises if the group has been shut down."""
        if self.handle is None:
            why = self.not_yet or (
                "was aborted" if self.aborted else "has been shut down")
            raise dist.DistBackendError(f"dicomm: group {self.name} {why}")
        return self.handle

    def error(self, result, what):
        """An exception for a result of an operation of this communicator."""
        handle = self.handle
        if handle is None:
            result = lib.ABORTED
        return lib.error(result, handle, f"{what} (group {self.name})")

    def async_error(self):
        """The result that the communicator is broken with, or SUCCESS."""
        handle = self.handle
        if handle is None:
            return lib.ABORTED
        state = ctypes.c_int()
        result = _call.dicomm_comm_get_async_error(
            handle, ctypes.byref(state))
        return result or state.value

    def synchronize(self):
        """Wait for the default stream of a device; returns the result."""
        with self.lock:
            return _call.dicomm_comm_stream_synchronize(
                self.usable(), None)

    def set_timeout(self, timeout):
        """How long operations may wait for a peer, those under way too."""
        lib.check(
            _call.dicomm_comm_set_timeout(
                self.usable(), _milliseconds(timeout)),
            self.handle, f"set_timeout (group {self.name})")
        self.timeout = timeout

    def abort(self):
        """Stop everything; from any thread, in bounded time."""
        handle = self.handle
        if handle is not None and not self.forked():
            self.aborted = True
            _call.dicomm_comm_abort(handle)

    def close(self):
        """End it. What is under way gets GRACE_S seconds, then is aborted."""
        if self.handle is None or self.forked():
            return
        _alive.discard(self)
        waiting = [] if self.aborted or self.async_error() else list(
            self.in_flight)
        if not _completion.wait_all(waiting, GRACE_S):
            names = ", ".join(sorted({operation.title for operation in waiting
                                      if not operation.done}))
            _log.warning(
                "dicomm: group %s ends while %s is under way since more than"
                " %g s: aborted", self.name, names, GRACE_S)
            self.abort()
        # Those that failed return at once, and let go of their buffers.
        for operation in list(self.in_flight):
            operation.join()
        with self.lock:
            handle, self.handle = self.handle, None
            if handle is not None:
                _call.dicomm_comm_destroy(handle)
            self.window_tensors.clear()


def _ends_soon(communicator, limit_s):
    """Does what is under way end by itself? A message may never be taken, and
    to wait for it would be to wait for the peer to leave."""
    waiting = [operation for operation in list(communicator.in_flight)
               if not operation.poll()]
    if any(operation.title in ("send", "recv") for operation in waiting):
        return False
    return _completion.wait_all(waiting, limit_s)


def _end_all():
    """At exit: take leave of the peers, so that they hear of it in good order
    and not as a death. What is under way then ends soon, or is aborted."""
    end = time.monotonic() + LEAVE_S
    for communicator in list(_alive):
        try:
            left = max(0.001, end - time.monotonic())
            if not _ends_soon(communicator, left):
                communicator.abort()
            communicator.close()
        except Exception:
            pass  # nobody is left to hear of it
    _completion.await_callbacks(CALLBACKS_S)


atexit.register(_end_all)
