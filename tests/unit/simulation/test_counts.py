"""The simulator's operator remembers of partitions, and writes of them, what the real one does."""

from __future__ import annotations

from tests.simulation.operator_store import Store
from tests.unit.operator.test_parts import Clock
from tests.unit.resources.builders import cluster_object, partition_json, topic_object


def test_a_healthy_cluster_counts_its_partitions(healthy) -> None:
    [obj] = healthy.api.objects["clusters"].values()
    assert obj["status"]["partitions"] == {"total": 1, "underReplicated": 0, "offline": 0, "underMinIsr": 0}


def test_its_store_tells_since_when_partitions_are_not_well_and_counted_so() -> None:
    clock = Clock()
    store = Store(clock)
    whole, behind = partition_json(isr=((0, 7), (1, 8), (2, 9))), partition_json()
    seen = []
    for version, (entry, offline) in enumerate([(behind, 0), (behind, 0), (whole, 1), (behind, 1)], 5):
        counts = {"total": 1, "underReplicated": 0, "offline": offline, "underMinIsr": 0}
        cluster = cluster_object(version=str(version), status={"partitions": counts, "nextBrokerEpoch": version})
        store.apply("clusters", "MODIFIED", cluster)
        status = {"topicId": "id", "controllerEpoch": 1, "partitions": {"0": entry}}
        store.apply("topics", "MODIFIED", topic_object(status=status, version=str(version)))
        snapshot = store.snapshot(
            cluster, controller_epoch=1, observing_since=None, balance_due=False, brokers_age_s=0.0
        )
        [view] = snapshot.topics.values()
        seen.append((view.behind_since, snapshot.partitions.offline, snapshot.partitions_seen))
        clock.now += 10.0
    assert seen == [(100.0, 0, 100.0), (100.0, 0, 100.0), (100.0, 1, 120.0), (130.0, 1, 120.0)]
