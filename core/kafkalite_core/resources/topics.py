"""`KafkaLiteTopic`: JSON <-> model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from kafkalite_core.model.limits import NO_LEADER, PARTITION_DIGITS_MAX
from kafkalite_core.model.partition import IsrEntry, Partition, Topic, TopicRef
from kafkalite_core.model.topic import DEFAULT_CLUSTER_NAME, FLUSH_CONDITION, FLUSH_RELAXED, STORE_WENT_BACK, TopicSpec
from kafkalite_core.resources.conditions import parse_conditions
from kafkalite_core.resources.fields import Fields, ResourceError, open_object
from kafkalite_core.resources.members import read_members, render_members

if TYPE_CHECKING:
    from collections.abc import Mapping

RECOVERED = "Recovered"
RECOVERING = "Recovering"
"""`leaderRecoveryState`; it is written only while the leader recovers."""


def parse_topic(obj: Mapping[str, Any]) -> Topic:
    """The topic as brokers and the controller see it; without status `topic_id` is empty and there is no partition.

    Raises:
        ResourceError: the object cannot be understood; the caller logs it and goes on.
    """
    fields, metadata = open_object(obj)
    spec = parse_topic_spec(obj)
    status = fields.map("status")
    ref = TopicRef(
        namespace=metadata.text("namespace", ""),
        object_name=metadata.text("name"),
        uid=metadata.text("uid", ""),
        topic_id=status.text("topicId", ""),
        name=spec.topic_name,
    )
    conditions = parse_conditions(status.raw)
    lags = [each.reason for each in conditions if each.type == FLUSH_CONDITION and each.status == "False"]
    return Topic(
        ref=ref,
        generation=metadata.integer("generation", 0),
        resource_version=metadata.text("resourceVersion", ""),
        controller_epoch=status.integer("controllerEpoch", 0),
        partitions=_partitions(status),
        config=spec.config,
        deletion_policy=spec.deletion_policy,
        deleting=metadata.has("deletionTimestamp"),
        cluster=spec.cluster,
        replica_assignment=spec.replica_assignment,
        store_went_back=any(
            condition.type == "Ready" and condition.status == "False" and condition.reason == STORE_WENT_BACK
            for condition in conditions
        ),
        flush_lag_known=bool(lags),
        flush_may_lag=FLUSH_RELAXED in lags,
    )


def parse_topic_spec(obj: Mapping[str, Any]) -> TopicSpec:
    """What the user asks for, with the defaults of the CRD. Raises `ResourceError`."""
    fields, metadata = open_object(obj)
    spec = fields.map("spec")
    assignment = spec.map("replicaAssignment")
    return TopicSpec(
        cluster=spec.map("clusterRef").text("name", DEFAULT_CLUSTER_NAME),
        topic_name=spec.text("topicName", metadata.text("name")),
        partitions=spec.integer("partitions", 1),
        replicas=spec.integer("replicas", 3),
        config=spec.texts("config"),
        replica_assignment={_number(key, assignment): assignment.integers(key) for key in assignment.raw},
        deletion_policy=spec.text("deletionPolicy", "Delete"),
    )


def _number(key: str, fields: Fields) -> int:
    # Python does not turn thousands of digits into a number.
    if not key.isascii() or not key.isdigit() or len(key) > PARTITION_DIGITS_MAX:
        raise ResourceError(f"{fields.where(f'{key:.80}')}: {key!r:.80} is not a partition number")
    return int(key)


def _partitions(status: Fields) -> dict[int, Partition]:
    partitions = status.map("partitions")
    numbers = sorted(_number(key, partitions) for key in partitions.raw)
    return {number: parse_partition(partitions.required_map(str(number))) for number in numbers}


def parse_entries(obj: Mapping[str, Any]) -> tuple[str, dict[int, Partition]]:
    """The uid and the entries of `status.partitions`, whatever the spec says: who settles a compare-and-swap has to
    know no more. Raises `ResourceError`.
    """
    fields, metadata = open_object(obj)
    return metadata.text("uid", ""), _partitions(fields.map("status"))


class _Entry(msgspec.Struct, rename="camel", gc=False):
    """An entry of `status.partitions` as it nearly always is."""

    leader_epoch: int
    partition_epoch: int
    leader: int = NO_LEADER
    min_isr: int = 1
    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()
    isr_broker_epochs: tuple[int, ...] = ()
    elr: tuple[int, ...] = ()
    elr_broker_epochs: tuple[int, ...] = ()
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    leader_recovery_state: str = RECOVERED


def parse_partition(fields: Fields) -> Partition:
    """One entry of `status.partitions`. Raises `ResourceError`."""
    try:
        entry = msgspec.convert(fields.raw, _Entry)
    except (msgspec.ValidationError, UnicodeEncodeError):  # half of a surrogate pair in the name of a field
        return _read_partition(fields)
    if len(entry.isr) != len(entry.isr_broker_epochs) or len(entry.elr) != len(entry.elr_broker_epochs):
        return _read_partition(fields)
    return Partition(
        leader=entry.leader,
        leader_epoch=entry.leader_epoch,
        partition_epoch=entry.partition_epoch,
        min_isr=entry.min_isr,
        replicas=entry.replicas,
        isr=tuple(map(IsrEntry, entry.isr, entry.isr_broker_epochs)),
        elr=tuple(map(IsrEntry, entry.elr, entry.elr_broker_epochs)),
        adding=entry.adding,
        removing=entry.removing,
        recovering=entry.leader_recovery_state == RECOVERING,
    )


def _read_partition(fields: Fields) -> Partition:
    # Field by field, at five times the price: it knows null, and its errors name the object and the field.
    return Partition(
        leader=fields.integer("leader", NO_LEADER),
        leader_epoch=fields.integer("leaderEpoch"),
        partition_epoch=fields.integer("partitionEpoch"),
        min_isr=fields.integer("minIsr", 1),
        replicas=fields.integers("replicas"),
        isr=read_members(fields, "isr"),
        elr=read_members(fields, "elr"),
        adding=fields.integers("adding"),
        removing=fields.integers("removing"),
        recovering=fields.text("leaderRecoveryState", RECOVERED) == RECOVERING,
    )


def render_partition(partition: Partition) -> dict[str, Any]:
    """The JSON of one entry of `status.partitions`; `parse_partition` is its inverse.

    ELR and replicas that move are there only when there are some: each write of a topic is judged with all its entries.
    """
    entry: dict[str, Any] = {
        "leader": partition.leader,
        "leaderEpoch": partition.leader_epoch,
        "partitionEpoch": partition.partition_epoch,
        "minIsr": partition.min_isr,
        "replicas": list(partition.replicas),
        **render_members("isr", partition.isr),
    }
    if partition.elr:
        entry |= render_members("elr", partition.elr)
    if partition.adding:
        entry["adding"] = list(partition.adding)
    if partition.removing:
        entry["removing"] = list(partition.removing)
    if partition.recovering:
        entry["leaderRecoveryState"] = RECOVERING
    return entry
