"""Group commit: one flush covers every append, to whatever log, that arrived while the previous one ran."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from kafkalite_broker.log.disk import LocalFile
from kafkalite_core.storage.errors import DiskFailure, ReadInterrupted

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Sequence
    from concurrent.futures import Executor

    from kafkalite_broker.log.kernel_sync import KernelSync
    from kafkalite_broker.log.volume_sync import VolumeSync
    from kafkalite_core.storage.flushing import FlushTicket
    from kafkalite_core.storage.log import Log


class GroupFlusher:
    """Flushes dirty logs, one group at a time: on the I/O threads, or on the kernel's where that is enough.

    All methods are called on the loop's thread.

    Args:
        loop: The event loop.
        executor: The I/O threads.
        on_flushed: Called for each log that a flush has covered.
        on_fatal: Called once with the first error of a flush: the process must exit, nothing is tried again (R12).
        workers: Threads that one group may occupy; may be changed at any time.
        volume_sync: Syncs the whole volume at once, where that is safe.
        kernel_sync: Syncs files without our threads, where the system has it.
        on_timed: Told how many seconds each group took, from when it began until the last of its logs was flushed.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        executor: Executor,
        *,
        on_flushed: Callable[[Log], None],
        on_fatal: Callable[[BaseException], None],
        workers: int = 8,
        volume_sync: VolumeSync | None = None,
        kernel_sync: KernelSync | None = None,
        on_timed: Callable[[float], None] = lambda _: None,
    ) -> None:
        assert workers > 0
        self._loop = loop
        self._executor = executor
        self._on_flushed = on_flushed
        self._on_fatal = on_fatal
        self.workers = workers
        self._volume_sync = volume_sync
        self._kernel_sync = kernel_sync
        self._on_timed = on_timed
        self._dirty: dict[Log, None] = {}
        self._scheduled = False
        self._running = 0
        self._failed = False
        self._oldest_since: float | None = None
        self._idle_waiters: list[asyncio.Future[None]] = []
        self.flushes = 0

    @property
    def failed(self) -> bool:
        """A flush failed: nothing will be flushed any more."""
        return self._failed

    def oldest_flush_age_s(self) -> float:
        """Seconds since the oldest unfinished flush was asked for; 0 when there is none. Any thread may ask."""
        since = self._oldest_since
        return 0.0 if since is None else max(time.monotonic() - since, 0.0)

    def mark_dirty(self, log: Log) -> None:
        """The log has bytes to be flushed: at the end of this turn of the loop, or after the flush that runs now."""
        self._dirty[log] = None
        if self._oldest_since is None:
            self._oldest_since = time.monotonic()
        if not self._scheduled and not self._running and not self._failed:
            self._scheduled = True
            self._loop.call_soon(self._begin)

    async def drain(self) -> None:
        """Waits until nothing is dirty or running (or a flush has failed)."""
        if self._idle:
            return
        waiter: asyncio.Future[None] = self._loop.create_future()
        self._idle_waiters.append(waiter)
        await waiter

    @property
    def _idle(self) -> bool:
        return self._failed or not (self._dirty or self._running or self._scheduled)

    def _begin(self) -> None:
        self._scheduled = False
        dirty, self._dirty = self._dirty, {}
        self._oldest_since = time.monotonic()
        work: list[tuple[Log, FlushTicket]] = []
        clean: list[Log] = []
        try:
            for log in dirty:
                if not log.closed:
                    ticket = log.begin_flush()
                    if ticket is None:
                        clean.append(log)
                    else:
                        work.append((log, ticket))
        except Exception as error:
            self._fail(error)
            return
        self._submit(work)
        for log in clean:  # an earlier flush covered it already
            self._on_flushed(log)
        if not work:
            self._next()

    def _submit(self, work: list[tuple[Log, FlushTicket]]) -> None:
        if not work:
            return
        self.flushes += 1
        if self._volume_sync is not None:
            parts = [work]
        else:
            work = self._begin_in_kernel(work)
            count = min(self.workers, len(work))
            parts = [work[start::count] for start in range(count)]
        self._running += len(parts)
        for part in parts:
            self._executor.submit(self._run, part)

    def _begin_in_kernel(self, work: list[tuple[Log, FlushTicket]]) -> list[tuple[Log, FlushTicket]]:
        """Have the kernel sync the tickets that are about files only; returns the others, which threads are to run."""
        kernel = self._kernel_sync
        if kernel is None:
            return work
        part: list[tuple[Log, FlushTicket]] = []
        others: list[tuple[Log, FlushTicket]] = []
        files: list[LocalFile] = []
        for entry in work:
            own = [file for file, _ in (*entry[1].files, *entry[1].small_files) if isinstance(file, LocalFile)]
            if entry[1].directories or not own or len(files) + len(own) > kernel.free:
                others.append(entry)
            else:
                part.append(entry)
                files.extend(own)
        if not part or self._sync(kernel, files, part):
            return others
        return work

    def _sync(self, kernel: KernelSync, files: list[LocalFile], part: list[tuple[Log, FlushTicket]]) -> bool:
        """Begin; False when the kernel does not take all of the files, and threads are to run the tickets as well."""
        pinned: list[tuple[LocalFile, int]] = []
        for file in files:
            try:
                pinned.append((file, file.begin_sync()))
            except ReadInterrupted:
                continue  # a truncation, retention or a deletion took it away
            except OSError as error:
                self._loop.call_soon(self._fail, DiskFailure(f"sync {part[0][0].directory}: {error}"))
        left = len(pinned)

        def ended(code: int) -> None:
            nonlocal left
            left -= 1
            if code:
                names = ", ".join(log.directory for log, _ in part)
                self._fail(DiskFailure(f"sync of a file of {names}: {os.strerror(code)}"))
            elif not left:
                self._complete(part)

        taken = kernel.begin([descriptor for _, descriptor in pinned], ended)
        for file, _ in pinned:
            file.sync_begun()
        if taken < len(pinned):
            return False
        self._running += 1
        if not pinned:
            self._loop.call_soon(self._complete, part)
        return True

    def _run(self, part: Sequence[tuple[Log, FlushTicket]]) -> None:
        """On an I/O thread."""
        try:
            if self._volume_sync is not None:
                self._volume_sync.run()
            else:
                for _, ticket in part:
                    ticket.run()
        except BaseException as error:
            self._report(self._fail, error)
            return
        self._report(self._complete, part)

    def _report(self, callback: Callable[..., None], argument: object) -> None:
        try:
            self._loop.call_soon_threadsafe(callback, argument)
        except RuntimeError:
            if not self._loop.is_closed():
                raise

    def _complete(self, part: Sequence[tuple[Log, FlushTicket]]) -> None:
        self._running -= 1
        if self._failed:
            return
        for log, ticket in part:
            log.complete_flush(ticket)
        if not self._running:
            self._on_timed(self.oldest_flush_age_s())
            self._next()
        for log, _ in part:
            self._on_flushed(log)

    def _next(self) -> None:
        """The group is done: the next one begins at once if anything became dirty meanwhile."""
        if self._dirty:
            if not self._scheduled:
                self._scheduled = True
                self._loop.call_soon(self._begin)
            return
        self._oldest_since = None
        waiters, self._idle_waiters = self._idle_waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def _fail(self, error: BaseException) -> None:
        if self._failed:
            return
        self._failed = True
        waiters, self._idle_waiters = self._idle_waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
        self._on_fatal(error)
