"""What became of each mutant, as it is kept in `results.json`, and the tables in the docs that are made of it."""

from __future__ import annotations

import json
from collections import Counter
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from tests.mutants import evidence
from tests.mutants.catalog import PATCHES, ROOT, all_mutants
from tools.chart import with_block
from tools.tree_hash import tree_hash

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from tests.mutants.catalog import Mutant
    from tests.mutants.hunting import Attempt, Sighting

RESULTS: Final = PATCHES / "results.json"
PROOF: Final = ROOT / "docs" / "proof.md"
SEARCH_PAGE: Final = ROOT / "docs" / "exhaustive-search.md"
SEARCH_BLOCK: Final = "found"
"""Name of the marks in that page between which its table stands."""

TRACE_STEPS_MAX: Final = 40

Result = dict[str, Any]


def _sighting(sighting: Sighting) -> Result:
    names = ("invariant", "text", "seed", "seeds", "config", "states")
    found = {name: value for name in names if (value := getattr(sighting, name)) is not None}
    found["seconds"] = round(sighting.seconds, 1)
    if sighting.trace:
        found["trace"] = list(sighting.trace)
    return found


def result_of(
    mutant: Mutant,
    *,
    tree: str,
    commit: str,
    searched: Sequence[tuple[str, Attempt]],
    simulated: Sequence[tuple[int, Attempt]],
    clean: bool | None,
    note: str = "",
) -> Result:
    """The entry of one mutant.

    Args:
        mutant: Which one.
        tree: Hash of the program.
        commit: Of the repository.
        searched: Configurations of the exhaustive search with what came of them.
        simulated: First seeds of the starts of the simulator with what came of them.
        clean: The core as it is passed the same seeds and states; None when that was not looked at, and nothing is found.
        note: What went wrong with the engines, if anything did.
    """
    by_search = next((a.sighting for _, a in searched if a.sighting is not None), None)
    sightings = [a.sighting for _, a in simulated if a.sighting is not None]
    entry: Result = {
        "rule": mutant.rule,
        "broken": mutant.broken,
        "found": bool((by_search or sightings) and clean),
        "tree": tree,
        "commit": commit,
        "seconds": round(sum(a.seconds for _, a in (*searched, *simulated)), 1),
    }
    if searched:
        states = {config: attempt.tried for config, attempt in searched}
        entry["search"] = {"states_tried": states, "found": None if by_search is None else _sighting(by_search)}
    if simulated:
        counted = Counter(sighting.invariant for sighting in sightings)
        entry["simulation"] = {
            "starts": [
                {"first_seed": first, "histories": attempt.tried, **(_found(attempt.sighting))}
                for first, attempt in simulated
            ],
            "found_starts": len(sightings),
            "median_seeds": median(s.seeds for s in sightings if s.seeds is not None) if sightings else None,
            "median_seconds": round(median(s.seconds for s in sightings), 1) if sightings else None,
            "invariants": dict(counted.most_common()),
        }
    if clean is not None:
        entry["clean_without"] = clean
    if note:
        entry["note"] = note
    return entry


def _found(sighting: Sighting | None) -> Result:
    return {"found": False} if sighting is None else {"found": True, **_sighting(sighting)}


def merged(known: Result | None, entry: Result) -> Result:
    """`entry`, with what another engine had to say before of the same program."""
    if known is None or known["tree"] != entry["tree"]:
        return entry
    parts = {name: known[name] for name in ("search", "simulation") if name in known and name not in entry}
    if not parts:
        return entry
    clean = [one["clean_without"] for one in (known, entry) if "clean_without" in one]
    both = {**entry, **parts, "seconds": round(known["seconds"] + entry["seconds"], 1)}
    both["found"] = bool(known["found"] or entry["found"])
    return {**both, "clean_without": all(clean)} if clean else both


def load(path: Path = RESULTS) -> dict[str, Result]:
    """Results by mutant; empty when there are none yet."""
    if not path.exists():
        return {}
    found: dict[str, Result] = json.loads(path.read_text(encoding="utf-8"))
    return found


def save(results: Mapping[str, Result], path: Path = RESULTS) -> None:
    """Write them, in the order of the numbers."""
    text = json.dumps(dict(sorted(results.items())), indent=1, ensure_ascii=False)
    path.write_text(text + "\n", encoding="utf-8")


# -------------------------------------------------------------------------------------------------------- the table

INTRODUCTION: Final = """\
# The proof of the replication core

This page is made by `python -m tests.mutants --table`; edit `tests/mutants/results.py`, not the page.

The [rules of replication](replication-rules.md) live in one core that does no I/O. Three engines run that same code:
the brokers and the operator, a simulator of whole clusters in virtual time (`tests/simulation`), and an exhaustive
search over all orders of events of small clusters (`tests/search`), breadth first and [so far](#how-far-the-search-went)
as the number of states allows. Whether they would notice a mistake is itself put to the test: each **mutant** below is a
patch in `tests/mutants` that breaks exactly one rule in a copy of the core. An engine that finds nothing wrong with the
core is worth as much as the number of mutants that it does find.

A mutant counts as found when the exhaustive search or the simulator, with the configuration that it has by default,
reports a violated invariant on the patched core, **and** reports nothing on the core as it is for the same seed and
for the same number of states. "Seeds" is the number of histories until the violation, the median over several starts.

Run it again:

```sh
python -m tests.mutants                          # all of them; prints progress, writes tests/mutants/results.json
python -m tests.mutants --only M06,M07           # some of them
python -m tests.mutants --budget-s 600 --jobs 2  # more time for each mutant, two at once
python -m tests.mutants --table                  # this page from results.json and the ledgers, and the table of
                                                 # docs/exhaustive-search.md
```

One history again, on a core with the patch applied: `python -m tests.simulation --seed SEED --trace` with the patched
copy first on `PYTHONPATH`; `python -m tests.mutants --keep DIRECTORY --only M06` makes such a copy.
"""


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _search_cell(result: Result) -> str:
    search = result.get("search")
    if not search:
        return "-"
    found = search["found"]
    if found is None:
        tried = sum(search["states_tried"].values())
        return f"no ({tried:,} states)"
    return f"{found['states']:,} states, {found['seconds']:g} s"


