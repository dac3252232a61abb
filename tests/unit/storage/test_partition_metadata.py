"""`partition.metadata` and the fate of strays (S10)."""

from dataclasses import replace

import pytest

from kafkalite_core.model.partition import IsrEntry, Partition, Seen
from kafkalite_core.storage.errors import CorruptCheckpoint, DiskFailure
from kafkalite_core.storage.memory_disk import MemoryDisk
from kafkalite_core.storage.partition_metadata import (
    PartitionMetadata,
    Stray,
    adoptable,
    parse_directory_name,
    read_metadata,
    stray_name,
    stray_verdict,
    strays_to_remove,
    sync_metadata,
    write_metadata,
)

TOPIC_ID = "5f0c1c2e-0000-4000-8000-000000000001"
HOUR, WEEK = 3_600_000, 604_800_000
LIMITS = {"retention_ms": WEEK, "deleted_retention_ms": HOUR}


def metadata(**fields):
    return PartitionMetadata(**{"topic": "a-b", "partition": 3, "topic_id": TOPIC_ID, "uid": "u", **fields})


def in_sync(*broker_ids):
    return tuple(IsrEntry(i, 70 + i) for i in broker_ids)


def entry(*, leader_epoch: int, partition_epoch: int) -> Partition:
    isr = (IsrEntry(4, 7), IsrEntry(3, 6))
    return Partition(
        leader=4, leader_epoch=leader_epoch, partition_epoch=partition_epoch, min_isr=1, replicas=(4, 3), isr=isr
    )


def test_round_trip_and_kafkas_first_lines():
    disk = MemoryDisk()
    disk.makedirs("a-b-3")
    content = metadata(
        leader_epoch=4, isr=in_sync(0, 12), compacted=True, delete_seen=True, moved_away=True, stray_since_ms=77
    )
    write_metadata(disk, "a-b-3", content)
    assert read_metadata(disk, "a-b-3") == content
    before = content.encode().replace(b"moved_away: True\n", b"").replace(b"isr: 0,12\nisr_broker_epochs: 70,82\n", b"")
    assert PartitionMetadata.decode(before) == replace(content, moved_away=False, isr=()), (
        "as earlier versions wrote it"
    )
    assert PartitionMetadata.decode(replace(content, isr=()).encode()).isr == ()
    assert content.encode().startswith(b"version: 0\ntopic_id: XwwcLgAAQACAAAAAAAAAAQ\n")
    assert content.key == ("a-b", 3)


def test_everything_is_read_as_it_was_written():
    numbers = ("leader_epoch", "partition_epoch", "isr_epoch", "isr_leader_epoch", "broker_epoch", "stray_since_ms",
               "log_epoch", "end_offset", "recovery_point")  # fmt: skip
    flags = dict.fromkeys(("compacted", "relaxed_flush", "delete_seen", "moved_away"), True)
    content = metadata(
        deletion_policy="Retain", isr=in_sync(5, 2), **{x: 40 + n for n, x in enumerate(numbers)}, **flags
    )
    assert PartitionMetadata.decode(content.encode()) == content
    assert PartitionMetadata.decode(metadata().encode()) == metadata()


def test_a_damaged_file_is_nobodys():
    disk = MemoryDisk()
    disk.makedirs("d")
    assert read_metadata(disk, "d") is None
    write_metadata(disk, "d", metadata())
    del disk.content("d/partition.metadata")[-5:]
    assert read_metadata(disk, "d") is None
    later = metadata().encode().replace(b"version: 0\n", b"version: 1\n")
    for data in (later, b"version: 1\n", b"x\n", b"version: 0\ntopic_id: !\n"):
        with pytest.raises(CorruptCheckpoint):
            PartitionMetadata.decode(data)


def test_only_higher_epochs_and_a_newer_isr_are_news():
    known = metadata(leader_epoch=5, partition_epoch=9, isr=in_sync(1, 2), isr_epoch=9, broker_epoch=2)
    for seen in (Seen(5, 8, in_sync(3, 4), 8), Seen(5, 9, in_sync(3, 4), 9), Seen()):
        assert known.noting(seen, broker_epoch=2) is known
    assert known.noting(Seen(), broker_epoch=1) is known
    assert known.noting(Seen(), broker_epoch=3) == replace(known, broker_epoch=3)
    newer = known.noting(Seen(4, 10, in_sync(3, 4), 10, 4), broker_epoch=1)
    assert newer.newest == Seen(5, 10, in_sync(3, 4), 10, 4)
    assert newer.broker_epoch == 2
    assert known.noting(Seen(6, 8, (), -1), broker_epoch=2).newest == Seen(6, 9, in_sync(1, 2), 9)
    older = known.noting(Seen(5, 12, in_sync(3, 4), 8, 4), broker_epoch=2)
    assert older.newest == Seen(5, 12, in_sync(1, 2), 9), "what it is of is what counts"


