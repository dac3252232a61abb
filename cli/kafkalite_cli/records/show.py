"""From records to lines of output. Pure."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from confluent_kafka import Message

JsonObject = dict[str, Any]
FIELDS = ("topic", "timestamp", "partition", "offset", "headers", "key")
TIMESTAMP_TYPES = {1: "CreateTime", 2: "LogAppendTime"}


@dataclass(frozen=True, slots=True, kw_only=True)
class TextFormat:
    """A line of text, its fields marked as Kafka's console consumer marks them; the value goes last, as it is."""

    fields: tuple[str, ...] = ()
    separator: bytes = b"\t"

    def line(self, message: Message) -> bytes:
        """With its end."""
        parts = [_text_field(message, name) for name in self.fields]
        value = message.value()
        parts.append(b"null" if value is None else value)
        return self.separator.join(parts) + b"\n"


def _text_field(message: Message, name: str) -> bytes:
    if name == "key":
        key = message.key()
        return b"null" if key is None else key
    if name == "headers":
        found = [(key, _bytes(value)) for key, value in headers(message)]
        return b",".join(key.encode() + b":" + (b"null" if v is None else v) for key, v in found) or b"NO_HEADERS"
    if name == "timestamp":
        kind, moment = message.timestamp()
        return f"{TIMESTAMP_TYPES[kind]}:{moment}".encode() if kind in TIMESTAMP_TYPES else b"NO_TIMESTAMP"
    if name == "topic":
        return f"Topic:{message.topic()}".encode()
    if name == "partition":
        return f"Partition:{message.partition()}".encode()
    return f"Offset:{message.offset()}".encode()


class JsonFormat:
    """A JSON object a line. What is not UTF-8 stands as base64 under `keyBase64`, `valueBase64`."""

    def line(self, message: Message) -> bytes:
        """With its end."""
        kind, moment = message.timestamp()
        document: JsonObject = {
            "topic": message.topic(),
            "partition": message.partition(),
            "offset": message.offset(),
            "timestamp": moment if kind in TIMESTAMP_TYPES else None,
            "timestampType": TIMESTAMP_TYPES.get(kind),
            **json_field("key", message.key()),
            **json_field("value", message.value()),
            "headers": [{"key": key, **json_field("value", _bytes(value))} for key, value in headers(message)],
        }
        return msgspec.json.encode(document) + b"\n"


def json_field(name: str, data: bytes | None) -> JsonObject:
    """`{name: text}`, or `{nameBase64: …}` for what is not UTF-8."""
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}Base64": base64.b64encode(data).decode()}


def headers(message: Message) -> list[tuple[str, bytes | str | None]]:
    """In their order; a key may be there twice."""
    found: Any = message.headers()
    return list(found.items()) if isinstance(found, dict) else list(found or [])


def _bytes(value: bytes | str | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value
