# SPDX-License-Identifier: BSD-3-Clause
"""Every operation of a process group, compared with what it is defined to do.

A case is a function of (rank, n); all ranks run all cases in order.
"""

import datetime
import os
import subprocess
import sys
import threading
import time

import torch
import torch.distributed as dist

CASES = []


def case(function=None, name=None):
    if function is None:
        return lambda given: case(given, name)
    CASES.append((name or function.__name__.replace("_", " "), function))
    return function


def same(a, b):
    """Equal elements, and equal bits where no comparison is defined."""
    assert a.dtype == b.dtype and a.shape == b.shape, (a, b)
    a, b = (x.detach().resolve_conj().contiguous().reshape(-1)
            for x in (a, b))
    assert torch.equal(a.view(torch.uint8), b.view(torch.uint8)), (a, b)


def refuses(kind, words, function):
    try:
        function()
    except kind as error:
        assert words in str(error), f"{error} does not say {words!r}"
        return
    raise AssertionError(f"not refused: {words}")


def numbers(rank, dtype, count=37):
    """Small whole numbers, exact in every type; different for each rank."""
    generator = torch.Generator().manual_seed(rank)
    return torch.randint(0, 3, (count,), generator=generator).to(dtype)


def of_all(n, dtype, count=37):
    return torch.stack([numbers(rank, torch.float64, count)
                        for rank in range(n)])


REDUCED = (
    "float32 float64 float16 bfloat16 int8 uint8 int16 int32 int64 uint16"
    " uint32 uint64 bool complex64 complex128 complex32 float8_e4m3fn"
    " float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz").split()
MOVED = REDUCED + ["float8_e8m0fnu"]


def _types():
    for name in REDUCED:
        dtype = getattr(torch, name)

        @case(name=f"all_reduce {name}")
        def _(rank, n, dtype=dtype):
            tensor = numbers(rank, dtype)
            dist.all_reduce(tensor)
            same(tensor, of_all(n, dtype).sum(0).to(dtype))

        @case(name=f"reduce_scatter_tensor {name}")
        def _(rank, n, dtype=dtype):
            out = torch.empty(5, dtype=dtype)
            dist.reduce_scatter_tensor(out, numbers(rank, dtype, 5 * n))
            total = of_all(n, dtype, 5 * n).sum(0).to(dtype)
            same(out, total[5 * rank:5 * rank + 5])

    for name in MOVED:
        dtype = getattr(torch, name)

        @case(name=f"moved {name}")
        def _(rank, n, dtype=dtype):
            mine = numbers(rank, dtype)
            every = [numbers(other, dtype) for other in range(n)]
            tensor = mine.clone()
            dist.broadcast(tensor, n - 1)
            same(tensor, every[-1])
            out = [torch.empty_like(mine) for _ in range(n)]
            dist.all_gather(out, mine)
            for a, b in zip(out, every):
                same(a, b)
            out = [torch.empty_like(mine) for _ in range(n)]
            dist.all_to_all(out, every)
            for a in out:
                same(a, mine)
            got = torch.empty_like(mine)
            works = dist.batch_isend_irecv([
                dist.P2POp(dist.isend, mine, (rank + 1) % n),
                dist.P2POp(dist.irecv, got, (rank - 1) % n)])
            for work in works:
                work.wait()
            same(got, every[rank - 1])


_types()


def _operators():
    integers = {
        "SUM": lambda x: x.sum(0), "PRODUCT": lambda x: x.prod(0),
        "MIN": lambda x: x.amin(0), "MAX": lambda x: x.amax(0),
        "BAND": lambda x: x[0] & x[1] if len(x) == 2 else (
            x[0] & x[1] & x[2] & x[3]),
        "BOR": lambda x: x[0] | x[1] if len(x) == 2 else (
            x[0] | x[1] | x[2] | x[3]),
        "BXOR": lambda x: x[0] ^ x[1] if len(x) == 2 else (
            x[0] ^ x[1] ^ x[2] ^ x[3])}
    floats = {"AVG": lambda x: x.sum(0) / len(x)}
    floats.update({name: integers[name]
                   for name in ("SUM", "PRODUCT", "MIN", "MAX")})
    for kind, table in ((torch.int64, integers), (torch.float32, floats)):
        for name, defined in table.items():
            @case(name=f"operator {name} of {kind}")
            def _(rank, n, kind=kind, name=name, defined=defined):
                every = torch.stack([
                    (torch.arange(9) * (r + 3) % 8 + 1).to(kind)
                    for r in range(n)])
                operator = getattr(dist.ReduceOp, name)
                tensor = every[rank].clone()
                dist.all_reduce(tensor, operator)
                same(tensor, defined(every).to(kind))
                tensor = every[rank].clone()
                dist.reduce(tensor, n - 1, operator)
                same(tensor, defined(every).to(kind) if rank == n - 1
                     else every[rank])


_operators()


@case
def operators_of_bool(rank, n):
    for operator, defined in (("SUM", torch.any), ("MAX", torch.any),
                              ("PRODUCT", torch.all), ("BAND", torch.all)):
        every = torch.stack([torch.tensor([True, r == 0, False])
                             for r in range(n)])
        tensor = every[rank].clone()
        dist.all_reduce(tensor, getattr(dist.ReduceOp, operator))
        same(tensor, defined(every, 0))
    tensor = torch.tensor([True, rank == 0, False])
    dist.all_reduce(tensor, dist.ReduceOp.BXOR)
    same(tensor, torch.tensor([bool(n % 2), True, False]))


