# SPDX-License-Identifier: BSD-3-Clause
"""The process group and the backend that torch sees.

torch takes from a creator either a Backend, which it puts into a group of its
own, or a whole ProcessGroup. Of a Backend, what Python is given as the work of
an operation is a holder that knows wait() and get_future() only (2.14, 2.15):
is_completed() is never true. So we give a ProcessGroup; it has the Backend
inside, for those who ask the group for that of a device. In a group of several
backends ("cpu:gloo,cuda:dicomm") it has to be the Backend, which serves only the
devices that it is named for.
"""

import sys
import warnings

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Backend as C10dBackend
from torch._C._distributed_c10d import ProcessGroup as C10dGroup

from . import _watched
from ._communicator import Communicator
from ._operations import Operations
from ._reconfigure import Reconfigurable, unconfigured
from ._window import Windows

DEVICES = ("cpu", "cuda", "xpu")
LAST_KIND = 255  # of a backend, for C++


def _has_backend():
    """Can a c10d::Backend be made in Python? From torch 2.14 on."""
    try:
        C10dBackend(0, 1)
        return True
    except TypeError:
        return False


HAS_BACKEND = _has_backend()


def _is_there(kind):
    """Does this machine have devices of a kind? torch's hooks take a group for
    one of any device that it has a Backend for, and ask that for its stream."""
    module = getattr(torch, kind, None)
    return kind == "cpu" or (module is not None and module.is_available())


def _asked_for():
    """Which backend serves which kind of device of the group that torch is
    making now: {"cpu": "dicomm", "cuda": "nccl"}. A creator is not told, and is
    called for the first device before the group knows of the others: so it is
    read from the function of torch that calls. Empty if that is not found."""
    frame = sys._getframe(1)
    while frame and frame.f_code.co_name != "_new_process_group_helper":
        frame = frame.f_back
    config = frame and frame.f_locals.get("backend_config")
    return dict(config.get_device_backend_map()) if config else {}


class DicommBackend(_watched.Inner, Operations, Windows, C10dBackend):
    """A Backend over a communicator."""

    def __init__(self, communicator, store, timeout, options=None):
        C10dBackend.__init__(self, communicator.rank, communicator.size)
        self._begin(communicator, store)
        self._options = options or C10dBackend.Options(
            "dicomm", timeout=timeout)

    @property
    def options(self):
        return self._options

    @property
    def supports_splitting(self):
        return True

    @property
    def supports_coalescing(self):
        return True

    def getBackendName(self):
        return "dicomm"

    def name(self):
        return "dicomm"

    def split(self, store, ranks, options):
        rank = self._communicator.rank
        if rank not in ranks:
            return None
        timeout = getattr(options, "_timeout", None) or self._communicator.timeout
        communicator = Communicator(
            store, list(ranks).index(rank), len(ranks), timeout,
            getattr(options, "group_name", "") or "split",
            self._communicator.device)
        return DicommBackend(communicator, store, timeout, options)

    @property
    def supports_shrinking(self):
        return True

    def shrink(self, ranks_to_exclude, shrink_flags=0, opts_override=None):
        """For dist.shrink_group(), called by the ranks that remain. The old
        group may be broken: by the death of those that are excluded."""
        if shrink_flags & dist.distributed_c10d.SHRINK_ABORT:
            self._communicator.abort()
        timeout = getattr(opts_override, "_timeout", None) or (
            self._communicator.timeout)
        exclude = sorted(ranks_to_exclude)
        communicator = self._communicator.shrink(exclude, timeout)
        store = dist.PrefixStore(
            f"shrunk:{','.join(map(str, exclude))}/", self._store)
        return DicommBackend(communicator, store, timeout, opts_override)

    def eager_connect_single_device(self, device):
        pass  # there is one communicator, made at init

    def perform_nocolor_split(self, device):
        pass  # a new group is made by its members alone


class _WithoutBackend:
    """What a group answers itself where it cannot have a Backend inside."""

    supports_splitting = True
    supports_coalescing = True

    @property
    def _device_types(self):
        return [torch.device(kind) for kind in self._devices]

    def _get_backend(self, device):
        return self

    def getGroupName(self):
        return self._group_name

    def setGroupName(self, name):
        self._group_name = name

    def getGroupDesc(self):
        return self._group_desc

    def setGroupDesc(self, desc):
        self._group_desc = desc

    def _set_default_backend(self, kind):
        pass

    def _has_hooks(self):
        return False


