"""An operator's view of the API: the newest known version of every object, and snapshots of it."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from kafkalite_core.controller.snapshot import LeaseView, Snapshot, TopicView
from kafkalite_core.resources.conditions import parse_conditions
from kafkalite_core.resources.naming import broker_name
from kafkalite_core.resources.pods import container_exits
from kafkalite_core.resources.views import topic_view
from tests.simulation.parsed import broker_of, cluster_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalite_core.model.cluster import Broker, Cluster
    from tests.simulation.patching import Json

CLUSTER = "kafkalite"


class Entry:
    """One object as known."""

    __slots__ = ("first_seen", "generation_seen", "obj", "version", "view")

    def __init__(self, obj: Json, version: int, first_seen: float, generation_seen: float) -> None:
        self.obj = obj
        self.version = version
        self.first_seen = first_seen
        self.generation_seen = generation_seen
        self.view: TopicView | Broker | Cluster | None = None


class Store:
    """See the module."""

    def __init__(self, clock_s: Callable[[], float]) -> None:
        self._clock_s = clock_s
        self.objects: dict[str, dict[str, Entry]] = {"clusters": {}, "brokers": {}, "topics": {}}
        self._tombstones: set[str] = set()
        self.exits: dict[str, str] = {}
        self.leases: dict[str, LeaseView] = {}
        self._registered: dict[str, tuple[int, float]] = {}
        self.expiry_fences: deque[float] = deque(maxlen=64)

    def apply(self, kind: str, event: str, obj: Json) -> bool:
        """An event, or an object as read or answered; True when something changed."""
        if kind == "pods":
            return self._apply_pod(obj)
        metadata = obj["metadata"]
        uid = metadata["uid"]
        if event == "DELETED":
            return self.forget(kind, uid)
        if uid in self._tombstones:
            return False
        known = self.objects[kind].get(uid)
        version = int(metadata["resourceVersion"])
        if known is not None and version <= known.version:
            return False
        now = self._clock_s()
        entry = Entry(obj, version, now, now)
        if known is not None:
            entry.first_seen = known.first_seen
            if known.obj["metadata"].get("generation") == metadata.get("generation"):
                entry.generation_seen = known.generation_seen
        self._parse(kind, entry)
        if kind == "topics" and known is not None and self._went_back(known, entry):
            return False
        self.objects[kind][uid] = entry
        return True

    def _parse(self, kind: str, entry: Entry) -> None:
        if kind == "topics":
            entry.view = topic_view(entry.obj, first_seen=entry.first_seen, generation_seen=entry.generation_seen)
        elif kind == "brokers":
            broker = entry.view = broker_of(entry.obj)
            if self._registered.get(broker.uid, (None, 0.0))[0] != broker.epoch:
                self._registered[broker.uid] = (broker.epoch, self._clock_s())
        else:
            entry.view = cluster_of(entry.obj)

    @staticmethod
    def _went_back(known: Entry, entry: Entry) -> bool:
        assert isinstance(known.view, TopicView)
        assert isinstance(entry.view, TopicView)
        news = entry.view.topic.partitions
        return any(
            number not in news
            or (news[number].leader_epoch, news[number].partition_epoch) < (old.leader_epoch, old.partition_epoch)
            for number, old in known.view.topic.partitions.items()
        )

    def _apply_pod(self, pod: Json) -> bool:
        changed = False
        for found in container_exits(pod):
            if found.incarnation not in self.exits:
                self.exits[found.incarnation] = f"exit code {found.exit_code}, {found.reason}"
                changed = True
        return changed

    def forget(self, kind: str, uid: str) -> bool:
        """The object was deleted."""
        self._tombstones.add(uid)
        self._registered.pop(uid, None)
        return self.objects[kind].pop(uid, None) is not None

    def relist(self, kind: str, items: list[Json], version: int) -> None:
        """A consistent list: objects that are older than it and not in it are gone."""
        listed = {item["metadata"]["uid"] for item in items}
        for item in items:
            self.apply(kind, "ADDED", item)
        if kind != "pods":
            for uid, entry in list(self.objects[kind].items()):
                if uid not in listed and entry.version <= version:
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

    def snapshot(
        self, obj: Json, *, controller_epoch: int, observing_since: float | None, balance_due: bool
    ) -> Snapshot:
        """The cluster for `plan`."""
        status = obj.get("status") or {}
        counts = status.get("brokers") or {}
        brokers = self.brokers()
        names = {broker_id: broker_name(CLUSTER, broker_id) for broker_id in brokers}
        return Snapshot(
            cluster=cluster_of(obj),
            generation=int(obj["metadata"].get("generation", 0)),
            observed_generation=int(status.get("observedGeneration", 0)),
            conditions=parse_conditions(status),
            bootstrap=str(status.get("bootstrap", "")),
            wanted_bootstrap="sim:9092",
            brokers_ready=int(counts.get("ready", -1)),
            brokers_total=int(counts.get("total", -1)),
            topics=self.topic_views(),
            brokers=brokers,
            registered_at={i: self._registered[b.uid][1] for i, b in brokers.items() if b.uid in self._registered},
            leases={i: self.leases[name] for i, name in names.items() if name in self.leases},
            exits=self.exits,
            observing_since=observing_since,
            expiry_fences=tuple(self.expiry_fences),
            controller_epoch=controller_epoch,
            balance_due=balance_due,
        )
