"""How much the controller does at once, and how long it rests between two plans.

    pause >= min(length of the last round, PAUSE_MAX_S)     unless brokers changed: fences and elections wait for nobody
    an action begins only while fewer than LIMITS[its urgency] are under way

The first keeps a controller that plans for long from doing nothing else: bursts of answers are planned once. By the
second a thousand placements neither go out at once nor fill all connections, and an election always finds room.
"""

from __future__ import annotations

from enum import IntEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from kafkalite_core.controller.actions import ChangePartitions, Fence, UpdateClusterStatus, UpdateTopicStatus

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkalite_core.controller.actions import Action

PAUSE_MAX_S: Final = 1.0
PLAN_FRESH_S: Final = 1.0
"""What could not begin for so long after it was planned is planned again."""


class Urgency(IntEnum):
    """What goes first, the most urgent first."""

    FENCE = 0
    ELECTION = 1
    CHANGE = 2
    TELLING = 3


LIMITS: Final[Mapping[Urgency, int]] = MappingProxyType(
    {Urgency.FENCE: 64, Urgency.ELECTION: 24, Urgency.CHANGE: 12, Urgency.TELLING: 6}
)
"""How many actions of all kinds may be under way for one more to begin. More of them would only wait in an API server
that has little to spare, until their deadline; the client has 64 connections."""


def urgency_of(action: Action) -> Urgency:
    """How urgent an action is."""
    if isinstance(action, Fence):
        return Urgency.FENCE
    if isinstance(action, ChangePartitions) and action.elected:
        return Urgency.ELECTION
    return Urgency.TELLING if isinstance(action, UpdateTopicStatus | UpdateClusterStatus) else Urgency.CHANGE


def may_begin(urgency: Urgency, under_way: int) -> bool:
    """Whether one more may begin while so many are under way."""
    return under_way < LIMITS[urgency]


def pause_s(round_s: float) -> float:
    """How long to rest after a round of that length when nothing is urgent."""
    return min(max(round_s, 0.0), PAUSE_MAX_S)
