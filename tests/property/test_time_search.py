"""Look-ups by timestamp find what a walk over all records finds, whatever the timestamps, the bounds and the indexes."""

from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalite_core.protocol.record_batch import SimpleRecord, build_batch
from kafkalite_core.storage.log import LogEnvironment
from kafkalite_core.storage.log_config import LogConfig
from kafkalite_core.storage.memory_disk import MemoryDisk
from kafkalite_core.storage.recovery import open_log
from kafkalite_core.storage.tail import TailBudget

STAMPS = st.integers(0, 30)
BATCHES = st.lists(st.lists(STAMPS, min_size=1, max_size=3), min_size=1, max_size=30)


@settings(max_examples=300, deadline=None)
@given(BATCHES, st.data())
def test_a_search_finds_what_a_walk_finds(batches, data):
    config = LogConfig(segment_bytes=data.draw(st.sampled_from([300, 900])), index_interval_bytes=200)
    log, _ = open_log(MemoryDisk(), "orders-0", config, LogEnvironment(TailBudget(0)), now_ms=1)
    records, ends = [], [0]
    for stamps in batches:
        batch = build_batch([SimpleRecord(stamp, b"k", b"value") for stamp in stamps])
        log.append_as_leader(batch, leader_epoch=3, now_ms=1)
        records += [(stamp, ends[-1] + delta) for delta, stamp in enumerate(stamps)]
        ends.append(log.end_offset)
    ticket = log.begin_flush()
    ticket.run()
    log.complete_flush(ticket)
    for segment in log.segments:
        if data.draw(st.booleans()):
            segment.unload_indexes()
    end = data.draw(st.sampled_from(ends))
    log.advance_start(data.draw(st.sampled_from(ends)))
    visible = [(stamp, offset) for stamp, offset in records if log.start_offset <= offset < end]
    wanted = data.draw(STAMPS)
    found = log.offset_for_timestamp(wanted, end=end)
    first = next((record for record in visible if record[0] >= wanted), None)
    assert found == (None if first is None else (*first, 3))
    newest = max(visible, key=lambda record: (record[0], -record[1]), default=None)
    assert log.max_timestamp(end=end) == (None if newest is None else (*newest, 3))
