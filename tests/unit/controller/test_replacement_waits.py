"""What a replacement waits for: never for somebody that waits for it, and never without a word."""

from dataclasses import replace

import pytest

from kafkalite_core.controller.actions import ReplaceBroker, UpdateBrokerStatus
from kafkalite_core.controller.plan import plan
from kafkalite_core.controller.replacement import objections, replacement
from kafkalite_core.model.pods import Rolling
from kafkalite_core.model.replacement import Node, NodeState, Phase, Replacing
from tests.unit.controller.builders import NOW, apply, entry, make_broker, topic_view
from tests.unit.controller.rolling_world import NEW, OLD, name, pod
from tests.unit.controller.test_replacement import TWO, claim, noted, of, only, reasons, world


def batch_lost(node_loss, asked=(2, 5)):
    """A roll's batch of brokers 2 and 5, which were lost together. No partition is on both."""
    declared = "" if node_loss == "replace" else "true"
    away = {
        i: make_broker(i, fenced=10 + i, object_name=name(i), replace_request=declared if i in asked else "")
        for i in (2, 5)
    }
    dead = {"revision": OLD, "node": "node-x", "ready": False, "deleting": True, "deleting_since": NOW - 9999}
    brokers = {i: make_broker(i, object_name=name(i)) for i in range(6)} | away
    return world(
        topic_view("a", partitions={0: entry(0, [(0, 10), (1, 11)], (0, 1, 2), min_isr=2)}, spec=TWO),
        topic_view("b", partitions={0: entry(3, [(3, 13), (4, 14)], (3, 4, 5), min_isr=2)}, spec=TWO),
        gone=None,
        brokers=brokers,
        cluster={"replicas": 6, "node_loss": node_loss, "node_loss_s": 300.0},
        pods={i: pod(i, **dead) if i in away else pod(i) for i in range(6)},
        volumes=tuple(claim(i, node="node-x" if i in away else f"node-{i}") for i in range(6)),
        nodes={"node-x": Node(state=NodeState.GONE)},
        revision=NEW,
        rolling=Rolling(in_progress=True, pending=tuple(map(name, range(6))), restarting=(name(2), name(5))),
    )


@pytest.mark.parametrize("node_loss", ["replace", "wait"])
def test_two_of_one_batch_that_are_lost_together_are_replaced_one_after_the_other(node_loss):
    state = batch_lost(node_loss)
    for _ in range(3):
        state = apply(state, [each for each in plan(state, NOW) if not isinstance(each, ReplaceBroker)])
    assert state.rolling.restarting == (name(2), name(5)), "the roll waits for both"
    assert (state.replacing.phase, state.replacing.broker, state.replacing.blocked_by) == (Phase.REMOVING, 2, ())
    assert [each.broker.id for each in plan(state, NOW) if isinstance(each, ReplaceBroker)] == [2]


def test_one_of_the_batch_that_comes_back_is_waited_for():
    state = batch_lost("wait", asked=(2,))
    [blocked] = replacement(state, NOW).status.blocked_by
    assert blocked.reason == f"a rolling restart is under way: {name(5)}"
    # So is one that runs still: the roll is about to stop it. It can go first, as nothing is to be waited for.
    runs = make_broker(5, object_name=name(5), replace_request="true")
    state = replace(state, brokers={**state.brokers, 5: runs})
    assert replacement(state, NOW).status.broker == 5
    [blocked] = replacement(noted(state, broker=2, pod_uid=f"{name(2)}-0", claim_uid="claim-2"), NOW).status.blocked_by
    assert blocked.reason == f"a rolling restart is under way: {name(5)}"


def test_who_is_to_be_replaced_while_another_one_is_hears_why_not_yet():
    """One that was replaced and does not come into its ISRs, because it crashes say, holds up every other one."""
    away = {
        1: make_broker(1, fenced=11, object_name=name(1)),
        2: make_broker(2, fenced=12, object_name=name(2), replace_request="true"),
    }
    view = topic_view("t", partitions={0: entry(isr=[(0, 10)])}, spec={"partitions": 1})
    rebuilding = Replacing(phase=Phase.REBUILDING, broker=1, cause="x", directory_id="d", replicas=1, in_sync=0)
    state = world(view, gone=None, brokers=away, replacing=rebuilding)
    found = replacement(state, NOW)
    assert (found.status, found.step) == (rebuilding, None)
    assert {i: (c.status, c.reason) for i, c in found.conditions.items()} == {
        -1: ("True", "Rebuilding"),
        1: ("True", "Rebuilding"),
        2: ("False", "Blocked"),
    }
    assert found.conditions[2].message == (
        "broker 2 is to be replaced (kafkalite.io/replace is set), one after the other: "
        "broker 1 is being rebuilt, 0 of 1 replicas are in sync again"
    )
    asked = {**away, 1: replace(away[1], replace_request="true")}
    removing = noted(world(view, gone=None, brokers=asked))
    assert replacement(removing, NOW).conditions[2].message.endswith("broker 1 is being replaced")
    # It is told once, and taken back with the request.
    state = apply(state, plan(state, NOW))
    assert not [each for each in plan(state, NOW) if isinstance(each, UpdateBrokerStatus)]
    withdrawn = {**state.brokers, 2: replace(state.brokers[2], replace_request="")}
    told = replacement(replace(state, brokers=withdrawn), NOW).conditions
    assert told[2].reason == "NotReplacing"


