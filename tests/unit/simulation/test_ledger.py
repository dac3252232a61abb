"""The ledger of the simulation: no seed counts twice, nothing that was finished is lost, no failing seed is hidden."""

from __future__ import annotations

import signal
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.simulation import campaign, cli, ledger
from tests.simulation.run import Result
from tests.simulation.swarm import draw

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def result(seed: int, *, broken: bool = False) -> Result:
    return Result(
        seed=seed, violation={"invariant": "one leader", "text": "two"} if broken else None, events=100 + seed,
        faults_bitten={"crash": 2}, acked=10, virtual_ms=1.0, wall_s=0.1, cpu_s=0.1, digest=0, elections=1,
    )  # fmt: skip


def seeds_of(path: Path) -> list[tuple[int, int]]:
    return [(line.first, line.last) for line in ledger.read(path)]


def test_histories_that_have_a_fault_can_be_chosen_and_are_no_line_of_the_ledger(tmp_path, monkeypatch, capsys) -> None:
    ran: list[int] = []

    def play(seeds, **_options):
        ran.extend(seeds)
        return iter(())

    monkeypatch.setattr(cli, "play", play)
    path = tmp_path / "ledger.jsonl"
    assert cli.main(["--seeds", "0:40", "--having", "restore", "--ledger", str(path)]) == cli.CLEAN
    assert ran == [seed for seed in range(40) if draw(seed).faults.get("restore")]
    assert 0 < len(ran) < 20
    assert not path.exists()
    assert cli.main(["--hours", "1", "--having", "restore"]) == cli.USAGE
    assert cli.main(["--seeds", "0:40", "--having", "rain"]) == cli.USAGE
    assert "no such fault; there are api_" in capsys.readouterr().err


