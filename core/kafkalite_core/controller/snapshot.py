"""What the controller knows when it decides. Times are monotonic seconds of the observer, never wall clocks."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from kafkalite_core.controller.facts import topic_facts
from kafkalite_core.model.config import resolve_topic_config
from kafkalite_core.model.pods import Rolling
from kafkalite_core.model.replacement import Replacing

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkalite_core.controller.facts import TopicFacts
    from kafkalite_core.model.cluster import Broker, Cluster
    from kafkalite_core.model.config import TopicConfig
    from kafkalite_core.model.partition import Topic
    from kafkalite_core.model.partition_counts import PartitionCounts
    from kafkalite_core.model.pods import Amount, Kept, Pod
    from kafkalite_core.model.replacement import Node
    from kafkalite_core.model.topic import Condition, TopicSpec
    from kafkalite_core.model.volumes import Volume


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicView:
    """A `KafkaLiteTopic`: what is wanted, what is, and what was last said about it.

    Attributes:
        topic: State; without `ref.topic_id` it has not been placed yet.
        spec: What the user wants.
        created: `metadata.creationTimestamp`; sorts as text.
        has_status: The object has a status, if only with conditions.
        paused: The annotation `kafkalite.io/paused` is set.
        adopt_strays: Whether data that brokers still hold of a topic of this name are taken over (S10); None: those of
            a topic that was lost, and not those of one that was deleted.
        adopt_topic_id: The topic id of those that are wanted, where the user names one; "" for any.
        elections: Election annotations as they are, by name; each is carried out once and removed.
        elect_preferred: Partitions whose first replica shall lead.
        elect_unclean: Partitions without leader that accept one which may lack acknowledged records.
        unclean_request: The annotation that says so, as it is.
        recovery_request: The annotation that allows to go on without some replica after the store went back in time
            (S11), or to take over a lost topic without those who were in sync (S10), as it is; empty when it does not.
        epochs_seen: (leader epoch, partition epoch) by partition, the highest that this observer has been shown.
        observed_generation: `status.observedGeneration`.
        conditions: `status.conditions`.
        in_sync: `status.inSync`.
        left_by: Brokers with replicas of the topic of this name whose deletion the observer saw, when its policy was
            `Retain` or this one adopts: they may have to hear of it yet.
        first_seen: When the observer first saw this object.
        generation_seen: When the observer first saw the present `metadata.generation`.
        partitions_lost_at: When the observer saw the topic without partitions that it had: the store went back to
            before they were added (S11); -inf for never.
        offline_since: Since when the observer has seen partitions without leader; nothing where all have one.
        behind_since: Since when it has seen under-replicated ones; nothing where none is.
    """

    topic: Topic
    spec: TopicSpec
    created: str = ""
    has_status: bool = False
    paused: bool = False
    adopt_strays: bool | None = None
    adopt_topic_id: str = ""
    elections: Mapping[str, str] = field(default_factory=dict)
    elect_preferred: frozenset[int] = frozenset()
    elect_unclean: frozenset[int] = frozenset()
    unclean_request: str = ""
    recovery_request: str = ""
    epochs_seen: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    observed_generation: int = 0
    conditions: tuple[Condition, ...] = ()
    in_sync: str = ""
    left_by: frozenset[int] = frozenset()
    first_seen: float = 0.0
    generation_seen: float = 0.0
    partitions_lost_at: float = float("-inf")
    offline_since: float = 0.0
    behind_since: float = 0.0
    _facts: list[TopicFacts] = field(init=False, default_factory=list, compare=False, repr=False)

    @property
    def facts(self) -> TopicFacts:
        """Sums over its partitions, added up once."""
        if not self._facts:
            self._facts.append(topic_facts(self.topic.partitions))
        return self._facts[0]

    @property
    def placed(self) -> bool:
        """It has a topic id and partitions."""
        return bool(self.topic.ref.topic_id)


class ToldWithLease(Protocol):
    """What a Lease says (`resources/leases.py` `LeaseRecord`)."""

    @property
    def holder(self) -> str:
        """Incarnation."""
        ...

    @property
    def noticed(self) -> frozenset[str] | None:
        """Uids of topics."""
        ...

    @property
    def flushed(self) -> frozenset[str] | None:
        """Tokens of topics."""
        ...

    @property
    def duration_s(self) -> float:
        """Lease duration."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseView:
    """A broker's Lease as observed.

    Attributes:
        holder: Incarnation that holds it.
        changed_at: When the observer saw its renewal change, or first saw it.
        noticed: Uids of topics that the holder has noticed (`membership/notice.py`); None: it does not say.
        noticed_at: When the observer first read these.
        flushed: Tokens of topics that the holder has flushed (`membership/flushed.py`); None: it does not say.
        duration_s: `spec.leaseDurationSeconds`: the lease duration that the holder went by when it renewed last; 0 when
            it does not say.
    """

    holder: str
    changed_at: float
    noticed: frozenset[str] | None = None
    noticed_at: float = 0.0
    flushed: frozenset[str] | None = None
    duration_s: float = 0.0

    def followed_by(self, record: ToldWithLease, *, changed_at: float, now: float) -> LeaseView:
        """What the next read shows."""
        return LeaseView(
            holder=record.holder,
            changed_at=changed_at,
            noticed=record.noticed,
            noticed_at=self.noticed_at if record.noticed == self.noticed else now,
            flushed=record.flushed,
            duration_s=record.duration_s,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """One cluster with its topics and brokers.

    Attributes:
        cluster: The cluster.
        generation: `metadata.generation` of the cluster.
        generation_seen: When the observer first saw that generation.
        observed_generation: `status.observedGeneration` of the cluster.
        conditions: `status.conditions` of the cluster.
        bootstrap: `status.bootstrap`; `wanted_bootstrap` is what it should be.
        brokers_ready: `status.brokers.ready`, -1 when it is not there.
        brokers_total: `status.brokers.total`.
        partitions: `status.partitions`; None when it is not there.
        partitions_seen: When the observer first saw these.
        topics: By uid.
        brokers: By broker id.
        registered_at: When the observer first saw the present registration, by broker id.
        leases: By broker id.
        exits: Reason of the exit, by broker id and incarnation whose container ended.
        observing_since: Since when Leases have been read without a gap; None while they cannot be read (R16).
        unheard_until: Until when the silence of brokers that were not heard since then counts for nothing.
        outdated: Brokers of which the store may show an earlier report than they have to tell (`store_recovery`).
        expiry_fences: When brokers were fenced by Lease expiry, the last minutes.
        brokers_age_s: Time since the last consistent read of the brokers was asked for.
        brokers_read_s: How long such a read takes at least, as far as is known: the shorter one of the last two.
        clusters_age_s: As `brokers_age_s`, of the clusters: their configuration may permit unclean elections.
        clusters_read_s: As `brokers_read_s`, of the clusters.
        controller_epoch: Own epoch; every patch carries it.
        balance_due: It is time to look at preferred leaders.
        pods: The brokers' pods by broker id.
        revision: What pods shall be made of; empty when it is not known.
        revision_served: The StatefulSet makes pods of that revision by now.
        amounts: CPU and memory that the containers of a pod shall have.
        resize_refused: Why the API server did not let a pod have these while it runs, by its uid.
        resize_kept: Why no pod may have these, a new one neither, by uid of the pod that keeps what it has.
        resize_had: Uids of pods that had these at some time, and no others that were wanted since.
        resize_had_others: Uids of pods that had, at last, others that were wanted before.
        rolling: `status.rolling` of the cluster.
        storage_size: `spec.storage.size`, a quantity.
        volumes: The claims of the brokers' volumes, as last read.
        claims_age_s: Time since that; infinite when they were never read: then none that is missing counts as deleted.
        nodes: Nodes of brokers that somebody looked for a moment ago, by name.
        nodes_refused: Nodes have to be looked at, and the controller may not read them.
        replacing: `status.replacing` of the cluster.
        complete: Every topic object that the observer knows was understood.
        unlisted: By broker id, topics of which the broker had replicas when the observer saw them go, and that it has
            not listed among its strays since (`emptied`).
        owners: By topic name that several objects claim: uid of the object that has it. `plan` fills it in.
    """

    cluster: Cluster
    generation: int = 0
    generation_seen: float = 0.0
    observed_generation: int = 0
    conditions: tuple[Condition, ...] = ()
    bootstrap: str = ""
    wanted_bootstrap: str = ""
    brokers_ready: int = -1
    brokers_total: int = -1
    partitions: PartitionCounts | None = None
    partitions_seen: float = 0.0
    topics: Mapping[str, TopicView] = field(default_factory=dict)
    brokers: Mapping[int, Broker] = field(default_factory=dict)
    registered_at: Mapping[int, float] = field(default_factory=dict)
    leases: Mapping[int, LeaseView] = field(default_factory=dict)
    exits: Mapping[tuple[int, str], str] = field(default_factory=dict)
    observing_since: float | None = None
    unheard_until: float = 0.0
    outdated: frozenset[int] = frozenset()
    expiry_fences: tuple[float, ...] = ()
    brokers_age_s: float = 0.0
    brokers_read_s: float = 0.0
    clusters_age_s: float = 0.0
    clusters_read_s: float = 0.0
    controller_epoch: int = 0
    balance_due: bool = False
    pods: Mapping[int, Pod] = field(default_factory=dict)
    revision: str = ""
    revision_served: bool = False
    amounts: tuple[Amount, ...] = ()
    resize_refused: Mapping[str, str] = field(default_factory=dict)
    resize_kept: Mapping[str, Kept] = field(default_factory=dict)
    resize_had: frozenset[str] = frozenset()
    resize_had_others: frozenset[str] = frozenset()
    rolling: Rolling = field(default_factory=Rolling)
    storage_size: str = ""
    volumes: tuple[Volume, ...] = ()
    claims_age_s: float = float("inf")
    nodes: Mapping[str, Node] = field(default_factory=dict)
    nodes_refused: bool = False
    replacing: Replacing = field(default_factory=Replacing)
    complete: bool = True
    unlisted: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    owners: Mapping[str, str] = field(default_factory=dict)
    _configs: dict[tuple[tuple[str, str], ...], TopicConfig] = field(
        init=False, default_factory=dict, compare=False, repr=False
    )
    _placed: list[TopicView] = field(init=False, default_factory=list, compare=False, repr=False)

    _held: list[Counter[int]] = field(init=False, default_factory=list, compare=False, repr=False)

    def replicas_held(self) -> Counter[int]:
        """How many replicas each broker has in the status of topics, those that come and go included."""
        if not self._held:
            held: Counter[int] = Counter()
            for view in self.topics.values():
                held.update(view.facts.held)
            self._held.append(held)
        return self._held[0]

    def topic_config(self, view: TopicView) -> TopicConfig:
        """The configuration in force of a topic; it is asked for many times in one round, and resolved once for all
        topics that are configured alike.
        """
        own = tuple(view.spec.config.items())
        known = self._configs.get(own)
        if known is None:
            known = self._configs[own] = resolve_topic_config(view.spec.config, self.cluster.config)
        return known

    def placed_topics(self) -> list[TopicView]:
        """Topics with partitions that are not being deleted, in a stable order."""
        if not self._placed:
            views = [view for view in self.topics.values() if view.placed and not view.topic.deleting]
            self._placed.extend(sorted(views, key=lambda view: view.topic.ref.uid))
        return self._placed
