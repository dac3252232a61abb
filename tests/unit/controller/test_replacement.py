"""Replacing a broker whose node or volume is gone: who, what speaks against it, and in which order things go."""

import random
from dataclasses import replace

import pytest

from kafkalite_core.controller.actions import (
    ChangePartitions,
    CompleteElections,
    EndReplaceRequest,
    Fence,
    ReplaceBroker,
    RestartPods,
    UpdateBrokerStatus,
    UpdateClusterStatus,
)
from kafkalite_core.controller.lost_nodes import OVERDUE_MARGIN_S, may_force, overdue
from kafkalite_core.controller.plan import plan
from kafkalite_core.controller.replacement import CLAIMS_FRESH_S, objections, replacement
from kafkalite_core.model.cluster import BrokerState, Cluster
from kafkalite_core.model.pods import Rolling
from kafkalite_core.model.replacement import Node, NodeState, Phase, Replacing
from kafkalite_core.model.topic import Holding
from kafkalite_core.model.volumes import Volume
from tests.unit.controller.builders import NOW, apply, entry, make_broker, snapshot, topic_view
from tests.unit.controller.rolling_world import NEW, OLD, name, pod

LIMIT_S = 300.0


def claim(broker_id, **more):
    values = {"name": f"data-{name(broker_id)}", "uid": f"claim-{broker_id}", "requested": "1Gi", **more}
    return Volume(**values)


def world(*views, gone=1, brokers=None, cluster=None, **more):
    """Three brokers of which one is fenced and declared gone; topic `t` has all of them as replicas."""
    brokers = {i: make_broker(i, object_name=name(i)) for i in range(3)} | (brokers or {})
    if gone is not None and brokers[gone].registration is not None and not brokers[gone].replace_request:
        brokers[gone] = replace(brokers[gone], fenced_epoch=10 + gone, replace_request="true")
    views = views or (topic_view("t", partitions={0: entry(isr=[(0, 10), (2, 12)], min_isr=2)}, spec=TWO),)
    values = {
        "pods": {i: pod(i, node=f"node-{i}") for i in brokers},
        "volumes": tuple(claim(i) for i in brokers),
        "claims_age_s": 0.0,
        "revision": OLD,
        "revision_served": True,
    }
    return snapshot(*views, brokers=brokers, cluster=cluster, **{**values, **more})


TWO = {"partitions": 1, "config": {"min.insync.replicas": "2"}}


def noted(state, **more):
    values = {
        "phase": Phase.REMOVING,
        "broker": 1,
        "cause": "kafkalite.io/replace is set",
        "directory_id": "d",
        "claim_uid": "claim-1",
        "pod_uid": f"{name(1)}-0",
    }
    return replace(state, replacing=Replacing(**{**values, **more}))


def of(actions, kind):
    return [action for action in actions if isinstance(action, kind)]


def reasons(state):
    return [f"{each.partition} {each.reason}".strip() for each in replacement(state, NOW).status.blocked_by]


# -- the course of things ---------------------------------------------------------------------------------------------


def test_nothing_is_done_for_nobody():
    state = world(gone=None)
    assert replacement(state, NOW).status == Replacing()
    assert replacement(state, NOW).conditions == {}


def test_it_is_noted_before_anything_is_deleted():
    state = world()
    actions = plan(state, NOW)
    assert not of(actions, ReplaceBroker)
    [status] = of(actions, UpdateClusterStatus)
    assert status.replacing == noted(state).replacing
    assert {each.reason for each in status.conditions if each.type == "Replacing"} == {"Removing"}
    [told] = of(actions, UpdateBrokerStatus)
    assert (told.broker.id, told.condition.reason) == (1, "Removing")


def test_the_old_claim_and_its_pod_are_deleted_and_no_other_ones():
    state = noted(world())
    [step] = of(plan(state, NOW), ReplaceBroker)
    assert (step.claim, step.claim_uid, step.pod, step.pod_uid) == (
        f"data-{name(1)}",
        "claim-1",
        name(1),
        f"{name(1)}-0",
    )
    assert not step.force
    # The pod was deleted by somebody, and made again with the claim that is given up.
    other = replace(state, pods={**state.pods, 1: pod(1, uid="made-2")})
    [step] = of(plan(other, NOW), ReplaceBroker)
    assert (step.claim_uid, step.pod_uid) == ("claim-1", "made-2")
    # An operator died between the two calls, and the StatefulSet has made both anew.
    new = tuple(claim(i, uid="claim-new" if i == 1 else f"claim-{i}") for i in range(3))
    assert not of(plan(replace(other, volumes=new), NOW), ReplaceBroker)
    # It has made the claim anew, and the old pod is still there: it would keep the name.
    [step] = of(plan(replace(state, volumes=new), NOW), ReplaceBroker)
    assert (step.claim, step.pod_uid) == ("", f"{name(1)}-0")


