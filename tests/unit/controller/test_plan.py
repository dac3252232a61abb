from dataclasses import replace

import pytest

from kafkalite_core.controller.actions import (
    AddPartitions,
    ChangePartitions,
    CreateBroker,
    CreateTopicStatus,
    Fence,
    ReadBrokers,
    UpdateClusterStatus,
    UpdateTopicStatus,
)
from kafkalite_core.controller.noticing import ADOPTION_GRACE_S
from kafkalite_core.controller.plan import BROKERS_FRESH_S, plan
from kafkalite_core.controller.snapshot import LeaseView
from kafkalite_core.model.topic import Condition, Holding, Stray
from tests.unit.controller.builders import NOW, apply, brokers, entry, make_broker, snapshot, three, topic_view


def of(actions, kind):
    return [action for action in actions if isinstance(action, kind)]


def settle(state, now=NOW, rounds=8):
    for _ in range(rounds):
        actions = plan(state, now)
        if not actions:
            return state
        state = apply(state, actions)
    raise AssertionError("no fixed point")


def conditions(state, name="orders"):
    return {c.type: c for c in state.topics[f"uid-{name}"].conditions}


def test_fence_comes_before_the_election():  # R15
    state = snapshot(topic_view(partitions={0: entry()}), exits={(0, "inc-0-10"): "killed"})
    first = plan(state, NOW)
    assert all(isinstance(action, Fence) for action in first)
    second = plan(apply(state, first), NOW)
    assert of(second, ChangePartitions)[0].changes[0].proposed.leader == 1


def test_elections_of_a_topic_go_without_what_the_other_leaders_do_themselves():
    """In one patch an election would be refused because the leader of another partition was faster."""
    state = snapshot(
        topic_view(partitions={0: entry(), 1: entry(leader=1), 2: entry()}),
        brokers=three() | {0: make_broker(0, fenced=10)},
    )
    (election,) = of(plan(state, NOW), ChangePartitions)
    assert (set(election.changes), election.elected) == ({0, 2}, {0, 2})
    after = apply(state, [election])
    (rest,) = of(plan(after, NOW), ChangePartitions)
    assert (set(rest.changes), rest.elected) == ({1}, set())
    assert rest.changes[1].proposed.isr_ids() == (1, 2)
    assert not of(plan(apply(after, [rest]), NOW), ChangePartitions)


def test_a_new_topic_is_placed_on_all_brokers():
    state = settle(snapshot(topic_view(spec={"partitions": 3})))
    entries = state.topics["uid-orders"].topic.partitions
    assert sorted(e.leader for e in entries.values()) == [0, 1, 2]
    assert all(e.isr_ids() == e.replicas and e.leader_epoch == 0 for e in entries.values())
    assert conditions(state)["Ready"].status == "True"
    assert conditions(state)["Healthy"].status == "True"


def test_a_new_topic_waits_for_starting_brokers_but_not_for_ever():
    view = topic_view(spec={"replicas": 2}, first_seen=NOW)
    state = snapshot(view, brokers=brokers(make_broker(0), make_broker(1)))
    assert not of(plan(state, NOW), CreateTopicStatus)
    assert of(plan(state, NOW + 11), CreateTopicStatus)


def test_missing_broker_objects_are_made():
    assert {a.broker_id for a in of(plan(snapshot(brokers={}), NOW), CreateBroker)} == {0, 1, 2}


def test_for_a_cluster_that_is_being_deleted_nothing_is_made():
    state = snapshot(brokers={})
    assert not of(plan(replace(state, cluster=replace(state.cluster, deleting=True)), NOW), CreateBroker)


def test_brokers_with_replicas_are_kept_when_the_cluster_shrinks():
    state = settle(snapshot(topic_view(partitions={0: entry()}), cluster={"replicas": 2}))
    progressing = next(c for c in state.conditions if c.type == "Progressing")
    assert (progressing.status, progressing.reason) == ("False", "NotEnoughBrokers")
    assert "broker 2 cannot leave" in progressing.message
    assert sorted(state.brokers) == [0, 1, 2]


