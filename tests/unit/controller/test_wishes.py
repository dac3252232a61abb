"""Elections by annotation, topics that were deleted on purpose, and placement while a broker is down."""

from dataclasses import replace

import pytest

from kafkalite_core.controller.actions import (
    AddPartitions,
    ChangePartitions,
    CompleteElections,
    CreateTopicStatus,
    UpdateTopicStatus,
)
from kafkalite_core.controller.noticing import ADOPTION_GRACE_S
from kafkalite_core.controller.plan import plan
from kafkalite_core.model.cluster import BrokerState
from kafkalite_core.model.topic import Stray
from tests.unit.controller.builders import NOW, apply, brokers, entry, make_broker, snapshot, three, topic_view


def of(actions, kind):
    return [action for action in actions if isinstance(action, kind)]


def asked(partitions, *, preferred=(), unclean=(), **more):
    requests = {
        f"elect-{n}": ",".join(map(str, numbers)) for n, numbers in (("p", preferred), ("u", unclean)) if numbers
    }
    return topic_view(
        partitions=partitions,
        elections=requests,
        elect_preferred=frozenset(preferred),
        elect_unclean=frozenset(unclean),
        unclean_request=requests.get("elect-u", ""),
        **more,
    )


LED_BY_1 = entry(leader=1)
LEADERLESS = entry(leader=-1, isr=((0, 10),))


def settle(state, rounds=10):
    for _ in range(rounds):
        actions = plan(state, NOW)
        if not actions:
            return state
        state = apply(state, actions)
    raise AssertionError("never at rest")


def test_the_preferred_leader_is_elected_on_request_and_the_request_is_removed():
    state = snapshot(asked({0: LED_BY_1, 1: LED_BY_1}, preferred=[1]))
    (change,) = of(plan(state, NOW), ChangePartitions)
    assert set(change.changes) == {1}, "only what was asked for"
    assert (change.changes[1].proposed.leader, change.elected) == (0, {1})
    assert not of(plan(state, NOW), CompleteElections), "not before the election is there"
    state = apply(state, plan(state, NOW))
    (done,) = of(plan(state, NOW), CompleteElections)
    assert (done.possible, dict(done.requests)) == (True, {"elect-p": "1"})
    state = settle(state)
    assert not state.topics["uid-orders"].elections


def test_automatic_balancing_may_be_off():
    state = snapshot(asked({0: LED_BY_1}, preferred=[0]), cluster={"config": {"auto.leader.rebalance.enable": "false"}})
    assert settle(state).topics["uid-orders"].topic.partitions[0].leader == 0


def test_a_preferred_leader_that_is_not_in_sync_is_not_elected_and_the_event_says_why():
    behind = entry(leader=1, isr=((1, 11), (2, 12)))
    state = snapshot(asked({0: behind}, preferred=[0]))
    assert not of(plan(state, NOW), ChangePartitions)
    (done,) = of(plan(state, NOW), CompleteElections)
    assert not done.possible
    assert "partition 0" in done.reason
    assert "not in sync" in done.reason


def test_an_unclean_election_on_request_needs_a_partition_without_leader():
    state = snapshot(
        asked({0: LED_BY_1, 1: LEADERLESS}, unclean=[0, 1]), brokers=three() | {0: make_broker(0, fenced=10)}
    )
    (change,) = of(plan(state, NOW), ChangePartitions)
    assert change.unclean == {1}
    assert change.changes[1].proposed.leader == 1
    assert change.consent == "0,1", "the patch tests the annotation"
    assert set(change.changes) == {1}, "elections go first"
    rest = settle(state).topics["uid-orders"]
    assert not rest.elections
    assert rest.topic.partitions[0].leader == 1, "where there is a leader it stays"
    assert rest.topic.partitions[0].leader_epoch == LED_BY_1.leader_epoch
    assert rest.topic.partitions[0].isr_ids() == (1, 2)
    assert rest.topic.partitions[1].leader == 1


