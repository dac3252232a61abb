"""`python -m tests.search`: see `--help`."""

from __future__ import annotations

import argparse
import json
import resource
import sys

from tests.search.configs import CONFIGS
from tests.search.engine import Result, Search

CLEAN, VIOLATED, USAGE = 0, 1, 2


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.search", description="Exhaustive search of the replication core within stated bounds."
    )
    parser.add_argument("--config", action="append", choices=sorted(CONFIGS), help="all of them when it is left out")
    parser.add_argument("--states-max", type=int, default=0, help="stop after so many distinct states in each")
    parser.add_argument("--seconds", type=float, default=0.0, help="stop after so many seconds in each")
    parser.add_argument("--json", action="store_true", help="one JSON object on each line")
    parser.add_argument("--quiet", action="store_true", help="no progress")
    parser.add_argument("--list", action="store_true", help="show the configurations and their bounds")
    return parser.parse_args()


def report(name: str, result: Result) -> dict[str, object]:
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


def main() -> int:
    options = arguments()
    if options.list:
        for name, config in CONFIGS.items():
            print(f"{name:10} {config.about}\n{'':10} {config.bounds()}")
        return CLEAN
    progress = None if options.json or options.quiet else lambda text: print(text, file=sys.stderr, flush=True)
    code = CLEAN
    for name in options.config or list(CONFIGS):
        if progress is not None:
            progress(f"--- {name}: {CONFIGS[name].about}")
        result = Search(CONFIGS[name], progress=progress).run(states_max=options.states_max, seconds=options.seconds)
        line = report(name, result)
        if options.json:
            print(json.dumps(line), flush=True)
        else:
            show(line)
        if result.violation is not None:
            code = VIOLATED
    return code


def show(line: dict[str, object]) -> None:
    violation = line["violation"]
    end = "every state within the bounds" if line["exhausted"] else "stopped before the end"
    if violation is not None:
        end = "VIOLATION"
    print(
        f"{line['config']}: {line['states']:,} distinct states after symmetry, depth {line['depth']}, "
        f"{line['transitions']:,} transitions, {line['steps_run']:,} of them run by the core, {line['seconds']} s, "
        f"{line['states_per_s']:,} states/s, {line['memory_mb']:,} MB: {end}\n  bounds: {line['bounds']}"
    )
    if isinstance(violation, dict):
        print(f"{violation['invariant']}: {violation['text']}")
        for number, step in enumerate(violation["trace"]):
            print(f"{number:4} {step}")


if __name__ == "__main__":
    sys.exit(main())
