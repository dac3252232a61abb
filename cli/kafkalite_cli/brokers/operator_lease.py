"""Does an operator act? Its Lease says so, judged as the operators themselves do: by whether it changes."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from kafkalite_core.resources.leases import LeaseRecord, parse_lease
from kafkalite_core.resources.naming import OPERATOR_LEASE
from kafkalite_runtime.kube import LEASES, KubeForbidden, KubeNotFound

if TYPE_CHECKING:
    from kafkalite_runtime.kube import KubeClient

JsonObject = dict[str, Any]
LIST_DEADLINE_S = 15.0
SECOND_LOOK_S = 2.0
"""A holder renews every second; brokers do so every `renewIntervalSeconds`."""


@dataclass(frozen=True, slots=True)
class Leases:
    """Leases of the namespace, and those of operators wherever they may be seen.

    Attributes:
        brokers: By name.
        operators: Every Lease of an operator.
        elsewhere: Whether other namespaces could be looked at, too.
    """

    brokers: dict[str, LeaseRecord]
    operators: list[LeaseRecord]
    elsewhere: bool


async def read_leases(client: KubeClient, cluster: JsonObject) -> Leases:
    """An operator serves several namespaces, so its Lease may be in another one. Raises errors of the client.

    One in another namespace is this cluster's if the cluster names its holder as the controller.
    """
    mine = await _list(client, cluster["metadata"]["namespace"])
    operators, elsewhere = [each for each in mine if each.name == OPERATOR_LEASE], True
    if not operators:
        holder = ((cluster.get("status") or {}).get("controller") or {}).get("holder")
        try:
            everywhere = [each for each in await _list(client, None) if each.name == OPERATOR_LEASE]
            operators = [each for each in everywhere if not holder or each.holder == holder]
        except KubeForbidden:
            elsewhere = False
    return Leases({each.name: each for each in mine if each.name != OPERATOR_LEASE}, operators, elsewhere)


async def _list(client: KubeClient, namespace: str | None) -> list[LeaseRecord]:
    return [parse_lease(each) for each in (await client.list(LEASES, namespace, deadline_s=LIST_DEADLINE_S)).items]


def age_s(record: LeaseRecord, now: float) -> float | None:
    """Seconds since the holder wrote it, by its clock and ours; None when it says nothing."""
    try:
        return now - datetime.fromisoformat(record.renewed).timestamp()
    except ValueError:
        return None


def looks_silent(record: LeaseRecord, now: float) -> bool:
    """By the clocks, which may differ: whoever looks silent deserves a second look."""
    age = age_s(record, now)
    return bool(record.holder) and (age is None or abs(age) > max(record.duration_s, 1))


async def silent(client: KubeClient, records: list[LeaseRecord], now: float) -> set[str]:
    """`namespace/name` of those that did not change while they were looked at: their holders are gone or hang.

    Listed as before: the right to list does not imply the one to get. One that is gone has changed. Raises errors of
    the client.
    """
    suspects = [each for each in records if looks_silent(each, now)]
    if not suspects:
        return set()
    await asyncio.sleep(SECOND_LOOK_S)
    again: set[object] = set()
    for namespace in sorted({each.namespace for each in suspects}):
        again |= {(each.namespace, each.name, each.signature) for each in await _list(client, namespace)}
    return {
        f"{each.namespace}/{each.name}" for each in suspects if (each.namespace, each.name, each.signature) in again
    }


async def why_nobody_acts(client: KubeClient, cluster: JsonObject) -> str:
    """Why no operator is at work; "" when one is, or when Leases may not be read."""
    try:
        return await _why_nobody_acts(client, cluster)
    except (KubeForbidden, KubeNotFound):
        return ""


async def _why_nobody_acts(client: KubeClient, cluster: JsonObject) -> str:
    leases = await read_leases(client, cluster)
    if not leases.operators:
        return "no operator that serves this cluster has a Lease" if leases.elsewhere else ""
    held = [each for each in leases.operators if each.holder]
    if not held:
        return "no operator holds the Lease"
    gone = await silent(client, held, time.time())
    if all(f"{each.namespace}/{each.name}" in gone for each in held):
        return f"the operator {held[0].holder} has not renewed its Lease since {held[0].renewed}"
    return ""
