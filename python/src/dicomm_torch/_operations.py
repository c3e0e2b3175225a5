# SPDX-License-Identifier: BSD-3-Clause
"""The operations of a process group, in the shape that c10d calls them.

Each method checks its tensors, says where the library finds its buffers, and
hands both to `_run()`. The names and arguments are those of dist.ProcessGroup
and dist.Backend, which the classes of _group.py make of this one.
"""

import datetime
import threading
import time

import torch
import torch._C._distributed_c10d as c10d
import torch.distributed as dist
from torch._C._profiler import _RecordFunctionFast
from torch.autograd import _profiler_enabled

from . import _completion, _detail
from . import _library as lib
from ._communicator import TORCH_KINDS
from ._types import moved, operator_name, reduction
from ._watched import Subclass, is_subclass

_call = lib.library
_NO_TIMEOUT = datetime.timedelta(milliseconds=-1)


def _one(tensors, what):
    """The only tensor of a list; a tensor by itself is taken, too."""
    if isinstance(tensors, torch.Tensor):
        return tensors
    if len(tensors) != 1:
        raise ValueError(f"dicomm {what}: one tensor is expected, not"
                         f" {len(tensors)}")
    return tensors[0]


def _inner(lists, what):
    """The only list of a list of lists; a list by itself is taken, too."""
    if lists and isinstance(lists[0], torch.Tensor):
        return lists
    if len(lists) != 1:
        raise ValueError(f"dicomm {what}: one list of tensors is expected,"
                         f" not {len(lists)}")
    return lists[0]


def _plain(tensor):
    """Is its memory what its elements say, in order?"""
    return (tensor.is_contiguous() and not tensor.is_conj()
            and not tensor.is_neg())


def _copy(to, source):
    """Copy elements into a tensor of any layout, in order."""
    with torch.no_grad():
        to.copy_(source.view(to.shape))


class _Call:
    """One call of the library, ready to be made: function, its arguments up
    to the communicator, and what Operation needs."""

    __slots__ = ("title", "function", "arguments", "outputs", "keep", "post",
                 "reduction")

    def __init__(self, title, outputs):
        self.title = title
        self.outputs = outputs
        self.keep = []
        self.post = []
        self.reduction = None

    def set(self, function, *arguments):
        self.function = function
        self.arguments = arguments
        return self