def test_seeds_that_are_known_are_not_written_again(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    for seeds in (range(10, 13), range(8, 16), range(8, 16)):
        recorder = campaign.Recorder(path)
        for seed in seeds:
            recorder.take(result(seed))
        recorder.write()
    assert seeds_of(path) == [(10, 13), (8, 10), (13, 16)]
    summary = ledger.summarize(ledger.read(path), ledger.identity()[0])
    assert (summary.histories, summary.acked, summary.repeated) == (8, 80, 0)
    assert summary.events == sum(100 + seed for seed in range(8, 16))


def test_lines_of_the_same_seeds_count_once_and_those_of_another_program_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    who = ledger.identity()
    for first, identity in ((0, who), (2, who), (5, ("another", who[1])), (8, (who[0], "another"))):
        ledger.append(path, ledger.line_of([result(first + n) for n in range(3)], identity, time="", seconds=1.0))
    summary = ledger.summarize(ledger.read(path), who[0])
    assert (summary.histories, summary.repeated, len(summary.seeds)) == (6, 1, 6)
    assert summary.simulators == {who[1]: 3, "another": 3}
    alone = ledger.summarize(ledger.read(path), who[0], simulator=who[1])
    assert (alone.histories, alone.repeated, len(alone.seeds)) == (3, 1, 3)


def test_a_seed_that_failed_stays_listed_until_a_later_simulator_finds_nothing_in_it(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    tree, now = ledger.identity()

    def add(simulator: str, *, broken: bool, time: str = "") -> ledger.Summary:
        line = ledger.line_of([result(4, broken=broken)], (tree, simulator), time=time, seconds=1.0)
        ledger.append(path, line)
        return ledger.summarize(ledger.read(path), tree)

    assert add("old", broken=True).failed == {4: ("one leader", "old")}
    assert add("old", broken=False).failed, "the same simulator: chance, or a lie"
    recorder = campaign.Recorder(path)
    assert not recorder.known, "it may be run again by the present one"
    assert len(recorder.seen) == 1, "and is no new seed for it"
    settled = add(now, broken=False)
    assert (settled.failed, settled.settled) == ({}, {4: ("one leader", "old", now)})
    assert f"seed 4: one leader by simulator old, nothing by {now[:16]}" in settled.text()
    assert settled.histories == 1
    newest = add("newest", broken=True, time="2026-02")
    assert newest.failed == {4: ("one leader", "newest")}
    assert add("old", broken=False, time="2026-01").failed == newest.failed, "a line of before, that a merge put last"


def test_histories_that_ended_at_a_limit_are_listed_and_their_records_do_not_count(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    recorder = campaign.Recorder(path)
    for seed in range(3):
        recorder.take(replace(result(seed), limit="epoch 1 came again" * (seed == 1)))
    recorder.write()
    summary = ledger.summarize(ledger.read(path), recorder.who[0])
    assert (summary.limits, summary.acked, summary.failed) == ({1: "epoch 1 came again"}, 20, {})
    assert "1 ended at a documented limit" in summary.text()
    assert "seed 1 ended: epoch 1 came again" in summary.text()


def test_failing_seeds_are_listed_and_their_records_do_not_count_as_checked(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    recorder = campaign.Recorder(path, batch=3)
    for seed in range(6):
        recorder.take(result(seed, broken=seed == 4))
    assert [line.verdict for line in ledger.read(path)] == [ledger.CLEAN, ledger.VIOLATED]
    summary = ledger.summarize(ledger.read(path), recorder.who[0])
    assert (summary.failed, summary.acked) == ({4: ("one leader", recorder.who[1])}, 50)
    assert "seed 4: one leader" in summary.text()


def test_excused_records_are_counted_and_not_among_those_that_were_checked(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    recorder = campaign.Recorder(path)
    for seed in range(3):
        recorder.take(replace(result(seed), excused=4 * (seed == 1)))
    recorder.write()
    summary = ledger.summarize(ledger.read(path), recorder.who[0])
    assert (summary.acked, summary.excused) == (26, 4)
    assert "26 acknowledged records checked, 4 more excused" in summary.text()
    assert cli.summarize([replace(result(0), excused=4)], 1.0)["excused"] == 4


def test_a_line_that_was_cut_short_costs_only_itself_and_is_told(tmp_path: Path, capsys) -> None:
    path = tmp_path / "ledger.jsonl"
    who = ledger.identity()
    ledger.append(path, ledger.line_of([result(0)], who, time="", seconds=1.0))
    path.write_bytes(path.read_bytes() + path.read_bytes()[:40])
    ledger.append(path, ledger.line_of([result(1)], who, time="", seconds=1.0))
    assert seeds_of(path) == [(0, 1), (1, 2)]
    assert cli.main(["--summary", "--ledger", str(path)]) == cli.CLEAN
    assert "1 lines cannot be read" in capsys.readouterr().out


def test_what_a_changed_program_did_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = campaign.Recorder(tmp_path / "ledger.jsonl")
    recorder.take(result(0))
    monkeypatch.setattr(ledger, "identity", lambda: ("other", "program"))
    recorder.write()
    assert recorder.changed
    assert not ledger.read(tmp_path / "ledger.jsonl")


def test_an_interrupted_campaign_keeps_what_was_finished_and_goes_on_behind_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "ledger.jsonl"

    def interrupted(seeds: Iterator[int], **_: object) -> Iterator[Result]:
        for number, seed in enumerate(seeds):
            if number == 5:
                raise KeyboardInterrupt
            yield result(seed, broken=seed == 3)

    monkeypatch.setattr(cli, "play", interrupted)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    assert cli.main(["--hours", "1", "--ledger", str(path)]) == cli.VIOLATED  # and did not end with seed 3
    assert cli.main(["--hours", "1", "--ledger", str(path)]) == cli.VIOLATED
    assert seeds_of(path) == [(0, 5), (5, 10)]
    capsys.readouterr()
    assert cli.main(["--summary", "--ledger", str(path)]) == cli.VIOLATED
    assert "10 histories, 1 of them broke" in capsys.readouterr().out


def test_a_violation_that_was_seen_is_not_clean_whatever_could_be_written_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def play(seeds: Iterator[int], **_: object) -> Iterator[Result]:
        yield result(next(seeds), broken=True)
        monkeypatch.setattr(ledger, "identity", lambda: ("other", "program"))

    monkeypatch.setattr(cli, "play", play)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    path = tmp_path / "ledger.jsonl"
    assert cli.main(["--hours", "1", "--ledger", str(path)]) == cli.VIOLATED
    assert not ledger.read(path)


def test_what_was_finished_is_kept_when_a_process_dies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def play(seeds: Iterator[int], **_: object) -> Iterator[Result]:
        yield result(next(seeds))
        raise BrokenProcessPool

    monkeypatch.setattr(cli, "play", play)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    path = tmp_path / "ledger.jsonl"
    with pytest.raises(BrokenProcessPool):
        cli.main(["--hours", "1", "--ledger", str(path)])
    assert seeds_of(path) == [(0, 1)]


def test_missing_ranges() -> None:
    seeds = ledger.Seeds()
    for first, last in ((5, 7), (0, 2), (7, 9), (6, 8)):
        seeds.add(first, last)
    assert len(seeds) == 6
    assert list(seeds.missing(0)) == [(2, 5), (9, None)]
    assert list(seeds.missing(1, 6)) == [(2, 5)]
    assert list(seeds.missing(0, 12)) == [(2, 5), (9, 12)]


def test_processes_give_the_same_histories_as_one() -> None:
    alone = [(r.seed, r.digest) for r in campaign.play(range(40, 43), jobs=1)]
    assert [(r.seed, r.digest) for r in campaign.play(range(40, 43), jobs=2)] == alone