def test_what_was_refused_raises_the_epochs_and_leaves_the_isr():  # S11
    known = metadata(leader_epoch=5, partition_epoch=9, isr=in_sync(1, 2), isr_epoch=9, broker_epoch=2)
    refused = known.noting(Seen(5, 12, in_sync(1, 2), 9), broker_epoch=2)
    assert refused.newest == Seen(5, 12, in_sync(1, 2), 9)
    assert PartitionMetadata.decode(refused.encode()) == refused
    assert refused.noting(Seen(5, 10, in_sync(1, 2), 9), broker_epoch=2) is refused
    assert refused.noting(Seen(6, 10, in_sync(1, 2), 9), broker_epoch=2) == replace(refused, leader_epoch=6)


def test_files_of_earlier_versions_note_the_isr_of_their_partition_epoch_or_none():
    written = metadata(leader_epoch=5, partition_epoch=9, isr=in_sync(1, 2), isr_epoch=9)
    without = written.encode().replace(b"isr_epoch: 9\n", b"")
    assert PartitionMetadata.decode(without).newest == Seen(5, 9, in_sync(1, 2), 9)
    without = without.replace(b"isr_leader_epoch: -1\n", b"")
    assert PartitionMetadata.decode(without).newest == Seen(5, 9, in_sync(1, 2), 9, 5)
    bare = PartitionMetadata.decode(without.replace(b"isr: 1,2\nisr_broker_epochs: 71,72\n", b""))
    assert bare.newest == Seen(5, 9, (), -1)
    assert bare.noting(Seen(5, 9, in_sync(3, 4), 9), broker_epoch=2).newest == Seen(5, 9, in_sync(3, 4), 9)


def test_files_of_earlier_versions_note_no_broker_epochs_and_those_are_news():
    written = metadata(leader_epoch=5, partition_epoch=9, isr=in_sync(1, 2), isr_epoch=9, isr_leader_epoch=5)
    newer = (b"isr_broker_epochs", b"isr_leader_epoch")
    bare = PartitionMetadata.decode(
        b"\n".join(x for x in written.encode().split(b"\n") if not x.startswith(newer)),
    )
    assert bare == replace(written, isr=(IsrEntry(1, -1), IsrEntry(2, -1)))
    assert PartitionMetadata.decode(bare.encode()) == bare
    assert bare.noting(Seen(5, 9, bare.isr, 9, 5), broker_epoch=-1) is bare
    assert bare.noting(Seen(5, 9, in_sync(1, 2), 9, 5), broker_epoch=-1) == written
    refusing = replace(bare, partition_epoch=12)
    assert refusing.noting(Seen(5, 12, in_sync(1, 2), 9, 5), broker_epoch=-1) == replace(written, partition_epoch=12)
    for older in (Seen(5, 8, in_sync(1, 2), 8, 5), Seen(5, 9, in_sync(1, 2), 8, 5)):
        assert bare.noting(older, broker_epoch=-1) is bare, "those of an earlier entry are none of this one"
    assert b"\nisr: 1,2\n" in written.encode(), "as earlier versions read it"
    with pytest.raises(CorruptCheckpoint):
        PartitionMetadata.decode(written.encode().replace(b"71,72", b"71"))


def test_a_stray_tells_the_isr_with_the_leader_epoch_of_its_entry_whatever_its_log_has():  # S10
    """A checkpoint is up to 5 s old: records of a later epoch say that there was a newer ISR."""
    noted = metadata(leader_epoch=4, partition_epoch=9, isr=in_sync(1, 2), isr_epoch=9, isr_leader_epoch=4)
    stray = noted.of_stray(
        newest_epoch=8, start_offset=2, log_epoch=7, end_offset=30, recovery_point=20, relaxed_flush=True,
        delete_seen=False, moved_away=False,
    )  # fmt: skip
    assert (stray.isr, stray.isr_epoch, stray.isr_leader_epoch) == (in_sync(1, 2), 9, 4)
    assert (stray.leader_epoch, stray.relaxed_flush) == (8, True)
    assert PartitionMetadata.decode(stray.encode()) == stray
    assert stray.in_use("u").relaxed_flush, "until it is known that nobody counts on what it had then"
    assert stray.noting(Seen(9, 10), broker_epoch=1).relaxed_flush
    again = stray.noting(Seen(), broker_epoch=-1)
    assert again is stray
    assert noted.noting(Seen(), broker_epoch=-1, relaxed_flush=True) == replace(noted, relaxed_flush=True)


def test_directory_names():
    assert parse_directory_name("a-b-3") == ("a-b", 3)
    assert parse_directory_name("a-b-3.00ff.stray") is None
    assert parse_directory_name("meta") is None
    assert parse_directory_name("-3") is None
    long = stray_name("t" * 249 + "-255", "00ff00ff")
    assert len(long) == 255
    assert long.endswith(".00ff00ff.stray")


@pytest.mark.parametrize(
    ("fields", "age", "remove"),
    [
        ({"delete_seen": True}, HOUR + 1, True),
        ({"delete_seen": True}, HOUR, False),
        ({"delete_seen": False}, HOUR + 1, False),
        ({"moved_away": True}, HOUR + 1, True),
        ({"moved_away": True}, HOUR, False),
        ({"moved_away": True, "deletion_policy": "Retain"}, HOUR + 1, True),
        ({"delete_seen": True, "deletion_policy": "Retain"}, HOUR + 1, False),
        ({"delete_seen": False}, WEEK + 1, True),
        ({"stray_since_ms": -1}, WEEK + 1, False),
    ],
)
def test_absence_never_deletes(fields, age, remove):
    stray = metadata(**{"stray_since_ms": 1000, **fields})
    assert stray_verdict(stray, 1000 + age, **LIMITS).remove is remove
    assert not stray_verdict(None, 10**15, **LIMITS).remove


