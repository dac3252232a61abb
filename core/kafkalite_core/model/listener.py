"""Where brokers listen, and what they tell clients of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

INTERNAL: Final = "internal"
HOSTPORT: Final = "hostport"
NODEPORT: Final = "nodeport"
LOADBALANCER: Final = "loadbalancer"
LISTENER_TYPES: Final = (INTERNAL, HOSTPORT, NODEPORT, LOADBALANCER)
EXTERNAL_TYPES: Final = frozenset({NODEPORT, LOADBALANCER})
"""Clients outside the cluster reach them through Services of their own, one per broker."""


class Endpoint(NamedTuple):
    """What a client connects to."""

    host: str
    port: int


def host_port(host: str, port: int) -> str:
    """As clients want it: an IPv6 address has brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerListener:
    """What one broker has of its own at a listener; empty and 0 where nothing was said.

    Attributes:
        advertised_host: Host that clients are told.
        advertised_port: Port that clients are told.
        node_port: Port of the nodes that leads here.
    """

    advertised_host: str = ""
    advertised_port: int = 0
    node_port: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerConfiguration:
    """`spec.listeners[].configuration`, with the names of Strimzi. Placeholders: `{nodeId}` and `{podName}`.

    Attributes:
        advertised_host_template: Host that clients are told.
        advertised_port_template: Port that they are told, a number once the placeholders are filled in.
        node_address_type: Type of the node's address that a nodeport listener tells; empty: the pod's `hostIP`.
        external_traffic_policy: `Cluster` or `Local`.
        load_balancer_class: Who provides load balancers; empty: the cluster's default.
        load_balancer_source_ranges: CIDRs that may connect; empty: all.
        annotations: Of the Services, with placeholders in the values; the bootstrap Service takes `bootstrap` for both.
        bootstrap_node_port: Port of the nodes that leads to any broker.
        brokers: By broker id.
    """

    advertised_host_template: str = ""
    advertised_port_template: str = ""
    node_address_type: str = ""
    external_traffic_policy: str = "Cluster"
    load_balancer_class: str = ""
    load_balancer_source_ranges: tuple[str, ...] = ()
    annotations: Mapping[str, str] = field(default_factory=dict)
    bootstrap_node_port: int = 0
    brokers: Mapping[int, BrokerListener] = field(default_factory=dict)

    def of(self, broker_id: int) -> BrokerListener:
        """What one broker has of its own."""
        return self.brokers.get(broker_id, BrokerListener())


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """One listener of the brokers; see `spec.listeners` of `KafkaLiteCluster`.

    Attributes:
        name: Listener name.
        type: `internal` (one port, advertised by the pod's DNS name), `hostport` (port + broker id on `host`),
            `nodeport` or `loadbalancer` (one port, reached through a Service per broker).
        port: Port, or base port.
        host: Address of a `hostport` listener.
        configuration: How clients outside get there.
    """

    name: str
    type: str
    port: int
    host: str = ""
    configuration: ListenerConfiguration = field(default_factory=ListenerConfiguration)

    @property
    def external(self) -> bool:
        """It has Services of its own."""
        return self.type in EXTERNAL_TYPES


def filled_in(template: str, *, node_id: str, pod_name: str) -> str:
    """A template with its placeholders filled in."""
    return template.replace("{nodeId}", node_id).replace("{podName}", pod_name)
