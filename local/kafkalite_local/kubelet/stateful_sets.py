"""The StatefulSet controller of local mode: `Parallel` pods, updated `OnDelete`.

`plan` is pure: from what exists to what is missing. Pods carry the names, labels and owners that Kubernetes'
own controller gives them.
"""

import asyncio
import copy
import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kafkalite_runtime.home import NODE_NAME
from kafkalite_runtime.kube import (
    PERSISTENT_VOLUME_CLAIMS,
    PODS,
    STATEFUL_SETS,
    EventRecorder,
    KubeClient,
    KubeConflict,
    KubeError,
    KubeInvalid,
    KubeNotFound,
    KubeUnavailable,
)
from kafkalite_runtime.logging import get_logger

JsonObject = dict[str, Any]
RETRY_S = 0.5
REVISION_LABEL = "controller-revision-hash"
MAX_REPLICAS = 256
_log = get_logger(__name__)


@dataclass(slots=True, kw_only=True)
class Plan:
    """What to do for one StatefulSet."""

    claims: list[JsonObject] = field(default_factory=list)
    adoptions: list[JsonObject] = field(default_factory=list)
    pods: list[JsonObject] = field(default_factory=list)
    deletions: list[JsonObject] = field(default_factory=list)
    status: JsonObject = field(default_factory=dict)


def unsupported(stateful_set: JsonObject) -> str:
    """Why this controller leaves a StatefulSet alone; empty when it can serve it."""
    spec = stateful_set["spec"]
    if (spec.get("podManagementPolicy") or "OrderedReady") != "Parallel":
        return "local mode serves podManagementPolicy Parallel only"
    if ((spec.get("updateStrategy") or {}).get("type") or "RollingUpdate") != "OnDelete":
        return "local mode serves updateStrategy OnDelete only"
    if int(spec.get("replicas", 1)) > MAX_REPLICAS:
        return f"local mode serves at most {MAX_REPLICAS} replicas"
    return ""


def revision_of(stateful_set: JsonObject) -> str:
    """Name of the template's revision: equal templates have equal revisions."""
    template = json.dumps(stateful_set["spec"]["template"], sort_keys=True, separators=(",", ":"))
    return f"{stateful_set['metadata']['name']}-{hashlib.sha256(template.encode()).hexdigest()[:10]}"


def plan(
    stateful_set: JsonObject, pods: Iterable[JsonObject], claims: Iterable[str], leaving: Collection[str] = ()
) -> Plan:
    """Compare a StatefulSet with the pods that it owns and the claims (names) that exist in its namespace.

    As Kubernetes' controller does, it makes no pod before those of its claims that are being deleted (`leaving`) are
    gone: a finalizer protects a claim as long as a pod uses it, and the new pod would keep it, deleted, for ever.
    """
    spec, metadata = stateful_set["spec"], stateful_set["metadata"]
    replicas = int(spec.get("replicas", 1))
    revision = revision_of(stateful_set)
    pods = list(pods)
    result = Plan(adoptions=[pod for pod in pods if _is_orphan(pod, stateful_set)])
    owned = {_ordinal(pod, metadata["name"]): pod for pod in pods if _controller_uid(pod) == metadata["uid"]}
    owned |= {_ordinal(pod, metadata["name"]): pod for pod in result.adoptions}
    existing = set(claims)
    for ordinal in range(replicas):
        if ordinal not in owned:
            wanted = [_claim(stateful_set, template, ordinal) for template in spec.get("volumeClaimTemplates") or []]
            if any(claim["metadata"]["name"] in leaving for claim in wanted):
                continue
            result.claims += [claim for claim in wanted if claim["metadata"]["name"] not in existing]
            result.pods.append(_pod(stateful_set, ordinal, revision))
    for ordinal in sorted(owned, reverse=True):
        pod = owned[ordinal]
        finished = (pod.get("status") or {}).get("phase") in {"Failed", "Succeeded"}
        if (ordinal >= replicas or finished) and "deletionTimestamp" not in pod["metadata"]:
            result.deletions.append(pod)
    result.status = _status(stateful_set, owned.values(), revision)
    return result


