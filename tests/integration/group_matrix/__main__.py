"""Runs the matrix of clients, group sizes, assignors and harms on a cluster of its own.

    python -m tests.integration.group_matrix                    # all 120 cells, in a random order
    python -m tests.integration.group_matrix --cells 10         # some of them, one of each client at least
    python -m tests.integration.group_matrix --only kcat        # the cells whose name contains it
    python -m tests.integration.group_matrix --minutes 30       # as many as there is time for
    python -m tests.integration.group_matrix --missing          # those that the ledger does not have as kept
    python -m tests.integration.group_matrix --table            # what the ledger says about the latest run of each

Judged: every acknowledged record is read by a member and committed, committed offsets never go back, no member is
without an assignment for longer than its session time-out + 2 s, no record waits for longer than two session time-outs.
Every cell adds a line to the ledger (bench/results/group-matrix.jsonl). The exit code is 1 when a promise was broken.
Needs kcat and Apache Kafka's tools (`make java-tools`).
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import random
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from kafkalite_local.pytest_plugin import free_ports
from tests.integration.cluster import Cluster
from tests.integration.coordinators import without_initial_delay
from tests.integration.group_matrix.cells import HARMS, SIZES, STRATEGIES, Cell, every_cell, sample
from tests.integration.group_matrix.known import excuse
from tests.integration.group_matrix.run import STRICT, CellRun, last_words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.integration.group_matrix.judge import Verdict

ROOT = Path(__file__).resolve().parents[3]
WORK = ROOT / ".cache" / "group-matrix"
LEDGER = ROOT / "bench" / "results" / "group-matrix.jsonl"


def commit() -> str:
    """The revision that is judged, with a + when files had been changed."""
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty=+"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or "unknown"


def chosen(options: argparse.Namespace) -> list[Cell]:
    """The cells to run, in their order."""
    cells = every_cell()
    random.Random(options.seed).shuffle(cells)
    if options.cells:
        cells = sample(options.seed, options.cells)
    kept = (
        {cell for cell, line in latest_runs(options.ledger).items() if not line["problems"]} if options.missing else ()
    )
    return [cell for cell in cells if options.only in cell.name and cell not in kept]


def run_cells(cells: Sequence[Cell], options: argparse.Namespace, directory: Path) -> bool:
    """Run them one after the other; whether every promise was kept."""
    cluster = Cluster(directory / "home", int(os.environ.get("KAFKALITE_PORT") or free_ports().base))
    end_s = time.monotonic() + 60 * options.minutes
    broken = 0
    try:
        cluster.up()
        with without_initial_delay(cluster):
            for place, cell in enumerate(cells, start=1):
                if time.monotonic() > end_s:
                    print(f"the time is over before cell {place}", flush=True)
                    break
                began_s = time.monotonic()
                cell_run = CellRun(cluster, cell, make(directory / cell.name), options.seed)
                verdict = cell_run.run(STRICT)
                took_s = time.monotonic() - began_s
                broken += bool(verdict.problems)
                write(options.ledger, cell, verdict, options.seed, took_s)
                print(f"{place:3}/{len(cells)} {cell.name:45} {took_s:5.1f} s {words(verdict)}", flush=True)
                if verdict.problems:
                    logs = [path.read_text().splitlines() for path in (directory / cell.name).glob("*.err")]
                    print(
                        f"       {excuse(cell_run.history, verdict.problems, logs) or 'for no known reason'}",
                        flush=True,
                    )
                    (directory / cell.name / "history").write_text("\n".join(last_words(cell_run.history)) + "\n")
    finally:
        cluster.close()
        cluster.down()
    print(f"{broken} cells with a broken promise; what the members printed: {directory}")
    return not broken


def make(directory: Path) -> Path:
    """The directory, which exists afterwards."""
    directory.mkdir(parents=True, exist_ok=True)
    return directory


def words(verdict: Verdict) -> str:
    """One line."""
    figures = " ".join(f"{name}={value:g}" for name, value in verdict.figures.items())
    return f"{'BROKEN' if verdict.problems else 'ok'} {figures} {'; '.join(verdict.problems)}"


def write(ledger: Path, cell: Cell, verdict: Verdict, seed: int, took_s: float) -> None:
    """Add a line."""
    line = {
        "time": datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ"),
        "commit": commit(),
        "seed": seed,
        "cell": dataclasses.asdict(cell),
        "took_s": round(took_s, 1),
        "problems": verdict.problems,
        "figures": verdict.figures,
    }
    ledger.parent.mkdir(parents=True, exist_ok=True)
    with ledger.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def latest_runs(ledger: Path) -> dict[Cell, dict]:
    """The last line of each cell."""
    lines = map(json.loads, ledger.read_text(encoding="utf-8").splitlines() if ledger.exists() else ())
    return {Cell(**line["cell"]): line for line in lines}


def table(ledger: Path) -> str:
    """The latest run of each cell: kept/run, and the longest times in seconds, by client and assignor."""
    latest = latest_runs(ledger)
    rows = ["| client | assignor | harm | kept | without an assignment | first assignment | delivery |"]
    rows += ["|---|---|---|---|---|---|---|"]
    for client, strategies in STRATEGIES.items():
        for strategy in strategies:
            for harm in HARMS:
                cells = [Cell(client, strategy, members, harm) for members in SIZES]
                lines = [latest[cell] for cell in cells if cell in latest]
                kept = sum(not line["problems"] for line in lines)
                most = [
                    f"{max((line['figures'].get(name, 0) for line in lines), default=0):.1f} s"
                    for name in ("waiting_s", "joining_s", "delivery_s")
                ]
                rows.append(f"| {client} | {strategy} | {harm} | {kept} of {len(lines)} | {' | '.join(most)} |")
    return "\n".join(rows)


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", type=int, default=0, help="how many (default: all)")
    parser.add_argument("--only", default="", help="those whose name contains this")
    parser.add_argument("--missing", action="store_true", help="those that the ledger does not have as kept")
    parser.add_argument("--minutes", type=float, default=float("inf"))
    parser.add_argument("--seed", type=int, default=1, help="of the order, and of the victims")
    parser.add_argument("--ledger", type=Path, default=LEDGER)
    parser.add_argument("--table", action="store_true", help="show the ledger, run nothing")
    options = parser.parse_args()
    if options.table:
        print(table(options.ledger))
        return 0
    cells = chosen(options)
    print(f"{len(cells)} cells, seed {options.seed}", flush=True)
    directory = make(WORK / datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ"))
    return 0 if run_cells(cells, options, directory) else 1


if __name__ == "__main__":
    sys.exit(main())
