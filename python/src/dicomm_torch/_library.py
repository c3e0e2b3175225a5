# SPDX-License-Identifier: BSD-3-Clause
"""libdicomm by ctypes: its functions, structures and results.

ctypes releases the GIL for each call, so no wait in the library holds it.
"""

import ctypes
import os
from ctypes import (
    CFUNCTYPE,
    POINTER,
    c_char,
    c_char_p,
    c_int,
    c_size_t,
    c_uint32,
    c_uint64,
    c_void_p,
)

import torch.distributed as dist

SUCCESS = 0
INVALID_ARGUMENT = 4
REMOTE = 6
TIMEOUT = 8
IN_PROGRESS = 7
UNSUPPORTED = 17
ABORTED = 19
SPLIT_NOCOLOR = -1
ANY_SOURCE = -1
SCALAR_HOST_IMMEDIATE = 1
SIGNALS = 256
SIGNAL_CONTEXTS = 16
NO_SIGNAL = -1

_UNDEFINED_INT = -0x7FFFFFFF - 1
_CONFIG_MAGIC = 0xD1C0331
_HEADER_VERSION = 100  # the dicomm.h that this file was written from: 0.1.0


class UniqueId(ctypes.Structure):
    """dicomm_unique_id_t; passed by value."""

    _fields_ = [("text", c_char * 128)]


ALLGATHER = CFUNCTYPE(c_int, c_void_p, c_void_p, c_size_t, c_void_p)
REQUEST_FN = CFUNCTYPE(None, c_int, c_void_p)
_LOG = CFUNCTYPE(None, c_int, c_char_p, c_void_p)


class Config(ctypes.Structure):
    """dicomm_config_t, with nothing set. Its size tells the library which
    fields there are, so a newer library takes it as well."""

    _fields_ = [
        ("size", c_size_t),
        ("magic", c_uint32),
        ("version", c_uint32),
        ("device", c_char_p),
        ("name", c_char_p),
        ("blocking", c_int),
        ("timeout_ms", c_int),
        ("transports", c_char_p),
        ("staging", c_char_p),
        ("deterministic", c_int),
        ("lanes", c_int),
        ("log_fn", _LOG),
        ("log_ctx", c_void_p),
        ("bootstrap_allgather", ALLGATHER),
        ("bootstrap_ctx", c_void_p),
        ("bootstrap_timeout_ms", c_int),
    ]

    def __init__(self):
        super().__init__(
            size=ctypes.sizeof(Config),
            magic=_CONFIG_MAGIC,
            version=_HEADER_VERSION,
            blocking=_UNDEFINED_INT,
            timeout_ms=_UNDEFINED_INT,
            deterministic=_UNDEFINED_INT,
            lanes=_UNDEFINED_INT,
            bootstrap_timeout_ms=_UNDEFINED_INT,
        )


class Stats(ctypes.Structure):
    """dicomm_stats_t."""

    _fields_ = [("size", c_size_t)] + [
        (name, c_uint64)
        for name in (
            "operations messages_sent messages_received bytes_sent"
            " bytes_received bytes_direct bytes_staged bytes_ring"
            " bytes_mapped bytes_cma connected_peers memory_bytes"
            " bytes_rdma bytes_landed bytes_copied device_bytes"
        ).split()
    ]


class Status(ctypes.Structure):
    """dicomm_status_t: what a receive got."""

    _fields_ = [("count", c_size_t), ("source", c_int), ("tag", c_int)]


class AwaitedSignal(ctypes.Structure):
    """dicomm_wait_signal_desc_t."""

    _fields_ = [("count", c_int), ("peer", c_int), ("signal", c_int),
                ("context", c_int)]


_COMM = c_void_p
_STREAM = c_void_p
_REQUEST = c_void_p
_WINDOW = c_void_p
_SIZES = POINTER(c_size_t)
_LIST = POINTER(c_void_p)

