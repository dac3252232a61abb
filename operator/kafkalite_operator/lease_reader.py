"""Reads the brokers' Leases every second, so that their liveness never rests on a watch (R16)."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from kafkalite_core.controller.snapshot import LeaseView
from kafkalite_core.membership.lease import LeaseObserver
from kafkalite_core.model.errors import KafkaLiteError
from kafkalite_core.resources.leases import parse_lease
from kafkalite_core.resources.naming import is_broker_name
from kafkalite_runtime.complaints import Complaints
from kafkalite_runtime.kube.errors import KubeForbidden, KubeUnauthorized
from kafkalite_runtime.kube.kinds import LEASES
from kafkalite_runtime.logging import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kafkalite_core.resources.leases import LeaseRecord
    from kafkalite_runtime.kube.client import KubeClient

INTERVAL_S = 1.0
CALL_DEADLINE_S = 2.0
GAP_S = 2.5
"""Two reads further apart than this leave a gap: renewals may have been impossible meanwhile, so all Leases are fresh
again from the next read on."""

GRACE_S = 60.0
"""After such a gap, on top of the Lease's duration, for brokers that were not heard since. An API server that ends in
order takes its endpoint away, and each kube-proxy learns of the next one by itself, after a back-off: client-go's
reflectors double it up to 30 s, and then add up to its own length."""

FORGET_S = 7200.0
"""What was not seen for so long is forgotten: longer than any Lease lasts (an hour), so it makes nobody seem silent."""

LASTING_S = 10.0
"""So long a refusal may be that of an API server that starts: it knows no Roles yet, and answers 403 to all."""

NEVER_READ = LeaseView(holder="", changed_at=0.0)

_log = get_logger(__name__)


class LeaseReader:
    """Keeps `leases` up to date: holder, duration, when the renewal was last seen to change, by (namespace, name)."""

    def __init__(
        self,
        client: KubeClient,
        leases: dict[tuple[str, str], LeaseView],
        namespaces: Callable[[], Iterable[str]],
        on_read: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`namespaces()` says where clusters are; `on_read()` is called after every round."""
        self._client = client
        self._leases = leases
        self._namespaces = namespaces
        self._on_read = on_read
        self._clock = clock
        self._observers: dict[str, LeaseObserver] = {}
        self._seen_at: dict[tuple[str, str], float] = {}
        self._asked_at: dict[str, float] = {}
        self._complaints = Complaints(_log)
        self._refused: dict[str, tuple[float, str]] = {}
        """By namespace: since when its Leases may not be read, and what the API server says."""

    def refused(self, namespace: str) -> str:
        """Why the Leases there may not be read, if that lasts; empty when they may, or when nobody has said."""
        since, why = self._refused.get(namespace, (self._clock(), ""))
        return why if self._clock() - since >= LASTING_S else ""

    def observing_since(self, namespace: str) -> float | None:
        """Since when Leases have been read without a gap; None when the last read is too old."""
        observer = self._observers.get(namespace)
        return None if observer is None else observer.since_s(now_s=self._clock())

    def unheard_until(self, namespace: str) -> float:
        """Until when the silence of brokers that were not heard since then counts for nothing."""
        observer = self._observers.get(namespace)
        return 0.0 if observer is None else observer.unheard_until_s

    async def run(self) -> None:
        """Read for ever; a failed read only makes the gap."""
        while True:
            started = self._clock()
            await self.read_all()
            self._on_read()
            await asyncio.sleep(max(0.0, INTERVAL_S - (self._clock() - started)))

    async def read_all(self) -> None:
        """Read all namespaces. Raises nothing."""
        namespaces, now = set(self._namespaces()), self._clock()
        self._asked_at |= dict.fromkeys(namespaces, now)
        await asyncio.gather(*(self._read_quietly(namespace) for namespace in sorted(namespaces)))
        for namespace in [each for each, at in self._asked_at.items() if now - at > FORGET_S]:
            del self._asked_at[namespace]
            self._observers.pop(namespace, None)
            self._refused.pop(namespace, None)
        for key in [key for key, at in self._seen_at.items() if now - at > FORGET_S]:
            del self._seen_at[key]
            self._leases.pop(key, None)

    async def _read_quietly(self, namespace: str) -> None:
        try:
            await self.read(namespace)
            self._complaints.well(namespace, "broker leases read again", namespace=namespace)
            self._refused.pop(namespace, None)
        except KafkaLiteError as error:
            self._complaints.wrong(namespace, "broker leases not read", error, namespace=namespace)
            if isinstance(error, KubeForbidden) and not isinstance(error, KubeUnauthorized):
                since, _ = self._refused.get(namespace, (self._clock(), ""))
                self._refused[namespace] = (since, error.message)

    async def read(self, namespace: str) -> None:
        """One consistent read. Raises errors of the client."""
        listed = await self._client.list(LEASES, namespace, deadline_s=CALL_DEADLINE_S)
        records: list[LeaseRecord] = []
        for item in listed.items:
            try:
                if is_broker_name(str(item["metadata"]["name"])):  # the others are somebody else's
                    records.append(parse_lease(item))
            except KafkaLiteError as error:
                uid = (item.get("metadata") or {}).get("uid")
                self._complaints.wrong(("lease", uid), "lease not understood", error)
        observer = self._observers.setdefault(namespace, LeaseObserver(gap_s=GAP_S, grace_s=GRACE_S))
        now = self._clock()
        observer.read({record.name: record.signature for record in records}, now_s=now)
        for record in records:
            changed_at = observer.changed_s(record.name)
            assert changed_at is not None
            self._seen_at[namespace, record.name] = now
            before = self._leases.get((namespace, record.name), NEVER_READ)
            self._leases[namespace, record.name] = before.followed_by(record, changed_at=changed_at, now=now)
