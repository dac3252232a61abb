"""Label selectors and field selectors."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafkalite_local.apiserver.errors import bad_request

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkalite_local.apiserver.store import Attributes

_SET = re.compile(r"^\s*(?P<key>[\w./-]+)\s+(?P<operator>in|notin)\s+\((?P<values>[^()]*)\)\s*$")
_EQUAL = re.compile(r"^\s*(?P<key>[\w./-]+)\s*(?P<operator>==|=|!=)\s*(?P<value>[^\s!=,()]*)\s*$")
_EXISTS = re.compile(r"^\s*(?P<not>!?)\s*(?P<key>[\w./-]+)\s*$")


@dataclass(frozen=True, slots=True)
class Requirement:
    """`key operator values`; the operators are in, notin, exists, missing."""

    key: str
    operator: str
    values: frozenset[str] = frozenset()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether the labels fulfil the requirement."""
        value = labels.get(self.key)
        match self.operator:
            case "in":
                return value is not None and value in self.values
            case "notin":
                return value is None or value not in self.values
            case "exists":
                return value is not None
            case _:
                return value is None


@dataclass(frozen=True, slots=True)
class Selector:
    """What a list or a watch is limited to."""

    labels: tuple[Requirement, ...] = ()
    fields: tuple[Requirement, ...] = ()

    def matches(self, attributes: Attributes) -> bool:
        """Whether an object with these labels and fields is selected."""
        labels, fields = attributes
        return all(item.matches(labels) for item in self.labels) and all(item.matches(fields) for item in self.fields)


def parse_selector(labels: str, fields: str, known_fields: frozenset[str]) -> Selector:
    """Parse the query parameters labelSelector and fieldSelector. Raises ApiError 400."""
    return Selector(
        tuple(_label_requirement(part) for part in _split(labels)),
        tuple(_field_requirement(part, known_fields) for part in _split(fields)),
    )


def _split(text: str) -> list[str]:
    """Split at the commas outside parentheses."""
    parts, depth, current = [], 0, ""
    for character in text:
        depth += {"(": 1, ")": -1}.get(character, 0)
        if character == "," and depth == 0:
            parts.append(current)
            current = ""
        else:
            current += character
    parts.append(current)
    return [part for part in parts if part.strip()]


def _label_requirement(text: str) -> Requirement:
    if found := _SET.match(text):
        values = frozenset(value.strip() for value in found["values"].split(","))
        return Requirement(found["key"], found["operator"], values)
    if found := _EQUAL.match(text):
        return Requirement(found["key"], "notin" if found["operator"] == "!=" else "in", frozenset({found["value"]}))
    if found := _EXISTS.match(text):
        return Requirement(found["key"], "missing" if found["not"] else "exists")
    raise bad_request(f"unable to parse requirement: {text!r}")


def _field_requirement(text: str, known: frozenset[str]) -> Requirement:
    found = re.match(r"^\s*(?P<key>[^\s!=]+)\s*(?P<operator>==|=|!=)(?P<value>.*)$", text)
    if not found:
        raise bad_request(f"invalid field selector: {text!r}; can't understand it")
    if found["key"] not in known:
        raise bad_request(f"field label not supported: {found['key']}")
    value = re.sub(r"\\([,=\\])", r"\1", found["value"].strip())
    return Requirement(found["key"], "notin" if found["operator"] == "!=" else "in", frozenset({value}))
