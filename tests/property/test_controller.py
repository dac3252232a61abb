"""Random clusters: whatever the state, what is planned keeps the fences and the promises, and comes to rest."""

import json
from dataclasses import replace

import jsonpatch
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalite_core.controller.actions import ChangePartitions, Fence, UpdateClusterStatus, UpdateTopicStatus
from kafkalite_core.controller.fencing import judge
from kafkalite_core.controller.placement import Load, place
from kafkalite_core.controller.plan import plan
from kafkalite_core.controller.snapshot import LeaseView
from kafkalite_core.model.cluster import BrokerState, entry_counts, entry_lost
from kafkalite_core.model.partition import IsrEntry, Partition
from kafkalite_core.resources import patches
from kafkalite_core.resources.topics import parse_topic, render_partition
from tests.unit.controller.builders import NOW, apply, make_broker, snapshot, topic_view
from tests.unit.resources.builders import topic_object

IDS = range(4)


@st.composite
def broker(draw, broker_id):
    epoch = draw(st.integers(10, 20))
    return make_broker(
        broker_id,
        epoch,
        trusted=draw(st.sampled_from([1, epoch, max(1, epoch - 5)])),
        clean=draw(st.sampled_from([1, epoch])),
        fenced=draw(st.sampled_from([-1, -1, epoch])),
        state=draw(st.sampled_from([BrokerState.RUNNING] * 3 + list(BrokerState))),
    )


@st.composite
def partition(draw):
    replicas = draw(st.permutations(list(IDS)).map(lambda ids: ids[: draw(st.integers(1, 4))]))
    members = draw(st.lists(st.sampled_from(replicas), min_size=1, unique=True))
    isr = tuple(IsrEntry(i, draw(st.integers(8, 20))) for i in members)
    others = [i for i in replicas if i not in members and draw(st.booleans())]
    return Partition(
        leader=draw(st.sampled_from([-1, *members])),
        leader_epoch=draw(st.integers(0, 5)),
        partition_epoch=draw(st.integers(0, 9)),
        min_isr=draw(st.integers(1, len(replicas))),
        replicas=tuple(replicas),
        isr=isr,
        elr=tuple(IsrEntry(i, draw(st.integers(8, 20))) for i in others),
        recovering=len(isr) == 1 and draw(st.integers(0, 3)) == 0,
    )


@st.composite
def clusters(draw):
    known = {i: draw(broker(i)) for i in IDS if draw(st.integers(0, 9))}
    entries = {n: draw(partition()) for n in range(draw(st.integers(1, 3)))}
    config = draw(
        st.sampled_from(
            [{}, {"flush.messages": "100"}, {"unclean.leader.election.enable": "true"}, {"min.insync.replicas": "2"}]
        )
    )
    view = topic_view(
        partitions=entries,
        spec={"replicas": draw(st.integers(1, 4)), "partitions": draw(st.integers(1, 4)), "config": config},
    )
    return snapshot(
        view,
        brokers=known,
        cluster={"replicas": 4},
        leases={i: LeaseView(holder="x", changed_at=NOW - draw(st.sampled_from([0, 0, 3, 30]))) for i in known},
        exits={(b.id, b.registration.incarnation): "killed" for b in known.values() if draw(st.integers(0, 5)) == 0},
        balance_due=draw(st.booleans()),
    )


def relaxed(state):
    return next(iter(state.topics.values())).spec.config.get("flush.messages") == "100"


