"""Syncs by the kernel's threads, and group commit by way of them."""

import asyncio
import errno
import os
from concurrent.futures import ThreadPoolExecutor

import pytest
import uvloop

from kafkalite_broker.log import kernel_sync
from kafkalite_broker.log.flusher import GroupFlusher
from kafkalite_broker.log.kernel_sync import KernelSync, kernel_sync_for
from kafkalite_core.model.config import resolve_topic_config
from kafkalite_core.model.partition import TopicRef
from kafkalite_core.storage.errors import DiskFailure

REF = TopicRef("ns", "orders", "uid-1", "5f0c1c2e-0000-4000-8000-000000000001", "orders")
CONFIG = resolve_topic_config({"file.delete.delay.ms": "0"})


def run(main):
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(asyncio.wait_for(main, 30))


@pytest.fixture
def descriptors(tmp_path):
    opened = [os.open(tmp_path / str(number), os.O_CREAT | os.O_RDWR | os.O_APPEND) for number in range(4)]
    yield opened
    for descriptor in opened:
        os.close(descriptor)


def test_files_are_synced_and_the_loop_is_told(descriptors):
    async def main():
        loop = asyncio.get_running_loop()
        kernel = KernelSync(loop, in_flight_max=8)
        for turn in range(5):
            codes, done = [], loop.create_future()

            def ended(code, codes=codes, done=done):
                codes.append(code)
                if len(codes) == len(descriptors):
                    done.set_result(None)

            for descriptor in descriptors:
                os.write(descriptor, b"x" * 10_000 * turn)
            assert kernel.begin(descriptors, ended) == 4
            assert kernel.free == 4
            await done
            assert (codes, kernel.free) == ([0] * 4, 8)
        kernel.close()
        kernel.close()

    run(main())


def test_the_descriptor_may_be_closed_while_its_file_is_synced(tmp_path):
    async def main():
        loop = asyncio.get_running_loop()
        kernel, done = KernelSync(loop), loop.create_future()
        descriptor = os.open(tmp_path / "file", os.O_CREAT | os.O_RDWR)
        os.write(descriptor, b"x" * 1_000_000)
        assert kernel.begin([descriptor], done.set_result) == 1
        os.close(descriptor)
        assert await done == 0
        kernel.close()

    run(main())


def test_what_cannot_be_synced_is_left_to_others(descriptors):
    async def main():
        loop = asyncio.get_running_loop()
        kernel, codes = KernelSync(loop, in_flight_max=4), []
        reading, writing = os.pipe()
        assert kernel.begin([writing, descriptors[0]], codes.append) == 0
        assert kernel.begin([], codes.append) == 0
        assert kernel.free == 4
        done = loop.create_future()
        assert kernel.begin([descriptors[0], writing], done.set_result) == 1, "those from the front"
        assert await done == 0
        assert kernel.free == 4
        with pytest.raises(AssertionError):
            kernel.begin([descriptors[0]] * 5, codes.append)
        for descriptor in (reading, writing):
            os.close(descriptor)
        kernel.close()
        assert codes == []

    run(main())


def test_a_system_without_it_says_so(monkeypatch):
    async def main():
        loop = asyncio.get_running_loop()
        monkeypatch.setattr(kernel_sync.platform, "machine", lambda: "abacus")
        assert kernel_sync_for(loop) is None
        monkeypatch.undo()
        monkeypatch.setattr(kernel_sync, "IN_FLIGHT_MAX", 1)
        kernel = kernel_sync_for(loop)
        assert kernel is not None
        kernel.close()
        with pytest.raises(OSError, match="Invalid argument"):
            KernelSync(loop, in_flight_max=0)

    run(main())


# ---------------------------------------------------------------------------------------------------- group commit


class Kernel:
    """Takes files and ends when told."""

    def __init__(self, *, takes=100):
        self.takes = takes
        self.free = 100
        self.begun = []

    def begin(self, descriptors, ended):
        taken = min(self.takes, len(descriptors))
        self.begun.append((list(descriptors), ended))
        return taken


class NoThreads:
    def submit(self, *_arguments):
        raise AssertionError("a thread was asked")


def logs_of(manager, tools, count=3):
    """Logs whose directories and metadata are on disk already."""
    one = manager()
    one.open()
    logs = [one.obtain(REF, number, CONFIG)[0] for number in range(count)]
    for log in logs:
        tools.fill(log, 1)
        tools.flush(log)
    return one, logs


