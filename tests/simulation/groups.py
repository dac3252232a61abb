"""Group coordinators of one broker: the production `Coordinator`, one for each led partition of the offsets topic."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from kafkalite_core.groups import events
from kafkalite_core.groups.config import GroupConfig
from kafkalite_core.groups.coordinator import Coordinator
from kafkalite_core.groups.refusals import refusal
from kafkalite_core.groups.routing import partition_for
from kafkalite_core.model.topic import OFFSETS_TOPIC
from kafkalite_core.protocol.errors import ErrorCode
from kafkalite_core.protocol.record_batch import (
    SimpleRecord,
    build_batch,
    iter_batches,
    iter_records,
    parse_batch_header,
)
from kafkalite_core.replica.events import ProduceRequested
from tests.simulation.driver import Produce

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalite_core.groups.events import GroupRequest, GroupResponse
    from kafkalite_core.model.partition import Topic
    from tests.simulation.broker import Broker
    from tests.simulation.driver import Driver

APPEND_TIMEOUT_MS = 5_000.0
PIECE_BYTES = 100_000
CONFIG = GroupConfig(initial_rebalance_delay_ms=200, retention_check_interval_ms=10**12)


class Groups:
    """See the module."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._led: dict[int, Led] = {}

    def role_changed(self, driver: Driver) -> None:
        """A replica here began or ceased to lead. A leader that stays leader keeps its coordinator."""
        if driver.ref.name != OFFSETS_TOPIC:
            return
        led = self._led.get(driver.number)
        if led is not None and (led.driver is not driver or not driver.is_leader):
            if led.driver is driver or driver.is_leader:
                del self._led[driver.number]
                led.resign()
            led = self._led.get(driver.number)
        if led is None and driver.is_leader:
            self._led[driver.number] = Led(self._broker, driver)

    def topics_gone(self, topics: list[Topic]) -> None:
        """Topics left the metadata: so do the offsets committed for those whose deletion was seen."""
        cache = self._broker.cache
        names = frozenset(
            topic.ref.name
            for topic in topics
            if cache.delete_seen(topic.ref)
            and topic.deletion_policy != "Retain"
            and cache.topic(topic.ref.name) is None
        )
        if names:
            for led in self._led.values():
                led.topics_deleted(names)

    def tick(self) -> None:
        """Time went by."""
        for led in list(self._led.values()):
            led.tick()

    def close(self) -> None:
        """No coordinator any longer."""
        for number in list(self._led):
            self._led.pop(number).resign()

    def ask(self, group_id: str, request: GroupRequest, version: int, reply: Callable[[GroupResponse], None]) -> None:
        """A client's request for one group."""
        topic = self._broker.cache.topic(OFFSETS_TOPIC)
        count = 0 if topic is None else len(topic.partitions)
        led = self._led.get(partition_for(group_id, count)) if count else None
        if led is None:
            reply(
                refusal(request, version, ErrorCode.NOT_COORDINATOR if count else ErrorCode.COORDINATOR_NOT_AVAILABLE)
            )
            return
        led.ask(request, version, reply)


