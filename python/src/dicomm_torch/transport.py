# SPDX-License-Identifier: BSD-3-Clause
"""dicomm as a transport of torch.distributed._transport (torch 2.15): a process
reads and writes memory that another one has registered, and which takes no part.

An endpoint that is bound has a store, whose place and secret are its URL. Who
connects asks there for a communicator of two ranks: 0 serves, 1 asks. A transfer
is a header, the bytes, and a reply, which says that they are in place or why not:
so what was unregistered is refused by its owner, and nobody writes it. All of
them are queued on a stream by who asks; a thread of the owner serves them in
their order. The windows of the library would need no such thread, but their
registration is a collective call, and that of a transport is not.
"""

import asyncio
import atexit
import contextlib
import datetime
import functools
import logging
import operator
import os
import re
import secrets
import struct
import threading
import time
import uuid
import weakref
from ctypes import c_char, create_string_buffer
from dataclasses import dataclass
from typing import Literal

import torch
import torch.distributed as dist
from torch.distributed._transport import Transport
from torch.distributed._transport._serialization import _WireDescriptor

from . import _completion
from . import _library as lib
from ._communicator import Communicator
from ._reconfigure import _new_id
from ._types import UINT8

_log = logging.getLogger("dicomm_torch")
_call = lib.library
_open = weakref.WeakSet()  # endpoints that are to be closed at exit

_HEADER = struct.Struct("<BiQQ")  # what, tag, number of the registration, bytes
_READ, _WRITE, _END = 1, 2, 3
_PIECE = 64 << 20  # bytes go in messages of so many at most, in their order
_REPLY_BYTES = 120  # why not, in words; zeros: done
_TAGS = (1 << 31) - 2  # of transfers, from 1 on
_HEADERS = _TAGS + 1  # the tag of headers
_OWNER, _ASKER = 0, 1  # ranks
_CALLS = "calls"  # the queue of a store in which endpoints ask
_VERSION = "1"  # of all this; who asks says it first
_LISTEN_S = 30.0  # how long the listener waits in one call
_EXIT_S = 1.0
_NOT_REGISTERED = "this memory is not registered, or not any more"

_URL = re.compile(r"dicomm://(\[[0-9a-fA-F:.%\w]+\]|[^\[\]:/]+):(\d+)/(\w+)")


def _seconds(timeout, otherwise):
    if timeout is None:
        return otherwise
    if not 0 <= timeout < float("inf"):
        raise ValueError(f"dicomm transport: timeout {timeout}: finite seconds"
                         " are expected, not below 0")
    return timeout


def _own_address():
    """Where others reach this process: the address of an id of the library,
    which chooses it by DICOMM_SOCKET_IFNAME."""
    return _new_id("transport").split(":", 1)[1].rsplit(":", 2)[0]


@dataclass(frozen=True)
class DicommRemoteBuffer(_WireDescriptor):
    """What a peer has to be given of registered memory."""

    _backend = "dicomm"
    _fields = {"endpoint": str, "number": int, "length": int}

    endpoint: str
    number: int
    length: int


class _Registration:
    """A tensor that peers may read and write. Whoever does is counted; who ends
    that waits until nobody does."""

    def __init__(self, tensor):
        self.tensor = tensor.detach()
        self.address = tensor.data_ptr()
        self.length = tensor.numel() * tensor.element_size()
        # Not to be guessed, so that who has no descriptor has no access.
        self.number = secrets.randbits(63)
        self.active = True
        self._users = 0
        self._changed = threading.Condition()  # for both

    def why_not(self):
        """Why it must not be used, in words, or ""."""
        if not self.active:
            return "this memory has been unregistered"
        now = self.tensor
        end = now.storage_offset() * now.element_size() + self.length
        if (now.data_ptr() != self.address
                or end > now.untyped_storage().nbytes()):
            return "the registered tensor was resized, or has other storage now"
        return ""

    def check(self):
        why = self.why_not()
        if why:
            raise RuntimeError(f"dicomm transport: {why}")

    @contextlib.contextmanager
    def used(self):
        """Gives why it must not be used, or "": then it stays meanwhile."""
        with self._changed:
            why = self.why_not()
            self._users += not why
        try:
            yield why
        finally:
            with self._changed:
                self._users -= not why
                self._changed.notify_all()

    def end(self, limit_s):
        """Let nobody use it any more. If somebody does for so long, all stays
        as it was; returns whether it has ended."""
        with self._changed:
            self.active = False
            self.active = not self._changed.wait_for(
                lambda: not self._users, limit_s)
            return not self.active


