# SPDX-License-Identifier: BSD-3-Clause
"""How an operation ends: who waits for it, and who hears of it.

An operation that does not block has a host stream for itself, from a pool, for
messages may end in another order than they begin; and a request of the
library, which is waited for, asked and called back. Who is the first to notice
the end does what is left to do on the host, in `Operation._settle()`.

What holds here:

* No lock is held while something waits for an operation.
* A callback of a future may wait for any other operation or future: the
  library gives each callback a thread, as soon as it is due.
* Works end anywhere, in the garbage collector too. No lock may be taken there
  that the same thread might hold already.

Operations on the stream of a device have no request. Threads of this file wait
for their events, where a future, or a wait with a time-out, needs that.
"""

import itertools
import logging
import os
import sys
import threading
import time
from collections import deque
from ctypes import byref, c_void_p

import torch
import torch._C._distributed_c10d as c10d
import torch.distributed as dist

from . import _library as lib

_log = logging.getLogger("dicomm_torch")
_call = lib.library


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
                _call.dicomm_host_stream_create(byref(stream)),
                None, "host_stream_create")
            return stream.value

    def give(self, stream):
        self._free.append(stream)

    @staticmethod
    def drop(stream):
        """Of one that has failed, or may have calls queued: the library
        remembers the failure, and waits for the calls."""
        _call.dicomm_host_stream_destroy(stream)

    def forget(self):
        """In the child of a fork, where the parent's are refused."""
        self._free = []


class _Threads:
    """Daemon threads that are reused: as many as wait at one time. They wait
    for devices."""

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
orphans = deque()  # of devices: not done, and nobody keeps their works
_tickets = itertools.count(1)
_called = {}  # by ticket: operations that the library will call back for


def _after_fork():
    streams.forget()
    threads.forget()
    orphans.clear()
    _called.clear()


os.register_at_fork(after_in_child=_after_fork)


@lib.REQUEST_FN
def _on_end(result, ticket):
    """What the library calls when an operation has ended, in a thread of its
    own; callbacks of futures run in it."""
    try:
        _called[ticket]._settle(result)
    except BaseException:
        _log.exception("dicomm_torch: a completion failed")
    finally:
        _called.pop(ticket, None)


def await_callbacks(limit_s):
    """Wait until those that the library will call, or calls now, have returned;
    at exit, where their thread would be stopped in the middle."""
    end = time.monotonic() + limit_s
    while _called and time.monotonic() < end:
        time.sleep(0.001)


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

    Yes, if there is no other thread of Python that could want to call, and no
    callback to come that might. It saves an operation two switches of threads.
    """
    return threading.active_count() == 1 and not _called


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


def _typed(future, outputs):
    """A future of outputs that ends as future does, and holds a list of tensors
    for C++, where one that Python made holds an object of Python. That is not
    what DDP's hook FP16_COMPRESS, which is in C++, can take.

    Python has no other way to such a future than a function of TorchScript that
    waits; no thread is held by that."""
    global _relay
    if _relay is None:
        unit = torch._C.CompilationUnit()
        unit.define(_RELAY, {"torch": torch}.get)
        _relay = unit.find_function("relay")
    return _relay(future, outputs)


_relay = None
_RELAY = """
def outputs_at(end: Future[int], outputs: List[Tensor]) -> List[Tensor]:
    torch.jit._wait(end)
    return outputs

def relay(end: Future[int], outputs: List[Tensor]):
    return torch.jit._fork(outputs_at, end, outputs)
