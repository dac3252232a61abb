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


@pytest.mark.parametrize("compacted", [False, True])
def test_a_compacted_log_never_has_only_an_epoch_checkpoint_that_is_not_synced(rig, tools, compacted):
    """Its batches do not say all epochs any more; with the others the one sync of the flush is enough."""
    rig.config = dataclasses.replace(rig.config, gaps=compacted)
    log = rig.open()
    tools.fill(log, 2, epoch=3)
    done = []
    rig.disk.hook = lambda operation, path: done.append((operation, path))
    ticket = log.begin_flush()
    temporary, renamed = (rig.path(f"leader-epoch-checkpoint{suffix}") for suffix in (".tmp", ""))
    steps = [step for step in done if step[1] in {temporary, renamed} and step[0] in {"sync", "rename"}]
    assert steps == ([("sync", temporary)] if compacted else []) + [("rename", temporary)]
    done.clear()
    ticket.run()
    assert (("sync", renamed) in done) != compacted


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
