"""How old a segment is whose records bear no timestamps."""

import pytest

from kafkalite_core.protocol.record_batch import patch_batch
from kafkalite_core.storage.log_config import LogConfig
from tests.unit.storage.compaction_tools import batch_of, run


@pytest.mark.parametrize("role", ["leader", "follower"])
def test_records_without_timestamps_are_as_old_as_the_last_append_to_their_segment(rig, tools, role):
    rig.config = LogConfig(segment_bytes=300, retention_ms=100, file_delete_delay_ms=50)
    log = rig.open()
    for n in range(4):
        records, now_ms = tools.batch(-1, size=60), 1000 + 70 * n
        if role == "leader":
            log.append_as_leader(records, leader_epoch=1, now_ms=now_ms)
        else:
            patch_batch(records, 0, n, 1)
            log.append_as_follower(memoryview(records), max_epoch=1, now_ms=now_ms)
    assert [(segment.base_offset, segment.end_offset) for segment in log.segments] == [(0, 2), (2, 4)]
    assert log.retention(1170, high_watermark=4) == []  # begun 170 ms ago, written to 100 ms ago
    assert log.retention(1171, high_watermark=4) == [f"{0:020d}.log"]
    assert log.retention(1310, high_watermark=4) == []
    assert log.retention(1311, high_watermark=4) == [f"{2:020d}.log"]  # the active one, to which nobody writes any more
    assert log.start_offset == log.end_offset == 4


def test_a_compacted_segment_is_as_old_as_the_newest_of_those_it_was_made_from(keeper):
    keeper.config = LogConfig(compacts=True, deletes=True, gaps=True, segment_bytes=300, retention_ms=100)
    log = keeper.open()
    for n in range(8):
        log.append_as_leader(bytearray(batch_of((b"k", bytes(60)), stamps=[-1])), leader_epoch=1, now_ms=1000 + 70 * n)
    sealed = log.segments[:-1]
    last_ms = 1000 + 70 * (log.active.base_offset - 1)
    assert len(sealed) > 1
    run(log)
    assert len(log.segments) == 2
    assert log.retention(last_ms + 100, high_watermark=8) == []
    assert len(log.retention(last_ms + 101, high_watermark=8)) == 1
