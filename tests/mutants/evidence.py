"""What the ledgers say of one program, for `docs/proof.md`: what ran, how much of it, and whether anything broke."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from tests.chaos import ledger as chaos
from tests.search import ledger as search
from tests.search.configs import PROOFS
from tests.simulation import ledger as simulation

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

HISTORIES, HOURS, FAULTS, RECORDS = 100_000, 3.0, 500, 5_000_000
"""What one program has to come through before it counts as proven."""

REACHED, NOT_REACHED = "yes", "**no**"


class Ledgers(NamedTuple):
    """All that was written down, of whatever program."""

    simulated: list[simulation.Line]
    chaos: list[chaos.Line]
    searched: list[search.Line]


def read() -> Ledgers:
    """Those of the repository."""
    return Ledgers(simulation.read(simulation.LEDGER), chaos.read(chaos.LEDGER), search.read(search.LEDGER))


def render(ledgers: Ledgers, tree: str) -> list[str]:
    """The sections on the program with that hash: all proofs, and how far each configuration was searched."""
    simulated, attacked = _simulated(ledgers.simulated, tree), _attacked(ledgers.chaos, tree)
    rows = [
        (*simulated[:3], _reached(_ended(ledgers.simulated, tree) >= HISTORIES), *simulated[3:]),
        (*attacked[:3], _reached(_attacked_enough(ledgers.chaos, tree)), *attacked[3:]),
    ]
    for size in PROOFS:
        searched = _searched(ledgers.searched, tree, size)
        rows.append((*searched[:3], _reached(_last(ledgers.searched, tree, size) is not None), *searched[3:]))
    return [
        "## What ran",
        "",
        f"Of the program with the tree hash `{tree[:16]}` (`python tools/tree_hash.py`: core, runtime, broker_image and",
        "operator), by the ledgers of the repository. Lines of other hashes count nothing.",
        "",
        "| proof | asked for | came to | reached | broken |",
        "|---|---|---|---|---|",
        *("| " + " | ".join(row) + " |" for row in rows),
        "",
        *_depths(ledgers.searched, tree),
    ]


def _reached(enough: bool) -> str:
    return REACHED if enough else NOT_REACHED


def _ended(lines: Iterable[simulation.Line], tree: str) -> int:
    """Histories that came to their end, where everything acknowledged was read: not those that broke something before,
    nor those that ended at a documented limit.
    """
    summary = simulation.summarize(lines, tree)
    return summary.histories - _counted(summary, {*summary.limits, *summary.failed})


def _counted(summary: simulation.Summary, seeds: Iterable[int]) -> int:
    """How many of these seeds are among the histories that were added up: lines that repeat some are not."""
    return sum(summary.seeds.overlaps(seed, seed + 1) for seed in seeds)


def _simulated(lines: Iterable[simulation.Line], tree: str) -> tuple[str, ...]:
    lines = list(lines)
    summary = simulation.summarize(lines, tree)
    came_to = (
        f"{_ended(lines, tree):,} histories to their end, {summary.faults.total():,} faults of {len(summary.faults)} "
        f"kinds, {summary.elections:,} elections, {summary.acked:,} acknowledged records"
    )
    if limits := _counted(summary, summary.limits):
        came_to += f"; not counted: {limits:,} that ended where nothing more is promised"
    settled = [f"seed {seed} ({found[0]}) before the simulator was mended" for seed, found in summary.settled.items()]
    broken = "; ".join([f"**{len(summary.failed):,}**" if summary.failed else "0", *settled])
    name = "[simulated histories](simulation.md), `make simulate-summary`"
    return name, f"{HISTORIES:,} histories", came_to, broken


def _attacked_enough(lines: Iterable[chaos.Line], tree: str) -> bool:
    summary = next(iter(chaos.summarize(lines, tree)), chaos.Summary(tree))
    return summary.minutes >= 60 * HOURS and summary.bitten >= FAULTS and summary.acked >= RECORDS


def _attacked(lines: Iterable[chaos.Line], tree: str) -> tuple[str, ...]:
    summary = next(iter(chaos.summarize(lines, tree)), chaos.Summary(tree))
    came_to = (
        f"{summary.minutes / 60:.2f} h, {summary.bitten:,} of {summary.injected:,} faults bit, {summary.acked:,} records, "
        f"{len(summary.passed_scenarios)} scenarios"
    )
    others = {
        verdict: count for verdict, count in summary.verdicts.items() if verdict not in {chaos.PASSED, *chaos.AGAINST}
    }
    if others:
        came_to += "; not counted: " + ", ".join(f"{count} that {_verb(verdict)}" for verdict, count in others.items())
    broken = _bold(summary.verdicts[chaos.BROKEN])
    if unhealed := summary.verdicts[chaos.NO_HEAL]:
        broken += f"; **{unhealed}** that {chaos.NO_HEAL}"
    name = "[chaos on real processes](chaos.md), `make chaos-summary`"
    asked_for = f"{HOURS:g} h, {FAULTS} faults, {RECORDS:,} acknowledged records"
    return name, asked_for, came_to, broken


def _bold(count: int) -> str:
    return f"**{count}**" if count else "0"


def _verb(verdict: str) -> str:
    return verdict if verdict in {chaos.NO_BITE, chaos.FAILED} else f"were {verdict}"


def _last(lines: Iterable[search.Line], tree: str, size: str) -> search.Line | None:
    """The last search of that size that came to what is asked for, and found nothing."""
    whole = [line for line in lines if (line.tree, line.size, line.verdict) == (tree, size, search.CLEAN)]
    return whole[-1] if whole else None


def _searched(lines: Iterable[search.Line], tree: str, size: str) -> tuple[str, ...]:
    lines = list(lines)
    name = f"[exhaustive search](exhaustive-search.md), `make {_command(size)}`"
    asked_for = f"{PROOFS[size].states_min:,} states"
    violated = sum((line.tree, line.size, line.verdict) == (tree, size, search.VIOLATED) for line in lines)
    last = _last(lines, tree, size)
    if last is None:
        return name, asked_for, "-", f"**{violated}**" if violated else "-"
    minutes = f"{last.seconds / 60:.0f} min" if last.seconds >= 120 else f"{last.seconds:.0f} s"
    whole = sum(each.exhausted for each in last.configs.values())
    came_to = (
        f"{last.states:,} distinct states of {len(last.configs)} configurations, {whole} of them to the end, the others "
        f"[to a depth](#how-far-the-search-went); {minutes}, {last.memory_mb:,} MB"
    )
    return name, asked_for, came_to, f"**{violated}**" if violated else "0"


def _command(size: str) -> str:
    return "proof" if size == "full" else f"proof-{size}"


def _depths(lines: Iterable[search.Line], tree: str) -> list[str]:
    """The section on each configuration: bounds, states, depth, and whether these are all that there are."""
    lines, rows, missing = list(lines), [], []
    for size in PROOFS:
        last = _last(lines, tree, size)
        if last is None:
            missing.append(f"`make {_command(size)}` has not come to its end on this program.")
            continue
        for name, each in last.configs.items():
            end = "yes" if each.exhausted else "no"
            rows.append(f"| `{name}` | {_bounds(each.bounds)} | {each.states:,} | {each.depth} | {end} |")
    table = ["| configuration | bounds | distinct states | depth | all of them |", "|---|---|---|---|---|", *rows]
    return [
        "## How far the search went",
        "",
        "The search goes breadth first. A configuration that is not exhausted by its share of the states was searched",
        "completely up to the depth that stands here, a number of events, and in part one event further: what takes more",
        "events than that was not seen. Where it says that these are all, there is no other state within the bounds.",
        "[What the configurations are for](exhaustive-search.md); the bounds are those of `tests/search/configs.py`, and",
        "what is not named is none.",
        "",
        *(["\n".join(missing), *([""] if rows else [])] if missing else []),
        *(table if rows else []),
    ]


def _bounds(bounds: Mapping[str, Any]) -> str:
    """Those that say something: faults that there are none of are left out, and answers for words."""
    shown = [
        name.replace("_", " ") + ("" if value is True else f" {_value(value)}")
        for name, value in bounds.items()
        if value and (name, value) != ("copies", 1)
    ]
    return ", ".join(shown) or "not written down"


def _value(value: object) -> str:
    return " or ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
