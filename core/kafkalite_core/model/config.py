"""Kafka's configuration keys that KafkaLite understands, with their types, defaults and bounds.

A key that is not listed is refused with a sentence (never silently ignored). Topic values fall back to the broker key
named in `synonym`, then to `default`, as in Kafka.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum
from types import MappingProxyType
from typing import TYPE_CHECKING

from kafkalite_core.model.config_docs import DOCUMENTATION
from kafkalite_core.model.errors import ConfigError
from kafkalite_core.model.throttled import ThrottledReplicas, throttled_replicas

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kafkalite_core.model.partition import Topic

LONG_MAX = 2**63 - 1
INT_MAX = 2**31 - 1
CLEANER_THREADS_MAX = 16
LEADER_SELECTOR = "org.apache.kafka.common.replica.LeaderSelector"
RACK_AWARE_SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


class ConfigType(IntEnum):
    """Kafka's types of configuration values, as DescribeConfigs tells them."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigKey:
    """One key: `parse` turns the user's text into a value or raises `ConfigError`.

    Attributes:
        name: Kafka's name of it.
        default: Text of the default value.
        parse: Called with the name, for messages, and the text.
        type: Type of its values.
        synonym: Broker key that a topic key falls back to.
        doc: A sentence for those who ask what it does.
    """

    name: str
    default: str
    parse: Callable[[str, str], object]
    type: ConfigType = ConfigType.STRING
    synonym: str = ""
    doc: str = ""


@dataclass(frozen=True, slots=True)
class WholeNumber:
    """A parser for whole numbers from `minimum` to `maximum`."""

    minimum: int
    maximum: int

    def __call__(self, name: str, text: str) -> int:
        """The number; `ConfigError` when it is none or out of range."""
        try:
            value = int(text.strip())
        except ValueError:
            raise ConfigError(f"{name}: {text!r} is not a whole number") from None
        if not self.minimum <= value <= self.maximum:
            raise ConfigError(f"{name}: {value} is out of range, use {self.minimum} to {self.maximum}")
        return value


def integer(minimum: int, maximum: int) -> WholeNumber:
    """A parser for whole numbers from `minimum` to `maximum`."""
    return WholeNumber(minimum, maximum)


def fraction(name: str, text: str) -> float:
    """A parser for a number from 0 to 1."""
    try:
        value = float(text)
    except ValueError:
        raise ConfigError(f"{name}: {text!r} is not a number") from None
    if not 0.0 <= value <= 1.0:
        raise ConfigError(f"{name}: {text} is out of range, use 0 to 1")
    return value


def boolean(name: str, text: str) -> bool:
    """A parser for true and false."""
    lowered = text.strip().lower()
    if lowered not in {"true", "false"}:
        raise ConfigError(f"{name}: {text!r} is neither true nor false")
    return lowered == "true"


def choice(*allowed: str) -> Callable[[str, str], str]:
    """A parser for one of several words."""

    def parse(name: str, text: str) -> str:
        if text.strip() not in allowed:
            raise ConfigError(f"{name}: {text!r} is not allowed, use one of: {', '.join(allowed)}")
        return text.strip()

    return parse


def cleanup_policy(name: str, text: str) -> tuple[str, ...]:
    """A parser for `delete`, `compact` or both."""
    words = tuple(sorted({word.strip() for word in text.split(",") if word.strip()}))
    if not words or not set(words) <= {"delete", "compact"}:
        raise ConfigError(f"{name}: {text!r} is not allowed, use delete, compact or delete,compact")
    return words


def _type_of(parse: Callable[[str, str], object]) -> ConfigType:
    if isinstance(parse, WholeNumber):
        return ConfigType.INT if parse.maximum <= INT_MAX else ConfigType.LONG
    types: dict[object, ConfigType] = {
        boolean: ConfigType.BOOLEAN,
        fraction: ConfigType.DOUBLE,
        cleanup_policy: ConfigType.LIST,
        throttled_replicas: ConfigType.LIST,
    }
    return types.get(parse, ConfigType.STRING)


