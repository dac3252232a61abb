"""Says in the broker's own object how far the recovery of the logs is: `status.recovery`.

A broker registers only once its disk is open, so until then its registration is that of its predecessor. What is said
here is for people, and for the operator, which leaves a broker in peace that recovers. It is best effort: recovery
waits for none of it.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from kafkalite_broker.cluster.attempts import DEADLINE_S
from kafkalite_core.model.cluster import Recovery
from kafkalite_core.resources import patches
from kafkalite_core.resources.brokers import parse_broker
from kafkalite_core.resources.fields import ResourceError
from kafkalite_runtime.kube import BROKERS, KubeError, KubeInvalid, KubeUnavailable
from kafkalite_runtime.logging import get_logger

if TYPE_CHECKING:
    from kafkalite_broker.cluster.settings import BrokerSettings
    from kafkalite_runtime.kube import KubeClient

FIRST_S = 2.0
"""A recovery that takes less is not spoken of: most do."""

INTERVAL_S = 5.0

log = get_logger(__name__)


class RecoveryReport:
    """See the module. `run` is to be cancelled when the recovery is over.

    A process is superseded when another one has registered, or begun to recover, after it has begun itself. Then it
    says nothing more: it is a zombie, or about to end.
    """

    def __init__(self, client: KubeClient, settings: BrokerSettings) -> None:
        self._client = client
        self._settings = settings
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        self._now = Recovery(incarnation=settings.incarnation, started_at=now)
        self._said: Recovery | None = None
        self._uid = ""
        self._registered = -1
        self._superseded = False
        self._complained = False

    def progress(self, logs: int, segments: int) -> None:
        """So many logs are left, and segments of those that are under way."""
        self._now = replace(self._now, remaining_logs=logs, remaining_segments=segments)

    async def run(self) -> None:
        """Tell it every few seconds; ends only when this process is superseded."""
        await asyncio.sleep(FIRST_S)
        while not self._superseded:
            if self._now != self._said:
                await self._tell(self._now)
            await asyncio.sleep(INTERVAL_S * random.uniform(0.75, 1.25))

    async def _tell(self, recovery: Recovery) -> None:
        try:
            if not self._uid or not await self._go_on(recovery):
                await self._begin(recovery)
        except (KubeError, KubeUnavailable, ResourceError) as error:
            if not self._complained:
                self._complained = True
                log.info("the progress of the recovery is not told", error=str(error))

    async def _begin(self, recovery: Recovery) -> None:
        found = await self._client.get(
            BROKERS, self._settings.namespace, self._settings.object_name, deadline_s=DEADLINE_S
        )
        shown = parse_broker(found)
        foreign = shown.recovery is not None and shown.recovery.incarnation != recovery.incarnation
        if self._uid == shown.uid and (foreign or shown.epoch > self._registered):
            self._superseded = True
            log.warning("another process of this broker has begun: nothing more is told of the recovery")
            return
        await self._patch(patches.recovery_begun(found, recovery))
        self._uid, self._registered, self._said = shown.uid, shown.epoch, recovery

    async def _go_on(self, recovery: Recovery) -> bool:
        """False when the object does not show any more what was said there before."""
        try:
            await self._patch(patches.recovery_progress(self._uid, recovery))
        except KubeInvalid:
            return False
        self._said = recovery
        return True

    async def _patch(self, operations: list[dict[str, Any]]) -> None:
        await self._client.json_patch(
            BROKERS,
            self._settings.namespace,
            self._settings.object_name,
            operations,
            subresource="status",
            deadline_s=DEADLINE_S,
        )
