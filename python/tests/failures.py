# SPDX-License-Identifier: BSD-3-Clause
"""What happens when something goes wrong: an exception in bounded time that
names who it was, never a hang, never a signal.

Each case runs with bare calls and, where that makes sense, with DDP.
"""

import contextlib
import datetime
import os
import signal
import time

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel

import ranks

CASES = []
BOUND_S = 20  # for what takes a second on a machine that is not busy


def case(function):
    CASES.append((function.__name__.replace("_", " "), function))
    return function


def begin(store, rank, n, seconds=60, backend="dicomm"):
    dist.init_process_group(
        backend, store=store, rank=rank, world_size=n,
        timeout=datetime.timedelta(seconds=seconds))


def bare(rank):
    """Steps of bare calls, for ever."""
    tensor = torch.ones(1000)
    while True:
        tensor.fill_(1)
        dist.all_reduce(tensor)
        yield


def asynchronous(rank):
    while True:
        tensors = [torch.ones(1000) for _ in range(8)]
        works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
        for work in works:
            work.wait()
        yield


def with_ddp(rank):
    model = DistributedDataParallel(
        nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 8)),
        bucket_cap_mb=0.005)
    while True:
        model(torch.ones(4, 64)).sum().backward()
        yield


def with_a_hook(rank):
    """One of C++, which wants futures of C++."""
    model = DistributedDataParallel(nn.Linear(64, 64))
    model._register_builtin_comm_hook(dist.BuiltinCommHookType.FP16_COMPRESS)
    while True:
        model(torch.ones(4, 64)).sum().backward()
        yield


WAYS = (bare, asynchronous, with_ddp)


def until_it_fails(way, rank, before):
    """Go on until an exception, which rank 1 brings about by before();
    returns (its kind, its text, seconds that it took)."""
    steps = way(rank)
    for _ in range(3):
        next(steps)
    if rank == 1:
        time.sleep(0.3)  # until the others are through with these steps
    began = time.monotonic()
    before()
    try:
        while True:
            next(steps)
    except Exception as error:
        return type(error).__name__, str(error), time.monotonic() - began


def expect(rank, kinds, words, seconds=BOUND_S):
    assert rank.status == 0, f"status {rank.status}: {rank.text[-3000:]}"
    assert rank.value, rank.text[-3000:]
    kind, text, took = rank.value
    # What waits for a future in C++, as DDP does, knows only RuntimeError.
    if kind == "RuntimeError" and "DistBackendError: " in text:
        kind = "DistBackendError"
    if kind == "RuntimeError" and "DistTimeoutError: " in text:
        kind = "DistTimeoutError"
    assert kind in kinds, f"{kind}: {text}"
    assert any(word in text for word in words), f"{text!r}: none of {words}"
    assert took < seconds, f"after {took:.1f} s: {text}"


ERRORS = ("DistBackendError", "DistTimeoutError")


def _killed(store, rank, n, way):
    begin(store, rank, n)

    def before():
        if rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)

    return until_it_fails(way, rank, before)


@case
def a_rank_is_killed():
    for way in (*WAYS, with_a_hook):
        every = ranks.run(3, _killed, way, seconds=60)
        assert every[1].status == -signal.SIGKILL
        for rank in every[0], every[2]:
            expect(rank, ERRORS, ["rank 1"])


