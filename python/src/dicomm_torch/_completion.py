# SPDX-License-Identifier: BSD-3-Clause
"""How an operation ends: who waits for it, and who hears of it.

The library completes streams, not single operations. So each operation that is
not blocking gets a host stream for itself, from a pool, and whoever wants to
know whether it is done waits for that stream. Everything that knows of this is
in this file: with requests in the library, `Operation._synchronize()` becomes
a wait for a request, and the threads below a callback of it.

What holds here:

* No lock is held while something waits for an operation, but the gate of that
  very operation, for which those wait who wait for the same.
* Whoever waits does so in the library itself. Only futures, polls, waits with
  a time-out and works that nobody kept need a thread of this file.
* A callback of a future may wait for any other operation or future. So the
  thread that runs callbacks gives its queue away before it does.
"""

import logging
import os
import threading
import time
from collections import deque
from ctypes import byref, c_void_p

import torch
import torch.distributed as dist

from . import _library as lib

_log = logging.getLogger("dicomm_torch")


class _Streams:
    """Host streams that are free; a stream serves any communicator."""

    def __init__(self):
        self._free = []

    def take(self):
        try:
            return self._free.pop()
        except IndexError:
            stream = c_void_p()
            lib.check(
                lib.library.dicomm_host_stream_create(byref(stream)),
                None, "host_stream_create")
            return stream.value

    def give(self, stream):
        self._free.append(stream)

    def forget(self):
        """In the child of a fork, where the parent's are refused."""
        self._free = []


class _Threads:
    """Daemon threads that are reused: as many as wait at one time."""

    def __init__(self):
        self.forget()

    def forget(self):
        """Begin anew, as in the child of a fork, where no thread is left."""
        self._changed = threading.Condition(threading.Lock())
        self._tasks = deque()
        self._idle = 0
        self.count = 0

    def submit(self, task):
        """Have a thread call task(). From any thread; does not wait."""
        with self._changed:
            self._tasks.append(task)
            if self._idle >= len(self._tasks):
                self._changed.notify()
                return
            self.count += 1
        threading.Thread(
            target=self._work, name="dicomm_torch", daemon=True).start()

    def quiet(self):
        """Are all threads idle? A glance, for a choice of speed."""
        return self._idle == self.count and not self._tasks

    def _work(self):
        while True:
            with self._changed:
                self._idle += 1
                while not self._tasks:
                    self._changed.wait()
                self._idle -= 1
                task = self._tasks.popleft()
            try:
                task()
            except Exception:
                _log.exception("dicomm_torch: a completion failed")
            del task


streams = _Streams()
threads = _Threads()
orphans = deque()  # operations that are not done and whose work nobody keeps
_mutex = threading.Lock()  # short sections only, never over a wait


def _after_fork():
    global _mutex
    _mutex = threading.Lock()
    streams.forget()
    threads.forget()
    orphans.clear()


os.register_at_fork(after_in_child=_after_fork)


def adopt():
    """Have the orphans seen to their ends; else their buffers would be kept
    until the communicator ends."""
    while orphans:
        try:
            operation = orphans.popleft()
        except IndexError:  # another thread was faster
            return
        operation.watch()


def alone():
    """May this thread block in a call and keep others out of the handle?

    Yes, if there is no other thread of Python that could want to call, not
    even one that runs a callback. It saves an operation two switches of
    threads.
    """
    return (
        threading.active_count() == 1 + threads.count and threads.quiet())


class Lane:
    """Operations that end in order, watched by at most one thread."""

    def __init__(self):
        self._queue = deque()
        self._running = False

    def push(self, operation):
        with _mutex:
            self._queue.append(operation)
            if self._running:
                return
            self._running = True
        threads.submit(self._drain)

    def _drain(self):
        while True:
            with _mutex:
                if not self._queue:
                    self._running = False
                    return
                operation = self._queue.popleft()
            future = operation.join_quietly()
            if future is None:
                continue
            # A callback may wait for what comes later in this lane.
            with _mutex:
                rest = self._running = bool(self._queue)
            if rest:
                threads.submit(self._drain)
            future.keep()
            return


