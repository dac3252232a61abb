"""The commands around metadata histories and data directories: verdicts, exit codes, JSON."""

import json
import logging

import pytest
import structlog
from click.testing import CliRunner

from kafkalite_cli.verify import metadata_recorder
from kafkalite_cli.verify.command import verify
from kafkalite_cli.verify.metadata_recorder import RecordingError
from kafkalite_runtime.logging import get_logger
from tests.unit.verify.test_metadata_checker import FAILED_OVER, Store, entry
from tests.unit.verify.test_replicas import HIGH_WATERMARK, Broker, batch


def run(*arguments):
    return CliRunner().invoke(verify, [str(argument) for argument in arguments])


@pytest.fixture(autouse=True)
def logs():
    """A command that logs sets that up for its process."""
    root = logging.getLogger()
    before = root.handlers[:], root.level
    yield
    root.handlers[:], level = before
    root.setLevel(level)
    structlog.reset_defaults()


@pytest.fixture
def recorded(tmp_path):
    def write(*entries, brokers=3):
        store = Store()
        for number in range(brokers):
            store.broker(number, number + 1)
        for each in entries:
            store.topic(each)
        path = tmp_path / "metadata.jsonl"
        lines = [json.dumps({"at_us": c.at_us, "type": c.type, "object": c.object}) for c in store.changes]
        path.write_text("\n".join([*lines, ""]))
        return path

    return write


def test_recorded_changes_are_judged(recorded):
    result = run("check-metadata", recorded(entry(), FAILED_OVER))
    assert result.exit_code == 0
    assert "OK: 5 changes, 1 of partitions, 1 elections (0 unclean, 0 unjudged)" in result.output


def test_a_broken_rule_is_shown_and_may_be_allowed(recorded):
    path = recorded(entry(), entry(0, 0, 2))
    result = run("check-metadata", path)
    assert result.exit_code == 1
    assert "leader-epoch-fell" in result.output
    assert run("check-metadata", path, "--allow", "leader-epoch-fell").exit_code == 0
    result = run("check-metadata", path, "-o", "json")
    assert json.loads(result.stdout)[str(path)]["counts"] == {"leader-epoch-fell": 1}


def test_a_file_that_is_no_recording_is_exit_code_2(tmp_path):
    (tmp_path / "noise").write_text("noise\n")
    result = run("check-metadata", tmp_path / "noise")
    assert result.exit_code == 2
    assert "noise, line 1" in result.stderr


@pytest.mark.parametrize("content", ["", "no newline"])
def test_a_recording_of_nothing_has_no_verdict(tmp_path, content):
    (tmp_path / "nothing").write_text(content)
    result = run("check-metadata", tmp_path / "nothing")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "nothing: no change was recorded" in result.stderr


def test_a_recording_without_brokers_has_no_verdict_unless_a_rule_was_broken(recorded):
    path = recorded(entry(), FAILED_OVER, brokers=0)
    result = run("check-metadata", path)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "no broker was recorded" in result.stderr
    broken = path.rename(path.with_name("broken"))
    broken.write_text(recorded(entry(), entry(0, 0, 2), brokers=0).read_text())
    result = run("check-metadata", broken, recorded(entry(), FAILED_OVER, brokers=0))
    assert result.exit_code == 1, "an anomaly is one whatever lies beside it"
    assert "leader-epoch-fell" in result.output
    assert "NO VERDICT" in result.output


