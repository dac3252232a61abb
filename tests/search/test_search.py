"""The search itself: that it finds nothing, that it would find something, and that its parts do what they say."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys

import pytest

from kafkalite_core.replica import leader
from kafkalite_core.replica.follower import Follower
from kafkalite_core.replica.isr import IsrChanges
from tests.mutants.catalog import copy_core
from tests.search import ledger, symmetry
from tests.search.cluster import Cluster
from tests.search.configs import CONFIGS, SMALL, Config
from tests.search.engine import Search, Visited
from tests.search.invariants import Canonical, Invariants
from tests.search.proof import ROOT, run_all
from tools.tree_hash import tree_hash

SECONDS = float(os.environ.get("SEARCH_SECONDS", "40"))
STATES_MIN = 100


@pytest.mark.timeout(SECONDS + 240)
def test_nothing_is_violated(capsys):
    """Each of the small configurations for its part of the time, as many at once as there are processors."""
    jobs = os.cpu_count() or 1
    lines = []
    summary = run_all(list(SMALL), jobs=jobs, states_max=0, seconds=SECONDS * jobs / len(SMALL), told=lines.append)
    with capsys.disabled():
        print()
        for line in sorted(lines, key=lambda one: one["config"]):
            end = "all of them" if line["exhausted"] else f"to depth {line['depth']}"
            print(
                f"{line['config']}: {line['states']:,} distinct states after symmetry, {end}; bounds {line['bounds']}"
            )
        print(f"together {summary['states']:,} states in {summary['seconds']:.0f} s")
    violation = summary["violation"]
    assert violation is None, "\n".join([violation["text"], *violation["trace"]])
    assert len(lines) == len(SMALL)
    assert all(line["states"] >= STATES_MIN for line in lines)


# ---------------------------------------------------------------------------------- it would find something


def test_truncation_to_the_high_watermark_is_found(monkeypatch):
    made = Follower.__init__

    def cuts(self, state, leader, epoch):
        made(self, state, leader, epoch)
        state.log.truncate_to(state.high_watermark)

    monkeypatch.setattr(Follower, "__init__", cuts)
    result = Search(CONFIGS["epochs"]).run()
    assert result.violation is not None
    assert result.violation.invariant == "NoCommittedRecordLost"
    assert len(result.violation.trace) == 8, "a shortest trace"


def test_a_leader_that_forgets_its_proposal_is_found(monkeypatch):
    monkeypatch.setattr(IsrChanges, "maximal_isr", lambda _, committed: committed.isr)
    result = Search(CONFIGS["isr"]).run()
    assert result.violation is not None


def test_what_is_on_fewer_disks_than_min_isr_is_found(monkeypatch):
    """Also where min.insync.replicas may be lowered later: what counts is the entry that the leader goes by."""

    def alone(high_watermark, own_flushed_end, _, *, counting, min_isr):
        return max(high_watermark, own_flushed_end) if counting >= min_isr else high_watermark

    monkeypatch.setattr(leader, "advanced_high_watermark", alone)
    result = Search(CONFIGS["elr"]).run()
    assert result.violation is not None
    assert result.violation.invariant == "AckedOnMinIsrDisks"
    assert len(result.violation.trace) == 2, "a shortest trace"


def test_an_error_in_the_core_is_found(monkeypatch):
    def broken(*_):
        raise AssertionError("broken")

    for name, length in (("responded", 2), ("__init__", 1)):
        with monkeypatch.context() as patched:
            patched.setattr(Follower, name, broken)
            result = Search(CONFIGS["isr"]).run()
        assert result.violation is not None
        assert result.violation.invariant == "NoError"
        assert len(result.violation.trace) == length


# ------------------------------------------------------------------------------------------------ its parts


def walk(config: Config, seed: int, length: int):
    """States along a random walk, with the cluster that they belong to."""
    chance = random.Random(seed)
    cluster = Cluster(config)
    invariants = Invariants(cluster)
    state = cluster.first()
    for _ in range(length):
        yield cluster, state
        moves = cluster.successors(state)
        if not moves:
            return
        state = invariants.committed(chance.choice(moves)[0])


@pytest.mark.parametrize("name", [name for name, config in SMALL.items() if not config.leaves])
def test_brokers_are_interchangeable(name):
    """What can happen to a renumbered state is what can happen to the state, renumbered."""
    config = CONFIGS[name]
    for seed in range(3):
        for cluster, state in walk(config, seed, 40):
            canonical = Canonical(cluster)
            for p in symmetry.PERMUTATIONS[1:]:
                one = {canonical.moved(moved, p) for moved, _ in cluster.successors(state)}
                other = {moved for moved, _ in cluster.successors(canonical.moved(state, p))}
                assert one == other


@pytest.mark.parametrize("name", [name for name, config in SMALL.items() if not config.leaves])
def test_six_numberings_are_one_state(name):
    for seed in range(5):
        for cluster, state in walk(CONFIGS[name], seed, 40):
            canonical = Canonical(cluster)
            forms = {canonical.of(canonical.moved(state, p))[0] for p in symmetry.PERMUTATIONS}
            assert len(forms) == 1


def test_visited_keeps_what_it_was_given():
    chance = random.Random(1)
    visited = Visited()
    values = [chance.getrandbits(64) | 1 for _ in range(1000)]
    for value in values:
        visited.put(value)
    visited.grow()
    assert sorted(value for value in visited.table if value) == sorted(values)


# ------------------------------------------------------------------------------------------------ the command


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "tests.search", *arguments]
    return subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=False, timeout=280)


def test_one_configuration_on_the_command_line():
    done = command("--config", "epochs", "--states-max", "2000", "--json")
    assert done.returncode == 0, done.stderr
    line = json.loads(done.stdout.splitlines()[-1])
    assert line["violation"] is None
    assert not line["exhausted"]
    assert line["states"] >= 2000
    assert line["states_per_s"] > 0
    assert line["bounds"] == CONFIGS["epochs"].bounds() | {"min_isr_other": []}


def test_a_proof_that_falls_short_fails(tmp_path):
    path = tmp_path / "ledger.jsonl"
    done = command("--proof", "small", "--states-max", "50", "--json", "--ledger", str(path))
    assert done.returncode == 1
    summary = json.loads(done.stdout.splitlines()[-1])
    assert summary["violation"] is None
    assert summary["configs"] == len(SMALL)
    assert "no proof" in done.stderr
    (line,) = ledger.read(path)
    assert (line.size, line.verdict, line.states) == ("small", ledger.SHORT, summary["states"])
    assert line.tree == tree_hash(ROOT)
    assert set(line.configs) == set(SMALL)
    assert sum(each.states for each in line.configs.values()) == line.states
    assert line.configs["elr"].bounds == CONFIGS["elr"].bounds() | {"min_isr_other": [1]}


def test_a_proof_of_another_core_is_not_written_down(tmp_path, monkeypatch):
    """A copy with a mutant has another tree hash than the one that the line would name."""
    path = tmp_path / "ledger.jsonl"
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(copy_core(tmp_path)), str(ROOT)]))
    assert command("--proof", "small", "--states-max", "50", "--json", "--ledger", str(path)).returncode == 1
    assert ledger.read(path) == []


def test_an_unknown_configuration_is_wrong_usage():
    assert command("--config", "nothing").returncode == 2
