"""A broker's link to the API server: watches, metadata cache, registration."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkalite_core.membership.flushed import FlushedTopics
from kafkalite_core.membership.metadata_cache import MetadataCache
from kafkalite_core.membership.notice import Notice
from tests.simulation.api import Outcome
from tests.simulation.parsed import broker_sighting, cluster_of, topic_sighting
from tests.simulation.reflector import Reflector

if TYPE_CHECKING:
    from kafkalite_core.membership.metadata_cache import CacheChange
    from kafkalite_core.model.cluster import Cluster
    from kafkalite_core.model.partition import TopicRef
    from kafkalite_core.storage.log import Log
    from tests.simulation.broker import Broker
    from tests.simulation.patching import Json


class Link:
    """See the module."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.cache = MetadataCache()
        self.notice = Notice()
        self.flushed = FlushedTopics()
        self.topics_looked_at_ms = float("-inf")
        self._looking = False
        self.cluster: Cluster | None = None
        self._asked = self._asked_brokers = 0
        self._reflectors = [
            Reflector(
                broker.world, broker.network, broker.api, broker.host.name, broker.process, kind, on_list, on_event,
                broker.chance, on_ask,
            )
            for kind, on_list, on_event, on_ask in (
                ("clusters", self._list_clusters, self._cluster_event, lambda: None),
                ("brokers", self._list_brokers, self._broker_event, self._ask_brokers),
                ("topics", self._list_topics, self._topic_event, self._ask_topics),
            )
        ]  # fmt: skip

    def start(self) -> None:
        """Begin to watch."""
        for reflector in self._reflectors:
            reflector.start()

    @property
    def synced(self) -> bool:
        """Every kind was listed once, and the cluster has its id."""
        return (
            all(reflector.synced for reflector in self._reflectors)
            and self.cluster is not None
            and bool(self.cluster.cluster_id)
        )

    def unlisted_ms(self, topic_id: str, partition: int) -> float:
        """For how long the API server is known not to list that stray of this broker; 0 out of contact."""
        registrar = self._broker.registrar
        if registrar is None or not all(reflector.alive for reflector in self._reflectors):
            return 0.0
        return registrar.listing.unlisted_ms(topic_id, partition, self._broker.mono_ms())

    def look_at_notice(self) -> None:
        """Say which topics without a place are noticed, if the store has all that this broker lists (S10)."""
        broker, registrar = self._broker, self._broker.registrar
        told = registrar is not None and registrar.tells_all
        self.notice.look(self.cache, tells_all=told and not broker.logs.unclaimed())

    def look_at_flushed(self) -> None:
        """Say of which topics a tightened flush was caught up with (S4). The topics here have configurations of their own."""
        broker = self._broker
        if self.cluster is None or broker.partitions is None:
            return

        def log_of(ref: TopicRef, number: int) -> Log | None:
            driver = broker.partitions.drivers.get((ref.name, number))
            return driver.log if driver is not None and driver.ref == ref else None

        self.flushed.look(
            self.cache, broker.host.id, broker_config={}, generation=self.cluster.generation, log_of=log_of
        )

    def look_at_topics(self) -> None:
        """List them anew: a watch may be late."""
        if self._looking:
            return
        self._looking = True
        asked_ms = self._broker.mono_ms()

        def listed(outcome: Outcome, result: Any) -> None:
            self._looking = False
            if outcome is not Outcome.OK:
                return
            for found in result[0]:
                self.absorb_topic(found)
            self.topics_looked_at_ms = asked_ms

        self._broker.call("list", "topics", answer=listed)

    def knows_of_the_restore(self) -> bool:
        """Everything was listed since the store went back in time, if it ever did (S11)."""
        return all(reflector.has_listed_in(self._broker.api.era) for reflector in self._reflectors)

    # ------------------------------------------------------------------------------------------------ topics

    def absorb_topic(self, found: Json) -> None:
        """A topic as the API server returned it."""
        self._publish(self.cache.see_topic(topic_sighting(found)))

    def _ask_topics(self) -> None:
        self._asked = self.cache.mark()

    def _list_topics(self, items: list[Json], _version: int) -> bool:
        change = self.cache.list_topics([topic_sighting(item) for item in items], asked=self._asked)
        self._publish(change)
        return change.undecided

    def _topic_event(self, event: str, found: Json) -> None:
        if event == "DELETED":
            self._publish(self.cache.delete_topic(found["metadata"]["uid"]))
        else:
            self.absorb_topic(found)

    # ------------------------------------------------------------------------------------------------ brokers

    def absorb_broker(self, found: Json) -> None:
        """A broker as the API server returned it."""
        self._publish(self.cache.see_broker(broker_sighting(found)))

    def _ask_brokers(self) -> None:
        self._asked_brokers = self.cache.mark()

    def _list_brokers(self, items: list[Json], _version: int) -> bool:
        sightings = [broker_sighting(item) for item in items]
        change = self.cache.list_brokers(sightings, asked=self._asked_brokers)
        self._publish(change)
        registrar = self._broker.registrar
        if registrar is not None:
            own = [sighting.value for sighting in sightings if sighting.value.id == self._broker.host.id]
            registrar.seen(own[0] if own else None)
        return change.undecided

    def _broker_event(self, event: str, found: Json) -> None:
        registrar = self._broker.registrar
        own = registrar is not None and found["metadata"]["name"] == self._broker.host.object_name
        if event == "DELETED":
            self._publish(self.cache.delete_broker(found["metadata"]["uid"]))
            if own and registrar is not None:
                registrar.seen(None)
            return
        sighting = broker_sighting(found)
        self._publish(self.cache.see_broker(sighting))
        if own and registrar is not None:
            registrar.seen(sighting.value)

    # ------------------------------------------------------------------------------------------------ clusters

    def _list_clusters(self, items: list[Json], _version: int) -> None:
        for found in items:
            self.cluster = cluster_of(found)
        self._broker.link_moved()

    def _cluster_event(self, event: str, found: Json) -> None:
        if event != "DELETED":
            self.cluster = cluster_of(found)
            self._broker.link_moved()

    def _publish(self, change: CacheChange) -> None:
        broker = self._broker
        broker.oracles.cache_changed(broker, change)
        # Brokers first: an election names epochs that only the brokers' registrations explain.
        if change.brokers:
            broker.brokers_changed()
        if change.partitions:
            broker.partitions_changed(change.partitions)
        if change.deleted:
            broker.topics_gone(change.deleted)
        broker.link_moved()