class DicommMemoryView:
    """Bytes of registered memory."""

    def __init__(self, memory, offset, length):
        self._memory = memory
        self._offset = offset
        self._length = length

    def size(self):
        return self._length


class DicommMutableMemoryView(DicommMemoryView):
    """The same, which may be read into."""

    writable: Literal[True] = True


class DicommMemory:
    """A tensor that an endpoint has registered."""

    def __init__(self, transport, registration):
        self._transport = transport
        self._registration = registration

    def _view(self, kind, offset, length):
        self._registration.check()
        whole = self._registration.length
        offset = 0 if offset is None else operator.index(offset)
        if not 0 <= offset <= whole:
            raise ValueError(f"dicomm transport: offset {offset} is outside of"
                             f" {whole} registered bytes")
        length = whole - offset if length is None else operator.index(length)
        if not 0 <= length <= whole - offset:
            raise ValueError(
                f"dicomm transport: length {length} at offset {offset} goes"
                f" beyond {whole} registered bytes")
        return kind(self, offset, length)

    def to_view(self, offset=None, length=None):
        return self._view(DicommMemoryView, offset, length)

    def to_mutable_view(self, offset=None, length=None):
        return self._view(DicommMutableMemoryView, offset, length)

    def to_remote_buffer(self, *, timeout=None):
        self._transport._check_open()
        self._registration.check()
        return DicommRemoteBuffer(self._transport._name,
                                  self._registration.number,
                                  self._registration.length)


class _Transfer(_completion.Work):
    """The dist.Work of a read or write. A wait that lasts too long raises
    TimeoutError, and leaves the transfer as it is."""

    def __init__(self, operation, limit_s):
        super().__init__(operation, 0)
        self._limit_s = limit_s

    def wait(self, timeout=None):
        given_s = timeout.total_seconds() if timeout is not None else 0
        limit_s = _seconds(given_s, 0) or self._limit_s
        if not self._operation.join(limit_s):
            raise TimeoutError(
                f"dicomm transport: {self._operation.title} is not done after"
                f" {limit_s:g} s; it remains under way")
        if self._operation.error is not None:
            raise self._operation.error
        return True


def _pieces(length):
    """The offset and length of each message that has bytes of a transfer."""
    for offset in range(0, length, _PIECE):
        yield offset, min(_PIECE, length - offset)


def _check_reply(reply):
    text = reply.raw.rstrip(b"\0").decode(errors="replace")
    if text:
        raise RuntimeError(f"dicomm transport: the peer refuses: {text}")