class _Promise:
    """A future of an operation, and what completes it.

    An exception of torch.futures.Future.set_exception() is a mere value to
    C++: DDP would take it for gradients. Only a callback that raises fails a
    future for both; so the one that people get is what such a callback makes
    of another one.
    """

    __slots__ = ("_first", "future")

    def __init__(self, operation, devices):
        def value(_):
            if operation.error is not None:
                raise operation.error
            return operation.outputs

        self._first = torch.futures.Future(devices=devices)
        self.future = self._first.then(value)

    def keep(self):
        """Complete it; its callbacks run here, with no lock held."""
        try:
            self._first.set_result(None)
        except Exception:
            _log.exception("dicomm_torch: a future could not be completed")


class Operation:
    """One operation, or one group of them, that the library works on.

    It keeps the memory that the library uses (keep) until it is done, then
    runs what is left to do on the host (post), such as copying a result to
    where it belongs. error is the exception if it failed. limit_s is how long
    a wait may last before the communicator is aborted, None for as long as
    the library's own time-out.
    """

    __slots__ = (
        "communicator", "stream", "title", "keep", "post", "outputs", "done",
        "error", "limit_s", "lane", "_gate", "_event", "_future", "_watched",
    )

    def __init__(self, communicator, stream, title, keep, post, outputs,
                 limit_s, lane):
        self.communicator = communicator
        self.stream = stream
        self.title = title
        self.keep = keep
        self.post = post
        self.outputs = outputs
        self.done = False
        self.error = None
        self.limit_s = limit_s
        self.lane = lane  # None: in no order with others
        self._gate = threading.Lock()
        self._event = None
        self._future = None
        self._watched = False
        communicator.in_flight.add(self)

    def _synchronize(self):
        """Wait in the library; returns its result."""
        return lib.library.dicomm_host_stream_synchronize(self.stream)

    def _finish(self, result):
        """Called once, by who has the gate; returns a future to fire."""
        error = None
        if result:
            error = self.communicator.error(result, self.title)
        else:
            try:
                for step in self.post:
                    step()
            except Exception as raised:
                error = raised
        if self.stream:
            streams.give(self.stream)
            self.stream = None
        self.keep = self.post = None
        with _mutex:
            self.error = error
            self.done = True
            event, future = self._event, self._future
        self.communicator.in_flight.discard(self)
        if event:
            event.set()
        return future

    def join_quietly(self):
        """Wait until it is done; returns the future that is to be fired."""
        with self._gate:
            if self.done:
                return None
            return self._finish(self._synchronize())

    def join(self, timeout_s=None):
        """Wait until it is done, at most timeout_s seconds (None: no limit
        but that of the communicator). Returns whether it is."""
        if self.done:
            return True
        if timeout_s is not None:
            return self._join_within(timeout_s)
        if self.limit_s is None:
            future = self.join_quietly()
            if future is not None:
                future.keep()
        elif not self._join_within(self.limit_s):
            self.communicator.abort()
            self.join_quietly()
            self.error = lib.DistTimeoutError(
                f"dicomm {self.title}: Timed out after"
                f" {self.limit_s * 1000:.0f} ms")
        return True

    def _join_within(self, timeout_s):
        with _mutex:
            if self.done:
                return True
            if self._event is None:
                self._event = threading.Event()
        self.watch()
        return self._event.wait(timeout_s)

    def watch(self):
        """Have a thread see it to its end."""
        with _mutex:
            if self.done or self._watched:
                return
            self._watched = True
        if self.lane:
            self.lane.push(self)
        else:
            threads.submit(self._see_to_end)

    def _see_to_end(self):
        future = self.join_quietly()
        if future is not None:
            future.keep()

    def poll(self):
        """Is it done? Does not wait."""
        if not self.done:
            self.watch()
        return self.done

    def future(self, devices):
        """A future of the outputs, always the same."""
        with _mutex:
            fresh = self._future is None
            if fresh:
                self._future = _Promise(self, devices)
            done = self.done
        if done and fresh:
            self._future.keep()
        elif not done:
            self.watch()
        return self._future.future


