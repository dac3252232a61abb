"""Batches, passes and look-ups that the tests of compaction share."""

from kafkalite_broker.compression import compress, decompress
from kafkalite_core.protocol.record_batch import (
    RecordHeader,
    SimpleRecord,
    build_batch,
    iter_batches,
    iter_records,
    parse_batch_header,
    validate_crc,
)
from kafkalite_core.storage.compaction import plan_compaction
from kafkalite_core.storage.compaction_filter import (
    KeyMap,
    filter_batch,
)
from kafkalite_core.storage.compaction_pass import compact
from kafkalite_core.storage.log_config import LogConfig

HEADERS = (RecordHeader("trace", b"\x00\xff"), RecordHeader("empty", None))
CONFIG = LogConfig(
    segment_bytes=600,
    index_interval_bytes=100,
    file_delete_delay_ms=0,
    retention_ms=-1,
    compacts=True,
    deletes=False,
    gaps=True,
    min_cleanable_dirty_ratio=0.0,
    delete_retention_ms=1000,
)


class PowerLoss(BaseException):
    pass


def batch_of(*pairs, codec=0, base=0, stamps=None, **fields):
    stamps = stamps or range(5000, 5000 + len(pairs))
    records = [SimpleRecord(stamp, key, value, HEADERS) for stamp, (key, value) in zip(stamps, pairs, strict=True)]
    return bytes(build_batch(records, codec=codec, compress=compress, base_offset=base, **fields))


def keys_of(*batches, max_bytes=1 << 20, first=0):
    keys = KeyMap(max_bytes)
    for batch in batches:
        if not keys.take(batch, parse_batch_header(batch), first, decompress):
            break
    return keys


def filtered(batch, keys, now_ms=0, retention=1000, keep_header=False, first_dirty=0):
    left = filter_batch(
        batch,
        parse_batch_header(batch),
        keys,
        first_dirty=first_dirty,
        now_ms=now_ms,
        delete_retention_ms=retention,
        keep_header=keep_header,
        decompress=decompress,
        compress=compress,
    )
    assert left is None or validate_crc(memoryview(left), 0, parse_batch_header(left))
    return left


def content(batch):
    header = parse_batch_header(batch)
    records = iter_records(memoryview(batch), 0, header, decompress)
    return [(r.offset, r.timestamp, r.key and bytes(r.key), r.value and bytes(r.value), r.headers) for r in records]


def finish(work, job=None):
    """Do the jobs of a pass, from `job` on; what it returns."""
    try:
        job = job or next(work)
        while True:
            try:
                job()
            except Exception as error:
                job = work.throw(error)
            else:
                job = next(work)
    except StopIteration as done:
        return done.value


def run(log, *, checkpoint=None, mark=None, now_ms=0, map_bytes=1 << 20, **options):
    plan = plan_compaction(log, checkpoint, high_watermark=log.end_offset if mark is None else mark, now_ms=now_ms)
    return finish(compact(log, plan, map_bytes=map_bytes, now_ms=now_ms, **options))


def put(log, *pairs, stamp=None, **fields):
    records = [SimpleRecord(stamp or 1000 + log.end_offset + n, key, value) for n, (key, value) in enumerate(pairs)]
    return log.append_as_leader(build_batch(records, **fields), leader_epoch=fields.get("leader_epoch", 1), now_ms=1)


def batches(log):
    found, offset = [], log.start_offset
    while offset < log.end_offset:
        for buffer in log.read(offset, max_bytes=500, end=log.end_offset, minimum_one=True).buffers:
            view = memoryview(buffer)
            for position, header in iter_batches(view):
                found.append(bytes(view[position : position + header.size]))
                offset = header.next_offset
    return found


def everything(log):
    return [record for batch in batches(log) for record in content(batch)]


def state(log):
    folded = {}
    for _, _, key, value, _ in everything(log):
        folded.pop(key, None)
        if value is not None:
            folded[key] = value
    return folded


def fill(log, rounds, *, keys=4, tag=b"v", size=60):
    for n in range(rounds):
        put(log, (b"k%d" % (n % keys), tag + b"%03d" % n + bytes(size)))
