# SPDX-License-Identifier: BSD-3-Clause
"""How the ranks of a new group find each other, by a store of c10d.

A store may outlive the processes that used it: torchrun's agent serves one to
all lives of a job, and the ranks of the second life find under the same keys
what those of the first, who are dead, have written there. The environment does
not always tell the lives apart: TORCHELASTIC_RESTART_COUNT stays as it is when a
job begins anew because its members change. So each meeting has a name that was
never used before, which rank 0 makes up and writes down; the others give their
parts under that name. Each part has a mark that is new each time: who has read
the name of an earlier meeting does not find his part among those of all, and
waits for the name to change.
"""

import ctypes
import datetime
import time
import uuid

import torch.distributed as dist

from . import _library as lib

NAME = "dicomm/meeting"  # the key of the name of the latest meeting
MARK = 16  # bytes

# How long a rank pauses between two looks at the store: a part of the time that
# it has been waiting. It looks because a store waits for all of some keys, not
# for one of them.
PAUSES_S = (0.0002, 0.05)
PART_OF_WAIT = 1 / 8


class Meeting:
    """One meeting of the ranks of a group, in which each gives some bytes and
    gets those of all.

    failure is the exception if that failed, which names the rank that did not
    come.
    """

    def __init__(self, store, rank, size, timeout, group):
        self._store = store
        self._rank = rank
        self._size = size
        self._limit_s = timeout.total_seconds()
        self._group = group
        self._name = None
        self.failure = None

    def store(self):
        """The part of the store that only this meeting's ranks use."""
        return dist.PrefixStore(f"dicomm/{self._name}", self._store)

    def gather(self, mine, everyone, length, _):
        """What the library calls, see config.bootstrap_allgather."""
        try:
            began = time.monotonic()
            part = uuid.uuid4().bytes + ctypes.string_at(mine, length)
            meet = self._lead if self._rank == 0 else self._join
            parts = meet(part.hex().encode(), began)
            for i in range(self._size):
                ctypes.memmove(
                    everyone + i * length,
                    bytes.fromhex(parts[i].decode())[MARK:], length)
            return lib.SUCCESS
        except BaseException as error:
            self.failure = error
            return lib.TIMEOUT if isinstance(
                error, lib.DistTimeoutError) else lib.REMOTE

    def _lead(self, part, began):
        """Of rank 0: name the meeting, collect the parts, tell them to all."""
        self._name = uuid.uuid4().hex
        self._store.set(NAME, self._name)
        keys = [self._key(rank) for rank in range(1, self._size)]
        self._await(keys, 1, began)
        parts = [part, *self._get(keys)]
        self._store.set(self._key("all"), b" ".join(parts))
        return parts

    def _get(self, keys):
        """At once, if the store can: each question is a round trip."""
        if keys and self._store.has_extended_api():
            return self._store.multi_get(keys)
        return [self._store.get(key) for key in keys]

    def _join(self, part, began):
        """Of the others: give the part to the latest meeting, until it is found
        among those of all."""
        self._await([NAME], 0, began)
        over = False  # the meeting that is called so, an earlier one
        while True:
            name = self._store.get(NAME).decode()
            if name != self._name:
                self._name, over = name, False
                self._store.set(self._key(self._rank), part)
            if not over and self._store.check([self._key("all")]):
                parts = self._store.get(self._key("all")).split(b" ")
                if part in parts:
                    return parts
                over = True
            waited = time.monotonic() - began
            if waited > self._limit_s:
                raise self._did_not_come(0)
            time.sleep(min(max(waited * PART_OF_WAIT, PAUSES_S[0]),
                           PAUSES_S[1]))

    def _key(self, what):
        return f"dicomm/{self._name}/{what}"

    def _await(self, keys, rank, began):
        """Wait for what ranks are to write, rank and those after it."""
        if not keys:
            return
        left = max(0.001, began + self._limit_s - time.monotonic())
        try:
            self._store.wait(keys, datetime.timedelta(seconds=left))
        except Exception as error:
            missing = self._first_missing(keys)
            # A store names all keys that it waits for.
            why = f" ({str(error)[:200]})"
            raise self._did_not_come(
                rank + (missing or 0),
                why if missing is not None else f", or a later one{why}"
            ) from None

    def _first_missing(self, keys):
        """None: nobody knows, or all have come since."""
        try:
            there = [self._store.check([key]) for key in keys]
        except Exception:  # the store is gone
            return None
        return there.index(False) if False in there else None

    def _did_not_come(self, rank, why=""):
        return lib.DistTimeoutError(
            f"dicomm: group {self._group}: Timed out: timeout after"
            f" {self._limit_s * 1000:g}ms: rank {rank} did not come{why}")
