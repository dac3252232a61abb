"""Carries out the replicas' compare-and-swaps on partition entries (S5, R6, KIP-497)."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from prometheus_client import Counter

from kafkalite_broker.background import nobody, watch
from kafkalite_broker.cluster.attempts import DEADLINE_S, backoff_s
from kafkalite_broker.cluster.shared_patches import SharedPatches
from kafkalite_core.membership.settlement import Entry, Settled, Settlement
from kafkalite_core.replica.events import CasOutcome, ProposalAnswered
from kafkalite_runtime.logging import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable

    from prometheus_client import CollectorRegistry

    from kafkalite_core.model.partition import Partition, TopicRef
    from kafkalite_core.replica.events import ProposePartition
    from kafkalite_runtime.kube import KubeClient

ATTEMPTS_MAX = 3
"""Sendings of one proposal before the replica is told; it decides whether to go on."""

PENDING_MAX = 4096
UNSETTLED_KEPT = 4096

log = get_logger(__name__)


class PartitionWriter:
    """Sends proposals, settles their outcome over all attempts, and shows every answer to the metadata cache.

    Args:
        client: Of the main loop.
        absorb: Takes a topic object as the API server returned it (`ClusterLink.absorb_topic`).
        committed: Looks up an entry in the metadata cache, None when it is not there (`MetadataCache.partition`).
        registry: For the metrics.
        on_failed: Told what went wrong when an answer was taken in: a disk that failed, or a defect. A proposal that is
            never answered would freeze the ISR, so the process is to end.
    """

    def __init__(
        self,
        client: KubeClient,
        *,
        absorb: Callable[[dict[str, Any]], None],
        committed: Callable[[TopicRef, int], Partition | None],
        registry: CollectorRegistry,
        deadline_s: float = DEADLINE_S,
        on_failed: Callable[[BaseException], None] = nobody,
    ) -> None:
        self._patches = SharedPatches(
            client, absorb=absorb, committed=committed, registry=registry, deadline_s=deadline_s
        )
        self._on_failed = on_failed
        self._tasks: set[asyncio.Task[None]] = set()
        self._unsettled: OrderedDict[tuple[str, int], Settlement] = OrderedDict()
        self._failures: OrderedDict[tuple[str, int], int] = OrderedDict()
        self._outcomes = Counter(
            "kafkalite_cas_outcomes", "Proposals by outcome", labelnames=["outcome"], registry=registry
        )

    def propose(
        self, ref: TopicRef, number: int, proposal: ProposePartition, answer: Callable[[ProposalAnswered], None]
    ) -> None:
        """Begin a compare-and-swap; `answer` is called exactly once, later, on the event loop (not after `stop`)."""
        loop = asyncio.get_running_loop()
        if len(self._tasks) >= PENDING_MAX:
            # More partitions than any broker should lead at once are waiting: nothing was sent, so this is definite.
            refusal = ProposalAnswered(proposal_id=proposal.proposal_id, outcome=CasOutcome.NOT_ATTEMPTED)
            loop.call_later(backoff_s(16), answer, refusal)
            return
        task = loop.create_task(self._carry_out(ref, number, proposal, answer), name=f"cas {ref.name}-{number}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        watch(task, self._on_failed)

    async def stop(self) -> None:
        """Give up everything under way; nobody is answered any more."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._patches.stop()

    async def _carry_out(
        self, ref: TopicRef, number: int, proposal: ProposePartition, answer: Callable[[ProposalAnswered], None]
    ) -> None:
        try:
            answered = await self._swap(ref, number, proposal)
        except Exception:
            # A proposal that is never answered would freeze the ISR; after a defect nobody knows what was applied.
            log.exception("partition change failed", topic=ref.name, partition=number)
            await asyncio.sleep(backoff_s(self._count_failure((ref.uid, number))))
            answered = ProposalAnswered(proposal_id=proposal.proposal_id, outcome=CasOutcome.UNKNOWN)
        answer(answered)

    async def _swap(self, ref: TopicRef, number: int, proposal: ProposePartition) -> ProposalAnswered:
        key = (ref.uid, number)
        settlement = self._settlement(key, proposal)
        outcome, entry = Settled.NOT_ATTEMPTED, None
        for _ in range(ATTEMPTS_MAX):
            attempt, found, error = await self._patches.send(ref, number, settlement)
            outcome, entry = settlement.settle(attempt, found), None if isinstance(found, Entry) else found
            if outcome in {Settled.APPLIED, Settled.REJECTED}:
                self._failures.pop(key, None)
                break
            await asyncio.sleep(backoff_s(self._count_failure(key), error))
        if settlement.ambiguous:
            _remember(self._unsettled, key, settlement)
        self._outcomes.labels(outcome.value).inc()
        log.info(
            "partition change answered",
            topic=ref.name,
            partition=number,
            outcome=outcome.value,
            partition_epoch=proposal.proposed.partition_epoch,
            observed_epoch=None if entry is None else entry.partition_epoch,
        )
        return ProposalAnswered(proposal_id=proposal.proposal_id, outcome=CasOutcome(outcome.value), observed=entry)

    def _settlement(self, key: tuple[str, int], proposal: ProposePartition) -> Settlement:
        """What is unknown of an earlier sending of the same patch stays unknown (R6)."""
        earlier = self._unsettled.pop(key, None)
        if earlier is not None and earlier.is_same(proposal.expected, proposal.proposed):
            return earlier
        return Settlement(proposal.expected, proposal.proposed)

    def _count_failure(self, key: tuple[str, int]) -> int:
        failures = self._failures.pop(key, 0) + 1
        _remember(self._failures, key, failures)
        return failures


def _remember(memory: OrderedDict[tuple[str, int], Any], key: tuple[str, int], value: object) -> None:
    memory[key] = value
    while len(memory) > UNSETTLED_KEPT:
        memory.popitem(last=False)
