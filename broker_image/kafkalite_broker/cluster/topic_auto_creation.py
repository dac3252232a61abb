"""`auto.create.topics.enable`: topics that come into being because a client asked for their metadata."""

from __future__ import annotations

from collections import OrderedDict
from time import monotonic
from typing import TYPE_CHECKING

from kafkalite_broker.cluster.internal_topics import OFFSETS_TOPIC
from kafkalite_broker.cluster.topic_requests import FROM_DEFAULT, Collisions, TopicWish, World, judge_topic
from kafkalite_core.controller.preferred import setting
from kafkalite_core.model.errors import BrokerError
from kafkalite_core.protocol.create_topics import CreatableTopic
from kafkalite_core.protocol.errors import ErrorCode
from kafkalite_runtime.logging import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any

    from kafkalite_broker.cluster.topic_writer import TopicWriter

UNDER_WAY_MAX = 100
"""Topics that are being made at the same time because somebody asked for them."""

CREATION_S = 10.0
PAUSE_AFTER_FAILURE_S = 1.0
"""Clients ask again many times a second; a topic that could not be made is not tried again with each of them."""

FAILURES_KEPT = 1000
NAMES_AGE_MAX_S = 0.1
"""One request may name thousands of unknown topics; the existing ones are not gone through for each of them."""

log = get_logger(__name__)


class TopicAutoCreation:
    """Makes unknown topics with the cluster's defaults, each once.

    Args:
        writer: Writes the objects.
        world: The cluster as it is now.
        background: Runs a coroutine as a task of the broker.
    """

    def __init__(
        self,
        writer: TopicWriter,
        world: Callable[[], World],
        background: Callable[[Coroutine[Any, Any, None]], None],
    ) -> None:
        self._writer = writer
        self._world = world
        self._background = background
        self._under_way: set[str] = set()
        self._failed_s: OrderedDict[str, float] = OrderedDict()
        self._collisions = Collisions(())
        self._collisions_s = float("-inf")

    def code_for(self, name: str) -> ErrorCode:
        """What to answer to a client that asks for a topic which does not exist; the name is legal.

        LEADER_NOT_AVAILABLE: it is being made, ask again.
        """
        world = self._world()
        if setting(world.config, "auto.create.topics.enable") is not True:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if name in self._under_way:
            return ErrorCode.LEADER_NOT_AVAILABLE
        if monotonic() - self._failed_s.get(name, float("-inf")) < PAUSE_AFTER_FAILURE_S:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if len(self._under_way) >= UNDER_WAY_MAX:
            return ErrorCode.LEADER_NOT_AVAILABLE
        try:
            self._check_collision(name, world)
            wish = judge_topic(
                CreatableTopic(name=name, num_partitions=FROM_DEFAULT, replication_factor=FROM_DEFAULT), world
            )
        except BrokerError as error:
            return ErrorCode(error.error_code)
        self._under_way.add(name)
        self._background(self._make(wish))
        return ErrorCode.LEADER_NOT_AVAILABLE

    def _check_collision(self, name: str, world: World) -> None:
        if monotonic() - self._collisions_s > NAMES_AGE_MAX_S:
            self._collisions, self._collisions_s = Collisions(world.names), monotonic()
        self._collisions.check(name)

    async def _make(self, wish: TopicWish) -> None:
        try:
            if wish.name == OFFSETS_TOPIC:
                await self._writer.ensure_offsets_topic(deadline_s=CREATION_S)
            else:
                await self._writer.create(
                    wish.name,
                    partitions=wish.partitions,
                    replicas=wish.replicas,
                    config={},
                    deadline_s=CREATION_S,
                )
        except BrokerError as error:
            if error.error_code == ErrorCode.TOPIC_ALREADY_EXISTS:
                return  # another broker was faster; the cache shows it in a moment
            log.warning("topic not made on demand", topic=wish.name, error=str(error))
            self._failed_s[wish.name] = monotonic()
            while len(self._failed_s) > FAILURES_KEPT:
                self._failed_s.popitem(last=False)
        finally:
            self._under_way.discard(wish.name)
