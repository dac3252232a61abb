"""Replacing a broker whose node or volume is gone, as rules look at it, and nodes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafkalite_core.model.pods import Blocked


class NodeState(StrEnum):
    """What the API server knows of a node: its object is gone, or the status of its condition Ready."""

    GONE = "Gone"
    READY = "True"
    NOT_READY = "False"
    UNKNOWN = "Unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node that a broker ran on.

    Attributes:
        state: As last read.
        unready_since: When the observer first saw it in another state than READY without having seen it ready since, in
            seconds of its monotonic clock.
        since: When it got into that state, RFC 3339, for people; empty when that is not known.
    """

    state: NodeState
    unready_since: float = 0.0
    since: str = ""


class Phase(StrEnum):
    """How far a replacement is."""

    NONE = ""
    WAITING = "Waiting"
    """Something speaks against it: nothing has been deleted."""
    REMOVING = "Removing"
    """The old pod and the old claim, whose uids are noted, are being deleted."""
    REBUILDING = "Rebuilding"
    """The broker is registered with another disk, and copies its replicas."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replacing:
    """`status.replacing` of a cluster; absent there while nobody is to be replaced.

    Attributes:
        phase: See there.
        broker: Broker id; -1 for none.
        cause: Why it is replaced, a sentence.
        directory_id: Of the disk that is given up; empty when the broker was never registered.
        claim_uid: Of the claim that is given up. No other one is ever deleted.
        pod_uid: Of the pod that had it.
        replicas: Partitions that have the broker among their replicas, while rebuilding.
        in_sync: How many of them have it in their ISR again.
        blocked_by: What speaks against the next step.
    """

    phase: Phase = Phase.NONE
    broker: int = -1
    cause: str = ""
    directory_id: str = ""
    claim_uid: str = ""
    pod_uid: str = ""
    replicas: int = 0
    in_sync: int = 0
    blocked_by: tuple[Blocked, ...] = ()

    def gives_up(self, directory_id: str) -> bool:
        """The disk with that directory is being taken away, and nothing speaks against it.

        Whoever has it does not register any more: each registration would have to be fenced, and put the removal off.
        Where something does speak against it the broker may be just what is missing.
        """
        return self.phase is Phase.REMOVING and self.directory_id == directory_id and not self.blocked_by
