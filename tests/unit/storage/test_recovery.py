"""Opening a log after a clean shutdown, a kill, a power loss, and on a damaged disk."""

import random

import pytest

from kafkalite_core.storage.log_config import LogConfig
from kafkalite_core.storage.memory_disk import MemoryFile
from kafkalite_core.storage.recovery import load_log


def damaged(rig, tools, offset, *, count=20, flip=-1):
    """A flushed log whose byte near the end of the batch at `offset` is flipped, after a kill."""
    log = rig.open()
    tools.fill(log, count)
    tools.flush(log)
    segment = next(segment for segment in reversed(log.segments) if segment.base_offset <= offset)
    brief = segment.find(offset)
    rig.disk.kill()
    rig.disk.content(segment.path)[brief.position + brief.size + flip] ^= 0xFF


def test_a_clean_restart_scans_nothing(rig, tools):
    log = rig.open()
    tools.fill(log, 20)
    log.close(high_watermark=3)
    reads = []
    rig.disk.hook = lambda operation, path: reads.append(path) if operation == "sync" else None
    log = rig.open(clean=True, recovery_point=20)
    assert tools.offsets(log) == list(range(20))
    assert (rig.report.segments_scanned, rig.report.cut, log.flushed_end) == (0, False, 20)
    assert reads == []


def test_a_clean_restart_does_not_read_the_log(rig, tools, monkeypatch):
    rig.config = LogConfig(segment_bytes=100_000)
    log = rig.open()
    tools.fill(log, 3000)
    size = log.size
    assert len(log.segments) > 3
    log.close(high_watermark=3)
    read = []
    real = MemoryFile.pread

    def spy(file, wanted, offset):
        result = real(file, wanted, offset)
        read.append(len(result))
        return result

    monkeypatch.setattr(MemoryFile, "pread", spy)
    rig.open(clean=True, recovery_point=3000)
    assert sum(read) < size / 5


def test_producers_are_known_after_a_restart_from_snapshot_and_log(rig, tools):
    log = rig.open()
    for n in range(20):
        log.append_as_leader(
            tools.batch(1000 + n, size=60, producer_id=7, producer_epoch=0, base_sequence=n), leader_epoch=1, now_ms=1
        )
    known = log.producers.encode()
    tools.flush(log)
    rig.disk.kill()
    assert rig.open(recovery_point=20).producers.encode() == known
    rig.disk.kill()
    for name in rig.disk.list(rig.name):
        if name.endswith(".snapshot"):
            rig.disk.content(rig.path(name))[-1] ^= 1
    assert [b.last_sequence for b in rig.open(recovery_point=20).producers.entry(7).batches] == [15, 16, 17, 18, 19]


def test_a_truncation_forgets_snapshots_beyond_it(rig, tools):
    log = rig.open()
    for n in range(20):
        log.append_as_leader(
            tools.batch(1000 + n, size=60, producer_id=7, producer_epoch=0, base_sequence=n), leader_epoch=1, now_ms=1
        )
    assert len(log.snapshots()) > 1
    tools.flush(log)
    log.truncate_to(3)
    assert log.producers.entry(7).batches[-1].last_sequence == 2
    rig.disk.crash()
    log = rig.open(recovery_point=3)
    assert all(snapshot <= 3 for snapshot in log.snapshots())


def test_a_kill_is_scanned_from_the_recovery_point_only(rig, tools):
    log = rig.open()
    tools.fill(log, 20)
    tools.flush(log)
    base = log.active.base_offset
    rig.disk.kill()
    log = rig.open(recovery_point=base + 1)
    assert rig.report.segments_scanned == 1
    assert tools.offsets(log) == list(range(20))


def test_what_was_recovered_is_synced_before_it_counts(rig, tools):
    log = rig.open()
    tools.fill(log, 20)
    rig.disk.kill()
    log = rig.open()
    assert log.flushed_end == 20
    rig.disk.crash()
    assert tools.offsets(rig.open(recovery_point=20)) == list(range(20))


@pytest.mark.parametrize("flip", [-1, -60, -80])
def test_a_cut_below_the_flushed_end_is_reported(rig, tools, flip):
    damaged(rig, tools, 15, flip=flip)
    log = rig.open(recovery_point=20)
    assert (log.end_offset, rig.report.cut, rig.report.cut_below_flushed) == (15, True, True)
    assert "at " in rig.report.reason
    assert tools.offsets(log) == list(range(15))
    tools.fill(log, 3)
    assert tools.offsets(log) == list(range(18))


def test_a_cut_beyond_the_flushed_end_is_not(rig, tools):
    damaged(rig, tools, 15)
    rig.open(recovery_point=15)
    assert (rig.report.cut, rig.report.cut_below_flushed) == (True, False)


