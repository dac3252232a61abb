"""Which compare-and-swaps share a patch, and what a refusal of it means for each."""

from dataclasses import replace

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
    over = outbox.refused(patch, entries.__getitem__)
    assert [(swap.number, entry) for swap, entry in over] == [(1, entries[1]), (3, PROPOSED)]
    outbox.add(Swap(4, Settlement(EXPECTED, PROPOSED), "later"))
    assert numbers(outbox.take()) == [0, 2, 4]


def test_a_topic_that_is_gone_is_over_for_all():
    outbox = outbox_of(0, 1)
    over = outbox.refused(outbox.take(), lambda _number: Entry.GONE)
    assert [(swap.number, entry) for swap, entry in over] == [(0, Entry.GONE), (1, Entry.GONE)]
    assert outbox.take() == []


def test_after_a_refusal_that_no_entry_explains_each_goes_alone():
    outbox = outbox_of(0, 1, 2)
    assert outbox.refused(outbox.take(), lambda _number: EXPECTED) == []
    outbox.add(Swap(3, Settlement(EXPECTED, PROPOSED), "later"))
    outbox.add(Swap(4, Settlement(EXPECTED, PROPOSED), "later"))
    assert [numbers(outbox.take()) for _ in range(5)] == [[0], [1], [2], [3, 4], []]


def test_after_a_refusal_and_no_answer_each_goes_alone():
    outbox = outbox_of(0, 1)
    assert outbox.refused(outbox.take(), lambda _number: Entry.UNREAD) == []
    assert [numbers(outbox.take()) for _ in range(2)] == [[0], [1]]


def test_one_that_went_alone_is_over_whatever_is_read():
    for entry in (EXPECTED, PROPOSED, Entry.UNREAD, Entry.GONE):
        outbox = outbox_of(5)
        [(swap, found)] = outbox.refused(outbox.take(), lambda _number, entry=entry: entry)
        assert (swap.number, found) == (5, entry)
        assert outbox.take() == []
