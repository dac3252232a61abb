"""A full disk: indexes are only a cache, so neither a start nor a stop nor a roll needs room for them."""

import errno

import pytest

from kafkalite_broker.log import disk as real_disk
from kafkalite_core.model.config import resolve_topic_config
from kafkalite_core.model.errors import StorageError
from kafkalite_core.model.partition import TopicRef
from kafkalite_core.storage.errors import DiskFailure
from kafkalite_core.storage.identity import CLEAN_SHUTDOWN_FILE, CleanShutdown, leave_clean_shutdown
from kafkalite_core.storage.log_config import LogConfig
from kafkalite_core.storage.memory_disk import MemoryDisk
from kafkalite_core.storage.reserve import FILE_NAME, Reserve
from tests.property.log_content import assert_indexes_find_every_batch, batches_of
from tests.unit.storage.compaction_tools import everything, run
from tests.unit.storage.compaction_tools import fill as fill_keys

REF = TopicRef("ns", "orders", "uid-1", "5f0c1c2e-0000-4000-8000-000000000001", "orders")
INDEXES = (".index", ".timeindex")


def full(disk, room=0):
    disk.capacity = 0
    disk.capacity = room - disk.free_bytes()


def refuse(disk, *refused, code=errno.ENOSPC):
    """Operations that fail from now on: (operation, end of the path). Only a file that is made needs room to be opened."""

    def fail(operation, path):
        if any(operation == name and path.endswith(end) for name, end in refused):
            raise OSError(code, "injected")

    def open_file(path, *, create=False):
        if create and not disk.exists(path):
            fail("create", path)
        return MemoryDisk.open(disk, path, create=create)

    disk.hook, disk.open = fail, open_file


def indexes_of(rig):
    return [name for name in rig.disk.list(rig.name) if name.endswith(INDEXES)]


@pytest.mark.parametrize("ending", ["kill", "crash", "close"])
@pytest.mark.parametrize("room", [0, 8, 20, 60])
def test_a_full_disk_keeps_no_log_from_its_start(rig, tools, ending, room):
    log = rig.open()
    tools.fill(log, 25)
    tools.flush(log)
    known = batches_of(log)
    full(rig.disk, room)
    for _ in range(3):
        if ending == "close":
            log.close(high_watermark=25)
        else:
            getattr(rig.disk, ending)()
        log = rig.open(clean=ending == "close", recovery_point=25)
        assert not rig.report.cut
        assert (log.end_offset, log.flushed_end) == (25, 25)
        assert batches_of(log) == known
        assert_indexes_find_every_batch(log)
    rig.disk.capacity = None
    tools.fill(log, 25)
    known = batches_of(log)
    log.close(high_watermark=50)
    log = rig.open(clean=True, recovery_point=50)
    assert batches_of(log) == known
    assert_indexes_find_every_batch(log)
    log.close(high_watermark=50)
    rig.open(clean=True, recovery_point=50)
    assert rig.report.segments_scanned == 0, "once there is room the indexes are on the disk again"


@pytest.mark.parametrize("operation", ["create", "append", "truncate"])
@pytest.mark.parametrize("suffix", INDEXES)
@pytest.mark.parametrize("clean", [True, False])
def test_half_an_index_is_none(rig, tools, operation, suffix, clean):
    rig.config = LogConfig(index_interval_bytes=200)
    log = rig.open()
    tools.fill(log, 30)
    tools.flush(log)
    refuse(rig.disk, (operation, suffix))
    if operation == "truncate":
        full(rig.disk, 20)  # a part of it is written, and cannot be cut off again
    log.close(high_watermark=30) if clean else rig.disk.kill()
    log = rig.open(clean=clean, recovery_point=30)
    assert rig.report.segments_scanned == 1, "nothing that was half written passed for an index"
    assert indexes_of(rig) == []
    entries = len(log.active.index.offsets)
    assert entries > 5
    refuse(rig.disk)
    rig.disk.capacity = None
    log.close(high_watermark=30)
    log = rig.open(clean=True, recovery_point=30)
    assert rig.report.segments_scanned == 0
    assert len(log.active.index.offsets) == entries
    assert_indexes_find_every_batch(log)