class Led:
    """A coordinator from the election to the resignation of this broker."""

    def __init__(self, broker: Broker, driver: Driver) -> None:
        self._broker = broker
        self.driver = driver
        self.coordinator = Coordinator(CONFIG)
        self._inbox: deque[events.Event] = deque()
        self._open: dict[int, tuple[GroupRequest, int, Callable[[GroupResponse], None]]] = {}
        self._tokens = 0
        self._loaded_to = -1
        self._loaded = False
        self._resigning = False
        self._draining = False
        self._kept_back: frozenset[str] = frozenset()
        broker.after(1.0 + broker.chance() * 20.0, self._load)

    # ------------------------------------------------------------ loading

    def _load(self) -> None:
        if self._resigning:
            return
        log = self.driver.log
        position = log.start_offset
        while position < log.end_offset:
            result = log.read(position, max_bytes=PIECE_BYTES, end=log.end_offset, minimum_one=True)
            view = memoryview(b"".join(result.buffers))
            for at, header in iter_batches(view):
                records = [
                    (bytes(record.key), None if record.value is None else bytes(record.value))
                    for record in iter_records(view, at, header)
                    if record.key is not None
                ]
                self._inbox.append(events.RecordsLoaded(records=records))
                position = header.next_offset
        self._loaded_to = log.end_offset
        self._serve()

    def _serve(self) -> None:
        """What is loaded must be committed before it is shown: an offset that was read must never go back."""
        if self._loaded or self._loaded_to < 0 or self._resigning:
            return
        if self.driver.replica.high_watermark >= self._loaded_to:
            self._loaded = True
            self._inbox.append(events.Loaded(wall_ms=self._broker.wall_ms()))
            if self._kept_back:
                self.topics_deleted(self._kept_back)
        self._drain()

    # ------------------------------------------------------------ events

    def ask(self, request: GroupRequest, version: int, reply: Callable[[GroupResponse], None]) -> None:
        """A request; answered now or later."""
        if self._resigning:
            reply(refusal(request, version, ErrorCode.NOT_COORDINATOR))
            return
        self._tokens += 1
        self._open[self._tokens] = (request, version, reply)
        self._inbox.append(
            events.Requested(
                token=self._tokens,
                api_version=version,
                request=request,
                client_id="sim",
                client_host="/sim",
                wall_ms=self._broker.wall_ms(),
                fresh_member_id=f"{self._broker.incarnation}-{self._broker.world.events}-{self._tokens}",
            )
        )
        self._drain()

    def topics_deleted(self, topics: frozenset[str]) -> None:
        """Topics are gone for good."""
        if self._loaded:
            self._inbox.append(events.TopicsDeleted(topics=topics, wall_ms=self._broker.wall_ms()))
            self._drain_soon()
        else:
            self._kept_back |= topics

    def tick(self) -> None:
        """Time went by."""
        self._serve()
        due_ms = None if self._resigning else self.coordinator.next_deadline_ms()
        if due_ms is not None and due_ms <= self._broker.mono_ms():
            self._inbox.append(events.Tick(wall_ms=self._broker.wall_ms()))
            self._drain()

    def resign(self) -> None:
        """This broker does not lead the partition any longer; may be called in the middle of the partition's step."""
        self._resigning = True
        self._inbox.append(events.Resigned())
        self._drain_soon()

    def _drain_soon(self) -> None:
        self._broker.world.at(0.0, self._broker.process, self._drain)

    def _drain(self) -> None:
        if self._draining:
            return
        self._draining = True
        while self._inbox:
            event = self._inbox.popleft()
            for effect in self.coordinator.step(self._broker.mono_ms(), event):
                if self._broker.fuse:
                    self._broker.burn()
                if isinstance(effect, events.Append):
                    self._append(effect)
                else:
                    opened = self._open.pop(effect.token, None)  # type: ignore[call-overload]
                    assert opened is not None, "a request was answered twice"
                    opened[2](effect.response)
            if isinstance(event, events.Resigned):
                self._inbox.clear()
                for request, version, reply in self._open.values():
                    reply(refusal(request, version, ErrorCode.NOT_COORDINATOR))
                self._open.clear()
        self._draining = False

    # ------------------------------------------------------------ records

    def _append(self, effect: events.Append) -> None:
        if self._resigning:
            return
        stamp_ms = self._broker.wall_ms()
        batch = build_batch([SimpleRecord(stamp_ms, key, value) for key, value in effect.records])

        def answered(error_code: int, _topic_id: str, _base: int, _epoch: int) -> None:
            if self._resigning:
                return
            self._inbox.append(
                events.AppendFailed(append_id=effect.append_id, error_code=error_code)
                if error_code
                else events.Appended(append_id=effect.append_id)
            )
            self._drain_soon()

        self.driver.parked += 1
        self.driver.step(
            ProduceRequested(
                token=Produce(-1, len(effect.records), answered),
                acks=-1,
                batch=batch,
                header=parse_batch_header(batch),
                received_ms=self._broker.mono_ms(),
                deadline_ms=self._broker.mono_ms() + APPEND_TIMEOUT_MS,
                wall_ms=stamp_ms,
            )
        )
