"""`docs/replication-rules.md` names every rule once, and only functions that are there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "docs" / "replication-rules.md").read_text()
CORE = ROOT / "core" / "kafkalite_core"
SHELLS = [ROOT / "broker_image" / "kafkalite_broker", ROOT / "operator" / "kafkalite_operator"]


def rows() -> list[list[str]]:
    return [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in TEXT.splitlines()
        if re.match(r"\| [RS][0-9]+ \|", line)
    ]


def test_every_rule_has_one_row() -> None:
    assert [row[0] for row in rows()] == [f"R{n}" for n in range(1, 17)] + [f"S{n}" for n in range(1, 13)]


def test_every_function_that_is_named_is_where_the_table_says() -> None:
    missing: list[str] = []
    named = 0
    for line in [row[2] for row in rows()] + TEXT.split("## When the store")[1].splitlines():
        path: Path | None = None
        for word in re.findall(r"`([^`]+)`", line):
            if word.endswith(".py") and "/" in word:
                path = CORE / word
                if not path.is_file():
                    missing.append(word)
                    path = None
            elif path is not None and re.fullmatch(r"[A-Za-z_.]+", word):
                named += 1
                name = word.rpartition(".")[2]
                if not re.search(rf"(def|class) {name}\b|^{name} = |^    {name}: ", path.read_text(), re.MULTILINE):
                    missing.append(f"{path.name}: {word}")
    assert named > 40
    assert missing == []


def test_shells_that_are_named_exist() -> None:
    for row in rows():
        for name in re.findall(r"`([a-z_/]+\.py)`", row[3]):
            assert any(found.match(name) for shell in SHELLS for found in shell.rglob("*.py")), name
