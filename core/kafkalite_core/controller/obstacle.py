"""Why something that is wanted cannot be done now."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why a topic cannot be placed, grown or moved now, or a cluster not shrink.

    Attributes:
        reason: Reason of the condition.
        message: Its message: a sentence that says what to do, or what is waited for.
        waiting: It resolves itself; otherwise the user has to act.
        passing: It depends on the time, or on who is heard: it is looked at in every plan, although nothing changed.
    """

    reason: str
    message: str
    waiting: bool = False
    passing: bool = False
