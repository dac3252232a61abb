"""Every script of `traces/` does what it says. See `harness` for the commands."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.scripted.harness import REWRITE, run_file

TRACES = sorted((Path(__file__).parent / "traces").glob("*.txt"))


@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.stem)
def test_trace(path: Path) -> None:
    expected, actual = run_file(path)
    if REWRITE:
        path.write_text(actual)
        return
    assert actual == expected, f"{path.name}: run with KAFKALITE_REWRITE=1 and read the difference"


def test_there_are_traces() -> None:
    assert len(TRACES) >= 26
