"""`python -m tests.mutants`: are the simulator and the exhaustive search able to notice a broken rule?

Each mutant is applied to a copy of the core and looked for within a budget of time: by the configurations of the
exhaustive search that can reach it, then by the simulator with its default configuration from several first seeds.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from tests.mutants import results
from tests.mutants.catalog import ROOT, BadPatch, all_mutants, copy_core, patched_core
from tests.mutants.hunting import START_STRIDE, Attempt, Engine, EngineFailed
from tools.tree_hash import tree_hash

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.mutants.catalog import Mutant

SEARCH_SHARE = 0.4
"""Of a mutant's budget, for all configurations of the exhaustive search together."""

_saving = threading.Lock()


class Hunt:
    """One run over some mutants.

    Args:
        options: Of the command line.
        workplace: Where the copies of the core go.
    """

    def __init__(self, options: argparse.Namespace, workplace: Path) -> None:
        self._options = options
        self._workplace = workplace
        self._tree = tree_hash(ROOT)
        command = ["git", "rev-parse", "--short=12", "HEAD"]
        self._commit = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
        self._honest = Engine(core=copy_core(workplace / "unpatched"))

    def look_for(self, mutant: Mutant) -> bool:
        """Look for one mutant and write down what came of it; whether it was found."""
        options, searched, simulated, note = self._options, [], [], ""
        engine = Engine(core=patched_core(mutant, self._workplace / mutant.key))
        clean: bool | None = None
        try:
            if options.engine != "simulation":
                searched = self._search(engine, mutant)
            if options.engine != "search":
                simulated = self._simulate(engine, options.budget_s - sum(a.seconds for _, a in searched))
            clean = self._is_clean_without(searched, simulated)
        except EngineFailed as failure:
            note = str(failure)
        entry = results.result_of(
            mutant,
            tree=self._tree,
            commit=self._commit,
            searched=searched,
            simulated=simulated,
            clean=clean,
            note=note,
        )
        with _saving:
            known = results.load(options.results)
            entry = results.merged(known.get(mutant.key), entry)
            results.save({**known, mutant.key: entry}, options.results)
        self._say(mutant, entry)
        return bool(entry["found"])

    def _search(self, engine: Engine, mutant: Mutant) -> list[tuple[str, Attempt]]:
        done: list[tuple[str, Attempt]] = []
        for config in mutant.searches:
            attempt = engine.explore(config, budget_s=SEARCH_SHARE * self._options.budget_s / len(mutant.searches))
            done.append((config, attempt))
            if attempt.sighting is not None:
                break
        return done

    def _simulate(self, engine: Engine, budget_s: float) -> list[tuple[int, Attempt]]:
        """Several starts; the time that is left is shared by those that are still to come."""
        done: list[tuple[int, Attempt]] = []
        starts = self._options.starts
        for number in range(starts):
            left_s = budget_s - sum(attempt.seconds for _, attempt in done)
            first = self._options.first_seed + number * START_STRIDE
            attempt = engine.simulate(first, budget_s=left_s / (starts - number))
            done.append((first, attempt))
        return done

    def _is_clean_without(
        self, searched: Sequence[tuple[str, Attempt]], simulated: Sequence[tuple[int, Attempt]]
    ) -> bool | None:
        """Whether the core as it is passes what the mutant was found with; None when it was not found."""
        verdicts: list[bool] = []
        for config, attempt in searched:
            if attempt.sighting is not None:
                budget_s = 10.0 * attempt.seconds + 60.0
                states = attempt.sighting.states or 0
                control = self._honest.explore(config, budget_s=budget_s, states_max=states)
                verdicts.append(control.sighting is None and (control.exhausted or control.tried >= states))
        for _, attempt in simulated:
            if attempt.sighting is not None and attempt.sighting.seed is not None:
                seed = attempt.sighting.seed
                control = self._honest.simulate(seed, budget_s=10.0 * attempt.seconds + 120.0, histories_max=1)
                verdicts.append(control.sighting is None and control.tried >= 1)
        return all(verdicts) if verdicts else None

    def _say(self, mutant: Mutant, entry: results.Result) -> None:
        verdict = "found" if entry["found"] else "NOT FOUND"
        parts = [f"{mutant.key} {mutant.title}: {verdict}"]
        if "search" in entry:
            parts.append(f"search {results._search_cell(entry)}")
        if "simulation" in entry:
            parts.append(f"simulator {results._simulation_cell(entry)}")
        if entry.get("clean_without") is False:
            parts.append("BUT THE CORE AS IT IS FAILS AS WELL, OR WAS NOT LOOKED AT SO FAR")
        parts += [results._invariants(entry), entry.get("note", "")]
        print("; ".join(part for part in parts if part), flush=True)


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--only", default="", help="mutants, by number, separated by commas")
    parser.add_argument("--budget-s", type=float, default=300.0, help="seconds for each mutant (300)")
    parser.add_argument("--jobs", type=int, default=1, help="mutants at once (1)")
    parser.add_argument("--starts", type=int, default=5, help="first seeds to begin from (5)")
    parser.add_argument("--first-seed", type=int, default=0, help="of the first start (0)")
    parser.add_argument("--engine", choices=("all", "search", "simulation"), default="all", help="what looks for them")
    parser.add_argument("--missing", action="store_true", help="only those that the results do not show as found")
    parser.add_argument("--results", type=Path, default=results.RESULTS, help="where the results go")
    parser.add_argument(
        "--table",
        action="store_true",
        help="only write docs/proof.md and the table of docs/exhaustive-search.md from the results",
    )
    parser.add_argument("--list", action="store_true", help="only list the mutants")
    parser.add_argument("--keep", type=Path, help="only make the patched copies, in this directory")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """0: all were found; 1: not all; 2: a patch does not apply, or the command line is wrong."""
    options = parse(arguments)
    if options.table:
        results.write_pages()
        return 0
    wanted = {key.strip().upper() for key in options.only.split(",") if key.strip()}
    try:
        mutants = [mutant for mutant in all_mutants() if not wanted or mutant.key in wanted]
        if unknown := wanted - {mutant.key for mutant in mutants}:
            print(f"no such mutant: {', '.join(sorted(unknown))}", file=sys.stderr)
            return 2
        if options.missing:
            known = results.load(options.results)
            mutants = [mutant for mutant in mutants if not known.get(mutant.key, {}).get("found")]
        if options.list:
            for mutant in mutants:
                print(f"{mutant.key} {mutant.title} ({mutant.rule}): {mutant.broken}")
            return 0
        if options.keep is not None:
            for mutant in mutants:
                print(patched_core(mutant, options.keep / mutant.key))
            return 0
        return _hunt(mutants, options)
    except BadPatch as error:
        print(error, file=sys.stderr)
        return 2


def _hunt(mutants: list[Mutant], options: argparse.Namespace) -> int:
    with tempfile.TemporaryDirectory(prefix="kafkalite-mutants-") as directory:
        workplace = Path(directory)
        for mutant in mutants:  # all of them first: one that does not apply must not be noticed after an hour
            patched_core(mutant, workplace / "applies" / mutant.key)
        hunt = Hunt(options, workplace)
        with ThreadPoolExecutor(options.jobs) as pool:
            found = list(pool.map(hunt.look_for, mutants))
    print(f"{sum(found)} of {len(found)} mutants found")
    return 0 if all(found) else 1


if __name__ == "__main__":
    sys.exit(main())
