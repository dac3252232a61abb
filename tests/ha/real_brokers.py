"""Brokers as processes beside a real API server: the kubelet of local mode runs the pods that it is asked for."""

from __future__ import annotations

import json
import shutil
import sys
from typing import TYPE_CHECKING

from kubernetes import client, config

from kafkalite_cli.local_mode.operator_manifest import default_cluster, write_operator_manifest
from kafkalite_local.pytest_plugin import free_ports
from kafkalite_runtime.home import Home
from tests.cluster.processes import Program
from tests.integration.cluster import Cluster

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cluster.control_plane import ControlPlane

ACCOUNT = "kafkalite-broker"


class RealBrokers(Cluster):
    """Operator and brokers of namespace `default`, with what the integration tests know to do with a local cluster."""

    def __init__(self, plane: ControlPlane, folder: Path) -> None:
        self.ports = free_ports()
        super().__init__(folder / "home", self.ports.base)
        self._plane = plane
        self._kubelet: Program | None = None

    def up(self) -> None:
        """Start the kubelet, which starts the operator; the first topic brings the brokers."""
        home = Home(self.home)
        home.create()
        shutil.copy(self._plane.kubeconfig, home.kubeconfig)
        account = {"metadata": {"name": ACCOUNT}, "automountServiceAccountToken": False}
        with config.new_client_from_config(str(home.kubeconfig)) as api:
            client.CoreV1Api(api).create_namespaced_service_account("default", account)
        write_operator_manifest(home, self.ports)
        arguments = ["-m", "kafkalite_local.main", "kubelet", "--home", str(self.home), "--port-base", str(self.port)]
        self._kubelet = Program("kubelet", [sys.executable, *arguments], self.home / "logs" / "kubelet.log")

    def down(self) -> None:
        """Stop the pods, then the kubelet."""
        assert self._kubelet is not None
        import signal

        self._kubelet.process.send_signal(signal.SIGUSR1)
        try:
            self._kubelet.process.wait(60)
        finally:
            self._kubelet.stop()

    def spec(self) -> str:
        return json.dumps(default_cluster(self.ports))
