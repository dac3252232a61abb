"""What the parts of a coordinator share: the time, the timers, the effects of the present step, who still waits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafkalite_core.groups.events import Answered
from kafkalite_core.groups.timers import Timer, Timers

if TYPE_CHECKING:
    from kafkalite_core.groups.config import GroupConfig
    from kafkalite_core.groups.events import Effect, GroupRequest, GroupResponse
    from kafkalite_core.groups.metadata_budget import MetadataShare


@dataclass(slots=True)
class Statistics:
    """What a coordinator has done since it was made.

    Attributes:
        rebalances_completed: Assignments that were committed.
        offset_commits: Offsets (of single partitions) that clients committed.
        offsets_expired: Offsets whose retention was over.
        records_skipped: Loaded records that could not be read.
    """

    rebalances_completed: int = 0
    offset_commits: int = 0
    offsets_expired: int = 0
    records_skipped: int = 0


class Context:
    """See the module.

    Attributes:
        config: The configuration in force.
        now_ms: Monotonic time of the step.
        effects: What the step has brought about so far.
        waiting: The requests that were not answered in the step in which they came.
        metadata: What the members of all groups say about themselves.
    """

    __slots__ = ("_wall_ahead_ms", "config", "effects", "metadata", "now_ms", "statistics", "timers", "waiting")

    def __init__(self, config: GroupConfig, metadata: MetadataShare) -> None:
        self.config = config
        self.metadata = metadata
        self.now_ms = 0.0
        self.effects: list[Effect] = []
        self.timers = Timers()
        self.statistics = Statistics()
        self.waiting: dict[object, tuple[GroupRequest, int]] = {}
        self._wall_ahead_ms = 0.0

    @property
    def wall_ms(self) -> int:
        """The wall clock, as far as the events told it."""
        return int(self.now_ms + self._wall_ahead_ms)

    def set_wall(self, wall_ms: int) -> None:
        """Take over the wall clock of an event."""
        self._wall_ahead_ms = wall_ms - self.now_ms

    def wait(self, token: object, request: GroupRequest, api_version: int) -> None:
        """Remember a request that is answered later."""
        self.waiting[token] = (request, api_version)

    def answer(self, token: object, response: GroupResponse) -> None:
        """Answer a request that waits."""
        del self.waiting[token]
        self.effects.append(Answered(token=token, response=response))

    def after(self, timer: Timer, delay_ms: float) -> None:
        """Let the timer fire after so long; never in the same instant, so that two timers cannot chase each other."""
        self.timers.schedule(timer, self.now_ms + max(delay_ms, 1.0))