class DicommTransport(Transport):
    """An endpoint of torch.distributed._transport over libdicomm, for memory of
    the host. timeout is the limit, in seconds, of what is given none.

    Any number of peers may connect to one that is bound; it connects to one.
    """

    def __init__(self, device=None, *, timeout=30.0):
        super().__init__(device)
        if self.device is not None and self.device.type != "cpu":
            raise ValueError(f"dicomm transport: device {device}: memory of the"
                             " host is served, \"cpu\"")
        self._default_timeout = _seconds(timeout, 30.0)
        self._name = uuid.uuid4().hex
        self._pid = os.getpid()
        self._lock = threading.RLock()  # for what follows
        self._is_closing = False
        self._is_closed = False
        self._store = None
        self._url = None
        self._peer = None  # the name of the endpoint that this is connected to
        self._link = None  # the communicator with it
        self._tag = 0
        self._registrations = {}  # by number
        self._listener = None  # the thread that lets in who asks
        self._threads = []  # that let in and serve
        self._served = {}  # communicators of who is connected, and their threads
        _open.add(self)

    @staticmethod
    def supported():
        return True

    def _check_open(self):
        if self._is_closing:
            raise RuntimeError("dicomm transport: it is closed")

    # -- to be reached ------------------------------------------------------

    def bind(self, *, timeout=None):
        limit_s = _seconds(timeout, self._default_timeout)
        with self._lock:
            self._check_open()
            if self._url is None:
                address = _own_address()
                self._store = dist.TCPStore(
                    address.strip("[]"), 0, None, True,
                    datetime.timedelta(seconds=max(limit_s, 0.001)),
                    wait_for_workers=False)
                self._url = (f"dicomm://{address}:{self._store.port}/"
                             f"{self._name}").encode()
                store = self._store.clone()
                store.set_timeout(datetime.timedelta(seconds=_LISTEN_S))
                self._listener = self._start(self._listen, store)
            return self._url

    @staticmethod
    def _start(function, *arguments):
        thread = threading.Thread(
            target=function, args=arguments, daemon=True,
            name="dicomm_torch transport")
        thread.start()
        return thread

    def _listen(self, store):
        """Of a thread: let in who asks, until close()."""
        store = dist.PrefixStore(self._name, store)
        while True:
            try:
                asked = store.queue_pop(_CALLS)
            except dist.DistStoreError:  # its time-out
                continue
            except Exception:  # the store is gone
                return
            with self._lock:
                if self._is_closing:
                    return
                self._threads = [t for t in self._threads if t.is_alive()]
                self._threads.append(self._start(
                    self._let_in, self._store.clone(), asked))

    def _let_in(self, store, asked):
        """Of a thread: meet who asked, and serve it."""
        try:
            version, name, limit_s = asked.decode().split(" ")
            if version != _VERSION:
                raise ValueError(f"{version!r} is another version than"
                                 f" {_VERSION}")
            comm = self._meet(store, name, _OWNER, float(limit_s))
        except (lib.DistTimeoutError, dist.DistNetworkError):
            return  # who asked has gone, and knows why
        except Exception:
            if not self._is_closing:
                _log.warning("dicomm transport: %r is not let in", asked[:80],
                             exc_info=True)
            return
        with self._lock:
            if not self._is_closing:
                self._served[comm] = threading.current_thread()
        try:
            if comm in self._served:
                self._serve(comm)
        except dist.DistBackendError:
            pass  # it has left, or this closes
        finally:
            with self._lock:
                self._served.pop(comm, None)
            self._leave(comm)

    @staticmethod
    def _leave(comm):
        """End it; a peer that stands still is not waited for any longer."""
        with contextlib.suppress(dist.DistBackendError):
            comm.set_timeout(datetime.timedelta(seconds=_EXIT_S))
        comm.close()

    def _meet(self, store, name, rank, limit_s):
        comm = Communicator(
            dist.PrefixStore(f"{self._name if rank == _OWNER else self._peer}/"
                             f"{name}", store),
            rank, 2, datetime.timedelta(seconds=max(limit_s, 0.001)),
            "transport", "host")
        # The owner waits for requests; whoever asks has limits of its own.
        comm.set_timeout(datetime.timedelta(0))
        return comm

    def _serve(self, comm):
        stream = _completion.streams.take()
        try:
            header = create_string_buffer(_HEADER.size)
            while True:
                # From any rank: close() sends one from this
                self._blocking(comm, stream, _call.dicomm_recv_tag, header,
                               len(header), lib.ANY_SOURCE, _HEADERS)
                what, tag, number, length = _HEADER.unpack(header.raw)
                if what == _END:
                    return
                registration = self._registrations.get(number)
                with registration.used() if registration else (
                        contextlib.nullcontext(_NOT_REGISTERED)) as why:
                    self._serve_one(
                        comm, stream, what, tag, length, registration, why)
        finally:
            _completion.streams.drop(stream)

    def _serve_one(self, comm, stream, what, tag, length, registration, why):
        if not why and length > registration.length:
            why = (f"{length} bytes do not fit into {registration.length}"
                   " registered ones")
        # The bytes of what is refused have to be taken, too, or given.
        refused = create_string_buffer(min(length, _PIECE)) if why else None

        def move(function):
            for offset, count in _pieces(length):
                at = refused if why else registration.address + offset
                self._blocking(comm, stream, function, at, count, _ASKER, tag)

        if what == _WRITE:
            move(_call.dicomm_recv_tag)
        reply = create_string_buffer(
            why.encode()[:_REPLY_BYTES], _REPLY_BYTES)
        self._blocking(comm, stream, _call.dicomm_send_tag, reply,
                       _REPLY_BYTES, _ASKER, tag)
        if what == _READ:
            move(_call.dicomm_send_tag)

    @staticmethod
    def _blocking(comm, stream, function, at, length, peer, tag):
        """Do as who serves, and wait for it."""
        status = (None,) if function is _call.dicomm_recv_tag else ()
        with comm.lock:
            result = function(at, length, UINT8, peer, tag, comm.usable(),
                              stream, *status)
        result = result or _call.dicomm_host_stream_synchronize(stream)
        if result:
            raise comm.error(result, "transport")

    @staticmethod
    def _end_service(comm):
        """Have the thread that serves a communicator leave it, in good order:
        by a message of this rank to itself, which nobody waits for."""
        header = create_string_buffer(
            _HEADER.pack(_END, 0, 0, 0), _HEADER.size)
        stream = _completion.streams.take()
        try:
            with comm.lock:
                handle = comm.usable()
                result = _call.dicomm_send_tag(
                    header, len(header), UINT8, _OWNER, _HEADERS, handle, stream)
                if result:
                    raise comm.error(result, "close")
            operation = _completion.Operation(
                comm, stream, "close", [header], [], [], None)
        except BaseException:
            _completion.streams.drop(stream)
            raise
        _completion.Work(operation, 0)

    # -- to reach another one -----------------------------------------------

    def connect(self, peer_url, *, timeout=None):
        limit_s = _seconds(timeout, self._default_timeout)
        if not isinstance(peer_url, bytes):
            raise TypeError("dicomm transport: the URL of a peer is bytes, as"
                            f" bind() gives them, not {type(peer_url).__name__}")
        found = _URL.fullmatch(peer_url.decode(errors="replace"))
        if not found:
            raise ValueError(f"dicomm transport: {peer_url!r} is no URL from"
                             " bind()")
        host, port, peer = found[1].strip("[]"), int(found[2]), found[3]
        with self._lock:
            self._check_open()
            if self._peer is not None:
                raise RuntimeError("dicomm transport: it is connected already")
            self._peer = peer
        try:
            end = time.monotonic() + limit_s
            store = dist.TCPStore(
                host, port, None, False,
                datetime.timedelta(seconds=max(limit_s, 0.001)),
                wait_for_workers=False)
            name = uuid.uuid4().hex
            left_s = max(end - time.monotonic(), 0.001)
            dist.PrefixStore(peer, store).queue_push(
                _CALLS, f"{_VERSION} {name} {left_s}")
            link = self._meet(store, name, _ASKER, left_s)
        except BaseException as error:
            with self._lock:
                self._peer = None
            if isinstance(error, (lib.DistTimeoutError, dist.DistNetworkError)):
                raise TimeoutError(
                    f"dicomm transport: {host}:{port} does not answer within"
                    f" {limit_s:g} s: {error}") from None
            raise
        with self._lock:
            self._link = link
            if not self._is_closing:
                return 0
        self._leave(link)
        raise RuntimeError("dicomm transport: it was closed meanwhile")

    def connected(self):
        link = self._link
        return (link is not None and not self._is_closing
                and not link.async_error())

    # -- memory -------------------------------------------------------------

    def register_memory(self, tensor, *, timeout=None):
        if not isinstance(tensor, torch.Tensor):
            raise TypeError("dicomm transport: a tensor is registered, not a"
                            f" {type(tensor).__name__}")
        self._check_device(tensor.device)
        if tensor.device.type != "cpu":
            raise ValueError(f"dicomm transport: the tensor is on"
                             f" {tensor.device}: memory of the host is served")
        if not tensor.is_contiguous() or tensor.is_conj() or tensor.is_neg():
            raise ValueError("dicomm transport: a contiguous tensor is needed")
        if tensor.numel() == 0:
            raise ValueError("dicomm transport: the tensor is empty")
        made = _Registration(tensor)
        with self._lock:
            self._check_open()
            for known in self._registrations.values():
                if ((known.address, known.length) == (made.address, made.length)
                        and not known.why_not()):
                    return DicommMemory(self, known)
            self._registrations[made.number] = made
        return DicommMemory(self, made)

    def unregister_memory(self, memory, *, timeout=None):
        limit_s = _seconds(timeout, self._default_timeout)
        if not isinstance(memory, DicommMemory) or memory._transport is not self:
            raise TypeError("dicomm transport: this memory was not registered"
                            " by this transport")
        self._check_open()
        registration = memory._registration
        link = self._link
        for operation in list(link.in_flight) if link else ():
            keep = operation.keep
            if keep and registration in keep and not operation.poll():
                raise RuntimeError("dicomm transport: transfers of this memory"
                                   " are under way: wait for them first")
        for view in self._cuda_stream_views():
            if view._memory._registration is registration:
                raise RuntimeError("dicomm transport: transfers of this memory"
                                   " are on a stream")
        if not registration.end(limit_s):
            raise TimeoutError("dicomm transport: a peer uses this memory since"
                               f" more than {limit_s:g} s")
        with self._lock:
            self._registrations.pop(registration.number, None)

    # -- transfers ----------------------------------------------------------

    def _check_transfer(self, local_buffer, remote_buffer, *, mutable):
        kind = DicommMutableMemoryView if mutable else DicommMemoryView
        if not isinstance(local_buffer, kind) or (
                local_buffer._memory._transport is not self):
            raise TypeError(
                f"dicomm transport: a {kind.__name__} of memory of this transport"
                f" is needed, not a {type(local_buffer).__name__}")
        if not isinstance(remote_buffer, DicommRemoteBuffer):
            raise TypeError("dicomm transport: a DicommRemoteBuffer is needed,"
                            f" not a {type(remote_buffer).__name__}")
        if self._peer is None:
            raise RuntimeError("dicomm transport: it is not connected")
        if remote_buffer.endpoint != self._peer:
            raise ValueError("dicomm transport: the remote buffer is of another"
                             " endpoint than the one that this is connected to")
        if local_buffer.size() > remote_buffer.length:
            raise ValueError(
                f"dicomm transport: the local view has {local_buffer.size()}"
                f" bytes, the remote buffer {remote_buffer.length}")
        local_buffer._memory._registration.check()

    def _transfer(self, what, local_buffer, remote_buffer, async_op, timeout):
        limit_s = _seconds(timeout, self._default_timeout)
        self._check_open()
        self._check_transfer(
            local_buffer, remote_buffer, mutable=what == _READ)
        comm, size = self._link, local_buffer.size()
        title = "read" if what == _READ else "write"
        if comm is None:
            raise RuntimeError("dicomm transport: it is not connected")
        if size == 0:
            work = _completion.done(comm, title, [], 0)
        else:
            work = self._queue(what, title, local_buffer, remote_buffer, limit_s)
        if async_op:
            return work
        work.wait()
        return 0

    def _queue(self, what, title, local, remote, limit_s):
        """Queue a transfer on a stream of its own."""
        comm, size = self._link, local.size()
        registration = local._memory._registration
        at = registration.address + local._offset
        reply = create_string_buffer(_REPLY_BYTES)
        stream = _completion.streams.take()
        try:
            with comm.lock:  # headers, and what they announce, in one order
                handle = comm.usable()
                self._tag = self._tag % _TAGS + 1
                tag = self._tag
                header = create_string_buffer(
                    _HEADER.pack(what, tag, remote.number, size), _HEADER.size)
                result = _call.dicomm_send_tag(
                    header, len(header), UINT8, _OWNER, _HEADERS, handle, stream)
                if what == _WRITE:
                    for offset, count in _pieces(size):
                        result = result or _call.dicomm_send_tag(
                            at + offset, count, UINT8, _OWNER, tag, handle,
                            stream)
                result = result or _call.dicomm_recv_tag(
                    reply, _REPLY_BYTES, UINT8, _OWNER, tag, handle, stream,
                    None)
                if what == _READ:
                    for offset, count in _pieces(size):
                        result = result or _call.dicomm_recv_tag(
                            at + offset, count, UINT8, _OWNER, tag, handle,
                            stream, None)
                if result:
                    raise comm.error(result, title)
            operation = _completion.Operation(
                comm, stream, title, [header, reply, registration],
                [lambda: _check_reply(reply)], [], None)
        except BaseException:
            # What was begun may be on the stream: leave that to the library.
            _completion.streams.drop(stream)
            raise
        return _Transfer(operation, limit_s)

    def write(self, local_buffer, remote_buffer, *, async_op=False,
              timeout=None):
        return self._transfer(
            _WRITE, local_buffer, remote_buffer, async_op, timeout)

    def read(self, local_buffer, remote_buffer, *, async_op=False, timeout=None):
        return self._transfer(
            _READ, local_buffer, remote_buffer, async_op, timeout)

    # -- the end ------------------------------------------------------------

    def close(self, *, timeout=None):
        end = time.monotonic() + _seconds(timeout, self._default_timeout)
        if self._is_closed or os.getpid() != self._pid:
            return
        self._close_cuda_streams()
        with self._lock:
            self._is_closing = True
        failure = self._drain(end)
        if self._link is not None:
            self._leave(self._link)
        with self._lock:
            for comm in self._served:
                try:
                    self._end_service(comm)
                except dist.DistBackendError:
                    pass  # it ends by itself
            if self._store is not None:
                dist.PrefixStore(self._name, self._store).queue_push(_CALLS, "")
            serving = set(self._served.values())
            meeting, self._threads = set(self._threads) - serving, []
        if self._listener is not None:
            serving.add(self._listener)
        for thread in serving:
            thread.join(max(0.001, end - time.monotonic()))
        self._store = None  # those who are about to meet hear of it
        end = min(end, time.monotonic() + _EXIT_S)
        for thread in meeting:
            thread.join(max(0.001, end - time.monotonic()))
        for comm in list(self._served):  # a peer that does not go on
            comm.abort()
        with self._lock:
            for registration in self._registrations.values():
                registration.active = False
            self._registrations.clear()
        self._is_closed = True
        _open.discard(self)
        if failure is not None:
            raise failure

    def _drain(self, end):
        """Wait for what is under way; returns how the first of it failed."""
        failure = None
        for operation in list(self._link.in_flight) if self._link else ():
            if not operation.join(max(0.001, end - time.monotonic())):
                raise TimeoutError(
                    f"dicomm transport: a {operation.title} is still under way;"
                    " close again")
            failure = failure or operation.error
        return failure

    async def close_async(self, *, timeout=None):
        await asyncio.get_running_loop().run_in_executor(
            None, functools.partial(self.close, timeout=timeout))


def _close_all():
    """At exit: peers are to hear of it in good order, and no thread of this may
    be in the library when the communicators end."""
    for transport in list(_open):
        try:
            if transport._link is not None and transport._link.in_flight:
                transport._link.abort()
            transport.close(timeout=_EXIT_S)
        except Exception:
            pass  # nobody is left to hear of it


atexit.register(_close_all)
