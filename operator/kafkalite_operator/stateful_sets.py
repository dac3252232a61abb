"""The StatefulSet of a cluster, kept as it should be though half of it is immutable."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING, Any

from kafkalite_core.resources import naming
from kafkalite_core.resources.claims import templates_differ
from kafkalite_core.resources.manifests import applied_hash
from kafkalite_runtime.kube.errors import KubeConflict, KubeInvalid, KubeNotFound, KubeUnavailable
from kafkalite_runtime.kube.kinds import STATEFUL_SETS
from kafkalite_runtime.logging import get_logger

if TYPE_CHECKING:
    from kafkalite_runtime.kube.client import KubeClient

CALL_DEADLINE_S = 3.0
GONE_DEADLINE_S = 15.0
POLL_S = 0.1
_log = get_logger(__name__)


class StatefulSets:
    """Methods raise errors of the client."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client

    async def update(self, existing: dict[str, Any], wanted: dict[str, Any]) -> str:
        """Bring an existing StatefulSet up to date; returns what was done, if that is more than a patch.

        Where the templates of its volumes have to change it is deleted without its pods, which go on, and made again:
        its successor adopts them by their labels and names. Whoever dies in between finds it missing and makes it.
        Nothing is deleted whose successor would be refused: nobody would make new pods meanwhile.
        """
        metadata = existing["metadata"]
        namespace, name = metadata["namespace"], metadata["name"]
        if "deletionTimestamp" in metadata or templates_differ(existing, wanted):
            if "deletionTimestamp" not in metadata:
                await self._may_be_made(namespace, wanted)
            await self._delete(namespace, name, metadata["uid"])
            await self._client.create(STATEFUL_SETS, namespace, wanted, deadline_s=CALL_DEADLINE_S)
            _log.info("stateful set made again, its pods went on", name=name)
            return "made again for new volumes; its pods go on"
        try:
            await self._client.json_patch(
                STATEFUL_SETS, namespace, name, changes(existing, wanted), deadline_s=CALL_DEADLINE_S
            )
        except KubeInvalid:
            if await self._is_as_compared(existing):
                raise  # every test of the patch holds, so it is what is wanted that was refused
            _log.debug("stateful set changed meanwhile", name=name)
            raise KubeConflict(409, "Conflict", f"StatefulSet {name} changed while it was compared") from None
        return ""

    async def _may_be_made(self, namespace: str, wanted: dict[str, Any]) -> None:
        """Raises what the API server, or a policy there, has against it. That the name is taken comes last."""
        with contextlib.suppress(KubeConflict):
            await self._client.create(STATEFUL_SETS, namespace, wanted, dry_run=True, deadline_s=CALL_DEADLINE_S)

    async def _is_as_compared(self, existing: dict[str, Any]) -> bool:
        metadata = existing["metadata"]
        try:
            now = await self._client.get(
                STATEFUL_SETS, metadata["namespace"], metadata["name"], deadline_s=CALL_DEADLINE_S
            )
        except KubeNotFound:
            return False
        return now["metadata"]["uid"] == metadata["uid"] and applied_hash(now) == applied_hash(existing)

    async def _delete(self, namespace: str, name: str, uid: str) -> None:
        """Delete that very StatefulSet and leave its pods alone; wait until the name is free."""
        limit = time.monotonic() + GONE_DEADLINE_S
        await self._client.delete(
            STATEFUL_SETS, namespace, name, uid=uid, propagation="Orphan", deadline_s=CALL_DEADLINE_S
        )
        while True:
            try:
                found = await self._client.get(STATEFUL_SETS, namespace, name, deadline_s=CALL_DEADLINE_S)
            except KubeNotFound:
                return
            if found["metadata"]["uid"] != uid:
                return
            if time.monotonic() > limit:
                text = f"StatefulSet {name} is being deleted without its pods; the garbage collector has not ended it"
                raise KubeUnavailable(text, ambiguous=False)
            await asyncio.sleep(POLL_S)


def changes(existing: dict[str, Any], wanted: dict[str, Any]) -> list[dict[str, Any]]:
    """The JSON Patch to what may be changed. Whole values: a merge would keep fields that were taken back.

    It tests what was compared: when it comes late, it must not undo what another replica has applied since.
    """
    spec = wanted["spec"]
    compared = applied_hash(existing)
    path = "/metadata/annotations/" + naming.ANNOTATION_HASH.replace("~", "~0").replace("/", "~1")
    annotations = {**(existing["metadata"].get("annotations") or {}), **wanted["metadata"]["annotations"]}
    return [
        {"op": "test", "path": "/metadata/uid", "value": existing["metadata"]["uid"]},
        *([{"op": "test", "path": path, "value": compared}] if compared else []),
        {"op": "add", "path": "/metadata/annotations", "value": annotations},
        {"op": "add", "path": "/metadata/labels", "value": wanted["metadata"]["labels"]},
        {"op": "add", "path": "/metadata/ownerReferences", "value": wanted["metadata"]["ownerReferences"]},
        *(
            {"op": "add", "path": f"/spec/{name}", "value": spec[name]}
            for name in ("replicas", "template", "updateStrategy", "persistentVolumeClaimRetentionPolicy")
        ),
    ]
