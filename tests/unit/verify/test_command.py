"""The command line: verdicts, exit codes, JSON."""

import json
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from kafkalite_cli import kafka
from kafkalite_cli.errors import Failure
from kafkalite_cli.verify import load
from kafkalite_cli.verify.checker import check
from kafkalite_cli.verify.command import verify
from kafkalite_cli.verify.history import Ack, End, Failed, Header, Read, Unknown, read_history, write_history

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


@pytest.mark.parametrize("rest", [[], [Unknown(0, 0, 1, 0, "timeout", 1, 2), Failed(0, 0, 2, 0, "refused", 1, 2)]])
def test_a_history_in_which_nothing_was_acknowledged_has_no_verdict(tmp_path, rest):
    write_history(tmp_path / "nothing", [*CLEAN[:1], *rest])
    write_history(tmp_path / "clean", CLEAN)
    write_history(tmp_path / "broken", BROKEN)
    nothing, clean, broken = (str(tmp_path / name) for name in ("nothing", "clean", "broken"))
    for paths in ([nothing], [clean, nothing]):
        result = CliRunner().invoke(verify, ["check", *paths])
        assert (result.exit_code, result.stdout) == (2, "")
        assert result.stderr == f"error: {nothing}: nothing was acknowledged, so there is nothing to judge\n"
    result = CliRunner().invoke(verify, ["check", nothing, broken])
    assert result.exit_code == 1, "an anomaly is one whatever lies beside it"
    assert "NO VERDICT: 0 acknowledged" in result.output


def test_an_anomaly_counts_where_nothing_was_acknowledged(tmp_path):
    write_history(tmp_path / "unexplained", [*CLEAN[:1], *CLEAN[2:]])
    result = CliRunner().invoke(verify, ["check", str(tmp_path / "unexplained")])
    assert result.exit_code == 1
    result = CliRunner().invoke(verify, ["check", str(tmp_path / "unexplained"), "--allow", "unexplained"])
    assert result.exit_code == 2, "and what is left when it is allowed says nothing"


class Scripted:
    """A load that has seen a history made by hand."""

    made = ()
    events = CLEAN
    rate = 0.0

    def __init__(self, *arguments, **settings):
        self.acks, self.errors = SimpleNamespace(count=0), {"NOT_ENOUGH_REPLICAS": 1200}
        type(self).made = (arguments, settings)

    def start(self):
        pass

    def wait_produced(self, _timeout_s):
        return True

    def stop(self, _timeout_s):
        pass

    def report(self, allowed):
        return check(self.events, allowed)


@pytest.fixture
def scripted(monkeypatch):
    def begin(events):
        monkeypatch.setattr(Scripted, "events", events)
        monkeypatch.setattr(load, "Load", Scripted)
        monkeypatch.setattr(kafka, "check_reachable", lambda *_arguments, **_hint: None)

    return begin


def test_a_run_in_which_nothing_was_acknowledged_has_no_verdict(scripted):
    scripted([*CLEAN[:1], Unknown(0, 0, 1, 0, "timeout", 1, 2)])
    result = CliRunner().invoke(verify, ["run", "-b", "h:1", "-t", "t", "--count", "1", "-o", "json"])
    assert (result.exit_code, result.stdout) == (2, "")
    assert "nothing was acknowledged" in result.stderr
    assert "1 records without an answer, 0 refused; the clients saw NOT_ENOUGH_REPLICAS 1,200" in result.stderr


def test_what_a_run_was_not_promised_may_be_allowed(scripted):
    scripted(BROKEN)
    arguments = ["run", "-b", "h:1", "-t", "t", "--count", "1"]
    assert CliRunner().invoke(verify, arguments).exit_code == 1
    result = CliRunner().invoke(verify, [*arguments, "--allow", "lost"])
    assert result.exit_code == 0
    assert "OK: 1 acknowledged" in result.output