@case
def operators_of_complex_numbers(rank, n):
    total = n * (n + 1) / 2
    for dtype in (torch.complex64, torch.complex128):
        for operator, factor in ((dist.ReduceOp.SUM, 1),
                                 (dist.ReduceOp.AVG, 1 / n),
                                 (dist._make_nccl_premul_sum(0.5), 0.5)):
            tensor = torch.full((3,), complex(rank + 1, -1), dtype=dtype)
            dist.all_reduce(tensor, operator)
            same(tensor, torch.full(
                (3,), complex(total, -n) * factor, dtype=dtype))


@case
def premul_sum(rank, n):
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
        for factor in (0.5, torch.tensor([0.5])):
            tensor = torch.full((5,), 3.0 + rank, dtype=dtype)
            dist.all_reduce(tensor, dist._make_nccl_premul_sum(factor))
            same(tensor, torch.full((5,), sum(
                (3.0 + r) / 2 for r in range(n)), dtype=dtype))
    for _ in range(100):  # more than the library has room for at a time
        dist.all_reduce(tensor, dist._make_nccl_premul_sum(0.0))


@case
def what_makes_no_sense_is_refused(rank, n):
    red = dist.ReduceOp
    refuses(ValueError, "bitwise", lambda: dist.all_reduce(
        torch.ones(1), red.BAND))
    refuses(ValueError, "AVG", lambda: dist.all_reduce(
        torch.ones(1, dtype=torch.bool), red.AVG))
    refuses(ValueError, "contiguous", lambda: dist.all_to_all_single(
        torch.ones(n, n), torch.ones(n, n).t()))
    refuses(TypeError, "float8_e8m0fnu", lambda: dist.all_reduce(
        torch.ones(1).to(torch.float8_e8m0fnu)))
    for tag in (-1, 1 << 31):
        refuses(ValueError, f"tag {tag}", lambda: dist.isend(
            torch.ones(1), (rank + 1) % n, tag=tag))
        refuses(ValueError, f"tag {tag}", lambda: dist.irecv(
            torch.ones(1), tag=tag))
    refuses(NotImplementedError, "no source to find", lambda: dist.recv(
        torch.ones(0)))
    refuses(ValueError, "5", lambda: dist.all_gather_into_tensor(
        torch.ones(2 * n + 1), torch.ones(5)))
    refuses(ValueError, "splits", lambda: dist.all_to_all_single(
        torch.ones(n), torch.ones(n), [1] * (n - 1) + [7], [1] * n))
    refuses(TypeError, "one type", lambda:
            dist.group.WORLD._allgather_base(
                torch.ones(n, dtype=torch.int32), torch.ones(1)))
    refuses(ValueError, "summed only, not reduced by MAX", lambda:
            dist.all_reduce(torch.ones(1).to_sparse(), red.MAX))
    # Where somebody looks, the dispatcher comes first. It has nothing for
    # "SparseCsrCPU", and on meta it does nothing.
    refuses((ValueError, NotImplementedError), "parse", lambda:
            dist.all_reduce(torch.ones(1, 1).to_sparse_csr()))
    if "TORCH_FR_BUFFER_SIZE" not in os.environ:
        refuses(ValueError, "on meta, but this rank of group 0 is bound to"
                " host", lambda: dist.all_reduce(
                    torch.ones(1, device="meta")))
    tensor = torch.ones(1)
    dist.all_reduce(tensor)  # and the group is as it was
    assert tensor == n


@case
def scalars_and_empty_tensors(rank, n):
    tensor = torch.tensor(1.0 + rank)
    dist.all_reduce(tensor)
    assert tensor.item() == n * (n + 1) / 2
    empty = torch.empty(0, 3)
    dist.all_reduce(empty)
    dist.broadcast(empty, 0)
    dist.all_gather([torch.empty(0) for _ in range(n)], torch.empty(0))
    dist.all_to_all_single(torch.empty(0), torch.empty(0))
    dist.all_gather_into_tensor(torch.empty(0), torch.empty(0))
    dist.reduce_scatter_tensor(torch.empty(0), torch.empty(0))


@case
def layouts(rank, n):
    total = n * (n + 1) / 2
    every_other = torch.ones(4, 6)[:, ::2] * (rank + 1)
    dist.all_reduce(every_other)
    same(every_other, torch.full((4, 3), total))
    base = torch.zeros(4, 6)
    view = base[:, ::2]
    view += rank + 1
    dist.all_reduce(view)
    same(base[:, ::2], torch.full((4, 3), total))
    same(base[:, 1::2], torch.zeros(4, 3))
    turned = (torch.arange(12.0).view(3, 4) * (rank + 1)).t()
    dist.all_reduce(turned)
    same(turned, (torch.arange(12.0).view(3, 4) * total).t())
    last = torch.arange(120.0).view(2, 3, 4, 5)
    want = last * n
    last = last.to(memory_format=torch.channels_last)
    dist.all_reduce(last)
    same(last, want)
    columns = [torch.empty(4, 2)[:, 0] for _ in range(n)]
    dist.all_gather(columns, torch.full((4,), float(rank)))
    for r, column in enumerate(columns):
        same(column, torch.full((4,), float(r)))
    column = torch.full((4, 2), float(rank))[:, 1]
    dist.broadcast(column, n - 1)
    same(column, torch.full((4,), n - 1.0))


@case
def negated_views(rank, n):
    """They are not what is in their memory. (torch itself refuses conjugated
    ones.)"""
    value = torch.full((3,), complex(1, rank + 1))
    part = value.conj().imag
    assert part.is_neg()
    dist.all_reduce(part)
    same(value.imag, torch.full((3,), n * (n + 1) / 2))
    out = [torch.empty(3) for _ in range(n)]
    dist.all_gather(out, part)
    same(out[n - 1], torch.full((3,), -n * (n + 1) / 2))


