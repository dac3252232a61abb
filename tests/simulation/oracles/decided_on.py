"""A change of partition entries lands on exactly the state that it was decided on (R14, S12)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.world import Violation

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkalite_core.model.partition import Partition, TopicRef
    from tests.simulation.patching import Json


class DecidedOn:
    """What whoever sends a patch knows beside it, whatever the patch itself tests for.

    applied => the object has the uid and the topic id, and every entry the leader and epochs, of the decision
    """

    name = "a change lands on what it was decided on"

    __slots__ = ("_expected", "_ref")

    def __init__(self, ref: TopicRef, expected: Mapping[int, Partition]) -> None:
        self._ref = ref
        self._expected = expected

    def check(self, found: Json) -> None:
        """The patch is about to be applied to this object. Raises `Violation`."""
        status = found.get("status") or {}
        there = (found["metadata"]["uid"], status.get("topicId", ""))
        if there != (self._ref.uid, self._ref.topic_id):
            raise Violation(self.name, f"decided for {self._ref}, applied to {there}")
        for number, expected in self._expected.items():
            entry = (status.get("partitions") or {}).get(str(number))
            wanted = (expected.leader, expected.leader_epoch, expected.partition_epoch)
            seen = None if entry is None else (entry["leader"], entry["leaderEpoch"], entry["partitionEpoch"])
            if seen != wanted:
                raise Violation(self.name, f"{self._ref.name}-{number}: decided on {wanted}, applied to {seen}")
