"""The ledger of the simulation: one line per batch of histories. Lines of one program add up, each seed once."""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import msgspec

import kafkalite_broker
import kafkalite_core
from tools.tree_hash import tree_hash

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tests.simulation.run import Result

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
LEDGER = HERE / "ledger.jsonl"
CLEAN, VIOLATED = "clean", "violated"


class Line(msgspec.Struct, kw_only=True, frozen=True):
    """The histories of the seeds `first` to `last`, that one excluded.

    Attributes:
        time: When the batch ended, UTC.
        tree: `tools/tree_hash.py` of what ran.
        simulator: Hash of the modules of `tests/simulation`, which say what a seed means.
        acked: Records acknowledged with acks=all in clean histories, all of them found at the end.
        excused: Records like these that were missing then, as they may after a restore of the store (S11).
        given_up: Those that somebody gave up: by an unclean election that he allowed, or by deleting the topic.
        faults: Those that bit, by kind.
        median_events, median_faults, median_acked: Of a history.
        failed: Seeds whose history broke an invariant, with its name.
        limits: Seeds whose history ended where nothing more is promised, with the limit.
        seconds: From the begin of the batch to its end.
        cpu_seconds: Of all processes.
    """

    time: str
    tree: str
    simulator: str
    first: int
    last: int
    histories: int
    events: int
    acked: int
    excused: int = 0
    given_up: int = 0
    elections: int
    faults: dict[str, int]
    median_events: int
    median_faults: int
    median_acked: int
    verdict: str
    failed: dict[int, str]
    limits: dict[int, str] = msgspec.field(default_factory=dict)
    seconds: float
    cpu_seconds: float


def simulator_hash(folder: Path = HERE) -> str:
    """SHA-256 over path, size and content of every module of the simulator."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        content = path.read_bytes()
        digest.update(b"%s\0%d\0" % (path.relative_to(folder).as_posix().encode(), len(content)) + content)
    return digest.hexdigest()


def identity() -> tuple[str, str]:
    """What runs: the hash of the program, and that of the simulator."""
    return tree_hash(ROOT), simulator_hash()


def runs_own_core() -> bool:
    """Whether what was imported is what the hash speaks of, not a copy with a mutant."""
    imported = {"core": kafkalite_core, "broker_image": kafkalite_broker}
    return all(Path(str(one.__file__)).resolve().is_relative_to(ROOT / name) for name, one in imported.items())


def line_of(results: Sequence[Result], who: tuple[str, str], *, time: str, seconds: float) -> Line:
    """The line of some histories with consecutive seeds."""
    seeds = [result.seed for result in results]
    assert seeds == list(range(seeds[0], seeds[0] + len(seeds))), "a line is a range of seeds"
    failed = {result.seed: str((result.violation or {})["invariant"]) for result in results if not result.ok}
    faults: Counter[str] = Counter()
    for result in results:
        faults.update(result.faults_bitten)
    return Line(
        time=time,
        tree=who[0],
        simulator=who[1],
        first=seeds[0],
        last=seeds[-1] + 1,
        histories=len(results),
        events=sum(result.events for result in results),
        acked=sum(r.acked - r.excused - r.given_up for r in results if r.ok and not r.limit),
        excused=sum(result.excused for result in results if result.ok),
        given_up=sum(result.given_up for result in results if result.ok),
        elections=sum(result.elections for result in results),
        faults=dict(sorted(faults.items())),
        median_events=int(median(result.events for result in results)),
        median_faults=int(median(sum(result.faults_bitten.values()) for result in results)),
        median_acked=int(median(result.acked for result in results)),
        verdict=VIOLATED if failed else CLEAN,
        failed=failed,
        limits={result.seed: result.limit for result in results if result.limit},
        seconds=round(seconds, 2),
        cpu_seconds=round(sum(result.cpu_s for result in results), 2),
    )


def append(path: Path, line: msgspec.Struct) -> None:
    """Add one line, after whatever a run that was killed has left of its last one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+b") as file:
        if file.tell():
            file.seek(-1, 2)
            if file.read(1) != b"\n":
                file.write(b"\n")
        file.write(msgspec.json.encode(line) + b"\n")


def read(path: Path) -> list[Line]:
    """All whole lines; none when there is no such file."""
    lines = []
    for text in path.read_bytes().splitlines() if path.is_file() else ():
        try:
            lines.append(msgspec.json.decode(text, type=Line, strict=False))
        except msgspec.DecodeError:
            continue  # cut short, or of another make
    return lines


def unreadable(path: Path) -> int:
    """How many lines `read` passes over: each may have had seeds that failed."""
    return len(path.read_bytes().splitlines()) - len(read(path)) if path.is_file() else 0


