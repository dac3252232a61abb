"""The program of `helm test` tells an operator that is ready from everything else."""

from __future__ import annotations

import asyncio
import os
import sys

import pytest
import yaml
from prometheus_client import CollectorRegistry

from kafkalite_operator.metrics import OperatorMetrics
from kafkalite_runtime.telemetry import TelemetryServer
from tests.helm.conftest import CHART, Helm


@pytest.fixture(scope="module")
def container(helm: Helm) -> dict:
    text = helm.run("template", "release", str(CHART), "--show-only=templates/tests/operator.yaml")
    pod = yaml.safe_load(text)
    assert pod["metadata"]["annotations"]["helm.sh/hook"] == "test"
    return pod["spec"]["containers"][0]


async def asked(container: dict, port: int) -> tuple[int, str]:
    assert container["command"] == ["python3", "-c"], "the image has the interpreter of its virtual environment first"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", *container["args"],
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        env=os.environ | {"OPERATOR_URL": f"http://127.0.0.1:{port}"},
    )  # fmt: skip
    output, _ = await process.communicate()
    return process.returncode or 0, output.decode()


async def judge(container: dict, registry: CollectorRegistry, ready: bool | str) -> tuple[int, str]:
    server = TelemetryServer(registry, 0, host="127.0.0.1", readyz=lambda: ready)
    await server.start()
    try:
        return await asked(container, server.port)
    finally:
        await server.stop()


async def test_an_operator_that_is_ready(container: dict):
    code, said = await judge(container, OperatorMetrics().registry, ready=True)
    assert (code, said.splitlines()) == (
        0, ["/healthz 200", "/readyz 200", "kafka_controller_kafkacontroller_activecontrollercount 0.0"],
    )  # fmt: skip


async def test_an_operator_that_is_not_ready(container: dict):
    code, said = await judge(container, OperatorMetrics().registry, ready="the API server has not been reached yet")
    assert code == 1
    assert "/readyz: 503: the API server has not been reached yet" in said


async def test_something_else(container: dict):
    code, said = await judge(container, CollectorRegistry(), ready=True)
    assert code == 1
    assert "it is no operator of KafkaLite" in said


async def test_nobody(container: dict):
    server = TelemetryServer(CollectorRegistry(), 0, host="127.0.0.1")
    await server.start()
    await server.stop()
    code, said = await asked(container, server.port)
    assert code == 1
    assert f"http://127.0.0.1:{server.port} cannot be reached" in said


def test_it_asks_the_service_of_the_release(helm: Helm):
    text = helm.run("template", "prod", str(CHART), "--namespace=kafka", "--set=metrics.port=9999")
    documents = [doc for doc in yaml.safe_load_all(text) if doc]
    [pod] = [doc for doc in documents if doc["kind"] == "Pod"]
    [service] = [doc for doc in documents if doc["kind"] == "Service"]
    [variable] = pod["spec"]["containers"][0]["env"]
    assert variable["value"] == f"http://{service['metadata']['name']}.kafka.svc:{service['spec']['ports'][0]['port']}"