def check_change(state, action, number):
    change = action.changes[number]
    old, new = change.expected, change.proposed
    counting, eligible = (
        [m for m in entries if entry_counts(m, state.brokers, relaxed_flush=relaxed(state))]
        for entries in (old.isr, old.elr)
    )
    kept = [m for m in (*old.isr, *old.elr) if not entry_lost(m, state.brokers, relaxed_flush=relaxed(state))]
    assert new.partition_epoch == old.partition_epoch + 1
    assert new.leader_epoch == old.leader_epoch + (number in action.elected)
    assert new.leader == old.leader or number in action.elected
    assert new.isr, "the ISR never becomes empty"
    assert set(new.isr_ids()) <= set(new.replicas)
    assert new.leader == -1 or new.leader in new.isr_ids()
    if number in action.moved:
        assert number in action.elected or set(old.replicas) <= set(new.replicas)
        assert {m.id for m in counting if m.id not in new.removing} & set(new.isr_ids()) or old.leader == -1
    else:
        assert new.replicas == old.replicas
    if number in action.unclean:
        assert state.topics["uid-orders"].spec.config == {"unclean.leader.election.enable": "true"}
        assert not any(state.brokers[m.id].alive for m in [*counting, *eligible])
        assert (new.elr, new.recovering) == ((), True), "an unclean election begins anew (KIP-704)"
        return
    assert new.recovering == old.recovering, "only the leader itself confirms an unclean election"
    still = [m for m in new.isr if entry_counts(m, state.brokers, relaxed_flush=relaxed(state))]
    assert not new.elr or new.leader == -1 or len(still) < new.min_isr, "R10: with members enough nobody is eligible"
    for member in new.elr:
        assert member in kept, "R10, S2"
    if new.leader == -1 or len(still) < new.min_isr:
        taken = set(new.isr_ids()) | set(new.elr_ids())
        assert {m.id for m in kept} <= taken, "R10: nobody who holds all, or may hold it, is forgotten"
    if new.leader in {m.id for m in eligible} - {m.id for m in counting}:
        assert not any(state.brokers[m.id].alive for m in counting), "the ISR goes first"
        assert new.isr == (IsrEntry(new.leader, state.brokers[new.leader].epoch),)
        assert state.brokers[new.leader].alive
        return
    assert set(new.isr_ids()) <= set(old.isr_ids())
    if counting:
        assert set(new.isr_ids()) & {m.id for m in counting}, "the last counting member stays"
    if new.leader != -1:
        broker = state.brokers[new.leader]
        assert broker.alive
        assert new.isr_epoch_of(new.leader) == broker.epoch, "S1"
        assert new.leader in {m.id for m in counting}, "S2"
    for member in new.isr:
        known = old.isr_epoch_of(member.id)
        refreshed = member.id in state.brokers and member.epoch == state.brokers[member.id].epoch
        assert member.epoch == known or (refreshed and member.id in {m.id for m in counting})


@settings(max_examples=150, deadline=None)
@given(clusters())
def test_planned_changes_keep_every_fence_and_come_to_rest(state):
    for _ in range(12):
        actions = plan(state, NOW)
        if not actions:
            break
        assert not (
            any(isinstance(a, Fence) for a in actions) and any(isinstance(a, ChangePartitions) for a in actions)
        )
        for action in actions:
            if isinstance(action, ChangePartitions):
                for number in action.changes:
                    check_change(state, action, number)
        state = replace(apply(state, actions), balance_due=False)
    else:
        raise AssertionError(f"never at rest: {actions}")
    assert plan(state, NOW) == []
    for view in state.topics.values():
        for entry in view.topic.partitions.values():
            live = [
                m
                for m in (*entry.isr, *entry.elr)
                if entry_counts(m, state.brokers, relaxed_flush=relaxed(state)) and state.brokers[m.id].alive
            ]
            assert (entry.leader != -1) or not live, "liveness: whoever can lead is asked to"


@settings(max_examples=80, deadline=None)
@given(clusters(), st.floats(0, 1e6), st.floats(0, 5.0))
def test_after_an_outage_nobody_is_fenced_by_expiry(state, outage_s, later_s):
    back = NOW + outage_s
    state = replace(state, observing_since=back, exits={})
    assert judge(state, back + later_s) == []


@settings(max_examples=80, deadline=None)
@given(clusters())
def test_expiry_never_fences_beyond_the_cap(state):
    fences = [fence for fence in judge(replace(state, exits={}), NOW) if fence.by_expiry]
    registered = len(state.brokers)
    min_isr = max(e.min_isr for v in state.topics.values() for e in v.topic.partitions.values())
    assert len(fences) <= max(1, registered - min_isr)
    unfenced = [b for b in state.brokers.values() if not b.fenced]
    assert len(fences) < len(unfenced) or not fences


