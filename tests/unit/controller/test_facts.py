from dataclasses import replace

from kafkalite_core.controller.facts import topic_facts
from kafkalite_core.model.partition import IsrEntry
from tests.unit.controller.builders import entry


def test_the_first_epoch_of_a_cluster_that_is_made_again_is_above_all_that_may_lead():  # decision 011
    """A wiped disk with an epoch that an entry names would count for it."""
    assert topic_facts({}).broker_epoch == -1
    assert topic_facts({0: entry(isr=((0, 10),)), 1: entry(isr=((1, 7),))}).broker_epoch == 10
    assert topic_facts({0: replace(entry(isr=((0, 10),)), elr=(IsrEntry(1, 13),))}).broker_epoch == 13
