"""The operator ends, or loses an answer, at each of its writes in turn: the end is the same as without.

Each run has a namespace of its own, in which a replica meets one fault and, if that was its death, another one goes on.
Several runs share the loop: most of the time they wait.
"""

from __future__ import annotations

import asyncio
import gc
import os
import random
import time
from typing import TYPE_CHECKING, Any

import pytest

from kafkalite_runtime.kube.config import KubeConfig
from tests.ha.history import judge
from tests.ha.procedures import PROCEDURES
from tests.ha.replicas import Fault, Replica
from tests.ha.scenarios import SCENARIOS, Scenario
from tests.ha.world import World, sockets_closed
from tests.unit.operator.fakes import eventually

if TYPE_CHECKING:
    from pathlib import Path

AT_ONCE = 8
SAMPLE = 6
ALL = os.environ.get("KAFKALITE_HA_ALL") == "1"
RUN_LIMIT_S = 180.0
pytestmark = [
    pytest.mark.timeout(600),
    # Who dies closes nothing; here its sockets are left to the garbage collector instead of the kernel.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


def named(scenario: Scenario) -> str:
    """As the id of a test."""
    return scenario.name.replace(" ", "-")


class Run:
    """One fault in one scenario."""

    def __init__(
        self, plane, folder: Path, scenario: Scenario, fault: Fault | None = None, end: dict[str, Any] | None = None
    ) -> None:
        self._folder = folder
        self._config = KubeConfig.from_file(plane.kubeconfig)
        self._plane = plane
        self._scenario = scenario
        self._fault = fault
        self.writes = 0
        self.struck = False
        self.end = end

    async def go(self) -> Run:
        self._folder.mkdir()
        world = World(self._plane, self._folder)
        try:
            await world.open(pods=self._scenario.name == "a broker dies" or self._scenario in PROCEDURES)
            async with asyncio.timeout(RUN_LIMIT_S):
                await self._go(world)
            judge(world)
            if self._scenario.judge is not None:
                self._scenario.judge(world)
        except TimeoutError as error:
            found = f"found {await self._scenario.summary(world)}, expected {self.end}"
            raise AssertionError(f"{self._scenario.name}, {self._fault}: not the same end: {found}") from error
        finally:
            await world.close()
        return self

    async def _go(self, world: World) -> None:
        if self._scenario.before is not None:
            whole = Replica(self._config, world.ns, "before")
            await self._scenario.before(world)
            await whole.stop()
        replica = Replica(self._config, world.ns, "first", self._fault)
        others = asyncio.create_task(self._scenario.after(world))
        await self._scenario.act(world)
        try:
            if self._fault is not None and not self._fault.lives:
                replica = await self._succeeded(world, replica)
            await eventually(lambda: self._ended(world), timeout_s=RUN_LIMIT_S, every_s=0.05)
            self.struck |= replica.calls.struck.is_set()
            self.writes = replica.calls.writes
        finally:
            others.cancel()
            await asyncio.gather(others, return_exceptions=True)
            await replica.kill()

    async def _ended(self, world: World) -> bool:
        """In the state of the run without a fault, which takes the first that is called done."""
        if not await self._scenario.done(world):
            return False
        found = await self._scenario.summary(world)
        self.end = self.end or found
        return found == self.end

    async def _succeeded(self, world: World, replica: Replica) -> Replica:
        """The next process of the pod, once the fault has struck; the same one when it is done without."""
        while not replica.calls.struck.is_set():
            if await self._ended(world):
                return replica
            await asyncio.sleep(0.02)
        self.struck = True
        await replica.kill()
        return Replica(self._config, world.ns, "second")


def _faults(writes: int) -> list[Fault]:
    return [
        Fault(number, applied=applied, lives=lives)
        for number in range(1, writes + 1)
        for applied, lives in ((True, False), (False, False), (True, True))
    ]


async def _all_end_alike(plane, tmp_path: Path, scenario: Scenario, whole: Run, faults: list[Fault]) -> None:
    slots = asyncio.Semaphore(AT_ONCE)

    async def run(fault: Fault) -> Run:
        async with slots:
            name = str(fault).replace(" ", "-").replace(",", "")
            return await Run(plane, tmp_path / name, scenario, fault, whole.end).go()

    async with asyncio.TaskGroup() as group:
        runs = [group.create_task(run(fault)) for fault in faults]
    # Conditions that change quickly are written once or several times, as busy as the machine is: not every run makes
    # as many writes as the one without a fault, and the last ones may be missing. The first half is there in any case.
    missed = [fault for fault, task in zip(faults, runs, strict=True) if not task.result().struck]
    early = [str(fault) for fault in missed if fault.number <= whole.writes // 2]
    assert not early, f"of {whole.writes} writes without a fault these were not made: {early}"
    struck = len(faults) - len(missed)
    await sockets_closed()
    gc.collect()  # what the dead left is reported here, not in another test
    print(f"{scenario.name}: {struck} of {len(faults)} faults struck; {whole.writes} writes")


@pytest.mark.parametrize("scenario", SCENARIOS, ids=named)
async def test_the_end_is_the_same_as_without(plane, tmp_path, scenario):
    whole = await Run(plane, tmp_path / "whole", scenario).go()
    assert whole.writes >= 2
    await _all_end_alike(plane, tmp_path, scenario, whole, _faults(whole.writes))


@pytest.mark.timeout(7200 if ALL else 600)
@pytest.mark.parametrize("scenario", PROCEDURES, ids=named)
async def test_a_procedure_is_gone_on_with(plane, tmp_path, scenario):
    """Some of the faults, other ones each time; all of them with KAFKALITE_HA_ALL=1, which takes many minutes."""
    whole = await Run(plane, tmp_path / "whole", scenario).go()
    assert whole.writes >= 5
    faults = _faults(whole.writes)
    if not ALL:
        seed = int(os.environ.get("KAFKALITE_HA_SEED") or time.time())
        print(f"KAFKALITE_HA_SEED={seed}")
        faults = random.Random(seed).sample(faults, min(SAMPLE, len(faults)))
    await _all_end_alike(plane, tmp_path, scenario, whole, faults)
