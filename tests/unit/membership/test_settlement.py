"""S5 and R6: what is known after each sequence of answers to one compare-and-swap."""

from dataclasses import replace

import pytest

from kafkalite_core.membership.settlement import Attempt, Entry, Settled, Settlement
from kafkalite_core.model.partition import IsrEntry, Partition
from kafkalite_core.replica.events import CasOutcome

EXPECTED = Partition(
    leader=1, leader_epoch=4, partition_epoch=7, min_isr=2, replicas=(1, 2), isr=(IsrEntry(1, 5), IsrEntry(2, 6))
)
PROPOSED = replace(EXPECTED, partition_epoch=8, isr=(IsrEntry(1, 5),))
RIVAL = replace(EXPECTED, partition_epoch=8, leader=2, leader_epoch=5)


def settlement():
    return Settlement(EXPECTED, PROPOSED)


def test_outcomes_are_those_of_the_replica():
    assert {member.value for member in Settled} == {member.value for member in CasOutcome}


@pytest.mark.parametrize(
    ("attempt", "entry", "outcome"),
    [
        (Attempt.APPLIED, Entry.UNREAD, Settled.APPLIED),
        (Attempt.REFUSED, RIVAL, Settled.REJECTED),
        (Attempt.REFUSED, Entry.UNREAD, Settled.REJECTED),
        (Attempt.REFUSED, EXPECTED, Settled.REJECTED),
        (Attempt.NOT_APPLIED, Entry.UNREAD, Settled.NOT_ATTEMPTED),
        (Attempt.GONE, Entry.UNREAD, Settled.REJECTED),
        (Attempt.AMBIGUOUS, Entry.UNREAD, Settled.UNKNOWN),
    ],
)
def test_a_single_attempt(attempt, entry, outcome):
    assert settlement().settle(attempt, entry) is outcome


@pytest.mark.parametrize(
    ("attempt", "entry", "outcome"),
    [
        (Attempt.REFUSED, PROPOSED, Settled.APPLIED),
        (Attempt.REFUSED, RIVAL, Settled.REJECTED),
        (Attempt.REFUSED, replace(PROPOSED, partition_epoch=9), Settled.REJECTED),
        (Attempt.REFUSED, EXPECTED, Settled.UNKNOWN),
        (Attempt.REFUSED, Entry.UNREAD, Settled.UNKNOWN),
        (Attempt.REFUSED, Entry.GONE, Settled.REJECTED),
        (Attempt.GONE, Entry.UNREAD, Settled.REJECTED),
        (Attempt.NOT_APPLIED, Entry.UNREAD, Settled.UNKNOWN),
        (Attempt.NOT_APPLIED, EXPECTED, Settled.UNKNOWN),
        (Attempt.APPLIED, Entry.UNREAD, Settled.APPLIED),
    ],
)
def test_after_an_answer_was_lost(attempt, entry, outcome):
    doubtful = settlement()
    assert doubtful.settle(Attempt.AMBIGUOUS) is Settled.UNKNOWN
    assert doubtful.settle(attempt, entry) is outcome
    assert doubtful.ambiguous is (outcome is Settled.UNKNOWN)


def test_only_the_same_patch_inherits_doubt():
    assert settlement().is_same(EXPECTED, PROPOSED)
    assert not settlement().is_same(EXPECTED, RIVAL)


def test_a_proposal_that_skips_an_epoch_is_a_defect():
    with pytest.raises(AssertionError):
        Settlement(EXPECTED, replace(PROPOSED, partition_epoch=9))