def _replaced(store, rank, n, _):
    """Ranks 0 and 1 are a group; 1 dies, and 2 takes its place."""
    if rank == 2:
        dist.init_process_group(
            "dicomm", store=store, rank=0, world_size=1,
            timeout=datetime.timedelta(seconds=60), enable_reconfigure=True)
        try:
            dist.all_reduce(torch.ones(1))
        except dist.DistBackendError as error:
            assert "reconfigure" in str(error), error
        else:
            raise AssertionError("a group of nobody summed up")
    else:
        begin(store, rank, 2)

        def before():
            if rank == 1:
                os.kill(os.getpid(), signal.SIGKILL)

        until_it_fails(asynchronous, rank, before)
    began = time.monotonic()
    group = dist.group.WORLD
    store.set(f"handle {rank}", group.get_reconfigure_handle())
    options = torch._C._distributed_c10d.ReconfigureOptions()
    options.uuid = 1
    options.handles = [store.get(f"handle {r}").decode() for r in (0, 2)]
    group.reconfigure(options).wait()
    assert (group.rank(), group.size()) == (rank // 2, 2)
    steps = with_ddp(rank)
    for _ in range(3):
        next(steps)
    total = torch.ones(1)
    dist.all_reduce(total)
    dist.destroy_process_group()
    return total.item(), time.monotonic() - began


@case
def a_rank_is_replaced():
    if not hasattr(torch._C._distributed_c10d, "ReconfigureOptions"):
        return
    every = ranks.run(3, _replaced, None, seconds=60)
    for rank in every[0], every[2]:
        assert rank.status == 0, f"status {rank.status}: {rank.text[-3000:]}"
        assert rank.value[0] == 2 and rank.value[1] < BOUND_S, rank.value


def _stopped(store, rank, n, way):
    begin(store, rank, n, seconds=3)

    def before():
        if rank == 1:
            os.kill(os.getpid(), signal.SIGSTOP)

    return until_it_fails(way, rank, before)


@case
def a_rank_is_stopped():
    """The time-out of the group ends the wait, and says for whom it was."""
    for way in WAYS:
        def resume(every):
            end = time.monotonic() + 40
            while time.monotonic() < end and not (
                    every[0].reap(os.WNOHANG) and every[2].reap(os.WNOHANG)):
                time.sleep(0.05)
            os.kill(every[1].pid, signal.SIGCONT)

        every = ranks.run(3, _stopped, way, seconds=60, during=resume)
        texts = [every[i].value[1] for i in (0, 2)]
        for rank in every[0], every[2]:
            expect(rank, ERRORS, ["rank 1", "rank 0", "rank 2"])
        assert any("rank 1" in text for text in texts), texts
        assert any("imed out" in text or "timeout" in text
                   for text in texts), texts


def _raises(store, rank, n, way):
    begin(store, rank, n)

    def before():
        if rank == 1:
            raise KeyError("a fault of the program")

    return until_it_fails(way, rank, before)


@case
def a_rank_raises_and_ends():
    for way in WAYS:
        every = ranks.run(3, _raises, way, seconds=60)
        assert every[1].status == 1 and "a fault of the" in every[1].text
        for rank in every[0], every[2]:
            expect(rank, ERRORS, ["rank 1"])


def _aborts(store, rank, n, way):
    begin(store, rank, n)

    def before():
        if rank == 1:
            dist.distributed_c10d._abort_process_group()

    return until_it_fails(way, rank, before)


@case
def a_rank_aborts():
    for way in WAYS:
        every = ranks.run(3, _aborts, way, seconds=60)
        for i, rank in enumerate(every):
            # The group is gone for the one who aborted it.
            expect(rank, ERRORS + (("ValueError", "RuntimeError",
                                    "AssertionError") if i == 1 else ()),
                   ["rank 1"] if i != 1 else [""])


def _destroys(store, rank, n, way):
    begin(store, rank, n)

    def before():
        if rank == 1:
            dist.destroy_process_group()

    return until_it_fails(way, rank, before)


@case
def a_rank_destroys_its_group():
    for way in WAYS:
        every = ranks.run(3, _destroys, way, seconds=60)
        for rank in every[0], every[2]:
            expect(rank, ERRORS, ["rank 1"])
        assert every[1].status == 0, every[1].text


def _abort_in_flight(store, rank, n, end):
    begin(store, rank, n)
    dist.barrier()
    if rank == 0:
        works = [dist.irecv(torch.ones(1), 1) for _ in range(4)]
        futures = [work.get_future() for work in works]
        began = time.monotonic()
        if end == "abort":
            dist.group.WORLD.abort()
        else:
            dist.destroy_process_group()
        errors = []
        for work, future in zip(works, futures):
            for wait in work.wait, future.wait:
                try:
                    wait()
                    errors.append(None)
                except Exception as error:
                    errors.append(str(error))
        assert all(errors), errors
        return "", errors[0], time.monotonic() - began
    time.sleep(1)
    return "", "", 0


@case
def an_end_with_work_in_flight():
    """abort() at once; destroy after it has waited for a while."""
    for end, seconds in (("abort", 10), ("destroy", 30)):
        every = ranks.run(2, _abort_in_flight, end, seconds=60)
        expect(every[0], ("",), ["abort", "left"], seconds)


def _unlike(store, rank, n, what):
    begin(store, rank, n)
    dist.barrier()
    began = time.monotonic()
    try:
        if what == "operations":
            if rank == 1:
                dist.broadcast(torch.ones(3), 0)
            else:
                dist.all_reduce(torch.ones(3))
        elif what == "lengths":
            dist.all_reduce(torch.ones(3 + rank))
        elif what == "lists":
            tensor = torch.ones(3 + rank)
            dist.all_gather([torch.empty_like(tensor) for _ in range(n)],
                            tensor)
        elif what == "types":
            dist.all_reduce(torch.ones(4).to(
                torch.float64 if rank == 1 else torch.float32))
        elif what == "messages":
            if rank == 0:
                dist.send(torch.ones(3), 1)
                dist.send(torch.ones(3), 1)
            elif rank == 1:
                dist.recv(torch.ones(4), 0)
        elif what == "messages with a tag":
            if rank == 0:
                dist.send(torch.ones(3), 1, tag=2)
                dist.send(torch.ones(3), 1, tag=2)
            elif rank == 1:
                dist.recv(torch.ones(4), 0, tag=2)
        dist.barrier()
        dist.barrier()
    except Exception as error:
        return type(error).__name__, str(error), time.monotonic() - began
    return "none", "nothing was noticed", 0


@case
def ranks_call_unlike_operations():
    for what in ("operations", "lengths", "lists", "types", "messages",
                 "messages with a tag"):
        every = ranks.run(2, _unlike, what, seconds=60)
        for rank in every:
            expect(rank, ERRORS, ["rank 0", "rank 1"])
        both = every[0].value[1] + every[1].value[1]
        assert "rank 0" in both and "rank 1" in both, both


def _unlike_in_detail(store, rank, n):
    dist.set_debug_level(dist.DebugLevel.DETAIL)
    begin(store, rank, n)

    def gather(shape):
        tensor = torch.ones(shape)
        dist.all_gather([torch.empty(shape) for _ in range(n)], tensor)

    texts = []
    for call in (
            lambda: gather((2, 3) if rank else (3, 2)),
            lambda: gather((2, 3) if rank else (4,)),
            lambda: dist.all_gather_into_tensor(
                torch.empty((2, 3 * n) if rank else (3, 2 * n)),
                torch.ones((2, 3) if rank else (3, 2))),
            lambda: dist.reduce(torch.ones((4, 1) if rank else (4,)), 0),
            lambda: dist.barrier() if rank else gather((1,))):
        try:
            call()
            texts.append("nothing was noticed")
        except RuntimeError as error:
            texts.append(str(error))
    # Lists may have unlike shapes, and the group is whole.
    out = [torch.empty(r + 1, 2) for r in range(n)]
    dist.all_gather(out, torch.full((rank + 1, 2), float(rank)))
    for r, tensor in enumerate(out):
        assert tensor.tolist() == [[r, r]] * (r + 1), tensor
    work = dist.all_reduce(torch.ones(3), async_op=True)
    work.wait()
    return texts


@case
def unlike_shapes_are_told_in_detail():
    words = (("[3, 2]", "[2, 3]"), ("[4]", "[2, 3]"), ("[3, 2]", "[2, 3]"),
             ("[4]", "[4, 1]"), ("ALLGATHER", "BARRIER"))
    for rank, texts in enumerate(ranks.values(
            ranks.run(2, _unlike_in_detail, seconds=60))):
        for text, of_both in zip(texts, words):
            assert text.startswith(
                "Detected mismatch between collectives on ranks. Rank"
                f" {rank} is running"), text
            mine, other = of_both[rank], of_both[1 - rank]
            assert f"{mine} vs {other}" in text, text


def _in_a_callback(store, rank, n):
    begin(store, rank, n)
    dist.barrier()
    began = time.monotonic()
    if rank == 1:
        time.sleep(0.5)  # the barrier is over for the other one, too
        os.kill(os.getpid(), signal.SIGKILL)
    work = dist.all_reduce(torch.ones(3), async_op=True)
    kind = torch._C._distributed_c10d.WorkResult
    assert work.get_future_result().wait() == kind.COMM_ERROR
    seen = []
    future = work.get_future().then(lambda f: seen.append(f.value()))
    try:
        future.wait()
    except Exception as error:
        return type(error).__name__, str(error), time.monotonic() - began


@case
def a_future_tells_of_a_failure():
    every = ranks.run(2, _in_a_callback, seconds=60)
    assert every[0].status == 0, every[0].text
    assert "rank 1" in every[0].value[1], every[0].value


def _not_all_come(store, rank, n):
    began = time.monotonic()
    if rank == 1:
        return "", "", 0
    try:
        begin(store, rank, n, seconds=2)
    except Exception as error:
        return type(error).__name__, str(error), time.monotonic() - began


@case
def a_rank_does_not_come():
    every = ranks.run(3, _not_all_come, seconds=60)
    for rank in every[0], every[2]:
        expect(rank, ERRORS + ("DistStoreError",), ["rank 1", "rank 0",
                                                    "imed out"])
    assert any("rank 1" in every[i].value[1] for i in (0, 2)), every[0].value


def _lives(_, rank, n, port, death, late):
    """One life of a job whose store outlives it, as under torchrun."""
    store = dist.PrefixStore("job", dist.TCPStore(
        "127.0.0.1", port, None, False, wait_for_workers=False))
    if rank == late:
        if death == "before all came":
            time.sleep(0.3)  # the others wait for it by then
            os.kill(os.getppid(), signal.SIGUSR2)
            time.sleep(BOUND_S)
        time.sleep(0.3)
    began = time.monotonic()
    begin(store, rank, n)
    tensor = torch.ones(1)
    dist.all_reduce(tensor)
    dist.monitored_barrier(timeout=datetime.timedelta(seconds=BOUND_S))
    half = dist.new_group([0, 1])
    if rank < 2:
        dist.all_reduce(tensor, group=half)
    if death == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    return tensor.item(), time.monotonic() - began


def _serve(to_parent, from_parent):
    """A store, until the parent closes its pipe."""
    server = dist.TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False)
    os.write(to_parent, str(server.port).encode())
    os.read(from_parent, 1)
    os._exit(0)


