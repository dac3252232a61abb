"""Nodes and volumes that are lost: when they count as declared gone, and what a condition says where they do not."""

from dataclasses import replace

import pytest

from kafkalite_core.controller.conditions import cluster_conditions
from kafkalite_core.controller.lost_nodes import OVERDUE_MARGIN_S
from kafkalite_core.controller.replacement import replacement
from kafkalite_core.model.cluster import Recovery
from kafkalite_core.model.replacement import Node, NodeState, Phase, Replacing
from kafkalite_core.model.topic import Condition, Stray
from tests.unit.controller.builders import NOW, make_broker
from tests.unit.controller.rolling_world import name, pod
from tests.unit.controller.test_replacement import claim, reasons, world

LIMIT_S = 300.0


def lost(state=NodeState.GONE, since=NOW, *, node="node-1", broker=None, cluster=None, **more):
    broker = broker or make_broker(1, fenced=11, object_name=name(1))
    cluster = {"node_loss": "replace", "node_loss_s": LIMIT_S, **(cluster or {})}
    nodes = {node: Node(state=state, unready_since=since)}
    return world(gone=None, brokers={1: broker}, cluster=cluster, **{"nodes": nodes, **more})


@pytest.mark.parametrize(
    ("state", "cause"),
    [
        (lost(), "its node node-1 is gone"),
        (lost(NodeState.UNKNOWN, NOW - LIMIT_S), "its node node-1 has not been ready for 300 s"),
        (lost(NodeState.NOT_READY, NOW - LIMIT_S), "its node node-1 has not been ready for 300 s"),
        (lost(NodeState.UNKNOWN, NOW - LIMIT_S + 1), ""),
        (lost(NodeState.READY, NOW - LIMIT_S), ""),
        (lost(node="another"), ""),
        (lost(nodes={}), ""),
        (lost(cluster={"node_loss": "wait"}), ""),
        (lost(broker=make_broker(1, object_name=name(1))), ""),
        (lost(pods={0: pod(0), 2: pod(2)}), ""),
        (lost(nodes={}, volumes=(claim(1, lost=True),)), f"claim data-{name(1)} has lost its volume"),
    ],
)
def test_a_lost_node_counts_as_declared_gone(state, cause):
    found = replacement(state, NOW).status
    assert (found.phase, found.cause) == ((Phase.REMOVING, cause) if cause else (Phase.NONE, ""))


def test_a_pod_that_waits_for_a_volume_on_a_lost_node():
    waiting = {0: pod(0), 1: pod(1, ready=False, stuck="Unschedulable"), 2: pod(2)}
    volumes = tuple(claim(i, node=f"node-{i}") for i in range(3))
    assert replacement(lost(pods=waiting, volumes=volumes), NOW).status.cause == "its node node-1 is gone"
    starts = {**waiting, 1: pod(1, ready=False, node="node-0")}
    assert replacement(lost(pods=starts, volumes=volumes), NOW).status == Replacing(), "its volume has come along"


@pytest.mark.parametrize(
    ("elsewhere", "last", "cause"),
    [(True, "node-1", "its node node-1 is gone"), (True, "", ""), (False, "node-1", ""), (True, "node-0", "")],
)
def test_a_volume_that_was_there_before_its_claim_is_on_the_node_where_its_pod_was(elsewhere, last, cause):
    """Kubernetes notes a node on claims only of volumes that it has made."""
    waiting = pod(1, ready=False, stuck="Unschedulable", volume_elsewhere=elsewhere)
    volumes = tuple(claim(i, last_node=last) for i in range(3))
    assert replacement(lost(pods={0: pod(0), 1: waiting, 2: pod(2)}, volumes=volumes), NOW).status.cause == cause


@pytest.mark.parametrize("elsewhere", [True, False])
def test_what_the_scheduler_says_of_a_broker_that_is_away(elsewhere):
    waiting = pod(
        1, ready=False, stuck="Unschedulable", stuck_message="0/2 nodes are available.", volume_elsewhere=elsewhere
    )
    told = healthy(lost(nodes={}, cluster={"node_loss": "wait"}, pods={0: pod(0), 1: waiting, 2: pod(2)}))
    assert told.reason == "BrokersMissing"
    assert f"broker 1 is fenced: pod {name(1)}: Unschedulable (0/2 nodes are available)" in told.message
    assert ("kubectl kafkalite replace 1" in told.message) is elsewhere


def silent(state=NodeState.UNKNOWN, *, cluster=None, **more):
    """A broker is away, and nobody replaces it."""
    pods = {0: pod(0), 1: pod(1, ready=False, node="node-1"), 2: pod(2)}
    told = Node(state=state, unready_since=NOW, since="2026-01-01T00:00:00Z")
    cluster = {"node_loss": "wait", **(cluster or {})}
    return lost(cluster=cluster, **{"nodes": {"node-1": told}, "pods": pods, **more})


def healthy(state, now=NOW):
    [found] = [each for each in cluster_conditions(state, now) if each.type == "Healthy"]
    assert found.status == "False"
    return found


@pytest.mark.parametrize(
    ("state", "words"),
    [(NodeState.UNKNOWN, "is unreachable"), (NodeState.NOT_READY, "is not ready"), (NodeState.GONE, "is gone")],
)
def test_a_broker_on_a_lost_node_that_is_waited_for(state, words):
    told = healthy(silent(state))
    assert told.reason == "NodeLost"
    assert (
        f"broker 1 is fenced: its node node-1 {words} since 2026-01-01T00:00:00Z. Kubernetes makes no" in told.message
    )
    for remedy in ("boot the node", "kubectl uncordon", "kubectl kafkalite replace 1,", "kafkalite.io/replace=true",
                   "spec.nodeLoss: replace"):  # fmt: skip
        assert remedy in told.message