def test_growth_continues_the_placement():
    view = topic_view(partitions={0: entry()}, spec={"partitions": 3})
    added = of(plan(snapshot(view), NOW), AddPartitions)[0].partitions
    assert {e.leader for e in added.values()} == {1, 2}


def test_growth_and_placement_wait_while_paused_but_elections_do_not():
    view = topic_view(partitions={0: entry()}, spec={"partitions": 3}, paused=True)
    state = snapshot(view, brokers=three() | {0: make_broker(0, fenced=10)})
    actions = plan(state, NOW)
    assert of(actions, ChangePartitions)
    state = settle(state)
    assert len(state.topics["uid-orders"].topic.partitions) == 1
    assert conditions(state)["ReconciliationPaused"].status == "True"


def test_too_many_replicas_is_a_condition():
    state = settle(snapshot(topic_view(spec={"replicas": 5})))
    assert conditions(state)["Ready"].reason == "NotEnoughBrokers"
    assert "lower spec.replicas" in conditions(state)["Ready"].message


def test_bad_configuration_stops_a_new_topic_and_marks_an_old_one():
    new = settle(snapshot(topic_view(spec={"config": {"min.insync.replicas": "4"}})))
    assert conditions(new)["Ready"].reason == "InvalidConfig"
    old = settle(snapshot(topic_view(partitions={0: entry()}, spec={"config": {"nonsense": "1"}})))
    assert (conditions(old)["Ready"].status, conditions(old)["Healthy"].reason) == ("True", "InvalidConfig")


def test_the_oldest_object_has_the_name():
    older = topic_view("orders", uid="uid-a", created="2026-01-01T00:00:00Z")
    younger = topic_view("orders", uid="uid-b", created="2026-01-02T00:00:00Z")
    state = settle(snapshot(older, younger))
    assert state.topics["uid-a"].placed
    assert not state.topics["uid-b"].placed
    assert {c.type: c.reason for c in state.topics["uid-b"].conditions}["Ready"] == "ResourceConflict"


def test_more_than_256_partitions_are_refused():
    state = settle(snapshot(topic_view(spec={"partitions": 257})))
    assert conditions(state)["Ready"].reason == "TooManyPartitions"


def test_manual_assignment():
    assignment = {0: (2, 0), 1: (1, 9)}
    bad = settle(snapshot(topic_view(spec={"partitions": 2, "replica_assignment": assignment})))
    assert conditions(bad)["Ready"].reason == "InvalidReplicaAssignment"
    good = settle(snapshot(topic_view(spec={"partitions": 2, "replicas": 2, "replica_assignment": {0: (2, 0)}})))
    assert good.topics["uid-orders"].topic.partitions[0].replicas == (2, 0)


def test_preferred_leaders_come_back_when_the_balance_is_due():
    view = topic_view(partitions={0: entry(leader=1), 1: entry(leader=1, replicas=(1, 2, 0))})
    assert not of(plan(snapshot(view), NOW), ChangePartitions)
    (action,) = of(plan(snapshot(view, balance_due=True), NOW), ChangePartitions)
    assert {n: c.proposed.leader for n, c in action.changes.items()} == {0: 0}
    off = {"auto.leader.rebalance.enable": "false"}
    assert not of(plan(snapshot(view, balance_due=True, cluster={"config": off}), NOW), ChangePartitions)
    lazy = {"leader.imbalance.per.broker.percentage": "100"}
    assert not of(plan(snapshot(view, balance_due=True, cluster={"config": lazy}), NOW), ChangePartitions)


def stray(broker_id, leader_epoch, end, partition=0, topic_id="old"):
    return Stray(
        topic="orders",
        topic_id=topic_id,
        partition=partition,
        leader_epoch=leader_epoch,
        partition_epoch=7,
        end_offset=end,
    )


def with_strays(absent=()):
    held = {0: (stray(0, 4, 90),), 1: (stray(1, 4, 100),), 2: (stray(2, 3, 500),)}
    return brokers(*(make_broker(i, strays=strays, fenced=10 + i if i in absent else -1) for i, strays in held.items()))


