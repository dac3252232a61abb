"""S11: the restored store has gone on, and some brokers go by it, while others know of a history that is lost."""

from dataclasses import replace

import pytest

from kafkalite_core.model.partition import IsrEntry
from tests.unit.controller.builders import entry
from tests.unit.controller.recovering import holding, reporting, run


def told(*epochs, isr, **more):
    """A report with the ISR that its broker was shown, as broker ids."""
    return replace(holding(*epochs, **more), isr=tuple(IsrEntry(i, 10 + i) for i in isr))


GOES_ON = replace(told(5, 32, isr=(0, 1), log_epoch=5, end=900), agrees=True)
"""By brokers 0 and 1: broker 0 leads in epoch 5, and acknowledges."""


def chosen(reports, **shown):
    action, _ = run(reporting(*reports), partition=replace(entry(**shown), partition_epoch=32))
    return action.changes[0].proposed.isr_ids()


@pytest.mark.parametrize(
    ("isr", "elr"), [((0, 1, 2), ()), ((0, 1), (2,))], ids=["shown in sync", "shown to be eligible"]
)
def test_nothing_was_acknowledged_without_a_member_that_the_store_still_shows(isr, elr):
    """What the others wrote since is not committed, be it of a later epoch: broker 2 does not follow them."""
    in_sync = tuple(IsrEntry(i, 10 + i) for i in isr)
    eligible = tuple(IsrEntry(i, 10 + i) for i in elr)
    shown = replace(entry(min_isr=3), partition_epoch=32, isr=in_sync, elr=eligible)
    action, _ = run(reporting(GOES_ON, GOES_ON, told(4, 50, isr=(2,), log_epoch=4)), partition=shown)
    assert action.changes[0].proposed.isr_ids() == (2,)


def test_who_goes_by_the_store_says_nothing_of_the_history_that_was_lost():
    """That one had not come further, so all are compared, and broker 2 has more of the same epoch."""
    assert chosen((GOES_ON, GOES_ON, told(5, 31, isr=(2,), log_epoch=5, end=950)), isr=((0, 10), (1, 11))) == (2,)


def test_a_member_of_the_newest_isr_that_goes_by_the_store_is_not_known_to_be_the_one_that_was_meant():
    """Broker epochs go back with the store: a new disk may have drawn that one again."""
    reports = (told(7, 33, isr=(1,)), replace(holding(5, 32, log_epoch=5, end=50), agrees=True), holding(7, 32))
    assert chosen(reports, isr=((0, 10), (2, 12))) == (0, 2)


def test_more_of_the_epoch_that_the_furthest_member_has_says_that_there_was_a_newer_isr():
    """Broker 0 has it, and has been told of a later epoch in which it has no record."""
    reports = (holding(9, 32, log_epoch=7, end=120), holding(7, 31, log_epoch=6, end=90), told(7, 33, isr=(1, 2)))
    assert chosen(reports, isr=((0, 10),)) == (0,)


def test_a_recovery_asks_for_as_many_in_sync_as_the_topic_does_now():
    before = replace(entry(isr=((0, 10),)), recovering=True)
    action, _ = run(reporting(*[holding()] * 3), partition=before, spec={"config": {"min.insync.replicas": "2"}})
    after = action.changes[0].proposed
    assert (after.min_isr, after.recovering) == (2, False), "and it is no unclean election any more"