def test_what_is_being_deleted_is_given_its_time_and_no_more():
    ending = pod(1, node="node-1", deleting=True, deleting_since=NOW - 20, grace_s=30.0)
    volumes = tuple(claim(i, deleting=i == 1) for i in range(3))
    state = noted(world(pods={0: pod(0), 1: ending, 2: pod(2)}, volumes=volumes))
    assert not of(plan(state, NOW), ReplaceBroker)
    [step] = of(plan(state, NOW + 10 + OVERDUE_MARGIN_S + 1), ReplaceBroker)
    assert (step.claim, step.pod_uid, step.force) == ("", f"{name(1)}-0", True)
    for seen, force in ((NodeState.GONE, True), (NodeState.UNKNOWN, True), (NodeState.NOT_READY, False)):
        steps = of(plan(replace(state, nodes={"node-1": Node(state=seen, unready_since=NOW)}), NOW), ReplaceBroker)
        assert [step.force for step in steps] == [True] * force, seen


def test_a_broker_that_runs_hands_over_is_fenced_and_leaves_its_isrs_first():
    view = topic_view("t", partitions={0: entry(leader=1, replicas=(1, 0, 2), min_isr=2)}, spec=TWO)
    state = noted(world(view, brokers={1: make_broker(1, object_name=name(1), replace_request="true")}))
    actions = plan(state, NOW)
    assert not of(actions, Fence)
    assert not of(actions, ReplaceBroker)
    [change] = of(actions, ChangePartitions)
    assert change.changes[0].proposed.leader == 0
    state = apply(state, [change])
    [fence] = plan(state, NOW)
    assert (fence.broker.id, fence.reason) == (1, "Replaced")
    state = apply(state, [fence])
    actions = plan(state, NOW)
    assert not of(actions, ReplaceBroker), "it is still in the ISR"
    state = apply(state, of(actions, ChangePartitions))
    assert state.topics["uid-t"].topic.partitions[0].isr_ids() == (0, 2)
    assert of(plan(state, NOW), ReplaceBroker)
    # It comes back with the disk that is given up, before its pod is gone.
    back = {**state.brokers, 1: make_broker(1, 20, object_name=name(1), replace_request="true")}
    [fence] = plan(replace(state, brokers=back), NOW)
    assert fence.broker.epoch == 20


def test_the_disk_is_given_up_while_nothing_speaks_against_it():
    given_up = noted(world()).replacing
    assert given_up.gives_up("d")
    assert not given_up.gives_up("another disk")
    assert not replace(given_up, phase=Phase.REBUILDING).gives_up("d")
    blocked = replacement(noted(world(topic_view("t", partitions={0: entry(isr=[(1, 11)])}, spec=TWO))), NOW).status
    assert blocked.blocked_by
    assert not blocked.gives_up("d")


def test_a_new_disk_ends_the_request_then_the_replicas_come_back():
    fresh = make_broker(1, 20, trusted=20, object_name=name(1), replace_request="true")
    fresh = replace(fresh, registration=replace(fresh.registration, directory_id="new"))
    state = noted(world(brokers={1: fresh}))
    actions = plan(state, NOW)
    assert not of(actions, (ReplaceBroker, Fence))
    [end] = of(actions, EndReplaceRequest)
    assert (end.broker.id, end.request) == (1, "true")
    state = replace(state, brokers={**state.brokers, 1: replace(fresh, replace_request="")})
    found = replacement(state, NOW)
    assert (found.status.phase, found.status.replicas, found.status.in_sync) == (Phase.REBUILDING, 1, 0)
    assert "0 of 1 replicas" in found.conditions[1].message
    state = replace(state, replacing=found.status)
    assert replacement(state, NOW) == found
    view = topic_view("t", partitions={0: entry(isr=[(0, 10), (2, 12), (1, 20)], min_isr=2)}, spec=TWO)
    whole = replace(state, topics={"uid-t": view}, conditions=(found.conditions[-1],))
    assert replacement(whole, NOW).status == Replacing()
    assert replacement(whole, NOW).conditions[-1].reason == "NotReplacing"
    # It is lost once more, while it copies: that is noted anew, with what it has now.
    again = replace(state, brokers={**state.brokers, 1: replace(fresh, fenced_epoch=20)})
    assert replacement(again, NOW).status.directory_id == "new"


