"""Processes that outlive whoever started them, and the news of their end whoever that was.

A pidfd becomes readable when the process ends, child or not, so a kubelet that was restarted learns of the end of
a broker it did not start as fast as of one it did.
"""

import asyncio
import os
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from kafkalite_runtime.home import ProcessRecord, start_time_of, stat_fields

UNKNOWN_EXIT = 137  # what Kubernetes reports for a container that is gone without a trace
EXIT_NOTE_WAIT_S = 0.3


@dataclass(frozen=True, slots=True)
class Exit:
    """How a process ended: `signal` is 0 for a normal exit; `code` is then its own, else 128 + signal."""

    code: int
    signal: int = 0

    @classmethod
    def from_wait_status(cls, status: int) -> "Exit":
        """From the status word of wait(2)."""
        if os.WIFSIGNALED(status):
            return cls(128 + os.WTERMSIG(status), os.WTERMSIG(status))
        return cls(os.WEXITSTATUS(status))


def now_text() -> str:
    """RFC 3339, seconds, UTC, as Kubernetes writes it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def spawn(argv: Sequence[str], *, env: Mapping[str, str], log: Path, name: str) -> ProcessRecord:
    """Start a process in its own session with its output appended to `log`.

    No parent-death signal: brokers must survive a crash of the kubelet. Raises OSError when it cannot be executed.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    try:
        pid = os.posix_spawn(
            argv[0],
            list(argv),
            dict(env),
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_DUP2, output, 1),
                (os.POSIX_SPAWN_DUP2, output, 2),
            ],
            setsid=True,
            setsigmask=[],
            setsigdef=[signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE, signal.SIGUSR1],
        )
    finally:
        os.close(output)
    # Nobody has waited for it yet, so even one that ended at once still has its entry.
    fields = stat_fields(pid)
    assert fields is not None, f"child {pid} has no entry in /proc"
    return ProcessRecord(name=name, pid=pid, start_time=int(fields[19]), started_at=now_text())


class Watched:
    """Waits for the end of one process, child or not."""

    def __init__(self, record: ProcessRecord, exits: Path) -> None:
        self.record = record
        self._exits = exits
        self._descriptor: int | None = None
        loop = asyncio.get_running_loop()
        self._ended = asyncio.Event()
        try:
            self._descriptor = os.pidfd_open(record.pid)
        except ProcessLookupError:
            self._ended.set()
            return
        fields = stat_fields(record.pid)
        if fields is None or int(fields[19]) != record.start_time:
            self._close()
            self._ended.set()
            return
        loop.add_reader(self._descriptor, self._readable)

    async def wait(self) -> Exit:
        """Return as soon as it has ended; how it ended is found out as well as possible."""
        await self._ended.wait()
        return await self._find_exit()

    def send(self, number: int) -> None:
        """Signal it; harmless when it is gone."""
        if not self._ended.is_set():
            self.record.signal(number)

    @property
    def ended(self) -> bool:
        """Whether it is known to have ended."""
        return self._ended.is_set()

    def abandon(self) -> None:
        """Stop watching; the process goes on."""
        if self._descriptor is not None:
            asyncio.get_running_loop().remove_reader(self._descriptor)
            self._close()

    def _readable(self) -> None:
        self.abandon()
        self._ended.set()

    def _close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    async def _find_exit(self) -> Exit:
        pid = self.record.pid
        try:
            waited, status = os.waitpid(pid, os.WNOHANG)  # noqa: ASYNC222  (does not block)
            if waited == pid:
                return Exit.from_wait_status(status)
        except ChildProcessError:
            pass
        # Not our child. A zombie still tells; one that the supervisor reaped was noted by it.
        fields = stat_fields(pid)
        if fields and int(fields[19]) == self.record.start_time and fields[0] == "Z":
            return Exit.from_wait_status(int(fields[49]))
        deadline = asyncio.get_running_loop().time() + EXIT_NOTE_WAIT_S
        while True:
            if (noted := read_exit_note(self._exits, self.record)) is not None:
                return noted
            if asyncio.get_running_loop().time() >= deadline:
                return Exit(UNKNOWN_EXIT)
            await asyncio.sleep(0.02)


def exit_note(exits: Path, pid: int, start_time: int) -> Path:
    """Where the end of an orphan is noted."""
    return exits / f"{pid}-{start_time}"


def read_exit_note(exits: Path, record: ProcessRecord) -> Exit | None:
    """What the supervisor wrote about a process it reaped; the note is removed."""
    path = exit_note(exits, record.pid, record.start_time)
    try:
        status = int(path.read_text(encoding="ascii"))
        path.unlink()
    except (OSError, ValueError):
        return None
    return Exit.from_wait_status(status)


def adopt(path: Path) -> ProcessRecord | None:
    """The process of a record file when it still runs."""
    record = ProcessRecord.read(path)
    return record if record is not None and start_time_of(record.pid) == record.start_time else None
