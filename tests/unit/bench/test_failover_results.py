"""Lines of results: those of earlier reports are read as what they are, and what cannot be read is refused with a reason."""

import json

import pytest

from bench import failover_kind, failover_report
from bench.failover_results import FORMAT, read, upgraded, write
from tests.unit.bench.test_failover_report import line


def test_what_is_written_has_the_present_format(tmp_path):
    path = tmp_path / "failover.jsonl"
    write(line("roll", [1.0]), path)
    (found,) = read(path)
    assert (found["format"], found["kind"]) == (FORMAT, "roll")


def test_a_roll_of_before_was_restart_all(tmp_path):
    assert upgraded(line("roll", [1.0]))["kind"] == "restart"
    assert upgraded(line("kill", [1.0])) == {**line("kill", [1.0]), "beside": "", "format": FORMAT}


def test_failed_requests_of_before_were_of_produce_alone():
    facts = {"away_s": 600.0, "failed_requests": 1.0, "failed_requests_after": 2.0, "client_errors": 0, "elections": 0}
    found = upgraded(line("api", [0.1], facts=facts))["facts"]
    assert found == {"away_s": 600.0, "outages": 1, "failed_produce_requests": 2.0, "client_errors": 0, "elections": 0}


def test_the_results_that_are_kept_can_be_read():
    for path in (failover_report.RESULTS, failover_kind.RESULTS):
        assert all(each["format"] == FORMAT for each in read(path))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "Expecting property name"),
        ("[]", "no result of the failover report, it lacks acked, "),
        (json.dumps({**line("kill", []), "format": FORMAT + 1}), f"it has format {FORMAT + 1}, and this report knows {FORMAT} at most"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_named(tmp_path, text, reason):
    path = tmp_path / "failover.jsonl"
    write(line("kill", [1.0]), path)
    path.write_text(path.read_text() + text + "\n")
    with pytest.raises(SystemExit) as ended:
        read(path)
    said = str(ended.value)
    assert said.startswith(f"{path}, line 2: ")
    assert reason in said
    assert said.endswith("; remove the line, or name another file with --results")


@pytest.mark.parametrize("report", [failover_report, failover_kind])
def test_what_cannot_be_read_is_told_before_anything_is_measured(tmp_path, monkeypatch, report):
    path = tmp_path / "failover.jsonl"
    path.write_text("{}\n")
    monkeypatch.setattr(report.sys, "argv", ["report", "--results", str(path)])
    monkeypatch.setattr(report.subprocess, "run", lambda *_, **__: pytest.fail("something is measured"))
    with pytest.raises(SystemExit, match="line 1"):
        report.main()
