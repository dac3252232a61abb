"""Is the local cluster ready, and if not, for what does it wait? Pure: a snapshot in, sentences out."""

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from kafkalite_cli.local_mode.processes import record_name
from kafkalite_cli.snapshot import Snapshot, broker_state, condition, place_of, registration, topic_name
from kafkalite_core.model.topic import DEFAULT_CLUSTER_NAME

JsonObject = dict[str, Any]
CRASHES = 3
NAMESPACE = "default"
ContainerAlive = Callable[[str], bool]
Names = set[tuple[str, str]]
"""Namespaces and names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Readiness:
    """Each field is empty when that part is ready, else what it waits for; `fatal` is (process, why).

    `late` has namespace/name of each cluster of which a broker is waited for, with (process, why) of the first such
    one; `brokers` is the first of these sentences. Processes are named as their records are.
    `serving`: the brokers of at least one cluster are all ready.
    `to_correct` has a sentence for each topic that stays as it is until its object is changed; `topics` goes past
    them to those that become ready by themselves.
    `crashed` has namespace/name of each cluster of which a broker keeps ending, with (process, why). Nothing is waited
    for there. It is `fatal` when no other cluster is there that could go on.
    """

    operator: str = ""
    brokers: str = ""
    late: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    serving: bool = False
    topics: str = ""
    to_correct: tuple[str, ...] = ()
    crashed: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    fatal: tuple[str, str] | None = None

    @property
    def ready(self) -> bool:
        """Whether nothing is waited for."""
        return not (self.operator or self.brokers or self.topics or self.to_correct or self.crashed or self.fatal)


def judge(snapshot: Snapshot, *, container_alive: ContainerAlive, began: str = "") -> Readiness:
    """Judge what the API server shows; `container_alive(containerID)` says whether that very process runs.

    The last status that was written before everything was stopped still stands there at the next start. So a pod
    counts only with a living process, a leader only when the ISR names its present registration, and the end of a
    process only when that was not before `began`, which is when the supervisor began (RFC 3339, UTC).
    """
    broker_pods = {_key(pod): pod for pod in snapshot.pods if _component(pod) == "broker"}
    operators = [pod for pod in snapshot.pods if _component(pod) == "operator"]
    for pod in operators:
        if why := _crashing(pod, began):
            return Readiness(fatal=(record_name(*_key(pod)), why))
    clusters = {_key(cluster) for cluster in snapshot.clusters}
    crashed: dict[tuple[str, str], tuple[str, str]] = {}
    for (namespace, name), pod in broker_pods.items():
        cluster = (namespace, name.rpartition("-broker-")[0])
        if cluster in clusters and (why := _crashing(pod, began)):
            crashed.setdefault(cluster, (record_name(namespace, name), why))
    if crashed and clusters <= crashed.keys():
        return Readiness(fatal=next(iter(crashed.values())))
    live = {
        key for key, pod in broker_pods.items() if _pod_ready(pod) and container_alive(_container(pod)["containerID"])
    }
    late = _late(snapshot, live, crashed.keys())
    brokers = next((why for _process, why in late.values()), "")
    return Readiness(
        operator=_operator(operators, container_alive),
        brokers=brokers if clusters else "the operator has not yet made the cluster",
        late=late,
        serving=len(clusters - crashed.keys()) > len(late),
        topics=_topics(snapshot, live, crashed.keys()),
        to_correct=tuple(_topic_sentence(topic) for topic in snapshot.topics if needs_correction(topic)),
        crashed={"/".join(key): found for key, found in crashed.items()},
    )


def needs_correction(topic: JsonObject) -> bool:
    """Whether the operator has judged this very generation as one that only a change of the object can make ready.

    Such a problem stands in Ready and in Progressing, and Progressing does not hope: what resolves itself is True.
    """
    ready, progressing = condition(topic, "Ready"), condition(topic, "Progressing")
    return (
        ready.get("status") == progressing.get("status") == "False"
        and ready.get("reason") == progressing.get("reason")
        and ready.get("observedGeneration", 0) >= topic["metadata"].get("generation", 0)
    )


def _topic_sentence(topic: JsonObject) -> str:
    ready = condition(topic, "Ready")
    why = ready.get("message") or ready.get("reason") or "not yet seen by the operator"
    return f"topic {topic_name(topic)}: {why}"


def _component(pod: JsonObject) -> str:
    return str((pod["metadata"].get("labels") or {}).get("app.kubernetes.io/component", ""))


def _container(pod: JsonObject) -> JsonObject:
    statuses: list[JsonObject] = (pod.get("status") or {}).get("containerStatuses") or [{}]
    return {"containerID": ""} | statuses[0]


def _pod_ready(pod: JsonObject) -> bool:
    return condition(pod, "Ready").get("status") == "True"


def _crashing(pod: JsonObject, began: str) -> str:
    container = _container(pod)
    waiting = (container.get("state") or {}).get("waiting") or {}
    if waiting.get("reason") in {"CreateContainerError", "CreateContainerConfigError", "RunContainerError"}:
        # A ConfigMap or claim may come a moment later; a program that is missing will not.
        return str(waiting.get("message")) if waiting["reason"] != "CreateContainerConfigError" else ""
    if waiting.get("reason") == "CrashLoopBackOff" and int(container.get("restartCount", 0)) >= CRASHES - 1:
        ended = (container.get("lastState") or {}).get("terminated") or {}
        if began and str(ended.get("finishedAt") or began) < began:
            return ""
        return f"it keeps ending, the last time with exit code {ended.get('exitCode')}"
    return ""


def _operator(operators: list[JsonObject], container_alive: ContainerAlive) -> str:
    if any(_pod_ready(pod) and container_alive(_container(pod)["containerID"]) for pod in operators):
        return ""
    return "the operator is starting"


def _late(snapshot: Snapshot, live: Names, crashed: Collection[tuple[str, str]]) -> dict[str, tuple[str, str]]:
    """By cluster the process of the first broker that is waited for, and in what state that is."""
    late = {}
    known = {_key(broker): broker for broker in snapshot.brokers}
    for cluster in snapshot.clusters:
        if _key(cluster) in crashed:
            continue
        (namespace, name), wanted = _key(cluster), int(cluster["spec"].get("replicas", 3))
        of_which = "" if (namespace, name) == (NAMESPACE, DEFAULT_CLUSTER_NAME) else f" of cluster {namespace}/{name}"
        for broker_id in range(wanted):
            key = (namespace, f"{name}-broker-{broker_id}")
            state = broker_state(known[key]) if key in known else "not yet made"
            if key in live and state == "Running":
                continue
            how = f"is {_words(state)}" if key in live else f"is not ready ({_words(state)})"
            late[f"{namespace}/{name}"] = record_name(*key), f"broker {broker_id}{of_which} {how}"
            break
    return late


def _words(state: str) -> str:
    """`catching up` for CatchingUp."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", state).lower()


def _topics(snapshot: Snapshot, live: Names, crashed: Collection[tuple[str, str]]) -> str:
    epochs = {
        (*place_of(broker), int(broker["spec"]["brokerId"])): registration(broker).get("brokerEpoch")
        for broker in snapshot.brokers
        if _key(broker) in live
    }
    for topic in snapshot.topics:
        if needs_correction(topic) or place_of(topic) in crashed:
            continue
        ready = condition(topic, "Ready")
        if ready.get("status") != "True" or ready.get("observedGeneration", 0) < topic["metadata"].get("generation", 0):
            return _topic_sentence(topic)
        for number, entry in ((topic.get("status") or {}).get("partitions") or {}).items():
            epoch = epochs.get((*place_of(topic), int(entry["leader"])))
            members = zip(entry["isr"], entry.get("isrBrokerEpochs") or (), strict=False)
            if epoch is None or (entry["leader"], epoch) not in members:
                return f"topic {topic_name(topic)}: partition {number} waits for a leader"
    return ""


def _key(obj: JsonObject) -> tuple[str, str]:
    return str(obj["metadata"].get("namespace") or NAMESPACE), str(obj["metadata"]["name"])
