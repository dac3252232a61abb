"""The command line: verdicts, exit codes, JSON."""

import json

import pytest
from click.testing import CliRunner

from kafkalite_cli import kafka
from kafkalite_cli.errors import Failure
from kafkalite_cli.verify import load
from kafkalite_cli.verify.command import verify
from kafkalite_cli.verify.history import Ack, End, Header, Read, write_history

CLEAN = [Header(1, "run", "t", 1, 0), Ack(0, 0, 1, 0, 0, 1, 2), Read(0, 0, 0, 0, 0, 1, 3), End(0, 0, 1, 4)]
BROKEN = [event for event in CLEAN if not isinstance(event, Read)]


def test_a_clean_history_is_ok(tmp_path):
    write_history(tmp_path / "clean", CLEAN)
    result = CliRunner().invoke(verify, ["check", str(tmp_path / "clean")])
    assert result.exit_code == 0
    assert "OK: 1 acknowledged, 0 unknown, 0 refused, 1 read on 1 partitions, 0 anomalies" in result.output


def test_an_anomaly_is_shown_and_is_exit_code_1(tmp_path):
    write_history(tmp_path / "clean", CLEAN)
    write_history(tmp_path / "broken", BROKEN)
    result = CliRunner().invoke(verify, ["check", str(tmp_path / "clean"), str(tmp_path / "broken")])
    assert result.exit_code == 1
    assert "lost" in result.output
    assert "BROKEN: 1 acknowledged" in result.output


def test_json_has_a_report_per_history(tmp_path):
    write_history(tmp_path / "broken", BROKEN)
    result = CliRunner().invoke(verify, ["check", str(tmp_path / "broken"), "-o", "json"])
    report = json.loads(result.stdout)[str(tmp_path / "broken")]
    assert result.exit_code == 1
    assert report["counts"] == {"lost": 1}
    assert report["examples"][0]["record"] == "0/0/1"


def test_a_file_that_is_no_history_is_exit_code_2(tmp_path):
    (tmp_path / "noise").write_text("noise\n")
    result = CliRunner().invoke(verify, ["check", str(tmp_path / "noise")])
    assert result.exit_code == 2
    assert "noise, line 1" in result.stderr


def test_an_allowed_anomaly_is_shown_and_is_exit_code_0(tmp_path):
    write_history(tmp_path / "broken", BROKEN)
    result = CliRunner().invoke(verify, ["check", str(tmp_path / "broken"), "--allow", "lost"])
    assert result.exit_code == 0
    assert "lost" in result.output
    assert "OK: 1 acknowledged" in result.output
    result = CliRunner().invoke(verify, ["check", str(tmp_path / "broken"), "--allow", "gone"])
    assert result.exit_code == 2


@pytest.mark.parametrize(("arguments", "asked"), [((), "own:1"), (("-b", "other:2"), "other:2")])
def test_a_run_goes_to_the_cluster_that_other_commands_go_to(monkeypatch, arguments, asked):
    def refuse(bootstrap, *_arguments, **_more):
        raise Failure(f"asked {bootstrap}")

    monkeypatch.setattr(kafka, "find_bootstrap", lambda _options: "own:1")
    monkeypatch.setattr(load, "Load", refuse)
    result = CliRunner().invoke(verify, ["run", "-t", "t", *arguments])
    assert (result.exit_code, result.stderr) == (2, f"error: asked {asked}\n")


def test_a_history_that_cannot_be_written_is_exit_code_2(tmp_path):
    result = CliRunner().invoke(verify, ["run", "-b", "h:1", "-t", "t", "--history", str(tmp_path / "absent" / "h")])
    assert (result.exit_code, result.stderr) == (2, f"error: {tmp_path / 'absent' / 'h'}: No such file or directory\n")
