"""What is noted of a log that was set aside is true of it after a power loss (S10)."""

from dataclasses import replace

import pytest

from kafkalite_core.model.config import resolve_topic_config
from kafkalite_core.model.partition import IsrEntry, TopicRef
from kafkalite_core.model.topic import Stray
from kafkalite_core.storage.partition_metadata import PartitionMetadata, read_metadata, write_metadata
from kafkalite_core.storage.partition_metadata import Stray as Directory
from kafkalite_core.storage.stray_ends import listed, noted_of_stray, recovered_metadata, unlisted

TOPIC_ID = "5f0c1c2e-0000-4000-8000-000000000001"
REF = TopicRef("ns", "orders", "uid-1", TOPIC_ID, "orders")
RELAXED = {"flush.messages": "1000", "file.delete.delay.ms": "0"}
NOW_MS = 2_000_000


@pytest.fixture
def stray(rig, tools):
    """A log of five records in epoch 3 that were flushed and four in epoch 4 that were not; its name is no matter."""
    rig.config = replace(rig.config, segment_bytes=100_000, flush_messages=1000)
    log = rig.open()
    metadata = PartitionMetadata(topic="orders", partition=0, topic_id=TOPIC_ID, uid="u", leader_epoch=4)
    write_metadata(rig.disk, rig.name, metadata)
    tools.fill(log, 5, epoch=3)
    tools.flush(log)
    rig.disk.sync_directory("")
    tools.fill(log, 4, epoch=4)
    noted = noted_of_stray(log, metadata, delete_seen=True)
    write_metadata(rig.disk, rig.name, noted)
    log.abandon()
    assert (noted.log_epoch, noted.end_offset, noted.recovery_point) == (4, 9, 5)
    assert (noted.delete_seen, noted.moved_away) == (True, False)
    return noted


def reach(metadata):
    return metadata.log_epoch, metadata.end_offset, metadata.recovery_point


def test_what_was_not_given_up_is_on_disk_before_its_end_is_noted(rig, tools):
    """The topic may be adopted with `flush.messages` 1: its in-sync replicas count after an unclean restart then."""
    rig.config = replace(rig.config, segment_bytes=100_000, flush_messages=1000)
    log = rig.open()
    metadata = PartitionMetadata(topic="orders", partition=0, topic_id=TOPIC_ID, uid="u")
    tools.fill(log, 5, epoch=3)
    for known in (metadata, replace(metadata, deletion_policy="Retain")):
        tools.fill(log, 4, epoch=4)
        noted = noted_of_stray(log, known, delete_seen=known.deletion_policy == "Retain")
        assert reach(noted) == (4, log.end_offset, log.end_offset)
    tools.fill(log, 1, epoch=4)
    assert reach(noted_of_stray(log, replace(metadata, delete_seen=True), delete_seen=False)) == (4, 14, 13)
    log.reconfigure(replace(rig.config, flush_messages=1))
    moved = noted_of_stray(log, metadata, delete_seen=False, moved_away=True)
    assert reach(moved) == (4, 14, 14), "tightened, and not flushed since (S4)"
    assert (moved.delete_seen, moved.moved_away) == (False, True)
    write_metadata(rig.disk, rig.name, moved)
    log.abandon()
    rig.disk.crash()
    assert rig.open().end_offset == 14


def test_a_strict_log_is_noted_as_it_was_flushed(rig, tools):  # S8
    log = rig.open()
    metadata = PartitionMetadata(topic="orders", partition=0, topic_id=TOPIC_ID, uid="u")
    tools.fill(log, 5)
    tools.flush(log)
    tools.fill(log, 3, epoch=2)
    assert reach(noted_of_stray(log, metadata, delete_seen=False)) == (1, 5, 5)


def test_an_epoch_without_a_record_does_not_make_a_log_newer(rig, tools):
    """A leader has begun it and written nothing; no epoch above is to be given again, though."""
    log = rig.open()
    metadata = PartitionMetadata(topic="orders", partition=0, topic_id=TOPIC_ID, uid="u")
    tools.fill(log, 5, epoch=3)
    tools.flush(log)
    log.epochs.assign(8, log.end_offset)
    noted = noted_of_stray(log, metadata, delete_seen=False)
    assert reach(noted) == (3, 5, 5)
    assert noted.leader_epoch == 8


def test_what_a_power_loss_took_is_noted_no_more(rig, stray):
    rig.disk.crash()
    found = recovered_metadata(rig.disk, rig.name, now_ms=NOW_MS)[0]
    assert reach(found) == (3, 5, 5)
    assert (found.leader_epoch, found.delete_seen) == (4, True), "epochs are used once, and what was given up stays so"
    rig.disk.crash()
    assert read_metadata(rig.disk, rig.name) == found


