"""Kubeconfig files as kubectl reads them: several merged into one, a context chosen by name, plugins that log in.

The connection itself is made by `KubeConfig.from_file`, from the one context that is left.
"""

from __future__ import annotations

import base64
import os
import tempfile
import time
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from kafkalite_core.model.errors import ConfigError
from kafkalite_runtime.kube.config import KubeConfig, TokenFile

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

JsonObject = dict[str, Any]
SECTIONS = {"clusters": "cluster", "contexts": "context", "users": "user"}
PATHS = {
    "clusters": ("certificate-authority",),
    "users": ("client-certificate", "client-key", "tokenFile"),
}
NOT_SERVED = {"proxy-url": "through a proxy", "tls-server-name": "with tls-server-name"}
IDENTITIES_NOT_SERVED = {
    "as": "acts as somebody else (as)",
    "as-groups": "acts as somebody else (as-groups)",
    "as-uid": "acts as somebody else (as-uid)",
    "as-user-extra": "acts as somebody else (as-user-extra)",
    "username": "logs in by name and password",
    "password": "logs in by name and password",
}
"""Without them the requests would be those of another identity than kubectl's."""
EXPIRY_MARGIN_S = 30.0


def default_files(environ: Mapping[str, str]) -> list[Path]:
    """Where kubectl looks: the files of `KUBECONFIG` that exist, else `~/.kube/config`. Raises ConfigError."""
    if named := environ.get("KUBECONFIG", ""):
        files = [path for part in named.split(os.pathsep) if part and (path := Path(part)).is_file()]
        if not files:
            raise ConfigError(f"KUBECONFIG={named}: no such file")
        return files
    usual = Path(environ.get("HOME", "") or "/nonexistent") / ".kube" / "config"
    return [usual] if usual.is_file() else []


def load(files: Sequence[Path], context: str | None = None) -> KubeConfig:
    """One API server and one identity: the named context, else the current one, else the first.

    Raises:
        ConfigError: a file cannot be read, or does not say what is needed.
    """
    where = ", ".join(map(str, files))
    merged = _merged(files)
    if not merged["contexts"]:
        raise ConfigError(f"kubeconfig {where} has no context")
    name = context or merged["current-context"] or next(iter(merged["contexts"]))
    chosen = _named(merged, "contexts", name, where)
    cluster = _named(merged, "clusters", chosen.get("cluster"), where)
    user = _named(merged, "users", chosen["user"], where) if chosen.get("user") else {}
    for key, how in NOT_SERVED.items():
        if cluster.get(key):
            raise ConfigError(f"kubeconfig {where}: cluster {chosen['cluster']} is reached {how}, which is not served")
    for key, how in IDENTITIES_NOT_SERVED.items():
        if user.get(key):
            raise ConfigError(
                f"kubeconfig {where}: user {chosen['user']} {how}, which is not served; name another context or user"
            )
    login = None
    if "exec" in user:
        login = _Login(user["exec"], cluster, files[0].parent)
        user = {key: value for key, value in user.items() if key != "exec"} | login.certificate()
    config = _single(name, chosen, cluster, user, where)
    return replace(config, token_file=login, token="") if login is not None and login.gives_token else config


def _single(name: str, context: JsonObject, cluster: JsonObject, user: JsonObject, where: str) -> KubeConfig:
    document = {
        "current-context": name,
        "contexts": [{"name": name, "context": context}],
        "clusters": [{"name": context.get("cluster"), "cluster": cluster}],
        "users": [{"name": context.get("user"), "user": user}],
    }
    # The reader takes files alone; this one is readable by its owner only, and gone when it was read.
    with tempfile.NamedTemporaryFile("w", prefix="kafkalite-", suffix=".kubeconfig", encoding="utf-8") as file:
        yaml.safe_dump(document, file)
        file.flush()
        try:
            return KubeConfig.from_file(Path(file.name))
        except ConfigError as error:
            raise ConfigError(str(error).replace(file.name, where)) from error
        except (OSError, ValueError, KeyError) as error:
            raise ConfigError(
                f"kubeconfig {where}, context {name}: its certificates cannot be used: {error}"
            ) from error


def _merged(files: Sequence[Path]) -> JsonObject:
    """All files as one: of what several name, the first one counts; paths are made absolute."""
    merged: JsonObject = {"current-context": "", **{section: {} for section in SECTIONS}}
    for path in files:
        document = _read(path)
        merged["current-context"] = merged["current-context"] or document.get("current-context") or ""
        for section, key in SECTIONS.items():
            for entry in document.get(section) or []:
                value = dict(entry.get(key) or {})
                for name in PATHS.get(section, ()):
                    if value.get(name):
                        value[name] = str((path.parent / value[name]).absolute())
                merged[section].setdefault(entry.get("name"), value)
    return merged


def _read(path: Path) -> JsonObject:
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"kubeconfig {path} cannot be read: {error}") from error
    if not isinstance(document, dict):
        raise ConfigError(f"kubeconfig {path} has no context")
    return document


def _named(merged: JsonObject, section: str, name: str | None, where: str) -> JsonObject:
    found: JsonObject | None = merged[section].get(name)
    if found is None:
        known = ", ".join(sorted(map(str, merged[section]))) or "none"
        raise ConfigError(f"kubeconfig {where}: no {name} among its {section} (there are: {known})")
    return found


class _Login(TokenFile):
    """The bearer token that a plugin of the kubeconfig gives (`users[].user.exec`), asked again when it expires."""

    def __init__(self, settings: JsonObject, cluster: JsonObject, folder: Path) -> None:
        super().__init__(Path())
        self._settings, self._cluster, self._folder = settings, cluster, folder
        self._status = self._ask()

    @property
    def gives_token(self) -> bool:
        """Else it gives a certificate."""
        return bool(self._status.get("token"))

    def certificate(self) -> JsonObject:
        """What it gives to log in with, as the fields of a user; empty when it gives a token alone."""
        if not self._status.get("clientCertificateData"):
            return {}
        return {
            f"client-{name}-data": base64.b64encode(self._status[key].encode()).decode()
            for name, key in (("certificate", "clientCertificateData"), ("key", "clientKeyData"))
        }

    def get(self) -> str:
        """The token. Raises ConfigError when the plugin fails."""
        expiry = self._status.get("expirationTimestamp")
        if not self._status or (expiry and _seconds_until(str(expiry)) < EXPIRY_MARGIN_S):
            self._status = self._ask()
        return str(self._status["token"])

    def forget(self) -> None:
        """Ask again at the next call."""
        self._status = {}

    def _ask(self) -> JsonObject:
        # The official client knows the protocol of these plugins; it is large, and few need it here.
        from kubernetes.config.config_exception import ConfigException
        from kubernetes.config.exec_provider import ExecProvider
        from kubernetes.config.kube_config import ConfigNode

        nodes: Any = ConfigNode
        provider: Any = ExecProvider
        try:
            cluster = nodes("cluster", self._cluster)
            status = dict(provider(nodes("exec", self._settings), str(self._folder), cluster).run())
        except (ConfigException, OSError, ValueError, KeyError, AttributeError) as error:
            command = self._settings.get("command")
            raise ConfigError(f"the login plugin {command} of the kubeconfig failed: {error}") from error
        if not status.get("token") and not (status.get("clientCertificateData") and status.get("clientKeyData")):
            raise ConfigError(f"the login plugin {self._settings.get('command')} gave neither token nor certificate")
        return status


def _seconds_until(text: str) -> float:
    return datetime.fromisoformat(text).timestamp() - time.time()
