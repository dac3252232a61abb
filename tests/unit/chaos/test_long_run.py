"""A run of hours goes on whatever one scenario does, and says what it was."""

import sys
from contextlib import ExitStack
from types import SimpleNamespace

import pytest

from tests.chaos import __main__ as program
from tests.chaos import cleanup, ledger, runner
from tests.chaos.cluster import ChaosError
from tests.chaos.judge import Verdict
from tests.chaos.ledger import BROKEN, CUT_OFF, FAILED, NO_HEAL, PASSED, Line
from tests.chaos.scenarios import scenarios

NAME = "kill-leader/single"


def line(verdict: str = PASSED) -> Line:
    return Line(
        time="", tree="t", commit="c", scenario=NAME, seed=1, verdict=verdict, reason="", minutes=1.0, injected=1, bitten=1, acked=1
    )  # fmt: skip


@pytest.fixture
def soak(tmp_path, monkeypatch):
    """Runs a soak of so many scenarios, each of which is a verdict or an exception; the ledger's lines."""

    def run(*ends) -> list[Line]:
        clock = iter([0.0, *(0.0 for _ in ends), 1e9])
        left = list(ends)

        def play(_name: str, _seed: int, *, rounds: int | None, keep: bool) -> Line:
            assert (rounds, keep) == (None, False), "its own number"
            end = left.pop(0)
            if isinstance(end, BaseException):
                raise end
            return line(end)

        monkeypatch.setattr(program, "time", SimpleNamespace(monotonic=lambda: next(clock)))
        monkeypatch.setattr(program, "play_apart", play)
        monkeypatch.setattr(program, "WORK", tmp_path / "work")
        path = tmp_path / "ledger.jsonl"
        assert program.soak([NAME], 7, 1, path) == all(end == PASSED for end in ends)
        return ledger.read(path)

    return run


def test_an_exception_in_one_scenario_is_a_line_of_the_ledger_and_the_next_one_runs(soak):
    lines = soak(PASSED, ValueError("unforeseen"), PASSED)
    assert [each.verdict for each in lines] == [PASSED, FAILED, PASSED]
    assert "ValueError: unforeseen" in lines[1].reason


@pytest.mark.parametrize("verdict", [FAILED, NO_HEAL])
def test_a_long_run_is_given_up_when_nothing_can_be_finished_any_more(soak, verdict):
    assert len(soak(*[verdict] * (program.FAILURES_MAX + 3))) == program.FAILURES_MAX
    lines = soak(*[FAILED] * (program.FAILURES_MAX - 1), PASSED, FAILED)
    assert lines[-1].verdict == FAILED


def test_a_scenario_of_more_rounds_may_take_longer():
    own = scenarios()[NAME].fault.rounds
    assert (program.rounds_of(NAME, 1), program.rounds_of(NAME, 3)) == (None, 3 * own)
    assert program.limit_s(NAME, None) == program.limit_s(NAME, 1) == program.SCENARIO_LIMIT_S
    assert program.limit_s(NAME, 3 * own) == 3 * program.SCENARIO_LIMIT_S


def test_sigterm_ends_a_long_run_and_what_it_cut_off_has_its_line(soak, tmp_path):
    with pytest.raises(program.InterruptedBySignal):
        soak(PASSED, program.InterruptedBySignal(), PASSED)
    assert [each.verdict for each in ledger.read(tmp_path / "ledger.jsonl")] == [PASSED, CUT_OFF]


@pytest.fixture
def apart(tmp_path, monkeypatch):
    """Runs a scenario in a process that does something else."""

    def run(code: str, limit_s: float = 30) -> Line:
        stand_in = tmp_path / "python"
        stand_in.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{code}"\n')
        stand_in.chmod(0o755)
        monkeypatch.setattr(program, "sys", SimpleNamespace(executable=str(stand_in)))
        monkeypatch.setattr(program, "WORK", tmp_path / "work")
        monkeypatch.setattr(program, "SCENARIO_LIMIT_S", limit_s)
        return program.play_apart(NAME, 5)

    return run