def test_a_broker_without_replicas_is_replaced_when_it_runs():
    starts = make_broker(1, 20, state=BrokerState.CATCHING_UP)
    starts = replace(starts, registration=replace(starts.registration, directory_id="new"))
    state = noted(
        world(topic_view("t", partitions={0: entry(isr=[(0, 10)], replicas=(0,))}), brokers={1: starts}, gone=None)
    )
    assert replacement(state, NOW).status.phase is Phase.REBUILDING
    runs = replace(starts, registration=replace(starts.registration, state=BrokerState.RUNNING))
    assert replacement(replace(state, brokers={**state.brokers, 1: runs}), NOW).status == Replacing()


def test_a_change_of_mind_counts_until_something_is_deleted():
    withdrawn = {1: make_broker(1, fenced=11, object_name=name(1))}
    state = noted(world(gone=None, brokers=withdrawn))
    assert replacement(state, NOW).status == Replacing()
    assert not of(plan(state, NOW), ReplaceBroker)
    begun = replace(state, volumes=tuple(claim(i, deleting=i == 1) for i in range(3)))
    assert replacement(begun, NOW).status.phase is Phase.REMOVING
    assert of(plan(begun, NOW), ReplaceBroker), "its pod is left"


def test_nothing_is_begun_and_nothing_given_up_before_the_claims_were_read():
    """An operator that has just taken over: a claim that it has not read is not one that was deleted."""
    withdrawn = {1: make_broker(1, fenced=11, object_name=name(1))}
    for state in (world(), world(gone=None, brokers=withdrawn)):
        unread = noted(replace(state, volumes=(), claims_age_s=float("inf")))
        assert replacement(unread, NOW).status == unread.replacing
        assert not of(plan(unread, NOW), ReplaceBroker)
    gone = noted(world(gone=None, brokers=withdrawn, volumes=(claim(0), claim(2))))
    assert replacement(gone, NOW).status.phase is Phase.REMOVING
    there = noted(world(gone=None, brokers=withdrawn))
    assert replacement(there, NOW).status == Replacing(), "the node is back"


def test_no_claim_is_noted_that_was_read_long_ago():
    assert replacement(world(claims_age_s=CLAIMS_FRESH_S + 1), NOW).status == Replacing()
    unread = world(volumes=(claim(0), claim(2), claim(11)))
    assert replacement(unread, NOW).status.phase is Phase.WAITING
    assert reasons(unread) == ["its claim is not there, or was not read yet"]
    # Of one that was noted the pod is left; the next claim is made when it is gone.
    assert [step.pod for step in of(plan(noted(unread), NOW), ReplaceBroker)] == [name(1)]


def test_one_after_the_other():
    lost = {i: make_broker(i, fenced=10 + i, object_name=name(i), replace_request="true") for i in (1, 2)}
    view = topic_view("t", partitions={0: entry(isr=[(0, 10)], min_isr=1)}, spec={"partitions": 1})
    state = world(view, gone=None, brokers=lost)
    assert replacement(state, NOW).status.broker == 1
    state = noted(state)
    assert [step.broker.id for step in of(plan(state, NOW), ReplaceBroker)] == [1]
    new = make_broker(1, 20, trusted=20, object_name=name(1))
    state = replace(
        state,
        brokers={**lost, 0: make_broker(0), 1: replace(new, registration=replace(new.registration, directory_id="n"))},
    )
    assert replacement(state, NOW).status.phase is Phase.REBUILDING
    state = replace(state, replacing=replacement(state, NOW).status)
    assert replacement(state, NOW).status.broker == 1, "2 waits until 1 is back in its ISRs"


# -- what speaks against it -------------------------------------------------------------------------------------------


def only(isr, *, min_isr=1, leader=0, replicas=(0, 1, 2), **more):
    spec = {"partitions": 1, "replicas": len(replicas), "config": {"min.insync.replicas": str(min_isr)}}
    partitions = {0: replace(entry(leader=leader, isr=isr, replicas=replicas, min_isr=min_isr), **more)}
    return topic_view("t", partitions=partitions, spec=spec)