class Seeds:
    """A set of seeds, as ranges."""

    def __init__(self) -> None:
        self._ranges: list[tuple[int, int]] = []

    def __len__(self) -> int:
        return sum(last - first for first, last in self._ranges)

    def add(self, first: int, last: int) -> None:
        """`last` is excluded."""
        merged: list[tuple[int, int]] = []
        for begin, end in sorted([*self._ranges, (first, last)]):
            if merged and begin <= merged[-1][1]:
                merged[-1] = (merged[-1][0], max(merged[-1][1], end))
            else:
                merged.append((begin, end))
        self._ranges = merged

    def overlaps(self, first: int, last: int) -> bool:
        """Whether any of the range is in it."""
        return any(begin < last and first < end for begin, end in self._ranges)

    def missing(self, first: int, last: int | None = None) -> Iterator[tuple[int, int | None]]:
        """The ranges from `first` to `last` that are not in it; without `last` the final one has no end."""
        for begin, end in self._ranges:
            if last is not None and begin >= last:
                break
            if begin > first:
                yield first, begin
            first = max(first, end)
        if last is None or first < last:
            yield first, last


@dataclass(slots=True)
class Summary:
    """What the lines of one program add up to; a line with seeds of an earlier one counts nothing.

    A seed that failed stays listed until a later simulator has run it again and found nothing: then it is listed as
    that, since either the histories changed or what is asked of them did (docs/simulation.md says which).
    """

    tree: str
    histories: int = 0
    events: int = 0
    acked: int = 0
    excused: int = 0
    given_up: int = 0
    elections: int = 0
    cpu_seconds: float = 0.0
    repeated: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    failed: dict[int, tuple[str, str]] = field(default_factory=dict)
    settled: dict[int, tuple[str, str, str]] = field(default_factory=dict)
    limits: dict[int, str] = field(default_factory=dict)
    simulators: Counter[str] = field(default_factory=Counter)
    seeds: Seeds = field(default_factory=Seeds)
    medians: list[tuple[int, int, int, int]] = field(default_factory=list)

    def add(self, line: Line) -> None:
        """Count a line."""
        for seed, (invariant, simulator) in list(self.failed.items()):
            if line.first <= seed < line.last and line.simulator != simulator:
                del self.failed[seed]
                self.settled[seed] = (invariant, simulator, line.simulator)
        for seed, invariant in line.failed.items():
            self.settled.pop(seed, None)
            self.failed[seed] = (invariant, line.simulator)
        self.limits.update(line.limits)
        if self.seeds.overlaps(line.first, line.last):
            self.repeated += 1
            return
        self.seeds.add(line.first, line.last)
        self.simulators[line.simulator] += line.histories
        self.histories += line.histories
        self.events += line.events
        self.acked += line.acked
        self.excused += line.excused
        self.given_up += line.given_up
        self.elections += line.elections
        self.cpu_seconds += line.cpu_seconds
        self.faults.update(line.faults)
        self.medians.append((line.median_events, line.median_faults, line.median_acked, line.histories))

    def text(self) -> str:
        """For people."""
        events, faults, acked = (int(median([m[column] for m in self.medians] or [0])) for column in range(3))
        rate = round(self.events / self.cpu_seconds) if self.cpu_seconds else 0
        head = (
            f"tree {self.tree[:16]}: {self.histories:,} histories, {len(self.failed):,} of them broke an invariant, "
            f"{len(self.limits):,} ended at a documented limit; {self.events:,} events ({rate:,} per CPU second), "
            f"{self.faults.total():,} faults of {len(self.faults)} kinds bit, {self.elections:,} elections, "
            f"{self.acked:,} acknowledged records checked, {self.excused:,} more excused (S11), {self.given_up:,} given up by their users; medians of a history: "
            f"{events:,} events, {faults} faults, {acked:,} records"
        )
        lines = [head, *(f"  simulator {name[:16]}: {count:,} of them" for name, count in self.simulators.items())]
        lines += [f"  seed {seed}: {found[0]}" for seed, found in sorted(self.failed.items())]
        lines += [
            f"  seed {seed}: {invariant} by simulator {before[:16]}, nothing by {now[:16]}"
            for seed, (invariant, before, now) in sorted(self.settled.items())
        ]
        lines += [f"  seed {seed} ended: {limit}" for seed, limit in sorted(self.limits.items())]
        if self.repeated:
            lines.append(f"  {self.repeated} lines repeat seeds of earlier ones, and were not counted")
        return "\n".join(lines)


def summarize(lines: Iterable[Line], tree: str, *, simulator: str = "") -> Summary:
    """The lines of one program, and of that simulator only if one is named."""
    summary = Summary(tree)
    # By their times: copies of the ledger are merged in any order, and an earlier simulator settles nothing of a later one.
    for line in sorted(lines, key=lambda each: each.time):
        if line.tree == tree and simulator in {"", line.simulator}:
            summary.add(line)
    return summary