def test_what_a_mere_crash_left_is_durable_then(rig, stray):
    rig.disk.kill()
    assert reach(recovered_metadata(rig.disk, rig.name, now_ms=NOW_MS)[0]) == (4, 9, 9)
    rig.disk.crash()
    assert rig.open().end_offset == 9


def test_a_log_that_the_disk_has_is_not_read_again(rig, stray, tools):
    rig.disk.kill()
    known = recovered_metadata(rig.disk, rig.name, now_ms=NOW_MS)[0]
    opened = []
    rig.disk.hook = lambda operation, path: opened.append(path) if operation == "open" else None
    assert recovered_metadata(rig.disk, rig.name, now_ms=NOW_MS)[0] == known
    assert [path for path in opened if not path.endswith("partition.metadata")] == []
    assert recovered_metadata(rig.disk, "elsewhere", now_ms=NOW_MS)[0] is None


def test_what_an_earlier_version_noted_is_read_once(rig, stray):
    write_metadata(rig.disk, rig.name, replace(stray, recovery_point=-1, delete_seen=False))
    rig.disk.crash()
    found = recovered_metadata(rig.disk, rig.name, now_ms=NOW_MS)[0]
    assert reach(found) == (3, 5, 5)
    assert (found.delete_seen, found.moved_away) == (False, False), "to be read is not to be given up"


@pytest.mark.parametrize(("damaged", "end"), [(0, 9), (6, 6)], ids=["what the disk had", "what it did not have"])
def test_a_log_is_read_from_where_the_disk_had_it_on(rig, tools, damaged, end):
    rig.config = replace(rig.config, segment_bytes=1, flush_messages=1000)
    log = rig.open()
    metadata = PartitionMetadata(topic="orders", partition=0, topic_id=TOPIC_ID, uid="u", delete_seen=True)
    tools.fill(log, 5)
    tools.flush(log)
    tools.fill(log, 4)
    write_metadata(rig.disk, rig.name, noted_of_stray(log, metadata, delete_seen=True))
    log.abandon()
    rig.disk.content(rig.path(f"{damaged:020}.log"))[-1] ^= 1
    assert recovered_metadata(rig.disk, rig.name, now_ms=NOW_MS)[0].end_offset == end


@pytest.mark.parametrize(("compacted", "reached"), [(True, (4, 21, 21)), (False, (4, 6, 6))])
def test_a_gap_is_no_damage_of_a_compacted_log(rig, stray, tools, compacted, reached):
    rig.disk.kill()
    rig.config = replace(rig.config, gaps=True)
    log = rig.open(recovery_point=9)
    log.truncate_to(5)
    for base_offset in (5, 20):
        batch = bytes(tools.batch(base_offset=base_offset, leader_epoch=4))
        log.append_as_follower(memoryview(batch), max_epoch=4, now_ms=NOW_MS)
    log.abandon()
    write_metadata(rig.disk, rig.name, replace(stray, compacted=compacted, end_offset=21))
    assert reach(recovered_metadata(rig.disk, rig.name, now_ms=NOW_MS)[0]) == reached


def test_a_full_disk_does_not_keep_a_broker_from_knowing_the_end(rig, stray):
    rig.disk.crash()
    rig.disk.capacity = 0
    assert reach(recovered_metadata(rig.disk, rig.name, now_ms=NOW_MS)[0]) == (3, 5, 5)
    assert read_metadata(rig.disk, rig.name) == stray, "and so it is read once more"
    rig.disk.capacity = None
    assert reach(recovered_metadata(rig.disk, rig.name, now_ms=NOW_MS)[0]) == (3, 5, 5)


@pytest.mark.parametrize("lost_batches", [0, 3])
def test_a_broker_lists_what_its_disk_has_after_the_power_failed(manager, tools, lost_batches):
    one = manager()
    one.open()
    log, _ = one.obtain(REF, 0, resolve_topic_config(RELAXED))
    tools.fill(log, 5, epoch=3)
    tools.flush(log)
    sizes = [log.active.size]
    for _ in range(4):
        tools.fill(log, 1, epoch=4)
        sizes.append(log.active.size)
    kept = len(sizes) - 1 - lost_batches
    directory = one.set_aside(log, delete_seen=True).directory
    assert [stray.end_offset for stray in one.strays()] == [9], "as long as it lives a relaxed flush counts"
    one.close({}, broker_epoch=1)
    with (one.disk.root / directory / f"{0:020}.log").open("r+b") as file:
        file.truncate(sizes[kept])  # a clean stop does not flush what was set aside
    two = manager()
    two.open()
    (stray,) = two.strays()
    assert (stray.metadata.end_offset, stray.metadata.recovery_point) == (5 + kept, 5 + kept)
    adopted, _ = two.obtain(REF, 0, resolve_topic_config(RELAXED))
    assert adopted.end_offset == 5 + kept