@case
def requires_grad(rank, n):
    tensor = torch.ones(3, requires_grad=True)
    with torch.no_grad():
        dist.all_reduce(tensor)
    same(tensor, torch.full((3,), float(n)))
    column = torch.ones(3, 2, requires_grad=True)
    dist.broadcast(column.detach()[:, 0], 0)


@case
def lists_of_unlike_lengths(rank, n):
    out = [torch.empty(r + 1) for r in range(n)]
    dist.all_gather(out, torch.full((rank + 1,), float(rank)))
    for r, tensor in enumerate(out):
        same(tensor, torch.full((r + 1,), float(r)))
    out = torch.empty(rank + 1)
    dist.reduce_scatter(
        out, [torch.full((r + 1,), float(r + rank)) for r in range(n)])
    same(out, torch.full((rank + 1,), float(
        sum(rank + r for r in range(n)))))
    out = [torch.empty(rank + 1) for _ in range(n)]
    dist.all_to_all(
        out, [torch.full((r + 1,), float(rank)) for r in range(n)])
    for r, tensor in enumerate(out):
        same(tensor, torch.full((rank + 1,), float(r)))


@case
def lists_to_and_from_the_same_tensors(rank, n):
    every = [torch.full((2,), float(rank * n + r)) for r in range(n)]
    dist.all_to_all(every, every)
    for r, tensor in enumerate(every):
        same(tensor, torch.full((2,), float(r * n + rank)))
    for mine in (rank, 0):
        every = [torch.full((2,), float(rank)) for _ in range(n)]
        dist.all_gather(every, every[mine])
        for r, tensor in enumerate(every):
            same(tensor, torch.full((2,), float(r)))
        every = [torch.full((2,), float(rank)) for _ in range(n)]
        dist.gather(every[mine], every if rank == n - 1 else None, dst=n - 1)
        same(every[0], torch.full((2,), float(0 if rank == n - 1 else rank)))
        every = [torch.full((2,), float(r)) for r in range(n)]
        dist.scatter(every[mine], every if rank == 0 else None, src=0)
        same(every[mine], torch.full((2,), float(rank)))
        every = [torch.full((2,), float(r)) for r in range(n)]
        dist.reduce_scatter(every[mine], every)
        same(every[mine], torch.full((2,), float(rank * n)))


@case
def lists_that_are_one_buffer(rank, n):
    flat = torch.empty(3 * n)
    dist.all_gather(list(flat.chunk(n)), torch.full((3,), float(rank)))
    same(flat, torch.arange(float(n)).repeat_interleave(3))
    source = torch.arange(3.0 * n)
    out = torch.empty(3)
    dist.reduce_scatter(out, list(source.chunk(n)))
    same(out, source[3 * rank:3 * rank + 3] * n)
    dist.all_to_all(list(flat.chunk(n)), list(source.chunk(n)))
    same(flat, torch.arange(3.0 * rank, 3 * rank + 3).repeat(n))


@case
def into_one_tensor(rank, n):
    out = torch.empty(n, 2, 3)
    dist.all_gather_into_tensor(out, torch.full((2, 3), float(rank)))
    same(out[:, 1, 2], torch.arange(float(n)))
    dist.all_gather_into_tensor(out.view(-1), out[rank].view(-1))  # in place
    same(out[:, 0, 0], torch.arange(float(n)))
    source = torch.arange(2.0 * n)
    for operator, factor in ((dist.ReduceOp.SUM, n), (dist.ReduceOp.AVG, 1),
                             (dist._make_nccl_premul_sum(0.5), n / 2)):
        out = torch.empty(2)
        dist.reduce_scatter_tensor(out, source, operator)
        same(out, factor * source[2 * rank:2 * rank + 2])


@case
def all_to_all_with_splits(rank, n):
    out = torch.empty(n)
    dist.all_to_all_single(out, torch.arange(float(n)) + rank * n)
    same(out, torch.arange(float(n)) * n + rank)
    source = torch.full((sum(r + 1 for r in range(n)), 2), float(rank))
    out = torch.empty(n * (rank + 1), 2)
    dist.all_to_all_single(
        out, source, [rank + 1] * n, [r + 1 for r in range(n)])
    same(out[:, 0], torch.arange(float(n)).repeat_interleave(rank + 1))
    # To the next only, and nothing else.
    to_next = [int(r == (rank + 1) % n) for r in range(n)]
    from_last = [int(r == (rank - 1) % n) for r in range(n)]
    out = torch.empty(1)
    dist.all_to_all_single(out, torch.tensor([float(rank)]), from_last,
                           to_next)
    assert out == (rank - 1) % n


@case
def gather_and_scatter(rank, n):
    for root in (0, n - 1):
        out = [torch.empty(2) for _ in range(n)] if rank == root else None
        dist.gather(torch.full((2,), float(rank)), out, dst=root)
        for r, tensor in enumerate(out or []):
            same(tensor, torch.full((2,), float(r)))
        source = [torch.full((2,), float(r)) for r in range(n)] if (
            rank == root) else None
        got = torch.empty(2)
        dist.scatter(got, source, src=root)
        same(got, torch.full((2,), float(rank)))
    out = torch.empty(2 * n) if rank == 0 else torch.empty(0)
    group = dist.group.WORLD
    options = torch._C._distributed_c10d.GatherOptions()
    options.rootRank = 0
    group.gather_single(out, torch.full((2,), float(rank)), options).wait()
    if rank == 0:
        same(out, torch.arange(float(n)).repeat_interleave(2))


