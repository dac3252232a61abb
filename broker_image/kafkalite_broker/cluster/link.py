"""The broker's link to the Kubernetes API: watches, metadata cache, registration.

The data plane never waits for it: an outage of the API server, however long, leaves the cache as it is, ends nothing
and costs a jittered attempt every two seconds (threat 6).
"""

from __future__ import annotations

import asyncio
import math
import random
from time import monotonic
from typing import TYPE_CHECKING, Any

from kafkalite_broker.background import nobody, watch
from kafkalite_broker.cluster.registrar import Registrar
from kafkalite_broker.cluster.sightings import readers_for, sighting, sort, uid_of
from kafkalite_broker.cluster.topic_changes import TopicChanges
from kafkalite_core.membership.flushed import FlushedTopics
from kafkalite_core.membership.metadata_cache import CacheChange, MetadataCache
from kafkalite_core.membership.notice import Notice
from kafkalite_core.model.cluster import BrokerState
from kafkalite_core.resources.brokers import cluster_of_broker, parse_broker
from kafkalite_core.resources.clusters import parse_cluster
from kafkalite_core.resources.naming import broker_name
from kafkalite_core.resources.topics import parse_topic
from kafkalite_runtime.kube import BROKERS, CLUSTERS, TOPICS, KubeError, KubeUnavailable, Reflector
from kafkalite_runtime.logging import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kafkalite_broker.cluster.settings import BrokerSettings
    from kafkalite_core.membership.metadata_cache import Sighting
    from kafkalite_core.membership.registration import Identity
    from kafkalite_core.model.cluster import Broker, Cluster, Registration
    from kafkalite_core.model.partition import Topic, TopicRef
    from kafkalite_core.model.topic import Holding, Stray
    from kafkalite_runtime.kube import Kind, KubeClient

SILENCE_LIMIT_S = 10.0
"""A watch without event or bookmark for so long is dead (threat 5)."""

CONTACT_AGE_MAX_S = SILENCE_LIMIT_S + 2.0  # older contact says nothing of what the API server shows by now

STATE_DEADLINE_S = 5.0
REBIRTH_PAUSE_S = 2.0

log = get_logger(__name__)


def _ignore(*_args: object) -> None:
    """Nobody asked to be told."""