def test_files_alone_need_no_thread(manager, tools):
    one, logs = logs_of(manager, tools)

    async def main():
        loop = asyncio.get_running_loop()
        covered, kernel = [], KernelSync(loop)
        flusher = GroupFlusher(
            loop, NoThreads(), on_flushed=covered.append, on_fatal=lambda e: pytest.fail(repr(e)), kernel_sync=kernel
        )
        for turn in range(3):
            for log in logs:
                tools.fill(log, 2)
                flusher.mark_dirty(log)
            await flusher.drain()
            assert [log.flushed_end for log in logs] == [3 + 2 * turn] * 3
        assert len(covered) == 9
        assert flusher.flushes == 3
        kernel.close()

    run(main())
    one.close({}, broker_epoch=1)


def test_new_directories_are_for_threads(manager, tools):
    one = manager()
    one.open()
    log, _ = one.obtain(REF, 0, CONFIG)

    async def main():
        kernel = Kernel()
        with ThreadPoolExecutor(1) as pool:
            flusher = GroupFlusher(
                asyncio.get_running_loop(),
                pool,
                on_flushed=lambda _: None,
                on_fatal=lambda e: pytest.fail(repr(e)),
                kernel_sync=kernel,
            )
            tools.fill(log, 2)
            flusher.mark_dirty(log)
            await flusher.drain()
        assert log.flushed_end == 2
        assert kernel.begun == []

    run(main())


@pytest.mark.parametrize("takes", [0, 1, 2])
def test_what_the_kernel_does_not_take_is_for_threads(manager, tools, takes):
    _, logs = logs_of(manager, tools)

    async def main():
        kernel = Kernel(takes=takes)
        with ThreadPoolExecutor(2) as pool:
            flusher = GroupFlusher(
                asyncio.get_running_loop(),
                pool,
                on_flushed=lambda _: None,
                on_fatal=lambda e: pytest.fail(repr(e)),
                kernel_sync=kernel,
            )
            for log in logs:
                tools.fill(log, 2)
                flusher.mark_dirty(log)
            await flusher.drain()
            assert [log.flushed_end for log in logs] == [3] * 3
            ((_, ended),) = kernel.begun
            for _ in range(takes):
                ended(0)
            assert [log.flushed_end for log in logs] == [3] * 3
            assert not flusher.failed

    run(main())


def test_an_error_of_one_file_ends_the_broker_and_nothing_counts(manager, tools):
    _, logs = logs_of(manager, tools)

    async def main():
        kernel, fatal = Kernel(), []
        flusher = GroupFlusher(
            asyncio.get_running_loop(),
            NoThreads(),
            on_flushed=lambda _: pytest.fail("counted as flushed"),
            on_fatal=fatal.append,
            kernel_sync=kernel,
        )
        for log in logs:
            tools.fill(log, 2)
            flusher.mark_dirty(log)
        await asyncio.sleep(0)
        ((descriptors, ended),) = kernel.begun
        assert len(descriptors) == 3
        assert flusher.oldest_flush_age_s() > 0
        ended(0)
        ended(errno.EIO)
        ended(0)
        await flusher.drain()
        (error,) = fatal
        assert isinstance(error, DiskFailure)
        assert "Input/output error" in str(error)
        assert "orders-0" in str(error)
        assert [log.flushed_end for log in logs] == [1] * 3

    run(main())


def test_a_log_that_goes_before_its_flush_is_no_failure(manager, tools, monkeypatch):
    one, logs = logs_of(manager, tools, count=2)

    async def main():
        loop = asyncio.get_running_loop()
        kernel = KernelSync(loop)
        flusher = GroupFlusher(
            loop,
            NoThreads(),
            on_flushed=lambda _: None,
            on_fatal=lambda e: pytest.fail(repr(e)),
            kernel_sync=kernel,
        )
        begin = flusher._sync

        def gone_meanwhile(*arguments):
            one.set_aside(logs[0], delete_seen=True)
            return begin(*arguments)

        monkeypatch.setattr(flusher, "_sync", gone_meanwhile)
        tools.fill(logs[0], 1)
        flusher.mark_dirty(logs[0])
        await flusher.drain()
        assert not flusher.failed
        kernel.close()

    run(main())