def test_the_first_bad_batch_ends_the_log_and_later_segments_go(rig, tools):
    damaged(rig, tools, 3)
    log = rig.open()
    assert log.end_offset == 3
    assert [name for name in rig.disk.list(rig.name) if name.endswith(".log")] == [f"{0:020d}.log"]


def test_a_torn_end_is_cut(rig, tools):
    log = rig.open()
    tools.fill(log, 3)
    tools.flush(log)
    path = log.active.path
    rig.disk.kill()
    rig.disk.content(path).extend(b"\0" * 30)
    log = rig.open(recovery_point=3)
    assert (log.end_offset, rig.report.cut, rig.report.cut_below_flushed) == (3, True, False)
    rig.disk.kill()
    rig.disk.content(path).extend(bytes(tools.batch(1))[:-4])
    assert rig.open(recovery_point=3).end_offset == 3


def test_a_missing_segment_in_the_middle_is_a_hole(rig, tools):
    log = rig.open()
    tools.fill(log, 30)
    tools.flush(log)
    bases = [segment.base_offset for segment in log.segments]
    rig.disk.kill()
    rig.disk.remove(rig.path(f"{bases[1]:020d}.log"))
    log = rig.open(recovery_point=30)
    assert log.end_offset == bases[1]
    assert rig.report.cut_below_flushed
    assert "hole" in rig.report.reason


def test_a_lost_log_is_reported(rig):
    rig.open(recovery_point=5)
    assert rig.report.cut_below_flushed


@pytest.mark.parametrize("suffix", ["index", "timeindex"])
@pytest.mark.parametrize("damage", ["missing", "short", "garbage"])
def test_damaged_indexes_are_built_anew(rig, tools, suffix, damage):
    log = rig.open()
    tools.fill(log, 30)
    wanted = [(list(s.index.offsets), list(s.time_index.timestamps)) for s in log.segments[:-1]]
    log.close(high_watermark=0)
    path = rig.path(f"{0:020d}.{suffix}")
    if damage == "missing":
        rig.disk.remove(path)
    elif damage == "short":
        del rig.disk.content(path)[-3:]
    else:
        rig.disk.content(path)[:] = b"\xff" * 24
    log = rig.open(clean=True, recovery_point=30)
    assert rig.report.segments_scanned >= 1
    for segment in log.segments:
        segment.load_indexes()
    assert [(list(s.index.offsets), list(s.time_index.timestamps)) for s in log.segments[:-1]] == wanted
    assert tools.offsets(log) == list(range(30))
    assert log.latest_epoch == 1


@pytest.mark.parametrize("clean", [True, False])
def test_a_damaged_epoch_checkpoint_is_rebuilt_from_the_batches(rig, tools, clean):
    log = rig.open()
    for epoch in range(1, 6):
        tools.fill(log, 5, epoch=epoch)
    entries = log.epochs.entries
    log.close(high_watermark=0)
    rig.disk.content(rig.path("leader-epoch-checkpoint"))[:] = b"0\n9\n"
    assert rig.open(clean=clean, recovery_point=25).epochs.entries == entries


def test_an_epoch_checkpoint_that_a_power_loss_cut_short_is_rebuilt_from_the_batches(rig, tools):
    """Its last line still reads as one: epoch 2 would begin at 1, and a leader's answer would cut the log there."""
    log = rig.open()
    tools.fill(log, 15, epoch=1)
    tools.fill(log, 10, epoch=2)
    log.close(high_watermark=0)
    content = rig.disk.content(rig.path("leader-epoch-checkpoint"))
    assert bytes(content).endswith(b"2 15\n")
    del content[-2:]
    assert rig.open(recovery_point=25).epochs.entries == [(1, 0), (2, 15)]


def test_a_stale_epoch_checkpoint_gives_way_to_the_batches(rig, tools):
    rig.config = LogConfig()
    log = rig.open()
    tools.fill(log, 5, epoch=2)
    tools.fill(log, 5, epoch=7)
    tools.flush(log)
    stale = bytes(rig.disk.content(rig.path("leader-epoch-checkpoint")))
    log.truncate_to(5)
    tools.fill(log, 5, epoch=5)
    tools.flush(log)
    rig.disk.kill()
    rig.disk.content(rig.path("leader-epoch-checkpoint"))[:] = stale
    assert rig.open(recovery_point=5).epochs.entries == [(2, 0), (5, 5)]


def test_a_log_start_beyond_the_end_starts_anew_there(rig, tools):
    log = rig.open()
    tools.fill(log, 5)
    rig.disk.kill()
    log = rig.open(start_offset=40)
    assert (log.start_offset, log.end_offset) == (40, 40)


