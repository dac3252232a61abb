"""`GroupAdmin` by confluent-kafka; deleting offsets, which its binding lacks, by KafkaLite's own codec."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin import OffsetSpec as Spec  # type: ignore[attr-defined]

from kafkalite_cli.errors import Failure
from kafkalite_cli.groups.model import Group, Log, Member, Partition
from kafkalite_cli.groups.takeover import from_coordinator
from kafkalite_cli.kafka import client_config, partitions_of, plain_errors, sentence
from kafkalite_core.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future
    from types import TracebackType
    from typing import Self

    from kafkalite_cli.pasting import Commands

EARLIEST, LATEST = Spec.earliest(), Spec.latest()  # type: ignore[no-untyped-call]
REQUEST_S = 15.0
STATES = {
    "UNKNOWN": "Unknown",
    "PREPARING_REBALANCING": "PreparingRebalance",
    "COMPLETING_REBALANCING": "CompletingRebalance",
    "STABLE": "Stable",
    "DEAD": "Dead",
    "EMPTY": "Empty",
}


class ConfluentGroupAdmin:
    """See `GroupAdmin`. A context manager: the client and its threads end with it."""

    def __init__(self, bootstrap: str, properties: dict[str, str], say: Commands | None = None) -> None:
        """Raises Failure for settings that librdkafka does not take."""
        self._say = say
        self._bootstrap = bootstrap
        self._plaintext = properties.get("security.protocol", "plaintext").lower() == "plaintext"
        with plain_errors("these settings cannot be used"):
            self._client = AdminClient(client_config(bootstrap, properties))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        del self._client  # its destructor waits for librdkafka's threads

    def list_groups(self) -> tuple[list[str], list[str]]:
        """See the protocol."""
        with plain_errors("the groups cannot be listed"):
            listed = self._client.list_consumer_groups(request_timeout=REQUEST_S).result()
        return sorted(each.group_id for each in listed.valid), [_words(error) for error in listed.errors]

    def describe(self, group_ids: list[str]) -> list[Group]:
        """See the protocol."""
        if not group_ids:
            return []
        futures = self._client.describe_consumer_groups(group_ids, request_timeout=REQUEST_S)
        return [self._group(group_id, futures[group_id]) for group_id in group_ids]

    def _group(self, group_id: str, future: Future[Any]) -> Group:
        first = [future]  # all groups were asked for at once; this one is again if its coordinator was on the move

        def ask() -> Any:
            return first.pop().result() if first else _result(self._client.describe_consumer_groups, group_id, group_id)

        try:
            described = from_coordinator(ask)
        except KafkaException as error:
            if error.args[0].code() == ErrorCode.GROUP_ID_NOT_FOUND:
                return Group(group_id=group_id, state="Dead")
            raise Failure(f"group {group_id!r}: {_words(error)}") from error
        node = described.coordinator
        return Group(
            group_id=group_id,
            state=STATES.get(described.state.name, described.state.name.title()),
            type=described.type.name.title(),
            assignor=described.partition_assignor or "",
            coordinator=(node.id, f"{node.host}:{node.port}") if node is not None and node.id >= 0 else None,
            members=tuple(_member(each) for each in described.members),
        )

    def committed(self, group_id: str) -> dict[Partition, int]:
        """See the protocol."""
        with plain_errors(f"group {group_id!r}"):
            request = ConsumerGroupTopicPartitions(group_id)
            ask = self._client.list_consumer_group_offsets
            answer = from_coordinator(partial(_result, ask, request, group_id))
        return {
            Partition(each.topic, each.partition): each.offset
            for each in answer.topic_partitions or []
            if each.error is None and each.offset >= 0
        }

    def partitions_of(self, topic: str) -> list[int]:
        """See the protocol."""
        return partitions_of(self._client, topic, say=self._say)

    def logs(self, partitions: list[Partition]) -> dict[Partition, Log]:
        """See the protocol."""
        starts = self._offsets(partitions, EARLIEST)
        ends = self._offsets(partitions, LATEST)
        return {each: Log(starts[each], ends[each]) for each in partitions if each in starts and each in ends}

    def offsets_at(self, partitions: list[Partition], timestamp_ms: int) -> dict[Partition, int]:
        """See the protocol."""
        found = self._offsets(partitions, Spec.for_timestamp(timestamp_ms))
        later = [each for each, offset in found.items() if offset < 0]  # who did not answer did not say that
        return {each: offset for each, offset in found.items() if offset >= 0} | self._offsets(later, LATEST)

    def _offsets(self, partitions: list[Partition], spec: Spec) -> dict[Partition, int]:
        if not partitions:
            return {}
        wanted = {TopicPartition(each.topic, each.number): spec for each in partitions}
        found: dict[Partition, int] = {}
        for asked, future in self._client.list_offsets(wanted, request_timeout=REQUEST_S).items():
            try:
                found[Partition(asked.topic, asked.partition)] = int(future.result().offset)
            except KafkaException:
                continue  # no leader, or no such topic any more: the offset is not known
        return found

    def commit(self, group_id: str, offsets: dict[Partition, int]) -> dict[Partition, str]:
        """See the protocol."""
        wanted = [TopicPartition(each.topic, each.number, offset) for each, offset in offsets.items()]
        request = ConsumerGroupTopicPartitions(group_id, wanted)
        with plain_errors(f"group {group_id!r}"):
            ask = self._client.alter_consumer_group_offsets
            answer = from_coordinator(partial(_result, ask, request, group_id))
        return {
            Partition(each.topic, each.partition): sentence(each.error)
            for each in answer.topic_partitions or []
            if each.error is not None
        }

    def delete_groups(self, group_ids: list[str]) -> dict[str, str]:
        """See the protocol."""
        refused: dict[str, str] = {}
        for group_id in group_ids:
            try:
                from_coordinator(partial(_result, self._client.delete_consumer_groups, group_id, group_id))
            except KafkaException as error:
                refused[group_id] = _words(error)
        return refused

    def delete_offsets(self, group_id: str, partitions: list[Partition]) -> dict[Partition, str]:
        """See the protocol."""
        from kafkalite_cli.groups.coordinator import delete_offsets  # its codec takes a while to import

        if not self._plaintext:
            raise Failure("offsets can be deleted over plain connections only: -X security.protocol is set")
        codes = delete_offsets(self._bootstrap, group_id, partitions)
        return {partition: words_of(code) for partition, code in codes.items() if code}


def _result(ask: Callable[..., dict[str, Future[Any]]], wanted: object, group_id: str) -> Any:
    """What the admin client's method `ask` is told of one group. Raises KafkaException."""
    return ask([wanted], request_timeout=REQUEST_S)[group_id].result()


def _member(described: Any) -> Member:
    assigned = described.assignment.topic_partitions if described.assignment is not None else []
    return Member(
        member_id=described.member_id,
        client_id=described.client_id,
        host=described.host,
        instance_id=described.group_instance_id,
        partitions=tuple(sorted(Partition(each.topic, each.partition) for each in assigned)),
    )


def _words(error: KafkaException) -> str:
    said = error.args[0] if error.args else error
    return sentence(said) if isinstance(said, KafkaError) else str(said)


def words_of(code: int) -> str:
    """Of an error code of the protocol."""
    return sentence(KafkaError(code))
