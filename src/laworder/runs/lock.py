"""One process at a time in a run's folder.

The holder keeps a POSIX record lock on the file `lock` for as long as it lives and writes into it who it is: pid, host
and when the process began. The kernel drops the record lock when the process dies, however it dies, so that whoever
gets it may look at what the file says without a race:

- empty, or a process of this host that no longer exists (or whose pid now belongs to another process): take over;
- a process of this host that does exist (the file system pretends to lock): refuse;
- a process of another host (locks may not reach across): refuse, and say how to remove the lock by hand.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import socket
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType

from laworder.errors import UserError

_LOG = logging.getLogger(__name__)
_HELD: set[Path] = set()  # record locks do not exclude a process from itself


class LockedError(UserError):
    """Another process holds the run."""


@dataclass(frozen=True)
class Holder:
    """Who holds a lock. `began` tells two processes with the same pid apart."""

    pid: int
    host: str
    began: str

    @classmethod
    def me(cls) -> Holder:
        return cls(os.getpid(), socket.gethostname(), process_began(os.getpid()) or "")

    def alive(self) -> bool:
        """Whether that very process runs on this host."""
        return process_began(self.pid) == self.began


def process_began(pid: int) -> str | None:
    """When process `pid` began, in a form that no second process shares; None where there is none (or a zombie)."""
    return _began_by_proc(pid) if Path("/proc/self/stat").exists() else began_by_ps(pid)


def _began_by_proc(pid: int) -> str | None:
    try:
        # The command's name, in parentheses, may hold anything; after it the state, and as field 22 the start in ticks.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return None if fields[0] in "ZX" else f"{boot}:{fields[19]}"


def began_by_ps(pid: int) -> str | None:
    """The same where there is no /proc: macOS."""
    line = ["ps", "-o", "stat=,lstart=", "-p", str(pid)]
    state, _, began = subprocess.run(line, capture_output=True, text=True, check=False).stdout.strip().partition(" ")
    return began.strip() if state and not state.startswith("Z") else None


class Lock:
    """`with Lock(folder):` — LockedError where somebody else is in."""

    def __init__(self, folder: str | Path) -> None:
        self.path = Path(folder).resolve() / "lock"
        self._file: int | None = None

    def __enter__(self) -> Lock:
        if sys.platform == "win32":
            raise UserError("runs need Linux or macOS: Windows has no POSIX locks; use WSL")
        if self.path in _HELD:
            raise LockedError(f"{self.path.parent} is already in use by this process")
        file = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            self._acquire(file)
        except BaseException:
            os.close(file)
            raise
        self._file = file
        _HELD.add(self.path)
        return self

    def _acquire(self, file: int) -> None:
        alone = self._record_lock(file)
        holder = _read(file) if alone else _read_written(file)
        if not alone or (holder and holder.host == socket.gethostname() and holder.alive()):
            who = f"process {holder.pid} on {holder.host}" if holder else "a process that is just starting"
            raise LockedError(f"{self.path.parent} is in use by {who}; wait for it, stop it, or use another folder")
        if holder and holder.host != socket.gethostname():
            raise LockedError(
                f"{self.path.parent} is in use by process {holder.pid} on {holder.host}, which cannot be asked from "
                f"here; if that process is gone, remove {self.path}"
            )
        if holder:
            _LOG.info("took over the lock of process %d, which is gone", holder.pid)
        _overwrite(file, json.dumps(asdict(Holder.me())).encode())

    def _record_lock(self, file: int) -> bool:
        import fcntl  # POSIX only

        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in (errno.EAGAIN, errno.EACCES):
                return False
            # A file system without locks (some cluster ones): pid and start time still tell the living from the dead.
            _LOG.warning("%s: no locks on this file system (%s); relying on the pid", self.path, error.strerror)
        return True

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        assert self._file is not None, "a lock is left once, after it was entered"
        # Emptied, not removed: a file that vanishes between a rival's open and its lock would let two in.
        os.ftruncate(self._file, 0)
        os.close(self._file)
        self._file = None
        _HELD.discard(self.path)


def _read(file: int) -> Holder | None:
    content = os.pread(file, 4096, 0)
    try:
        return Holder(**json.loads(content))
    except (ValueError, TypeError):
        return None  # empty, or torn by the death of its writer


def _read_written(file: int) -> Holder | None:
    """The holder of a lock that is held; one that is just getting in needs a moment to say who it is."""
    for _ in range(50):
        holder = _read(file)
        if holder and (holder.host != socket.gethostname() or holder.alive()):
            return holder
        time.sleep(0.02)
    return None


def _overwrite(file: int, content: bytes) -> None:
    os.ftruncate(file, 0)
    os.pwrite(file, content, 0)
    os.fsync(file)
