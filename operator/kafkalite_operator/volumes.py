"""The brokers' volumes: what they are, and their growth."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from kafkalite_core.controller.volumes import is_growing, to_grow
from kafkalite_core.model.errors import KafkaLiteError
from kafkalite_core.model.volumes import Volume
from kafkalite_core.resources import naming
from kafkalite_core.resources.claims import broker_of_claim, growth, parse_claim
from kafkalite_runtime.complaints import Complaints
from kafkalite_runtime.kube.errors import KubeForbidden, KubeInvalid, KubeNotFound, KubeUnauthorized
from kafkalite_runtime.kube.kinds import CLUSTERS, PERSISTENT_VOLUME_CLAIMS
from kafkalite_runtime.logging import get_logger

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kafkalite_core.resources.manifests import ClusterSettings
    from kafkalite_operator.store import Store
    from kafkalite_runtime.kube.client import KubeClient
    from kafkalite_runtime.kube.events import EventRecorder

CALL_DEADLINE_S = 3.0
_log = get_logger(__name__)


class Volumes:
    """Reads the claims of a cluster's brokers and lets those grow that are too small. Never makes or deletes one."""

    def __init__(self, client: KubeClient, store: Store, events: EventRecorder) -> None:
        self._client = client
        self._store = store
        self._events = events
        self._complaints = Complaints(_log)

    def growing(self, settings: ClusterSettings) -> bool:
        """Some volume is on its way to its new size, as last read."""
        known = self._store.brokers_of((settings.cluster.namespace, settings.cluster.name))
        volumes = self._store.volumes.get(settings.cluster.uid, ())
        return is_growing([v for v in volumes if self._broker(settings, v.name) in known], settings.storage_size)

    async def ensure(self, settings: ClusterSettings, broker_ids: Iterable[int]) -> None:
        """Bring the volumes of these brokers up to the wanted size. Raises errors of the client."""
        wanted, found = set(broker_ids), await self._claims(settings)
        theirs = [each for name, each in found.items() if self._broker(settings, name) in wanted]
        for volume in to_grow(theirs, settings.storage_size):
            found[volume.name] = await self._grow(settings, volume)
        self._note(settings, found)

    async def look(self, settings: ClusterSettings) -> None:
        """Read them and change nothing: somebody asks what is behind a broker right now."""
        refused = {each.uid: each.refused for each in self._store.volumes.get(settings.cluster.uid, ())}
        listed = await self._claims(settings)
        self._note(settings, {name: replace(each, refused=refused.get(each.uid, "")) for name, each in listed.items()})

    def _note(self, settings: ClusterSettings, found: Mapping[str, Volume]) -> None:
        pods = self._store.pods.of(settings.cluster.namespace, settings.cluster.name)
        before = {each.uid: each.last_node for each in self._store.volumes.get(settings.cluster.uid, ())}
        volumes = []
        for name, volume in sorted(found.items()):
            broker_id = self._broker(settings, name)
            pod = pods.get(broker_id) if broker_id is not None else None
            node = (pod.node if pod is not None else "") or before.get(volume.uid, "")
            volumes.append(replace(volume, last_node=node))
        self._store.note_volumes(settings.cluster.uid, tuple(volumes))

    def _broker(self, settings: ClusterSettings, claim: str) -> int | None:
        return broker_of_claim(settings.cluster.name, claim)

    async def _claims(self, settings: ClusterSettings) -> dict[str, Volume]:
        """All of them, by name: one that is missing here counts as deleted, so one that is not understood is there."""
        cluster = settings.cluster
        labels = naming.broker_labels(cluster.name)
        selector = ",".join(f"{name}={value}" for name, value in sorted(labels.items()))
        listed = await self._client.list(
            PERSISTENT_VOLUME_CLAIMS, cluster.namespace, label_selector=selector, deadline_s=CALL_DEADLINE_S
        )
        found: dict[str, Volume] = {}
        for item in listed.items:
            try:
                volume = parse_claim(item)
            except KafkaLiteError as error:
                metadata = item.get("metadata") or {}
                name, uid = str(metadata.get("name", "")), str(metadata.get("uid", ""))
                self._complaints.wrong(("claim", uid), "claim not understood", error)
                volume = Volume(name=name, uid=uid, requested="", deleting="deletionTimestamp" in metadata)
            if self._broker(settings, volume.name) is not None:
                found[volume.name] = volume
        return found

    async def _grow(self, settings: ClusterSettings, volume: Volume) -> Volume:
        size, namespace = settings.storage_size, settings.cluster.namespace
        try:
            answer = await self._client.json_patch(
                PERSISTENT_VOLUME_CLAIMS, namespace, volume.name, growth(volume, size), deadline_s=CALL_DEADLINE_S
            )
        except KubeUnauthorized:
            raise
        except (KubeForbidden, KubeInvalid) as error:
            # Admission refuses where the StorageClass does not let volumes grow; a lost race says so in the next look.
            self._complaints.wrong(volume.uid, "volume does not grow", error, claim=volume.name, size=size)
            return replace(volume, refused=error.message)
        except KubeNotFound:
            return volume
        self._complaints.well(volume.uid)
        _log.info("volume grows", claim=volume.name, before=volume.requested, size=size)
        regarding = self._store.raw(CLUSTERS, settings.cluster.uid)
        if regarding is not None:
            message = f"volume {volume.name} grows from {volume.requested} to {size}"
            self._events.record(regarding, "Normal", "VolumeGrows", message)
        return parse_claim(answer)
