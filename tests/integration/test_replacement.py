"""A broker of three real ones is declared gone under load: it comes back with an empty disk, and nothing is lost."""

from __future__ import annotations

import pytest

from kafkalite_cli.verify.load import Load
from tests.integration.cluster import GROUP, NAMESPACE, VERSION, in_sync, started
from tests.integration.test_rolling import uids

RATE = 300
PARTITIONS = 6
NAME = "kafkalite"
VICTIM = f"{NAME}-broker-1"


@pytest.fixture(scope="module")
def own_cluster(tmp_path_factory):
    with started(tmp_path_factory.mktemp("replacement") / "home") as cluster:
        yield cluster


def broker(cluster):
    return cluster.api.get_namespaced_custom_object(GROUP, VERSION, NAMESPACE, "kafkalitebrokers", VICTIM)


def test_a_broker_is_replaced_under_load(own_cluster, topic_name):
    own_cluster.create_topic(topic_name, partitions=PARTITIONS, min_insync_replicas="2")
    own_cluster.wait_topic(topic_name, in_sync)
    before, pods = broker(own_cluster)["status"]["registration"], uids(own_cluster)
    load = Load(own_cluster.bootstrap, topic_name, rate=RATE)
    with load:
        load.wait_acks(RATE, timeout_s=60)
        said = own_cluster.run("replace", "1")
        assert f"claim data-{VICTIM} is deleted with its data" in said.stdout
        assert uids(own_cluster) == pods, "nothing is changed without --yes"
        load.fault("replacement", range(PARTITIONS))
        said = own_cluster.run("replace", "1", "--yes", "--timeout", "200", timeout=240)
        load.wait_acks(RATE, timeout_s=60)
    report = load.report()
    assert report.ok, report
    (pause,) = report.pauses
    print(f"longest pause of a partition {pause.gap_ms:.0f} ms")
    assert "broker 1 has a new volume, and its replicas are in sync" in said.stdout
    after = broker(own_cluster)
    registration = after["status"]["registration"]
    assert registration["directoryId"] != before["directoryId"]
    assert registration["trustedSince"] > before["brokerEpoch"], "its disk was empty"
    assert "kafkalite.io/replace" not in (after["metadata"].get("annotations") or {})
    assert {name for name, uid in uids(own_cluster).items() if pods[name] != uid} == {VICTIM}
    own_cluster.wait_topic(topic_name, in_sync)


def test_the_only_replica_is_not_given_up(own_cluster, topic_name):
    """Nothing happens but words, and these go away with the annotation."""
    own_cluster.create_topic(topic_name, partitions=3, replicas=1)
    own_cluster.wait_topic(topic_name, in_sync)
    before = broker(own_cluster)["status"]["registration"]
    said = own_cluster.run("replace", "1")
    assert f"{topic_name}-" in said.stdout
    assert "would lose its last copy" in said.stdout
    refused = own_cluster.run("replace", "1", "--yes", "--timeout", "5", check=False)
    assert refused.returncode == 1
    assert "nothing is deleted meanwhile" in refused.stderr
    own_cluster.run("replace", "1", "--cancel")
    own_cluster._wait("kafkaliteclusters", NAME, lambda obj: "replacing" not in obj["status"], 60)
    assert broker(own_cluster)["status"]["registration"] == before
