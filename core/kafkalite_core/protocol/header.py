"""Request and response headers, and whole frames with their size."""

from dataclasses import dataclass
from struct import Struct
from struct import error as StructError  # noqa: N812 - a class with a lower-case name
from typing import Any

from kafkalite_core.protocol.api_spec import ApiSpec
from kafkalite_core.protocol.apis import API, API_VERSIONS_KEY
from kafkalite_core.protocol.errors import ProtocolError
from kafkalite_core.protocol.primitives import Buffer, read_nullable_string, skip_tags, write_nullable_string

_REQUEST = Struct(">hhi")
_FRAME = Struct(">ii")
_FLEXIBLE_FRAME = Struct(">iiB")
_INT32 = Struct(">i")


@dataclass(frozen=True, slots=True)
class RequestHeader:
    """The header of every request. `client_id` is a classic nullable string in header version 2 too."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


def decode_request_header(view: memoryview) -> tuple[RequestHeader, int]:
    """Read the header of a frame without its 4-byte size; return it and the position of the body.

    The body of an API or version that is not served must not be decoded: whether its header goes on with tagged fields
    is not known, and the position is the end of the client id then. Raises `ProtocolError`.
    """
    try:
        api_key, api_version, correlation_id = _REQUEST.unpack_from(view)
        client_id, position = read_nullable_string(view, _REQUEST.size)
        spec = API.get(api_key)
        if spec is not None and spec.serves(api_version) and api_version >= spec.flexible_from:
            position = skip_tags(view, position + 1, view[position])
    except (StructError, IndexError, UnicodeDecodeError) as error:
        raise ProtocolError(f"the request header is malformed: {error}") from error
    return RequestHeader(api_key, api_version, correlation_id, client_id), position


def encode_request_header(spec: ApiSpec, version: int, correlation_id: int, client_id: str | None) -> bytearray:
    """The header of a request, in header version 1 or 2."""
    header = bytearray(_REQUEST.pack(spec.key, version, correlation_id))
    write_nullable_string(header, client_id)
    if version >= spec.flexible_from:
        header.append(0)
    return header


def encode_request_frame(
    spec: ApiSpec, version: int, correlation_id: int, client_id: str | None, request: Any
) -> list[Buffer]:
    """A request with its size and header, as buffers to be written in order."""
    body = spec.encode_request(request, version)
    header = encode_request_header(spec, version, correlation_id, client_id)
    return [_INT32.pack(len(header) + sum(map(len, body))) + header, *body]


def encode_response_frame(spec: ApiSpec, version: int, correlation_id: int, response: Any) -> list[Buffer]:
    """A response with its size and header, as buffers to be written in order.

    Header version 1 for flexible versions, else 0; ApiVersions always 0, so that any client can read it (KIP-511).
    """
    return frame_response(spec, version, correlation_id, spec.encode_response(response, version))


def frame_response(spec: ApiSpec, version: int, correlation_id: int, body: list[Buffer]) -> list[Buffer]:
    """Put size and header before an encoded body; `body` is changed and returned."""
    size = sum(map(len, body))
    if version >= spec.flexible_from and spec.key != API_VERSIONS_KEY:
        body[0] = _FLEXIBLE_FRAME.pack(size + 5, correlation_id, 0) + body[0]
    else:
        body[0] = _FRAME.pack(size + 4, correlation_id) + body[0]
    return body


def decode_response_header(view: memoryview, spec: ApiSpec, version: int) -> tuple[int, int]:
    """Read the header of a response frame without its size; return the correlation id and the position of the body."""
    try:
        (correlation_id,) = _INT32.unpack_from(view)
        position = 4
        if version >= spec.flexible_from and spec.key != API_VERSIONS_KEY:
            position = skip_tags(view, position + 1, view[position])
    except (StructError, IndexError) as error:
        raise ProtocolError(f"the response header is malformed: {error}") from error
    return correlation_id, position
