"""Compaction of the logs of a broker: which one is next, and its pass on a thread of its own.

The dirtiest log that is due comes first; one for which there was no room, or whose pass was broken off, lets the others
pass. What a pass decides and renames happens on the loop's thread, in steps of well under a millisecond per segment;
reading, filtering, writing and syncing in small pieces on the cleaner's thread. After each piece the cleaner rests for
as long as the piece took, since its Python holds the interpreter's lock: so the event loop has at least half of the
processor.
"""

from __future__ import annotations

import asyncio
import contextlib
from time import monotonic
from typing import TYPE_CHECKING, Final

from kafkalite_broker.resizable_pool import ResizablePool
from kafkalite_core.model.config import CLEANER_THREADS_MAX, broker_flag, broker_integer
from kafkalite_core.model.errors import StorageError
from kafkalite_core.storage.compaction import plan_compaction
from kafkalite_core.storage.compaction_pass import compact
from kafkalite_core.storage.errors import DiskFailure
from kafkalite_runtime.logging import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

    from kafkalite_broker.log.cleaner_telemetry import CleanerTelemetry
    from kafkalite_broker.log.manager import LogManager
    from kafkalite_core.storage.compaction import CompactionPlan
    from kafkalite_core.storage.compaction_pass import CompactionResult, Job
    from kafkalite_core.storage.log import Log

log_events = get_logger(__name__)

SPARE_BYTES: Final = 64 << 20
"""Free space that a pass leaves to appends; a log whose next segment needs more has to wait."""

RESTS_PER_WORK: Final = 1.0
BACKOFF_MIN_S: Final = 0.05
POSTPONED_S: Final = 300.0
"""So long a log whose pass found no room is left alone: there are others, for which there may be room. One whose pass
was broken off waits for the back-off, then twice as long each time until one comes to its end, never longer than this:
a cut is over in a moment, but most of a pass is lost."""


