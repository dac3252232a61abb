"""Which replica of the operator acts: an election by Lease.

The Lease decides who tries, never what is right: every write is a compare-and-swap of its own. Expiry is judged by
this observer's monotonic clock since it last saw the record change (client-go's semantics); the times in the record
are for people. A holder whose last confirmed renewal is older than `RENEW_DEADLINE_S` stops acting before others may
start; until then it tries again, and a slow answer costs nothing. A renewal without an answer that turns out to have
been applied counts from when it was sent, as if it had been answered.

It runs on a thread of its own (`elector_thread`), so that a long round on the main loop does not lose the Lease, and
watches that loop: one that has not turned for `BLOCKED_LIMIT_S` is taken for dead, and its Lease runs out.
"""

from __future__ import annotations

import asyncio
import random
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from kafkalite_core.model.errors import KafkaLiteError
from kafkalite_core.resources.leases import LeaseRecord, parse_lease, render_lease
from kafkalite_core.resources.naming import OPERATOR_LEASE
from kafkalite_runtime.complaints import Complaints
from kafkalite_runtime.kube.errors import KubeConflict, KubeError, KubeNotFound, KubeUnavailable
from kafkalite_runtime.kube.kinds import LEASES
from kafkalite_runtime.logging import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalite_runtime.kube.client import KubeClient

LEASE_DURATION_S = 5
RENEW_DEADLINE_S = 4.0
"""The term ends when no renewal was confirmed for so long. The second that is left of the Lease is for what was sent
just before; two calls fit that time out, so one that hangs on a dead connection does not end the term."""

RETRY_S = 1.0
CALL_DEADLINE_S = 2.0
RELEASE_ATTEMPTS = 3
BLOCKED_LIMIT_S = 15.0
"""A holder whose main loop has not turned for so long renews no more: another one acts 5 s later. Longer than any
round, shorter than the patience of the liveness probe."""

READY_LIMIT_S = 3.0
"""Who does not hold the Lease tries to get it only with a main loop that turned within this time."""

_log = get_logger(__name__)


