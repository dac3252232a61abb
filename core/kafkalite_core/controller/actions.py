"""What the controller wants done. An action is a value; the operator's shell carries it out by compare-and-swap."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkalite_core.controller.resizing import Resize
    from kafkalite_core.controller.rolling import Restart
    from kafkalite_core.model.cluster import Broker
    from kafkalite_core.model.partition import Partition, PartitionChange, TopicRef
    from kafkalite_core.model.partition_counts import PartitionCounts
    from kafkalite_core.model.pods import Rolling
    from kafkalite_core.model.replacement import Replacing
    from kafkalite_core.model.topic import Condition


@dataclass(frozen=True, slots=True, kw_only=True)
class Fence:
    """Fence the registered incarnation of a broker (R15). `by_expiry`: for want of Lease renewals (R16)."""

    broker: Broker
    reason: str
    message: str
    by_expiry: bool

    @property
    def key(self) -> tuple[str, str]:
        """Object that is written; actions with one key are never carried out at the same time."""
        return ("broker", self.broker.uid)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangePartitions:
    """Replace partition entries of one topic.

    Attributes:
        topic: Which one.
        generation: `metadata.generation` that the decision was made on.
        changes: By partition number.
        reasons: Why, by partition number.
        elected: Partitions whose leader is chosen anew (a leader or none).
        unclean: Partitions with an unclean election among them.
        consent: Value of the annotation that allows it, where the configuration does not.
        moved: Partitions whose change is a step of a reassignment.
        recovery_request: Value of the annotation that allows a recovery of the store without some replica (S11).
        by_cluster: Nothing of the topic itself allows the unclean elections, but the cluster's configuration does.
    """

    topic: TopicRef
    generation: int
    changes: Mapping[int, PartitionChange]
    reasons: Mapping[int, str]
    elected: frozenset[int] = frozenset()
    unclean: frozenset[int] = frozenset()
    consent: str = ""
    moved: frozenset[int] = frozenset()
    recovery_request: str = ""
    by_cluster: bool = False

    @property
    def key(self) -> tuple[str, str]:
        """As in `Fence`."""
        return ("topic", self.topic.uid)


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTopicStatus:
    """Place a topic for the first time.

    Attributes:
        topic: Which one.
        resource_version: Of the object that it was decided on: whoever withdraws a wish or a consent stops it.
        has_status: Whether it has a status (with conditions alone).
        partitions: By number.
        topic_id: Empty for a new random one, else that of adopted strays (S10).
        reason: A sentence for the Event.
        unclean: Partitions that are taken over although acknowledged records may be missing.
    """

    topic: TopicRef
    resource_version: str
    has_status: bool
    partitions: Mapping[int, Partition]
    topic_id: str
    reason: str
    unclean: frozenset[int] = frozenset()

    @property
    def key(self) -> tuple[str, str]:
        """As in `Fence`."""
        return ("topic", self.topic.uid)


@dataclass(frozen=True, slots=True, kw_only=True)
class AddPartitions:
    """Add partitions to a topic that has some.

    Attributes:
        topic: Which one.
        resource_version: As in `CreateTopicStatus`.
        partitions: By number.
        reason: A sentence for the Event.
        taken_over: Those that the topic had before the store went back in time, whose data brokers hold (S10).
        unclean: As in `CreateTopicStatus`.
    """

    topic: TopicRef
    resource_version: str
    partitions: Mapping[int, Partition]
    reason: str
    taken_over: frozenset[int] = frozenset()
    unclean: frozenset[int] = frozenset()

    @property
    def key(self) -> tuple[str, str]:
        """As in `Fence`."""
        return ("topic", self.topic.uid)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompleteElections:
    """Remove election annotations whose wishes are fulfilled or cannot be.

    Attributes:
        topic: Which one.
        requests: Values by annotation, as they were when it was decided.
        possible: Every partition that was named has the leader that was asked for.
        reason: What became of them.
    """

    topic: TopicRef
    requests: Mapping[str, str]
    possible: bool
    reason: str

    @property
    def key(self) -> tuple[str, str]:
        """As in `Fence`."""
        return ("topic", self.topic.uid)


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateTopicStatus:
    """Write conditions and `inSync` of a topic; never urgent."""

    topic: TopicRef
    generation: int
    conditions: tuple[Condition, ...]
    in_sync: str

    @property
    def key(self) -> tuple[str, str]:
        """As in `Fence`."""
        return ("topic-status", self.topic.uid)


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateClusterStatus:
    """Write conditions and counts of the cluster; never urgent. `rolling`, `replacing`: None for what stays."""

    uid: str
    generation: int
    conditions: tuple[Condition, ...]
    brokers_ready: int
    brokers_total: int
    partitions: PartitionCounts
    bootstrap: str
    rolling: Rolling | None = None
    replacing: Replacing | None = None

    @property
    def key(self) -> tuple[str, str]:
        """As in `Fence`."""
        return ("cluster", self.uid)


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartPods:
    """Delete pods, so that the StatefulSet makes them again of the revision that is wanted now.

    The shell reads pods, brokers and topics consistently and decides once more before it does: a watch may be blind.
    """

    uid: str
    restarts: tuple[Restart, ...]

    @property
    def key(self) -> tuple[str, str]:
        """As in `Fence`."""
        return ("pods", self.uid)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResizePods:
    """Give containers of pods other resources while they run."""

    uid: str
    resizes: tuple[Resize, ...]

    @property
    def key(self) -> tuple[str, str]:
        """As in `Fence`."""
        return ("resize", self.uid)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaceBroker:
    """Delete what is left of a broker whose node or volume is gone, so that the StatefulSet makes both anew.

    The shell reads everything consistently and decides once more before it does. Uids are preconditions.

    Attributes:
        uid: Of the cluster.
        broker: Which one.
        cause: Why, a sentence.
        claim: Name of the claim to be deleted; empty for none.
        claim_uid: Its uid.
        pod: Name of the pod to be deleted; empty for none.
        pod_uid: Its uid.
        force: There is nobody to end the pod in order.
    """

    uid: str
    broker: Broker
    cause: str
    claim: str = ""
    claim_uid: str = ""
    pod: str = ""
    pod_uid: str = ""
    force: bool = False

    @property
    def key(self) -> tuple[str, str]:
        """As in `Fence`; not that of the broker, which may have to be fenced once more."""
        return ("replace", self.uid)


@dataclass(frozen=True, slots=True, kw_only=True)
class EndReplaceRequest:
    """Remove `kafkalite.io/replace` from a broker that is registered with another disk."""

    broker: Broker
    request: str

    @property
    def key(self) -> tuple[str, str]:
        """As in `Fence`."""
        return ("replace-request", self.broker.uid)


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateBrokerStatus:
    """Write a condition of a broker; never urgent."""

    broker: Broker
    condition: Condition

    @property
    def key(self) -> tuple[str, str]:
        """As in `Fence`."""
        return ("broker-status", self.broker.uid)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadBrokers:
    """Read the brokers consistently, and plan again.

    Nobody is elected on what was read long ago (threat 4), and no topic is placed on what was read before it was there
    (S10).
    """

    @property
    def key(self) -> tuple[str, str]:
        """As in `Fence`."""
        return ("brokers", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadClusters:
    """Read the clusters consistently, and plan again.

    The patch of a topic cannot test what its cluster permits, and a permission that was withdrawn stops an election.
    """

    @property
    def key(self) -> tuple[str, str]:
        """As in `Fence`."""
        return ("clusters", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateBroker:
    """Make the `KafkaLiteBroker` of a broker id that the cluster wants; `uid` is that of the cluster."""

    uid: str
    broker_id: int

    @property
    def key(self) -> tuple[str, str]:
        """As in `Fence`. The id alone would be that of a broker of any cluster."""
        return ("new-broker", f"{self.uid}/{self.broker_id}")


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveBroker:
    """Take the last pod from the StatefulSet, and what belongs to it: nothing is on the broker, and it is not wanted.

    Attributes:
        broker: Which one.
        unclaimed: Why its volume is kept in any case: it has, or may have, data of topics that were lost, not deleted.
        remaining: Brokers that go on: the StatefulSet keeps so many pods, those with ids below it.
    """

    broker: Broker
    unclaimed: str = ""
    remaining: int

    @property
    def key(self) -> tuple[str, str]:
        """As in `Fence`; not that of the broker, which has to be fenced when its pod has ended."""
        return ("remove-broker", self.broker.uid)


Action = (
    Fence
    | ChangePartitions
    | CreateTopicStatus
    | AddPartitions
    | CompleteElections
    | UpdateTopicStatus
    | UpdateClusterStatus
    | CreateBroker
    | RemoveBroker
    | ReadBrokers
    | ReadClusters
    | RestartPods
    | ResizePods
    | ReplaceBroker
    | EndReplaceRequest
    | UpdateBrokerStatus
)
