# SPDX-License-Identifier: BSD-3-Clause
"""Ranks for tests: processes forked from one that has imported torch.

Importing torch takes seconds, forking milliseconds; so one process imports and
forks the ranks of every test.
"""

import atexit
import faulthandler
import os
import pickle
import shutil
import signal
import sys
import tempfile
import time
import traceback


class Rank:
    """What became of one rank: status is its exit status (a negative signal;
    None if it had to be killed for it did not end), value what its function
    returned, or text how it failed."""

    def __init__(self, pid, folder, rank):
        self.pid = pid
        self.status = None
        self.value = None
        self.text = ""
        self.seconds = None
        self._log = os.path.join(folder, f"log{rank}")
        self._result = os.path.join(folder, f"result{rank}")

    def reap(self, flags):
        """Has it ended?"""
        if self.seconds is not None:
            return True
        pid, status = os.waitpid(self.pid, flags)
        if pid:
            self.status = os.waitstatus_to_exitcode(status)
            self.seconds = time.monotonic()
        return bool(pid)

    def read(self):
        with open(self._log, errors="replace") as log:
            self.text = log.read()
        if os.path.exists(self._result):
            with open(self._result, "rb") as result:
                self.value = pickle.load(result)


def _child(function, arguments, rank, n, folder):
    log = os.open(os.path.join(folder, f"log{rank}"),
                  os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    sys.stdout = os.fdopen(1, "w", buffering=1, closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)
    # Who hangs tells where.
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(n), LOCAL_RANK=str(rank),
                      LOCAL_WORLD_SIZE=str(n))
    status = 1
    try:
        import torch.distributed as dist

        store = dist.FileStore(os.path.join(folder, "store"), n)
        value = function(store, rank, n, *arguments)
        path = os.path.join(folder, f"result{rank}")
        with open(path + "~", "wb") as out:
            pickle.dump(value, out)
        os.rename(path + "~", path)
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        # As an interpreter that ends does.
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def run(n, function, *arguments, seconds=120, during=None):
    """Run function(store, rank, n, *arguments) in n processes.

    Returns a list of Rank. Who has not ended after so many seconds says where
    it is and is killed. during(ranks) is called once they run: to stop one, or
    to kill it.
    """
    folder = tempfile.mkdtemp(prefix="dicomm-torch-")
    ranks = []
    try:
        for rank in range(n):
            pid = os.fork()
            if pid == 0:
                _child(function, arguments, rank, n, folder)
            ranks.append(Rank(pid, folder, rank))
        end = time.monotonic() + seconds
        if during:
            during(ranks)
        while time.monotonic() < end:
            if all([rank.reap(os.WNOHANG) for rank in ranks]):
                break
            time.sleep(0.01)
        late = [rank for rank in ranks if rank.seconds is None]
        for rank in late:
            os.kill(rank.pid, signal.SIGCONT)
            os.kill(rank.pid, signal.SIGUSR1)
        if late:
            time.sleep(1)
        for rank in late:
            os.kill(rank.pid, signal.SIGKILL)
            rank.reap(0)
            rank.status = None
        for rank in ranks:
            rank.read()
    finally:
        for rank in ranks:
            if rank.seconds is None:  # during() has raised
                os.kill(rank.pid, signal.SIGKILL)
                rank.reap(0)
        shutil.rmtree(folder, ignore_errors=True)
    return ranks


def values(ranks):
    """What the ranks returned; raises with their words if one failed."""
    for i, rank in enumerate(ranks):
        if rank.status != 0:
            how = ("did not end" if rank.status is None
                   else f"ended with status {rank.status}")
            raise AssertionError(f"rank {i} {how}:\n{rank.text[-4000:]}")
    return [rank.value for rank in ranks]
