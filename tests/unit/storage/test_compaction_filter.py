"""Which records of a batch compaction keeps, and the batch that is left."""

import random
import struct

import pytest
from crc32c import crc32c

from kafkalite_broker.compression import decompress
from kafkalite_core.protocol.errors import ProtocolError
from kafkalite_core.protocol.primitives import read_varint
from kafkalite_core.protocol.record_batch import (
    parse_batch_header,
    rewrite_log_append_time,
)
from kafkalite_core.storage.compaction_filter import (
    DELETE_HORIZON,
    ENTRY_OVERHEAD_BYTES,
    KeyMap,
    digest,
    filter_batch,
    walk_records,
)
from tests.unit.storage.compaction_tools import batch_of, content, filtered, keys_of


@pytest.mark.parametrize("codec", range(5))
def test_what_is_kept_keeps_offset_timestamp_headers_and_codec(codec):
    batch = batch_of((b"a", b"1"), (b"b", b"2"), (b"a", b"3"), (b"c", b"4"), codec=codec, base=40, leader_epoch=6,
                     producer_id=9, producer_epoch=2, base_sequence=17, stamps=[500, 90, 300, 400])  # fmt: skip
    newer = batch_of((b"c", b"5"), base=44)
    left = filtered(batch, keys_of(batch, newer))
    assert content(left) == [record for record in content(batch) if record[0] in {41, 42}]
    was, now = parse_batch_header(batch), parse_batch_header(left)
    assert now == was._replace(batch_length=now.batch_length, crc=now.crc, max_timestamp=300, record_count=2)
    assert (now.codec, now.last_sequence) == (codec, 20)


@pytest.mark.parametrize("codec", range(5))
def test_a_batch_that_is_kept_whole_is_the_same_bytes(codec):
    batch = batch_of((b"a", b"1"), (b"b", b"2"), codec=codec)
    assert filtered(batch, keys_of(batch)) is batch
    assert filtered(batch, KeyMap(1)) is batch


def test_a_tombstone_gets_a_horizon_and_goes_after_it():
    stamps = [10**12, 10**12 - 10**10, 10**12 + 7]
    batch = batch_of((b"a", b"1"), (b"b", None), (b"c", b"3"), stamps=stamps)
    keys = keys_of(batch)
    marked = filtered(batch, keys, now_ms=2 * 10**12)
    header = parse_batch_header(marked)
    assert header.attributes == DELETE_HORIZON
    assert header.base_timestamp == 2 * 10**12 + 1000
    assert content(marked) == content(batch)
    assert header.max_timestamp == 10**12 + 7
    assert filtered(marked, keys, now_ms=2 * 10**12 + 999, first_dirty=3) is marked
    left = filtered(marked, keys, now_ms=2 * 10**12 + 1000, first_dirty=3)
    assert content(left) == [content(batch)[0], content(batch)[2]]
    assert parse_batch_header(left).base_timestamp == header.base_timestamp
    assert filtered(left, keys, now_ms=3 * 10**12, first_dirty=3) is left


@pytest.mark.parametrize("first_dirty", [0, 2])
def test_a_horizon_that_came_from_the_leader_is_given_anew_by_the_first_pass(first_dirty):
    batch = batch_of((b"a", b"1"), (b"b", None), (b"c", b"3"))
    keys = keys_of(batch)
    copied = filtered(batch, keys, now_ms=10_000)
    left = filtered(copied, keys, now_ms=50_000, first_dirty=first_dirty)
    assert parse_batch_header(left).base_timestamp == 51_000
    assert content(left) == content(batch)
    assert len(content(filtered(left, keys, now_ms=51_000, first_dirty=3))) == 2


@pytest.mark.parametrize("stamp", [-1, 5000, 2**63 - 1])
def test_a_tombstone_may_be_kept_for_ever(stamp):
    batch = batch_of((b"a", b"1"), (b"b", None), stamps=[5000, stamp])
    keys = keys_of(batch)
    marked = filtered(batch, keys, now_ms=10**12, retention=2**63 - 1)
    assert parse_batch_header(marked).base_timestamp == 2**63 - 1
    assert content(marked) == content(batch)
    assert filtered(marked, keys, now_ms=10**15, retention=2**63 - 1, first_dirty=2) is marked


@pytest.mark.parametrize("now_ms", [0, 10**12])
def test_timestamps_beyond_64_bits_stop_nothing_and_mean_what_they_meant(now_ms):
    """A topic that was not compacted takes them; Java's sums wrap around."""
    batch = bytearray(batch_of((b"a", b"1"), (b"b", b"2"), (b"c", None), stamps=[5000, 5007, 9000]))
    struct.pack_into(">q", batch, 27, 2**63 - 5)
    struct.pack_into(">I", batch, 17, crc32c(batch[21:]))
    newer = batch_of((b"a", b"3"), base=3)
    left = filtered(bytes(batch), keys_of(bytes(batch), newer), now_ms=now_ms)
    header = parse_batch_header(left)
    assert header.max_timestamp == 2**63 - 5 + 4000 - 2**64
    rows = walk_records(left[61:], 2)
    sums = [header.base_timestamp + read_varint(memoryview(left[61:]), row[0] + 2)[0] for row in rows]
    assert [(total + 2**63) % 2**64 - 2**63 for total in sums] == [2**63 + 2 - 2**64, 2**63 - 5 + 4000 - 2**64]


def test_a_batch_that_grows_too_large_for_its_header_is_refused():
    class Huge(bytes):
        def __len__(self):
            return 2**31

    batch = batch_of((b"a", b"1"), (b"b", b"2"), codec=1)
    with pytest.raises(ProtocolError, match="does not fit its header"):
        filter_batch(
            batch,
            parse_batch_header(batch),
            keys_of(batch, batch_of((b"a", b"3"), base=2)),
            first_dirty=0,
            now_ms=0,
            delete_retention_ms=0,
            keep_header=False,
            decompress=decompress,
            compress=lambda _codec, data: Huge(data),
        )