def _status(stateful_set: JsonObject, owned: Iterable[JsonObject], revision: str) -> JsonObject:
    previous = stateful_set.get("status") or {}
    present = [pod for pod in owned if "deletionTimestamp" not in pod["metadata"]]
    ready = sum(is_ready(pod) for pod in present)
    current = previous.get("currentRevision") or revision
    return {
        "observedGeneration": stateful_set["metadata"].get("generation", 1),
        "replicas": len(present),
        "readyReplicas": ready,
        "availableReplicas": ready,
        "currentReplicas": sum(pod["metadata"]["labels"].get(REVISION_LABEL) == current for pod in present),
        "updatedReplicas": sum(pod["metadata"]["labels"].get(REVISION_LABEL) == revision for pod in present),
        "currentRevision": current,
        "updateRevision": revision,
        "collisionCount": 0,
    }


def is_ready(pod: Mapping[str, Any]) -> bool:
    """Whether its Ready condition is True."""
    conditions = (pod.get("status") or {}).get("conditions") or []
    return any(each.get("type") == "Ready" and each.get("status") == "True" for each in conditions)


def _controller_uid(obj: JsonObject) -> str:
    owners = obj["metadata"].get("ownerReferences") or []
    return next((str(owner["uid"]) for owner in owners if owner.get("controller")), "")


def _is_orphan(pod: JsonObject, stateful_set: JsonObject) -> bool:
    """A pod without controller that this StatefulSet would have made: its predecessor was deleted without its pods."""
    wanted = (stateful_set["spec"].get("selector") or {}).get("matchLabels") or {}
    labels = pod["metadata"].get("labels") or {}
    return (
        not _controller_uid(pod)
        and bool(wanted)
        and "deletionTimestamp" not in pod["metadata"]
        and pod["metadata"]["namespace"] == stateful_set["metadata"]["namespace"]
        and all(labels.get(name) == value for name, value in wanted.items())
        and _ordinal(pod, stateful_set["metadata"]["name"]) < MAX_REPLICAS
    )


def _ordinal(pod: JsonObject, name: str) -> int:
    suffix = str(pod["metadata"]["name"]).removeprefix(f"{name}-")
    return int(suffix) if suffix.isdigit() else MAX_REPLICAS


def _pod(stateful_set: JsonObject, ordinal: int, revision: str) -> JsonObject:
    metadata, spec = stateful_set["metadata"], stateful_set["spec"]
    template = copy.deepcopy(spec["template"])
    described = template.get("metadata") or {}
    name = f"{metadata['name']}-{ordinal}"
    pod_spec = template["spec"] | {"hostname": name, "nodeName": NODE_NAME, "restartPolicy": "Always"}
    if spec.get("serviceName"):
        pod_spec["subdomain"] = spec["serviceName"]
    from_templates = {
        each["metadata"]["name"]: {
            "name": each["metadata"]["name"],
            "persistentVolumeClaim": {"claimName": f"{each['metadata']['name']}-{name}"},
        }
        for each in spec.get("volumeClaimTemplates") or []
    }
    others = [volume for volume in pod_spec.get("volumes") or [] if volume["name"] not in from_templates]
    pod_spec["volumes"] = [*from_templates.values(), *others]
    labels = (described.get("labels") or {}) | {
        "statefulset.kubernetes.io/pod-name": name,
        "apps.kubernetes.io/pod-index": str(ordinal),
        REVISION_LABEL: revision,
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "generateName": f"{metadata['name']}-",
            "namespace": metadata["namespace"],
            "labels": labels,
            "annotations": described.get("annotations") or {},
            "ownerReferences": [_owner(stateful_set)],
        },
        "spec": pod_spec,
    }


def _owner(stateful_set: JsonObject) -> JsonObject:
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "name": stateful_set["metadata"]["name"],
        "uid": stateful_set["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def _claim(stateful_set: JsonObject, template: JsonObject, ordinal: int) -> JsonObject:
    metadata, spec = stateful_set["metadata"], stateful_set["spec"]
    described = template["metadata"]
    claim: JsonObject = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": f"{described['name']}-{metadata['name']}-{ordinal}",
            "namespace": metadata["namespace"],
            "labels": (described.get("labels") or {}) | ((spec.get("selector") or {}).get("matchLabels") or {}),
            "annotations": described.get("annotations") or {},
        },
        "spec": copy.deepcopy(template["spec"]),
    }
    if (spec.get("persistentVolumeClaimRetentionPolicy") or {}).get("whenDeleted") == "Delete":
        claim["metadata"]["ownerReferences"] = [_owner(stateful_set)]
    return claim


