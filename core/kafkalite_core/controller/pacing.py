"""How much the controller does at once, and how long it rests between two plans.

    pause >= min(REST * length of the last round, PAUSE_MAX_S), and PAUSE_MAX_S while something planned waits for its
             turn, unless brokers changed (fences and elections wait for nobody) or the last of what waited has begun
    an action begins only while fewer than LIMITS[its urgency] are under way
    a look at what belongs to a cluster, which no election waits for, begins only while fewer than LOOKS_MAX are; they
             go in the order in which they were first asked for, and count for nothing above; those that read nodes have
             NODE_LOOKS_MAX turns instead

The first leaves most of the time to what was planned: a thousand answers are planned a few times, not a thousand times.
By the second a thousand placements neither go out at once nor fill all connections, and an election always finds room.
By the third the looks of many clusters do not either, nor does what takes long for one of them keep the rest waiting.
"""

from __future__ import annotations

from enum import IntEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from kafkalite_core.controller.actions import (
    ChangePartitions,
    Fence,
    UpdateBrokerStatus,
    UpdateClusterStatus,
    UpdateTopicStatus,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkalite_core.controller.actions import Action

REST: Final = 4.0
PLAN_FRESH_S: Final = 1.0
"""What could not begin for so long after it was planned is planned again."""

PAUSE_MAX_S: Final = 0.75 * PLAN_FRESH_S
"""Below it, so that the next plan is there before what waits is too old: elections go on without a break."""


class Urgency(IntEnum):
    """What goes first, the most urgent first."""

    FENCE = 0
    ELECTION = 1
    CHANGE = 2
    TELLING = 3


LIMITS: Final[Mapping[Urgency, int]] = MappingProxyType(
    {Urgency.FENCE: 64, Urgency.ELECTION: 40, Urgency.CHANGE: 12, Urgency.TELLING: 6}
)
"""How many actions of all kinds may be under way for one more to begin. More of them would only wait in an API server
that has little to spare, until their deadline; the client has 64 connections. Elections are so many that the API server
has enough to do while a plan is made."""


LOOKS_MAX: Final = 12
NODE_LOOKS_MAX: Final = 4
"""With as many elections as may be under way they leave some of the client's 64 connections free: for lists, for the
control of a cluster, and for what is done to pods. Nodes are read one by one: a look at them may take long, and neither
StatefulSets nor Services nor volumes wait for it."""


def urgency_of(action: Action) -> Urgency:
    """How urgent an action is."""
    if isinstance(action, Fence):
        return Urgency.FENCE
    if isinstance(action, ChangePartitions) and action.elected:
        return Urgency.ELECTION
    telling = isinstance(action, UpdateTopicStatus | UpdateClusterStatus | UpdateBrokerStatus)
    return Urgency.TELLING if telling else Urgency.CHANGE


def may_begin(urgency: Urgency, under_way: int) -> bool:
    """Whether one more may begin while so many are under way."""
    return under_way < LIMITS[urgency]


def pause_s(round_s: float, *, waits: bool = False) -> float:
    """How long to rest after a round of that length when nothing is urgent; `waits`: not all that it planned began."""
    return PAUSE_MAX_S if waits else min(REST * max(round_s, 0.0), PAUSE_MAX_S)
