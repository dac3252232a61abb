"""CPU and memory of the brokers' pods, changed while they run (subresource `resize`, Kubernetes 1.33 and later)."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import TYPE_CHECKING

from kafkalite_core.resources.resizing import refused_by_admission, resize_patch
from kafkalite_core.resources.statefulset import wanted_amounts
from kafkalite_operator.telling import record_of_broker
from kafkalite_runtime.kube.errors import KubeConflict, KubeError, KubeNotFound, KubeThrottled
from kafkalite_runtime.kube.kinds import PODS
from kafkalite_runtime.logging import get_logger

if TYPE_CHECKING:
    from kafkalite_core.controller.actions import ResizePods
    from kafkalite_core.controller.resizing import Resize
    from kafkalite_core.resources.manifests import ClusterSettings
    from kafkalite_operator.store import Store
    from kafkalite_runtime.kube.client import KubeClient
    from kafkalite_runtime.kube.events import EventRecorder

CALL_DEADLINE_S = 3.0
_log = get_logger(__name__)


class Resizing:
    """What the API server refuses is noted in the store: then the plan is to restart the pod, or to keep it."""

    def __init__(self, client: KubeClient, store: Store, events: EventRecorder) -> None:
        self._client = client
        self._store = store
        self._events = events

    async def carry_out(self, settings: ClusterSettings, action: ResizePods) -> None:
        """Resize the pods. Raises errors of the client; who was resized is not asked again."""
        await asyncio.gather(*(self._resize(settings, each) for each in action.resizes))

    async def _resize(self, settings: ClusterSettings, resize: Resize) -> None:
        namespace = settings.cluster.namespace
        operations = resize_patch(resize.uid, resize.containers, resize.amounts)
        try:
            answer = await self._client.json_patch(
                PODS, namespace, resize.pod, operations, subresource="resize", deadline_s=CALL_DEADLINE_S
            )
        except (KubeConflict, KubeThrottled):
            raise
        except KubeNotFound:
            # Or the pod is gone, and with it whatever is noted of its uid.
            self._refused(settings, resize, "this cluster cannot change the resources of pods that run")
            return
        except KubeError as error:
            if error.status == HTTPStatus.UNAUTHORIZED:
                raise
            keep = refused_by_admission(error.status, error.message)
            (self._keep if keep else self._refused)(settings, resize, error.message)
            return
        self._store.apply(PODS, "MODIFIED", answer)
        told = ", ".join(f"{each.kind}.{each.resource} of {each.container} {each.value}" for each in resize.amounts)
        _log.info("pod resized", pod=resize.pod, broker=resize.broker_id, amounts=told)
        event = ("Normal", "BrokerResized", f"pod {resize.pod} runs on with {told}")
        record_of_broker(self._events, self._store, settings, resize.broker_id, event)

    def _keep(self, settings: ClusterSettings, resize: Resize, why: str) -> None:
        uid = settings.cluster.uid
        if not self._store.resize_notes.kept(uid, resize.uid, wanted_amounts(settings), why):
            return
        _log.warning("pod not resized, it keeps its resources", pod=resize.pod, why=why)
        event = ("Warning", "BrokerNotResized", f"pod {resize.pod} keeps the resources that it has: {why}")
        record_of_broker(self._events, self._store, settings, resize.broker_id, event)

    def _refused(self, settings: ClusterSettings, resize: Resize, why: str) -> None:
        self._store.resize_notes.refused(settings.cluster.uid, resize.uid, wanted_amounts(settings), why)
        _log.info("pod not resized, it will be restarted", pod=resize.pod, why=why)
        message = f"pod {resize.pod} is to be restarted for its resources: {why}"
        event = ("Normal", "BrokerNotResized", message)
        record_of_broker(self._events, self._store, settings, resize.broker_id, event)
