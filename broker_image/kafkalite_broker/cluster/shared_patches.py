"""Patches of partition entries, each of as many as there are to send for its topic."""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import TYPE_CHECKING, Any

from prometheus_client import Counter, Histogram

from kafkalite_broker.cluster.attempts import attempt_of
from kafkalite_core.membership.outbox import Outbox, Swap
from kafkalite_core.membership.settlement import Attempt, Entry
from kafkalite_core.resources import patches
from kafkalite_core.resources.fields import ResourceError
from kafkalite_core.resources.topics import parse_entries
from kafkalite_runtime.kube import TOPICS, KubeError, KubeNotFound, KubeUnavailable
from kafkalite_runtime.logging import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable

    from prometheus_client import CollectorRegistry

    from kafkalite_core.membership.settlement import Settlement
    from kafkalite_core.model.partition import Partition, TopicRef
    from kafkalite_runtime.kube import KubeClient

    Told = tuple[Attempt, Partition | Entry, Exception | None]
    Owner = asyncio.Future[Told]
    Patch = list[Swap[Owner]]

CONCURRENT_MAX = 16
"""Patches under way at once; beyond it the API server only gets slower."""

LATENCY_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0)

log = get_logger(__name__)


class SharedPatches:
    """Sends compare-and-swaps of partition entries, those of one topic together.

    Args:
        client: Of the main loop.
        absorb: Takes a topic object as the API server returned it.
        committed: Looks up an entry in the metadata cache, None when it is not there.
        registry: For the metrics.
        deadline_s: Of a patch, and of the read after one that was refused.
    """

    def __init__(
        self,
        client: KubeClient,
        *,
        absorb: Callable[[dict[str, Any]], None],
        committed: Callable[[TopicRef, int], Partition | None],
        registry: CollectorRegistry,
        deadline_s: float,
    ) -> None:
        self._client = client
        self._absorb = absorb
        self._committed = committed
        self._deadline_s = deadline_s
        self._slots = asyncio.Semaphore(CONCURRENT_MAX)
        self._outboxes: dict[TopicRef, Outbox[Owner]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._latency = Histogram(
            "kafkalite_cas_latency_seconds",
            "Time of one patch of partition entries, of one topic",
            registry=registry,
            buckets=LATENCY_BUCKETS_S,
        )
        self._conflicts = Counter(
            "kafkalite_cas_conflicts", "Patches of partition entries that the API server refused", registry=registry
        )

    async def send(self, ref: TopicRef, number: int, settlement: Settlement) -> Told:
        """How the sending ended, the entry as written, or as read after a refusal, and what went wrong."""
        owner: Owner = asyncio.get_running_loop().create_future()
        swap = Swap(number, settlement, owner)
        outbox = self._outboxes.get(ref)
        if outbox is None:
            outbox = self._outboxes[ref] = Outbox()
            # It begins when those have been added that are proposed in this very moment.
            task = asyncio.get_running_loop().create_task(self._empty(ref, outbox), name=f"patches of {ref.name}")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        outbox.add(swap)
        return await owner

    async def stop(self) -> None:
        """Give up everything under way."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _empty(self, ref: TopicRef, outbox: Outbox[Owner]) -> None:
        try:
            while outbox:
                async with self._slots:
                    # The watch may have been faster: such a part would get the others refused.
                    for swap, known in outbox.overtaken(lambda number: self._committed(ref, number)):
                        _tell(swap, Attempt.NOT_APPLIED, known, None)
                    patch = outbox.take()
                    await self._try(ref, outbox, patch)
        finally:
            del self._outboxes[ref]

    async def _try(self, ref: TopicRef, outbox: Outbox[Owner], patch: Patch) -> None:
        if not patch:
            return
        try:
            await self._carry_out(ref, outbox, patch)
        except Exception as error:  # a defect is every part's, whoever of them is still to be told
            for swap in patch:
                if not swap.owner.done():
                    swap.owner.set_exception(error)

    async def _carry_out(self, ref: TopicRef, outbox: Outbox[Owner], patch: Patch) -> None:
        began_s = monotonic()
        attempt, error = await self._send(ref, patch)
        self._latency.observe(monotonic() - began_s)
        if not any(swap.settlement.needs_read(attempt) for swap in patch):
            for swap in patch:
                _tell(swap, attempt, swap.settlement.proposed if attempt is Attempt.APPLIED else Entry.UNREAD, error)
            return
        self._conflicts.inc()
        for swap, entry in outbox.refused(patch, await self._read(ref)):
            _tell(swap, attempt, entry, error)

    async def _send(self, ref: TopicRef, patch: Patch) -> tuple[Attempt, Exception | None]:
        changes = {swap.number: swap.change for swap in patch}
        operations = patches.leader_proposals(ref, changes)
        try:
            answer = await self._client.json_patch(
                TOPICS, ref.namespace, ref.object_name, operations, subresource="status", deadline_s=self._deadline_s
            )
        except (KubeError, KubeUnavailable) as error:
            attempt = attempt_of(error)
            log.info(
                "partition change failed",
                topic=ref.name,
                partitions=sorted(changes),
                attempt=attempt.value,
                error=str(error),
            )
            return attempt, error
        self._absorb(answer)
        return Attempt.APPLIED, None

    async def _read(self, ref: TopicRef) -> dict[int, Partition] | Entry:
        """The entries as a consistent read shows them."""
        try:
            found = await self._client.get(TOPICS, ref.namespace, ref.object_name, deadline_s=self._deadline_s)
            uid, entries = parse_entries(found)
        except KubeNotFound:
            return Entry.GONE
        except (KubeError, KubeUnavailable, ResourceError) as error:
            log.info("partitions not read", topic=ref.name, error=str(error))
            return Entry.UNREAD
        if uid != ref.uid:
            return Entry.GONE
        self._absorb(found)
        return entries


def _tell(swap: Swap[Owner], attempt: Attempt, entry: Partition | Entry, error: Exception | None) -> None:
    if not swap.owner.done():
        swap.owner.set_result((attempt, entry, error))