def _simulation_cell(result: Result) -> str:
    simulation = result.get("simulation")
    if not simulation:
        return "-"
    starts, found = simulation["starts"], simulation["found_starts"]
    tried = sum(start["histories"] for start in starts)
    if not found:
        return f"no ({tried:,} seeds)"
    missing = "" if found == len(starts) else f" ({found} of {len(starts)} starts)"
    return f"{simulation['median_seeds']:,g} seeds, {simulation['median_seconds']:g} s{missing}"


def _invariants(result: Result) -> str:
    names = list(result.get("simulation", {}).get("invariants", {}))
    found = result.get("search", {}).get("found")
    if found is not None and found["invariant"] not in names:
        names.append(found["invariant"])
    return ", ".join(names) or "-"


def _row(mutant: Mutant, result: Result | None) -> str:
    if result is None:
        return f"| {mutant.key} | {_cell(mutant.broken)} | {_cell(mutant.rule)} | not run | | | |"
    verdict = "found" if result["found"] else "**not found**"
    cells = (verdict, _search_cell(result), _simulation_cell(result), _invariants(result))
    return f"| {mutant.key} | {_cell(mutant.broken)} | {_cell(mutant.rule)} | " + " | ".join(map(_cell, cells)) + " |"


def _traces(mutants: Iterable[Mutant], results: Mapping[str, Result]) -> list[str]:
    lines: list[str] = []
    for mutant in mutants:
        found = results.get(mutant.key, {}).get("search", {}).get("found")
        if found and found.get("trace"):
            lines += [
                "",
                f"**{mutant.key}**, {mutant.title} ({found['invariant']}, configuration `{found['config']}`):",
                "",
            ]
            steps = found["trace"][:TRACE_STEPS_MAX]
            lines += ["```text", *(f"{number:3} {step}" for number, step in enumerate(steps)), "```"]
            if len(found["trace"]) > TRACE_STEPS_MAX:
                lines += ["", f"and {len(found['trace']) - TRACE_STEPS_MAX} more steps"]
    return lines


def program_of(shown: Iterable[Result], tree: str) -> list[str]:
    """Which program the results are of, and whether that is the one with the hash `tree`."""
    trees = sorted({result["tree"] for result in shown})
    if not trees:
        return []
    lines = [f"Tree hash of the program that was patched: {', '.join(f'`{one[:16]}`' for one in trees)}."]
    if trees != [tree]:
        lines.append(f"**Not all of it is `{tree[:16]}`**, the program as it was when this page was made.")
    return [*lines, ""]


def render(mutants: Sequence[Mutant], results: Mapping[str, Result], ran: Sequence[str] = (), *, tree: str) -> str:
    """The whole page; `ran`: the lines of its sections on what else was run; `tree`: hash of the present program."""
    shown = [results[mutant.key] for mutant in mutants if mutant.key in results]
    found = sum(result["found"] for result in shown)
    lines = [INTRODUCTION, *ran, *([""] if ran else []), "## Mutants", "", f"**{found} of {len(mutants)} found.**", ""]
    lines += program_of(shown, tree)
    lines += [
        "| mutant | what is broken | rule | verdict | exhaustive search | simulator | invariant that fired |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [_row(mutant, results.get(mutant.key)) for mutant in mutants]
    notes = [f"- {m.key}: {m.remark}" for m in mutants if m.remark]
    notes += [f"- {m.key}: {results[m.key]['note']}" for m in mutants if results.get(m.key, {}).get("note")]
    if notes:
        lines += ["", "Remarks:", "", *notes]
    traces = _traces(mutants, results)
    if traces:
        lines += [
            "",
            "## Shortest traces",
            "",
            "What the exhaustive search found, step by step; within the bounds of the configuration no shorter trace exists.",
        ]
        lines += traces
    return "\n".join(lines) + "\n"


def found_by_search(mutants: Sequence[Mutant], results: Mapping[str, Result], *, tree: str) -> str:
    """The table of `docs/exhaustive-search.md`: the program, and a row for each mutant that the search has found."""
    rows, shown = [], []
    for mutant in mutants:
        found = results.get(mutant.key, {}).get("search", {}).get("found")
        if found:
            shown.append(results[mutant.key])
            rows.append(
                f"| {mutant.key} {mutant.title} | `{found['config']}` | {found['states']:,} | {len(found['trace']) - 1} "
                f"| `{found['invariant']}` |"
            )
    head = [
        "| mutant | configuration | distinct states until found | steps | what is violated |",
        "|---|---|---|---|---|",
    ]
    return "\n".join([*program_of(shown, tree), *head, *rows]) + "\n"


def write_pages(proof: Path = PROOF, search_page: Path = SEARCH_PAGE) -> None:
    """Make the proof, and the table of the page on the search, from the same results and the ledgers."""
    tree, mutants, results = tree_hash(ROOT), all_mutants(), load()
    proof.write_text(render(mutants, results, evidence.render(evidence.read(), tree), tree=tree), encoding="utf-8")
    page = search_page.read_text(encoding="utf-8")
    table = found_by_search(mutants, results, tree=tree)
    search_page.write_text(with_block(page, SEARCH_BLOCK, table), encoding="utf-8")