def test_an_index_that_the_disk_does_not_let_go_is_written_from_its_beginning(rig, tools):
    rig.config = LogConfig(index_interval_bytes=200)
    log = rig.open()
    tools.fill(log, 30)
    full(rig.disk, 20)
    refuse(rig.disk, ("truncate", ".index"), ("remove", ".index"))
    log.active.store_indexes()
    assert indexes_of(rig) == [f"{0:020d}.index"]
    rig.disk.capacity = None
    refuse(rig.disk)
    log.close(high_watermark=30)
    log = rig.open(clean=True, recovery_point=30)
    assert rig.report.segments_scanned == 0
    assert_indexes_find_every_batch(log)


def test_a_roll_needs_no_room_for_indexes_and_no_flush_makes_empty_ones(rig, tools):
    log = rig.open()
    tools.fill(log, 5)
    refuse(rig.disk, *(("append", suffix) for suffix in INDEXES))
    log.roll(2000)
    assert not log.segments[0].index_files
    tools.flush(log)
    assert log.recovery_point == 5
    assert indexes_of(rig) == [], "an empty one would pass for that of the segment"
    refuse(rig.disk)
    rig.disk.crash()
    log = rig.open(clean=True, recovery_point=5)
    assert rig.report.segments_scanned == 2
    assert tools.offsets(log) == list(range(5))


def test_retention_takes_the_last_segment_of_a_full_disk(rig, tools):
    log = rig.open()
    tools.fill(log, 5)
    tools.flush(log)
    full(rig.disk)
    log.reconfigure(LogConfig(retention_ms=1000, file_delete_delay_ms=0))
    assert log.retention(10_000, 5) == [f"{0:020d}.log"]
    log.purge(10_000)
    assert rig.disk.free_bytes() > 500


@pytest.mark.parametrize("ending", ["kill", "close"])
def test_any_other_error_of_an_index_ends_the_process(rig, tools, ending):
    log = rig.open()
    tools.fill(log, 5)
    refuse(rig.disk, ("append", ".index"), ("append", ".timeindex"), ("sync", ".index"), code=errno.EIO)
    rig.disk.kill() if ending == "kill" else None
    with pytest.raises(DiskFailure):
        log.close(high_watermark=5) if ending == "close" else rig.open(clean=False)


@pytest.mark.parametrize("refused", INDEXES)
def test_a_swap_is_finished_without_room_for_its_indexes(keeper, refused):
    log = keeper.open()
    fill_keys(log, 30)
    left = everything(log)
    log.close(high_watermark=30)
    name = keeper.path(f"{0:020d}.log")
    keeper.disk.rename(name, name + ".swap")
    refuse(keeper.disk, ("create", refused + ".swap"))
    log = keeper.open(recovery_point=30)
    assert not keeper.report.cut
    assert everything(log) == left
    assert not [name for name in keeper.disk.list(keeper.name) if name.endswith(".swap")]


def test_a_compacted_segment_waits_for_room_for_its_indexes(keeper):
    log = keeper.open()
    fill_keys(log, 30)
    left = everything(log)
    refuse(keeper.disk, ("append", ".index.cleaned"))
    with pytest.raises(StorageError):
        run(log)
    assert everything(log) == left
    refuse(keeper.disk)
    assert run(log).segments_after >= 1


def test_the_reserve_is_not_taken_where_there_is_no_room_for_its_name():
    disk = MemoryDisk(capacity=1 << 20)
    refuse(disk, ("create", FILE_NAME))
    assert not Reserve(disk, 4096).ensure()
    refuse(disk)
    assert Reserve(disk, 4096).ensure()


def test_a_marker_that_finds_no_room_is_none():
    disk = MemoryDisk(capacity=0)
    assert not leave_clean_shutdown(disk, 3, CleanShutdown(None, None))
    assert not disk.exists(CLEAN_SHUTDOWN_FILE)
    assert leave_clean_shutdown(disk, -1, CleanShutdown(None, None)), "nothing to leave"


@pytest.fixture
def volume(monkeypatch):
    """The real disk with so much room."""

    class Volume:
        room = 1 << 40

    def write(descriptor, data):
        if Volume.room <= 0:
            raise OSError(errno.ENOSPC, "injected")
        written = real_write(descriptor, memoryview(data)[: Volume.room])
        Volume.room -= written
        return written

    real_write = real_disk._write
    monkeypatch.setattr(real_disk, "_write", write)
    monkeypatch.setattr(real_disk.LocalDisk, "free_bytes", lambda _disk: Volume.room)
    return Volume


