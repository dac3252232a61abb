"""The judge of rounds on the kind cluster fires on what is made wrong by hand: replicas, histories, metadata."""

import importlib.util
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from kafkalite_cli.verify.group_report import GroupAnomaly
from kafkalite_core.protocol.record_batch import SimpleRecord, build_batch
from kafkalite_core.storage.checkpoints import HIGH_WATERMARK, encode_offsets
from kafkalite_core.storage.identity import Identity
from kafkalite_core.storage.partition_metadata import PartitionMetadata
from tests.chaos.judge import Verdict
from tests.chaos.kind import traffic
from tests.chaos.kind.judge import judge, judge_early
from tests.chaos.ledger import BROKEN, FAILED, NO_BITE, NO_HEAL
from tests.chaos.runner import conclude

TOPIC = "chaos-7"


def batch(base, text="x"):
    records = [SimpleRecord(1000 + base + n, b"key", f"{text}{base + n}".encode()) for n in range(2)]
    return bytes(build_batch(records, base_offset=base, leader_epoch=1))


def write_log(folder, *batches):
    (folder / f"{0:020d}.log").write_bytes(b"".join(batches))


@pytest.fixture
def replicas(tmp_path):
    """Three copies of data directories with the same three batches, offsets 0 to 5."""
    made = {}
    for number in range(3):
        path = made[number] = tmp_path / str(number)
        folder = path / f"{TOPIC}-0"
        folder.mkdir(parents=True)
        (path / "meta").write_bytes(Identity("cluster", number, f"directory-{number}").encode())
        (path / HIGH_WATERMARK).write_bytes(encode_offsets({}))
        known = PartitionMetadata(
            topic=TOPIC, partition=0, topic_id="5f0c0000-0000-4000-8000-000000000001", uid="u", leader_epoch=1,
            compacted=False,
        )  # fmt: skip
        (folder / "partition.metadata").write_bytes(known.encode())
        write_log(folder, batch(0), batch(2), batch(4))
    return made


def partition(leader=0, leader_epoch=1, partition_epoch=1, isr=(0, 1, 2)):
    return {
        "leader": leader, "leaderEpoch": leader_epoch, "partitionEpoch": partition_epoch, "minIsr": 2, "elr": [],
        "replicas": [0, 1, 2], "isr": list(isr), "isrBrokerEpochs": [1 for _ in isr],
    }  # fmt: skip


@pytest.fixture
def metadata(tmp_path):
    """A function that writes the history of one partition, from its states."""

    def write(*states):
        path = tmp_path / "metadata.jsonl"
        lines = []
        for version, state in enumerate(states, 1):
            obj = {
                "apiVersion": "kafkalite.io/v1alpha1", "kind": "KafkaLiteTopic",
                "metadata": {
                    "name": TOPIC, "namespace": "n", "uid": "u", "resourceVersion": str(version), "generation": 1,
                },
                "spec": {"partitions": 1, "replicas": 3},
                "status": {"topicId": "5f0c0000-0000-4000-8000-000000000001", "partitions": {"0": state}},
            }  # fmt: skip
            type_ = "ADDED" if version == 1 else "MODIFIED"
            lines.append(json.dumps({"at_us": version, "kind": "kafkalitetopics", "type": type_, "object": obj}))
        path.write_text("".join(f"{line}\n" for line in lines))
        return path

    return write


def report(**fields):
    values = {
        "acked": 6, "read": 12, "unknown": 0, "failed": 0, "longest_ack_gap_ms": 5.0, "counts": {}, "examples": [],
        "highest": {"0": 5}, "starts": {"0": 0}, "too_large": 0, "unread": 0, "seconds": 1.0, "excused": 0,
    }  # fmt: skip
    return values | fields


SOUND = (partition(), partition(leader=1, leader_epoch=2, partition_epoch=2))


def test_equal_replicas_and_sound_histories_break_nothing(replicas, metadata):
    found = judge(TOPIC, report(), replicas, metadata(*SOUND), 6)
    assert found == Verdict(acked=6, read=12, replica_bytes=3 * len(batch(0)), metadata_changes=2, longest_gap_ms=5.0)


def test_replicas_that_differ_below_the_high_watermark_are_broken(replicas, metadata):
    write_log(replicas[2] / f"{TOPIC}-0", batch(0), batch(2, "y"), batch(4))
    (said,) = judge(TOPIC, report(), replicas, metadata(*SOUND), 6).broken
    assert "'differs': 1" in said


