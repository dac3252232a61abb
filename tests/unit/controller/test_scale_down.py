"""Fewer brokers: what moves, who is removed and when, and what is told about it."""

from collections import Counter
from dataclasses import replace

import pytest

from kafkalite_core.controller.actions import ChangePartitions, CreateBroker, RemoveBroker
from kafkalite_core.controller.noticing import ADOPTION_GRACE_S
from kafkalite_core.controller.plan import plan
from kafkalite_core.controller.scale_down import wanted_brokers
from kafkalite_core.model.topic import Holding, Stray
from tests.unit.controller.builders import NOW, apply, brokers, entry, make_broker, snapshot, topic_view

FIVE = brokers(*(make_broker(i) for i in range(5)))


def partition(*replicas, isr=None, leader=None, known=FIVE, **more):
    isr = replicas if isr is None else isr
    made = entry(
        leader=isr[0] if leader is None else leader,
        replicas=replicas,
        isr=[(i, known[i].epoch) for i in isr],
    )
    return replace(made, **more)


def cluster(*rows, replicas=3, known=FIVE, wanted=3, config=None, **spec):
    """Five brokers and one topic, `orders`, when `wanted` are asked for."""
    rows = rows or [(n % 5, (n + 1) % 5, (n + 2) % 5) for n in range(10)]
    parts = {n: row if not isinstance(row, tuple) else partition(*row, known=known) for n, row in enumerate(rows)}
    view = topic_view(partitions=parts, spec={"replicas": replicas, **spec})
    return snapshot(view, brokers=known, cluster={"replicas": wanted, "config": config or {}})


def orders(state):
    return state.topics["uid-orders"].topic.partitions


def progressing(state):
    return next(c for c in state.conditions if c.type == "Progressing")


def said_of(state, name="orders"):
    return next(c for c in state.topics[f"uid-{name}"].conditions if c.type == "Progressing")


def scaled(state, wanted):
    return replace(state, cluster=replace(state.cluster, replicas=wanted))


def wish(state, **spec):
    view = state.topics["uid-orders"]
    return replace(state, topics={**state.topics, "uid-orders": replace(view, spec=replace(view.spec, **spec))})


def without(*ids, known=FIVE):
    return {i: b if i not in ids else replace(b, fenced_epoch=b.epoch) for i, b in known.items()}


def caught_up(state):
    """Leaders take in every live replica."""
    topics = {}
    for uid, view in state.topics.items():
        entries = {}
        for number, part in view.topic.partitions.items():
            new = [i for i in part.replicas if i not in part.isr_ids() and state.brokers[i].alive]
            more = tuple(entry(isr=[(i, state.brokers[i].epoch)]).isr[0] for i in new)
            entries[number] = part
            if new and part.has_leader:
                entries[number] = replace(part, isr=part.isr + more, partition_epoch=part.partition_epoch + 1)
        topics[uid] = replace(view, topic=replace(view.topic, partitions=entries))
    return replace(state, topics=topics)


def rounds(state, count=60, *, catch_up=True):
    """Round after round until nothing is left; yields the actions and the state after each."""
    for _ in range(count):
        actions = plan(state, NOW)
        state = apply(state, actions)
        before, state = state, caught_up(state) if catch_up else state
        yield actions, state
        if not actions and before == state:
            return
    raise AssertionError(f"never at rest: {actions}")


def settle(state, **more):
    *_, (_, state) = rounds(state, **more)
    return state


def of(actions, type_):
    return [action for action in actions if isinstance(action, type_)]


# ------------------------------------------------------------------------------------------------ what moves


def test_five_become_three_in_one_edit_and_nothing_is_lost_on_the_way():
    state = cluster()
    removed, seen = [], set()
    for actions, after in rounds(state):
        removed += [action.broker.id for action in of(actions, RemoveBroker)]
        assert len(of(actions, RemoveBroker)) <= 1, "one by one"
        seen.add(progressing(after).reason)
        state = after
    assert removed == [4, 3], "the highest id first"
    assert all(sorted(part.replicas) == [0, 1, 2] == sorted(part.isr_ids()) for part in orders(state).values())
    assert wanted_brokers(state) == [0, 1, 2]
    assert seen == {"ScalingDown", "Stable"}
    assert Counter(part.replicas[0] for part in orders(state).values()).most_common(1)[0][1] <= 4


