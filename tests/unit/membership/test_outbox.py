"""Which compare-and-swaps share a patch, and what a refusal of it means for each."""

from dataclasses import replace

import pytest

from kafkalite_core.membership.outbox import SHARED_MAX, Outbox, Swap
from kafkalite_core.membership.settlement import Entry, Settlement
from kafkalite_core.model.partition import IsrEntry, Partition

EXPECTED = Partition(
    leader=0, leader_epoch=1, partition_epoch=3, min_isr=1, replicas=(0, 1), isr=(IsrEntry(0, 1), IsrEntry(1, 2))
)
PROPOSED = replace(EXPECTED, partition_epoch=4, isr=(IsrEntry(0, 1),))


def outbox_of(*numbers):
    outbox = Outbox()
    for number in numbers:
        outbox.add(Swap(number, Settlement(EXPECTED, PROPOSED), f"owner of {number}"))
    return outbox


def numbers(swaps):
    return [swap.number for swap in swaps]


def test_what_waits_shares_a_patch():
    outbox = outbox_of(3, 1, 2)
    assert numbers(outbox.take()) == [3, 1, 2]
    assert outbox.take() == []


def test_a_partition_is_in_a_patch_once():
    outbox = outbox_of(1, 1, 2)
    assert numbers(outbox.take()) == [1, 2]
    assert numbers(outbox.take()) == [1]


def test_a_patch_is_bounded():
    outbox = outbox_of(*range(SHARED_MAX + 1))
    assert numbers(outbox.take()) == list(range(SHARED_MAX))
    assert numbers(outbox.take()) == [SHARED_MAX]


def test_parts_that_others_overtook_are_over_and_the_others_share_another():
    outbox = outbox_of(0, 1, 2, 3)
    patch = outbox.take()
    entries = {0: EXPECTED, 1: replace(EXPECTED, partition_epoch=4), 2: EXPECTED, 3: PROPOSED}
    over = outbox.refused(patch, entries)
    assert [(swap.number, entry) for swap, entry in over] == [(1, entries[1]), (3, PROPOSED)]
    outbox.add(Swap(4, Settlement(EXPECTED, PROPOSED), "later"))
    assert numbers(outbox.take()) == [0, 2, 4]


def test_a_topic_that_is_gone_is_over_for_all():
    outbox = outbox_of(0, 1)
    over = outbox.refused(outbox.take(), Entry.GONE)
    assert [(swap.number, entry) for swap, entry in over] == [(0, Entry.GONE), (1, Entry.GONE)]
    assert outbox.take() == []


@pytest.mark.parametrize("change", [{"partition_epoch": 2}, {"leader_epoch": 2}, {"leader": 1}], ids=str)
def test_a_part_whose_test_fails_is_over_however_its_entry_differs(change):
    outbox = outbox_of(0, 1)
    other = replace(EXPECTED, **change)
    [(swap, entry)] = outbox.refused(outbox.take(), {0: EXPECTED, 1: other})
    assert (swap.number, entry) == (1, other)
    assert numbers(outbox.take()) == [0]


def test_what_is_known_to_be_overtaken_is_not_sent():
    outbox = outbox_of(0, 1, 2)
    known = {0: EXPECTED, 1: PROPOSED}
    assert [(swap.number, entry) for swap, entry in outbox.overtaken(known.get)] == [(1, PROPOSED)]
    assert numbers(outbox.take()) == [0, 2]


@pytest.mark.parametrize("read", [EXPECTED, Entry.UNREAD], ids=["unexplained", "unread"])
def test_the_one_that_is_refused_for_what_it_is_ends_up_alone(read):
    outbox = outbox_of(*range(8))
    patches, over = [], []
    while patch := outbox.take():
        patches.append(numbers(patch))
        if 5 in patches[-1]:
            over += outbox.refused(patch, read if isinstance(read, Entry) else dict.fromkeys(range(8), read))
    assert patches == [[0, 1, 2, 3, 4, 5, 6, 7], [0, 1, 2, 3], [4, 5, 6, 7], [4, 5], [4], [5], [6, 7]]
    assert [(swap.number, entry) for swap, entry in over] == [(5, read)]


def test_what_comes_later_does_not_make_a_half_whole_again():
    outbox = outbox_of(0, 1, 2, 3)
    outbox.refused(outbox.take(), dict.fromkeys(range(8), EXPECTED))
    for number in (4, 5, 6):
        outbox.add(Swap(number, Settlement(EXPECTED, PROPOSED), "later"))
    assert [numbers(outbox.take()) for _ in range(4)] == [[0, 1], [2, 3], [4, 5, 6], []]


def test_one_that_went_alone_is_over_whatever_is_read():
    for entry in (EXPECTED, PROPOSED, Entry.UNREAD, Entry.GONE):
        outbox = outbox_of(5)
        [(swap, found)] = outbox.refused(outbox.take(), entry if isinstance(entry, Entry) else {5: entry})
        assert (swap.number, found) == (5, entry)
        assert outbox.take() == []
