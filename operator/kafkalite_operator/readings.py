"""How the store reads the objects of its kinds, and which of them it does not understand."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from kafkalite_core.resources.brokers import cluster_of_broker, parse_broker
from kafkalite_core.resources.fields import ResourceError
from kafkalite_core.resources.manifests import cluster_settings
from kafkalite_core.resources.readable import ReadableSpecs, Reading, without_template
from kafkalite_core.resources.statefulset import revision, wanted_amounts
from kafkalite_core.resources.views import topic_view
from kafkalite_runtime.kube.kinds import BROKERS, CLUSTERS, TOPICS
from kafkalite_runtime.logging import get_logger

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from kafkalite_core.controller.snapshot import TopicView
    from kafkalite_core.model.cluster import Broker
    from kafkalite_core.resources.manifests import ClusterSettings
    from kafkalite_runtime.kube.kinds import Kind

REFUSED_MAX = 1024
"""Objects that are not understood and remembered; of more the oldest are forgotten."""

View: TypeAlias = "TopicView | Broker | ClusterSettings"

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Refused:
    """Why an object is not understood, for an Event about it.

    Attributes:
        kind: Of the object.
        namespace: Of the object.
        name: Of the object.
        message: What is wrong, with the path of the field.
        status_heard: Its status is followed, with the last spec that could be read.
        left_alone: Of a cluster: nobody knows that one; it is controlled as if it were paused.
    """

    kind: Kind
    namespace: str
    name: str
    message: str
    status_heard: bool
    left_alone: bool = False

    @property
    def consequence(self) -> str:
        """What follows from it, for the same Event."""
        if self.left_alone:
            return "until then its pods are left as they are, as if it were paused; elections and fencing go on"
        return "the last spec that was understood stays in force" if self.status_heard else "it is passed over"


class Readings:
    """See the module."""

    def __init__(self, default_image: str) -> None:
        self._default_image = default_image
        self._specs = ReadableSpecs()
        self._refused: OrderedDict[str, Refused] = OrderedDict()
        self.refused: Mapping[str, Refused] = self._refused
        """Objects whose newest version is not understood, or not its spec, by uid."""
        self.unread: dict[str, str] = {}
        """Namespace by uid of topics of whose newest version not even the status is known."""

    def read(self, kind: Kind, obj: dict[str, Any], first_seen: float, generation_seen: float) -> Reading[View] | None:
        """What an object says, with its last good spec if need be; None when it is not understood. That is logged once
        for as long as the problem is the same. Raises nothing: one object must not end the operator for all others.
        """
        metadata = obj["metadata"]
        uid = str(metadata.get("uid", ""))
        reading: Reading[View] | None = None
        left_alone = False
        try:
            reading = self._specs.read(obj, lambda it: self._view(kind, it, first_seen, generation_seen))
            problem = reading.problem
        except ResourceError as error:
            problem = str(error)
            reading = self._left_alone(obj, problem) if kind is CLUSTERS else None
            left_alone = reading is not None
        self.unread.pop(uid, None)
        if not problem:
            self._refused.pop(uid, None)
            return reading
        if reading is None and kind is TOPICS:
            self.unread[uid] = str(metadata.get("namespace"))
        self._remember(kind, metadata, problem, status_heard=reading is not None, left_alone=left_alone)
        return reading

    def _left_alone(self, obj: dict[str, Any], problem: str) -> Reading[View] | None:
        """A cluster that was controlled before, and of whose pod template this process has read none: as if it were
        paused. Who elects must not depend on who was there before the template was spoilt.
        """
        bare = without_template(obj)
        if bare is None:
            return None
        try:
            settings = cluster_settings(bare, default_image=self._default_image)
        except Exception:
            return None  # it is not the template
        cluster = replace(settings.cluster, paused=True, template_problem=problem)
        return Reading(replace(settings, cluster=cluster), bare, problem)

    def _view(self, kind: Kind, obj: dict[str, Any], first_seen: float, generation_seen: float) -> View:
        if kind is TOPICS:
            return topic_view(obj, first_seen=first_seen, generation_seen=generation_seen)
        if kind is BROKERS:
            cluster_of_broker(obj)
            return parse_broker(obj)
        settings = cluster_settings(obj, default_image=self._default_image)
        # Rounds ask for these. Here an error costs one cluster, there it would end the controller of all of them.
        revision(settings)
        wanted_amounts(settings)
        return settings

    def _remember(
        self, kind: Kind, metadata: Mapping[str, Any], problem: str, *, status_heard: bool, left_alone: bool
    ) -> None:
        uid = str(metadata.get("uid", ""))
        where = str(metadata.get("namespace", "")), str(metadata.get("name", ""))
        refused = Refused(kind, *where, message=problem, status_heard=status_heard, left_alone=left_alone)
        if self._refused.get(uid) != refused:
            what = "spec not understood, its last good one stays in force" if status_heard else "object not understood"
            what = "spec not understood, the cluster is treated as paused" if left_alone else what
            _log.warning(what, kind=kind.kind, namespace=where[0], name=where[1], error=problem)
        self._refused[uid] = refused
        while len(self._refused) > REFUSED_MAX:
            self._refused.popitem(last=False)

    def forget(self, uid: str) -> None:
        """The object is gone."""
        self._specs.forget(uid)
        self._refused.pop(uid, None)
        self.unread.pop(uid, None)

    def listed(self, kind: Kind, uids: Collection[str], namespace: str | None) -> None:
        """A consistent list: of that kind and namespace (None: of all) only these are there."""
        gone = [uid for uid, each in self._refused.items() if each.kind is kind and namespace in {None, each.namespace}]
        if kind is TOPICS:
            gone += [uid for uid, where in self.unread.items() if namespace in {None, where}]
        for uid in set(gone) - set(uids):
            self.forget(uid)
