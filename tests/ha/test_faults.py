"""An API server that is away, overloaded or broken, permissions and definitions that are taken away: and back again.

The operator neither ends nor acts on what it does not know, says once what is wrong, and goes on where it was.
"""

from __future__ import annotations

import asyncio
import collections
import time

import aiohttp
import pytest
import yaml

from kafkalite_core.resources import naming
from kafkalite_core.resources.brokers import parse_broker
from kafkalite_runtime.kube.kinds import BROKERS, CLUSTERS, LEASES, TOPICS, Kind
from tests.chaos.api_proxy import Rule
from tests.contract.conftest import ROOT
from tests.ha.history import judge
from tests.ha.world import ACCOUNTS, CLUSTER
from tests.unit.operator.fakes import eventually

pytestmark = pytest.mark.timeout(150)
LINES_MAX = 12
"""Of one sentence, while one thing is wrong."""

WELL = {
    "action applied again",
    "operator lease answered again",
    "broker leases read again",
    "cluster controlled again",
}
"""What it says when something that went wrong is well."""

DECISIONS = {"object", "partitions changed", "broker object made", "topic placed"}
"""What it says whenever it has done something."""

ROLES = Kind("rbac.authorization.k8s.io", "v1", "roles", "Role")
BINDINGS = Kind("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding")
TOKENS = Kind("", "v1", "serviceaccounts", "TokenRequest")
DEFINITIONS = Kind(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False
)


async def running(world, **environment: str):
    operator = await world.operator("operator-0", **environment)
    await world.make_topic()
    await world.start_brokers()
    await world.ready()
    return operator


async def probe(operator, path: str) -> int:
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{operator.port}{path}") as answer:
        return answer.status


async def it_works(world, operator, name: str = "afterwards") -> None:
    """A new topic is placed, and a dead broker is replaced as leader."""
    await world.make_topic(name)
    await world.ready(name)
    victim = next(number for number, broker in world.brokers.items() if broker.incarnation)
    await world.brokers[victim].die()

    async def elected() -> bool:
        entries = [*(await world.topic()).partitions.values(), *(await world.topic(name)).partitions.values()]
        return all(entry.leader not in {victim, -1} for entry in entries)

    await eventually(elected)
    assert operator.running()
    judge(world)


def sober(operator, *, secret: str = "") -> None:
    """It says what is wrong, but not with every attempt, and no token."""
    text = operator.log.read_text()
    lines = [line for line in operator.lines() if line.get("msg") not in DECISIONS]
    counts = collections.Counter(str(line.get("msg", line))[:60] for line in lines)
    # Whatever was well in between may go wrong, and be told, once more.
    turns = sum(count for said, count in counts.items() if said in WELL)
    loud = {said: count for said, count in counts.items() if count > LINES_MAX + turns}
    assert not loud, loud
    assert "Bearer" not in text
    assert not secret or secret not in text


async def nobody_was_fenced(world) -> None:
    for number in world.brokers:
        broker = parse_broker(await world.client.get(BROKERS, world.ns, f"{CLUSTER}-broker-{number}"))
        assert not broker.fenced, number


async def test_half_a_minute_without_an_api_server(world):
    """Connections are refused for ten seconds, then get no answer, then break."""
    operator = await running(world)
    before = (await world.topic()).partitions
    began = time.monotonic()
    for kind, seconds in (("reset", 10), ("stall", 12), ("reset", 8)):
        world.gate.set_rules((Rule(kind, clients=("operator-0",)),))
        ends = time.monotonic() + seconds
        while time.monotonic() < ends:
            assert await probe(operator, "/healthz") == 200
            await asyncio.sleep(0.5)
    assert time.monotonic() - began >= 30
    world.gate.set_rules(())
    restored = await world.topic()
    assert restored.partitions == before
    await it_works(world, operator)
    sober(operator)
    assert operator.said("operator lease lost")


@pytest.mark.parametrize("kind", ["429", "500"])
async def test_a_server_that_refuses(world, kind):
    operator = await running(world)
    world.gate.set_rules((Rule(kind, clients=("operator-0",)),))
    await eventually(lambda: operator.said("operator lease lost"))
    before = len(world.gate.writes)
    asked = world.gate.counters[kind]
    await asyncio.sleep(3)
    # Retry-After is a second: whoever does not heed it asks ten times as often.
    assert world.gate.counters[kind] - asked < 40
    await nobody_was_fenced(world)
    assert not [write for write in world.gate.writes[before:] if write.decides and write.status < 300]
    assert await probe(operator, "/healthz") == 200
    world.gate.set_rules(())
    await it_works(world, operator)
    sober(operator)


async def test_watches_that_are_cut_or_have_expired(world):
    """Every watch is told 410, then breaks in the middle again and again, while one request in four fails."""
    operator = await running(world)
    world.gate.set_rules(
        (Rule("gone", clients=("operator-0",)), Rule("reset", clients=("operator-0",), writes=True, probability=0.2))
    )
    await world.make_topic("one")
    await world.ready("one")
    for number in range(5):
        rules = (
            Rule("reset", clients=("operator-0",), probability=0.25),
            Rule("cut", clients=("operator-0",), probability=0.1),
        )
        world.gate.set_rules(rules)
        await world.make_topic(f"more-{number}")
        await world.ready(f"more-{number}")
    world.gate.set_rules(())
    await nobody_was_fenced(world)
    await it_works(world, operator)
    sober(operator)


