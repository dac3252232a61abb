"""The ledger of the exhaustive search: a line for each `--proof` that came to its end, whatever it found."""

from __future__ import annotations

import platform
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from tools.tree_hash import tree_hash

if TYPE_CHECKING:
    from collections.abc import Mapping

HERE = Path(__file__).resolve().parent
LEDGER = HERE / "ledger.jsonl"
CLEAN, SHORT, VIOLATED = "clean", "falls short", "violated"


class Searched(msgspec.Struct, kw_only=True, frozen=True):
    """One configuration.

    Attributes:
        states: Distinct, after symmetry.
        depth: Up to which number of steps all of them were seen.
        exhausted: These are all that there are within the bounds.
        bounds: `Config.bounds` of what was searched; empty in lines from before they were written down.
    """

    states: int
    depth: int
    exhausted: bool
    bounds: dict[str, Any] = {}


class Line(msgspec.Struct, kw_only=True, frozen=True):
    """One proof.

    Attributes:
        time: When it ended, UTC.
        tree: `tools/tree_hash.py` of what ran.
        size: Name of the proof: which configurations, and to how many states each.
        verdict: clean; falls short: of its number of states, or of its memory; violated.
        seconds: From its begin to its end.
        memory_mb: Of all processes together, at most.
        jobs: Processes at once.
        python: Version of the interpreter.
    """

    time: str
    tree: str
    size: str
    verdict: str
    states: int
    seconds: float
    memory_mb: int
    jobs: int
    python: str
    configs: dict[str, Searched]


def line_of(size: str, summary: Mapping[str, Any], found: list[dict[str, Any]], *, verdict: str, jobs: int) -> Line:
    """The line of a proof: `summary` and `found` as `proof.run_all` tells them."""
    return Line(
        time=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        tree=tree_hash(HERE.parents[1]),
        size=size,
        verdict=verdict,
        states=summary["states"],
        seconds=summary["seconds"],
        memory_mb=summary["memory_mb"],
        jobs=jobs,
        python=platform.python_version(),
        configs={
            each["config"]: Searched(
                states=each["states"], depth=each["depth"], exhausted=each["exhausted"], bounds=each["bounds"]
            )
            for each in sorted(found, key=lambda each: str(each["config"]))
        },
    )


def read(path: Path = LEDGER) -> list[Line]:
    """All lines; none when there is no such file. Raises msgspec.DecodeError for a line that is none."""
    return [msgspec.json.decode(text, type=Line) for text in path.read_bytes().splitlines()] if path.is_file() else []
