"""The operator's view of the API: the newest known version of every object, and snapshots of it.

Objects come from kopf's watch, from own lists and reads, and from the answers to own patches, in any order. Within
one uid a greater resourceVersion wins; an object that was deleted does not come back.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from kafkalite_core.controller.partition_health import with_times
from kafkalite_core.controller.recovering import observed
from kafkalite_core.controller.snapshot import LeaseView, Snapshot, TopicView
from kafkalite_core.controller.store_recovery import outdated
from kafkalite_core.model.replacement import Node, NodeState
from kafkalite_core.resources.brokers import cluster_of_broker
from kafkalite_core.resources.conditions import parse_conditions
from kafkalite_core.resources.fields import Fields
from kafkalite_core.resources.manifests import ClusterSettings, bootstrap_address
from kafkalite_core.resources.naming import broker_name
from kafkalite_core.resources.partition_counts import parse_counts
from kafkalite_core.resources.replacing import parse_replacing
from kafkalite_core.resources.rolling import parse_rolling
from kafkalite_core.resources.statefulset import revision, wanted_amounts
from kafkalite_operator.pod_notes import NOT_LISTED, PodNotes, as_number, version_of
from kafkalite_operator.pods import PodStore
from kafkalite_operator.readings import Readings
from kafkalite_operator.resize_notes import ResizeNotes
from kafkalite_runtime.kube.kinds import BROKERS, CLUSTERS, PODS, TOPICS, Kind
from kafkalite_runtime.logging import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from kafkalite_core.model.cluster import Broker
    from kafkalite_core.model.partition_counts import PartitionCounts
    from kafkalite_core.model.pods import Amount
    from kafkalite_core.model.volumes import Volume

REMEMBERED_MAX = 4096
"""Deleted uids that are remembered."""

LATE_S = 3.0
"""The watch may show an older version for so long after a newer one was an answer to a write: that is nothing odd."""

NODE_FRESH_S = 15.0
"""What was read of a node says nothing after this time."""

ClusterKey = tuple[str, str]
_log = get_logger(__name__)


@dataclass(slots=True)
class _Entry:
    obj: dict[str, Any]
    seen_at: float
    first_seen: float
    generation_seen: float
    view: TopicView | Broker | ClusterSettings | None = None


class Store:
    """See the module. All methods are called on the controller's event loop."""

    def __init__(self, clock: Callable[[], float], default_image: str) -> None:
        self._clock = clock
        self._objects: dict[str, dict[str, _Entry]] = {kind.plural: {} for kind in (TOPICS, CLUSTERS, BROKERS)}
        self._tombstones: OrderedDict[str, float] = OrderedDict()
        self.leases: dict[tuple[str, str], LeaseView] = {}
        self._registered: dict[str, tuple[int, float]] = {}
        self._counts: dict[str, tuple[PartitionCounts | None, float]] = {}
        self._epochs_seen: dict[str, dict[str, dict[int, tuple[int, int]]]] = {}
        self.expiry_fences: dict[ClusterKey, deque[float]] = {}
        self._left: OrderedDict[tuple[str, str, str], tuple[bool, frozenset[int]]] = OrderedDict()
        self._grouped: dict[ClusterKey, dict[str, TopicView]] | None = None
        self.pods = PodStore(clock)
        self.pod_notes = PodNotes(clock)
        self.served: dict[str, str] = {}
        """By uid of the cluster: the revision of which its StatefulSet makes pods, as last read."""
        self.volumes: dict[str, tuple[Volume, ...]] = {}
        """By uid of the cluster: the claims of its brokers' volumes, as last read."""
        self._revisions: dict[str, tuple[ClusterSettings, str, tuple[Amount, ...]]] = {}
        self.resize_notes = ResizeNotes(clock)
        self._volumes_at: dict[str, float] = {}
        self._nodes: dict[str, tuple[Node, float]] = {}
        self.nodes_refused: set[str] = set()
        """Uids of clusters whose nodes have to be looked at, and may not be read."""
        self._readings = Readings(default_image)
        self.refused = self._readings.refused
        """Objects whose newest version is not understood, or not its spec, by uid."""
        self._went_back_at = float("-inf")
        self._read_at: dict[tuple[Kind, str | None], float] = {}
        """By kind and namespace, None for all of them: when the newest consistent list was asked for."""
        self._read_s: dict[tuple[Kind, str | None], tuple[float, float]] = {}
        """By the same: how long the last two took; of one alone nothing is known."""
        self._on_forget: list[Callable[[str], object]] = []
        self._on_went_back: list[Callable[[], object]] = []
        self.doubtful = False
        """An older version of something was shown: it is late, or the store went back in time. A list tells (S11)."""

    # -- what comes in ------------------------------------------------------------------------------------------

    def apply(self, kind: Kind, type_: str, obj: dict[str, Any], *, listed_at: float = NOT_LISTED) -> bool:
        """An event, or an object as read or as answered; True when something changed.

        An older version replaces a newer one only when a consistent list that was asked for at `listed_at`, after the
        newer one was seen, shows it: then the store went back in time (S11). So does the same version, if it shows
        something else: a restore that does not bump the revision gives versions out again.
        """
        if kind is PODS:
            changed = self.pods.apply(type_, obj)
            return self.pod_notes.note(type_, obj) or changed
        metadata = obj.get("metadata") or {}
        uid = str(metadata.get("uid", ""))
        if type_ == "DELETED":
            return self.forget(kind, uid)
        buried_at = self._tombstones.get(uid)
        if not uid or (buried_at is not None and buried_at >= listed_at):
            return False
        self._tombstones.pop(uid, None)  # a restored store has it again
        known = self._objects[kind.plural].get(uid)
        if known is not None and not self._newer(known.obj, obj):
            same = version_of(obj) == version_of(known.obj)
            if known.seen_at >= listed_at or (same and not self._tells_other(known.obj, obj)):
                late = self._clock() - known.seen_at < LATE_S
                self.doubtful = self.doubtful or (version_of(obj) < version_of(known.obj) and not late)
                return False
            _log.error("the store went back in time", kind=kind.kind, name=metadata.get("name"))
            self._note_went_back()
        if buried_at is not None:
            self._note_went_back()
        now = self._clock()
        entry = _Entry(obj=obj, seen_at=now, first_seen=now, generation_seen=now)
        if known is not None:
            entry.first_seen = known.first_seen
            if known.obj["metadata"].get("generation") == metadata.get("generation"):
                entry.generation_seen = known.generation_seen
        if not self._parse(kind, entry):
            return False
        self._objects[kind.plural][uid] = entry
        self._grouped = None
        return True

    def on_forget(self, callback: Callable[[str], object]) -> None:
        """`callback(uid)` is called when an object is gone: whoever remembers something of it forgets that."""
        self._on_forget.append(callback)

    def on_went_back(self, callback: Callable[[], object]) -> None:
        """`callback()` is called with every sign that the store went back in time (S11)."""
        self._on_went_back.append(callback)

    def _note_went_back(self) -> None:
        self._went_back_at = self._clock()
        for callback in self._on_went_back:
            callback()

    def forget(self, kind: Kind, uid: str) -> bool:
        """The object was deleted. A restored store has it again, with less than was known of it: that is remembered."""
        self._tombstones[uid] = self._clock()
        while len(self._tombstones) > REMEMBERED_MAX:
            self._epochs_seen.pop(self._tombstones.popitem(last=False)[0], None)
        for known in (self._registered, self.served, self.volumes, self._volumes_at, self._revisions, self._counts):
            known.pop(uid, None)
        self.resize_notes.forget(uid)
        self.nodes_refused.discard(uid)
        self._grouped = None
        self._readings.forget(uid)
        for callback in self._on_forget:
            callback(uid)
        gone = self._objects[kind.plural].pop(uid, None)
        if gone is not None and isinstance(gone.view, ClusterSettings):
            key = (gone.view.cluster.namespace, gone.view.cluster.name)
            self.pod_notes.forget(key)
            self.expiry_fences.pop(key, None)
        if gone is not None and isinstance(gone.view, TopicView) and gone.view.placed:
            spec, entries = gone.view.spec, gone.view.topic.partitions.values()
            name = (gone.view.topic.ref.namespace, spec.cluster, spec.topic_name)
            self._left[name] = (spec.deletion_policy == "Retain", frozenset(i for e in entries for i in e.replicas))
            while len(self._left) > REMEMBERED_MAX:
                self._left.popitem(last=False)
        return gone is not None

    def relist(
        self,
        kind: Kind,
        items: Iterable[dict[str, Any]],
        resource_version: str,
        namespace: str | None,
        *,
        asked_at: float = NOT_LISTED,
    ) -> None:
        """A consistent list, asked for at that time: objects that are older than it and not in it are gone.

        So are those that were seen before it was asked for, whatever their version: after a restore that does not bump
        the revision, those of objects that were lost with the store are above all that it gives out for hours (S11).
        """
        if kind is PODS:
            self.pods.relist(items := list(items), resource_version, namespace, asked_at=asked_at)
            for item in items:
                self.pod_notes.note("ADDED", item)
            uids = {str((item.get("metadata") or {}).get("uid")) for item in items}
            self.pod_notes.listed(uids, as_number(resource_version), namespace, self.clusters(), asked_at=asked_at)
            return
        self._note_read((kind, namespace), asked_at)
        listed = {str(item["metadata"].get("uid")) for item in items}
        for item in items:
            try:
                self.apply(kind, "ADDED", item, listed_at=asked_at)
            except Exception:  # one object must not keep all others from being read
                _log.exception("object not understood", kind=kind.kind, name=item["metadata"].get("name"))
        self._readings.listed(kind, listed, namespace)
        for uid, entry in list(self._objects[kind.plural].items()):
            elsewhere = namespace is not None and entry.obj["metadata"].get("namespace") != namespace
            if uid in listed or elsewhere:
                continue
            if version_of(entry.obj) <= as_number(resource_version):
                self.forget(kind, uid)
            elif entry.seen_at < asked_at:
                name = entry.obj["metadata"].get("name")
                _log.error("the store went back in time: it has this object no more", kind=kind.kind, name=name)
                self._note_went_back()
                self.forget(kind, uid)

    def _note_read(self, what: tuple[Kind, str | None], asked_at: float) -> None:
        self._read_at[what] = max(asked_at, self._read_at.get(what, NOT_LISTED))
        if asked_at > NOT_LISTED:
            before = self._read_s.get(what, (0.0, 0.0))
            self._read_s[what] = (self._clock() - asked_at, before[0])

    def _newer(self, known: Mapping[str, Any], obj: Mapping[str, Any]) -> bool:
        return version_of(obj) > version_of(known)

    def _tells_other(self, known: Mapping[str, Any], obj: Mapping[str, Any]) -> bool:
        """Whether two objects of one version are not one. The spec that is kept for one that is not read is no sign."""
        was, now = known["metadata"], obj["metadata"]
        if any(was.get(part) != now.get(part) for part in ("annotations", "deletionTimestamp")):
            return True
        parts = ("status",) if _uid(known) in self.refused else ("status", "spec")
        return any(known.get(part) != obj.get(part) for part in parts)

    def _parse(self, kind: Kind, entry: _Entry) -> bool:
        """Read the object; False when it is not understood. A status is heard whatever the spec says."""
        uid = _uid(entry.obj)
        reading = self._readings.read(kind, entry.obj, entry.first_seen, entry.generation_seen)
        if reading is None:
            return False
        view, entry.obj = reading.value, reading.obj
        known = self._objects[kind.plural].get(uid)
        if reading.problem and known is not None:
            entry.generation_seen = known.generation_seen
        if isinstance(view, TopicView):
            view = replace(view, epochs_seen=self._remember_epochs(view), generation_seen=entry.generation_seen)
            view = with_times(view, known and known.view, entry.seen_at)
        elif isinstance(view, ClusterSettings):
            counts = parse_counts(entry.obj.get("status") or {})
            if uid not in self._counts or self._counts[uid][0] != counts:
                self._counts[uid] = (counts, entry.seen_at)
        else:
            view = observed(view, known and known.view, entry.seen_at)
            if self._registered.get(uid, (None, 0.0))[0] != view.epoch:
                self._registered[uid] = (view.epoch, self._clock())
        entry.view = view
        return True

    def _remember_epochs(self, view: TopicView) -> dict[int, tuple[int, int]]:
        """The highest epochs ever seen of each partition: an entry below them is not decided on as it is (S11).

        Of its topic id: under another one a restored store may have had the object placed anew, with epochs of its own.
        """
        ref = view.topic.ref
        placed = self._epochs_seen.setdefault(ref.uid, {})
        seen = dict(placed.get(ref.topic_id, {}))
        for number, entry in view.topic.partitions.items():
            before = seen.get(number, (-1, -1))
            seen[number] = (max(before[0], entry.leader_epoch), max(before[1], entry.partition_epoch))
        placed[ref.topic_id] = seen
        return seen

    # -- what goes out ------------------------------------------------------------------------------------------

    def raw(self, kind: Kind, uid: str) -> dict[str, Any] | None:
        """The newest known object with that uid."""
        entry = self._objects[kind.plural].get(uid)
        return entry.obj if entry is not None else None

    def topic_views(self) -> list[TopicView]:
        """All topics of all namespaces."""
        return [e.view for e in self._objects[TOPICS.plural].values() if isinstance(e.view, TopicView)]

    def topics_by_cluster(self) -> Mapping[ClusterKey, Mapping[str, TopicView]]:
        """All topics by the cluster that they name, whether it exists or not, and by uid."""
        if self._grouped is None:
            self._grouped = {}
            for view in self.topic_views():
                key = (view.topic.ref.namespace, view.spec.cluster)
                self._grouped.setdefault(key, {})[view.topic.ref.uid] = self._with_predecessor(view)
        return self._grouped

    def _with_predecessor(self, view: TopicView) -> TopicView:
        """A topic that is to be placed, with the brokers that may hold data of the one that was deleted before it."""
        key = (view.topic.ref.namespace, view.spec.cluster, view.spec.topic_name)
        if view.placed or key not in self._left:
            return view
        kept, brokers = self._left[key]
        return replace(view, left_by=brokers) if kept or view.adopt_strays else view

    def clusters(self) -> dict[ClusterKey, ClusterSettings]:
        """All clusters by (namespace, name)."""
        found = (e.view for e in self._objects[CLUSTERS.plural].values() if isinstance(e.view, ClusterSettings))
        return {(view.cluster.namespace, view.cluster.name): view for view in found}

    def brokers_of(self, key: ClusterKey) -> dict[int, Broker]:
        """The brokers of one cluster by id. An object of another name, a copy of one say, is nobody's."""
        found: dict[int, Broker] = {}
        for entry in self._objects[BROKERS.plural].values():
            view, metadata = entry.view, entry.obj["metadata"]
            if (metadata.get("namespace"), cluster_of_broker(entry.obj)) == key:
                assert view is not None
                assert not isinstance(view, (TopicView, ClusterSettings))
                if metadata.get("name") == broker_name(key[1], view.id):
                    found[view.id] = view
        return found

    def snapshot(
        self,
        key: ClusterKey,
        *,
        controller_epoch: int,
        observing_since: float | None,
        unheard_until: float = 0.0,
        balance_due: bool,
    ) -> Snapshot:
        """One cluster for `plan`."""
        settings = self.clusters()[key]
        entry = self._objects[CLUSTERS.plural][settings.cluster.uid]
        obj = entry.obj
        status = obj.get("status") or {}
        counts = status.get("brokers") or {}
        partitions, partitions_seen = self._counts[settings.cluster.uid]
        brokers = self.brokers_of(key)
        wanted, wanted_of_each = self._revision(settings)
        pods = self.pods.of(*key)
        resizing = self.resize_notes.of(settings.cluster.uid, wanted_of_each, pods.values())
        names = {broker_id: (key[0], broker_name(key[1], broker_id)) for broker_id in brokers}
        return Snapshot(
            cluster=settings.cluster,
            generation=int(obj["metadata"].get("generation", 0)),
            generation_seen=entry.generation_seen,
            observed_generation=int(status.get("observedGeneration", 0)),
            conditions=parse_conditions(status),
            bootstrap=str(status.get("bootstrap", "")),
            wanted_bootstrap=bootstrap_address(settings),
            brokers_ready=int(counts.get("ready", -1)),
            brokers_total=int(counts.get("total", -1)),
            partitions=partitions,
            partitions_seen=partitions_seen,
            topics=self.topics_by_cluster().get(key, {}),
            brokers=brokers,
            registered_at={i: self._registered[b.uid][1] for i, b in brokers.items() if b.uid in self._registered},
            leases={i: self.leases[name] for i, name in names.items() if name in self.leases},
            exits=self.pod_notes.exits_of(key),
            observing_since=observing_since,
            unheard_until=unheard_until,
            outdated=self._outdated(key),
            expiry_fences=tuple(self.expiry_fences.get(key, ())),
            brokers_age_s=self._age_s(BROKERS, key[0]),
            brokers_read_s=self._took_s(BROKERS, key[0]),
            clusters_age_s=self._age_s(CLUSTERS, key[0]),
            clusters_read_s=self._took_s(CLUSTERS, key[0]),
            controller_epoch=controller_epoch,
            balance_due=balance_due,
            pods=pods,
            revision=wanted,
            revision_served=self.served.get(settings.cluster.uid) == wanted,
            amounts=wanted_of_each,
            resize_refused=resizing.refused,
            resize_kept=resizing.kept,
            resize_had=resizing.had,
            resize_had_others=resizing.had_others,
            rolling=parse_rolling(Fields(status, "status")),
            storage_size=settings.storage_size,
            volumes=self.volumes.get(settings.cluster.uid, ()),
            claims_age_s=self._clock() - self._volumes_at.get(settings.cluster.uid, float("-inf")),
            nodes=self.nodes(),
            nodes_refused=settings.cluster.uid in self.nodes_refused,
            replacing=parse_replacing(Fields(status, "status")),
            complete=key[0] not in self._readings.unread.values(),
        )

    def _age_s(self, kind: Kind, namespace: str) -> float:
        return self._clock() - max(self._read_at.get((kind, where), NOT_LISTED) for where in (None, namespace))

    def _took_s(self, kind: Kind, namespace: str) -> float:
        return max(min(self._read_s.get((kind, where), (0.0,))) for where in (None, namespace))

    def _outdated(self, key: ClusterKey) -> frozenset[int]:
        """Brokers whose reports may be older than what they have to tell (S11)."""
        found: set[int] = set()
        for broker_id, broker in self.brokers_of(key).items():
            lease = self.leases.get((key[0], broker_name(key[1], broker_id)))
            incarnation = "" if broker.registration is None else broker.registration.incarnation
            seen_at = self._objects[BROKERS.plural][broker.uid].seen_at
            if outdated(incarnation=incarnation, seen_at=seen_at, went_back_at=self._went_back_at, lease=lease):
                found.add(broker_id)
        return frozenset(found)

    def _revision(self, settings: ClusterSettings) -> tuple[str, tuple[Amount, ...]]:
        """What pods of the cluster shall be made of; it is asked for in every round, and worked out once."""
        uid = settings.cluster.uid
        known = self._revisions.get(uid)
        if known is None or known[0] is not settings:
            known = self._revisions[uid] = (settings, revision(settings), wanted_amounts(settings))
        return known[1:]

    def note_volumes(self, uid: str, volumes: tuple[Volume, ...]) -> None:
        """The claims of a cluster's brokers, as just read."""
        self.volumes[uid] = volumes
        self._volumes_at[uid] = self._clock()

    def note_node(self, name: str, state: NodeState, since: str = "") -> None:
        """What was just read of a node. Who did not look for a while knows nothing of the time between."""
        now, before = self._clock(), self.nodes().get(name)
        unready_since = before.unready_since if before is not None and before.state is not NodeState.READY else now
        self._nodes[name] = (Node(state=state, unready_since=unready_since, since=since), now)

    def nodes(self) -> dict[str, Node]:
        """Nodes that were read a moment ago, by name."""
        self._nodes = {name: each for name, each in self._nodes.items() if self._clock() - each[1] < NODE_FRESH_S}
        return {name: node for name, (node, _) in self._nodes.items()}

    def note_expiry_fence(self, key: ClusterKey) -> None:
        """A broker was fenced by Lease expiry just now; the cap on fencing looks at these."""
        self.expiry_fences.setdefault(key, deque(maxlen=64)).append(self._clock())


def _uid(obj: Mapping[str, Any]) -> str:
    return str(obj["metadata"].get("uid", ""))