async def as_installed(world) -> tuple[str, list[dict]]:
    """Service account and Roles of the chart, in this namespace: the account's token, and the bindings."""
    bindings = []
    text = (
        (ROOT / "helm" / "manifests" / "operator.yaml")
        .read_text()
        .replace('namespace: "kafkalite"\n', f"namespace: {world.ns}\n")
    )
    for document in yaml.safe_load_all(text):
        kind = {"Role": ROLES, "RoleBinding": BINDINGS, "ServiceAccount": ACCOUNTS}.get(document["kind"])
        if kind is None or document["metadata"]["name"] == "kafkalite-broker":
            continue
        await world.client.create(kind, world.ns, document)
        if kind is BINDINGS:
            bindings.append(document)
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
    path = f"{ACCOUNTS.path(world.ns, 'kafkalite-operator')}/token"
    answer = await world.client._call("POST", path, body=request, deadline_s=5.0)
    return answer["status"]["token"], bindings


async def test_permissions_that_are_taken_away_and_given_back(world):
    token, bindings = await as_installed(world)
    operator = await world.operator("operator-0", token=token)
    await world.make_topic()
    await world.start_brokers()
    await world.ready()
    assert not [write for write in world.gate.writes if write.status == 403]
    for binding in bindings:
        await world.client.delete(BINDINGS, world.ns, binding["metadata"]["name"])
    await eventually(lambda: operator.said("operator lease lost"))
    await world.make_topic("meanwhile")
    await asyncio.sleep(3)
    assert operator.running()
    assert await probe(operator, "/healthz") == 200
    # Somebody looks at the log: it names what is missing.
    assert "forbidden" in operator.log.read_text().lower()
    for binding in bindings:
        binding["metadata"].pop("resourceVersion", None)
        await world.client.create(BINDINGS, world.ns, binding)
    await world.ready("meanwhile")
    await nobody_was_fenced(world)
    await it_works(world, operator)
    sober(operator, secret=token[:40])


async def test_the_permission_to_write_topics_alone_is_taken_away(world):
    """Leases can be renewed, nothing can be decided: it stays the leader, and says why once."""
    token, bindings = await as_installed(world)
    operator = await world.operator("operator-0", token=token)
    await world.make_topic()
    await world.start_brokers()
    await world.ready()
    (main,) = [binding for binding in bindings if not binding["metadata"]["name"].endswith("-lease")]
    await world.client.delete(BINDINGS, world.ns, main["metadata"]["name"])

    async def told() -> bool:
        return "cannot list resource" in operator.log.read_text()

    await eventually(told)
    await world.make_topic("meanwhile")
    await asyncio.sleep(5)
    assert await world.holder() == "operator-0"
    await world.client.create(BINDINGS, world.ns, main)
    await world.ready("meanwhile")
    await nobody_was_fenced(world)
    await it_works(world, operator)
    sober(operator, secret=token[:40])


@pytest.mark.parametrize(
    "holder",
    [
        {"renewTime": "2001-01-01T00:00:00.000000Z", "acquireTime": "2001-01-01T00:00:00.000000Z"},
        {"renewTime": "2099-01-01T00:00:00.000000Z", "acquireTime": "2099-01-01T00:00:00.000000Z"},
        {},
    ],
    ids=["long ago", "in the future", "without times"],
)
async def test_the_clock_of_another_holder_says_nothing(world, holder):
    """Whatever its times are: it is waited for one duration, and no longer."""
    lease = {
        "apiVersion": LEASES.api_version,
        "kind": LEASES.kind,
        "metadata": {"name": naming.OPERATOR_LEASE},
        "spec": {"holderIdentity": "somebody", "leaseDurationSeconds": 5, **holder},
    }
    await world.client.create(LEASES, world.ns, lease)
    began = time.monotonic()
    operator = await world.operator("operator-0")
    await eventually(lambda: operator.said("operator lease acquired"))
    assert 5 <= time.monotonic() - began < 25


async def test_definitions_that_are_removed_and_come_back(world):
    """All objects are gone with them. The operator waits, and goes on with what is made afterwards."""
    operator = await running(world)
    documents = [yaml.safe_load(file.read_text()) for file in sorted((ROOT / "crds").glob("*.yaml"))]
    for document in documents:
        await world.client.delete(DEFINITIONS, None, document["metadata"]["name"])
    for document in documents:
        await eventually(lambda name=document["metadata"]["name"]: absent(world, name))
    await asyncio.sleep(8)
    assert operator.running()
    assert await probe(operator, "/healthz") == 200
    for document in documents:
        await world.client.create(DEFINITIONS, None, document)
    await asyncio.to_thread(
        world.plane.kubectl,
        "wait",
        "--for=condition=Established",
        "customresourcedefinitions",
        "--all",
        "--timeout=60s",
    )
    await asyncio.gather(*(broker.freeze() for broker in world.brokers.values()))
    world.brokers.clear()
    await eventually(lambda: served(world))
    await world.make_topic()
    await world.start_brokers()
    await world.ready()
    began = time.monotonic()
    await world.make_topic("at-once")
    await world.ready("at-once")
    # It watches again: its own lists come every half minute only.
    assert time.monotonic() - began < 15
    await it_works(world, operator)
    sober(operator)


async def absent(world, name: str) -> bool:
    return await world.get(DEFINITIONS, name) is None


async def served(world) -> bool:
    for kind in (TOPICS, CLUSTERS, BROKERS):
        await world.client.list(kind, world.ns)
    return True
