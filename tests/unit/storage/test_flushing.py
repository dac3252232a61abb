"""What a flush covers, and what a truncation does to it (S8)."""

import dataclasses
import errno

import pytest

from kafkalite_core.storage import flushing
from kafkalite_core.storage.errors import DiskFailure


def test_appends_during_a_flush_are_covered_by_the_next(rig, tools):
    log = rig.open()
    tools.fill(log, 2)
    ticket = log.begin_flush()
    tools.fill(log, 3)
    ticket.run()
    log.complete_flush(ticket)
    assert log.flushed_end == 2
    tools.flush(log)
    assert log.flushed_end == 5
    assert log.begin_flush() is None


def test_a_ticket_from_before_a_truncation_proves_nothing(rig, tools):
    log = rig.open()
    tools.fill(log, 6)
    ticket = log.begin_flush()
    log.truncate_to(2)
    tools.fill(log, 3, epoch=2)
    ticket.run()
    log.complete_flush(ticket)
    assert log.flushed_end == 0
    tools.flush(log)
    assert log.flushed_end == 5


def test_new_segments_are_synced_with_their_directory(rig, tools):
    log = rig.open()
    tools.fill(log, 20)
    assert len(log.segments) > 2
    done = []
    rig.disk.hook = lambda operation, path: done.append((operation, path)) if operation.startswith("sync") else None
    tools.flush(log)
    for segment in log.segments:
        assert ("sync", segment.path) in done
    for segment in log.segments[:-1]:
        assert ("sync", segment.index.path) in done
        assert ("sync", segment.time_index.path) in done
    assert ("sync_directory", rig.name) in done
    assert ("sync_directory", "") in done
    done.clear()
    tools.fill(log, 1)
    tools.flush(log)
    assert done == [("sync", log.active.path)]


def full(path_wanted):
    def hook(operation, path):
        if path == path_wanted and operation == "open":
            raise OSError(errno.ENOSPC, "injected")

    return hook


@pytest.mark.parametrize("compacted", [False, True])
@pytest.mark.parametrize("end", ["kill", "crash"])
def test_no_epoch_is_forgotten_that_a_full_disk_had_no_room_for(rig, tools, compacted, end):
    rig.config = dataclasses.replace(rig.config, gaps=compacted)
    log = rig.open()
    tools.fill(log, 5, epoch=1)
    tools.flush(log)
    rig.disk.hook = full(rig.path("leader-epoch-checkpoint.tmp"))
    for epoch in (2, 3, 4):
        tools.fill(log, 8, epoch=epoch)
        tools.flush(log)
    assert log.flushed_end == log.end_offset, "nobody waits for room"
    assert log.begin_flush() is None, "nor is the disk asked again and again"
    epochs = log.epochs.entries
    getattr(rig.disk, end)()
    log = rig.open(recovery_point=log.recovery_point)
    assert log.epochs.entries == epochs
    assert not rig.report.cut
    rig.disk.hook = lambda *_: None
    tools.flush(log)
    assert rig.disk.exists(rig.path("leader-epoch-checkpoint"))


def test_an_epoch_checkpoint_that_had_to_go_does_not_come_back(rig, tools):
    log = rig.open()
    tools.fill(log, 5, epoch=1)
    tools.flush(log)
    rig.disk.hook = full(rig.path("leader-epoch-checkpoint.tmp"))
    log.epochs.assign(2, 5)
    tools.flush(log)
    rig.disk.crash()
    assert not rig.disk.exists(rig.path("leader-epoch-checkpoint"))


def test_an_epoch_checkpoint_that_can_be_neither_replaced_nor_removed_is_fatal(rig, tools):
    log = rig.open()
    tools.fill(log, 5, epoch=1)
    tools.flush(log)
    tools.fill(log, 1, epoch=2)

    def hook(operation, path):
        if "leader-epoch-checkpoint" in path and operation in {"open", "remove"}:
            raise OSError(errno.ENOSPC, "injected")

    rig.disk.hook = hook
    with pytest.raises(DiskFailure, match="neither replaced nor removed"):
        log.begin_flush()