def test_recording_needs_a_cluster_and_a_place(tmp_path, monkeypatch):
    monkeypatch.setenv("KAFKALITE_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert "no cluster" in run("record-metadata", tmp_path / "m").stderr
    assert run("record-metadata", tmp_path / "m").exit_code == 2

    async def record(*_arguments):
        return 0

    monkeypatch.setattr(metadata_recorder, "record", record)
    result = record_metadata(tmp_path)
    assert (result.exit_code, "there is no topic, broker or cluster in any namespace" in result.stderr) == (2, True)


def record_metadata(tmp_path):
    (tmp_path / "kubeconfig").write_text(
        '{"clusters": [{"name": "x", "cluster": {"server": "http://127.0.0.1:1"}}], '
        '"contexts": [{"name": "x", "context": {"cluster": "x"}}], "current-context": "x"}'
    )
    return run("record-metadata", tmp_path / "m", "--kubeconfig", tmp_path / "kubeconfig")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            RecordingError("cannot list kafkalitebrokers: ask for a Role"),
            "cannot list kafkalitebrokers: ask for a Role",
        ),
        (OSError(28, "No space left on device", "m"), "m: No space left on device"),
    ],
)
def test_a_recording_that_fails_is_exit_code_2_and_standard_output_is_empty(tmp_path, monkeypatch, error, said):
    async def record(*_arguments):
        get_logger("reflector").info("watch interrupted", kind="KafkaLiteTopic")
        raise error

    monkeypatch.setattr(metadata_recorder, "record", record)
    result = record_metadata(tmp_path)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "watch interrupted" in result.stderr
    assert result.stderr.endswith(f"error: {said}\n")


def test_data_directories_are_compared(tmp_path):
    brokers = [Broker(tmp_path, number) for number in range(2)]
    for broker in brokers:
        broker.write(batch(0)).checkpoint(HIGH_WATERMARK, 2)
    folders = [broker.path for broker in brokers]
    result = run("replicas", *folders)
    assert result.exit_code == 0
    assert "OK: 1 partitions, 2 offsets in 1 batches" in result.output
    brokers[1].write(batch(0, text="y"))
    result = run("replicas", *folders)
    assert result.exit_code == 1
    assert "differs: orders-0 at offset 0: first at byte 17 (crc)" in result.output
    assert json.loads(run("replicas", *folders, "-o", "json").stdout)["counts"] == {"differs": 1}
    result = run("replicas", *folders, "-t", "other")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == "error: nothing was compared: no two directories have replicas of other\n"
    assert "one data directory has nothing to be compared with" in run("replicas", folders[0]).stderr


def test_the_local_clusters_data_directories_are_found(tmp_path, monkeypatch):
    volumes = tmp_path / "volumes"
    (volumes / "data-of-nobody").mkdir(parents=True)
    (volumes / ".data-0.uid").write_text("u")
    for number in range(2):
        Broker(volumes, number).write(batch(0)).checkpoint(HIGH_WATERMARK, 2)
    released = Broker(volumes, 7)  # of a claim that was deleted; its broker lives on in another directory
    released.path.rename(volumes / ".released-data-1-uid")
    (volumes / ".released-data-1-uid" / "meta").write_bytes((volumes / "data-1" / "meta").read_bytes())
    monkeypatch.setenv("KAFKALITE_HOME", str(tmp_path))
    result = run("replicas")
    assert result.exit_code == 0, result.output
    assert "OK: 1 partitions, 2 offsets" in result.output


def test_a_second_local_cluster_is_compared_by_itself(tmp_path, monkeypatch):
    for cluster in ("first", "second"):
        for number in range(2):
            made = Broker(tmp_path, number, cluster=cluster)
            made.write(batch(0, text=cluster)).checkpoint(HIGH_WATERMARK, 2)
            (tmp_path / "volumes").mkdir(exist_ok=True)
            made.path.rename(tmp_path / "volumes" / f"data-{cluster}-{number}")
    monkeypatch.setenv("KAFKALITE_HOME", str(tmp_path))
    result = run("replicas")
    assert result.exit_code == 0, result.output
    assert "OK: 2 partitions, 4 offsets" in result.output


def test_no_data_directory_is_exit_code_2(tmp_path, monkeypatch):
    monkeypatch.setenv("KAFKALITE_HOME", str(tmp_path / "home"))
    assert run("replicas").exit_code == 2
    assert run("replicas", tmp_path).exit_code == 2
