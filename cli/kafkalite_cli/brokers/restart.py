"""Restarting brokers one after the other: each is back in all its ISRs before the next one goes."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING, Any

from kafkalite_cli.brokers import operator_lease, safety
from kafkalite_cli.brokers.view import ClusterView, read_again
from kafkalite_cli.errors import Failure
from kafkalite_cli.manifests import plain_words
from kafkalite_cli.outage import through_outage
from kafkalite_core.resources.naming import broker_name
from kafkalite_core.resources.pods import is_ready
from kafkalite_runtime.kube import PODS, KubeConflict, KubeError, KubeNotFound, KubeUnavailable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkalite_cli.local_mode.progress import Steps
    from kafkalite_cli.pasting import Commands
    from kafkalite_runtime.kube import KubeClient

JsonObject = dict[str, Any]
POLL_S = 0.5


class Restarts:
    """The brokers of one cluster.

    Args:
        force: Go on although a partition drops below its min.insync.replicas, or nobody could elect.
        timeout_s: For each broker.
    """

    def __init__(
        self, client: KubeClient, view: ClusterView, steps: Steps, say: Commands, *, force: bool, timeout_s: float
    ) -> None:
        self._client = client
        self._view, self._namespace = view, view.namespace
        self._steps = steps
        self._doctor = say.kafkalite("doctor")
        self._force = force
        self._timeout_s = timeout_s

    async def run(self, view: ClusterView, broker_ids: Sequence[int]) -> None:
        """Raises Failure for what speaks against it, before anything is changed, and when a broker does not return."""
        await self._check(view, broker_ids)
        for at, broker_id in enumerate(broker_ids):
            left = f"; not restarted: {', '.join(map(str, broker_ids[at:]))}" if at else ""
            self._steps.begin(f"broker {broker_id}")
            try:
                await self._wait_until_safe(broker_id)
                await self._restart(broker_id)
            except Failure as error:
                raise Failure(f"{error.message}{left}") from error
            except (KubeError, KubeUnavailable) as error:
                raise Failure(f"{plain_words(error)}{left}") from error
            self._steps.done(f"broker {broker_id} is back in all ISRs")

    async def _check(self, view: ClusterView, broker_ids: Sequence[int]) -> None:
        if unknown := sorted(set(broker_ids) - set(view.brokers)):
            known = ", ".join(map(str, sorted(view.brokers))) or "none"
            raise Failure(f"there is no broker {unknown[0]} in cluster {view.name}; there are: {known}")
        if gone := [i for i in broker_ids if view.scaled_away(i)]:
            wanted = view.cluster["spec"].get("replicas", 3)
            raise Failure(f"broker {gone[0]} is scaled away: spec.replicas of {view.name} is {wanted}")
        if self._force:
            return
        if why := await operator_lease.why_nobody_acts(self._client, view.cluster):
            raise Failure(f"{why}: nobody would elect other leaders while a broker is away. --force does it anyway")
        lasting = [each for i in broker_ids for each in safety.objections(view, i) if each.lasting]
        if lasting:
            raise Failure(
                f"{safety.sentence(lasting)}. Add a replica, or lower min.insync.replicas; --force does it anyway"
            )
        if found := safety.objections(view, broker_ids[0]):
            raise Failure(
                f"broker {broker_ids[0]} is needed now: {safety.sentence(found)}. "
                f"`{self._doctor}` says more; --force does it anyway"
            )

    async def _wait_until_safe(self, broker_id: int) -> None:
        limit = time.monotonic() + self._timeout_s
        while not self._force:
            view = await self._read()
            found = safety.objections(view, broker_id)
            if not found:
                return
            self._steps.waiting(f"it is needed: {safety.sentence(found)}")
            if time.monotonic() > limit:
                raise Failure(f"broker {broker_id} was not restarted, it is needed: {safety.sentence(found)}")
            await asyncio.sleep(POLL_S)

    async def _read(self) -> ClusterView:
        return await read_again(self._client, self._view, self._steps.waiting)

    async def _pod(self, name: str) -> JsonObject | None:
        """None: there is none, which an API server that is away does not say."""
        try:
            return await through_outage(lambda: self._client.get(PODS, self._namespace, name), self._steps.waiting)
        except KubeNotFound:
            return None

    async def _delete(self, name: str, uid: str) -> None:
        """That very pod: doing it again does no harm, and a request without an answer may not have arrived."""
        with contextlib.suppress(KubeNotFound, KubeConflict):  # somebody else may have replaced it this very moment
            await through_outage(lambda: self._client.delete(PODS, self._namespace, name, uid=uid), self._steps.waiting)

    async def _restart(self, broker_id: int) -> None:
        name = broker_name(self._view.name, broker_id)
        before = (await self._read()).brokers.get(broker_id)
        incarnation = before.registration.incarnation if before and before.registration is not None else ""
        old = await self._pod(name)
        uid = old["metadata"]["uid"] if old is not None else ""
        limit = time.monotonic() + self._timeout_s
        while reason := await self._waits_for(broker_id, name, uid, incarnation):
            self._steps.waiting(reason)
            if time.monotonic() > limit:
                raise Failure(
                    f"broker {broker_id} is not back within {self._timeout_s:g} s: {reason}; `{self._doctor}` says more"
                )
            await asyncio.sleep(POLL_S)

    async def _waits_for(self, broker_id: int, name: str, old_uid: str, old_incarnation: str) -> str:
        """What is still missing; "" when the new process is in every ISR of its replicas."""
        pod = await self._pod(name)
        if pod is None:
            return f"pod {name} is made again"
        if pod["metadata"]["uid"] == old_uid:
            if "deletionTimestamp" in pod["metadata"]:
                return f"pod {name} stops"
            await self._delete(name, old_uid)
            return f"pod {name} is deleted"
        view = await self._read()
        broker = view.brokers.get(broker_id)
        registration = broker.registration if broker is not None else None
        if broker is None or registration is None or registration.incarnation == old_incarnation:
            if broker is not None and broker.recovery is not None and broker.recovering:
                return f"broker {broker_id} recovers its logs, {broker.recovery.remaining_logs} are left"
            return f"pod {name} is {pod_phase(pod)}, the new process has not registered yet"
        if not broker.alive:
            return view.state_of(broker_id)
        if missing := safety.not_back(view, broker_id):
            total = sum(broker_id in entry.replicas for entry in view.partitions.values())
            return f"in sync in {total - len(missing)} of {total} partitions"
        return "" if is_ready(pod) else f"pod {name} is not ready"


def pod_phase(pod: JsonObject) -> str:
    """What the container waits for, else the phase."""
    for status in (pod.get("status") or {}).get("containerStatuses") or []:
        waiting = (status.get("state") or {}).get("waiting") or {}
        if waiting.get("reason"):
            return str(waiting["reason"])
    return str((pod.get("status") or {}).get("phase") or "Pending")
