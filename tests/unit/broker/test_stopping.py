"""How a broker ends: when it hands over, what breaks that off, and what its directory learns of a registration."""

import asyncio
from types import SimpleNamespace

import pytest
from structlog.testing import capture_logs

from kafkalite_broker import broker as broker_module
from kafkalite_broker.broker import FATAL_EXIT_CODE, SUPERSEDED_EXIT_CODE, Broker
from kafkalite_core.model.cluster import BrokerState
from kafkalite_core.model.errors import StorageError
from kafkalite_core.storage.errors import DiskFailure
from kafkalite_runtime.kube import KubeClient
from kafkalite_runtime.kube.config import KubeConfig
from tests.unit.broker.test_background import settings_of

pytestmark = pytest.mark.timeout(60)


class Link:
    """Confirms no state, and keeps which were wanted."""

    broker_epoch, registration = 5, "registration"

    def __init__(self):
        self.states = []
        self.hangs = asyncio.Event()
        self.asked = asyncio.Event()

    async def set_state(self, state, **_):
        self.states.append(state)
        self.asked.set()
        await self.hangs.wait()
        return False


async def nothing():
    """Nothing has to be done."""


@pytest.fixture
def broker(tmp_path, monkeypatch):
    client = KubeClient(KubeConfig(server="http://127.0.0.1:1"))
    monkeypatch.setattr(broker_module.KubeClient, "from_environment", lambda _: client)
    broker = Broker(settings_of(tmp_path), {})
    broker._link = Link()
    broker._endpoint = SimpleNamespace(start=nothing)
    monkeypatch.setattr(broker, "_close", nothing)
    partitions = SimpleNamespace(
        led_count=lambda: 0, awaited_count=lambda: 0, changed=asyncio.Event(), brokers_changed=lambda: None
    )
    plane = SimpleNamespace(partitions=partitions, logs=SimpleNamespace(disk="disk"))

    async def start():
        broker._plane, broker._serving = plane, True
        await broker._link.set_state(BrokerState.RUNNING)

    monkeypatch.setattr(broker, "_start", start)
    return broker


async def test_who_serves_hands_over_though_running_was_never_confirmed(broker):
    running = asyncio.create_task(broker.run())
    await broker._link.asked.wait()
    broker._link.hangs.set()
    broker.stop()
    assert await running == 0
    assert broker._link.states == [BrokerState.RUNNING, BrokerState.SHUTTING_DOWN]


async def test_who_does_not_serve_yet_has_nothing_to_hand_over(broker, monkeypatch):
    begun = asyncio.Event()

    async def start():
        begun.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(broker, "_start", start)
    running = asyncio.create_task(broker.run())
    await begun.wait()
    broker.stop()
    assert await running == 0
    assert broker._link.states == []


async def test_superseded_it_hands_nothing_over(broker):  # R8
    running = asyncio.create_task(broker.run())
    await broker._link.asked.wait()
    broker._superseded("a newer one")
    assert await running == SUPERSEDED_EXIT_CODE
    assert broker._link.states == [BrokerState.RUNNING]


async def test_superseded_while_it_hands_over_it_ends_at_once(broker):  # R8
    link = broker._link
    link.hangs.set()
    running = asyncio.create_task(broker.run())
    await link.asked.wait()
    await asyncio.sleep(0)
    link.hangs.clear()
    link.asked.clear()
    broker.stop()
    await link.asked.wait()
    assert link.states[-1] is BrokerState.SHUTTING_DOWN
    broker._superseded("a newer one")
    async with asyncio.timeout(30):
        assert await running == SUPERSEDED_EXIT_CODE


@pytest.mark.parametrize("step", ["note_registration", "forget_taken"])
@pytest.mark.parametrize(("error", "codes"), [(StorageError("full"), []), (DiskFailure("EIO"), [FATAL_EXIT_CODE])])
async def test_what_the_directory_cannot_note_of_a_registration(broker, monkeypatch, step, error, codes):
    done, ended = [], []

    def fail(_disk, *_arguments):
        raise error

    for name in ("note_registration", "forget_taken"):
        monkeypatch.setattr(broker_module, name, lambda *_, name=name: done.append(name))
    monkeypatch.setattr(broker_module, step, fail)
    monkeypatch.setattr(broker_module.os, "_exit", ended.append)
    broker._plane = SimpleNamespace(logs=SimpleNamespace(disk="disk"))
    with capture_logs() as logs:
        broker._registered(5)
    assert ended == codes
    assert [line["error"] for line in logs] == [str(error)]
    assert len(done) == 1, "the other step is taken all the same"
