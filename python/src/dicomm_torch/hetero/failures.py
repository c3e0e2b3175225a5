# SPDX-License-Identifier: BSD-3-Clause
"""Who was it? Ranks that fail agree on the one that did not answer.

A rank hears of a fault from the rank that it waits for, which may only have
waited for another one. So each rank that fails says so in the store of its
group, and then sees who does not.
"""

import json
import time

import torch.distributed as dist


class StageError(dist.DistBackendError):
    """Training cannot go on. The text names the ranks that brought it about;
    culprits is a list of them."""

    def __init__(self, text, culprits):
        super().__init__(text)
        self.culprits = culprits


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

    def hold(self, error, abort):
        """Returns the StageError of a rank that has failed by error. abort()
        makes the others notice. Takes grace_s and a little, at most."""
        own = not isinstance(error, dist.DistBackendError)
        text = f"{type(error).__name__}: {error}" if own else str(error)
        try:
            self._store.set(f"said/{self._rank}",
                            json.dumps({"own": own, "text": text}))
            abort()
            culprits, how = self._agree()
        except Exception as trouble:  # the store is gone: say what we know
            abort()
            return StageError(
                f"{self._where(self._rank)}: {text} (and no word of the"
                f" others: {type(trouble).__name__})", [])
        named = ", ".join(self._where(rank) for rank in culprits)
        return StageError(
            f"{named} {how}; {self._where(self._rank)} heard: {text}"
            if culprits else f"{self._where(self._rank)}: {text}", culprits)

    def _agree(self):
        """(ranks, what they did): the same at all that ask."""
        missing = set(range(self._ranks))
        end = time.monotonic() + self._grace_s
        own = {}
        while missing and time.monotonic() < end:
            for rank in sorted(missing):
                if self._store.check([f"said/{rank}"]):
                    said = json.loads(self._store.get(f"said/{rank}"))
                    missing.discard(rank)
                    if said["own"]:
                        own[rank] = said["text"]
            if own or self._store.check(["verdict"]):
                break
            time.sleep(0.02)
        if own:
            rank = min(own)
            verdict = [[rank], f"raised {own[rank]}"]
        elif missing:
            verdict = [sorted(missing), "did not answer: killed, or stopped"]
        else:
            verdict = [[], ""]
        text = json.dumps(verdict)
        agreed = self._store.compare_set("verdict", "", text)
        culprits, how = json.loads(agreed)
        return culprits, how
