"""The replication state of one partition as it stands in the status of a `KafkaLiteTopic`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalite_core.model.limits import NO_LEADER
from kafkalite_core.model.topic import DEFAULT_CLUSTER_NAME

if TYPE_CHECKING:
    from collections.abc import Mapping


class TopicPartition(NamedTuple):
    """Name of a partition as clients use it."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True)
class TopicRef:
    """One incarnation of a topic. State kept for a partition is keyed by this and never by the name alone (S12).

    Attributes:
        namespace: Namespace of the custom resource.
        object_name: `metadata.name` of the custom resource.
        uid: `metadata.uid`; differs after delete and re-create.
        topic_id: Random UUID in canonical text form; kept across a restore.
        name: The topic's name for Kafka clients.
    """

    namespace: str
    object_name: str
    uid: str
    topic_id: str
    name: str


@dataclass(frozen=True, slots=True, order=True)
class IsrEntry:
    """A member of the ISR (or ELR): a broker id with the broker epoch under which it was found in sync (R7)."""

    id: int
    epoch: int


class Seen(NamedTuple):
    """What a disk has noted of the entries that its broker was shown (S11).

    Attributes:
        leader_epoch: Highest leader epoch, -1 for none.
        partition_epoch: Highest partition epoch, -1 for none.
        isr: ISR of the newest entry that was taken, in the order of the broker ids; empty where it is not known. A
            broker epoch of -1 is not known either: earlier versions noted none.
        isr_epoch: Partition epoch of that entry, -1 for none. Below `partition_epoch`: entries that contradict it were
            shown since, and none above all of them.
        isr_leader_epoch: Leader epoch of that entry, -1 for none.
    """

    leader_epoch: int = -1
    partition_epoch: int = -1
    isr: tuple[IsrEntry, ...] = ()
    isr_epoch: int = -1
    isr_leader_epoch: int = -1


NOTHING_SEEN: Final = Seen()


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """One entry of `status.partitions`. Every change of it raises `partition_epoch` by one (R1).

    Attributes:
        leader: Broker id, or -1 for none.
        leader_epoch: Rises whenever the leader is chosen anew, even if it is the same broker.
        partition_epoch: Rises with every change.
        min_isr: The effective `min.insync.replicas` (S4): brokers read it here and nowhere else.
        replicas: Broker ids in order of preference; the first is the preferred leader.
        isr: In-sync replicas with their broker epochs.
        elr: Eligible leader replicas (KIP-966): not in sync, but they hold every committed record; see `eligible`.
        adding: Replicas being added by a reassignment.
        removing: Replicas being removed by a reassignment.
        recovering: The leader was elected uncleanly and has not confirmed it by a change of its own; until then it
            is the only member of the ISR (KIP-704).
    """

    leader: int
    leader_epoch: int
    partition_epoch: int
    min_isr: int
    replicas: tuple[int, ...]
    isr: tuple[IsrEntry, ...]
    elr: tuple[IsrEntry, ...] = ()
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    recovering: bool = False

    @property
    def has_leader(self) -> bool:
        """Whether some broker is named leader."""
        return self.leader != NO_LEADER

    @property
    def under_replicated(self) -> bool:
        """Led with fewer replicas in sync than there are; one that a move adds is not missed before it is there."""
        return self.has_leader and len(self.isr) < len(self.replicas) - len(self.adding)

    def isr_ids(self) -> tuple[int, ...]:
        """Broker ids of the ISR, in its order."""
        return tuple(entry.id for entry in self.isr)

    def isr_epoch_of(self, broker_id: int) -> int | None:
        """The broker epoch in the ISR entry of that broker, or None when it is no member."""
        return next((entry.epoch for entry in self.isr if entry.id == broker_id), None)

    def awaits(self, broker_id: int, broker_epoch: int) -> bool:
        """Another broker leads, and commits nothing without this incarnation: it is in the ISR."""
        return self.has_leader and self.leader != broker_id and self.isr_epoch_of(broker_id) == broker_epoch

    def elr_ids(self) -> tuple[int, ...]:
        """Broker ids of the ELR, in its order."""
        return tuple(entry.id for entry in self.elr)


@dataclass(frozen=True, slots=True)
class PartitionChange:
    """One partition's compare-and-swap: the entry that the decision was made on, and the one to put in its place.

    Raises:
        AssertionError: the change would break a fence of the API server (R1), so it must not be sent.
    """

    expected: Partition
    proposed: Partition

    def __post_init__(self) -> None:
        old, new = self.expected, self.proposed
        assert new.partition_epoch > old.partition_epoch, "every change raises partitionEpoch"
        assert new.leader_epoch >= old.leader_epoch, "leaderEpoch never falls"
        assert new.leader == old.leader or new.leader_epoch > old.leader_epoch, "a new leader has a new leaderEpoch"
        assert not new.has_leader or new.leader in new.isr_ids(), "the leader is a member of the ISR"
        assert set(new.isr_ids()) <= set(new.replicas), "the ISR is a subset of the replicas"
        assert set(new.elr_ids()) <= set(new.replicas), "the ELR is a subset of the replicas"
        assert not set(new.elr_ids()) & set(new.isr_ids()), "a broker is in the ISR or in the ELR"
        assert set(new.elr) <= {*old.isr, *old.elr}, "a replica becomes eligible only by having been in sync"
        assert not new.recovering or len(new.isr) == 1, "a leader that recovers is alone in the ISR"
        assert not new.recovering or old.recovering or new.leader_epoch > old.leader_epoch, "recovery begins elected"


def in_sync(partitions: Mapping[int, Partition]) -> str:
    """`status.inSync`: members of all ISRs / replicas, and how many more are eligible: `17/18`, `7/9 +2 eligible`."""
    members = sum(len(entry.isr) for entry in partitions.values())
    eligible = sum(len(entry.elr) for entry in partitions.values())
    text = f"{members}/{sum(len(entry.replicas) for entry in partitions.values())}"
    return f"{text} +{eligible} eligible" if eligible else text


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """A topic with status: what brokers serve and what the controller plans with.

    Attributes:
        ref: Which incarnation of the topic this is.
        generation: `metadata.generation` of the object.
        resource_version: Opaque version of the object that this was read from.
        controller_epoch: Epoch of the controller that wrote the status last.
        partitions: By partition number. Empty before the first placement.
        config: `spec.config`, as written by the user (strings).
        deletion_policy: `Delete` or `Retain`.
        deleting: The object has a deletion timestamp.
        cluster: Name of the `KafkaLiteCluster` that it belongs to.
        replica_assignment: `spec.replicaAssignment`, broker ids by partition number.
        store_went_back: The operator's condition says that the store shows less than is known (S11).
        flush_lag_known: The operator's condition says that records may have been acknowledged before they are on disk:
            it takes unclean restarts into account (S4).
        flush_may_lag: It says so because a relaxed flush is wanted: before that no broker may have one (S4).
    """

    ref: TopicRef
    generation: int
    resource_version: str
    controller_epoch: int
    partitions: dict[int, Partition]
    config: dict[str, str] = field(default_factory=dict)
    deletion_policy: str = "Delete"
    deleting: bool = False
    cluster: str = DEFAULT_CLUSTER_NAME
    replica_assignment: dict[int, tuple[int, ...]] = field(default_factory=dict)
    store_went_back: bool = False
    flush_lag_known: bool = False
    flush_may_lag: bool = False
