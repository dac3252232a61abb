"""Every script of `group_traces/` does what it says. See `groups` for the commands."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkalite_core.groups.journal import Journal
from kafkalite_core.protocol.errors import ErrorCode
from tests.scripted.groups import GroupScript
from tests.scripted.harness import REWRITE, run_file

TRACES = sorted((Path(__file__).parent / "group_traces").glob("*.txt"))


@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.stem)
def test_trace(path: Path) -> None:
    expected, actual = run_file(path, GroupScript)
    if REWRITE:
        path.write_text(actual)
        return
    assert actual == expected, f"{path.name}: run with KAFKALITE_REWRITE=1 and read the difference"


def test_there_are_traces() -> None:
    assert len(TRACES) >= 9


@pytest.mark.skipif(REWRITE, reason="the traces are being written")
@pytest.mark.parametrize("path", [path for path in TRACES if "# M21" in path.read_text()], ids=lambda path: path.stem)
def test_a_coordinator_that_answers_at_the_append_is_noticed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant M21."""
    answer_at_commit = Journal.append

    def answer_at_append(self, records, operations, done) -> None:
        answer_at_commit(self, records, operations, done)
        resolve(self, self._next_id, ErrorCode.NONE)

    resolve = Journal.resolve
    monkeypatch.setattr(Journal, "append", answer_at_append)
    monkeypatch.setattr(Journal, "resolve", lambda *_: None)
    expected, actual = run_file(path, GroupScript)
    assert actual != expected
