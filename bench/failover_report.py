"""How long clients wait when something fails: measures it, kind by kind, and writes docs/failover.md with its pictures.

    python -m bench.failover_report                       # 100 failures of each kind; the API server is away for 20 s
                                                          # 30 times, and once for 10 minutes
    python -m bench.failover_report --n 5 --api-minutes 1 # a short one
    python -m bench.failover_report --only kill,term      # some kinds
    python -m bench.failover_report --render              # only write the document, from the results that are there

Every run of a kind has a cluster of its own and adds a line to bench/results/failover.jsonl. Lines of one tree hash add
up: the document shows, for each kind, all samples of the newest tree that has any. Lines of earlier reports are read;
what they did not count is told as not counted. Cutting hosts off needs root.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.failover_api import without_api
from bench.failover_document import render
from bench.failover_lab import KINDS, Lab, Result
from bench.failover_results import read, write
from tests.chaos import cleanup
from tests.chaos.faults import NETWORK
from tools.tree_hash import tree_hash

ROOT = Path(__file__).resolve().parent.parent
WORK = ROOT / ".cache" / "failover"
RESULTS = ROOT / "bench" / "results" / "failover.jsonl"
BESIDE = "what else the machine does meanwhile; such results count only where there are no others"
DOCUMENT = ROOT / "docs" / "failover.md"
FEW = {
    "stop-default": 3,
    "api-short": 30,
    "api": 1,
}  # kinds of which so many are enough: each takes half a minute and more


def commit() -> str:
    """The revision that was measured, with a + when files had been changed."""
    command = ["git", "describe", "--always", "--dirty=+"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Run one kind in this process; its line."""
    WORK.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f"{options.kind}-", dir=WORK))
    cleanup.claim(folder)
    try:
        lab = Lab(options.kind, folder, rate=options.rate, partitions=options.partitions)

        def body(lab: Lab) -> None:
            if options.kind == "api":
                without_api(lab, [60 * options.api_minutes])
            elif options.kind == "api-short":
                without_api(lab, [options.api_seconds] * options.n)
            else:
                for number in range(options.n):
                    lab.fail(number + 1)

        before = os.getloadavg()[0]
        line = lab.run(body)
    finally:
        cleanup.clean(folder)
    if line["problem"] or line["anomalies"]:
        print(f"  everything of this run is kept in {folder}", flush=True)
    else:
        shutil.rmtree(folder, ignore_errors=True)
    return {**conditions(before, options.beside), **line}


def run_kind(kind: str, options: argparse.Namespace) -> bool:
    """Run one kind in a process of its own (it may move into a network namespace); False when it failed."""
    count = min(options.n, FEW.get(kind, options.n))
    print(f"--- {kind}: {KINDS[kind].text}", flush=True)
    command = [sys.executable, "-m", "bench.failover_report", "--kind", kind, "--n", str(count)]
    command += ["--rate", str(options.rate), "--partitions", str(options.partitions)]
    command += ["--api-minutes", str(options.api_minutes), "--api-seconds", str(options.api_seconds)]
    command += ["--results", str(options.results)]
    command += ["--beside", options.beside]
    known = len(read(options.results))
    code = subprocess.run(command, cwd=ROOT, check=False).returncode
    if len(read(options.results)) == known:  # a run that crashed is no run that never was
        lost = asdict(Result(kind, options.rate, options.partitions, KINDS[kind].client))
        lost["problem"] = f"ended without a result (exit code {code})"
        write({**conditions(os.getloadavg()[0], options.beside), **lost}, options.results)
    return code == 0


def conditions(load_before: float, beside: str) -> dict[str, Any]:
    """What was measured, and on what, which did what else."""
    return {
        "time": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "tree": tree_hash(),
        "commit": commit(),
        "machine": f"{os.cpu_count()} CPUs, Linux {platform.release()}, Python {platform.python_version()}",
        "load_before": round(load_before, 2),
        "beside": beside,
    }


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=100, help="failures of each kind")
    parser.add_argument("--only", default=",".join(KINDS), help="kinds, separated by commas")
    parser.add_argument("--rate", type=float, default=1200, help="records per second")
    parser.add_argument("--partitions", type=int, default=6)
    parser.add_argument("--api-minutes", type=float, default=10, help="of the long outage of the API server")
    parser.add_argument("--api-seconds", type=float, default=20, help="of each of the 30 short ones")
    parser.add_argument("--beside", default="", help=BESIDE)
    parser.add_argument("--render", action="store_true", help="measure nothing")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--document", type=Path, default=DOCUMENT)
    parser.add_argument("--kind", choices=list(KINDS), help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    options.kinds = options.only.split(",")
    if wrong := set(options.kinds) - set(KINDS):
        parser.error(f"no kind of failure: {', '.join(sorted(wrong))}; there are {', '.join(KINDS)}")
    return options


def main() -> int:
    """Entry point."""
    options = parse()
    if options.kind:
        line = measure(options)
        write(line, options.results)
        return 1 if line["problem"] or line["anomalies"] else 0
    read(options.results)  # who measures for an hour and a half wants to know before that they cannot be read
    failed = []
    for kind in [] if options.render else options.kinds:
        if NETWORK in KINDS[kind].needs and os.geteuid() != 0:
            print(f"--- {kind}: left out, it needs root")
        elif not run_kind(kind, options):
            failed.append(kind)
    for path in render(read(options.results), options.document):
        print(f"wrote {path}")
    if failed:
        print(f"incomplete, or with anomalies: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