def test_a_superseded_tombstone_goes_at_once():
    batch = batch_of((b"a", None), (b"a", b"2"))
    assert [record[0] for record in content(filtered(batch, keys_of(batch)))] == [1]
    assert not parse_batch_header(filtered(batch, keys_of(batch))).attributes


def test_a_tombstone_beyond_the_part_covered_has_no_horizon_yet():
    batch = batch_of((b"a", b"1"), (b"a", None), (b"b", b"2"))
    keys = keys_of(batch)
    keys.covered_end = 2
    keys.offsets = {b"a": 1}
    left = filtered(batch, keys, now_ms=10)
    assert [record[0] for record in content(left)] == [1, 2]
    assert not parse_batch_header(left).attributes & DELETE_HORIZON


def test_log_append_time_stays():
    batch = bytearray(batch_of((b"a", b"1"), (b"a", b"2"), (b"b", None)))
    rewrite_log_append_time(batch, 0, parse_batch_header(batch), 7777)
    left = filtered(bytes(batch), keys_of(bytes(batch)), now_ms=10)
    assert [(offset, stamp) for offset, stamp, *_ in content(left)] == [(1, 7777), (2, 7777)]
    assert parse_batch_header(left).max_timestamp == 7777


def test_records_without_key_go_once_they_are_covered():
    batch = batch_of((None, b"1"), (b"", b"2"))
    assert [record[0] for record in content(filtered(batch, keys_of(batch)))] == [1]
    assert filtered(batch, KeyMap(1)) is batch


@pytest.mark.parametrize("codec", [0, 4])
def test_nothing_left_is_no_batch_or_an_empty_one(codec):
    batch = batch_of((b"a", b"1"), (b"b", b"2"), codec=codec, base=8, leader_epoch=3, producer_id=9, producer_epoch=1,
                     base_sequence=4)  # fmt: skip
    keys = keys_of(batch, batch_of((b"a", b"1"), (b"b", b"2"), base=10))
    assert filtered(batch, keys) is None
    empty = filtered(batch, keys, keep_header=True)
    was, now = parse_batch_header(batch), parse_batch_header(empty)
    assert now == was._replace(
        batch_length=49, crc=now.crc, attributes=0, base_timestamp=-1, record_count=0, max_timestamp=was.max_timestamp
    )
    assert len(empty) == 61
    assert filtered(empty, keys, keep_header=True) is empty
    assert filtered(empty, keys) is None


def test_markers_of_transactions_stay():
    marker = batch_of((b"a", b"1"), control=True, transactional=True, producer_id=1, producer_epoch=0)
    keys = keys_of(marker, batch_of((b"a", b"2"), base=1))
    assert keys.offsets == {b"a": 1}
    assert filtered(marker, keys) is marker


def test_long_keys_are_told_apart_by_a_digest_that_no_short_key_can_be():
    long = [bytes([n]) * 200 for n in range(3)]
    tricks = [digest(long[0]), digest(long[0])[:31]]
    batch = batch_of(*[(key, b"v") for key in [*long, *tricks]])
    keys = keys_of(batch)
    assert len(keys.offsets) == 5
    assert filtered(batch, keys) is batch
    newer = batch_of((long[1], b"w"), base=5)
    assert [record[0] for record in content(filtered(batch, keys_of(batch, newer)))] == [0, 2, 3, 4]


def test_a_full_map_covers_as_much_as_fits_and_one_key_at_least():
    first = batch_of((b"a", b"1"), (b"b", b"2"), (b"a", b"3"))
    second = batch_of((b"b", b"4"), (b"c", b"5"), (b"a", b"6"), base=3)
    keys = keys_of(first, second, max_bytes=2 * (ENTRY_OVERHEAD_BYTES + 1))
    assert (keys.full, keys.covered_end, keys.offsets) == (True, 4, {b"a": 2, b"b": 3})
    assert [record[0] for record in content(filtered(first, keys))] == [2]
    assert filtered(second, keys) is second
    keys = keys_of(first, second, max_bytes=0)
    assert (keys.full, keys.covered_end, keys.offsets) == (True, 1, {b"a": 0})
    assert keys_of(first, second, first=4).offsets == {b"c": 4, b"a": 5}


@pytest.mark.parametrize("cut", [1, 4, 12])
def test_malformed_records_are_refused(cut):
    batch = batch_of((b"a" * 70, b"1" * 70), (b"b", b"2"))
    header = parse_batch_header(batch)
    with pytest.raises(ProtocolError):
        KeyMap(1000).take(batch[:-cut], header, 0, decompress)
    with pytest.raises(ProtocolError):
        KeyMap(1000).take(batch + b"\x00" * cut, header, 0, decompress)


def test_records_of_every_size_are_walked():
    rng = random.Random(7)
    sizes = [0, 1, 62, 63, 64, 100, 8190, 8191, 8192, 20000]
    pairs = [(rng.randbytes(rng.choice(sizes)), None if n % 7 == 0 else rng.randbytes(n)) for n in range(300)]
    stamps = [rng.choice([0, 63, 64, 8192, 10**12, 3 * 10**12]) for _ in pairs]
    batch = batch_of(*pairs, stamps=stamps)
    keys = keys_of(batch)
    last = {key: offset for offset, (key, _) in enumerate(pairs)}
    left = filtered(batch, keys, now_ms=10**13)
    assert content(left) == [record for record in content(batch) if last[record[2]] == record[0]]
