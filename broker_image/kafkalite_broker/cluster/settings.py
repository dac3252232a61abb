"""What the pod and the cluster's ConfigMap tell a broker about itself, with errors that name the culprit."""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kafkalite_core.model.config import check_broker_config
from kafkalite_core.model.errors import ConfigError
from kafkalite_core.model.foreign_json import parse_json
from kafkalite_core.model.listener import HOSTPORT, INTERNAL, LISTENER_TYPES, Listener, host_port
from kafkalite_core.resources.naming import broker_name, headless_service_name
from kafkalite_runtime.sockets import ALL_ADDRESSES

if TYPE_CHECKING:
    from collections.abc import Mapping

PORT_MAX = 65_535
_POD_ORDINAL = re.compile(r"(.+)-(\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundListener:
    """One listener of this broker: where it listens and what it tells clients.

    Attributes:
        name: Listener name.
        bind_host: Address to listen on, or `ALL_ADDRESSES`.
        bind_port: Port to listen on.
        advertised_host: Host that clients and other brokers connect to; empty where `status.listeners` tells it.
        advertised_port: Port that they connect to.
    """

    name: str
    bind_host: str
    bind_port: int
    advertised_host: str
    advertised_port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    """`broker.json`: the part that the operator may change while the broker runs.

    Attributes:
        cluster: Name of the `KafkaLiteCluster`.
        namespace: Its namespace.
        listeners: As in the cluster's spec, at least one.
        metrics_port: Base port of the telemetry endpoint.
        lease_duration_s: Silence after which the broker is fenced.
        renew_interval_s: Interval of Lease renewals.
        config: Kafka's broker keys, checked.
    """

    cluster: str
    namespace: str
    listeners: tuple[Listener, ...]
    metrics_port: int
    lease_duration_s: float
    renew_interval_s: float
    config: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSettings:
    """All of a broker's settings; see `from_environment`.

    Attributes:
        cluster: Name of the `KafkaLiteCluster`.
        namespace: Of pod and cluster.
        pod_name: Name of the pod.
        pod_uid: Its uid, or the empty string.
        broker_id: Ordinal of the pod.
        node_name: Node, or the empty string.
        rack: Failure domain, or the empty string.
        rack_directory: Where the failure domain will be found, when it is not known yet; see `cluster.rack`.
        incarnation: Random id of this process.
        data_directory: Where the log directories live.
        config_path: `broker.json`.
        termination_path: Where the termination message goes.
        broker: What `broker.json` says.
    """

    cluster: str
    namespace: str
    pod_name: str
    pod_uid: str
    broker_id: int
    node_name: str
    incarnation: str
    data_directory: Path
    config_path: Path
    termination_path: Path
    broker: BrokerConfig
    rack: str = ""
    rack_directory: Path | None = None

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> BrokerSettings:
        """Settings of a broker process.

        Raises:
            ConfigError: a variable is missing, or `broker.json` is missing or wrong; the text says which and where.
        """
        pod_name = _variable(environ, "POD_NAME")
        ordinal = _POD_ORDINAL.fullmatch(pod_name)
        if ordinal is None:
            raise ConfigError(f"POD_NAME: {pod_name!r} does not end in an ordinal, such as kafkalite-broker-0")
        config_path = Path(_variable(environ, "KAFKALITE_CONFIG"))
        broker = read_broker_config(config_path)
        settings = cls(
            cluster=_variable(environ, "KAFKALITE_CLUSTER"),
            namespace=_variable(environ, "POD_NAMESPACE"),
            pod_name=pod_name,
            pod_uid=environ.get("POD_UID", ""),
            broker_id=int(ordinal[2]),
            node_name=environ.get("NODE_NAME", ""),
            incarnation=str(uuid.uuid4()),
            data_directory=Path(_variable(environ, "KAFKALITE_DATA_DIR")),
            config_path=config_path,
            termination_path=Path(environ.get("KAFKALITE_TERMINATION_LOG", "/dev/termination-log")),
            broker=broker,
            rack=environ.get("KAFKALITE_RACK", ""),
            rack_directory=Path(environ["KAFKALITE_RACK_DIR"]) if environ.get("KAFKALITE_RACK_DIR") else None,
        )
        expected = broker_name(settings.cluster, settings.broker_id)
        if pod_name != expected:
            raise ConfigError(f"POD_NAME: {pod_name!r} is no broker of KAFKALITE_CLUSTER {settings.cluster!r}")
        if broker.cluster != settings.cluster:
            raise ConfigError(
                f"{config_path}: cluster: {broker.cluster!r} differs from KAFKALITE_CLUSTER {settings.cluster!r}"
            )
        if broker.namespace != settings.namespace:
            raise ConfigError(
                f"{config_path}: namespace: {broker.namespace!r} differs from POD_NAMESPACE {settings.namespace!r}"
            )
        settings.bound_listeners()  # a port beyond 65535 is found here rather than when it is bound
        return settings

    @property
    def object_name(self) -> str:
        """Name of this broker's `KafkaLiteBroker` and Lease."""
        return broker_name(self.cluster, self.broker_id)

    @property
    def metrics_port(self) -> int:
        """Port of this broker's telemetry endpoint: brokers that share a host have one each."""
        return self.broker.metrics_port + (self.broker_id if self._shares_host else 0)

    @property
    def metrics_host(self) -> str:
        """Address that the telemetry endpoint listens on."""
        return self.broker.listeners[0].host if self._shares_host else ALL_ADDRESSES

    @property
    def metrics_url(self) -> str:
        """URL of the metrics, for the registration."""
        return f"http://{host_port(self.inter_broker.advertised_host, self.metrics_port)}/metrics"

    @property
    def _shares_host(self) -> bool:
        return any(listener.type == HOSTPORT for listener in self.broker.listeners)

    @property
    def inter_broker(self) -> BoundListener:
        """The listener that is registered, for other brokers and for clients: the first one."""
        return self.bound_listeners()[0]

    def bound_listeners(self) -> tuple[BoundListener, ...]:
        """Where this broker listens. Raises ConfigError for a port that does not exist."""
        return tuple(self._bound(listener) for listener in self.broker.listeners)

    def _bound(self, listener: Listener) -> BoundListener:
        if listener.type != HOSTPORT:
            host = f"{self.pod_name}.{headless_service_name(self.cluster)}.{self.namespace}.svc"
            return BoundListener(
                name=listener.name,
                bind_host=ALL_ADDRESSES,
                bind_port=listener.port,
                advertised_host=host if listener.type == INTERNAL else "",
                advertised_port=listener.port,
            )
        port = listener.port + self.broker_id
        if port > PORT_MAX:
            raise ConfigError(
                f"{self.config_path}: listeners: {listener.name}: port {listener.port} plus broker id "
                f"{self.broker_id} is above {PORT_MAX}"
            )
        return BoundListener(
            name=listener.name,
            bind_host=listener.host,
            bind_port=port,
            advertised_host=listener.host,
            advertised_port=port,
        )


def _variable(environ: Mapping[str, str], name: str) -> str:
    value = environ.get(name, "")
    if not value:
        raise ConfigError(f"{name}: the environment variable is not set; the operator's pod template sets it")
    return value


def read_broker_config(path: Path) -> BrokerConfig:
    """Read and check `broker.json`.

    Raises:
        ConfigError: it cannot be read or understood; the text names the file and the key.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from error
    return parse_broker_config(text, where=str(path))


def parse_broker_config(text: str, *, where: str) -> BrokerConfig:
    """As `read_broker_config`, from text; `where` names the file in messages."""
    try:
        document = parse_json(text)
    except ValueError as error:
        raise ConfigError(f"{where}: not JSON: {error}") from error
    top = _Section(document, where)
    metrics = _Section(top.get("metrics", {}), top.path("metrics"))
    detection = _Section(top.get("failureDetection", {}), top.path("failureDetection"))
    listeners = top.get("listeners", None)
    if not isinstance(listeners, list) or not listeners:
        raise ConfigError(f"{top.path('listeners')}: needs at least one listener")
    config = top.get("config", {})
    if not isinstance(config, dict) or not all(isinstance(value, str) for value in config.values()):
        raise ConfigError(f"{top.path('config')}: not an object of strings: {config!r:.80}")
    problems = check_broker_config(config)
    if problems:
        raise ConfigError(f"{top.path('config')}: " + "; ".join(problems))
    result = BrokerConfig(
        cluster=top.text("cluster"),
        namespace=top.text("namespace"),
        listeners=tuple(_listener(item, f"{top.path('listeners')}[{i}]") for i, item in enumerate(listeners)),
        metrics_port=metrics.number("port", 9404, 1, PORT_MAX, whole=True),
        lease_duration_s=detection.number("leaseDurationSeconds", 5, 0.1, 3600),
        renew_interval_s=detection.number("renewIntervalSeconds", 1, 0.01, 1200),
        config=config,
    )
    if result.listeners[0].external:
        raise ConfigError(f"{top.path('listeners')}[0]: brokers use it among themselves: it is internal or hostport")
    if result.renew_interval_s >= result.lease_duration_s:
        raise ConfigError(f"{detection.path('renewIntervalSeconds')}: must be less than leaseDurationSeconds")
    return result


def _listener(item: object, where: str) -> Listener:
    section = _Section(item, where)
    kind = section.text("type")
    if kind not in LISTENER_TYPES:
        raise ConfigError(f"{section.path('type')}: {kind!r} is not one of: {', '.join(LISTENER_TYPES)}")
    host = section.get("host", None) or ("127.0.0.1" if kind == HOSTPORT else "")
    if not isinstance(host, str):
        raise ConfigError(f"{section.path('host')}: not a string: {host!r:.80}")
    return Listener(
        name=section.text("name"),
        type=kind,
        port=section.number("port", None, 1, PORT_MAX, whole=True),
        host=host,
    )


class _Section:
    """A JSON object with its place in the file."""

    def __init__(self, value: object, where: str) -> None:
        if not isinstance(value, dict):
            raise ConfigError(f"{where}: not an object: {value!r:.80}")
        self._value: dict[str, Any] = value
        self._where = where

    def path(self, key: str) -> str:
        return f"{self._where}: {key}"

    def get(self, key: str, default: object) -> Any:
        value = self._value.get(key)
        return default if value is None else value

    def text(self, key: str) -> str:
        value = self._value.get(key)
        if not isinstance(value, str) or not value:
            raise ConfigError(f"{self.path(key)}: needs a text, not {value!r:.80}")
        return value

    def number(self, key: str, default: float | None, minimum: float, maximum: float, *, whole: bool = False) -> Any:
        value = self.get(key, default)
        allowed = int if whole else (int, float)
        if isinstance(value, bool) or not isinstance(value, allowed) or not minimum <= value <= maximum:
            noun = "a whole number" if whole else "a number"
            raise ConfigError(f"{self.path(key)}: needs {noun} from {minimum} to {maximum}, not {value!r:.80}")
        return value
