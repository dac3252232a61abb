"""Requests that librdkafka's Python binding does not offer, by KafkaLite's own codec over a plain TCP connection."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any, Self

from kafkalite_cli.errors import Failure
from kafkalite_core.protocol.apis import API
from kafkalite_core.protocol.errors import ProtocolError
from kafkalite_core.protocol.header import decode_response_header, encode_request_frame

if TYPE_CHECKING:
    from types import TracebackType

CLIENT_ID = "kafkalite-cli"
FRAME_BYTES_MAX = 64 * 1024 * 1024


class Connection:
    """One request after the other to one broker; every call ends within `timeout_s` of silence."""

    def __init__(self, address: tuple[str, int], *, timeout_s: float = 10.0) -> None:
        """Raises Failure when nobody listens."""
        self._name = f"{address[0]}:{address[1]}"
        try:
            self._socket = socket.create_connection(address, timeout=timeout_s)
        except (OSError, UnicodeError) as error:  # UnicodeError: a name that no look-up takes
            raise Failure(
                f"broker {self._name} cannot be reached: {getattr(error, 'strerror', '') or error}"
            ) from error
        self._correlation_id = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

    def request(self, key: int, version: int, request: object) -> Any:
        """The decoded response. Raises Failure when the broker does not answer it."""
        spec = API[key]
        self._correlation_id += 1
        frame = encode_request_frame(spec, version, self._correlation_id, CLIENT_ID, request)
        try:
            self._socket.sendall(b"".join(bytes(part) for part in frame))
            size = int.from_bytes(self._receive(4), "big")
            if not 0 < size <= FRAME_BYTES_MAX:
                raise Failure(f"broker {self._name}: this is no answer of a Kafka broker")
            view = memoryview(self._receive(size))
            _, position = decode_response_header(view, spec, version)
            return spec.decode_response(view[position:], version)
        except ProtocolError as error:
            raise Failure(f"broker {self._name}: the answer to {spec.name} cannot be read: {error}") from error
        except TimeoutError as error:
            raise Failure(f"broker {self._name}: no answer to {spec.name} in time") from error
        except (OSError, EOFError) as error:
            raise Failure(f"broker {self._name} does not answer {spec.name} version {version}: {error}") from error

    def _receive(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            part = self._socket.recv(min(size - len(data), 1 << 20))
            if not part:
                raise EOFError("it closed the connection")
            data += part
        return bytes(data)
