"""What is fixed about a broker from its start on, for clients that ask."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafkalite_core.model.listener import host_port

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from kafkalite_broker.cluster.settings import BrokerSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerFacts:
    """See the module.

    Attributes:
        broker_id: Of this broker.
        listeners: Where it listens, as `NAME://host:port`.
        advertised_listeners: What it tells clients, in the same form; without what `status.listeners` tells.
        inter_broker: Name of the listener that brokers use among themselves.
        data_directory: Of its logs.
        config: Broker keys that it was started with.
    """

    broker_id: int
    listeners: tuple[str, ...]
    advertised_listeners: tuple[str, ...]
    inter_broker: str
    data_directory: Path
    config: Mapping[str, str]

    @classmethod
    def of(cls, settings: BrokerSettings) -> BrokerFacts:
        """Of a broker with these settings."""
        bound = settings.bound_listeners()
        return cls(
            broker_id=settings.broker_id,
            listeners=tuple(f"{each.name}://{host_port(each.bind_host, each.bind_port)}" for each in bound),
            advertised_listeners=tuple(
                f"{each.name}://{host_port(each.advertised_host, each.advertised_port)}"
                for each in bound
                if each.advertised_host
            ),
            inter_broker=settings.inter_broker.name,
            data_directory=settings.data_directory,
            config=settings.broker.config,
        )

    def as_config(self) -> dict[str, str]:
        """Under Kafka's names, for DescribeConfigs."""
        return {
            "advertised.listeners": ",".join(self.advertised_listeners),
            "broker.id": str(self.broker_id),
            "listeners": ",".join(self.listeners),
            "log.dirs": str(self.data_directory),
            "node.id": str(self.broker_id),
        }