def config(**changes):
    return resolve_topic_config({"segment.bytes": "16384", "file.delete.delay.ms": "0", **changes})


@pytest.mark.parametrize("ending", ["kill", "stop"])
def test_a_broker_whose_disk_is_full_starts_and_makes_room(manager, tools, clock, volume, ending):
    one = manager()
    one.open()
    log, _ = one.obtain(REF, 0, config())
    tools.fill(log, 300, first_timestamp=clock.now_ms)
    tools.flush(log)
    one.checkpoint({log: 300})
    volume.room = 5000
    with pytest.raises(StorageError):
        tools.fill(log, 300, first_timestamp=clock.now_ms)
    one.make_room({log: log.end_offset})
    assert not one.disk.exists(FILE_NAME), "the reserve is given up, and gone as well before long"
    tools.flush(log)
    end, known = log.end_offset, batches_of(log)
    volume.room = 0
    for _ in range(3):
        if ending == "stop":
            assert not one.close({log: end}, broker_epoch=3), "no room for the marker, but it stops"
        one.abandon()
        one = manager()
        found = one.open().findings
        assert (found.trusted, found.clean_epoch) == (True, None)
        log, mark = one.obtain(REF, 0, config())
        assert (mark <= end, log.end_offset) == (True, end)
        assert batches_of(log) == known
    log, _ = one.obtain(REF, 0, config(**{"retention.bytes": "17000"}))
    assert one.retention_pass({log: end})["orders-0"], "what makes room runs"
    one.retention_pass({log: end})
    assert len(list((one.disk.root / "orders-0").glob("*.log"))) == len(log.segments)
    kept = batches_of(log)
    assert known[-len(kept) :] == kept
    volume.room = 1 << 40
    assert one.retention_pass({log: end}) == {}
    assert one.disk.exists(FILE_NAME)
    tools.fill(log, 20, first_timestamp=clock.now_ms)
    known = batches_of(log)
    assert known[: len(kept)] == kept
    assert one.close({log: log.end_offset}, broker_epoch=3)
    two = manager()
    recovered = two.open()
    assert (recovered.findings.clean_epoch, two.reserve.held) == (3, True)
    log, _ = two.obtain(REF, 0, config())
    assert batches_of(log) == known
    assert_indexes_find_every_batch(log)


def test_a_stop_on_a_full_disk_lends_itself_the_reserve_for_its_marker(manager, tools, volume, monkeypatch):
    one = manager()
    one.open()
    log, _ = one.obtain(REF, 0, config())
    tools.fill(log, 5)
    tools.flush(log)
    volume.room = 0
    release = Reserve.release

    def gives_room(reserve):
        volume.room += reserve.size if release(reserve) else 0
        return True

    monkeypatch.setattr(Reserve, "release", gives_room)
    assert one.close({log: 5}, broker_epoch=3)
    two = manager()
    recovered = two.open()
    assert recovered.findings.clean_epoch == 3
    assert [report.segments_scanned for report in recovered.reports] == [0]


@pytest.mark.parametrize("missing", [".index", "leader-epoch-checkpoint.tmp"])
def test_producers_outlive_a_full_disk_at_the_roll_and_a_clean_restart(rig, tools, missing):
    """Their batches are below the log start, and only the last snapshot knows them: no scan makes it doubtful."""
    log = rig.open()
    log.append_as_leader(tools.batch(producer_id=7, producer_epoch=0, base_sequence=0), leader_epoch=1, now_ms=1)
    refuse(rig.disk, ("create", missing), ("append", missing), ("append", ".snapshot.tmp"))
    log.advance_start(1)
    log.roll(1000)
    refuse(rig.disk, ("append", missing))
    tools.fill(log, 1)
    known = log.producers.encode()
    log.close(high_watermark=2)
    refuse(rig.disk)
    log = rig.open(clean=True, recovery_point=2, start_offset=1)
    assert rig.report.segments_scanned > 0
    assert (log.producers.encode(), log.producers.entry(7) is None) == (known, False)
