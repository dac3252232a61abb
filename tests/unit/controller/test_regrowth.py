"""Partitions are added that the topic had before the store went back in time: what brokers hold of them counts (S10)."""

from dataclasses import replace

import pytest

from kafkalite_core.controller.actions import AddPartitions, ReadBrokers, UpdateTopicStatus
from kafkalite_core.controller.noticing import ADOPTION_GRACE_S
from kafkalite_core.controller.partition_health import with_times
from kafkalite_core.controller.plan import plan
from kafkalite_core.controller.strays import lost_topics, why_kept
from kafkalite_core.model.limits import EPOCHS_AHEAD
from kafkalite_core.model.partition import IsrEntry
from kafkalite_core.model.topic import Holding, Stray
from tests.unit.controller.builders import NOW, entry, make_broker, snapshot, three, topic_view

AHEAD = EPOCHS_AHEAD


def stray(number=1, *isr, end=100, epoch=3, leader_epoch=2, topic_id="id"):
    return Stray(
        topic="orders", topic_id=topic_id, partition=number, leader_epoch=leader_epoch, partition_epoch=epoch,
        end_offset=end, log_epoch=leader_epoch, isr=tuple(IsrEntry(*pair) for pair in isr), isr_epoch=epoch,
        isr_leader_epoch=leader_epoch,
    )  # fmt: skip


def holding(number=1, *isr, epoch=3, hosted=True):
    return Holding(
        topic="orders", topic_id="id", partition=number, leader_epoch=2, partition_epoch=epoch, log_epoch=2,
        end_offset=100, isr=tuple(IsrEntry(*pair) for pair in isr), hosted=hosted,
    )  # fmt: skip


def wants(count=2, *, listed=None, holdings=None, known=None, age_s=0.0, **view):
    """A topic of one partition is to have `count`; by broker id, what the brokers list."""
    times = {"first_seen": NOW - 500, "generation_seen": NOW - 60} | view
    found = topic_view(partitions={0: entry(leader=2, isr=((2, 12),))}, spec={"partitions": count}, **times)
    told = three() if known is None else known
    for broker_id, strays in (listed or {}).items():
        told |= {broker_id: replace(told[broker_id], strays=tuple(strays))}
    for broker_id, held in (holdings or {}).items():
        told |= {broker_id: replace(told[broker_id], holdings=tuple(held))}
    return snapshot(found, brokers=told, brokers_age_s=age_s)


def added(state):
    return next((action for action in plan(state, NOW) if isinstance(action, AddPartitions)), None)


def progressing(state):
    (told,) = [action for action in plan(state, NOW) if isinstance(action, UpdateTopicStatus)]
    return next(condition for condition in told.conditions if condition.type == "Progressing")


def test_a_topic_that_never_had_more_grows_at_once():
    step = added(wants(generation_seen=NOW))
    assert (step.partitions[1].leader_epoch, step.partitions[1].partition_epoch) == (0, 0)
    assert (step.taken_over, step.unclean) == (frozenset(), frozenset())


@pytest.mark.parametrize("how", ["listed", "holdings"])
def test_data_that_brokers_hold_are_taken_over(how):
    one = stray if how == "listed" else holding
    step = added(wants(3, **{how: {2: [one(1, (2, 12), (1, 11))]}}))
    taken, fresh = step.partitions[1], step.partitions[2]
    assert (taken.leader, taken.isr_ids(), taken.replicas[0], len(taken.replicas)) == (2, (2,), 2, 3)
    assert (taken.leader_epoch, taken.partition_epoch) == (2 + AHEAD, 3 + AHEAD)
    assert (fresh.leader_epoch, fresh.partition_epoch) == (2 + AHEAD, 3 + AHEAD)
    assert (step.taken_over, step.unclean) == ({1}, frozenset())
    assert "still held the data of [1]" in step.reason


def test_the_newest_isr_counts_and_not_the_longest_log():
    listed = {0: [stray(1, (0, 10), end=500, epoch=3, leader_epoch=1)], 2: [stray(1, (2, 12), end=100, epoch=7)]}
    assert added(wants(listed=listed)).partitions[1].isr_ids() == (2,)


@pytest.mark.parametrize(
    "other",
    [stray(1, (2, 12), topic_id="another"), stray(0, (2, 12)), stray(5, (2, 12))],
    ids=["of another topic", "of a partition that is there", "of one that nobody wants"],
)
def test_what_is_of_something_else_is_not(other):
    step = added(wants(listed={2: [other]}))
    assert (step.partitions[1].leader_epoch, step.taken_over) == (0, frozenset())


@pytest.mark.parametrize(
    ("view", "why"),
    [
        ({"generation_seen": NOW - ADOPTION_GRACE_S + 1, "listed": {2: [stray(1, (2, 12))]}}, "15 s to tell"),
        ({"partitions_lost_at": NOW - ADOPTION_GRACE_S + 1, "listed": {2: [stray(1, (2, 12))]}}, "15 s to tell"),
        ({"partitions_lost_at": NOW - 1, "epochs_seen": {1: (0, 0)}}, "had partitions [1] before"),
        ({"first_seen": NOW - 5, "generation_seen": NOW - 5}, "whether it had more before"),
    ],
    ids=["the wish is new", "the loss is new", "this observer has seen it", "it came across the wish"],
)
def test_brokers_have_time_to_notice(view, why):
    state = wants(**view)
    assert added(state) is None
    assert progressing(state).reason == "WaitingForBrokers"
    assert why in progressing(state).message


def test_who_came_across_a_wish_waits_no_longer_than_that():
    assert added(wants(first_seen=NOW - 20, generation_seen=NOW - 20)) is not None


