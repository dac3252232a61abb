"""Tasks that nobody awaits: who is told when one of them fails."""

import asyncio
import contextlib
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from kafkalite_broker import broker as broker_module
from kafkalite_broker.background import watch
from kafkalite_broker.broker import FATAL_EXIT_CODE, Broker
from kafkalite_broker.cluster.settings import BrokerConfig, BrokerSettings
from kafkalite_core.model.listener import Listener
from kafkalite_runtime.kube import KubeClient
from kafkalite_runtime.kube.config import KubeConfig


async def defect():
    raise ZeroDivisionError("a defect")


async def ended(task):
    with contextlib.suppress(ZeroDivisionError, asyncio.CancelledError):
        await task
    await asyncio.sleep(0)  # what was asked to be told is told in the next turn of the loop


async def test_a_failure_is_logged_with_its_traceback_and_told():
    told = []
    with capture_logs() as logs:
        task = asyncio.create_task(defect(), name="registration")
        watch(task, told.append)
        await ended(task)
    assert [str(error) for error in told] == ["a defect"]
    [line] = logs
    assert (line["log_level"], line["task"], line["exc_info"]) == ("error", "registration", told[0])


async def test_the_end_and_a_cancellation_are_no_failures():
    told = []
    for task in (asyncio.create_task(asyncio.sleep(0)), asyncio.create_task(asyncio.sleep(60))):
        watch(task, told.append)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        await ended(task)
    assert told == []


def settings_of(folder: Path) -> BrokerSettings:
    config = BrokerConfig(
        cluster="kafkalite",
        namespace="default",
        listeners=(Listener(name="plain", type="hostport", port=19092, host="127.0.0.1"),),
        metrics_port=19404,
        lease_duration_s=5,
        renew_interval_s=1,
    )
    return BrokerSettings(
        cluster="kafkalite",
        namespace="default",
        pod_name="kafkalite-broker-0",
        pod_uid="",
        broker_id=0,
        node_name="",
        incarnation="incarnation-1",
        data_directory=folder / "data",
        config_path=folder / "broker.json",
        termination_path=folder / "termination",
        broker=config,
    )


@pytest.mark.parametrize("part", ["_link", "_writer"])
async def test_a_defect_that_ends_what_has_to_run_ends_the_process(tmp_path, monkeypatch, part):
    client = KubeClient(KubeConfig(server="http://127.0.0.1:1"))
    monkeypatch.setattr(broker_module.KubeClient, "from_environment", lambda _: client)
    codes = []
    monkeypatch.setattr(broker_module.os, "_exit", codes.append)
    broker = Broker(settings_of(tmp_path), {})
    task = asyncio.create_task(defect())
    watch(task, getattr(broker, part)._on_failed)
    await ended(task)
    assert codes == [FATAL_EXIT_CODE]
    assert "ZeroDivisionError: a defect" in (tmp_path / "termination").read_text()
