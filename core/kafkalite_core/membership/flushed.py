"""Of which topics a broker has all on disk that it took for flushed before `flush.messages` was tightened, told with
its Lease (S4).

Theorem: while a broker tells a token, it goes by the two specs whose generations the token names, by which the topic's
flush is not relaxed, and nothing that its replicas of that topic ever reported as flushed is in memory only. So once
every member of every ISR and ELR has told the token of the present specs, and every other broker that might still join
with what it has not flushed as well, whatever was acknowledged is on as many disks as the entries say.

A generation rises with every change of a spec. A token that was told before the flush was relaxed and tightened again
is therefore another one, however late it is read. A token is told only by who has seen that the operator knows of the
tightening, and the flush is relaxed again only by who has seen that it knows of that: an operator that hears late of
a cluster's spec, which no version of the topic's status tells, would take the tokens of before for those of now.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from kafkalite_core.model.config import resolve_topic_config
from kafkalite_core.model.limits import NOTICED_MAX
from kafkalite_core.model.topic import flushed_token

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kafkalite_core.membership.metadata_cache import MetadataCache
    from kafkalite_core.model.partition import Topic, TopicRef


class FlushedLog(Protocol):
    """What is to be known of a log."""

    @property
    def reported_is_flushed(self) -> bool:
        """Whether all that was ever reported as flushed is on disk, and no relaxed flush reports more."""
        ...


class FlushedTopics:
    """What one broker tells.

    Attributes:
        tokens: See `model/topic.py` `flushed_token`; a tuple that never changes, replaced by another one.
    """

    __slots__ = ("tokens",)

    def __init__(self) -> None:
        self.tokens: tuple[str, ...] = ()

    def look(
        self,
        cache: MetadataCache,
        broker_id: int,
        *,
        broker_config: Mapping[str, str],
        generation: int,
        log_of: Callable[[TopicRef, int], FlushedLog | None],
    ) -> None:
        """To be called now and then.

        `broker_config` is what the replicas go by, and `generation` that of the cluster that says so. `log_of` gives
        the log of a replica that this broker serves, None for none. Of more than `NOTICED_MAX` topics the others are
        told when the operator has taken note of the first ones.
        """

        def flushed(topic: Topic) -> bool:
            if resolve_topic_config(topic.config, broker_config).relaxed_flush:
                return False
            for number in topic.partitions:
                log = log_of(topic.ref, number)
                if log is None and broker_id in cache.hosts(topic.ref, number):
                    return False  # it is still to be opened
                if log is not None and not log.reported_is_flushed:
                    return False
            return True

        told = [flushed_token(t.ref.uid, t.generation, generation) for t in cache.flush_lags() if flushed(t)]
        self.tokens = tuple(told[:NOTICED_MAX])
