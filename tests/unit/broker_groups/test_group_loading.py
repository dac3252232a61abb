"""One led partition: its log is loaded, and leadership comes and goes; the coordinator is the test's."""

import asyncio
from itertools import pairwise

import pytest

from kafkalite_broker.groups import led_partition, loading
from kafkalite_core.groups.events import (
    Loaded,
    RecordsLoaded,
    Requested,
    Resigned,
    Restoring,
)
from kafkalite_core.protocol.errors import ErrorCode
from kafkalite_core.storage.errors import ReadInterrupted
from tests.unit.broker_groups.fakes import REF, FakeCoordinator, GroupRig, heartbeat, led, loaded, use_fakes
from tests.unit.replication.rig import on_uvloop, topic_ref, until


@pytest.fixture
def made(monkeypatch):
    return use_fakes(monkeypatch)


def loaded_records(coordinator):
    return [record for event in coordinator.of(RecordsLoaded) for record in event.records]


# ---------------------------------------------------------------------------------------------------- loading


@on_uvloop
async def test_an_empty_partition_is_loaded_at_once(tmp_path, made):
    async with GroupRig(tmp_path) as rig:
        rig.lead_offsets()
        coordinator = await loaded(rig)
        assert [type(event) for event in coordinator.events] == [Loaded]
        assert coordinator.events[0].wall_ms > 1_600_000_000_000


@on_uvloop
async def test_everything_in_the_log_is_loaded_in_order_and_in_slices(tmp_path, made, monkeypatch):
    monkeypatch.setattr(loading, "PIECE_BYTES", 600)
    monkeypatch.setattr(loading, "SLICE_RECORDS", 3)
    async with GroupRig(tmp_path) as rig:
        rig.lead_offsets()
        await loaded(rig)
        written = []
        for number in range(40):
            pairs = [(b"k%d-%d" % (number, n), b"v" * n if n else None) for n in range(number % 9 + 1)]
            compressed = {"codec": 1, "compress": lambda _, data: _gzip(data)} if number % 5 == 0 else {}
            rig.write(*pairs, **compressed)
            written += pairs
        await rig.flusher.drain()
        rig.lose_offsets(epoch=1, replicas=(0, 1))
        turns = []

        async def count_turns():
            while True:
                turns.append(sum(len(event.records) for event in made[-1].of(RecordsLoaded)) if len(made) > 1 else 0)
                await asyncio.sleep(0)

        counting = asyncio.create_task(count_turns())
        rig.lead_offsets(epoch=2)
        coordinator = await loaded(rig)
        counting.cancel()
        assert loaded_records(coordinator) == written
        assert max(len(event.records) for event in coordinator.of(RecordsLoaded)) == 3
        steps = [after - before for before, after in pairwise(turns)]
        assert max(steps) <= 6, "other work has its turn between the slices"
        assert type(coordinator.events[-1]) is Loaded


@on_uvloop
async def test_groups_are_made_in_slices_before_anything_is_served(tmp_path, made, monkeypatch):
    monkeypatch.setattr(FakeCoordinator, "groups_in_log", 7)
    monkeypatch.setattr(led_partition, "RESTORED_AT_ONCE", 2)
    turns = []

    async def count_turns():
        while True:
            turns.append(len(made[-1].of(Restoring)) if made else 0)
            await asyncio.sleep(0)

    counting = asyncio.create_task(count_turns())
    async with GroupRig(tmp_path) as rig:
        rig.lead_offsets()
        coordinator = await loaded(rig)
        counting.cancel()
        assert [type(event) for event in coordinator.events] == [Restoring] * 4 + [Loaded]
    assert {event.groups for event in coordinator.of(Restoring)} == {2}
    assert max(after - before for before, after in pairwise(turns)) == 1, "other work has its turn between the slices"


def _gzip(data):
    import gzip

    return gzip.compress(data)


@on_uvloop
async def test_markers_and_records_without_key_are_left_out(tmp_path, made):
    async with GroupRig(tmp_path) as rig:
        rig.lead_offsets()
        await loaded(rig)
        rig.write((b"a", b"1"))
        rig.write((b"\0\0\0\0", b"\0\0\0\0\0\0"), control=True, transactional=True)
        rig.write((None, b"2"), (b"b", b"3"))
        rig.write((b"c", b"4"), codec=2, compress=lambda _, data: b"no snappy at all")
        rig.write((b"d", b"5"))
        await rig.flusher.drain()
        rig.lose_offsets(epoch=1)
        rig.lead_offsets(epoch=2)
        assert loaded_records(await loaded(rig)) == [(b"a", b"1"), (b"b", b"3"), (b"d", b"5")]


@on_uvloop
async def test_of_a_key_that_was_written_again_and_again_the_last_record_is_enough(tmp_path, made):
    async with GroupRig(tmp_path) as rig:
        rig.lead_offsets()
        await loaded(rig)
        rig.write((b"a", b"1"), (b"b", b"1"), (b"a", b"2"))
        rig.write((b"c", b"1"), (b"b", None), (b"a", b"3"))
        await rig.flusher.drain()
        rig.lose_offsets(epoch=1)
        rig.lead_offsets(epoch=2)
        assert loaded_records(await loaded(rig)) == [(b"c", b"1"), (b"b", None), (b"a", b"3")]


