"""Does an operator act, and is it allowed to?"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from kafkalite_cli.brokers.operator_lease import age_s
from kafkalite_cli.doctor import pods
from kafkalite_cli.doctor.gather import operator_pods
from kafkalite_cli.doctor.model import LISTED_MAX, NOTE, Finding, listed
from kafkalite_cli.snapshot import condition
from kafkalite_core.controller.conditions import CLUSTER_WAITS, TOPIC_WAITS
from kafkalite_core.model.config import check_broker_config
from kafkalite_core.resources.naming import ANNOTATION_PAUSED, OPERATOR_LEASE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafkalite_cli.doctor.model import Evidence
    from kafkalite_core.resources.leases import LeaseRecord

JsonObject = dict[str, Any]
START = "install or start the operator (helm install, or `kafkalite up` for the local cluster)"
MEANWHILE = "meanwhile nobody fences brokers, elects leaders or places topics; producing and fetching go on"
OBJECTS_APPLIED = "ObjectsApplied"
NO_RIGHT = re.compile(r"cannot \w+ resource")
"""How the API server refuses for want of a Role. Quotas and policies are Forbidden, too, in other words."""


def check(evidence: Evidence) -> Iterator[Finding]:
    """Everything about the operator and about the cluster's own object."""
    yield from _lease(evidence)
    yield from _cluster(evidence)
    yield from _not_applied(evidence)
    if _is_paused(evidence.cluster):
        objects = f"klc {evidence.name}"
        yield _paused(evidence, f"cluster/{evidence.name}", f"the cluster {evidence.name}", CLUSTER_WAITS, objects)
    paused = [str(topic["metadata"]["name"]) for topic in evidence.topics if _is_paused(topic)]
    if paused:
        what = f"topics {listed(paused)}" if paused[1:] else f"the topic {paused[0]}"
        yield _paused(evidence, f"topic/{paused[0]}", what, TOPIC_WAITS, f"klt {' '.join(paused[:LISTED_MAX])}")


def _is_paused(obj: JsonObject) -> bool:
    return str((obj["metadata"].get("annotations") or {}).get(ANNOTATION_PAUSED, "")).lower() == "true"


def _paused(evidence: Evidence, about: str, what: str, waits: str, objects: str) -> Finding:
    return Finding(
        code="ReconciliationPaused",
        about=about,
        what=f"the operator is told to leave {what} alone",
        why=f"the annotation {ANNOTATION_PAUSED} is set: {waits}; elections go on",
        todo=f"when you are done: {evidence.kubectl(f'annotate {objects} {ANNOTATION_PAUSED}-')}",
        severity=NOTE,
    )


def acts(evidence: Evidence) -> bool:
    """Whether some operator renews its Lease, as far as can be told: what may not be read is not held against it."""
    if evidence.leases is None or (not evidence.leases.operators and not evidence.leases.elsewhere):
        return True
    return any(each.holder and not _is_silent(evidence, each) for each in evidence.leases.operators)


def _is_silent(evidence: Evidence, record: LeaseRecord) -> bool:
    return f"{record.namespace}/{record.name}" in evidence.silent


def _lease(evidence: Evidence) -> Iterator[Finding]:
    leases = evidence.leases
    if leases is None or acts(evidence):
        if leases is not None and not leases.operators and not leases.elsewhere:
            yield Finding(
                code="OperatorUnknown",
                about=f"lease/{OPERATOR_LEASE}",
                what=f"there is no Lease of an operator in namespace {evidence.namespace}, and others may not be read",
                why="an operator may serve this namespace from its own",
                todo="name the operator's namespace to whoever may read it",
                severity=NOTE,
            )
        return
    why, todo = _pod_trouble(evidence)
    if not leases.operators:
        what = f"no operator serves this cluster: there is no Lease {OPERATOR_LEASE} of one"
        yield _nobody(what, why or MEANWHILE, todo or START)
        return
    held = [each for each in leases.operators if each.holder]
    if not held:
        what = f"no operator holds the Lease {OPERATOR_LEASE} in namespace {leases.operators[0].namespace}"
        yield _nobody(what, why or f"the last one stopped in order; {MEANWHILE}", todo or START)
        return
    record = held[0]
    age = age_s(record, evidence.now)
    since = f"{age:,.0f} s" if age is not None else "ever"
    what = f"the operator {record.holder} has not renewed its Lease in namespace {record.namespace} for {since}"
    look = f"{evidence.say.kubectl(record.namespace, 'get pods')}, and the log of the operator"
    yield _nobody(
        what, why or f"its process is gone or hangs, or cannot reach the API server; {MEANWHILE}", todo or look
    )


