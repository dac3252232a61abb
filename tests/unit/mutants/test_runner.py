"""The runner, with small scripts in the place of the search and the simulator."""

from __future__ import annotations

import sys
import time

import pytest

from tests.mutants import __main__ as command
from tests.mutants import results
from tests.mutants.catalog import all_mutants
from tests.mutants.hunting import START_STRIDE, Engine, EngineFailed

SIMULATOR = """
import json, os, sys, time
first, last = map(int, sys.argv[sys.argv.index("--seeds") + 1].split(":"))
bad = os.environ["BAD"] == "1" and "unpatched" not in os.environ["PYTHONPATH"] or os.environ["BAD"] == "2"
for seed in range(first, min(last, first + 50)):
    violated = bad and seed % 1000 == 3
    text = {"invariant": "Completeness", "text": "offset 4 is gone", "event_index": 1, "time_ms": 2.0}
    print(json.dumps({"seed": seed, "ok": not violated, "violation": text if violated else None}), flush=True)
    if violated:
        sys.exit(1)
print(json.dumps({"summary": True, "histories": 50}))
time.sleep(float(os.environ.get("SLEEP", "0")))
"""

SEARCHER = """
import json, os, sys
config = sys.argv[sys.argv.index("--config") + 1]
if config == "wrong":
    sys.exit("no such configuration")
bad = "unpatched" not in os.environ["PYTHONPATH"]
violation = {"invariant": "LogMatching", "trace": ["produce 1", "crash 1"]} if bad and config == "small" else None
print("progress")
states, exhausted = 71000, False
if not bad and os.environ.get("HONEST"):
    states, exhausted = json.loads(os.environ["HONEST"])
if not states:
    sys.exit("out of memory")
print(json.dumps({"states": states, "seconds": 0.4, "violation": violation, "exhausted": exhausted}))
sys.exit(1 if violation else 0)
"""


@pytest.fixture
def engine(tmp_path):
    (tmp_path / "simulator.py").write_text(SIMULATOR)
    (tmp_path / "searcher.py").write_text(SEARCHER)

    def make(bad="1", sleep="0", core=tmp_path):
        return Engine(
            core=core,
            search=(sys.executable, str(tmp_path / "searcher.py")),
            simulation=(sys.executable, str(tmp_path / "simulator.py")),
            environment={"BAD": bad, "SLEEP": sleep},
        )

    return make


def mutant(key="M01"):
    return next(mutant for mutant in all_mutants() if mutant.key == key)


def test_histories_are_counted_up_to_the_violation(engine):
    attempt = engine().simulate(2000, budget_s=30.0)
    assert attempt.sighting.seed == 2003
    assert attempt.sighting.seeds == attempt.tried == 4
    assert attempt.sighting.invariant == "Completeness"


def test_a_simulator_that_finds_nothing_in_time_is_ended(engine):
    began = time.monotonic()
    attempt = engine(bad="0", sleep="60").simulate(0, budget_s=5.0)  # a busy machine takes long to start it
    assert attempt.sighting is None
    assert attempt.tried == 50
    assert time.monotonic() - began < 30.0


def test_the_search_tells_states_and_trace(engine):
    attempt = engine().explore("small", budget_s=10.0)
    assert (attempt.sighting.states, attempt.sighting.trace) == (71000, ("produce 1", "crash 1"))
    assert engine().explore("large", budget_s=10.0).sighting is None


def test_an_engine_that_fails_is_no_verdict(engine):
    with pytest.raises(EngineFailed, match="no such configuration"):
        engine().explore("wrong", budget_s=10.0)


@pytest.fixture
def hunt(engine, tmp_path, monkeypatch):
    def run(*arguments, bad="1", key="M01"):
        monkeypatch.setattr(command, "Engine", lambda core: engine(bad=bad, core=core))
        path = tmp_path / "results.json"
        code = command.main(["--only", key, "--results", str(path), "--budget-s", "30", *arguments])
        return code, results.load(path)[key]

    return run


def test_a_mutant_is_found_from_several_starts(hunt, capsys):
    code, result = hunt("--engine", "simulation", "--starts", "3")
    assert code == 0
    assert result["found"]
    assert result["clean_without"]
    simulation = result["simulation"]
    assert [start["seed"] for start in simulation["starts"]] == [3, START_STRIDE + 3, 2 * START_STRIDE + 3]
    assert (simulation["median_seeds"], simulation["invariants"]) == (4, {"Completeness": 3})
    assert "M01 truncate to high watermark: found" in capsys.readouterr().out


