"""What a seed chooses: workload and faults of a round, and how long each lasts. The same seed chooses the same."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from tests.chaos.kind.faults import FAULTS

if TYPE_CHECKING:
    from collections.abc import Sequence

FAULTS_MIN, FAULTS_MAX = 2, 4
RESTED = 0.6
"""How often the next fault waits until all is whole again; otherwise it hits a cluster that recovers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """The traffic of a round. `members`: of a consumer group that reads and commits as well; 0: no group."""

    partitions: int = 6
    rate: int = 300
    producers: int = 2
    members: int = 0


WORKLOADS = {
    "steady": Workload(),
    "single": Workload(partitions=1, rate=200, producers=1),
    "group": Workload(rate=200, members=3),
}


@dataclass(frozen=True, slots=True)
class Step:
    """One fault. `rests`: all has to be whole before the next one, or the end."""

    fault: str
    rests: bool


@dataclass(frozen=True, slots=True)
class Plan:
    """One round."""

    seed: int
    workload: str
    steps: tuple[Step, ...]

    @property
    def name(self) -> str:
        """As the scenario of a line in the ledger."""
        return f"{'+'.join(step.fault for step in self.steps)}/{self.workload}"


def plan(seed: int, only: Sequence[str] = ()) -> Plan:
    """The round of a seed; `only`: of these faults, each once and in an order that the seed chooses."""
    random = Random(f"kind {seed}")
    names = sorted(only or FAULTS)
    group = any(FAULTS[name].group for name in only)
    workload = "group" if group else random.choice(sorted(WORKLOADS))
    possible = [name for name in names if WORKLOADS[workload].members or not FAULTS[name].group]
    count = len(only) or random.randint(FAULTS_MIN, FAULTS_MAX)
    chosen = random.sample(possible, min(count, len(possible)))
    rests = [random.random() < RESTED for _ in chosen]
    steps = []
    for index, name in enumerate(chosen):
        last = index + 1 == len(chosen)
        # What asks for a whole cluster has to find one, and gets its own mended before anybody else is harmed.
        wanted = FAULTS[name].alone or last or FAULTS[chosen[index + 1]].alone
        steps.append(Step(name, rests[index] or wanted))
    return Plan(seed, workload, tuple(steps))
