"""Virtual time: one queue of events, one seeded source of chance for each concern, processes that stop and go on.

A history is replayed by its seed: nothing here reads a clock, and nothing depends on the order of a set.
"""

from __future__ import annotations

import random
import traceback
from collections import Counter
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from kafkalite_core.storage.errors import DiskFailure

if TYPE_CHECKING:
    from collections.abc import Callable


LASTING = frozenset(
    {
        "api_delay",
        "api_delayed_request",
        "api_lost_answer",
        "api_lost_request",
        "api_outage",
        "api_reject",
        "api_reset",
        "api_throttle",
        "churn",
        "client_cut",
        "client_delay",
        "client_reset",
        "disk_full",
        "lagging_server",
        "late_list",
        "network_cut",
        "network_delay",
        "network_drop",
        "network_repeat",
        "network_reset",
        "power_all",
        "read_error",
        "unanswered",
        "watch_broken",
        "watch_expired",
        "watch_lag",
        "watch_silent",
        "write_error",
    }
)
"""Faults that last and may have many effects; the first effect of each counts, the others do not."""


class Violation(Exception):
    """An invariant does not hold. `invariant` is its name."""

    def __init__(self, invariant: str, text: str) -> None:
        super().__init__(f"{invariant}: {text}")
        self.invariant = invariant
        self.text = text


class LimitReached(Exception):
    """The history has come to where the documentation promises nothing more, which it names; it is no violation."""


class ProcessDied(BaseException):  # not an Exception: the core must not catch it
    """Unwinds the event under way, at whatever effect or disk operation the process died."""

    def __init__(self, process: Process, reason: str, *, power: bool = False) -> None:
        super().__init__(reason)
        self.process = process
        self.reason = reason
        self.power = power


class Process:
    """What events happen to: one life of a broker, an operator or a client. Its events end with it."""

    __slots__ = ("alive", "backlog", "died", "name", "paused")

    def __init__(self, name: str, died: Callable[[ProcessDied], None] | None = None) -> None:
        self.name = name
        self.alive = True
        self.paused = False
        self.backlog: list[tuple[Callable[..., None], tuple[object, ...]]] = []
        self.died = died


class World:
    """The queue and what all actors share.

    Attributes:
        now: Virtual time in ms; the truth, which no actor knows.
        events: Events so far.
        digest: Depends on every event's time and place in the queue; two runs of a seed end with the same one.
        bitten: Faults by kind that had an effect.
        effects: Their effects: messages that were lost, calls that failed, and the like.
        tracing: Whether `trace` keeps anything.
    """

    def __init__(self, seed: int, *, tracing: bool = False) -> None:
        self.seed = seed
        self.now = 0.0
        self.events = 0
        self.digest = 0
        self.bitten: Counter[str] = Counter()
        self.effects: Counter[str] = Counter()
        self._armed: set[str] = set()
        self.tracing = tracing
        self.lines: list[str] = []
        self._heap: list[tuple[float, int, Process | None, Callable[..., None], tuple[object, ...]]] = []
        self._sequence = 0

    def rng(self, concern: str) -> random.Random:
        """A source of chance of its own, so that shrinking one concern does not shift the others."""
        return random.Random(f"{self.seed}/{concern}")

    def at(self, delay_ms: float, process: Process | None, action: Callable[..., None], *args: object) -> None:
        """Call `action` later, unless the process is dead by then."""
        self._sequence += 1
        heappush(self._heap, (self.now + delay_ms, self._sequence, process, action, args))

    def run(self, until_ms: float) -> None:
        """Let everything happen that is due up to that time."""
        heap = self._heap
        while heap and heap[0][0] <= until_ms:
            time, sequence, process, action, args = heappop(heap)
            if process is not None:
                if not process.alive:
                    continue
                if process.paused:
                    process.backlog.append((action, args))
                    continue
            self.now = time
            self.events += 1
            self.digest = hash((self.digest, time, sequence))
            try:
                action(*args)
            except ProcessDied as death:
                self.bury(death)
            except DiskFailure as failure:  # R12: the process ends at once
                if process is None:
                    raise
                self.bury(ProcessDied(process, f"disk failure: {failure}"))
            except (Violation, LimitReached):
                raise
            except Exception as error:
                raise Violation("no defect", "".join(traceback.format_exception(error)[-6:])) from error
        self.now = until_ms

    def bury(self, death: ProcessDied) -> None:
        """The process ends here."""
        process = death.process
        if process.alive:
            process.alive = False
            process.backlog.clear()
            if process.died is not None:
                process.died(death)

    def bury_now(self, process: Process, reason: str, *, power: bool = False) -> None:
        """Kill a process from outside."""
        self.bury(ProcessDied(process, reason, power=power))

    def pause(self, process: Process) -> None:
        """SIGSTOP: events wait."""
        process.paused = True

    def resume(self, process: Process) -> int:
        """SIGCONT: what waited happens now, in its order; returns how much that was."""
        process.paused = False
        backlog, process.backlog = process.backlog, []
        for action, args in backlog:
            self.at(0.0, process, action, *args)
        return len(backlog)

    @property
    def queued(self) -> int:
        """Events that are to come."""
        return len(self._heap)

    def note(self, *facts: int) -> None:
        """Something that two runs of a seed have to agree on."""
        self.digest = hash((self.digest, facts))

    def arm(self, kind: str) -> None:
        """A fault of a kind that may have many effects begins: the first one counts."""
        assert kind in LASTING, kind
        self._armed.add(kind)

    def bite(self, kind: str) -> None:
        """A fault had an effect; further effects of the same fault do not count."""
        self.effects[kind] += 1
        if kind not in LASTING:
            self.bitten[kind] += 1
        elif kind in self._armed:
            self._armed.discard(kind)
            self.bitten[kind] += 1

    def trace(self, who: str, text: str) -> None:
        """One line of the readable trace; callers ask `tracing` first where the text costs something."""
        if self.tracing:
            self.lines.append(f"{self.now:12.3f} {self.events:7d}  {who:<8} {text}")
