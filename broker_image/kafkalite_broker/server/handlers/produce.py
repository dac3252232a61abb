"""Produce (key 0)."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from kafkalite_broker.clock import wall_ms
from kafkalite_broker.cluster.internal_topics import INTERNAL_TOPICS
from kafkalite_broker.compression import decompress
from kafkalite_broker.server.handlers.bounds import within_bounds
from kafkalite_broker.server.handlers.record_checks import Append, CheckedAppends, ReadAtOnce
from kafkalite_core.model.errors import BrokerError
from kafkalite_core.protocol.batch_validation import (
    RecordChecks,
    check_client_batch,
    check_records,
    parse_client_batch,
)
from kafkalite_core.protocol.errors import ErrorCode
from kafkalite_core.protocol.produce import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from kafkalite_core.replica.events import ProduceRequested

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalite_broker.replication.driver import PartitionDriver
    from kafkalite_broker.server.dispatch import Request
    from kafkalite_broker.server.services import Services
    from kafkalite_core.protocol.produce import PartitionProduceData, TopicProduceData
    from kafkalite_core.protocol.record_batch import BatchHeader
    from kafkalite_core.replica.events import ProduceAnswered

LEADER_MOVED = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})
HINTS_FROM_VERSION = 10
ACKS_NONE = 0
KEYS_REQUIRED = RecordChecks(require_key=True)


class ClientBatch(NamedTuple):
    """One partition's batch of a request.

    Attributes:
        topic: Its name.
        partition: Which was led when the request came.
        records: The whole batch.
        header: What its first 61 bytes say.
        response: Its place in the answer.
    """

    topic: str
    partition: PartitionDriver
    records: memoryview
    header: BatchHeader
    response: PartitionProduceResponse


class PendingProduce:
    """One Produce request until the last of its partitions is answered."""

    __slots__ = ("_appends", "_at_once", "_open", "_queued", "_records_bytes", "_request", "_services", "_topics")

    def __init__(self, request: Request, services: Services, appends: CheckedAppends) -> None:
        self._request = request
        self._services = services
        self._appends = appends
        self._topics: list[TopicProduceResponse] = []
        self._records_bytes = 0
        self._at_once = ReadAtOnce()
        self._queued: list[Append] = []
        self._open = 1

    def start(self) -> None:
        """Hand every batch to its partition. Answers may come back before this returns."""
        body = self._request.body
        repeated = _repeated(body.topic_data)
        for topic in body.topic_data:
            responses = []
            for data in topic.partition_data:
                response = PartitionProduceResponse(index=data.index, base_offset=-1, log_append_time_ms=-1)
                responses.append(response)
                self._open += 1
                try:
                    if (topic.name, data.index) in repeated:
                        # Apache Kafka drops all of them but the last one without a word.
                        text = f"{topic.name}-{data.index} is named more than once in one request"
                        raise BrokerError(ErrorCode.INVALID_REQUEST, text)
                    self._append(topic.name, data, response)
                except BrokerError as error:
                    self._refuse(topic.name, response, error)
            self._topics.append(TopicProduceResponse(name=topic.name, partition_responses=responses))
        # The batches belong to the logs now; a request that waits for long keeps nothing but its answer.
        body.topic_data = []
        self._closed_one()
        if self._open:
            self._request.waits(appended_bytes=self._records_bytes)
            if self._queued and body.acks != ACKS_NONE:
                # Who wants no answer may go as soon as everything is sent.
                self._request.on_abandoned(self._abandoned)

    def _append(self, topic: str, data: PartitionProduceData, response: PartitionProduceResponse) -> None:
        if topic in INTERNAL_TOPICS:
            raise BrokerError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic} is internal: only brokers write to it")
        partition = self._services.partitions.leader_of(topic, data.index)
        if data.records is None or len(data.records) == 0:
            raise BrokerError(ErrorCode.INVALID_RECORD, "no records")
        records = data.records if isinstance(data.records, memoryview) else memoryview(bytearray(data.records))
        batch = ClientBatch(topic, partition, records, parse_client_batch(records), response)
        try:
            check = self._check(batch)
        except BrokerError as error:
            self._refuse_batch(batch, error)
            return
        if check is None and not self._appends.waits_for(partition):
            self._records_bytes += len(records)
            self._step(batch)
        else:
            append = Append(check, partial(self._checked, batch), partial(self._given_up, batch), len(records))
            self._queued.append(append)
            self._appends.append(partition, append, self._request.body.timeout_ms / 1000.0)

    def _check(self, batch: ClientBatch) -> Callable[[], None] | None:
        """Raises `BrokerError`; returns what is left to be checked on a thread."""
        config, header = batch.partition.config, batch.header
        check_client_batch(
            batch.records,
            header,
            produce_version=self._request.version,
            max_message_bytes=config.max_message_bytes,
            segment_bytes=config.segment_bytes,
        )
        if header.is_transactional:
            raise BrokerError(ErrorCode.INVALID_TXN_STATE, "there are no transactions here")
        if "compact" in config.cleanup_policy:
            check_with = partial(check_records, batch.records, header, KEYS_REQUIRED)
            if not self._at_once.run(check_with, header):
                return partial(check_with, decompress)
        return None

    def _abandoned(self) -> None:
        """The client went away: what is not appended yet it sends again elsewhere, if it wants to."""
        for append in self._queued:
            append.given_up("the client is gone")

    def _checked(self, batch: ClientBatch, error: Exception | None) -> None:
        """After a while: the batch is as it should be, or `error` says why not."""
        self._records_bytes += len(batch.records)
        try:
            if self._services.partitions.leader_of(batch.topic, batch.response.index) is not batch.partition:
                raise BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{batch.topic} was made anew")
            if isinstance(error, BrokerError):
                self._refuse_batch(batch, error)
            elif error is not None:
                raise error
            else:
                self._step(batch)
        except BrokerError as refused:
            self._refuse(batch.topic, batch.response, refused)
        except Exception as failure:
            # Others wait behind this batch.
            self._request.failed(failure)
        if self._open:
            self._request.waits(appended_bytes=self._records_bytes)

    def _given_up(self, batch: ClientBatch, reason: str) -> None:
        """The batch is not appended: the partition is to know it, because of those that were sent behind it."""
        try:
            self._step(batch, reason)
        except Exception as failure:
            self._request.failed(failure)

    def _refuse_batch(self, batch: ClientBatch, error: BrokerError) -> None:
        """The batch is not as it should be: if a producer numbered it, the partition is to know it as well."""
        if batch.header.producer_id >= 0 and batch.header.base_sequence >= 0:
            self._step(batch, str(error), error.error_code)
        else:
            self._refuse(batch.topic, batch.response, error)

    def _step(self, batch: ClientBatch, given_up: str = "", given_up_code: int = ErrorCode.REQUEST_TIMED_OUT) -> None:
        body, received_ms = self._request.body, self._request.received_s * 1000.0
        batch.partition.telemetry.produced()
        batch.partition.produce(
            ProduceRequested(
                token=Answer(self, batch.topic, batch.response),
                acks=body.acks,
                batch=batch.records,
                header=batch.header,
                received_ms=received_ms,
                deadline_ms=received_ms + body.timeout_ms,
                wall_ms=wall_ms(),
                given_up=given_up,
                given_up_code=given_up_code,
            )
        )

    def _refuse(self, topic: str, response: PartitionProduceResponse, error: BrokerError) -> None:
        response.error_code = error.error_code
        response.error_message = error.message or None
        self._services.telemetry.produce_failed(topic, error.error_code)
        self._closed_one()

    def answered(self, topic: str, response: PartitionProduceResponse, answer: ProduceAnswered) -> None:
        """One partition has its answer."""
        response.error_code = answer.error_code
        response.base_offset = answer.base_offset
        response.log_append_time_ms = answer.log_append_time_ms
        response.log_start_offset = answer.log_start_offset
        if answer.error_code:
            response.error_message = answer.message or None
            self._services.telemetry.produce_failed(topic, answer.error_code)
        try:
            self._closed_one()
        except Exception as error:
            # The answer comes from the middle of the partition's effects; the others have to be carried out as well.
            self._request.failed(error)

    def _closed_one(self) -> None:
        self._open -= 1
        if self._open == 0:
            self._finish()

    def _finish(self) -> None:
        failed = [
            (topic.name, response)
            for topic in self._topics
            for response in topic.partition_responses
            if response.error_code
        ]
        if self._request.body.acks == 0:
            if failed:
                # Without an answer, closing is the only way to make the producer ask for metadata again.
                topic, response = failed[0]
                self._request.close(f"produce with acks=0 to {topic}-{response.index} failed: {response.error_code}")
            else:
                self._request.answer_nothing()
            return
        answer = ProduceResponse(responses=self._topics)
        if failed and self._request.version >= HINTS_FROM_VERSION:
            self._add_leader_hints(answer, failed)
        self._request.answer(answer)

    def _add_leader_hints(self, answer: ProduceResponse, failed: list[tuple[str, PartitionProduceResponse]]) -> None:
        """KIP-951: tell the new leader, so that the client need not ask."""
        leaders = set()
        for topic, response in failed:
            state = self._services.partition_of(topic, response.index)
            if response.error_code in LEADER_MOVED and state is not None and state.leader >= 0:
                response.current_leader = LeaderIdAndEpoch(leader_id=state.leader, leader_epoch=state.leader_epoch)
                leaders.add(state.leader)
        answer.node_endpoints = [
            NodeEndpoint(node_id=leader, host=endpoint[0], port=endpoint[1], rack=endpoint[2])
            for leader in sorted(leaders)
            if (endpoint := self._services.endpoint(leader, self._request.listener)) is not None
        ]


def _repeated(topics: list[TopicProduceData]) -> set[tuple[str, int]]:
    """Partitions that a request names more than once."""
    if len(topics) == 1 and len(topics[0].partition_data) == 1:
        return set()
    named = Counter((topic.name, data.index) for topic in topics for data in topic.partition_data)
    return {partition for partition, count in named.items() if count > 1}


class Answer:
    """Token of one partition's batch: leads the answer back to its place in the request."""

    __slots__ = ("_pending", "_response", "_topic")

    def __init__(self, pending: PendingProduce, topic: str, response: PartitionProduceResponse) -> None:
        self._pending = pending
        self._topic = topic
        self._response = response

    def produce_answered(self, answer: ProduceAnswered) -> None:
        """Called once, by the partition's driver."""
        self._pending.answered(self._topic, self._response, answer)


class ProduceHandler:
    """Appends a client's batches to partitions that this broker leads."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._appends = CheckedAppends(services)

    def __call__(self, request: Request) -> None:
        """Append now; answer when `acks` is satisfied."""
        topics = request.body.topic_data
        if not within_bounds(request, len(topics) + sum(len(topic.partition_data) for topic in topics)):
            return
        PendingProduce(request, self._services, self._appends).start()
