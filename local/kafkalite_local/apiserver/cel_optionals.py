"""Rules that put `self` and `oldSelf` into optionals, as rules without: the interpreter keeps no optional in a list.

kube-apiserver reads what an optional holds without the schema, which is much cheaper. So dear rules begin with

    [optional.of(self)].all(entry, [entry.value()].all(now, …))

where `now` is `self` and the whole is `…`. That is what is compiled here.
"""

from __future__ import annotations

import re

_BINDING = re.compile(r"\[(?:optional\.of\((self|oldSelf)\)|(self|oldSelf)\.value\(\))\]\.all\((\w+), (?=.*\)$)")
_QUOTED_OR_BRACKET = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|[()]")


def without_optionals(rule: str) -> str:
    """The rule, a single line, without the optionals that it begins with."""
    while (binding := _BINDING.match(rule)) and _is_last_bracket(rule, binding.end()):
        rule = _renamed(rule[binding.end() : -1].strip(), binding[3], binding[1] or binding[2])
    return rule


def _is_last_bracket(rule: str, start: int) -> bool:
    """Whether the bracket that is open at `start` is closed by the last character."""
    depth = 1
    for match in _QUOTED_OR_BRACKET.finditer(rule, start):
        depth += {"(": 1, ")": -1}.get(match[0], 0)
        if depth == 0:
            return match.end() == len(rule)
    return False


def _renamed(rule: str, name: str, value: str) -> str:
    """The rule with another name for a variable: neither in literals nor for members of that name."""
    pattern = rf"('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")|(?<![\w.]){name}\b"
    return re.sub(pattern, lambda match: match[1] or value, rule)
