"""Logs of topics that are gone or made again are set aside one after the other, while the loop goes on (S10)."""

import asyncio
import errno
import threading
from contextlib import contextmanager

import pytest

from kafkalite_broker.log import metadata_files
from kafkalite_broker.log.disk import LocalDisk, LocalFile
from kafkalite_broker.log.manager import LogManager
from kafkalite_core.model.errors import BrokerError, StorageError
from kafkalite_core.storage.errors import DiskFailure
from tests.unit.replication.rig import Rig, append, entry, on_uvloop, topic_ref, until

PARTITIONS = 12
WRITE = metadata_files.write_metadata


def led(epoch=0, partition_epoch=0):
    return entry(0, replicas=(0,), epoch=epoch, partition_epoch=partition_epoch)


async def filled(rig, ref=None, partitions=1, **changes):
    ref = await rig.lead(ref, partitions=partitions, **changes)
    for number in range(partitions):
        append(rig.driver(number=number))
    await rig.flusher.drain()
    return ref


@contextmanager
def held(monkeypatch):
    """Nothing can be written that says that a log is a stray, until the event is set."""
    began, go_on = threading.Event(), threading.Event()

    def write(disk, directory, metadata, **named):
        began.set()
        assert go_on.wait(60)
        WRITE(disk, directory, metadata, **named)

    monkeypatch.setattr(metadata_files, "write_metadata", write)
    try:
        yield began, go_on
    finally:
        go_on.set()


@pytest.mark.parametrize("made_again", [False, True])
def test_between_two_logs_the_loop_goes_on_and_it_waits_for_no_disk(tmp_path, made_again):
    @on_uvloop
    async def run():
        loop, here = asyncio.get_running_loop(), threading.get_ident()
        turns, at, waits = 0, [], []

        def turn():
            nonlocal turns
            turns += 1
            loop.call_soon(turn)

        with pytest.MonkeyPatch.context() as patch:
            async with Rig(tmp_path) as rig:
                ref = await filled(rig, partitions=PARTITIONS)
                rig.logs.checkpoint(rig.partitions.high_watermarks())
                rename = rig.logs.disk.rename

                def renamed(source, target):
                    if target.endswith(".stray"):
                        at.append(turns)
                    rename(source, target)

                rig.logs.disk.rename = renamed
                for kind, name in ((LocalFile, "sync"), (LocalDisk, "sync_directory")):
                    real = getattr(kind, name)

                    def wait(*arguments, real=real):
                        waits.append(threading.get_ident())
                        real(*arguments)

                    patch.setattr(kind, name, wait)
                turn()
                rig.delete_topic(ref)
                assert at == [], "the watch goes on first"
                if made_again:
                    rig.see_topic(topic_ref(uid="u2"), {number: led() for number in range(PARTITIONS)})
                await rig.all_set_aside()
                assert rig.partitions.led_count() == (PARTITIONS if made_again else 0)
                assert len(rig.logs.strays()) == len(at) == PARTITIONS
                assert len(set(at)) == PARTITIONS
                assert len(waits) >= 2 * PARTITIONS
                assert here not in waits
                patch.undo()

    run()


@on_uvloop
async def test_a_topic_that_is_made_again_gets_its_logs_as_the_old_ones_go(tmp_path):
    async with Rig(tmp_path) as rig:
        ref = await filled(rig, partitions=PARTITIONS)
        rig.delete_topic(ref)
        again = await rig.lead(topic_ref(uid="u2"), partitions=PARTITIONS)
        await rig.all_set_aside()
        assert rig.partitions.led_count() == PARTITIONS
        assert {driver.log.end_offset for driver in rig.partitions.drivers()} == {0}
        assert {driver.ref for driver in rig.partitions.drivers()} == {again}
        assert [stray.metadata.topic_id for stray in rig.logs.strays()] == [ref.topic_id] * PARTITIONS
        assert all(stray.metadata.delete_seen for stray in rig.logs.strays())


@on_uvloop
async def test_a_topic_that_was_made_again_while_the_broker_was_down_waits_for_the_old_logs(tmp_path):
    async with Rig(tmp_path) as rig:
        ref = await filled(rig, partitions=PARTITIONS)
    async with Rig(tmp_path, epoch=2) as rig:
        rig.see_broker(0, rig.port)
        rig.see_topic(topic_ref(uid="u2"), {number: led() for number in range(PARTITIONS)})
        assert list(rig.partitions.drivers()) == []
        await rig.all_set_aside()
        assert [driver.log.end_offset for driver in rig.partitions.drivers()] == [0] * PARTITIONS
        assert {stray.metadata.topic_id for stray in rig.logs.strays()} == {ref.topic_id}


