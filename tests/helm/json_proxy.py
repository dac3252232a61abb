"""Stands between helm and the embedded API server, which reads no protobuf: helm writes its Secrets in it.

A real API server needs none of this. Only Secrets and options of deletions are translated; anything else in protobuf
is answered with an error, so that nothing is lost without a word.
"""

from __future__ import annotations

import base64
import http.client
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

PROTOBUF = "application/vnd.kubernetes.protobuf"
MAGIC = b"k8s\x00"


def fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """Number and value of the fields of one message: varints as numbers, all else as bytes."""
    position = 0

    def varint() -> int:
        nonlocal position
        result = shift = 0
        while True:
            byte = data[position]
            position += 1
            result |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return result

    while position < len(data):
        key = varint()
        if key & 7 == 0:
            yield key >> 3, varint()
        else:
            assert key & 7 == 2, f"wire type {key & 7}"
            length = varint()
            yield key >> 3, data[position : position + length]
            position += length


def message(data: bytes) -> dict[int, list[Any]]:
    found: dict[int, list[Any]] = {}
    for number, value in fields(data):
        found.setdefault(number, []).append(value)
    return found


def text(found: dict[int, list[Any]], number: int) -> str:
    return found[number][0].decode() if number in found else ""


def pairs(entries: list[bytes]) -> dict[str, bytes]:
    return {text(entry, 1): entry.get(2, [b""])[0] for entry in map(message, entries)}


def as_json(data: bytes) -> bytes | None:
    """An object in protobuf as JSON; None for options of a deletion, of which only defaults come here."""
    assert data.startswith(MAGIC)
    envelope = message(data[len(MAGIC) :])
    kind = text(message(envelope[1][0]), 2)
    raw = message(envelope.get(2, [b""])[0])
    if kind == "DeleteOptions":
        assert raw.keys() <= {4}, raw  # a propagation policy: nothing here owns anything
        return None
    assert kind == "Secret", f"{kind} in protobuf is not translated"
    assert raw.keys() <= {1, 2, 3}, raw.keys()
    metadata = message(raw[1][0])
    labels = {name: value.decode() for name, value in pairs(metadata.get(11, [])).items()}
    named = {"name": text(metadata, 1), "namespace": text(metadata, 3), "resourceVersion": text(metadata, 6)}
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {**{key: value for key, value in named.items() if value}, "labels": labels},
        "type": text(raw, 3),
        "data": {name: base64.b64encode(value).decode() for name, value in pairs(raw.get(2, [])).items()},
    }
    return json.dumps(secret).encode()


class JsonProxy:
    """The proxy, in threads of its own. `problems` are the requests that could not be translated."""

    def __init__(self, host: str, port: int) -> None:
        self.problems: list[str] = []
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _forward(self) -> None:
                body: bytes | None = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                headers = {
                    name: value
                    for name, value in self.headers.items()
                    if name.lower() not in ("host", "content-length")
                }
                if headers.get("Content-Type") == PROTOBUF:
                    try:
                        body = as_json(body or b"")
                    except Exception as error:
                        proxy.problems.append(f"{self.command} {self.path}: {error!r}")
                        self.send_error(500, "not translated")
                        return
                    headers["Content-Type"] = "application/json"
                headers["Accept"] = headers.get("Accept", "").replace(f"{PROTOBUF},", "")
                connection = http.client.HTTPConnection(host, port, timeout=60)
                connection.request(self.command, self.path, body or None, headers)
                answer = connection.getresponse()
                payload = answer.read()
                self.send_response(answer.status)
                for name, value in answer.getheaders():
                    if name.lower() not in ("transfer-encoding", "content-length", "connection"):
                        self.send_header(name, value)
                self.send_header("Content-Length", str(len(payload)))
                self.end_headers()
                self.wfile.write(payload)
                connection.close()

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _forward

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
