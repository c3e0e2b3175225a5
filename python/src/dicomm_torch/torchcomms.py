# SPDX-License-Identifier: BSD-3-Clause
"""libdicomm as a backend of torchcomms:

    comm = torchcomms.new_comm("dicomm", torch.device("cpu"), name="mine")

torchcomms finds it by its entry point; before that, or run from the source,
import this module first. What torchcomms lets no backend of Python do is not
there: batches of sends and receives, windows, reconfigure().
"""

import os

import torch._C._distributed_c10d as c10d
import torch.distributed as dist
import torchcomms

from ._communicator import Communicator
from ._group import DEVICES, _device_of
from ._operations import Operations

# Where torchcomms looks for the rank and the number of ranks, in its order
_RANKS = (("TORCHCOMM_RANK", "TORCHCOMM_SIZE"),
          ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
          ("PMI_RANK", "PMI_SIZE"), ("RANK", "WORLD_SIZE"))


def _who():
    """(rank, size) of this process."""
    for rank, size in _RANKS:
        if rank in os.environ and size in os.environ:
            return int(os.environ[rank]), int(os.environ[size])
    raise RuntimeError("dicomm: torchcomms: no rank is set: " + ", ".join(
        f"{rank} and {size}" for rank, size in _RANKS))


def _operator(op):
    kind = op.type.name
    if kind == "PREMUL_SUM":
        raise NotImplementedError(
            "dicomm: torchcomms does not tell a backend of Python the factor"
            " of PREMUL_SUM")
    return dist.ReduceOp(getattr(dist.ReduceOp.RedOpType, kind))


def _options(kind, async_op, **fields):
    options = kind()
    options.asyncOp = async_op
    for name, value in fields.items():
        setattr(options, name, value)
    return options


def _ended(work, async_op):
    """What torchcomms wants: a work to wait for, or None if it is done."""
    if async_op:
        return work
    work.wait()
    return None


class Backend(torchcomms.TorchCommBackend):
    """A communicator of torchcomms. Its methods are those of
    torchcomms.TorchCommBackend, which calls them."""

    def __init__(self):
        super().__init__()
        self._operations = None

    def init(self, device, name, options):
        rank, size = _who()
        store = options.store
        if store is None:
            store, rank, size = next(dist.rendezvous(
                "env://", rank, size, timeout=options.timeout))
        self._begin(store, rank, size, device, name, options)

    def _begin(self, store, rank, size, device, name, options):
        self._device = device
        self._store = dist.PrefixStore(f"dicomm/torchcomms/{name}", store)
        self._communicator = Communicator(
            self._store, rank, size, options.timeout, name,
            _device_of(device, DEVICES))
        self._operations = Operations()
        self._operations._begin(self._communicator, self._store)

    def split(self, ranks, name, options):
        """A communicator of these ranks, made by them alone; None for who
        gives no ranks, and is not to be in one."""
        ranks = list(ranks)
        if not ranks:
            return None
        rank = self._communicator.rank
        if rank not in ranks:
            raise ValueError(f"dicomm split: rank {rank}, which calls it, is"
                             f" not among the ranks {ranks}")
        part = Backend()
        part._begin(
            dist.PrefixStore(f"split/{','.join(map(str, ranks))}",
                             self._store),
            ranks.index(rank), len(ranks), self._device, name, options)
        return part

    def finalize(self):
        self._communicator.close()

    def set_timeout(self, timeout):
        self._communicator.set_timeout(timeout)

    def get_rank(self):
        return self._communicator.rank

    def get_size(self):
        return self._communicator.size

    def get_backend_name(self):
        return "dicomm"

    def get_comm_name(self):
        return self._communicator.name

    def send(self, tensor, dst, async_op):
        return _ended(self._operations.send([tensor], dst), async_op)

    def recv(self, tensor, src, async_op):
        return _ended(self._operations.recv([tensor], src), async_op)

    def broadcast(self, tensor, root, async_op):
        return _ended(self._operations.broadcast([tensor], _options(
            c10d.BroadcastOptions, async_op, rootRank=root)), async_op)

    def all_reduce(self, tensor, op, async_op):
        return _ended(self._operations.allreduce([tensor], _options(
            c10d.AllreduceOptions, async_op, reduceOp=_operator(op))),
            async_op)

    def reduce(self, tensor, root, op, async_op):
        return _ended(self._operations.reduce([tensor], _options(
            c10d.ReduceOptions, async_op, rootRank=root,
            reduceOp=_operator(op))), async_op)

    def all_gather(self, tensor_list, tensor, async_op):
        return _ended(self._operations.allgather(
            [tensor_list], [tensor],
            _options(c10d.AllgatherOptions, async_op)), async_op)

    all_gather_v = all_gather

    def all_gather_single(self, output, input, async_op):
        return _ended(self._operations.all_gather_single(
            output, input, _options(c10d.AllgatherOptions, async_op)),
            async_op)

    def reduce_scatter(self, output, input_list, op, async_op):
        return _ended(self._operations.reduce_scatter(
            [output], [input_list], _options(
                c10d.ReduceScatterOptions, async_op,
                reduceOp=_operator(op))), async_op)

    reduce_scatter_v = reduce_scatter

    def reduce_scatter_single(self, output, input, op, async_op):
        return _ended(self._operations.reduce_scatter_single(
            output, input, _options(
                c10d.ReduceScatterOptions, async_op,
                reduceOp=_operator(op))), async_op)

    def all_to_all_single(self, output, input, async_op):
        return self.all_to_all_v_single(output, input, [], [], async_op)

    def all_to_all_v_single(self, output, input, output_split_sizes,
                            input_split_sizes, async_op):
        return _ended(self._operations.all_to_all_single(
            output, input, output_split_sizes, input_split_sizes,
            _options(c10d.AllToAllOptions, async_op)), async_op)

    def all_to_all(self, output_tensor_list, input_tensor_list, async_op):
        return _ended(self._operations.alltoall(
            output_tensor_list, input_tensor_list,
            _options(c10d.AllToAllOptions, async_op)), async_op)

    def barrier(self, async_op):
        return _ended(self._operations.barrier(
            _options(c10d.BarrierOptions, async_op)), async_op)

    def scatter(self, output_tensor, input_tensor_list, root, async_op):
        lists = [input_tensor_list] if root == self.get_rank() else []
        return _ended(self._operations.scatter(
            [output_tensor], lists, _options(
                c10d.ScatterOptions, async_op, rootRank=root)), async_op)

    def gather(self, output_tensor_list, input_tensor, root, async_op):
        lists = [output_tensor_list] if root == self.get_rank() else []
        return _ended(self._operations.gather(
            lists, [input_tensor], _options(
                c10d.GatherOptions, async_op, rootRank=root)), async_op)


if not torchcomms._comms._is_backend_registered("dicomm"):
    torchcomms.register_backend("dicomm", Backend)