DENIED = {
    "it has the only copy": (lambda: world(only([(1, 11)], leader=-1, replicas=(1,))), "t-0 would lose its last copy"),
    "the others of the ISR are down": (
        lambda: world(
            only([(0, 10), (1, 11)], leader=-1), brokers={0: make_broker(0, fenced=10), 2: make_broker(2, 30)}
        ),
        "broker 0 is fenced",
    ),
    "the other member of the ISR has lost its disk": (
        lambda: world(only([(0, 10)], leader=-1), brokers={0: make_broker(0, 30, trusted=30)}),
        "t-0 would lose its last copy",
    ),
    "the other member is catching up with an older epoch that counts no more": (
        lambda: world(only([(0, 10)], leader=0), brokers={0: replace(make_broker(0), registration=None)}),
        "broker 0 is not registered",
    ),
    "too few stay in sync": (
        lambda: world(only([(0, 10)], min_isr=2), brokers={2: make_broker(2, fenced=12)}),
        "t-0 would keep 1 of min.insync.replicas 2 in sync: broker 2 is fenced",
    ),
    "paused": (lambda: world(cluster={"paused": True}), "kafkalite.io/paused"),
    "it leaves": (lambda: world(cluster={"replicas": 1}), "it leaves the cluster"),
    "a topic cannot be read": (lambda: world(complete=False), "cannot be read"),
    "a roll": (
        lambda: world(rolling=Rolling(in_progress=True, restarting=(name(0), name(1)))),
        f"under way: {name(0)}",
    ),
    "the store went back": (
        lambda: world(brokers={1: replace(make_broker(1, object_name=name(1)), holdings=(HOLDING,))}),
        "t-0 is older in the store",
    ),
}
HOLDING = Holding(topic="t", topic_id="id", partition=0, leader_epoch=9, partition_epoch=99, log_epoch=9, end_offset=7)


@pytest.mark.parametrize("why", DENIED)
def test_denied(why):
    state = DENIED[why][0]()
    found = replacement(state, NOW)
    assert found.status.phase is Phase.WAITING
    assert any(DENIED[why][1] in reason for reason in reasons(state)), reasons(state)
    assert found.conditions[-1].status == "False"
    assert found.conditions[-1].reason == found.conditions[1].reason == "Blocked"
    assert DENIED[why][1] in found.conditions[-1].message
    # What comes to speak against it after it was noted stops it, too.
    late = noted(state)
    assert not of(plan(late, NOW), ReplaceBroker)
    assert replacement(late, NOW).status.blocked_by


def test_what_waits_for_nothing_is_no_reason():
    assert (
        replacement(world(rolling=Rolling(in_progress=True, restarting=(name(1),))), NOW).status.phase is Phase.REMOVING
    )
    two = only([(0, 10)], min_isr=2, replicas=(0, 1))
    assert replacement(world(two), NOW).status.phase is Phase.REMOVING, "with two replicas there are never two others"


def test_one_that_nothing_speaks_against_does_not_wait_for_one_that_is_blocked():
    alone = topic_view("alone", partitions={0: entry(leader=-1, isr=[(1, 11)], replicas=(1,))}, spec={"replicas": 1})
    lost = {i: make_broker(i, fenced=10 + i, object_name=name(i), replace_request="true") for i in (1, 2)}
    assert replacement(world(alone, gone=None, brokers=lost), NOW).status.broker == 2


def test_a_partition_may_be_given_up():
    view = replace(
        only([(1, 11)], leader=-1, replicas=(1,)),
        elect_unclean=frozenset({0}),
        elections={"kafkalite.io/elect-unclean": "0"},
        unclean_request="0",
    )
    state = world(view)
    assert replacement(state, NOW).status.phase is Phase.REMOVING
    state = noted(state)
    actions = plan(state, NOW)
    assert of(actions, ReplaceBroker)
    assert not of(actions, CompleteElections), "the consent stays until the broker is there to be elected"
    fresh = make_broker(1, 20, trusted=20, object_name=name(1))
    fresh = replace(fresh, registration=replace(fresh.registration, directory_id="new"))
    [change] = of(plan(replace(state, brokers={**state.brokers, 1: fresh}), NOW), ChangePartitions)
    assert change.unclean == {0}
    # Without a replacement there is nothing to wait for.
    dead = {1: make_broker(1, fenced=11, object_name=name(1))}
    assert of(plan(world(view, gone=None, brokers=dead), NOW), CompleteElections)


def test_consent_gives_up_no_more_than_it_has_to():
    view = replace(only([(0, 10)], min_isr=2), elect_unclean=frozenset({0}), elections={"x": "0"})
    state = world(view, brokers={2: make_broker(2, fenced=12)})
    assert "would keep 1 of" in reasons(state)[0]


