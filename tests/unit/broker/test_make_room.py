"""A full disk: room is made again and again until no stray is about to be removed, but not by a broker that ends."""

import asyncio
from types import SimpleNamespace

import pytest

from kafkalite_broker import data_plane
from kafkalite_broker.data_plane import DataPlane


class Logs:
    """A log manager whose strays leave with the third call."""

    def __init__(self):
        self.told = []
        self.done = asyncio.Event()
        self.disk = SimpleNamespace(free_bytes=lambda: 0)

    def make_room(self, deletable, *, retention_ms, deleted_retention_ms, told):
        assert (deletable, retention_ms > deleted_retention_ms) == ({}, True)
        self.told.append(told)
        if not self.strays_leaving:
            self.done.set()
        return []

    @property
    def strays_leaving(self):
        return len(self.told) < 3

    def listed_strays(self):
        return []


@pytest.fixture
def plane(monkeypatch):
    monkeypatch.setattr(data_plane, "MAKE_ROOM_INTERVAL_S", 0.01)
    plane = DataPlane.__new__(DataPlane)
    plane._closing = False
    plane._config = {}
    plane._room_wanted_s = float("-inf")
    plane.reports = []
    plane.partitions = SimpleNamespace(deletable_up_to=dict)
    plane._link = SimpleNamespace(settled=False, report_strays=plane.reports.append)
    plane._on_fatal = pytest.fail
    return plane


async def test_room_is_made_until_no_stray_is_about_to_be_removed(plane):
    plane.logs = Logs()
    plane._disk_full()
    plane._disk_full()  # not for every append
    await asyncio.sleep(0)
    plane._link.settled = True
    async with asyncio.timeout(10):
        await plane.logs.done.wait()
    assert plane.logs.told == [False, True, True]
    assert len(plane.reports) == 3, "the status is written after each call"


async def test_a_broker_that_ends_makes_no_room(plane):
    plane.logs = Logs()
    plane._disk_full()
    plane._closing = True
    await asyncio.sleep(0)
    assert plane.logs.told == []