def test_a_topic_without_status_adopts_the_strays_of_its_name():  # S10
    state = settle(snapshot(topic_view(), brokers=with_strays()))
    view = state.topics["uid-orders"]
    adopted = view.topic.partitions[0]
    assert view.topic.ref.topic_id == "old"
    assert (adopted.leader, adopted.isr_ids()) == (1, (1,)), "the greatest (epoch, end) leads alone"
    assert (adopted.leader_epoch, adopted.partition_epoch) == (1004, 1007), "above all that the disks know"
    assert set(adopted.replicas) == {0, 1, 2}


def test_of_those_who_are_behind_the_furthest_stay_replicas():  # S10
    held = [(stray(0, 3, 500),), (stray(1, 4, 100),), (stray(2, 4, 90),), (stray(3, 3, 10),), (stray(4, 4, 100),)]
    known = brokers(*(make_broker(i, strays=strays) for i, strays in enumerate(held)))
    state = snapshot(topic_view(spec={"replicas": 4}), brokers=known, cluster={"replicas": 5})
    (action,) = of(plan(state, NOW), CreateTopicStatus)
    adopted = action.partitions[0]
    assert adopted.replicas == (1, 4, 2, 0), "there is less to copy"
    assert (adopted.leader, adopted.isr_ids()) == (1, (1, 4)), "the preferred one"


def test_what_is_taken_over_is_copied_to_those_who_have_the_fewest_replicas_and_take_more():  # S10
    lost = tuple(replace(stray(0, 4, 90), partition=number) for number in range(2))
    known = brokers(*(make_broker(i, strays=() if i else lost, cordoned=i == 1) for i in range(4)))
    new = topic_view(spec={"partitions": 2, "replicas": 2}, first_seen=NOW - ADOPTION_GRACE_S)
    (action,) = of(plan(snapshot(new, brokers=known, cluster={"replicas": 4}), NOW), CreateTopicStatus)
    assert {number: entry.replicas for number, entry in action.partitions.items()} == {0: (0, 2), 1: (0, 3)}


def test_who_heard_of_an_epoch_and_did_not_fetch_in_it_reaches_no_further():  # S10
    told = replace(stray(0, 9, 500), log_epoch=3)
    led = replace(stray(1, 9, 100), log_epoch=10)
    held = brokers(make_broker(0, strays=(told,)), make_broker(1, strays=(led,)), make_broker(2))
    adopted = settle(snapshot(topic_view(), brokers=held)).topics["uid-orders"].topic.partitions[0]
    assert (adopted.leader, adopted.isr_ids(), adopted.leader_epoch) == (1, (1,), 1010)


def test_a_partition_that_nobody_lists_begins_above_the_epochs_of_its_topic_id():  # S10
    state = settle(snapshot(topic_view(spec={"partitions": 2}), brokers=with_strays()))
    fresh = state.topics["uid-orders"].topic.partitions[1]
    assert (fresh.leader_epoch, fresh.partition_epoch) == (1004, 1007)
    plain = settle(snapshot(topic_view(spec={"partitions": 2}))).topics["uid-orders"].topic.partitions[1]
    assert plain.leader_epoch == 0


def test_a_topic_that_lost_its_whole_status_takes_over_what_brokers_report():  # S11
    held = Holding(
        topic="orders", topic_id="old", partition=0, leader_epoch=9, partition_epoch=7, log_epoch=9, end_offset=100
    )
    reporting = three() | {1: make_broker(1, holdings=(held,))}
    view = settle(snapshot(topic_view(), brokers=reporting)).topics["uid-orders"]
    adopted = view.topic.partitions[0]
    assert (view.topic.ref.topic_id, adopted.isr_ids(), adopted.leader_epoch) == ("old", (1,), 1009)