@settings(max_examples=80, deadline=None)
@given(st.integers(1, 8), st.integers(1, 40), st.data())
def test_placement_is_even_and_never_twice_on_a_broker(count, partitions, data):
    replicas = data.draw(st.integers(1, count))
    load = Load()
    placed = place(dict.fromkeys(range(count), ""), load, first_number=0, partitions=partitions, replicas=replicas)
    assert all(len(set(row)) == len(row) == replicas for row in placed.values())
    totals = [load.replicas[i] for i in range(count)]
    leaders = [load.places[0, i] for i in range(count)]
    assert max(leaders) - min(leaders) <= 1
    assert max(totals) - min(totals) <= 2


@settings(max_examples=100, deadline=None)
@given(st.integers(2, 4), st.integers(1, 3), st.integers(1, 20))
def test_placement_uses_as_many_racks_as_there_are(racks, per_rack, partitions):
    brokers = {rack * per_rack + i: f"rack-{rack}" for rack in range(racks) for i in range(per_rack)}
    placed = place(brokers, Load(), first_number=0, partitions=partitions, replicas=min(racks, len(brokers)))
    assert all(len({brokers[i] for i in row}) == len(row) for row in placed.values())


def test_placement_refuses_more_replicas_than_brokers():
    with pytest.raises(ValueError, match="3 replicas need 3 brokers"):
        place({0: "", 1: ""}, Load(), first_number=0, partitions=1, replicas=3)


class Registry:
    """A store of one topic that answers patches as the API server does."""

    def __init__(self, view):
        status = {
            "topicId": "id",
            "controllerEpoch": 1,
            "partitions": {str(n): render_partition(e) for n, e in view.topic.partitions.items()},
        }
        self.obj = topic_object("orders", status=status, uid=view.topic.ref.uid)

    def patch(self, operations):
        try:
            self.obj = jsonpatch.apply_patch(self.obj, json.loads(json.dumps(operations)))
        except jsonpatch.JsonPatchTestFailed:
            return False
        return True


@settings(max_examples=60, deadline=None)
@given(clusters(), st.lists(st.tuples(st.booleans(), st.booleans()), max_size=8))
def test_two_controllers_with_different_lags_never_both_win(state, schedule):
    """Each plans on its own copy; a copy is brought up to date only when the schedule says so (threats 4 and 9)."""
    registry = Registry(next(iter(state.topics.values())))
    seen = [state, state]
    history = {
        n: [(e.leader, e.leader_epoch, e.partition_epoch)]
        for n, e in state.topics["uid-orders"].topic.partitions.items()
    }
    for second, refresh in schedule:
        me = int(second)
        if refresh:
            view = seen[me].topics["uid-orders"]
            current = parse_topic(registry.obj)
            topic = replace(view.topic, partitions=current.partitions)
            seen[me] = replace(seen[me], topics={"uid-orders": replace(view, topic=topic)})
        for action in plan(replace(seen[me], exits={}, observing_since=None), NOW):
            if not isinstance(action, ChangePartitions):
                continue
            before = parse_topic(registry.obj).partitions
            won = registry.patch(patches.elections(action.topic, action.changes, controller_epoch=1 + me))
            if won:
                assert all(before[n] == c.expected for n, c in action.changes.items()), "decided on what was there"
                for number, change in action.changes.items():
                    new = change.proposed
                    history[number].append((new.leader, new.leader_epoch, new.partition_epoch))
    for steps in history.values():
        by_epoch = {}
        for leader, leader_epoch, _ in steps:
            assert by_epoch.setdefault(leader_epoch, leader) == leader, "one leader per epoch"
        epochs = [partition_epoch for _, _, partition_epoch in steps]
        assert epochs == sorted(set(epochs))


def test_status_actions_alone_do_not_change_partitions():
    state = snapshot(topic_view(partitions={}))
    for action in plan(state, NOW):
        if isinstance(action, UpdateTopicStatus | UpdateClusterStatus):
            assert apply(state, [action]).topics["uid-orders"].topic.partitions == {}
