"""Pods of brokers and the rolling restart of them, as rules look at them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """The pod of one broker.

    Attributes:
        name: `metadata.name`.
        uid: `metadata.uid`: another one after it was deleted and made again.
        revision: What it was made of, see `resources.statefulset.revision`; empty when it does not say.
        ready: Its Ready condition is True.
        deleting: It has a deletion timestamp.
        stuck: Why its container cannot run, such as `ImagePullBackOff`; empty when it runs or starts.
        stuck_message: What the kubelet or the scheduler says about that.
        unready_since: When the observer first saw it not ready without it having been ready since, in seconds of its
            monotonic clock.
    """

    name: str
    uid: str
    revision: str = ""
    ready: bool = False
    deleting: bool = False
    stuck: str = ""
    stuck_message: str = ""
    unready_since: float = 0.0


@dataclass(frozen=True, slots=True, order=True)
class Blocked:
    """Why a restart waits: one entry of `status.rolling.blockedBy`.

    Attributes:
        pod: Name of the pod that waits.
        partition: `topic-number` that speaks against it, or the empty string.
        reason: A sentence.
    """

    pod: str
    partition: str
    reason: str


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
