"""What clients are told of each listener, found out from Services, pods and nodes: `status.listeners`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kafkalite_core.model.listener import HOSTPORT, INTERNAL, LOADBALANCER, NODEPORT, Endpoint, filled_in, host_port
from kafkalite_core.model.topic import Condition
from kafkalite_core.resources import naming
from kafkalite_core.resources.fields import Fields

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kafkalite_core.model.listener import Listener
    from kafkalite_core.resources.manifests import ClusterSettings

PORT_MAX = 65_535
NAMED_MAX = 5
"""Services that a message names; the others are counted."""

NODE_ADDRESS_TYPES = ("ExternalIP", "InternalIP", "ExternalDNS", "InternalDNS", "Hostname")


@dataclass(frozen=True, slots=True)
class Published:
    """`status.listeners`, and what is still being waited for, in sentences."""

    listeners: list[dict[str, Any]]
    waits: tuple[str, ...]

    def condition(self, refused: str = "") -> Condition:
        """ListenersReady; `refused` says what the operator may not read."""
        if self.waits:
            message = "; ".join((refused, *self.waits) if refused else self.waits)
            return Condition(type="ListenersReady", status="False", reason="WaitingForAddresses", message=message)
        names = ", ".join(f"{each['name']} at {each['bootstrapServers']}" for each in self.listeners)
        return Condition(type="ListenersReady", status="True", reason="AddressesKnown", message=names)


def needs_hosts(listener: Listener) -> bool:
    """Whether the addresses of nodes matter: a nodeport listener without a host of its own."""
    return listener.type == NODEPORT and not listener.configuration.advertised_host_template


def publish(
    settings: ClusterSettings,
    broker_ids: Iterable[int],
    services: Mapping[str, Mapping[str, Any]],
    hosts: Mapping[str, Mapping[int, str]],
    former: Mapping[str, Mapping[int, Endpoint]] | None = None,
) -> Published:
    """What clients of each listener are told.

    Args:
        settings: The cluster.
        broker_ids: Brokers that shall exist. Nothing is waited for of those that leave the cluster: their pods and
            Services go one after the other.
        services: Services of external listeners, by name.
        hosts: Address of the broker's node, by listener and broker id, as far as it is known.
        former: What clients were told, by listener and broker id: it stays where nothing else is found.
    """
    found: list[dict[str, Any]] = []
    waits: list[str] = []
    ids = sorted(broker_ids)
    for listener in settings.listeners:
        endpoints: dict[int, Endpoint] = {}
        missing: list[str] = []
        for broker_id in ids:
            endpoint = _endpoint(settings, listener, broker_id, services, hosts.get(listener.name, {}))
            if isinstance(endpoint, Endpoint):
                endpoints[broker_id] = endpoint
                continue
            if broker_id in (known := (former or {}).get(listener.name, {})):
                endpoints[broker_id] = known[broker_id]
            if broker_id < settings.cluster.replicas:
                missing.append(endpoint)
        bootstrap = _bootstrap(settings, listener, endpoints, services)
        missing += _shared(endpoints)
        if missing:
            more = f" and {len(missing) - NAMED_MAX} more" if len(missing) > NAMED_MAX else ""
            waits.append(f"listener {listener.name}: " + ", ".join(missing[:NAMED_MAX]) + more)
        found.append(
            {
                "name": listener.name,
                "type": listener.type,
                "bootstrapServers": bootstrap,
                "addresses": [{"broker": i, "host": host, "port": port} for i, (host, port) in endpoints.items()],
            }
        )
    return Published(found, tuple(waits))


def _endpoint(
    settings: ClusterSettings,
    listener: Listener,
    broker_id: int,
    services: Mapping[str, Mapping[str, Any]],
    hosts: Mapping[int, str],
) -> Endpoint | str:
    """The endpoint, or a sentence that says what it waits for."""
    name = naming.listener_service_name(settings.cluster.name, listener.name, broker_id)
    pod = naming.broker_name(settings.cluster.name, broker_id)
    own = listener.configuration.of(broker_id)
    host = own.advertised_host or filled_in(
        listener.configuration.advertised_host_template, node_id=str(broker_id), pod_name=pod
    )
    given = filled_in(listener.configuration.advertised_port_template, node_id=str(broker_id), pod_name=pod)
    if given and not (given.isascii() and given.isdigit() and 0 < int(given) <= PORT_MAX):
        return f"advertisedPortTemplate gives broker {broker_id} the port {given!r}, which does not exist"
    port = own.advertised_port or int(given or 0)
    if listener.type == INTERNAL:
        headless = naming.headless_service_name(settings.cluster.name)
        return Endpoint(host or f"{pod}.{headless}.{settings.cluster.namespace}.svc", port or listener.port)
    if listener.type == HOSTPORT:
        return Endpoint(host or listener.host, port or listener.port + broker_id)
    if listener.type == LOADBALANCER:
        host = host or load_balancer_address(services.get(name, {}))
        if not host:
            return f"Service {name} has no address yet, which a load balancer of the cluster has to provide"
        return Endpoint(host, port or listener.port)
    port = port or node_port(services.get(name, {}))
    if not port:
        return f"Service {name} has no nodePort yet"
    host = host or hosts.get(broker_id, "")
    if not host:
        return f"the address of the node of pod {pod} is not known"
    return Endpoint(host, port)


def _shared(endpoints: Mapping[int, Endpoint]) -> list[str]:
    """A sentence for each address that several brokers would have: clients ask for the one, and get another."""
    brokers: dict[Endpoint, list[str]] = {}
    for broker_id, endpoint in endpoints.items():
        brokers.setdefault(endpoint, []).append(str(broker_id))
    return [
        f"{host_port(*endpoint)} is told for brokers {' and '.join(ids)}, each of which needs an address of its own"
        for endpoint, ids in brokers.items()
        if len(ids) > 1
    ]


def _bootstrap(
    settings: ClusterSettings,
    listener: Listener,
    endpoints: Mapping[int, Endpoint],
    services: Mapping[str, Mapping[str, Any]],
) -> str:
    """What goes into `bootstrap.servers`: the Service that leads to any broker where it has an address, else all."""
    service = services.get(naming.listener_service_name(settings.cluster.name, listener.name), {})
    if listener.type == INTERNAL and not listener.configuration.advertised_host_template:
        name = naming.bootstrap_service_name(settings.cluster.name)
        return f"{name}.{settings.cluster.namespace}.svc:{listener.port}"
    if listener.type == LOADBALANCER and (address := load_balancer_address(service)):
        return host_port(address, listener.port)
    # Nodes come and go, so a client is better off with all of them than with the bootstrap's port of one.
    return ",".join(host_port(host, port) for host, port in endpoints.values())


def load_balancer_address(service: Mapping[str, Any]) -> str:
    """Host name or address of a Service's load balancer, or the empty string."""
    if not service:
        return ""
    for ingress in Fields(service, "Service").map("status").map("loadBalancer").maps("ingress"):
        address = ingress.text("hostname", "") or ingress.text("ip", "")
        if address:
            return address
    return ""


def node_port(service: Mapping[str, Any]) -> int:
    """The port of the nodes that leads to a Service, or 0."""
    ports = Fields(service, "Service").map("spec").maps("ports") if service else []
    return ports[0].integer("nodePort", 0) if ports else 0


def node_address(node: Mapping[str, Any], preferred: str) -> str:
    """The address of a node: of the preferred type, else of the first type of `NODE_ADDRESS_TYPES` that it has."""
    listed = Fields(node, "Node").map("status").maps("addresses")
    by_type = {each.text("type", ""): each.text("address", "") for each in reversed(listed)}
    return next((by_type[kind] for kind in (preferred, *NODE_ADDRESS_TYPES) if by_type.get(kind)), "")
