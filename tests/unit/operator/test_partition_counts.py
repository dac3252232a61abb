"""Counts of partitions: how they get into a cluster's status, and what the store remembers of them."""

import copy
from dataclasses import replace

from kafkalite_core.controller.actions import UpdateClusterStatus
from kafkalite_core.controller.plan import plan
from kafkalite_core.model.partition_counts import PartitionCounts
from kafkalite_core.resources.manifests import cluster_settings
from kafkalite_operator.executor import Executor
from kafkalite_operator.metrics import OperatorMetrics
from kafkalite_operator.store import Store
from kafkalite_runtime.kube.kinds import CLUSTERS, TOPICS
from tests.unit.operator.test_parts import Clock, NoEvents, OneObject
from tests.unit.resources.builders import cluster_object, partition_json, topic_object


def seen_by(store):
    return store.snapshot(("default", "kafkalite"), controller_epoch=1, observing_since=None, balance_due=False)


def test_the_store_tells_since_when_a_clusters_partitions_are_counted_so():
    clock = Clock()
    store = Store(clock, "image")
    one = {"total": 3, "underReplicated": 1, "offline": 0, "underMinIsr": 0}
    seen = []
    for version, said in (("5", None), ("6", None), ("7", one), ("8", one), ("9", {**one, "offline": 1}), ("10", "x")):
        status = {"partitions": said, "nextBrokerEpoch": int(version)} if said else {"nextBrokerEpoch": int(version)}
        store.apply(CLUSTERS, "MODIFIED", cluster_object(version=version, status=status))
        snapshot = seen_by(store)
        seen.append((snapshot.partitions and snapshot.partitions.offline, snapshot.partitions_seen))
        clock.now += 10.0
    assert seen == [(None, 100.0), (None, 100.0), (0, 120.0), (0, 120.0), (1, 140.0), (None, 150.0)]


def test_the_store_tells_since_when_a_topic_has_partitions_that_are_not_well():
    clock = Clock()
    store = Store(clock, "image")
    whole = partition_json(isr=((0, 7), (1, 8), (2, 9)))
    behind = partition_json(isr=((0, 7),))
    seen = []
    for version, entry in enumerate([behind, partition_json(leader=-1), behind, behind, whole, behind], 5):
        status = {"topicId": "id", "controllerEpoch": 1, "partitions": {"0": entry}}
        store.apply(TOPICS, "MODIFIED", topic_object(status=status, version=str(version)))
        [view] = store.topic_views()
        seen.append((view.behind_since, view.offline_since))
        clock.now += 10.0
    behind_since, offline_since = zip(*seen, strict=True)
    assert behind_since == (100.0, 100.0, 120.0, 120.0, 120.0, 150.0)
    assert offline_since[1:3] == (110.0, 110.0)


async def test_the_counts_of_a_clusters_partitions_are_written_into_its_status():
    for status in (None, {"nextBrokerEpoch": 1}):
        client, store = OneObject(cluster_object(version="7", status=status)), Store(Clock(), "image")
        store.apply(CLUSTERS, "ADDED", copy.deepcopy(client.obj))
        executor = Executor(client, store, OperatorMetrics(), NoEvents())
        counts = PartitionCounts(total=9, under_replicated=4, offline=2, under_min_isr=1)
        [action] = [each for each in plan(seen_by(store), 100.0) if isinstance(each, UpdateClusterStatus)]
        await executor.carry_out(cluster_settings(client.obj), replace(action, partitions=counts), 1)
        told = {"total": 9, "underReplicated": 4, "offline": 2, "underMinIsr": 1}
        assert client.obj["status"]["partitions"] == told
        assert seen_by(store).partitions == counts


class Earlier(OneObject):
    """A definition of an earlier release: `status.partitions` is dropped, and a write that changes nothing is none."""

    async def json_patch(self, kind, namespace, name, operations, **options):
        before = copy.deepcopy(self.obj)
        after = await super().json_patch(kind, namespace, name, operations, **options)
        after["status"].pop("partitions", None)
        if {**after, "metadata": before["metadata"]} == before:
            after = before
        self.obj = copy.deepcopy(after)
        return after


async def test_counts_that_an_earlier_definition_drops_are_not_told_in_every_round():
    clock = Clock()
    client, store = Earlier(cluster_object(version="7", status={"nextBrokerEpoch": 1})), Store(clock, "image")
    store.apply(CLUSTERS, "ADDED", copy.deepcopy(client.obj))
    executor, settings = Executor(client, store, OperatorMetrics(), NoEvents(), clock), cluster_settings(client.obj)

    async def rounds(length_s):
        before = len(client.patches)
        for _ in range(int(length_s / 0.25)):
            clock.now += 0.25
            for action in plan(seen_by(store), clock.now):
                if isinstance(action, UpdateClusterStatus):
                    await executor.carry_out(settings, action, 1)
        return len(client.patches) - before

    assert await rounds(25.0) == 2, "all that is new, and the counts alone, of which nothing came"
    assert 1 <= await rounds(60.0) <= 2, "the definition may be newer by then"
    client.obj["metadata"]["resourceVersion"] = "20"
    store.apply(CLUSTERS, "MODIFIED", copy.deepcopy(client.obj))
    assert await rounds(0.25) == 1, "what somebody else has written is another object"
