"""The lines of results that the failover reports keep: written, and read again, those of earlier reports too."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

FORMAT = 2
"""Of a line. 1: `roll` was `kafkalite restart --all`, failed fetches and what librdkafka counts were not counted."""
NEEDED = {
    "kind", "rate", "partitions", "pauses_s", "partition_pauses_s", "heal_s", "acked", "unknown", "anomalies",
    "problem", "facts", "tree", "commit", "machine", "load_before",
}  # fmt: skip


def write(line: dict[str, Any], results: Path) -> None:
    """Add a line."""
    results.parent.mkdir(parents=True, exist_ok=True)
    with results.open("a", encoding="utf-8") as file:
        file.write(json.dumps({"format": FORMAT, **line}) + "\n")


def read(results: Path) -> list[dict[str, Any]]:
    """All lines, in the present format. Ends the program, with the line and why, where one cannot be read."""
    if not results.exists():
        return []
    found = []
    for number, text in enumerate(results.read_text(encoding="utf-8").splitlines(), 1):
        if text:
            try:
                found.append(upgraded(json.loads(text)))
            except ValueError as error:
                sys.exit(f"{results}, line {number}: {error}; remove the line, or name another file with --results")
    return found


def upgraded(line: dict[str, Any]) -> dict[str, Any]:
    """A line in the present format. Raises ValueError for one that is none, or of a later format."""
    if missing := NEEDED - (line.keys() if isinstance(line, dict) else set()):
        raise ValueError(f"no result of the failover report, it lacks {', '.join(sorted(missing))}")
    if (written := line.get("format", 1)) > FORMAT:
        raise ValueError(f"it has format {written}, and this report knows {FORMAT} at most")
    if written == FORMAT:
        return line
    facts = dict(line["facts"])
    if "away_s" in facts:
        facts["outages"] = 1
        # Of produce requests alone: brokers did not count fetches that failed.
        for old, new in (("failed_requests", "failed_produce_requests"), ("client_errors", "client_errors")):
            during = facts.pop(old, None)
            if (value := facts.pop(f"{old}_after", during)) is not None:
                facts[new] = value
    kind = "restart" if line["kind"] == "roll" else line["kind"]
    return {"beside": "", **line, "format": FORMAT, "kind": kind, "facts": facts}