@on_uvloop
async def test_a_topic_that_is_back_keeps_the_logs_that_are_still_there_and_adopts_the_others(tmp_path):
    with pytest.MonkeyPatch.context() as patch, held(patch) as (began, go_on):
        async with Rig(tmp_path) as rig:
            ref = await filled(rig, partitions=3)
            logs = {driver.number: driver.log for driver in rig.partitions.drivers()}
            rig.delete_topic(ref)
            await until(began.is_set)
            again = topic_ref(uid="u2", topic_id=ref.topic_id)
            rig.see_topic(again, {number: led(1, 1) for number in range(3)})
            assert {driver.number: driver.log for driver in rig.partitions.drivers()} == {1: logs[1], 2: logs[2]}
            go_on.set()
            await rig.all_set_aside()
            assert rig.partitions.led_count() == 3
            assert {driver.log.end_offset for driver in rig.partitions.drivers()} == {1}
            assert logs[0].closed
            assert rig.logs.strays() == []
            assert not any(rig.logs.metadata(driver.log).marked for driver in rig.partitions.drivers())


@on_uvloop
async def test_a_relaxed_log_is_flushed_before_it_is_said_how_far_it_reaches(tmp_path):
    async with Rig(tmp_path) as rig:
        relaxed = {"flush.messages": "1000"}
        ref = await rig.lead(config=relaxed, flush_may_lag=True)
        append(rig.driver())
        rig.see_topic(ref, {0: entry(1, replicas=(1, 2), epoch=1, partition_epoch=1)}, config=relaxed)
        await rig.all_set_aside()
        (stray,) = rig.logs.strays()
        assert (stray.metadata.end_offset, stray.metadata.recovery_point, stray.metadata.moved_away) == (1, 1, True)


@on_uvloop
async def test_the_strays_are_told_once_all_are_set_aside(tmp_path):
    async with Rig(tmp_path) as rig:
        told = []
        rig.partitions.aside.on_strays = lambda: told.append((len(rig.logs.strays()), len(rig.logs.unclaimed())))
        rig.delete_topic(await filled(rig, partitions=3))
        assert len(rig.logs.unclaimed()) == 3, "nobody takes them for set aside"
        await rig.all_set_aside()
        assert told == [(3, 0)]


@pytest.mark.parametrize("error", [StorageError("full"), ZeroDivisionError()])
def test_what_cannot_be_set_aside_is_tried_again_and_holds_up_nothing_else(tmp_path, error):
    @on_uvloop
    async def run():
        tried = []

        def write(disk, directory, metadata, **named):
            if directory == "orders-0":
                tried.append(directory)
                raise error
            WRITE(disk, directory, metadata, **named)

        with pytest.MonkeyPatch.context() as patch:
            async with Rig(tmp_path) as rig:
                ref = await filled(rig, partitions=3)
                patch.setattr(metadata_files, "write_metadata", write)
                rig.delete_topic(ref)
                await rig.all_set_aside()
                assert (tried, rig.logs.strays()) == (["orders-0"], [])
                rig.partitions.tick()
                await rig.all_set_aside()
                assert sorted(stray.metadata.partition for stray in rig.logs.strays()) == [1, 2]
                assert tried == ["orders-0"] * 2
                assert bool(rig.full) == isinstance(error, StorageError)
                patch.undo()
                rig.partitions.tick()
                await rig.all_set_aside()
                assert len(rig.logs.strays()) == 3
                assert all(stray.metadata.delete_seen for stray in rig.logs.strays())
                assert rig.fatal == []

    run()


@pytest.mark.parametrize(("kind", "operation"), [(LocalFile, "sync"), (LocalDisk, "tree_bytes")])
def test_a_disk_that_fails_ends_the_broker(tmp_path, kind, operation):
    @on_uvloop
    async def run():
        with pytest.MonkeyPatch.context() as patch:
            async with Rig(tmp_path) as rig:
                ref = await filled(rig)

                def fail(*_arguments):
                    raise OSError(errno.EIO, "injected")

                patch.setattr(kind, operation, fail)
                rig.delete_topic(ref)
                await rig.all_set_aside()
                assert [type(error) for error in rig.fatal] == [DiskFailure]
                patch.undo()

    run()


