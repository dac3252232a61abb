"""Settings of the operator process, from its environment."""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

from kafkalite_core.model.errors import ConfigError
from kafkalite_core.model.foreign_json import parse_json
from kafkalite_core.resources.manifests import DEFAULT_IMAGE
from kafkalite_runtime.logging import format_of, level_of

if TYPE_CHECKING:
    from collections.abc import Mapping

DEFAULT_METRICS_PORT = 9404
_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
"""A DNS label (RFC 1123), as Kubernetes has it for names of namespaces."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorSettings:
    """Settings of one operator process.

    Attributes:
        namespace: Where its own Lease is.
        identity: Name of this process in the Lease; begins with `instance` and differs with every start.
        instance: Pod name and uid; a predecessor with the same instance is certainly dead. Empty when unknown.
        metrics_host: Address that the telemetry endpoint listens on; empty for all.
        metrics_port: Port of the telemetry endpoint; 0 for any free one.
        watch_namespaces: Namespaces to serve; empty for all.
        default_cluster: `spec` of the cluster that is made for topics without one; None to make none.
        default_image: Image of brokers whose cluster names none.
        log_level: Level of the log.
        log_json: One JSON object per line.
    """

    namespace: str
    identity: str
    instance: str = ""
    metrics_host: str = ""
    metrics_port: int = DEFAULT_METRICS_PORT
    watch_namespaces: tuple[str, ...] = ()
    default_cluster: dict[str, Any] | None = None
    default_image: str = DEFAULT_IMAGE
    log_level: str = "info"
    log_json: bool = True

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> OperatorSettings:
        """Read `KAFKALITE_*`, `POD_NAME` and `POD_UID`. Raises `ConfigError` with the variable's name."""
        pod = environ.get("POD_NAME", "") or environ.get("HOSTNAME", "") or "operator"
        uid = environ.get("POD_UID", "")
        instance = f"{pod}_{uid}" if uid else ""
        return cls(
            namespace=environ.get("KAFKALITE_OPERATOR_NAMESPACE", "") or environ.get("POD_NAMESPACE", "") or "default",
            identity=f"{instance or pod}_{secrets.token_hex(4)}",
            instance=instance,
            metrics_host=_address(environ, "KAFKALITE_METRICS_HOST"),
            metrics_port=_port(environ, "KAFKALITE_METRICS_PORT", DEFAULT_METRICS_PORT),
            watch_namespaces=_namespaces(environ, "KAFKALITE_WATCH_NAMESPACES"),
            default_cluster=_json(environ, "KAFKALITE_DEFAULT_CLUSTER"),
            default_image=environ.get("KAFKALITE_BROKER_IMAGE", "") or DEFAULT_IMAGE,
            log_level=level_of(environ),
            log_json=format_of(environ) == "json",
        )


def _namespaces(environ: Mapping[str, str], name: str) -> tuple[str, ...]:
    found = tuple(filter(None, (part.strip() for part in environ.get(name, "").split(","))))
    for each in found:
        if not _NAMESPACE.fullmatch(each):
            raise ConfigError(f"{name}: {each!r} is no name of a namespace; expected names, separated by commas")
    return found


def _port(environ: Mapping[str, str], name: str, default: int) -> int:
    text = environ.get(name, "")
    if not text:
        return default
    if not text.isascii() or not text.isdigit() or int(text) > 65535:
        raise ConfigError(f"{name}={text!r}: expected a port number from 0 to 65535")
    return int(text)


def _address(environ: Mapping[str, str], name: str) -> str:
    text = environ.get(name, "")
    if not text:
        return ""
    try:
        return str(ip_address(text))
    except ValueError:
        raise ConfigError(f"{name}={text!r}: expected an IP address, such as 127.0.0.1, or nothing for all") from None


def _json(environ: Mapping[str, str], name: str) -> dict[str, Any] | None:
    text = environ.get(name, "")
    if not text:
        return None
    try:
        value = parse_json(text)
    except ValueError as error:
        raise ConfigError(f"{name} is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise ConfigError(f"{name} is not a JSON object")
    return value