def test_nobody_is_elected_on_brokers_that_were_read_long_ago():  # R14, threat 4
    lost = three() | {0: make_broker(0, fenced=10)}
    state = snapshot(topic_view(partitions={0: entry()}), brokers=lost, brokers_age_s=BROKERS_FRESH_S + 0.1)
    assert plan(state, NOW) == [ReadBrokers()]
    (action,) = of(plan(replace(state, brokers_age_s=BROKERS_FRESH_S), NOW), ChangePartitions)
    assert action.elected == {0}
    slow = replace(state, brokers_age_s=BROKERS_FRESH_S + 1.4, brokers_read_s=1.5)
    assert of(plan(slow, NOW), ChangePartitions), "an answer of a slow API server was as old as that when it came"
    assert plan(replace(slow, brokers_age_s=BROKERS_FRESH_S + 1.6), NOW) == [ReadBrokers()]
    shrink = snapshot(
        topic_view(partitions={0: entry()}), brokers=three() | {2: make_broker(2, fenced=12)}, brokers_age_s=9e9
    )
    assert of(plan(shrink, NOW), ChangePartitions), "a shrink takes leadership from nobody"


def test_adoption_waits_for_every_broker_and_can_be_declined():
    state = snapshot(topic_view(), brokers=with_strays(absent=(1,)))
    assert not of(plan(state, NOW), CreateTopicStatus)
    declined = snapshot(topic_view(adopt_strays=False), brokers=with_strays())
    (action,) = of(plan(declined, NOW), CreateTopicStatus)
    assert action.topic_id == ""


def test_adoption_gives_live_brokers_that_list_nothing_time_to_notice_the_loss():
    """One of them may lead the lost topic still, in an epoch above all that is listed."""
    held = brokers(make_broker(0, strays=(stray(0, 4, 90),)), make_broker(1), make_broker(2))
    new = snapshot(topic_view(first_seen=NOW - ADOPTION_GRACE_S + 0.1), brokers=held)
    assert of(plan(new, NOW), CreateTopicStatus) == []
    assert "brokers hold data of a lost topic of this name; brokers [1, 2] list none" in str(plan(new, NOW))
    (action,) = of(plan(snapshot(topic_view(first_seen=NOW - ADOPTION_GRACE_S), brokers=held), NOW), CreateTopicStatus)
    assert action.topic_id == "old"
    told = snapshot(topic_view(first_seen=NOW), brokers=with_strays())
    assert of(plan(told, NOW), CreateTopicStatus), "all of them know"
    fenced = brokers(make_broker(0, strays=(stray(0, 4, 90),)), make_broker(3, fenced=13))
    alone = snapshot(topic_view(first_seen=NOW, spec={"replicas": 1}), brokers=fenced, cluster={"replicas": 1})
    assert of(plan(alone, NOW), CreateTopicStatus), "who is fenced serves nobody"


@pytest.mark.parametrize(
    ("heard_at", "holders", "absent"),
    [
        pytest.param((NOW - 4.9, NOW, NOW), "inc-0-10", "", id="heard"),
        pytest.param((NOW - 20, NOW, NOW), "inc-0-10", "[0]", id="not heard since Leases are read again"),
        pytest.param((NOW - 9, NOW - 9, NOW - 9), "inc-0-10", "[0, 1, 2]", id="all are silent: none is fenced"),
        pytest.param((NOW, NOW, NOW), "another", "[0]", id="the registered incarnation does not renew"),
    ],
)
def test_adoption_goes_by_brokers_that_are_heard(heard_at, holders, absent):  # S10
    """What the store shows of the others was written by processes that may have ended before the topic was lost."""
    holding = (holders, "inc-1-11", "inc-2-12")
    leases = {i: LeaseView(holder=holding[i], changed_at=changed_at) for i, changed_at in enumerate(heard_at)}
    back = {"observing_since": NOW - 20, "unheard_until": NOW + 10}
    actions = plan(snapshot(topic_view(), brokers=with_strays(), leases=leases, **back), NOW)
    assert of(actions, Fence) == []
    assert bool(of(actions, CreateTopicStatus)) == (not absent)
    assert f"waiting for brokers {absent}, which may hold more" in str(actions) or not absent


@pytest.mark.parametrize("unknown", [{"leases": {}}, {"observing_since": None}])
def test_adoption_waits_while_nobody_can_be_heard(unknown):  # S10
    state = snapshot(topic_view(), brokers=with_strays(), **unknown)
    assert of(plan(state, NOW), CreateTopicStatus) == []


