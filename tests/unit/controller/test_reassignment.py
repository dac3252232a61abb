"""Moving replicas (KIP-455): one partition step by step, and which partitions move when."""

from dataclasses import replace

import pytest

from kafkalite_core.controller.actions import ChangePartitions
from kafkalite_core.controller.placement import Load
from kafkalite_core.controller.plan import plan
from kafkalite_core.controller.reassignment import counted_replicas, move, origin_of, target_of
from kafkalite_core.controller.reassignment_targets import grown, shrunk
from kafkalite_core.model.partition import IsrEntry
from tests.unit.controller.builders import NOW, apply, brokers, entry, make_broker, snapshot, topic_view

SIX = brokers(*(make_broker(i) for i in range(6)))


def pairs(*ids):
    return tuple(IsrEntry(i, SIX[i].epoch) for i in ids)


def partition(*, replicas, isr=None, leader=None, adding=(), removing=(), elr=(), **more):
    isr = replicas if isr is None else isr
    leader = isr[0] if leader is None else leader
    made = entry(leader=leader, replicas=replicas, isr=[(i, SIX[i].epoch) for i in isr], **more)
    return replace(made, adding=tuple(adding), removing=tuple(removing), elr=pairs(*elr))


def step(part, target=None, known=None, min_isr=1):
    known = SIX if known is None else known
    return move(part, target, known, relaxed_flush=False, min_isr_of=lambda replicas: min(min_isr, replicas))


def after(part, target=None, **more):
    return step(part, target, **more).change.proposed


def joined(part, *ids, **more):
    """The leader took replicas into the ISR."""
    return replace(part, isr=part.isr + pairs(*ids), partition_epoch=part.partition_epoch + 1, **more)


def without(*ids):
    return {i: b if i not in ids else replace(b, fenced_epoch=b.epoch) for i, b in SIX.items()}


# ------------------------------------------------------------------------------------------------ one partition


def test_a_move_begins_with_target_and_leaving_replicas_in_the_list():
    part = partition(replicas=(0, 1, 2))
    begun = after(part, (3, 4, 2))
    assert (begun.replicas, begun.adding, begun.removing) == ((3, 4, 2, 0, 1), (3, 4), (0, 1))
    assert (begun.leader, begun.isr, begun.leader_epoch) == (part.leader, part.isr, part.leader_epoch)
    assert begun.partition_epoch == part.partition_epoch + 1
    assert (target_of(begun), origin_of(begun)) == ((3, 4, 2), (2, 0, 1))


def test_it_completes_when_all_that_are_added_are_in_sync_and_the_leader_goes_with_it():
    begun = after(partition(replicas=(0, 1, 2)), (3, 4, 2))
    assert step(joined(begun, 3)).change is None
    verdict = step(joined(begun, 3, 4))
    done = verdict.change.proposed
    assert (done.replicas, done.isr_ids(), done.leader) == ((3, 4, 2), (2, 3, 4), 3)
    assert (done.adding, done.removing) == ((), ())
    assert done.leader_epoch == begun.leader_epoch + 1
    assert verdict.elected
    assert "brokers 0, 1 removed, brokers 3, 4 added" in verdict.reason


def test_a_leader_that_stays_gets_a_new_leader_epoch_when_a_replica_leaves():
    part = partition(replicas=(0, 1, 3, 2), adding=(3,), removing=(2,))
    done = after(part)
    assert (done.leader, done.leader_epoch) == (0, part.leader_epoch + 1)


def test_only_added_replicas_raise_no_leader_epoch():
    part = joined(after(partition(replicas=(0,)), (0, 1, 2)), 1, 2)
    done = after(part)
    assert (done.replicas, done.adding, done.leader_epoch) == ((0, 1, 2), (), part.leader_epoch)


def test_another_order_is_done_at_once_and_elects_nobody():
    part = partition(replicas=(0, 1, 2))
    done = after(part, (2, 1, 0))
    assert (done.replicas, done.leader, done.leader_epoch) == ((2, 1, 0), 0, part.leader_epoch)
    assert (done.adding, done.removing) == ((), ())


