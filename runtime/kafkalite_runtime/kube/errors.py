"""What can go wrong between a caller and the Kubernetes API.

Two families: `KubeError` is an answer of the API server, so the caller knows what became of the request (nothing
was applied); `KubeUnavailable` is the absence of a usable answer, and its `ambiguous` says whether the write may
have been applied all the same.
"""

import os
import socket
import ssl

from kafkalite_core.model.errors import KafkaLiteError


class KubeError(KafkaLiteError):
    """The API server refused: the request was not applied.

    Attributes:
        status: HTTP status (for an ERROR event of a watch, the `code` of its Status object).
        reason: `reason` of the Status object, for example `AlreadyExists`; may be empty.
        message: the server's sentence.
    """

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(f"{status} {reason}: {message}" if reason else f"{status}: {message}")
        self.status = status
        self.reason = reason
        self.message = message


class KubeNotFound(KubeError):
    """404."""


class KubeConflict(KubeError):
    """409: not applied; the resourceVersion, the uid precondition or the name was already taken."""


class KubeInvalid(KubeError):
    """422: a failed `test` of a JSON Patch (no detail), or a schema or CEL rule (its text in `message`)."""


class KubeGone(KubeError):
    """410: the resourceVersion or continue token is too old; list again."""


class KubeForbidden(KubeError):
    """401 or 403."""


class KubeUnauthorized(KubeForbidden):
    """401: the server does not know who asks, for a token that has run out, say. It is no verdict on the request."""


class KubeThrottled(KubeError):
    """429: not applied; come back after `retry_after_s` seconds: what the server asked for (bounded), and some more."""

    def __init__(self, status: int, reason: str, message: str, retry_after_s: float) -> None:
        super().__init__(status, reason, message)
        self.retry_after_s = retry_after_s


class KubeUnavailable(KafkaLiteError):
    """No usable answer: connection refused or reset, deadline passed, answer cut off, or a 5xx.

    Attributes:
        ambiguous: True when a write had, or may have, reached the server: it may have been applied. Always False
            for reads.
        status: the 5xx status when there was one, else 0.
        server: URL of the API server, where it is known.
        why: the cause in words for people, without the request; else empty.
    """

    def __init__(self, message: str, *, ambiguous: bool, status: int = 0, server: str = "", why: str = "") -> None:
        super().__init__(message)
        self.ambiguous = ambiguous
        self.status = status
        self.server = server
        self.why = why


def described(error: BaseException) -> str:
    """Type and text of an error of the connection, for logs."""
    if isinstance(error, TimeoutError) and not str(error):
        return "no answer in time"
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def cause_of(error: BaseException) -> str:
    """Why a connection failed, in words for people: `Connection refused`."""
    cause = getattr(error, "certificate_error", None) or getattr(error, "os_error", None) or error
    if isinstance(cause, TimeoutError):
        return "no answer in time"
    if isinstance(cause, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {cause.verify_message}"
    if isinstance(cause, socket.gaierror):
        return str(cause.strerror)
    if isinstance(cause, ssl.SSLError):
        return f"no TLS connection: {cause.reason or cause}"
    if isinstance(cause, OSError) and cause.errno:
        return os.strerror(cause.errno)
    return "no connection" if isinstance(cause, OSError) else str(cause) or type(cause).__name__
