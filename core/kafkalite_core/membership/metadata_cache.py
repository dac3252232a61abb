"""The metadata cache: topics and brokers as this process knows them (S12, threats 3 and 5).

Theorem: the state depends on the set of sightings, not on their order or number. Within one uid the entry of a
partition with the greatest partition epoch wins (every change raises it, R1), and the registration with the greatest
(broker epoch, state) wins; across uids the one that the server created later wins. A relist is a diff: what it lacks
is gone, and so is what it shows less of in a broker: then the store was restored (S11). So a stale or repeated event
can make the cache slow, never wrong.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Generic

from kafkalite_core.membership.holdings import Reports, memory_of
from kafkalite_core.membership.objects import Held, Objects, ObjectT, is_newer, version_number
from kafkalite_core.membership.registration_events import STATE_ORDER
from kafkalite_core.membership.went_back import moved, partitions_behind, surpassed

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from kafkalite_core.model.cluster import Broker, Registration
    from kafkalite_core.model.partition import Partition, Topic, TopicRef
    from kafkalite_core.model.topic import Holding

DELETIONS_KEPT = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting(Generic[ObjectT]):
    """A topic or broker as one answer of the API server showed it.

    Attributes:
        value: The parsed object.
        resource_version: `metadata.resourceVersion`.
        created: `metadata.creationTimestamp`, RFC 3339 in UTC; decides between two claims of one topic name.
    """

    value: ObjectT
    resource_version: str
    created: str = ""


@dataclass(slots=True)
class CacheChange:
    """What one event or list changed.

    Attributes:
        partitions: Partitions that came, went or changed, or whose topic's configuration did.
        brokers: Ids of brokers that came, went or changed.
        deleted: Topics that are gone; whether brokers may delete data on their account is S10's business.
        went_back: Topics of which a consistent list showed older epochs than are known, for the first time (S11).
        undecided: The list showed less of something that was learnt only after it had been asked for: another one
            has to tell.
    """

    partitions: set[tuple[TopicRef, int]] = field(default_factory=set)
    brokers: set[int] = field(default_factory=set)
    deleted: list[Topic] = field(default_factory=list)
    went_back: list[TopicRef] = field(default_factory=list)
    undecided: bool = False

    def __bool__(self) -> bool:
        return bool(self.partitions or self.brokers or self.deleted or self.went_back)


class MetadataCache:
    """Topics and brokers of one cluster in one namespace.

    Of two topics that claim one `topicName` the one with status wins, then the oldest; the other one is not visible.

    Attributes:
        unreadable: Uids of topics that are there, of any cluster, and that cannot be read. Who reads keeps them.
    """

    def __init__(self) -> None:
        self.unreadable: Collection[str] = ()
        self._topics: Objects[Topic] = Objects()
        self._brokers: Objects[Broker] = Objects()
        self._claims: dict[str, set[str]] = {}
        self._visible: dict[str, Topic] = {}
        self._by_id: dict[str, dict[str, Topic]] = {}
        self._broker_view: Mapping[int, Broker] = MappingProxyType({})
        self._deletions: dict[str, bool] = {}
        self._behind: dict[str, frozenset[int]] = {}
        """By uid: the partitions of which the last consistent list shows less than is known (S11)."""
        self._shown: dict[str, Topic] = {}
        """By uid: what the store shows of a topic of which it shows less than is known."""
        self._reports = Reports()
        self._marks = 0
        self._learnt: dict[str, dict[int, int]] = {}
        """By uid and partition: the number of marks when its entry was learnt."""
        self._brokers_learnt: dict[str, int] = {}
        """By uid: the number of marks when the registration or the fence of a broker was learnt."""

    # ------------------------------------------------------------------------------------------------ look-ups

    @property
    def brokers(self) -> Mapping[int, Broker]:
        """Every known broker by id: a snapshot that never changes, replaced by another one when a broker does."""
        return self._broker_view

    def topics(self) -> list[Topic]:
        """All visible topics in the order of their names; those without placement have no partitions."""
        return [self._visible[name] for name in sorted(self._visible)]

    def topic(self, name: str) -> Topic | None:
        """The topic of that name for Kafka clients."""
        return self._visible.get(name)

    def topic_by_id(self, topic_id: str) -> Topic | None:
        """The topic with that id (canonical UUID text)."""
        found = self._by_id.get(topic_id)
        return None if not found else found[min(found)]

    def topic_of(self, ref: TopicRef) -> Topic | None:
        """That very incarnation of a topic, or None when it is gone (S12)."""
        found = self._visible.get(ref.name)
        return found if found is not None and found.ref == ref else None

    def partition(self, ref: TopicRef, number: int) -> Partition | None:
        """The committed entry of a partition, or None when the partition (or that incarnation) is gone."""
        found = self.topic_of(ref)
        return None if found is None else found.partitions.get(number)

    def went_back(self, ref: TopicRef, number: int) -> bool:
        """The store shows less of a partition than is known, since a consistent list has said so (S11).

        It ends when the store shows epochs above all that is known here, or after all what was known.
        """
        return number in self._behind.get(ref.uid, ())

    def hosts(self, ref: TopicRef, number: int) -> tuple[int, ...]:
        """Who is to have a replica: those of the entry, of what the store shows of it if it went back in time, and the
        members of an ISR that some broker remembers and the store does not.

        The operator waits for the reports of all of them, who may have given their replicas away since, or know of
        nothing that speaks against it (S11).
        """
        entry = self.partition(ref, number)
        if entry is None:
            return ()
        shown = self._shown[ref.uid].partitions.get(number) if self.went_back(ref, number) else None
        named = self._reports.named(ref.topic_id, number, entry)
        return (*entry.replicas, *(shown.replicas if shown is not None else ()), *named)

    def remembered(self) -> list[Holding]:
        """What is known here of what the store shows less of, for a broker that has no replica of it (S11)."""
        behind = [(self._topics.get(uid), numbers) for uid, numbers in self._behind.items()]
        return [
            memory_of(held.value.ref, number, held.value.partitions[number])
            for held, numbers in behind
            if held is not None and self.topic_of(held.value.ref) is not None
            for number in numbers
        ]

    def asked_for(self) -> frozenset[str]:
        """Ids of topics of which the operator wants to know what brokers hold (S11)."""
        return frozenset(topic.ref.topic_id for topic in self._visible.values() if topic.store_went_back)

    def unplaced(self) -> list[str]:
        """Uids of topics that the store shows without a topic id: their place is to be found, perhaps by what brokers
        hold (S10), or once had (S11).
        """
        shown = (*self._visible.values(), *self._shown.values())
        return [topic.ref.uid for topic in shown if not topic.ref.topic_id]

    def flush_lags(self) -> list[Topic]:
        """Visible topics of which the status says that the disk was waited for no more until of late (S4), in the order
        of names.
        """
        lagging = (it for it in self._visible.values() if it.flush_lag_known and not it.flush_may_lag)
        return sorted(lagging, key=lambda it: it.ref.name)

    def delete_seen(self, ref: TopicRef) -> bool:
        """Whether an event told that this very topic was deleted; absence from a list is not such an event (S10)."""
        return self._deletions.get(ref.uid, False)

    # ------------------------------------------------------------------------------------------------- topics

    def mark(self) -> int:
        """To be called when a list is asked for: what is known by now, the list must show as well."""
        self._marks += 1
        return self._marks

    def list_topics(
        self, sightings: Iterable[Sighting[Topic]], *, unreadable: Iterable[str] = (), asked: int | None = None
    ) -> CacheChange:
        """A consistent list of all topics: what is not in it is gone.

        `unreadable` are uids of listed objects that could not be parsed: what is known of them stays.
        `asked` is the `mark` of the list; None: nothing was learnt since it was asked for.
        """
        change = CacheChange()
        shown = list(sightings)
        # First: the name of what is gone may belong to an older object again, if the store went back in time (S11).
        for uid in self._topics.uids_but({*unreadable, *(sighting.value.ref.uid for sighting in shown)}):
            self._forget_topic(uid, change, seen=False)
        for sighting in shown:
            topic = sighting.value
            self._topics.revive(topic.ref.uid)
            known = self._topics.get(topic.ref.uid)
            if known is not None:
                self._compare(known.value, topic, asked, change)
            self._see_topic(sighting, change, authoritative=True)
        return change

    def _compare(self, known: Topic, listed: Topic, asked: int | None, change: CacheChange) -> None:
        """Note the partitions of which the list shows less than was known when it was asked for (S11)."""
        before = self._behind.pop(known.ref.uid, frozenset())
        learnt = self._learnt.get(known.ref.uid, {})
        less = partitions_behind(known, listed)
        young = {number for number in less if asked is not None and learnt.get(number, 0) >= asked}
        behind = (less - young) | (young & before)
        change.undecided = change.undecided or bool(young - before)
        if behind:
            self._behind[known.ref.uid] = behind
            change.went_back += [] if before else [known.ref]
        change.partitions |= {(known.ref, number) for number in behind ^ before}

    def see_topic(self, sighting: Sighting[Topic]) -> CacheChange:
        """A topic as an event, a read or the answer to a write shows it."""
        change = CacheChange()
        self._see_topic(sighting, change, authoritative=False)
        return change

    def delete_topic(self, uid: str) -> CacheChange:
        """An event tells that the topic with that uid was deleted."""
        change = CacheChange()
        self._forget_topic(uid, change, seen=True)
        return change

    def _see_topic(self, sighting: Sighting[Topic], change: CacheChange, *, authoritative: bool) -> None:
        topic = sighting.value
        uid, version = topic.ref.uid, version_number(sighting.resource_version)
        known = self._topics.get(uid)
        if known is None:
            held = Held(topic.ref.object_name, uid, topic, version, sighting.created)
            admitted, namesake = self._topics.admit(held)
            if namesake is not None:
                self._withdraw(namesake, change, seen=False)
            if admitted:
                self._learn(topic, {})
                self._claims.setdefault(topic.ref.name, set()).add(uid)
                self._show(topic.ref.name, change)
            return
        newer = authoritative or is_newer(version, known.version)
        before, known.value = known.value, _merge_topics(known.value, topic, newer=newer)
        known.version = version if newer else known.version
        self._learn(known.value, before.partitions)
        behind = self._behind.pop(uid, frozenset())
        still = frozenset(number for number in behind if not surpassed(before, known.value, number))
        shown = self._shown.pop(uid, None)
        if still:
            self._behind[uid] = still
            now = self._shown[uid] = topic if newer or shown is None else shown
            change.partitions |= {(known.value.ref, n) for n in still if shown is None or moved(shown, now, n)}
        self._show(topic.ref.name, change)

    def _learn(self, topic: Topic, before: Mapping[int, Partition]) -> None:
        learnt = self._learnt.setdefault(topic.ref.uid, {})
        for number, entry in topic.partitions.items():
            if before.get(number) is not entry:
                learnt[number] = self._marks

    def _forget_topic(self, uid: str, change: CacheChange, *, seen: bool) -> None:
        held = self._topics.remove(uid)
        if held is not None:
            self._withdraw(held, change, seen=seen)

    def _withdraw(self, held: Held[Topic], change: CacheChange, *, seen: bool) -> None:
        change.deleted.append(held.value)
        self._behind.pop(held.uid, None)
        self._shown.pop(held.uid, None)
        self._learnt.pop(held.uid, None)
        self._deletions[held.uid] = seen
        while len(self._deletions) > DELETIONS_KEPT:
            del self._deletions[next(iter(self._deletions))]
        claims = self._claims[held.value.ref.name]
        claims.discard(held.uid)
        self._show(held.value.ref.name, change)
        if not claims:
            del self._claims[held.value.ref.name]

    def _show(self, name: str, change: CacheChange) -> None:
        """Choose which claim of a topic name is visible, and note what that changes."""
        claims = [held for uid in self._claims[name] if (held := self._topics.get(uid)) is not None]
        winner = min(claims, key=lambda held: (not held.value.partitions, held.created, held.uid), default=None)
        before, after = self._visible.get(name), None if winner is None else winner.value
        if before == after:
            return
        change.partitions |= _changed_partitions(before, after)
        if before is not None:
            self._by_id[before.ref.topic_id].pop(before.ref.name)
            if not self._by_id[before.ref.topic_id]:
                del self._by_id[before.ref.topic_id]
        if after is None:
            del self._visible[name]
            return
        self._visible[name] = after
        self._by_id.setdefault(after.ref.topic_id, {})[name] = after

    # ------------------------------------------------------------------------------------------------ brokers

    def list_brokers(
        self, sightings: Iterable[Sighting[Broker]], *, unreadable: Iterable[str] = (), asked: int | None = None
    ) -> CacheChange:
        """A consistent list of all brokers: what is not in it is gone; as `list_topics`.

        What it shows is what holds, also if more was known. A broker whose disk is new draws its epoch from the counter
        of a restored store: whoever went on to go by the later one of its former disk would refuse it for ever (S11).
        """
        change = CacheChange()
        shown = list(sightings)
        for uid in self._brokers.uids_but({*unreadable, *(sighting.value.uid for sighting in shown)}):
            self._forget_broker(uid, change)
        for sighting in shown:
            uid = sighting.value.uid
            self._brokers.revive(uid)
            young = asked is not None and self._brokers_learnt.get(uid, 0) >= asked
            self._see_broker(sighting, change, authoritative=not young)
            held = self._brokers.get(uid)
            change.undecided |= young and held is not None and _standing(held.value) != _standing(sighting.value)
        return change

    def see_broker(self, sighting: Sighting[Broker]) -> CacheChange:
        """A broker as an event, a read or the answer to a write shows it."""
        change = CacheChange()
        self._see_broker(sighting, change, authoritative=False)
        return change

    def delete_broker(self, uid: str) -> CacheChange:
        """The object with that uid is gone."""
        change = CacheChange()
        self._forget_broker(uid, change)
        return change

    def _see_broker(self, sighting: Sighting[Broker], change: CacheChange, *, authoritative: bool) -> None:
        broker = sighting.value
        version = version_number(sighting.resource_version)
        known = self._brokers.get(broker.uid)
        if known is None:
            held = Held(broker.object_name, broker.uid, broker, version, sighting.created)
            admitted, namesake = self._brokers.admit(held)
            if namesake is not None and namesake.value.id != broker.id:
                self._show_broker(namesake.value.id, None, change)
            if admitted:
                self._brokers_learnt[broker.uid] = self._marks
                self._show_broker(broker.id, broker, change)
            return
        newer = authoritative or is_newer(version, known.version)
        before = known.value
        known.value = broker if authoritative else _merge_brokers(before, broker, newer=newer)
        known.version = version if newer else known.version
        if _standing(known.value) != _standing(before):
            self._brokers_learnt[broker.uid] = self._marks
        self._show_broker(broker.id, known.value, change)

    def _forget_broker(self, uid: str, change: CacheChange) -> None:
        held = self._brokers.remove(uid)
        self._brokers_learnt.pop(uid, None)
        if held is not None:
            self._show_broker(held.value.id, None, change)

    def _show_broker(self, broker_id: int, broker: Broker | None, change: CacheChange) -> None:
        if self._broker_view.get(broker_id) == broker:
            return
        change.brokers.add(broker_id)
        view = {known: value for known, value in self._broker_view.items() if known != broker_id}
        if broker is not None:
            view[broker_id] = broker
        self._broker_view = MappingProxyType(view)
        for topic_id, number in self._reports.take(broker_id, () if broker is None else broker.holdings):
            topic = self.topic_by_id(topic_id)
            if topic is not None:
                change.partitions.add((topic.ref, number))


def _merge_topics(known: Topic, seen: Topic, *, newer: bool) -> Topic:
    """Both sightings of one uid in one: the greatest epoch wins for each partition, the newer copy for the rest."""
    if known.ref.topic_id and seen.ref.topic_id and known.ref.topic_id != seen.ref.topic_id:
        return seen if newer else known
    base = seen if newer else known
    ref = base.ref if base.ref.topic_id else (known.ref if known.ref.topic_id else seen.ref)
    partitions = dict(known.partitions)
    for number, entry in seen.partitions.items():
        current = partitions.get(number)
        if current is None or entry.partition_epoch > current.partition_epoch:
            partitions[number] = entry
    return replace(
        base,
        ref=ref,
        partitions=partitions,
        controller_epoch=max(known.controller_epoch, seen.controller_epoch),
        deleting=known.deleting or seen.deleting,
    )


def _merge_brokers(known: Broker, seen: Broker, *, newer: bool) -> Broker:
    """Both sightings of one uid in one: epochs never go back, the newer copy decides the rest."""
    base = seen if newer else known
    registration = max(known.registration, seen.registration, key=_registration_order)
    return replace(base, registration=registration, fenced_epoch=max(known.fenced_epoch, seen.fenced_epoch))


def _standing(broker: Broker) -> tuple[Registration | None, int]:
    """What the broker and the operator have said of it: every change of that has its order."""
    return broker.registration, broker.fenced_epoch


def _registration_order(registration: Registration | None) -> tuple[int, int]:
    if registration is None:
        return (-1, 0)
    return (registration.broker_epoch, STATE_ORDER.index(registration.state))


def _changed_partitions(before: Topic | None, after: Topic | None) -> set[tuple[TopicRef, int]]:
    if before is None or after is None or _is_another(before, after):
        return {(topic.ref, number) for topic in (before, after) if topic is not None for number in topic.partitions}
    return {
        (after.ref, number)
        for number in before.partitions.keys() | after.partitions.keys()
        if before.partitions.get(number) != after.partitions.get(number)
    }


def _is_another(before: Topic, after: Topic) -> bool:
    """What all its partitions go by is different."""
    return _governing(before) != _governing(after)


def _governing(topic: Topic) -> tuple[object, ...]:
    return topic.ref, topic.config, topic.flush_lag_known, topic.flush_may_lag