@contextlib.contextmanager
def _a_store():
    """The port of a store in a process of its own: its threads may hold locks
    while ranks are forked, and those would wait for ever."""
    port, of_child = os.pipe()
    to_child, end = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(end)
        try:
            _serve(of_child, to_child)
        finally:
            os._exit(1)
    os.close(of_child)
    os.close(to_child)
    try:
        yield int(os.read(port, 16))
    finally:
        os.close(end)
        os.close(port)
        os.waitpid(pid, 0)


@case
def a_job_begins_anew_over_the_same_store():
    """Whoever comes last, whoever was there before, and however that ended."""
    with _a_store() as port:
        _live_again(port)


def _live_again(port):
    def kill(every):
        signal.sigtimedwait([signal.SIGUSR2], BOUND_S)
        for rank in every:
            os.kill(rank.pid, signal.SIGKILL)

    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])
    try:
        for n, death, late in ((4, "killed", 3), (3, "before all came", 2),
                               (3, "", 0), (3, "killed", 1), (2, "", 0)):
            every = ranks.run(
                n, _lives, port, death, late, seconds=60,
                during=kill if death == "before all came" else None)
            if death:
                assert [rank.status for rank in every] == [
                    -signal.SIGKILL] * n, every[0].text
                continue
            for rank, value in enumerate(ranks.values(every)):
                assert value[0] == (2 * n if rank < 2 else n), value
                assert value[1] < BOUND_S, value
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGUSR2])


