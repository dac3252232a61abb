"""Idempotent producers (KIP-98)."""

from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalite_core.storage import producer_state
from kafkalite_core.storage.errors import CorruptCheckpoint, InvalidProducerEpoch, OutOfOrderSequence
from kafkalite_core.storage.producer_state import Duplicate, New, ProducerStates


class Header(NamedTuple):
    producer_id: int
    producer_epoch: int
    base_sequence: int
    last_offset_delta: int
    base_offset: int = 0


def states(*batches, pid=7, epoch=0):
    result = ProducerStates()
    offset = 0
    for first, delta in batches:
        result.record(pid, epoch, first, offset, delta, 100 + offset)
        offset += delta + 1
    return result


def test_the_next_sequence_is_new_and_everything_else_is_refused():
    known = states((0, 2), (3, 0))
    assert known.check(Header(7, 0, 4, 5)) == New()
    for first, gap in ((5, True), (2, False), (1000, True), (2**31 - 1, False)):
        with pytest.raises(OutOfOrderSequence) as refused:
            known.check(Header(7, 0, first, 0))
        assert refused.value.gap is gap


def test_the_last_five_batches_are_duplicates():
    known = states(*[(n, 0) for n in range(7)])
    for n in range(2, 7):
        assert known.check(Header(7, 0, n, 0)) == Duplicate(n, n, 100 + n)
    with pytest.raises(OutOfOrderSequence):
        known.check(Header(7, 0, 1, 0))
    with pytest.raises(OutOfOrderSequence):
        known.check(Header(7, 0, 5, 1))  # same first, other last


def test_sequences_wrap_at_int32():
    known = states((2**31 - 2, 3))
    assert known.entry(7).batches[-1].last_sequence == 1
    assert known.check(Header(7, 0, 2, 0)) == New()
    assert known.check(Header(7, 0, 2**31 - 2, 3)) == Duplicate(0, 3, 100)
    assert states((2**31 - 1, 0)).check(Header(7, 0, 0, 0)) == New()


def test_epochs():
    known = states((0, 0), epoch=3)
    with pytest.raises(InvalidProducerEpoch):
        known.check(Header(7, 2, 1, 0))
    with pytest.raises(OutOfOrderSequence):
        known.check(Header(7, 4, 1, 0))
    assert known.check(Header(7, 4, 0, 0)) == New()
    known.record(7, 4, 0, 1, 0, 1)
    assert len(known.entry(7).batches) == 1
    assert known.check(Header(7, 4, 0, 0)) == Duplicate(1, 1, 1)


def test_unknown_producers_begin_anywhere_and_others_need_none():
    known = ProducerStates()
    assert known.check(Header(7, 0, 99, 0)) == New()
    assert known.check(Header(-1, -1, -1, 0)) == New()


def test_truncation_says_when_the_log_has_to_be_read_again():
    known = states((0, 0), (1, 0), (2, 0))
    assert known.truncate_to(1)
    assert known.check(Header(7, 0, 1, 0)) == New()
    assert known.truncate_to(0)
    assert len(known) == 0
    known = states(*[(n, 0) for n in range(8)])
    assert known.truncate_to(5)
    assert not known.truncate_to(3)
    known = states((0, 0), (1, 0))
    known.record(7, 1, 0, 2, 0, 1)
    assert not known.truncate_to(2)


def test_expiry():
    known = states((0, 0))
    assert known.expire(1000.0, 600.0) == 0, "the timestamps of its records say nothing"
    known.record(8, 0, 0, 1, 0, 500)
    assert known.expire(1600.0, 600.0) == 0
    assert known.expire(1601.0, 600.0) == 1
    assert known.entry(7) is None
    assert known.entry(8) is not None
    known.record(8, 0, 1, 2, 0, 500)
    assert known.expire(2300.0, 600.0) == 0, "it is not silent"
    assert known.expire(2901.0, 600.0) == 1


def test_whose_producer_is_unknown_may_have_been_refused_a_moment_ago():
    known = states((0, 0))
    known.expire(0.0, 0.0)
    known.expire(1.0, 0.0)
    with pytest.raises(OutOfOrderSequence) as raised:
        known.check(Header(7, 0, 3, 0), begins_anywhere=False)
    assert raised.value.gap
    assert known.check(Header(7, 0, 0, 0), begins_anywhere=False) == New()
    assert known.check(Header(7, 0, 3, 0)) == New(), "it was forgotten"


def test_the_number_of_producers_is_bounded(monkeypatch):
    monkeypatch.setattr(producer_state, "PRODUCERS_MAX", 3)
    known = ProducerStates()
    for pid in (1, 2, 3, 1, 4):
        known.record(pid, 0, 0, 0, 0, 0)
    assert [pid for pid in range(5) if known.entry(pid)] == [1, 3, 4]


@given(
    st.lists(
        st.tuples(st.integers(0, 4), st.integers(0, 2**31 - 1), st.integers(0, 9), st.integers(0, 2**40)), max_size=30
    )
)
def test_snapshots_keep_all_five_batches(batches):
    known = ProducerStates()
    offset = 0
    for pid, first, delta, timestamp in batches:
        known.record(pid, pid + 1, first, offset, delta, timestamp)
        offset += delta + 1
    again = ProducerStates.decode(known.encode())
    assert again.encode() == known.encode()
    for pid in range(5):
        before, after = known.entry(pid), again.entry(pid)
        assert (before is None) == (after is None)
        if before is not None:
            assert (before.epoch, before.batches, before.whole) == (after.epoch, after.batches, after.whole)


@given(st.data())
def test_damaged_snapshots_are_refused(data):
    content = bytearray(states((0, 0), (1, 2)).encode())
    position = data.draw(st.integers(0, len(content) - 1))
    content[position] ^= data.draw(st.integers(1, 255))
    with pytest.raises(CorruptCheckpoint):
        ProducerStates.decode(bytes(content))
    with pytest.raises(CorruptCheckpoint):
        ProducerStates.decode(bytes(content[:position]))
