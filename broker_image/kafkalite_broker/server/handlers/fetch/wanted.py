"""One partition of a fetch: the question, who can answer it, and the present answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from kafkalite_core.model.errors import BrokerError
from kafkalite_core.protocol.errors import ErrorCode
from kafkalite_core.protocol.fetch import EpochEndOffset, PartitionData
from kafkalite_core.replica.events import CONSUMER_ID, FetchRequested
from kafkalite_core.storage.reading import ReadResult

if TYPE_CHECKING:
    from uuid import UUID

    from kafkalite_broker.replication.driver import PartitionDriver
    from kafkalite_broker.replication.throttles import ReplicationThrottles
    from kafkalite_broker.server.dispatch import Request
    from kafkalite_broker.server.services import Services
    from kafkalite_core.protocol.fetch import FetchPartition
    from kafkalite_core.protocol.primitives import Buffer, Records
    from kafkalite_core.storage.reading import ColdRead

TOPIC_IDS_FROM_VERSION = 13
REPLICA_STATE_FROM_VERSION = 15
ANY_REPLICA_FROM_VERSION = 11
EMPTY = b""


class Asker:
    """Who fetches, as far as the answer depends on it.

    Attributes:
        reachable: Where a consumer can be sent that may read in its rack: see `FetchRequested`.
    """

    __slots__ = ("any_replica", "rack", "reachable", "replica_epoch", "replica_id")

    def __init__(self, request: Request, *, rack_aware: bool = False) -> None:
        body = request.body
        self.any_replica = request.version >= ANY_REPLICA_FROM_VERSION
        self.rack = body.rack_id if rack_aware and self.any_replica else ""
        self.reachable: frozenset[int] | None = None
        self.replica_id, self.replica_epoch = body.replica_id, -1
        if request.version >= REPLICA_STATE_FROM_VERSION:
            # A tagged field that consumers leave out.
            state = body.replica_state
            self.replica_id = CONSUMER_ID if state is None else state.replica_id
            self.replica_epoch = -1 if state is None else state.replica_epoch

    @property
    def is_follower(self) -> bool:
        """Whether a broker asks, and not a client."""
        return bool(self.replica_id != CONSUMER_ID)


class Wanted:
    """One partition of a fetch: the question, its driver, and the current answer.

    Attributes:
        topic: Its name; empty when the request names it by an id that is unknown.
        topic_id: As the request names it, or None when it does so by name.
        question: The partition of the request.
        driver: The replica here, or None: `data` says why.
        data: The answer so far.
        size_bytes: Bytes of records in the answer.
        cold: Records that have yet to be read from the disk.
        left_out: There are records for which there was no room.
        looked_for: The request for which it was looked at last.
    """

    __slots__ = (
        "cold",
        "data",
        "driver",
        "left_out",
        "looked_for",
        "question",
        "size_bytes",
        "topic",
        "topic_id",
    )

    def __init__(self, topic: str, topic_id: UUID | None, question: FetchPartition) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.question = question
        self.driver: PartitionDriver | None = None
        # Never null, errors included: librdkafka takes a null for a broken message and asks again without a pause.
        self.data = PartitionData(partition_index=question.partition, records=EMPTY)
        self.size_bytes = 0
        self.cold: ColdRead | None = None
        self.left_out = False
        self.looked_for: object = None

    @property
    def held_bytes(self) -> int:
        """Memory of the records in the answer."""
        return sum(map(_held_bytes, cast("list[Buffer]", self.data.records)))

    def find(self, services: Services) -> None:
        """Find the replica that can answer, anew for every request: it may have gone, or another may have come."""
        self.driver = None
        try:
            if self.topic_id is not None and not self.topic:
                found = services.cache.topic_by_id(str(self.topic_id))
                if found is None:
                    raise BrokerError(ErrorCode.UNKNOWN_TOPIC_ID, "no topic has this id")
                self.topic = found.ref.name
            driver = services.partitions.hosted(self.topic, self.question.partition)
            if self.topic_id is not None and driver.topic_uuid != self.topic_id:
                raise BrokerError(ErrorCode.UNKNOWN_TOPIC_ID, "the topic of this name has another id")
            self.driver = driver
        except BrokerError as error:
            self._refuse(error.error_code)

    def _refuse(self, error_code: int) -> None:
        self.data = PartitionData(partition_index=self.question.partition, error_code=error_code, records=EMPTY)
        self.size_bytes = 0
        self.cold = None
        self.left_out = False

    @property
    def urgent(self) -> bool:
        """Whether the answer tells more than how far the log is."""
        data = self.data
        return bool(self.size_bytes or data.error_code or data.diverging_epoch is not None)

    def read(
        self, asker: Asker, request: object, left_bytes: int, *, first: bool, throttles: ReplicationThrottles
    ) -> bool:
        """Ask the replica. True when the answer must not wait for more: an error, or a divergence.

        Args:
            asker: Who fetches.
            request: The request that it is read for; looking again for the same one is not another fetch.
            left_bytes: Room in the answer.
            first: Nothing is in the answer yet: one batch is given whatever its size.
            throttles: Whether a follower that catches up gets records now.
        """
        driver, question = self.driver, self.question
        assert driver is not None
        answer = driver.fetch(
            FetchRequested(
                token=self,
                replica_id=asker.replica_id,
                replica_epoch=asker.replica_epoch,
                current_leader_epoch=question.current_leader_epoch,
                fetch_offset=question.fetch_offset,
                last_fetched_epoch=question.last_fetched_epoch,
                log_start_offset=question.log_start_offset,
                reread=self.looked_for is request,
                any_replica=asker.any_replica,
                rack=asker.rack,
                reachable=asker.reachable,
            )
        )
        self.looked_for = request
        data = self.data = PartitionData(
            partition_index=question.partition,
            error_code=answer.error_code,
            high_watermark=answer.high_watermark,
            last_stable_offset=answer.high_watermark,
            log_start_offset=answer.log_start_offset,
            records=EMPTY,
        )
        self.size_bytes = 0
        self.cold = None
        self.left_out = False
        if answer.error_code:
            return True
        if answer.preferred_read_replica >= 0:
            data.preferred_read_replica = answer.preferred_read_replica
            return True
        if answer.diverging is not None:
            epoch, end_offset = answer.diverging
            data.diverging_epoch = EpochEndOffset(epoch=epoch, end_offset=end_offset)
            return True
        if answer.read_from < answer.read_end:
            withheld = asker.is_follower and throttles.withholds(driver, asker.replica_id)
            if (left_bytes > 0 or first) and not withheld:
                self._plan(driver, answer.read_from, answer.read_end, left_bytes, first=first)
            self.left_out = not self.size_bytes
        return False

    def _plan(self, driver: PartitionDriver, start: int, end: int, left_bytes: int, *, first: bool) -> None:
        plan = driver.log.plan_read(
            start,
            max_bytes=max(min(self.question.partition_max_bytes, left_bytes), 0),
            end=end,
            minimum_one=first,
        )
        if isinstance(plan, ReadResult):
            self._take(plan)
        else:
            # On the disk: read on another thread once it is certain that the answer goes out.
            self.cold = plan
            self.size_bytes = max(plan.max_bytes, 1)

    def give(self, result: ReadResult | None) -> None:
        """What the disk had to say; None when the log was cut while it was read: these bytes may belong to no one."""
        self.size_bytes = 0
        self.left_out = result is None
        if result is not None:
            self._take(result)

    def _take(self, result: ReadResult) -> None:
        self.data.records = cast("Records", result.buffers)
        self.size_bytes = result.size

    def let_go(self) -> None:
        """The answer has to wait: it is read anew when it may go out, and until then only its size is kept.

        Neither are files kept open that retention may delete meanwhile.
        """
        self.data.records = EMPTY
        self.cold = None


def _held_bytes(part: Buffer) -> int:
    """What a buffer keeps in memory: a view, all that it is a part of."""
    return len(cast("bytes", part.obj)) if isinstance(part, memoryview) else len(part)


def wanted_by(request: Request) -> list[Wanted]:
    """The partitions that a request names, in its order; of one that is named again the last word counts, as in Kafka.

    Otherwise a small request could have one partition read, and looked at with each of its moves, thousands of times.
    """
    by_id = request.version >= TOPIC_IDS_FROM_VERSION
    found: dict[tuple[UUID | str, int], Wanted] = {}
    for topic in request.body.topics:
        topic_id, name = (topic.topic_id, "") if by_id else (None, topic.topic)
        for question in topic.partitions:
            found[topic_id or name, question.partition] = Wanted(name, topic_id, question)
    return list(found.values())