class LogCleaner:
    """Compacts logs one after another, `log.cleaner.threads` at a time. Used on the loop's thread.

    Args:
        logs: The logs and their cleaner offsets.
        high_watermarks: Tells how far each log may be compacted; one that it does not name is left alone.
        config: Broker keys.
        wall_ms: Wall clock.
        telemetry: Figures.
        on_fatal: Told the error after which the process must end (R12).
        clock: A monotonic clock, in seconds.
    """

    def __init__(
        self,
        logs: LogManager,
        *,
        high_watermarks: Callable[[], Mapping[Log, int]],
        config: Mapping[str, str],
        wall_ms: Callable[[], int],
        telemetry: CleanerTelemetry,
        on_fatal: Callable[[BaseException], None],
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._logs = logs
        self._high_watermarks = high_watermarks
        self._wall_ms = wall_ms
        self._telemetry = telemetry
        self._on_fatal = on_fatal
        self._enabled = broker_flag(config, "log.cleaner.enable")
        self._follow(config)
        self._pool = ResizablePool(self._threads, thread_name_prefix="cleaner")
        self._changed = asyncio.Event()
        self._in_progress: set[str] = set()
        self._uncleanable: set[Log] = set()
        self._postponed_to_s: dict[Log, float] = {}
        self._broken_off_s: dict[Log, float] = {}
        self._clock = clock
        self._looked_s = clock()
        telemetry.idle_ms = lambda: (clock() - self._looked_s) * 1000.0

    def _follow(self, config: Mapping[str, str]) -> None:
        self._threads = broker_integer(config, "log.cleaner.threads")
        self._backoff_s = max(broker_integer(config, "log.cleaner.backoff.ms") / 1000.0, BACKOFF_MIN_S)
        self._map_bytes = broker_integer(config, "log.cleaner.dedupe.buffer.size") // self._threads

    def reconfigure(self, config: Mapping[str, str]) -> None:
        """Other broker keys. A pass that is under way ends with the memory that it began with."""
        self._follow(config)
        self._pool.resize(self._threads)
        self._changed.set()
        self._changed = asyncio.Event()

    async def run(self) -> None:
        """Compacts whatever is due, for ever. Nothing when `log.cleaner.enable` is false."""
        if self._enabled:
            await asyncio.gather(*(self._work(number) for number in range(CLEANER_THREADS_MAX)))

    async def stop(self) -> None:
        """Returns when no thread touches a log any more; `run` was cancelled before."""
        await asyncio.get_running_loop().run_in_executor(None, self._pool.shutdown)

    async def _work(self, number: int) -> None:
        """What one thread is for; idle while there are no more threads than its number."""
        while True:
            if number >= self._threads:
                await self._changed.wait()
            elif not await self.clean_once():
                await self._rest()

    async def _rest(self) -> None:
        """For the back-off, or until that is another one."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._backoff_s):
                await self._changed.wait()

    async def clean_once(self) -> bool:
        """One pass over the log that needs it most, whether it succeeds or not; False when there is none."""
        choice = self._choose()
        if choice is None:
            return False
        log, plan = choice
        self._in_progress.add(log.directory)
        try:
            if await self._clean(log, plan):
                self._broken_off_s.pop(log, None)
            else:
                self._wait_for_quiet(log)
        except DiskFailure as error:
            self._on_fatal(error)
            return False
        except StorageError as error:
            self._postponed_to_s[log] = self._clock() + POSTPONED_S
            log_events.warning("no room to compact, trying again later", directory=log.directory, error=str(error))
        except Exception as error:
            # Damaged batches, or a defect: the log stays as it is, and others go on.
            log_events.error("log cannot be compacted until the next start", directory=log.directory, exc_info=error)
            self._uncleanable.add(log)
        finally:
            self._in_progress.discard(log.directory)
        return True

    def _wait_for_quiet(self, log: Log) -> None:
        """Twice as long as the last time, where no pass has come to its end since."""
        wait_s = min(2 * self._broken_off_s.get(log, self._backoff_s / 2), POSTPONED_S)
        self._broken_off_s[log] = wait_s
        self._postponed_to_s[log] = self._clock() + wait_s

    def _choose(self) -> tuple[Log, CompactionPlan] | None:
        """The dirtiest log that is due, as Kafka's `grabFilthiestCompactedLog`."""
        now_ms = self._wall_ms()
        self._looked_s = now_s = self._clock()
        self._postponed_to_s = {log: until for log, until in self._postponed_to_s.items() if until > now_s}
        self._broken_off_s = {log: wait for log, wait in self._broken_off_s.items() if not log.closed}
        self._uncleanable = {log for log in self._uncleanable if not log.closed}
        best: tuple[Log, CompactionPlan] | None = None
        max_ratio, max_delay_ms = 0.0, 0
        for log, mark in self._high_watermarks().items():
            if not log.config.compacts or log.closed or log in self._uncleanable or log.directory in self._in_progress:
                continue
            plan = plan_compaction(log, self._logs.cleaner_offset(log), high_watermark=mark, now_ms=now_ms)
            max_ratio = max(max_ratio, plan.dirty_ratio)
            max_delay_ms = max(max_delay_ms, plan.overdue_ms)
            if log in self._postponed_to_s:
                continue
            if plan.due and (best is None or plan.dirty_ratio > best[1].dirty_ratio):
                best = log, plan
        self._telemetry.looked(max_dirty_ratio=max_ratio, max_delay_ms=max_delay_ms, uncleanable=len(self._uncleanable))
        return best

    async def _clean(self, log: Log, plan: CompactionPlan) -> bool:
        """One pass; False when it was broken off."""
        began_s, map_bytes = monotonic(), self._map_bytes
        work = compact(log, plan, map_bytes=map_bytes, now_ms=self._wall_ms(), spare_bytes=SPARE_BYTES)
        result = await self._carry_out(work)
        if result.cleaned_to is None:
            log_events.info("compaction broken off", directory=log.directory, reason=result.reason)
            return False
        job = self._logs.cleaned_job(log, result.cleaned_to)
        await asyncio.get_running_loop().run_in_executor(self._pool, job)
        seconds = monotonic() - began_s
        self._telemetry.cleaned(
            bytes_read=result.bytes_read,
            bytes_written=result.bytes_written,
            seconds=seconds,
            map_ratio=result.map_bytes / map_bytes,
        )
        log_events.info(
            "log compacted",
            directory=log.directory,
            first_dirty=plan.first_dirty,
            cleaned_to=result.cleaned_to,
            bytes_before=result.bytes_read,
            bytes_after=result.bytes_written,
            segments_before=result.segments_before,
            segments_after=result.segments_after,
            keys_did_not_fit=result.map_full,
            seconds=round(seconds, 3),
        )
        return True

    async def _carry_out(self, work: Generator[Job, None, CompactionResult]) -> CompactionResult:
        """Runs the jobs of a pass on the thread, resting in between; a job's error goes back into the pass."""
        loop = asyncio.get_running_loop()
        try:
            job = next(work)
            while True:
                began_s = monotonic()
                try:
                    await loop.run_in_executor(self._pool, job)
                except Exception as error:
                    job = work.throw(error)
                else:
                    await asyncio.sleep((monotonic() - began_s) * RESTS_PER_WORK)
                    job = next(work)
        except StopIteration as done:
            result: CompactionResult = done.value
            return result
