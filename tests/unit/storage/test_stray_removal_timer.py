"""Looking at the strays again until all are gone that have to go; a full disk."""

import asyncio
from types import SimpleNamespace

import pytest

from kafkalite_broker.data_plane import DataPlane
from kafkalite_broker.log import stray_removal
from kafkalite_broker.log.stray_removal import StrayRemoval
from kafkalite_core.model.errors import StorageError
from kafkalite_core.storage.errors import DiskFailure


class Logs:
    """A log manager that needs to be asked `calls` times until no stray is about to be removed."""

    def __init__(self, calls):
        self.calls = calls
        self.asked = []
        self.errors = {}
        self.done = asyncio.Event()
        self.disk = SimpleNamespace(free_bytes=lambda: 0)
        self.made_room = 0
        self.strays_due = False

    def remove_strays(self, rules):
        assert rules.looked_ms == 5.0
        assert rules.retention_ms > rules.deleted_retention_ms
        self.asked.append(rules.told_ms(None))
        if not self.strays_leaving:
            self.done.set()
        if len(self.asked) in self.errors:
            raise self.errors[len(self.asked)]
        return []

    @property
    def strays_leaving(self):
        return len(self.asked) < self.calls

    def make_room(self, deletable):
        assert deletable == {}
        self.made_room += 1


@pytest.fixture
def world(monkeypatch):
    monkeypatch.setattr(stray_removal, "LOOK_AGAIN_S", 0.01)
    world = SimpleNamespace(reports=0, told_ms=0.0, fatal=[], looks=0)

    def look_at_topics():
        world.looks += 1

    def report():
        world.reports += 1

    def make(calls):
        world.logs = Logs(calls)
        world.removal = StrayRemoval(
            world.logs,
            config={},
            told_ms=lambda _metadata: world.told_ms,
            claimed=lambda _metadata: False,
            looked_ms=lambda: 5.0,
            look_at_topics=look_at_topics,
            report=report,
            on_fatal=world.fatal.append,
        )
        return world.removal

    world.make = make
    yield world
    world.removal.close()


async def until_done(world):
    async with asyncio.timeout(10):
        await world.logs.done.wait()
    await asyncio.sleep(0.05)  # there is to be no more


async def test_strays_are_looked_at_until_none_is_about_to_be_removed(world):
    world.make(4).look()
    world.told_ms = 7.0
    await until_done(world)
    assert world.logs.asked == [0.0, 7.0, 7.0, 7.0]
    assert world.reports == 4, "the store is told after each look"


async def test_whoever_asks_meanwhile_begins_no_second_row_of_looks(world):
    removal = world.make(30)
    for _ in range(10):
        removal.look()
    await until_done(world)
    assert len(world.logs.asked) == 30


async def test_the_topics_are_listed_only_once_the_time_of_a_stray_has_come(world):
    removal = world.make(1)
    removal.look()
    assert world.looks == 0
    world.logs.strays_due = True
    removal.look()
    assert world.looks == 1
    removal.close()
    removal.look()
    assert world.looks == 1, "a broker that ends asks nobody"


async def test_a_look_that_fails_is_reported_and_repeated(world):
    removal = world.make(4)
    world.logs.errors = {1: StorageError("full"), 2: StorageError("full")}
    with pytest.raises(StorageError):
        removal.look()
    await until_done(world)
    assert (len(world.logs.asked), world.reports, world.fatal) == (4, 4, [])


async def test_a_broken_disk_ends_the_broker(world):
    removal = world.make(2)
    broken = world.logs.errors[2] = DiskFailure("broken")
    removal.look()
    await until_done(world)
    assert world.fatal == [broken]


async def test_a_broker_that_ends_looks_no_more(world):
    removal = world.make(10)
    removal.look()
    removal.close()
    await asyncio.sleep(0.05)
    removal.look()  # an append found no room while it ends
    await asyncio.sleep(0.05)
    assert len(world.logs.asked) == 2


@pytest.mark.parametrize("error", [None, StorageError("full"), DiskFailure("broken")])
async def test_a_full_disk_makes_room_once_for_many_appends(world, error):
    plane = DataPlane.__new__(DataPlane)
    plane._stray_removal = world.make(1)
    plane.logs = world.logs
    plane.partitions = SimpleNamespace(deletable_up_to=dict)
    plane._room_wanted_s = float("-inf")
    plane._on_fatal = world.fatal.append
    if error is not None:
        world.logs.errors[1] = error
    plane._disk_full()
    plane._disk_full()
    await until_done(world)
    assert (world.logs.made_room, len(world.logs.asked)) == (1, 1)
    assert world.fatal == ([error] if isinstance(error, DiskFailure) else [])
