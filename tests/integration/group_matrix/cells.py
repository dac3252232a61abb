"""The cells of the matrix: every client, in groups of one to six, with each of its assignors, under each harm."""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass

STRATEGIES = {
    "confluent-kafka": ("range", "cooperative-sticky"),
    "kafka-python": ("range", "cooperative-sticky"),
    "aiokafka": ("range", "sticky"),  # both eager: it has no cooperative one
    "kcat": ("range", "cooperative-sticky"),
    "java": ("range", "cooperative-sticky"),
}
SIZES = range(1, 7)
IN_TURN = "in turn"
AT_ONCE = "at once"
HARMS = (IN_TURN, AT_ONCE)


@dataclass(frozen=True, slots=True)
class Cell:
    """One experiment.

    Attributes:
        client: A key of `STRATEGIES`.
        strategy: The assignor of every member.
        members: How many there are.
        harm: SIGKILL for a member, and for the broker that coordinates: one after the other (a new member comes right
            after the death, so that its rebalance has to wait for the dead one's session to end), or in one instant.
    """

    client: str
    strategy: str
    members: int
    harm: str

    @property
    def name(self) -> str:
        """Fit for a topic and a file."""
        return f"{self.client}-{self.strategy}-{self.members}-{self.harm}".replace(" ", "-")


def every_cell() -> list[Cell]:
    """The whole matrix."""
    return [
        Cell(client, strategy, members, harm)
        for client, strategies in STRATEGIES.items()
        for strategy, members, harm in itertools.product(strategies, SIZES, HARMS)
    ]


def sample(seed: int, count: int) -> list[Cell]:
    """Some cells: one of each client first, others at random."""
    chance = random.Random(seed)
    cells = every_cell()
    chance.shuffle(cells)
    firsts = [next(cell for cell in cells if cell.client == client) for client in STRATEGIES]
    return (firsts + [cell for cell in cells if cell not in firsts])[:count]
