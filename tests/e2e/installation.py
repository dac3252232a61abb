"""The chart in a namespace, and the pod with the client."""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tests.e2e.cluster import PATIENCE, ROOT, client_pod, image

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.cluster import Cluster

DEFINITIONS = ("kafkalitetopics", "kafkaliteclusters", "kafkalitebrokers")
ZONE = "topology.kubernetes.io/zone"
CHART = ROOT / "helm" / "kafkalite"
RELEASE = "kafkalite"


@contextmanager
def installed(cluster: Cluster) -> Iterator[float]:
    """The chart in a namespace that is gone afterwards, with the definitions unless they were there before.

    Gives when the installation began, on the monotonic clock.
    """
    had_definitions = "kafkalite.io" in cluster.kubectl("get", "crd", "--output=name")
    with namespace(cluster):
        yield install(cluster)
        uninstall(cluster)
    if not had_definitions:
        delete_definitions(cluster, [f"{name}.kafkalite.io" for name in DEFINITIONS])


def delete_definitions(cluster: Cluster, names: list[str]) -> None:
    """Returns when they are gone, asking for it: kubectl has been seen waiting for ever for definitions that were gone."""
    cluster.kubectl("delete", "crd", *names, "--wait=false", "--ignore-not-found")
    gone = {f"customresourcedefinition.apiextensions.k8s.io/{name}" for name in names}
    cluster.until(
        lambda: not gone & set(cluster.kubectl("get", "crd", "--output=name").split()), "definitions are gone", 120
    )


@contextmanager
def namespace(cluster: Cluster) -> Iterator[None]:
    """An empty one with the client, which is gone afterwards with everything in it."""
    cluster.kubectl("delete", "namespace", cluster.namespace, "--ignore-not-found", limit_s=240)
    cluster.kubectl("create", "namespace", cluster.namespace)
    try:
        cluster.apply(client_pod("client"))
        cluster.wait("condition=Ready", "pod/client", limit_s=60)
        yield
    finally:
        cluster.kubectl("delete", "namespace", cluster.namespace, "--ignore-not-found", limit_s=240)


def install(cluster: Cluster, *values: str) -> float:
    """Install the chart. Returns when that began, on the monotonic clock."""
    began = time.monotonic()
    cluster.helm("install", RELEASE, str(CHART), "--wait", f"--timeout={180 * PATIENCE:.0f}s",
                 f"--set=image.repository={image('kafkalite-operator')}",
                 f"--set=brokers.image.repository={image('kafkalite-broker')}",
                 f"--set=defaultCluster.spec.rack.topologyKey={ZONE}",
                 *(f"--set={value}" for value in values), limit_s=180 * PATIENCE + 60)  # fmt: skip
    print(f"helm install: {time.monotonic() - began:.1f} s", file=sys.stderr)
    return began


def uninstall(cluster: Cluster) -> None:
    """Topics and clusters first: the operator clears up behind them. A test may have taken it all away before."""
    cluster.kubectl("delete", "klt,klc", "--all", limit_s=180)
    cluster.helm("uninstall", RELEASE, "--ignore-not-found")
