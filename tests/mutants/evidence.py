"""What the ledgers say of one program, for `docs/proof.md`: what ran, how much of it, and whether anything broke."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tests.chaos import ledger as chaos
from tests.search import ledger as search
from tests.search.configs import PROOFS
from tests.simulation import ledger as simulation

if TYPE_CHECKING:
    from collections.abc import Iterable

HISTORIES, HOURS, FAULTS, RECORDS = 100_000, 3.0, 500, 5_000_000
"""What one program has to come through before it counts as proven."""


class Ledgers(NamedTuple):
    """All that was written down, of whatever program."""

    simulated: list[simulation.Line]
    chaos: list[chaos.Line]
    searched: list[search.Line]


def read() -> Ledgers:
    """Those of the repository."""
    return Ledgers(simulation.read(simulation.LEDGER), chaos.read(chaos.LEDGER), search.read(search.LEDGER))


def render(ledgers: Ledgers, tree: str) -> list[str]:
    """The section on the program with that hash."""
    rows = [_simulated(ledgers.simulated, tree), _attacked(ledgers.chaos, tree)]
    rows += [_searched(ledgers.searched, tree, size) for size in PROOFS]
    return [
        "## What ran",
        "",
        f"Of the program with the tree hash `{tree[:16]}` (`python tools/tree_hash.py`: core, runtime, broker_image and",
        "operator), by the ledgers of the repository. Lines of other hashes count nothing.",
        "",
        "| proof | asked for | came to | broken |",
        "|---|---|---|---|",
        *("| " + " | ".join(row) + " |" for row in rows),
    ]


def _simulated(lines: Iterable[simulation.Line], tree: str) -> tuple[str, ...]:
    summary = simulation.summarize(lines, tree)
    came_to = (
        f"{summary.histories:,} histories, {summary.faults.total():,} faults of {len(summary.faults)} kinds, "
        f"{summary.elections:,} elections, {summary.acked:,} acknowledged records"
    )
    if summary.limits:
        came_to += f"; {len(summary.limits):,} of them ended where nothing more is promised"
    settled = [f"seed {seed} ({found[0]}) before the simulator was mended" for seed, found in summary.settled.items()]
    broken = "; ".join([f"**{len(summary.failed):,}**" if summary.failed else "0", *settled])
    name = "[simulated histories](simulation.md), `make simulate-summary`"
    return name, f"{HISTORIES:,} histories", came_to, broken


def _attacked(lines: Iterable[chaos.Line], tree: str) -> tuple[str, ...]:
    summary = next(iter(chaos.summarize(lines, tree)), chaos.Summary(tree))
    came_to = (
        f"{summary.minutes / 60:.2f} h, {summary.bitten:,} of {summary.injected:,} faults bit, {summary.acked:,} records, "
        f"{len(summary.passed_scenarios)} scenarios"
    )
    others = {
        verdict: count for verdict, count in summary.verdicts.items() if verdict not in {chaos.PASSED, chaos.BROKEN}
    }
    if others:
        came_to += "; not counted: " + ", ".join(f"{count} that {_verb(verdict)}" for verdict, count in others.items())
    broken = summary.verdicts[chaos.BROKEN]
    name = "[chaos on real processes](chaos.md), `make chaos-summary`"
    asked_for = f"{HOURS:g} h, {FAULTS} faults, {RECORDS:,} acknowledged records"
    return name, asked_for, came_to, f"**{broken}**" if broken else "0"


def _verb(verdict: str) -> str:
    return verdict if verdict in {chaos.NO_BITE, chaos.FAILED} else f"were {verdict}"


def _searched(lines: Iterable[search.Line], tree: str, size: str) -> tuple[str, ...]:
    name = f"[exhaustive search](exhaustive-search.md), `make proof{'' if size == 'full' else '-' + size}`"
    asked_for = f"{PROOFS[size].states_min:,} states"
    mine = [line for line in lines if (line.tree, line.size) == (tree, size)]
    violated = sum(line.verdict == search.VIOLATED for line in mine)
    whole = [line for line in mine if line.verdict == search.CLEAN]
    if not whole:
        return name, asked_for, "-", f"**{violated}**" if violated else "-"
    last = whole[-1]
    minutes = f"{last.seconds / 60:.0f} min" if last.seconds >= 120 else f"{last.seconds:.0f} s"
    came_to = (
        f"{last.states:,} distinct states of {len(last.configs)} configurations in {minutes}, {last.memory_mb:,} MB"
    )
    return name, asked_for, came_to, f"**{violated}**" if violated else "0"
