"""Pods of brokers and the rolling restart of them, as rules look at them."""

from __future__ import annotations

from dataclasses import dataclass

from kafkalite_core.model.limits import SENTENCE_LENGTH_MAX

UNSCHEDULABLE = "Unschedulable"
"""Reason why a pod is stuck that no node takes; the scheduler's word."""


@dataclass(frozen=True, slots=True, order=True)
class Amount:
    """How much of a resource a container has, or shall have.

    Attributes:
        container: Its name.
        kind: `requests` or `limits`.
        resource: `cpu` or `memory`.
        value: A quantity, as it is written.
    """

    container: str
    kind: str
    resource: str
    value: str


@dataclass(frozen=True, slots=True)
class Kept:
    """Why a pod keeps the CPU and memory that it has, in the API server's words.

    Attributes:
        why: The words.
        again: It is time to try again.
    """

    why: str
    again: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """The pod of one broker.

    Attributes:
        name: `metadata.name`.
        uid: `metadata.uid`: another one after it was deleted and made again.
        revision: What it was made of, see `resources.statefulset.revision`; empty when it does not say.
        ready: Its Ready condition is True.
        deleting: It has a deletion timestamp.
        node: Name of its node; empty until it is scheduled.
        grace_s: How long it is given to end in order, once it is being deleted.
        deleting_since: When the observer first saw that it is being deleted, in seconds of its monotonic clock.
        running: Its broker container runs, ready or not.
        stuck: Why its container cannot run, such as `ImagePullBackOff`; empty when it runs or starts.
        stuck_message: What the kubelet or the scheduler says about that.
        volume_elsewhere: The scheduler says that its volume can be used on none of some nodes.
        unready_since: When the observer first saw it not ready without it having been ready since, in seconds of its
            monotonic clock.
        containers: Names of its containers, in their order.
        amounts: CPU and memory of its containers, as its spec says.
        resize: State of a change of these that is not over, such as `Deferred`, `Infeasible`, `InProgress`; else empty.
        resize_message: What the kubelet says about that.
    """

    name: str
    uid: str
    revision: str = ""
    ready: bool = False
    deleting: bool = False
    running: bool = False
    stuck: str = ""
    stuck_message: str = ""
    volume_elsewhere: bool = False
    unready_since: float = 0.0
    containers: tuple[str, ...] = ()
    amounts: tuple[Amount, ...] = ()
    resize: str = ""
    resize_message: str = ""
    node: str = ""
    grace_s: float = 30.0
    deleting_since: float = 0.0


@dataclass(frozen=True, slots=True, order=True)
class Blocked:
    """Why a restart waits: one entry of `status.rolling.blockedBy`.

    Attributes:
        pod: Name of the pod that waits.
        partition: `topic-number` that speaks against it, or the empty string.
        reason: A sentence; cut to `SENTENCE_LENGTH_MAX`.
    """

    pod: str
    partition: str
    reason: str

    def __post_init__(self) -> None:
        if len(self.reason) > SENTENCE_LENGTH_MAX:
            # Here, so that what is wanted compares equal to what was written of it.
            object.__setattr__(self, "reason", self.reason[:SENTENCE_LENGTH_MAX])


@dataclass(frozen=True, slots=True, kw_only=True)
class Rolling:
    """`status.rolling` of a cluster.

    Attributes:
        in_progress: Brokers are being restarted, or wait for it.
        pending: Names of the pods that still have to be restarted, the next one first.
        restarting: Names of the pods of the batch that is being restarted: noted before the first leadership moves, and
            until the last of them is back in all its ISRs. Whoever takes over goes on with them.
        blocked_by: Why the next restart waits.
    """

    in_progress: bool = False
    pending: tuple[str, ...] = ()
    restarting: tuple[str, ...] = ()
    blocked_by: tuple[Blocked, ...] = ()
