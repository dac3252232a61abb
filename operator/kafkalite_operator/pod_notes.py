"""What pods tell besides what plans look at: where a broker runs, and which of its incarnations have ended (S7).

Both are kept by cluster: no pod of one namespace says anything of a broker in another, whatever its message names.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kafkalite_core.resources.naming import LABEL_CLUSTER
from kafkalite_core.resources.places import PodPlace, pod_place
from kafkalite_core.resources.pods import container_exits
from kafkalite_runtime.logging import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Mapping

EXITS_MAX = 256
"""Ended incarnations of one cluster that are remembered."""

NOT_LISTED = float("-inf")
"""When something was asked for that did not come by a list: before everything that was ever seen."""

ClusterKey = tuple[str, str]
_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Exit:
    """An ended broker container and when this process learnt of it."""

    reason: str
    seen_at: float


@dataclass(slots=True)
class _Notes:
    places: dict[str, tuple[PodPlace, int, float]] = field(default_factory=dict)
    """By name of the pod, with its version, and when it was seen."""
    exits: OrderedDict[tuple[int, str], Exit] = field(default_factory=OrderedDict)
    """By broker id and incarnation."""


class PodNotes:
    """See the module. All methods are called on the controller's event loop."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._notes: dict[ClusterKey, _Notes] = {}

    def note(self, type_: str, pod: Mapping[str, Any]) -> bool:
        """An event, or a pod as listed; True when it told something new. Raises nothing: a pod may say anything."""
        metadata = pod.get("metadata") or {}
        try:
            labels = metadata.get("labels") or {}
            key = (str(metadata.get("namespace", "")), str(labels.get(LABEL_CLUSTER, "")))
            return self._note(key, type_, pod, version_of(pod))
        except Exception as error:
            _log.warning("pod not understood", pod=metadata.get("name"), error=str(error))
            return False

    def _note(self, key: ClusterKey, type_: str, pod: Mapping[str, Any], version: int) -> bool:
        notes = self._notes.setdefault(key, _Notes())
        changed = False
        for found in container_exits(pod):
            known = (found.broker_id, found.incarnation)
            if known not in notes.exits:
                reason = f"exit code {found.exit_code}" + (f", {found.reason}" if found.reason else "")
                notes.exits[known] = Exit(reason, self._clock())
                changed = True
        while len(notes.exits) > EXITS_MAX:
            notes.exits.popitem(last=False)
        place = pod_place(pod)
        if type_ == "DELETED":
            self.forget_place(*key, place)
            return changed  # whoever needs an address keeps the last one until there is another
        before = notes.places.get(place.name)
        notes.places[place.name] = (place, version, self._clock())
        return changed or before is None or before[0] != place

    def listed(
        self,
        uids: Container[str],
        version: int,
        namespace: str | None,
        clusters: Container[ClusterKey],
        *,
        asked_at: float = NOT_LISTED,
    ) -> None:
        """A consistent list of that version: pods that are older than it, or were seen before it was asked for, and not
        in it are gone.

        An exit outlives its pod, unless it is of none of these clusters.
        """
        for key, notes in list(self._notes.items()):
            if namespace not in {None, key[0]}:
                continue
            gone = [
                name
                for name, (place, at, seen_at) in notes.places.items()
                if place.uid not in uids and (at <= version or seen_at < asked_at)
            ]
            for name in gone:
                del notes.places[name]
            if not notes.places and key not in clusters:
                del self._notes[key]

    def forget(self, key: ClusterKey) -> None:
        """The cluster is gone."""
        self._notes.pop(key, None)

    def forget_place(self, namespace: str, cluster: str, place: PodPlace) -> None:
        """A pod is gone."""
        notes = self._notes.get((namespace, cluster))
        if notes is not None and place.name in notes.places and notes.places[place.name][0].uid == place.uid:
            del notes.places[place.name]

    def places_of(self, namespace: str, cluster: str) -> list[PodPlace]:
        """Where the pods of a cluster's brokers run, by name."""
        notes = self._notes.get((namespace, cluster), _Notes())
        return [notes.places[name][0] for name in sorted(notes.places)]

    def exits_of(self, key: ClusterKey) -> dict[tuple[int, str], str]:
        """Reasons of the exits of a cluster's brokers, by broker id and incarnation."""
        return {known: each.reason for known, each in self._notes.get(key, _Notes()).exits.items()}

    def exit_of(self, key: ClusterKey, broker_id: int, incarnation: str) -> Exit | None:
        """One of them."""
        return self._notes.get(key, _Notes()).exits.get((broker_id, incarnation))


def as_number(version: object) -> int:
    """A resourceVersion; those of one resource are comparable as numbers (KEP-5504). 0 for anything else."""
    text = str(version)
    return int(text) if text.isascii() and text.isdigit() else 0


def version_of(obj: Mapping[str, Any]) -> int:
    """The resourceVersion of an object."""
    return as_number((obj.get("metadata") or {}).get("resourceVersion", ""))
