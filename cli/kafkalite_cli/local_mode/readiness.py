"""Is the local cluster ready, and if not, for what does it wait? Pure: a snapshot in, sentences out."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kafkalite_cli.snapshot import Snapshot, broker_state, condition, registration, topic_name

JsonObject = dict[str, Any]
CRASHES = 3
ContainerAlive = Callable[[str], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Readiness:
    """Each field is empty when that part is ready, else what it waits for; `fatal` is (process, why).

    `to_correct` has a sentence for each topic that stays as it is until its object is changed; `topics` goes past
    them to those that become ready by themselves.
    """

    operator: str = ""
    brokers: str = ""
    topics: str = ""
    to_correct: tuple[str, ...] = ()
    fatal: tuple[str, str] | None = None

    @property
    def ready(self) -> bool:
        """Whether nothing is waited for."""
        return not (self.operator or self.brokers or self.topics or self.to_correct or self.fatal)


def judge(snapshot: Snapshot, *, container_alive: ContainerAlive) -> Readiness:
    """Judge what the API server shows; `container_alive(containerID)` says whether that very process runs.

    The last status that was written before everything was stopped still stands there at the next start. So a pod
    counts only with a living process, and a leader only when the ISR names its present registration.
    """
    broker_pods = {pod["metadata"]["name"]: pod for pod in snapshot.pods if _component(pod) == "broker"}
    operators = [pod for pod in snapshot.pods if _component(pod) == "operator"]
    for pod in (*operators, *broker_pods.values()):
        if why := _crashing(pod):
            return Readiness(fatal=(pod["metadata"]["name"], why))
    live = {
        name for name, pod in broker_pods.items() if _pod_ready(pod) and container_alive(_container(pod)["containerID"])
    }
    return Readiness(
        operator=_operator(operators, container_alive),
        brokers=_brokers(snapshot, live),
        topics=_topics(snapshot, live),
        to_correct=tuple(_topic_sentence(topic) for topic in snapshot.topics if needs_correction(topic)),
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


def _crashing(pod: JsonObject) -> str:
    container = _container(pod)
    waiting = (container.get("state") or {}).get("waiting") or {}
    if waiting.get("reason") in {"CreateContainerError", "CreateContainerConfigError", "RunContainerError"}:
        # A ConfigMap or claim may come a moment later; a program that is missing will not.
        return str(waiting.get("message")) if waiting["reason"] != "CreateContainerConfigError" else ""
    if waiting.get("reason") == "CrashLoopBackOff" and int(container.get("restartCount", 0)) >= CRASHES - 1:
        ended = (container.get("lastState") or {}).get("terminated") or {}
        return f"it keeps ending, the last time with exit code {ended.get('exitCode')}"
    return ""


def _operator(operators: list[JsonObject], container_alive: ContainerAlive) -> str:
    if any(_pod_ready(pod) and container_alive(_container(pod)["containerID"]) for pod in operators):
        return ""
    return "the operator is starting"


def _brokers(snapshot: Snapshot, live: set[str]) -> str:
    if not snapshot.clusters:
        return "the operator has not yet made the cluster"
    for cluster in snapshot.clusters:
        name, wanted = cluster["metadata"]["name"], int(cluster["spec"].get("replicas", 3))
        for broker_id in range(wanted):
            pod = f"{name}-broker-{broker_id}"
            broker = next((each for each in snapshot.brokers if each["metadata"]["name"] == pod), None)
            state = broker_state(broker) if broker else "not yet made"
            if pod not in live:
                return f"broker {broker_id} is not ready ({_words(state)})"
            if state != "Running":
                return f"broker {broker_id} is {_words(state)}"
    return ""


def _words(state: str) -> str:
    """`catching up` for CatchingUp."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", state).lower()


def _topics(snapshot: Snapshot, live: set[str]) -> str:
    epochs = {
        (_cluster_of(broker), int(broker["spec"]["brokerId"])): registration(broker).get("brokerEpoch")
        for broker in snapshot.brokers
        if broker["metadata"]["name"] in live
    }
    for topic in snapshot.topics:
        if needs_correction(topic):
            continue
        ready = condition(topic, "Ready")
        if ready.get("status") != "True" or ready.get("observedGeneration", 0) < topic["metadata"].get("generation", 0):
            return _topic_sentence(topic)
        cluster = str((topic["spec"].get("clusterRef") or {}).get("name") or _only_cluster(snapshot))
        for number, entry in ((topic.get("status") or {}).get("partitions") or {}).items():
            epoch = epochs.get((cluster, int(entry["leader"])))
            if epoch is None or {"id": entry["leader"], "epoch": epoch} not in entry["isr"]:
                return f"topic {topic_name(topic)}: partition {number} waits for a leader"
    return ""


def _cluster_of(broker: JsonObject) -> str:
    return str(broker["spec"]["clusterRef"]["name"])


def _only_cluster(snapshot: Snapshot) -> str:
    return str(snapshot.clusters[0]["metadata"]["name"]) if snapshot.clusters else ""