def test_a_topic_that_is_made_again_in_the_moment_of_its_deletion_waits_for_what_was_kept():
    """Brokers have not heard of the deletion, so nobody lists anything: without waiting it would begin empty."""
    held = brokers(*(make_broker(number) for number in range(3)))
    new = snapshot(topic_view(first_seen=NOW, left_by=frozenset({0, 1, 2})), brokers=held)
    assert of(plan(new, NOW), CreateTopicStatus) == []
    assert "brokers [0, 1, 2] list none" in str(plan(new, NOW))
    for view in (
        topic_view(first_seen=NOW - ADOPTION_GRACE_S, left_by=frozenset({0, 1, 2})),
        topic_view(first_seen=NOW, left_by=frozenset({0, 1, 2}), adopt_strays=False),
        topic_view(first_seen=NOW, left_by=frozenset({7})),
    ):
        (action,) = of(plan(snapshot(view, brokers=held), NOW), CreateTopicStatus)
        assert action.topic_id == ""
    told = snapshot(topic_view(first_seen=NOW, left_by=frozenset({0, 1, 2})), brokers=with_strays())
    (action,) = of(plan(told, NOW), CreateTopicStatus)
    assert action.topic_id == "old"


def test_adoption_waits_for_a_broker_whose_object_the_store_has_lost():  # S11
    """It may have the records: the operator makes its object again, and then it lists them."""
    known = {i: broker for i, broker in with_strays().items() if i != 1}
    action, *others = plan(snapshot(topic_view(), brokers=known), NOW)
    assert action == CreateBroker(uid="c", broker_id=1)
    assert not of(others, CreateTopicStatus)
    assert "waiting for brokers [1], which may hold more" in str(others)
    declining = topic_view(adopt_strays=False, spec={"replicas": 2})
    (declined,) = of(plan(snapshot(declining, brokers=known), NOW), CreateTopicStatus)
    assert declined.topic_id == ""
    nothing = brokers(make_broker(0), make_broker(2))
    placed = of(plan(snapshot(topic_view(spec={"replicas": 2}), brokers=nothing), NOW), CreateTopicStatus)
    assert placed, "where nobody lists anything, as in a new cluster, nobody is waited for for long"


OTHERS = tuple(replace(stray(3, 4, 90), topic=topic) for topic in ("else", "then"))


@pytest.mark.parametrize(("strays", "waits"), [((), False), ((stray(3, 4, 90),), True), (OTHERS, False)])
def test_adoption_waits_for_a_broker_that_was_scaled_away_only_when_it_holds_data(strays, waits):
    gone = make_broker(3, strays=strays, fenced=13)
    state = snapshot(topic_view(), brokers={**with_strays(), 3: gone})
    assert bool(of(plan(state, NOW), CreateTopicStatus)) != waits


def test_strays_of_a_topic_that_exists_are_not_adopted_twice():
    other = topic_view("other", partitions={0: entry()}, topic_id="old")
    (action,) = of(plan(snapshot(topic_view(), other, brokers=with_strays()), NOW), CreateTopicStatus)
    assert action.topic_id == ""


RELAXED_SO_FAR = Condition(type="DurableFlush", status="False", reason="Relaxed")
TOKEN = "uid-orders:1:0"


def settled(view, *, flushed=None, now=NOW, heard_at=None, **more):
    """Reason of `DurableFlush` after a plan; `flushed` by broker id: the tokens of its Lease, None: it says nothing."""
    known = {0: {TOKEN}, 1: {TOKEN}, 2: {TOKEN}} if flushed is None else flushed
    leases = {
        i: LeaseView(
            holder=f"inc-{i}-{10 + i}",
            changed_at=now if heard_at is None else heard_at,
            flushed=None if tokens is None else frozenset(tokens),
        )
        for i, tokens in known.items()
    }
    state = snapshot(view, leases=leases, **more)
    return conditions(apply(state, plan(state, now)))["DurableFlush"].reason


def tightened(**more):
    return topic_view(partitions={0: entry(isr=((0, 10),))}, conditions=(RELAXED_SO_FAR,), generation_seen=NOW, **more)


