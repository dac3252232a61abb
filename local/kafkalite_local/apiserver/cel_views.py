"""What a rule can see of a value: the rest need not be handed to the CEL interpreter.

The interpreter copies a map whenever a rule names it, so a rule about the keys of 256 partitions would copy 256 entries
256 times. A view keeps what the rule's text can reach: a member that is only asked for with `has()` keeps its presence,
a map that is only searched or counted keeps its keys.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

_CHAIN = re.compile(r"\b(self|oldSelf)\b((?:\.[A-Za-z_]\w*)*)")
_KEY_MACROS = frozenset({"all", "exists", "exists_one", "size"})
_TWO_VARIABLES = re.compile(r"\s*\w+\s*,\s*\w+\s*,")


class Need(IntEnum):
    """How much of a value a rule looks at."""

    NOTHING = 0
    PRESENCE = 1
    KEYS = 2
    ALL = 3


@dataclass(slots=True)
class View:
    """The parts of a value that a rule needs, by member."""

    need: Need = Need.NOTHING
    members: dict[str, View] = field(default_factory=dict)

    def of(self, value: Any) -> Any:
        """The value without what the rule cannot see."""
        if self.need is Need.ALL or not isinstance(value, dict):
            if self.need is Need.PRESENCE and isinstance(value, list) and not self.members:
                return []
            return value
        if self.need is Need.KEYS:
            seen: dict[str, Any] = dict.fromkeys(value, True)
        else:
            seen = {}
        for name, member in self.members.items():
            if name in value:
                seen[name] = member.of(value[name])
        return seen


def views(rule: str) -> dict[str, View]:
    """The views of `self` and `oldSelf` for the text of a rule."""
    found = {"self": View(), "oldSelf": View()}
    for match in _CHAIN.finditer(rule):
        names = match[2].split(".")[1:]
        need = _need(rule, match, names)
        node = found[match[1]]
        for name in names:
            node = node.members.setdefault(name, View())
        node.need = max(node.need, need)
    return found


def _need(rule: str, match: re.Match[str], names: list[str]) -> Need:
    """What this occurrence needs of the value that `names` lead to; drops a method's name from `names`."""
    before, after = rule[: match.start()].rstrip(), rule[match.end() :].lstrip()
    if before.endswith("has(") and after.startswith(")"):
        return Need.PRESENCE
    if after.startswith("("):
        method = names.pop()
        return Need.KEYS if method in _KEY_MACROS and not _TWO_VARIABLES.match(after[1:]) else Need.ALL
    return Need.KEYS if re.search(r"\bin$", before) and not after.startswith("[") else Need.ALL
