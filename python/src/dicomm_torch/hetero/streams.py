# SPDX-License-Identifier: BSD-3-Clause
"""Streams on which one operation at a time is under way.

A lane is a communicator and a stream. Operations of one communicator begin in
call order, and those of one stream one after the other; so what may have to
wait for its peer for long gets a lane for itself.
"""

import ctypes
import ctypes.util
from ctypes import POINTER, c_int, c_int32, c_uint32, c_uint64, c_void_p

import torch

from .. import _library as lib


class _HostStream:
    """A host stream of the library."""

    def __init__(self, communicator):
        made = c_void_p()
        lib.check(lib.library.dicomm_host_stream_create(ctypes.byref(made)),
                  None, "host_stream_create")
        self.handle = made.value

    def begin(self):
        """Called before an operation is queued."""

    def wait(self):
        return lib.library.dicomm_host_stream_synchronize(self.handle)

    def close(self):
        lib.library.dicomm_host_stream_destroy(self.handle)


class _TorchStream:
    """A stream of CUDA or ROCm. What is queued begins after the work that the
    current stream has at that time."""

    def __init__(self, communicator):
        self._communicator = communicator
        self._module = getattr(torch, communicator.kind)
        self._stream = self._module.Stream(communicator.place)
        self.handle = self._stream.cuda_stream

    def begin(self):
        self._stream.wait_stream(
            self._module.current_stream(self._communicator.place))

    def wait(self):
        self._stream.synchronize()
        return self._communicator.async_error()

    def close(self):
        pass


def _opencl():
    name = ctypes.util.find_library("OpenCL") or "libOpenCL.so.1"
    library = ctypes.CDLL(name)
    for function, arguments, kind in (
            ("clGetPlatformIDs", [
                c_uint32, POINTER(c_void_p), POINTER(c_uint32)], c_int32),
            ("clGetDeviceIDs", [
                c_void_p, c_uint64, c_uint32, POINTER(c_void_p),
                POINTER(c_uint32)], c_int32),
            ("clCreateContext", [
                c_void_p, c_uint32, POINTER(c_void_p), c_void_p, c_void_p,
                POINTER(c_int32)], c_void_p),
            ("clCreateCommandQueueWithProperties", [
                c_void_p, c_void_p, c_void_p, POINTER(c_int32)], c_void_p),
            ("clFinish", [c_void_p], c_int32),
            ("clReleaseCommandQueue", [c_void_p], c_int32),
            ("clReleaseContext", [c_void_p], c_int32)):
        entry = getattr(library, function)
        entry.argtypes, entry.restype = arguments, kind
    return library


class _OpenclStream:
    """A command queue of OpenCL: torch has no streams for it."""

    _most = 16
    _all_kinds = 0xFFFFFFFF

    def __init__(self, communicator):
        self._communicator = communicator
        self._cl = cl = _opencl()
        devices, error = self._devices(), c_int32()
        index = int(communicator.device.partition(":")[2] or 0)
        if index >= len(devices):
            raise ValueError(f"{communicator.device}: OpenCL has"
                             f" {len(devices)} devices")
        device = c_void_p(devices[index])
        self._context = cl.clCreateContext(
            None, 1, ctypes.byref(device), None, None, ctypes.byref(error))
        self.handle = self._context and cl.clCreateCommandQueueWithProperties(
            self._context, device, None, ctypes.byref(error))
        if not self.handle:
            raise RuntimeError(f"{communicator.device}: no command queue:"
                               f" error {error.value} of OpenCL")

    def _devices(self):
        """All devices, in the order by which the library numbers them."""
        platforms, n = (c_void_p * self._most)(), c_uint32()
        self._cl.clGetPlatformIDs(self._most, platforms, ctypes.byref(n))
        every = []
        for platform in platforms[:min(n.value, self._most)]:
            found, n_found = (c_void_p * self._most)(), c_uint32()
            if not self._cl.clGetDeviceIDs(
                    platform, self._all_kinds, self._most, found,
                    ctypes.byref(n_found)):
                every += found[:min(n_found.value, self._most)]
        return every

    def begin(self):
        """Tensors are in host memory, and there already."""

    def wait(self):
        error = self._cl.clFinish(self.handle)
        result = self._communicator.async_error()
        if error and not result:
            raise RuntimeError(f"{self._communicator.device}: clFinish:"
                               f" error {error} of OpenCL")
        return result

    def close(self):
        self._cl.clReleaseCommandQueue(self.handle)
        self._cl.clReleaseContext(self._context)


def stream_of(communicator):
    """A stream for the device of a communicator."""
    kind = communicator.device.partition(":")[0]
    made = {"host": _HostStream, "opencl": _OpenclStream,
            "cuda": _TorchStream, "hip": _TorchStream}.get(kind)
    if made is None:
        raise NotImplementedError(
            f"dicomm: {communicator.device}: no streams of such devices")
    return made(communicator)


class Lane:
    """A communicator and a stream. One operation at a time: wait() for it
    before the next run()."""

    def __init__(self, communicator):
        self.communicator = communicator
        self._stream = stream_of(communicator)
        self._busy = None  # (what is under way, the tensors it uses)

    def run(self, title, redistribution, source, target):
        """Begin to move tensors; source and target are lists of tensors, or
        None where this rank has nothing of one."""
        self.wait()
        self._stream.begin()
        redistribution.run(
            [t if t is None else t.data_ptr() for t in source],
            [t if t is None else t.data_ptr() for t in target],
            self._stream.handle)
        self._busy = title, source, target

    def wait(self):
        """Wait for what is under way; the time-out of the communicator bounds
        it. Raises what went wrong."""
        if self._busy is None:
            return
        title = self._busy[0]
        result = self._stream.wait()
        self._busy = None
        if result:
            raise self.communicator.error(result, title)

    def close(self):
        """End it. What is under way must have ended, or been aborted."""
        if self._busy is not None:
            self._stream.wait()
            self._busy = None
        self._stream.close()
