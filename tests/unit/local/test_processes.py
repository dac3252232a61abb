import asyncio
import contextlib
import os
import signal
import subprocess
import sys

import pytest

from kafkalite_local.processes import Exit, Watched, adopt, exit_note, spawn
from kafkalite_runtime.home import ProcessRecord, start_time_of

ENV = {"PATH": os.environ["PATH"]}


def run(tmp_path, script):
    return spawn(["/bin/sh", "-c", script], env=ENV, log=tmp_path / "x.log", name="x")


def dead_pid():
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid


async def ended(record, tmp_path):
    async with asyncio.timeout(60):
        return await Watched(record, tmp_path).wait()


async def test_exit_codes_and_output(tmp_path):
    assert await ended(run(tmp_path, "echo out; echo err >&2; exit 3"), tmp_path) == Exit(3)
    assert (tmp_path / "x.log").read_text() == "out\nerr\n"
    assert await ended(run(tmp_path, "kill -9 $$"), tmp_path) == Exit(137, 9)


async def test_a_process_has_its_own_session_and_default_signals(tmp_path):
    record = run(tmp_path, "exec sleep 60")
    assert os.getsid(record.pid) == record.pid
    watched = Watched(record, tmp_path)
    watched.send(signal.SIGTERM)
    async with asyncio.timeout(60):
        assert await watched.wait() == Exit(143, 15)
    watched.send(signal.SIGTERM)


def test_a_program_that_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError):
        spawn(["/absent"], env=ENV, log=tmp_path / "x.log", name="x")


@pytest.fixture
def stranger(tmp_path):
    """A process that is not our child; its parent never waits for it."""
    script = "import subprocess, sys; print(subprocess.Popen(['sleep', '60'], start_new_session=True).pid, flush=True)"
    parent = subprocess.Popen(
        [sys.executable, "-c", script + "; sys.stdin.read()"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    pid = int(parent.stdout.readline())
    yield ProcessRecord(name="x", pid=pid, start_time=start_time_of(pid), started_at="")
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    parent.stdin.close()
    parent.stdout.close()
    parent.wait()


async def test_the_end_of_a_process_that_is_not_our_child(tmp_path, stranger):
    watched = Watched(stranger, tmp_path)
    assert not watched.ended
    os.kill(stranger.pid, signal.SIGTERM)
    async with asyncio.timeout(60):
        # Its parent does not wait for it, so the zombie still tells how it ended.
        assert await watched.wait() == Exit(143, 15)


async def test_an_end_that_somebody_else_noted(tmp_path):
    record = ProcessRecord(name="x", pid=dead_pid(), start_time=12345, started_at="")
    exit_note(tmp_path, record.pid, 12345).write_text("9")
    assert await ended(record, tmp_path) == Exit(137, 9)
    assert await ended(record, tmp_path) == Exit(137), "a note is for one reader; without one it is unknown"


async def test_a_pid_that_now_belongs_to_another_process_is_not_watched(tmp_path):
    record = ProcessRecord(name="x", pid=os.getpid(), start_time=1, started_at="")
    watched = Watched(record, tmp_path)
    assert watched.ended
    watched.send(signal.SIGKILL)  # must not reach us


def test_adoption_is_by_pid_and_start_time(tmp_path):
    path = tmp_path / "r.json"
    ProcessRecord(name="x", pid=os.getpid(), start_time=start_time_of(os.getpid()), started_at="").write(path)
    assert adopt(path).pid == os.getpid()
    ProcessRecord(name="x", pid=os.getpid(), start_time=1, started_at="").write(path)
    assert adopt(path) is None
    assert adopt(tmp_path / "absent") is None