def _key(name: str, default: object, parse: Callable[[str, str], object], synonym: str = "") -> tuple[str, ConfigKey]:
    return name, ConfigKey(
        name=name,
        default=str(default),
        parse=parse,
        type=_type_of(parse),
        synonym=synonym or name,
        doc=DOCUMENTATION.get(name, ""),
    )


TOPIC_KEYS: Mapping[str, ConfigKey] = MappingProxyType(
    dict(
        [
            _key("cleanup.policy", "delete", cleanup_policy, "log.cleanup.policy"),
            _key(
                "compression.type",
                "producer",
                choice("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"),
            ),
            _key("delete.retention.ms", 86_400_000, integer(0, LONG_MAX), "log.cleaner.delete.retention.ms"),
            _key("file.delete.delay.ms", 60_000, integer(0, LONG_MAX), "log.segment.delete.delay.ms"),
            _key("flush.messages", 1, integer(1, LONG_MAX), "log.flush.interval.messages"),
            _key("flush.ms", LONG_MAX, integer(0, LONG_MAX), "log.flush.interval.ms"),
            _key("follower.replication.throttled.replicas", "", throttled_replicas),
            _key("leader.replication.throttled.replicas", "", throttled_replicas),
            _key("index.interval.bytes", 4096, integer(0, INT_MAX), "log.index.interval.bytes"),
            _key("max.compaction.lag.ms", LONG_MAX, integer(1, LONG_MAX), "log.cleaner.max.compaction.lag.ms"),
            _key("max.message.bytes", 1_048_588, integer(0, INT_MAX), "message.max.bytes"),
            _key(
                "message.timestamp.after.max.ms", 3_600_000, integer(0, LONG_MAX), "log.message.timestamp.after.max.ms"
            ),
            _key(
                "message.timestamp.before.max.ms", LONG_MAX, integer(0, LONG_MAX), "log.message.timestamp.before.max.ms"
            ),
            _key(
                "message.timestamp.type",
                "CreateTime",
                choice("CreateTime", "LogAppendTime"),
                "log.message.timestamp.type",
            ),
            _key("min.cleanable.dirty.ratio", 0.5, fraction, "log.cleaner.min.cleanable.ratio"),
            _key("min.compaction.lag.ms", 0, integer(0, LONG_MAX), "log.cleaner.min.compaction.lag.ms"),
            _key("min.insync.replicas", 1, integer(1, INT_MAX)),
            _key("preallocate", "false", boolean, "log.preallocate"),
            _key("retention.bytes", -1, integer(-1, LONG_MAX), "log.retention.bytes"),
            _key("retention.ms", 604_800_000, integer(-1, LONG_MAX), "log.retention.ms"),
            _key("segment.bytes", 1_073_741_824, integer(1024, INT_MAX), "log.segment.bytes"),
            _key("segment.index.bytes", 10_485_760, integer(4, INT_MAX), "log.index.size.max.bytes"),
            _key("segment.jitter.ms", 0, integer(0, LONG_MAX), "log.roll.jitter.ms"),
            _key("segment.ms", 604_800_000, integer(1, LONG_MAX), "log.roll.ms"),
            _key("unclean.leader.election.enable", "false", boolean),
        ]
    )
)

