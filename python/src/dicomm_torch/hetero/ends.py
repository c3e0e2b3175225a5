# SPDX-License-Identifier: BSD-3-Clause
"""How the processes of this machine end.

Only a parent is told how a process ended. But a zombie shows it in /proc, and
the kernel (Linux 6.15) tells who has held a pidfd since the process lived.
torchrun ends all others by SIGTERM as soon as one has ended: so ranks look who
that was before they go.
"""

import contextlib
import ctypes
import fcntl
import json
import os
import select
import signal
import socket
import struct
import threading
import weakref

_GET_INFO = 0xC040FF0B  # PIDFD_GET_INFO, of the first 64 bytes
_EXIT = 1 << 3  # PIDFD_INFO_EXIT
_EXIT_AT = 60  # exit_code in struct pidfd_info
_STAT_EXIT = 51  # exit_code in /proc/PID/stat, from state on counted as 2


def in_words(status):
    """What waitpid() says of a process."""
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        return f"ended with status {code}"
    with contextlib.suppress(ValueError):
        return f"was killed by signal {-code} ({signal.Signals(-code).name})"
    return f"was killed by signal {-code}"


_TERM = in_words(signal.SIGTERM)


def _place():
    """Processes of one place see each other under their numbers."""
    with open("/proc/sys/kernel/random/boot_id") as boot:
        return f"{boot.read().strip()} {os.readlink('/proc/self/ns/pid')}"


def _stat(pid):
    """The fields of /proc/PID/stat behind the name of the program, from 2 on;
    None: there is no such process."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return ["", ""] + stat.read().rpartition(")")[2].split()
    except OSError:
        return None


class _Process:
    def __init__(self, pid):
        self.pid = pid
        self.fd = os.pidfd_open(pid)

    def status(self):
        """As waitpid() has it; None: it is not known, or it lives."""
        stat = _stat(self.pid)
        if stat and stat[2] == "Z":
            return int(stat[_STAT_EXIT])
        told = bytearray(struct.pack("=Q", _EXIT) + bytes(56))
        with contextlib.suppress(OSError):
            fcntl.ioctl(self.fd, _GET_INFO, told)
            if struct.unpack_from("=Q", told)[0] & _EXIT:
                return struct.unpack_from("=i", told, _EXIT_AT)[0]
        return None

    def end(self):
        """In words; None: it lives."""
        poll = select.poll()  # select() takes descriptors below 1024 only
        poll.register(self.fd, select.POLLIN)
        if poll.poll(0):
            status = self.status()
            return "ended" if status is None else in_words(status)
        return None

    def is_stopped(self):
        stat = _stat(self.pid)
        return bool(stat) and stat[2] == "T"


class Ends:
    """Of the ranks of a group, those of this machine. where(rank) says what a
    rank does. All ranks make it, and then open() it when all have."""

    def __init__(self, store, rank, ranks, where):
        self._store = store
        self._rank, self._ranks = rank, ranks
        self._where = where
        self._of = {}  # by rank
        self._host = socket.gethostname()
        try:
            self._mine = _place()
        except OSError:  # no /proc
            self._mine = None
        store.set(f"lives/{rank}", json.dumps([self._mine, os.getpid()]))

    def open(self):
        keys = [f"lives/{rank}" for rank in range(self._ranks)]
        every = (self._store.multi_get(keys)
                 if self._store.has_extended_api()
                 else [self._store.get(key) for key in keys])
        for rank, told in enumerate(every):
            place, pid = json.loads(told)
            if rank == self._rank or not self._mine or place != self._mine:
                continue
            with contextlib.suppress(OSError, AttributeError):
                self._of[rank] = _Process(pid)
        _watch(self)

    def ended(self):
        """{rank: how}, in words. Without those that a launcher ended by
        SIGTERM since, if there are others."""
        every = {rank: process.end() for rank, process in self._of.items()}
        every = {rank: how for rank, how in every.items() if how}
        first = {rank: how for rank, how in every.items() if how != _TERM}
        return first or every

    def stopped(self):
        return [rank for rank, process in self._of.items()
                if process.is_stopped()]

    def words(self, rank, how):
        process = self._of.get(rank)
        at = f" ({self._host} pid {process.pid})" if process else ""
        return f"{self._where(rank)}{at} {how}"

    def close(self):
        _open.discard(self)
        for process in self._of.values():
            os.close(process.fd)
        self._of = {}


# -- before this process is ended ---------------------------------------------

_open = weakref.WeakSet()
_leaving = threading.RLock()
_said = set()


def say(text):
    """On the screen at once, as this process may be killed next; and once."""
    if text in _said:
        return
    _said.add(text)
    with contextlib.suppress(OSError):
        os.write(2, f"dicomm hetero: {text}\n".encode())


def _leave():
    """Says who has ended before, and ends by SIGTERM."""
    with _leaving:
        for ends in list(_open):
            with contextlib.suppress(Exception):
                for rank, how in ends.ended().items():
                    say(ends.words(rank, how))
        # Python sets handlers in the main thread only, which may be waiting.
        ctypes.CDLL(None).signal(signal.SIGTERM, None)
        os.kill(os.getpid(), signal.SIGTERM)


def _on_term(number, frame):
    _leave()


def _listen(woken):
    """Handlers in Python wait until the main thread is out of what it calls;
    the number of the signal comes here at once."""
    while True:
        told = os.read(woken, 1)
        if not told:
            return
        if (told[0] == signal.SIGTERM
                and signal.getsignal(signal.SIGTERM) is _on_term):
            _leave()


def _watch(ends):
    """Have SIGTERM wait until it was told who had ended, unless the program
    has something else in mind for it, or this is not the main thread."""
    _open.add(ends)
    if (signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
            or threading.current_thread() is not threading.main_thread()):
        return
    woken, end = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    other = signal.set_wakeup_fd(end, warn_on_full_buffer=False)
    if other == -1:
        os.set_blocking(woken, True)
        signal.signal(signal.SIGTERM, _on_term)
        threading.Thread(target=_listen, args=(woken,), daemon=True).start()
        return
    # Somebody else listens, to whom _on_term would come too late.
    signal.set_wakeup_fd(other)
    os.close(woken)
    os.close(end)


_forking = threading.local()


def _hold():
    """A SIGTERM to a process that is just forked would be told to its parent,
    by the pipe that they share: it has to wait."""
    _forking.mask = None
    if signal.getsignal(signal.SIGTERM) is _on_term:
        _forking.mask = signal.pthread_sigmask(
            signal.SIG_BLOCK, [signal.SIGTERM])


def _go_on():
    if _forking.mask is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, _forking.mask)


def _forget():
    """A process that a rank forks, such as a loader of data, is none."""
    _open.clear()
    if signal.getsignal(signal.SIGTERM) is _on_term:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.set_wakeup_fd(-1)
    _go_on()


os.register_at_fork(before=_hold, after_in_parent=_go_on,
                    after_in_child=_forget)