@case
def coalesced(rank, n):
    tensors = [torch.ones(3), torch.ones(5)]
    with dist._coalescing_manager():
        for tensor in tensors:
            dist.all_reduce(tensor)
    assert all((tensor == n).all() for tensor in tensors)
    outs = [torch.empty(n * k) for k in (1, 4)]
    with dist._coalescing_manager(async_ops=True) as manager:
        for k, out in zip((1, 4), outs):
            dist.all_gather_into_tensor(out, torch.full((k,), float(rank)))
    manager.wait()
    for k, out in zip((1, 4), outs):
        same(out, torch.arange(float(n)).repeat_interleave(k))
    outs = [torch.empty(k) for k in (1, 4)]
    with dist._coalescing_manager():
        for k, out in zip((1, 4), outs):
            dist.reduce_scatter_tensor(out, torch.ones(k * n))
    assert all((out == n).all() for out in outs)
    tensors = [torch.full((3,), float(rank)), torch.full((5,), float(rank))]
    with dist._coalescing_manager(
            device=torch.device("cpu"), async_ops=True) as manager:
        for tensor in tensors:
            dist.broadcast(tensor, n - 1)
    manager.wait()
    assert all((tensor == n - 1).all() for tensor in tensors)
    group = dist.group.WORLD
    # out[r][i] is what rank r gave as its i-th.
    outs = [[torch.empty(2), torch.empty(3)] for _ in range(n)]
    group.allgather_coalesced(
        outs, [torch.full((k,), float(rank)) for k in (2, 3)]).wait()
    for r in range(n):
        assert all((tensor == r).all() for tensor in outs[r])


@case
def exchange_of_4_MB(rank, n):
    peer = rank ^ 1
    mine, theirs = torch.full((1 << 20,), float(rank)), torch.empty(1 << 20)
    works = [dist.isend(mine, peer), dist.irecv(theirs, peer)]
    for work in works:
        work.wait()
    assert (theirs == peer).all()
    assert works[1]._source_rank() == peer


@case
def messages_of_a_pair_keep_their_order(rank, n):
    if rank == 0:
        works = [dist.isend(torch.full((1 + i,), float(i)), 1)
                 for i in range(20)]
    elif rank == 1:
        outs = [torch.empty(1 + i) for i in range(20)]
        works = [dist.irecv(out, 0) for out in outs]
    else:
        return
    for work in reversed(works):
        work.wait()
    if rank == 1:
        for i, out in enumerate(outs):
            same(out, torch.full((1 + i,), float(i)))


@case
def messages_are_matched_by_their_tags(rank, n):
    """Sent in one order, received in another; short ones, and one that is too
    long to leave before its receive is there."""
    lengths = {7: 3, 2: 1 << 16, 0: 5, 1 << 30: 1}
    if rank == 0:
        works = [dist.isend(torch.full((length,), float(tag)), 1, tag=tag)
                 for tag, length in lengths.items()]
    elif rank == 1:
        outs = {tag: torch.empty(length)
                for tag, length in reversed(lengths.items())}
        works = [dist.irecv(out, 0, tag=tag) for tag, out in outs.items()]
    else:
        return
    for work in works:
        work.wait()
    if rank == 1:
        for tag, out in outs.items():
            same(out, torch.full((lengths[tag],), float(tag)))
        assert all(work._source_rank() == 0 for work in works)


@case
def messages_with_one_tag_keep_their_order(rank, n):
    if rank == 0:
        for i in range(20):
            dist.send(torch.tensor([i]), 1, tag=3)
            dist.send(torch.tensor([100 + i]), 1, tag=4)
    elif rank == 1:
        for first, tag in ((100, 4), (0, 3)):
            for i in range(20):
                got = torch.empty(1, dtype=torch.int64)
                dist.recv(got, 0, tag=tag)
                assert got == first + i, (got, first + i)


@case
def batches_with_tags(rank, n):
    """All ranks exchange three messages with their neighbours, whose tags
    alone tell them apart."""
    right, left = (rank + 1) % n, (rank - 1) % n
    mine = [torch.full((4,), 10.0 * rank + tag) for tag in range(3)]
    theirs = [torch.empty(4) for _ in range(3)]
    operations = [dist.P2POp(dist.isend, mine[tag], right, tag=tag)
                  for tag in (2, 0, 1)]
    operations += [dist.P2POp(dist.irecv, theirs[tag], left, tag=tag)
                   for tag in (1, 2, 0)]
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    for tag in range(3):
        same(theirs[tag], torch.full((4,), 10.0 * left + tag))


@case
def a_receive_from_any_source_tells_whose_it_was(rank, n):
    for tag in (0, 9):
        for length in (3, 1 << 16):
            dist.barrier()  # a message of the next length would be taken, too
            if rank:
                dist.send(torch.full((length,), float(rank)), 0, tag=tag)
                continue
            sources = set()
            for _ in range(1, n):
                got = torch.empty(length)
                source = dist.recv(got, tag=tag)
                same(got, torch.full((length,), float(source)))
                sources.add(source)
            assert sources == set(range(1, n)), sources
    dist.barrier()
    if rank == 0:
        got = torch.empty(3)
        work = dist.irecv(got)
        assert work._source_rank() == -1
        dist.send(torch.empty(1), n - 1)
        work.wait()
        assert work._source_rank() == n - 1 and (got == n - 1).all()
    elif rank == n - 1:
        dist.recv(torch.empty(1), 0)
        dist.send(torch.full((3,), float(rank)), 0)
    dist.barrier()


@case
def any_source_of_a_group(rank, n):
    last = [n - 2, n - 1]
    group = dist.new_group(last)
    if rank == n - 1:
        dist.send(torch.ones(1), n - 2, group=group, tag=5)
    elif rank == n - 2:
        got = torch.zeros(1)
        assert dist.recv(got, group=group, tag=5) == n - 1 and got == 1
    if rank in last:
        dist.destroy_process_group(group)


