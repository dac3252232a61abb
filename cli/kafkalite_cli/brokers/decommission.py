"""Emptying a broker: cordon it, move its replicas away, see that nothing is left. Every step may be done again."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from kafkalite_cli.brokers.safety import living
from kafkalite_cli.brokers.view import ClusterView, read_again
from kafkalite_cli.errors import Failure
from kafkalite_cli.manifests import plain_words
from kafkalite_cli.outage import through_outage
from kafkalite_cli.reassign.session import POLL_S, Session
from kafkalite_cli.snapshot import condition
from kafkalite_core.controller.balancing import NoRoom, evacuated
from kafkalite_core.resources.topics import parse_topic_spec
from kafkalite_runtime.kube import BROKERS, KubeError, KubeForbidden

if TYPE_CHECKING:
    from kafkalite_cli.brokers.view import Key
    from kafkalite_cli.local_mode.progress import Steps
    from kafkalite_cli.pasting import Commands
    from kafkalite_cli.reassign.files import Assignment
    from kafkalite_runtime.kube import KubeClient

JsonObject = dict[str, Any]
LISTED_MAX = 5
ROUNDS_MAX = 5
"""Whoever places replicas on a cordoned broker by hand all the time is not followed for ever."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a decommission would do; `leaving` are partitions whose replica is on its way already."""

    moves: Assignment
    current: Assignment
    leaving: list[Key]


def plan(view: ClusterView, broker_id: int, say: Commands) -> Plan:
    """Raises Failure for what speaks against it."""
    broker = view.brokers.get(broker_id)
    if broker is None:
        known = ", ".join(map(str, sorted(view.brokers))) or "none"
        raise Failure(f"there is no broker {broker_id} in cluster {view.name}; there are: {known}")
    current = view.wishes()
    racks = {i: rack for i, rack in view.taking().items() if i != broker_id}
    try:
        moves = evacuated(current, racks, broker_id)
    except NoRoom as error:
        raise Failure(_no_room(error.keys, current, racks, say)) from error
    only = [key for key in moves if living(view, key) <= {broker_id}]
    if only and not broker.alive:
        raise Failure(
            f"{view.state_of(broker_id)}, and nobody else is in sync in {_named(only)}: start it first, "
            "its replicas cannot be copied from anywhere else"
        )
    leaving = [
        key for key, entry in sorted(view.partitions.items()) if broker_id in entry.replicas and key not in moves
    ]
    return Plan(moves, current, leaving)


def _no_room(stuck: tuple[Key, ...], current: Assignment, racks: dict[int, str], say: Commands) -> str:
    most = max(len(current[key]) for key in stuck)
    return (
        f"there is no broker left that could take the replicas of {_named(list(stuck))}: up to {most} replicas, and "
        f"brokers {sorted(racks)} run and are not cordoned; add a broker, or lower the number of replicas "
        f"({say.kafkalite(f'topics alter {stuck[0][0]} --replicas {most - 1}')})"
    )


def held(view: ClusterView, broker_id: int) -> list[Key]:
    """Partitions with a replica on the broker, or whose wish names it."""
    on_it = {key for key, entry in view.partitions.items() if broker_id in entry.replicas}
    wished = {
        (name, number)
        for topic in view.topics
        for spec in (parse_topic_spec(topic),)
        for name in (spec.topic_name,)
        for number, ids in spec.replica_assignment.items()
        if broker_id in ids and number < spec.partitions
    }
    return sorted(on_it | wished)


def _named(keys: list[Key]) -> str:
    more = f" and {len(keys) - LISTED_MAX} more" if len(keys) > LISTED_MAX else ""
    return ", ".join(f"{topic}-{number}" for topic, number in keys[:LISTED_MAX]) + more


async def cordon(client: KubeClient, view: ClusterView, broker_id: int, *, cordoned: bool) -> bool:
    """Whether that was a change. Raises Failure."""
    obj = view.broker_objects[broker_id]
    if view.brokers[broker_id].cordoned == cordoned:
        return False
    body = {"metadata": {"uid": obj["metadata"]["uid"]}, "spec": {"cordoned": cordoned}}
    try:
        await client.merge_patch(BROKERS, view.namespace, obj["metadata"]["name"], body, strict=True)
    except KubeForbidden as error:
        raise Failure(
            f"{plain_words(error)}; what is needed is the verb patch on kafkalitebrokers.kafkalite.io"
        ) from error
    except KubeError as error:
        raise Failure(f"{obj['metadata']['name']}: {plain_words(error)}") from error
    return True


