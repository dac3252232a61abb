"""The command line: one history by its seed, or many."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import signal
import sys
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import kafkalite_core
from tests.simulation import ledger
from tests.simulation.campaign import Recorder, play, unknown_seeds
from tests.simulation.run import NAMES, Result
from tests.simulation.swarm import KINDS, draw

if TYPE_CHECKING:
    from collections.abc import Iterable

CLEAN, VIOLATED, USAGE = 0, 1, 2
TRACE_LINES = 400


def core_hash() -> str:
    """SHA-256 over the files of the core as it was imported."""
    root = Path(kafkalite_core.__file__).parent
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def parser() -> argparse.ArgumentParser:
    """The options."""
    made = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    which = made.add_mutually_exclusive_group(required=True)
    which.add_argument("--seed", type=int, help="run one history")
    which.add_argument("--seeds", metavar="FROM:TO", help="run the histories of a range of seeds, TO excluded")
    which.add_argument("--hours", type=float, help="run histories that the ledger does not have, for that time")
    which.add_argument("--summary", action="store_true", help="add up the ledger's lines of the present program")
    made.add_argument(
        "--having",
        metavar="FAULT",
        default="",
        help="of --seeds those whose histories have that fault, such as restore",
    )
    made.add_argument("--jobs", type=int, default=0, help="processes; 1, and with --hours the number of cores")
    made.add_argument(
        "--ledger", type=Path, default=ledger.LEDGER, help="where --seeds and --hours write down what ran"
    )
    made.add_argument("--no-ledger", action="store_true", help="write nothing down")
    made.add_argument("--seconds", type=float, default=0.0, help="begin no history after that time")
    made.add_argument("--stop-on-violation", action="store_true", help="end with the first violation")
    made.add_argument("--json", action="store_true", help="one line of JSON for each history and a last one for all")
    made.add_argument("--trace", action="store_true", help="print what happened")
    made.add_argument("--lines", type=int, default=TRACE_LINES, help="so many last lines of the trace; 0 for all")
    return made


def main(arguments: list[str] | None = None) -> int:
    """Run; 0 when all histories are clean, 1 for a violation, 2 for wrong usage."""
    options = parser().parse_args(arguments)
    if options.having and options.seeds is None:
        print("--having chooses from --seeds FROM:TO, which is missing", file=sys.stderr)
        return USAGE
    if options.summary:
        return _tell(options, ledger.identity()[0])
    if options.hours is not None:
        return _go_on(options)
    if options.seed is not None:
        seeds: Iterable[int] = range(options.seed, options.seed + 1)
    else:
        try:
            first, _, last = options.seeds.partition(":")
            seeds = range(int(first), int(last))
        except ValueError:
            print(f"--seeds {options.seeds!r} is not FROM:TO", file=sys.stderr)
            return USAGE
    if options.having:
        if options.having not in KINDS:
            print(f"--having {options.having!r}: no such fault; there are {', '.join(sorted(KINDS))}", file=sys.stderr)
            return USAGE
        seeds = (seed for seed in seeds if draw(seed).faults.get(options.having))
    recorder = None if options.seed is not None else _recorder(options)
    started = time.perf_counter()
    results: list[Result] = []
    try:
        for result in play(seeds, jobs=options.jobs, seconds=options.seconds, tracing=options.trace):
            results.append(result)
            _show(result, options)
            if recorder is not None:
                recorder.take(result)
            if options.stop_on_violation and not result.ok:
                break
    finally:
        if recorder is not None:
            recorder.write()
    summary = summarize(results, time.perf_counter() - started)
    print(json.dumps(summary) if options.json else _text(summary), flush=True)
    return VIOLATED if summary["violations"] else CLEAN


def _recorder(options: argparse.Namespace) -> Recorder | None:
    """None for what says nothing of the present program: a copy of the core, a hunt that ends when it has found, or a
    choice of histories, of which nothing follows for others.
    """
    if options.no_ledger or options.having or options.stop_on_violation or not ledger.runs_own_core():
        return None
    return Recorder(options.ledger)


def _go_on(options: argparse.Namespace) -> int:
    """Histories of seeds that the ledger does not have, until the time is over or somebody ends it."""
    if not ledger.runs_own_core():
        print(f"{kafkalite_core.__file__} is not the core of this work tree", file=sys.stderr)
        return USAGE
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    recorder = Recorder(options.ledger)
    jobs = options.jobs or os.cpu_count() or 1
    print(
        f"the ledger has {len(recorder.seen):,} seeds of this program; {options.hours} h with {jobs} processes",
        flush=True,
    )
    violated = False
    try:
        for result in play(unknown_seeds(recorder.seen), jobs=jobs, seconds=options.hours * 3600.0):
            recorder.take(result)
            violated = violated or not result.ok
            if not result.ok or result.limit:
                _show(result, options)
            if recorder.changed:
                break
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    finally:  # also when a process of the pool dies
        recorder.write()
    return max(_tell(options, recorder.who[0]), VIOLATED if violated else CLEAN)


def _tell(options: argparse.Namespace, tree: str) -> int:
    total = ledger.summarize(ledger.read(options.ledger), tree)
    print(total.text(), flush=True)
    if lost := ledger.unreadable(options.ledger):
        print(f"  {lost} lines cannot be read, and what they say is not counted", flush=True)
    return VIOLATED if total.failed else CLEAN


def _show(result: Result, options: argparse.Namespace) -> None:
    if options.json:
        print(json.dumps(result.line()), flush=True)
    elif not result.ok or result.limit or options.seed is not None:
        print(f"seed {result.seed}: {result.violation or result.limit or 'clean'}")
        if not result.ok:
            print("\n".join(draw(result.seed).lines()))
        if options.seed is not None:
            refusals = {NAMES.get(code, "no answer"): count for code, count in sorted(result.refusals.items())}
            print(
                f"  events {result.events} acked {result.acked} excused {result.excused} given up {result.given_up} elections {result.elections} cpu {result.cpu_s:.2f} s"
            )
            print(f"  faults {result.faults_bitten}\n  refusals {refusals}\n  digest {result.digest}")
    if options.trace and not options.json:
        print("\n".join(result.trace[-options.lines :] if options.lines else result.trace))


def summarize(results: Iterable[Result], wall_s: float) -> dict[str, object]:
    """The last line."""
    found = list(results)
    events = sum(result.events for result in found)
    busy_s = sum(result.cpu_s for result in found)
    return {
        "summary": True,
        "histories": len(found),
        "events": events,
        "events_per_s": round(events / busy_s) if busy_s else 0,
        "median_events": _median([result.events for result in found]),
        "median_faults": _median([sum(result.faults_bitten.values()) for result in found]),
        "median_fault_kinds": _median([len(result.faults_bitten) for result in found]),
        "median_acked": _median([result.acked for result in found]),
        "excused": sum(result.excused for result in found),
        "given_up": sum(result.given_up for result in found),
        "elections": sum(result.elections for result in found),
        "virtual_s": round(sum(result.virtual_ms for result in found) / 1000.0),
        "wall_s": round(wall_s, 2),
        "cpu_s": round(busy_s, 2),
        "violations": sum(not result.ok for result in found),
        "limits": sum(bool(result.limit) for result in found),
        "core": core_hash(),
    }


def _median(numbers: list[int]) -> int:
    return int(median(numbers)) if numbers else 0


def _text(summary: dict[str, object]) -> str:
    return "  ".join(f"{name} {value}" for name, value in summary.items() if name != "summary")
