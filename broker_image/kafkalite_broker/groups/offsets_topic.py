"""`__consumer_offsets`: which partition holds a group, who leads it, and its creation on first use."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Any, Protocol

from kafkalite_broker.cluster.internal_topics import OFFSETS_TOPIC
from kafkalite_core.groups.routing import partition_for
from kafkalite_core.model.errors import BrokerError
from kafkalite_runtime.logging import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from kafkalite_core.membership.metadata_cache import MetadataCache
    from kafkalite_core.model.partition import Partition


class OffsetsTopicMaker(Protocol):
    """`TopicWriter`, as far as it is needed here."""

    async def ensure_offsets_topic(self, *, deadline_s: float) -> None:
        """Make the topic unless it exists; raises `BrokerError`."""


CREATION_DEADLINE_S = 10.0
CREATION_INTERVAL_S = 1.0
"""After an attempt, until the topic is seen, nothing is tried for this long."""

log_events = get_logger(__name__)


class OffsetsTopic:
    """Looks at the topic in the metadata cache, and has it made.

    Args:
        cache: The metadata.
        maker: Makes the topic.
        background: Runs a coroutine as a task.
    """

    def __init__(
        self,
        cache: MetadataCache,
        maker: OffsetsTopicMaker,
        background: Callable[[Coroutine[Any, Any, None]], None],
    ) -> None:
        self._cache = cache
        self._maker = maker
        self._background = background
        self._making = False
        self._tried_s = float("-inf")

    def partition_count(self) -> int:
        """How many partitions there are; 0 while the topic does not exist or is not placed."""
        topic = self._cache.topic(OFFSETS_TOPIC)
        return 0 if topic is None else len(topic.partitions)

    def partition_of(self, group_id: str) -> Partition | None:
        """State of the partition that holds the group, or None while there is none."""
        topic = self._cache.topic(OFFSETS_TOPIC)
        if topic is None or not topic.partitions:
            return None
        return topic.partitions.get(partition_for(group_id, len(topic.partitions)))

    def ensure(self) -> None:
        """Begin to make the topic, unless it exists or that was begun a moment ago."""
        if self._making or self._cache.topic(OFFSETS_TOPIC) is not None:
            return
        if monotonic() - self._tried_s < CREATION_INTERVAL_S:
            return
        self._making = True
        self._background(self._make())

    async def _make(self) -> None:
        try:
            await self._maker.ensure_offsets_topic(deadline_s=CREATION_DEADLINE_S)
        except BrokerError as error:
            # The next consumer that looks for its coordinator has it tried again.
            log_events.warning("the offsets topic could not be made", topic=OFFSETS_TOPIC, error=str(error))
        else:
            log_events.info("offsets topic made", topic=OFFSETS_TOPIC)
        finally:
            self._making = False
            self._tried_s = monotonic()