def _short_timeout(store, rank, n):
    begin(store, rank, n)
    group = dist.group.WORLD
    group.set_timeout(datetime.timedelta(milliseconds=300))
    dist.barrier()
    began = time.monotonic()
    try:
        if rank == 0:
            dist.all_reduce(torch.ones(1))
    except Exception as error:
        return type(error).__name__, str(error), time.monotonic() - began
    time.sleep(2)
    return "", "", 0


@case
def a_time_out_that_was_set_later():
    every = ranks.run(2, _short_timeout, seconds=60)
    expect(every[0], ("DistTimeoutError",), ["imed out"])


def _is_dropped(store, rank, n):
    """A group that torch does not know, and nobody destroys."""
    import types

    from dicomm_torch._group import create

    group = create(types.SimpleNamespace(
        store=store, group_rank=rank, group_size=n, group_id="dropped",
        timeout=datetime.timedelta(seconds=60)))
    for _ in range(5):
        group.allreduce([torch.ones(3)]).wait()
    began = time.monotonic()
    if rank == 1:
        group = None
        time.sleep(5)
        return "", "", 0
    try:
        group.allreduce([torch.ones(3)]).wait()
    except Exception as error:
        return type(error).__name__, str(error), time.monotonic() - began


@case
def a_group_that_is_dropped_has_left():
    every = ranks.run(3, _is_dropped, seconds=60)
    for rank in every[0], every[2]:
        expect(rank, ERRORS, ["rank 1"])
    assert "left" in every[0].value[1] + every[2].value[1], every[0].value


