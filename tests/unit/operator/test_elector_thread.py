"""The Lease of an operator whose main loop is busy, blocked for ever, or stopped as a whole."""

import asyncio
import contextlib
import json
import os
import signal
import sys
import threading
import time

import pytest
import pytest_asyncio

from kafkalite_core.resources.leases import parse_lease
from kafkalite_core.resources.naming import OPERATOR_LEASE
from kafkalite_local.apiserver.kubeconfig import write_kubeconfig
from kafkalite_local.apiserver.server import ApiServer
from kafkalite_operator.acting import ActingClient, LeaseNotHeldError
from kafkalite_operator.elector import BLOCKED_LIMIT_S, LEASE_DURATION_S, READY_LIMIT_S, Elector
from kafkalite_operator.elector_thread import ElectorThread
from kafkalite_operator.settings import OperatorSettings
from kafkalite_runtime.kube.client import KubeClient
from kafkalite_runtime.kube.kinds import CONFIG_MAPS, LEASES
from tests.unit.operator.fakes import NAMESPACE, eventually
from tests.unit.operator.test_parts import Clock, OneObject

pytestmark = pytest.mark.timeout(240)

LONG_ROUND_S = LEASE_DURATION_S + 3.0


class ServerThread:
    """An API server on a thread of its own: the test blocks its own loop."""

    def __init__(self, home):
        self._home = home
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)

    async def _serve(self):
        server = ApiServer(self._home / "control-plane.db")
        await server.start()
        write_kubeconfig(self._home / "kubeconfig", server.url, server.token)
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        self._ready.set()
        await self._stop.wait()
        await server.stop()

    def __enter__(self):
        self._thread.start()
        assert self._ready.wait(60)
        return {"KUBECONFIG": str(self._home / "kubeconfig")}

    def __exit__(self, *_):
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(60)


class Candidates:
    """Electors on their threads, and a client to look with."""

    def __init__(self, environ):
        self.environ = environ
        self.client = KubeClient.from_environment(environ)
        self.started = []
        self._beat_at = time.monotonic()
        self._beating = asyncio.create_task(self._beat())

    async def _beat(self):
        while True:
            self._beat_at = time.monotonic()
            await asyncio.sleep(0.1)

    def start(self, name, age_s=None):
        settings = OperatorSettings(namespace=NAMESPACE, identity=name)
        age_s = age_s or (lambda: time.monotonic() - self._beat_at)
        elector = ElectorThread(self.client.config, settings, age_s)
        elector.start()
        self.started.append(elector)
        return elector

    async def lease(self):
        return parse_lease(await self.client.get(LEASES, NAMESPACE, OPERATOR_LEASE))

    async def close(self):
        self._beating.cancel()
        for elector in self.started:
            await elector.stop()
            assert not elector._thread.is_alive()
        await self.client.close()


@pytest_asyncio.fixture
async def candidates(tmp_path):
    server = ServerThread(tmp_path)
    environ = await asyncio.to_thread(server.__enter__)
    candidates = Candidates(environ)
    yield candidates
    await candidates.close()
    await asyncio.to_thread(server.__exit__)


def work_for(duration_s):
    """A long round: nothing is awaited, and the interpreter is kept busy."""
    until = time.monotonic() + duration_s
    turns = 0
    while time.monotonic() < until:
        turns += 1
    return turns


async def test_a_round_longer_than_the_lease_does_not_lose_it(candidates):
    busy = candidates.start("busy")
    await asyncio.wait_for(busy.acquired.wait(), 60)
    standby = candidates.start("standby", age_s=lambda: 0.0)
    before = await candidates.lease()
    work_for(LONG_ROUND_S)
    assert busy.held(), "renewed by its thread meanwhile"
    after = await candidates.lease()
    assert (after.holder, after.transitions, busy.terms, standby.terms) == ("busy", before.transitions, 1, 0)
    assert after.renewed > before.renewed


async def test_a_stopped_elector_gives_the_lease_back(candidates):
    first = candidates.start("first")
    await asyncio.wait_for(first.acquired.wait(), 60)
    await first.stop()
    assert not first.held()
    assert (await candidates.lease()).holder == ""
    second = candidates.start("second")
    await asyncio.wait_for(second.acquired.wait(), 60)
    await eventually(lambda: not first.acquired.is_set())


async def test_an_elector_that_fails_begins_again(candidates, monkeypatch):
    elector = candidates.start("one")
    await asyncio.wait_for(elector.acquired.wait(), 60)
    real, failed = Elector.attempt, threading.Event()

    async def fail_once(self):
        if not failed.is_set():
            failed.set()
            raise RuntimeError("a defect")
        return await real(self)

    monkeypatch.setattr(Elector, "attempt", fail_once)
    await eventually(failed.is_set)
    before = await candidates.lease()

    async def renewed():
        return (await candidates.lease()).renewed > before.renewed

    await eventually(renewed)
    assert elector.held()


