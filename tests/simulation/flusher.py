"""Group commit on a simulated disk: begin, sync, completion, each at its own time (R11, S8)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafkalite_core.storage.flushing import FlushTicket
    from kafkalite_core.storage.log import Log
    from tests.simulation.broker import Broker

LATE_SYNC_MS, LATE_MS = 200.0, 1_500.0
Work = list[tuple["Log", "FlushTicket"]]


class Flusher:
    """One flush at a time covers every log that became dirty while the previous one ran."""

    __slots__ = ("_broker", "_dirty", "_running", "_scheduled", "delay_ms", "oldest_ms")

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._dirty: dict[Log, None] = {}
        self._scheduled = False
        self._running = False
        self.oldest_ms: float | None = None

    def mark_dirty(self, log: Log) -> None:
        """Flush it at the end of this event, or after the flush that runs now."""
        self._dirty[log] = None
        if self.oldest_ms is None:
            self.oldest_ms = self._broker.world.now
        if not self._scheduled and not self._running:
            self._scheduled = True
            self._broker.world.at(0.0, self._broker.process, self._begin)

    @property
    def idle(self) -> bool:
        """Nothing is dirty or running."""
        return not (self._dirty or self._running or self._scheduled)

    def _begin(self) -> None:
        broker = self._broker
        self._scheduled = False
        dirty, self._dirty = self._dirty, {}
        self.oldest_ms = broker.world.now
        work: Work = []
        clean: list[Log] = []
        for log in dirty:
            if not log.closed:
                ticket = log.begin_flush()
                if ticket is None:
                    clean.append(log)
                else:
                    work.append((log, ticket))
        if work:
            self._running = True
            delay = broker.host.fsync_ms * (0.5 + broker.chance())
            if broker.host.late_completions:
                delay += LATE_SYNC_MS * broker.chance()
                broker.world.at(delay * broker.chance(), broker.process, self._sync, work)
                broker.world.at(delay + LATE_MS * (0.2 + broker.chance()), broker.process, self._complete, work)
            elif broker.chance() < 0.3:  # the disk has it, and the broker learns of that later
                broker.world.at(delay * broker.chance(), broker.process, self._sync, work)
                broker.world.at(delay, broker.process, self._complete, work)
            else:
                broker.world.at(delay, broker.process, self._sync_and_complete, work)
        for log in clean:
            broker.partitions.log_flushed(log)
        if not work:
            self._next()

    @staticmethod
    def _sync(work: Work) -> None:
        for _, ticket in work:
            ticket.run()

    def _sync_and_complete(self, work: Work) -> None:
        self._sync(work)
        self._complete(work)

    def _complete(self, work: Work) -> None:
        self._running = False
        for log, ticket in work:
            log.complete_flush(ticket)
        self._next()
        for log, _ in work:
            self._broker.partitions.log_flushed(log)

    def _next(self) -> None:
        if not self._dirty:
            self.oldest_ms = None
        elif not self._scheduled:
            self._scheduled = True
            self._broker.world.at(0.0, self._broker.process, self._begin)
