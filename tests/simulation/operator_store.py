"""An operator's view of the API: the newest known version of every object, and snapshots of it."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING

from kafkalite_core.controller.partition_health import with_times
from kafkalite_core.controller.snapshot import LeaseView, Snapshot, TopicView
from kafkalite_core.controller.store_recovery import outdated
from kafkalite_core.resources.conditions import parse_conditions
from kafkalite_core.resources.naming import broker_name
from kafkalite_core.resources.partition_counts import parse_counts
from kafkalite_core.resources.pods import container_exits
from kafkalite_core.resources.views import topic_view
from tests.simulation.parsed import broker_of, cluster_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalite_core.model.cluster import Broker, Cluster
    from kafkalite_core.model.partition_counts import PartitionCounts
    from tests.simulation.patching import Json

CLUSTER = "kafkalite"
NOT_LISTED = float("-inf")
LATE_S = 3.0


class Entry:
    """One object as known."""

    __slots__ = ("first_seen", "generation_seen", "obj", "seen_s", "version", "view")

    def __init__(self, obj: Json, version: int, seen_s: float) -> None:
        self.obj = obj
        self.version = version
        self.seen_s = self.first_seen = self.generation_seen = seen_s
        self.view: TopicView | Broker | Cluster | None = None


class Store:
    """See the module."""

    def __init__(self, clock_s: Callable[[], float]) -> None:
        self._clock_s = clock_s
        self.objects: dict[str, dict[str, Entry]] = {"clusters": {}, "brokers": {}, "topics": {}}
        self._tombstones: dict[str, float] = {}
        self._epochs_seen: dict[tuple[str, str], dict[int, tuple[int, int]]] = {}
        self.went_back_s = float("-inf")
        self.doubtful = False
        self.exits: dict[tuple[int, str], str] = {}
        self.leases: dict[str, LeaseView] = {}
        self._registered: dict[str, tuple[int, float]] = {}
        self._counts: tuple[PartitionCounts | None, float] | None = None
        self.expiry_fences: deque[float] = deque(maxlen=64)

    def apply(self, kind: str, event: str, obj: Json, *, listed_s: float = NOT_LISTED) -> bool:
        """An event, or an object as read or answered; True when something changed.

        An older version replaces a newer one only when a consistent list shows it that was asked for at `listed_s`,
        after the newer one was seen: then the store went back in time (S11), where versions may come again.
        """
        if kind == "pods":
            return self._apply_pod(obj)
        metadata = obj["metadata"]
        uid = metadata["uid"]
        if event == "DELETED":
            return self.forget(kind, uid)
        buried_s = self._tombstones.get(uid)
        if buried_s is not None and buried_s >= listed_s:
            return False
        if self._tombstones.pop(uid, None) is not None:
            self.went_back_s = self._clock_s()
        known = self.objects[kind].get(uid)
        version = int(metadata["resourceVersion"])
        now = self._clock_s()
        old = known is not None and version <= known.version
        if known is not None and old and (known.seen_s >= listed_s or (version == known.version and obj == known.obj)):
            self.doubtful = self.doubtful or (version < known.version and now - known.seen_s >= LATE_S)
            return False
        if old:
            self.went_back_s = now
        entry = Entry(obj, version, now)
        if known is not None:
            entry.first_seen = known.first_seen
            if known.obj["metadata"].get("generation") == metadata.get("generation"):
                entry.generation_seen = known.generation_seen
        self._parse(kind, entry)
        self.objects[kind][uid] = entry
        return True

    def _parse(self, kind: str, entry: Entry) -> None:
        if kind == "topics":
            view = topic_view(entry.obj, first_seen=entry.first_seen, generation_seen=entry.generation_seen)
            known = self.objects[kind].get(view.topic.ref.uid)
            entry.view = replace(
                with_times(view, known and known.view, entry.seen_s), epochs_seen=self._remember_epochs(view)
            )
        elif kind == "brokers":
            broker = entry.view = broker_of(entry.obj)
            if self._registered.get(broker.uid, (None, 0.0))[0] != broker.epoch:
                self._registered[broker.uid] = (broker.epoch, self._clock_s())
        else:
            entry.view = cluster_of(entry.obj)
            counts = parse_counts(entry.obj.get("status") or {})
            if self._counts is None or self._counts[0] != counts:
                self._counts = (counts, entry.seen_s)

    def _remember_epochs(self, view: TopicView) -> dict[int, tuple[int, int]]:
        """The highest epochs ever seen of each partition under that topic id (S11)."""
        key = (view.topic.ref.uid, view.topic.ref.topic_id)
        seen = dict(self._epochs_seen.get(key, {}))
        for number, entry in view.topic.partitions.items():
            before = seen.get(number, (-1, -1))
            seen[number] = (max(before[0], entry.leader_epoch), max(before[1], entry.partition_epoch))
        self._epochs_seen[key] = seen
        return seen

    def _apply_pod(self, pod: Json) -> bool:
        changed = False
        for found in container_exits(pod):
            known = (found.broker_id, found.incarnation)
            if known not in self.exits:
                self.exits[known] = f"exit code {found.exit_code}, {found.reason}"
                changed = True
        return changed

    def forget(self, kind: str, uid: str) -> bool:
        """The object was deleted. A restored store has it again, with less than was known of it: that is remembered."""
        self._tombstones[uid] = self._clock_s()
        self._registered.pop(uid, None)
        return self.objects[kind].pop(uid, None) is not None

    def relist(self, kind: str, items: list[Json], version: int, *, asked_s: float = NOT_LISTED) -> None:
        """A consistent list, asked for at that time: objects that are older than it and not in it are gone.

        So are those that were seen before it was asked for: after a restore versions may begin anew (S11).
        """
        listed = {item["metadata"]["uid"] for item in items}
        for item in items:
            self.apply(kind, "ADDED", item, listed_s=asked_s)
        if kind != "pods":
            for uid, entry in list(self.objects[kind].items()):
                if uid in listed:
                    continue
                if entry.version <= version:
                    self.forget(kind, uid)
                elif entry.seen_s < asked_s:
                    self.went_back_s = self._clock_s()
                    self.forget(kind, uid)

    def raw(self, kind: str, uid: str) -> Json | None:
        """The newest known object with that uid."""
        entry = self.objects[kind].get(uid)
        return None if entry is None else entry.obj

    def cluster_object(self) -> Json | None:
        """The one cluster there is."""
        return next((entry.obj for entry in self.objects["clusters"].values()), None)

    def topic_views(self) -> dict[str, TopicView]:
        """All topics by uid."""
        return {uid: e.view for uid, e in self.objects["topics"].items() if isinstance(e.view, TopicView)}

    def brokers(self) -> dict[int, Broker]:
        """All brokers by id."""
        found = [broker_of(entry.obj) for entry in self.objects["brokers"].values()]
        return {broker.id: broker for broker in sorted(found, key=lambda broker: broker.id)}

    def _outdated(self, brokers: dict[int, Broker]) -> frozenset[int]:
        return frozenset(
            broker_id
            for broker_id, broker in brokers.items()
            if outdated(
                incarnation="" if broker.registration is None else broker.registration.incarnation,
                seen_at=self.objects["brokers"][broker.uid].seen_s,
                went_back_at=self.went_back_s,
                lease=self.leases.get(broker_name(CLUSTER, broker_id)),
            )
        )

    def snapshot(
        self,
        obj: Json,
        *,
        controller_epoch: int,
        observing_since: float | None,
        unheard_until: float = 0.0,
        balance_due: bool,
        brokers_age_s: float,
        brokers_read_s: float = 0.0,
        clusters_age_s: float = 0.0,
        clusters_read_s: float = 0.0,
    ) -> Snapshot:
        """The cluster for `plan`."""
        status = obj.get("status") or {}
        counts = status.get("brokers") or {}
        partitions, partitions_seen = self._counts or (None, 0.0)
        brokers = self.brokers()
        names = {broker_id: broker_name(CLUSTER, broker_id) for broker_id in brokers}
        return Snapshot(
            cluster=cluster_of(obj),
            generation=int(obj["metadata"].get("generation", 0)),
            generation_seen=self.objects["clusters"][obj["metadata"]["uid"]].generation_seen,
            observed_generation=int(status.get("observedGeneration", 0)),
            conditions=parse_conditions(status),
            bootstrap=str(status.get("bootstrap", "")),
            wanted_bootstrap="sim:9092",
            brokers_ready=int(counts.get("ready", -1)),
            brokers_total=int(counts.get("total", -1)),
            partitions=partitions,
            partitions_seen=partitions_seen,
            topics=self.topic_views(),
            brokers=brokers,
            registered_at={i: self._registered[b.uid][1] for i, b in brokers.items() if b.uid in self._registered},
            leases={i: self.leases[name] for i, name in names.items() if name in self.leases},
            exits=self.exits,
            observing_since=observing_since,
            unheard_until=unheard_until,
            outdated=self._outdated(brokers),
            expiry_fences=tuple(self.expiry_fences),
            controller_epoch=controller_epoch,
            balance_due=balance_due,
            brokers_age_s=brokers_age_s,
            brokers_read_s=brokers_read_s,
            clusters_age_s=clusters_age_s,
            clusters_read_s=clusters_read_s,
        )