@on_uvloop
async def test_a_broker_that_stops_sets_aside_what_it_has_to_and_begins_nothing(tmp_path):
    with pytest.MonkeyPatch.context() as patch, held(patch) as (began, go_on):
        async with Rig(tmp_path) as rig:
            ref = await filled(rig, partitions=3)
            rig.delete_topic(ref)
            await rig.lead(topic_ref(uid="u2"), partitions=3)
            await until(began.is_set)
            assert not await rig.partitions.aside.finished(0.01)
            stopping = asyncio.create_task(rig.partitions.aside.stop())
            await asyncio.sleep(0)
            go_on.set()
            await stopping
            assert len(rig.logs.strays()) == 3
            with pytest.raises(BrokerError):
                rig.driver()


@on_uvloop
async def test_a_broker_that_ends_at_once_sets_aside_no_more(tmp_path):
    with pytest.MonkeyPatch.context() as patch, held(patch) as (began, go_on):
        async with Rig(tmp_path) as rig:
            ref = await filled(rig, partitions=3)
            rig.delete_topic(ref)
            await until(began.is_set)
            rig.partitions.aside.close()
            assert await rig.partitions.aside.finished(60)
            go_on.set()
            rig.partitions.aside.go_on()
            assert rig.logs.strays() == []


@on_uvloop
async def test_it_is_not_idle_before_the_strays_are_told(tmp_path, monkeypatch):
    """Whoever looks at what is left in its place in between would say that all are listed (S10)."""
    began, go_on, make_way = threading.Event(), threading.Event(), LogManager.make_way

    def slow(logs, key):
        began.set()
        assert go_on.wait(60)
        make_way(logs, key)

    monkeypatch.setattr(LogManager, "make_way", slow)
    async with Rig(tmp_path) as rig:
        lost, again = topic_ref("lost"), topic_ref("again")
        for ref in (lost, again):
            await rig.lead(ref)
            append(rig.driver(ref.name))
        await rig.flusher.drain()
        aside, told = rig.partitions.aside, []
        aside.on_strays = lambda: told.append((len(rig.logs.listed_strays()), aside.idle))
        rig.delete_topic(lost)
        rig.delete_topic(again)
        rig.see_topic(topic_ref("again", uid="u2"), {0: led()})
        await until(began.is_set)
        assert (rig.logs.unclaimed(), aside.idle, told) == ([], False, [])
        go_on.set()
        await rig.all_set_aside()
        assert told == [(2, True)]


@on_uvloop
async def test_a_broker_that_ends_hosts_nothing_more(tmp_path):
    with pytest.MonkeyPatch.context() as patch, held(patch) as (began, go_on):
        async with Rig(tmp_path) as rig:
            await filled(rig)
            rig.see_topic(topic_ref(uid="u2"), {0: led()})
            await until(began.is_set)
            rig.partitions.aside.end_hosting()
            go_on.set()
            await rig.partitions.aside.stop()
            assert list(rig.partitions.drivers()) == []
            assert len(rig.logs.strays()) == 1


@on_uvloop
async def test_a_log_that_is_wanted_back_while_there_is_no_room_to_set_it_aside_is_used_on(tmp_path):
    began, go_on = threading.Event(), threading.Event()

    def full(*_arguments, **_named):
        began.set()
        assert go_on.wait(60)
        raise StorageError("full")

    with pytest.MonkeyPatch.context() as patch:
        async with Rig(tmp_path) as rig:
            ref = await filled(rig)
            log = rig.driver().log
            patch.setattr(metadata_files, "write_metadata", full)
            rig.see_topic(ref, {0: entry(1, replicas=(1, 2), epoch=1, partition_epoch=1)})
            await until(began.is_set)
            rig.see_topic(ref, {0: entry(1, replicas=(1, 0), epoch=1, partition_epoch=2)})
            assert list(rig.partitions.drivers()) == []
            go_on.set()
            await rig.all_set_aside()
            assert [driver.log for driver in rig.partitions.drivers()] == [log]
            assert rig.logs.strays() == []


@on_uvloop
async def test_a_follower_that_waited_for_its_name_is_fetched_for_with_the_next_tick(tmp_path):
    with pytest.MonkeyPatch.context() as patch, held(patch) as (began, go_on):
        async with Rig(tmp_path) as rig:
            await filled(rig)
            rig.see_broker(1, rig.port)
            rig.see_topic(topic_ref(uid="u2"), {0: entry(1)})
            await until(began.is_set)
            go_on.set()
            await rig.all_set_aside()
            [driver] = rig.partitions.drivers()
            assert rig.partitions._fetchers.outdated
            rig.partitions.tick()
            assert rig.partitions._fetchers[1].drivers == {driver}