def test_no_acknowledged_record_depends_on_what_is_deleted():
    """The promise, in other words than the rule's, on random states."""
    chance, deleted = random.Random(7), 0
    for _ in range(3000):
        brokers = {}
        for i in range(4):
            trusted = chance.choice([1, 1, 1, 10 + i, 20])
            epoch = chance.choice([10 + i, 20])
            fenced = chance.choice([-1, -1, 20])
            brokers[i] = make_broker(
                i, epoch, trusted=min(trusted, epoch), fenced=fenced, object_name=name(i),
                replace_request="true" if i == 1 or (i == 2 and chance.random() < 0.5) else "",
            )  # fmt: skip
        views = []
        for number in range(2):
            replicas = chance.sample(range(4), chance.choice([1, 2, 3, 3]))
            members = [i for i in replicas if chance.random() < 0.7] or replicas[:1]
            isr = [(i, chance.choice([10 + i, 20])) for i in members]
            leader = chance.choice([-1, members[0]])
            part = entry(leader=leader, isr=isr, replicas=tuple(replicas), min_isr=chance.choice([1, 2]))
            config = {"min.insync.replicas": str(part.min_isr)}
            spec = {"partitions": 1, "replicas": len(replicas), "config": config}
            views.append(topic_view(f"t{number}", partitions={0: part}, spec=spec))
        state = noted(world(*views, brokers=brokers, cluster={"replicas": 4}))
        for step in of(plan(state, NOW), ReplaceBroker):
            deleted += 1
            assert step.broker.id == 1
            assert state.brokers[1].fenced
            for view in state.topics.values():
                part = view.topic.partitions[0]
                if 1 not in part.replicas:
                    continue
                holders = {
                    m.id
                    for m in part.isr
                    if state.brokers[m.id].alive
                    and state.brokers[m.id].registration.trusted_since <= m.epoch <= state.brokers[m.id].epoch
                }
                assert 1 not in {m.id for m in part.isr}
                others = {i: state.brokers[i] for i in part.replicas if i != 1}
                gone = {i for i, each in others.items() if each.replace_request and not each.alive}
                assert len(holders) >= min(part.min_isr, len(others.keys() - gone))
                assert holders
    assert deleted > 100


# -- others -----------------------------------------------------------------------------------------------------------


def test_no_batch_of_a_roll_begins_meanwhile():
    """Its broker is up, if with the disk that is given up."""
    brokers = {i: make_broker(i, object_name=name(i)) for i in range(3)}
    state = world(topic_view("t", partitions={0: entry()}), gone=None, brokers=brokers, revision=NEW)
    assert of(plan(state, NOW), UpdateClusterStatus)[0].rolling.restarting
    brokers[1] = replace(brokers[1], replace_request="true")
    state = noted(replace(state, brokers=brokers))
    planned = plan(apply(state, plan(state, NOW)), NOW)
    assert not of(planned, RestartPods)
    status = of(planned, UpdateClusterStatus)[0].rolling
    assert not status.restarting
    assert any("broker 1" in each.reason for each in status.blocked_by)


def test_a_pod_that_does_not_end_holds_up_no_removal():
    ending = pod(3, node="node-3", deleting=True, deleting_since=NOW - 100)
    cluster = Cluster(namespace="n", name="c", uid="u", node_loss="replace", node_loss_s=LIMIT_S)
    gone = Node(state=NodeState.GONE)
    assert may_force(cluster, ending, gone, NOW)
    assert not may_force(replace(cluster, node_loss="wait"), ending, gone, NOW)
    assert not may_force(cluster, pod(3, node="node-3"), gone, NOW)
    assert not may_force(cluster, ending, None, NOW)
    assert overdue(ending, NOW)
    assert not overdue(replace(ending, deleting_since=NOW - 50), NOW)
    brokers = {i: make_broker(i, object_name=name(i)) for i in range(3)} | {3: make_broker(3, fenced=13)}
    pods = {i: pod(i) for i in range(3)} | {3: ending}
    state = world(topic_view("t", partitions={0: entry()}), gone=None, brokers=brokers, pods=pods)
    [status] = of(plan(state, NOW), UpdateClusterStatus)
    [told] = [each for each in status.conditions if each.type == "Progressing"]
    assert f"kubectl delete pod {name(3)} --force" in told.message


def test_objections_are_for_the_command_line_too():
    assert objections(world(), 1) == []
    [found] = objections(world(only([(1, 11)], leader=-1, replicas=(1,))), 1)
    assert (found.partition, "its last copy" in found.reason) == ("t-0", True)
