"""kopf, as the operator uses it: `on.event` handlers that write nothing."""

from __future__ import annotations

import asyncio
import logging

import kopf
import pytest

from tests.contract.conftest import MERGE_PATCH, TOPICS, topic


@pytest.fixture(autouse=True)
def quiet_kopf(caplog):
    caplog.set_level(logging.WARNING, logger="kopf")


async def test_kopf_sees_creation_change_and_deletion(api, ns, kubeconfig, monkeypatch):
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
    registry = kopf.OperatorRegistry()
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.scanning.disabled = True
    seen: asyncio.Queue[tuple[str | None, str, int]] = asyncio.Queue()

    @kopf.on.login(registry=registry)
    def login(**kwargs):
        return kopf.login_with_kubeconfig(**kwargs)

    @kopf.on.event("kafkalite.io", "v1alpha1", "kafkalitetopics", registry=registry)
    async def on_topic(namespace, name, spec, **event):
        if namespace == ns:
            await seen.put((event["type"], name, spec["partitions"]))

    path = TOPICS.format(ns=ns)
    await api.create(path, topic("there-before"))
    stop, ready = asyncio.Event(), asyncio.Event()
    operator = asyncio.create_task(
        kopf.operator(registry=registry, settings=settings, clusterwide=True, stop_flag=stop, ready_flag=ready)
    )
    try:
        async with asyncio.timeout(30):
            assert await seen.get() == (None, "there-before", 3)
            created = await api.create(path, topic("orders"))
            assert await seen.get() == ("ADDED", "orders", 3)
            await api.patch(f"{path}/orders", {"spec": {"partitions": 5}}, MERGE_PATCH)
            assert await seen.get() == ("MODIFIED", "orders", 5)
            await api.call("DELETE", f"{path}/orders")
            assert await seen.get() == ("DELETED", "orders", 5)
        again = (await api.get(f"{path}/there-before")).body["metadata"]
        assert "annotations" not in again
        assert "finalizers" not in again
        assert int(again["resourceVersion"]) < int(created.revision)
    finally:
        stop.set()
        await asyncio.wait_for(operator, 30)
