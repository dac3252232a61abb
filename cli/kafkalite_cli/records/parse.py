"""From lines of input to records. Pure."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass, field
from typing import Any

import msgspec

from kafkalite_core.model.errors import KafkaLiteError

LINE_BYTES_MAX = 64 * 1024 * 1024
TIMESTAMP_MAX_MS = 2**63 - 1
Headers = list[tuple[str, bytes | None]]


class LineError(KafkaLiteError):
    """A line that is no record; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What is sent; None: null, or left to the producer (partition, timestamp in ms)."""

    key: bytes | None = None
    value: bytes | None = None
    headers: Headers = field(default_factory=list)
    partition: int | None = None
    timestamp_ms: int | None = None

    @property
    def size_bytes(self) -> int:
        """Of key and value."""
        return len(self.key or b"") + len(self.value or b"")


@dataclass(frozen=True, slots=True, kw_only=True)
class LineFormat:
    """How a line is read, in Kafka's order: headers, a tab, key, `key_separator`, value.

    Attributes:
        key: key of all records.
        key_separator: what stands between key and value; a line without it is refused.
        headers: headers of all records, before those of the line.
        line_headers: whether a line begins with `name:value,name:value` and a tab.
        null_marker: key or value of just this text is null (a null value is a tombstone).
    """

    key: bytes | None = None
    key_separator: bytes | None = None
    headers: Headers = field(default_factory=list)
    line_headers: bool = False
    null_marker: bytes | None = None

    def parse(self, line: bytes) -> Record:
        """Raises LineError."""
        headers, key, value = list(self.headers), self.key, line
        if self.line_headers:
            first, tab, value = value.partition(b"\t")
            if not tab:
                raise LineError("no tab behind the headers")
            headers += _headers(first)
        if self.key_separator is not None:
            key, found, value = value.partition(self.key_separator)
            if not found:
                raise LineError(f"no key separator {self.key_separator.decode('utf-8', 'replace')!r}")
        return Record(key=self._nullable(key), value=self._nullable(value), headers=headers)

    def _nullable(self, data: bytes | None) -> bytes | None:
        return None if self.null_marker is not None and data == self.null_marker else data


def _headers(text: bytes) -> Headers:
    found: Headers = []
    for part in text.split(b",") if text else []:
        name, colon, value = part.partition(b":")
        if not colon or not name:
            raise LineError(f"header {part.decode('utf-8', 'replace')!r} is not of the form name:value")
        found.append((name.decode("utf-8", "replace"), value))
    return found


def parse_json(line: bytes) -> Record:
    """A line as `kafkalite consume -o json` writes it: key, value, headers and timestamp; the rest is passed over.

    `keyBase64` and `valueBase64` stand for what is not UTF-8. Raises LineError.
    """
    try:
        document = msgspec.json.decode(line)
    except (msgspec.DecodeError, RecursionError) as error:
        raise LineError(f"not JSON: {error}") from error
    if not isinstance(document, dict):
        raise LineError("not a JSON object")
    if "value" not in document and "valueBase64" not in document:
        raise LineError('no "value" (null for a tombstone)')
    headers = document.get("headers") or []
    if not isinstance(headers, list) or not all(isinstance(each, dict) for each in headers):
        raise LineError('headers are not of the form [{"key": …, "value": …}]')
    timestamp = document.get("timestamp")
    whole = isinstance(timestamp, int) and not isinstance(timestamp, bool)
    if timestamp is not None and not (whole and 0 <= timestamp <= TIMESTAMP_MAX_MS):
        raise LineError("timestamp is not a number of milliseconds since 1970")
    return Record(
        key=_field(document, "key"),
        value=_field(document, "value"),
        headers=[(str(each.get("key", "")), _field(each, "value")) for each in headers],
        timestamp_ms=timestamp,
    )


def _field(document: dict[str, Any], name: str) -> bytes | None:
    encoded = document.get(f"{name}Base64")
    if encoded is not None:
        if document.get(name) is not None:
            raise LineError(f"{name} or {name}Base64, not both")
        try:
            return base64.b64decode(str(encoded), validate=True)
        except binascii.Error as error:
            raise LineError(f"{name}Base64 is not base64: {error}") from error
    value = document.get(name)
    if value is None:
        return None
    return value.encode() if isinstance(value, str) else msgspec.json.encode(value)


class LineSplitter:
    """Chunks in, whole lines out, without what ends them."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that are whole now. Raises LineError when one is too long."""
        if b"\n" not in chunk:
            self._rest += chunk
            if len(self._rest) > LINE_BYTES_MAX:
                raise LineError(f"longer than {LINE_BYTES_MAX:,} bytes")
            return []
        first, *others = chunk.split(b"\n")
        lines = [bytes(self._rest) + first, *others]
        self._rest = bytearray(lines.pop())
        return lines

    def finish(self) -> list[bytes]:
        """The last line, when nothing ends it."""
        rest, self._rest = bytes(self._rest), bytearray()
        return [rest] if rest else []