@case
def batches_of_many_pairs(rank, n):
    mine, theirs = torch.full((n, 100), float(rank)), torch.empty(n, 100)
    others = [peer for peer in range(n) if peer != rank]
    operations = [dist.P2POp(dist.isend, mine[peer], peer) for peer in others]
    operations += [dist.P2POp(dist.irecv, theirs[peer], peer)
                   for peer in others]
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    for peer in others:
        assert (theirs[peer] == peer).all()


@case
def one_that_waits_keeps_nobody_else(rank, n):
    """A thread sends while the main thread is in a barrier that ends only
    when what was sent has arrived."""
    if rank == 0:
        thread = threading.Timer(
            0.2, lambda: dist.send(torch.tensor([3.0]), 1))
        thread.start()
    elif rank == 1:
        got = torch.zeros(1)
        dist.recv(got, 0)
        assert got == 3
    dist.barrier()
    if rank == 0:
        thread.join()


@case
def a_poll_gets_true_in_the_end(rank, n):
    tensor = torch.ones(1000)
    work = dist.all_reduce(tensor, async_op=True)
    end = time.monotonic() + 30
    while not work.is_completed():
        assert time.monotonic() < end
        time.sleep(0.001)
    assert work.is_success() and work.exception() is None
    assert (tensor == n).all()
    work = dist.barrier(async_op=True)
    work.wait()
    assert work.is_completed()


@case
def a_poll_sees_what_is_not_there_yet(rank, n):
    if rank == 0:
        first, second = torch.empty(1), torch.empty(1)
        one = dist.irecv(first, 1)
        assert not one.is_completed()
        other = dist.irecv(second, 1)
        dist.send(torch.ones(1), 1)
        one.wait()
        other.wait()
        assert first == 1 and second == 2
    elif rank == 1:
        dist.recv(torch.empty(1), 0)
        dist.send(torch.tensor([1.0]), 0)
        dist.send(torch.tensor([2.0]), 0)


@case
def futures(rank, n):
    tensor = torch.ones(10)
    work = dist.all_reduce(tensor, async_op=True)
    total = work.get_future().then(lambda f: f.value()[0].sum().item())
    assert total.wait() == 10 * n
    assert work.get_future().wait()[0] is tensor
    assert work.result()[0] is tensor
    kind = torch._C._distributed_c10d.WorkResult
    assert work.get_future_result().wait() == kind.SUCCESS


@case
def a_callback_waits_for_another_operation(rank, n):
    """As the hook of PowerSGD does, and deeper."""
    first, second, third = (torch.ones(k) for k in (10, 20, 30))

    def again(future):
        inner = dist.all_reduce(second, async_op=True)
        last = dist.all_reduce(third, async_op=True)
        last.get_future().wait()
        return inner.get_future().wait()[0]

    work = dist.all_reduce(first, async_op=True)
    out = work.get_future().then(again).wait()
    assert (out == n).all() and (third == n).all()


@case
def handles_that_nobody_keeps(rank, n):
    # Columns: the result is copied there by who sees the operation end.
    tensors = [torch.ones(1000, 2)[:, 0] for _ in range(64)]
    for tensor in tensors:
        dist.all_reduce(tensor, async_op=True)
    dist.barrier()
    end = time.monotonic() + 30
    while not all((tensor == n).all() for tensor in tensors):
        assert time.monotonic() < end
        time.sleep(0.01)


