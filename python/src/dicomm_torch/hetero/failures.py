# SPDX-License-Identifier: BSD-3-Clause
"""Who was it? Ranks that fail agree on the one that did not answer.

A rank hears of a fault from the rank that it waits for, which may only have
waited for another one. So each rank that fails says so in the store of its
group, and then sees who does not. Who has ended on its own machine it knows.
"""

import atexit
import contextlib
import json
import os
import sys
import time
import weakref

import torch.distributed as dist

from .ends import Ends, say


class StageError(dist.DistBackendError):
    """Training cannot go on. The text names the ranks that brought it about;
    culprits is a list of them, gone of those that have ended, or are stopped,
    and may not answer any more."""

    def __init__(self, text, culprits, gone=()):
        super().__init__(text)
        self.culprits = culprits
        self.gone = list(gone)


class Inquest:
    """For one group of ranks; where(rank) says what a rank does in the plan.

    grace_s is how long those that live have to say so: longer than the
    computation between two operations takes.
    """

    def __init__(self, store, rank, ranks, where, grace_s):
        self._store = store
        self._rank = rank
        self._ranks = ranks
        self._where = where
        self._grace_s = grace_s
        self._ends = Ends(store, rank, ranks, where)
        self._has_said = False

    def open(self):
        """Once all ranks have made it."""
        self._ends.open()
        _open.add(self)

    def close(self):
        _open.discard(self)
        self._ends.close()

    def _say(self, **what):
        self._has_said = True
        self._store.set(f"said/{self._rank}", json.dumps(what))

    def leave(self, text):
        """The program ends while there is a trainer: by an exception, or
        text is None."""
        if not self._has_said:
            self._say(own=False, leaves=True, text=text)

    def hold(self, error, abort):
        """Returns the StageError of a rank that has failed by error. abort()
        makes the others notice. Takes grace_s and a little, at most."""
        own = not isinstance(error, dist.DistBackendError)
        text = f"{type(error).__name__}: {error}" if own else str(error)
        try:
            self._say(own=own, leaves=False, text=text)
            abort()
            culprits, how, gone = self._agree()
        except Exception as trouble:  # the store is gone: say what we know
            abort()
            ended = self._ends.ended()
            if ended:
                how = "; ".join(self._ends.words(*of) for of in ended.items())
                say(how)
                return StageError(f"{how}; {self._where(self._rank)} heard:"
                                  f" {text}", list(ended), ended)
            return StageError(
                f"{self._where(self._rank)}: {text} (and no word of the"
                f" others: {type(trouble).__name__})", [])
        if not culprits:
            return StageError(f"{self._where(self._rank)}: {text}", [])
        say(how)
        return StageError(f"{how}; {self._where(self._rank)} heard: {text}",
                          culprits, gone)

    def _agree(self):
        """(ranks, who they are and what they did, those of them that are
        gone): the same at all that ask."""
        missing = set(range(self._ranks))
        end = time.monotonic() + self._grace_s
        own, left, ended = {}, {}, {}
        while (missing or left) and time.monotonic() < end:
            for rank in sorted(missing):
                if self._store.check([f"said/{rank}"]):
                    said = json.loads(self._store.get(f"said/{rank}"))
                    missing.discard(rank)
                    if said["own"] or said["leaves"]:
                        (own if said["own"] else left)[rank] = said["text"]
            ended = {rank: how for rank, how in self._ends.ended().items()
                     if rank in missing or rank in left}
            # How a program ends that has not said why is told by its end.
            if own or ended or any(left.values()) or self._store.check(
                    ["verdict"]):
                break
            time.sleep(0.02)
        for rank, why in left.items():
            ended.setdefault(rank, "is ending its program")
            if why:
                ended[rank] = f"ended by {why}"
        text = json.dumps(self._verdict(own, ended, sorted(missing)))
        return json.loads(self._store.compare_set("verdict", "", text))

    def _verdict(self, own, ended, missing):
        if own:
            rank = min(own)
            return [rank], f"{self._where(rank)} raised {own[rank]}", []
        if ended:
            return (sorted(ended), "; ".join(
                self._ends.words(*of) for of in sorted(ended.items())),
                sorted(ended))
        if not missing:
            return [], "", []
        stopped = set(missing) <= set(self._ends.stopped())
        return missing, ", ".join(map(self._where, missing)) + (
            " is stopped" if stopped and len(missing) == 1
            else " did not answer: killed, or stopped"), missing


_open = weakref.WeakSet()
# A process that a rank forks ends without a word: the store is its parent's.
os.register_at_fork(after_in_child=_open.clear)


@atexit.register
def _leave():
    # Where somebody types, it may be of any cell before.
    error = (None if hasattr(sys, "ps1")
             else getattr(sys, "last_value", None))
    for inquest in list(_open):
        with contextlib.suppress(Exception):
            inquest.leave(f"{type(error).__name__}: {error}" if error
                          else None)
