"""Reading JSON objects field by field, with errors that name the object and the field."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kafkalite_core.model.errors import KafkaLiteError


class ResourceError(KafkaLiteError):
    """An object of the API that cannot be understood. The text names the object and the field."""


class Fields:
    """A JSON object with its place in the document; every getter raises `ResourceError` on a wrong type."""

    __slots__ = ("_value", "_where")

    def __init__(self, value: Mapping[str, Any], where: str) -> None:
        self._value = value
        self._where = where

    @property
    def raw(self) -> Mapping[str, Any]:
        """The JSON object itself."""
        return self._value

    def where(self, key: str) -> str:
        """Place of a field, for messages."""
        return f"{self._where}.{key}" if self._where else key

    def has(self, key: str) -> bool:
        """Whether the field is there and is not null."""
        return self._value.get(key) is not None

    def _get(self, key: str, kind: type | tuple[type, ...], expected: str, default: object) -> Any:
        value = self._value.get(key)
        if value is None:
            if default is _REQUIRED:
                raise ResourceError(f"{self.where(key)} is missing")
            return default
        # bool is a subclass of int in Python, but not in JSON.
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise ResourceError(f"{self.where(key)} is not {expected}: {value!r:.80}")
        return value

    def text(self, key: str, default: str | None = None) -> str:
        """A string; without default the field is required."""
        value: str = self._get(key, str, "a string", _REQUIRED if default is None else default)
        return value

    def integer(self, key: str, default: int | None = None) -> int:
        """A whole number; without default the field is required."""
        value: int = self._get(key, int, "a whole number", _REQUIRED if default is None else default)
        return value

    def number(self, key: str, default: float) -> float:
        """A number."""
        return float(self._get(key, (int, float), "a number", default))

    def flag(self, key: str, *, default: bool = False) -> bool:
        """True or false."""
        value: bool = self._get(key, bool, "true or false", default)
        return value

    def map(self, key: str) -> Fields:
        """A nested object; an absent one reads as empty."""
        return Fields(self._get(key, Mapping, "an object", {}), self.where(key))

    def required_map(self, key: str) -> Fields:
        """A nested object that must be there."""
        return Fields(self._get(key, Mapping, "an object", _REQUIRED), self.where(key))

    def maps(self, key: str) -> list[Fields]:
        """A list of objects; an absent one reads as empty."""
        items = self._get(key, Sequence, "a list", ())
        return [
            Fields(_object(item, f"{self.where(key)}[{i}]"), f"{self.where(key)}[{i}]") for i, item in enumerate(items)
        ]

    def integers(self, key: str) -> tuple[int, ...]:
        """A list of whole numbers; an absent one reads as empty."""
        items = self._get(key, Sequence, "a list", ())
        if isinstance(items, str) or not all(isinstance(item, int) and not isinstance(item, bool) for item in items):
            raise ResourceError(f"{self.where(key)} is not a list of whole numbers: {items!r:.80}")
        return tuple(items)

    def strings(self, key: str) -> tuple[str, ...]:
        """A list of strings; an absent one reads as empty."""
        items = self._get(key, Sequence, "a list", ())
        if isinstance(items, str) or not all(isinstance(item, str) for item in items):
            raise ResourceError(f"{self.where(key)} is not a list of strings: {items!r:.80}")
        return tuple(items)

    def texts(self, key: str) -> dict[str, str]:
        """An object whose values are strings (numbers and booleans are rendered as YAML users mean them)."""
        items = self._get(key, Mapping, "an object", {})
        return {str(name): _as_text(value, f"{self.where(key)}.{name}") for name, value in items.items()}

    def texts_or_empty(self) -> dict[str, str]:
        """Those values of this object that are strings."""
        return {str(name): value for name, value in self._value.items() if isinstance(value, str)}


_REQUIRED = object()


def _object(value: object, where: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ResourceError(f"{where} is not an object: {value!r:.80}")
    return value


def _as_text(value: object, where: str) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (str, int, float)):
        return str(value)
    raise ResourceError(f"{where} is not a string: {value!r:.80}")


def open_object(obj: Mapping[str, Any]) -> tuple[Fields, Fields]:
    """The whole object and its metadata, after a check that it has a name.

    Raises:
        ResourceError: it is no Kubernetes object.
    """
    if not isinstance(obj, Mapping):
        raise ResourceError(f"not a Kubernetes object: {obj!r:.80}")
    metadata = obj.get("metadata")
    if not isinstance(metadata, Mapping) or not isinstance(metadata.get("name"), str):
        raise ResourceError(f"{obj.get('kind', 'object')} without metadata.name")
    where = f"{obj.get('kind', 'object')} {metadata.get('namespace', '')}/{metadata['name']}"
    return Fields(obj, where), Fields(metadata, f"{where} metadata")