BROKER_KEYS: Mapping[str, ConfigKey] = MappingProxyType(
    dict(
        [
            _key("auto.create.topics.enable", "false", boolean),
            _key("auto.leader.rebalance.enable", "true", boolean),
            _key("leader.imbalance.check.interval.seconds", 300, integer(1, INT_MAX)),
            _key("leader.imbalance.per.broker.percentage", 10, integer(0, 100)),
            _key("connections.max.idle.ms", 600_000, integer(1000, LONG_MAX)),
            _key("default.replication.factor", 3, integer(1, 16)),
            _key("num.partitions", 1, integer(1, 256)),
            _key("delete.topic.enable", "true", boolean),
            _key("follower.replication.throttled.rate", LONG_MAX, integer(0, LONG_MAX)),
            _key("group.initial.rebalance.delay.ms", 3000, integer(0, INT_MAX)),
            _key("group.max.session.timeout.ms", 1_800_000, integer(1, INT_MAX)),
            _key("group.max.size", INT_MAX, integer(1, INT_MAX)),
            _key("group.min.session.timeout.ms", 6000, integer(1, INT_MAX)),
            _key("leader.replication.throttled.rate", LONG_MAX, integer(0, LONG_MAX)),
            _key("log.cleaner.backoff.ms", 15_000, integer(0, LONG_MAX)),
            _key("log.cleaner.dedupe.buffer.size", 134_217_728, integer(1_048_576, LONG_MAX)),
            _key("log.cleaner.enable", "true", boolean),
            _key("log.cleaner.threads", 1, integer(1, CLEANER_THREADS_MAX)),
            _key("log.retention.check.interval.ms", 300_000, integer(1, LONG_MAX)),
            _key("kafkalite.fetch.cold.bytes", 268_435_456, integer(1_048_576, LONG_MAX)),
            _key("kafkalite.group.metadata.bytes", 134_217_728, integer(1_048_576, LONG_MAX)),
            _key("kafkalite.log.tail.cache.bytes", 67_108_864, integer(1_048_576, LONG_MAX)),
            _key("kafkalite.reassignment.partitions.max", 16, integer(1, INT_MAX)),
            _key("kafkalite.stray.retention.ms", 604_800_000, integer(0, LONG_MAX)),
            _key("kafkalite.stray.deleted.retention.ms", 3_600_000, integer(0, LONG_MAX)),
            _key("max.connections", 10_000, integer(1, INT_MAX)),
            _key("num.io.threads", 8, integer(1, 64)),
            _key("offset.metadata.max.bytes", 4096, integer(0, INT_MAX)),
            _key("offsets.commit.timeout.ms", 5000, integer(1, INT_MAX)),
            _key("offsets.retention.check.interval.ms", 600_000, integer(1, LONG_MAX)),
            _key("offsets.retention.minutes", 10_080, integer(1, INT_MAX)),
            _key("offsets.topic.num.partitions", 16, integer(1, 256)),
            _key("offsets.topic.replication.factor", 3, integer(1, 16)),
            _key("offsets.topic.segment.bytes", 104_857_600, integer(1024, INT_MAX)),
            _key("producer.id.expiration.ms", 86_400_000, integer(1, INT_MAX)),
            _key("queued.max.request.bytes", 268_435_456, integer(1_048_576, LONG_MAX)),
            _key("replica.fetch.max.bytes", 1_048_576, integer(1024, INT_MAX)),
            _key("replica.fetch.response.max.bytes", 10_485_760, integer(1024, INT_MAX)),
            _key("replica.fetch.wait.max.ms", 500, integer(1, INT_MAX)),
            _key("replica.alter.log.dirs.io.max.bytes.per.second", LONG_MAX, integer(0, LONG_MAX)),
            _key("replica.high.watermark.checkpoint.interval.ms", 5000, integer(100, LONG_MAX)),
            _key("replica.lag.max.messages", 0, integer(0, LONG_MAX)),
            _key("replica.lag.time.max.ms", 30_000, integer(100, LONG_MAX)),
            _key("replica.selector.class", LEADER_SELECTOR, choice(LEADER_SELECTOR, RACK_AWARE_SELECTOR)),
            _key("socket.request.max.bytes", 104_857_600, integer(1024, INT_MAX)),
            *((key.synonym, replace(key, name=key.synonym)) for key in TOPIC_KEYS.values()),
        ]
    )
)  # fmt: skip

