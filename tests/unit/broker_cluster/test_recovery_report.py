"""What a broker says of the recovery of its logs, before it registers."""

import asyncio
import contextlib
from dataclasses import replace
from types import SimpleNamespace
from unittest.mock import AsyncMock

import pytest

from kafkalite_broker.broker import Broker
from kafkalite_broker.cluster import recovery_report
from kafkalite_broker.cluster.recovery_report import RecoveryReport
from kafkalite_broker.log.recovery_tally import Left
from kafkalite_core.resources import patches
from kafkalite_core.resources.brokers import parse_broker
from kafkalite_runtime.kube import BROKERS, KubeInvalid
from tests.unit.broker_cluster.conftest import NAMESPACE, eventually, identity_of

pytestmark = pytest.mark.timeout(60)


@pytest.fixture(autouse=True)
def often(monkeypatch):
    monkeypatch.setattr(recovery_report, "FIRST_S", 0.0)
    monkeypatch.setattr(recovery_report, "INTERVAL_S", 0.02)


@contextlib.asynccontextmanager
async def telling(world, settings):
    client = world.new_client()
    report = RecoveryReport(client, settings)
    task = asyncio.create_task(report.run())
    yield report, client, task
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def shown(world):
    return parse_broker(await world.broker()).recovery


async def until(world, logs, incarnation="incarnation-1"):
    wanted = (incarnation, logs)
    async with asyncio.timeout(30):
        while (found := await shown(world)) is None or (found.incarnation, found.remaining_logs) != wanted:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    return found


async def test_it_goes_along_and_the_registration_ends_it(world, settings, linked):
    await world.create_cluster()
    await world.create_broker()
    async with telling(world, settings) as (report, client, _):
        report.progress(7, 9)
        first = await until(world, 7)
        assert (first.remaining_segments, first.started_at[-1]) == (9, "Z")
        report.progress(6, 0)
        assert (await until(world, 6)).started_at == first.started_at
        written = client.writes
        calls = client.calls
        await asyncio.sleep(0.2)
        assert (client.writes, client.calls) == (written, calls), "what is no news is not told again"
    link, _, _ = await linked()
    await link.register(identity_of(settings))
    await eventually(lambda: link.registered)
    assert "recovery" not in (await world.broker())["status"]


async def test_without_an_api_server_or_an_object_it_tries_again(world, settings):
    async with telling(world, settings) as (report, client, task):
        report.progress(5, 0)
        await eventually(lambda: client.calls > 2)
        client.outage = True
        calls = client.calls
        await eventually(lambda: client.calls > calls + 2)
        await world.create_broker()
        client.outage = False
        client.faults = ["lose answer", "lose request"]
        await until(world, 5)
        report.progress(4, 0)
        await until(world, 4)
        await world.client.delete(BROKERS, NAMESPACE, settings.object_name)
        await world.create_broker()
        report.progress(3, 0)
        await until(world, 3)
        assert not task.done()


async def test_what_a_former_process_said_is_over(world, settings):
    await world.create_broker()
    async with telling(world, replace(settings, incarnation="former")) as (report, _, _):
        report.progress(9, 0)
        await until(world, 9, "former")
    async with telling(world, settings) as (report, _, _):
        report.progress(5, 0)
        await until(world, 5)


async def test_a_process_that_another_one_follows_says_nothing_more(world, settings):
    await world.create_broker()
    async with telling(world, settings) as (report, _, task):
        report.progress(9, 0)
        await until(world, 9)
        async with telling(world, replace(settings, incarnation="newer")) as (newer, _, _):
            newer.progress(8, 0)
            await until(world, 8, "newer")
            report.progress(7, 0)
            await eventually(task.done)
    assert (await shown(world)).incarnation == "newer"


async def test_nor_does_one_when_another_one_has_registered(world, settings, linked):
    await world.create_cluster()
    await world.create_broker()
    async with telling(world, settings) as (report, _, task):
        report.progress(9, 0)
        await until(world, 9)
        link, _, _ = await linked(incarnation="newer")
        await link.register(identity_of(replace(settings, incarnation="newer")))
        await eventually(lambda: link.registered)
        report.progress(7, 0)
        await eventually(task.done)
    assert await shown(world) is None


async def test_what_is_late_does_not_land_on_the_registration(world, settings, linked):
    """The end of the recovery waits for no answer, so a write may still be on its way."""
    await world.create_cluster()
    await world.create_broker()
    before = await world.broker()
    async with telling(world, settings) as (report, _, _):
        report.progress(9, 0)
        said = await until(world, 9)
    link, _, _ = await linked()
    await link.register(identity_of(settings))
    await eventually(lambda: link.registered)
    for late in (patches.recovery_begun(before, said), patches.recovery_progress(before["metadata"]["uid"], said)):
        with pytest.raises(KubeInvalid):
            await world.client.json_patch(BROKERS, NAMESPACE, settings.object_name, late, subresource="status")
    assert await shown(world) is None


async def test_a_broker_tells_it_while_it_recovers_and_waits_for_nothing(world, settings):
    await world.create_broker()
    broker = Broker.__new__(Broker)
    broker._client, broker._settings, broker._state = world.new_client(), settings, ""

    async def recover(on_progress):
        on_progress(Left(4, 2))
        return await until(world, 4)

    plane = SimpleNamespace(recover=recover)
    assert (await broker._recover(plane)).remaining_segments == 2
    assert broker._state == "recovering the logs: 4 left, 2 segments of those under way"
    broker._client.outage = True
    plane.recover = AsyncMock(return_value="recovered")
    assert await broker._recover(plane) == "recovered"
    assert all(task.cancelling() for task in asyncio.all_tasks() if task.get_name() == "recovery report")