class StatefulSetController:
    """Carries plans out whenever `wake` was called; level-triggered, so a lost event only costs time."""

    def __init__(
        self, client: KubeClient, recorder: EventRecorder, on_claim_made: Callable[[JsonObject], None]
    ) -> None:
        self._on_claim_made = on_claim_made
        self._client = client
        self._recorder = recorder
        self._wake = asyncio.Event()
        self.stateful_sets: dict[tuple[str, str], JsonObject] = {}
        self.pods: dict[tuple[str, str], JsonObject] = {}
        self.claims: dict[tuple[str, str], JsonObject] = {}

    def wake(self) -> None:
        """Something changed."""
        self._wake.set()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            for key in list(self.stateful_sets):
                stateful_set = self.stateful_sets.get(key)
                if stateful_set is None or "deletionTimestamp" in stateful_set["metadata"]:
                    continue
                try:
                    await self._reconcile(stateful_set)
                except (KubeError, KubeUnavailable) as error:
                    _log.info("stateful set not reconciled", name=key[1], error=str(error))
                    asyncio.get_running_loop().call_later(RETRY_S, self.wake)

    async def _reconcile(self, stateful_set: JsonObject) -> None:
        namespace, name = stateful_set["metadata"]["namespace"], stateful_set["metadata"]["name"]
        if why := unsupported(stateful_set):
            self._recorder.record(stateful_set, "Warning", "Unsupported", why)
            return
        pods = [pod for (space, _), pod in self.pods.items() if space == namespace]
        claims = {name: claim for (space, name), claim in self.claims.items() if space == namespace}
        leaving = [name for name, claim in claims.items() if "deletionTimestamp" in claim["metadata"]]
        planned = plan(stateful_set, pods, claims, leaving)
        for pod in planned.adoptions:
            await self._adopt(stateful_set, pod)
        for kind, objects in ((PERSISTENT_VOLUME_CLAIMS, planned.claims), (PODS, planned.pods)):
            for obj in objects:
                try:
                    created = await self._client.create(kind, namespace, obj)
                except KubeConflict:
                    continue  # it is there already; the watch will show it
                if kind is PERSISTENT_VOLUME_CLAIMS:
                    self._on_claim_made(created)  # before its pod exists: the pod must not find an older volume
                cache = self.claims if kind is PERSISTENT_VOLUME_CLAIMS else self.pods
                cache.setdefault((namespace, obj["metadata"]["name"]), created)
                if kind is PODS:
                    text = f"create Pod {obj['metadata']['name']} in StatefulSet {name} successful"
                    self._recorder.record(stateful_set, "Normal", "SuccessfulCreate", text)
        for pod in planned.deletions:
            try:
                await self._client.delete(PODS, namespace, pod["metadata"]["name"], uid=pod["metadata"]["uid"])
            except (KubeNotFound, KubeConflict):
                continue
        await self._write_status(stateful_set, planned.status)

    async def _adopt(self, stateful_set: JsonObject, pod: JsonObject) -> None:
        metadata = pod["metadata"]
        operations = [
            {"op": "test", "path": "/metadata/uid", "value": metadata["uid"]},
            {"op": "test", "path": "/metadata/resourceVersion", "value": metadata["resourceVersion"]},
            {"op": "add", "path": "/metadata/ownerReferences", "value": [_owner(stateful_set)]},
        ]
        try:
            adopted = await self._client.json_patch(PODS, metadata["namespace"], metadata["name"], operations)
        except (KubeNotFound, KubeConflict, KubeInvalid):
            return  # it changed meanwhile; the watch shows how
        self.pods[metadata["namespace"], metadata["name"]] = adopted

    async def _write_status(self, stateful_set: JsonObject, status: JsonObject) -> None:
        if (stateful_set.get("status") or {}) == status:
            return
        metadata = stateful_set["metadata"]
        operations = [
            {"op": "test", "path": "/metadata/uid", "value": metadata["uid"]},
            {"op": "add", "path": "/status", "value": status},
        ]
        answer = await self._client.json_patch(
            STATEFUL_SETS, metadata["namespace"], metadata["name"], operations, subresource="status"
        )
        stateful_set["status"] = answer.get("status") or status