def test_the_indexes_of_a_segment_that_is_sealed_after_its_last_flush_are_synced(rig, tools):
    log = rig.open()
    tools.fill(log, 6)
    tools.flush(log)
    log.roll(1)
    sealed = log.segments[-2]
    tools.flush(log)
    rig.disk.crash()
    for index in (sealed.index, sealed.time_index):
        assert rig.disk.content(index.path), index.path
    done = []
    log = rig.open(recovery_point=6)
    rig.disk.hook = lambda operation, path: done.append(path) if operation == "sync" else None
    tools.fill(log, 1)
    tools.flush(log)
    assert done == [log.active.path], "once"


def test_a_power_loss_after_the_flush_loses_nothing(rig, tools):
    log = rig.open()
    tools.fill(log, 20)
    tools.flush(log)
    rig.disk.crash()
    assert tools.offsets(rig.open(recovery_point=20)) == list(range(20))
    assert not rig.report.cut


def test_a_checkpoint_makes_the_names_of_segments_durable_so_that_the_next_one_need_not_wait(rig, tools):
    """With relaxed flush nobody else does for minutes, and whoever begins a segment does it on the loop."""
    log = rig.open()
    tools.fill(log, 1)
    tools.flush(log)
    log.roll(1)
    assert not log.begun_unsynced, "nothing is in it"
    tools.fill(log, 1)
    assert log.begun_unsynced
    job = flushing.names_job([log])
    log.sync_later(log.active.path)
    synced = []
    rig.disk.hook = lambda operation, path: synced.append((operation, path)) if "sync" in operation else None
    job()
    assert synced == [("sync_directory", rig.name)], "the bytes are not waited for"
    assert not log.begun_unsynced
    assert log.directory_synced < log.directory_version, "what changed meanwhile is not covered"
    log.roll(2)
    assert len(synced) == 1, "no wait"
    tools.fill(log, 1)
    job = flushing.names_job([log])
    log.abandon()
    rig.disk.rename(rig.name, "gone")
    job()  # set aside meanwhile


def test_a_flush_covers_what_lies_before_a_segment_that_a_cut_has_synced(rig, tools):
    log = rig.open()
    tools.fill(log, 9)
    assert len(log.segments) == 2
    log.truncate_to(8)
    tools.fill(log, 1, size=900, epoch=2)
    assert len(log.segments) == 3, "the segment that was cut has nothing that is not synced"
    tools.flush(log)
    assert log.flushed_end == 9
    rig.disk.crash()
    assert tools.offsets(rig.open(recovery_point=9)) == list(range(9))
    assert not rig.report.cut


@pytest.mark.parametrize("operation", ["sync", "sync_directory"])
@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_an_error_of_fsync_is_fatal_whatever_it_says(rig, tools, operation, code):
    log = rig.open()
    tools.fill(log, 1)
    ticket = log.begin_flush()

    def fail(what, _path):
        if what == operation:
            raise OSError(code, "injected")

    rig.disk.hook = fail
    with pytest.raises(DiskFailure):
        ticket.run()
    assert log.flushed_end == 0


def test_a_ticket_outlives_the_files_that_a_truncation_closed(rig, tools):
    log = rig.open()
    tools.fill(log, 20)
    ticket = log.begin_flush()
    log.reset_to(50)
    ticket.run()
    log.complete_flush(ticket)
    assert log.flushed_end == 50


def test_a_ticket_outlives_a_directory_that_was_set_aside(rig, tools):
    log = rig.open()
    tools.fill(log, 2)
    ticket = log.begin_flush()
    log.abandon()
    rig.disk.rename(rig.name, "gone")
    ticket.run()


def test_epochs_reach_the_disk_with_the_flush(rig, tools):
    log = rig.open()
    tools.fill(log, 1, epoch=3)
    tools.fill(log, 1, epoch=5)
    tools.flush(log)
    rig.disk.crash()
    assert bytes(rig.disk.content(rig.path("leader-epoch-checkpoint"))) == b"0\n2\n3 0\n5 1\n"
