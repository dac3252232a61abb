"""The ledger of chaos: one line per run of a scenario. Lines of one hash of the program add up."""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable

HERE = Path(__file__).resolve().parent
LEDGER = HERE / "ledger.jsonl"
JUDGES = (HERE, HERE.parents[1] / "cli" / "kafkalite_cli" / "verify")
"""What harms, and what judges. Tests of these are not part of it."""
PASSED, BROKEN, NO_BITE, FAILED, VOID = "passed", "broken", "did not bite", "failed", "void"
CUT_OFF, NO_HEAL = "cut off", "did not heal"
AGAINST = (BROKEN, NO_HEAL)
"""Verdicts against the program: safety, and liveness. They stand until somebody shows by hand (`void`) that it was not."""
KIND = "kind"


class Line(msgspec.Struct, kw_only=True, frozen=True):
    """One run.

    Attributes:
        time: when it began, UTC.
        tree: `tools/tree_hash.py` of what ran.
        harness: `harness_hash` of what harmed and judged it; empty in lines from before it was written down.
        commit: revision, with a + when files had been changed.
        minutes: from the start of the load to the end of the last reading.
        injected, bitten: how many single harms were done, and how many are shown to have had an effect.
        acked: acknowledged records, all of which were looked for.
        verdict: passed; broken: a promise of the log, the replicas or the metadata was; did not heal: not whole, without
            progress, or not at an end within its generous limit; did not bite: a fault without shown effect or traffic
            below its floor; failed: could not be run (in lines from before there was `did not heal`: that as well); cut
            off: ended from outside before it had a verdict; void: written by hand over another verdict, with the reason
            why the run says nothing of the program.
        reason: why it did not pass.
        longest_gap_ms: between two acknowledgements.
        allowed: anomalies of kinds that clients are not promised to be spared under this fault, by kind.
        where: `KIND`: a round on the cluster of `make kind-up`, its faults joined by + before the /; empty: local processes.
    """

    time: str
    tree: str
    commit: str
    scenario: str
    seed: int
    verdict: str
    reason: str
    minutes: float
    injected: int
    bitten: int
    acked: int
    read: int = 0
    replica_bytes: int = 0
    metadata_changes: int = 0
    longest_gap_ms: float = 0.0
    counts: dict[str, int] = msgspec.field(default_factory=dict)
    harness: str = ""
    allowed: dict[str, int] = msgspec.field(default_factory=dict)
    where: str = ""


@cache
def harness_hash(folders: tuple[Path, ...] = JUDGES) -> str:
    """SHA-256 over name, size and content of every module that harms or judges: a line is worth what they are."""
    digest = hashlib.sha256()
    for folder in folders:
        for path in sorted(folder.rglob("*.py")):
            if not path.name.startswith("test_"):
                content = path.read_bytes()
                name = f"{folder.name}/{path.relative_to(folder).as_posix()}".encode()
                digest.update(b"%s\0%d\0" % (name, len(content)) + content)
    return digest.hexdigest()


@dataclass(slots=True)
class Summary:
    """What the lines of one hash add up to."""

    tree: str
    runs: int = 0
    minutes: float = 0.0
    injected: int = 0
    bitten: int = 0
    acked: int = 0
    verdicts: Counter[str] = field(default_factory=Counter)
    passed_scenarios: set[str] = field(default_factory=set)
    faults: set[str] = field(default_factory=set)
    harnesses: dict[str, list[Line]] = field(default_factory=dict)
    on_kind: list[Line] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def add(self, line: Line) -> None:
        """Only runs that passed count towards minutes, faults and records; the others are shown."""
        self.runs += 1
        self.verdicts[line.verdict] += 1
        if line.verdict != PASSED:
            place = f"on {line.where}: " if line.where else ""
            self.problems.append(f"{line.time} {place}{line.scenario} seed {line.seed}: {line.verdict}: {line.reason}")
            return
        self.harnesses.setdefault(line.harness, []).append(line)
        self.minutes += line.minutes
        self.injected += line.injected
        self.bitten += line.bitten
        self.acked += line.acked
        faults = line.scenario.partition("/")[0]
        if line.where:
            self.on_kind.append(line)
            self.faults.update(f"{name} on {line.where}" for name in faults.split("+"))
        else:
            self.passed_scenarios.add(line.scenario)
            self.faults.add(faults)

    @property
    def against(self) -> int:
        """Runs that speak against the program."""
        return sum(self.verdicts[verdict] for verdict in AGAINST)

    def text(self) -> str:
        """For people."""
        verdicts = ", ".join(f"{count} {verdict}" for verdict, count in self.verdicts.most_common())
        head = (
            f"tree {self.tree[:16]}: {self.runs} runs ({verdicts}); those that passed: {self.minutes / 60:.2f} h, "
            f"{self.bitten} of {self.injected} faults bit, {self.acked:,} acknowledged records checked, "
            f"{len(self.passed_scenarios)} scenarios, {len(self.faults)} kinds of faults"
        )
        parts = [part_of(harness, lines) for harness, lines in self.harnesses.items()]
        kind = [on_kind_of(self.on_kind)] if self.on_kind else []
        return "\n".join([head, *parts, *kind, *(f"  {problem}" for problem in self.problems)])


def part_of(harness: str, lines: list[Line]) -> str:
    """What the runs that passed under one harness add up to, for people."""
    hours, bitten = sum(line.minutes for line in lines) / 60, sum(line.bitten for line in lines)
    acked, scenarios = sum(line.acked for line in lines), len({line.scenario for line in lines if not line.where})
    name = f"harness {harness[:16]}" if harness else "harness not written down"
    return f"  {name}: {hours:.2f} h, {bitten} faults, {acked:,} acknowledged records, {scenarios} scenarios"


def on_kind_of(lines: list[Line]) -> str:
    """What the rounds on the kind cluster that passed add up to, for people; the sums of all have them in."""
    hours, bitten = sum(line.minutes for line in lines) / 60, sum(line.bitten for line in lines)
    acked = sum(line.acked for line in lines)
    kinds = {name for line in lines for name in line.scenario.partition("/")[0].split("+")}
    text = f"{hours:.2f} h, {bitten} faults of {len(kinds)} kinds, {acked:,} acknowledged records"
    return f"  on {KIND}: {len(lines)} rounds, {text}"


def append(path: Path, line: Line) -> None:
    """Add one line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        file.write(msgspec.json.encode(line) + b"\n")


def read(path: Path) -> list[Line]:
    """All lines; none when there is no such file. Raises msgspec.DecodeError for a line that is none."""
    if not path.is_file():
        return []
    return [msgspec.json.decode(text, type=Line) for text in path.read_bytes().splitlines()]


def summarize(lines: Iterable[Line], tree: str | None = None) -> list[Summary]:
    """One summary per hash, in the order of their first lines; only of `tree` when it is given.

    A line that is there twice, as after a merge of two copies of the ledger, counts once.
    """
    found: dict[str, Summary] = {}
    known: set[bytes] = set()
    for line in lines:
        written = msgspec.json.encode(line)
        if tree in (None, line.tree) and written not in known:
            known.add(written)
            found.setdefault(line.tree, Summary(line.tree)).add(line)
    return list(found.values())