def _nobody(what: str, why: str, todo: str) -> Finding:
    return Finding(code="NoOperator", about=f"lease/{OPERATOR_LEASE}", what=what, why=why, todo=todo)


def _pod_trouble(evidence: Evidence) -> tuple[str, str]:
    for pod in operator_pods(evidence):
        why, todo = pods.trouble(evidence, str(pod["metadata"]["name"]), "operator")
        if why:
            return why, todo
    return "", ""


def _cluster(evidence: Evidence) -> Iterator[Finding]:
    spec, about = evidence.cluster["spec"], f"cluster/{evidence.name}"
    config = {str(key): str(value) for key, value in (spec.get("config") or {}).items()}
    if problems := check_broker_config(config):
        yield Finding(
            code="InvalidConfig",
            about=about,
            what=f"keys of the cluster {evidence.name} are not in force: {'; '.join(problems)}",
            why="Kafka has no such key, or not with this value",
            todo=f"correct spec.config: {evidence.kubectl(f'edit klc {evidence.name}')}",
        )
    generation = int(evidence.cluster["metadata"].get("generation", 0))
    seen = int((evidence.cluster.get("status") or {}).get("observedGeneration", 0))
    if seen < generation and acts(evidence):
        yield Finding(
            code="NotSeen",
            about=about,
            what=f"the operator has not taken up the last change of the cluster {evidence.name}",
            why=f"it acted on generation {seen}, the spec is generation {generation}",
            todo="wait a moment; if this stays, does it watch this namespace (KAFKALITE_WATCH_NAMESPACES), and may it "
            "write kafkaliteclusters/status? Its log says so",
        )
    progressing = condition(evidence.cluster, "Progressing")
    if progressing.get("reason") == "NotEnoughBrokers":
        yield Finding(
            code="NotEnoughBrokers",
            about=about,
            what=f"brokers of {evidence.name} cannot leave, though spec.replicas is {evidence.replicas}",
            why=str(progressing.get("message", "")),
            todo="raise spec.replicas again, or for the topics that are named: "
            + evidence.say.kafkalite("topics alter NAME --replicas N"),
        )
    elif progressing.get("reason") == "ScalingDown":
        yield Finding(
            code="ScalingDown",
            about=about,
            what=f"brokers leave the cluster {evidence.name}",
            why=str(progressing.get("message", "")),
            todo="wait; what a partition waits for is in the condition Progressing of its topic. Raising spec.replicas "
            "again takes back what is not over",
            severity=NOTE,
        )


def said_not_applied(evidence: Evidence, kind: str, name: str) -> bool:
    """Whether the operator itself says that it could not apply that object of the cluster."""
    told = condition(evidence.cluster, OBJECTS_APPLIED)
    return (
        told.get("status") == "False"
        and re.search(rf"(^|; ){kind} {re.escape(name)}( refused)?: ", str(told.get("message", ""))) is not None
    )


def _not_applied(evidence: Evidence) -> Iterator[Finding]:
    told = condition(evidence.cluster, OBJECTS_APPLIED)
    if told.get("status") != "False":
        return
    message = str(told.get("message", ""))
    describe = evidence.kubectl(f"describe klc {evidence.name}")
    remedies = {
        "ObjectRefused": "correct what it names in spec of the cluster, or the quota or policy that refuses it: "
        + evidence.kubectl(f"edit klc {evidence.name}"),
        "ObjectForeign": "delete it if nobody needs it, or make the cluster anew under another name; "
        f"the operator leaves it alone: {describe}",
        "NotYetCollected": f"see that the garbage collector (kube-controller-manager) runs, or delete it: {describe}",
    }
    if told.get("reason") == "ObjectRefused" and NO_RIGHT.search(message):
        remedies["ObjectRefused"] = (
            f"give the operator its Role in namespace {evidence.namespace}: list it in brokers.namespaces of the chart "
            "and run helm upgrade"
        )
    yield Finding(
        code=str(told.get("reason")),
        about=f"cluster/{evidence.name}",
        what=f"the operator could not apply every object of the cluster {evidence.name}",
        why=message,
        todo=remedies.get(str(told.get("reason")), describe),
    )