class DeviceOperation(Operation):
    """An operation on the stream of a device.

    With an event of torch (CUDA, ROCm, XPU) a wait makes the current stream
    wait, and the host only where it has to know. Without (OpenCL), the library
    waits for all that the communicator has queued.
    """

    __slots__ = ("event",)

    def __init__(self, *arguments, event=None):
        self.event = event
        super().__init__(*arguments)

    def _synchronize(self):
        if self.event is None:
            return self.communicator.synchronize()
        self.event.synchronize()
        return self.communicator.async_error()

    def join(self, timeout_s=None):
        if self.event is None or timeout_s is not None or self.done:
            return super().join(timeout_s)
        self.event.wait()  # the current stream does
        result = self.communicator.async_error()
        if result:
            raise self.communicator.error(result, self.title)
        return True


def seconds(timeout):
    """A timedelta as seconds; None for none at all, which torch writes as 0
    or a negative one."""
    if timeout is None:
        return None
    value = timeout.total_seconds()
    return value if value > 0 else None


class Work(dist._Work):
    """What torch is given for an operation: dist.Work.

    All methods from any thread. wait() raises what went wrong; with a time-out
    it raises DistTimeoutError and leaves the operation as it is.
    """

    def __init__(self, operation, sequence, source=-1):
        super().__init__()
        self._operation = operation
        self._sequence = sequence
        self._source = source

    def __del__(self):
        # From the garbage collector, anywhere: no lock may be taken here.
        operation = getattr(self, "_operation", None)
        if operation is not None and not operation.done:
            orphans.append(operation)

    def wait(self, timeout=None):
        operation = self._operation
        if not operation.done:
            limit = seconds(timeout)
            if not operation.join(limit):
                raise lib.DistTimeoutError(
                    f"dicomm {operation.title}: Timed out: not done after"
                    f" {limit * 1000:.0f} ms")
        if operation.error is not None:
            raise operation.error
        return True

    def synchronize(self):
        self.wait()

    def is_completed(self):
        return self._operation.poll()

    def is_success(self):
        return self._operation.poll() and self._operation.error is None

    def exception(self):
        return self._operation.error if self._operation.poll() else None

    def result(self):
        return self._operation.outputs

    def get_future(self):
        return self._operation.future(self._operation.communicator.devices)

    def get_future_result(self):
        """A future of dist._WorkResult, for those who only want to know."""
        kinds = torch._C._distributed_c10d.WorkResult
        operation = self._operation

        def kind(_):
            if operation.error is None:
                return kinds.SUCCESS
            if isinstance(operation.error, lib.DistTimeoutError):
                return kinds.TIMEOUT
            return kinds.COMM_ERROR

        return self.get_future().then(kind)

    def source_rank(self):
        """Who sent what a receive got; -1 for other operations, and as long
        as that is not known."""
        return getattr(self._source, "source", self._source)

    _source_rank = source_rank

    def abort(self):
        self._operation.communicator.abort()

    def _get_sequence_number(self):
        return self._sequence


class _Done:
    """An operation that is over, in the shape of Operation."""

    __slots__ = ("communicator", "outputs", "title", "error", "done",
                 "_future")

    def __init__(self, communicator, title, outputs):
        self.communicator = communicator
        self.title = title
        self.outputs = outputs
        self.error = None
        self.done = True
        self._future = None

    def poll(self):
        return True

    def join(self, timeout_s=None):
        return True

    def future(self, devices):
        with _mutex:
            fresh = self._future is None
            if fresh:
                self._future = _Promise(self, devices)
        if fresh:
            self._future.keep()
        return self._future.future


def done(communicator, title, outputs, sequence, source=-1):
    """The Work of an operation that is over."""
    return Work(_Done(communicator, title, outputs), sequence, source)


def wait_all(operations, timeout_s):
    """Wait for operations, timeout_s seconds together; returns whether all
    are done. Their failures stay with them."""
    end = time.monotonic() + timeout_s
    return all([operation.join(max(0.001, end - time.monotonic()))
                for operation in operations])
