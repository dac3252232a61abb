"""How far clocks are off is written where the library in front of the C library reads it."""

import pytest

from tests.chaos import disks
from tests.chaos.clock_faults import SETTING, Clocks
from tests.chaos.cluster import ChaosError


@pytest.fixture
def clocks(tmp_path, monkeypatch):
    """Without a compiler: the library is an empty file."""
    monkeypatch.setattr("tests.chaos.clock_faults.command", lambda *_: "")
    return Clocks(tmp_path)


def settings(tmp_path) -> dict[str, tuple[int, float]]:
    return {path.name: SETTING.unpack(path.read_bytes()) for path in (tmp_path / "clocks").iterdir()}


def test_every_process_has_a_clock_of_its_own(tmp_path, clocks):
    clocks.set("broker-1", -3600)
    clocks.set("operator", 300, 2.0)
    assert settings(tmp_path) == {
        "broker-0": (0, 1.0),
        "broker-1": (-3_600_000_000_000, 1.0),
        "broker-2": (0, 1.0),
        "operator": (300_000_000_000, 2.0),
    }
    assert f"CHAOS_CLOCK='{tmp_path}/clocks/broker-1'" in clocks.lines_for("broker-1")[0]


def test_a_clock_is_changed_in_place_because_it_is_mapped(tmp_path, clocks):
    before = (tmp_path / "clocks" / "operator").stat().st_ino
    clocks.set("operator", 5)
    assert (tmp_path / "clocks" / "operator").stat().st_ino == before


def test_without_a_compiler_there_are_no_clocks(tmp_path, monkeypatch):
    def missing(*words, **_):
        raise FileNotFoundError(words[0])

    monkeypatch.setattr(disks.subprocess, "run", missing)
    with pytest.raises(ChaosError, match="cc is missing"):
        Clocks(tmp_path)