def test_two_that_are_declared_gone_do_not_wait_for_one_another():
    """Of three nodes two are gone for good: no annotation made the operator replace either."""
    lost = {i: make_broker(i, fenced=10 + i, object_name=name(i), replace_request="true") for i in (1, 2)}
    state = world(only([(0, 10)], min_isr=2), gone=None, brokers=lost)
    assert (replacement(state, NOW).status.phase, replacement(state, NOW).status.broker) == (Phase.REMOVING, 1)
    [step] = of(plan(noted(state), NOW), ReplaceBroker)
    assert step.broker.id == 1
    # The first one has a new disk and is not in sync yet: the second waits for it.
    fresh = make_broker(1, 20, trusted=20, object_name=name(1))
    fresh = replace(fresh, registration=replace(fresh.registration, directory_id="new"))
    state = noted(replace(state, brokers={**state.brokers, 1: fresh}))
    assert replacement(state, NOW).status.phase is Phase.REBUILDING
    state = replace(state, replacing=Replacing())
    assert "would keep 1 of min.insync.replicas 2 in sync: broker 1" in reasons(state)[0]
    view = only([(0, 10), (1, 20)], min_isr=2)
    assert replacement(world(view, gone=None, brokers={1: fresh, 2: lost[2]}), NOW).status.phase is Phase.REMOVING


def test_whoever_is_declared_gone_and_there_again_is_waited_for():
    back = {2: make_broker(2, 22, object_name=name(2), replace_request="true")}
    [against] = objections(world(only([(0, 10)], min_isr=2), brokers=back), 1)
    assert "would keep 1 of min.insync.replicas 2 in sync: broker 2" in against.reason


def test_the_last_copy_is_kept_whoever_is_declared_gone():
    lost = {i: make_broker(i, fenced=10 + i, object_name=name(i), replace_request="true") for i in (0, 1, 2)}
    state = world(only([(0, 10), (1, 11)], leader=-1, min_isr=2), gone=None, brokers=lost)
    assert replacement(state, NOW).status.phase is Phase.WAITING
    assert "would lose its last copy" in reasons(state)[0]


def test_who_is_in_sync_goes_after_who_is_declared_gone_and_away():
    """Else acks=all would stand still, and one disk alone hold what was acknowledged."""
    asked = {1: make_broker(1, object_name=name(1), replace_request="true")}
    asked[2] = make_broker(2, fenced=12, object_name=name(2), replace_request="true")
    state = world(only([(0, 10), (1, 11)], min_isr=2), gone=None, brokers=asked)
    assert (replacement(state, NOW).status.phase, replacement(state, NOW).status.broker) == (Phase.REMOVING, 2)


def test_whom_nobody_declared_gone_is_not_given_up_because_another_one_is():
    """With `spec.nodeLoss: replace` a node that is dark for a while would go for the sake of another one."""
    lost = {1: make_broker(1, fenced=11, object_name=name(1))}
    lost[2] = make_broker(2, fenced=12, object_name=name(2), replace_request="true")
    nodes = {"node-1": Node(state=NodeState.UNKNOWN, unready_since=NOW - 301.0)}
    cluster = {"node_loss": "replace", "node_loss_s": 300.0}
    state = world(only([(0, 10)], min_isr=2), gone=None, brokers=lost, cluster=cluster, nodes=nodes)
    assert replacement(state, NOW).status.phase is Phase.WAITING
    assert "would keep 1 of min.insync.replicas 2 in sync: broker 2" in reasons(state)[0]
    both = {**state.brokers, 1: replace(lost[1], replace_request="true")}
    assert replacement(replace(state, brokers=both), NOW).status.phase is Phase.REMOVING
    assert objections(state, 1) == [], "what kafkalite replace 1 tells before it is declared"
