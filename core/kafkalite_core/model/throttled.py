"""Which replicas the throttle of replication is about: `leader.` and `follower.replication.throttled.replicas`."""

from __future__ import annotations

from dataclasses import dataclass

from kafkalite_core.model.errors import ConfigError

EVERY = "*"
NONE = "none"
_DIGITS_MAX = 9


@dataclass(frozen=True, slots=True)
class ThrottledReplicas:
    """(partition, broker) pairs, or `every` replica of the topic."""

    pairs: frozenset[tuple[int, int]] = frozenset()
    every: bool = False

    def names(self, partition: int, broker_id: int) -> bool:
        """Whether that broker's replica is among them."""
        return self.every or (partition, broker_id) in self.pairs


def throttled_replicas(name: str, text: str) -> ThrottledReplicas:
    """A parser for Kafka's lists: `*`, `none` or nothing, or `partition:broker` pairs separated by commas."""
    words = [word.strip() for word in text.split(",") if word.strip()]
    if words == [EVERY]:
        return ThrottledReplicas(every=True)
    if words in ([], [NONE]):
        return ThrottledReplicas()
    pairs: set[tuple[int, int]] = set()
    for word in words:
        partition, colon, broker_id = word.partition(":")
        for digits in (partition, broker_id):
            if not colon or not digits.isascii() or not digits.isdigit() or len(digits) > _DIGITS_MAX:
                raise ConfigError(f"{name}: {word!r} is not allowed, use *, none, or pairs like 0:1,0:2")
        pairs.add((int(partition), int(broker_id)))
    return ThrottledReplicas(pairs=frozenset(pairs))