@pytest.mark.parametrize("flushed", [15, 20])
def test_a_log_that_ends_below_its_start_keeps_no_producers_and_is_judged_once(rig, tools, flushed):
    log = rig.open()
    for sequence in range(20):
        batch = tools.batch(producer_id=7, producer_epoch=0, base_sequence=sequence)
        log.append_as_leader(batch, leader_epoch=1, now_ms=1)
    tools.flush(log)
    assert log.snapshots()
    for segment in log.segments[1:]:
        segment.remove()
    rig.disk.kill()
    log = rig.open(recovery_point=flushed, start_offset=15)
    assert (log.start_offset, log.end_offset) == (15, 15)
    assert rig.report.cut_below_flushed == (flushed > 15)
    assert log.snapshots() == []
    assert log.producers.entry(7) is None
    rig.disk.crash()
    rig.open(recovery_point=15, start_offset=15)
    assert not rig.report.cut_below_flushed


def test_epochs_below_the_start_are_known_if_no_checkpoint_told_of_it(rig, tools):
    log = rig.open()
    for epoch in (1, 2, 3):
        tools.fill(log, 5, epoch=epoch)
    epochs = log.epochs.entries
    tools.flush(log)
    log.advance_start(12)
    tools.fill(log, 1, epoch=3)
    tools.flush(log)
    rig.disk.kill()
    log = rig.open(recovery_point=16)
    assert log.start_offset == 0
    assert log.epochs.entries == epochs


def test_segments_below_the_log_start_go_without_a_hole(rig, tools):
    log = rig.open()
    tools.fill(log, 30)
    tools.flush(log)
    bases = [segment.base_offset for segment in log.segments]
    rig.disk.kill()
    rig.disk.remove(rig.path(f"{bases[1]:020d}.log"))  # purged; the crash brought back only the first
    log = rig.open(start_offset=bases[2], recovery_point=30)
    assert not rig.report.cut_below_flushed
    assert tools.offsets(log) == list(range(bases[2], 30))


def test_leftovers_are_removed(rig, tools):
    log = rig.open()
    tools.fill(log, 1)
    log.close(high_watermark=0)
    for name in ("x.tmp", f"{9:020d}.index", f"{9:020d}.log.deleted"):
        rig.disk.open(rig.path(name), create=True)
    rig.open(clean=True, recovery_point=1)
    assert not {"x.tmp", f"{9:020d}.index", f"{9:020d}.log.deleted"} & set(rig.disk.list(rig.name))


def test_progress_counts_down(rig, tools):
    log = rig.open()
    tools.fill(log, 30)
    count = len(log.segments)
    environment = log.environment
    rig.disk.kill()
    loading = load_log(
        rig.disk, rig.name, rig.config, environment, now_ms=1, clean=False, recovery_point=0, start_offset=0
    )
    assert [progress.remaining_segments for progress in loading] == list(range(count, 0, -1))


def test_truncation_lowers_the_checkpoint_first_and_is_durable_backwards(rig, tools):
    log = rig.open()
    tools.fill(log, 30)
    tools.flush(log)
    seen = []
    rig.disk.hook = lambda operation, path: (
        seen.append((operation, path, len(rig.shrunk))) if operation == "remove" else None
    )
    log.truncate_to(2)
    assert rig.shrunk == [(rig.name, 2)]
    logs = [path for operation, path, announced in seen if path.endswith(".log") and announced]
    assert logs == sorted(logs, reverse=True)
    assert len(logs) >= 2
    rig.disk.hook = lambda *_: None
    rig.disk.crash()
    assert rig.open(recovery_point=2).end_offset <= 12
    assert not rig.report.cut_below_flushed


@pytest.mark.parametrize("seed", range(40))
def test_no_power_loss_takes_the_beginning_of_a_log_and_leaves_the_rest(rig, tools, seed):
    """Nothing was flushed: whatever subset of the entries and bytes the disk has, the log begins where it began."""
    choose = random.Random(seed).randrange
    log = rig.open()
    rig.disk.sync_directory("")  # the directory is there, and what it has is not
    tools.fill(log, 40)
    assert len(log.segments) > 3
    rig.disk.crash(choose)
    found = rig.open()
    assert (found.start_offset, tools.offsets(found)) == (0, list(range(found.end_offset)))


@pytest.mark.parametrize("flushed", [True, False])
def test_a_segment_is_begun_behind_one_that_is_in_the_directory_for_sure(rig, tools, flushed):
    log = rig.open()
    tools.fill(log, 2)
    if flushed:
        tools.flush(log)
    done = []
    rig.disk.hook = lambda operation, path: done.append((operation, path))
    segment = log.roll(1000)
    synced = [step for step in done if step == ("sync_directory", rig.name)]
    assert len(synced) == (not flushed), "a flush has seen to it"
    if not flushed:
        assert done.index(synced[0]) < done.index(("open", segment.path))


