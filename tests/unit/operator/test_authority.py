"""The operator when the cluster has another certificate authority: kopf reads it only when it logs in."""

import ssl
from dataclasses import replace

import pytest

from kafkalite_operator import main
from kafkalite_runtime.kube.client import KubeClient
from tests.unit.operator.fakes import eventually


class Authority:
    """Stands in for the file."""

    def __init__(self):
        self.context = ssl.create_default_context()

    def get(self):
        return self.context


@pytest.mark.timeout(120)
async def test_kopf_logs_in_again_with_another_authority(harness, monkeypatch):
    monkeypatch.setattr(main, "TRUST_LOOK_S", 0.05)
    authority = Authority()
    made = KubeClient.from_environment
    monkeypatch.setattr(
        KubeClient,
        "from_environment",
        lambda environ: KubeClient(replace(made(environ).config, authority_file=authority)),
    )
    operator = harness.start_operator()
    await eventually(lambda: operator.watcher is not None and operator.watcher._running is not None)
    authority.context = ssl.create_default_context()
    await eventually(lambda: operator.watcher.restarts == 1)
