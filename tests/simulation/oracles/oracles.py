"""All invariants of one history, and what they look at."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from kafkalite_core.resources.naming import ANNOTATION_ELECT_UNCLEAN, ANNOTATION_RECOVER_STORE
from tests.simulation.oracles.bounds import Bounded
from tests.simulation.oracles.epochs import EpochsOnce
from tests.simulation.oracles.groups import GroupPromises
from tests.simulation.oracles.lease_justice import LeaseJustice
from tests.simulation.oracles.ledger import Ledger
from tests.simulation.oracles.metadata import MetadataIsHistory, PermittedElections
from tests.simulation.oracles.order import ProducerOrder, ReadOrder
from tests.simulation.oracles.removal import Removals
from tests.simulation.oracles.safety import (
    Completeness,
    Durability,
    LogMatching,
    OneLeader,
    QuorumSuperset,
    Sequences,
    Watermark,
)
from tests.simulation.parsed import broker_of, topic_of
from tests.simulation.partitions import config_of
from tests.simulation.world import Violation

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkalite_core.membership.metadata_cache import CacheChange
    from kafkalite_core.model.cluster import Broker as BrokerObject
    from kafkalite_core.model.partition import Partition, Topic, TopicRef
    from tests.simulation.broker import Broker
    from tests.simulation.driver import Driver
    from tests.simulation.host import Host
    from tests.simulation.patching import Json
    from tests.simulation.platter import Mark, Tag
    from tests.simulation.swarm import Shape
    from tests.simulation.world import World


STRAYS_STAY = "what may be adopted stays"


class Oracles:
    """See the module.

    Attributes:
        hosts: All machines by broker id.
        brokers: The brokers as the store has them.
        decided_on: The brokers as an operator knew them when it decided last.
    """

    def __init__(self, world: World, shape: Shape) -> None:
        self.world = world
        self.shape = shape
        self.hosts: dict[int, Host] = {}
        self.ledgers: dict[Tag, Ledger] = {}
        self._leaving: dict[int, dict[Tag, set[str]]] = {}
        self.brokers: Mapping[int, BrokerObject] = MappingProxyType({})
        self.decided_on: Mapping[int, BrokerObject] = MappingProxyType({})
        self.elections_seen = 0
        self.one_leader = OneLeader()
        self.log_matching = LogMatching()
        self.completeness = Completeness()
        self.superset = QuorumSuperset()
        self.durability = Durability()
        self.watermark = Watermark()
        self.sequences = Sequences()
        self.order = ProducerOrder()
        self.read_order = ReadOrder()
        self.metadata = MetadataIsHistory()
        self.elections = PermittedElections()
        self.epochs = EpochsOnce()
        self.justice = LeaseJustice()
        self.removal = Removals()
        self.groups = GroupPromises()
        self.bounded = Bounded()

    def ledger(self, ref: TopicRef, number: int) -> Ledger:
        """The truth about one partition of one incarnation of a topic's data."""
        found = self.ledgers.get((ref.topic_id, number))
        if found is None:
            found = self.ledgers[ref.topic_id, number] = Ledger(self, ref, number)
        return found

    def batch_written(self, tag: Tag, mark: Mark) -> None:
        """Some disk took a batch."""
        ledger = self.ledgers.get(tag)
        if ledger is not None:
            ledger.wrote(mark)

    def cache_changed(self, broker: Broker, change: CacheChange) -> None:
        """A broker's metadata changed."""
        if change.partitions:
            self.metadata.check(broker, change.partitions)

    def process_ended(self, broker: Broker) -> None:
        """A broker's process is gone; what that does to its disk comes later."""
        for ledger in self.ledgers.values():
            ledger.process_ended(broker)
        self.metadata.forget(broker)
        self._leaving.pop(broker.host.id, None)

    def strays_leave(self, broker_id: int, leaving: dict[Tag, set[str]]) -> None:
        """Directories there, by partition, that are set aside and no more to be adopted: they are about to be removed."""
        self._leaving[broker_id] = leaving
        for tag in leaving:
            ledger = self.ledgers.get(tag)
            if ledger is not None:
                ledger.strays_leave({number: known.get(tag, set()) for number, known in self._leaving.items()})

    def stray_removed(self, broker_id: int, tag: Tag) -> None:
        """A log of that partition that was set aside is removed, by age or from a full disk. Raises `Violation`."""
        ledger, broker = self.ledgers.get(tag), self.brokers.get(broker_id)
        if ledger is None:
            return
        if self.hosts[broker_id].disk.of(tag):
            return  # there is another one
        ledger.unlisted.discard(broker_id)
        if broker is not None and any((stray.topic_id, stray.partition) == tag for stray in broker.strays):
            raise Violation(STRAYS_STAY, f"{ledger}: broker {broker_id} has removed it, and lists it")
        entry = ledger.entry
        members = () if entry is None else (*entry.isr, *entry.elr)
        # Where no operator relied on it, who made the partition again had it begin empty (seed 36944).
        if any(member.id == broker_id and ledger.named.get(member, True) for member in members):
            raise Violation(STRAYS_STAY, f"{ledger}: broker {broker_id} has removed it, and {ledger.entry}")

    # ------------------------------------------------------------------------------------------------ the store

    def store_changed(self, kind: str, old: Json | None, new: Json | None) -> None:
        """The API server accepted a change."""
        if kind == "topics":
            self._topic_changed(old, new)
        elif kind == "brokers" and new is not None:
            self._broker_changed(new)
        elif kind == "brokers" and old is not None:
            gone = broker_of(old).id
            self.brokers = MappingProxyType({i: broker for i, broker in self.brokers.items() if i != gone})

    def store_restored(self, objects: Mapping[str, Mapping[str, Json]]) -> None:
        """The store went back in time (S11)."""
        brokers = [broker_of(obj) for obj in objects["brokers"].values()]
        self.brokers = MappingProxyType({broker.id: broker for broker in brokers})
        self.metadata.store_restored()
        for host in self.hosts.values():
            found = self.brokers.get(host.id)
            host.untold(-1 if found is None else found.epoch)
        topics = {topic.ref.topic_id: topic for topic in map(topic_of, objects["topics"].values())}
        placed = {topic.ref.name: topic.ref.topic_id for topic in map(topic_of, objects["topics"].values())}
        for ledger in self.ledgers.values():
            ledger.superseded |= placed.get(ledger.topic, ledger.tag[0]) != ledger.tag[0]
            topic = topics.get(ledger.tag[0])
            entry = None if topic is None else topic.partitions.get(ledger.number)
            if entry != ledger.entry or entry is None:
                ledger.behind = ledger.newest
                ledger.past.restored(entry)
            ledger.entry = entry

    def _goes_on(
        self, ledger: Ledger, uid: str, known: Partition | None, entry: Partition, *, consent: bool = False
    ) -> bool:
        """Whether the entry is to be judged, after the store went back in time (S11).

        If somebody knows more than the entry before it showed, in memory or on a disk, it is if it is above all that
        is known: then it is a recovery, which loses nothing. If nobody does, nobody can tell that there had been more:
        the history goes on like any other, without what was lost with the store. A replica that was shown another entry
        than it knows, with the same epochs, can tell as well, until it is shown one above them.
        """
        disks, memory = ledger.on_disks(), self.metadata.remembered(uid, ledger.number)
        epochs = max(disks[0], memory[0]), max(disks[1], memory[1])
        noticed = known is not None and (known.leader_epoch < epochs[0] or known.partition_epoch < epochs[1])
        above = entry.leader_epoch > epochs[0] and entry.partition_epoch > epochs[1]
        if not above and (noticed or self._is_contradicted(ledger)):
            ledger.behind = ledger.newest
            ledger.past.stored(known, entry)
            if entry.leader_epoch > epochs[0]:
                ledger.forget(epochs[0])  # a leader epoch that nobody knows, and that comes again with this entry
            return False
        if noticed:
            ledger.past.recovered(entry, self.elections.recovered(ledger, entry))
            if consent:
                ledger.may_lose(entry.leader_epoch)
        else:
            ledger.may_lose(entry.leader_epoch)
            ledger.unnoticed = True
        ledger.forget(epochs[0])
        ledger.behind = (-1, -1)
        ledger.elected_at[entry.leader_epoch] = ledger.committed_end
        driver = self._leading(ledger, entry)
        if driver is not None:
            self.completeness.leader(ledger, driver)  # by an entry that nobody could doubt, before this one
        if not noticed:
            ledger.past.kept(entry.leader_epoch)
        return True

    def _knows_more(self, ledger: Ledger, topic: Topic, entry: Partition) -> bool:
        """Whether somebody knows as much as this entry of a partition, or more, in memory or on a disk (S11)."""
        disks, memory = ledger.on_disks(), self.metadata.remembered(topic.ref.uid, ledger.number)
        epochs = max(disks[0], memory[0]), max(disks[1], memory[1])
        return self.metadata.restored and (entry.leader_epoch <= epochs[0] or entry.partition_epoch <= epochs[1])

    def _is_contradicted(self, ledger: Ledger) -> bool:
        """Whether a replica stands still since it knows another history than the store shows."""
        brokers = [host.broker for host in self.hosts.values() if host.broker is not None]
        drivers = [broker.driver(ledger.topic, ledger.number) for broker in brokers]
        mine = [driver for driver in drivers if driver is not None and driver.ref.topic_id == ledger.tag[0]]
        return any(driver.replica.store_went_back for driver in mine)

    def _leading(self, ledger: Ledger, entry: Partition) -> Driver | None:
        """Who leads in the epoch of that entry already."""
        host = self.hosts.get(entry.leader)
        driver = None if host is None or host.broker is None else host.broker.driver(ledger.topic, ledger.number)
        if driver is None or driver.ref.topic_id != ledger.tag[0]:
            return None  # it may serve another topic of that name still
        return driver if driver.replica.leader_epoch == entry.leader_epoch else None

    def _broker_changed(self, new: Json) -> None:
        broker = broker_of(new)
        before = self.brokers.get(broker.id)
        if before == broker:
            return
        self.brokers = MappingProxyType({**self.brokers, broker.id: broker})
        self.elections.reported(broker)
        registration = broker.registration
        if registration is None or (before is not None and before.epoch == broker.epoch):
            return
        host = self.hosts[broker.id]
        running = host.broker
        if running is not None and running.incarnation == registration.incarnation:
            host.told(broker.epoch)
            if not running.started_undamaged:
                host.damaged = False
            # A store that went back may know of an earlier disk than the broker has lived on since.
            known = None if before is None else before.registration
            if not running.started_undamaged or (known is not None and known.directory_id != registration.directory_id):
                self._remember_damage(broker.id)
        for ledger in self.ledgers.values():
            self.completeness.candidates(ledger, f"the registration of broker {broker.id} with epoch {broker.epoch}")

    @staticmethod
    def _wanted_min_isr(ledger: Ledger, spec: Json, entry: Partition) -> None:
        """The min ISR of an entry is one that the user has wanted, cut to the number of replicas (S4)."""
        wanted = int(spec["config"].get("min.insync.replicas", "1"))
        ledger.min_isrs |= {min(wanted, count) for count in (len(entry.replicas), spec["replicas"])}
        if entry.min_isr < min(ledger.min_isrs):
            raise Violation("min ISR is the user's", f"{ledger}: {entry}, and {sorted(ledger.min_isrs)} were wanted")

    def _remember_damage(self, broker_id: int) -> None:
        """What that disk had is gone, for every partition that counts on it."""
        for ledger in self.ledgers.values():
            if ledger.entry is not None and broker_id in ledger.entry.replicas:
                ledger.damaged = True

    def placed_on_a_lost_disk(self, entry: Partition) -> bool:
        """Whether a new partition counts on a disk whose loss was told already: who placed it did not know yet, and it
        was stored after that. Nobody but a person can say that nothing was on it.
        """
        return any(self.hosts[member.id].damage_told > member.epoch for member in entry.isr)

    def _passed_over(self, ref: TopicRef) -> None:
        """Of several topics of one name whose data are still there, one is taken over (S10).

        Who wants data back of a name that he had deleted before gets those with the highest leader epoch, and the
        others are given up; where none was deleted there is but one to choose.
        """
        named = [ledger for ledger in self.ledgers.values() if ledger.topic == ref.name]
        if any(ledger.tag[0] == ref.topic_id and ledger.forfeited for ledger in named):
            for ledger in named:
                ledger.forfeited = ledger.forfeited or ledger.tag[0] != ref.topic_id

    def _topic_changed(self, old: Json | None, new: Json | None) -> None:
        before = None if old is None else topic_of(old)
        if new is None:
            if before is not None and before.ref.topic_id:
                for number in before.partitions:
                    ledger = self.ledger(before.ref, number)
                    ledger.last, ledger.entry = ledger.entry, None
                    ledger.forfeited = True
            return
        after = topic_of(new)
        if not after.ref.topic_id:
            return
        assert new is not None
        if before is None or not before.ref.topic_id:
            self._passed_over(after.ref)
        consents = (old or new)["metadata"].get("annotations", {})
        # After a tightening the store says when all have flushed; a topic that was lost and taken over says nothing yet
        # of what was acknowledged before (S4).
        relaxed = after.flush_lag_known or config_of(replace(after, flush_may_lag=True)).relaxed_flush
        unclean = config_of(after).unclean_leader_election_enable or ANNOTATION_ELECT_UNCLEAN in consents
        for number, entry in after.partitions.items():
            known = None if before is None else before.partitions.get(number)
            ledger = self.ledger(after.ref, number)
            recover = ANNOTATION_RECOVER_STORE in consents and ledger.damaged
            was_relaxed, ledger.relaxed = ledger.relaxed, relaxed
            ledger.lag_known = relaxed and (before is None or before.flush_lag_known)
            self._wanted_min_isr(ledger, new["spec"], entry)
            if known == entry:
                continue
            ledger.damaged |= known is None and self.placed_on_a_lost_disk(entry)
            self.epochs.landed(ledger, after.ref.uid, entry)
            self.metadata.stored(after.ref, number, entry)
            if known is None and before is not None and before.partitions and self._knows_more(ledger, after, entry):
                # The store went back to before this partition was added, and it was added again as if it had not been.
                ledger.stored(entry)
                ledger.behind, ledger.entry = ledger.newest, entry
                continue
            if known is None:
                ledger.made_again()
            ledger.stored(entry)
            if ledger.is_behind(known) or ledger.is_behind(entry):
                if not self._goes_on(ledger, after.ref.uid, known, entry, consent=recover):
                    ledger.entry = entry
                    continue
                known = None
            self.one_leader.stored(ledger, known, entry)
            loose = (relaxed or was_relaxed or recover or ledger.losses or ledger.destroyed) and ledger.committed
            if known is None and old is not None and (ledger.forfeited or loose):
                ledger.may_lose(entry.leader_epoch)  # deleted or lost, and made again of what was left of it
            if known is not None and self.metadata.forgotten(after.ref, number, known, entry):
                self.elections.recovered(ledger, entry)
                known = None
                if recover:
                    ledger.may_lose(entry.leader_epoch)
            self.elections.check(ledger, known, entry, unclean_allowed=unclean)
            ledger.entry = entry
            self.completeness.candidates(ledger, f"partition epoch {entry.partition_epoch}")
            self.superset.stored(ledger, entry)
