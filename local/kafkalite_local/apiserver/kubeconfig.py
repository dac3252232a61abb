"""The kubeconfig of local mode: one context, an address on the loopback, a random token."""

from __future__ import annotations

import os
import secrets
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

NAME: Final = "kafkalite"


def new_token() -> str:
    """A token that nobody guesses."""
    return secrets.token_urlsafe(32)


def write_kubeconfig(path: Path, url: str, token: str) -> None:
    """Write the kubeconfig, readable by its owner alone, in one step."""
    text = "\n".join(
        [
            "apiVersion: v1",
            "kind: Config",
            f"current-context: {NAME}",
            "clusters:",
            f"- name: {NAME}",
            "  cluster:",
            f"    server: {url}",
            "contexts:",
            f"- name: {NAME}",
            "  context:",
            f"    cluster: {NAME}",
            f"    user: {NAME}",
            "    namespace: default",
            "users:",
            f"- name: {NAME}",
            "  user:",
            f"    token: {token}",
            "",
        ]
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{os.getpid()}.new")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    temporary.replace(path)


def read_token(path: Path) -> str | None:
    """The token of a kubeconfig that `write_kubeconfig` wrote, or None when there is none."""
    try:
        lines = path.read_text().splitlines()
    except FileNotFoundError:
        return None
    return next((line.split(": ", 1)[1].strip() for line in lines if line.strip().startswith("token: ")), None)