def test_a_scenario_that_dies_without_a_word_is_a_line(apart):
    found = apart("import os; os.abort()")
    assert (found.verdict, found.scenario, found.seed) == (FAILED, NAME, 5)
    assert "exit code -6" in found.reason


def test_a_scenario_that_never_ends_is_ended_and_counts_against_the_program(apart):
    found = apart("import time; time.sleep(600)", 0.4)
    assert "it took more than 0 s" in found.reason
    assert found.verdict == NO_HEAL


@pytest.mark.parametrize(("verdict", "code"), [(PASSED, 0), (FAILED, 0), (BROKEN, 1), (NO_HEAL, 1)])
def test_the_summary_of_a_ledger_with_something_against_the_program_is_exit_code_1(
    tmp_path, monkeypatch, capsys, verdict, code
):
    path = tmp_path / "ledger.jsonl"
    ledger.append(path, line(verdict))
    monkeypatch.setattr(sys, "argv", ["chaos", "--summary", "--ledger", str(path)])
    assert program.main() == code
    assert f"1 {verdict}" in capsys.readouterr().out


class Playing(runner.Runner):
    """A scenario that comes to an end of the test's choice."""

    end: BaseException | Verdict = Verdict()

    def _play(self, stack: ExitStack) -> None:
        if isinstance(self.end, BaseException):
            raise self.end
        self.verdict = self.end


@pytest.fixture
def played(tmp_path, monkeypatch):
    """Plays a scenario that ends as given; its line and its folder."""

    def run(end):
        monkeypatch.setattr(Playing, "end", end)
        monkeypatch.setattr(runner, "Runner", Playing)
        folder = tmp_path / "run"
        return runner.play(scenarios()[NAME], 3, folder), folder

    return run


@pytest.mark.parametrize(
    ("problem", "reason"),
    [(ChaosError("not whole"), "ChaosError: not whole"), (KeyError("leader"), "not foreseen: KeyError: 'leader'")],
)
def test_whatever_a_scenario_raises_is_its_line_and_the_folder_says_where(played, problem, reason):
    found, folder = played(problem)
    assert (found.verdict, found.reason) == (FAILED, reason)
    assert "in _play" in (folder / "traceback.txt").read_text()
    assert not (folder / cleanup.OWNER).exists()


def test_a_run_that_is_killed_leaves_its_line_behind(played, tmp_path, monkeypatch):
    """Who puts its folder away adds it to the ledger: a run that nobody saw end is no run that never was."""

    class Killed(BaseException):
        pass

    with pytest.raises(Killed):
        played(Killed())
    monkeypatch.setattr(program, "WORK", tmp_path)
    (found,) = program.left_behind(["run", "another that had not even begun"])
    assert (found.verdict, found.scenario, found.seed) == (CUT_OFF, NAME, 3)


def test_a_run_whose_program_changed_meanwhile_says_nothing(played, monkeypatch):
    hashes = iter(["a" * 64, "b" * 64])
    monkeypatch.setattr(runner, "tree_hash", lambda: next(hashes))
    found, _ = played(Verdict())
    assert (found.verdict, found.tree[0]) == (FAILED, "a")
    assert found.reason == f"the program changed meanwhile, to {'b' * 16}"


def test_the_folder_of_a_broken_run_is_marked(played):
    found, folder = played(Verdict(broken=["lost 1"]))
    assert found.verdict == BROKEN
    assert (folder / cleanup.BROKEN_MARK).exists()


def test_a_long_run_without_what_it_needs_does_not_begin_and_says_what_to_install(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(program, "WORK", tmp_path / "work")
    monkeypatch.setattr(program.shutil, "which", lambda name: None if name in {"nft", "cc"} else f"/bin/{name}")
    monkeypatch.setattr(program.os, "geteuid", lambda: 1000)
    path = tmp_path / "ledger.jsonl"
    monkeypatch.setattr(sys, "argv", ["chaos", "--minutes", "1", "--seed", "7", "--ledger", str(path)])
    assert program.main() == 2
    said = capsys.readouterr().err
    assert "cc, nft missing (Debian: apt-get install gcc libc6-dev nftables)" in said
    assert "need root" in said
    assert not path.exists()
    assert program.lacking(["kill-leader/single"]) == ""
