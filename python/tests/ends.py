# SPDX-License-Identifier: BSD-3-Clause
"""Who has ended is named before a launcher ends the others.

DICOMM_TEST_ENDS is how often each way to end is shown, once by default.
"""

import atexit
import fcntl
import os
import re
import resource
import signal
import time

import hetero as training
import ranks
from dicomm_torch.hetero import ends, failures

CASES = []
ENDS = int(os.environ.get("DICOMM_TEST_ENDS", 1))


def case(function):
    CASES.append((function.__name__.replace("_", " "), function))
    return function


def _train_until(store, rank, n, plan, culprit, end):
    training.begin(store, rank, n)
    steps = training.gpt.train(training.text(), 100000, plan, grace_s=20)
    for step, _ in enumerate(steps):
        if step == 2 and rank == culprit:
            end()


def _by(number):
    return lambda: os.kill(os.getpid(), number)


def _raise():
    raise KeyError("a fault of the program")


# By what a rank ends, and how the others tell of it. Kernels before 6.15 do not
# tell how a process ended whose parent has heard of it.
_WAYS = {
    "SIGKILL": (_by(signal.SIGKILL), "was killed by signal 9"),
    "SIGSEGV": (_by(signal.SIGSEGV), "was killed by signal 11"),
    "SIGTERM": (_by(signal.SIGTERM), "was killed by signal 15"),
    "an exception": (_raise, "ended with status 1"),
    "exit status 3": (lambda: os._exit(3), "ended with status 3")}


@case
def who_ended_is_named_before_a_launcher_ends_the_others():
    """As torchrun does, by SIGTERM, once it has seen one end."""
    culprit, where = 2, r"rank 2 \(pipeline 0, stage 1\) \(.* pid %d\) (%s|%s)"
    for name, (end, how) in _WAYS.items():
        for _ in range(ENDS):
            told = _end_all(culprit, end)
            for number, rank in enumerate(told):
                if number == culprit:
                    continue
                wanted = where % (told[culprit].pid, how,
                                  "ended$|is ending its program")
                assert re.search(wanted, rank.text, re.MULTILINE), (
                    f"{name}: rank {number}: {rank.status}:"
                    f" {rank.text[-900:]}")


def _end_all(culprit, end):
    def launch(every):
        limit = time.monotonic() + 60
        while not every[culprit].reap(os.WNOHANG):
            assert time.monotonic() < limit, "it did not end"
            time.sleep(0.002)
        for rank in every:
            if not rank.reap(os.WNOHANG):
                os.kill(rank.pid, signal.SIGTERM)

    began = time.monotonic()
    every = ranks.run(4, _train_until, training.PLANS / "degrees.json",
                      culprit, end, seconds=60, during=launch)
    assert time.monotonic() - began < 60
    return every


def _fork(store, rank, n):
    inquest = failures.Inquest(store, rank, n, str, 1.0)
    inquest.open()
    pid = os.fork()
    if pid == 0:
        atexit._run_exitfuncs()
        os._exit(0)
    os.waitpid(pid, 0)
    assert not store.check([f"said/{rank}"])
    for _ in range(20):
        pid = os.fork()
        if pid == 0:
            time.sleep(10)
            os._exit(0)
        os.kill(pid, signal.SIGTERM)
        assert os.waitpid(pid, 0)[1] == signal.SIGTERM
    inquest.close()


@case
def a_process_that_a_rank_forks_ends_alone():
    """Without a word to others, also by SIGTERM as soon as it is there."""
    ranks.values(ranks.run(1, _fork, seconds=30))


@case
def an_end_is_seen_with_many_descriptors_open():
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limits[1], limits[1]))
    pid = os.fork()
    if pid == 0:
        os._exit(3)
    try:
        process = ends._Process(pid)
        first, process.fd = process.fd, fcntl.fcntl(
            process.fd, fcntl.F_DUPFD_CLOEXEC, 1024)
        os.close(first)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        assert process.end() == "ended with status 3", process.end()
        os.close(process.fd)
    finally:
        os.waitpid(pid, 0)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
