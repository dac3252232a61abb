"""One partition of `__consumer_offsets` that this broker leads: its coordinator, its log, its timer.

The coordinator is pure; here its records are appended with acks=all, its timer is kept, and its answers find their
requests. All of it happens on the event loop's thread.
"""

from __future__ import annotations

import asyncio
from collections import deque
from time import monotonic
from typing import TYPE_CHECKING, Protocol

from kafkalite_broker.clock import now_ms, wall_ms
from kafkalite_broker.groups.loading import Committed, read_records
from kafkalite_core.groups.coordinator import Coordinator
from kafkalite_core.groups.events import (
    Append,
    Appended,
    AppendFailed,
    Loaded,
    RecordsLoaded,
    Requested,
    Resigned,
    Restoring,
    Tick,
    TopicsDeleted,
)
from kafkalite_core.groups.refusals import refusal
from kafkalite_core.protocol.errors import ErrorCode
from kafkalite_core.protocol.record_batch import SimpleRecord, build_batch, parse_batch_header
from kafkalite_core.replica.events import ProduceRequested
from kafkalite_runtime.logging import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import Executor

    from kafkalite_broker.replication.driver import PartitionDriver
    from kafkalite_core.groups.config import GroupConfig
    from kafkalite_core.groups.events import Event, Record
    from kafkalite_core.groups.metadata_budget import MetadataBudget
    from kafkalite_core.replica.events import ProduceAnswered

ACKS_ALL = -1
TIMER_MS_MIN = 1.0
RESTORED_AT_ONCE = 100
"""Groups made from their records in one turn of the event loop."""

log_events = get_logger(__name__)


class Asked(Protocol):
    """A request that waits for its answer."""

    def answer(self, response: object) -> None:
        """The response; called once."""

    def failed(self, error: BaseException) -> None:
        """A defect: there will be no response."""


