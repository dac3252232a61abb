"""The tables of docs/exhaustive-search.md on the mutants that the search finds.

    python -m bench.search_table

The first is of tests/mutants/results.json, as `python -m tests.mutants` has left it. For the second OTHERS are looked
for, which takes some ten seconds. Each names the program by its tree hash.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tests.mutants import results
from tests.mutants.catalog import ROOT, Mutant, all_mutants, copy_core, patched_core
from tests.mutants.hunting import Engine
from tools.chart import with_block
from tools.tree_hash import tree_hash

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

PAGE = ROOT / "docs" / "exhaustive-search.md"
OTHERS = (("M01", "epochs"), ("M12", "restart"), ("M14", "operator"), ("M22", "operator"))
"""Mutants with configurations that reach them and that the headers of their patches do not name."""

SHOWN = OTHERS[0]
"""Whose trace is printed."""

BUDGET_S = 600.0


class NotFound(Exception):
    """A mutant was not found, or the core as it is does not pass the same search."""


class Found(NamedTuple):
    """A mutant that the search has noticed; `trace` begins with the beginning, which is no step."""

    mutant: Mutant
    config: str
    states: int
    invariant: str
    text: str
    trace: Sequence[str]


def table(found: Sequence[Found], *trees: str) -> str:
    """The program, and one row for each mutant."""
    rows = [
        f"| {each.mutant.key} {each.mutant.title} | `{each.config}` | {each.states:,} | {len(each.trace) - 1} "
        f"| `{each.invariant}` |"
        for each in found
    ]
    head = [
        f"Tree hash of the program that was patched: {', '.join(f'`{tree[:16]}`' for tree in trees)}.",
        "",
        "| mutant | configuration | distinct states until found | steps | what is violated |",
        "|---|---|---|---|---|",
    ]
    return "\n".join([*head, *rows]) + "\n"


def kept(known: Mapping[str, results.Result]) -> str:
    """The table of what `python -m tests.mutants` has found by the search."""
    found = []
    for mutant in all_mutants():
        seen = known.get(mutant.key, {}).get("search", {}).get("found")
        if seen:
            words = (seen[name] for name in ("config", "states", "invariant", "text", "trace"))
            found.append(Found(mutant, *words))
    return table(found, *sorted({known[each.mutant.key]["tree"] for each in found}))


def looked_for(engine_of: Callable[[Path], Engine] = Engine) -> list[Found]:
    """OTHERS, searched now. Raises NotFound."""
    mutants = {mutant.key: mutant for mutant in all_mutants()}
    found = []
    with tempfile.TemporaryDirectory(prefix="kafkalite-mutants-") as folder:
        honest = engine_of(copy_core(Path(folder) / "unpatched"))
        for key, config in OTHERS:
            core = patched_core(mutants[key], Path(folder) / f"{key}-{config}")
            seen = engine_of(core).explore(config, budget_s=BUDGET_S).sighting
            if seen is None or seen.states is None:
                raise NotFound(f"{key} is not found in {config}")
            control = honest.explore(config, budget_s=BUDGET_S, states_max=seen.states)
            if control.sighting is not None or not (control.exhausted or control.tried >= seen.states):
                raise NotFound(f"the core as it is does not pass {seen.states} states of {config}")
            found.append(Found(mutants[key], config, seen.states, seen.invariant, seen.text, seen.trace))
    return found


def others(found: Sequence[Found], tree: str) -> str:
    """Their table, and a trace as the search prints it."""
    [shown] = [each for each in found if (each.mutant.key, each.config) == SHOWN]
    lines = [f"{number:4} {step}" for number, step in enumerate(shown.trace)]
    words = (
        f"The shortest way to lose a record by {shown.mutant.key}, {shown.mutant.title}, in `{shown.config}`,\n"
        "as it is printed (record@epoch, `|` is the end of what is flushed):\n"
    )
    return "\n".join([table(found, tree), words, "```", *lines, f"{shown.invariant}: {shown.text}", "```", ""])


def main() -> int:
    """0: written; 1: not all were found."""
    try:
        parts = {"kept": kept(results.load()), "others": others(looked_for(), tree_hash(ROOT))}
    except NotFound as error:
        print(error, file=sys.stderr)
        return 1
    page = PAGE.read_text(encoding="utf-8")
    for name, text in parts.items():
        page = with_block(page, name, text)
    PAGE.write_text(page, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