@pytest.mark.parametrize("who", ["is down", "is not made yet"])
def test_every_broker_is_waited_for_unless_somebody_accepts_what_it_may_have(who):
    known = three()
    if who == "is down":
        known |= {0: make_broker(0, 10, fenced=10)}
    else:
        del known[0]
    state = wants(listed={2: [stray(1, (2, 12))]}, known=known)
    assert added(state) is None
    assert "brokers [0]" in progressing(state).message
    [view] = state.topics.values()
    step = added(replace(state, topics={view.topic.ref.uid: replace(view, recovery_request="true")}))
    assert (step.taken_over, step.unclean) == ({1}, {1})


@pytest.mark.parametrize("isr", [((0, 10),), ((0, 10), (2, 12))], ids=["alone in sync", "in sync with others"])
def test_who_is_gone_on_without_does_not_lead(isr):
    listed = {0: [stray(1, *isr, end=500)], 1: [stray(1, (1, 11), end=400, epoch=2)], 2: [stray(1, *isr, end=480)]}
    state = wants(listed=listed, known=three() | {0: make_broker(0, 10, fenced=10)}, recovery_request="true")
    step = added(state)
    assert (step.partitions[1].leader, step.partitions[1].isr_ids(), step.unclean) == (2, (2,), {1})
    assert (step.partitions[1].leader_epoch, step.partitions[1].partition_epoch) == (2 + AHEAD, 3 + AHEAD)


def test_what_only_somebody_has_who_is_down_is_kept_for_it():
    listed = {0: [stray(1, (0, 10), end=500)]}
    step = added(wants(listed=listed, known=three() | {0: make_broker(0, 10, fenced=10)}, recovery_request="true"))
    assert (step.partitions[1].isr_ids(), step.taken_over, step.unclean) == ((0,), {1}, {1})


def test_where_nobody_in_sync_has_it_any_more_a_person_decides():
    lost = {"listed": {2: [stray(1, (1, 11))]}, "known": three() | {1: make_broker(1, 30, trusted=30)}}
    state = wants(**lost)
    assert added(state) is None
    assert progressing(state).reason == "InSyncLost"
    assert "partition 1: brokers [1]" in progressing(state).message
    step = added(wants(recovery_request="true", **lost))
    assert (step.partitions[1].isr_ids(), step.unclean) == ((2,), {1})
    assert "recover-store accepts" in step.reason


def test_what_nobody_lists_is_lost_where_a_higher_one_is_known_or_somebody_remembers_it():
    hole = {"listed": {2: [stray(2, (2, 12))]}}
    assert "partition 1: nobody lists it" in progressing(wants(3, **hole)).message
    step = added(wants(3, recovery_request="true", **hole))
    assert (step.taken_over, step.unclean) == ({2}, {1})
    assert step.partitions[1].leader_epoch == 2 + AHEAD
    assert progressing(wants(holdings={2: [holding(1, hosted=False)]})).reason == "InSyncLost"


def test_epochs_are_above_what_this_observer_has_seen_as_well():
    step = added(wants(listed={2: [stray(1, (2, 12))]}, epochs_seen={1: (9, 40)}))
    assert (step.partitions[1].leader_epoch, step.partitions[1].partition_epoch) == (9 + AHEAD, 40 + AHEAD)


def test_what_brokers_list_is_read_after_they_had_time_to_notice():
    listed = {2: [stray(1, (2, 12))]}
    assert added(wants(listed=listed, age_s=60 - ADOPTION_GRACE_S)) is not None
    stale = plan(wants(listed=listed, age_s=60 - ADOPTION_GRACE_S + 1), NOW)
    assert ReadBrokers() in stale
    assert not [action for action in stale if isinstance(action, AddPartitions)]
    assert ReadBrokers() in plan(wants(age_s=61), NOW)
    assert added(wants(age_s=60)) is not None


@pytest.mark.parametrize(
    "view",
    [{"first_seen": NOW - 60}, {"epochs_seen": {1: (3, 3)}, "recovery_request": "true"}],
    ids=["it came across the wish", "this observer has seen it"],
)
def test_so_it_is_where_they_were_waited_for_and_none_has_told_anything(view):
    stale = plan(wants(age_s=60 - ADOPTION_GRACE_S + 1, **view), NOW)
    assert ReadBrokers() in stale
    assert not [action for action in stale if isinstance(action, AddPartitions)]
    assert added(wants(age_s=60 - ADOPTION_GRACE_S, **view)) is not None


def test_the_observer_notes_when_partitions_went():
    before = topic_view(partitions={0: entry(), 1: entry()})
    after = with_times(topic_view(partitions={0: entry()}), before, 50.0)
    assert after.partitions_lost_at == 50.0
    assert with_times(topic_view(partitions={0: entry()}), after, 60.0).partitions_lost_at == 50.0
    assert with_times(before, None, 50.0).partitions_lost_at == float("-inf")


def test_a_volume_with_partitions_that_a_living_topic_lost_is_kept():
    state = wants(listed={2: [stray(1, (2, 12))]})
    assert lost_topics(state, state.brokers[2]) == ["orders"]
    assert "topics that were lost (orders)" in why_kept(state, state.brokers[2])
    running = wants(holdings={2: [holding(0), holding(1)]})
    assert "topics that were lost (orders)" in why_kept(running, running.brokers[2])
    remembers = wants(holdings={2: [holding(0), holding(1, hosted=False)]})
    assert why_kept(remembers, remembers.brokers[2]) == ""
    moved = wants(listed={2: [stray(0, (2, 12))]})
    assert lost_topics(moved, moved.brokers[2]) == []
