"""Some histories of the default swarm on every test run; `python -m tests.simulation` runs as many as one likes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.simulation.cli import summarize
from tests.simulation.run import run_seed

ROOT = Path(__file__).resolve().parents[2]
FIRST = int(os.environ.get("KAFKALITE_SIMULATION_FIRST", "1000"))
COUNT = int(os.environ.get("KAFKALITE_SIMULATION_COUNT", "40"))
EVENTS_MIN, FAULTS_MIN, ACKED_MIN = 5_000, 5, 500


def test_histories_of_the_default_swarm_are_clean() -> None:
    results = [run_seed(seed) for seed in range(FIRST, FIRST + COUNT)]
    summary = summarize(results, 0.0)
    print(f"seeds {FIRST}:{FIRST + COUNT}  {summary}")
    broken = {result.seed: result.violation for result in results if not result.ok}
    assert not broken, f"replay with: python -m tests.simulation --seed {min(broken)} --trace\n{broken}"
    assert summary["median_events"] >= EVENTS_MIN
    assert summary["median_faults"] >= FAULTS_MIN
    assert summary["median_acked"] >= ACKED_MIN


def test_a_seed_is_a_replay_whatever_the_order_of_sets() -> None:
    outputs = [
        subprocess.run(
            [sys.executable, "-m", "tests.simulation", "--seed", "7"],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    ]
    digests = [next(line for line in text.splitlines() if "digest" in line) for text in outputs]
    assert digests[0] == digests[1]
