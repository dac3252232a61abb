"""Data directories made by hand: equal replicas pass, every difference below the high watermark is told."""

import shutil
import subprocess
import sys

import pytest

from kafkalite_cli.verify import replica_log
from kafkalite_cli.verify.replica_log import DirectoryError
from kafkalite_cli.verify.replicas import compare_clusters, compare_replicas
from kafkalite_core.model.partition import TopicPartition
from kafkalite_core.protocol.record_batch import SimpleRecord, build_batch
from kafkalite_core.storage.checkpoints import CLEANER, HIGH_WATERMARK, LOG_START, encode_offsets
from kafkalite_core.storage.identity import Identity
from kafkalite_core.storage.partition_metadata import PartitionMetadata

TOPIC_ID = "5f0c0000-0000-4000-8000-000000000001"
KEY = TopicPartition("orders", 0)


def batch(base, count=2, *, epoch=1, text="x"):
    records = [SimpleRecord(1000 + base + n, b"key", f"{text}{base + n}".encode()) for n in range(count)]
    return bytes(build_batch(records, base_offset=base, leader_epoch=epoch))


class Broker:
    """One data directory of a cluster."""

    def __init__(self, root, number, cluster="cluster"):
        self.number = number
        self.path = root / f"data-{number}"
        self.path.mkdir(parents=True)
        (self.path / "meta").write_bytes(Identity(cluster, number, f"directory-{number}").encode())

    def write(self, *batches, rolls=(), key=KEY, topic_id=TOPIC_ID, leader_epoch=1, compacted=False):
        """The partition's log: the batches, a new segment before each offset of `rolls`."""
        folder = self.path / f"{key.topic}-{key.partition}"
        folder.mkdir(exist_ok=True)
        metadata = PartitionMetadata(
            topic=key.topic,
            partition=key.partition,
            topic_id=topic_id,
            uid="u",
            leader_epoch=leader_epoch,
            compacted=compacted,
        )
        (folder / "partition.metadata").write_bytes(metadata.encode())
        for old in folder.glob("*.log"):
            old.unlink()
        name = None
        for content in batches:
            base = int.from_bytes(content[:8], "big")
            if name is None or base in rolls:
                name = folder / f"{base:020d}.log"
            with name.open("ab") as file:
                file.write(content)
        return self

    def checkpoint(self, name, offset, key=KEY):
        (self.path / name).write_bytes(encode_offsets({key: offset}))
        return self

    def log(self, base=0):
        return self.path / f"{KEY.topic}-{KEY.partition}" / f"{base:020d}.log"


@pytest.fixture
def brokers(tmp_path):
    """Three brokers with the same three batches, offsets 0 to 5, all committed."""
    made = [Broker(tmp_path, number) for number in range(3)]
    for broker in made:
        broker.write(batch(0), batch(2), batch(4)).checkpoint(HIGH_WATERMARK, 6)
    return made


def compare(brokers, **options):
    return compare_replicas({broker.number: broker.path for broker in brokers}, **options)


def only(report):
    assert not report.ok
    [found] = report.examples
    assert report.counts == {found.kind: 1}
    assert (found.topic, found.partition) == KEY
    return found


def test_equal_replicas_pass_whatever_their_segments(brokers):
    brokers[1].write(batch(0), batch(2), batch(4), rolls=(2, 4))
    report = compare(brokers)
    assert report.ok
    size = len(batch(0) + batch(2) + batch(4))
    assert (report.partitions, report.records, report.batches, report.bytes) == (1, 6, 3, size)
    assert report.uncompared == []
    assert compare_replicas([broker.path for broker in brokers]) == report


def test_one_byte_makes_a_difference_and_its_field_is_named(brokers):
    brokers[2].write(batch(0), batch(2, epoch=2), batch(4, epoch=2))
    found = only(compare(brokers))
    assert (found.kind, found.offset) == ("differs", 2)
    assert "byte 15 (partitionLeaderEpoch)" in found.text
    assert "broker 0 has offsets 2 to 3, leader epoch 1" in found.text
    assert "broker 2 has offsets 2 to 3, leader epoch 2" in found.text
    assert "WRONG" not in found.text


def test_a_damaged_record_is_told_from_the_whole_one(brokers):
    content = bytearray(brokers[1].log().read_bytes())
    content[-1] ^= 1
    brokers[1].log().write_bytes(content)
    found = only(compare(brokers))
    assert (found.kind, found.offset) == ("differs", 4)
    assert "(records)" in found.text
    assert found.text.count("CRC right") == 1
    assert found.text.count("CRC WRONG") == 1


@pytest.mark.parametrize("position", [0, 4, 12, 17, 30, 60])
def test_no_byte_of_a_batch_may_differ(brokers, position):
    content = bytearray(brokers[1].log().read_bytes())
    content[len(batch(0)) + position] ^= 1
    brokers[1].log().write_bytes(content)
    assert not compare(brokers).ok


