"""Copies the label that is a broker's rack from its node to its pod, where Kubernetes has not done so."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalite_core.model.topic import Condition
from kafkalite_core.resources.naming import ANNOTATION_RACK
from kafkalite_core.resources.places import NO_RACK, rack_of_node
from kafkalite_operator.nodes import WHAT_TO_DO
from kafkalite_runtime.kube.errors import KubeConflict, KubeError, KubeForbidden, KubeNotFound, KubeUnauthorized
from kafkalite_runtime.kube.kinds import PODS
from kafkalite_runtime.logging import get_logger

if TYPE_CHECKING:
    from kafkalite_core.resources.manifests import ClusterSettings
    from kafkalite_core.resources.places import PodPlace
    from kafkalite_operator.cluster_status import ClusterStatus
    from kafkalite_operator.nodes import Nodes
    from kafkalite_operator.store import Store
    from kafkalite_runtime.kube.client import KubeClient

CONDITION = "RacksKnown"
CALL_DEADLINE_S = 3.0
_log = get_logger(__name__)


class Racks:
    """See the module."""

    def __init__(self, client: KubeClient, store: Store, nodes: Nodes, status: ClusterStatus) -> None:
        self._client = client
        self._store = store
        self._nodes = nodes
        self._status = status

    def due(self, settings: ClusterSettings) -> bool:
        """Whether some pod waits for its rack, or the condition is not what it should be."""
        told = self._status.has_condition(settings, CONDITION)
        if not settings.rack_key:
            return told
        places = self._places(settings)
        return any(place.wants_rack(settings.rack_key) for place in places) or (bool(places) and not told)

    def _places(self, settings: ClusterSettings) -> list[PodPlace]:
        return self._store.pod_notes.places_of(settings.cluster.namespace, settings.cluster.name)

    async def label(self, settings: ClusterSettings) -> None:
        """Tell every pod that waits for it its rack. Raises errors of the client after telling why."""
        key = settings.rack_key
        if not key:
            await self._status.write(settings, without=(CONDITION,))
            return
        failure: KubeError | None = None
        for place in self._places(settings):
            if place.wants_rack(key):
                try:
                    await self._annotate(settings, place, rack_of_node(await self._nodes.get(place.node), key))
                except KubeUnauthorized:
                    raise
                except (KubeForbidden, KubeNotFound) as error:
                    failure = error
        await self._status.write(settings, condition=self._condition(settings, failure))
        if failure is not None:
            raise failure

    def _condition(self, settings: ClusterSettings, failure: KubeError | None) -> Condition:
        key = settings.rack_key
        bare = sorted({place.node for place in self._places(settings) if place.rack == NO_RACK})
        if failure is not None:
            what_to_do = WHAT_TO_DO if isinstance(failure, KubeForbidden) else str(failure)
            message = f"brokers may register without a rack, and replicas are not spread over racks: {what_to_do}"
            return Condition(type=CONDITION, status="False", reason=failure.reason or "NodeUnknown", message=message)
        if bare:
            message = f"nodes without the label {key}, whose brokers have no rack: {', '.join(bare)}"
            return Condition(type=CONDITION, status="False", reason="NoLabel", message=message)
        return Condition(type=CONDITION, status="True", reason="LabelsKnown", message=f"from the label {key} of nodes")

    async def _annotate(self, settings: ClusterSettings, place: PodPlace, rack: str) -> None:
        # The uid keeps it from a pod that took the name meanwhile, and runs on another node.
        body = {"metadata": {"uid": place.uid, "annotations": {ANNOTATION_RACK: rack}}}
        namespace = settings.cluster.namespace
        try:
            pod = await self._client.merge_patch(PODS, namespace, place.name, body, deadline_s=CALL_DEADLINE_S)
        except (KubeNotFound, KubeConflict):
            self._store.pod_notes.forget_place(namespace, settings.cluster.name, place)
            return
        self._store.apply(PODS, "MODIFIED", pod)
        _log.info("rack copied to pod", pod=place.name, node=place.node, rack=rack)