def test_fewer_replicas_are_done_at_once_when_all_that_stay_are_in_sync():  # KAFKA-15665
    done = after(partition(replicas=(0, 1, 2)), (1,))
    assert (done.replicas, done.isr_ids(), done.leader) == ((1,), (1,), 1)


def test_fewer_replicas_wait_for_all_that_stay():  # KAFKA-15665
    begun = after(partition(replicas=(0, 1, 2), isr=(0, 1)), (1, 2))
    assert (begun.replicas, begun.removing) == ((1, 2, 0), (0,))
    assert "waiting for broker 2 to be in sync" in step(begun).reason
    assert after(joined(begun, 2)).replicas == (1, 2)


def test_the_order_of_the_isr_does_not_matter():  # KAFKA-19975
    part = partition(replicas=(1, 2, 0), isr=(2, 0, 1), leader=2, removing=(0,))
    assert after(part).replicas == (1, 2)


def test_replicas_stay_until_enough_take_writes():
    part = partition(replicas=(3, 0, 1, 2), isr=(2, 3), leader=2, adding=(3,), removing=(2,))
    assert "before the others leave" in step(part, min_isr=2).reason
    assert after(part, min_isr=1).replicas == (3, 0, 1)


def test_the_min_isr_during_a_move_is_that_of_the_smaller_set():
    begun = after(partition(replicas=(0,)), (0, 1, 2), min_isr=2)
    assert (counted_replicas(begun), begun.min_isr) == (1, 1)
    assert after(joined(begun, 1, 2), min_isr=2).min_isr == 2


def test_cancelling_restores_what_was_and_drops_what_was_added():
    part = partition(replicas=(0, 1, 2))
    begun = after(part, (3, 1, 2))
    back = after(begun, origin_of(begun))
    assert set(back.replicas) == {0, 1, 2}
    assert (back.adding, back.removing, back.leader) == ((), (), 0)
    assert back.leader_epoch == part.leader_epoch + 1, "broker 3 left the list"


def test_cancelling_takes_the_leadership_from_an_added_replica():
    begun = joined(after(partition(replicas=(0, 1, 2)), (3, 4, 5)), 3, leader=3, leader_epoch=6)
    back = after(begun, (0, 1, 2))
    assert (back.replicas, back.leader, back.isr_ids(), back.leader_epoch) == ((0, 1, 2), 0, (0, 1, 2), 7)


def test_cancelling_waits_for_none_of_the_old_replicas_that_is_away_when_enough_are_in_sync():
    """Else the cancellation is a move that lasts, and cancelling that one keeps what had been added."""
    away = without(2)
    begun = after(partition(replicas=(0, 1, 2), isr=(0, 1)), (3, 4, 0), known=away, min_isr=2)
    begun = joined(begun, 3)
    back = after(begun, (0, 1, 2), known=away, min_isr=2)
    assert (back.replicas, back.adding, back.removing) == ((0, 1, 2), (), ())
    assert (back.isr_ids(), back.min_isr, back.leader_epoch) == ((0, 1), 2, begun.leader_epoch + 1)
    few = replace(begun, isr=pairs(0, 3))
    assert after(few, origin_of(few), known=away, min_isr=2).removing == (3,), "two have to be in sync without it"


def test_cancelling_never_drops_the_only_replicas_in_sync():
    begun = after(partition(replicas=(0,)), (1,))
    lost = replace(begun, isr=pairs(1), leader=1, leader_epoch=9)
    back = after(lost, (0,), known=without(0))
    assert (back.replicas, back.adding, back.removing) == ((0, 1), (), (1,))
    assert (back.isr, back.leader) == (lost.isr, 1)
    assert "waiting for broker 0 to be in sync" in step(back, known=without(0)).reason
    done = after(joined(back, 0))
    assert (done.replicas, done.leader) == ((0,), 0)


def test_another_target_in_the_middle_keeps_what_is_in_sync_until_the_end():
    begun = joined(after(partition(replicas=(0, 1, 2)), (3, 4, 5)), 3)
    other = after(begun, (0, 1, 5))
    assert (other.replicas, other.adding, other.removing) == ((0, 1, 5, 3, 2), (5,), (3, 2))
    assert after(joined(other, 5)).replicas == (0, 1, 5)