def test_what_is_above_the_high_watermark_may_differ(brokers):
    brokers[2].write(batch(0), batch(2), batch(4, text="other"))
    assert not compare(brokers).ok
    for broker in brokers:
        broker.checkpoint(HIGH_WATERMARK, 4)
    report = compare(brokers)
    assert report.ok
    assert report.records == 4


def test_each_replica_is_judged_by_its_own_high_watermark(brokers):
    """One that was left behind may hold a tail that nobody committed: it has not cut it yet."""
    brokers[2].write(batch(0), batch(2, text="other"), batch(4, text="other")).checkpoint(HIGH_WATERMARK, 2)
    report = compare(brokers)
    assert report.ok
    assert report.records == 6
    assert only(compare(brokers, high_watermarks={KEY: 6})).kind == "differs"


def test_a_replica_that_ends_below_what_it_knows_to_be_committed_is_short(brokers):
    brokers[1].write(batch(0), batch(2))
    found = only(compare(brokers))
    assert (found.kind, found.offset) == ("short", 4)
    assert "broker 1 ends at 4" in found.text


def test_all_replicas_have_to_reach_a_high_watermark_that_is_given(brokers):
    assert compare(brokers, high_watermarks={("orders", 0): 6}).ok
    found = only(compare(brokers, high_watermarks={("orders", 0): 7}))
    assert (found.kind, found.offset) == ("short", 6)
    brokers[2].write(batch(0)).checkpoint(HIGH_WATERMARK, 2)
    assert compare(brokers).ok
    found = only(compare(brokers, high_watermarks={("orders", 0): 6}))
    assert (found.kind, found.offset) == ("short", 2)


def test_a_torn_tail_is_the_end(brokers):
    with brokers[0].log().open("ab") as file:
        file.write(batch(6)[:70])
    assert compare(brokers).ok
    brokers[0].log().write_bytes((batch(0) + batch(2) + batch(4))[:-1])
    assert only(compare(brokers)).kind == "short"


def test_a_log_begins_where_the_youngest_of_all_does(brokers):
    brokers[0].write(batch(2, text="other"), batch(4)).checkpoint(LOG_START, 4)
    report = compare(brokers)
    assert report.ok
    assert report.records == 2
    brokers[0].checkpoint(LOG_START, 3)
    assert only(compare(brokers)).offset == 2, "the batch that holds offset 3"


WHOLE = {"high_watermarks": {("orders", 0): 6}, "starts": {("orders", 0): 0}, "copies": 3}


def test_a_partition_that_a_broker_should_have_and_has_not_is_missing(brokers):
    assert compare(brokers, **WHOLE).ok
    shutil.rmtree(brokers[1].path / "orders-0")
    found = only(compare(brokers, **WHOLE))
    assert found.kind == "missing"
    assert "[0, 2]" in found.text


def test_another_topic_of_that_name_is_no_copy(brokers):
    brokers[1].write(batch(0), batch(2), batch(4), topic_id="5f0c0000-0000-4000-8000-000000000002")
    assert only(compare(brokers, **WHOLE)).kind == "missing"


def test_a_partition_that_nobody_has_is_missing(brokers):
    for broker in brokers:
        shutil.rmtree(broker.path / "orders-0")
    assert only(compare(brokers, high_watermarks={("orders", 0): 6})).kind == "missing"


def test_a_partition_that_one_broker_alone_has_was_not_compared(brokers):
    for broker in brokers[1:]:
        shutil.rmtree(broker.path / "orders-0")
    report = compare(brokers)
    assert (report.partitions, report.uncompared) == (0, ["orders-0"])


def test_a_replica_whose_first_segment_is_gone_begins_too_late(brokers):
    for broker in brokers:
        broker.write(batch(0), batch(2), batch(4), rolls=(2, 4))
    brokers[1].log(0).unlink()
    assert compare(brokers).ok, "retention may have deleted it"
    found = only(compare(brokers, **WHOLE))
    assert found.kind == "late-start"
    assert "broker 1 begins at 2" in found.text


def test_the_same_damage_on_all_is_damage(brokers):
    for broker in brokers:
        content = bytearray(broker.log().read_bytes())
        content[-1] ^= 1
        broker.log().write_bytes(content)
    found = only(compare(brokers))
    assert (found.kind, found.offset) == ("damaged", 4)


def test_offsets_follow_each_other(brokers):
    for broker in brokers:
        broker.write(batch(0), batch(4))
    found = only(compare(brokers))
    assert (found.kind, found.offset) == ("gap", 2)


def test_leader_epochs_never_fall(brokers):
    for broker in brokers:
        broker.write(batch(0, epoch=3), batch(2, epoch=2), batch(4, epoch=3))
    assert only(compare(brokers)).kind == "epoch-fell"


