"""Many histories: over several processes, batch by batch into the ledger."""

from __future__ import annotations

import signal
import sys
import time
from collections import deque
from concurrent.futures import Future, ProcessPoolExecutor
from datetime import UTC, datetime
from itertools import count, islice
from typing import TYPE_CHECKING

from tests.simulation import ledger
from tests.simulation.run import Result, run_seed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

BATCH = 200
"""Histories in a line of the ledger; what is lost at most when the machine fails."""


class Recorder:
    """Adds histories to the ledger, those of seeds that it does not have yet.

    Attributes:
        who: The program and the simulator that run.
        known: The seeds that the ledger has of both.
        seen: Those that it has of the program, by whichever simulator.
        changed: They are not those in the work tree any more: nothing is written down from then on.
    """

    def __init__(self, path: Path, *, batch: int = BATCH) -> None:
        self._path = path
        self._batch = batch
        self.who = ledger.identity()
        lines = ledger.read(path)
        self.known = ledger.summarize(lines, self.who[0], simulator=self.who[1]).seeds
        self.seen = ledger.summarize(lines, self.who[0]).seeds
        self.changed = False
        self._pending: list[Result] = []
        self._began = time.monotonic()

    def take(self, result: Result) -> None:
        """One more history."""
        if not self.known.overlaps(result.seed, result.seed + 1):
            if self._pending and result.seed != self._pending[-1].seed + 1:
                self.write()
            self._pending.append(result)
            if len(self._pending) >= self._batch:
                self.write()

    def write(self) -> None:
        """Write down what has been taken."""
        now = time.monotonic()
        pending, self._pending = self._pending, []
        began, self._began = self._began, now
        if not pending:
            return
        self.changed = self.changed or ledger.identity() != self.who
        if self.changed:
            print(f"the program changed: histories from seed {pending[0].seed} on are not kept", file=sys.stderr)
            return
        stamp = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        line = ledger.line_of(pending, self.who, time=stamp, seconds=now - began)
        ledger.append(self._path, line)
        self.known.add(line.first, line.last)


def unknown_seeds(known: ledger.Seeds) -> Iterator[int]:
    """From 0 on without end, those that the ledger does not have."""
    for first, last in list(known.missing(0)):
        yield from count(first) if last is None else range(first, last)


def play(seeds: Iterable[int], *, jobs: int, seconds: float = 0.0, tracing: bool = False) -> Iterator[Result]:
    """The histories of seeds, in their order. With `seconds`, none begins after that time."""
    deadline = time.monotonic() + (seconds or 1e12)
    if jobs <= 1:
        for seed in seeds:
            if time.monotonic() > deadline:
                return
            yield run_seed(seed, tracing=tracing)
        return
    rest = iter(seeds)
    running: deque[Future[Result]] = deque()
    pool = ProcessPoolExecutor(jobs, initializer=_ignore_interrupts)
    try:
        while True:
            if time.monotonic() <= deadline:
                running.extend(pool.submit(run_seed, seed) for seed in islice(rest, jobs * 4 - len(running)))
            if not running:
                return
            yield running.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def _ignore_interrupts() -> None:
    """Ctrl-C reaches the whole group of processes; the first of them tells the others what to do."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
