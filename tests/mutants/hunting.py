"""Looks for a mutant: the exhaustive search and the simulator run on the patched core, in processes of their own.

A finding counts only if the same thing on the core as it is finds nothing: the same seed, the same number of states.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from tests.mutants.catalog import ROOT

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

SEARCH: Final = (sys.executable, "-m", "tests.search")
SIMULATION: Final = (sys.executable, "-m", "tests.simulation")
START_STRIDE: Final = 1_000_000
"""Distance between the first seeds of two starts; nobody tries so many."""

ERROR_BYTES_MAX: Final = 2000


class EngineFailed(Exception):
    """The search or the simulator ended without a verdict."""


@dataclass(frozen=True, kw_only=True)
class Sighting:
    """A mutant noticed once.

    Attributes:
        invariant: Which one fired.
        text: What it said.
        seconds: How long it took.
        seed: The history's seed (simulator).
        seeds: Histories until then, this one included (simulator).
        config: The configuration (search).
        states: Distinct states until then (search).
        trace: The shortest way there (search).
    """

    invariant: str
    text: str
    seconds: float
    seed: int | None = None
    seeds: int | None = None
    config: str | None = None
    states: int | None = None
    trace: tuple[str, ...] = ()


@dataclass(kw_only=True)
class Attempt:
    """One run of one engine on a mutant.

    Attributes:
        sighting: What was found; None when nothing was.
        tried: Histories or states that were looked at.
        seconds: How long it took.
        exhausted: There are no more (search).
    """

    sighting: Sighting | None
    tried: int
    seconds: float
    exhausted: bool = False


@dataclass
class Engine:
    """The commands that are run; tests put their own in the place of the real ones.

    Attributes:
        core: What is put first on PYTHONPATH.
        search: Begin of the command of the exhaustive search.
        simulation: Begin of the command of the simulator.
    """

    core: Path
    search: tuple[str, ...] = SEARCH
    simulation: tuple[str, ...] = SIMULATION
    environment: dict[str, str] = field(default_factory=dict)

    def simulate(self, first: int, *, budget_s: float, histories_max: int = START_STRIDE) -> Attempt:
        """Histories from seed `first` on until one violates something or the time is over."""
        command = (*self.simulation, "--seeds", f"{first}:{first + histories_max}", "--stop-on-violation", "--json")
        began, tried = time.monotonic(), 0
        with closing(self._lines(command, budget_s)) as lines:
            for line in lines:
                if line.get("summary"):
                    continue
                tried += 1
                violation = line.get("violation")
                if violation is not None:
                    seconds = time.monotonic() - began
                    sighting = Sighting(
                        invariant=violation["invariant"],
                        text=violation["text"],
                        seconds=seconds,
                        seed=line["seed"],
                        seeds=tried,
                    )
                    return Attempt(sighting=sighting, tried=tried, seconds=seconds)
        return Attempt(sighting=None, tried=tried, seconds=time.monotonic() - began)

    def explore(self, config: str, *, budget_s: float, states_max: int | None = None) -> Attempt:
        """The exhaustive search with one of its configurations."""
        command = (*self.search, "--config", config, "--seconds", str(int(budget_s)), "--json")
        if states_max is not None:
            command = (*command, "--states-max", str(states_max))
        began, last = time.monotonic(), None
        for line in self._lines(command, budget_s + 30.0):
            last = line
        seconds = time.monotonic() - began
        if last is None:
            return Attempt(sighting=None, tried=0, seconds=seconds)
        violation, states = last.get("violation"), int(last["states"])
        if violation is None:
            return Attempt(sighting=None, tried=states, seconds=seconds, exhausted=bool(last.get("exhausted")))
        sighting = Sighting(
            invariant=violation["invariant"],
            text=str(violation.get("text", "")),
            seconds=seconds,
            config=config,
            states=states,
            trace=tuple(str(step) for step in violation["trace"]),
        )
        return Attempt(sighting=sighting, tried=states, seconds=seconds)

    def _lines(self, command: tuple[str, ...], budget_s: float) -> Generator[dict[str, Any], None, None]:
        """The JSON lines of a command, which is ended when its time is over. Raises `EngineFailed`."""
        environment = {
            **os.environ,
            "PYTHONPATH": f"{self.core}{os.pathsep}{ROOT}",
            "PYTHONHASHSEED": "0",
            "PYTHONDONTWRITEBYTECODE": "1",
            **self.environment,
        }
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert process.stdout is not None
        assert process.stderr is not None
        complaints: list[str] = []
        listener = threading.Thread(target=lambda stream: complaints.append(stream.read()), args=(process.stderr,))
        listener.start()
        over = threading.Event()

        def end() -> None:
            over.set()
            _kill(process)

        timer = threading.Timer(max(budget_s, 0.1), end)
        timer.start()
        violated = False
        try:
            for text in process.stdout:
                if text.startswith("{"):
                    line = json.loads(text)
                    violated = violated or bool(line.get("violation"))
                    yield line
            code = process.wait()
        finally:
            timer.cancel()
            _kill(process)
            process.wait()
            listener.join()
            process.stdout.close()
            process.stderr.close()
        if code != int(violated) and not over.is_set():
            raise EngineFailed(f"{' '.join(command)} ended with {code}: {''.join(complaints)[-ERROR_BYTES_MAX:]}")


def _kill(process: subprocess.Popen[str]) -> None:
    """The process and what it started, by its own group."""
    if process.poll() is None:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            return
