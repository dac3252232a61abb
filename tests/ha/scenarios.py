"""What the operator is doing when it is killed."""

from __future__ import annotations

import asyncio
import contextlib
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
    what others do meanwhile (brokers that register, leaders that take a replica in); `done`: whether it is finished;
    `end`: what the end is told by, `summary` for none; `judge`: raises AssertionError at a step that may never be.
    """

    name: str
    before: Callable[[World], Awaitable[None]] | None
    act: Callable[[World], Awaitable[None]]
    after: Callable[[World], Awaitable[None]]
    done: Callable[[World], Awaitable[bool]]
    end: Callable[[World], Awaitable[dict[str, Any]]] | None = None
    judge: Callable[[World], None] | None = None

    async def summary(self, world: World) -> dict[str, Any]:
        """What one end is told from another by."""
        return await (self.end or summary)(world)


async def _nothing(_: World) -> None:
    return None


async def _all_made(world: World) -> bool:
    counts = {STATEFUL_SETS: 1, SERVICES: 5, CONFIG_MAPS: 2, POD_DISRUPTION_BUDGETS: 1, BROKERS: 3}
    return [len(await names(world, kind)) for kind in counts] == list(counts.values())


async def _well(world: World, kind: Any, name: str) -> bool:
    """Ready with this generation, and of a topic all the partitions that are asked for."""
    obj = await world.get(kind, name)
    status = (obj or {}).get("status") or {}
    placed = kind is not TOPICS or len(status.get("partitions") or {}) == (obj or {}).get("spec", {}).get("partitions")
    return (
        obj is not None
        and placed
        and status.get("observedGeneration") == obj["metadata"]["generation"]
        and any(each["type"] == "Ready" and each["status"] == "True" for each in status.get("conditions", ()))
    )


# -- a topic without a cluster


async def _make_topic(world: World) -> None:
    await world.make_topic()


async def _brokers_come(world: World) -> None:
    await world.start_brokers(3, renew=False)


async def _is_ready(world: World) -> bool:
    for kind, name in ((CLUSTERS, "kafkalite"), (TOPICS, "orders")):
        # Serving, which is Ready, begins with the first broker.
        healthy = await _well(world, kind, name) and (await world.condition(kind, name, "Healthy"))[0] == "True"
        if not healthy or (await world.condition(kind, name, "Progressing"))[0] != "False":
            return False
    return await _all_made(world)


# -- three topics: one grows, one moves, one that was deleted is made again


async def _three_topics(world: World) -> None:
    await world.make_topic("orders")
    await world.make_topic("moving", partitions=2, replicas=2, replicaAssignment={"0": [0, 1], "1": [1, 0]})
    await world.make_topic("kept", deletionPolicy="Retain")
    await world.start_brokers(3)  # what is made again is adopted by those alone who are heard
    for name in ("orders", "moving", "kept"):
        await world.ready(name)
    topic_id = (await world.topic("kept")).ref.topic_id
    await world.client.delete(TOPICS, world.ns, "kept")
    for broker in world.brokers.values():
        await broker.holds_strays("kept", topic_id, partitions=3, leader_epoch=5, partition_epoch=17)
    await eventually(lambda: _all_made(world))


async def _change_all(world: World) -> None:
    grown = {"spec": {"partitions": 7, "config": {"min.insync.replicas": "2"}}}
    moved = {"spec": {"replicaAssignment": {"0": [2, 1], "1": [1, 2]}}}
    await world.client.merge_patch(TOPICS, world.ns, "orders", grown)
    await world.client.merge_patch(TOPICS, world.ns, "moving", moved)
    await world.make_topic("kept")


async def _leaders_take_them_in(world: World) -> None:
    """For ever: each leader takes what is being added into the ISR."""
    while True:
        found = await world.topic("moving")
        for number, entry in found.partitions.items():
            missing = [broker for broker in entry.adding if broker not in entry.isr_ids()]
            if not missing or not entry.has_leader:
                continue
            joined = tuple(IsrEntry(broker, world.brokers[broker].registration.broker_epoch) for broker in missing)
            proposed = replace(entry, isr=(*entry.isr, *joined), partition_epoch=entry.partition_epoch + 1)
            operations = patches.leader_proposal(found.ref, number, entry, proposed)
            # The operator may have been faster.
            with contextlib.suppress(KubeError):
                await world.client.json_patch(TOPICS, world.ns, "moving", operations, subresource="status")
        await asyncio.sleep(0.05)


async def _all_changed(world: World) -> bool:
    for name in ("orders", "moving", "kept"):
        if not await _well(world, TOPICS, name) or (await world.condition(TOPICS, name, "Progressing"))[0] != "False":
            return False
    orders, moving, kept = [await world.topic(name) for name in ("orders", "moving", "kept")]
    return (
        all(entry.min_isr == 2 for entry in orders.partitions.values())
        and {number: entry.replicas for number, entry in moving.partitions.items()} == {0: (2, 1), 1: (1, 2)}
        and all(entry.leader_epoch > 5 and entry.partition_epoch > 17 for entry in kept.partitions.values())
    )


# -- a broker dies


async def _a_topic(world: World) -> None:
    await world.make_topic()
    await world.start_brokers(3, renew=False)
    await world.ready()
    await eventually(lambda: _all_made(world))


async def _broker_dies(world: World) -> None:
    await world.brokers[VICTIM].die()


async def _led_by_others(world: World) -> bool:
    broker = parse_broker(await world.client.get(BROKERS, world.ns, f"kafkalite-broker-{VICTIM}"))
    status = (await world.client.get(CLUSTERS, world.ns, "kafkalite"))["status"]
    return (
        broker.fenced
        and all(entry.leader not in {VICTIM, -1} for entry in (await world.topic()).partitions.values())
        and (status.get("brokers") or {}).get("ready") == 2
        and (await world.condition(TOPICS, "orders", "Healthy"))[0] == "False"
    )


SCENARIOS = [
    Scenario("a topic without a cluster", None, _make_topic, _brokers_come, _is_ready),
    Scenario("topics grow, move and are made again", _three_topics, _change_all, _leaders_take_them_in, _all_changed),
    Scenario("a broker dies", _a_topic, _broker_dies, _nothing, _led_by_others),
]


async def names(world: World, kind: Any) -> list[str]:
    """Of the objects that the operator makes."""
    listed = (await world.client.list(kind, world.ns)).items
    return sorted(item["metadata"]["name"] for item in listed if item["metadata"]["name"] != "kube-root-ca.crt")


async def summary(world: World) -> dict[str, Any]:
    """What a user could tell one end from another by: everything but uids, times, versions and who was when first."""
    found: dict[str, Any] = {}
    for kind in (STATEFUL_SETS, SERVICES, CONFIG_MAPS, POD_DISRUPTION_BUDGETS, BROKERS):
        found[kind.plural] = await names(world, kind)
    for kind in (CLUSTERS, TOPICS):
        for item in (await world.client.list(kind, world.ns)).items:
            status = item.get("status") or {}
            found[item["metadata"]["name"]] = {
                "spec": item["spec"],
                "conditions": sorted((c["type"], c["status"], c["reason"]) for c in status.get("conditions") or []),
                "inSync": status.get("inSync"),
                "brokers": status.get("brokers"),
                "partitions": {
                    number: {
                        "replicas": sorted(entry["replicas"]),
                        "isr": sorted(entry["isr"]),
                        "elr": sorted(entry.get("elr") or []),
                        "moving": [entry.get("adding") or [], entry.get("removing") or []],
                        "minIsr": entry["minIsr"],
                        "led": entry["leader"] in entry["isr"],
                    }
                    for number, entry in ((kind is TOPICS and status.get("partitions")) or {}).items()
                },
            }
    return found
