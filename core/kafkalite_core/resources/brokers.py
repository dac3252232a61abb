"""`KafkaLiteBroker`: JSON <-> model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkalite_core.model.cluster import Adopted, Broker, BrokerState, Recovery, Registration
from kafkalite_core.model.partition import IsrEntry
from kafkalite_core.model.topic import Holding, Stray
from kafkalite_core.resources.conditions import parse_conditions
from kafkalite_core.resources.fields import Fields, ResourceError, open_object
from kafkalite_core.resources.members import read_members, render_members
from kafkalite_core.resources.naming import ANNOTATION_REPLACE

if TYPE_CHECKING:
    from collections.abc import Mapping


def parse_broker(obj: Mapping[str, Any]) -> Broker:
    """A broker with its registration and its fence.

    Raises:
        ResourceError: the object cannot be understood.
    """
    fields, metadata = open_object(obj)
    spec = fields.required_map("spec")
    status = fields.map("status")
    declared = metadata.map("annotations").texts_or_empty().get(ANNOTATION_REPLACE, "")
    return Broker(
        id=spec.integer("brokerId"),
        registration=_registration(status.map("registration")) if status.has("registration") else None,
        fenced_epoch=status.map("fencing").integer("fencedEpoch", -1),
        cordoned=spec.flag("cordoned"),
        hold=spec.flag("hold"),
        replace_request=declared if declared.lower() == "true" else "",
        object_name=metadata.text("name"),
        uid=metadata.text("uid", ""),
        strays=tuple(_stray(stray) for stray in status.maps("strays")),
        strays_unlisted=status.integer("straysUnlisted") if status.has("straysUnlisted") else None,
        holdings=tuple(_holding(holding) for holding in status.maps("holdings")),
        conditions=parse_conditions(status.raw),
        recovery=_recovery(status.map("recovery")) if status.has("recovery") else None,
    )


def cluster_of_broker(obj: Mapping[str, Any]) -> str:
    """Name of the cluster that a `KafkaLiteBroker` belongs to. Raises `ResourceError`."""
    fields, _ = open_object(obj)
    return fields.required_map("spec").required_map("clusterRef").text("name")


def _registration(fields: Fields) -> Registration:
    state = fields.text("state", BrokerState.CATCHING_UP.value)
    if state not in {member.value for member in BrokerState}:
        raise ResourceError(f"{fields.where('state')}: {state!r} is not a state of a broker")
    return Registration(
        broker_epoch=fields.integer("brokerEpoch"),
        incarnation=fields.text("incarnation"),
        directory_id=fields.text("directoryId"),
        trusted_since=fields.integer("trustedSince"),
        clean_since=fields.integer("cleanSince"),
        host=fields.text("host", ""),
        port=fields.integer("port", 0),
        rack=fields.text("rack", ""),
        state=BrokerState(state),
        metrics_url=fields.text("metrics", ""),
        adopted=tuple(
            Adopted(
                broker_epoch=one.integer("brokerEpoch"),
                trusted_since=one.integer("trustedSince"),
                clean_since=one.integer("cleanSince"),
            )
            for one in fields.maps("adopted")
        ),
    )


def render_registration(registration: Registration) -> dict[str, Any]:
    """The JSON of `status.registration`."""
    rendered: dict[str, Any] = {
        "brokerEpoch": registration.broker_epoch,
        "incarnation": registration.incarnation,
        "directoryId": registration.directory_id,
        "trustedSince": registration.trusted_since,
        "cleanSince": registration.clean_since,
        "host": registration.host,
        "port": registration.port,
        "rack": registration.rack,
        "state": registration.state.value,
        "metrics": registration.metrics_url,
    }
    if registration.adopted:
        rendered["adopted"] = [
            {"brokerEpoch": one.broker_epoch, "trustedSince": one.trusted_since, "cleanSince": one.clean_since}
            for one in registration.adopted
        ]
    return rendered


def _recovery(fields: Fields) -> Recovery:
    return Recovery(
        incarnation=fields.text("incarnation"),
        started_at=fields.text("startedAt", ""),
        remaining_logs=fields.integer("remainingLogs", 0),
        remaining_segments=fields.integer("remainingSegments", 0),
    )


def render_recovery(recovery: Recovery) -> dict[str, Any]:
    """The JSON of `status.recovery`."""
    return {
        "incarnation": recovery.incarnation,
        "startedAt": recovery.started_at,
        "remainingLogs": recovery.remaining_logs,
        "remainingSegments": recovery.remaining_segments,
    }


def _stray(fields: Fields) -> Stray:
    return Stray(
        topic=fields.text("topic"),
        topic_id=fields.text("topicId"),
        partition=fields.integer("partition"),
        leader_epoch=fields.integer("leaderEpoch", -1),
        partition_epoch=fields.integer("partitionEpoch", -1),
        end_offset=fields.integer("endOffset", 0),
        log_epoch=fields.integer("logEpoch") if fields.has("logEpoch") else None,
        deleted=fields.flag("deleted"),
        isr=_isr(fields),
        isr_epoch=fields.integer("isrEpoch", -1),
        isr_leader_epoch=fields.integer("isrLeaderEpoch", -1),
        relaxed_flush=fields.flag("relaxedFlush"),
    )


def _holding(fields: Fields) -> Holding:
    return Holding(
        topic=fields.text("topic"),
        topic_id=fields.text("topicId"),
        partition=fields.integer("partition"),
        leader_epoch=fields.integer("leaderEpoch"),
        partition_epoch=fields.integer("partitionEpoch"),
        log_epoch=fields.integer("logEpoch"),
        end_offset=fields.integer("endOffset"),
        agrees=fields.flag("agrees"),
        isr=_isr(fields),
        hosted=fields.flag("hosted", default=True),
        isr_epoch=fields.integer("isrEpoch") if fields.has("isrEpoch") else None,
        isr_leader_epoch=fields.integer("isrLeaderEpoch") if fields.has("isrLeaderEpoch") else None,
    )


def _isr(fields: Fields) -> tuple[IsrEntry, ...]:
    if fields.has("isrBrokerEpochs"):
        return read_members(fields, "isr")
    return tuple(IsrEntry(broker_id, -1) for broker_id in fields.integers("isr"))


def _render_isr(isr: tuple[IsrEntry, ...]) -> dict[str, list[int]]:
    both = render_members("isr", isr)
    return both if any(one.epoch >= 0 for one in isr) else {"isr": both["isr"]}


def render_holding(holding: Holding) -> dict[str, Any]:
    """The JSON of one entry of `status.holdings`."""
    entry: dict[str, Any] = {
        "topic": holding.topic,
        "topicId": holding.topic_id,
        "partition": holding.partition,
        "leaderEpoch": holding.leader_epoch,
        "partitionEpoch": holding.partition_epoch,
        "logEpoch": holding.log_epoch,
        "endOffset": holding.end_offset,
    }
    if holding.isr:
        entry |= _render_isr(holding.isr)
    if not holding.hosted:
        entry["hosted"] = False
    if holding.isr_epoch is not None:
        entry["isrEpoch"] = holding.isr_epoch
    if holding.isr_leader_epoch is not None:
        entry["isrLeaderEpoch"] = holding.isr_leader_epoch
    return {**entry, "agrees": True} if holding.agrees else entry


def render_stray(stray: Stray) -> dict[str, Any]:
    """The JSON of one entry of `status.strays`."""
    entry: dict[str, Any] = {
        "topic": stray.topic,
        "topicId": stray.topic_id,
        "partition": stray.partition,
        "leaderEpoch": stray.leader_epoch,
        "partitionEpoch": stray.partition_epoch,
        "endOffset": stray.end_offset,
    }
    if stray.log_epoch is not None:
        entry["logEpoch"] = stray.log_epoch
    if stray.isr:
        entry |= _render_isr(stray.isr)
        entry |= {"isrEpoch": stray.isr_epoch, "isrLeaderEpoch": stray.isr_leader_epoch}
    if stray.relaxed_flush:
        entry["relaxedFlush"] = True
    return {**entry, "deleted": True} if stray.deleted else entry
