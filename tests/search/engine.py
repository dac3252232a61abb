"""Breadth first: all states at a distance before any farther one, so that the first violation has a shortest trace.

Of a state that was seen only 8 bytes are kept: the keyed hash of its numbers. Two different states with one hash would
be taken for one, and the second never searched; with n states that is expected n²/2⁶⁵ times: 7·10⁻⁵ for 50 million. The
key is another one in each process (PYTHONHASHSEED), so what one run should miss the next will not.
"""

from __future__ import annotations

import gc
import struct
from array import array
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple

from tests.search.cluster import Cluster
from tests.search.invariants import Canonical, Invariants
from tests.search.parts import Violation

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.search.cluster import State
    from tests.search.configs import Config

PACKED = struct.Struct("<10I")
TABLE_BITS_FIRST = 20
CLOCK_EVERY = 1024
WORD = 0xFFFF_FFFF_FFFF_FFFF
ROOM = 4096
"""Successors of one state at most."""


class Visited:
    """A set of 64-bit numbers in 8 bytes each, at most two thirds full."""

    def __init__(self) -> None:
        self.count = 0
        self.mask = (1 << TABLE_BITS_FIRST) - 1
        self.table = array("Q", bytes(8 << TABLE_BITS_FIRST))

    def put(self, value: int) -> None:
        """Add a number that is not there; 0 stands for an empty place."""
        slot = value & self.mask
        while self.table[slot]:
            slot = (slot + 1) & self.mask
        self.table[slot] = value
        self.count += 1

    def grow(self) -> None:
        """Twice the room."""
        old = self.table
        self.mask = mask = self.mask * 2 + 1
        self.table = table = array("Q", bytes(8 * (mask + 1)))
        for value in old:
            if value:
                slot = value & mask
                while table[slot]:
                    slot = (slot + 1) & mask
                table[slot] = value


class Found(NamedTuple):
    """A violation and the shortest way to it."""

    invariant: str
    text: str
    trace: list[str]


class Result(NamedTuple):
    """How a search ended.

    Attributes:
        states: Distinct states after symmetry.
        transitions: Steps from one state to another that were looked at.
        steps_run: Steps of them that production code was run for; the others were known.
        depth: All states at this distance, and nearer, were reached.
        exhausted: Every state within the bounds was searched.
        seconds: Time it took.
        violation: None when everything holds.
    """

    states: int
    transitions: int
    steps_run: int
    depth: int
    exhausted: bool
    seconds: float
    violation: Found | None