DYNAMIC_BROKER_KEYS: frozenset[str] = frozenset(
    {
        *(key.synonym for key in TOPIC_KEYS.values()),
        "auto.create.topics.enable",
        "auto.leader.rebalance.enable",
        "default.replication.factor",
        "delete.topic.enable",
        "follower.replication.throttled.rate",
        "group.initial.rebalance.delay.ms",
        "group.max.session.timeout.ms",
        "group.max.size",
        "group.min.session.timeout.ms",
        "kafkalite.group.metadata.bytes",
        "kafkalite.reassignment.partitions.max",
        "leader.imbalance.check.interval.seconds",
        "leader.imbalance.per.broker.percentage",
        "leader.replication.throttled.rate",
        "log.cleaner.backoff.ms",
        "log.cleaner.dedupe.buffer.size",
        "log.cleaner.threads",
        "max.connections",
        "num.io.threads",
        "num.partitions",
        "offset.metadata.max.bytes",
        "offsets.commit.timeout.ms",
        "offsets.retention.check.interval.ms",
        "offsets.retention.minutes",
        "offsets.topic.num.partitions",
        "offsets.topic.replication.factor",
        "offsets.topic.segment.bytes",
        "producer.id.expiration.ms",
        "replica.alter.log.dirs.io.max.bytes.per.second",
        "replica.lag.max.messages",
        "replica.lag.time.max.ms",
        "replica.selector.class",
    }
)
"""Broker keys whose change comes into force without a restart; clients may change these and no others."""

THROTTLE_KEYS: frozenset[str] = frozenset(
    {
        "follower.replication.throttled.rate",
        "leader.replication.throttled.rate",
        "replica.alter.log.dirs.io.max.bytes.per.second",
    }
)
"""Keys that the reassignment tool sets on single brokers, and clears there again."""


def check_topic_config(config: Mapping[str, str], *, replicas: int | None = None) -> list[str]:
    """All that is wrong with a topic's configuration, as sentences that say what to do; empty when it is right."""
    problems: list[str] = []
    for name, text in sorted(config.items()):
        key = TOPIC_KEYS.get(name)
        if key is None:
            problems.append(f"{name}: unknown topic configuration key; remove it or correct its spelling")
            continue
        try:
            value = key.parse(name, text)
        except ConfigError as error:
            problems.append(str(error))
            continue
        if name == "min.insync.replicas" and replicas is not None and isinstance(value, int) and value > replicas:
            problems.append(
                f"{name}: {value} is more than the topic's {replicas} replicas, so no acks=all write could succeed"
            )
    return problems


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """The resolved configuration of a topic, typed. Times in ms, sizes in bytes; -1 means unlimited."""

    cleanup_policy: tuple[str, ...]
    delete_retention_ms: int
    file_delete_delay_ms: int
    flush_messages: int
    index_interval_bytes: int
    max_compaction_lag_ms: int
    max_message_bytes: int
    message_timestamp_after_max_ms: int
    message_timestamp_before_max_ms: int
    message_timestamp_type: str
    min_cleanable_dirty_ratio: float
    min_compaction_lag_ms: int
    min_insync_replicas: int
    retention_bytes: int
    retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    segment_ms: int
    unclean_leader_election_enable: bool
    leader_replication_throttled_replicas: ThrottledReplicas
    follower_replication_throttled_replicas: ThrottledReplicas
    compression_type: str

    @property
    def relaxed_flush(self) -> bool:
        """Acknowledgements do not wait for the disk (S2, S8)."""
        return self.flush_messages > 1


UNLIMITED = {"retention.ms": -1, "retention.bytes": -1}
"""Topic keys whose value, where it does not parse, is this one instead of their default, which deletes."""


def resolve_value(name: str, topic: Mapping[str, str], broker: Mapping[str, str]) -> object:
    """The value in force of a topic key: the topic's own, else the broker's synonym, else the default.

    A value that does not parse is passed over, as a condition says, but for a retention: no default may delete what was
    to stay. KeyError for an unknown key.
    """
    key = TOPIC_KEYS[name]
    for text in (topic.get(name), broker.get(key.synonym)):
        if text is not None:
            try:
                return key.parse(name, text)
            except ConfigError:
                if name in UNLIMITED:
                    return UNLIMITED[name]
    return key.parse(name, key.default)


