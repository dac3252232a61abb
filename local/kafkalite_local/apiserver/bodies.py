"""From HTTP requests to bodies and options, and from values to HTTP answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
from aiohttp import web

from kafkalite_local.apiserver.errors import ApiError, bad_request, unsupported_media_type
from kafkalite_local.apiserver.metadata import unrecognised_body
from kafkalite_local.apiserver.operations import WriteOptions

if TYPE_CHECKING:
    from kafkalite_local.apiserver.types import ResourceType

Json = dict[str, Any]

PATH: Final = web.RequestKey("path", str)
"""The path of the request without the token."""


def json_response(value: Any, *, status: int = 200, headers: Any = None) -> web.Response:
    """An answer in JSON."""
    return web.Response(
        body=msgspec.json.encode(value), status=status, headers=headers, content_type="application/json"
    )


def success(details: Json) -> Json:
    """The `Status` of a deletion."""
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}


def shown(resource: ResourceType, value: Json) -> Json:
    """A stored object in the form of this kind's version."""
    return resource.from_storage(value) if resource.from_storage else value


def quote_warning(text: str) -> str:
    """A Warning header: the text between the outer quotes has its own quotes escaped."""
    head, _, rest = text.partition('"')
    return f'{head}"{rest[:-1].replace(chr(92), chr(92) * 2).replace(chr(34), chr(92) + chr(34))}"'


def method_not_allowed(request: web.Request) -> ApiError:
    """405."""
    return ApiError(405, "MethodNotAllowed", f"the server does not allow {request.method} on {request[PATH]}", {})


def write_options(request: web.Request) -> WriteOptions:
    """The query parameters of a write. Raises ApiError 400."""
    dry_run = request.query.get("dryRun", "")
    if dry_run not in {"", "All"}:
        raise bad_request(f'dryRun: Unsupported value: "{dry_run}": supported values: "All"')
    validation = request.query.get("fieldValidation") or "Warn"
    if validation not in {"Strict", "Warn", "Ignore"}:
        supported = 'supported values: "Ignore", "Warn", "Strict"'
        raise bad_request(f'fieldValidation: Unsupported value: "{validation}": {supported}')
    return WriteOptions(dry_run=dry_run == "All", field_validation=validation)


def decoded(raw: bytes, resource: ResourceType) -> Any:
    """A JSON body. Raises ApiError 400."""
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise unrecognised_body(resource, error) from None


async def object_body(request: web.Request, resource: ResourceType) -> Any:
    """The body of a write: JSON or YAML. Raises ApiError 400 or 415."""
    raw = await request.read()
    if request.content_type in {"application/yaml", "application/x-yaml"}:
        import yaml

        try:
            return yaml.safe_load(raw)
        except yaml.YAMLError as error:
            raise unrecognised_body(resource, error) from None
    check_media_type(request)
    return decoded(raw, resource)


def check_media_type(request: web.Request) -> None:
    """Raises ApiError 415 for what is not JSON."""
    if request.content_type not in {"application/json", "application/octet-stream"}:
        raise unsupported_media_type(
            "the body of the request was in an unknown format - accepted media types include: "
            "application/json, application/yaml (the embedded API server reads no protobuf: "
            "use `kubectl apply -f` or `kubectl create -f`)"
        )


async def delete_options(request: web.Request) -> Json:
    """DeleteOptions from the body and the query. Raises ApiError 400."""
    raw = await request.read()
    options: Any = {}
    if raw:
        try:
            options = msgspec.json.decode(raw)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            raise bad_request(f"DeleteOptions cannot be handled as JSON: {error}") from None
    if not isinstance(options, dict):
        raise bad_request("DeleteOptions cannot be handled: it is not an object")
    for name in ("propagationPolicy", "gracePeriodSeconds", "orphanDependents"):
        text = request.query.get(name)
        if text is not None and name not in options:
            options[name] = int(text) if text.isdigit() else {"true": True, "false": False}.get(text, text)
    return options
