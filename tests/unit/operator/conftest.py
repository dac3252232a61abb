import asyncio
import contextlib
import gc
import warnings

import pytest
import pytest_asyncio

from kafkalite_core.controller import emptied
from kafkalite_local.apiserver.kubeconfig import write_kubeconfig
from kafkalite_local.apiserver.server import ApiServer
from kafkalite_operator import removal
from kafkalite_operator.main import Operator
from kafkalite_operator.settings import OperatorSettings
from kafkalite_runtime.kube.client import KubeClient
from tests.unit.operator.fakes import FakeBroker

SPEC = {
    "replicas": 3,
    "listeners": [{"name": "plain", "type": "hostport", "port": 9092, "host": "127.0.0.1"}],
    "failureDetection": {"leaseDurationSeconds": 2, "renewIntervalSeconds": 1},
}


class Harness:
    """An API server, operators and brokers in one event loop."""

    def __init__(self, home):
        self.home = home
        self.server = ApiServer(home / "control-plane.db")
        self.operators = {}
        self.brokers = {}

    async def start(self, monkeypatch):
        await self.server.start()
        write_kubeconfig(self.home / "kubeconfig", self.server.url, self.server.token)
        monkeypatch.setenv("KUBECONFIG", str(self.home / "kubeconfig"))
        self.client = KubeClient.from_environment({"KUBECONFIG": str(self.home / "kubeconfig")})

    def settings(self, name):
        return OperatorSettings(namespace="default", identity=name, metrics_port=0, default_cluster=SPEC)

    def start_operator(self, name="operator-1"):
        client = KubeClient.from_environment({"KUBECONFIG": str(self.home / "kubeconfig")})
        operator = Operator(self.settings(name), client)
        stop = asyncio.Event()
        task = asyncio.create_task(operator.run(stop))
        self.operators[name] = (operator, client, stop, task)
        return operator

    async def stop_operator(self, name="operator-1", *, kill=False):
        operator, client, stop, task = self.operators.pop(name)
        if kill:
            # As SIGKILL: the Lease is not released.
            operator.elector._elector.release = lambda: asyncio.sleep(0)
            task.cancel()
        else:
            stop.set()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        if operator.watcher is not None:
            # kopf leaves its HTTP session open when it is cancelled in the middle of its start.
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ResourceWarning)
                assert await asyncio.to_thread(operator.watcher.stop, 8.0), "kopf's thread is still running"
                gc.collect()
        await client.close()

    async def start_brokers(self, count=3):
        for broker_id in range(count):
            self.brokers[broker_id] = FakeBroker(self.client, broker_id)
        await asyncio.gather(*(broker.start() for broker in self.brokers.values()))

    async def close(self):
        for broker in self.brokers.values():
            await broker.freeze()
        await asyncio.gather(*(self.stop_operator(name) for name in list(self.operators)))
        await self.client.close()
        await self.server.stop()


@pytest_asyncio.fixture
async def harness(tmp_path, monkeypatch):
    harness = Harness(tmp_path)
    await harness.start(monkeypatch)
    yield harness
    await harness.close()


@pytest.fixture
def quick(monkeypatch):
    """What passes with time does so at once: brokers notice what is gone as soon as they are heard."""
    monkeypatch.setattr(removal, "POLL_S", 0.05)
    monkeypatch.setattr(emptied, "ADOPTION_GRACE_S", 0.0)
    monkeypatch.setattr(emptied, "PATIENCE_S", 0.0)
