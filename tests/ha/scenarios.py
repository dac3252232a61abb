"""What the operator is doing when it is killed."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from kafkalite_core.model.partition import IsrEntry
from kafkalite_core.resources import patches
from kafkalite_core.resources.brokers import parse_broker
from kafkalite_runtime.kube.errors import KubeError
from kafkalite_runtime.kube.kinds import (
    BROKERS,
    CLUSTERS,
    CONFIG_MAPS,
    POD_DISRUPTION_BUDGETS,
    SERVICES,
    STATEFUL_SETS,
    TOPICS,
)
from tests.unit.operator.fakes import eventually

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.ha.world import World

VICTIM = 1


@dataclass(frozen=True, slots=True)
class Scenario:
    """`before`: what a whole operator has done already; `act`: what the user does or what befalls a broker; `after`:
    what others do meanwhile (brokers that register, leaders that take a replica in); `done`: whether it is finished.
    """

    name: str
    before: Callable[[World], Awaitable[None]] | None
    act: Callable[[World], Awaitable[None]]
    after: Callable[[World], Awaitable[None]]
    done: Callable[[World], Awaitable[bool]]


async def _nothing(_: World) -> None:
    return None


async def _a_topic(world: World) -> None:
    await world.make_topic()
    await world.start_brokers(3, renew=False)
    await world.ready()


async def _make_topic(world: World) -> None:
    await world.make_topic()


async def _brokers_come(world: World) -> None:
    await world.start_brokers(3, renew=False)


async def _is_ready(world: World) -> bool:
    """As many partitions as asked for, all conditions of topic and cluster about this generation, and good."""
    obj = await world.get(TOPICS, "orders")
    status = (obj or {}).get("status") or {}
    if obj is None or len(status.get("partitions") or {}) != obj["spec"]["partitions"]:
        return False
    return await _well(world, CLUSTERS, "kafkalite") and await _well(world, TOPICS, "orders")


async def _well(world: World, kind: Any, name: str) -> bool:
    obj = await world.get(kind, name)
    status = (obj or {}).get("status") or {}
    return (
        obj is not None
        and status.get("observedGeneration") == obj["metadata"]["generation"]
        and any(each["type"] == "Ready" and each["status"] == "True" for each in status.get("conditions", ()))
    )


async def _grow(world: World) -> None:
    await world.client.merge_patch(
        TOPICS, world.ns, "orders", {"spec": {"partitions": 7, "config": {"min.insync.replicas": "2"}}}
    )


async def _grown(world: World) -> bool:
    found = await world.topic()
    return await _is_ready(world) and all(entry.min_isr == 2 for entry in found.partitions.values())


async def _two_replicas(world: World) -> None:
    await world.make_topic(partitions=2, replicas=2, replicaAssignment={"0": [0, 1], "1": [1, 0]})
    await world.start_brokers(3, renew=False)
    await world.ready()


async def _move(world: World) -> None:
    spec = {"spec": {"replicaAssignment": {"0": [2, 1], "1": [1, 2]}}}
    await world.client.merge_patch(TOPICS, world.ns, "orders", spec)


async def _leaders_take_them_in(world: World) -> None:
    """For ever: each leader takes what is being added into the ISR."""
    while True:
        found = await world.topic()
        for number, entry in found.partitions.items():
            missing = [broker for broker in entry.adding if broker not in entry.isr_ids()]
            if not missing or not entry.has_leader:
                continue
            joined = tuple(IsrEntry(broker, world.brokers[broker].registration.broker_epoch) for broker in missing)
            proposed = replace(entry, isr=(*entry.isr, *joined), partition_epoch=entry.partition_epoch + 1)
            operations = patches.isr_change(found.ref, number, entry, proposed)
            try:
                await world.client.json_patch(TOPICS, world.ns, "orders", operations, subresource="status")
            except KubeError:
                continue  # the operator was faster
        await asyncio.sleep(0.05)


async def _moved(world: World) -> bool:
    found = await world.topic()
    placed = {number: entry.replicas for number, entry in found.partitions.items()}
    return placed == {0: (2, 1), 1: (1, 2)} and await _is_ready(world)


async def _broker_dies(world: World) -> None:
    await world.brokers[VICTIM].die()


async def _led_by_others(world: World) -> bool:
    broker = parse_broker(await world.client.get(BROKERS, world.ns, f"kafkalite-broker-{VICTIM}"))
    found = await world.topic()
    status = (await world.get(CLUSTERS, "kafkalite"))["status"]  # type: ignore[index]
    return (
        broker.fenced
        and all(entry.leader not in {VICTIM, -1} for entry in found.partitions.values())
        and status["brokers"]["ready"] == 2
        and (await world.condition(TOPICS, "orders", "Healthy"))[0] == "False"
    )


async def _strays(world: World) -> None:
    """A topic with `Retain` was deleted; two brokers hold what is left of it."""
    await world.make_topic("orders", deletionPolicy="Retain")
    await world.start_brokers(3, renew=False)
    await world.ready()
    topic_id = (await world.topic()).ref.topic_id
    await world.client.delete(TOPICS, world.ns, "orders")
    await eventually(lambda: _gone(world))
    for broker in world.brokers.values():
        await broker.holds_strays("orders", topic_id, partitions=3, leader_epoch=5, partition_epoch=17)


async def _gone(world: World) -> bool:
    return await world.get(TOPICS, "orders") is None


async def _adopted(world: World) -> bool:
    entries = (await world.topic()).partitions.values()
    return await _is_ready(world) and all(e.leader_epoch > 5 and e.partition_epoch > 17 for e in entries)


SCENARIOS = [
    Scenario("a topic without a cluster", None, _make_topic, _brokers_come, _is_ready),
    Scenario("more partitions and another configuration", _a_topic, _grow, _nothing, _grown),
    Scenario("replicas move", _two_replicas, _move, _leaders_take_them_in, _moved),
    Scenario("a broker dies", _a_topic, _broker_dies, _nothing, _led_by_others),
    Scenario("a topic is made again", _strays, _make_topic, _nothing, _adopted),
]


async def summary(world: World) -> dict[str, Any]:
    """What a user could tell one end from another by: everything but uids, times, versions and who was when first."""
    found: dict[str, Any] = {}
    for kind in (STATEFUL_SETS, SERVICES, CONFIG_MAPS, POD_DISRUPTION_BUDGETS, BROKERS):
        listed = (await world.client.list(kind, world.ns)).items
        names = sorted(item["metadata"]["name"] for item in listed)
        found[kind.plural] = [name for name in names if name != "kube-root-ca.crt"]
    for kind in (CLUSTERS, TOPICS):
        for item in (await world.client.list(kind, world.ns)).items:
            status = item.get("status") or {}
            found[kind.plural] = {
                "spec": item["spec"],
                "conditions": sorted((c["type"], c["status"], c["reason"]) for c in status.get("conditions") or []),
                "inSync": status.get("inSync"),
                "brokers": status.get("brokers"),
                "partitions": {
                    number: {
                        "replicas": entry["replicas"],
                        "isr": sorted(member["id"] for member in entry["isr"]),
                        "elr": sorted(member["id"] for member in entry.get("elr") or []),
                        "moving": [entry.get("adding") or [], entry.get("removing") or []],
                        "minIsr": entry["minIsr"],
                        "led": entry["leader"] in {member["id"] for member in entry["isr"]},
                    }
                    for number, entry in (status.get("partitions") or {}).items()
                },
            }
    return found
