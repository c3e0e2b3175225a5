# SPDX-License-Identifier: BSD-3-Clause
"""Who has ended is named before a launcher ends the others.

DICOMM_TEST_ENDS is how often each way to end is shown, once by default.
"""

import os
import re
import signal
import time

import hetero as training
import ranks

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
