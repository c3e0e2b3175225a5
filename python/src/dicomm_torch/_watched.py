# SPDX-License-Identifier: BSD-3-Clause
"""Operations that pass the dispatcher of torch when somebody looks there.

A group of dicomm is called in Python, and calls the library itself: torch's
dispatcher, by which its profiler, its modes (TorchDispatchMode, CommDebugMode,
FakeTensorMode), its subclasses of tensors and its hooks see what is done, takes
longer than a small operation. So each operation asks whether anybody looks. If so
it calls that of C++ which it overrides; that calls the dispatcher, and the
dispatcher the Backend inside of the group, which calls the library.
"""

import os
import threading

import torch
from torch.autograd import _profiler_enabled

from ._completion import _are_inputs_of_graphs

_count_modes = torch._C._len_torch_dispatch_stack

# What makes torch attach hooks to groups that see each operation. The flight
# recorder has one by default: it takes longer than four operations of 8 B, so
# here it has to be asked for.
_HOOKED_BY = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE",
              "TORCH_DIST_NAN_CHECK")

OPERATIONS = (
    "allreduce", "allreduce_coalesced", "broadcast", "reduce", "barrier",
    "allgather", "allgather_coalesced", "all_gather_single",
    "all_gather_single_coalesced", "gather", "scatter", "reduce_scatter",
    "reduce_scatter_single", "reduce_scatter_single_coalesced", "alltoall",
    "all_to_all_single", "send", "recv", "recv_anysource")

# The names of torch up to 2.13
ALIASES = {
    "_allgather_base": "all_gather_single",
    "allgather_into_tensor_coalesced": "all_gather_single_coalesced",
    "_reduce_scatter_base": "reduce_scatter_single",
    "reduce_scatter_tensor_coalesced": "reduce_scatter_single_coalesced",
    "alltoall_base": "all_to_all_single"}


class Subclass(ValueError):
    """A tensor is of a kind that torch's dispatcher has to see."""


def is_subclass(tensor):
    """Is this a tensor that takes what is done with it into its own hands?"""
    return (type(tensor).__torch_dispatch__
            is not torch._C._disabled_torch_dispatch_impl
            and type(tensor) is not torch.Tensor)


class _Seen(threading.local):
    """The work that the Backend has made for an operation of this thread."""

    wanted = False
    work = None


_seen = _Seen()


class Inner:
    """A mixin of the Backend, which tells what works it makes."""

    def _run(self, *arguments, **named):
        work = super()._run(*arguments, **named)
        if _seen.wanted:
            _seen.work = work
        return work


class _Alias:
    """Another name of an operation. C++ looks for both names, so while it is
    called by one it must not find the other in Python."""

    def __init__(self, name, of_cpp):
        self._name = name
        self._of_cpp = of_cpp

    def __get__(self, group, group_class):
        if group is None or _seen.wanted:
            return self._of_cpp.__get__(group, group_class)
        return getattr(group, self._name)


def _are_lazy(values):
    """Are there tensors that are conjugated or negated only when they are read?
    The dispatcher replaces them by others, so that results would be lost."""
    for value in values:
        if isinstance(value, (list, tuple)):
            if _are_lazy(value):
                return True
        elif isinstance(value, torch.Tensor) and (
                value.is_conj() or value.is_neg()):
            return True
    return False


def _operation(name, plain, of_cpp):
    def operation(self, *arguments, **named):
        if not (_profiler_enabled() or _count_modes() or self._is_hooked):
            try:
                return plain(self, *arguments, **named)
            except Subclass:
                pass
        if _are_inputs_of_graphs() or _are_lazy(arguments):
            return plain(self, *arguments, **named)
        before = _seen.wanted, _seen.work
        _seen.wanted, _seen.work = True, None
        try:
            work = of_cpp(self, *arguments, **named)
            # Not the holder that C++ makes of the work, if there is one.
            return work if _seen.work is None else _seen.work
        except TypeError:  # called in a way that only Python's takes
            return plain(self, *arguments, **named)
        finally:
            _seen.wanted, _seen.work = before

    # C++ calls the operation of Python that overrides its own, unless the frame
    # that calls has its name and its self.
    operation.__code__ = operation.__code__.replace(co_name=name)
    operation.__name__ = name
    return operation


def let_look(group_class, of_python, of_cpp):
    """Have the operations of a class of groups, which are those of_python, pass
    the dispatcher if somebody looks; of_cpp is the class that is overridden."""
    for name in OPERATIONS:
        setattr(group_class, name, _operation(
            name, getattr(of_python, name), getattr(of_cpp, name)))
    for alias, name in ALIASES.items():
        setattr(group_class, alias, _Alias(name, vars(of_cpp)[alias]))


def is_hooked():
    """Has somebody asked for hooks that are to see all operations?"""
    return any(os.environ.get(name, "0") not in ("", "0")
               for name in _HOOKED_BY)