@pytest.mark.parametrize(
    "state",
    [
        silent(NodeState.READY),
        silent(nodes={}),
        silent(pods={0: pod(0), 1: pod(1, node="node-1"), 2: pod(2)}),
        silent(pods={0: pod(0), 2: pod(2)}),
        silent(pods={0: pod(0), 1: pod(1, ready=False, node="node-2"), 2: pod(2)}),
    ],
)
def test_a_broker_that_is_away_for_another_reason(state):
    told = healthy(state)
    assert (told.reason, told.message) == ("BrokersMissing", "broker 1 is fenced")


def test_without_a_look_at_the_node_a_pod_that_does_not_end_tells():
    ends = pod(1, ready=False, node="node-1", deleting=True, deleting_since=NOW, grace_s=30.0)
    state, late = silent(nodes={}, pods={0: pod(0), 1: ends, 2: pod(2)}), NOW + 30.0 + OVERDUE_MARGIN_S
    assert healthy(state, late).reason == "BrokersMissing"
    told = healthy(state, late + 1)
    assert told.reason == "NodeLost"
    assert f"its pod {name(1)} does not end, as on a node that is gone: node-1" in told.message
    assert "kubectl kafkalite replace 1" in told.message


def test_who_is_replaced_needs_nobody():
    for state in (
        silent(cluster={"node_loss": "replace"}),
        silent(broker=make_broker(1, fenced=11, object_name=name(1), replace_request="true")),
        silent(replacing=Replacing(phase=Phase.REMOVING, broker=1, cause="c")),
    ):
        told = healthy(state)
        assert told.reason == "NodeLost"
        assert "see condition Replacing" in told.message
        assert "kubectl" not in told.message


def test_what_is_lost_is_named_first_of_many():
    state = silent()
    brokers = {**{i: make_broker(i, fenced=99, object_name=name(i)) for i in range(9)}}
    pods = {7: pod(7, ready=False, node="node-1")}
    told = healthy(replace(state, brokers=brokers, pods=pods, cluster=replace(state.cluster, replicas=9)))
    assert told.message.startswith("broker 7 is fenced: its node node-1")
    assert "kubectl kafkalite replace 7" in told.message


def test_the_cluster_says_how_far_a_recovery_is():
    recovery = Recovery(incarnation="new", remaining_logs=4, remaining_segments=2, seen_at=NOW)
    broker = replace(make_broker(1, fenced=11, object_name=name(1)), recovery=recovery)
    pods = {0: pod(0), 1: pod(1, ready=False, running=True, node="node-1"), 2: pod(2)}
    told = healthy(silent(broker=broker, nodes={}, pods=pods))
    assert told.message == "broker 1 recovers its logs: 4 left, and 2 segments of those under way"


def test_data_of_lost_topics_are_given_up_by_a_person_only():
    stray = Stray(topic="gone", topic_id="other", partition=0, leader_epoch=1, partition_epoch=1, end_offset=5)
    broker = make_broker(1, fenced=11, object_name=name(1), strays=(stray,))
    state = lost(broker=broker)
    assert "data of topics that were lost (gone)" in reasons(state)[0]
    declared = replace(state, brokers={**state.brokers, 1: replace(broker, replace_request="true")})
    assert replacement(declared, NOW).status.phase is Phase.REMOVING


def test_a_broker_that_was_down_when_a_topic_went_keeps_its_volume():
    """Its list is older than that, and empty."""
    state = lost(broker=make_broker(1, fenced=11, object_name=name(1)))
    assert replacement(state, NOW).status.phase is Phase.REMOVING
    assert "data of topics that were lost (gone)" in reasons(replace(state, unlisted={1: ("gone",)}))[0]


def test_one_broker_that_saw_the_deletion_is_enough():
    """The watch of the lost one was broken when its topic was deleted; it cannot be asked any more."""
    stray = Stray(topic="gone", topic_id="other", partition=0, leader_epoch=1, partition_epoch=1, end_offset=5)
    state = lost(broker=make_broker(1, fenced=11, object_name=name(1), strays=(stray,)))
    witness = make_broker(2, object_name=name(2), strays=(replace(stray, partition=3, deleted=True),))
    assert replacement(replace(state, brokers={**state.brokers, 2: witness}), NOW).status.phase is Phase.REMOVING
    other = replace(witness, strays=(replace(stray, topic_id="of the same name", deleted=True),))
    assert reasons(replace(state, brokers={**state.brokers, 2: other}))


def test_what_a_condition_says_without_permission_to_act():
    state = lost(cluster={"node_loss": "wait"}, nodes={}, volumes=(claim(1, lost=True),))
    told = replacement(state, NOW).conditions
    assert (told[1].reason, told[-1].reason) == ("VolumeLost", "VolumeLost")
    assert f"kubectl annotate klb {name(1)} kafkalite.io/replace=true" in told[1].message
    told = replacement(lost(nodes={}, nodes_refused=True), NOW).conditions
    assert told[-1].reason == "NodesNotReadable"
    known = (Condition(type="Replacing", status="False", reason="NodesNotReadable", message="x"),)
    assert replacement(lost(nodes={}, conditions=known), NOW).conditions[-1].reason == "NotReplacing"
