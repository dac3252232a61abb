"""What an answer of the API server that is no success says: which error it is, and in which words."""

import random
import re

import msgspec

from kafkalite_runtime.kube.errors import (
    KubeConflict,
    KubeError,
    KubeForbidden,
    KubeGone,
    KubeInvalid,
    KubeNotFound,
    KubeThrottled,
    KubeUnauthorized,
    KubeUnavailable,
)

MAX_RETRY_AFTER_S = 30.0
RETRY_JITTER = 0.5
"""Whoever is told to come back after some time does so up to this share of it later: others were told the same."""

_PATCHED = 'patch: Invalid value: "'
_QUOTED = re.compile(r'(?:[^"\\]|\\.)*": ')


def error_for(status: int, reason: str, message: str, retry_after: str, *, write: bool) -> KubeError | KubeUnavailable:
    """Which error it is; `retry_after`: that header or ""; `write`: without an answer it may have been applied."""
    # 501 is the one 5xx that is a verdict: the server does not implement this request, so it cannot have applied it.
    if status >= 500 and status != 501:
        return KubeUnavailable(f"{status} {reason}: {message}", ambiguous=write, status=status)
    if status == 429:
        seconds = float(retry_after) if retry_after.replace(".", "", 1).isdigit() else 1.0
        seconds = min(seconds, MAX_RETRY_AFTER_S) * random.uniform(1.0, 1.0 + RETRY_JITTER)
        return KubeThrottled(status, reason, message, seconds)
    if status == 422:
        message = without_object(message)
    kinds: dict[int, type[KubeError]] = {
        401: KubeUnauthorized,
        403: KubeForbidden,
        404: KubeNotFound,
        409: KubeConflict,
        410: KubeGone,
        422: KubeInvalid,
    }
    return kinds.get(status, KubeError)(status, reason, message)


def without_object(message: str) -> str:
    """What a server says of a patch that makes no object, without that object: `patch: Invalid value: "…": why`.

    It is long, so that why would be cut off, and has what nobody shall read in a log: values of environment variables.
    """
    head, found, rest = message.partition(_PATCHED)
    if not found:
        return message
    quoted = _QUOTED.match(rest)
    why = rest[quoted.end() :] if quoted else rest.rpartition('": ')[2]
    return f"{head}patch: {why}"


def status_text(payload: bytes) -> tuple[str, str]:
    """Reason and message of a Status object; of anything else its first characters."""
    try:
        document = msgspec.json.decode(payload)
        return str(document.get("reason") or ""), str(document.get("message") or "")
    except (msgspec.DecodeError, RecursionError, AttributeError):
        return "", payload[:200].decode("utf-8", "replace").strip()