class Elector:
    """Holds, or tries to get, the operator's Lease."""

    def __init__(
        self,
        client: KubeClient,
        *,
        namespace: str,
        identity: str,
        instance: str = "",
        clock: Callable[[], float] = time.monotonic,
        main_loop_age_s: Callable[[], float] = lambda: 0.0,
        on_change: Callable[[bool], None] = lambda _: None,
    ) -> None:
        """One candidate.

        Args:
            client: Of the loop that this runs on.
            namespace: Where the Lease is.
            identity: Of this process.
            instance: A holder that begins with it is a dead predecessor in the same pod; may be empty.
            clock: Monotonic seconds.
            main_loop_age_s: Time since the loop that acts turned last.
            on_change: Called with whether the Lease is held, when that changes.
        """
        self._client = client
        self._namespace = namespace
        self.identity = identity
        self._instance = instance
        self._clock = clock
        self._renewed_at: float | None = None
        self._observed: tuple[str, str, str] | None = None
        self._observed_at = 0.0
        self._mine: LeaseRecord | None = None
        self._unanswered: tuple[str, float] | None = None
        """Time stamp in the last record that was written without an answer, and when it was sent."""
        self._main_loop_age_s = main_loop_age_s
        self._on_change = on_change
        self._blocked = False
        self._complaints = Complaints(_log)
        self.terms = 0
        """How often the Lease was acquired: a term is served by one holder without a break."""

    def held(self) -> bool:
        """Whether this process may act now. Any thread may ask."""
        renewed_at = self._renewed_at
        return renewed_at is not None and self._clock() - renewed_at < RENEW_DEADLINE_S

    async def run(self) -> None:
        """Acquire and renew for ever; an unreachable API only ends the term."""
        while True:
            started = self._clock()
            await self.turn()
            await asyncio.sleep(max(0.0, RETRY_S * random.uniform(0.8, 1.0) - (self._clock() - started)))

    async def turn(self) -> None:
        """One attempt, if the main loop is well."""
        if self._may_try():
            try:
                await self.attempt()
                self._complaints.well("lease", "operator lease answered again")
            except KafkaLiteError as error:
                self._complaints.wrong("lease", "operator lease not answered", error)
        if self._renewed_at is not None and not self.held():
            self._lose("not renewed in time")

    def _may_try(self) -> bool:
        age_s = self._main_loop_age_s()
        blocked = age_s >= (BLOCKED_LIMIT_S if self.held() else READY_LIMIT_S)
        if blocked and not self._blocked:
            _log.error("operator lease left alone: the main loop is blocked", identity=self.identity, age_s=age_s)
        self._blocked = blocked
        return not blocked

    async def attempt(self) -> bool:
        """One attempt to acquire or to renew; True when the Lease is held afterwards. Raises errors of the client."""
        if self._mine is not None and self.held():
            # One call instead of two, which counts when the API server is slow. Any change of the record is a conflict.
            started = self._clock()
            try:
                await self._write(self._mine, holder=self.identity)
            except (KubeConflict, KubeNotFound):
                self._mine = None
            else:
                self._gain(started)
                return True
        try:
            record = parse_lease(
                await self._client.get(LEASES, self._namespace, OPERATOR_LEASE, deadline_s=CALL_DEADLINE_S)
            )
        except KubeNotFound:
            record = None
        if record is not None and not self._may_write(record):
            if self._renewed_at is not None:
                self._lose(f"{record.holder} holds the lease")
            return False
        self._settle(record)
        started = self._clock()
        try:
            await self._write(record, holder=self.identity)
        except KubeConflict:
            return self.held()
        self._gain(started)
        return True

    def _settle(self, record: LeaseRecord | None) -> None:
        """A renewal whose answer was lost is what stands there: it was applied, and nobody has written since."""
        if self._unanswered is None or record is None or not self.held():
            return
        renewed, started = self._unanswered
        if (record.holder, record.renewed) == (self.identity, renewed):
            self._gain(started)

    def _may_write(self, record: LeaseRecord) -> bool:
        if record.signature != self._observed:
            self._observed = record.signature
            self._observed_at = self._clock()
        if record.holder in {"", self.identity}:
            return True
        if self._instance and record.holder.startswith(f"{self._instance}_"):
            return True
        return self._clock() - self._observed_at > max(record.duration_s, 1)

    async def _write(self, record: LeaseRecord | None, *, holder: str) -> None:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        mine = record is not None and record.holder == self.identity
        transitions = 0 if record is None else record.transitions + (0 if mine else 1)
        body = render_lease(
            self._namespace,
            OPERATOR_LEASE,
            holder=holder,
            renewed=now,
            acquired=now,
            duration_s=LEASE_DURATION_S,
            transitions=transitions,
            resource_version=record.resource_version if record is not None else "",
        )
        started = self._clock()
        try:
            if record is None:
                written = await self._client.create(LEASES, self._namespace, body, deadline_s=CALL_DEADLINE_S)
            else:
                written = await self._client.replace(
                    LEASES, self._namespace, OPERATOR_LEASE, body, deadline_s=CALL_DEADLINE_S
                )
        except KubeUnavailable:
            self._mine, self._unanswered = None, (now, started)  # reading it says what became of it
            raise
        self._mine = parse_lease(written) if holder == self.identity else None

    def _gain(self, since: float) -> None:
        # The term counts from before the request: others count from when they see its result, which is later.
        # The number of the term comes first: whoever sees that the Lease is held again sees another term, too.
        if not self.held():
            self.terms += 1
            _log.info("operator lease acquired", identity=self.identity, term=self.terms)
        gained = self._renewed_at is None
        self._renewed_at = since
        if gained:
            self._on_change(True)

    def _lose(self, why: str) -> None:
        _log.warning("operator lease lost", identity=self.identity, why=why)
        self._renewed_at = None
        self._on_change(False)

    async def release(self) -> None:
        """Give the Lease back, so that another replica need not wait for its expiry. Never raises errors of the API."""
        if self._renewed_at is None:
            return
        self._renewed_at = None
        self._on_change(False)
        for _ in range(RELEASE_ATTEMPTS):
            try:
                record = parse_lease(
                    await self._client.get(LEASES, self._namespace, OPERATOR_LEASE, deadline_s=CALL_DEADLINE_S)
                )
                if record.holder == self.identity:
                    await self._write(record, holder="")
                    _log.info("operator lease released", identity=self.identity)
            except KubeConflict:
                continue  # a renewal of our own that was under way
            except (KubeError, KubeUnavailable) as error:
                _log.info("operator lease not released", error=str(error))
            return
