"""Procedures of many steps, and what has to hold at each of them, whoever carries out which."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkalite_core.model.partition import in_sync
from kafkalite_core.resources.brokers import parse_broker
from kafkalite_core.resources.fields import Fields
from kafkalite_core.resources.naming import ANNOTATION_REPLACE, data_claim_name
from kafkalite_core.resources.replacing import parse_replacing
from kafkalite_core.resources.topics import parse_topic
from kafkalite_runtime.kube.kinds import BROKERS, CLUSTERS, PERSISTENT_VOLUME_CLAIMS, PODS, STATEFUL_SETS, TOPICS
from tests.ha import disks
from tests.ha.machinery import SET, Machinery
from tests.ha.scenarios import Scenario, names, summary
from tests.ha.world import CLUSTER, SPEC
from tests.unit.operator.fakes import eventually

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kafkalite_core.model.cluster import Broker
    from kafkalite_core.model.partition import Partition
    from kafkalite_runtime.kube.kinds import Kind
    from tests.ha.world import World

SET_UP_LIMIT_S = 150.0
"""Several runs are set up at once, in one process."""

MIN_ISR = 2
LEAVES = 3
REPLACED = 1
SIZE, GREATER = "10Gi", "20Gi"
REVISION = "kafkalite.io/revision"
# Who is killed while pods end is not there to see how they ended: then the Lease tells.
DETECTION = {"leaseDurationSeconds": 10, "renewIntervalSeconds": 1}


async def _running(world: World, brokers: int, replicas: int) -> None:
    """A cluster of so many brokers, with a topic whose replicas are all in sync."""
    world.machinery = Machinery(world)
    world.machinery.begin()
    await disks.make_class(world)
    storage = {"size": SIZE, "storageClassName": disks.GROWS}
    spec = {**SPEC, "replicas": brokers, "failureDetection": DETECTION, "storage": storage}
    head = {"apiVersion": CLUSTERS.api_version, "kind": CLUSTERS.kind, "metadata": {"name": CLUSTER}}
    await world.client.create(CLUSTERS, world.ns, {**head, "spec": spec})
    await eventually(lambda: len(world.brokers) == brokers, timeout_s=SET_UP_LIMIT_S, every_s=0.05)
    await world.make_topic(partitions=4, replicas=replicas, config={"min.insync.replicas": str(MIN_ISR)})
    await eventually(lambda: _calm(world), timeout_s=SET_UP_LIMIT_S, every_s=0.05)


async def _change(world: World, spec: dict[str, Any]) -> None:
    await world.client.merge_patch(CLUSTERS, world.ns, CLUSTER, {"spec": spec})


async def _nothing_else(_: World) -> None:
    """The machinery of the world goes on by itself."""


async def _calm(world: World) -> bool:
    """Everybody is in sync, and topic and cluster say so; nothing is under way, of the cluster's present generation."""
    topic = await world.get(TOPICS, "orders")
    entries = parse_topic(topic).partitions if topic is not None else {}
    told = ((topic or {}).get("status") or {}).get("inSync")  # written, with conditions, after what it tells of
    healthy = await world.condition(TOPICS, "orders", "Healthy")
    cluster = await world.get(CLUSTERS, CLUSTER)
    status = (cluster or {}).get("status") or {}
    conditions = {each["type"]: each["status"] for each in status.get("conditions") or []}
    return (
        bool(entries)
        and all(set(entry.isr_ids()) == set(entry.replicas) and not entry.adding for entry in entries.values())
        and (told, healthy[0]) == (in_sync(entries), "True")
        and status.get("observedGeneration") == (cluster or {})["metadata"]["generation"]
        and (conditions.get("Progressing"), conditions.get("Healthy")) == ("False", "True")
        and conditions.get("VolumesSized", "True") == "True"
        and not (status.get("rolling") or {}).get("inProgress")
    )


async def _whole(world: World) -> dict[str, Any]:
    """As of the other scenarios; which broker has which replica may depend on who was asked first. See `_calm`, too."""
    found = await summary(world)
    for entry in found["orders"]["partitions"].values():
        entry["replicas"], entry["isr"] = len(entry["replicas"]), len(entry["isr"])
    # Who comes when all have grown already says nothing of their size.
    found[CLUSTER]["conditions"] = [each for each in found[CLUSTER]["conditions"] if each[0] != "VolumesSized"]
    return found | {PODS.plural: await names(world, PODS)}


# -- every broker is restarted for a change of configuration


async def _three(world: World) -> None:
    await _running(world, 3, 3)


async def _reconfigure(world: World) -> None:
    await _change(world, {"config": {"log.retention.check.interval.ms": "5000"}})


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
            others = {member.id for member in entry.isr if member.epoch == _broker_at(world, member.id, version).epoch}
            living = others - {broker_id}
            assert len(living) >= MIN_ISR, f"broker {broker_id} was restarted while partition {number} was {entry}"


