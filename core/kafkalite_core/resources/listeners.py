"""`spec.listeners` and `status.listeners` of a `KafkaLiteCluster`: JSON -> model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalite_core.model.listener import (
    HOSTPORT,
    INTERNAL,
    LISTENER_TYPES,
    BrokerListener,
    Endpoint,
    Listener,
    ListenerConfiguration,
)
from kafkalite_core.resources.fields import ResourceError

if TYPE_CHECKING:
    from kafkalite_core.resources.fields import Fields

DEFAULT_LISTENER_PORT = 9092


def parse_listeners(spec: Fields) -> tuple[Listener, ...]:
    """`spec.listeners`, or one internal listener on port 9092. Raises `ResourceError`."""
    listeners = tuple(_listener(fields) for fields in spec.maps("listeners"))
    if listeners and listeners[0].external:
        raise ResourceError(
            f"{spec.where('listeners')}[0]: the brokers use the first listener among themselves: "
            f"make it {INTERNAL} or {HOSTPORT}"
        )
    return listeners or (Listener(name="plain", type=INTERNAL, port=DEFAULT_LISTENER_PORT),)


def _listener(fields: Fields) -> Listener:
    kind = fields.text("type", INTERNAL)
    if kind not in LISTENER_TYPES:
        raise ResourceError(f"{fields.where('type')}: {kind!r} is not one of: {', '.join(LISTENER_TYPES)}")
    return Listener(
        name=fields.text("name"),
        type=kind,
        port=fields.integer("port"),
        host=fields.text("host", "127.0.0.1" if kind == HOSTPORT else ""),
        configuration=_configuration(fields.map("configuration")),
    )


def _configuration(fields: Fields) -> ListenerConfiguration:
    bootstrap = fields.map("bootstrap")
    return ListenerConfiguration(
        advertised_host_template=fields.text("advertisedHostTemplate", ""),
        advertised_port_template=fields.text("advertisedPortTemplate", ""),
        node_address_type=fields.text("preferredNodePortAddressType", ""),
        external_traffic_policy=fields.text("externalTrafficPolicy", "Cluster"),
        load_balancer_class=fields.text("class", ""),
        load_balancer_source_ranges=fields.strings("loadBalancerSourceRanges"),
        annotations=fields.texts("annotations"),
        bootstrap_node_port=bootstrap.integer("nodePort", 0),
        brokers={
            broker.integer("broker"): BrokerListener(
                advertised_host=broker.text("advertisedHost", ""),
                advertised_port=broker.integer("advertisedPort", 0),
                node_port=broker.integer("nodePort", 0),
            )
            for broker in fields.maps("brokers")
        },
    )


def parse_endpoints(status: Fields) -> dict[str, dict[int, Endpoint]]:
    """`status.listeners`: endpoints by the listener's name and the broker id."""
    return {
        listener.text("name"): {
            address.integer("broker"): Endpoint(address.text("host"), address.integer("port"))
            for address in listener.maps("addresses")
        }
        for listener in status.maps("listeners")
    }
