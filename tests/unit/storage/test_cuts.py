"""A log that is cut, and what remembers it."""

import errno

import pytest

from kafkalite_core.storage.errors import DiskFailure
from kafkalite_core.storage.log_config import LogConfig


def test_after_a_truncation_memory_indexes_and_epochs_know_nothing_of_the_past(rig, tools):
    rig.tail_bytes = 100_000
    rig.config = LogConfig(index_interval_bytes=0)
    log = rig.open()
    tools.fill(log, 8, epoch=1, first_timestamp=9000)
    log.truncate_to(4)
    tools.fill(log, 4, epoch=2, first_timestamp=1000)
    content = b"".join(map(bytes, log.read(0, max_bytes=99_999, end=8, minimum_one=True).buffers))
    log.tail.clear()
    assert b"".join(map(bytes, log.read(0, max_bytes=99_999, end=8, minimum_one=True).buffers)) == content
    assert tools.offsets(log) == list(range(8))
    assert log.max_timestamp(end=8) == (9030, 3, 1)
    assert log.active.max_timestamp == 9030
    assert list(log.active.time_index.offsets) == sorted(log.active.time_index.offsets)
    assert max(log.active.time_index.timestamps) == 9030
    assert log.epochs.entries == [(1, 0), (2, 4)]


def test_the_epochs_are_cut_even_when_the_log_is_not(rig, tools):
    log = rig.open()
    tools.fill(log, 3, epoch=1)
    assert log.epochs.assign(2, 3)
    generation = log.generation
    log.truncate_to(3)
    assert log.epochs.entries == [(1, 0)]
    assert log.generation == generation


@pytest.mark.parametrize("cut", [3, 12])
@pytest.mark.parametrize("operation", ["remove", "truncate", "open"])
def test_a_cut_that_a_full_disk_stops_halfway_is_fatal(rig, tools, cut, operation):
    log = rig.open()
    tools.fill(log, 30)
    tools.flush(log)
    log.advance_start(4)

    def hook(done, path):
        if done == operation and path.endswith(".log"):
            raise OSError(errno.ENOSPC, "injected")

    rig.disk.hook = hook
    if (operation, cut) in {("truncate", 3), ("open", 12)}:
        log.truncate_to(cut)  # begun anew, or nothing new to open
        return
    with pytest.raises(DiskFailure, match="the cut of orders-0 cannot go on"):
        log.truncate_to(cut)


def test_a_log_that_begins_anew_for_a_follower_knows_when(rig, tools):
    log = rig.open(now_ms=5000)
    tools.fill(log, 3)
    log.reset_to(100)
    assert log.active.created_ms == 5000
    log.reset_to(200, now_ms=7000)
    assert log.active.created_ms == 7000


def test_a_log_that_was_to_begin_anew_when_the_process_died_is_no_loss(rig, tools):
    log = rig.open()
    log.reset_to(7)  # the full disk has no room for the checkpoint of the log start
    tools.fill(log, 5)
    tools.flush(log)
    rig.shrunk.clear()

    def hook(operation, path):
        if operation == "open" and path.endswith("0050.log"):
            raise OSError(errno.ENOSPC, "injected")

    rig.disk.hook = hook
    with pytest.raises(DiskFailure):
        log.reset_to(50)
    rig.disk.kill()
    rig.open(recovery_point=min(offset for _, offset in rig.shrunk))
    assert not rig.report.cut_below_flushed


def test_damage_below_the_log_start_is_a_loss_of_what_follows_it(rig, tools):
    """Records below the start were deleted, but those behind were flushed (simulator, seed 60293)."""
    rig.config = LogConfig(segment_bytes=100_000)
    log = rig.open()
    tools.fill(log, 8)
    tools.flush(log)
    brief = log.active.find(3)
    rig.disk.kill()
    rig.disk.content(log.active.path)[brief.position + brief.size - 1] ^= 0xFF
    log = rig.open(recovery_point=5, start_offset=5)
    assert (log.start_offset, log.end_offset) == (5, 5)
    assert (rig.report.cut, rig.report.cut_below_flushed) == (True, True)
