"""Rolling restarts: which pods go, which leaderships move first, and what is said of what waits."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalite_core.controller.actions import ChangePartitions, RestartPods, UpdateClusterStatus
from kafkalite_core.controller.plan import plan
from kafkalite_core.controller.recovering import RECOVERY_SILENT_S, observed
from kafkalite_core.controller.resizing import why_outdated
from kafkalite_core.controller.rolling import NEVER_READY_S, roll
from kafkalite_core.model.cluster import Recovery
from kafkalite_core.model.partition import IsrEntry
from kafkalite_core.model.pods import Rolling
from tests.unit.controller.builders import NOW, apply, make_broker
from tests.unit.controller.rolling_world import NEW, OLD, World, cluster, name, pod, settled

ALL = ((0, 1, 2), 2)


def with_pods(state, **changes):
    """Pods by broker id, as `b1=pod(...)`; None: it is not there."""
    pods = {**state.pods, **{int(key[1:]): value for key, value in changes.items()}}
    return replace(state, pods={i: p for i, p in pods.items() if p is not None})


def with_brokers(state, *brokers):
    return replace(state, brokers={**state.brokers, **{b.id: b for b in brokers}})


def with_entry(state, number=0, **changes):
    uid = f"uid-t{number}"
    view = state.topics[uid]
    new = replace(view.topic.partitions[0], **changes)
    return replace(state, topics={**state.topics, uid: replace(view, topic=replace(view.topic, partitions={0: new}))})


def rolling(*restarting, pending=(), **more):
    return Rolling(in_progress=True, restarting=tuple(map(name, restarting)), pending=tuple(map(name, pending)), **more)


def restarted(state, now=NOW):
    return [each.broker_id for each in roll(state, now).restarts]


def reasons(state, now=NOW):
    return [(each.pod, each.partition, each.reason) for each in roll(state, now).status.blocked_by]


# --- nothing to do ---------------------------------------------------------------------------------------------------


def test_without_a_wanted_revision_nothing_is_said():
    assert roll(cluster(ALL, wanted=""), NOW).status == Rolling()


def test_a_cluster_of_the_wanted_revision_is_left_alone():
    assert roll(cluster(ALL, wanted=OLD), NOW) == roll(cluster(ALL, wanted=""), NOW)
    assert not [a for a in plan(cluster(ALL, wanted=OLD), NOW) if isinstance(a, RestartPods | ChangePartitions)]


def test_nothing_begins_before_the_stateful_set_makes_pods_of_the_new_revision():
    assert roll(cluster(ALL, revision_served=False), NOW).status == Rolling()
    [told] = [each for each in plan(cluster(ALL, revision_served=False), NOW) if isinstance(each, UpdateClusterStatus)]
    [progressing] = [each for each in told.conditions if each.type == "Progressing"]
    assert (progressing.status, progressing.reason) == ("True", "RollingRestart"), "nothing is done before it has begun"
    assert "still to be restarted: kafkalite-broker-0, kafkalite-broker-1" in progressing.message
    assert "the StatefulSet does not make such pods yet" in progressing.message


# --- one restart after the other -------------------------------------------------------------------------------------


def test_the_batch_is_noted_and_its_leaderships_move_before_a_pod_is_deleted():
    state = cluster(ALL, ((1, 2, 0), 2))
    first = roll(state, NOW)
    assert first.status.pending == (name(2), name(0), name(1)), "who leads least goes first"
    assert first.status.restarting == (name(2),)
    assert not first.restarts, "it is not noted yet"
    noted = replace(state, rolling=first.status)
    assert restarted(noted) == [2]

    leads = cluster(ALL, ((1, 2, 0), 2), ((2, 0, 1), 2))
    first = roll(leads, NOW)
    assert first.status.restarting == (name(0),)
    assert [verdict.change.proposed.leader for verdict in first.moves.values()] == [1]
    noted = replace(leads, rolling=first.status)
    assert not restarted(noted), "it still leads"
    assert reasons(noted) == [(name(0), "", "its leaderships move away first")]
    actions = [a for a in plan(noted, NOW) if isinstance(a, ChangePartitions)]
    assert [a.elected for a in actions] == [frozenset({0})]
    assert restarted(apply(noted, actions)) == [0]


def test_a_leadership_moves_to_a_broker_that_is_not_restarted_later():
    state = with_pods(cluster(((0, 1, 2), 2)), b2=pod(2, NEW))
    state = replace(state, rolling=rolling(0, pending=(0, 1)))
    assert [verdict.change.proposed.leader for verdict in roll(state, NOW).moves.values()] == [2]


def test_no_leadership_moves_to_a_broker_that_leaves_the_cluster():
    state = replace(cluster(((0, 2), 1), brokers=3), rolling=rolling(0, pending=(0, 1, 2)))
    assert [verdict.change.proposed.leader for verdict in roll(state, NOW).moves.values()] == [2]
    leaving = replace(state, cluster=replace(state.cluster, replicas=2))
    assert not roll(leaving, NOW).moves, "it would come back at once"
    assert restarted(leaving) == [0], "it leads once broker 0 stops"


def test_a_partition_that_nobody_else_can_lead_holds_nothing_up():
    assert restarted(replace(cluster(((0,), 1), brokers=1), rolling=rolling(0))) == [0]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"b0": None}, "broker 0 has no pod"),
        ({"b0": pod(0, deleting=True)}, "pod kafkalite-broker-0 stops"),
        ({"b0": pod(0, NEW, ready=False)}, "pod kafkalite-broker-0 is not ready"),
        (
            {"b0": pod(0, NEW, ready=False, stuck="ImagePullBackOff", stuck_message="no such image")},
            "pod kafkalite-broker-0 of the new revision cannot run, ImagePullBackOff: no such image",
        ),
    ],
)
def test_the_next_one_waits_for_the_last_one(change, reason):
    state = with_pods(replace(cluster(ALL, ((1, 2), 1)), rolling=rolling(0, pending=(1, 2))), **change)
    decided = roll(state, NOW)
    assert not decided.restarts
    assert not decided.moves
    assert decided.status.restarting == (name(0),)
    assert decided.status.in_progress
    assert reasons(state) == [(name(2), "", reason)], "the next one would be broker 2: it leads least"


def test_the_next_one_waits_until_the_last_one_is_in_all_its_isrs():
    state = replace(with_pods(cluster(ALL), b0=pod(0, NEW)), rolling=rolling(0, pending=(1, 2)))
    back = with_brokers(state, make_broker(0, 50))
    assert reasons(back)[0] == (name(1), "", "broker 0 is catching up")
    joined = with_entry(back, isr=(IsrEntry(1, 11), IsrEntry(2, 12), IsrEntry(0, 50)), leader=1)
    assert roll(joined, NOW).status.restarting == (name(2),)


def test_a_broker_of_the_wanted_revision_that_is_away_for_another_reason_is_waited_for_too():
    state = with_pods(cluster(ALL, ((0, 1, 2), 1)), b0=pod(0, NEW), b1=pod(1, NEW, ready=False))
    assert not roll(state, NOW).status.restarting
    assert reasons(state) == [(name(2), "", "pod kafkalite-broker-1 is not ready")]


# --- batches ---------------------------------------------------------------------------------------------------------


def proven(state, *ids):
    return with_pods(state, **{f"b{i}": pod(i, NEW) for i in ids})


def test_the_batch_is_as_large_as_the_partitions_allow_once_one_broker_has_shown_that_the_revision_runs():
    spread = [((0, 1, 2), 2), ((3, 4, 5), 2), ((0, 1, 2), 2), ((3, 4, 5), 2)]
    state = cluster(*spread, brokers=7)
    assert len(roll(state, NOW).status.restarting) == 1, "one shows first that it runs"
    decided = roll(proven(state, 6), NOW)
    assert decided.status.restarting == (name(1), name(4)), "one of each three"
    assert roll(proven(cluster(((0, 1, 2), 1), brokers=4), 3), NOW).status.restarting == (name(1), name(2))


@pytest.mark.parametrize(("limit", "size"), [(1, 1), (2, 2), (None, 3)])
def test_no_more_than_max_unavailable_are_away_at_once(limit, size):
    state = proven(cluster(*(((i, 3), 1) for i in range(3)), brokers=4, config={"max_unavailable": limit}), 3)
    assert len(roll(state, NOW).status.restarting) == size


def test_what_is_away_anyway_counts():
    state = proven(cluster(((0, 3), 1), brokers=4, config={"max_unavailable": 1}), 3)
    down = with_pods(with_brokers(state, make_broker(2, fenced=99)), b2=pod(2, ready=False, unready_since=NOW))
    assert not roll(down, NOW).status.restarting
    assert reasons(down)[0] == (name(1), "", "spec.rolling.maxUnavailable is 1, and away are broker 2")


def test_one_broker_stays_even_without_topics():
    assert len(roll(proven(cluster(brokers=4), 3), NOW).status.restarting) == 3
    everything = cluster(brokers=1)
    assert roll(everything, NOW).status.restarting == (name(0),)


def test_the_last_one_that_runs_stays_while_the_others_start():
    down = with_brokers(cluster(brokers=2), make_broker(1, fenced=99))
    down = with_pods(down, b1=pod(1, ready=False, unready_since=NOW))
    assert not roll(down, NOW).status.restarting
    assert reasons(down) == [(name(0), "", "one broker has to stay")]


def test_a_broker_that_is_catching_up_goes_first_if_nobody_waits_for_it():
    state = cluster(ALL, ((2, 0, 1), 1))
    behind = with_entry(state, 1, isr=(IsrEntry(2, 12), IsrEntry(1, 11)))
    behind = with_pods(behind, b0=pod(0, ready=False))
    assert roll(behind, NOW).status.restarting == (name(0),)


# --- what speaks against it ------------------------------------------------------------------------------------------


def test_a_partition_at_its_min_isr_blocks_and_is_named():
    state = with_entry(cluster(ALL), isr=(IsrEntry(0, 10), IsrEntry(1, 11)))
    state = with_brokers(state, make_broker(2, fenced=12))
    state = with_pods(state, b2=pod(2, ready=False, unready_since=NOW))
    decided = roll(state, NOW)
    assert not decided.status.restarting
    assert decided.status.in_progress, "waiting is no failure"
    away = "would keep 1 of min.insync.replicas 2 in sync: broker 2 is fenced"
    assert reasons(state) == [(name(1), "t0-0", away), (name(0), "t0-0", away)]


def test_a_member_of_the_isr_that_is_down_does_not_count():
    down = with_brokers(cluster(ALL), make_broker(2, fenced=12))
    down = with_pods(down, b2=pod(2, ready=False, unready_since=NOW))
    assert not roll(down, NOW).status.restarting


def test_who_may_be_the_first_to_end_a_shortage_is_not_restarted():
    state = with_entry(cluster(ALL), isr=(IsrEntry(0, 10),))
    assert (name(2), "t0-0", "has 1 of min.insync.replicas 2, and waits for broker 2") in reasons(state)
    assert not roll(state, NOW).status.restarting


def test_a_relaxed_flush_makes_members_not_count_that_restarted_uncleanly():
    state = cluster(ALL)
    view = state.topics["uid-t0"]
    config = {"min.insync.replicas": "2", "flush.messages": "100"}
    relaxed = replace(state, topics={"uid-t0": replace(view, spec=replace(view.spec, config=config))})
    unclean = [make_broker(2, 12, clean=13)]
    assert roll(with_brokers(state, *unclean), NOW).status.restarting == (name(1),)
    assert roll(with_brokers(relaxed, *unclean), NOW).status.restarting == (name(2),), "it is missed by nobody"


def test_partitions_that_can_never_spare_a_replica_do_not_hold_a_roll_up_for_ever():
    state = proven(cluster(((0, 1), 2), ((2,), 1), brokers=4), 3)
    decided = roll(state, NOW)
    assert decided.status.restarting == (name(1), name(2)), "one of the two, and the single one"
    short = with_entry(state, isr=(IsrEntry(0, 10),))
    assert name(0) not in roll(short, NOW).status.restarting, "its only living replica stays until the other is back"


def test_hold_leaves_a_broker_out_and_says_so():
    state = with_brokers(cluster(ALL), make_broker(1, hold=True))
    assert roll(state, NOW).status.restarting == (name(2),)
    held = proven(state, 0, 2)
    decided = roll(replace(held, rolling=rolling(2, pending=(1,))), NOW)
    assert decided.status == Rolling(pending=(name(1),), blocked_by=decided.status.blocked_by)
    assert reasons(held) == [(name(1), "", "hold is set on its KafkaLiteBroker")]


def test_paused_restarts_nobody():
    state = cluster(ALL, config={"paused": True})
    decided = roll(state, NOW)
    assert decided.status.pending == (name(0), name(1), name(2))
    assert not decided.status.restarting
    assert reasons(state) == [(name(0), "", "kafkalite.io/paused is set on the cluster")]


def test_a_cluster_that_is_being_deleted_restarts_nobody():
    decided = roll(cluster(ALL, config={"deleting": True}), NOW)
    assert decided.status.pending == ()
    assert decided.restarts == ()


# --- pods that cannot run --------------------------------------------------------------------------------------------


def broken(state, broker_id, **more):
    more = {"ready": False, "stuck": "CrashLoopBackOff", "unready_since": NOW, **more}
    return with_pods(
        with_brokers(state, make_broker(broker_id, fenced=99)), **{f"b{broker_id}": pod(broker_id, "t0.c0", **more)}
    )


def test_a_pod_of_another_revision_that_cannot_run_is_replaced_without_waiting():
    state = broken(cluster(ALL, wanted=NEW), 1)
    assert restarted(state) == [1]
    assert "cannot run (CrashLoopBackOff)" in roll(state, NOW).restarts[0].reason
    assert restarted(with_pods(state, b1=replace(state.pods[1], revision=NEW))) == [], "again would not help"
    assert restarted(with_brokers(state, make_broker(1, fenced=99, hold=True))) == []


def test_one_that_starts_is_left_in_peace_for_a_while():
    state = broken(cluster(ALL), 1, stuck="")
    assert restarted(state) == []
    assert restarted(state, NOW + NEVER_READY_S) == [1]


def recovers(state, broker_id=1, *, seen_at=NOW, incarnation="new", logs=3, **more):
    """Its process recovers the logs; what is registered is its predecessor."""
    told = Recovery(incarnation=incarnation, remaining_logs=logs, remaining_segments=2, seen_at=seen_at)
    broker = replace(state.brokers[broker_id], recovery=told)
    pods = {f"b{broker_id}": replace(state.pods[broker_id], **{"running": True, **more})}
    return with_pods(with_brokers(state, broker), **pods)


def test_one_that_recovers_its_logs_is_left_in_peace_while_it_gets_on():
    state, late = broken(cluster(ALL), 1, stuck=""), NOW + RECOVERY_SILENT_S - 1
    assert restarted(recovers(state), late) == []
    words = "broker 1 recovers its logs: 3 left, and 2 segments of those under way"
    assert reasons(recovers(state), late)[-1] == (name(1), "", f"{words}; it is not restarted before it has")
    assert roll(recovers(state), late).status.in_progress
    assert restarted(recovers(state), late + 1) == [1], "it hangs"
    assert restarted(recovers(state, seen_at=NOW + 1000.0), late + 1) == []
    assert restarted(recovers(state, logs=0), late) == [], "the last step has no log to count"
    held = recovers(with_brokers(state, make_broker(1, fenced=99, hold=True)))
    assert [each for each in reasons(held) if each[0] == name(1)] == [
        (name(1), "", "hold is set on its KafkaLiteBroker")
    ]


def test_what_a_process_said_that_has_ended_protects_nobody():
    state, late = broken(cluster(ALL), 1, stuck=""), NOW + NEVER_READY_S
    registered = state.brokers[1].registration.incarnation
    assert restarted(recovers(state, running=False), late) == [1]
    assert restarted(recovers(state, incarnation=registered), late) == [1]
    assert restarted(recovers(state, running=False, stuck="CrashLoopBackOff")) == [1]


def test_one_that_recovers_while_its_predecessor_looks_alive_is_no_candidate():
    state = recovers(cluster(((0, 2), 1)), 1, ready=False, unready_since=NOW)
    assert state.brokers[1].alive
    assert roll(state, NOW).status.restarting != (name(1),)
    assert restarted(replace(state, rolling=rolling(1))) == []


def test_a_roll_says_how_far_the_recovery_is_that_it_waits_for():
    state = replace(cluster(ALL), rolling=rolling(1))
    words = "pod kafkalite-broker-1 starts: broker 1 recovers its logs: 3 left, and 2 segments of those under way"
    for revision, fenced in ((NEW, 99), (NEW, -1), ("t0.c0", 99)):
        starts = with_pods(with_brokers(state, make_broker(1, fenced=fenced)), b1=pod(1, revision, ready=False))
        assert words in roll(recovers(starts), NOW).waits


def test_the_observer_notes_since_when_a_recovery_does_not_get_on():
    told = replace(make_broker(1), recovery=Recovery(incarnation="new", remaining_logs=3))
    first = observed(told, None, NOW)
    assert first.recovery.seen_at == NOW
    assert observed(told, first, NOW + 5).recovery.seen_at == NOW
    further = replace(told, recovery=replace(told.recovery, remaining_segments=1))
    assert observed(further, first, NOW + 5).recovery.seen_at == NOW + 5
    assert observed(make_broker(1), first, NOW + 5).recovery is None


def test_a_correction_replaces_the_broken_one_and_touches_nobody_else():
    state = broken(cluster(ALL, wanted=OLD), 1)
    state = replace(state, rolling=rolling(1, pending=(0, 2)))
    decided = roll(state, NOW)
    assert [each.broker_id for each in decided.restarts] == [1]
    assert decided.status.pending == (name(1),)


def test_a_change_during_a_roll_does_not_interrupt_who_is_starting():
    state = replace(cluster(ALL, wanted="t3.c1"), rolling=rolling(1, pending=(0, 2)))
    starting = with_pods(with_brokers(state, make_broker(1, fenced=99)), b1=pod(1, NEW, ready=False, unready_since=NOW))
    assert not restarted(starting)
    assert reasons(starting)[0] == (name(2), "", "pod kafkalite-broker-1 starts")


# --- the whole plan --------------------------------------------------------------------------------------------------


def test_no_leadership_goes_back_during_a_roll_and_all_go_back_at_its_end():
    away = with_entry(cluster(ALL, wanted=OLD), leader=1)
    going_on = replace(with_pods(away, b2=pod(2, OLD, ready=False)), rolling=rolling(2), balance_due=True)
    assert not [a for a in plan(going_on, NOW) if isinstance(a, ChangePartitions)]
    over = replace(away, rolling=rolling(2))
    moved = [a for a in plan(over, NOW) if isinstance(a, ChangePartitions)]
    assert [change.proposed.leader for a in moved for change in a.changes.values()] == [0]


def test_the_cluster_says_that_it_rolls_and_what_it_waits_for():
    state = with_pods(replace(cluster(ALL), rolling=rolling(0, pending=(1, 2))), b0=None)
    status = next(a for a in plan(state, NOW) if getattr(a, "bootstrap", None) is not None)
    progressing = next(c for c in status.conditions if c.type == "Progressing")
    assert (progressing.status, progressing.reason) == ("True", "RollingRestart")
    assert progressing.message == (
        "restarting kafkalite-broker-0; still to be restarted: kafkalite-broker-1, kafkalite-broker-2; "
        "waiting: broker 0 has no pod"
    )


@pytest.mark.parametrize(
    ("old", "said"),
    [
        ("", "its pod does not say what it was made of"),
        ("t1.c2", "the pod template changed"),
        ("t2.c1", "configuration changed that needs a restart"),
        ("t1.c1", "the pod template changed and configuration changed that needs a restart"),
    ],
)
def test_why_a_pod_is_restarted(old, said):
    assert why_outdated(old, "t2.c2") == why_outdated(old, "t2.c2.r2") == said


# --- random clusters -------------------------------------------------------------------------------------------------


@st.composite
def worlds(draw, **more):
    brokers = draw(st.integers(1, 6))
    count = draw(st.integers(0, 6))
    partitions = []
    for _ in range(count):
        replicas = draw(st.permutations(range(brokers)))[: draw(st.integers(1, brokers))]
        partitions.append((tuple(replicas), draw(st.integers(1, 3))))
    limit = draw(st.sampled_from([None, None, 1, 2]))
    state = cluster(*partitions, brokers=brokers, config={"max_unavailable": limit})
    random = draw(st.randoms(use_true_random=False))
    return World(state, random.choice, **more)


@settings(max_examples=120, deadline=None)
@given(worlds())
def test_a_healthy_cluster_is_restarted_to_the_end_and_every_pod_once(world):
    world.run()
    assert sorted(world.restarts) == sorted(world.state.brokers)
    assert all(each.revision == NEW for each in world.state.pods.values())
    assert all(settled(world.state, i) for i in world.state.brokers)
    assert world.state.rolling == Rolling()


@settings(max_examples=60, deadline=None)
@given(worlds(), st.integers(1, 60))
def test_a_change_during_a_roll_joins_it(world, steps):
    """Nobody is restarted more than once for each change, and all end at the second one."""
    for _ in range(steps):
        if not world.step():
            break
    before = set(world.restarts)
    world.state = replace(world.state, revision="t3.c1")
    world.run()
    assert all(each.revision == "t3.c1" for each in world.state.pods.values())
    assert all(1 <= world.restarts.count(i) <= 1 + (i in before) for i in world.state.brokers)
    assert world.state.rolling == Rolling()


@settings(max_examples=60, deadline=None)
@given(worlds(sick_revisions=frozenset({NEW})))
def test_a_revision_that_does_not_run_stops_one_broker_and_its_correction_brings_all_back(world):
    world.run()
    assert len(world.restarts) == 1
    assert world.state.rolling.in_progress
    assert len(world.state.rolling.pending) == len(world.state.brokers) - 1
    world.state = replace(world.state, revision="t3.c1")
    world.run()
    assert all(each.revision == "t3.c1" for each in world.state.pods.values())
    assert world.state.rolling == Rolling()