class LedPartition:
    """A coordinator and what it needs, from the election to the resignation of this broker.

    Args:
        driver: The partition; this broker leads it.
        config: The coordinator's configuration.
        metadata: Shared by all coordinators of the broker.
        io_pool: Threads for reading the log.
        append_timeout_ms: Tells `offsets.commit.timeout.ms`.
        on_broken: Told an error after which the state in memory cannot be trusted: this object resigns by itself, and
            the partition is to be loaded again.

    Attributes:
        load_ms: How long loading took; None until it is over.
    """

    def __init__(
        self,
        driver: PartitionDriver,
        config: GroupConfig,
        metadata: MetadataBudget,
        *,
        io_pool: Executor,
        append_timeout_ms: Callable[[], int],
        on_broken: Callable[[LedPartition, BaseException], None],
    ) -> None:
        self.driver = driver
        self.coordinator = Coordinator(config, metadata)
        self.load_ms: float | None = None
        self._io_pool = io_pool
        self._append_timeout_ms = append_timeout_ms
        self._on_broken = on_broken
        self._loop = asyncio.get_running_loop()
        self._inbox: deque[Event] = deque()
        self._open: dict[object, Requested] = {}
        self._kept_back: set[str] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0.0
        self._draining = False
        self._drain_scheduled = False
        self._resigning = False
        self._ended = False
        self._loading = self._loop.create_task(self._load(), name=f"load {driver.name}")

    @property
    def loaded(self) -> bool:
        """Whether requests are served, and not answered COORDINATOR_LOAD_IN_PROGRESS."""
        return self.load_ms is not None

    # ------------------------------------------------------------ what happens to it

    def ask(self, requested: Requested) -> None:
        """A request; its token, an `Asked`, is answered now or later."""
        if self._resigning:
            self._refuse(requested)
            return
        self._open[requested.token] = requested
        self._inbox.append(requested)
        self._drain()

    def topics_deleted(self, topics: frozenset[str]) -> None:
        """Topics are gone for good: so are the offsets committed for them."""
        if self.loaded:
            self._inbox.append(TopicsDeleted(topics=topics, wall_ms=wall_ms()))
            self._drain_soon()
        else:
            self._kept_back |= topics

    def reconfigure(self, config: GroupConfig) -> None:
        """New values are in force from the next event on."""
        self.coordinator.config = config

    def resign(self) -> None:
        """This broker does not lead the partition any longer: whoever waits is sent to the new coordinator.

        May be called from the middle of the partition's own step; the coordinator takes its step afterwards.
        """
        if self._resigning:
            return
        self._resigning = True
        self._loading.cancel()
        self._cancel_timer()
        self._inbox.append(Resigned())
        self._drain_soon()

    # ------------------------------------------------------------ loading

    async def _load(self) -> None:
        began_s = monotonic()
        try:
            end = await read_records(self.driver.log, self._io_pool, self._apply)
            while self.coordinator.unrestored:
                self._inbox.append(Restoring(groups=RESTORED_AT_ONCE))
                self._drain()
                await asyncio.sleep(0)
            # What is loaded must be committed before it is shown: an offset that was read must never go back.
            await Committed(self.driver).reaches(end)
            self._inbox.append(Loaded(wall_ms=wall_ms()))
            self._drain()
        except Exception as error:
            self._break(error)
            return
        if self._resigning:
            return
        self.load_ms = (monotonic() - began_s) * 1000.0
        log_events.info(
            "group coordinator loaded",
            partition=self.driver.name,
            leader_epoch=self.driver.replica.leader_epoch,
            log_end=end,
            groups=sum(self.coordinator.counts().values()),
            load_ms=round(self.load_ms, 1),
        )
        if self._kept_back:
            topics, self._kept_back = frozenset(self._kept_back), set()
            self.topics_deleted(topics)

    def _apply(self, records: Sequence[Record]) -> None:
        self._inbox.append(RecordsLoaded(records=records))
        self._drain()

    # ------------------------------------------------------------ events

    def _drain_soon(self) -> None:
        """Not in this turn: the caller may stand in the middle of the partition's effects."""
        if not self._drain_scheduled:
            self._drain_scheduled = True
            self._loop.call_soon(self._drain_scheduled_now)

    def _drain_scheduled_now(self) -> None:
        self._drain_scheduled = False
        self._drain()

    def _drain(self) -> None:
        """Take one step after the other; events that come up meanwhile wait for their turn."""
        if self._draining:
            return
        self._draining = True
        event = None
        try:
            while self._inbox and not self._ended:
                event = self._inbox.popleft()
                self._step(event)
        except Exception as error:
            if isinstance(event, Requested) and event.token in self._open:
                # Not retriable: sent again it would break the next coordinator as well.
                self._refuse(event, ErrorCode.UNKNOWN_SERVER_ERROR)
            self._break(error)
        finally:
            self._draining = False
        self._set_timer()

    def _step(self, event: Event) -> None:
        for effect in self.coordinator.step(now_ms(), event):
            if isinstance(effect, Append):
                self._append(effect)
            else:
                self._open.pop(effect.token, None)
                effect.token.answer(effect.response)  # type: ignore[attr-defined]
        if isinstance(event, Resigned):
            self._end()

    def _end(self) -> None:
        """Nobody is left waiting, whatever the coordinator thought of."""
        self._ended = True
        self.coordinator.close()
        self._inbox.clear()
        waiting, self._open = self._open, {}
        for requested in waiting.values():
            self._refuse(requested)

    def _break(self, error: BaseException) -> None:
        """A defect or a disk failure. What is in memory may be half changed, so it is given up; the log is not."""
        if self._ended:
            return
        self._resigning = True
        self._loading.cancel()
        self._cancel_timer()
        self._end()
        self._on_broken(self, error)

    def _refuse(self, requested: Requested, code: ErrorCode = ErrorCode.NOT_COORDINATOR) -> None:
        asked: Asked = requested.token  # type: ignore[assignment]
        self._open.pop(asked, None)
        try:
            asked.answer(refusal(requested.request, requested.api_version, code))
        except Exception as error:
            asked.failed(error)

    # ------------------------------------------------------------ records

    def _append(self, effect: Append) -> None:
        if self._resigning:
            # After the resignation nothing is due; the log has another leader.
            return
        stamp_ms, mono_ms = wall_ms(), now_ms()
        batch = build_batch([SimpleRecord(stamp_ms, key, value) for key, value in effect.records])
        if len(batch) > self.driver.config.max_message_bytes:
            self._appended(effect.append_id, ErrorCode.MESSAGE_TOO_LARGE)
            return
        self.driver.step(
            ProduceRequested(
                token=Appending(self, effect.append_id, len(effect.records), len(batch)),
                acks=ACKS_ALL,
                batch=batch,
                header=parse_batch_header(batch),
                received_ms=mono_ms,
                deadline_ms=mono_ms + self._append_timeout_ms(),
                wall_ms=stamp_ms,
            )
        )

    def _appended(self, append_id: int, error_code: int) -> None:
        if self._ended:
            return
        self._inbox.append(
            AppendFailed(append_id=append_id, error_code=error_code) if error_code else Appended(append_id=append_id)
        )
        self._drain_soon()

    def append_answered(self, appending: Appending, answer: ProduceAnswered) -> None:
        """The partition committed a batch, or did not."""
        if answer.error_code:
            log_events.warning(
                "group records not committed",
                partition=self.driver.name,
                error=ErrorCode.name_of(answer.error_code),
                message=answer.message,
                records=appending.records,
            )
        else:
            self.driver.telemetry.appended(appending.records, appending.size_bytes)
        self._appended(appending.append_id, answer.error_code)

    # ------------------------------------------------------------ time

    def _set_timer(self) -> None:
        due_ms = None if self._resigning else self.coordinator.next_deadline_ms()
        if due_ms is None:
            self._cancel_timer()
            return
        if self._timer is not None:
            if self._timer_ms <= due_ms:
                # It fires too early, finds nothing due and is set again: cheaper than a new timer for each heartbeat.
                return
            self._timer.cancel()
        self._timer_ms = due_ms
        self._timer = self._loop.call_later(max(due_ms - now_ms(), TIMER_MS_MIN) / 1000.0, self._fire)

    def _fire(self) -> None:
        self._timer = None
        due_ms = self.coordinator.next_deadline_ms()
        if due_ms is not None and due_ms <= now_ms():
            self._inbox.append(Tick(wall_ms=wall_ms()))
            self._drain()
        else:
            self._set_timer()

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class Appending:
    """Token of one batch of records on its way into the log."""

    __slots__ = ("_partition", "append_id", "records", "size_bytes")

    def __init__(self, partition: LedPartition, append_id: int, records: int, size_bytes: int) -> None:
        self._partition = partition
        self.append_id = append_id
        self.records = records
        self.size_bytes = size_bytes

    def produce_answered(self, answer: ProduceAnswered) -> None:
        """Called once, by the partition's driver."""
        self._partition.append_answered(self, answer)