def test_what_the_honest_core_fails_as_well_is_no_find(hunt, capsys):
    code, result = hunt("--engine", "simulation", "--starts", "1", bad="2")
    assert code == 1
    assert not result["found"]
    assert "AS IT IS FAILS AS WELL" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("honest", "found"),
    [("[71000, false]", True), ("[900, true]", True), ("[900, false]", False), ("[0, false]", False)],
)
def test_the_core_as_it_is_has_to_be_searched_as_far_as_the_mutant(engine, honest, found):
    """A control that ran out of time, or ended without a verdict, has not shown that the core as it is passes."""
    searched = [("small", engine().explore("small", budget_s=10.0))]
    control = engine(core=engine().core / "unpatched")
    control.environment["HONEST"] = honest
    hunting = command.Hunt.__new__(command.Hunt)
    hunting._honest = control
    try:
        clean = hunting._is_clean_without(searched, [])
    except EngineFailed:
        clean = None
    entry = results.result_of(mutant(), tree="t", commit="c", searched=searched, simulated=[], clean=clean)
    assert entry["found"] is found


def test_a_mutant_that_nobody_notices_is_said_so(hunt, capsys):
    code, result = hunt("--engine", "simulation", "--starts", "2", bad="0")
    assert code == 1
    assert not result["found"]
    assert result["simulation"]["median_seeds"] is None
    assert "NOT FOUND; simulator no (100 seeds)" in capsys.readouterr().out


def test_what_the_other_engine_found_is_kept(hunt):
    hunt("--engine", "simulation", "--starts", "1")
    _, result = hunt("--engine", "search")
    assert result["simulation"]["median_seeds"] == 4
    assert results.merged(None, result) == result
    assert "simulation" not in results.merged({**result, "tree": "another"}, {"tree": "this", "found": False})


def test_only_those_that_are_missing(hunt, capsys):
    hunt("--engine", "simulation", "--starts", "1")
    capsys.readouterr()
    code, _ = hunt("--missing", "--engine", "simulation", "--starts", "1")
    assert code == 0
    assert capsys.readouterr().out == "0 of 0 mutants found\n"


def test_wrong_names_are_refused(tmp_path, capsys):
    assert command.main(["--only", "M77", "--results", str(tmp_path / "r.json")]) == 2
    assert "M77" in capsys.readouterr().err


def test_the_page_shows_every_mutant(hunt):
    _, found = hunt("--engine", "simulation", "--starts", "1")
    _, missed = hunt("--engine", "simulation", "--starts", "1", bad="0", key="M02")
    page = results.render(all_mutants(), {"M01": found, "M02": missed}, tree=found["tree"])
    rows = {line[2:5]: line for line in page.splitlines() if line.startswith("| M")}
    assert len(rows) == len(all_mutants())
    assert "| found |" in rows["M01"]
    assert "4 seeds" in rows["M01"]
    assert "**not found**" in rows["M02"]
    assert "no (50 seeds)" in rows["M02"]
    assert "not run" in rows["M03"]
    assert f"**1 of {len(rows)} found.**" in page
    assert "Not all of it" not in page


def test_results_of_another_program_are_called_so(hunt):
    _, found = hunt("--engine", "simulation", "--starts", "1")
    page = results.render(all_mutants(), {"M01": found}, tree="d" * 64)
    assert f"patched: `{found['tree'][:16]}`.\n**Not all of it is `{'d' * 16}`**" in page


SEEN = {
    "invariant": "CommittedNeverChanges",
    "config": "epochs",
    "states": 42_442,
    "trace": ["the beginning", "broker 1 appends record 1", "broker 1 crashes"],
}


def test_the_table_of_the_search_has_what_it_found():
    known = {
        "M02": {"tree": "a" * 64, "search": {"found": SEEN}},
        "M05": {"tree": "a" * 64, "search": {"found": None}},
        "M09": {"tree": "a" * 64},
    }
    text = results.found_by_search(all_mutants(), known, tree="a" * 64)
    assert "| M02 no epoch matching | `epochs` | 42,442 | 2 | `CommittedNeverChanges` |\n" in text
    assert text.startswith(f"Tree hash of the program that was patched: `{'a' * 16}`.\n\n|")
    assert "M05" not in text
    older = results.found_by_search(
        all_mutants(), known | {"M03": {"tree": "b" * 64, "search": {"found": SEEN}}}, tree="c" * 64
    )
    assert f"`{'a' * 16}`, `{'b' * 16}`.\n**Not all of it is `{'c' * 16}`**" in older


def test_both_pages_are_written_from_the_same_results(tmp_path, monkeypatch):
    known = {"M02": {"tree": "a" * 64, "found": True, "search": {"found": {**SEEN, "seconds": 1.0}}}}
    monkeypatch.setattr(results, "load", lambda: known)
    proof, page = tmp_path / "proof.md", tmp_path / "search.md"
    page.write_text(results.SEARCH_PAGE.read_text(encoding="utf-8"), encoding="utf-8")
    results.write_pages(proof, page)
    table = results.found_by_search(all_mutants(), known, tree=results.tree_hash(results.ROOT))
    assert f"<!-- found -->\n{table}<!-- /found -->" in page.read_text(encoding="utf-8")
    assert "42,442 states" in proof.read_text(encoding="utf-8")
    assert page.read_text(encoding="utf-8").count("Tree hash") == 1