# Arguments of each function; all return dicomm_result_t but where noted.
_FUNCTIONS = {
    "get_unique_id": [POINTER(UniqueId)],
    "comm_init_rank_config": [
        POINTER(_COMM), c_int, UniqueId, c_int, POINTER(Config)],
    "comm_destroy": [_COMM],
    "comm_abort": [_COMM],
    "comm_set_timeout": [_COMM, c_int],
    "comm_get_async_error": [_COMM, POINTER(c_int)],
    "comm_count": [_COMM, POINTER(c_int)],
    "comm_user_rank": [_COMM, POINTER(c_int)],
    "comm_device": [_COMM, POINTER(c_char_p)],
    "comm_stats": [_COMM, POINTER(Stats)],
    "comm_explain": [_COMM, c_char_p, c_size_t, c_int, c_char_p, c_size_t],
    "comm_shrink": [
        _COMM, POINTER(c_int), c_int, POINTER(_COMM), POINTER(Config)],
    "comm_stream_synchronize": [_COMM, _STREAM],
    "redop_create_premulsum": [
        POINTER(c_int), c_void_p, c_int, c_int, _COMM],
    "redop_destroy": [c_int, _COMM],
    "group_start": [],
    "group_end": [],
    "allreduce": [c_void_p, c_void_p, c_size_t, c_int, c_int, _COMM, _STREAM],
    "reduce": [
        c_void_p, c_void_p, c_size_t, c_int, c_int, c_int, _COMM, _STREAM],
    "broadcast": [c_void_p, c_void_p, c_size_t, c_int, c_int, _COMM, _STREAM],
    "reduce_scatter": [
        c_void_p, c_void_p, c_size_t, c_int, c_int, _COMM, _STREAM],
    "reduce_scatterv_list": [
        _LIST, c_void_p, _SIZES, c_int, c_int, _COMM, _STREAM],
    "allgather": [c_void_p, c_void_p, c_size_t, c_int, _COMM, _STREAM],
    "allgatherv_list": [c_void_p, _LIST, _SIZES, c_int, _COMM, _STREAM],
    "alltoall": [c_void_p, c_void_p, c_size_t, c_int, _COMM, _STREAM],
    "alltoallv": [
        c_void_p, _SIZES, _SIZES, c_void_p, _SIZES, _SIZES, c_int, _COMM,
        _STREAM],
    "alltoallv_list": [
        _LIST, _SIZES, _LIST, _SIZES, c_int, _COMM, _STREAM],
    "gather": [c_void_p, c_void_p, c_size_t, c_int, c_int, _COMM, _STREAM],
    "gatherv_list": [
        c_void_p, c_size_t, _LIST, _SIZES, c_int, c_int, _COMM, _STREAM],
    "scatterv_list": [
        _LIST, _SIZES, c_void_p, c_size_t, c_int, c_int, _COMM, _STREAM],
    "send": [c_void_p, c_size_t, c_int, c_int, _COMM, _STREAM],
    "recv": [c_void_p, c_size_t, c_int, c_int, _COMM, _STREAM],
    "send_tag": [c_void_p, c_size_t, c_int, c_int, c_int, _COMM, _STREAM],
    "recv_tag": [
        c_void_p, c_size_t, c_int, c_int, c_int, _COMM, _STREAM,
        POINTER(Status)],
    "barrier": [_COMM, _STREAM],
    "comm_window_register": [
        _COMM, c_void_p, c_size_t, POINTER(_WINDOW), c_int],
    "comm_window_deregister": [_COMM, _WINDOW],
    "put_signal": [
        c_void_p, c_size_t, c_int, c_int, _WINDOW, c_size_t, c_int, c_int,
        c_uint32, _COMM, _STREAM],
    "signal": [c_int, c_int, c_int, c_uint32, _COMM, _STREAM],
    "wait_signal": [c_int, POINTER(AwaitedSignal), _COMM, _STREAM],
    "host_stream_create": [POINTER(_STREAM)],
    "host_stream_destroy": [_STREAM],
    "host_stream_synchronize": [_STREAM],
    "host_stream_request": [_STREAM, POINTER(_REQUEST)],
    "request_query": [_REQUEST],
    "request_wait": [_REQUEST, c_int],
    "request_call": [_REQUEST, REQUEST_FN, c_void_p],
    "request_free": [_REQUEST],
    "get_version": [POINTER(c_int)],
}


def _open():
    """Load libdicomm: LIBDICOMM_FILE, else that of the wheel dicomm, else
    where the system finds libraries."""
    name = os.environ.get("LIBDICOMM_FILE")
    if not name:
        try:
            import dicomm
            name = dicomm.get_library()
        except ImportError:
            name = "libdicomm.so.1"
    try:
        library = ctypes.CDLL(name)
    except OSError as error:
        raise ImportError(
            f"dicomm_torch: cannot load {name}: {error}; install libdicomm,"
            " or name its file in LIBDICOMM_FILE"
        ) from None
    for function, arguments in _FUNCTIONS.items():
        try:
            entry = getattr(library, "dicomm_" + function)
        except AttributeError:
            raise ImportError(
                f"dicomm_torch: {name} lacks dicomm_{function}: another"
                " version of libdicomm is needed"
            ) from None
        entry.argtypes = arguments
        entry.restype = c_int
    for function, argument in (
        ("get_error_string", c_int),
        ("get_last_error", c_void_p),
    ):
        entry = getattr(library, "dicomm_" + function)
        entry.argtypes = [argument]
        entry.restype = c_char_p
    return library


library = _open()


class DistTimeoutError(dist.DistBackendError):
    """A peer did not come in time."""


# torch has no such class so far (2.15); where it has, its users catch that.
DistTimeoutError = getattr(dist, "DistTimeoutError", DistTimeoutError)


def text_of(result, comm):
    """The library's words for a failed call of this thread, or of comm."""
    words = library.dicomm_get_last_error(comm) if comm else b""
    words = words or library.dicomm_get_last_error(None)
    kind = library.dicomm_get_error_string(result).decode()
    words = words.decode(errors="replace")
    return f"{kind}: {words}" if words else kind


def error(result, comm, what):
    """An exception for a result of the library.

    comm is the handle that the call was made on, or None; what is the
    operation, for the message.
    """
    words = text_of(result, comm)
    if result == TIMEOUT:  # as torch writes it, for who looks for that
        return DistTimeoutError(f"dicomm {what}: Timed out : {words}")
    if result == REMOTE:  # as gloo writes it, for the same reason
        words = f"Connection closed by peer: {words}"
    message = f"dicomm {what}: {words}"
    if result == INVALID_ARGUMENT:
        return ValueError(message)
    if result == UNSUPPORTED:
        return NotImplementedError(message)
    return dist.DistBackendError(message)


def check(result, comm, what):
    """Raise error() unless result is DICOMM_SUCCESS."""
    if result:
        raise error(result, comm, what)


def sizes(values):
    """An array of size_t."""
    return (c_size_t * len(values))(*values)


def addresses(tensors):
    """An array of where the elements of tensors are."""
    return (c_void_p * len(tensors))(*[t.data_ptr() for t in tensors])


