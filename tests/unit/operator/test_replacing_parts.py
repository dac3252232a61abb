"""What the operator knows of nodes, and tells of replacements."""

import itertools
from dataclasses import replace

from kafkalite_core.model.pods import Blocked
from kafkalite_core.model.replacement import NodeState, Phase, Replacing
from kafkalite_core.resources.fields import Fields
from kafkalite_core.resources.replacing import node_since, node_state, parse_replacing, render_replacing
from kafkalite_operator.nodes import Nodes
from kafkalite_operator.store import NODE_FRESH_S, Store
from kafkalite_operator.telling import replacing_events
from kafkalite_runtime.kube.errors import KubeNotFound


def test_a_node_is_as_old_as_the_last_look_at_it():
    now = [100.0]
    store = Store(lambda: now[0], "image")
    store.note_node("n", NodeState.UNKNOWN)
    now[0] += 10
    store.note_node("n", NodeState.NOT_READY)
    assert store.nodes()["n"].unready_since == 100.0
    store.note_node("n", NodeState.READY)
    store.note_node("n", NodeState.UNKNOWN)
    assert store.nodes()["n"].unready_since == 110.0
    now[0] += NODE_FRESH_S
    assert store.nodes() == {}
    store.note_node("n", NodeState.UNKNOWN)
    assert store.nodes()["n"].unready_since == now[0], "nobody knows what was in between"


async def test_since_when_a_node_is_gone_is_known_to_who_looked_for_it(monkeypatch):
    class Client:
        there = False

        async def get(self, *_, **__):
            if not self.there:
                raise KubeNotFound(404, "", "")
            return {"metadata": {"name": "n"}, "status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}

    times = iter(["first", "second", "third"])
    monkeypatch.setattr("kafkalite_operator.nodes.wall_time", lambda: next(times))
    nodes = Nodes(Client())
    assert await nodes.state("n") == await nodes.state("n") == (NodeState.GONE, "first")
    Client.there = True
    assert await nodes.state("n") == (NodeState.UNKNOWN, "")
    Client.there = False
    assert (await nodes.state("n"))[1] != "first"


def test_what_a_node_says_of_itself():
    def node(*conditions):
        return {"metadata": {"name": "n"}, "status": {"conditions": list(conditions)}}

    ready = {"type": "Ready", "status": "True", "lastTransitionTime": "then"}
    assert node_since(node({"type": "DiskPressure", "lastTransitionTime": "never"}, ready)) == "then"
    assert node_since(node({"type": "Ready", "status": "True"})) == ""
    assert node_state(node({"type": "Ready", "status": "True"})) is NodeState.READY
    assert node_state(node({"type": "Ready", "status": "False"})) is NodeState.NOT_READY
    assert node_state(node({"type": "Ready", "status": "Unknown"})) is NodeState.UNKNOWN
    assert node_state(node({"type": "DiskPressure", "status": "True"})) is NodeState.UNKNOWN


def test_the_status_reads_as_it_is_written():
    status = Replacing(
        phase=Phase.REBUILDING, broker=2, cause="c", directory_id="d", claim_uid="u", pod_uid="p",
        replicas=3, in_sync=1, blocked_by=(Blocked("pod", "t-0", "why"), Blocked("pod", "", "why")),
    )  # fmt: skip
    assert parse_replacing(Fields({"replacing": render_replacing(status)}, "status")) == status
    assert parse_replacing(Fields({}, "status")) == Replacing()
    assert parse_replacing(Fields({"replacing": {"phase": "Later", "broker": 1}}, "status")) == Replacing()


def test_events_tell_of_steps():
    waiting = Replacing(phase=Phase.WAITING, broker=1, cause="c", blocked_by=(Blocked("p", "t-0", "why"),))
    removing = Replacing(phase=Phase.REMOVING, broker=1, cause="c")
    rebuilding = Replacing(phase=Phase.REBUILDING, broker=1, cause="c", replicas=3)
    steps = [Replacing(), waiting, removing, rebuilding, replace(rebuilding, in_sync=1), Replacing()]
    found = [replacing_events(*pair) for pair in itertools.pairwise(steps)]
    reasons = [[reason for _, reason, _ in each] for each in found]
    assert reasons == [
        ["ReplacementBlocked"], ["ReplacementStarted"], ["BrokerReplaced"], [], ["ReplacementDone"]
    ]  # fmt: skip
    assert "t-0 why" in found[0][0][2]
    assert replacing_events(waiting, Replacing()) == []
