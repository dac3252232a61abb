"""Removing what nobody looks for under its name any more: one after the other, off the loop's thread.

ext4 takes seconds to unlink a file of many gigabytes, which would cost the broker its Lease. So whatever is handed over
here has another name already, durably where that matters: nothing is made anew under it. What is left when the process
ends is gone on with by the next start, and what can't be removed is tried again: it takes room, and nobody reads it.
"""

from __future__ import annotations

import threading
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from kafkalite_runtime.logging import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalite_broker.log.directory import DataDirectory

log = get_logger(__name__)


class _Removal(NamedTuple):
    path: str
    size_bytes: int
    keep: str | None


def at_once(work: Callable[[], None]) -> None:
    """Whoever hands over removes."""
    work()


def on_thread(work: Callable[[], None]) -> None:
    """A thread that lives as long as there is something to remove; it does not keep the process from its end."""
    threading.Thread(target=work, name="removal", daemon=True).start()


class Removals:
    """See the module. Methods may be called on any thread.

    Args:
        disk: The data directory.
        start: Has the work done somewhere; not called again before it has ended.
    """

    def __init__(self, disk: DataDirectory, start: Callable[[Callable[[], None]], None] = at_once) -> None:
        self._disk = disk
        self._start = start
        self._changed = threading.Condition()
        self._queue: deque[_Removal] = deque()
        self._failed: list[_Removal] = []
        self._pending_bytes = 0
        self._working = False
        self._closed = False

    @property
    def pending_bytes(self) -> int:
        """What is about to be free."""
        return self._pending_bytes

    def remove(self, path: str, size_bytes: int = 0, *, keep: str | None = None) -> None:
        """A file goes, or a directory with all that is in it: of one with an entry `keep`, all but that entry."""
        with self._changed:
            if self._closed:
                return
            self._queue.append(_Removal(path, size_bytes, keep))
            self._pending_bytes += size_bytes
        self._go_on()

    def again(self) -> None:
        """What could not be removed is tried once more."""
        with self._changed:
            self._queue.extend(self._failed)
            self._pending_bytes += sum(removal.size_bytes for removal in self._failed)
            self._failed.clear()
        self._go_on()

    def close(self, wait_s: float = 0.0) -> bool:
        """Nothing more is begun. Waits so long for the file that is being removed; whether that has ended."""
        with self._changed:
            self._closed = True
            self._queue.clear()
            return self._changed.wait_for(lambda: not self._working, wait_s)

    def _go_on(self) -> None:
        with self._changed:
            if self._working or not self._queue:
                return
            self._working = True
        try:
            self._start(self._work)
        except RuntimeError as error:  # no thread to be had
            self._end()
            log.error("nothing is removed, trying again later", error=str(error))

    def _work(self) -> None:
        try:
            while (removal := self._next()) is not None:
                failed = False
                try:
                    with suppress(FileNotFoundError):  # its directory has another name meanwhile, or it went before
                        self._carry_out(removal)
                except OSError as error:
                    log.error("not removed, trying again later", path=removal.path, error=str(error))
                    failed = True
                with self._changed:
                    self._pending_bytes -= removal.size_bytes
                    if failed:
                        self._failed.append(removal)
        except BaseException:
            self._end()  # what comes next begins anew
            raise

    def _next(self) -> _Removal | None:
        with self._changed:
            if self._queue:
                return self._queue.popleft()
            self._end()
            return None

    def _end(self) -> None:
        with self._changed:
            self._working = False
            self._changed.notify_all()

    def _carry_out(self, removal: _Removal) -> None:
        disk, path = self._disk, removal.path
        if not disk.is_directory(path):
            disk.remove(path)
            return
        for name in disk.list(path):
            if self._closed:
                return
            if name != removal.keep:
                inner = f"{path}/{name}"
                with suppress(FileNotFoundError):
                    (disk.remove_tree if disk.is_directory(inner) else disk.remove)(inner)
        if removal.keep is None:
            disk.remove(path)