def _shrinks(store, rank, n, how):
    """Rank 1 leaves, or is killed; the others go on without it."""
    begin(store, rank, n)
    try:
        dist.barrier()
    except dist.DistBackendError:
        if how != "aborted":  # by one who was through with it
            raise
    if rank == 1:
        if how == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        return None
    if how == "killed":
        try:
            while True:
                dist.all_reduce(torch.ones(1))
        except dist.DistBackendError:
            pass
    flags = dist.distributed_c10d.SHRINK_ABORT if how == "aborted" else 0
    for exclude, left in ([1], n - 1), ([0], n - 2):
        if exclude == [0] and (rank == 0 or how == "aborted"):
            break  # an abort might meet rank 0 in its barrier
        group = dist.shrink_group([*exclude], shrink_flags=flags)
        assert group is dist.group.WORLD and dist.get_world_size() == left
        tensor = torch.ones(1)
        dist.all_reduce(tensor)
        work = dist.all_reduce(tensor, async_op=True)
        work.wait()
        assert tensor == left * left
        dist.barrier()
    return dist.get_rank()


@case
def a_group_shrinks():
    if not hasattr(dist, "shrink_group"):
        return  # torch before 2.10
    for how in "killed", "leaves", "aborted":
        every = ranks.run(4, _shrinks, how, seconds=60)
        if how == "killed":
            assert every.pop(1).status == -signal.SIGKILL
        values = [rank for rank in ranks.values(every) if rank is not None]
        assert values == ([0, 1, 2] if how == "aborted" else [0, 0, 1]), values


def _longer_timeout(store, rank, n):
    """For what is under way, and for what comes."""
    begin(store, rank, n, seconds=2)
    group = dist.group.WORLD
    dist.barrier()
    waiting = None
    if rank == 0:
        got = torch.zeros(1)
        waiting = dist.irecv(got, 1, tag=1)
    group.set_timeout(datetime.timedelta(seconds=60))
    if rank == 1:
        time.sleep(3)
    tensor = torch.ones(1)
    dist.all_reduce(tensor)
    if rank == 1:
        time.sleep(3)
        dist.send(torch.ones(1), 0, tag=1)
    else:
        waiting.wait()
        assert got == 1
    assert tensor == n
    dist.destroy_process_group()


@case
def a_time_out_that_was_made_longer():
    ranks.values(ranks.run(2, _longer_timeout, seconds=60))


def _ends_without_destroy(store, rank, n, left):
    begin(store, rank, n)
    tensor = torch.ones(100000)
    for _ in range(5):
        dist.all_reduce(tensor)
    dist.barrier()
    if rank == 1:
        time.sleep(0.2)
    global _kept
    _kept = [dist.all_reduce(tensor.clone(), async_op=True)
             for _ in range(left)]


@case
def an_end_without_destroy_is_quiet():
    """Also with collectives under way, which nobody waits for."""
    for left in 0, 1, 20:
        for rank in ranks.run(2, _ends_without_destroy, left, seconds=60):
            assert rank.status == 0 and rank.text == "", rank.text


def _ends_with_a_future(store, rank, n):
    """A callback is to come when the process ends."""
    begin(store, rank, n)
    dist.barrier()
    if rank == 0:
        failed = []

        def tell(future):
            try:
                future.value()
            except Exception as error:
                failed.append(str(error))
                print("told")

        dist.irecv(torch.ones(1), 1).get_future().then(tell)
    else:
        time.sleep(1)


@case
def an_end_with_a_callback_to_come():
    """Who waited is told, and the process ends."""
    every = ranks.run(2, _ends_with_a_future, seconds=60)
    assert every[0].status == 0 and "told" in every[0].text, every[0].text
