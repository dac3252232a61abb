"""Histories of a partition entry: one is never taken for two, and a second one is never followed (S11)."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalite_core.model.partition import Partition
from kafkalite_core.replica.newest import Newest

# What one change does: raise the leader epoch (and choose a leader), or not.
CHANGES = st.lists(st.one_of(st.none(), st.integers(-1, 2)), max_size=12)


def history(first: Partition, changes: list[int | None]) -> list[Partition]:
    """Entries as the API server's fences allow them."""
    entries = [first]
    for leader in changes:
        last = entries[-1]
        entries.append(
            Partition(
                leader=last.leader if leader is None else leader,
                leader_epoch=last.leader_epoch + (leader is not None),
                partition_epoch=last.partition_epoch + 1,
                min_isr=1,
                replicas=(0, 1, 2),
                isr=(),
            )
        )
    return entries


FIRST = Partition(leader=0, leader_epoch=0, partition_epoch=0, min_isr=1, replicas=(0, 1, 2), isr=())


def show(newest: Newest, entries: list[Partition]) -> tuple[Newest, Partition | None]:
    current = None
    for entry in entries:
        newest, taken = newest.shown(entry)
        current = entry if taken else current
    return newest, current


@settings(max_examples=300, deadline=None)
@given(CHANGES, st.data())
def test_one_history_in_any_order_and_with_repeats_never_contradicts_itself(changes, data):
    entries = history(FIRST, changes)
    start = data.draw(st.integers(0, len(entries) - 1))
    shown = data.draw(st.lists(st.sampled_from(entries), max_size=20))
    newest, current = show(Newest(-1, -1), [entries[start], *shown])
    assert not newest.contradicted
    assert current == max([entries[start], *shown], key=lambda entry: entry.partition_epoch)
    # After a restart the disk knows the newest of them, and the first thing shown is a consistent list: not older.
    again, current = show(Newest(newest.leader_epoch, newest.partition_epoch), [entries[-1], *shown])
    assert not again.contradicted
    assert current == entries[-1]


@settings(max_examples=300, deadline=None)
@given(CHANGES, st.integers(0, 12), CHANGES, st.data())
def test_what_a_restored_store_makes_of_the_past_is_followed_only_above_everything_known(first, back, second, data):
    lost = history(FIRST, first)
    other = history(lost[max(len(lost) - 1 - back, 0)], second)[1:]
    known = lost[-1]
    newest, _ = show(Newest(-1, -1), lost)
    for entry in data.draw(st.lists(st.sampled_from([*lost, *other]), max_size=20)):
        before = newest
        newest, taken = newest.shown(entry)
        if taken and entry not in lost and not (known.leader_epoch < entry.leader_epoch):
            # Not above what was known: then it must be indistinguishable from a continuation of the lost history.
            assert entry.leader_epoch == known.leader_epoch
            assert entry.leader == known.leader
            assert entry.partition_epoch >= known.partition_epoch
        if taken:
            assert entry.partition_epoch >= before.partition_epoch
            assert entry.leader_epoch >= before.leader_epoch