def is_unreadable(name: str, topic: Mapping[str, str], broker: Mapping[str, str]) -> bool:
    """Whether what would be in force of a topic key, the topic's own or the broker's synonym, does not parse."""
    text = topic.get(name, broker.get(TOPIC_KEYS[name].synonym))
    return text is not None and bool(check_topic_config({name: text}))


def resolve_topic_config(topic: Mapping[str, str], broker: Mapping[str, str] | None = None) -> TopicConfig:
    """The configuration in force of one topic. What cannot be read of how records go away keeps all of them."""
    values = {f: resolve_value(f.replace("_", "."), topic, broker or {}) for f in TopicConfig.__dataclass_fields__}
    if is_unreadable("cleanup.policy", topic, broker or {}):
        values |= {"cleanup_policy": ("delete",), "retention_ms": -1, "retention_bytes": -1}
    return TopicConfig(**values)  # type: ignore[arg-type]


def config_of_replicas(topic: Topic, broker: Mapping[str, str] | None = None) -> TopicConfig:
    """What the replicas of a topic go by: a relaxed flush begins when the operator is known to reckon with it (S4).

    A period of relaxed flush of which the operator never knew would leave brokers that restarted uncleanly in it among
    those that may lead. That it still reckons with one that was tightened says nothing: it may be about to end that.
    """
    config = resolve_topic_config(topic.config, broker)
    return config if topic.flush_may_lag or not config.relaxed_flush else replace(config, flush_messages=1)


def valid_broker_config(config: Mapping[str, str]) -> dict[str, str]:
    """The part of a cluster's configuration that can be used; a condition on the cluster tells of the rest.

    Where it cannot be read how records go away, none do by the cluster's configuration.
    """
    valid = {name: text for name, text in config.items() if not check_broker_config({name: text})}
    for name, limit in UNLIMITED.items():
        synonym = TOPIC_KEYS[name].synonym
        if any(of in config and of not in valid for of in (synonym, TOPIC_KEYS["cleanup.policy"].synonym)):
            valid[synonym] = str(limit)
    return valid


def static_broker_config(config: Mapping[str, str]) -> dict[str, str]:
    """The keys of a cluster's configuration whose change needs a restart, as far as they differ from their defaults.

    Keys that are unknown or wrong are left out: brokers never see them.
    """
    values = {name: broker_value(config, name) for name in valid_broker_config(config)}
    return {
        name: str(value)
        for name, value in sorted(values.items())
        if name not in DYNAMIC_BROKER_KEYS and value != broker_value({}, name)
    }


def broker_value(config: Mapping[str, str], name: str) -> object:
    """The value in force of a broker key; a value that does not parse raises `ConfigError`."""
    key = BROKER_KEYS[name]
    return key.parse(name, config.get(name, key.default))


def broker_integer(config: Mapping[str, str], name: str) -> int:
    """As `broker_value`, for whole numbers."""
    value = broker_value(config, name)
    assert isinstance(value, int), name
    return value


def broker_flag(config: Mapping[str, str], name: str) -> bool:
    """As `broker_value`, for true and false."""
    value = broker_value(config, name)
    assert isinstance(value, bool), name
    return value


def check_broker_config(config: Mapping[str, str]) -> list[str]:
    """All that is wrong with a cluster's configuration, as sentences; empty when it is right."""
    problems: list[str] = []
    for name, text in sorted(config.items()):
        key = BROKER_KEYS.get(name)
        if key is None:
            problems.append(f"{name}: unknown broker configuration key; remove it or correct its spelling")
            continue
        try:
            key.parse(name, text)
        except ConfigError as error:
            problems.append(str(error))
    return problems
