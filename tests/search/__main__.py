"""`python -m tests.search`: see `--help`."""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.search import ledger
from tests.search.configs import CONFIGS, PROOFS
from tests.search.engine import Result, Search
from tests.search.proof import run_all
from tests.simulation.ledger import append, runs_own_core

if TYPE_CHECKING:
    from collections.abc import Callable

CLEAN, VIOLATED = 0, 1
MEMORY_MAX_MB = 8_192


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.search",
        description="Exhaustive search of the replication core within stated bounds. Exit code 1: a violation, or a "
        "proof that falls short.",
    )
    parser.add_argument("--config", action="append", choices=sorted(CONFIGS), metavar="NAME", help="see --list")
    parser.add_argument(
        "--proof",
        choices=sorted(PROOFS),
        help="all configurations of that size, each to its share of the states or its end",
    )
    parser.add_argument("--states-max", type=int, default=0, help="stop after so many distinct states in each")
    parser.add_argument("--seconds", type=float, default=0.0, help="stop after so many seconds in each")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes at once, for several")
    parser.add_argument("--json", action="store_true", help="one JSON object on each line, the verdict last")
    parser.add_argument("--ledger", type=Path, default=ledger.LEDGER, help="where --proof writes down what it came to")
    parser.add_argument("--no-ledger", action="store_true", help="write nothing down")
    parser.add_argument("--quiet", action="store_true", help="no progress")
    parser.add_argument("--list", action="store_true", help="show the configurations and their bounds")
    return parser.parse_args()


def report(name: str, result: Result) -> dict[str, Any]:
    violation = result.violation
    return {
        "config": name,
        "states": result.states,
        "seconds": round(result.seconds, 1),
        "states_per_s": round(result.states / max(result.seconds, 1e-9)),
        "transitions": result.transitions,
        "steps_run": result.steps_run,
        "depth": result.depth,
        "exhausted": result.exhausted,
        "memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "bounds": CONFIGS[name].bounds(),
        "violation": None
        if violation is None
        else {"invariant": violation.invariant, "text": violation.text, "trace": violation.trace},
    }


def show(line: dict[str, Any]) -> None:
    end = "every state within the bounds" if line["exhausted"] else "all states within the bounds up to that depth"
    if line["violation"] is not None:
        end = "VIOLATION"
    if "summary" in line:
        end = "" if line["exhausted"] or line["violation"] else " (the first of a larger number)"
        print(
            f"{line['configs']} configurations: {line['states']:,} distinct states after symmetry, {line['seconds']} s, "
            f"{line['states_per_s']:,} states/s, {line['memory_mb']:,} MB at most{end}"
        )
        return
    print(
        f"{line['config']}: {line['states']:,} distinct states after symmetry, to depth {line['depth']}, "
        f"{line['transitions']:,} transitions, {line['steps_run']:,} of them run by the core, {line['seconds']} s, "
        f"{line['states_per_s']:,} states/s, {line['memory_mb']:,} MB: {end}\n  bounds: {line['bounds']}",
        flush=True,
    )
    if line["violation"] is not None:
        print(f"{line['violation']['invariant']}: {line['violation']['text']}")
        for number, step in enumerate(line["violation"]["trace"]):
            print(f"{number:4} {step}")


def main() -> int:
    options = arguments()
    if options.list:
        for name, config in CONFIGS.items():
            print(f"{name:16} {config.about}\n{'':16} {config.bounds()}")
        return CLEAN
    tell = (lambda line: print(json.dumps(line), flush=True)) if options.json else show
    if options.config and len(options.config) == 1 and not options.proof:
        name = options.config[0]
        progress = None if options.json or options.quiet else lambda text: print(text, file=sys.stderr, flush=True)
        result = Search(CONFIGS[name], progress=progress).run(states_max=options.states_max, seconds=options.seconds)
        tell(report(name, result))
        return CLEAN if result.violation is None else VIOLATED
    return prove(options, tell)


def prove(options: argparse.Namespace, tell: Callable[[dict[str, Any]], None]) -> int:
    """Several configurations, the small ones if nothing else is asked for; the verdict over all of them."""
    proof = PROOFS[options.proof or "small"]
    names = options.config or list(proof.configs)
    limit = options.states_max or (proof.states_each if options.proof else 0)
    found: list[dict[str, Any]] = []

    def told(line: dict[str, Any]) -> None:
        found.append(line)
        tell(line)

    summary = run_all(names, jobs=options.jobs, states_max=limit, seconds=options.seconds, told=told)
    tell(summary)
    verdict = ledger.CLEAN
    if summary["violation"] is not None:
        verdict = ledger.VIOLATED
    elif options.proof and summary["states"] < proof.states_min:
        verdict = ledger.SHORT
        print(f"no proof: {proof.states_min:,} states are asked for", file=sys.stderr)
    elif options.proof and summary["memory_mb"] > MEMORY_MAX_MB:
        verdict = ledger.SHORT
        print(f"no proof: it took more than {MEMORY_MAX_MB:,} MB; fewer --jobs take less", file=sys.stderr)
    if options.proof and not (options.config or options.no_ledger) and runs_own_core():
        line = ledger.line_of(options.proof, summary, found, verdict=verdict, jobs=options.jobs)
        append(options.ledger, line)
    return CLEAN if verdict == ledger.CLEAN else VIOLATED


if __name__ == "__main__":
    sys.exit(main())
