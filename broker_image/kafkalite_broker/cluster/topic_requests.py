"""Judging what clients ask of topics, before anything is written: Kafka's codes and Kafka's sentences."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kafkalite_broker.cluster.internal_topics import cluster_number
from kafkalite_core.controller.reassignment import target_of
from kafkalite_core.model.config import TOPIC_KEYS, check_topic_config
from kafkalite_core.model.errors import BrokerError
from kafkalite_core.model.limits import (
    PARTITIONS_PER_TOPIC_MAX,
    REPLICAS_PER_PARTITION_MAX,
    TOPIC_NAME_LENGTH_MAX,
)
from kafkalite_core.protocol.errors import ErrorCode
from kafkalite_core.resources.naming import is_topic_name

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from kafkalite_core.model.partition import Topic
    from kafkalite_core.protocol.create_topics import CreatableTopic

TOPICS_PER_REQUEST_MAX = 1000
PARTITIONS_PER_REQUEST_MAX = 10_000
"""One request may not keep the API server and the operator busy for longer than its client waits."""

FROM_DEFAULT = -1
"""In the place of a number of partitions or replicas: the cluster's default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """What a request is judged against.

    Attributes:
        config: The cluster's `spec.config`.
        replicas: Brokers that the cluster shall have.
        brokers: Ids of brokers that are known.
        names: Names of the topics that exist.
    """

    config: Mapping[str, str]
    replicas: int
    brokers: Collection[int]
    names: Iterable[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicWish:
    """A topic to be made, with every default filled in."""

    name: str
    partitions: int
    replicas: int
    config: dict[str, str] = field(default_factory=dict)
    assignment: dict[int, tuple[int, ...]] = field(default_factory=dict)


def check_name(name: str) -> None:
    """Kafka's rule for topic names. Raises INVALID_TOPIC_EXCEPTION."""
    if is_topic_name(name):
        return
    if not name:
        why = "the empty string is not allowed"
    elif name in {".", ".."}:
        why = "'.' or '..' is not allowed"
    elif len(name) > TOPIC_NAME_LENGTH_MAX:
        why = f"the length of '{name[:40]}…' is longer than the max allowed length {TOPIC_NAME_LENGTH_MAX}"
    else:
        shown = name if len(name) <= 80 else f"{name[:80]}…"
        why = f"'{shown}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    raise BrokerError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {why}")