def test_an_eligible_replica_leaves_only_by_completion():  # KIP-966
    part = partition(replicas=(0, 1, 3), isr=(0,), adding=(3,), elr=(3,), min_isr=2)
    back = after(part, (0, 1), min_isr=2, known=without(1))
    assert (back.removing, [m.id for m in back.elr]) == ((3,), [3])


@pytest.mark.parametrize("target", [None, (3, 1, 2)])
def test_nothing_moves_while_an_election_is_due(target):
    part = partition(replicas=(0, 1, 2))
    assert step(part, target, known=without(0)).change is None
    restarted = {**SIX, 0: make_broker(0, epoch=99)}
    assert step(part, target, known=restarted).change is None


def test_a_replica_that_lost_its_disk_does_not_complete_a_move():  # S2
    part = partition(replicas=(3, 0), isr=(0, 3), adding=(3,), removing=(0,))
    wiped = {**SIX, 3: make_broker(3, epoch=40, trusted=40)}
    assert step(part, known=wiped).change is None
    stays = partition(replicas=(0, 3, 1), isr=(0, 1, 3), adding=(3,), removing=(1,))
    assert "waiting for broker 3" in step(stays, known=wiped).reason
    assert after(stays).replicas == (0, 3)
    restarted = {**SIX, 3: make_broker(3, epoch=40)}
    assert "present epochs" in step(part, known=restarted).reason, "the leader's pair is written by an election"


# ------------------------------------------------------------------------------------------------ targets


def test_more_replicas_go_to_new_racks_and_where_the_load_is_least():
    racks = brokers(*(make_broker(i, rack=f"r{i % 3}") for i in range(6)))
    load = Load()
    load.add((2, 2, 5))
    assert grown(partition(replicas=(0,)), 3, racks, load, 0) == (0, 1, 5)


def test_more_replicas_avoid_cordoned_and_absent_brokers():
    known = {**without(1), 2: replace(SIX[2], cordoned=True)}
    known = {i: known[i] for i in range(4)}
    assert grown(partition(replicas=(0,)), 2, known, Load(), 0) == (0, 3)
    assert grown(partition(replicas=(0,)), 3, known, Load(), 0) is None


def test_a_replica_that_is_being_removed_is_taken_back_first():
    part = partition(replicas=(0, 1, 2), removing=(2,))
    assert grown(part, 3, SIX, Load(), 0) == (0, 1, 2)


def test_fewer_replicas_spare_leader_sync_and_racks():
    racks = brokers(*(make_broker(i, rack=["a", "a", "b", "c"][i]) for i in range(4)))
    part = partition(replicas=(0, 1, 2, 3))
    assert shrunk(part, 3, racks, Load()) == (0, 2, 3)
    assert shrunk(replace(part, isr=pairs(0, 1, 3)), 3, racks, Load()) == (0, 1, 3)
    assert shrunk(replace(part, leader=1), 3, racks, Load()) == (1, 2, 3)
    adding = replace(part, adding=(3,))
    assert shrunk(adding, 3, racks, Load()) == (0, 1, 2), "what is not there yet need not be copied"


# ------------------------------------------------------------------------------------------------ the whole cluster


def settle(state, rounds=12):
    """Plan until nothing is left; between rounds leaders take in every live replica."""
    for _ in range(rounds):
        actions = plan(state, NOW)
        state = replace(apply(state, actions), balance_due=False)
        grown_isr = in_sync(state)
        if not actions and grown_isr == state:
            return state
        state = grown_isr
    raise AssertionError(f"never at rest: {actions}")


def in_sync(state):
    topics = {}
    for uid, view in state.topics.items():
        entries = {}
        for number, part in view.topic.partitions.items():
            new = [i for i in part.replicas if i not in part.isr_ids() and state.brokers[i].alive]
            entries[number] = part if not new or not part.has_leader else joined(part, *new)
        topics[uid] = replace(view, topic=replace(view.topic, partitions=entries))
    return replace(state, topics=topics)


def wish(state, name="orders", **spec):
    uid = f"uid-{name}"
    view = state.topics[uid]
    return replace(state, topics={**state.topics, uid: replace(view, spec=replace(view.spec, **spec))})


def orders(state):
    return state.topics["uid-orders"].topic.partitions