class ClusterLink:
    """See the module. All callbacks run on the event loop and must not block.

    Args:
        client: Of the main loop; closed by its owner.
        settings: Of this broker.
        on_partitions_changed: Told which partitions came, went or changed, by incarnation of the topic and number.
        on_brokers_changed: Some broker registered, was fenced or changed its state.
        on_topics_gone: Told topics that the cache no longer has; the cache knows whether a deletion was seen (S10).
        on_registered: Told every new broker epoch of this broker.
        on_superseded: Told why this process must end (R8).
        on_failed: Told the exception that ended a watch or the registration, a defect: the process is to end.
        on_cluster_changed: The `KafkaLiteCluster` changed.

    Attributes:
        cache: Topics and brokers of the cluster.
        notice: Topics without a place that this broker has noticed; safe to read in any thread.
        flushed: Topics whose tightened flush it has caught up with; safe to read in any thread.
        cluster: The cluster as last seen, None before the first list.
        changes: Wakes those who wait for the cache, or the cluster, to show something.
    """

    def __init__(
        self,
        client: KubeClient,
        settings: BrokerSettings,
        *,
        on_partitions_changed: Callable[[set[tuple[TopicRef, int]]], None] = _ignore,
        on_brokers_changed: Callable[[], None] = _ignore,
        on_topics_gone: Callable[[list[Topic]], None] = _ignore,
        on_registered: Callable[[int], None] = _ignore,
        on_superseded: Callable[[str], None] = _ignore,
        on_failed: Callable[[BaseException], None] = nobody,
        on_cluster_changed: Callable[[Cluster], None] = _ignore,
        silence_limit_s: float = SILENCE_LIMIT_S,
    ) -> None:
        self._client = client
        self._settings = settings
        self._on_partitions_changed = on_partitions_changed
        self._on_brokers_changed = on_brokers_changed
        self._on_topics_gone = on_topics_gone
        self._on_registered = on_registered
        self._on_superseded = on_superseded
        self._on_failed = on_failed
        self._on_cluster_changed = on_cluster_changed
        self._cluster_known = asyncio.Event()
        self._registrar: Registrar | None = None
        self._strays: tuple[Stray, ...] = ()
        self._strays_unlisted = 0
        self.holdings: Callable[[], tuple[Holding, ...]] = tuple
        """What this broker holds of partitions of which the store shows too little; none before it has logs."""
        self._tasks: list[asyncio.Task[None]] = []
        self.cache = MetadataCache()
        self._readers = readers_for(self.cache)
        self.notice = Notice()
        self.flushed = FlushedTopics()
        self.topics_looked_at_s = float("-inf")
        """When a consistent list of the topics was last asked for that the cache has taken in; monotonic."""
        self._looking: asyncio.Task[None] | None = None
        self._asked: dict[str, int] = {}
        self.cluster: Cluster | None = None
        self.changes = TopicChanges()
        self._silence_limit_s = silence_limit_s
        self._reflectors: dict[str, Reflector] = {}
        self._synced = {kind.plural: asyncio.Event() for kind in (CLUSTERS, BROKERS, TOPICS)}

    # --------------------------------------------------------------------------------------------- life cycle

    async def start(self) -> None:
        """Begin to watch; returns at once. Wait for `synced` before answering anything from the cache."""
        self._spawn(self._watch(CLUSTERS, self._list_clusters, self._cluster_event), "watch clusters")
        self._spawn(self._watch(BROKERS, self._list_brokers, self._broker_event), "watch brokers")
        self._spawn(self._watch(TOPICS, self._list_topics, self._topic_event), "watch topics")

    async def synced(self) -> None:
        """Wait for the first consistent list of topics, brokers and clusters; an outage makes it wait."""
        for event in self._synced.values():
            await event.wait()

    async def cluster_id_known(self) -> str:
        """Wait until the operator has given the cluster an id; that id.

        A cluster that is deleted and made again meanwhile has none again for a moment.
        """
        while not self.cluster_id:
            await self._cluster_known.wait()
        return self.cluster_id

    async def register(self, identity: Identity, *, state: BrokerState = BrokerState.CATCHING_UP) -> None:
        """Begin to register (S6); returns at once. `on_registered` is called with each new broker epoch.

        To be called once the data directory is locked and recovered: the registration says whether it lost anything.
        """
        assert self._registrar is None, "a process registers one identity"
        self._registrar = Registrar(
            self._client,
            self._settings,
            identity,
            state=state,
            strays=self._strays,
            strays_unlisted=self._strays_unlisted,
            holdings=self._held,
            lease_duration_s=self._lease_duration_s,
            absorb=self.absorb_broker,
            catch_up=self._catch_up,
            on_registered=self._on_registered,
            on_superseded=self._on_superseded,
        )
        self._spawn(self._registrar.run(), "registration")
        self._spawn(self._registrar.watch_predecessor(), "watch predecessor")

    def _lease_duration_s(self) -> float:
        """Endless while the cluster is not known: nobody is overdue then."""
        return math.inf if self.cluster is None else self.cluster.lease_duration_s

    async def set_state(self, state: BrokerState, *, deadline_s: float = STATE_DEADLINE_S) -> bool:
        """Say which state the broker is in; Running is said only once the metadata have caught up (R15).

        Returns:
            Whether the API server confirmed it in time; otherwise it is still being tried in the background.
        """
        assert self._registrar is not None, "register first"
        return await self._registrar.want_state(state, deadline_s=deadline_s)

    def report_strays(self, strays: Sequence[Stray], unlisted: int = 0) -> None:
        """List the directories that no topic claims in this broker's status, in the background (S10).

        `unlisted`: how many more there are that were not given up.
        """
        self._strays, self._strays_unlisted = tuple(strays), unlisted
        if self._registrar is not None:
            self._registrar.want_strays(self._strays, unlisted)

    def unlisted_ms(self, topic_id: str, partition: int) -> float:
        """For how long the API server is known not to list that stray; 0 out of contact, when others may change it."""
        if self._registrar is None or self.contact_age_s() > CONTACT_AGE_MAX_S:
            return 0.0
        return self._registrar.listing.unlisted_ms(topic_id, partition, monotonic() * 1000.0)

    def look_at_notice(self, *, all_set_aside: bool) -> None:
        """Say which topics without a place are noticed, if the store has all that this broker lists (S10).

        `all_set_aside`: no log that no topic claims is left in its place.
        """
        registrar = self._registrar
        self.notice.look(self.cache, tells_all=all_set_aside and registrar is not None and registrar.tells_all)

    def look_at_topics(self) -> None:
        """List them anew, in the background: `topics_looked_at_s` tells when that was. A watch may be late."""
        if self._looking is None or self._looking.done():
            self._looking = asyncio.get_running_loop().create_task(self._look_at_topics(), name="look at the topics")
            watch(self._looking, nobody)

    async def _look_at_topics(self) -> None:
        asked_s = monotonic()
        try:
            await self._absorb_topics()
        except (KubeError, KubeUnavailable) as error:
            log.warning("the topics cannot be listed", error=str(error))
        else:
            self.topics_looked_at_s = asked_s

    def report_holdings(self) -> None:
        """Say in this broker's status what `holdings` says by now, if that is news (S11)."""
        if self._registrar is not None:
            self._registrar.look_at_holdings()

    def _held(self) -> tuple[Holding, ...]:
        return self.holdings()

    async def stop(self) -> None:
        """End all tasks. What the API server has not been told by now it is not told any more."""
        tasks = [*self._tasks, *([] if self._looking is None else [self._looking])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._tasks.clear()

    async def _watch(
        self,
        kind: Kind,
        on_list: Callable[[list[dict[str, Any]]], bool | None],
        on_event: Callable[[str, dict[str, Any]], None],
    ) -> None:
        """Follow one kind for ever. A defect in what an event sets off must not leave the broker blind: list afresh.

        After every loss of contact everything is listed: the store may have been restored meanwhile (S11).
        """

        def asked() -> None:
            self._asked[kind.plural] = self.cache.mark()

        def listed(items: list[dict[str, Any]]) -> bool | None:
            again = on_list(items)
            self._synced[kind.plural].set()
            return again

        while True:
            reflector = Reflector(
                self._client,
                kind,
                self._settings.namespace,
                "",
                listed,
                on_event,
                monotonic,
                silence_limit_s=self._silence_limit_s,
                on_ask=asked,
                list_after_loss=True,
            )
            self._reflectors[kind.plural] = reflector
            try:
                await reflector.run()
            except Exception:
                log.exception("watch failed, beginning anew", kind=kind.kind)
            await asyncio.sleep(random.uniform(0.5, 1.0) * REBIRTH_PAUSE_S)

    def _spawn(self, coroutine: Any, name: str) -> None:
        task: asyncio.Task[None] = asyncio.get_running_loop().create_task(coroutine, name=name)
        watch(task, self._on_failed)
        self._tasks.append(task)

    # ----------------------------------------------------------------------------------------------- look-ups

    @property
    def broker_epoch(self) -> int:
        """This broker's registered epoch, -1 before the first registration."""
        return -1 if self._registrar is None else self._registrar.broker_epoch

    @property
    def in_doubt(self) -> bool:
        """A registration with a newer epoch than that may be in the store, or get there yet."""
        return self._registrar is not None and self._registrar.in_doubt

    @property
    def registered(self) -> bool:
        """Registered and not fenced, as far as is known."""
        return self._registrar is not None and self._registrar.registered

    @property
    def registration(self) -> Registration | None:
        """What this broker's object shows; within `on_registered` it is the new registration of this process."""
        return None if self._registrar is None else self._registrar.registration

    @property
    def obstacle(self) -> str:
        """Why the broker is not registered, for the readiness probe; empty when it is."""
        return "registration has not begun" if self._registrar is None else self._registrar.obstacle

    @property
    def cluster_id(self) -> str:
        """The cluster's id, empty while it is unknown."""
        return "" if self.cluster is None else self.cluster.cluster_id

    @property
    def owner_uid(self) -> str:
        """`metadata.uid` of this broker's `KafkaLiteBroker`, empty while it is unknown. Safe to read in any thread."""
        broker = self.cache.brokers.get(self._settings.broker_id)
        return "" if broker is None else broker.uid

    def contact_age_s(self) -> float:
        """Time since the API server last gave a sign of life on every watch; infinite before the first."""
        contacts = [reflector.last_contact for reflector in self._reflectors.values()]
        return monotonic() - min(contacts, default=float("-inf"))

    # ------------------------------------------------------------------------------------------------- topics

    def absorb_topic(self, found: dict[str, Any]) -> None:
        """Show the cache a topic as the API server returned it with a read or a write."""
        seen = self._topic_sighting(found)
        if seen is not None:
            self._publish(self.cache.see_topic(seen))

    def _list_topics(self, items: list[dict[str, Any]]) -> bool:
        self._readers[TOPICS.plural].keep([uid_of(found) for found in items])
        sightings, unreadable = sort(items, self._topic_sighting)
        change = self.cache.list_topics(sightings, unreadable=unreadable, asked=self._asked.get(TOPICS.plural))
        self._publish(change)
        return change.undecided

    def _topic_event(self, kind: str, found: dict[str, Any]) -> None:
        if kind == "DELETED":
            self._readers[TOPICS.plural].forget(uid_of(found))
            self._publish(self.cache.delete_topic(uid_of(found)))
        else:
            self.absorb_topic(found)

    def _topic_sighting(self, found: dict[str, Any]) -> Sighting[Topic] | None:
        """The topic, or None for one of another cluster or one that cannot be understood."""
        topic = self._readers[TOPICS.plural].read(found, parse_topic)
        return sighting(topic, found) if topic is not None and topic.cluster == self._settings.cluster else None

    # ------------------------------------------------------------------------------------------------ brokers

    def absorb_broker(self, found: dict[str, Any]) -> None:
        """Show the cache a broker as the API server returned it with a read or a write."""
        seen = self._broker_sighting(found)
        if seen is not None:
            self._publish(self.cache.see_broker(seen))

    def _list_brokers(self, items: list[dict[str, Any]]) -> bool:
        self._readers[BROKERS.plural].keep([uid_of(found) for found in items])
        sightings, unreadable = sort(items, self._broker_sighting)
        change = self.cache.list_brokers(sightings, unreadable=unreadable, asked=self._asked.get(BROKERS.plural))
        self._publish(change)
        if self._registrar is None:
            return change.undecided
        own = [seen.value for seen in sightings if seen.value.id == self._settings.broker_id]
        if own or not unreadable:
            self._registrar.seen(own[0] if own else None)
            self._registrar.current(self.cache.brokers.get(self._settings.broker_id))
        return change.undecided

    def _broker_event(self, kind: str, found: dict[str, Any]) -> None:
        seen = self._broker_sighting(found)
        own = found["metadata"]["name"] == self._settings.object_name
        if kind == "DELETED":
            self._readers[BROKERS.plural].forget(uid_of(found))
            self._publish(self.cache.delete_broker(uid_of(found)))
            if own and self._registrar is not None:
                self._registrar.seen(None)
        elif seen is not None:
            self._publish(self.cache.see_broker(seen))
            if own and self._registrar is not None:
                self._registrar.seen(seen.value)
                self._registrar.current(self.cache.brokers.get(self._settings.broker_id))

    def _broker_sighting(self, found: dict[str, Any]) -> Sighting[Broker] | None:
        reader = self._readers[BROKERS.plural]
        broker = reader.read(found, self._own_clusters)
        if broker is None:
            return None
        if broker.object_name != broker_name(self._settings.cluster, broker.id):
            reader.complain(found, "object passed over", f"{broker.object_name} cannot be broker {broker.id}")
            return None
        return sighting(broker, found)

    def _own_clusters(self, found: dict[str, Any]) -> Broker | None:
        """The broker, or None for one of another cluster. Raises `ResourceError`."""
        return parse_broker(found) if cluster_of_broker(found) == self._settings.cluster else None

    # ----------------------------------------------------------------------------------------------- clusters

    def _list_clusters(self, items: list[dict[str, Any]]) -> None:
        for found in items:
            self._cluster_event("ADDED", found)

    def _cluster_event(self, kind: str, found: dict[str, Any]) -> None:
        if kind == "DELETED" or found["metadata"].get("name") != self._settings.cluster:
            # A cluster that is gone takes its brokers with it in its own time; until then they serve.
            self._readers[CLUSTERS.plural].forget(uid_of(found))
            return
        cluster = self._readers[CLUSTERS.plural].read(found, parse_cluster)
        if cluster is None or cluster == self.cluster:
            return
        self.cluster = cluster
        if cluster.cluster_id:
            self._cluster_known.set()
        else:
            self._cluster_known.clear()
        self._on_cluster_changed(cluster)
        self.changes.look_again()

    # ------------------------------------------------------------------------------------------------- common

    async def _catch_up(self) -> None:
        """Bring the cache up to now with consistent lists (R15).

        What they lack is not taken for deleted: a watch may already have shown something newer. A cluster's defaults
        count as well: who joins an ISR knows of a tightened flush (S4).
        """
        for found in (await self._client.list(CLUSTERS, self._settings.namespace)).items:
            if self.cluster is None or int(found["metadata"].get("generation", 0)) > self.cluster.generation:
                self._cluster_event("MODIFIED", found)
        for found in (await self._client.list(BROKERS, self._settings.namespace)).items:
            self.absorb_broker(found)
        await self._absorb_topics()

    async def _absorb_topics(self) -> None:
        for found in (await self._client.list(TOPICS, self._settings.namespace)).items:
            self.absorb_topic(found)

    def _publish(self, change: CacheChange) -> None:
        for topic in change.deleted:
            log.info("topic is gone", topic=topic.ref.name, uid=topic.ref.uid)
        for ref in change.went_back:
            log.error("the store went back in time: it shows older epochs than known", topic=ref.name, uid=ref.uid)
        # Brokers first: an election names epochs that only the brokers' registrations explain.
        if change.brokers:
            self._on_brokers_changed()
        if change.partitions:
            self._on_partitions_changed(change.partitions)
        if change.deleted:
            self._on_topics_gone(change.deleted)
        self.changes.look_again()
