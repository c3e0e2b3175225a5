# SPDX-License-Identifier: BSD-3-Clause
"""Redistribution of the library by ctypes (docs/redistribute.md)."""

import ctypes
from ctypes import POINTER, c_char_p, c_double, c_int, c_int64, c_size_t
from ctypes import c_uint64, c_void_p

from .. import _library as lib
from .._types import TYPES

AXES = 8
WAYS = {"auto": 0, "direct": 1, "scatter": 2, "leader": 3}


class _Box(ctypes.Structure):
    """dicomm_box_t."""

    _fields_ = [
        ("rank", c_int), ("term", c_int), ("lo", c_int64 * AXES),
        ("hi", c_int64 * AXES), ("offset", c_int64),
        ("stride", c_int64 * AXES)]


class _Tensor(ctypes.Structure):
    """dicomm_tensor_t."""

    _fields_ = [
        ("size", c_size_t), ("name", c_char_p), ("type", c_int),
        ("axes", c_int), ("shape", c_int64 * AXES), ("source", POINTER(_Box)),
        ("sources", c_size_t), ("target", POINTER(_Box)),
        ("targets", c_size_t), ("terms", c_int),
        ("weights", POINTER(c_double))]


class _Config(ctypes.Structure):
    """dicomm_redistribute_config_t."""

    _fields_ = [
        ("size", c_size_t), ("way", c_int), ("staging_bytes", c_size_t),
        ("allow_unwanted", c_int), ("local", c_int)]


class _Info(ctypes.Structure):
    """dicomm_redistribute_info_t."""

    _fields_ = [
        ("size", c_size_t), ("way", c_int), ("seconds", c_double),
        ("seconds_of", c_double * 4)] + [
        (name, c_uint64) for name in (
            "messages_sent messages_received bytes_sent bytes_received"
            " bytes_of_all bytes_between_hosts rounds staging_bytes"
            " plan_bytes").split()]


_POINTERS = POINTER(c_void_p)
_FUNCTIONS = {
    "redistribute_plan": [
        POINTER(c_void_p), POINTER(_Tensor), c_size_t, POINTER(_Config),
        c_void_p],
    "redistribute_plan_own": [
        POINTER(c_void_p), POINTER(_Tensor), c_size_t, POINTER(_Config),
        c_void_p],
    "redistribute_run": [c_void_p, _POINTERS, _POINTERS, c_void_p],
    "redistribute_info": [c_void_p, POINTER(_Info)],
    "redistribute_explain": [c_void_p, c_char_p, c_size_t],
    "redistribute_free": [c_void_p],
}
for _name, _arguments in _FUNCTIONS.items():
    _entry = getattr(lib.library, "dicomm_" + _name)
    _entry.argtypes = _arguments
    _entry.restype = c_int


class Moved:
    """A tensor that moves: its shape, and who holds and who wants what.

    source and target are lists of (rank, term, lo, hi): the box is in memory
    in row-major order without gaps. weights has one for each term.
    """

    def __init__(self, name, dtype, shape, source, target, weights=None):
        self.name = name
        self.dtype = dtype
        # The library wants an axis; a scalar is a vector of one element.
        self.shape = list(shape) or [1]
        self.source = source
        self.target = target
        self.weights = weights

    def structure(self, keep):
        """As dicomm_tensor_t; keep is a list of what it points to."""
        if self.dtype not in TYPES:
            raise TypeError(f"{self.name}: tensors of {self.dtype} cannot be"
                            " redistributed")
        made = _Tensor(
            size=ctypes.sizeof(_Tensor), name=self.name.encode(),
            type=TYPES[self.dtype][0], axes=len(self.shape),
            sources=len(self.source), targets=len(self.target),
            terms=len(self.weights) if self.weights else 1)
        made.shape[:len(self.shape)] = self.shape
        made.source = self._boxes(self.source, keep)
        made.target = self._boxes(self.target, keep)
        if self.weights:
            weights = (c_double * len(self.weights))(*self.weights)
            keep.append(weights)
            made.weights = weights
        keep.append(made.name)
        return made

    def _boxes(self, boxes, keep):
        array = (_Box * max(1, len(boxes)))()
        for box, (rank, term, lo, hi) in zip(array, boxes):
            box.rank, box.term = rank, term
            box.lo[:len(self.shape)] = list(lo) or [0]
            box.hi[:len(self.shape)] = list(hi) or [1]
        keep.append(array)
        return array


class Redistribution:
    """A plan of the library for some tensors, on one communicator.

    A collective call of all its ranks. With own=True each passes the boxes of
    its own alone. From one thread at a time.
    """

    def __init__(self, communicator, tensors, way="auto", own=False,
                 allow_unwanted=False):
        if way not in WAYS:
            raise ValueError(f"way {way!r}: wanted {', '.join(WAYS)}")
        self._communicator = communicator
        self._count = len(tensors)
        keep = []
        array = (_Tensor * len(tensors))(
            *[tensor.structure(keep) for tensor in tensors])
        config = _Config(size=ctypes.sizeof(_Config), way=WAYS[way],
                         allow_unwanted=allow_unwanted)
        self._plan = c_void_p()
        function = (lib.library.dicomm_redistribute_plan_own if own
                    else lib.library.dicomm_redistribute_plan)
        with communicator.lock:
            result = function(
                ctypes.byref(self._plan), array, len(tensors),
                ctypes.byref(config), communicator.usable())
        if result:
            raise communicator.error(result, "redistribute_plan")

    def run(self, source, target, stream=None):
        """Move tensors. source and target have a pointer for each, or None
        where this rank has nothing of it. stream is one of the library or
        the device; None blocks on the host."""
        source = (c_void_p * self._count)(*source)
        target = (c_void_p * self._count)(*target)
        communicator = self._communicator
        with communicator.lock:
            communicator.usable()
            result = lib.library.dicomm_redistribute_run(
                self._plan, source, target, stream)
        if result:
            raise communicator.error(result, "redistribute")

    def info(self):
        """A dictionary of what one run does on this rank."""
        info = _Info(size=ctypes.sizeof(_Info))
        result = lib.library.dicomm_redistribute_info(
            self._plan, ctypes.byref(info))
        lib.check(result, None, "redistribute_info")
        names = {number: name for name, number in WAYS.items()}
        return {"way": names[info.way], **{
            name: getattr(info, name) for name, _ in _Info._fields_[4:]}}

    def explain(self):
        """Which way it takes and why not another one, for people."""
        text = ctypes.create_string_buffer(4096)
        result = lib.library.dicomm_redistribute_explain(
            self._plan, text, len(text))
        lib.check(result, None, "redistribute_explain")
        return text.value.decode(errors="replace")

    def close(self):
        """Free it; before its communicator ends."""
        plan, self._plan = self._plan, c_void_p()
        if plan and self._communicator.handle is not None:
            lib.library.dicomm_redistribute_free(plan)