@pytest.mark.parametrize(("arguments", "asked"), [((), "own:1"), (("-b", "other:2"), "other:2")])
def test_a_run_goes_to_the_cluster_that_other_commands_go_to(monkeypatch, scripted, arguments, asked):
    asked_with = []
    scripted(CLEAN)
    monkeypatch.setattr(kafka, "find_bootstrap", lambda options: asked_with.append(options) or kafka.Brokers("own:1"))
    place = ["--kubeconfig", "file", "--context", "prod", "-n", "kafka", "--cluster", "main"]
    result = CliRunner().invoke(verify, ["run", "-t", "t", *arguments, *place, "-X", "client.id=x"])
    assert result.exit_code == 0, result.output
    (bootstrap, topic, _rate), settings = Scripted.made
    assert (bootstrap, topic) == (asked, "t")
    offered = settings["say"].kafkalite("topics create t") if settings["say"] is not None else None
    there = "kafkalite topics create t --kubeconfig file --context prod -n kafka --cluster main"
    assert offered == (there if arguments else None), "without -b the scripted brokers tell of no cluster"
    assert settings["producer_config"] == settings["consumer_config"] == {"client.id": "x"}
    for options in asked_with:
        found = (options.kubeconfig, options.context, options.namespace, options.cluster)
        assert found == (Path("file"), "prod", "kafka", "main")
    assert bool(asked_with) == (not arguments)


@pytest.mark.parametrize(("arguments", "asked_s"), [((), 0.5), (("--observe", "2"), 2.0), (("--observe", "0"), 0.0)])
def test_a_run_asks_for_the_ends_of_the_log_unless_told_otherwise(scripted, arguments, asked_s):
    scripted(CLEAN)
    assert CliRunner().invoke(verify, ["run", "-b", "h:1", "-t", "t", "--count", "1", *arguments]).exit_code == 0
    assert Scripted.made[1]["observe_s"] == asked_s


def test_a_bootstrap_that_was_named_wins_over_one_among_the_settings(scripted):
    scripted(CLEAN)
    arguments = ["run", "-t", "t", "-X", "bootstrap.servers=other:2"]
    assert CliRunner().invoke(verify, arguments).exit_code == 0
    assert Scripted.made[0][0] == "other:2"
    assert CliRunner().invoke(verify, [*arguments, "-b", "named:1"]).exit_code == 0
    assert (Scripted.made[0][0], Scripted.made[1]["consumer_config"]) == ("named:1", {})


def test_a_history_that_cannot_be_written_is_exit_code_2(mock_bootstrap, tmp_path):
    path = tmp_path / "absent" / "h"
    result = CliRunner().invoke(verify, ["run", "-b", mock_bootstrap, "-t", "load", "--history", str(path)])
    assert (result.exit_code, result.stderr) == (2, f"error: {path}: No such file or directory\n")


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (("-X", "acks=1"), "these settings cannot be used: Failed to create producer: `acks` must be set to `all`"),
        (("-X", "nonsense=1"), 'these settings cannot be used: No such configuration property: "nonsense"'),
        (("-t", "typo"), "topic 'typo' does not exist"),
    ],
)
def test_a_run_that_cannot_begin_leaves_the_history_of_an_earlier_one(
    mock_bootstrap, tmp_path, monkeypatch, wrong, said
):
    def partitions_of(_client, topic, **_options):
        if topic == "typo":  # the mock cluster makes any topic that it is asked for
            raise Failure("topic 'typo' does not exist")
        return [0]

    monkeypatch.setattr(load, "partitions_of", partitions_of)
    path = tmp_path / "run.jsonl"
    write_history(path, CLEAN)
    result = CliRunner().invoke(verify, ["run", "-b", mock_bootstrap, "-t", "load", "--history", str(path), *wrong])
    assert result.exit_code == 2
    assert said in result.stderr
    assert list(read_history(path)) == CLEAN


def test_a_run_without_a_file_takes_a_temporary_one(mock_bootstrap, tmp_path, monkeypatch):
    """Not memory, which is smaller than an hour of records is."""

    def keep(_recorder, event):
        raise AssertionError(f"kept in memory: {event}")

    monkeypatch.setattr(load.MemoryRecorder, "record", keep)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    result = CliRunner().invoke(verify, ["run", "-b", mock_bootstrap, "-t", "load", "--count", "200", "--rate", "0"])
    assert result.exit_code == 0, result.output
    assert "OK: 200 acknowledged" in result.output
    assert list(tmp_path.iterdir()) == [], "and it is gone afterwards"


def test_a_full_disk_is_named_and_is_exit_code_2(mock_bootstrap):
    arguments = ["run", "-b", mock_bootstrap, "-t", "load", "--count", "200", "--rate", "0", "--history", "/dev/full"]
    result = CliRunner().invoke(verify, arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "/dev/full: No space left on device" in result.stderr
