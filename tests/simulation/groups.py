"""Group coordinators of one broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafkalite_core.model.partition import Topic
    from tests.simulation.broker import Broker
    from tests.simulation.driver import Driver


class Groups:
    """One coordinator for each partition of the offsets topic that this broker leads."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def role_changed(self, driver: Driver) -> None:
        """A replica here began or ceased to lead."""

    def topics_gone(self, topics: list[Topic]) -> None:
        """Topics left the metadata."""

    def tick(self) -> None:
        """Time went by."""

    def close(self) -> None:
        """No coordinator any longer."""
