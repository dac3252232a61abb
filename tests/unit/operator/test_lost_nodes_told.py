"""Nodes that are lost and waited for: what the cluster says of them, and how often they are looked at."""

import pytest

from kafkalite_operator import replacements
from kafkalite_operator.nodes import Nodes
from kafkalite_runtime.kube.errors import KubeForbidden
from kafkalite_runtime.kube.kinds import NODES, PODS
from tests.unit.operator import test_replacements as helpers
from tests.unit.operator.fakes import NAMESPACE, eventually
from tests.unit.operator.test_replacements import VICTIM, cluster_status, fenced, make_node, phase, reason_of, told

pytestmark = pytest.mark.timeout(240)
machinery = helpers.machinery


async def unready(harness, name=VICTIM):
    """As the node lifecycle controller does with the pods of a silent node."""
    status = {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}
    await harness.client.merge_patch(PODS, NAMESPACE, name, status, subresource="status")


async def healthy(harness):
    found = (await cluster_status(harness)).get("conditions") or []
    return next(((each["reason"], each.get("message", "")) for each in found if each["type"] == "Healthy"), ("", ""))


async def test_a_lost_node_that_is_waited_for_is_told_with_what_to_do(harness, machinery, monkeypatch):
    monkeypatch.setattr(replacements, "TELL_S", 0.1)
    since = "2026-01-01T00:00:00Z"
    ready = {"status": {"conditions": [{"type": "Ready", "status": "Unknown", "lastTransitionTime": since}]}}
    machinery.dead.add("node-1")
    await harness.brokers[1].freeze()
    await harness.client.merge_patch(NODES, None, "node-1", ready, subresource="status")
    await unready(harness)

    async def told_so():
        reason, message = await healthy(harness)
        return message if reason == "NodeLost" else ""

    message = await eventually(told_so)
    assert f"broker 1 is fenced: its node node-1 is unreachable since {since}" in message
    assert "kubectl kafkalite replace 1" in message
    assert await eventually(lambda: told(harness, "NodeLost"))
    await harness.client.delete(NODES, None, "node-1")

    async def gone():
        return "its node node-1 is gone since " in (await healthy(harness))[1]

    await eventually(gone)
    assert len(await told(harness, "NodeLost")) == 1, "once"
    assert await phase(harness) is None
    machinery.dead.clear()
    await make_node(harness, "node-1")
    await harness.brokers[1].start()

    async def well():
        return (await healthy(harness))[0] == "AllBrokersRun"

    await eventually(well)


async def test_who_may_not_read_nodes_asks_seldom_while_it_only_tells(harness, machinery, monkeypatch):
    asked = []

    async def forbidden(_, name):
        asked.append(name)
        raise KubeForbidden(403, "Forbidden", "nodes is forbidden")

    monkeypatch.setattr(Nodes, "state", forbidden)
    monkeypatch.setattr(replacements, "TELL_S", 0.0)
    await harness.brokers[1].freeze()
    await unready(harness)
    await eventually(lambda: fenced(harness))

    async def has_asked():
        return asked

    await eventually(has_asked)
    await harness.brokers[2].freeze()  # rounds go on
    await eventually(lambda: fenced(harness, 2))
    assert asked == ["node-1"]
    assert await reason_of(harness) is None
    assert (await healthy(harness))[0] == "BrokersMissing"