def progressing(state):
    return next(c for c in state.topics["uid-orders"].conditions if c.type == "Progressing")


def cluster(partitions, replicas=3, **more):
    view = topic_view(partitions=partitions, spec={"replicas": replicas, **more})
    return snapshot(view, brokers=SIX, cluster={"replicas": 6})


def test_the_replication_factor_goes_up_evenly_and_down_again_with_least_movement():
    state = settle(cluster({n: partition(replicas=(n % 3,)) for n in range(6)}, replicas=1))
    before = orders(state)
    state = settle(wish(state, replicas=3))
    counts = [sum(i in part.replicas for part in orders(state).values()) for i in range(6)]
    assert all(len(part.replicas) == len(part.isr) == 3 for part in orders(state).values())
    assert all(orders(state)[n].replicas[0] == before[n].replicas[0] for n in before)
    assert max(counts) - min(counts) <= 1, counts
    state = settle(wish(state, replicas=2))
    assert all(len(part.replicas) == 2 for part in orders(state).values())
    assert all(orders(state)[n].leader == before[n].leader for n in before)
    counts = [sum(i in part.replicas for part in orders(state).values()) for i in range(6)]
    assert max(counts) - min(counts) <= 2, counts


def test_a_changed_assignment_moves_and_its_removal_moves_nothing():
    state = settle(cluster({0: partition(replicas=(0, 1, 2)), 1: partition(replicas=(1, 2, 0))}))
    state = settle(wish(state, replica_assignment={0: (3, 4, 5)}))
    assert orders(state)[0].replicas == (3, 4, 5)
    assert orders(state)[1].replicas == (1, 2, 0)
    rest = settle(wish(state, replica_assignment={}))
    assert orders(rest) == orders(state)


def test_an_assignment_wins_over_the_number_of_replicas_and_says_so():
    state = settle(cluster({0: partition(replicas=(0, 1))}, replicas=2, replica_assignment={0: (0, 1)}))
    state = settle(wish(state, replicas=3))
    assert orders(state)[0].replicas == (0, 1)
    assert "spec.replicaAssignment" in progressing(state).message


@pytest.mark.parametrize(
    ("target", "words"),
    [((), "names no broker"), ((1, 1), "twice"), ((0, 9), "unknown brokers [9]"), (tuple(range(17)), "more than 16")],
)
def test_refused_assignments_say_why_and_move_nothing(target, words):
    before = cluster({0: partition(replicas=(0, 1, 2))})
    state = settle(wish(before, replica_assignment={0: target}))
    assert orders(state) == orders(before)
    assert (progressing(state).status, progressing(state).reason) == ("False", "InvalidReplicaAssignment")
    assert words in progressing(state).message


def test_more_replicas_than_brokers_is_told():
    state = settle(wish(cluster({0: partition(replicas=(0, 1, 2))}), replicas=7))
    assert (progressing(state).reason, progressing(state).status) == ("NotEnoughBrokers", "False")


def test_a_move_to_a_broker_that_is_away_waits_for_it():
    state = cluster({0: partition(replicas=(0, 1, 2))})
    state = settle(replace(wish(state, replica_assignment={0: (3, 1, 2)}), brokers=without(3)))
    assert not orders(state)[0].adding
    assert (progressing(state).reason, progressing(state).status) == ("Reassigning", "True")
    assert "broker 3 is fenced" in progressing(state).message
    state = settle(replace(state, brokers=SIX))
    assert orders(state)[0].replicas == (3, 1, 2)
    assert progressing(state).reason == "Stable"


def bounded(limit, count=6):
    state = cluster({n: partition(replicas=(0, 1, 2)) for n in range(count)})
    state = replace(state, cluster=replace(state.cluster, config={"kafkalite.reassignment.partitions.max": str(limit)}))
    return wish(state, replica_assignment=dict.fromkeys(range(count), (3, 4, 5)))


def test_only_so_many_partitions_move_at_once():
    state = bounded(2)
    finished = set()
    for _ in range(30):
        actions = plan(state, NOW)
        state = apply(state, actions)
        moving = {n for n, part in orders(state).items() if part.adding}
        assert len(moving) <= 2
        if not actions and moving:
            waiting = [n for n, part in orders(state).items() if part.replicas == (0, 1, 2)]
            assert ("when it is its turn" in progressing(state).message) == bool(waiting)
            assert progressing(state).message.startswith("2 of 6 partitions are moving")
            state = in_sync(state)
        finished = {n for n, part in orders(state).items() if part.replicas == (3, 4, 5)}
    assert finished == set(range(6))


