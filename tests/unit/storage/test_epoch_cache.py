"""Leader epochs (KIP-101, KIP-279)."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalite_core.storage.epoch_cache import EpochCache
from kafkalite_core.storage.errors import CorruptCheckpoint


def cache(*entries):
    result = EpochCache()
    for epoch, start in entries:
        assert result.assign(epoch, start)
    return result


def test_end_offset_for():
    epochs = cache((2, 0), (4, 10), (7, 30))
    assert [epochs.end_offset_for(epoch, 50) for epoch in range(9)] == [
        (0, 0), (1, 0), (2, 10), (2, 10), (4, 30), (4, 30), (4, 30), (7, 50), (-1, -1),
    ]  # fmt: skip
    assert EpochCache().end_offset_for(0, 50) == (-1, -1)
    assert epochs.end_offset_for(-1, 50) == (-1, -1)


def test_assign_replaces_epochs_without_records_and_ignores_old_ones():
    epochs = cache((1, 0), (3, 10))
    assert not epochs.assign(3, 12)
    assert not epochs.assign(2, 12)
    assert epochs.assign(5, 10)
    assert epochs.entries == [(1, 0), (5, 10)]
    assert (epochs.latest_epoch, epochs.latest_start) == (5, 10)


def test_truncation_at_both_ends():
    epochs = cache((1, 0), (3, 10), (5, 20))
    assert not epochs.truncate_from_end(21)
    assert epochs.truncate_from_end(20)
    assert epochs.entries == [(1, 0), (3, 10)]
    assert epochs.truncate_from_start(15)
    assert epochs.entries == [(3, 15)]
    assert not epochs.truncate_from_start(15)
    assert not epochs.truncate_from_start(3)


def test_floor_and_epoch_at():
    epochs = cache((2, 5), (4, 10))
    assert (epochs.floor(1), epochs.floor(3), epochs.floor(9)) == (None, (2, 5), (4, 10))
    assert [epochs.epoch_at(offset) for offset in (4, 5, 9, 10, 99)] == [-1, 2, 2, 4, 4]


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 100)), max_size=20))
def test_entries_always_rise_and_survive_the_file(pairs):
    epochs = EpochCache()
    for pair in pairs:
        epochs.assign(*pair)
    entries = epochs.entries
    assert all(a < b and c < d for (a, c), (b, d) in pairwise(entries))
    assert EpochCache.decode(epochs.encode()).entries == entries


@given(st.lists(st.tuples(st.integers(0, 3000), st.integers(0, 10**6)), max_size=8))
def test_no_part_of_a_file_passes_for_a_whole_one(pairs):
    """Its last number would be another one: `1 115` that ends as `1 1`."""
    epochs = EpochCache()
    for pair in sorted(pairs):
        epochs.assign(*pair)
    data = epochs.encode()
    for size in range(len(data)):
        with pytest.raises(CorruptCheckpoint):
            EpochCache.decode(data[:size])


@pytest.mark.parametrize(
    "data", [b"", b"1\n0\n", b"0\n2\n1 0\n", b"0\n1\n1\n", b"0\n2\n3 0\n2 5\n", b"0\n1\nx y\n", b"\xff"]
)
def test_a_damaged_file_is_refused(data):
    with pytest.raises(CorruptCheckpoint):
        EpochCache.decode(data)
