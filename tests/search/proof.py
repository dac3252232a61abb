"""Several configurations one after another, each to its end and in a process of its own, as many at once as there are
processors; the verdict over all of them.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


ROOT = Path(__file__).resolve().parents[2]


class Failed(Exception):
    """A search ended without a verdict."""


def run_all(
    names: list[str], *, jobs: int, states_max: int, seconds: float, told: Callable[[dict[str, Any]], None]
) -> dict[str, Any]:
    """Search each configuration; `told` hears of each as it ends. Returns the summary."""
    started = monotonic()
    telling = threading.Lock()

    def search(name: str) -> dict[str, Any]:
        line = _search(name, states_max=states_max, seconds=seconds)
        with telling:
            told(line)
        return line

    with ThreadPoolExecutor(max_workers=max(jobs, 1)) as pool:
        lines = list(pool.map(search, names))
    spent = monotonic() - started
    states = sum(line["states"] for line in lines)
    violated = [line for line in lines if line["violation"] is not None]
    return {
        "summary": True,
        "configs": len(lines),
        "states": states,
        "seconds": round(spent, 1),
        "states_per_s": round(states / max(spent, 1e-9)),
        "exhausted": all(line["exhausted"] for line in lines),
        # Of those that may have run at once, which is more than there ever was: peaks need not meet.
        "memory_mb": sum(sorted((line["memory_mb"] for line in lines), reverse=True)[: max(jobs, 1)]),
        "bounds": {line["config"]: line["bounds"] for line in lines},
        "violation": violated[0]["violation"] if violated else None,
    }


def _search(name: str, *, states_max: int, seconds: float) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.search", "--config", name, "--json"]
    command += ["--states-max", str(states_max), "--seconds", str(seconds)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False, cwd=ROOT)
    if done.returncode not in {0, 1} or not done.stdout.strip():
        raise Failed(f"the search of {name} ended with {done.returncode}")
    line: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return line