def test_a_replica_that_lacks_what_was_acknowledged_is_broken(replicas, metadata):
    write_log(replicas[1] / f"{TOPIC}-0", batch(0), batch(2))
    (said,) = judge(TOPIC, report(), replicas, metadata(*SOUND), 6).broken
    assert "'short': 1" in said


def test_a_broker_without_the_partition_is_broken(replicas, metadata):
    (replicas[0] / f"{TOPIC}-0" / "partition.metadata").unlink()
    (said,) = judge(TOPIC, report(), replicas, metadata(*SOUND), 6).broken
    assert "'missing': 1" in said


def test_what_clients_saw_and_a_leader_epoch_that_falls_are_broken(replicas, metadata):
    history = metadata(partition(leader_epoch=3), partition(leader_epoch=2, partition_epoch=2))
    said = judge(TOPIC, report(counts={"lost": 2}, examples=["1/2/3"]), replicas, history, 6).broken
    assert said[0] == f"{TOPIC}: {{'lost': 2}} 1/2/3"
    assert "leader-epoch-fell" in said[1]


def test_a_round_without_a_history_of_metadata_shows_nothing(replicas, metadata):
    assert "0 changes" in judge(TOPIC, report(), replicas, metadata(), 6).broken[0]


@pytest.mark.parametrize(
    ("fields", "verdict"), [({"acked": 5}, NO_BITE), ({"unread": 1}, NO_HEAL), ({"too_large": 1}, FAILED)]
)
def test_what_is_thin_late_or_unfit_does_not_pass(replicas, metadata, fields, verdict):
    bitten = SimpleNamespace(bit=True, name="n", unseen=[])
    found = judge(TOPIC, report(**fields), replicas, metadata(*SOUND), 6)
    assert conclude([bitten], found, "")[0] == verdict


def test_what_is_excused_is_counted(replicas, metadata):
    found = judge(TOPIC, report(excused=4), replicas, metadata(*SOUND), 6)
    assert (found.allowed, found.broken) == ({"offset-regressed": 4}, [])


@pytest.mark.parametrize(
    ("counts", "verdict"), [({}, NO_HEAL), ({"unseen": 3}, NO_HEAL), ({"lost": 1, "unseen": 3}, BROKEN)]
)
def test_what_a_round_that_does_not_heal_has_lost_is_looked_for(metadata, counts, verdict):
    bitten = SimpleNamespace(bit=True, name="n", unseen=[])
    found = judge_early(TOPIC, "not whole", lambda: report(counts=counts, examples=["1/2/3"]), metadata(*SOUND))
    assert conclude([bitten], found, "")[0] == verdict
    assert found.acked == 6


def test_clients_that_do_not_answer_any_more_leave_a_round_that_did_not_heal(metadata):
    def silent():
        raise TimeoutError("no answer")

    found = judge_early(TOPIC, "not whole", silent, metadata(*SOUND))
    assert conclude([SimpleNamespace(bit=True, name="n", unseen=[])], found, "")[0] == NO_HEAL
    assert "no answer" in found.unjudged[0]


@pytest.fixture
def in_pod(monkeypatch):
    """The program of the pod with the clients, with that of the e2e tests beside it as in the image."""
    place = Path(traffic.SOURCE)
    monkeypatch.setitem(sys.modules, "load", SimpleNamespace())
    spec = importlib.util.spec_from_file_location("traffic_in_pod", place)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def told(*moments_us, count=None, kind="offset-regressed"):
    examples = [GroupAnomaly(kind=kind, partition=0, member=-1, at_us=at_us, text="") for at_us in moments_us]
    return SimpleReport(counts={kind: len(examples) if count is None else count}, examples=examples)


class SimpleReport(msgspec.Struct, frozen=True):
    counts: dict
    examples: list


def test_offsets_that_a_hanging_coordinator_told_are_counted_and_not_judged(in_pod):
    found, excused = in_pod.without_stale_answers(told(150), [[100, 200]])
    assert (found.counts, found.examples, excused) == ({}, [], 1)
    found, excused = in_pod.without_stale_answers(told(150, 250), [[100, 200]])
    assert (found.counts, [each.at_us for each in found.examples], excused) == ({"offset-regressed": 1}, [250], 1)


@pytest.mark.parametrize(
    ("report_", "hanging"),
    [
        (told(150), []),
        (told(50), [[100, 200]]),
        (told(150, count=21), [[100, 200]]),
        (told(150, kind="commit-regressed"), [[100, 200]]),
    ],
)
def test_nothing_else_is_excused(in_pod, report_, hanging):
    assert in_pod.without_stale_answers(report_, hanging) == (report_, 0)
