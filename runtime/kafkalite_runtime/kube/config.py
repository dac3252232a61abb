"""Where the API server is and how to prove who we are: a kubeconfig file or the pod's service account."""

import base64
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from kafkalite_core.model.errors import ConfigError

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
TOKEN_REREAD_S = 60.0
AUTHORITY_REREAD_S = 60.0


@dataclass(slots=True)
class TokenFile:
    """A bearer token that the kubelet rotates: read again every minute, and after a 401."""

    path: Path
    clock: Callable[[], float] = time.monotonic
    _token: str = ""
    _read_at: float = field(default=float("-inf"))

    def get(self) -> str:
        """The token; the last one known when the file cannot be read just now."""
        if self.clock() - self._read_at >= TOKEN_REREAD_S:
            try:
                self._token = self.path.read_text(encoding="ascii").strip()
                self._read_at = self.clock()
            except OSError:
                if not self._token:
                    raise
        return self._token

    def forget(self) -> None:
        """Read the file again at the next call."""
        self._read_at = float("-inf")


@dataclass(slots=True)
class AuthorityFile:
    """The certificates that vouch for the API server, which the kubelet keeps up to date: looked at every minute.

    A cluster whose authority is changed publishes the new one beside the old one before any server shows a certificate
    of it. Whoever has read the old one alone would not reach a server from then on, until somebody restarts him.
    """

    path: Path
    clock: Callable[[], float] = time.monotonic
    _context: ssl.SSLContext | None = None
    _content: bytes = b""
    _read_at: float = field(default=float("-inf"))

    def get(self) -> ssl.SSLContext:
        """The same for as long as the file says the same, since connections are kept by it; the last good one when the
        file cannot be read just now. Raises OSError when none was read yet.
        """
        if self._context is None or self.clock() - self._read_at >= AUTHORITY_REREAD_S:
            try:
                content = self.path.read_bytes()
                if self._context is None or content != self._content:
                    self._context = ssl.create_default_context(cafile=str(self.path))
                    self._content = content
                self._read_at = self.clock()
            except OSError:
                if self._context is None:
                    raise
        return self._context


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeConfig:
    """One API server and one identity."""

    server: str
    ssl_context: ssl.SSLContext | None = None
    authority_file: AuthorityFile | None = None
    token: str = ""
    token_file: TokenFile | None = None
    namespace: str = "default"

    def trust(self) -> ssl.SSLContext | None:
        """By what the API server's certificate is judged from now on; None without TLS."""
        return self.authority_file.get() if self.authority_file is not None else self.ssl_context

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> "KubeConfig":
        """`KUBECONFIG` (its current context, else its first) when it is set, otherwise the pod's service account.

        Raises:
            ConfigError: neither is there, or the file does not say what is needed.
        """
        if named := environ.get("KUBECONFIG", ""):
            existing = [path for part in named.split(":") if part and (path := Path(part)).is_file()]
            if not existing:
                raise ConfigError(f"KUBECONFIG={named}: no such file")
            return cls.from_file(existing[0])
        server = server_of_pod(environ)
        if not server:
            raise ConfigError("no API server: set KUBECONFIG, or run in a pod with a service account")
        namespace_file = SERVICE_ACCOUNT / "namespace"
        authority = AuthorityFile(SERVICE_ACCOUNT / "ca.crt")
        authority.get()  # without one nothing can begin
        return cls(
            server=server,
            authority_file=authority,
            token_file=TokenFile(SERVICE_ACCOUNT / "token"),
            namespace=namespace_file.read_text(encoding="utf-8").strip() if namespace_file.is_file() else "default",
        )

    @classmethod
    def from_file(cls, path: Path) -> "KubeConfig":
        """Read a kubeconfig: token, token file, client certificate or basic server address; no exec plugins."""
        try:
            document = yaml.safe_load(path.read_text(encoding="utf-8"))
        except (OSError, yaml.YAMLError, UnicodeDecodeError) as error:
            raise ConfigError(f"kubeconfig {path} cannot be read: {error}") from error
        if not isinstance(document, dict) or not document.get("contexts"):
            raise ConfigError(f"kubeconfig {path} has no context")
        name = document.get("current-context") or document["contexts"][0]["name"]
        context = _named(document, "contexts", name, path).get("context") or {}
        cluster = _named(document, "clusters", context.get("cluster"), path).get("cluster") or {}
        user = _named(document, "users", context.get("user"), path).get("user") or {} if context.get("user") else {}
        if "exec" in user or "auth-provider" in user:
            raise ConfigError(f"kubeconfig {path}: user {context['user']} logs in by a plugin; give a token instead")
        server = str(cluster.get("server", "")).rstrip("/")
        if not server.startswith(("http://", "https://")):
            raise ConfigError(f"kubeconfig {path}: cluster {context.get('cluster')} has no server address")
        token_path = user.get("tokenFile")
        return cls(
            server=server,
            ssl_context=_ssl_context(cluster, user, path.parent) if server.startswith("https://") else None,
            token=user.get("token", ""),
            token_file=TokenFile(path.parent / token_path) if token_path else None,
            namespace=context.get("namespace") or "default",
        )


def server_of_pod(environ: Mapping[str, str]) -> str:
    """URL of the API server as the kubelet tells it to each pod, by address; empty outside of one."""
    host, port = environ.get("KUBERNETES_SERVICE_HOST"), environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        return ""
    return f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"


def _named(document: dict[str, Any], section: str, name: str | None, path: Path) -> dict[str, Any]:
    for entry in document.get(section) or []:
        if entry.get("name") == name:
            return dict(entry)
    raise ConfigError(f"kubeconfig {path}: no {name} among its {section}")


def _ssl_context(cluster: dict[str, Any], user: dict[str, Any], folder: Path) -> ssl.SSLContext:
    authority = cluster.get("certificate-authority-data")
    authority_file = cluster.get("certificate-authority")
    context = ssl.create_default_context(
        cafile=str(folder / authority_file) if authority_file and not authority else None,
        cadata=base64.b64decode(authority).decode("ascii") if authority else None,
    )
    if cluster.get("insecure-skip-tls-verify"):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if user.get("client-certificate"):
        context.load_cert_chain(folder / user["client-certificate"], folder / user["client-key"])
    elif user.get("client-certificate-data"):
        _load_inline_certificate(context, user)
    return context


def _load_inline_certificate(context: ssl.SSLContext, user: dict[str, Any]) -> None:
    # The ssl module loads certificates from files only; the file is gone again before anybody else runs.
    import tempfile

    with tempfile.NamedTemporaryFile(prefix="kafkalite-client-", suffix=".pem") as pem:
        pem.write(base64.b64decode(user["client-certificate-data"]))
        pem.write(b"\n")
        pem.write(base64.b64decode(user["client-key-data"]))
        pem.flush()
        context.load_cert_chain(pem.name)