def test_a_nearly_full_disk_takes_the_oldest_first():
    strays = [Stray(f"s{n}", metadata(stray_since_ms=1000 + n), size_bytes=100) for n in (3, 1, 2)]
    assert strays_to_remove(strays, 2000, mono_ms=0.0, **LIMITS) == []
    chosen = strays_to_remove(strays, 2000, mono_ms=0.0, **LIMITS, bytes_wanted=150)
    assert [stray.directory for stray, _ in chosen] == ["s1", "s2"]


def test_a_clock_that_is_set_forward_makes_no_stray_older():
    stray = Stray("s", metadata(stray_since_ms=1000), clock_offset_ms=1000.0 + 5 * HOUR)
    assert strays_to_remove([stray], 10**15, mono_ms=WEEK - 5.0 * HOUR, **LIMITS) == []
    assert strays_to_remove([stray], 10**15, mono_ms=WEEK - 5.0 * HOUR + 1.0, **LIMITS)
    assert strays_to_remove([stray], 1000 + WEEK, mono_ms=10.0 * WEEK, **LIMITS) == [], "nor one that is set back"


def test_only_the_very_same_partition_is_adopted():
    mine = Stray("x", metadata(stray_since_ms=5))
    younger = Stray("y", metadata(stray_since_ms=9))
    strays = [
        mine,
        younger,
        Stray("z", None),
        Stray("p", metadata(partition=4)),
        Stray("i", metadata(topic_id=TOPIC_ID[:-1] + "2")),
    ]
    assert adoptable(strays, "a-b", 3, TOPIC_ID) is younger
    assert adoptable(strays[2:], "a-b", 3, TOPIC_ID) is None
    assert adoptable([Stray("r", replace(mine.metadata, topic="other"))], "a-b", 3, TOPIC_ID) is None


def test_a_stray_says_what_its_log_knows():  # S10
    stray = metadata(leader_epoch=4, partition_epoch=9).of_stray(
        newest_epoch=8,
        start_offset=12,
        log_epoch=7,
        end_offset=30,
        recovery_point=20,
        relaxed_flush=False,
        delete_seen=False,
        moved_away=False,
    )
    assert (stray.leader_epoch, stray.partition_epoch, stray.log_epoch, stray.end_offset) == (8, 9, 7, 30)
    assert (stray.start_offset, stray.recovery_point) == (12, 20)
    less = {
        "start_offset": 0,
        "log_epoch": 3,
        "end_offset": 30,
        "recovery_point": 20,
        "delete_seen": False,
        "moved_away": False,
    }
    known = metadata(leader_epoch=4, relaxed_flush=True, moved_away=True)
    again = known.of_stray(newest_epoch=3, relaxed_flush=False, **less)
    assert (again.leader_epoch, again.relaxed_flush) == (4, True)
    assert (again.delete_seen, again.moved_away) == (False, True), "what was given up stays so"
    noted = metadata(stray_since_ms=77, delete_seen=True, moved_away=True)
    assert noted.in_use("another") == metadata(uid="another"), "it is a stray no more"
    assert PartitionMetadata.decode(stray.encode()) == stray
    newer = (b"start_offset", b"log_epoch", b"end_offset", b"recovery_point")
    old = PartitionMetadata.decode(b"\n".join(x for x in stray.encode().split(b"\n") if not x.startswith(newer)))
    assert (old.end_offset, old.recovery_point) == (-1, -1), "written by an older version"


@pytest.mark.parametrize("flushed", [True, False])
def test_what_was_left_to_a_flush_is_made_durable(flushed):
    disk = MemoryDisk()
    disk.makedirs("a-b-3")
    disk.sync_directory("")
    write_metadata(disk, "a-b-3", metadata(), durable=False)
    disk.sync_directory("a-b-3")
    sync_metadata(disk, "a-b-3", flushed=flushed)
    disk.crash()
    assert read_metadata(disk, "a-b-3") == metadata()
    with pytest.raises(DiskFailure):
        sync_metadata(disk, "elsewhere", flushed=flushed)


@pytest.mark.parametrize(("flushed", "capacity", "renamed"), [(False, None, 1), (False, 0, 0), (True, None, 0)])
def test_a_file_that_may_have_met_a_failed_sync_is_written_anew_where_there_is_room(flushed, capacity, renamed):
    disk, done = MemoryDisk(), []
    disk.makedirs("a-b-3")
    write_metadata(disk, "a-b-3", metadata(), durable=False)
    disk.capacity = capacity
    disk.hook = lambda operation, _path: done.append(operation)
    sync_metadata(disk, "a-b-3", flushed=flushed)
    assert done.count("rename") == renamed
    assert read_metadata(disk, "a-b-3") == metadata()
