"""The ledger adds up what passed, shows what did not, and keeps programs apart."""

import msgspec
import pytest

from tests.chaos.ledger import (
    AGAINST,
    BROKEN,
    LEDGER,
    NO_BITE,
    NO_HEAL,
    PASSED,
    Line,
    append,
    harness_hash,
    read,
    summarize,
)


def line(**fields) -> Line:
    values = {
        "time": "2026-01-01T00:00:00Z", "tree": "a" * 64, "commit": "c", "scenario": "kill-leader/steady", "seed": 1,
        "verdict": PASSED, "reason": "", "minutes": 2.0, "injected": 4, "bitten": 4, "acked": 1000,
    }  # fmt: skip
    return Line(**(values | fields))


def test_lines_come_back_as_they_were_written(tmp_path):
    path = tmp_path / "results" / "chaos.jsonl"
    written = [line(), line(seed=2, counts={"elections/chaos": 3})]
    for each in written:
        append(path, each)
    assert read(path) == written


def test_no_ledger_is_an_empty_one(tmp_path):
    assert read(tmp_path / "none.jsonl") == []


def test_half_a_line_is_no_line(tmp_path):
    path = tmp_path / "chaos.jsonl"
    append(path, line())
    path.write_bytes(path.read_bytes() + b'{"time": "2026')
    with pytest.raises(msgspec.DecodeError):
        read(path)


def test_lines_of_one_hash_add_up():
    lines = [line(), line(scenario="kill-leader/single", acked=500), line(scenario="stop-all/steady", minutes=1.0)]
    (summary,) = summarize(lines)
    assert (summary.runs, summary.minutes, summary.injected, summary.bitten, summary.acked) == (3, 5.0, 12, 12, 2500)
    assert summary.faults == {"kill-leader", "stop-all"}
    assert len(summary.passed_scenarios) == 3
    assert "2,500 acknowledged records" in summary.text()


def test_a_line_that_a_merge_doubled_counts_once():
    (summary,) = summarize([line(), line(seed=2), line()])
    assert (summary.runs, summary.acked) == (2, 2000)


def test_what_each_harness_has_seen_is_told_apart():
    (summary,) = summarize([line(), line(harness="b" * 64, seed=2), line(harness="b" * 64, seed=3, verdict=NO_BITE)])
    assert summary.minutes == 4.0
    assert "harness not written down: 0.03 h, 4 faults, 1,000 acknowledged records, 1 scenarios" in summary.text()
    assert f"harness {'b' * 16}: 0.03 h, 4 faults, 1,000 acknowledged records, 1 scenarios" in summary.text()


def test_the_harness_is_every_module_that_harms_or_judges(tmp_path):
    (tmp_path / "faults.py").write_text("harm")
    (tmp_path / "test_faults.py").write_text("test")
    first = harness_hash((tmp_path,))
    harness_hash.cache_clear()
    (tmp_path / "test_faults.py").write_text("another test")
    assert harness_hash((tmp_path,)) == first
    harness_hash.cache_clear()
    (tmp_path / "faults.py").write_text("no harm")
    assert harness_hash((tmp_path,)) != first
    harness_hash.cache_clear()


def test_another_hash_is_another_sum():
    summaries = summarize([line(), line(tree="b" * 64)])
    assert [summary.runs for summary in summaries] == [1, 1]
    assert [summary.tree[0] for summary in summarize([line(), line(tree="b" * 64)], "b" * 64)] == ["b"]


@pytest.mark.parametrize("verdict", [BROKEN, NO_BITE, NO_HEAL])
def test_what_did_not_pass_counts_for_nothing_and_is_shown(verdict):
    (summary,) = summarize([line(), line(verdict=verdict, reason="because", seed=9)])
    assert (summary.runs, summary.minutes, summary.injected, summary.acked) == (2, 2.0, 4, 1000)
    assert f"seed 9: {verdict}: because" in summary.text()
    assert summary.against == (verdict in AGAINST)


def test_every_line_that_was_ever_written_is_readable():
    assert len(read(LEDGER)) > 1000
