"""A raw connection that speaks the protocol by KafkaLite's own codec, for what no well-behaved client sends."""

from __future__ import annotations

import socket
from typing import Self

from kafkalite_core.protocol.apis import API
from kafkalite_core.protocol.header import decode_response_header, encode_request_frame


class Wire:
    def __init__(self, address: tuple[str, int], timeout: float = 10) -> None:
        self.socket = socket.create_connection(address, timeout=timeout)
        self.correlation_id = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def send_request(self, key: int, version: int, request: object) -> None:
        self.correlation_id += 1
        frame = encode_request_frame(API[key], version, self.correlation_id, "wire", request)
        self.send(b"".join(bytes(part) for part in frame))

    def request(self, key: int, version: int, request: object):
        self.send_request(key, version, request)
        frame = memoryview(self.receive_frame())
        correlation_id, offset = decode_response_header(frame, API[key], version)
        assert correlation_id == self.correlation_id
        return API[key].decode_response(frame[offset:], version)

    def receive_frame(self) -> bytes:
        size = int.from_bytes(self._receive(4), "big")
        return self._receive(size)

    def _receive(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            part = self.socket.recv(size - len(data))
            if not part:
                raise EOFError("the broker closed the connection")
            data += part
        return data

    def closed_by_broker(self) -> bool:
        """Whether the broker closes the connection (within the time-out)."""
        try:
            while self.socket.recv(65536):
                pass
        except ConnectionResetError:
            return True
        except TimeoutError:
            return False
        return True
