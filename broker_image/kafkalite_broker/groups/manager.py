"""Every group coordinator on this broker: which there are, and which of them a request concerns."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from kafkalite_broker.clock import wall_ms
from kafkalite_broker.cluster.internal_topics import OFFSETS_TOPIC
from kafkalite_broker.groups.led_partition import LedPartition
from kafkalite_broker.groups.settings import append_timeout_ms, group_config
from kafkalite_core.groups.events import Requested
from kafkalite_core.groups.metadata_budget import MetadataBudget
from kafkalite_core.groups.refusals import refusal
from kafkalite_core.groups.routing import merge, split
from kafkalite_core.protocol.errors import ErrorCode
from kafkalite_core.protocol.join_group import JoinGroupRequest
from kafkalite_core.protocol.list_groups import ListGroupsRequest, ListGroupsResponse
from kafkalite_core.storage.errors import DiskFailure
from kafkalite_runtime.logging import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from concurrent.futures import Executor

    from kafkalite_broker.groups.led_partition import Asked
    from kafkalite_broker.groups.offsets_topic import OffsetsTopic
    from kafkalite_broker.groups.telemetry import GroupTelemetry
    from kafkalite_broker.replication.driver import PartitionDriver
    from kafkalite_broker.server.dispatch import Request
    from kafkalite_core.groups.events import GroupRequest, GroupResponse
    from kafkalite_core.model.partition import Topic

LOAD_AGAIN_S = 1.0
FAILURES_MAX = 5
"""A partition that cannot be loaded is tried again less and less often: after 2, 4 … 32 s."""

RETAIN = "Retain"

log_events = get_logger(__name__)


class GroupManager:
    """One coordinator for each partition of `__consumer_offsets` that this broker leads.

    Args:
        topic: The topic in the metadata.
        broker_config: Kafka's broker keys.
        io_pool: Threads for reading logs.
        telemetry: Counters.
        on_fatal: Told a `DiskFailure`, after which the process must end (R12).

    Attributes:
        topic: As above.
        metadata: What the members of all groups say about themselves.
    """

    def __init__(
        self,
        topic: OffsetsTopic,
        *,
        broker_config: Mapping[str, str],
        io_pool: Executor,
        telemetry: GroupTelemetry,
        on_fatal: Callable[[BaseException], None],
    ) -> None:
        self.topic = topic
        self._broker_config = broker_config
        self._io_pool = io_pool
        self._telemetry = telemetry
        self._on_fatal = on_fatal
        self._led: dict[int, LedPartition] = {}
        self.metadata = MetadataBudget()
        self._failures: dict[int, int] = {}
        self._closed = False
        telemetry.led = self._led.values

    # ------------------------------------------------------------ leadership

    def role_changed(self, driver: PartitionDriver) -> None:
        """A replica on this broker began or ceased to lead, or leads in another epoch.

        A leader that stays leader keeps its coordinator: its log, and what waits to be committed, are the same.
        """
        if driver.ref.name != OFFSETS_TOPIC or self._closed:
            return
        led = self._led.get(driver.number)
        if led is not None and (led.driver is not driver or not driver.is_leader):
            if led.driver is driver or driver.is_leader:
                self._resign(led)
            led = self._led.get(driver.number)
        if led is None and driver.is_leader:
            self._lead(driver)

    def _lead(self, driver: PartitionDriver) -> None:
        self._led[driver.number] = LedPartition(
            driver,
            group_config(self._broker_config),
            self.metadata,
            io_pool=self._io_pool,
            append_timeout_ms=lambda: append_timeout_ms(self._broker_config),
            on_broken=self._broken,
        )

    def _resign(self, led: LedPartition) -> None:
        del self._led[led.driver.number]
        self._telemetry.resigned(led)
        led.resign()
        log_events.info("group coordinator resigned", partition=led.driver.name)

    def _broken(self, led: LedPartition, error: BaseException) -> None:
        """The partition is loaded again a little later; meanwhile its groups have no coordinator."""
        if isinstance(error, DiskFailure):
            self._on_fatal(error)
        log_events.error("group coordinator failed, loading it again", partition=led.driver.name, exc_info=error)
        if self._led.get(led.driver.number) is led:
            del self._led[led.driver.number]
            self._telemetry.resigned(led)
        number = led.driver.number
        failures = self._failures[number] = 0 if led.loaded else min(self._failures.get(number, 0) + 1, FAILURES_MAX)
        delay_s = LOAD_AGAIN_S * 2**failures
        asyncio.get_running_loop().call_later(delay_s, self.role_changed, led.driver)

    def topics_deleted(self, topics: Iterable[tuple[Topic, bool]]) -> None:
        """Topics went away; the flag says whether an event told so (S10).

        Offsets of a topic whose data are kept are kept as well, and so are those of a topic that was only not listed.
        """
        names = frozenset(topic.ref.name for topic, seen in topics if seen and topic.deletion_policy != RETAIN)
        if names:
            for led in self._led.values():
                led.topics_deleted(names)

    def reconfigure(self, broker_config: Mapping[str, str]) -> None:
        """The broker's keys changed."""
        self._broker_config = broker_config
        config = group_config(broker_config)
        for led in self._led.values():
            led.reconfigure(config)

    def close(self) -> None:
        """No coordinator any longer."""
        self._closed = True
        for led in list(self._led.values()):
            self._resign(led)

    # ------------------------------------------------------------ requests

    def ask(self, request: Request) -> None:
        """Have the request's body answered by the coordinators that it concerns."""
        self.ask_for(request, request.body, request)

    def ask_for(self, request: Request, body: GroupRequest, asked: Asked) -> None:
        """As `ask`, with another body, or with somebody else who takes the answer."""
        count = self.topic.partition_count()
        if count == 0:
            asked.answer(
                # A cluster without groups has none to list.
                ListGroupsResponse()
                if isinstance(body, ListGroupsRequest)
                else refusal(body, request.version, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            )
            return
        parts = split(body, count)
        if len(parts) == 1 and not isinstance(body, ListGroupsRequest):
            ((number, part),) = parts.items()
            self._ask_one(request, number, part, asked)
            return
        gathered = Gathered(body, asked, len(parts))
        for place, (number, part) in enumerate(parts.items()):
            self._ask_one(request, number, part, GatheredPart(gathered, place))

    def _ask_one(self, request: Request, number: int, part: GroupRequest, asked: Asked) -> None:
        led = self._led.get(number)
        if led is None:
            asked.answer(refusal(part, request.version, ErrorCode.NOT_COORDINATOR))
            return
        led.ask(
            Requested(
                token=asked,
                api_version=request.version,
                request=part,
                client_id=request.client_id or "",
                client_host=request.client_host,
                wall_ms=wall_ms(),
                fresh_member_id=str(uuid4()) if isinstance(part, JoinGroupRequest) else "",
            )
        )


class Gathered:
    """A request that several coordinators answer."""

    __slots__ = ("_asked", "_body", "_left", "_responses")

    def __init__(self, body: GroupRequest, asked: Asked, parts: int) -> None:
        self._body = body
        self._asked = asked
        self._left = parts
        self._responses: list[GroupResponse | None] = [None] * parts
        if not parts:
            self._finish()

    def answered(self, place: int, response: Any) -> None:
        """One part has its answer."""
        self._responses[place] = response
        self._left -= 1
        if self._left == 0:
            self._finish()

    def failed(self, error: BaseException) -> None:
        """One part has none."""
        self._asked.failed(error)

    def _finish(self) -> None:
        try:
            merged = merge(self._body, [response for response in self._responses if response is not None])
        except Exception as error:
            # The last answer comes from the middle of a coordinator's effects; the others have to be carried out.
            self._asked.failed(error)
            return
        self._asked.answer(merged)


class GatheredPart:
    """Token of one part."""

    __slots__ = ("_gathered", "_place")

    def __init__(self, gathered: Gathered, place: int) -> None:
        self._gathered = gathered
        self._place = place

    def answer(self, response: object) -> None:
        """The coordinator's answer."""
        self._gathered.answered(self._place, response)

    def failed(self, error: BaseException) -> None:
        """There will be none."""
        self._gathered.failed(error)