class Search:
    """One search of one configuration."""

    def __init__(self, config: Config, *, progress: Callable[[str], None] | None = None) -> None:
        self.cluster = Cluster(config)
        self.canonical = Canonical(self.cluster)
        self.invariants = Invariants(self.cluster)
        self._progress = progress
        self._visited = Visited()
        self._parents = array("I", (0,))
        self._ordinals = array("H", (0,))
        self._transitions = 0

    def run(self, *, states_max: int = 0, seconds: float = 0.0) -> Result:
        """Search until there is nothing more, a violation, or the end of time or room."""
        # Millions of small tuples are kept for good; looking through them for cycles would take half of the time.
        collects = gc.isenabled()
        gc.disable()
        try:
            return self._run(states_max, seconds)
        finally:
            if collects:
                gc.enable()

    def _run(self, states_max: int, seconds: float) -> Result:
        started = monotonic()
        deadline = started + seconds if seconds else float("inf")
        limit = states_max or 1 << 62
        try:
            first = self._first = self.canonical.of(self.cluster.first())[0]
        except Violation as violation:
            found = Found(violation.invariant, violation.text, ["the beginning"])
            return Result(0, 0, self.cluster.steps_run, 0, False, monotonic() - started, found)
        self._visited.put(hash(PACKED.pack(*first)) & WORD or 1)
        frontier = PACKED.pack(*first)
        begin, depth, violation, complete = 0, 0, None, True
        while frontier and violation is None and complete:
            try:
                frontier, complete = self._level(frontier, begin, deadline, limit)
            except _Stopped as stopped:
                violation = stopped.found
            else:
                begin, depth = self._visited.count - len(frontier) // PACKED.size, depth + complete
                if self._progress is not None:
                    rate = self._visited.count / max(monotonic() - started, 1e-9)
                    self._progress(f"depth {depth}: {self._visited.count:,} states, {rate:,.0f}/s")
        return Result(
            self._visited.count,
            self._transitions,
            self.cluster.steps_run,
            depth,
            complete and violation is None,
            monotonic() - started,
            violation,
        )

    def _level(self, frontier: bytes, begin: int, deadline: float, limit: int) -> tuple[bytes, bool]:
        """All successors of one level; the next level, and whether this one was finished."""
        successors, form = self.cluster.successors, self.canonical.form
        committed, check = self.invariants.committed, self.invariants.check
        parents, ordinals, pack = self._parents.append, self._ordinals.append, PACKED.pack
        visited = self._visited
        table, mask = visited.table, visited.mask
        following = bytearray()
        number, transitions, ordinal = begin, 0, -1
        moves: list[tuple[State, str]] = []
        try:
            for number, state in enumerate(PACKED.iter_unpack(frontier), begin):
                ordinal = -1
                moves = successors(state)
                transitions += len(moves)
                for ordinal, (moved, _) in enumerate(moves):
                    after = form(committed(moved))
                    packed = pack(*after)
                    value = hash(packed) & WORD or 1
                    slot = value & mask
                    while (found := table[slot]) and found != value:
                        slot = (slot + 1) & mask
                    if found:
                        continue
                    table[slot] = value
                    visited.count += 1
                    parents(number)
                    ordinals(ordinal)
                    following += packed
                    check(after)
                if visited.count * 3 > mask * 2 - ROOM:
                    visited.grow()
                    table, mask = visited.table, visited.mask
                if not number % CLOCK_EVERY and (monotonic() > deadline or visited.count >= limit):
                    return bytes(following), False
        except Violation as violation:
            words = moves[ordinal][1] if ordinal >= 0 else self.cluster.doing
            raise _Stopped(self._explained(violation, number, ordinal, words)) from violation
        finally:
            self._transitions += transitions
        return bytes(following), visited.count < limit and monotonic() <= deadline

    # -------------------------------------------------------------------------------------------------------- traces

    def _explained(self, violation: Violation, number: int, ordinal: int, words: str) -> Found:
        """The way to a violation, with the brokers under the names that they have at the beginning."""
        path = []
        while number:
            path.append(self._ordinals[number])
            number = self._parents[number]
        state = self._first
        names = (1, 2, 3)
        """Original name of the broker that is now 1, 2, 3."""
        trace = [self._line("the beginning", state, names)]
        for chosen in reversed(path):
            moved, text = self.cluster.successors(state)[chosen]
            moved = self.invariants.committed(moved)
            state, p = self.canonical.of(moved)
            after = tuple(names[p.index(new)] for new in (1, 2, 3))
            trace.append(self._line(text.format("", *names), state, after))
            names = after
        last = words.format("", *names)
        if ordinal >= 0:
            moved = self.cluster.successors(state)[ordinal][0]
            trace.append(self._line(last, moved, names))
            if violation.invariant in _AFTER_RENUMBERING:
                p = self.canonical.of(self.invariants.committed(moved))[1]
                names = tuple(names[p.index(new)] for new in (1, 2, 3))
        else:
            trace.append(last)
        return Found(violation.invariant, violation.text.format("", *names), trace)

    def _line(self, words: str, state: State, names: tuple[int, ...]) -> str:
        return f"{words:62} | {described(self.cluster, state, names)}"


_AFTER_RENUMBERING = {"NoCommittedRecordLost", "LogsMatch", "HighWatermarkWaitsForAll"}
"""Invariants of whole states: their texts name brokers by their new numbers."""


class _Stopped(Exception):
    def __init__(self, found: Found) -> None:
        super().__init__(found.invariant)
        self.found = found


def described(cluster: Cluster, state: State, names: tuple[int, ...]) -> str:
    """A state on one line: the entry, then log and high watermark of each broker."""
    store = cluster.stores.values[state[0]]
    entry = store.entry
    leader = names[entry.leader - 1] if entry.has_leader else "-"
    isr = ",".join(f"{names[one.id - 1]}.{one.epoch}" for one in sorted(entry.isr, key=lambda one: names[one.id - 1]))
    brokers = []
    for name, slot in sorted((name, slot) for slot, name in enumerate(names, 1)):
        facts = cluster.nodes.facts[state[slot]]
        log = "".join(
            f"{value}@{epoch} " + ("| " if offset + 1 == facts.flushed < len(facts.records) else "")
            for offset, (epoch, value) in enumerate(facts.records)
        )
        role = "L" if facts.leads else "" if facts.up else "x"
        brokers.append(f"{name}{role}[{log.strip()}] hw {facts.high_watermark}")
    return f"e{entry.leader_epoch}.{entry.partition_epoch} leader {leader} isr {isr}; {'; '.join(brokers)}"