def test_what_a_broker_lists_of_a_stray():
    noted = PartitionMetadata(
        topic="a", partition=3, topic_id="id", uid="u", leader_epoch=8, partition_epoch=9, log_epoch=7, end_offset=30,
        isr=(IsrEntry(1, 4),), isr_epoch=6, isr_leader_epoch=5, relaxed_flush=True, delete_seen=True,
    )  # fmt: skip
    told = Stray(
        topic="a", topic_id="id", partition=3, leader_epoch=8, partition_epoch=9, log_epoch=7, end_offset=30,
        isr=(IsrEntry(1, 4),), isr_epoch=6, isr_leader_epoch=5, relaxed_flush=True, deleted=True,
    )  # fmt: skip

    def as_listed(metadata, end_offset=-1):
        (one,) = listed([Directory("a-3.0.stray", metadata, end_offset=end_offset), Directory("nobody's.stray", None)])
        return one

    assert as_listed(noted) == told
    assert as_listed(replace(noted, deletion_policy="Retain"), 31) == replace(told, deleted=False, end_offset=31)
    older = as_listed(replace(noted, end_offset=-1))
    assert (older.log_epoch, older.end_offset) == (None, -1), "an earlier version noted neither"
    empty = as_listed(replace(noted, log_epoch=-1, end_offset=0), 0)
    assert empty.reach == (-1, 0), "no record is of the epoch that it was told of"
    assert not as_listed(replace(noted, delete_seen=False)).deleted


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("relaxed", [False, True])
def test_what_was_deleted_before_a_log_was_set_aside_stays_deleted_when_it_is_adopted(
    manager, tools, relaxed, restarted
):
    config = resolve_topic_config({"segment.bytes": "1024", "flush.messages": "1000"} if relaxed else {})
    one = manager()
    one.open()
    log, _ = one.obtain(REF, 0, config)
    tools.fill(log, 9)
    tools.flush(log)
    log.advance_start(3)
    tools.fill(log, 2)
    one.set_aside(log, delete_seen=relaxed)  # relaxed and deleted: the next process reads the log
    if restarted:
        one.abandon()
        one = manager()
        one.open()
    adopted, mark = one.obtain(REF, 0, config)
    assert (adopted.start_offset, mark) == (3, 3)
    assert adopted.end_offset == 11


def test_of_too_many_strays_the_youngest_are_listed_oldest_first(monkeypatch):
    monkeypatch.setattr("kafkalite_core.storage.stray_ends.STRAYS_LISTED_MAX", 2)
    noted = [
        PartitionMetadata(topic="a", partition=n, topic_id="id", uid="u", stray_since_ms=since)
        for n, since in enumerate((3, 1, 2))
    ]
    assert [one.partition for one in listed([Directory(f"a-{one.partition}", one) for one in noted])] == [2, 0]


def test_of_those_that_are_not_listed_those_are_counted_that_were_not_given_up(monkeypatch):
    monkeypatch.setattr("kafkalite_core.storage.stray_ends.STRAYS_LISTED_MAX", 1)

    def unlisted_of(**oldest):
        noted = [
            PartitionMetadata(topic="a", partition=0, topic_id="id", uid="u", stray_since_ms=2),
            PartitionMetadata(topic="a", partition=1, topic_id="id", uid="u", stray_since_ms=1, **oldest),
        ]
        return unlisted([*(Directory(f"a-{one.partition}", one) for one in noted), Directory("odd", None)])

    assert unlisted_of() == unlisted_of(delete_seen=True, deletion_policy="Retain") == 1
    assert unlisted_of(delete_seen=True, deletion_policy="Delete") == unlisted_of(moved_away=True) == 0


@pytest.mark.parametrize("damaged", [False, True])
def test_a_stray_that_is_read_at_a_start_and_lost_what_was_flushed_is_a_loss_of_the_disk(
    manager, tools, damaged, monkeypatch
):
    one = manager()
    one.open()
    log, _ = one.obtain(REF, 0, resolve_topic_config(RELAXED))
    tools.fill(log, 8)
    tools.flush(log)
    tools.fill(log, 4)  # no disk has these
    directory = one.set_aside(log, delete_seen=True).directory
    one.close({}, broker_epoch=5)
    if damaged:
        (one.disk.root / directory / f"{0:020}.log").write_bytes(b"rotten")
    two = manager()
    with monkeypatch.context() as killed:
        killed.setattr("kafkalite_broker.log.manager.settle_identity", lambda *_: pytest.fail("killed"))
        with pytest.raises(pytest.fail.Exception):
            two.open()
    two.abandon()
    three = manager()
    found = three.open().findings
    assert (found.cut_below_flushed, found.trusted) == (damaged, not damaged)
    three.abandon()
    assert manager().open().findings.trusted