async def test_who_is_blocked_for_ever_leaves_the_lease_to_another():
    client, clock, age = OneObject(), Clock(), 0.0
    blocked = Elector(client, namespace="ns", identity="a", clock=clock, main_loop_age_s=lambda: age)
    standby = Elector(client, namespace="ns", identity="b", clock=clock)
    while not standby.held():
        assert age < BLOCKED_LIMIT_S + LEASE_DURATION_S + 2.0, "it renews for ever"
        await blocked.turn()
        await standby.turn()
        assert not (blocked.held() and standby.held())
        clock.now += 0.5
        age += 0.5
    assert age >= BLOCKED_LIMIT_S, "a long round is no death"
    assert not blocked.held()
    age = 0.0
    await blocked.turn()
    assert not blocked.held(), "it comes back as one who waits"


async def test_who_is_blocked_does_not_begin():
    client, clock = OneObject(), Clock()
    blocked = Elector(client, namespace="ns", identity="a", clock=clock, main_loop_age_s=lambda: READY_LIMIT_S)
    await blocked.turn()
    assert client.obj is None
    assert blocked.terms == 0


async def test_the_acting_client_sends_nothing_without_the_lease(candidates):
    held = True
    client = ActingClient(candidates.client.config, lambda: held)
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": NAMESPACE}}
    await client.create(CONFIG_MAPS, NAMESPACE, body)
    held = False
    for write in (
        client.create(CONFIG_MAPS, NAMESPACE, {**body, "metadata": {"name": "b"}}),
        client.merge_patch(CONFIG_MAPS, NAMESPACE, "a", {"data": {"x": "1"}}),
        client.json_patch(CONFIG_MAPS, NAMESPACE, "a", [{"op": "add", "path": "/data", "value": {}}]),
        client.replace(CONFIG_MAPS, NAMESPACE, "a", body),
        client.delete(CONFIG_MAPS, NAMESPACE, "a"),
    ):
        with pytest.raises(LeaseNotHeldError, match="does not hold the Lease"):
            await write
    (left,) = (await client.list(CONFIG_MAPS, NAMESPACE)).items
    assert "data" not in left, "reading goes on"
    await client.close()


# A process that writes, waits for a word, and then writes whenever it may: `n` counts its writes.
WRITER = """
import asyncio, json, os, sys, time
import structlog
from kafkalite_operator.acting import ActingClient, LeaseNotHeldError
from kafkalite_operator.elector_thread import ElectorThread
from kafkalite_operator.settings import OperatorSettings
from kafkalite_runtime.kube.config import KubeConfig
from kafkalite_runtime.kube.errors import KubeUnavailable
from kafkalite_runtime.kube.kinds import CONFIG_MAPS

# The log has a stream of its own: its lines come from another thread, in the middle of what is said here.
structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))

async def main():
    config = KubeConfig.from_environment(os.environ)
    elector = ElectorThread(config, OperatorSettings(namespace="default", identity="writer"), lambda: 0.0)
    elector.start()
    await elector.acquired.wait()
    client, count = ActingClient(config, elector.held), 0
    await client.create(CONFIG_MAPS, "default", {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "n"}})
    while count < 3:
        await client.merge_patch(CONFIG_MAPS, "default", "n", {"data": {"n": str(count + 1)}})
        count += 1
    print(json.dumps({"pid": os.getpid()}), flush=True)
    sys.stdin.readline()
    while True:
        try:
            await client.merge_patch(CONFIG_MAPS, "default", "n", {"data": {"n": str(count + 1)}})
            count += 1
        except LeaseNotHeldError:
            break
        except KubeUnavailable:
            continue
    print(json.dumps({"refused": count}), flush=True)

asyncio.run(main())
"""


async def test_who_was_stopped_past_its_lease_looks_before_it_acts(candidates):
    writer = await asyncio.create_subprocess_exec(
        sys.executable, "-c", WRITER, env={**os.environ, **candidates.environ},
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        pid = (await told(writer))["pid"]
        standby = candidates.start("standby")
        os.kill(pid, signal.SIGSTOP)
        await asyncio.wait_for(standby.acquired.wait(), 60)
        # It stands still while it waits: no write has passed the look already, and may come when it goes on.
        writer.stdin.write(b"go on\n")
        await writer.stdin.drain()
        os.kill(pid, signal.SIGCONT)
        assert (await told(writer))["refused"] == 3
        assert await written(candidates) == 3
        assert (await candidates.lease()).holder == "standby"
    finally:
        with contextlib.suppress(ProcessLookupError):
            writer.kill()
        await writer.wait()


async def told(writer):
    """The next thing that the process says."""
    async with asyncio.timeout(60):
        line = await writer.stdout.readline()
    assert line, "it ended"
    return json.loads(line)


async def written(candidates):
    found = await candidates.client.get(CONFIG_MAPS, NAMESPACE, "n")
    return int((found.get("data") or {}).get("n", 0))
