"""docs/simulation.md tells of every invariant of the simulator, and truly where a test shows it fire."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
NAMED = re.compile(r'^\s*(?:[a-z_]*name|[A-Z_]+)(?:: Final)? = "([^"]+)"$', re.MULTILINE)
RAISED = re.compile(r'Violation\(\s*"([^"]+)"')


def names() -> set[str]:
    """Every name that a violation is raised under."""
    found: set[str] = set()
    for path in sorted((ROOT / "tests/simulation").rglob("*.py")):
        text = path.read_text()
        found.update(RAISED.findall(text))
        if "Violation(" in text and path.parent.name == "oracles":
            found.update(NAMED.findall(text))
    return found


def rows() -> dict[str, list[str]]:
    """Invariants and the tests that are named for them."""
    text = (ROOT / "docs/simulation.md").read_text()
    table = text.split("| invariant | says |", 1)[1].split("\n\n", 1)[0].splitlines()[2:]
    cells = [line.strip("| ").split(" | ") for line in table]
    assert {len(each) for each in cells} == {4}
    return {name: re.findall(r"`(\w+)`", tests) for names, _, _, tests in cells for name in names.split(", ")}


def test_all_are_told() -> None:
    told = set(rows())
    also = {"unique producer ids"}  # with those that are not committed twice
    assert names() - also == told


@pytest.mark.parametrize("name", sorted(rows()))
def test_the_test_that_is_named_expects_it(name) -> None:
    tests = rows()[name]
    assert tests
    expected: list[str] = []
    for test in tests:
        tree = ast.parse((ROOT / f"tests/unit/simulation/test_{test}.py").read_text())
        expected += [
            argument.value
            for call in ast.walk(tree)
            if isinstance(call, ast.Call)
            for argument in (*call.args, *(keyword.value for keyword in call.keywords if keyword.arg == "match"))
            if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
        ]
    assert any(len(text) >= 8 and text.split(":")[0] in name for text in expected), expected