def test_a_move_that_cannot_go_on_keeps_no_other_waiting():
    state = bounded(1, count=2)
    state = apply(state, plan(state, NOW))
    assert orders(state)[0].adding
    assert not orders(state)[1].adding
    state = wish(replace(state, brokers=without(3)), replica_assignment={0: (3, 4, 5), 1: (4, 5, 2)})
    for _ in range(4):
        state = apply(state, plan(state, NOW))
    assert orders(state)[1].adding == (4, 5)


def test_a_move_without_a_leader_to_copy_from_keeps_no_other_waiting():
    lost = entry(leader=-1, replicas=(5,), isr=[(5, SIX[5].epoch)])
    state = cluster({0: lost, 1: lost, 2: partition(replicas=(0, 1, 2))})
    state = replace(state, cluster=replace(state.cluster, config={"kafkalite.reassignment.partitions.max": "1"}))
    lists = {0: (3,), 1: (3,), 2: (3, 1, 2)}
    state = wish(replace(state, brokers=without(5)), replica_assignment=lists)
    for _ in range(4):
        state = apply(state, plan(state, NOW))
    assert [orders(state)[number].adding for number in range(3)] == [(3,)] * 3


def test_a_move_that_is_copied_and_waits_for_who_stays_keeps_no_other_waiting():
    copied = partition(replicas=(3, 1, 2, 0), isr=(0, 3), adding=(3,), removing=(0,), min_isr=2)
    state = cluster({0: copied, 1: partition(replicas=(0, 4, 5))}, config={"min.insync.replicas": "2"})
    state = replace(state, cluster=replace(state.cluster, config={"kafkalite.reassignment.partitions.max": "1"}))
    lists = {0: (3, 1, 2), 1: (3, 4, 5)}
    state = wish(replace(state, brokers=without(1, 2)), replica_assignment=lists)
    for _ in range(4):
        state = apply(state, plan(state, NOW))
    assert [orders(state)[number].adding for number in range(2)] == [(3,), (3,)]


def test_cancelling_needs_no_turn():
    state = bounded(1)
    state = apply(state, plan(state, NOW))
    state = settle(wish(state, replica_assignment=dict.fromkeys(range(6), (0, 1, 2))))
    assert all(part.replicas == (0, 1, 2) for part in orders(state).values())


def test_a_paused_topic_does_not_move():
    state = cluster({0: partition(replicas=(0, 1, 2))})
    view = replace(state.topics["uid-orders"], paused=True)
    state = wish(replace(state, topics={"uid-orders": view}), replica_assignment={0: (3, 4, 5)})
    assert not any(isinstance(action, ChangePartitions) for action in plan(state, NOW))


def test_steps_are_told_apart_from_elections():
    state = wish(cluster({0: partition(replicas=(0, 1, 2))}), replica_assignment={0: (3, 1, 2)})
    (begin,) = [a for a in plan(state, NOW) if isinstance(a, ChangePartitions)]
    assert (begin.moved, begin.elected) == ({0}, frozenset())
    state = in_sync(apply(state, [begin]))
    (end,) = [a for a in plan(state, NOW) if isinstance(a, ChangePartitions)]
    assert (end.moved, end.elected) == ({0}, {0}), "brokers are read again before replicas leave"


def test_what_a_move_adds_is_not_missed_before_it_is_there():
    moving = replace(partition(replicas=(3, 1, 2, 0), isr=(0, 1, 2), adding=(3,), removing=(0,)))
    state = snapshot(
        topic_view(partitions={0: moving}, spec={"replica_assignment": {0: (3, 1, 2)}}),
        brokers=SIX,
        cluster={"replicas": 6},
    )
    for _ in range(3):
        state = apply(state, plan(state, NOW))
    healthy = next(c for c in state.topics["uid-orders"].conditions if c.type == "Healthy")
    assert (healthy.status, healthy.reason) == ("True", "InSync")