def test_an_unclean_election_comes_after_the_partition_was_declared_offline():
    lone = entry(leader=0, isr=((0, 10),))
    state = snapshot(asked({0: lone}, unclean=[0]), brokers=three() | {0: make_broker(0, fenced=10)})
    (change,) = of(plan(state, NOW), ChangePartitions)
    assert (change.changes[0].proposed.leader, change.unclean) == (-1, frozenset())
    assert settle(state).topics["uid-orders"].topic.partitions[0].leader == 1


def test_without_a_request_nobody_unclean_is_elected():
    state = snapshot(topic_view(partitions={0: LEADERLESS}), brokers=three() | {0: make_broker(0, fenced=10)})
    assert not of(plan(state, NOW), ChangePartitions)


def test_an_unclean_election_that_the_configuration_allows_needs_no_annotation():
    view = topic_view(partitions={0: LEADERLESS}, spec={"config": {"unclean.leader.election.enable": "true"}})
    (change,) = of(plan(snapshot(view, brokers=three() | {0: make_broker(0, fenced=10)}), NOW), ChangePartitions)
    assert (change.unclean, change.consent) == ({0}, "")


def test_an_unclean_election_with_nobody_alive_is_told_and_given_up():
    dead = brokers(*(make_broker(i, fenced=10 + i) for i in range(3)))
    (done,) = of(plan(snapshot(asked({0: LEADERLESS}, unclean=[0]), brokers=dead), NOW), CompleteElections)
    assert "no replica is running" in done.reason


def test_a_request_on_a_topic_without_partitions_is_removed():
    (done,) = of(plan(snapshot(asked({}, preferred=[])), NOW), CompleteElections) or [None]
    assert done is None
    view = replace(topic_view(), elections={"elect-p": "all"})
    (done,) = of(plan(snapshot(view), NOW), CompleteElections)
    assert done.possible


# ------------------------------------------------------------------------------------------------- deleted topics


def stray(*, deleted, topic_id="old", topic="orders"):
    return Stray(
        topic=topic, topic_id=topic_id, partition=0, leader_epoch=4, partition_epoch=7, end_offset=9, deleted=deleted
    )


def holding(*rows):
    return brokers(*(make_broker(i, strays=tuple(strays)) for i, strays in enumerate(rows)))


def adopted(view, known):
    (action,) = of(plan(snapshot(view, brokers=known), NOW), CreateTopicStatus)
    return action.topic_id


GIVEN_UP = holding([stray(deleted=True)], [stray(deleted=True)], [])
HALF_SEEN = holding([stray(deleted=True)], [stray(deleted=False)], [stray(deleted=False)])
LOST = holding([stray(deleted=False)], [stray(deleted=False)], [])


@pytest.mark.parametrize(
    ("wish", "known", "topic_id"),
    [
        pytest.param(None, GIVEN_UP, "", id="deleted: begins empty"),
        pytest.param(None, HALF_SEEN, "", id="one broker that saw the deletion is enough"),
        pytest.param(None, LOST, "old", id="lost: taken over"),
        pytest.param(True, GIVEN_UP, "old", id="deleted, and wanted back"),
        pytest.param(False, LOST, "", id="lost, and not wanted back"),
        pytest.param(None, holding([stray(deleted=True)], [stray(deleted=False, topic_id="other")], []), "other",
                     id="another topic of that name was lost"),
        pytest.param(None, holding([stray(deleted=True, topic="else")], [stray(deleted=False)], []), "old",
                     id="another name"),
        pytest.param(None, holding([stray(deleted=False, topic="else")], [stray(deleted=False, topic="then")], []), "",
                     id="other names were lost"),
    ],
)  # fmt: skip
def test_which_data_a_new_topic_takes_over(wish, known, topic_id):
    assert adopted(topic_view(adopt_strays=wish), known) == topic_id


def test_of_several_deleted_topics_the_one_that_is_asked_for_is_taken_over():
    older = replace(stray(deleted=True, topic_id="older"), leader_epoch=2)
    known = holding([stray(deleted=True), older], [older], [])
    assert adopted(topic_view(adopt_strays=True), known) == "old", "the one that came furthest"
    assert adopted(topic_view(adopt_strays=True, adopt_topic_id="older"), known) == "older"