def test_a_compacted_log_is_compared_above_what_was_cleaned(brokers):
    for broker in brokers:
        broker.write(batch(0), batch(2), batch(4), compacted=True)
    brokers[1].write(batch(0, count=1), batch(4), compacted=True)
    assert not compare(brokers).ok
    brokers[1].checkpoint(CLEANER, 4)
    report = compare(brokers)
    assert report.ok
    assert report.records == 2
    brokers[1].checkpoint(CLEANER, 6)
    assert compare(brokers).uncompared == ["orders-0"]


def test_nothing_committed_is_nothing_compared_and_is_said(brokers):
    for broker in brokers:
        broker.checkpoint(HIGH_WATERMARK, 0)
    report = compare(brokers)
    assert report.ok
    assert (report.partitions, report.records, report.uncompared) == (1, 0, ["orders-0"])


def test_topics_of_one_name_are_told_apart_by_their_ids(brokers):
    other = "5f0c0000-0000-4000-8000-000000000002"
    brokers[2].write(batch(0, text="old"), topic_id=other, leader_epoch=9).checkpoint(HIGH_WATERMARK, 2)
    report = compare(brokers)
    assert report.ok
    assert (report.partitions, report.records) == (1, 6)


def test_topics_can_be_chosen_and_strays_are_left_out(brokers):
    brokers[1].write(batch(0, text="other"), batch(2), batch(4))
    stray = brokers[2].path / "orders-0.0123.stray"
    stray.mkdir()
    assert not compare(brokers, topics={"orders"}).ok
    assert compare(brokers, topics={"other"}).partitions == 0


def test_directories_that_make_no_cluster_are_refused(brokers, tmp_path):
    with pytest.raises(DirectoryError, match="meta"):
        compare_replicas([tmp_path])
    with pytest.raises(DirectoryError, match="another directory"):
        compare_replicas([brokers[0].path, brokers[0].path])
    with pytest.raises(DirectoryError, match="of broker 0, not of broker 1"):
        compare_replicas({1: brokers[0].path})
    other = Broker(tmp_path / "elsewhere", 1, cluster="other")
    with pytest.raises(DirectoryError, match="of cluster other, others are of cluster"):
        compare_replicas([brokers[0].path, other.path])


def test_each_of_several_clusters_is_compared_by_itself(brokers, tmp_path):
    others = [Broker(tmp_path / "second", number, cluster="second") for number in range(2)]
    for other in others:
        other.write(batch(0, text="z")).checkpoint(HIGH_WATERMARK, 2)
    folders = [broker.path for broker in (*brokers, *others)]
    report = compare_clusters(folders)
    assert (report.ok, report.partitions, report.records, report.uncompared) == (True, 2, 8, [])
    others[1].write(batch(0, text="y"))
    found = only(compare_clusters(folders))
    assert found.kind == "differs"
    assert found.text.startswith("cluster second: first at byte")
    report = compare_clusters(folders[:-1])
    assert (report.ok, report.partitions, report.uncompared) == (True, 1, ["orders-0 of cluster second"])


@pytest.mark.parametrize("part_bytes", [1, 60, 61, 200, 1 << 17])
def test_a_log_is_read_in_parts_of_any_size(brokers, monkeypatch, part_bytes):
    monkeypatch.setattr(replica_log, "_PART_BYTES", part_bytes)
    contents = [batch(0), batch(2, 9, text="a longer one "), batch(11)]
    log = brokers[0].write(*contents).log()
    assert [found.data for found in replica_log._batches_of(log)] == contents
    for missing in (1, 60, len(contents[2]) - 60):
        log.write_bytes(b"".join(contents)[:-missing])
        assert [found.data for found in replica_log._batches_of(log)] == contents[:2], "a part of a batch is none"


CUT_OFF = """
import pathlib, sys
from kafkalite_cli.verify import replica_log
path = pathlib.Path(sys.argv[1])
found = replica_log._batches_of(path)
next(found)
with path.open("r+b") as file:
    file.truncate(4096)
print(len(list(found)) < 3999)
"""


def test_a_log_that_is_cut_off_while_it_is_read_ends_there(brokers):
    """As a follower's is. In a process of its own: who has mapped the file is killed by SIGBUS."""
    log = brokers[0].write(*(batch(offset, 1) for offset in range(4000))).log()
    ended = subprocess.run([sys.executable, "-c", CUT_OFF, str(log)], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "True\n", "")


def test_segments_that_are_deleted_meanwhile_are_read_again(brokers, monkeypatch):
    """A running broker deletes old segments while the comparison looks at them."""
    for broker in brokers:
        broker.write(batch(0), batch(2), batch(4), rolls=(2, 4))
    real, calls = replica_log._batches_of, []

    def vanishing(path):
        calls.append(path)
        if len(calls) == 1:
            for broker in brokers:
                broker.write(batch(2), batch(4), rolls=(2, 4)).checkpoint(LOG_START, 2)
        return real(path)

    monkeypatch.setattr(replica_log, "_batches_of", vanishing)
    report = compare(brokers)
    assert report.ok
    assert report.records == 4
