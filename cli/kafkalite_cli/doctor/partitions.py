"""Partitions without a leader, below min.insync.replicas, or with replicas that are not in sync, by what they lack.

Thousands of partitions lack the same broker for the same reason: they make one finding.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kafkalite_cli.doctor.model import NOTE, Finding, count, label, listed
from kafkalite_core.controller.election import describe_broker
from kafkalite_core.controller.reassignment import is_moving
from kafkalite_core.model.cluster import entry_counts
from kafkalite_core.model.config import resolve_topic_config
from kafkalite_core.resources.naming import ANNOTATION_ELECT_UNCLEAN

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafkalite_cli.doctor.model import Evidence
    from kafkalite_core.model.partition import Partition

JsonObject = dict[str, Any]


@dataclass(slots=True)
class Lack:
    """Partitions with the same trouble; `objects` has their numbers by the object of their topic."""

    names: list[str] = field(default_factory=list)
    objects: dict[str, list[int]] = field(default_factory=dict)

    def add(self, name: str, topic_object: str, number: int) -> None:
        """One more."""
        self.names.append(name)
        self.objects.setdefault(topic_object, []).append(number)


def check(evidence: Evidence) -> Iterator[Finding]:
    """Everything about partitions."""
    offline: dict[str, Lack] = {}
    below: dict[tuple[int, int, str], Lack] = {}
    missing: dict[tuple[int, str], Lack] = {}
    moving, unclean = Lack(), Lack()
    for topic in evidence.topics:
        parsed = evidence.parsed[str(topic["metadata"]["name"])]
        relaxed = _relaxed(evidence, parsed.config)
        for number, entry in sorted(parsed.partitions.items()):
            name, where = f"{label(topic)}-{number}", str(topic["metadata"]["name"])
            if entry.recovering:
                unclean.add(name, where, number)
            if is_moving(entry):
                moving.add(name, where, number)
            if not entry.has_leader:
                offline.setdefault(_candidates(evidence, entry, relaxed=relaxed), Lack()).add(name, where, number)
                continue
            absent = _absent(evidence, entry, relaxed=relaxed)
            in_sync = len(entry.replicas) - len(absent) - len([i for i in entry.adding if i not in entry.isr_ids()])
            if in_sync < entry.min_isr:
                states = "; ".join(f"broker {i} {why}" for i, why in sorted(absent.items()))
                below.setdefault((in_sync, entry.min_isr, states), Lack()).add(name, where, number)
            for broker_id, why in absent.items():
                missing.setdefault((broker_id, why), Lack()).add(name, where, number)
    yield from _offline(evidence, offline)
    yield from _below(below)
    yield from _behind(evidence, missing)
    yield from _others(evidence, moving, unclean)


def _relaxed(evidence: Evidence, config: dict[str, str]) -> bool:
    cluster = {str(k): str(v) for k, v in (evidence.cluster["spec"].get("config") or {}).items()}
    return bool(resolve_topic_config(config, cluster).relaxed_flush)


def _absent(evidence: Evidence, entry: Partition, *, relaxed: bool) -> dict[int, str]:
    """Replicas that are not in sync, and why; those that a reassignment adds are not missed before they are there."""
    members = {member.id: member for member in entry.isr}
    absent: dict[int, str] = {}
    for broker_id in entry.replicas:
        member = members.get(broker_id)
        if broker_id in entry.adding and member is None:
            continue
        if member is None or not entry_counts(member, evidence.brokers, relaxed_flush=relaxed):
            absent[broker_id] = _why_absent(evidence, entry, broker_id, lost=member is not None)
    return absent


def _why_absent(evidence: Evidence, entry: Partition, broker_id: int, *, lost: bool) -> str:
    broker = evidence.brokers.get(broker_id)
    words = describe_broker(broker_id, evidence.brokers).removeprefix(f"broker {broker_id} ")
    if broker is not None and broker.recovery is not None and broker.recovering:
        return f"recovers its logs, {count(broker.recovery.remaining_logs, 'log')} left"
    if broker is None or broker.registration is None:
        return words
    if broker.fenced:
        status = (evidence.broker_objects[broker_id].get("status") or {}).get("fencing") or {}
        reason = str(status.get("reason") or "").split(":")[0]
        return f"{words} ({reason})" if reason else words
    if not broker.alive:
        return words
    if lost:
        return "came back without its data and copies it from the leader"
    if broker_id in entry.removing:
        return "runs and leaves the partition (reassignment)"
    return "runs and is catching up" + (", cordoned" if broker.cordoned else "")


def _candidates(evidence: Evidence, entry: Partition, *, relaxed: bool) -> str:
    """Of each replica that surely has every acknowledged record why it cannot lead; and who lives but may lack some."""
    words: list[str] = []
    for kind, members in (("in the ISR", entry.isr), ("eligible", entry.elr)):
        for member in members:
            broker = evidence.brokers.get(member.id)
            if (
                broker is not None
                and broker.alive
                and not entry_counts(member, evidence.brokers, relaxed_flush=relaxed)
            ):
                why = f"came back without its data (it was in sync with epoch {member.epoch})"
            elif broker is not None and broker.alive:
                why = "runs: the operator has to elect it"
            else:
                why = describe_broker(member.id, evidence.brokers).removeprefix(f"broker {member.id} ")
            words.append(f"broker {member.id} ({kind}) {why}")
    trusted = {member.id for member in (*entry.isr, *entry.elr)}
    others = [i for i in entry.replicas if i not in trusted and i in evidence.brokers and evidence.brokers[i].alive]
    if others:
        verb = "runs" if len(others) == 1 else "run"
        words.append(f"{_named(others)} {verb}, and may lack acknowledged records")
    return "; ".join(words)


def _named(ids: list[int]) -> str:
    return f"broker{'s' if len(ids) != 1 else ''} {', '.join(map(str, ids))}"


def _offline(evidence: Evidence, offline: dict[str, Lack]) -> Iterator[Finding]:
    for why, lack in _sorted(offline):
        topic = min(lack.objects)
        # Others of the topic may be without a leader for something that passes: there is no consent to lose theirs.
        whole = len(lack.objects[topic]) == len(evidence.parsed[topic].partitions)
        numbers = "all" if whole else ",".join(map(str, lack.objects[topic]))
        consent = evidence.kubectl(f"annotate klt {topic} {ANNOTATION_ELECT_UNCLEAN}={numbers}")
        comes = "runs: the operator has to elect it" in why
        yield Finding(
            code="OfflinePartitions",
            about=_about(lack),
            what=f"{count(len(lack.names), 'partition')} without a leader: {listed(lack.names)}",
            why=why,
            todo="wait for the operator; if this stays, look at what is said about it"
            if comes
            else "bring one of the brokers back that are in the ISR or eligible. If none will ever come back, accept "
            f"the loss of records, topic by topic: {consent}",
            items=tuple(lack.names),
        )


def _below(below: dict[tuple[int, int, str], Lack]) -> Iterator[Finding]:
    for (in_sync, wanted, states), lack in _sorted(below):
        yield Finding(
            code="UnderMinIsr",
            about=_about(lack),
            what=f"{count(len(lack.names), 'partition')} with {in_sync} of min.insync.replicas {wanted} in sync: "
            f"{listed(lack.names)}",
            why=states or "it has fewer replicas than min.insync.replicas",
            todo="producers with acks=all are answered with an error until then: bring these brokers back",
            items=tuple(lack.names),
        )


def _behind(evidence: Evidence, missing: dict[tuple[int, str], Lack]) -> Iterator[Finding]:
    for (broker_id, why), lack in _sorted(missing):
        broker = evidence.brokers.get(broker_id)
        if broker is not None and broker.alive:
            todo = (
                "wait while it copies; if its lag does not shrink, look at its disk and network: "
                + evidence.kubectl(f"logs {broker.object_name}")
            )
        else:
            gone = evidence.say.kafkalite(f"replace {broker_id}")
            todo = f"bring broker {broker_id} back; if it is gone for good: {gone}"
        yield Finding(
            code="UnderReplicated",
            about=_about(lack),
            what=f"{count(len(lack.names), 'partition')} of {count(len(lack.objects), 'topic')} without the replica on "
            f"broker {broker_id}: {listed(lack.names)}",
            why=f"broker {broker_id} {why}",
            todo=todo,
            items=tuple(lack.names),
        )


def _others(evidence: Evidence, moving: Lack, unclean: Lack) -> Iterator[Finding]:
    if unclean.names:
        yield Finding(
            code="UncleanElection",
            about=_about(unclean),
            what=f"{count(len(unclean.names), 'partition')} with a leader that was elected uncleanly and has not "
            f"confirmed it yet: {listed(unclean.names)}",
            why="acknowledged records may be missing",
            todo="wait a moment; then compare with what the producers have sent",
            items=tuple(unclean.names),
        )
    if moving.names:
        yield Finding(
            code="Reassigning",
            about=_about(moving),
            what=f"replicas of {count(len(moving.names), 'partition')} are moving: {listed(moving.names)}",
            why="somebody asked for it",
            todo=f"{evidence.say.kafkalite('reassign status')} shows how far they are",
            items=tuple(moving.names),
            severity=NOTE,
        )


def _about(lack: Lack) -> str:
    return f"topic/{min(lack.objects)}"


def _sorted(lacks: dict[Any, Lack]) -> list[tuple[Any, Lack]]:
    return sorted(lacks.items(), key=lambda item: (-len(item[1].names), item[0]))
