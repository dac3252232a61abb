"""Topics without a cluster: makes the default one, or says that there is none, or why it cannot be made."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from kafkalite_core.controller.actions import UpdateTopicStatus
from kafkalite_core.controller.conditions import orphan_conditions
from kafkalite_core.controller.pacing import Urgency
from kafkalite_core.model.errors import KafkaLiteError
from kafkalite_core.model.topic import DEFAULT_CLUSTER_NAME
from kafkalite_core.resources.manifests import default_cluster
from kafkalite_operator.infrastructure import REFUSED, condition_of
from kafkalite_runtime.kube.errors import KubeConflict
from kafkalite_runtime.kube.kinds import CLUSTERS
from kafkalite_runtime.logging import get_logger

if TYPE_CHECKING:
    from kafkalite_core.controller.snapshot import TopicView
    from kafkalite_operator.executor import Executor
    from kafkalite_operator.store import Store
    from kafkalite_operator.work import Work
    from kafkalite_runtime.kube.client import KubeClient
    from kafkalite_runtime.kube.events import EventRecorder

STATUS_PAUSE_S = 0.25
"""Conditions of one object are written at most this often."""

CLUSTER_REFUSED = "DefaultClusterRefused"
_log = get_logger(__name__)


class DefaultClusters:
    """See the module. `spec` is that of the cluster that is made; None: none is."""

    def __init__(
        self,
        client: KubeClient,
        store: Store,
        *,
        executor: Executor,
        work: Work,
        events: EventRecorder,
        spec: dict[str, Any] | None,
    ) -> None:
        self._client = client
        self._store = store
        self._executor = executor
        self._work = work
        self._events = events
        self._spec = spec
        self._refused: dict[str, str] = {}
        """By namespace: what the API server has against the default cluster."""

    def look(self, view: TopicView) -> None:
        """A topic whose cluster does not exist."""
        if view.topic.deleting:
            return
        follows = self._spec is not None and view.spec.cluster == DEFAULT_CLUSTER_NAME
        namespace = view.topic.ref.namespace
        if follows and self._spec is not None:
            self._work.start(("cluster", f"{namespace}/{view.spec.cluster}"), self._make(namespace, self._spec))
        refused = self._refused.get(namespace, "")
        if follows and not refused and any(each.reason == CLUSTER_REFUSED for each in view.conditions):
            return  # an earlier operator was refused it, and this one has had no answer yet
        conditions = orphan_conditions(view, cluster_follows=follows, refused=refused)
        if all(condition in view.conditions for condition in conditions):
            return
        action = UpdateTopicStatus(
            topic=view.topic.ref, generation=view.topic.generation, conditions=conditions, in_sync=view.in_sync or "0/0"
        )
        tell = partial(self._executor.update_topic_status, action)
        self._work.offer(action.key, tell, Urgency.TELLING, pause_s=STATUS_PAUSE_S)

    async def _make(self, namespace: str, spec: dict[str, Any]) -> None:
        body = default_cluster(namespace, DEFAULT_CLUSTER_NAME, spec)
        try:
            made = await self._client.create(CLUSTERS, namespace, body)
        except KubeConflict:
            # Without a cluster of that name it is a quota, say, that somebody else has changed meanwhile: no answer.
            if await self._executor.refresh(CLUSTERS, namespace, DEFAULT_CLUSTER_NAME) is not None:
                self._refused.pop(namespace, None)
            return
        except KafkaLiteError as error:
            if condition_of(error) is REFUSED:
                self._refused[namespace] = str(error)
            raise
        self._refused.pop(namespace, None)
        self._store.apply(CLUSTERS, "ADDED", made)
        _log.info("default cluster made", namespace=namespace, name=DEFAULT_CLUSTER_NAME)
        message = "made for a topic without cluster"
        self._events.record(made, "Normal", "ClusterCreated", message)
