"""What the API server says to a write, in Kafka's words: an error code, and the server's own sentence."""

from __future__ import annotations

import re

from kafkalite_core.model.errors import BrokerError
from kafkalite_core.protocol.errors import ErrorCode
from kafkalite_runtime.kube import KubeError, KubeForbidden, KubeInvalid, KubeNotFound, KubeThrottled, KubeUnavailable

MESSAGE_LENGTH_MAX = 1000

_FIELD = re.compile(r"\b(?:spec\.([a-zA-Z]+)|metadata\.(name)\b)")
_CODES = {
    "partitions": ErrorCode.INVALID_PARTITIONS,
    "replicas": ErrorCode.INVALID_REPLICATION_FACTOR,
    "config": ErrorCode.INVALID_CONFIG,
    "replicaAssignment": ErrorCode.INVALID_REPLICA_ASSIGNMENT,
    "topicName": ErrorCode.INVALID_TOPIC_EXCEPTION,
    "name": ErrorCode.INVALID_TOPIC_EXCEPTION,
}


def is_passing(error: Exception) -> bool:
    """Whether the same write may succeed a moment later: no answer, too many requests, an expired token."""
    if isinstance(error, KubeForbidden):
        return error.status == 401
    return isinstance(error, (KubeUnavailable, KubeThrottled))


def sentence_of(error: KubeError | KubeUnavailable) -> str:
    """The server's sentence without the request that it answers."""
    if isinstance(error, KubeUnavailable):
        return str(error)
    _, _, said = error.message.partition(": ")
    return (said or error.message or str(error)).strip()[:MESSAGE_LENGTH_MAX]


def refusal(error: KubeError) -> BrokerError:
    """The answer to a client whose wish the API server refused.

    A rule of the schema names the field, and so the code; what any other policy of the cluster refuses (admission,
    quota, permissions) is a POLICY_VIOLATION to Kafka's clients.
    """
    said = sentence_of(error)
    if isinstance(error, KubeNotFound):
        return BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR, f"the Kubernetes API does not know the resource: {said}")
    if isinstance(error, KubeForbidden):
        return BrokerError(ErrorCode.POLICY_VIOLATION, f"the Kubernetes API does not permit it: {said}")
    field = _FIELD.search(said) if isinstance(error, KubeInvalid) else None
    if field is not None:
        code = _CODES.get(field.group(1) or field.group(2))
        if code is not None:
            return BrokerError(code, said)
    return BrokerError(ErrorCode.POLICY_VIOLATION, f"the Kubernetes API refuses it: {said}")


def timed_out(what: str, error: Exception | None, *, unsure: bool) -> BrokerError:
    """The API server gave no usable answer within the time that the client allows."""
    why = f": {error}" if error is not None else ""
    outcome = "may or may not have been done" if unsure else "was not done"
    return BrokerError(
        ErrorCode.REQUEST_TIMED_OUT, f"the Kubernetes API did not answer in time, so {what} {outcome}{why}"
    )


def unknown_topic(name: str) -> BrokerError:
    """Nobody has that topic."""
    return BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"the topic {name!r} does not exist")


def topic_exists(name: str) -> BrokerError:
    """Somebody has that topic."""
    return BrokerError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")


def object_names_taken(name: str) -> BrokerError:
    """Objects of other topics hold every `metadata.name` that this topic could have."""
    return BrokerError(
        ErrorCode.INVALID_TOPIC_EXCEPTION, f"the object names for topic {name!r} belong to objects of other topics"
    )
