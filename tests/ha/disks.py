"""Claims of brokers and what is behind them, as the StatefulSet's controller and a provisioner of volumes treat them."""

from __future__ import annotations

import contextlib
import uuid
from typing import TYPE_CHECKING, Any

from kafkalite_core.resources.naming import data_claim_name
from kafkalite_runtime.kube.errors import KubeConflict
from kafkalite_runtime.kube.kinds import PERSISTENT_VOLUME_CLAIMS, PODS, Kind
from tests.ha.world import CLUSTER

if TYPE_CHECKING:
    from tests.ha.world import World

STORAGE_CLASSES = Kind("storage.k8s.io", "v1", "storageclasses", "StorageClass", namespaced=False)
GROWS = "grows"


async def make_class(world: World) -> None:
    """A class whose volumes may grow; the same one for every namespace of the server."""
    body = {"metadata": {"name": GROWS}, "provisioner": "kafkalite.io/none", "allowVolumeExpansion": True}
    with contextlib.suppress(KubeConflict):
        await world.client.create(STORAGE_CLASSES, None, body)


class Disks:
    """Every claim has a disk of its own, which goes with it."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._client = world.client
        self._directories: dict[str, str] = {}

    async def turn(self) -> None:
        """A claim that was deleted goes when no pod uses it any more, and volumes grow that are asked to."""
        used = {
            volume["persistentVolumeClaim"]["claimName"]
            for pod in (await self._client.list(PODS, self._world.ns)).items
            for volume in pod["spec"].get("volumes") or []
            if "persistentVolumeClaim" in volume
        }
        for claim in (await self._client.list(PERSISTENT_VOLUME_CLAIMS, self._world.ns)).items:
            if "deletionTimestamp" in claim["metadata"]:
                if claim["metadata"]["name"] not in used:
                    await self._patch(claim, {"metadata": {"finalizers": None}})
            elif requested(claim) != capacity(claim):
                await self._provide(claim)

    async def claim(self, stateful_set: dict[str, Any], broker_id: int) -> dict[str, Any] | None:
        """The claim with which the broker's pod may come; None while the former one is still going."""
        name = data_claim_name(CLUSTER, broker_id)
        found = await self._world.get(PERSISTENT_VOLUME_CLAIMS, name)
        if found is not None:
            return None if "deletionTimestamp" in found["metadata"] else found
        template = stateful_set["spec"]["volumeClaimTemplates"][0]
        body = {"metadata": {**template["metadata"], "name": name}, "spec": template["spec"]}
        made = await self._client.create(PERSISTENT_VOLUME_CLAIMS, self._world.ns, body)
        await self._provide(made)
        return made

    async def _provide(self, claim: dict[str, Any]) -> None:
        status = {"phase": "Bound", "capacity": {"storage": requested(claim)}}
        await self._patch(claim, {"status": status}, subresource="status")

    async def _patch(self, claim: dict[str, Any], patch: dict[str, Any], subresource: str = "") -> None:
        name = claim["metadata"]["name"]
        await self._client.merge_patch(PERSISTENT_VOLUME_CLAIMS, self._world.ns, name, patch, subresource=subresource)

    def directory(self, claim: dict[str, Any]) -> str:
        """The id that a broker finds on the claim's disk, or writes there when it is the first."""
        return self._directories.setdefault(claim["metadata"]["uid"], str(uuid.uuid4()))


def requested(claim: dict[str, Any]) -> str:
    """The size that is asked for."""
    return str(claim["spec"]["resources"]["requests"]["storage"])


def capacity(claim: dict[str, Any]) -> str:
    """The size of its volume; empty when it has none."""
    return str(((claim.get("status") or {}).get("capacity") or {}).get("storage", ""))
