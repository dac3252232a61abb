"""Indexes of sealed segments are read when somebody reads the segment, and let go again."""

import pytest

from kafkalite_core.storage.log import INDEXES_LOADED_MAX


@pytest.mark.parametrize("clean", [True, False])
def test_indexes_of_old_segments_are_not_in_memory_after_a_start(rig, tools, clean):
    log = rig.open()
    tools.fill(log, 300)
    tools.flush(log)
    log.close(high_watermark=300) if clean else rig.disk.kill()
    log = rig.open(clean=clean, recovery_point=300 if clean else 0)
    assert len(log.segments) > 2 * INDEXES_LOADED_MAX
    assert [segment.loaded for segment in log.segments] == [False] * (len(log.segments) - 1) + [True]
    assert tools.offsets(log) == list(range(300))
    assert sum(segment.loaded for segment in log.segments) <= INDEXES_LOADED_MAX + 1


def test_a_segment_that_becomes_the_last_one_keeps_its_index(rig, tools):
    log = rig.open()
    tools.fill(log, 30)
    tools.flush(log)
    bases = [segment.base_offset for segment in log.segments]
    known = bytes(rig.disk.content(rig.path(f"{bases[0]:020d}.index")))
    log.close(high_watermark=30)
    rig.disk.remove(rig.path(f"{bases[1]:020d}.log"))
    log = rig.open(clean=True, recovery_point=30)
    assert (log.end_offset, log.active.loaded) == (bases[1], True)
    tools.fill(log, 30)
    assert bytes(rig.disk.content(rig.path(f"{bases[0]:020d}.index"))).startswith(known)
    assert tools.offsets(log) == list(range(bases[1] + 30))


def test_indexes_that_waited_for_a_flush_go_with_the_next_roll(rig, tools):
    log = rig.open()
    tools.fill(log, 300)
    assert all(segment.loaded for segment in log.segments), "nothing was synced yet"
    tools.flush(log)
    tools.fill(log, 30)
    tools.flush(log)
    tools.fill(log, 30)
    assert sum(segment.loaded for segment in log.segments) <= INDEXES_LOADED_MAX + 3