def test_a_truncation_inside_a_batch_announces_where_the_log_will_end(rig, tools):
    log = rig.open()
    tools.fill(log, 3, records=4)
    tools.flush(log)
    log.truncate_to(6)
    assert log.end_offset == 4
    assert rig.shrunk == [(rig.name, 4)]


def test_a_rebuilt_segment_in_the_middle_keeps_the_epochs_of_all(rig, tools):
    log = rig.open()
    for epoch in range(1, 6):
        tools.fill(log, 8, epoch=epoch)
    entries = log.epochs.entries
    base = log.segments[1].base_offset
    log.close(high_watermark=0)
    rig.disk.remove(rig.path(f"{base:020d}.index"))
    assert rig.open(clean=True, recovery_point=40).epochs.entries == entries


def test_a_truncation_is_on_disk_after_a_clean_close(rig, tools):
    log = rig.open()
    tools.fill(log, 3)
    tools.flush(log)
    log.truncate_to(2)
    log.close(high_watermark=0)
    rig.disk.crash()
    assert rig.open(clean=True, recovery_point=2).end_offset == 2


def test_a_segment_goes_only_after_its_successor_is_on_disk(rig, tools):
    log = rig.open()
    tools.fill(log, 3)
    tools.flush(log)
    log.roll(1000)
    log.advance_start(3)
    assert len(log.retention(1000, high_watermark=3)) == 1
    done = []
    rig.disk.hook = lambda operation, path: done.append((operation, path))
    log.purge(1000)
    names = [operation for operation, _ in done if operation in {"sync_directory", "remove", "rename"}]
    assert names == ["sync_directory", "remove", "remove", "rename", "sync_directory", "remove"]


def test_producers_outlive_a_clean_restart_of_a_log_without_epochs(rig, tools):
    log = rig.open()
    log.append_as_leader(tools.batch(producer_id=7, producer_epoch=0, base_sequence=0), leader_epoch=1, now_ms=1)
    log.roll(1000)
    tools.fill(log, 1, records=4)
    log.advance_start(3)
    log.truncate_to(3)
    assert (log.end_offset, log.latest_epoch) == (1, -1)
    known = log.producers.encode()
    log.close(high_watermark=0)
    assert rig.open(clean=True, recovery_point=1, start_offset=1).producers.encode() == known
    assert rig.report.segments_scanned == 0


def test_a_cut_is_durable_before_anything_is_appended_over_it(rig, tools):
    """Otherwise new batches may be followed by old ones after a power loss, and the log would seem to hold both."""
    log = rig.open()
    tools.fill(log, 3, epoch=1)
    tools.flush(log)
    done = []
    rig.disk.hook = lambda operation, path: done.append(operation) if path.endswith(".log") else None
    log.truncate_to(1)
    assert [operation for operation in done if operation != "pread"] == ["truncate", "sync"]
    assert log.active.synced_size == log.active.size


def test_recovery_cuts_where_the_epoch_falls(rig, tools):
    log = rig.open()
    tools.fill(log, 2, epoch=3)
    tools.fill(log, 1, epoch=2)
    tools.flush(log)
    rig.disk.crash()
    recovered = rig.open()
    assert recovered.end_offset == 2
    assert recovered.epochs.entries == [(3, 0)]


@pytest.mark.parametrize("end", ["close", "kill", "crash"])
def test_segments_without_timestamps_are_no_younger_after_a_start(rig, tools, end):
    rig.config = LogConfig(segment_bytes=300, retention_ms=1000, file_delete_delay_ms=0)
    log = rig.open(now_ms=5000)
    for n in range(8):
        rig.disk.now_ms = 5000 + 100 * n
        log.append_as_leader(tools.batch(-1, size=60), leader_epoch=1, now_ms=rig.disk.now_ms)
    bases = [segment.base_offset for segment in log.segments]
    assert len(bases) == 4
    tools.flush(log)
    rig.disk.now_ms = 5900
    log.close(high_watermark=0) if end == "close" else getattr(rig.disk, end)()
    log = rig.open(now_ms=5900, recovery_point=8, clean=end == "close")
    assert [segment.created_ms for segment in log.segments] == [5100, 5300, 5500, 5700]
    assert log.retention(6300, high_watermark=8) == [f"{0:020d}.log"]
    log.close(high_watermark=0)
    log = rig.open(now_ms=4000, recovery_point=8, clean=True, start_offset=log.start_offset)
    assert {segment.created_ms for segment in log.segments} == {4000}, "the clock was set back"