@pytest.mark.parametrize("other", ["earlier", "sooner"])
def test_of_several_lost_topics_one_is_taken_over_and_nothing_of_the_others(other):
    more = replace(
        stray(deleted=False, topic_id=other), leader_epoch=2, log_epoch=8, end_offset=900, partition_epoch=70
    )
    (action,) = of(
        plan(snapshot(topic_view(), brokers=holding([stray(deleted=False)], [more], [])), NOW), CreateTopicStatus
    )
    assert (action.topic_id, action.partitions[0].isr_ids()) == ("old", (0,))
    assert action.partitions[0].partition_epoch == 1007


@pytest.mark.parametrize("listed", [True, False])
def test_who_asks_for_data_that_nobody_has_does_not_get_others_nor_none(listed):
    others = [stray(deleted=False, topic=topic, topic_id=f"id of {topic}") for topic in ("else", "then")]
    known = holding([stray(deleted=True), *others], [stray(deleted=True)], []) if listed else holding([], others, [])
    view = topic_view(adopt_strays=True, adopt_topic_id="perhaps", first_seen=NOW - ADOPTION_GRACE_S)
    actions = plan(snapshot(view, brokers=known), NOW)
    assert not of(actions, CreateTopicStatus)
    said = str(actions)
    assert "NothingToAdopt" in said
    assert f"of this name they list {'old' if listed else 'none'}." in said


def test_a_topic_that_begins_empty_says_what_is_left():
    (action,) = of(plan(snapshot(topic_view(), brokers=GIVEN_UP), NOW), CreateTopicStatus)
    assert "begins empty" in action.reason


def test_a_deleted_topic_does_not_make_the_next_one_wait_for_absent_brokers():
    known = {**GIVEN_UP, 2: make_broker(2, fenced=12, strays=(stray(deleted=False),))}
    assert adopted(topic_view(), known) == ""


def test_the_offsets_topic_never_grows():
    view = topic_view("__consumer_offsets", partitions={0: entry()}, spec={"partitions": 3})
    actions = plan(snapshot(view), NOW)
    assert not of(actions, AddPartitions)
    (status,) = of(actions, UpdateTopicStatus)
    progressing = next(c for c in status.conditions if c.type == "Progressing")
    assert (progressing.status, progressing.reason) == ("False", "NotSupported")
    assert of(plan(snapshot(topic_view("__consumer_offsets", spec={"partitions": 3})), NOW), CreateTopicStatus)


# ------------------------------------------------------------------------------------------ placement, one broker down


def test_a_new_topic_does_not_wait_for_a_broker_that_is_down():
    known = three() | {1: make_broker(1, fenced=11)}
    (action,) = of(plan(snapshot(topic_view(spec={"partitions": 4}), brokers=known), NOW), CreateTopicStatus)
    for placed in action.partitions.values():
        assert sorted(placed.replicas) == [0, 1, 2]
        assert set(placed.isr_ids()) == {0, 2}
        assert placed.leader in {0, 2}


def test_brokers_that_are_down_are_used_only_when_the_others_do_not_suffice():
    known = three() | {1: make_broker(1, fenced=11)}
    view = topic_view(spec={"partitions": 4, "replicas": 2})
    (action,) = of(plan(snapshot(view, brokers=known), NOW), CreateTopicStatus)
    assert all(sorted(placed.replicas) == [0, 2] for placed in action.partitions.values())


@pytest.mark.parametrize(
    "absent",
    [
        pytest.param(make_broker(1, fenced=11, cordoned=True), id="cordoned"),
        pytest.param(make_broker(1, state=BrokerState.CATCHING_UP), id="starting"),
    ],
)
def test_a_cordoned_broker_is_no_place_and_a_starting_one_is_waited_for(absent):
    state = snapshot(topic_view(first_seen=NOW - 1), brokers=three() | {1: absent})
    assert not of(plan(state, NOW), CreateTopicStatus)