def test_replicas_spread_evenly_over_racks_and_those_who_stay():
    racks = {i: make_broker(i, rack="aabbab"[i]) for i in range(6)}
    rows = [(n % 2, 2 + n % 2, 4 + n % 2) for n in range(8)]
    state = settle(cluster(*[partition(*row[::2], known=racks) for row in rows], replicas=2, known=racks, wanted=4))
    counts = Counter(i for part in orders(state).values() for i in part.replicas)
    assert max(counts.values()) - min(counts.values()) <= 1, counts
    names = {i: racks[i].registration.rack for i in racks}
    assert all(len({names[i] for i in part.replicas}) == 2 for part in orders(state).values())


def test_leaders_are_handed_over_before_anything_is_copied():
    state = cluster((4, 0, 1), (0, 1, 4))
    actions = of(plan(state, NOW), ChangePartitions)
    first = actions[0].changes[0].proposed
    assert (first.leader, first.replicas, first.isr) == (0, (4, 0, 1), orders(state)[0].isr)
    assert first.leader_epoch == orders(state)[0].leader_epoch + 1
    assert 0 in actions[0].elected
    assert "leader 4 leaves the cluster; broker 0 is in sync and stays" in actions[0].reasons[0]


def test_a_leader_without_anybody_else_in_sync_leads_until_the_move_is_over():
    state = cluster((4,), replicas=1)
    state = apply(state, plan(state, NOW))
    part = orders(state)[0]
    assert (part.leader, part.removing, part.isr_ids()) == (4, (4,), (4,))
    part = orders(settle(state))[0]
    assert part.leader in (0, 1, 2)
    assert part.replicas == (part.leader,)


def test_the_leadership_is_not_given_back():
    state = cluster((4, 0, 1), (4, 1, 0), (4, 2, 0), config={"kafkalite.reassignment.partitions.max": "1"})
    state = apply(state, plan(state, NOW))
    assert all(part.leader != 4 for part in orders(state).values())
    waiting = [n for n, part in orders(state).items() if part.replicas[0] == 4]
    asked = replace(state.topics["uid-orders"], elect_preferred=frozenset(waiting), elections={"e": "all"})
    balanced = replace(state, balance_due=True, topics={"uid-orders": asked})
    for actions, after in rounds(balanced):
        assert all(part.leader != 4 for part in orders(after).values()), actions
    assert not after.topics["uid-orders"].elections, "what cannot be done is not kept for ever"


def test_only_so_many_partitions_are_copied_at_once():
    state = cluster(config={"kafkalite.reassignment.partitions.max": "2"})
    most = 0
    for _, after in rounds(state):
        most = max(most, sum(bool(part.adding) for part in orders(after).values()))
    assert most == 2
    assert sorted(after.brokers) == [0, 1, 2]


def test_new_replicas_do_not_go_to_a_broker_that_leaves():
    state = cluster((0, 1), (1, 2), replicas=2, wanted=3)
    new = topic_view("new", spec={"replicas": 3, "partitions": 4})
    state = replace(state, topics={**state.topics, new.topic.ref.uid: new})
    state = settle(wish(state, replicas=3, partitions=5))
    for view in state.topics.values():
        assert all(set(part.replicas) == {0, 1, 2} for part in view.topic.partitions.values())


def test_fewer_replicas_and_fewer_brokers_at_once_copy_nothing_needless():
    state = cluster((0, 1, 3, 4), (4, 3, 2, 1), replicas=4, wanted=5)
    state = wish(scaled(state, 3), replicas=2)
    for actions, after in rounds(state):
        assert not any(part.adding for part in orders(after).values()), actions
    assert {n: set(part.replicas) for n, part in orders(after).items()} == {0: {0, 1}, 1: {1, 2}}


def test_a_broker_that_is_down_leaves_as_well_when_others_hold_its_records():
    state = settle(cluster(known=without(4)), count=80)
    assert sorted(state.brokers) == [0, 1, 2]


