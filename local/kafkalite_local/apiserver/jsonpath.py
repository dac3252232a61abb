"""The part of kubectl's JSONPath that printer columns use: fields, indexes, `[*]` and equality filters."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

_STEP = re.compile(
    r"\.(?P<field>[A-Za-z_](?:[\w-]|\\\.)*)"
    r"|\[(?P<index>-?\d+)\]"
    r"|\[(?P<all>\*)\]"
    r"|\['(?P<quoted>(?:[^'\\]|\\.)*)'\]"
    r"|\[\?\(@\.(?P<key>[\w.]+)\s*==\s*['\"](?P<value>[^'\"]*)['\"]\)\]"
)

Step = tuple[str, Any]


def compile_path(text: str) -> Callable[[Any], Any]:
    """A function that gives the first value at the path, or None. Raises ValueError for what it cannot parse."""
    steps: list[Step] = []
    position = 0
    while position < len(text):
        found = _STEP.match(text, position)
        if not found:
            raise ValueError(f"JSONPath {text!r} is not understood at {text[position:]!r}")
        position = found.end()
        if found["index"] is not None:
            steps.append(("index", int(found["index"])))
        elif found["all"]:
            steps.append(("all", None))
        elif found["key"]:
            steps.append(("filter", (found["key"].split("."), found["value"])))
        else:
            name = found["field"] if found["field"] is not None else found["quoted"]
            steps.append(("field", re.sub(r"\\(.)", r"\1", name)))

    def first(value: Any) -> Any:
        found = [value]
        for step in steps:
            found = [item for candidate in found for item in _apply(step, candidate)]
        return found[0] if found else None

    return first


def _apply(step: Step, value: Any) -> list[Any]:
    kind, argument = step
    if kind == "field":
        return [value[argument]] if isinstance(value, dict) and argument in value else []
    if kind == "all":
        return list(value.values()) if isinstance(value, dict) else list(value) if isinstance(value, list) else []
    if not isinstance(value, list):
        return []
    if kind == "index":
        return [value[argument]] if -len(value) <= argument < len(value) else []
    keys, wanted = argument
    return [item for item in value if _lookup(item, keys) == wanted]


def _lookup(value: Any, keys: list[str]) -> Any:
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value
