"""The cluster's DNS is away under load: who replicates already goes on, also over connections that are made meanwhile."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from tests.e2e.cluster import PATIENCE, CommandError, broker_pod
from tests.e2e.load import BROKERS, PARTITIONS, RATE, topic_object, under_load

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.e2e.cluster import Cluster

pytestmark = pytest.mark.timeout(300 * PATIENCE)
AWAY_LIMIT_S = 60
READY_LIMIT_S = 30
SERVED_LIMIT_S = 30
SYSTEM = "--namespace=kube-system"


@pytest.mark.usefixtures("nodes")  # the DNS of a cluster that is not ours stays
def test_the_dns_is_away(cluster: Cluster, tmp_path: Path):
    """A new topic makes followers ask at once: they give up a fetch that waits, and connect to its leader again."""
    # Clients forget addresses after a second: one that gives up a slow answer would find its brokers no more.
    with under_load(cluster, "dns-away", tmp_path, broker_address_ttl=600_000) as load:
        before = cluster.partitions("dns-away")
        with dns_away(cluster, load.pod):
            load.fault("the DNS is away", range(PARTITIONS))
            for turn in range(3):
                cluster.apply(topic_object(f"meanwhile-{turn}", BROKERS, partitions=BROKERS))
                cluster.wait("condition=Ready", f"klt/meanwhile-{turn}", limit_s=READY_LIMIT_S)
                load.acknowledged(RATE, limit_s=SERVED_LIMIT_S)
            load.served(limit_s=SERVED_LIMIT_S)
        assert cluster.partitions("dns-away") == before, "nobody was without a leader, or out of sync"
        cluster.kubectl("delete", *(f"klt/meanwhile-{turn}" for turn in range(3)), limit_s=120)


@contextmanager
def dns_away(cluster: Cluster, pod: str) -> Iterator[None]:
    """No pod of CoreDNS, and no answer in `pod`, for the body."""
    count = cluster.get(SYSTEM, "deploy/coredns")["spec"]["replicas"]
    cluster.kubectl(SYSTEM, "scale", "deploy/coredns", "--replicas=0")
    try:
        cluster.until(lambda: not resolves(cluster, pod), "no name is resolved", AWAY_LIMIT_S)
        yield
    finally:
        cluster.kubectl(SYSTEM, "scale", "deploy/coredns", f"--replicas={count}")
        cluster.kubectl(SYSTEM, "rollout", "status", "deploy/coredns", limit_s=120 * PATIENCE)
        cluster.until(lambda: resolves(cluster, pod), "names are resolved again", AWAY_LIMIT_S)


def resolves(cluster: Cluster, pod: str) -> bool:
    """Whether the name of a broker has an address in this pod."""
    name = f"{broker_pod(0)}.kafkalite-brokers.{cluster.namespace}.svc"
    try:
        cluster.kubectl("exec", pod, "--", "python3", "-c", f"import socket; socket.getaddrinfo({name!r}, 9092)")
    except CommandError:
        return False
    return True
