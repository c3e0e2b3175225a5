# SPDX-License-Identifier: BSD-3-Clause
"""dicomm as a transport of torch.distributed._transport: memory of a process that
takes no part is read and written; what ends too early is told, in bounded time.
"""

import asyncio
import os
import signal
import threading
import time

import torch
import torch.distributed as dist

import ranks

CASES = []
BOUND_S = 20  # for what takes a second on a machine that is not busy


def case(function):
    CASES.append((function.__name__.replace("_", " "), function))
    return function


def refuses(kind, words, function, *arguments, **named):
    began = time.monotonic()
    try:
        function(*arguments, **named)
    except kind as error:
        assert words in str(error), f"{error} does not say {words!r}"
        assert time.monotonic() - began < BOUND_S
        return
    raise AssertionError(f"not refused: {words}")


def passed_on(remote):
    return type(remote).deserialize(remote.serialize())


@case
def two_endpoints_of_one_process():
    """In a process of its own, for this one forks."""
    ranks.values(ranks.run(1, _two_endpoints, seconds=60))


def _two_endpoints(store, rank, n):
    from torch.distributed._transport import (
        available_transports, new_transport)

    assert "dicomm" in available_transports()
    with new_transport("dicomm", "cpu") as a, new_transport("dicomm") as b:
        a.connect(b.bind())
        assert a.connected() and not b.connected()
        b.connect(a.bind())
        for count in 1, 1000, 1 << 20:
            here = torch.arange(count, dtype=torch.float32)
            there = torch.empty_like(here)
            source, target = a.register_memory(here), b.register_memory(there)
            remote = passed_on(target.to_remote_buffer())
            work = a.write(source.to_view(), remote, async_op=True)
            assert work.wait() and work.is_completed() and work.result() == []
            assert torch.equal(here, there)
            assert b.read(target.to_mutable_view(),
                          passed_on(source.to_remote_buffer())) == 0
            there.add_(1)
            assert a.read(source.to_mutable_view(), remote) == 0
            assert torch.equal(here, there)


def pair(rank, store, **more):
    from torch.distributed._transport import new_transport_rank

    return new_transport_rank("dicomm", "cpu", store=store, rank=rank,
                              peer_rank=1 - rank, **more)


def descriptors(store, rank, transport, *tensors):
    """Registers tensors; returns the memories, and what the peer registered."""
    memories = [transport.register_memory(tensor) for tensor in tensors]
    for i, memory in enumerate(memories):
        store.set(f"{rank}/{i}", memory.to_remote_buffer().serialize())
    kind = type(memories[0].to_remote_buffer())
    return memories, [kind.deserialize(store.get(f"{1 - rank}/{i}"))
                      for i in range(len(tensors))]


def meet(store, rank, name):
    """Both have come here; the store alone is used."""
    store.set(f"{name}/{rank}", b"")
    store.wait([f"{name}/{1 - rank}"])


def in_pieces():
    """Transfers of this process go by several messages, as large ones do; both
    sides have to call it."""
    from dicomm_torch import transport

    transport._PIECE = 3000


