"""What a log shows to who reads it from its start to its end."""

from kafkalite_core.protocol.record_batch import iter_batches


def batches_of(log):
    """Every batch of the log, read in small steps, as (base offset, bytes)."""
    found = []
    offset = log.start_offset
    while offset < log.end_offset:
        result = log.read(offset, max_bytes=200, end=log.end_offset, minimum_one=True)
        assert result.size > 0, offset
        assert result.size == sum(len(buffer) for buffer in result.buffers)
        for buffer in result.buffers:
            view = memoryview(buffer)
            for position, header in iter_batches(view):
                found.append((header.base_offset, bytes(view[position : position + header.size])))
                offset = header.next_offset
    return found


def assert_indexes_find_every_batch(log):
    """Of every segment, from what its files say."""
    for segment in log.segments:
        segment.load_indexes()
        for brief in segment.briefs(0):
            assert segment.index.lookup(brief.base_offset) <= brief.position
            assert segment.find(brief.last_offset).position == brief.position
