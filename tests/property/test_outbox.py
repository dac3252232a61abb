"""Shared patches end as patches of one part each would have ended, whatever is refused, lost, or read (R6, KIP-497)."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from kafkalite_core.membership.outbox import Outbox, Swap
from kafkalite_core.membership.settlement import Attempt, Entry, Settled, Settlement
from kafkalite_core.model.partition import IsrEntry, Partition

EXPECTED = Partition(
    leader=0, leader_epoch=1, partition_epoch=3, min_isr=1, replicas=(0, 1), isr=(IsrEntry(0, 1), IsrEntry(1, 2))
)
PROPOSED = replace(EXPECTED, partition_epoch=4, isr=(IsrEntry(0, 1),))
RIVAL = replace(EXPECTED, partition_epoch=4, leader=1, leader_epoch=2)
OLD = replace(EXPECTED, partition_epoch=1)
PARTITIONS = 12
SENDINGS_MAX = 10


class Server:
    """Entries of one topic; patches land whole or not at all; some parts are refused for what they are."""

    def __init__(self, entries, strange):
        self.entries, self.strange = dict(entries), strange
        self.written = []

    def patch(self, swaps):
        if any(swap.number in self.strange or self.entries[swap.number] != EXPECTED for swap in swaps):
            return Attempt.REFUSED
        for swap in swaps:
            self.entries[swap.number] = PROPOSED
            self.written.append(swap.number)
        return Attempt.APPLIED


@given(
    entries=st.lists(st.sampled_from([EXPECTED, EXPECTED, EXPECTED, RIVAL, OLD]), min_size=1, max_size=PARTITIONS),
    strange=st.sets(st.integers(0, PARTITIONS - 1), max_size=3),
    known=st.sets(st.integers(0, PARTITIONS - 1)),
    later=st.integers(0, PARTITIONS),
    unread=st.lists(st.booleans(), max_size=8),
    lost=st.lists(st.sampled_from(["", "", "request", "answer"]), max_size=8),
)
def test_each_part_ends_as_it_would_alone(entries, strange, known, later, unread, lost):
    server = Server(enumerate(entries), strange)
    outbox, told, sendings = Outbox(), {}, Counter()
    settlements = {number: Settlement(EXPECTED, PROPOSED) for number in range(len(entries))}
    coming = list(settlements)
    waiting, coming = coming[later:], coming[:later]

    def tell(swap, attempt, entry):
        assert swap.number not in told, "told once"
        outcome = swap.settlement.settle(attempt, entry)
        sendings[swap.number] += 1
        if outcome is Settled.UNKNOWN and sendings[swap.number] < SENDINGS_MAX:
            outbox.add(Swap(swap.number, swap.settlement, None))
        else:
            told[swap.number] = outcome

    def cached(number):
        return server.entries[number] if number in known else None

    for number in waiting:
        outbox.add(Swap(number, settlements[number], None))
    patches = 0
    while outbox or coming:
        for swap, entry in outbox.overtaken(cached):
            tell(swap, Attempt.NOT_APPLIED, entry)
        patch = outbox.take()
        for number in coming:
            outbox.add(Swap(number, settlements[number], None))
        coming = []
        if not patch:
            continue
        patches += 1
        assert patches <= 2 * SENDINGS_MAX * PARTITIONS, "it comes to an end"
        fault = lost.pop() if lost else ""
        attempt = Attempt.AMBIGUOUS if fault == "request" else server.patch(patch)
        if fault == "answer":
            attempt = Attempt.AMBIGUOUS
        if attempt is Attempt.REFUSED:
            blind = unread.pop() if unread else False
            read = Entry.UNREAD if blind else server.entries
            for swap, entry in outbox.refused(patch, read):
                tell(swap, attempt, entry)
            continue
        for swap in patch:
            tell(swap, attempt, PROPOSED if attempt is Attempt.APPLIED else Entry.UNREAD)
    assert sorted(told) == sorted(settlements), "all are told"
    assert len(set(server.written)) == len(server.written), "written once"
    for number, outcome in told.items():
        alone = number not in strange and entries[number] == EXPECTED
        assert (outcome is Settled.REJECTED) <= (not alone), "others do not get it refused"
        assert outcome is Settled.UNKNOWN or (outcome is Settled.APPLIED) == (server.entries[number] == PROPOSED)
