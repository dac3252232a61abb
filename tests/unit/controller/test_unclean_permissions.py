"""A permission of unclean elections that was withdrawn stops them, wherever it was given."""

from dataclasses import replace

import pytest

from kafkalite_core.controller.actions import ChangePartitions, ReadBrokers, ReadClusters
from kafkalite_core.controller.plan import BROKERS_FRESH_S, plan
from tests.unit.controller.builders import NOW, apply, entry, make_broker, snapshot, three, topic_view

PERMITTED = {"unclean.leader.election.enable": "true"}
LATE_S = BROKERS_FRESH_S + 0.1
ANNOTATED = {"elections": {"elect-unclean": "0"}, "elect_unclean": frozenset({0}), "unclean_request": "0"}


def offline(*, cluster=None, brokers=None, **view):
    """Partition 0 of `orders`: its only member of the ISR is gone, and it has no leader any more."""
    gone = three() | {0: make_broker(0, fenced=10)} | (brokers or {})
    config = {"config": PERMITTED if cluster is None else cluster}
    topic = topic_view(partitions={0: entry(leader=-1, isr=[(0, 10)])}, **view)
    return snapshot(topic, brokers=gone, cluster=config, clusters_age_s=LATE_S)


def changes(state):
    return [each for each in plan(state, NOW) if isinstance(each, ChangePartitions)]


def test_what_the_cluster_permits_is_read_again_before_records_are_given_up():
    state = offline()
    assert plan(state, NOW) == [ReadClusters()]
    (change,) = changes(replace(state, clusters_age_s=BROKERS_FRESH_S))
    assert (change.unclean, change.by_cluster, change.consent) == ({0}, True, "")
    # It was withdrawn meanwhile, as the list tells.
    withdrawn = replace(state, cluster=replace(state.cluster, config={}), clusters_age_s=0.0)
    assert not changes(withdrawn)
    assert plan(replace(state, brokers_age_s=LATE_S), NOW) == [ReadBrokers(), ReadClusters()]


def test_an_api_server_that_is_slow_does_not_keep_it_from_happening():
    slow = replace(offline(), clusters_read_s=1.5, clusters_age_s=BROKERS_FRESH_S + 1.4)
    assert changes(slow)
    assert plan(replace(slow, clusters_age_s=BROKERS_FRESH_S + 1.6), NOW) == [ReadClusters()]


@pytest.mark.parametrize(
    ("topic", "cluster", "consent"),
    [
        ({"spec": {"config": PERMITTED}}, {}, ""),
        ({"spec": {"config": PERMITTED}}, PERMITTED, ""),
        (ANNOTATED, {}, "0"),
        (ANNOTATED, PERMITTED, "0"),
    ],
    ids=["its config", "both configs", "its annotation", "annotation and cluster"],
)
def test_what_the_topic_itself_permits_is_tested_by_the_patch(topic, cluster, consent):
    (change,) = changes(offline(cluster=cluster, **topic))
    assert (change.unclean, change.by_cluster, change.consent) == ({0}, False, consent)


def test_other_elections_do_not_wait_for_that():
    state = offline()
    other = topic_view("other", partitions={0: entry()})
    state = replace(state, topics={**state.topics, other.topic.ref.uid: other})
    read, change = plan(state, NOW)
    assert (read, change.topic.name, change.elected, change.by_cluster) == (ReadClusters(), "other", {0}, False)
    after = changes(apply(state, [read, change]))
    assert [(each.topic.name, each.unclean) for each in after] == [("orders", {0})]
