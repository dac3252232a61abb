"""All invariants of one history, and what they look at."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from kafkalite_core.resources.naming import ANNOTATION_ELECT_UNCLEAN
from tests.simulation.oracles.bounds import Bounded
from tests.simulation.oracles.groups import GroupPromises
from tests.simulation.oracles.lease_justice import LeaseJustice
from tests.simulation.oracles.ledger import Ledger
from tests.simulation.oracles.metadata import MetadataIsHistory, PermittedElections
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

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkalite_core.membership.metadata_cache import CacheChange
    from kafkalite_core.model.cluster import Broker as BrokerObject
    from kafkalite_core.model.partition import TopicRef
    from tests.simulation.broker import Broker
    from tests.simulation.host import Host
    from tests.simulation.patching import Json
    from tests.simulation.platter import Mark, Tag
    from tests.simulation.swarm import Shape
    from tests.simulation.world import World


class Oracles:
    """See the module.

    Attributes:
        hosts: All machines by broker id.
        brokers: The brokers as the store has them.
    """

    def __init__(self, world: World, shape: Shape) -> None:
        self.world = world
        self.shape = shape
        self.hosts: dict[int, Host] = {}
        self.ledgers: dict[Tag, Ledger] = {}
        self.brokers: Mapping[int, BrokerObject] = MappingProxyType({})
        self.elections_seen = 0
        self.restored = False
        self.one_leader = OneLeader()
        self.log_matching = LogMatching()
        self.completeness = Completeness()
        self.superset = QuorumSuperset()
        self.durability = Durability()
        self.watermark = Watermark()
        self.sequences = Sequences()
        self.metadata = MetadataIsHistory()
        self.elections = PermittedElections()
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
        """A broker's process is gone."""
        self.metadata.forget(broker)

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
        self.restored = True
        topics = {topic.ref.topic_id: topic for topic in map(topic_of, objects["topics"].values())}
        for ledger in self.ledgers.values():
            topic = topics.get(ledger.tag[0])
            entry = None if topic is None else topic.partitions.get(ledger.number)
            if entry != ledger.entry or entry is None:
                newest = -1 if ledger.entry is None else ledger.entry.leader_epoch
                ledger.behind = max([newest, ledger.behind, *ledger.elected_at, *ledger.leaders])
            ledger.entry = entry

    def _broker_changed(self, new: Json) -> None:
        broker = broker_of(new)
        before = self.brokers.get(broker.id)
        if before == broker:
            return
        self.brokers = MappingProxyType({**self.brokers, broker.id: broker})
        registration = broker.registration
        if registration is None or (before is not None and before.epoch == broker.epoch):
            return
        host = self.hosts[broker.id]
        running = host.broker
        if running is not None and running.incarnation == registration.incarnation:
            host.forgot_unsynced = False
            if not running.started_undamaged:
                host.damaged = False
                self._remember_damage(broker.id)
        for ledger in self.ledgers.values():
            self.completeness.candidates(ledger, f"the registration of broker {broker.id} with epoch {broker.epoch}")

    def _remember_damage(self, broker_id: int) -> None:
        """What that disk had is gone, for every partition that counts on it."""
        for ledger in self.ledgers.values():
            if ledger.entry is not None and broker_id in ledger.entry.replicas:
                ledger.damaged = True

    def _topic_changed(self, old: Json | None, new: Json | None) -> None:
        before = None if old is None else topic_of(old)
        if new is None:
            if before is not None and before.ref.topic_id:
                for number in before.partitions:
                    ledger = self.ledger(before.ref, number)
                    ledger.entry = None
                    ledger.forfeited = True
            return
        after = topic_of(new)
        if not after.ref.topic_id:
            return
        assert new is not None
        consents = (old or new)["metadata"].get("annotations", {})
        # After a tightening the store says when all have flushed; a topic that was lost and taken over says nothing yet
        # of what was acknowledged before (S4).
        relaxed = after.flush_lag_known or config_of(replace(after, flush_lag_known=True)).relaxed_flush
        unclean = config_of(after).unclean_leader_election_enable or ANNOTATION_ELECT_UNCLEAN in consents
        for number, entry in after.partitions.items():
            known = None if before is None else before.partitions.get(number)
            ledger = self.ledger(after.ref, number)
            ledger.relaxed = relaxed
            if known == entry:
                continue
            self.metadata.stored(after.ref.uid, number, entry)
            if known is None:
                ledger.made_again()
            if entry.leader_epoch <= ledger.behind:
                ledger.entry = entry
                continue
            if known is not None and known.leader_epoch <= ledger.behind:
                known = None  # the first after the store went back in time
                ledger.elected_at[entry.leader_epoch] = ledger.committed_end
            self.one_leader.stored(ledger, known, entry)
            if known is None and old is not None and (ledger.forfeited or (ledger.relaxed and ledger.committed)):
                ledger.lossy = True  # deleted or lost, and made again of what was left of it
            self.elections.check(ledger, known, entry, unclean_allowed=unclean)
            ledger.entry = entry
            self.completeness.candidates(ledger, f"partition epoch {entry.partition_epoch}")
            self.superset.check(ledger, entry)