"""


def _called_by_python(name):
    """Is the method of this name, which calls this, called by Python? Then the
    code that calls it has the name; what has called the C++ that calls it, such
    as the backward pass, has not."""
    try:
        return name in sys._getframe(2).f_code.co_names
    except ValueError:  # there is none, in a thread of C++
        return False


class Patience:
    """Waiting a moment for the end of a short operation before its future is
    made. That saves the way by the thread that calls back: two switches of
    threads, which take longer than the operation. After a moment in vain there
    are none for a while, each time for twice as many operations."""

    MOMENT_S = 0.001
    SHORT_BYTES = 64 << 10
    MOST = 64

    def __init__(self):
        self._left_out = 0
        self._to_leave_out = 0

    def wait(self, operation):
        keep = operation.keep
        if keep is None:  # it has ended just now
            return
        length = sum(getattr(kept, "nbytes", 0) for kept in keep)
        if length > self.SHORT_BYTES or self._to_leave_out > self._left_out:
            self._left_out += 1
            operation.poll()
        elif operation._wait(self.MOMENT_S):
            self._to_leave_out = 0
        else:
            self._left_out = 0
            self._to_leave_out = min(self._to_leave_out * 2 + 1, self.MOST)


class Operation:
    """One operation, or one group of them, that the library works on.

    stream is a host stream that has this operation only, None on a device. It
    keeps the memory that the library uses (keep) until it is done, then runs
    what is left to do on the host (post), such as copying a result to where it
    belongs. error is the exception if it failed. limit_s is how long a wait
    may last before the communicator is aborted, None for as long as the
    library's own time-out.
    """

    __slots__ = (
        "communicator", "stream", "request", "title", "keep", "post",
        "outputs", "done", "error", "limit_s", "_gate", "_future",
        "_unwatched", "_began", "_seconds",
    )

    def __init__(self, communicator, stream, title, keep, post, outputs,
                 limit_s):
        self.communicator = communicator
        self.stream = stream
        self.request = None
        self.title = title
        self.keep = keep
        self.post = post
        self.outputs = outputs
        self.done = False
        self.error = None
        self.limit_s = limit_s
        self._gate = threading.Lock()  # for done, error and _future
        self._future = None
        self._unwatched = [True]  # who pops it sees to the end
        self._began = self._seconds = None
        if stream:
            request = c_void_p()
            lib.check(
                _call.dicomm_host_stream_request(stream, byref(request)),
                None, "host_stream_request")
            self.request = request.value
        communicator.in_flight.add(self)

    def __del__(self, free=_call.dicomm_request_free):
        # Not earlier: another thread may still be about to wait for it.
        if self.request and not self.communicator.forked():
            free(self.request)

    def _settle(self, result):
        """Called by all who know the result; the first one does it."""
        with self._gate:
            if self.done:
                return
            if self._began is not None:
                self._seconds = time.perf_counter() - self._began
            if result:
                self.error = self.communicator.error(result, self.title)
            else:
                try:
                    for step in self.post:
                        step()
                except Exception as raised:
                    self.error = raised
            if self.stream:
                (streams.drop if result else streams.give)(self.stream)
            self.stream = self.keep = self.post = None
            self.done = True
        self.communicator.in_flight.discard(self)
        if self._future is not None:
            self._future.keep()

    def _wait(self, timeout_s=None):
        """Wait until it is done, timeout_s seconds at most; returns whether it
        is."""
        milliseconds = 0  # for ever
        if timeout_s is not None:
            milliseconds = max(1, min(int(timeout_s * 1000), 0x7FFFFFFF))
        result = _call.dicomm_request_wait(self.request, milliseconds)
        if result == lib.IN_PROGRESS:
            return False
        self._settle(result)
        return True

    def join(self, timeout_s=None):
        """Wait until it is done, at most timeout_s seconds (None: no limit
        but that of the operation). Returns whether it is."""
        if self.done:
            return True
        if timeout_s is not None or self.limit_s is None:
            return self._wait(timeout_s)
        if not self._wait(self.limit_s):
            self.communicator.abort()
            self._wait()
            self.error = lib.DistTimeoutError(
                f"dicomm {self.title}: Timed out after"
                f" {self.limit_s * 1000:.0f} ms")
        return True

    def poll(self):
        """Is it done? Does not wait."""
        if not self.done:
            result = _call.dicomm_request_query(self.request)
            if result != lib.IN_PROGRESS:
                self._settle(result)
        return self.done

    def measure(self, began):
        """Have the time of its end noted as it ends, not as somebody looks.
        began is when it was called, by time.perf_counter()."""
        with self._gate:
            self._began = began
            if self.done:
                self._seconds = time.perf_counter() - began
        if not self.done:
            self.watch()

    def seconds(self):
        """How long it took; None: it was not measured, or is not done."""
        return self._seconds

    def watch(self):
        """Have a thread see it to its end. Takes no lock."""
        try:
            self._unwatched.pop()
        except IndexError:  # one does
            return
        ticket = next(_tickets)
        _called[ticket] = self
        result = _call.dicomm_request_call(self.request, _on_end, ticket)
        if result:
            del _called[ticket]
            raise lib.error(result, None, f"{self.title}: request_call")

    abandon = watch  # when nobody keeps the work

    def future(self, devices):
        """A future of the outputs, always the same."""
        if self.request and not self.done:
            self.communicator.patience.wait(self)
        with self._gate:
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

    __slots__ = ("event", "_ended")

    def __init__(self, *arguments, event=None):
        self.event = event
        self._ended = threading.Event()
        super().__init__(*arguments)

    def _synchronize(self):
        if self.event is None:
            return self.communicator.synchronize()
        self.event.synchronize()
        return self.communicator.async_error()

    def _see_to_end(self):
        try:
            self._settle(self._synchronize())
        finally:
            self._ended.set()

    def _wait(self, timeout_s=None):
        if timeout_s is None:
            self._settle(self._synchronize())
            return True
        self.watch()
        return self._ended.wait(timeout_s)

    def join(self, timeout_s=None):
        if self.event is None or timeout_s is not None or self.done:
            return super().join(timeout_s)
        self.event.wait()  # the current stream does
        result = self.communicator.async_error()
        if result:
            raise self.communicator.error(result, self.title)
        return True

    def poll(self):
        if not self.done:
            self.watch()
        return self.done

    def watch(self):
        try:
            self._unwatched.pop()
        except IndexError:
            return
        threads.submit(self._see_to_end)

    def abandon(self):
        orphans.append(self)


def seconds(timeout):
    """A timedelta as seconds; None for none at all, which torch writes as 0
    or a negative one."""
    if timeout is None:
        return None
    value = timeout.total_seconds()
    return value if value > 0 else None


# Whether a compiled graph may wait for works that are under way now; older
# versions of torch have no such thing.
_are_inputs_of_graphs = getattr(
    torch._C._distributed_c10d, "_allow_inflight_collective_as_graph_input",
    lambda: False)


# What torch calls the operations; those of several calls are coalesced.
_OP_TYPES = {
    "all_reduce": c10d.OpType.ALLREDUCE,
    "all_reduce_coalesced": c10d.OpType.ALLREDUCE_COALESCED,
    "all_reduce_sparse": c10d.OpType._ALLREDUCE_SPARSE,
    "broadcast": c10d.OpType.BROADCAST,
    "reduce": c10d.OpType.REDUCE,
    "barrier": c10d.OpType.BARRIER,
    "all_gather": c10d.OpType.ALLGATHER,
    "all_gather_coalesced": c10d.OpType.ALLGATHER_COALESCED,
    "all_gather_into_tensor": c10d.OpType._ALLGATHER_BASE,
    "all_gather_into_tensor_coalesced":
        c10d.OpType.ALLGATHER_INTO_TENSOR_COALESCED,
    "gather": c10d.OpType.GATHER,
    "scatter": c10d.OpType.SCATTER,
    "reduce_scatter": c10d.OpType.REDUCE_SCATTER,
    "reduce_scatter_tensor": c10d.OpType._REDUCE_SCATTER_BASE,
    "reduce_scatter_tensor_coalesced":
        c10d.OpType.REDUCE_SCATTER_TENSOR_COALESCED,
    "all_to_all": c10d.OpType.ALLTOALL,
    "send": c10d.OpType.SEND,
    "recv": c10d.OpType.RECV,
    "coalesced": c10d.OpType.COALESCED}


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
        operation = getattr(self, "_operation", None)
        if operation is not None and not operation.done and not (
                operation.communicator.forked()):
            operation.abandon()

    def wait(self, timeout=None):
        operation = self._operation
        if not operation.done:
            limit = seconds(timeout)
            if not operation.join(limit):
                raise lib.DistTimeoutError(
                    f"dicomm {operation.title}: Timed out: not done after"
                    f" {limit * 1000:.0f} ms")
        if _are_inputs_of_graphs():
            self._unregister()
        if operation.error is not None:
            raise operation.error
        return True

    def register(self):
        """Lets a compiled graph wait for this by any of its tensors, if such
        graphs are served now."""
        if _are_inputs_of_graphs():
            for tensor in self._operation.outputs:
                torch._C._distributed_c10d._register_work(tensor, self)

    def _unregister(self):
        """Takes back what register() did. The way that Python has is to wait
        for the tensor, which calls wait() once more."""
        for tensor in self._operation.outputs:
            torch.ops._c10d_functional.wait_tensor(tensor)

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
        operation = self._operation
        future = operation.future(operation.communicator.devices)
        if (len(operation.outputs) == 1
                and operation.outputs[0].dtype is torch.float16
                and not _called_by_python("get_future")):
            return _typed(future, operation.outputs)
        return future

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

    def _get_op_type(self):
        return _OP_TYPES.get(self._operation.title, c10d.OpType.UNKNOWN)

    def _get_duration(self):
        """Milliseconds from the call to the end, as a float. RuntimeError as
        long as it is not done, or if its group does not measure."""
        operation = self._operation
        seconds_taken = operation.seconds() if operation.poll() else None
        if seconds_taken is None:
            raise RuntimeError(
                f"dicomm {operation.title}: no duration: "
                + ("the group does not measure: call its"
                   " _enable_collectives_timing() first, or set"
                   " TORCH_NCCL_ENABLE_TIMING=1" if operation.done
                   else "it is under way"))
        return seconds_taken * 1000


class _Done:
    """An operation that is over, in the shape of Operation."""

    __slots__ = ("communicator", "outputs", "title", "error", "done",
                 "_gate", "_future", "_seconds")

    def __init__(self, communicator, title, outputs):
        self.communicator = communicator
        self._seconds = None
        self.title = title
        self.outputs = outputs
        self.error = None
        self.done = True
        self._gate = threading.Lock()
        self._future = None

    def poll(self):
        return True

    def join(self, timeout_s=None):
        return True

    def measure(self, began):
        self._seconds = time.perf_counter() - began

    def seconds(self):
        return self._seconds

    def future(self, devices):
        with self._gate:
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
