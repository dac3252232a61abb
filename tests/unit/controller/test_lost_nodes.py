"""Nodes and volumes that are lost: when they count as declared gone, and what a condition says where they do not."""

from dataclasses import replace

import pytest

from kafkalite_core.controller.replacement import replacement
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


def test_data_of_lost_topics_are_given_up_by_a_person_only():
    stray = Stray(topic="gone", topic_id="other", partition=0, leader_epoch=1, partition_epoch=1, end_offset=5)
    broker = make_broker(1, fenced=11, object_name=name(1), strays=(stray,))
    state = lost(broker=broker)
    assert "data of topics that were lost (gone)" in reasons(state)[0]
    declared = replace(state, brokers={**state.brokers, 1: replace(broker, replace_request="true")})
    assert replacement(declared, NOW).status.phase is Phase.REMOVING


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