def _at(world: World, version: int) -> Iterator[tuple[int, Partition]]:
    """The partitions as they were at that version of the store."""
    yield from parse_topic(_newest(world.history[TOPICS.plural], version)).partitions.items()


def _broker_at(world: World, broker_id: int, version: int) -> Broker:
    """A broker as it was then."""
    versions = [obj for _, obj in world.events[BROKERS.plural] if obj["metadata"]["name"] == f"{SET}-{broker_id}"]
    return parse_broker(_newest(versions, version))


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


# -- a broker's disk is given up, and it gets another one


async def _give_up(world: World) -> None:
    asked = {"metadata": {"annotations": {ANNOTATION_REPLACE: "true"}}}
    await world.client.merge_patch(BROKERS, world.ns, f"{SET}-{REPLACED}", asked)


async def _has_another(world: World) -> bool:
    broker = await world.client.get(BROKERS, world.ns, f"{SET}-{REPLACED}")
    cluster = await world.client.get(CLUSTERS, world.ns, CLUSTER)
    return (
        data_claim_name(CLUSTER, REPLACED) in _deleted(world, PERSISTENT_VOLUME_CLAIMS)
        and ANNOTATION_REPLACE not in (broker["metadata"].get("annotations") or {})
        and "replacing" not in cluster["status"]
        and len(await names(world, PODS)) == len(await names(world, PERSISTENT_VOLUME_CLAIMS)) == 3
        and await _calm(world)
    )


def _one_disk_went(world: World) -> None:
    """One claim and one pod of that broker, noted before; and nobody needed what was on the disk any more."""
    assert _deleted(world, PERSISTENT_VOLUME_CLAIMS) == [data_claim_name(CLUSTER, REPLACED)]
    assert _deleted(world, PODS) == [f"{SET}-{REPLACED}"]
    versions = [obj for _, obj in world.events[PERSISTENT_VOLUME_CLAIMS.plural]]
    asked = min((obj for obj in versions if "deletionTimestamp" in obj["metadata"]), key=_version)
    then = _version(asked)
    noted = parse_replacing(Fields(_newest(world.history[CLUSTERS.plural], then)["status"], "status"))
    assert (noted.broker, noted.claim_uid) == (REPLACED, asked["metadata"]["uid"]), noted
    assert _broker_at(world, REPLACED, then).fenced, "the broker was not fenced when its claim was deleted"
    for number, entry in _at(world, then):
        living = [m for m in entry.isr if m.id != REPLACED and m.epoch == _broker_at(world, m.id, then).epoch]
        assert REPLACED not in (entry.leader, *entry.isr_ids()), f"partition {number} was {entry}"
        assert entry.leader in [member.id for member in living], f"partition {number} was {entry}"
        assert len(living) >= MIN_ISR, f"partition {number} was {entry}"


def _deleted(world: World, kind: Kind) -> list[str]:
    """Names of what is gone, in that order."""
    return [obj["metadata"]["name"] for event, obj in world.events[kind.plural] if event == "DELETED"]


# -- every volume grows


async def _grow(world: World) -> None:
    await _change(world, {"storage": {"size": GREATER}})


async def _has_grown(world: World) -> bool:
    stateful_set = await world.get(STATEFUL_SETS, SET)
    claims = (await world.client.list(PERSISTENT_VOLUME_CLAIMS, world.ns)).items
    return (
        stateful_set is not None
        and disks.requested(stateful_set["spec"]["volumeClaimTemplates"][0]) == GREATER
        and [disks.capacity(claim) for claim in claims] == [GREATER] * 3
        and await _calm(world)
    )


def _grown_in_place(world: World) -> None:
    """No pod and no claim is deleted, no wish is taken back, and the StatefulSet is made again once."""
    assert not _deleted(world, PODS) + _deleted(world, PERSISTENT_VOLUME_CLAIMS)
    assert len(_deleted(world, STATEFUL_SETS)) == 1, "its templates cannot be changed: it is made again"
    versions = sorted((obj for _, obj in world.events[PERSISTENT_VOLUME_CLAIMS.plural]), key=_version)
    for name in {obj["metadata"]["name"] for obj in versions}:
        wished = [disks.requested(obj) for obj in versions if obj["metadata"]["name"] == name]
        assert wished == sorted(wished), wished
        assert set(wished) == {SIZE, GREATER}, wished


PROCEDURES = [
    Scenario(
        "all brokers restart", _three, _reconfigure, _nothing_else, _all_restarted, _whole, _restarted_once_and_in_turn
    ),
    Scenario("a broker leaves", _four, _one_less, _nothing_else, _has_left, _whole, _left_empty),
    Scenario("a disk is replaced", _three, _give_up, _nothing_else, _has_another, _whole, _one_disk_went),
    Scenario("volumes grow", _three, _grow, _nothing_else, _has_grown, _whole, _grown_in_place),
]
