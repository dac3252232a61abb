"""Group commit on the real disk, and what happens when that is full."""

import asyncio
import errno
import os
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import uvloop

from kafkalite_broker.log.flusher import GroupFlusher
from kafkalite_broker.log.strays import UNLISTED_MS
from kafkalite_core.model.config import resolve_topic_config
from kafkalite_core.model.partition import Seen, TopicRef
from tests.unit.storage.stray_tools import NEVER, rules

REF = TopicRef("ns", "orders", "uid-1", "5f0c1c2e-0000-4000-8000-000000000001", "orders")
CONFIG = resolve_topic_config({"segment.bytes": "1024", "file.delete.delay.ms": "0"})


def run(main):
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(asyncio.wait_for(main, 30))


class Volume:
    def __init__(self):
        self.runs = 0

    def run(self):
        self.runs += 1


@pytest.mark.parametrize("volume", [None, Volume()])
def test_one_group_covers_all_logs_and_the_next_what_came_meanwhile(manager, tools, volume):
    one = manager()
    one.open()
    logs = [one.obtain(REF, number, CONFIG)[0] for number in range(6)]

    async def main():
        covered, timed = [], []
        with ThreadPoolExecutor(4) as pool:
            flusher = GroupFlusher(
                asyncio.get_running_loop(),
                pool,
                on_flushed=covered.append,
                on_fatal=lambda error: pytest.fail(repr(error)),
                volume_sync=volume,
                on_timed=timed.append,
            )
            for log in logs:
                tools.fill(log, 2)
                flusher.mark_dirty(log)
                flusher.mark_dirty(log)
            assert flusher.oldest_flush_age_s() >= 0
            await asyncio.sleep(0)
            tools.fill(logs[0], 1)
            flusher.mark_dirty(logs[0])
            await flusher.drain()
            assert flusher.flushes == 2
            assert flusher.oldest_flush_age_s() == 0
            assert [log.flushed_end for log in logs] == [3, 2, 2, 2, 2, 2]
            assert sorted(map(repr, covered)) == sorted(map(repr, [*logs, logs[0]]))
            flusher.mark_dirty(logs[1])  # nothing to do: told at once
            await flusher.drain()
            assert covered[-1] is logs[1]
            assert flusher.flushes == len(timed) == 2
            assert min(timed) > 0

    run(main())


def test_a_group_is_spread_over_as_many_threads_as_there_are_by_then(manager, tools):
    one = manager()
    one.open()
    logs = [one.obtain(REF, number, CONFIG)[0] for number in range(6)]
    parts = []

    async def main():
        with ThreadPoolExecutor(4) as pool:
            submit = pool.submit
            pool.submit = lambda work, part: parts.append(len(part)) or submit(work, part)
            flusher = GroupFlusher(
                asyncio.get_running_loop(),
                pool,
                on_flushed=lambda _: None,
                on_fatal=lambda error: pytest.fail(repr(error)),
                workers=4,
            )
            for workers in (4, 2, 3):
                flusher.workers = workers
                for log in logs:
                    tools.fill(log, 1)
                    flusher.mark_dirty(log)
                await flusher.drain()

    run(main())
    assert parts == [2, 2, 1, 1, 3, 3, 2, 2, 2]


def test_a_flush_in_progress_shows_its_age_and_a_failure_is_told_once(manager, tools, monkeypatch):
    one = manager()
    one.open()
    logs = [one.obtain(REF, number, CONFIG)[0] for number in range(3)]
    release = threading.Event()

    def broken(_descriptor):
        release.wait(10)
        raise OSError(errno.EIO, "injected")

    async def main():
        fatal = asyncio.Event()
        errors = []
        covered = []
        with ThreadPoolExecutor(3) as pool:
            flusher = GroupFlusher(
                asyncio.get_running_loop(),
                pool,
                on_flushed=covered.append,
                on_fatal=lambda error: (errors.append(error), fatal.set()),
            )
            for log in logs:
                tools.fill(log, 1)
                flusher.mark_dirty(log)
            monkeypatch.setattr(os, "fdatasync", broken)
            await asyncio.sleep(0)
            assert flusher.oldest_flush_age_s() >= 0
            assert covered == []
            release.set()
            await fatal.wait()
            flusher.mark_dirty(logs[0])
            await flusher.drain()
            assert flusher.failed
        await asyncio.sleep(0)
        assert len(errors) == 1
        assert isinstance(errors[0].__cause__, OSError)
        assert covered == []
        assert [log.flushed_end for log in logs] == [0, 0, 0]

    run(main())