class DicommGroup(
        *(() if HAS_BACKEND else (_WithoutBackend,)), Operations, Windows,
        Reconfigurable, C10dGroup):
    """A ProcessGroup over a communicator."""

    def __init__(self, communicator, store, timeout, options=None,
                 devices=DEVICES):
        # Before 2.14 only the one without a store takes a class of Python.
        C10dGroup.__init__(self, *([store] if HAS_BACKEND else []),
                           communicator.rank, communicator.size)
        self._group_store = store
        self._begin(communicator, store)
        self._options = options
        self._devices = devices
        self._is_hooked = _watched.is_hooked()
        if HAS_BACKEND:
            self._set_backend(C10dGroup.BackendType.CUSTOM, timeout)

    def _set_backend(self, kind, timeout):
        backend = DicommBackend(
            self._communicator, self._store, timeout, self._options)
        for device in self._devices:
            if self._devices is DEVICES and not _is_there(device):
                continue  # one that nobody named
            self._register_backend(torch.device(device), kind, backend)
        self._set_default_backend(kind)
        self._kind = kind

    def reconfigure(self, opts):
        if HAS_BACKEND and int(self._kind) == LAST_KIND:
            raise NotImplementedError(
                "dicomm reconfigure: this group was reconfigured too often:"
                " make a new one")
        return super().reconfigure(opts)

    def _take(self, communicator, store):
        super()._take(communicator, store)
        # C++ takes rank and size from the default backend, where they never
        # change, and keeps the first backend of each kind: so another one.
        if HAS_BACKEND:
            self._set_backend(C10dGroup.BackendType(int(self._kind) + 1),
                              communicator.timeout)

    def getBackendName(self):
        return "dicomm"

    def get_group_store(self):
        return self._group_store

    def split_group(self, new_ranks, timeout=None, opts=None, group_name=None,
                    group_desc=None, device_types=None):
        """A group of some ranks of this one, made by these alone. All of
        them give the same new_ranks and group_name."""
        rank = self._communicator.rank
        new_ranks = list(new_ranks)
        if rank not in new_ranks:
            return None
        name = group_name or f"{self.group_name}:split:{new_ranks}"
        timeout = timeout or self._communicator.timeout
        store = dist.PrefixStore(f"{name}/", self._store)
        communicator = Communicator(
            store, new_ranks.index(rank), len(new_ranks), timeout, name,
            self._communicator.device)
        group = DicommGroup(communicator, store, timeout, opts, self._devices)
        group._set_group_name(name)
        group._set_group_desc(group_desc or "undefined")
        return group

    splitGroup = split_group  # the name by which C++ asks

    def register_pre_hook(self, number, hook):
        super().register_pre_hook(number, hook)
        self._is_hooked = True

    def register_post_hook(self, number, hook):
        super().register_post_hook(number, hook)
        self._is_hooked = True


if HAS_BACKEND:
    _watched.let_look(DicommGroup, Operations, C10dGroup)


def _device_of(bound, devices):
    """The name of the device of a communicator; None: the default."""
    if bound is None or bound.type not in devices:
        return None
    kind = bound.type
    if kind == "cuda" and torch.version.hip:
        kind = "hip"
    kind = {"xpu": "ze", "cpu": "host"}.get(kind, kind)
    return kind if kind == "host" else f"{kind}:{bound.index or 0}"


def create(options, backend_options=None):
    """The creator that torch calls for the backend "dicomm"."""
    asked = _asked_for()
    devices = tuple(kind for kind, name in asked.items()
                    if str(name) == "dicomm")
    if not devices or set(devices) == set(DEVICES):
        devices = DEVICES
    outer = getattr(options, "process_group", None)
    device = _device_of(getattr(outer, "bound_device_id", None), devices)
    timeout = options.timeout
    name = options.group_id or "default"
    if getattr(options, "enable_reconfigure", False):
        communicator = unconfigured(timeout, name, device)
    else:
        communicator = Communicator(
            options.store, options.group_rank, options.group_size, timeout,
            name, device)
    if len(set(asked.values())) < 2:
        return DicommGroup(communicator, options.store, timeout,
                           backend_options, devices)
    if HAS_BACKEND:
        return DicommBackend(communicator, options.store, timeout,
                             backend_options)
    warnings.warn(
        f"dicomm serves all devices of the group {name}, not only "
        f"{', '.join(devices)}: torch before 2.14 takes no backend written in "
        "Python beside others", stacklevel=2)
    return DicommGroup(communicator, options.store, timeout, backend_options)