@case
def two_threads_wait_for_one_operation(rank, n):
    for _ in range(20):
        tensor = torch.ones(1000)
        work = dist.all_reduce(tensor, async_op=True)
        results = []
        threads = [threading.Thread(target=lambda: results.append(work.wait()))
                   for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert results == [True] * 3 and (tensor == n).all()


@case
def a_wait_that_times_out_leaves_the_operation(rank, n):
    if rank == 0:
        tensor = torch.ones(1)
        work = dist.irecv(tensor, 1)
        refuses(dist.DistBackendError, "Timed out", lambda: work.wait(
            datetime.timedelta(milliseconds=50)))
        dist.send(torch.zeros(1), 1)
        work.wait()
        assert tensor == 5
    elif rank == 1:
        dist.recv(torch.ones(1), 0)
        dist.send(torch.full((1,), 5.0), 0)


@case
def objects(rank, n):
    out = [None] * n
    dist.all_gather_object(out, {"rank": rank, "text": "a" * (rank + 1)})
    assert [value["rank"] for value in out] == list(range(n))
    values = [rank, "x"]
    dist.broadcast_object_list(values, 0)
    assert values == [0, "x"]
    out = [None] * n if rank == 0 else None
    dist.gather_object(("a", rank), out)
    assert rank or out[-1] == ("a", n - 1)
    out = [None]
    dist.scatter_object_list(out, list(range(n)) if rank == 0 else None)
    assert out == [rank]
    if rank == 0:
        dist.send_object_list([1, "b"], 1)
    elif rank == 1:
        out = [None, None]
        dist.recv_object_list(out, 0)
        assert out == [1, "b"]


def monitored_barrier(seconds, **more):
    """As dist.monitored_barrier(), which up to torch 2.13 asks gloo only."""
    dist.group.WORLD.monitored_barrier(
        datetime.timedelta(seconds=seconds), **more)


@case
def a_monitored_barrier(rank, n):
    monitored_barrier(30)


@case
def a_monitored_barrier_names_who_is_missing(rank, n):
    if rank != 1:
        refuses(RuntimeError, "Rank 1 failed",
                lambda: monitored_barrier(1, wait_all_ranks=True))
    dist.barrier()


@case
def a_new_group(rank, n):
    group = dist.new_group([1, 0])
    if rank < 2:
        tensor = torch.ones(1)
        dist.all_reduce(tensor, group=group)
        assert tensor == 2
        dist.destroy_process_group(group)
    if n == 4:
        group, _ = dist.new_subgroups(2)
        tensor = torch.ones(1) * rank
        dist.all_reduce(tensor, group=group)
        assert tensor == (1 if rank < 2 else 5)
        dist.destroy_process_group(group)
    tensor = torch.ones(1)
    dist.all_reduce(tensor)
    assert tensor == n


@case
def groups_of_one(rank, n):
    groups = [dist.new_group([r]) for r in range(n)]
    tensor = torch.ones(1)
    dist.all_reduce(tensor, group=groups[rank])
    out = torch.empty(1)
    dist.all_gather_into_tensor(out, tensor, group=groups[rank])
    assert tensor == 1 and out == 1
    dist.destroy_process_group(groups[rank])


@case
def a_split(rank, n):
    try:
        group = dist.split_group(
            split_ranks=[[i, i + 1] for i in range(0, n, 2)])
    except RuntimeError as error:
        if "No device associated" in str(error):
            return  # torch up to 2.14 splits only what is bound to a GPU
        raise
    tensor = torch.ones(1) * rank
    dist.all_reduce(tensor, group=group)
    assert tensor == 2 * (rank // 2 * 2) + 1
    work = dist.barrier(group=group, async_op=True)
    work.wait()
    assert work.is_completed()
    dist.destroy_process_group(group)


def _works_of_some(rank, n):
    """Some operations, and their works."""
    tensor, all_of_it = torch.ones(3), torch.empty(3 * n)
    works = [dist.all_reduce(tensor, async_op=True)]
    works[0].wait()
    dist.all_gather_into_tensor(all_of_it, tensor)
    works += dist.batch_isend_irecv(
        [dist.P2POp(dist.isend, torch.ones(2), (rank + 1) % n),
         dist.P2POp(dist.irecv, torch.empty(2), (rank - 1) % n)])
    dist.barrier()
    for work in works:
        work.wait()
    assert (all_of_it == n).all()
    return works


SOME = ["c10d.allreduce_", "c10d._allgather_base_", "c10d.send",
        "c10d.recv_", "c10d.barrier"]


def _has_dispatcher():
    from dicomm_torch._group import HAS_BACKEND

    return HAS_BACKEND


@case
def the_dispatcher_sees_operations_if_somebody_looks(rank, n):
    from torch.utils._python_dispatch import TorchDispatchMode

    if not _has_dispatcher():
        return
    seen = []

    class Look(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            seen.append(str(function).removesuffix(".default"))
            return function(*args, **kwargs or {})

    with Look():
        works = _works_of_some(rank, n)
        try:
            dist.broadcast(torch.ones(1), n)
        except ValueError:
            pass
    assert [name for name in seen if name in SOME] == SOME, seen
    assert all(work.is_completed() for work in works)
    with torch.autograd.profiler.profile(record_shapes=True) as profile:
        _works_of_some(rank, n)
    names = {event.key for event in profile.key_averages()}
    assert {name.replace(".", "::") for name in SOME} <= names, names
    shapes = {event.key: event.input_shapes for event in
              profile.key_averages(group_by_input_shape=True)}
    assert shapes["dicomm:all_reduce"] == [[3]], shapes


@case
def the_dispatcher_takes_tensors_that_are_not_there(rank, n):
    from torch._subclasses.fake_tensor import FakeTensorMode

    if not _has_dispatcher():
        return
    mode = FakeTensorMode()
    before = dist.group.WORLD._get_sequence_number_for_group()
    with mode:
        dist.all_gather_into_tensor(torch.empty(3 * n), torch.ones(3))
    dist.all_reduce(mode.from_tensor(torch.ones(3)))  # and by itself
    assert dist.group.WORLD._get_sequence_number_for_group() == before


@case
def hooks_of_a_group_see_operations(rank, n):
    """The flight recorder's is one of them."""
    import pickle

    if not _has_dispatcher():
        return
    group = dist.new_group()
    seen = []
    group.register_pre_hook(7, lambda about: seen.append(about.name))
    for _ in range(2):
        dist.all_reduce(torch.ones(3), group=group)
    assert len(seen) == 2, seen
    recorded = pickle.loads(torch._C._distributed_c10d._dump_fr_trace(
        backend="dicomm"))["entries"]
    assert [entry["input_sizes"] for entry in recorded[-2:]] == [[[3]]] * 2
    group.unregister_pre_hook(7)
    dist.destroy_process_group(group)


@case
def functional_collectives(rank, n):
    import torch.distributed._functional_collectives as functional

    world = dist.group.WORLD
    assert (functional.all_reduce(torch.ones(3), "sum", world) + 0 == n).all()
    out = functional.all_gather_tensor(torch.ones(2, 3), 0, world) + 0
    assert out.shape == (2 * n, 3)
    out = functional.reduce_scatter_tensor(
        torch.ones(2 * n, 3), "sum", 0, world) + 0
    assert (out == n).all()
    out = functional.all_to_all_single(
        torch.full((n,), float(rank)), [1] * n, [1] * n, world) + 0
    same(out, torch.arange(float(n)))
    outs = functional.all_reduce_coalesced(
        [torch.ones(2), torch.ones(3)], "sum", world)
    assert all((out + 0 == n).all() for out in outs)


@case
def with_autograd(rank, n):
    import torch.distributed.nn.functional as functional

    tensor = torch.ones(3, requires_grad=True)
    functional.all_reduce(tensor).sum().backward()
    assert (tensor.grad == n).all()


@case
def sparse_tensors(rank, n):
    for asynchronous in (False, True):
        tensor = torch.sparse_coo_tensor(
            [[rank, rank + 1]], [1.0, 2.0], (n + 1,))
        work = dist.all_reduce(tensor, async_op=asynchronous)
        if asynchronous:
            work.wait()
        want = torch.zeros(n + 1)
        for r in range(n):
            want[r] += 1
            want[r + 1] += 2
        same(tensor.to_dense(), want)


@case
def sequence_numbers(rank, n):
    group = dist.group.WORLD
    before = group._get_sequence_number_for_group()
    first = dist.all_reduce(torch.ones(1), async_op=True)
    second = dist.all_reduce(torch.ones(1), async_op=True)
    first.wait()
    second.wait()
    assert (second._get_sequence_number()
            == first._get_sequence_number() + 1 == before + 2)


@case
def works_tell_what_they_are_and_how_long_they_took(rank, n):
    group = dist.new_group(backend="dicomm")
    tensor = torch.ones(8)
    work = dist.all_reduce(tensor, group=group, async_op=True)
    work.wait()
    refuses(RuntimeError, "does not measure", work._get_duration)
    group._enable_collectives_timing()
    began = time.perf_counter()
    work = dist.all_reduce(tensor, group=group, async_op=True)
    work.wait()
    most = 1000 * (time.perf_counter() - began)
    time.sleep(0.05)
    assert 0 < work._get_duration() <= most, (work._get_duration(), most)
    kinds = torch._C._distributed_c10d.OpType
    works = [
        (kinds.ALLREDUCE, work),
        (kinds.BROADCAST, dist.broadcast(tensor, 0, group, async_op=True)),
        (kinds.ALLGATHER, dist.all_gather(
            [torch.empty(8) for _ in range(n)], tensor, group,
            async_op=True)),
        (kinds._REDUCE_SCATTER_BASE, dist.reduce_scatter_tensor(
            torch.empty(8), torch.ones(8 * n), group=group, async_op=True)),
        (kinds.BARRIER, dist.barrier(group, async_op=True))]
    for kind, work in works:
        work.wait()
        assert work._get_op_type() == kind, (kind, work._get_op_type())
    dist.destroy_process_group(group)


def _default_is(value):
    """What torch takes by default where DICOMM_TORCH_DEFAULT is value, in a
    program that does not know of dicomm."""
    program = ("import torch.distributed as dist\n"
               "print(dist.get_default_backend_for_device('cpu'),"
               " dist.get_default_backend_for_device('cuda'))")
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True,
        env={**os.environ, "DICOMM_TORCH_DEFAULT": value}, check=False)
    return done.stdout.split() or done.stderr


@case
def the_default_where_the_user_says_so(rank, n):
    import dicomm_torch

    before = dict(dist.Backend.default_device_backend_map)
    try:
        assert dist.get_default_backend_for_device("cpu") == "gloo"
        refuses(ValueError, "'tpu'", lambda: dicomm_torch.set_default("tpu"))
        dicomm_torch.set_default("cpu")
        assert dist.get_default_backend_for_device("cpu") == "dicomm"
        assert dist.get_default_backend_for_device("cuda") == "nccl"
    finally:
        dist.Backend.default_device_backend_map.update(before)
    assert dicomm_torch.__version__[0].isdigit(), dicomm_torch.__version__
    if rank or n > 2 or not _has_dispatcher():
        return
    assert _default_is("") == ["gloo", "nccl"]
    assert _default_is("1") == ["dicomm", "dicomm"]
    assert _default_is("cpu") == ["dicomm", "nccl"]
    assert "'tpu' is no kind of device" in _default_is("cpu,tpu")


@case
def the_profiler_names_operations(rank, n):
    with torch.autograd.profiler.profile() as profile:
        dist.all_reduce(torch.ones(3))
    assert any(event.key == "dicomm:all_reduce"
               for event in profile.key_averages())


@case
def the_child_of_a_fork_is_harmless(rank, n):
    pid = os.fork()
    if pid == 0:
        try:
            dist.all_reduce(torch.ones(1))
            os._exit(1)
        except dist.DistBackendError as error:
            os._exit(0 if "parent" in str(error) else 2)
        except BaseException as error:
            print(type(error), error)
            os._exit(3)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert status == 0, status
    tensor = torch.ones(1)
    dist.all_reduce(tensor)
    assert tensor == n


@case
def workers_of_a_data_loader(rank, n):
    loader = torch.utils.data.DataLoader(
        range(8), batch_size=2, num_workers=2)
    for batch in loader:
        total = batch.sum()
        dist.all_reduce(total)
        assert total == n * batch.sum()


@case
def explain(rank, n):
    import dicomm_torch

    text = dicomm_torch.explain()
    assert f"rank {rank} of {n} on host" in text, text
    assert "allreduce of 16777216 bytes" in text, text
    refuses(ValueError, "no process group", lambda: dicomm_torch.explain(3))


def _sum_of_ranks(group):
    total = torch.tensor([float(group.rank())])
    dist.all_reduce(total, group=group)
    return total.item()


@case
def a_group_is_reconfigured(rank, n):
    c10d = torch._C._distributed_c10d
    if not hasattr(c10d, "ReconfigureOptions"):
        return
    group = dist.new_group()
    assert group.supports_reconfigure
    for round, kind in enumerate((list, set, list)):
        handles = [None] * n
        dist.all_gather_object(handles, group.get_reconfigure_handle())
        assert handles[rank] == group.get_reconfigure_handle()
        options = c10d.ReconfigureOptions()
        options.uuid = round
        # The other way round; in any order; without the last one.
        options.handles = kind(handles[::-1] if round == 0 else handles)
        if round == 2 and n > 2:
            options.handles = handles[:-1]
            if rank == n - 1:
                refuses(ValueError, "0 of", lambda: group.reconfigure(options))
                continue
        group.reconfigure(options).wait()
        members = len(options.handles)
        assert group.size() == members, group.size()
        if round == 0:
            assert group.rank() == n - 1 - rank
        assert _sum_of_ranks(group) == members * (members - 1) / 2
        dist.barrier(group=group)
    dist.barrier()


@case
def a_window_takes_what_the_others_put(rank, n):
    group = dist.group.WORLD
    assert group.supports_window
    room = torch.full((n, 3), -1.0)
    window = group.new_window(room)
    for round in range(3):
        for shift in range(n):  # also to itself
            peer = (rank + shift) % n
            window.put(torch.full((3,), rank + 10.0 * round), peer, 3 * rank,
                       False)
            window.signal(peer, False)
        for peer in range(n):
            window.wait_signal(peer, False)
        for peer in range(n):
            assert room[peer].tolist() == [peer + 10.0 * round] * 3, room
        dist.barrier()
    assert window.map_remote_tensor(rank).data_ptr() == room.data_ptr()
    if hasattr(torch._C._distributed_c10d, "WindowAttr"):
        window.get_attr((rank + 1) % n)
    window.tensor_deregister()


@case
def a_put_that_is_waited_for_later(rank, n):
    window = dist.group.WORLD.new_window()
    small = torch.zeros(4, dtype=torch.bfloat16)
    refuses(ValueError, "no tensor", lambda: window.put(small, 0, 0, True))
    window.tensor_register(small)
    other = dist.group.WORLD.new_window(torch.zeros(1 << 16))
    peer, before = (rank + 1) % n, (rank - 1) % n
    many = torch.arange(1 << 16, dtype=torch.float32) + rank
    works = [window.put(torch.ones(4, dtype=torch.bfloat16)[::2], peer, 2, True),
             other.put(many, peer, 0, True),
             window.signal(peer, True), other.signal(peer, True)]
    # Signals of two windows are not mixed up.
    other.wait_signal(before, True).wait()
    got = other.map_remote_tensor(rank)
    assert torch.equal(got, torch.arange(1 << 16) + float(before)), got
    window.wait_signal(before, True).wait()
    assert small.tolist() == [0, 0, 1, 1], small
    for work in works:
        work.wait()
    refuses(TypeError, "bfloat16", lambda: window.put(many, peer, 0, False))
    refuses(ValueError, "is negative",
            lambda: window.put(small, peer, -1, False))
    refuses(ValueError, "the window of rank", lambda: window.put(small, peer, 1, False))
    refuses(ValueError, f"rank {n}", lambda: window.signal(n, False))
    refuses(ValueError, "contiguous", lambda: dist.group.WORLD.new_window(
        torch.zeros(4, 4).t()))
    refuses(NotImplementedError, "cannot be mapped",
            lambda: window.map_remote_tensor(peer))
    other.tensor_deregister()
    window.tensor_deregister()
    refuses(ValueError, "no tensor", window.tensor_deregister)


@case
def works_are_inputs_of_graphs_until_waited_for(rank, n):
    from torch.distributed import _functional_collectives as functional

    kept = getattr(torch._C._distributed_c10d, "_get_work_registry_size", None)
    if kept is None:
        return
    before = kept()
    with functional.allow_inflight_collective_as_graph_input_ctx():
        tensors = [torch.ones(1) for _ in range(n)]
        for begin in (
                lambda: dist.all_reduce(torch.ones(1), async_op=True),
                lambda: dist.all_gather(tensors, torch.ones(1), async_op=True)):
            work = begin()
            assert kept() > before, "not registered"
            work.wait()
            assert kept() == before, f"{kept() - before} left"
        tensor = torch.ones(1)
        dist.all_reduce(tensor, async_op=True)  # only the graph knows it
        total = torch.ops._c10d_functional.wait_tensor(tensor)
        assert kept() == before and total.item() == n, total


@case
def the_state_of_a_group(rank, n):
    group = dist.group.WORLD
    kinds = torch._C._distributed_c10d.ErrorType
    assert dist.get_backend() == "dicomm"
    assert group._get_backend(torch.device("cpu")).get_error() == kinds.SUCCESS
    assert group.name() == "dicomm"


@case
def beside_other_backends(rank, n):
    """It serves the devices that it is named for, wherever it is named."""
    from dicomm_torch._group import HAS_BACKEND

    if not HAS_BACKEND:
        return
    for backends in ("cpu:dicomm,cuda:gloo", "cuda:gloo,cpu:dicomm",
                     "cpu:gloo,cuda:dicomm", "cuda:dicomm,cpu:gloo",
                     "cpu:dicomm", "cpu:dicomm,cuda:dicomm"):
        group = dist.new_group(backend=backends)
        wanted = dict(pair.split(":") for pair in backends.split(","))
        for device in "cpu", "cuda", "xpu":
            try:
                name = group._get_backend(torch.device(device)).name()
            except RuntimeError:
                name = None
            assert name == wanted.get(device), (backends, device, name)
        tensor = torch.ones(3)
        dist.all_reduce(tensor, group=group)
        assert tensor.tolist() == [n] * 3, (backends, tensor)
        dist.destroy_process_group(group)


def run(store, rank, n):
    """Run all cases; returns {name: None or how it failed}."""
    dist.init_process_group(
        "dicomm", store=store, rank=rank, world_size=n,
        timeout=datetime.timedelta(seconds=60))
    results = {}
    for name, function in CASES:
        try:
            function(rank, n)
            results[name] = None
        except Exception as error:
            results[name] = f"{type(error).__name__}: {error}"
    dist.destroy_process_group()
    return results