async def empty(
    client: KubeClient,
    view: ClusterView,
    broker_id: int,
    steps: Steps,
    say: Commands,
    *,
    throttle: int | None,
    timeout_s: float,
) -> None:
    """Move everything away and wait for it. Raises Failure."""
    session = Session(client, namespace=view.namespace, cluster=view.name)
    for _ in range(ROUNDS_MAX):
        wanted = plan(view, broker_id, say)
        if not wanted.moves and not wanted.leaving:
            return
        if wanted.moves:
            await through_outage(partial(session.execute, wanted.moves, throttle), steps.waiting)
        goal = wanted.moves | {key: wanted.current[key] for key in wanted.leaving}
        await session.wait(goal, timeout_s=timeout_s, tell=steps.waiting)
        view = await read_again(client, view, steps.waiting)
    raise Failure(f"replicas are placed on broker {broker_id} again and again: {_named(held(view, broker_id))}")


async def follow(client: KubeClient, view: ClusterView, broker_id: int, steps: Steps, *, timeout_s: float) -> None:
    """Wait until the operator has emptied and removed a broker that leaves. Raises Failure."""
    limit = time.monotonic() + timeout_s
    while broker_id in view.brokers:
        if broker_id < view.wanted:
            raise Failure(f"spec.replicas of {view.name} is {view.wanted} now: broker {broker_id} stays")
        said = condition(view.cluster, "Progressing")
        words = str(said.get("message", ""))
        if said.get("reason") == "NotEnoughBrokers":
            raise Failure(words)
        steps.waiting(words or "the operator has not taken it up yet")
        if time.monotonic() > limit:
            raise Failure(f"broker {broker_id} is not removed in time; the operator goes on: {words}")
        await asyncio.sleep(POLL_S)
        view = await read_again(client, view, steps.waiting)


async def cancel(client: KubeClient, view: ClusterView, broker_id: int, say: Commands) -> Assignment:
    """Uncordon, and take back the moves that are not over; the replicas that are gone back to. Raises Failure."""
    if broker_id not in view.brokers:
        raise Failure(f"there is no broker {broker_id} in cluster {view.name}")
    if broker_id >= view.wanted:
        raise Failure(
            f"broker {broker_id} leaves, for spec.replicas of {view.name} is {view.wanted}; to keep it: "
            + say.kubectl(view.namespace, f"scale klc {view.name} --replicas={broker_id + 1}")
        )
    await cordon(client, view, broker_id, cordoned=False)
    wishes = view.wishes()
    leaving = {
        key for key, entry in view.partitions.items() if broker_id in entry.replicas and broker_id not in wishes[key]
    }
    if not leaving:
        return {}
    return await Session(client, namespace=view.namespace, cluster=view.name).cancel(leaving, [])


def how_to_shrink(view: ClusterView, broker_id: int, say: Commands) -> str:
    """What to do with an empty broker. A StatefulSet gives up its highest ordinals only."""
    wanted = view.wanted
    if broker_id == wanted - 1:
        deleted = bool((view.cluster["spec"].get("storage") or {}).get("deleteClaim"))
        return (
            f"to remove it: {say.kubectl(view.namespace, f'scale klc {view.name} --replicas={wanted - 1}')} "
            f"(its volume {'is deleted with it' if deleted else 'stays'})"
        )
    above = range(broker_id + 1, wanted)
    which = f"broker {above[0]}" if len(above) == 1 else f"brokers {above[0]} to {above[-1]}"
    return (
        f"a StatefulSet gives up its highest ordinals only, so {which} would have to be decommissioned as well before "
        f"spec.replicas can become {broker_id}; until then broker {broker_id} stays, cordoned and empty "
        f"({say.kafkalite(f'decommission {broker_id} --cancel')} lets it take replicas again)"
    )
