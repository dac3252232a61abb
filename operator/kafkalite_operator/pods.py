"""The brokers' pods as the API shows them, from watch and lists, in any order."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from kafkalite_core.resources.naming import LABEL_CLUSTER, broker_id_of
from kafkalite_core.resources.rolling import parse_pod
from kafkalite_operator.pod_notes import NOT_LISTED, as_number
from kafkalite_runtime.logging import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from kafkalite_core.model.pods import Pod

REMEMBERED_MAX = 1024
"""Uids of deleted pods that are remembered, against late events."""

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Known:
    namespace: str
    cluster: str
    broker_id: int
    version: int
    pod: Pod
    seen_at: float


class PodStore:
    """The newest known version of every pod of a broker. All methods are called on the controller's event loop."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._known: dict[str, _Known] = {}
        self._deleted: OrderedDict[str, float] = OrderedDict()

    def apply(self, type_: str, obj: Mapping[str, Any], *, listed_at: float = NOT_LISTED) -> bool:
        """An event, or a pod as listed; True when something changed that decisions look at.

        What a consistent list shows that was asked for at `listed_at` holds against all that was seen before, also if
        that was a newer version or the end of the pod: then the store went back in time (S11).
        """
        metadata = obj.get("metadata") or {}
        uid = str(metadata.get("uid", ""))
        if type_ == "DELETED":
            self._deleted[uid] = self._clock()
            while len(self._deleted) > REMEMBERED_MAX:
                self._deleted.popitem(last=False)
            return self._known.pop(uid, None) is not None
        cluster = str((metadata.get("labels") or {}).get(LABEL_CLUSTER, ""))
        broker_id = broker_id_of(cluster, str(metadata.get("name", "")))
        if not uid or broker_id is None or (uid in self._deleted and self._deleted[uid] >= listed_at):
            return False
        self._deleted.pop(uid, None)  # a restored store has it again
        before, version = self._known.get(uid), as_number(metadata.get("resourceVersion"))
        if before is not None and version < before.version and before.seen_at >= listed_at:
            return False
        try:
            now = self._clock()
            pod = parse_pod(obj, unready_since=now, deleting_since=now if "deletionTimestamp" in metadata else 0.0)
        except Exception as error:  # a pod may say anything, and must not keep the others from being read
            _log.warning("pod not understood", pod=metadata.get("name"), error=str(error))
            return False
        if before is not None and before.pod.ready == pod.ready:
            pod = replace(pod, unready_since=before.pod.unready_since)
        if before is not None and before.pod.deleting:
            pod = replace(pod, deleting_since=before.pod.deleting_since)
        self._known[uid] = _Known(str(metadata.get("namespace", "")), cluster, broker_id, version, pod, self._clock())
        return before is None or before.pod != pod

    def relist(
        self,
        items: Iterable[Mapping[str, Any]],
        resource_version: str,
        namespace: str | None,
        *,
        asked_at: float = NOT_LISTED,
    ) -> bool:
        """A consistent list: pods that are older than it, or were seen before it was asked for, and not in it are gone.

        True when something changed.
        """
        listed: set[str] = set()
        changed = False
        for item in items:
            listed.add(str((item.get("metadata") or {}).get("uid", "")))
            changed |= self.apply("ADDED", item, listed_at=asked_at)
        for uid, known in list(self._known.items()):
            elsewhere = namespace is not None and known.namespace != namespace
            past = known.version <= as_number(resource_version) or known.seen_at < asked_at
            if uid not in listed and not elsewhere and past:
                del self._known[uid]
                changed = True
        return changed

    def of(self, namespace: str, cluster: str) -> dict[int, Pod]:
        """The pods of one cluster by broker id. Of two with one name the one that is not being deleted counts."""
        found: dict[int, Pod] = {}
        for known in self._known.values():
            if (known.namespace, known.cluster) != (namespace, cluster):
                continue
            other = found.get(known.broker_id)
            if other is None or other.deleting:
                found[known.broker_id] = known.pod
        return found