@on_uvloop
async def test_what_is_loaded_is_committed_before_it_is_served(tmp_path, made):
    async with GroupRig(tmp_path) as rig:
        rig.lead_offsets(replicas=(0, 1))
        rig.write((b"k", b"v"))
        await rig.flusher.drain()
        rig.lose_offsets(epoch=1)
        rig.lead_offsets(epoch=2, replicas=(0, 1))
        await until(lambda: made[-1].of(RecordsLoaded))
        await asyncio.sleep(0.05)
        assert rig.offsets().replica.high_watermark == 0
        assert not led(rig).loaded
        assert made[-1].of(Loaded) == []
        rig.follower_fetches()
        assert (await loaded(rig)) is made[-1]


@on_uvloop
async def test_a_read_that_was_overtaken_is_made_again(tmp_path, made, monkeypatch):
    async with GroupRig(tmp_path) as rig:
        rig.lead_offsets()
        await loaded(rig)
        rig.write((b"k", b"v"))
        await rig.flusher.drain()
        rig.lose_offsets(epoch=1)
        log, failures = rig.offsets().log, [ReadInterrupted("cut"), ReadInterrupted("cut")]
        plan_read = type(log).plan_read

        def interrupted(self, *arguments, **named):
            if failures:
                raise failures.pop()
            return plan_read(self, *arguments, **named)

        monkeypatch.setattr(type(log), "plan_read", interrupted)
        rig.lead_offsets(epoch=2)
        assert loaded_records(await loaded(rig)) == [(b"k", b"v")]
        assert failures == []
        assert len(made) == 2, "by the same coordinator"


@on_uvloop
@pytest.mark.parametrize(
    ("byte", "mask"),
    [(0, 0x80), (6, 0x40), (8, 0xFF), (9, 0x01), (10, 0x01), (16, 0x01), (23, 0x01), (57, 0xFF), (66, 0x04)],
    ids=["base falls", "base leaps", "negative length", "too long", "longer", "magic", "delta", "count", "record"],
)
async def test_a_log_with_a_damaged_batch_is_not_served(tmp_path, made, byte, mask):
    async with GroupRig(tmp_path) as rig:
        rig.lead_offsets()
        await loaded(rig)
        places = []
        for number in range(5):
            places.append(rig.offsets().log.active.size)
            rig.write((b"k%d" % number, b"v"))
        await rig.flusher.drain()
        rig.lose_offsets(epoch=1)
        log = rig.offsets().log
        log.tail.clear()
        with (log.disk.root / log.active.path).open("r+b") as file:
            file.seek(places[2] + byte)
            (found,) = file.read(1)
            file.seek(places[2] + byte)
            file.write(bytes([found ^ mask]))
        rig.lead_offsets(epoch=2)
        partition = led(rig)
        await until(lambda: 0 not in rig.groups._led)
        assert not partition.loaded
        assert made[-1].of(Loaded) == []


@on_uvloop
async def test_leadership_lost_and_regained_while_loading_loads_anew(tmp_path, made):
    async with GroupRig(tmp_path) as rig:
        rig.lead_offsets(replicas=(0, 1))
        rig.write((b"k", b"v"))
        await rig.flusher.drain()
        first, asked = led(rig), heartbeat()
        first.ask(asked)
        rig.lose_offsets(epoch=1)
        rig.lead_offsets(epoch=2, replicas=(0, 1))
        assert led(rig) is not first
        await asyncio.sleep(0.01)
        assert first._loading.cancelled()
        rig.follower_fetches()
        coordinator = await loaded(rig)
        assert loaded_records(coordinator) == [(b"k", b"v")]
        assert first.coordinator.of(Loaded) == []
        assert not first.loaded
        assert asked.token.response.error_code == ErrorCode.NOT_COORDINATOR


# ---------------------------------------------------------------------------------------------------- leadership


@on_uvloop
async def test_a_leader_that_stays_leader_keeps_its_coordinator(tmp_path, made):
    async with GroupRig(tmp_path) as rig:
        rig.lead_offsets()
        coordinator = await loaded(rig)
        rig.lead_offsets(epoch=1)
        await asyncio.sleep(0)
        assert led(rig).coordinator is coordinator
        assert coordinator.of(Resigned) == []


@on_uvloop
async def test_who_waits_at_the_resignation_is_sent_to_the_new_coordinator(tmp_path, made):
    async with GroupRig(tmp_path) as rig:
        rig.lead_offsets()
        coordinator = await loaded(rig)
        partition, asked = led(rig), [heartbeat() for _ in range(3)]
        for one in asked:
            partition.ask(one)
        # The coordinator forgets one of them; nobody must wait for ever on that account.
        coordinator.waiting.pop()
        rig.lose_offsets(epoch=1)
        assert rig.groups._led == {}
        await until(lambda: all(one.token.response for one in asked))
        assert {one.token.response.error_code for one in asked} == {ErrorCode.NOT_COORDINATOR}
        late = heartbeat()
        partition.ask(late)
        assert late.token.response.error_code == ErrorCode.NOT_COORDINATOR
        assert coordinator.of(Requested) == asked


@on_uvloop
async def test_a_topic_that_was_deleted_and_made_again_has_new_coordinators(tmp_path, made):
    async with GroupRig(tmp_path) as rig:
        rig.lead_offsets()
        await loaded(rig)
        rig.write((b"k", b"v"))
        rig.delete_topic(REF)
        assert rig.groups._led == {}
        rig.lead_offsets(topic_ref(REF.name, uid="second"))
        coordinator = await loaded(rig)
        assert coordinator is not made[0]
        assert loaded_records(coordinator) == []
        assert made[0].of(Resigned)


@on_uvloop
async def test_other_topics_have_no_coordinator(tmp_path, made):
    async with GroupRig(tmp_path) as rig:
        await rig.lead(topic_ref("orders"))
        assert made == []
