"""Errors in the form of Kubernetes' `Status` objects, with the texts of the real API server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kafkalite_core.model.errors import KafkaLiteError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkalite_local.apiserver.types import ResourceType


@dataclass(frozen=True, slots=True)
class FieldError:
    """One reason why an object is invalid.

    Attributes:
        field: Path of the field, such as `spec.partitions`; empty for the whole object.
        reason: Kubernetes' cause reason, such as `FieldValueInvalid`.
        message: The text without the field.
    """

    field: str
    reason: str
    message: str

    def __str__(self) -> str:
        return f"{self.field or '<nil>'}: {self.message}"

    def cause(self) -> dict[str, str]:
        """The entry of `details.causes`."""
        return {"reason": self.reason, "message": self.message, "field": self.field or "<nil>"}


class ApiError(KafkaLiteError):
    """An answer other than success: HTTP status code, Kubernetes' reason, message and details."""

    def __init__(self, code: int, reason: str, message: str, details: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details

    def status(self) -> dict[str, Any]:
        """The `Status` object of the answer."""
        body: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            body["reason"] = self.reason
        if self.details is not None:
            body["details"] = self.details
        body["code"] = self.code
        return body


def _details(resource: ResourceType, name: str) -> dict[str, Any]:
    details = {"name": name, "group": resource.group, "kind": resource.plural}
    return {key: value for key, value in details.items() if value}


def not_found(resource: ResourceType, name: str) -> ApiError:
    """404: there is no such object."""
    return ApiError(404, "NotFound", f'{resource.qualified} "{name}" not found', _details(resource, name))


def already_exists(resource: ResourceType, name: str) -> ApiError:
    """409 for a create."""
    message = f'{resource.qualified} "{name}" already exists'
    return ApiError(409, "AlreadyExists", message, _details(resource, name))


def conflict(resource: ResourceType, name: str, why: str = "") -> ApiError:
    """409: the object is not the one that the writer saw. Nothing was applied."""
    why = why or "the object has been modified; please apply your changes to the latest version and try again"
    message = f'Operation cannot be fulfilled on {resource.qualified} "{name}": {why}'
    return ApiError(409, "Conflict", message, _details(resource, name))


def invalid(resource: ResourceType, name: str, errors: Sequence[FieldError]) -> ApiError:
    """422 with one cause for each broken rule."""
    texts = [str(error) for error in errors]
    joined = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    kind = f"{resource.kind}.{resource.group}" if resource.group else resource.kind
    details = {"name": name, "group": resource.group, "kind": resource.kind}
    body: dict[str, Any] = {key: value for key, value in details.items() if value}
    body["causes"] = [error.cause() for error in errors]
    return ApiError(422, "Invalid", f'{kind} "{name}" is invalid: {joined}', body)


def patch_not_applicable() -> ApiError:
    """422 without any detail: a `test` of a JSON Patch failed, or a path does not exist."""
    return ApiError(422, "Invalid", "the server rejected our request due to an error in our request", {})


def bad_request(message: str) -> ApiError:
    """400."""
    return ApiError(400, "BadRequest", message)


def forbidden(resource: ResourceType, name: str, why: str) -> ApiError:
    """403."""
    message = f'{resource.qualified} "{name}" is forbidden: {why}'
    return ApiError(403, "Forbidden", message, _details(resource, name))


def unsupported_media_type(message: str) -> ApiError:
    """415."""
    return ApiError(415, "UnsupportedMediaType", message)


def too_large(limit: int) -> ApiError:
    """413: the request's body exceeds the limit."""
    return ApiError(413, "RequestEntityTooLarge", f"Request entity too large: limit is {limit}")


def object_too_large() -> ApiError:
    """500, as etcd's limit on one value shows itself: not to be retried."""
    return ApiError(500, "", "etcdserver: request is too large")


def expired(message: str) -> ApiError:
    """410: the resource version is older than the history that is kept."""
    return ApiError(410, "Expired", message)


def not_implemented(method: str, path: str) -> ApiError:
    """501: the embedded API server does not know this part of the API."""
    return ApiError(501, "NotImplemented", f"the embedded API server does not implement {method} {path}")
