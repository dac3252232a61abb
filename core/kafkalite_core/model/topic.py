"""What a user asks of a topic (`spec` of a `KafkaLiteTopic`), and the conditions that answer."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kafkalite_core.model.limits import SENTENCE_LENGTH_MAX

if TYPE_CHECKING:
    from kafkalite_core.model.partition import IsrEntry

DEFAULT_CLUSTER_NAME = "kafkalite"
"""A topic without `spec.clusterRef` belongs to the `KafkaLiteCluster` of this name in its namespace."""

OFFSETS_TOPIC = "__consumer_offsets"
"""The brokers' own topic of committed offsets. A group belongs to one of its partitions by hash: none is ever added."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSpec:
    """`spec` of a `KafkaLiteTopic`.

    Attributes:
        cluster: Name of the `KafkaLiteCluster` in the same namespace.
        topic_name: Name for Kafka clients.
        partitions: Number of partitions wanted.
        replicas: Replication factor wanted.
        config: Kafka's topic keys, as the user wrote them.
        replica_assignment: Manual placement, broker ids by partition number; empty for automatic placement.
        deletion_policy: `Delete` or `Retain`.
    """

    cluster: str
    topic_name: str
    partitions: int = 1
    replicas: int = 3
    config: dict[str, str] = field(default_factory=dict)
    replica_assignment: dict[int, tuple[int, ...]] = field(default_factory=dict)
    deletion_policy: str = "Delete"


STORE_WENT_BACK = "StoreWentBack"
"""Reason of `Ready=False`: the store shows less than is known. Brokers report what they hold of such a topic (S11)."""


FLUSH_CONDITION = "DurableFlush"
"""False while acknowledgements need not wait for the disk, and until the ISR has flushed after a tightening (S4)."""

FLUSH_RELAXED, FLUSH_TIGHTENING, FLUSH_DONE = "Relaxed", "Tightening", "Flushed"
"""Its reasons: the operator reckons with a relaxed flush that is wanted, that was, or with none any more."""


def flushed_token(uid: str, generation: int, cluster_generation: int) -> str:
    """How a broker tells that it has flushed a topic whose `flush.messages` was tightened (S4).

    `uid` and `generation` are those of the topic's object, `cluster_generation` that of its `KafkaLiteCluster`.
    """
    return f"{uid}:{generation}:{cluster_generation}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """One entry of `status.conditions`, without its times.

    Attributes:
        type: `Ready`, `Healthy`, `Progressing` or `ReconciliationPaused`.
        status: `True`, `False` or `Unknown`.
        reason: One word in CamelCase.
        message: A sentence that says why, and what to do if something is to be done; cut to `SENTENCE_LENGTH_MAX`.
    """

    type: str
    status: str
    reason: str
    message: str = ""

    def __post_init__(self) -> None:
        if len(self.message) > SENTENCE_LENGTH_MAX:
            # Here, so that what is wanted compares equal to what was written of it.
            object.__setattr__(self, "message", self.message[:SENTENCE_LENGTH_MAX])


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """What a broker holds of a partition of which the store shows less than some disk knows (S11).

    Attributes:
        topic: Name of the topic.
        topic_id: The topic's id.
        partition: Partition number.
        leader_epoch: Highest leader epoch that the broker knows, from any entry that it was shown or from its log.
        partition_epoch: Highest partition epoch that it knows.
        log_epoch: Leader epoch of the last record of its log that is flushed; of an empty log the newest epoch that it
            knows, -1 for none.
        end_offset: Flushed end of its log.
        agrees: The broker goes by what the store shows, nothing that it knows contradicts that: it reports because it
            was asked. A report that does not say so is evidence of another history.
        isr: ISR of the newest entry that the broker was shown: they may hold more, and the store may know nothing of
            them. Empty when it knows the epochs from its disk alone. A broker epoch of -1 is not known.
        hosted: It has a replica. Else it only remembers what the store has shown it, and its log is none: -1 and 0.
        isr_epoch: Partition epoch of that entry. None: `partition_epoch`, as long as it was shown no entry that
            contradicts the newest one and has a higher one.
        isr_leader_epoch: Leader epoch of that entry. None: `leader_epoch`, or no such entry is known.
    """

    topic: str
    topic_id: str
    partition: int
    leader_epoch: int
    partition_epoch: int
    log_epoch: int
    end_offset: int
    agrees: bool = False
    isr: tuple[IsrEntry, ...] = ()
    hosted: bool = True
    isr_epoch: int | None = None
    isr_leader_epoch: int | None = None

    def settled_by(self, leader_epoch: int, partition_epoch: int) -> bool:
        """An entry with these epochs is not behind what this broker knows.

        settled <=> both are above all that it knows, so that nothing can be taken for something else any more,
                    or it goes by the store, and neither is below what it knows

        Equal epochs alone prove nothing: another history may have reached them too, with another leader. But a broker
        that was asked what it holds, and goes by the very entry that the operator has written, is no reason to write
        the next one.
        """
        if self.agrees:
            return leader_epoch >= self.leader_epoch and partition_epoch >= self.partition_epoch
        return leader_epoch > self.leader_epoch and partition_epoch > self.partition_epoch


@dataclass(frozen=True, slots=True, kw_only=True)
class Stray:
    """A directory of a partition that no topic claims, as a broker lists it in `status.strays` (S10).

    Attributes:
        topic: Name of the topic that it belonged to.
        topic_id: That topic's id.
        partition: Partition number.
        leader_epoch: Highest leader epoch that the directory knows, from its log or its metadata file.
        partition_epoch: Highest partition epoch that it knows.
        end_offset: End of the log; -1 when it is not known.
        log_epoch: Newest leader epoch of the log itself, -1 when it has none; None when that is not known.
        deleted: The broker saw the deletion of the topic, whose policy was `Delete`: not lost, but given up.
        isr: ISR of the newest entry that the replica was shown; empty when that is not known.
        isr_epoch: Partition epoch of that entry, -1 for none.
        isr_leader_epoch: Leader epoch of that entry, -1 for none.
        relaxed_flush: The log was flushed later than acknowledged: a member of an ISR that died since may lack records.
    """

    topic: str
    topic_id: str
    partition: int
    leader_epoch: int
    partition_epoch: int
    end_offset: int
    log_epoch: int | None = None
    deleted: bool = False
    isr: tuple[IsrEntry, ...] = ()
    isr_epoch: int = -1
    isr_leader_epoch: int = -1
    relaxed_flush: bool = False

    @property
    def reach(self) -> tuple[int, int]:
        """How far the log reaches: of two in one ISR the greater one has every record that was acknowledged (S10, S11).

        A broker that was told of an epoch and did not fetch in it reaches no further for that.
        """
        return self.leader_epoch if self.log_epoch is None else self.log_epoch, self.end_offset