def test_tightened_flush_takes_effect_when_all_have_flushed():  # S4
    unclean_restart = three() | {0: make_broker(0, 20, clean=20)}
    early = snapshot(tightened(), brokers=unclean_restart, registered_at={0: NOW})
    assert of(plan(early, NOW), ChangePartitions)[0].changes[0].proposed.leader == -1
    assert settled(tightened()) == "Flushed"
    assert settled(tightened(), flushed={0: set(), 1: {TOKEN}, 2: {TOKEN}}) == "Tightening"
    assert settled(tightened(), flushed={0: {TOKEN}, 1: {TOKEN}, 2: set()}) == "Tightening", (
        "who is not in sync may join with what it has not flushed"
    )


@pytest.mark.parametrize("token", ["uid-orders:0:0", "uid-orders:1:1", "uid-other:1:0"])
def test_what_was_told_of_another_spec_tells_nothing(token):  # S4
    assert settled(tightened(), flushed={0: {token}, 1: {TOKEN}, 2: {TOKEN}}, now=NOW + 100) == "Tightening"


def test_of_who_is_not_heard_nobody_knows_whether_it_has_flushed():  # S4
    """However long it has been alive as far as is known: its process may have been stopped all that time."""
    for told in ({TOKEN}, None):
        known = {0: told, 1: {TOKEN}, 2: {TOKEN}}
        silent = {"heard_at": NOW - 6, "observing_since": NOW - 5, "now": NOW + 61}
        assert settled(tightened(), flushed=known, **silent) == "Tightening"


def test_who_is_fenced_reads_of_the_tightening_before_it_joins():  # S4
    out = three() | {2: make_broker(2, fenced=12)}
    assert settled(tightened(), flushed={0: {TOKEN}, 1: {TOKEN}, 2: set()}, brokers=out) == "Flushed"


@pytest.mark.parametrize("since", ["registered_at", "generation_seen", "cluster"])
def test_a_broker_of_an_earlier_version_has_a_minute(since):  # S4
    earlier = {0: None, 1: {TOKEN}, 2: {TOKEN}}
    view = replace(tightened(), generation_seen=NOW if since == "generation_seen" else 0.0)
    more = {
        "registered_at": dict.fromkeys(range(3), NOW if since == "registered_at" else 0.0),
        "generation_seen": NOW if since == "cluster" else 0.0,
    }
    assert settled(view, flushed=earlier, now=NOW + 59, **more) == "Tightening"
    assert settled(view, flushed=earlier, now=NOW + 61, **more) == "Flushed"


def test_a_topic_that_is_being_deleted_is_left_alone():
    view = topic_view(partitions={0: entry()})
    view = replace(view, topic=replace(view.topic, deleting=True))
    state = snapshot(view, brokers=three() | {0: make_broker(0, fenced=10)})
    actions = plan(state, NOW)
    assert not of(actions, ChangePartitions)
    assert not of(actions, UpdateTopicStatus)


def test_cluster_status_counts_brokers():
    (action,) = of(plan(snapshot(brokers=three() | {0: make_broker(0, fenced=10)}), NOW), UpdateClusterStatus)
    assert (action.brokers_ready, action.brokers_total) == (2, 3)
    healthy = next(c for c in action.conditions if c.type == "Healthy")
    assert healthy.message == "broker 0 is fenced"


def test_topics_that_are_configured_alike_share_what_is_in_force_and_others_do_not():
    alike = [topic_view(name, spec={"config": {"min.insync.replicas": "2"}}) for name in ("a", "b")]
    plain, relaxed = topic_view("c"), topic_view("d", spec={"config": {"flush.messages": "1000"}})
    state = snapshot(*alike, plain, relaxed, cluster={"config": {"min.insync.replicas": "3"}})
    first, second = (state.topic_config(view) for view in alike)
    assert first is second
    found = [state.topic_config(view) for view in (alike[0], plain, relaxed)]
    assert [config.min_insync_replicas for config in found] == [2, 3, 3]
    assert [config.flush_messages for config in found] == [1, 1, 1000]
