"""The supervisor in the process of the test; its children are programs that wait."""

import asyncio
import contextlib
import errno
import os
import signal
import subprocess

import pytest

from kafkalite_local import supervisor as module
from kafkalite_local.supervisor import Child, Supervisor
from kafkalite_runtime.home import Home, Ports, ProcessRecord, start_time_of, stat_fields


@pytest.fixture
def home(tmp_path):
    home = Home(tmp_path)
    home.create()
    return home


@pytest.fixture
async def supervisor(home, monkeypatch):
    monkeypatch.setattr(module, "become_subreaper", lambda: None)  # the tests have children of their own
    monkeypatch.setattr(module, "_children_of", lambda _parent: [])
    supervisor = Supervisor(home, Ports(20092), {"PATH": os.environ["PATH"]})
    supervisor._children = [Child(name, ["/bin/sleep", "60"]) for name in ("apiserver", "kubelet")]
    yield supervisor
    for child in supervisor._children:
        await supervisor._end(child, signal.SIGTERM, 60)


@pytest.fixture
async def written(monkeypatch):
    """An event for each child: its record is there."""
    write, events = ProcessRecord.write, {name: asyncio.Event() for name in ("apiserver", "kubelet")}

    def noted(record, path):
        write(record, path)
        events[record.name].set()

    monkeypatch.setattr(ProcessRecord, "write", noted)
    return events


@pytest.fixture
def orphan():
    process = subprocess.Popen(["/bin/sleep", "60"])
    yield process
    process.kill()
    process.wait()


@contextlib.asynccontextmanager
async def kept(supervisor, child):
    async with asyncio.timeout(60):
        task = asyncio.create_task(supervisor._keep(child))
        yield task
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def full(*_args, **_more):
    raise OSError(errno.ENOSPC, "No space left on device")


async def test_a_child_without_a_record_is_ended_and_tried_again_until_there_is_space(home, supervisor, monkeypatch):
    write = ProcessRecord.write
    pids, written = [], asyncio.Event()

    def scarce(record, path):
        pids.append(record.pid)
        if len(pids) < 4:
            full()
        write(record, path)
        written.set()

    monkeypatch.setattr(ProcessRecord, "write", scarce)
    child = supervisor._children[0]
    async with kept(supervisor, child) as task:
        await written.wait()
        assert not task.done()
        assert [start_time_of(pid) is None for pid in pids] == [True, True, True, False]
        assert ProcessRecord.read(home.record("apiserver")).pid == pids[-1]
        written.clear()
        os.kill(pids[-1], signal.SIGKILL)
        await written.wait()
        assert start_time_of(pids[-1]), "it is still looked after"


async def test_a_child_that_cannot_be_started_is_tried_again(supervisor, monkeypatch):
    spawn, tries, started = module.spawn, [], asyncio.Event()

    def scarce(*args, **more):
        tries.append(1)
        if len(tries) < 3:
            full()
        started.set()
        return spawn(*args, **more)

    monkeypatch.setattr(module, "spawn", scarce)
    async with kept(supervisor, supervisor._children[0]) as task:
        await started.wait()
        assert not task.done()


async def test_a_part_that_fails_ends_the_supervisor_and_leaves_the_children(home, supervisor, written, monkeypatch):
    keep, said = supervisor._keep, []

    async def broken(child):
        if child.name == "kubelet":
            await keep(child)
        await written["kubelet"].wait()
        raise RuntimeError("a defect")

    class Log:
        def critical(self, text, **more):
            said.append((text, more["part"], str(more["exc_info"])))

        info = warning = error = lambda *_args, **_more: None

    monkeypatch.setattr(supervisor, "_keep", broken)
    monkeypatch.setattr(module, "_log", Log())
    async with asyncio.timeout(60):
        assert await supervisor.run() == 1
    assert said == [("a part of the supervisor failed", "apiserver", "a defect")]
    assert start_time_of(ProcessRecord.read(home.record("kubelet")).pid)


async def test_stopping_ends_the_children(home, supervisor, written):
    async with asyncio.timeout(60):
        running = asyncio.create_task(supervisor.run())
        for event in written.values():
            await event.wait()
        pids = [ProcessRecord.read(home.record(child.name)).pid for child in supervisor._children]
        supervisor.stop()
        assert await running == 0
    assert [start_time_of(pid) for pid in pids] == [None, None]
    assert not any(home.record(child.name).exists() for child in supervisor._children)


async def test_orphans_are_waited_for_though_their_end_cannot_be_noted(supervisor, orphan, monkeypatch):
    waitpid, waited = os.waitpid, asyncio.Event()

    def wait(pid, options):
        found = waitpid(pid, options)
        waited.set()
        return found

    monkeypatch.setattr(module, "_children_of", lambda _parent: [] if waited.is_set() else [orphan.pid])
    monkeypatch.setattr(module, "write_atomically", full)
    monkeypatch.setattr(module.os, "waitpid", wait)
    async with asyncio.timeout(60):
        reaper = asyncio.create_task(supervisor._reap_orphans())
        orphan.kill()
        await waited.wait()
        assert not reaper.done()
        reaper.cancel()
        await asyncio.gather(reaper, return_exceptions=True)
    assert stat_fields(orphan.pid) is None
