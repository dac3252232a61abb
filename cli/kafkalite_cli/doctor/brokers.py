"""Brokers, their StatefulSet and their volumes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkalite_cli.brokers.operator_lease import age_s
from kafkalite_cli.doctor import pods
from kafkalite_cli.doctor.model import NOTE, Finding, count, label, listed
from kafkalite_cli.doctor.operators import said_not_applied
from kafkalite_core.model.cluster import BrokerState
from kafkalite_core.resources.naming import broker_id_of, broker_name, stateful_set_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafkalite_cli.doctor.model import Evidence
    from kafkalite_core.model.cluster import Broker

JsonObject = dict[str, Any]


def check(evidence: Evidence) -> Iterator[Finding]:
    """Everything about brokers."""
    yield from _stateful_set(evidence)
    yield from _objects(evidence)
    for broker_id in sorted({*range(evidence.replicas), *evidence.brokers}):
        broker = evidence.brokers.get(broker_id)
        if broker is None:
            yield _unmade(evidence, broker_id)
            continue
        if broker_id >= evidence.replicas and broker.fenced:
            continue  # it leaves; what it holds is told with the partitions
        yield from _broker(evidence, broker)
    yield from _claims(evidence)
    yield from _strays(evidence)


def _unmade(evidence: Evidence, broker_id: int) -> Finding:
    name = broker_name(evidence.name, broker_id)
    return Finding(
        code="BrokerNotMade",
        about=f"broker/{name}",
        what=f"broker {broker_id} is wanted, and there is no KafkaLiteBroker {name}",
        why=evidence.broken.get(f"broker/{name}", "") or "the operator makes it as soon as it acts",
        todo="look at what is said about the operator",
    )


def _broker(evidence: Evidence, broker: Broker) -> Iterator[Finding]:
    why, todo = pods.trouble(evidence, broker.object_name)
    if broker.recovering and pods.may_run(evidence, broker.object_name):
        yield _recovering(broker)
    elif broker.registration is None:
        yield Finding(
            code="BrokerNotRegistered",
            about=f"broker/{broker.object_name}",
            what=f"broker {broker.id} has never registered",
            why=why or "its process has not come so far",
            todo=todo or evidence.kubectl(f"logs {broker.object_name}"),
        )
    elif broker.fenced:
        yield _fenced(evidence, broker, why, todo)
    elif not broker.alive:
        yield _not_running(broker, why, todo)
    else:
        yield from _running(evidence, broker, why, todo)
    if broker.cordoned:
        yield Finding(
            code="BrokerCordoned",
            about=f"broker/{broker.object_name}",
            what=f"broker {broker.id} is cordoned: no new replicas are placed there",
            why="spec.cordoned is true",
            todo="if it shall take replicas again: " + evidence.say.kafkalite(f"decommission {broker.id} --cancel"),
            severity=NOTE,
        )


def _fenced(evidence: Evidence, broker: Broker, why: str, todo: str) -> Finding:
    fencing = (evidence.broker_objects[broker.id].get("status") or {}).get("fencing") or {}
    reason = f"the operator fenced epoch {broker.fenced_epoch} at {fencing.get('since') or 'an unknown time'}"
    reason += f": {fencing.get('reason') or 'no reason given'}"
    if why:
        reason += f"; {why}"
    elif evidence.pods is not None:
        reason += (
            f"; its pod runs and is ready, yet its registration is that of epoch {broker.epoch}: the process has to "
            "register again, which it does as soon as it hears of the fence"
        )
        todo = "if this stays, " + evidence.say.kafkalite(f"restart {broker.id}")
    return Finding(
        code="BrokerFenced",
        about=f"broker/{broker.object_name}",
        what=f"broker {broker.id} is fenced: it leads nothing and counts in no ISR",
        why=reason,
        todo=todo or f"start it: {evidence.kubectl(f'describe pod {broker.object_name}')}",
    )


def _recovering(broker: Broker) -> Finding:
    assert broker.recovery is not None
    logs, segments = broker.recovery.remaining_logs, broker.recovery.remaining_segments
    since = broker.recovery.started_at or "its start"
    return Finding(
        code="BrokerRecovering",
        about=f"broker/{broker.object_name}",
        what=f"broker {broker.id} recovers its logs: {count(logs, 'log')} left, "
        f"and {count(segments, 'segment')} of those under way",
        why=f"it was not stopped in order, so since {since} it looks through what may be cut off",
        todo="wait; it registers when it is done. Whoever restarts it has it begin anew",
    )


def _not_running(broker: Broker, why: str, todo: str) -> Finding:
    assert broker.registration is not None
    state = broker.registration.state
    texts = {
        BrokerState.CATCHING_UP: (
            f"broker {broker.id} catches up with the state of the topics",
            "it has registered and reads the custom resources",
            "wait a moment; if this stays, look at its log",
        ),
        BrokerState.SHUTTING_DOWN: (
            f"broker {broker.id} is shutting down",
            "its process was asked to end",
            "wait; its pod is started again",
        ),
    }
    what, because, do = texts[state]
    return Finding(
        code=f"Broker{state.value}",
        about=f"broker/{broker.object_name}",
        what=what,
        why=why or because,
        todo=todo or do,
    )


def _running(evidence: Evidence, broker: Broker, why: str, todo: str) -> Iterator[Finding]:
    key = f"{evidence.namespace}/{broker.object_name}"
    lease = evidence.leases.brokers.get(broker.object_name) if evidence.leases is not None else None
    if evidence.leases is not None and (lease is None or key in evidence.silent):
        age = age_s(lease, evidence.now) if lease is not None else None
        since = f"for {age:,.0f} s" if age is not None else "at all"
        yield Finding(
            code="LeaseExpired",
            about=f"broker/{broker.object_name}",
            what=f"broker {broker.id} is registered as {_state(broker)}, but has not renewed its Lease {since}",
            why=why or "its process hangs, or cannot reach the API server",
            todo=todo
            or "the operator fences it when another broker still renews its own; else look at what is said about the "
            "operator and the API server",
        )
    elif why:
        yield Finding(
            code="PodNotReady",
            about=f"broker/{broker.object_name}",
            what=f"broker {broker.id} is registered as {_state(broker)}, but its pod is in trouble",
            why=why,
            todo=todo,
        )
    if broker.id >= evidence.replicas:
        yield Finding(
            code="BrokerLeaving",
            about=f"broker/{broker.object_name}",
            what=f"broker {broker.id} runs, and leaves: spec.replicas is {evidence.replicas}",
            why="a broker stays until its replicas are elsewhere and those with higher ids are gone",
            todo=f"wait, or set spec.replicas to {broker.id + 1} or more to keep it",
            severity=NOTE,
        )


def _state(broker: Broker) -> str:
    return broker.registration.state.value if broker.registration is not None else "nothing"


def _stateful_set(evidence: Evidence) -> Iterator[Finding]:
    if evidence.stateful_sets is None:
        return
    name = stateful_set_name(evidence.name)
    found = evidence.stateful_sets.get(name)
    said = said_not_applied(evidence, "StatefulSet", name)
    if found is None:
        yield Finding(
            code="StatefulSetMissing",
            about=f"statefulset/{name}",
            what=f"there is no StatefulSet {name}, so no broker can run",
            why="the operator could not make it" if said else "the operator makes it as soon as it acts",
            todo=f"look at what is said about the {'objects of the cluster' if said else 'operator'}",
        )
        return
    uid = evidence.cluster["metadata"].get("uid")
    owners = [each for each in found["metadata"].get("ownerReferences") or [] if each.get("controller")]
    if uid and not said and any(each.get("uid") != uid for each in owners):
        yield Finding(
            code="ForeignObject",
            about=f"statefulset/{name}",
            what=f"StatefulSet {name} belongs to {owners[0].get('kind')} {owners[0].get('name')} "
            f"(uid {owners[0].get('uid')}), not to this cluster (uid {uid})",
            why="the cluster was deleted and made again, or something else has the name",
            todo="the operator leaves it alone: delete it (volumes stay), or give the cluster another name",
        )
    wanted = int((found.get("spec") or {}).get("replicas", 1))
    if wanted < evidence.replicas:
        yield Finding(
            code="StatefulSetTooSmall",
            about=f"statefulset/{name}",
            what=f"StatefulSet {name} has {wanted} replicas, and the cluster wants {evidence.replicas} brokers",
            why="the operator could not change it" if said else "somebody else scaled it, or the operator does not act",
            todo="look at what is said about the objects of the cluster"
            if said
            else f"scale the KafkaLiteCluster {evidence.name}, never its StatefulSet",
        )


def _objects(evidence: Evidence) -> Iterator[Finding]:
    """KafkaLiteBrokers whose name and contents do not fit together, and objects that cannot be understood."""
    for broker_id, obj in sorted(evidence.broker_objects.items()):
        name = str(obj["metadata"]["name"])
        if broker_id_of(evidence.name, name) != broker_id:
            yield Finding(
                code="ForeignObject",
                about=f"broker/{name}",
                what=f"KafkaLiteBroker {name} says that it is broker {broker_id} of cluster {evidence.name}",
                why=f"that one is called {broker_name(evidence.name, broker_id)}; the operator makes them all",
                todo=f"delete it: {evidence.kubectl(f'delete klb {name}')}",
            )
    for about, problem in sorted(evidence.broken.items()):
        yield Finding(
            code="NotUnderstood",
            about=about,
            what=f"{about} cannot be understood by this version",
            why=problem,
            todo="use the version of `kafkalite` that the operator has, or correct the object",
        )


def _claims(evidence: Evidence) -> Iterator[Finding]:
    for broker_id in range(evidence.replicas):
        name = f"data-{broker_name(evidence.name, broker_id)}"
        claim = (evidence.claims or {}).get(name)
        phase = ((claim or {}).get("status") or {}).get("phase")
        if claim is None or phase in {"Bound", None}:
            continue
        storage = (claim.get("spec") or {}).get("storageClassName")
        default = "the default StorageClass (there may be none)"
        yield Finding(
            code="VolumePending" if phase == "Pending" else "VolumeLost",
            about=f"persistentvolumeclaim/{name}",
            what=f"the volume claim {name} of broker {broker_id} is {phase}",
            why=evidence.warning("PersistentVolumeClaim", name) or f"no volume of {storage or default} was given to it",
            todo=evidence.kubectl(f"describe pvc {name}")
            if phase == "Pending"
            else "its volume is gone. Bring it back, or see what would be lost with it and give the broker a new one: "
            + evidence.say.kafkalite(f"replace {broker_id}"),
        )


def _strays(evidence: Evidence) -> Iterator[Finding]:
    """Data that no partition claims: of topics that are gone, of partitions that topics lost in a restore (S11), and of
    replicas that have moved away.
    """
    present = {label(topic) for topic in evidence.topics}
    statuses = [topic.get("status") or {} for topic in evidence.topics]
    numbers = {status.get("topicId"): (status.get("partitions") or {}).keys() for status in statuses}
    gone: dict[str, set[int]] = {}
    lost: dict[str, set[int]] = {}
    moved: dict[str, set[int]] = {}
    for broker in evidence.brokers.values():
        for stray in broker.strays:
            missing = stray.topic_id in numbers and str(stray.partition) not in numbers[stray.topic_id]
            kind = lost if missing else moved if stray.topic in present else gone
            kind.setdefault(stray.topic, set()).add(broker.id)
    if gone:
        yield _kept(
            evidence,
            gone,
            "topics that are gone",
            why="the topics were deleted, or their objects were lost; the data are kept for a while",
            todo='to get a topic back, apply it again with the annotation kafkalite.io/adopt-strays: "true"; else do '
            "nothing, its data are removed after kafkalite.stray.deleted.retention.ms",
        )
    if lost:
        yield _kept(
            evidence,
            lost,
            "partitions that topics do not have any more",
            why="the store was restored from a backup of before these were added; the data are kept for a while",
            todo="raise spec.partitions of the topic to what it was, and they are taken over",
        )
    if moved:
        yield _kept(
            evidence,
            moved,
            "replicas that have moved away",
            why="they are kept for a while",
            todo="do nothing, they are removed after kafkalite.stray.deleted.retention.ms",
        )


def _kept(evidence: Evidence, held: dict[str, set[int]], of: str, *, why: str, todo: str) -> Finding:
    """Strays, by what they are of: broker ids by topic or partition."""
    return Finding(
        code="Strays",
        about=f"cluster/{evidence.name}",
        what=f"data of {of} are still there, on brokers {_ids(held)}: {listed(sorted(held))}",
        why=why,
        todo=todo,
        items=tuple(sorted(held)),
        severity=NOTE,
    )


def _ids(held: dict[str, set[int]]) -> str:
    return ", ".join(map(str, sorted(set().union(*held.values()))))