class Operations:
    """What a process group can do, over self._communicator."""

    # -- how a call is made -------------------------------------------------

    def _begin(self, communicator, store):
        self._communicator = communicator
        self._store = communicator.store or store
        self._barriers = 0
        self._batches = communicator.batches
        self._compares = _detail.is_wanted()

    def _place(self, tensor, what):
        """Check that a tensor is where this rank's buffers are, or bring it
        there; returns (tensor, was it moved?)."""
        comm = self._communicator
        device = tensor.device
        if type(tensor) is not torch.Tensor and is_subclass(tensor):
            raise Subclass(f"dicomm {what}: a plain tensor is needed, not a"
                           f" {type(tensor).__name__}")
        if device.type == comm.kind:
            if tensor.layout is not torch.strided:
                raise ValueError(f"dicomm {what}: a dense tensor is needed,"
                                 f" not one of layout {tensor.layout}")
            return tensor, False
        if device.type == "cpu":
            return tensor.to(comm.place), True
        remedy = (": set DICOMM_DEVICE, or device_id of init_process_group"
                  if device.type in TORCH_KINDS.values() else "")
        raise ValueError(
            f"dicomm {what}: the tensor is on {device}, but this rank of group"
            f" {comm.name} is bound to {comm.device}{remedy}")

    def _source(self, call, tensor):
        """A plain tensor to send from."""
        tensor, _ = self._place(tensor, call.title)
        if not _plain(tensor):
            tensor = tensor.resolve_conj().resolve_neg().contiguous()
        call.keep.append(tensor)
        return tensor

    def _target(self, call, tensor, holds_input=False):
        """A plain tensor to receive in, which is copied to tensor at the end;
        with holds_input it has the elements of tensor at first."""
        placed, moved_there = self._place(tensor, call.title)
        if not moved_there and _plain(tensor):
            call.keep.append(tensor)
            return tensor
        if holds_input:
            plain = placed.resolve_conj().resolve_neg().clone(
                memory_format=torch.contiguous_format)
        else:
            plain = torch.empty(
                tensor.shape, dtype=tensor.dtype, device=placed.device)
        call.keep.append(plain)
        call.post.append(lambda: _copy(tensor, plain))
        return plain

    def _targets(self, call, tensors):
        return [self._target(call, tensor) for tensor in tensors]

    def _sources(self, call, tensors, targets, in_place=None):
        """Plain tensors to send from that share no memory with targets.
        in_place is the number of a source and that of a target which may be
        the same."""
        taken = {target.untyped_storage().data_ptr() for target in targets}
        sources = [self._source(call, tensor) for tensor in tensors]
        for i, source in enumerate(sources):
            if source.untyped_storage().data_ptr() not in taken:
                continue
            if in_place and i == in_place[0] and (
                    source.data_ptr() == targets[in_place[1]].data_ptr()):
                continue
            sources[i] = source.clone()
            call.keep.append(sources[i])
        return sources

    def _limit_s(self, options):
        """Seconds that an operation may take, None for the group's own."""
        timeout = getattr(options, "timeout", None)
        if timeout == _NO_TIMEOUT or timeout == self._communicator.timeout:
            return None
        return _completion.seconds(timeout)

    def _run(self, calls, options=None, title=None, may_block=True):
        """Make calls, at once if there are several; returns their Work."""
        batch = self._batches.get(threading.get_ident()) if (
            self._batches) else None
        if batch is not None:
            batch.extend(calls)
            return _completion.done(self._communicator, "coalesced", [], 0)
        if self._compares:
            _detail.compare(self, calls, title or calls[0].title)
        start = (self._start_timed if self._communicator.is_timed
                 else self._start)
        if _profiler_enabled():
            tensors = [kept for call in calls for kept in call.keep
                       if isinstance(kept, torch.Tensor)]
            with _RecordFunctionFast(
                    "dicomm:" + (title or calls[0].title), tensors):
                return start(calls, options, title, may_block)
        return start(calls, options, title, may_block)

    def _start_timed(self, *arguments):
        began = time.perf_counter()
        work = self._start(*arguments)
        work._operation.measure(began)
        return work

    def _enable_collectives_timing(self):
        """Works made from now on know how long they took
        (work._get_duration())."""
        self._communicator.is_timed = True

    def _start(self, calls, options, title, may_block):
        comm = self._communicator
        comm.sequence += 1
        first = calls[0]
        title = title or first.title
        asynchronous = getattr(options, "asyncOp", True)
        limit_s = self._limit_s(options)
        if len(calls) == 1:
            keep, post, outputs = first.keep, first.post, first.outputs
        else:
            keep = [x for call in calls for x in call.keep]
            post = [x for call in calls for x in call.post]
            outputs = [x for call in calls for x in call.outputs]
        if not comm.on_host:
            return self._start_on_device(
                calls, asynchronous, (title, keep, post, outputs, limit_s))
        if not asynchronous and may_block and limit_s is None and (
                _completion.alone()):
            self._make(calls, None, title)
            for step in post:
                step()
            return _completion.done(comm, title, outputs, comm.sequence)
        stream = _completion.streams.take()
        try:
            self._make(calls, stream, title)
            operation = _completion.Operation(
                comm, stream, title, keep, post, outputs, limit_s)
        except BaseException:
            # What was begun may be on the stream: leave that to the library.
            _completion.streams.drop(stream)
            raise
        work = _completion.Work(operation, comm.sequence)
        if asynchronous:
            work.register()
        else:
            work.wait()
        return work

    def _start_on_device(self, calls, asynchronous, about):
        comm = self._communicator
        _completion.adopt()
        module = getattr(torch, comm.kind, None) if comm.devices else None
        stream = module.current_stream(comm.place) if module else None
        self._make(calls, self._handle_of(stream), about[0])
        event = None
        if module:
            event = module.Event()
            event.record(stream)
            # torch's allocator may give memory away when the stream passed.
        title, keep, post, outputs, limit_s = about
        if event is not None and post:
            for step in post:  # queued behind the operation, on its stream
                step()
            post = []
        operation = _completion.DeviceOperation(
            comm, None, title, keep, post, outputs, limit_s, event=event)
        work = _completion.Work(operation, comm.sequence)
        if asynchronous:
            work.register()
        else:
            work.wait()
        return work

    @staticmethod
    def _handle_of(stream):
        if stream is None:
            return None
        return getattr(stream, "cuda_stream", None) or getattr(
            stream, "sycl_queue", None)

    def _make(self, calls, stream, title):
        """Call the library, as a group if there are several calls."""
        comm = self._communicator
        with comm.lock:
            handle = comm.usable()
            if len(calls) == 1:
                call = calls[0]
                result = call.function(*call.arguments, handle, stream)
            else:
                _call.dicomm_group_start()
                result = lib.SUCCESS
                for call in calls:
                    result = result or call.function(
                        *call.arguments, handle, stream)
                ended = _call.dicomm_group_end()
                result = result or ended
            for call in calls:
                if call.reduction:
                    call.reduction.close()
            if result:
                raise comm.error(result, title)

    def _reduction(self, call, operator, dtype):
        comm = self._communicator
        with comm.lock:
            made = reduction(operator, dtype, comm.usable())
        if made.comm:
            call.reduction = made
        return made

    def _check_root(self, root, what):
        if not 0 <= root < self._communicator.size:
            raise ValueError(f"dicomm {what}: root {root} is no rank of a group"
                             f" of {self._communicator.size}")

    @staticmethod
    def _check_same(a, b, what):
        if a.dtype != b.dtype:
            raise TypeError(f"dicomm {what}: tensors of one type are needed,"
                            f" not {a.dtype} and {b.dtype}")

    def _check_list(self, tensors, what):
        size = self._communicator.size
        if len(tensors) != size:
            raise ValueError(f"dicomm {what}: the list needs a tensor for each"
                             f" of {size} ranks, not {len(tensors)}")
        for tensor in tensors[1:]:
            self._check_same(tensors[0], tensor, what)

    # -- all to one value ---------------------------------------------------

    def _allreduce(self, tensor, operator, title="all_reduce"):
        call = _Call(title, [tensor])
        red = self._reduction(call, operator, tensor.dtype)
        data = self._target(call, tensor, holds_input=True)
        at = data.data_ptr()
        return call.set(_call.dicomm_allreduce, at, at,
                        data.numel() * red.multiple, red.type, red.op)

    def allreduce(self, tensors, opts=None, **more):
        opts = _options(c10d.AllreduceOptions, opts, more, "reduceOp")
        tensor = _one(tensors, "all_reduce")
        if tensor.layout is not torch.strided:
            return self.allreduce_sparse([tensor], opts)
        return self._run([self._allreduce(tensor, opts.reduceOp)], opts)

    def allreduce_coalesced(self, tensors, opts=None):
        opts = opts or c10d.AllreduceCoalescedOptions()
        return self._run(
            [self._allreduce(tensor, opts.reduceOp) for tensor in tensors],
            opts, "all_reduce_coalesced")

    def allreduce_sparse(self, tensors, opts=None):
        """The sum of sparse COO tensors: all get all indices and values."""
        tensor = _one(tensors, "all_reduce_sparse")
        opts = opts or c10d.AllreduceOptions()
        operator = opts.reduceOp
        if tensor.layout is not torch.sparse_coo:
            raise ValueError("dicomm all_reduce: sparse tensors need the layout"
                             f" torch.sparse_coo, not {tensor.layout}")
        if int(getattr(operator, "op", operator)) != int(
                dist.ReduceOp.RedOpType.SUM):
            raise ValueError("dicomm all_reduce: sparse tensors are summed only,"
                             f" not reduced by {operator_name(operator)}")
        size = self._communicator.size
        mine = tensor.detach().coalesce()
        indices = mine.indices().t().contiguous()
        values = mine.values().contiguous()
        # How many elements each has. Known before the call returns, so that
        # all ranks call the rest in one order.
        counts = torch.zeros(size, dtype=torch.int64)
        call = self._allgather(
            counts, torch.tensor([indices.shape[0]]), "all_reduce_sparse")
        waiting = c10d.AllgatherOptions()
        waiting.asyncOp = False
        self._run([call], waiting).wait()
        counts = counts.tolist()
        all_indices = [indices.new_empty((n, indices.shape[1]))
                       for n in counts]
        all_values = [values.new_empty((n, *values.shape[1:]))
                      for n in counts]
        calls = [
            self._allgather_list(all_indices, indices, "all_reduce_sparse"),
            self._allgather_list(all_values, values, "all_reduce_sparse")]

        def add_up():
            total = torch.sparse_coo_tensor(
                torch.cat(all_indices).t(), torch.cat(all_values),
                tensor.shape).coalesce()
            with torch.no_grad():
                tensor.copy_(total)

        calls[1].post.append(add_up)
        calls[0].outputs, calls[1].outputs = [], [tensor]
        return self._run(calls, opts, "all_reduce_sparse")

    def broadcast(self, tensors, opts=None, **more):
        opts = _options(c10d.BroadcastOptions, opts, more, "rootRank", "root")
        tensor = _one(tensors, "broadcast")
        root = opts.rootRank
        self._check_root(root, "broadcast")
        call = _Call("broadcast", [tensor])
        kind, multiple = moved(tensor.dtype, tensor.element_size())
        if root == self._communicator.rank:
            data = self._source(call, tensor)
        else:
            data = self._target(call, tensor)
        at = data.data_ptr()
        call.set(_call.dicomm_broadcast, at, at, data.numel() * multiple, kind,
                 root)
        return self._run([call], opts)

    def reduce(self, tensors, opts=None, **more):
        opts = _options(c10d.ReduceOptions, opts, more, "rootRank", "root",
                        "op")
        tensor = _one(tensors, "reduce")
        root = opts.rootRank
        self._check_root(root, "reduce")
        call = _Call("reduce", [tensor])
        red = self._reduction(call, opts.reduceOp, tensor.dtype)
        if root == self._communicator.rank:
            data = self._target(call, tensor, holds_input=True)
        else:
            data = self._source(call, tensor)
        at = data.data_ptr()
        call.set(_call.dicomm_reduce, at, at, data.numel() * red.multiple,
                 red.type, red.op, root)
        return self._run([call], opts)

    def barrier(self, opts=None, **more):
        opts = _options(c10d.BarrierOptions, opts, more, "timeout")
        call = _Call("barrier", []).set(_call.dicomm_barrier)
        work = self._run([call], opts)
        if not self._communicator.on_host and self._communicator.devices:
            work._operation.poll()
        return work

    # -- gather -------------------------------------------------------------

    def _allgather(self, output, source, title):
        self._check_same(output, source, title)
        size = self._communicator.size
        if output.numel() != source.numel() * size:
            raise ValueError(
                f"dicomm {title}: the output has {output.numel()} elements;"
                f" {size} times {source.numel()} are needed")
        call = _Call(title, [output])
        data = self._source(call, source)
        kind, multiple = moved(data.dtype, data.element_size())
        room = self._target(call, output)
        return call.set(_call.dicomm_allgather, data.data_ptr(),
                        room.data_ptr(), data.numel() * multiple, kind)

    def _allgather_list(self, outputs, source, title):
        self._check_list(outputs, title)
        self._check_same(outputs[0], source, title)
        mine = outputs[self._communicator.rank]
        if mine.numel() != source.numel():
            raise ValueError(
                f"dicomm {title}: the output of this rank has {mine.numel()}"
                f" elements, its input {source.numel()}")
        call = _Call(title, list(outputs))
        rooms = self._targets(call, outputs)
        data, = self._sources(call, [source], rooms,
                              (0, self._communicator.rank))
        kind, multiple = moved(data.dtype, data.element_size())
        return call.set(
            _call.dicomm_allgatherv_list, data.data_ptr(),
            lib.addresses(rooms),
            lib.sizes([room.numel() * multiple for room in rooms]), kind)

    def allgather(self, output_tensors, input_tensors, opts=None, **more):
        opts = _options(c10d.AllgatherOptions, opts, more, "timeout")
        return self._run([self._allgather_list(
            _inner(output_tensors, "all_gather"),
            _one(input_tensors, "all_gather"), "all_gather")], opts)

    def all_gather_single(self, output, input, opts=None, **more):
        opts = _options(c10d.AllgatherOptions, opts, more, "timeout")
        return self._run(
            [self._allgather(output, input, "all_gather_into_tensor")], opts)

    def all_gather_single_coalesced(self, outputs, inputs, opts=None):
        opts = opts or c10d.AllgatherOptions()
        title = "all_gather_into_tensor_coalesced"
        return self._run([self._allgather(output, source, title)
                          for output, source in zip(outputs, inputs)],
                         opts, title)

    def allgather_coalesced(self, output_lists, input_list, opts=None):
        """output_lists[rank][i] is what rank gave as input_list[i]."""
        opts = opts or c10d.AllgatherOptions()
        title = "all_gather_coalesced"
        return self._run(
            [self._allgather_list([of_rank[i] for of_rank in output_lists],
                                  source, title)
             for i, source in enumerate(input_list)], opts, title)

    def gather(self, output_tensors, input_tensors, opts=None, **more):
        opts = _options(c10d.GatherOptions, opts, more, "rootRank", "root",
                        "timeout")
        source = _one(input_tensors, "gather")
        root = opts.rootRank
        self._check_root(root, "gather")
        call = _Call("gather", [])
        kind, multiple = moved(source.dtype, source.element_size())
        rooms = []
        if root == self._communicator.rank:
            outputs = _inner(output_tensors, "gather")
            self._check_list(outputs, "gather")
            self._check_same(outputs[0], source, "gather")
            for tensor in outputs:
                if tensor.numel() != source.numel():
                    raise ValueError(
                        "dicomm gather: each output needs the"
                        f" {source.numel()} elements of the input, not"
                        f" {tensor.numel()}")
            call.outputs = list(outputs)
            rooms = self._targets(call, outputs)
        elif output_tensors and output_tensors[0]:
            raise ValueError("dicomm gather: only root has outputs")
        data, = self._sources(call, [source], rooms, (0, root))
        count = data.numel() * multiple
        call.set(_call.dicomm_gatherv_list, data.data_ptr(), count,
                 lib.addresses(rooms), lib.sizes([count] * len(rooms)), kind,
                 root)
        return self._run([call], opts)

    def gather_single(self, output, input, opts=None, **more):
        opts = _options(c10d.GatherOptions, opts, more, "rootRank", "root",
                        "timeout")
        root = opts.rootRank
        self._check_root(root, "gather")
        call = _Call("gather", [])
        data = self._source(call, input)
        kind, multiple = moved(data.dtype, data.element_size())
        at = None
        if root == self._communicator.rank:
            self._check_same(output, input, "gather")
            if output.numel() != input.numel() * self._communicator.size:
                raise ValueError(
                    f"dicomm gather: the output has {output.numel()} elements;"
                    f" {self._communicator.size} times {input.numel()} are"
                    " needed")
            call.outputs = [output]
            at = self._target(call, output).data_ptr()
        call.set(_call.dicomm_gather, data.data_ptr(), at,
                 data.numel() * multiple, kind, root)
        return self._run([call], opts)

    # -- scatter ------------------------------------------------------------

    def scatter(self, output_tensors, input_tensors, opts=None, **more):
        opts = _options(c10d.ScatterOptions, opts, more, "rootRank", "root",
                        "timeout")
        output = _one(output_tensors, "scatter")
        root = opts.rootRank
        self._check_root(root, "scatter")
        call = _Call("scatter", [output])
        kind, multiple = moved(output.dtype, output.element_size())
        room = self._target(call, output)
        parts = []
        if root == self._communicator.rank:
            inputs = _inner(input_tensors, "scatter")
            self._check_list(inputs, "scatter")
            self._check_same(inputs[0], output, "scatter")
            for tensor in inputs:
                if tensor.numel() != output.numel():
                    raise ValueError(
                        f"dicomm scatter: each input needs the"
                        f" {output.numel()} elements of the output, not"
                        f" {tensor.numel()}")
            parts = self._sources(call, inputs, [room], (root, 0))
        elif input_tensors and input_tensors[0]:
            raise ValueError("dicomm scatter: only root has inputs")
        count = room.numel() * multiple
        call.set(_call.dicomm_scatterv_list, lib.addresses(parts),
                 lib.sizes([count] * len(parts)), room.data_ptr(), count, kind,
                 root)
        return self._run([call], opts)

    def _reduce_scatter(self, output, source, operator, title):
        self._check_same(output, source, title)
        size = self._communicator.size
        if source.numel() != output.numel() * size:
            raise ValueError(
                f"dicomm {title}: the input has {source.numel()} elements;"
                f" {size} times {output.numel()} are needed")
        call = _Call(title, [output])
        red = self._reduction(call, operator, output.dtype)
        data = self._source(call, source)
        room = self._target(call, output)
        return call.set(_call.dicomm_reduce_scatter, data.data_ptr(),
                        room.data_ptr(), room.numel() * red.multiple, red.type,
                        red.op)

    def reduce_scatter(self, output_tensors, input_tensors, opts=None, **more):
        opts = _options(c10d.ReduceScatterOptions, opts, more, "reduceOp",
                        "op", "timeout")
        title = "reduce_scatter"
        output = _one(output_tensors, title)
        inputs = _inner(input_tensors, title)
        self._check_list(inputs, title)
        self._check_same(inputs[0], output, title)
        mine = inputs[self._communicator.rank]
        if mine.numel() != output.numel():
            raise ValueError(
                f"dicomm {title}: the input of this rank has {mine.numel()}"
                f" elements, its output {output.numel()}")
        call = _Call(title, [output])
        red = self._reduction(call, opts.reduceOp, output.dtype)
        room = self._target(call, output)
        parts = self._sources(call, inputs, [room],
                              (self._communicator.rank, 0))
        call.set(_call.dicomm_reduce_scatterv_list, lib.addresses(parts),
                 room.data_ptr(),
                 lib.sizes([part.numel() * red.multiple for part in parts]),
                 red.type, red.op)
        return self._run([call], opts)

    def reduce_scatter_single(self, output, input, opts=None, **more):
        opts = _options(c10d.ReduceScatterOptions, opts, more, "reduceOp",
                        "op", "timeout")
        return self._run([self._reduce_scatter(
            output, input, opts.reduceOp, "reduce_scatter_tensor")], opts)

    def reduce_scatter_single_coalesced(self, outputs, inputs, opts=None):
        opts = opts or c10d.ReduceScatterOptions()
        title = "reduce_scatter_tensor_coalesced"
        return self._run(
            [self._reduce_scatter(output, source, opts.reduceOp, title)
             for output, source in zip(outputs, inputs)], opts, title)

    # -- all to all ---------------------------------------------------------

    def _splits(self, tensor, splits, what):
        """Elements of each rank's part of a tensor, along its first
        dimension."""
        size = self._communicator.size
        rows = tensor.shape[0] if tensor.dim() else 1
        if not splits:
            if rows % size:
                raise ValueError(
                    f"dicomm all_to_all: the first dimension of the {what}"
                    f" tensor, {rows}, is no multiple of {size} ranks")
            splits = [rows // size] * size
        if len(splits) != size or sum(splits) != rows or min(splits) < 0:
            raise ValueError(
                f"dicomm all_to_all: {what} splits {list(splits)} do not"
                f" divide a first dimension of {rows} among {size} ranks")
        row = tensor.numel() // rows if rows else 0
        return [split * row for split in splits]

    def all_to_all_single(self, output, input, output_split_sizes=None,
                          input_split_sizes=None, opts=None, **more):
        opts = _options(c10d.AllToAllOptions, opts, more, "timeout")
        self._check_same(output, input, "all_to_all")
        for what, tensor in ("output", output), ("input", input):
            if not tensor.is_contiguous():  # as all backends have it
                raise ValueError(
                    "dicomm all_to_all: Tensors must be contiguous, not as the"
                    f" {what}, whose strides are {tensor.stride()}")
        theirs = self._splits(output, output_split_sizes, "output")
        mine = self._splits(input, input_split_sizes, "input")
        call = _Call("all_to_all", [output])
        data = self._source(call, input)
        room = self._target(call, output)
        kind, multiple = moved(data.dtype, data.element_size())
        if not output_split_sizes and not input_split_sizes:
            if output.numel() != input.numel():
                raise ValueError(
                    f"dicomm all_to_all: the output has {output.numel()}"
                    f" elements, the input {input.numel()}")
            call.set(_call.dicomm_alltoall, data.data_ptr(), room.data_ptr(),
                     mine[0] * multiple, kind)
            return self._run([call], opts)
        if data.data_ptr() == room.data_ptr():
            data = data.clone()
            call.keep.append(data)
        begins = [sum(mine[:i]) * multiple for i in range(len(mine))]
        ends = [sum(theirs[:i]) * multiple for i in range(len(theirs))]
        call.set(_call.dicomm_alltoallv, data.data_ptr(),
                 lib.sizes([count * multiple for count in mine]),
                 lib.sizes(begins), room.data_ptr(),
                 lib.sizes([count * multiple for count in theirs]),
                 lib.sizes(ends), kind)
        return self._run([call], opts)

    def alltoall(self, output_tensors, input_tensors, opts=None, **more):
        opts = _options(c10d.AllToAllOptions, opts, more, "timeout")
        self._check_list(output_tensors, "all_to_all")
        self._check_list(input_tensors, "all_to_all")
        self._check_same(output_tensors[0], input_tensors[0], "all_to_all")
        call = _Call("all_to_all", list(output_tensors))
        rooms = self._targets(call, output_tensors)
        parts = self._sources(call, input_tensors, rooms)
        kind, multiple = moved(parts[0].dtype, parts[0].element_size())
        call.set(_call.dicomm_alltoallv_list, lib.addresses(parts),
                 lib.sizes([part.numel() * multiple for part in parts]),
                 lib.addresses(rooms),
                 lib.sizes([room.numel() * multiple for room in rooms]), kind)
        return self._run([call], opts)

    # -- point to point -----------------------------------------------------

    def _check_tag(self, title, tag):
        if not 0 <= tag < 1 << 31:
            raise ValueError(
                f"dicomm {title}: tag {tag}: a tag is from 0 to 2147483647,"
                " and a receive has that of its send (there is no any-tag)")

    def _check_peer(self, title, peer):
        if not 0 <= peer < self._communicator.size:
            raise ValueError(f"dicomm {title}: peer {peer} is no rank of a"
                             f" group of {self._communicator.size}")

    def send(self, tensors, dst, tag=0):
        tensor = _one(tensors, "send")
        self._check_peer("send", dst)
        self._check_tag("send", tag)
        call = _Call("send", [])
        data = self._source(call, tensor)
        kind, multiple = moved(data.dtype, data.element_size())
        about = data.data_ptr(), data.numel() * multiple, kind, dst
        if tag:
            call.set(_call.dicomm_send_tag, *about, tag)
        else:
            call.set(_call.dicomm_send, *about)
        return self._run([call], may_block=False)

    def recv(self, tensors, src, tag=0):
        self._check_peer("recv", src)
        return self._recv(tensors, src, tag)

    def recv_anysource(self, tensors, tag=0):
        return self._recv(tensors, lib.ANY_SOURCE, tag)

    def _recv(self, tensors, src, tag):
        tensor = _one(tensors, "recv")
        self._check_tag("recv", tag)
        call = _Call("recv", [tensor])
        room = self._target(call, tensor)
        kind, multiple = moved(room.dtype, room.element_size())
        about = room.data_ptr(), room.numel() * multiple, kind, src
        source = src
        if tag or src == lib.ANY_SOURCE:
            source = lib.Status(source=src)  # the library writes it
            call.keep.append(source)
            call.set(
                lambda *arguments: _call.dicomm_recv_tag(*arguments, source),
                *about, tag)
        else:
            call.set(_call.dicomm_recv, *about)
        work = self._run([call], may_block=False)
        work._source = source
        return work

    def start_coalescing(self, device=None):
        """Collect what this thread calls; it begins at end_coalescing()."""
        self._batches[threading.get_ident()] = []

    def end_coalescing(self, device=None):
        calls = self._batches.pop(threading.get_ident(), [])
        if not calls:
            return _completion.done(
                self._communicator, "coalesced", [],
                self._communicator.sequence)
        return self._run(calls, title="coalesced", may_block=False)

    # -- control ------------------------------------------------------------

    def monitored_barrier(self, timeout=None, wait_all_ranks=False):
        """A barrier that names who does not come. Rank 0 collects the others
        by the store, so the communicator is not touched and stays whole."""
        if isinstance(timeout, c10d.BarrierOptions):
            timeout = timeout.timeout
        if timeout is None or timeout == _NO_TIMEOUT:
            timeout = self._communicator.timeout
        limit_s = timeout.total_seconds()
        comm = self._communicator
        self._barriers += 1
        key = f"dicomm/barrier/{self._barriers}/"
        # Rank 0 tells the others at the end of its time, and came last maybe.
        end = time.monotonic() + (2 * limit_s if comm.rank else limit_s)
        took = f"{limit_s * 1000:.0f} ms"

        def came(what):
            left = datetime.timedelta(
                seconds=max(0.001, end - time.monotonic()))
            try:
                self._store.wait([key + what], left)
                return True
            except Exception:
                return False

        if comm.rank:
            self._store.set(key + str(comm.rank), b"1")
            verdict = "" if came("verdict") else (
                f"Rank 0 failed to pass monitoredBarrier in {took}")
            verdict = verdict or self._store.get(key + "verdict").decode()
            if verdict:
                verdict = (
                    f"Rank {comm.rank} successfully reached monitoredBarrier,"
                    " but received errors while waiting for send/recv from"
                    f" rank 0: {verdict}")
        else:
            verdict = self._missing(came, limit_s, took, wait_all_ranks)
            self._store.set(key + "verdict", verdict.encode())
        if verdict:
            raise lib.DistTimeoutError(
                f"dicomm monitored_barrier: Timed out : {verdict}")

    def _missing(self, came, limit_s, took, wait_all_ranks):
        """At rank 0 of a monitored barrier: who does not come, in words, ""
        if all do."""
        if limit_s <= 0 and self._communicator.size > 1:
            return f"Rank 0 timed out in monitoredBarrier after {took}"
        missing = []
        for rank in range(1, self._communicator.size):
            if not came(str(rank)):
                missing.append(str(rank))
                if not wait_all_ranks:
                    break
        if not missing:
            return ""
        ranks = ("Ranks " if len(missing) > 1 else "Rank ") + (
            ", ".join(missing))
        return f"{ranks} failed to pass monitoredBarrier in {took}"

    def set_timeout(self, timeout):
        """From now on, and for what is under way; shorter or longer."""
        self._communicator.set_timeout(timeout)

    def _set_default_timeout(self, timeout):
        self.set_timeout(timeout)

    def abort(self):
        self._communicator.abort()

    def shutdown(self):
        self._communicator.close()

    def get_error(self):
        kinds = c10d.ErrorType
        result = self._communicator.async_error()
        if result in (lib.SUCCESS, lib.IN_PROGRESS):
            return kinds.SUCCESS
        return {lib.TIMEOUT: kinds.TIMEOUT,
                lib.REMOTE: kinds.REMOTE_ERROR}.get(result, kinds.COMM_ERROR)

    def _set_sequence_number_for_group(self):
        pass  # all ranks count from 0

    def _get_sequence_number_for_group(self):
        return self._communicator.sequence

    def _wait_for_pending_works(self):
        for operation in list(self._communicator.in_flight):
            operation.join()

    # -- the names of torch up to 2.13 --------------------------------------

    _allgather_base = all_gather_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced
    _reduce_scatter_base = reduce_scatter_single
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced
    alltoall_base = all_to_all_single
    gather_into_tensor = gather_single
    _start_coalescing = start_coalescing
    _end_coalescing = end_coalescing


def _options(kind, given, more, *names):
    """The options of a call. c10d passes an object of them; people who call a
    process group themselves may pass its fields instead."""
    if isinstance(given, kind) and not more:
        return given
    options = kind()
    fields = {"root": "rootRank", "op": "reduceOp", "opts": "reduceOp"}
    if given is not None and not isinstance(given, kind):
        more = {names[0]: given, **more}
    elif given is not None:
        options = given
    else:
        # Called by hand, without options: as c10d's overloads do.
        pass
    for name, value in more.items():
        if name not in names and name not in fields:
            raise TypeError(f"dicomm: unknown argument {name}={value!r}")
        if value is not None:
            setattr(options, fields.get(name, name), value)
    return options
