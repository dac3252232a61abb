"""A Prometheus outside the cluster, which asks the pods that the chart's monitors select.

It reaches them through the API server, by way of `kubectl proxy`: from outside pods have no addresses. Debian builds
Prometheus without its discovery by Kubernetes' API; what a monitor selects is looked up here, once, and gets the labels
that the Prometheus operator would have it get.
"""

from __future__ import annotations

import re
import socket
import subprocess
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.e2e.installation import CHART, RELEASE
from tests.helm.conftest import load
from tests.helm.prometheus import MONITORED, running_prometheus

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.e2e.cluster import Cluster
    from tests.helm.prometheus import Prometheus

INTERVAL = "2s"


@dataclass(frozen=True, slots=True)
class Target:
    """A port of a pod, and the labels of what is scraped there."""

    namespace: str
    pod: str
    port: int
    labels: dict[str, str]


def documents(cluster: Cluster) -> list[dict[str, Any]]:
    """What the chart adds when it is asked for all of its `metrics`."""
    asked = [f"--set=metrics.{name}.enabled=true" for name in MONITORED["metrics"]]
    shown = [f"--show-only=templates/{name}.yaml" for name in ("metrics", "monitoring")]
    return load(cluster.helm("template", RELEASE, str(CHART), *asked, *shown))


@contextmanager
def scraping(cluster: Cluster, targets: list[Target], folder: Path) -> Iterator[Prometheus]:
    """A server that scrapes them; gone afterwards with its proxy."""
    with proxied(cluster) as proxy:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        config = {
            "global": {"scrape_interval": INTERVAL, "scrape_timeout": INTERVAL},
            "scrape_configs": [scrape_config(target, proxy) for target in targets],
        }
        with running_prometheus(folder, port, config) as server:
            yield server


@contextmanager
def proxied(cluster: Cluster) -> Iterator[str]:
    """Host and port of a `kubectl proxy`."""
    words = [str(cluster.kubectl_binary), "proxy", "--port=0"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=cluster.environment) as process:
        try:
            assert process.stdout is not None
            said = process.stdout.readline()
            match = re.search(r"127\.0\.0\.1:\d+", said)
            assert match is not None, said
            yield match[0]
        finally:
            process.terminate()


def scrape_config(target: Target, proxy: str) -> dict[str, Any]:
    """As of a job with that target alone, whose path leads through the proxy."""
    return {
        "job_name": target.pod,
        "metrics_path": f"/api/v1/namespaces/{target.namespace}/pods/{target.pod}:{target.port}/proxy/metrics",
        "static_configs": [{"targets": [proxy], "labels": target.labels}],
    }


def selected(cluster: Cluster, monitor: dict[str, Any]) -> list[Target]:
    """The targets of a PodMonitor or ServiceMonitor with one endpoint, in its own namespace."""
    selector = ",".join(f"{key}={value}" for key, value in monitor["spec"]["selector"]["matchLabels"].items())
    if monitor["kind"] == "PodMonitor":
        return list(_of_pods(cluster, monitor, selector))
    return list(_of_services(cluster, monitor, selector))


def _of_pods(cluster: Cluster, monitor: dict[str, Any], selector: str) -> Iterator[Target]:
    namespace, name = monitor["metadata"]["namespace"], monitor["metadata"]["name"]
    [endpoint] = monitor["spec"]["podMetricsEndpoints"]
    for pod in cluster.items("pods", f"--selector={selector}"):
        own = {plain(key): pod["metadata"]["labels"][key] for key in monitor["spec"]["podTargetLabels"]}
        for container in pod["spec"]["containers"]:
            for port in container.get("ports", ()):
                if port.get("name") == endpoint["port"]:
                    more = {"job": f"{namespace}/{name}", "container": container["name"], **own}
                    yield _target(namespace, pod["metadata"]["name"], port["containerPort"], endpoint, more)


def _of_services(cluster: Cluster, monitor: dict[str, Any], selector: str) -> Iterator[Target]:
    namespace = monitor["metadata"]["namespace"]
    [endpoint] = monitor["spec"]["endpoints"]
    for service in cluster.items("services", f"--selector={selector}"):
        name = service["metadata"]["name"]
        for part in cluster.items("endpointslices", f"--selector=kubernetes.io/service-name={name}"):
            for port in [each["port"] for each in part["ports"] if each["name"] == endpoint["port"]]:
                for each in part["endpoints"]:
                    more = {"job": name, "service": name}
                    yield _target(namespace, each["targetRef"]["name"], port, endpoint, more)


def _target(namespace: str, pod: str, port: int, endpoint: dict[str, Any], more: dict[str, str]) -> Target:
    return Target(namespace, pod, port, {"namespace": namespace, "pod": pod, "endpoint": endpoint["port"], **more})


def plain(label: str) -> str:
    """The name of a label, as Prometheus may have it."""
    return re.sub(r"\W", "_", label)
