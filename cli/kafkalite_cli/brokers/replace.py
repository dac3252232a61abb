"""Declaring a broker's node or volume gone for good: what will be lost, the annotation, and what becomes of it."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafkalite_cli.brokers.view import ClusterView, read_again
from kafkalite_cli.errors import Failure
from kafkalite_cli.manifests import plain_words
from kafkalite_core.controller.replacement import objections
from kafkalite_core.controller.snapshot import Snapshot
from kafkalite_core.controller.strays import lost_topics
from kafkalite_core.model.replacement import Phase
from kafkalite_core.resources.clusters import parse_cluster
from kafkalite_core.resources.fields import Fields
from kafkalite_core.resources.naming import ANNOTATION_REPLACE, data_claim_name
from kafkalite_core.resources.replacing import parse_replacing
from kafkalite_core.resources.views import topic_view
from kafkalite_runtime.kube import BROKERS, KubeError, KubeForbidden

if TYPE_CHECKING:
    from kafkalite_cli.local_mode.progress import Steps
    from kafkalite_cli.pasting import Commands
    from kafkalite_core.model.cluster import Broker
    from kafkalite_core.model.replacement import Replacing
    from kafkalite_runtime.kube import KubeClient

POLL_S = 0.5
LISTED_MAX = 5


@dataclass(frozen=True, slots=True)
class Loss:
    """What a replacement deletes, what has to be copied again, and what speaks against it now."""

    claim: str
    replicas: int
    lost_topics: list[str]
    against: list[str]

    def sentences(self, view: ClusterView, broker_id: int) -> list[str]:
        """For people."""
        said = [
            f"{view.state_of(broker_id)}; claim {self.claim} is deleted with its data, and its pod",
            f"{self.replicas:,} replicas are copied to the new volume from the other brokers",
        ]
        if self.lost_topics:
            said.append(f"data of topics that were lost are on it, and go with it: {', '.join(self.lost_topics)}")
        if self.against:
            more = len(self.against) - LISTED_MAX
            said.append("the operator would wait, and delete nothing, as long as")
            said += [f"  {each}" for each in self.against[:LISTED_MAX]]
            said += [f"  and {more:,} more"] if more > 0 else []
        return said


def loss(view: ClusterView, broker_id: int) -> Loss:
    """Raises Failure when there is no such broker, or it leaves."""
    broker = known(view, broker_id)
    if broker_id >= view.wanted:
        raise Failure(f"broker {broker_id} leaves the cluster: its replicas move to those that stay")
    views = {str(topic["metadata"]["uid"]): topic_view(topic) for topic in view.topics}
    snapshot = Snapshot(cluster=parse_cluster(view.cluster), topics=views, brokers=view.brokers)
    return Loss(
        claim=data_claim_name(view.name, broker_id),
        replicas=sum(broker_id in entry.replicas for entry in view.partitions.values()),
        lost_topics=lost_topics(snapshot, broker),
        against=[f"{each.partition} {each.reason}" for each in objections(snapshot, broker_id)],
    )


def rebuilding(view: ClusterView, broker_id: int, say: Commands) -> list[str]:
    """For people: it has its new volume already, and copies; empty when that is not so.

    A declaration would be about that volume: the operator would delete it, and begin again.
    """
    status = _status(view)
    if status.broker != broker_id or status.phase is not Phase.REBUILDING:
        return []
    name = view.broker_objects[broker_id]["metadata"]["name"]
    gone = say.kubectl(view.namespace, f"annotate klb {name} {ANNOTATION_REPLACE}=true")
    return [f"broker {broker_id} has a new volume: {told(status)}", f"if that one is gone as well: {gone}"]


def _status(view: ClusterView) -> Replacing:
    return parse_replacing(Fields(view.cluster.get("status") or {}, "status"))


def known(view: ClusterView, broker_id: int) -> Broker:
    """Raises Failure when there is no such broker."""
    broker = view.brokers.get(broker_id)
    if broker is None:
        ids = ", ".join(map(str, sorted(view.brokers))) or "none"
        raise Failure(f"there is no broker {broker_id} in cluster {view.name}; there are: {ids}")
    return broker


async def declare(client: KubeClient, view: ClusterView, broker_id: int, *, gone: bool) -> None:
    """Set the annotation, or take it away. Raises Failure."""
    obj = view.broker_objects[broker_id]
    body = {"metadata": {"uid": obj["metadata"]["uid"], "annotations": {ANNOTATION_REPLACE: "true" if gone else None}}}
    try:
        await client.merge_patch(BROKERS, view.namespace, obj["metadata"]["name"], body, strict=True)
    except KubeForbidden as error:
        raise Failure(
            f"{plain_words(error)}; what is needed is the verb patch on kafkalitebrokers.kafkalite.io"
        ) from error
    except KubeError as error:
        raise Failure(f"{obj['metadata']['name']}: {plain_words(error)}") from error


async def follow(
    client: KubeClient, view: ClusterView, broker_id: int, steps: Steps, say: Commands, *, timeout_s: float
) -> None:
    """Wait until the broker is back in all its ISRs, with another disk. Raises Failure."""
    given_up = _given_up(view, broker_id)
    limit = time.monotonic() + timeout_s
    while True:
        view = await read_again(client, view, steps.waiting)
        broker = known(view, broker_id)
        status = _status(view)
        mine = status.broker == broker_id and status.phase is not Phase.NONE
        if not mine and not broker.replace_request:
            if _disk(broker) == given_up:  # nothing else tells it from a replacement that is done
                raise Failure(f"broker {broker_id} was not replaced: it was taken back, and the volume is the old one")
            return
        words = told(status) if mine else "the operator has not taken it up yet"
        steps.waiting(words)
        if time.monotonic() > limit:
            raise Failure(
                f"broker {broker_id} is not replaced in time, and the operator goes on: {words} "
                f"({say.kafkalite(f'replace {broker_id} --cancel')} takes back what has not begun)"
            )
        await asyncio.sleep(POLL_S)


def _given_up(view: ClusterView, broker_id: int) -> str | None:
    """The disk that the broker has to have no longer; None when it is gone already."""
    status = _status(view)
    if status.broker == broker_id and status.phase is Phase.REBUILDING:
        return None
    noted = status.directory_id if status.broker == broker_id else ""
    return noted or _disk(known(view, broker_id))


def _disk(broker: Broker) -> str:
    """Random id of the directory that it was last registered with."""
    return "" if broker.registration is None else broker.registration.directory_id


def told(status: Replacing) -> str:
    """Where it is, in a few words."""
    against = "; ".join(f"{each.partition} {each.reason}".strip() for each in status.blocked_by[:LISTED_MAX])
    if against:
        return f"waiting, nothing is deleted meanwhile: {against}"
    if status.phase is Phase.REBUILDING:
        return f"{status.in_sync} of {status.replicas} replicas are in sync again"
    return "its pod and its volume are made anew"
