"""The broker's sign of life, on a thread of its own: load on the main loop must not look like death (threat 29).

It stops when it should: a broker whose main loop hangs or whose disk does not answer is of no use as a leader.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
from datetime import UTC, datetime
from time import monotonic
from typing import TYPE_CHECKING, Any

from kafkalite_broker.cluster.attempts import DEADLINE_S
from kafkalite_core.membership.lease import may_take, plan_renewal
from kafkalite_core.resources.brokers import parse_broker
from kafkalite_core.resources.leases import parse_lease, render_lease, told_annotations, told_operations
from kafkalite_core.resources.naming import API_VERSION, BROKER_KIND, broker_labels
from kafkalite_runtime.kube import BROKERS, LEASES, KubeClient, KubeError, KubeInvalid, KubeNotFound, KubeUnavailable
from kafkalite_runtime.logging import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kafkalite_broker.cluster.settings import BrokerConfig, BrokerSettings

STOP_LIMIT_S = 3.0

log = get_logger(__name__)


class LeaseThread:
    """Renews the Lease of one broker. Its callables are called on its thread and must be safe there.

    Args:
        make_client: A client of its own: a client belongs to one event loop.
        settings: Of this broker.
        config: The current `broker.json`, for lease duration and renew interval.
        broker_epoch: Registered broker epoch, -1 for none.
        owner_uid: `metadata.uid` of the `KafkaLiteBroker` that owns the Lease, empty while unknown.
        noticed: Uids of topics that this broker has noticed (`membership/notice.py`).
        flushed: Tokens of topics that it has flushed (`membership/flushed.py`).
        main_loop_age_s: Time since the main loop ticked last.
        oldest_flush_age_s: Age of the oldest flush under way, 0 for none.
    """

    def __init__(
        self,
        make_client: Callable[[], KubeClient],
        settings: BrokerSettings,
        *,
        config: Callable[[], BrokerConfig],
        broker_epoch: Callable[[], int],
        owner_uid: Callable[[], str],
        noticed: Callable[[], tuple[str, ...]],
        flushed: Callable[[], tuple[str, ...]],
        main_loop_age_s: Callable[[], float],
        oldest_flush_age_s: Callable[[], float],
    ) -> None:
        self._make_client = make_client
        self._settings = settings
        self._config = config
        self._broker_epoch = broker_epoch
        self._owner_uid = owner_uid
        self._noticed = noticed
        self._flushed = flushed
        self._main_loop_age_s = main_loop_age_s
        self._oldest_flush_age_s = oldest_flush_age_s
        self._thread: threading.Thread | None = None
        self._stopping = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wake: asyncio.Event | None = None
        self._holds = False
        """The last write says so."""
        self._state = ""
        self._renewed_s = float("-inf")

    def start(self) -> None:
        """Start the thread; it renews once the broker is registered."""
        assert self._thread is None, "started twice"
        self._thread = threading.Thread(target=self._run, name="lease", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread, within three seconds. The Lease is left to expire: others judge, not the holder."""
        self._stopping.set()
        loop, wake = self._loop, self._wake
        if loop is not None and wake is not None and not loop.is_closed():
            with contextlib.suppress(RuntimeError):  # the loop may close between the check and the call
                loop.call_soon_threadsafe(wake.set)
        if self._thread is not None:
            self._thread.join(STOP_LIMIT_S)

    @property
    def renewal_age_s(self) -> float:
        """Time since the last successful renewal; infinite before the first."""
        return monotonic() - self._renewed_s

    # -------------------------------------------------------------------------------------------- the thread

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                asyncio.run(self._main())
            except Exception:
                log.exception("lease thread failed, starting again")
                self._stopping.wait(1.0)

    async def _main(self) -> None:
        self._wake = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        client = self._make_client()
        try:
            while not self._stopping.is_set():
                started = monotonic()
                await self._turn(client)
                interval_s = self._config().renew_interval_s
                # A turn that took its whole deadline is followed by the next one soon, but never at once.
                pause_s = max(interval_s / 4, interval_s - (monotonic() - started)) * random.uniform(0.9, 1.0)
                try:
                    await asyncio.wait_for(self._wake.wait(), pause_s)
                except TimeoutError:
                    continue
        finally:
            await client.close()

    async def _turn(self, client: KubeClient) -> None:
        """One look, and a renewal if all is well."""
        verdict = plan_renewal(
            broker_epoch=self._broker_epoch(),
            lease_duration_s=self._config().lease_duration_s,
            main_loop_age_s=self._main_loop_age_s(),
            oldest_flush_age_s=self._oldest_flush_age_s(),
        )
        if not verdict.renew:
            self._say("paused", verdict.reason)
            return
        try:
            # To take it over takes up to three calls, of which each has its deadline.
            async with asyncio.timeout(DEADLINE_S if self._holds else 3 * DEADLINE_S):
                renewed = await self._renew(client)
        except (KubeError, KubeUnavailable, TimeoutError) as error:
            self._say("failing", str(error) or "no answer in time")
            return
        except Exception as error:
            # The root of this thread's work: whatever it is, the next turn tries again.
            log.exception("lease not renewed")
            self._say("failing", repr(error))
            return
        if renewed:
            self._renewed_s = monotonic()
            self._say("renewing", "registered, main loop and disk answer")

    def _say(self, state: str, reason: str) -> None:
        if state != self._state:
            self._state = state
            log.info("lease", state=state, reason=reason, lease=self._settings.object_name)

    # ------------------------------------------------------------------------------------------ the API calls

    async def _renew(self, client: KubeClient) -> bool:
        """One renewal by compare-and-swap on the holder; the first one takes the Lease over."""
        settings, now = self._settings, _micro_time()
        if not self._holds:
            return await self._take_over(client, now)
        operations: list[dict[str, Any]] = [
            {"op": "test", "path": "/spec/holderIdentity", "value": settings.incarnation},
            {"op": "add", "path": "/spec/renewTime", "value": now},
            {"op": "add", "path": "/spec/leaseDurationSeconds", "value": self._duration_s()},
            *told_operations(noticed=self._noticed(), flushed=self._flushed()),
        ]
        try:
            await client.json_patch(LEASES, settings.namespace, settings.object_name, operations, deadline_s=DEADLINE_S)
        except KubeNotFound:
            return await self._create(client, now)
        except KubeInvalid:
            self._holds = False
            return await self._take_over(client, now)
        return True

    async def _create(self, client: KubeClient, now: str) -> bool:
        if not self._owner_uid():
            self._say("failing", "the KafkaLiteBroker that owns the Lease is not known yet")
            return False
        body = self._render(now, transitions=0, resource_version="", annotations={})
        await client.create(LEASES, self._settings.namespace, body, deadline_s=DEADLINE_S)
        self._holds = True
        return True

    async def _take_over(self, client: KubeClient, now: str) -> bool:
        """Take the Lease from a former incarnation; from a later one never, see `may_take`.

        Its own it may always write anew: the first write had no answer, or somebody has taken all annotations from it.
        """
        settings = self._settings
        try:
            lease = await client.get(LEASES, settings.namespace, settings.object_name, deadline_s=DEADLINE_S)
        except KubeNotFound:
            return await self._create(client, now)
        found = parse_lease(lease)
        own = found.holder == settings.incarnation
        if not own and not await self._may_take(client):
            self._say("lost", "another incarnation holds the Lease, and this one is not registered any more")
            return False
        body = self._render(
            now,
            transitions=found.transitions + (not own),
            resource_version=found.resource_version,
            annotations=found.annotations,
        )
        await client.replace(LEASES, settings.namespace, settings.object_name, body, deadline_s=DEADLINE_S)
        self._holds = True
        return True

    async def _may_take(self, client: KubeClient) -> bool:
        settings = self._settings
        try:
            found = await client.get(BROKERS, settings.namespace, settings.object_name, deadline_s=DEADLINE_S)
        except KubeNotFound:
            return may_take(None, settings.incarnation)
        return may_take(parse_broker(found), settings.incarnation)

    def _render(
        self, now: str, *, transitions: int, resource_version: str, annotations: Mapping[str, str]
    ) -> dict[str, Any]:
        settings = self._settings
        owner = {
            "apiVersion": API_VERSION,
            "kind": BROKER_KIND,
            "name": settings.object_name,
            "uid": self._owner_uid(),
        }
        return render_lease(
            settings.namespace,
            settings.object_name,
            holder=settings.incarnation,
            renewed=now,
            acquired=now,
            duration_s=self._duration_s(),
            transitions=transitions,
            resource_version=resource_version,
            labels=broker_labels(settings.cluster, settings.broker_id),
            annotations={**annotations, **told_annotations(noticed=self._noticed(), flushed=self._flushed())},
            owners=[owner],
        )

    def _duration_s(self) -> int:
        return max(1, round(self._config().lease_duration_s))


def _micro_time() -> str:
    """Kubernetes' MicroTime; nobody compares it with a clock (R16)."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