def test_the_last_copy_is_waited_for():
    known = without(4)
    lost = partition(4, 0, isr=(4,), leader=-1)
    state = settle(cluster(lost, (0, 1), replicas=2, known=known))
    assert (orders(state)[0].isr, orders(state)[0].leader) == (lost.isr, -1)
    assert sorted(state.brokers) == [0, 1, 2, 3, 4]
    assert (progressing(state).status, progressing(state).reason) == ("True", "ScalingDown")
    assert "1 replica left on broker 4" in progressing(state).message
    state = settle(replace(state, brokers=FIVE))
    assert sorted(state.brokers) == [0, 1, 2]


def test_an_empty_broker_below_one_that_is_not_empty_waits():
    paused = replace(topic_view("held", partitions={0: partition(4, 0)}, spec={"replicas": 2}), paused=True)
    state = cluster((0, 1, 3))
    state = settle(replace(state, topics={**state.topics, "uid-held": paused}))
    assert sorted(state.brokers) == [0, 1, 2, 3, 4]
    assert state.replicas_held()[3] == 0
    assert wanted_brokers(state) == [0, 1, 2, 3, 4]
    assert "paused, and not moved before kafkalite.io/paused is removed: held" in progressing(state).message


def test_stand_ins_wait_for_brokers_that_can_take_replicas():
    known = {**without(1), 2: replace(FIVE[2], cordoned=True)}
    state = settle(cluster((0, 4), replicas=2, known=known))
    assert orders(state)[0].replicas == (0, 4)
    assert "broker 4 leaves, and no other broker that runs and is not cordoned" in said_of(state).message
    assert said_of(state).status == "True"


# ------------------------------------------------------------------------------------------------ who is removed


def test_a_missing_object_of_a_broker_with_replicas_is_made_again():
    state = cluster((0, 1, 4), known=FIVE)
    state = replace(state, brokers={i: FIVE[i] for i in range(3)})
    assert {a.broker_id for a in of(plan(state, NOW), CreateBroker)} == {3, 4}
    assert not of(plan(state, NOW), RemoveBroker)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"complete": False}, "some topic cannot be read"),
        ({"holding": True}, "knows more of some partitions than the store shows"),
        ({"paused": True}, "kafkalite.io/paused"),
    ],
)
def test_an_empty_broker_is_kept_while_something_speaks_against_it(changes, words):
    state = cluster((0, 1, 2), wanted=4)
    known = dict(state.brokers)
    if changes.get("holding"):
        lost = Holding(
            topic="t", topic_id="x", partition=0, leader_epoch=1, partition_epoch=1, log_epoch=1, end_offset=9
        )
        known[4] = replace(known[4], holdings=(lost,))
    state = replace(state, brokers=known, complete=changes.get("complete", True))
    state = replace(state, cluster=replace(state.cluster, paused=changes.get("paused", False)))
    state = settle(state)
    assert sorted(state.brokers) == [0, 1, 2, 3, 4]
    assert wanted_brokers(state) == [0, 1, 2, 3, 4]
    assert words in progressing(state).message


def again(**more):
    """An empty broker that leaves, and a topic that was lost, made again, and not placed yet."""
    state = cluster((0, 1, 2), wanted=4)
    lost = Stray(topic="lost", topic_id="l", partition=0, leader_epoch=4, partition_epoch=4, log_epoch=4, end_offset=9)
    holders = more.pop("holders", (0, 4))
    known = {i: replace(broker, strays=(lost,) if i in holders else ()) for i, broker in state.brokers.items()}
    view = topic_view("lost", **{"first_seen": NOW, **more})
    return replace(state, brokers=known, topics={**state.topics, view.topic.ref.uid: view})