class Collisions:
    """Topic names that differ only in '.' and '_': metrics cannot tell them apart, so Kafka makes only the first."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names: dict[str, str] = {}
        for name in names:
            self._names.setdefault(name.replace(".", "_"), name)

    def check(self, name: str) -> None:
        """Take the name up. Raises INVALID_TOPIC_EXCEPTION when another one collides with it."""
        other = self._names.setdefault(name.replace(".", "_"), name)
        if other != name and ("." in name or "_" in name):
            raise BrokerError(
                ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with existing topic: {other}"
            )


def judge_topic(topic: CreatableTopic, world: World) -> TopicWish:
    """The topic that an entry of a CreateTopics request asks for.

    Raises:
        BrokerError: INVALID_REQUEST, INVALID_PARTITIONS, INVALID_REPLICATION_FACTOR, INVALID_REPLICA_ASSIGNMENT or
            INVALID_CONFIG.
    """
    if topic.assignments:
        assignment = _manual(topic, world)
        partitions, replicas = len(assignment), len(assignment[0])
    else:
        assignment = {}
        partitions = _partitions(topic.num_partitions, world)
        replicas = _replicas(topic.replication_factor, world)
    if partitions > PARTITIONS_PER_TOPIC_MAX:
        raise BrokerError(
            ErrorCode.INVALID_PARTITIONS,
            f"{partitions} partitions are more than the {PARTITIONS_PER_TOPIC_MAX} that one topic can have.",
        )
    if replicas > REPLICAS_PER_PARTITION_MAX:
        raise BrokerError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"{replicas} replicas are more than the {REPLICAS_PER_PARTITION_MAX} that a partition can have.",
        )
    config = _config(topic, replicas)
    return TopicWish(name=topic.name, partitions=partitions, replicas=replicas, config=config, assignment=assignment)


def _partitions(wanted: int, world: World) -> int:
    if wanted == FROM_DEFAULT:
        return cluster_number(world.config, "num.partitions")
    if wanted <= 0:
        raise BrokerError(
            ErrorCode.INVALID_PARTITIONS,
            f"Number of partitions was set to an invalid non-positive value ({wanted}); use 1 or more, or -1 for the "
            "default.",
        )
    return wanted


def _replicas(wanted: int, world: World) -> int:
    if wanted != FROM_DEFAULT and wanted <= 0:
        raise BrokerError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Replication factor must be larger than 0, or -1 to use the default value; it is {wanted}.",
        )
    replicas = cluster_number(world.config, "default.replication.factor") if wanted == FROM_DEFAULT else wanted
    if replicas > world.replicas:
        default = " (default.replication.factor)" if wanted == FROM_DEFAULT else ""
        raise BrokerError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Unable to replicate the partition {replicas} time(s){default}: the cluster has only {world.replicas} "
            "broker(s).",
        )
    return replicas


def _manual(topic: CreatableTopic, world: World) -> dict[int, tuple[int, ...]]:
    if topic.num_partitions != FROM_DEFAULT:
        raise BrokerError(
            ErrorCode.INVALID_REQUEST,
            "A manual partition assignment was specified, but numPartitions was not set to -1.",
        )
    if topic.replication_factor != FROM_DEFAULT:
        raise BrokerError(
            ErrorCode.INVALID_REQUEST,
            "A manual partition assignment was specified, but the replication factor was not set to -1.",
        )
    assignment: dict[int, tuple[int, ...]] = {}
    for entry in topic.assignments:
        if entry.partition_index in assignment:
            raise BrokerError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Found multiple manual partition assignments for partition {entry.partition_index}",
            )
        assignment[entry.partition_index] = tuple(entry.broker_ids)
    if sorted(assignment) != list(range(len(assignment))):
        raise BrokerError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, "partitions should be a consecutive 0-based integer sequence"
        )
    ordered = dict(sorted(assignment.items()))
    check_assignment(list(ordered.values()), world.brokers)
    return ordered


def check_assignment(rows: Sequence[Sequence[int]], brokers: Collection[int], *, replicas: int | None = None) -> None:
    """A manual assignment: brokers that are known, none twice, the same number of replicas for every partition.

    `replicas`: how many the partitions that exist have. Raises INVALID_REPLICA_ASSIGNMENT.
    """
    for row in rows:
        said = "The manual partition assignment includes"
        if not row:
            raise BrokerError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{said} an empty replica list.")
        for broker_id in row:
            if row.count(broker_id) > 1:
                raise BrokerError(
                    ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{said} the broker {broker_id} more than once."
                )
            if broker_id not in brokers:
                raise BrokerError(
                    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                    f"{said} broker {broker_id}, but no such broker is registered.",
                )
        replicas = len(row) if replicas is None else replicas
        if len(row) != replicas:
            raise BrokerError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"{said} a partition with {len(row)} replica(s), but this is not consistent with previous "
                f"partitions, which have {replicas} replica(s).",
            )


def check_growth(topic: Topic, specified: int, wanted: int, rows: Sequence[Sequence[int]] | None) -> None:
    """The number of partitions only grows, and a manual assignment is one of the new partitions alone.

    `specified`: what its spec says, which is ahead of `topic` while the operator has not placed all of them. Raises
    INVALID_PARTITIONS and INVALID_REPLICA_ASSIGNMENT.
    """
    name, have = topic.ref.name, max(specified, len(topic.partitions))
    if wanted == have:
        raise BrokerError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {have} partition(s).")
    if wanted < have:
        raise BrokerError(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {name} currently has {have} partition(s); {wanted} would not be an increase.",
        )
    if rows is None:
        return
    if len(rows) != wanted - have:
        raise BrokerError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Attempted to add {wanted - have} additional partition(s), but {len(rows)} assignment(s) were specified.",
        )
    first = topic.partitions.get(0)
    named = {broker_id for row in rows for broker_id in row}  # whether there are such brokers is known before
    check_assignment(rows, named, replicas=None if first is None else len(target_of(first)))


def _config(topic: CreatableTopic, replicas: int) -> dict[str, str]:
    missing = [entry.name for entry in topic.configs if entry.value is None]
    if missing:
        raise BrokerError(
            ErrorCode.INVALID_CONFIG, f"Null value not supported for topic configs: {', '.join(missing[:5])}"
        )
    config = {entry.name: entry.value for entry in topic.configs if entry.value is not None}
    problems = check_topic_config(config, replicas=replicas)
    if problems:
        raise BrokerError(ErrorCode.INVALID_CONFIG, "; ".join(problems))
    return config


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One key of a topic's configuration in force. `source` is Kafka's ConfigSource number."""

    name: str
    value: str
    source: int


TOPIC_CONFIG_SOURCE = 1
CLUSTER_CONFIG_SOURCE = 3
DEFAULT_CONFIG_SOURCE = 5


def config_in_force(topic: Mapping[str, str], cluster: Mapping[str, str]) -> list[ConfigEntry]:
    """Every topic key with its value: the topic's own, else the cluster's, else the default."""
    entries = []
    for name, key in sorted(TOPIC_KEYS.items()):
        if name in topic:
            entries.append(ConfigEntry(name, topic[name], TOPIC_CONFIG_SOURCE))
        elif key.synonym in cluster:
            entries.append(ConfigEntry(name, cluster[key.synonym], CLUSTER_CONFIG_SOURCE))
        else:
            entries.append(ConfigEntry(name, key.default, DEFAULT_CONFIG_SOURCE))
    return entries
