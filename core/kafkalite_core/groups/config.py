"""The bounds and times of a coordinator, from the broker's configuration keys."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    """What a coordinator is told; the defaults are Kafka's.

    Attributes:
        min_session_timeout_ms: `group.min.session.timeout.ms`; a shorter one is answered INVALID_SESSION_TIMEOUT.
        max_session_timeout_ms: `group.max.session.timeout.ms`.
        initial_rebalance_delay_ms: `group.initial.rebalance.delay.ms`: how long the first rebalance of an empty group
            waits for more members.
        max_size: `group.max.size`: members of one group, those that were only given an id included.
        offset_metadata_max_bytes: `offset.metadata.max.bytes`.
        offsets_retention_ms: `offsets.retention.minutes` in ms.
        retention_check_interval_ms: `offsets.retention.check.interval.ms`.
        groups_max: Groups that one coordinator keeps; a bound of this implementation.
        members_max: Members that one group has at most whatever `max_size` says; a bound of this implementation.
        metadata_bytes_max: Bytes that all members of a group may say about themselves; a bound of this implementation.
        metadata_bytes_all_max: `kafkalite.group.metadata.bytes`: the same for all groups of a broker.
        offsets_max: Partitions whose offsets one group may have; a bound of this implementation.
        appends_max: Appends under way at once; a bound of this implementation.
    """

    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    initial_rebalance_delay_ms: int = 3_000
    max_size: int = 2**31 - 1
    offset_metadata_max_bytes: int = 4_096
    offsets_retention_ms: int = 604_800_000
    retention_check_interval_ms: int = 600_000
    groups_max: int = 65_536
    members_max: int = 10_000
    metadata_bytes_max: int = 67_108_864
    metadata_bytes_all_max: int = 134_217_728
    offsets_max: int = 262_144
    appends_max: int = 65_536
