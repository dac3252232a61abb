"""Consumer groups: nobody shares a partition within a generation, and an answered commit never goes back (M21)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.world import Violation

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class GroupPromises:
    """Values of commits only rise, and a member has one under way at a time.

    (g, n) gives partition p to members m and m'   =>  m = m'
    a fetch that begins after the answer to commit v  =>  it shows at least v, if the store has not deposed who answers
    """

    owner_name = "one owner in a generation"
    commit_name = "commits are not lost"

    def __init__(self) -> None:
        self._owners: dict[tuple[str, int, int], str] = {}
        self._answered: dict[tuple[str, int], int] = {}
        self._values = 0
        self._forgiven = False
        self._generations_forgiven = False
        self.commits = 0
        self.generations: set[tuple[str, int]] = set()

    def assigned(self, group: str, generation: int, member: str, owned: Iterable[int]) -> None:
        """A member was told its share. Raises `Violation`."""
        self.generations.add((group, generation))
        for number in owned:
            known = self._owners.setdefault((group, generation, number), member)
            if known != member and not self._generations_forgiven:
                raise Violation(
                    self.owner_name,
                    f"generation {generation} of {group}: partition {number} of {known} and of {member}",
                )

    def next_value(self) -> int:
        """A value above every one before."""
        self._values += 1
        return self._values

    def committed(self, group: str, number: int, value: int) -> None:
        """A commit was answered without error."""
        self.commits += 1
        self._answered[group, number] = max(value, self._answered.get((group, number), 0))

    def floors(self, group: str, numbers: Iterable[int]) -> dict[int, int]:
        """What a fetch that begins now has to show at least."""
        return {number: self._answered.get((group, number), -1) for number in numbers}

    def fetched(self, group: str, number: int, value: int, floors: Mapping[int, int]) -> None:
        """A fetch was answered. Raises `Violation`."""
        if not self._forgiven and value < floors.get(number, -1):
            raise Violation(self.commit_name, f"{group}: {floors[number]} of {number} was answered, now it is {value}")

    def forgive(self, *, generations: bool = False) -> None:
        """The topic was deleted: the offsets committed for it go as well, whenever the coordinator hears of it.

        With `generations` the groups themselves may be lost: an unclean election was allowed.
        """
        self._forgiven = True
        self._generations_forgiven = self._generations_forgiven or generations
