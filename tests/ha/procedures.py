"""Procedures of many steps, and what has to hold at each of them, whoever carries out which."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkalite_core.resources.brokers import parse_broker
from kafkalite_core.resources.topics import parse_topic
from kafkalite_runtime.kube.kinds import BROKERS, CLUSTERS, PODS, STATEFUL_SETS, TOPICS
from tests.ha.machinery import SET, Machinery
from tests.ha.scenarios import Scenario, names, summary
from tests.ha.world import CLUSTER, SPEC
from tests.unit.operator.fakes import eventually

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kafkalite_core.model.partition import Partition
    from tests.ha.world import World

MIN_ISR = 2
LEAVES = 3
REVISION = "kafkalite.io/revision"
# Who is killed while pods end is not there to see how they ended: then the Lease tells.
DETECTION = {"leaseDurationSeconds": 10, "renewIntervalSeconds": 1}


async def _running(world: World, brokers: int, replicas: int) -> None:
    """A cluster of so many brokers, with a topic whose replicas are all in sync."""
    world.machinery = Machinery(world)
    world.machinery.begin()
    spec = {**SPEC, "replicas": brokers, "failureDetection": DETECTION}
    head = {"apiVersion": CLUSTERS.api_version, "kind": CLUSTERS.kind, "metadata": {"name": CLUSTER}}
    await world.client.create(CLUSTERS, world.ns, {**head, "spec": spec})
    await eventually(lambda: len(world.brokers) == brokers, every_s=0.05)
    await world.make_topic(partitions=4, replicas=replicas, config={"min.insync.replicas": str(MIN_ISR)})
    await eventually(lambda: _calm(world), every_s=0.05)


async def _change(world: World, spec: dict[str, Any]) -> None:
    await world.client.merge_patch(CLUSTERS, world.ns, CLUSTER, {"spec": spec})


async def _nothing_else(_: World) -> None:
    """The machinery of the world goes on by itself."""


async def _calm(world: World) -> bool:
    """Everybody is in sync, and the cluster says that nothing is under way, of its present generation."""
    topic = await world.get(TOPICS, "orders")
    entries = parse_topic(topic).partitions if topic is not None else {}
    cluster = await world.get(CLUSTERS, CLUSTER)
    status = (cluster or {}).get("status") or {}
    conditions = {each["type"]: each["status"] for each in status.get("conditions") or []}
    return (
        bool(entries)
        and all(set(entry.isr_ids()) == set(entry.replicas) and not entry.adding for entry in entries.values())
        and status.get("observedGeneration") == (cluster or {})["metadata"]["generation"]
        and (conditions.get("Progressing"), conditions.get("Healthy")) == ("False", "True")
        and not (status.get("rolling") or {}).get("inProgress")
    )


async def _whole(world: World) -> dict[str, Any]:
    """As of the other scenarios; which broker has which replica may depend on who was asked first."""
    found = await summary(world)
    for entry in found["orders"]["partitions"].values():
        entry["replicas"], entry["isr"] = len(entry["replicas"]), len(entry["isr"])
    return found | {PODS.plural: await names(world, PODS)}


# -- every broker is restarted for a change of configuration


async def _three(world: World) -> None:
    await _running(world, 3, 3)


async def _reconfigure(world: World) -> None:
    await _change(world, {"config": {"max.connections": "5000"}})


async def _all_restarted(world: World) -> bool:
    stateful_set = await world.get(STATEFUL_SETS, SET)
    assert stateful_set is not None
    wanted = stateful_set["spec"]["template"]["metadata"]["annotations"][REVISION]
    pods = (await world.client.list(PODS, world.ns)).items
    new = [pod["metadata"]["annotations"][REVISION] == wanted for pod in pods]
    restarted = sum(event == "DELETED" for event, _ in world.events[PODS.plural])
    return len(new) == 3 and all(new) and restarted >= 3 and await _calm(world)


def _restarted_once_and_in_turn(world: World) -> None:
    """No broker is restarted twice for one change, and none while a partition has just as many in sync as it needs."""
    ended = [obj for event, obj in world.events[PODS.plural] if event == "DELETED"]
    restarted = sorted(pod["metadata"]["name"] for pod in ended)
    assert restarted == [f"{SET}-{number}" for number in range(3)], restarted
    for pod in ended:
        broker_id = int(pod["metadata"]["name"].rpartition("-")[2])
        version = _version(pod)
        for number, entry in _at(world, version):
            others = {member.id for member in entry.isr if member.epoch == _epoch_at(world, member.id, version)}
            living = others - {broker_id}
            assert len(living) >= MIN_ISR, f"broker {broker_id} was restarted while partition {number} was {entry}"


def _at(world: World, version: int) -> Iterator[tuple[int, Partition]]:
    """The partitions as they were at that version of the store."""
    yield from parse_topic(_newest(world.history[TOPICS.plural], version)).partitions.items()


def _epoch_at(world: World, broker_id: int, version: int) -> int:
    """The epoch of a broker's registration then."""
    versions = [obj for _, obj in world.events[BROKERS.plural] if obj["metadata"]["name"] == f"{SET}-{broker_id}"]
    return parse_broker(_newest(versions, version)).epoch


def _newest(versions: Iterable[dict[str, Any]], before: int) -> dict[str, Any]:
    return max((obj for obj in versions if _version(obj) < before), key=_version)


def _version(obj: dict[str, Any]) -> int:
    return int(obj["metadata"]["resourceVersion"])


# -- the last of four brokers leaves


async def _four(world: World) -> None:
    await _running(world, 4, 3)


async def _one_less(world: World) -> None:
    await _change(world, {"replicas": LEAVES})


async def _has_left(world: World) -> bool:
    return (
        await names(world, BROKERS) == [f"{SET}-{number}" for number in range(LEAVES)]
        and await names(world, PODS) == [f"{SET}-{number}" for number in range(LEAVES)]
        and await _calm(world)
    )


def _left_empty(world: World) -> None:
    """No pod is taken away whose broker has a replica, or gets one."""
    sets = [obj for event, obj in world.events[STATEFUL_SETS.plural] if event != "DELETED"]
    smaller = [obj for obj in sets if obj["spec"]["replicas"] == LEAVES]
    grown = max(index for index, obj in enumerate(sets) if obj["spec"]["replicas"] > LEAVES)
    shrunk = [obj for obj in sets[grown + 1 :] if obj in smaller]
    assert shrunk, "the StatefulSet was never made smaller"
    since = _version(shrunk[0])
    had = [number for number, entry in _at(world, since) if LEAVES in entry.replicas]
    assert not had, f"broker {LEAVES} had replicas of partitions {had} when its pod was taken away"
    for obj in world.history[TOPICS.plural]:
        if _version(obj) > since:
            assert all(LEAVES not in entry.replicas for entry in parse_topic(obj).partitions.values()), obj
    ended = [obj["metadata"]["name"] for event, obj in world.events[PODS.plural] if event == "DELETED"]
    assert ended == [f"{SET}-{LEAVES}"], ended


PROCEDURES = [
    Scenario(
        "all brokers restart", _three, _reconfigure, _nothing_else, _all_restarted, _whole, _restarted_once_and_in_turn
    ),
    Scenario("a broker leaves", _four, _one_less, _nothing_else, _has_left, _whole, _left_empty),
]