@pytest.mark.parametrize(
    "held",
    [
        {"holders": (0, 1, 2, 3, 4)},  # adopted in this very plan
        {"holders": (4,)},
        {"holders": (0,)},  # broker 4 may not have heard of the loss yet
        {"holders": (), "left_by": frozenset({4})},
    ],
)
def test_a_broker_is_not_removed_before_a_lost_topic_has_taken_over_what_it_holds(held):  # S10
    state = again(**held)
    assert not of(plan(state, NOW), RemoveBroker)
    assert wanted_brokers(state) == [0, 1, 2, 3, 4]
    waiting = apply(again(holders=(0,)), plan(again(holders=(0,)), NOW))
    assert "broker 4 may hold data that lost will take over as soon as it is placed" in progressing(waiting).message
    later = NOW + ADOPTION_GRACE_S
    state = replace(state, leases={i: replace(lease, changed_at=later) for i, lease in state.leases.items()})
    for _ in range(40):
        state = caught_up(apply(state, plan(state, later)))
    assert state.topics["uid-lost"].topic.ref.topic_id == ("l" if held["holders"] else "fresh")
    assert sorted(state.brokers) == [0, 1, 2, 3], "what it held has moved, and it goes"


@pytest.mark.parametrize("why", [{"adopt_strays": False, "left_by": frozenset({4})}, {"holders": ()}])
def test_a_topic_that_takes_nothing_over_holds_no_broker_up(why):
    (action,) = of(plan(again(**why), NOW), RemoveBroker)
    assert action.broker.id == 4


def test_nor_does_one_that_is_being_deleted():
    state = again()
    view = state.topics["uid-lost"]
    gone = replace(view, topic=replace(view.topic, deleting=True))
    assert of(plan(replace(state, topics={**state.topics, "uid-lost": gone}), NOW), RemoveBroker)


def test_what_a_deleted_cluster_leaves_is_left_to_the_garbage_collector():
    state = cluster((0, 1, 2), wanted=4)
    assert of(plan(state, NOW), RemoveBroker)
    assert not of(plan(replace(state, cluster=replace(state.cluster, deleting=True)), NOW), RemoveBroker)


def test_the_volume_of_a_removed_broker_may_hold_what_no_topic_claims():
    def stray(topic, topic_id, **more):
        return Stray(
            topic=topic, topic_id=topic_id, partition=0, leader_epoch=1, partition_epoch=1, end_offset=1, **more
        )

    strays = (stray("orders", "id"), stray("gone", "g", deleted=True), stray("lost", "l"), stray("lost", "l"))
    known = {**FIVE, 4: replace(FIVE[4], strays=strays)}
    (action,) = of(plan(cluster((0, 1, 2), wanted=4, known=known), NOW), RemoveBroker)
    assert action.unclaimed == "it has data of topics that were lost (lost)"


def test_objects_that_an_earlier_version_kept_are_removed():
    state = settle(cluster((0, 1, 2)))
    assert sorted(state.brokers) == [0, 1, 2]


# ------------------------------------------------------------------------------------------------ what cannot be


def test_topics_with_more_replicas_than_brokers_would_stay_are_named_and_nothing_moves():
    state = cluster((0, 1, 2, 3), (3, 4, 0, 1), replicas=4, wanted=5)
    narrow = topic_view("narrow", partitions={0: partition(4, 0)}, spec={"replicas": 2})
    state = replace(state, topics={**state.topics, "uid-narrow": narrow})
    state = settle(scaled(state, 3))
    assert [part.replicas for part in orders(state).values()] == [(0, 1, 2, 3), (3, 4, 0, 1)]
    assert state.topics["uid-narrow"].topic.partitions[0].replicas == (4, 0), "nothing moves at all"
    told = progressing(state)
    assert (told.status, told.reason) == ("False", "NotEnoughBrokers")
    assert "brokers 3, 4 cannot leave" in told.message
    assert "orders (4)" in told.message
    assert "narrow" not in told.message
    assert "set spec.replicas of the cluster to 4" in told.message
    state = settle(wish(state, replicas=3))
    assert sorted(state.brokers) == [0, 1, 2]


def test_a_topic_that_only_wishes_for_too_many_replicas_holds_nobody_up():
    state = settle(wish(cluster((0, 1, 2)), replicas=4))
    assert sorted(state.brokers) == [0, 1, 2]
    assert said_of(state).reason == "NotEnoughBrokers"


# ------------------------------------------------------------------------------------------------ a change of mind


