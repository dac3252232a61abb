"""The broker's keys as the coordinator's configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalite_core.groups.config import GroupConfig
from kafkalite_core.model.config import broker_integer

if TYPE_CHECKING:
    from collections.abc import Mapping

MINUTE_MS = 60_000


def group_config(broker_config: Mapping[str, str]) -> GroupConfig:
    """The values in force; a value that does not parse raises `ConfigError`."""
    return GroupConfig(
        min_session_timeout_ms=broker_integer(broker_config, "group.min.session.timeout.ms"),
        max_session_timeout_ms=broker_integer(broker_config, "group.max.session.timeout.ms"),
        initial_rebalance_delay_ms=broker_integer(broker_config, "group.initial.rebalance.delay.ms"),
        max_size=broker_integer(broker_config, "group.max.size"),
        metadata_bytes_all_max=broker_integer(broker_config, "kafkalite.group.metadata.bytes"),
        offset_metadata_max_bytes=broker_integer(broker_config, "offset.metadata.max.bytes"),
        offsets_retention_ms=broker_integer(broker_config, "offsets.retention.minutes") * MINUTE_MS,
        retention_check_interval_ms=broker_integer(broker_config, "offsets.retention.check.interval.ms"),
    )


def append_timeout_ms(broker_config: Mapping[str, str]) -> int:
    """How long a record of a group may take to be committed."""
    return broker_integer(broker_config, "offsets.commit.timeout.ms")
