# SPDX-License-Identifier: BSD-3-Clause
"""A group that goes on with other members: after a death, or when somebody new
comes (dist.distributed_c10d._reconfigure(), from torch 2.14 on).

The handle of a process is an id of the library, by which others meet there. All
members are told all handles, and meet at the first one; the place of a handle is
the rank of its process.
"""

import ctypes
import time

import torch.distributed as dist

from . import _completion
from . import _library as lib
from ._communicator import Communicator

_call = lib.library

# The library serves an id for DICOMM_BOOTSTRAP_TIMEOUT, 60 s by default: a
# handle that is asked for again later than this is made anew.
FRESH_S = 20.0


def _new_id(what):
    """A fresh id of the library, its text; what is for the message."""
    made = lib.UniqueId()
    lib.check(_call.dicomm_get_unique_id(ctypes.byref(made)), None, what)
    return made.text.decode()


class Reconfigurable:
    """What a group has for that, beside its operations."""

    supports_reconfigure = True
    _handles = ()  # own ones, the latest last
    _handle_end = 0.0

    def get_reconfigure_handle(self):
        """The text by which others find this process, good for
        DICOMM_BOOTSTRAP_TIMEOUT and one reconfigure()."""
        if time.monotonic() >= self._handle_end:
            self._handles = (*self._handles, _new_id("get_reconfigure_handle"))
            self._handle_end = time.monotonic() + FRESH_S
        return self._handles[-1]

    def reconfigure(self, opts):
        """Go on with those whose handles are given, all of whom call this with
        the same ones: a list in the order of ranks, or a set. If anything is
        under way, the old communicator is aborted.

        Blocks. Raises what init raises, DistTimeoutError above all; then
        another one may be tried.
        """
        handles = opts.handles
        handles = list(handles) if isinstance(handles, list) else sorted(handles)
        mine = [h for h in handles if h in self._handles]
        if len(mine) != 1 or len(set(handles)) != len(handles):
            raise ValueError(
                f"dicomm reconfigure: {len(mine)} of {len(handles)} handles are"
                " of this process: one is wanted, and no handle twice")
        old = self._communicator
        if old.in_flight:
            old.abort()
        old.close()
        timeout = opts.timeout or old.timeout
        name = old.name.partition("@")[0] + f"@{opts.uuid}"
        self._handles, self._handle_end = (), 0.0
        new = Communicator.at(handles[0], handles.index(mine[0]), len(handles),
                              timeout, name, old.device)
        # The store of the group, which new members have as well
        self._take(new, dist.PrefixStore(
            f"reconfigured/{opts.uuid}/", self._group_store))
        return _completion.done(new, "reconfigure", [], 0)

    def _take(self, communicator, store):
        self._begin(communicator, store)


def unconfigured(timeout, name, device=None):
    """The communicator of a group that waits for its first reconfigure()."""
    communicator = Communicator.at(
        _new_id(f"init of group {name}"), 0, 1, timeout, name, device)
    communicator.close()
    communicator.not_yet = "waits for its first reconfigure()"
    return communicator