def half_way(*rows, **more):
    """The moves have begun, and no replica has caught up."""
    state = cluster(*rows, **more)
    return settle(state, catch_up=False)


def test_raising_the_number_again_takes_the_moves_back():
    state = half_way((0, 3, 4), (4, 1, 0))
    assert all(part.adding and part.removing for part in orders(state).values())
    state = settle(scaled(state, 5))
    assert {n: set(part.replicas) for n, part in orders(state).items()} == {0: {0, 3, 4}, 1: {0, 1, 4}}
    assert not any(part.adding or part.removing for part in orders(state).values())
    assert progressing(state).reason == "Stable"


def test_raising_it_by_one_takes_back_only_what_is_wanted_again():
    state = settle(scaled(half_way((0, 3, 4)), 4))
    assert set(orders(state)[0].replicas) - {0, 3} in ({1}, {2})
    assert sorted(state.brokers) == [0, 1, 2, 3]


def test_a_block_in_the_middle_leaves_what_moves_alone():
    state = half_way((0, 3, 4))
    wide = topic_view("wide", partitions={0: partition(0, 1, 2, 4)}, spec={"replicas": 4})
    before = orders(state)
    state = settle(replace(state, topics={**state.topics, "uid-wide": wide}), catch_up=False)
    assert orders(state) == before


# ------------------------------------------------------------------------------------------------ lists


def test_others_stand_in_for_brokers_that_a_list_names_until_they_come_back():
    lists = {0: (4, 3), 1: (1, 4), 2: (4, 0)}
    state = settle(cluster((4, 3), (1, 4), (4, 0), (0, 1), replicas=2, replica_assignment=lists))
    assert set(orders(state)[0].replicas) < {0, 1, 2}
    assert (orders(state)[1].replicas[0], orders(state)[2].replicas[1]) == (1, 0), "they take its place in the list"
    assert sorted(state.brokers) == [0, 1, 2]
    assert said_of(state).reason == "Stable"
    assert "names brokers [3, 4], and the cluster has 3: others stand in for them" in said_of(state).message
    grown = replace(scaled(state, 5), brokers=FIVE)
    assert {n: orders(settle(grown))[n].replicas for n in lists} == lists


def test_a_list_of_brokers_that_all_leave():
    state = settle(cluster((4, 3), replicas=2, replica_assignment={0: (4, 3)}))
    assert set(orders(state)[0].replicas) < {0, 1, 2}
    assert said_of(state).reason == "Stable"


def test_who_leaves_does_not_stand_in_for_another_one():
    state = settle(cluster((4,), replicas=1, replica_assignment={0: (3,)}))
    assert set(orders(state)[0].replicas) < {0, 1, 2}
    assert sorted(state.brokers) == [0, 1, 2]


def test_a_list_that_names_who_has_left_keeps_nobody_from_leaving():
    state = cluster((3, 0), replicas=1, replica_assignment={0: (4,)}, known={i: FIVE[i] for i in range(4)})
    state = settle(state)
    assert orders(state)[0].replicas == (0,)
    assert sorted(state.brokers) == [0, 1, 2]


def test_a_list_that_names_who_left_long_ago_is_to_be_corrected():
    state = wish(settle(cluster((0, 1, 2))), replica_assignment={0: (2, 1, 4)})
    before = orders(state)
    state = settle(state)
    assert orders(state) == before
    assert (said_of(state).reason, said_of(state).status) == ("InvalidReplicaAssignment", "False")
    assert "unknown brokers [4]" in said_of(state).message


def test_a_new_partition_is_not_placed_on_a_broker_that_leaves():
    state = settle(cluster((0, 1), (1, 0, 4), replicas=2, partitions=3, replica_assignment={2: (0, 4)}, wanted=4))
    assert 2 not in orders(state)
    assert "names brokers [4], and the cluster has 4" in said_of(state).message


# ------------------------------------------------------------------------------------------------ at rest


def test_a_cluster_that_does_not_shrink_plans_as_before():
    state = settle(cluster(wanted=5))
    assert state.brokers == FIVE
    assert plan(state, NOW) == []
    assert (state.brokers_ready, state.brokers_total) == (5, 5)
