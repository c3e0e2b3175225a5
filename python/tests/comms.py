# SPDX-License-Identifier: BSD-3-Clause
"""torchcomms over dicomm: each operation against its definition.

PyPI has a placeholder of torchcomms only, so this runs where somebody has built
it for the PyTorch of the tests.
"""

import os

import torch

import ranks


def _why_not():
    """Why torchcomms cannot be used, "" if it can."""
    try:
        import torchcomms  # noqa: F401
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def _same(tensor, wanted, what):
    assert tensor.tolist() == wanted, (what, tensor.tolist(), wanted)


def _call(work, async_op):
    work.wait()
    assert work.is_completed(), async_op


def _reductions(comm, rank, n, async_op):
    import torchcomms

    op = torchcomms.ReduceOp
    for operator, wanted in ((op.SUM, n * (n + 1) / 2), (op.MAX, n),
                             (op.MIN, 1), (op.AVG, (n + 1) / 2)):
        tensor = torch.full((3,), float(rank + 1))
        _call(comm.all_reduce(tensor, operator, async_op), async_op)
        _same(tensor, [wanted] * 3, operator)
    tensor = torch.full((2,), float(rank + 1))
    _call(comm.reduce(tensor, n - 1, op.SUM, async_op), async_op)
    if rank == n - 1:
        _same(tensor, [n * (n + 1) / 2] * 2, "reduce")
    total = [float(sum(range(n)) + n * r) for r in range(n)]
    parts = [torch.full((2,), float(rank + r)) for r in range(n)]
    out = torch.empty(2)
    _call(comm.reduce_scatter(out, parts, op.SUM, async_op), async_op)
    _same(out, [total[rank]] * 2, "reduce_scatter")
    _call(comm.reduce_scatter_single(
        out, torch.cat(parts), op.SUM, async_op), async_op)
    _same(out, [total[rank]] * 2, "reduce_scatter_single")
    parts = [torch.full((r + 1,), float(rank + r)) for r in range(n)]
    out = torch.empty(rank + 1)
    _call(comm.reduce_scatter_v(out, parts, op.SUM, async_op), async_op)
    _same(out, [total[rank]] * (rank + 1), "reduce_scatter_v")


def _moves(comm, rank, n, async_op):
    tensor = torch.full((2,), float(rank))
    _call(comm.broadcast(tensor, 1, async_op), async_op)
    _same(tensor, [1.0] * 2, "broadcast")
    mine = torch.full((2,), float(rank))
    out = [torch.empty(2) for _ in range(n)]
    _call(comm.all_gather(out, mine, async_op), async_op)
    _same(torch.stack(out), [[float(r)] * 2 for r in range(n)], "all_gather")
    out = torch.empty(2 * n)
    _call(comm.all_gather_single(out, mine, async_op), async_op)
    _same(out, [float(r) for r in range(n) for _ in range(2)], "single")
    out = [torch.empty(r + 1) for r in range(n)]
    _call(comm.all_gather_v(
        out, torch.full((rank + 1,), float(rank)), async_op), async_op)
    for r in range(n):
        _same(out[r], [float(r)] * (r + 1), "all_gather_v")
    out = [torch.empty(2) for _ in range(n)]
    _call(comm.gather(out if rank == 0 else [], mine, 0, async_op), async_op)
    if rank == 0:
        _same(torch.stack(out), [[float(r)] * 2 for r in range(n)], "gather")
    parts = [torch.full((2,), float(r)) for r in range(n)]
    out = torch.empty(2)
    _call(comm.scatter(out, parts if rank == 0 else [], 0, async_op),
          async_op)
    _same(out, [float(rank)] * 2, "scatter")


def _exchanges(comm, rank, n, async_op):
    out = torch.empty(n)
    _call(comm.all_to_all_single(
        out, torch.arange(n) + float(n * rank), async_op), async_op)
    _same(out, [float(n * r + rank) for r in range(n)], "all_to_all_single")
    out = torch.empty(n * (rank + 1))
    sizes = [r + 1 for r in range(n)]
    _call(comm.all_to_all_v_single(
        out, torch.full((sum(sizes),), float(rank)), [rank + 1] * n, sizes,
        async_op), async_op)
    _same(out, [float(r) for r in range(n) for _ in range(rank + 1)],
          "all_to_all_v_single")
    lists = [torch.empty(1) for _ in range(n)]
    _call(comm.all_to_all(
        lists, [torch.tensor([float(n * rank + r)]) for r in range(n)],
        async_op), async_op)
    _same(torch.cat(lists), [float(n * r + rank) for r in range(n)],
          "all_to_all")
    token = torch.tensor([float(rank)])
    send = comm.send(token, (rank + 1) % n, True)
    out = torch.empty(1)
    _call(comm.recv(out, (rank - 1) % n, async_op), async_op)
    send.wait()
    _same(out, [float((rank - 1) % n)], "send and recv")
    _call(comm.barrier(async_op), async_op)


def _operations(store, rank, n):
    import torchcomms

    os.environ.update(TORCHCOMM_RANK=str(rank), TORCHCOMM_SIZE=str(n))
    comm = torchcomms.new_comm(
        "dicomm", torch.device("cpu"), name="all", store=store)
    assert (comm.get_rank(), comm.get_size()) == (rank, n)
    assert comm.get_backend() == "dicomm"
    for async_op in (False, True):
        _reductions(comm, rank, n, async_op)
        _moves(comm, rank, n, async_op)
        _exchanges(comm, rank, n, async_op)
    members = [r for r in range(n) if r % 2 == rank % 2]
    part = comm.split(members, f"part{rank % 2}")
    assert part.get_size() == len(members), part.get_size()
    tensor = torch.ones(1)
    part.all_reduce(tensor, torchcomms.ReduceOp.SUM, False)
    _same(tensor, [float(len(members))], "all_reduce of a part")
    assert comm.split([], "nobody") is None
    part.finalize()
    comm.finalize()


def run(tell):
    why = _why_not()
    if why:
        print(f"skipped torchcomms: {why}", flush=True)
        return
    for n in (2, 4):
        try:
            ranks.values(ranks.run(n, _operations, seconds=120))
            tell(f"torchcomms, {n} ranks", None)
        except AssertionError as error:
            tell(f"torchcomms, {n} ranks", error)
