"""What the commands do, against one API server."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from kafkalite_cli.errors import Failure
from kafkalite_cli.outage import through_outage
from kafkalite_cli.reassign import moves
from kafkalite_cli.snapshot import condition, topic_name
from kafkalite_cli.topics import sizes
from kafkalite_cli.topics.objects import Topics, cluster_of
from kafkalite_core.controller.balancing import propose

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from kafkalite_cli.reassign.files import Assignment
    from kafkalite_runtime.kube import KubeClient

JsonObject = dict[str, Any]
POLL_S = 0.5


class Session:
    """The topics of one API server, as in `Topics`."""

    def __init__(self, client: KubeClient, *, namespace: str | None, cluster: str | None) -> None:
        self._client = client
        self._topics = Topics(client, namespace=namespace, cluster=cluster)

    async def _named(self, names: Iterable[str]) -> list[JsonObject]:
        return await self._topics.find_all(dict.fromkeys(names))

    async def propose(
        self, names: list[str], brokers: list[int] | None, replicas: int | None
    ) -> tuple[Assignment, Assignment]:
        """The present and the proposed replicas of these topics. Raises Failure."""
        topics, known = await asyncio.gather(self._named(names), self._topics.brokers())
        current = moves.current_of(topics)
        proposed: Assignment = {}
        for (_, cluster), mine in moves.by_cluster(topics).items():
            racks = moves.racks_of(known, cluster, only=brokers)
            try:
                proposed |= propose(moves.current_of(mine), racks, replicas=replicas)
            except ValueError as error:
                raise Failure(str(error)) from error
        return current, proposed

    async def execute(
        self, wanted: Assignment, throttle: int | None, *, tell: Callable[[Assignment], None] = lambda _before: None
    ) -> Assignment:
        """Begin the moves; where the replicas were before. Everything is checked before anything is changed.

        `tell` hears it when all has been checked: once moves have begun it cannot be read any longer.
        """
        by_topic = _by_topic(wanted)
        topics, known = await asyncio.gather(self._named(by_topic), self._topics.brokers())
        for topic in topics:
            racks = moves.racks_of(known, cluster_of(topic))
            for number, ids in by_topic[topic_name(topic)].items():
                if unknown := sorted(set(ids) - set(racks)):
                    raise Failure(f"{topic_name(topic)}-{number}: brokers {unknown} are not registered")
        current = moves.current_of(topics)
        if missing := sorted(set(wanted) - set(current)):
            raise Failure(f"there is no partition {missing[0][0]}-{missing[0][1]}")
        before = {key: current[key] for key in wanted}
        tell(before)
        if throttle is not None:
            await self._throttle(topics, wanted, throttle)
        for topic in topics:
            await moves.begin(self._client, topic, by_topic[topic_name(topic)])
        return before

    async def _throttle(self, topics: list[JsonObject], wanted: Assignment, rate: int) -> None:
        """Rates first, then who they are for, then the moves: nothing is copied without the throttle."""
        clusters = await self._topics.clusters()
        by_topic = _by_topic(wanted)
        for key, mine in moves.by_cluster(topics).items():
            if key not in clusters:
                raise Failure(f"there is no KafkaLiteCluster {key[1]!r} in namespace {key[0]}")
            await moves.set_rates(self._client, clusters[key], rate)
            for topic in mine:
                targets = by_topic[topic_name(topic)]
                await moves.set_topic_config(self._client, topic, moves.throttle_lists(topic, targets))

    async def verify(self, wanted: Assignment, *, keep_throttle: bool = False) -> list[JsonObject]:
        """The state of every partition of a plan; when none of them moves any more, the throttle is removed."""
        topics = await self._topics.find_existing({name for name, _ in wanted})
        rows = []
        for (name, number), ids in sorted(wanted.items()):
            state, why = moves.verdict(topics.get(name), number, ids)
            rows.append({"topic": name, "partition": number, "wanted": list(ids), "state": state, "why": why})
        if not keep_throttle and all(row["state"] != "in progress" for row in rows):
            await self._release(list(topics.values()), wanted)
        return rows

    async def _release(self, topics: list[JsonObject], ended: Collection[tuple[str, int]]) -> None:
        """Remove the throttle of moves that ended, and the rates of their clusters when nothing else moves there.

        A cancelled move may still be shown as one, that back to where it came from; it has nothing to copy.
        """
        listed, clusters = await asyncio.gather(self._topics.list(), self._topics.clusters())
        touched = {topic["metadata"]["uid"] for topic in topics}
        busy = set()
        for key, mine in moves.by_cluster(listed).items():
            for topic in mine:
                moving, ours = set(moves.moving_in(topic)), topic["metadata"]["uid"] in touched
                if ours:
                    moving -= {number for name, number in ended if name == topic_name(topic)}
                    await moves.set_topic_config(self._client, topic, moves.released_lists(topic, moving))
                if moving:
                    busy.add(key)
        for key in moves.by_cluster(topics):
            if key in clusters and key not in busy:
                await moves.set_rates(self._client, clusters[key], None)

    async def moves(self, names: Collection[str]) -> list[JsonObject]:
        """What moves or waits for its turn, in these topics or in all."""
        topics, known = await asyncio.gather(
            self._named(names) if names else self._topics.list(), self._topics.brokers()
        )
        rows = []
        for topic in topics:
            numbers = moves.moving_in(topic)
            addresses = sizes.addresses_of(known, cluster_of(topic)) if numbers else {}
            read = await asyncio.to_thread(sizes.read_sizes, addresses, {topic_name(topic): numbers} if numbers else {})
            rows += [moves.progress(topic, number, read) for number in numbers]
        return rows

    async def cancel(self, wanted: Collection[tuple[str, int]] | None, names: list[str]) -> Assignment:
        """Cancel the moves of these partitions (None: all, of these topics if any are named); what is gone back to."""
        if wanted is not None:
            names = sorted({name for name, _ in wanted})
        topics = await self._named(names) if names else await self._topics.list()
        restored: Assignment = {}
        for topic in topics:
            numbers = moves.moving_in(topic)
            if wanted is not None:
                numbers = [number for number in numbers if (topic_name(topic), number) in wanted]
            if numbers:
                restored |= await moves.cancel(self._client, topic, numbers)
        cancelled = {name for name, _ in restored}
        await self._release([topic for topic in topics if topic_name(topic) in cancelled], restored)
        return restored

    async def elect_preferred(self, wanted: Collection[tuple[str, int]]) -> None:
        """Ask the operator to let the first replica of these partitions lead, once."""
        numbers: dict[str, list[int]] = {}
        for name, number in sorted(wanted):
            numbers.setdefault(name, []).append(number)
        for topic in await self._named(numbers):
            await moves.elect_preferred(self._client, topic, numbers[topic_name(topic)])

    # -- waiting ------------------------------------------------------------------------------------------------

    async def wait(self, wanted: Assignment, *, timeout_s: float, tell: Callable[[str], None]) -> None:
        """Until every partition of a plan has moved. Raises Failure when one does not move, or the time is over."""
        limit = time.monotonic() + timeout_s
        while True:
            rows = await through_outage(lambda: self.verify(wanted), tell, until=limit)
            left = [row for row in rows if row["state"] != "completed"]
            if not left:
                return
            failed = [row for row in left if row["state"] == "failed"]
            if failed:
                row = failed[0]
                raise Failure(f"{row['topic']}-{row['partition']} did not move: {row['why']}")
            await self._pause(rows, len(rows) - len(left), limit, tell)

    async def wait_still(self, names: Collection[str], *, timeout_s: float, tell: Callable[[str], None]) -> None:
        """Until nothing moves, in these topics or in all. Raises Failure when the time is over."""
        limit, most = time.monotonic() + timeout_s, 0
        while rows := await through_outage(lambda: self.moves(names), tell, until=limit):
            most = max(most, len(rows))
            await self._pause(rows, most - len(rows), limit, tell, total=most)

    async def _pause(
        self, rows: list[JsonObject], done: int, limit: float, tell: Callable[[str], None], *, total: int | None = None
    ) -> None:
        words = f"{done} of {total or len(rows)} partitions are there"
        names = {row["topic"] for row in rows}
        messages = [
            str(said.get("message"))
            for topic in await through_outage(self._topics.list, tell, until=limit)
            if topic_name(topic) in names and (said := condition(topic, "Progressing")).get("status") == "True"
        ]
        if messages:
            words += f"; {messages[0]}"
        tell(words)
        if time.monotonic() > limit:
            raise Failure(f"not all have moved in time: {words}")
        await asyncio.sleep(POLL_S)


def _by_topic(wanted: Mapping[tuple[str, int], tuple[int, ...]]) -> dict[str, dict[int, tuple[int, ...]]]:
    found: dict[str, dict[int, tuple[int, ...]]] = {}
    for (name, number), ids in wanted.items():
        found.setdefault(name, {})[number] = ids
    return found
