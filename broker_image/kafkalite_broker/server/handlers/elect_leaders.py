"""ElectLeaders (key 43): the operator elects, asked through the custom resource; the answer waits for the new leaders.

Preferred (KIP-183): the first replica leads, if it is in sync. Unclean (KIP-460): any live replica, where nobody can
lead without the loss of acknowledged records.
"""

from __future__ import annotations

import asyncio
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from kafkalite_broker.server.handlers.bounds import within_bounds
from kafkalite_broker.server.handlers.topic_admin import Deadline
from kafkalite_core.controller.election import decide, leader_is_valid, prefer
from kafkalite_core.model.config import resolve_topic_config
from kafkalite_core.model.errors import BrokerError
from kafkalite_core.protocol.elect_leaders import ElectLeadersResponse, PartitionResult, ReplicaElectionResult
from kafkalite_core.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kafkalite_broker.server.dispatch import Request
    from kafkalite_broker.server.services import Services
    from kafkalite_core.model.partition import Topic

PARTITIONS_AT_ONCE = 200
"""Partitions judged in one turn of the event loop."""


class ElectionType(IntEnum):
    """Kafka's types of elections."""

    PREFERRED = 0
    UNCLEAN = 1


class Outcome(NamedTuple):
    """What became of one partition; code NONE and no sentence when a leader was elected."""

    code: ErrorCode
    message: str | None = None


ELECTED = Outcome(ErrorCode.NONE)
NOT_NEEDED = Outcome(ErrorCode.ELECTION_NOT_NEEDED, "the leader is the wanted one")


class ElectLeadersHandler:
    """See the module."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def __call__(self, request: Request) -> None:
        """Answer when the leaders are elected, or `timeout_ms` is over."""
        named = request.body.topic_partitions
        if named is not None and not within_bounds(request, len(named) + sum(len(one.partitions) for one in named)):
            return
        if request.body.election_type not in set(ElectionType):
            request.answer(ElectLeadersResponse(error_code=ErrorCode.INVALID_REQUEST))
            return
        self._services.background(request.guarded(PendingElection(request, self._services).run()))


class PendingElection:
    """One ElectLeaders request until it is answered."""

    def __init__(self, request: Request, services: Services) -> None:
        self._request = request
        self._services = services
        self._deadline = Deadline(request)
        self._unclean = request.body.election_type == ElectionType.UNCLEAN
        self._outcomes: dict[tuple[str, int], Outcome] = {}
        self._pending: set[tuple[str, int]] = set()
        self._relaxed: dict[str, bool] = {}

    async def run(self) -> None:
        """Judge, ask for what is needed, wait, answer."""
        await self._judge_all()
        wanted: dict[str, list[int]] = {}
        for topic, number in sorted(self._pending):
            wanted.setdefault(topic, []).append(number)
        await asyncio.gather(*(self._ask(topic, numbers) for topic, numbers in wanted.items()))
        await self._services.topic_changes.until(self._settled, self._deadline.left_s())
        for key in self._pending:
            self._outcomes[key] = Outcome(ErrorCode.REQUEST_TIMED_OUT, "the operator has not elected in time")
        self._answer()

    def _named(self) -> Iterable[tuple[str, int]]:
        named = self._request.body.topic_partitions
        if named is None:
            return [
                (topic.ref.name, number)
                for topic in self._services.cache.topics()
                for number in sorted(topic.partitions)
            ]
        return dict.fromkeys((one.topic, number) for one in named for number in one.partitions)

    async def _judge_all(self) -> None:
        for place, (name, number) in enumerate(self._named(), start=1):
            outcome = self._judge(self._services.cache.topic(name), number)
            if outcome is None:
                self._pending.add((name, number))
            else:
                self._outcomes[name, number] = outcome
            if place % PARTITIONS_AT_ONCE == 0:
                await asyncio.sleep(0)

    def _judge(self, topic: Topic | None, number: int) -> Outcome | None:
        """Why no election is held; None when one has to be."""
        entry = None if topic is None else topic.partitions.get(number)
        if topic is None or entry is None:
            return Outcome(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no such partition")
        brokers = self._services.cache.brokers
        if not self._unclean:
            if entry.replicas and entry.leader == entry.replicas[0]:
                return NOT_NEEDED
            verdict = prefer(entry, brokers)
            if verdict.change is None:
                return Outcome(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, verdict.reason)
            return None
        if leader_is_valid(entry, brokers):
            return NOT_NEEDED
        verdict = decide(
            entry, brokers, relaxed_flush=self._relaxed_flush(topic), unclean_allowed=True, min_isr=entry.min_isr
        )
        if verdict.change is None or not verdict.change.proposed.has_leader:
            return Outcome(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, verdict.reason)
        return None

    def _relaxed_flush(self, topic: Topic) -> bool:
        name = topic.ref.name
        if name not in self._relaxed:
            cluster = self._services.cluster()
            config = resolve_topic_config(topic.config, None if cluster is None else cluster.config)
            self._relaxed[name] = config.relaxed_flush or topic.flush_lag_known
        return self._relaxed[name]

    async def _ask(self, topic: str, numbers: list[int]) -> None:
        try:
            await self._services.topic_writer.request_election(
                topic, numbers, unclean=self._unclean, deadline_s=self._deadline.write_s()
            )
        except BrokerError as error:
            outcome = Outcome(ErrorCode(error.error_code), error.message)
            for number in numbers:
                self._pending.discard((topic, number))
                self._outcomes[topic, number] = outcome

    def _settled(self) -> bool:
        """Whether nothing is left to wait for: elected, or no longer possible."""
        for name, number in list(self._pending):
            outcome = self._judge(self._services.cache.topic(name), number)
            if outcome is not None:
                self._pending.discard((name, number))
                self._outcomes[name, number] = ELECTED if outcome is NOT_NEEDED else outcome
        return not self._pending

    def _answer(self) -> None:
        results: dict[str, ReplicaElectionResult] = {}
        everything = self._request.body.topic_partitions is None
        for (topic, number), outcome in sorted(self._outcomes.items()):
            if everything and outcome is NOT_NEEDED:
                # Kafka leaves these out of an answer about all partitions.
                continue
            result = results.setdefault(topic, ReplicaElectionResult(topic=topic))
            result.partition_result.append(
                PartitionResult(partition_id=number, error_code=outcome.code, error_message=outcome.message)
            )
        self._request.answer(ElectLeadersResponse(replica_election_results=list(results.values())))