def test_after_a_failure_nothing_counts_as_flushed(manager, tools, monkeypatch):
    """One thread fails while another one's syncs succeed: what the page cache says is in doubt (R12)."""
    one = manager()
    one.open()
    logs = [one.obtain(REF, number, CONFIG)[0] for number in range(2)]
    real = os.fdatasync
    first = []

    def one_breaks(descriptor):
        if not first:
            first.append(descriptor)
            raise OSError(errno.EIO, "injected")
        real(descriptor)

    async def main():
        fatal = asyncio.Event()
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(2) as pool:
            flusher = GroupFlusher(
                loop,
                pool,
                on_flushed=lambda _log: pytest.fail("counted as flushed"),
                on_fatal=lambda _error: fatal.set(),
            )
            for log in logs:
                tools.fill(log, 1)
            tickets = [(log, log.begin_flush()) for log in logs]
            monkeypatch.setattr(os, "fdatasync", one_breaks)
            flusher._running = 2
            await loop.run_in_executor(pool, flusher._run, tickets[:1])
            await fatal.wait()
            await loop.run_in_executor(pool, flusher._run, tickets[1:])
            await asyncio.sleep(0)
            assert [log.flushed_end for log in logs] == [0, 0]

    run(main())


def test_a_log_set_aside_during_its_flush_is_no_failure(manager, tools, monkeypatch):
    one = manager()
    one.open()
    log, _ = one.obtain(REF, 0, CONFIG)
    tools.fill(log, 5)
    entered, release = threading.Event(), threading.Event()
    real = os.fdatasync

    def slow(descriptor):
        if threading.current_thread() is not threading.main_thread():  # who sets the log aside flushes, too
            entered.set()
            assert release.wait(10)
        real(descriptor)

    async def main():
        with ThreadPoolExecutor(1) as pool:
            flusher = GroupFlusher(
                asyncio.get_running_loop(),
                pool,
                on_flushed=lambda _log: None,
                on_fatal=lambda error: pytest.fail(repr(error)),
            )
            monkeypatch.setattr(os, "fdatasync", slow)
            flusher.mark_dirty(log)
            assert await asyncio.get_running_loop().run_in_executor(None, entered.wait, 10)
            one.set_aside(log, delete_seen=True)
            release.set()
            await flusher.drain()
            assert not flusher.failed

    run(main())


def test_a_full_disk_gives_up_the_reserve_and_the_oldest_strays(manager, tools, clock, monkeypatch):
    one = manager()
    one.open()
    log, _ = one.obtain(REF, 0, CONFIG)
    tools.fill(log, 5)
    tools.flush(log)
    one.set_aside(log, delete_seen=False)
    assert one.disk.exists(".reserve")
    monkeypatch.setattr(one.disk, "free_bytes", lambda: 4096)
    kept = rules(**NEVER)
    assert one.remove_strays(kept) == []
    assert not one.strays_leaving, "nothing has found no room so far"
    one.make_room({})
    assert not one.disk.exists(".reserve")
    assert one.remove_strays(kept) == []
    assert one.strays_leaving
    clock.mono_ms += UNLISTED_MS
    ((_, reason),) = one.remove_strays(kept)  # whoever asks: the disk is still full
    assert "nearly full" in reason
    one.retention_pass({})
    assert not one.disk.exists(".reserve")
    monkeypatch.undo()
    one.retention_pass({})
    assert one.disk.exists(".reserve")


def test_a_start_on_a_full_disk_knows_that_it_is_full(manager, tools, clock, monkeypatch):
    one = manager()
    one.open()
    log, _ = one.obtain(REF, 0, CONFIG)
    tools.fill(log, 5)
    tools.flush(log)
    one.set_aside(log, delete_seen=False)
    one.make_room({})
    one.abandon()
    two = manager()
    monkeypatch.setattr(two.disk, "free_bytes", lambda: 4000)
    two.open()
    two.remove_strays(rules(**NEVER))
    assert two.strays_leaving


def test_a_disk_that_has_room_again_keeps_its_strays(manager, tools, clock, monkeypatch):
    one = manager()
    one.open()
    log, _ = one.obtain(REF, 0, CONFIG)
    tools.fill(log, 5)
    tools.flush(log)
    one.set_aside(log, delete_seen=False)
    monkeypatch.setattr(one.disk, "free_bytes", lambda: 4096)
    one.make_room({})
    one.remove_strays(rules(**NEVER))
    clock.mono_ms += UNLISTED_MS
    monkeypatch.undo()
    one.retention_pass({})
    monkeypatch.setattr(one.disk, "free_bytes", lambda: 4096)
    assert one.remove_strays(rules(**NEVER)) == []
    assert len(one.listed_strays()) == 1


def test_a_full_disk_only_delays_the_metadata(manager, monkeypatch):
    one = manager()
    one.open()
    log, _ = one.obtain(REF, 0, CONFIG)
    one.note_epochs(log, Seen(4, 6), 3)

    def full(*_arguments, **_options):
        raise OSError(errno.ENOSPC, "injected")

    monkeypatch.setattr(one.disk, "open", full)
    one.checkpoint({log: 0})
    monkeypatch.undo()
    one.checkpoint({log: 0})
    one.abandon()
    two = manager()
    two.open()
    assert two.unclaimed()[0][1].leader_epoch == 4