def _reads_and_writes(store, rank, n):
    in_pieces()
    parts = 30
    board = torch.zeros(parts, 1000, dtype=torch.int64)
    mine = torch.arange(parts * 1000).reshape(parts, 1000) + rank
    with pair(rank, store) as transport:
        rows = [board[i] for i in range(parts)]
        (source,), _ = descriptors(store, rank, transport, mine)
        targets = [transport.register_memory(row) for row in rows]
        for i, target in enumerate(targets):
            store.set(f"row {i}/{rank}", target.to_remote_buffer().serialize())
        kind = type(targets[0].to_remote_buffer())
        remotes = [kind.deserialize(store.get(f"row {i}/{1 - rank}"))
                   for i in range(parts)]
        # All at once, in both directions
        works = [transport.write(source.to_view(i * 8000, 8000), remotes[i],
                                 async_op=True) for i in range(parts)]
        for work in reversed(works):
            work.wait()
        meet(store, rank, "written")
        assert torch.equal(board, mine - rank + 1 - rank)
        # From several threads, and a part of a view
        got = torch.zeros(parts, 1000, dtype=torch.int64)
        into = transport.register_memory(got)

        def read(first):
            for i in range(first, parts, 3):
                transport.read(into.to_mutable_view(i * 8000, 4000), remotes[i])

        threads = [threading.Thread(target=read, args=[i]) for i in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        # what this rank has written there
        assert torch.equal(got[:, :500], mine[:, :500])
        assert not got[:, 500:].any()
        asyncio.run(_in_a_loop(transport, into, remotes))
        assert torch.equal(got, mine)
        meet(store, rank, "read")


async def _in_a_loop(transport, into, remotes):
    await asyncio.gather(*[
        transport.read_async(into.to_mutable_view(i * 8000, 8000), remote)
        for i, remote in enumerate(remotes)])


@case
def two_processes_read_and_write():
    ranks.values(ranks.run(2, _reads_and_writes, seconds=60))


def _one_for_many(store, rank, n):
    """All ranks write into the memory of rank 0, which connects to nobody, and
    outlives them."""
    from torch.distributed._transport import new_transport

    os.environ["DICOMM_WARN_LATE_MS"] = "100"
    with new_transport("dicomm") as transport:
        if rank == 0:
            parts = [torch.zeros(100) for _ in range(n)]
            for i, part in enumerate(parts):
                memory = transport.register_memory(part)
                store.set(f"part {i}", memory.to_remote_buffer().serialize())
            store.set("url", transport.bind())
            store.wait([f"done {i}" for i in range(1, n)])
            for i, part in enumerate(parts):
                assert (part == i).all(), part
            store.wait([f"closed {i}" for i in range(1, n)])
            time.sleep(0.3)
            return
        transport.connect(store.get("url"))
        memory = transport.register_memory(torch.full((100,), float(rank)))
        kind = type(memory.to_remote_buffer())
        transport.write(memory.to_view(),
                        kind.deserialize(store.get(f"part {rank}")))
        store.set(f"done {rank}", b"")
        time.sleep(0.3)
    store.set(f"closed {rank}", b"")


@case
def many_connect_to_one():
    every = ranks.run(4, _one_for_many, seconds=60)
    ranks.values(every)
    # Nobody is late where nobody has to come, and who closes is no failure.
    for rank in every:
        assert "ERROR" not in rank.text, rank.text
        assert "all ranks are late" not in rank.text, rank.text


def _one_stands_still(store, rank, n):
    """Rank 1 announces a write, and sends its bytes when rank 2 has written."""
    from torch.distributed._transport import new_transport

    from dicomm_torch import _library as lib
    from dicomm_torch import transport as internal

    tensor = torch.full((1000,), float(rank))
    with new_transport("dicomm") as transport:
        memory = transport.register_memory(tensor)
        if rank == 0:
            remote = memory.to_remote_buffer()
            store.set("memory", remote.serialize())
            store.set("url", transport.bind())
            store.wait(["written"])
            assert (tensor == 2).all()
            refuses(TimeoutError, "uses this memory",
                    transport.unregister_memory, memory, timeout=0.1)
            store.set("tried", b"")
            store.wait(["all written"])
            assert (tensor == 1).all()
            transport.unregister_memory(memory)
            return
        transport.connect(store.get("url"))
        remote = type(memory.to_remote_buffer()).deserialize(
            store.get("memory"))
        if rank == 2:
            store.wait(["announced"])
            transport.write(memory.to_view(), remote)
            store.set("written", b"")
            return

        def move(function, at, length, tag, *status):
            lib.check(function(at, length, internal.UINT8, 0, tag,
                               transport._link.usable(), None, *status),
                      None, "move")

        header = internal._HEADER.pack(
            internal._WRITE, 1, remote.number, 4000)
        move(lib.library.dicomm_send_tag, header, len(header),
             internal._HEADERS)
        time.sleep(0.2)
        store.set("announced", b"")
        store.wait(["tried"])
        move(lib.library.dicomm_send_tag, tensor.data_ptr(), 4000, 1)
        reply = bytes(internal._REPLY_BYTES)
        move(lib.library.dicomm_recv_tag, reply, len(reply), 1, None)
        assert not any(reply)
        store.set("all written", b"")


@case
def one_that_stands_still_holds_up_nobody_else():
    ranks.values(ranks.run(3, _one_stands_still, seconds=60))


def _refusals(store, rank, n):
    from torch.distributed._transport import new_transport

    in_pieces()
    tensor = torch.arange(1000.0)
    with pair(rank, store) as transport:
        (memory,), (remote,) = descriptors(store, rank, transport, tensor)
        again = transport.register_memory(tensor)
        assert again.to_remote_buffer() == memory.to_remote_buffer()
        other = new_transport("dicomm")
        refuses(RuntimeError, "failed to create transport",
                new_transport, "dicomm", "cuda:0")
        refuses(ValueError, "offset 4001", memory.to_view, 4001)
        refuses(ValueError, "length 4000 at offset 8", memory.to_view, 8,
                4000)
        refuses(ValueError, "contiguous", transport.register_memory,
                torch.ones(4, 4).t())
        refuses(ValueError, "empty", transport.register_memory, torch.ones(0))
        refuses(TypeError, "not a list", transport.register_memory, [1])
        refuses(TypeError, "DicommMutableMemoryView", transport.read,
                memory.to_view(), remote)
        refuses(ValueError, "another endpoint", transport.write,
                memory.to_view(), memory.to_remote_buffer())
        refuses(RuntimeError, "connected already", transport.connect,
                other.bind())
        refuses(ValueError, "no URL", other.connect, b"tcp://here")
        refuses(TypeError, "bytes", other.connect, "dicomm://here")
        refuses(RuntimeError, "not connected", other.write,
                other.register_memory(tensor).to_view(), remote)
        refuses(ValueError, "timeout -1", transport.write, memory.to_view(),
                remote, timeout=-1)
        long = transport.register_memory(torch.ones(1001))
        refuses(ValueError, "4004 bytes", transport.write, long.to_view(), remote)
        other.close()
        refuses(RuntimeError, "closed", other.bind)
        # What its owner has taken back
        meet(store, rank, "refused")
        transport.unregister_memory(memory)
        transport.unregister_memory(again)
        refuses(RuntimeError, "unregistered", memory.to_view)
        meet(store, rank, "unregistered")
        new = transport.register_memory(torch.zeros(1000))
        refuses(RuntimeError, "not registered", transport.write, new.to_view(),
                remote)
        refuses(RuntimeError, "not registered", transport.read,
                new.to_mutable_view(), remote)
        assert (tensor == torch.arange(1000.0)).all()
        # What has other storage now
        tensor = torch.ones(1000)
        memory = transport.register_memory(tensor)
        store.set(f"small {rank}", memory.to_remote_buffer().serialize())
        remote = type(remote).deserialize(store.get(f"small {1 - rank}"))
        tensor.resize_(100000)
        refuses(RuntimeError, "resized", memory.to_view)
        meet(store, rank, "resized")
        refuses(RuntimeError, "resized", transport.write, new.to_view(), remote)
        # and all goes on
        store.set(f"new {rank}", new.to_remote_buffer().serialize())
        remote = type(remote).deserialize(store.get(f"new {1 - rank}"))
        assert transport.write(new.to_view(), remote) == 0
        meet(store, rank, "gone on")


@case
def what_makes_no_sense_is_refused():
    ranks.values(ranks.run(2, _refusals, seconds=60))


def await_stop(pid):
    end = time.monotonic() + BOUND_S
    while time.monotonic() < end:
        with open(f"/proc/{pid}/stat") as stat:
            if stat.read().rpartition(")")[2].split()[0] == "T":
                return
        time.sleep(0.01)
    raise AssertionError(f"{pid} does not stop")


def _peer_ends(store, rank, n, how):
    tensor = torch.zeros(1 << 16)
    transport = pair(rank, store, timeout=10.0)
    (memory,), (remote,) = descriptors(store, rank, transport, tensor)
    meet(store, rank, "ready")
    if rank == 1:
        if how == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "closed":
            transport.close()
            return
        os.kill(os.getpid(), signal.SIGSTOP)
        store.wait(["done"])
        assert (tensor == (how == "stopped")).all()
        transport.close()
        return
    tensor.fill_(1)
    if how in ("stopped", "idle"):
        await_stop(store.get("pid").decode())
    began = time.monotonic()
    if how == "stopped":
        work = transport.write(memory.to_view(), remote, async_op=True)
        refuses(TimeoutError, "remains under way", transport.read,
                memory.to_mutable_view(), remote, timeout=0.3)
        refuses(TimeoutError, "close again", transport.close, timeout=0.3)
        refuses(RuntimeError, "closed", transport.register_memory, tensor)
        os.kill(int(store.get("pid")), signal.SIGCONT)
        work.wait()
        store.set("done", b"")
    elif how == "idle":
        transport.close()
        os.kill(int(store.get("pid")), signal.SIGCONT)
        store.set("done", b"")
    else:
        try:
            while time.monotonic() - began < BOUND_S:
                transport.write(memory.to_view(), remote)
                time.sleep(0.01)
            raise AssertionError("nobody noticed")
        except dist.DistBackendError as error:
            assert "rank 0" in str(error), error
        assert not transport.connected()
    transport.close()
    assert time.monotonic() - began < BOUND_S


@case
def a_peer_that_ends_or_stops_is_told():
    for how in "killed", "closed", "stopped", "idle":
        every = ranks.run(2, _with_pid, how, seconds=60)
        if how == "killed":
            assert every.pop(1).status == -signal.SIGKILL
        ranks.values(every)


def _with_pid(store, rank, n, how):
    if rank == 1:
        store.set("pid", str(os.getpid()))
    _peer_ends(store, rank, n, how)


def _nobody_there(store, rank, n):
    from torch.distributed._transport import new_transport

    with new_transport("dicomm") as transport, new_transport("dicomm") as gone:
        url = gone.bind()
        gone.close()
        del gone
        refuses((TimeoutError, RuntimeError), "dicomm", transport.connect, url,
                timeout=1)
        assert not transport.connected()
        with new_transport("dicomm") as there:
            url = there.bind()
            calls = dist.PrefixStore(there._name, there._store.clone())
            for bad in "", "2 name 3", "1 name", "1 name -", "\xff":
                calls.queue_push("calls", bad)
            transport.connect(url)  # another try


@case
def nobody_answers():
    ranks.values(ranks.run(1, _nobody_there, seconds=60))


def _ends_without_close(store, rank, n):
    global _kept
    transport = pair(rank, store)
    (memory,), (remote,) = descriptors(store, rank, transport, torch.ones(1000))
    transport.write(memory.to_view(), remote)
    meet(store, rank, "written")
    _kept = transport


@case
def an_end_without_close_is_quiet():
    for rank in ranks.run(2, _ends_without_close, seconds=60):
        assert rank.status == 0 and rank.text == "", rank.text


def run(tell):
    """Run all; tell(name, failure or None, seconds) hears of each."""
    try:
        import torch.distributed._transport  # noqa: F401
    except ImportError:
        print(f"skipped transports: torch {torch.__version__} has none")
        return
    for name, function in CASES:
        began = time.monotonic()
        try:
            function()
            tell(f"transport {name}", None, time.monotonic() - began)
        except Exception as error:
            tell(f"transport {name}", f"{type(error).__name__}: {error}")
