"""Why a pod does not run, in a sentence: from its status, its volume claim and the Warnings about both."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkalite_cli.snapshot import condition
from kafkalite_core.resources.naming import BROKER_CONTAINER
from kafkalite_core.resources.pods import is_ready, parse_termination_message

if TYPE_CHECKING:
    from kafkalite_cli.doctor.model import Evidence

JsonObject = dict[str, Any]
EXIT_CODES = {
    64: "its settings are wrong",
    70: "it cannot run, or the disk failed",
    71: "a newer incarnation of this broker is registered",
    137: "it was killed",
    143: "it was asked to end",
}
REMEDIES = {
    "ImagePullBackOff": "correct spec.image of the cluster, or the access to its registry",
    "ErrImagePull": "correct spec.image of the cluster, or the access to its registry",
    "InvalidImageName": "correct spec.image of the cluster",
    "OOMKilled": "raise the memory limit in spec.template.pod of the cluster",
}


def trouble(evidence: Evidence, name: str, container: str = BROKER_CONTAINER) -> tuple[str, str]:
    """(why the pod does not run, what to do); both empty when it does, or when pods may not be read."""
    if evidence.pods is None:
        return "", ""
    pod = evidence.pods.get(name)
    if pod is None:
        return _absent(evidence, name)
    if pod["metadata"].get("deletionTimestamp"):
        return f"its pod {name} is being deleted since {pod['metadata']['deletionTimestamp']}", _look(evidence, name)
    status = _container(pod, container)
    waiting = (status.get("state") or {}).get("waiting") or {}
    ended = (status.get("state") or {}).get("terminated") or (status.get("lastState") or {}).get("terminated") or {}
    if waiting.get("reason") in {"ContainerCreating", "PodInitializing"}:
        return _pending(evidence, pod, "its container is being created")
    if waiting.get("reason"):
        return _waiting(evidence, name, waiting, ended, int(status.get("restartCount", 0)))
    if (status.get("state") or {}).get("terminated"):
        return f"its container has ended: {_end(ended)}", _logs(evidence, name)
    if (pod.get("status") or {}).get("phase") in {None, "Pending"}:
        return _pending(evidence, pod, "its pod is Pending")
    if not is_ready(pod):
        more = f"; {said}" if (said := evidence.warning("Pod", name)) else ""
        return f"its pod {name} runs and is not ready{more}", _logs(evidence, name)
    return "", ""


def may_run(evidence: Evidence, name: str, container: str = BROKER_CONTAINER) -> bool:
    """Its container runs, ready or not; or pods may not be read."""
    if evidence.pods is None:
        return True
    pod = evidence.pods.get(name)
    return pod is not None and "running" in (_container(pod, container).get("state") or {})


def restarts(evidence: Evidence, name: str, container: str = BROKER_CONTAINER) -> str:
    """How its container ended last; empty when it never did."""
    pod = (evidence.pods or {}).get(name)
    status = _container(pod, container) if pod else {}
    ended = (status.get("lastState") or {}).get("terminated") or {}
    return f"it was restarted {status.get('restartCount')} times, the last time: {_end(ended)}" if ended else ""


def _container(pod: JsonObject, name: str) -> JsonObject:
    statuses: list[JsonObject] = (pod.get("status") or {}).get("containerStatuses") or []
    return next((each for each in statuses if each.get("name") == name), statuses[0] if statuses else {})


def _absent(evidence: Evidence, name: str) -> tuple[str, str]:
    owner = name.rpartition("-")[0]
    said = evidence.warning("StatefulSet", owner)
    why = f"its pod {name} does not exist" + (f"; {said}" if said else "")
    return why, evidence.kubectl(f"describe statefulset {owner}")


def _pending(evidence: Evidence, pod: JsonObject, what: str) -> tuple[str, str]:
    name = str(pod["metadata"]["name"])
    scheduled = condition(pod, "PodScheduled")
    claim = next(
        (
            each["persistentVolumeClaim"]["claimName"]
            for each in (pod.get("spec") or {}).get("volumes") or []
            if "persistentVolumeClaim" in each
        ),
        f"data-{name}",
    )
    found = (evidence.claims or {}).get(claim) or {}
    phase = (found.get("status") or {}).get("phase")
    if found and phase not in {"Bound", None}:
        said = evidence.warning("PersistentVolumeClaim", claim)
        storage = (found.get("spec") or {}).get("storageClassName")
        why = f"{what}: its volume claim {claim} is {phase}" + (f"; {said}" if said else "")
        return why, (
            f"look at StorageClass {storage}"
            if storage
            else "give the cluster a spec.storage.storageClassName, or the Kubernetes cluster a default StorageClass"
        ) + f"; {evidence.kubectl(f'describe pvc {claim}')}"
    if scheduled.get("status") == "False":
        return f"{what}, no node takes it: {scheduled.get('message') or scheduled.get('reason')}", (
            "make room, or change spec.template.pod of the cluster"
        )
    said = evidence.warning("Pod", name)
    return what + (f": {said}" if said else ""), _look(evidence, name)


def _waiting(
    evidence: Evidence, name: str, waiting: JsonObject, ended: JsonObject, restart_count: int
) -> tuple[str, str]:
    reason = str(waiting["reason"])
    if reason == "CrashLoopBackOff":
        why = f"its container keeps ending ({restart_count} restarts), the last time: {_end(ended)}"
        return why, REMEDIES.get(str(ended.get("reason")), _logs(evidence, name, previous=True))
    message = f": {waiting['message']}" if waiting.get("message") else ""
    return f"its container waits, {reason}{message}", REMEDIES.get(reason, _look(evidence, name))


def _end(ended: JsonObject) -> str:
    code = ended.get("exitCode")
    said = parse_termination_message(str(ended.get("message") or "")).get("reason")
    reason = ended.get("reason")
    words = [f"exit code {code}"]
    if meaning := EXIT_CODES.get(int(code) if isinstance(code, int) else -1):
        words.append(meaning)
    if reason and reason not in {"Error", "Completed"}:
        words.append(str(reason))
    return ", ".join(words) + (f" ({said})" if said else "")


def _look(evidence: Evidence, name: str) -> str:
    return evidence.kubectl(f"describe pod {name}")


def _logs(evidence: Evidence, name: str, *, previous: bool = False) -> str:
    return evidence.kubectl(f"logs {name}") + (" --previous" if previous else "")
