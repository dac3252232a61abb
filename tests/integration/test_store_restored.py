"""The API server's store is restored from a backup under load: brokers notice, and nothing acknowledged is lost (S11)."""

from __future__ import annotations

import shutil
import signal
import time
from pathlib import Path

import pytest

from kafkalite_cli.verify.load import Load
from tests.integration.cluster import Cluster, in_sync, started
from tests.integration.waiting import wait_until

RATE = 200
PARTITIONS = 3
TOPIC = "restored"


@pytest.fixture
def own_cluster(tmp_path_factory):
    """Of the test's own: a restored store would bring back what other tests have deleted."""
    with started(tmp_path_factory.mktemp("restored") / "home") as cluster:
        yield cluster


def files_of_the_store(home: Path) -> list[Path]:
    return sorted(home.glob("control-plane.db*"))


def back_up(cluster: Cluster, folder: Path) -> None:
    """A copy of the database while nobody writes into it."""
    with cluster.frozen("apiserver"):
        folder.mkdir()
        for file in files_of_the_store(cluster.home):
            shutil.copy2(file, folder)


def restore(cluster: Cluster, folder: Path) -> None:
    """The API server dies, and comes back with the old database."""
    with cluster.frozen("supervisor"):
        pid = cluster.signal("apiserver", signal.SIGKILL)
        # Its parent is frozen, so it stays a zombie; its files are closed at once.
        end = time.monotonic() + 10
        while time.monotonic() < end and open_files(pid):
            time.sleep(0.01)
        for file in files_of_the_store(cluster.home):
            file.unlink()
        for file in folder.iterdir():
            shutil.copy2(file, cluster.home)


def open_files(pid: int) -> int:
    try:
        return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return 0


def test_brokers_go_on_with_their_logs_in_new_epochs(own_cluster, tmp_path):
    cluster = own_cluster
    cluster.create_topic(TOPIC, partitions=PARTITIONS, min_insync_replicas="2")
    with Load(cluster.bootstrap, TOPIC, rate=RATE) as load:
        load.wait_acks(RATE, timeout_s=60)
        back_up(cluster, tmp_path / "backup")
        old = cluster.topic(TOPIC)["status"]["partitions"]
        for broker in (0, 1):
            cluster.signal(broker, signal.SIGKILL)
            cluster.wait_healed()
        load.wait_acks(4 * RATE, timeout_s=60)
        before = cluster.topic(TOPIC)["status"]["partitions"]
        assert any(before[number]["leaderEpoch"] > old[number]["leaderEpoch"] for number in before)
        restore(cluster, tmp_path / "backup")

        def beyond_the_past(topic: dict) -> bool:
            partitions = topic.get("status", {}).get("partitions") or {}
            return in_sync(topic) and all(
                partitions[number]["leaderEpoch"] > before[number]["leaderEpoch"]
                for number in before
                if before[number]["leaderEpoch"] > old[number]["leaderEpoch"]
            )

        cluster.wait_topic(TOPIC, beyond_the_past, timeout=120)
        cluster.wait_healed()
        load.wait_acks(8 * RATE, timeout_s=120)
    verdict = load.report()
    assert verdict.ok, verdict

    def taken_back() -> bool:
        brokers = cluster.api.list_namespaced_custom_object("kafkalite.io", "v1alpha1", "default", "kafkalitebrokers")
        return not any(item["status"].get("holdings") for item in brokers["items"])

    wait_until(taken_back, words="brokers still report what the store had forgotten")
