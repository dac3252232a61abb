"""The operator's view of a store that was restored from a backup (S11): older versions, missing objects, doubtful reports."""

import pytest

from kafkalite_operator.store import LATE_S, Store
from kafkalite_runtime.kube.kinds import BROKERS, CLUSTERS, TOPICS
from tests.unit.operator.test_parts import Clock
from tests.unit.resources.builders import broker_object, cluster_object, partition_json, topic_object


def test_an_older_version_is_taken_from_a_list_that_was_asked_for_later_and_from_nothing_else():  # S11
    clock = Clock()
    store = Store(clock, "image")
    status = {"topicId": "id", "partitions": {"0": partition_json(partition_epoch=9)}}
    store.apply(TOPICS, "ADDED", topic_object(status=status, version="70"))
    back = topic_object(status={"topicId": "id", "partitions": {"0": partition_json(partition_epoch=3)}}, version="30")
    assert not store.apply(TOPICS, "MODIFIED", back)
    assert not store.doubtful, "the watch is a little behind the answer to a write"
    clock.now += LATE_S
    assert not store.apply(TOPICS, "MODIFIED", back)
    assert store.doubtful, "the controller lists again"
    store.relist(TOPICS, [back], "71", None, asked_at=clock.now - LATE_S - 1.0)
    assert store.topic_views()[0].topic.partitions[0].partition_epoch == 9, "it may have been on its way since before"
    clock.now += 5.0
    store.relist(TOPICS, [back], "31", None, asked_at=clock.now - 1.0)
    assert store.topic_views()[0].topic.partitions[0].partition_epoch == 3
    assert store.topic_views()[0].epochs_seen[0][1] == 9


def test_what_brokers_reported_before_the_backup_is_told_from_what_they_report_since():  # S11
    clock = Clock()
    store = Store(clock, "image")
    store.apply(CLUSTERS, "ADDED", cluster_object())

    def told():
        return store.snapshot(("default", "kafkalite"), controller_epoch=1, observing_since=None, balance_due=False)

    for broker_id in range(2):
        store.apply(BROKERS, "ADDED", broker_object(broker_id, version="60"))
    assert told().outdated == frozenset()
    clock.now += 5.0
    restored = [broker_object(0, version="30"), broker_object(1, version="60")]
    store.relist(BROKERS, restored, "61", None, asked_at=clock.now - 1.0)
    assert told().outdated == {0, 1}, "nobody has written or renewed a Lease since"
    clock.now += 1.0
    store.apply(BROKERS, "MODIFIED", broker_object(0, version="62"))
    assert told().outdated == {1}


@pytest.mark.parametrize("kind", [TOPICS, BROKERS, CLUSTERS])
def test_what_was_made_after_the_backup_is_gone_also_where_versions_begin_anew(kind):  # S11
    clock = Clock()
    store = Store(clock, "image")
    made = {TOPICS: topic_object, BROKERS: lambda **k: broker_object(3, **k), CLUSTERS: cluster_object}[kind](
        version="903"
    )
    uid = made["metadata"]["uid"]
    store.apply(kind, "ADDED", made)
    store.relist(kind, [], "805", None, asked_at=clock.now)
    assert store.raw(kind, uid) is not None, "it may have been made after the list was read"
    clock.now += 5.0
    store.relist(kind, [], "805", "elsewhere", asked_at=clock.now - 1.0)
    assert store.raw(kind, uid) is not None
    store.relist(kind, [], "805", None, asked_at=clock.now - 1.0)
    assert store.raw(kind, uid) is None


def test_reports_of_brokers_are_doubted_when_an_object_is_gone_that_no_list_could_know():  # S11
    clock = Clock()
    store = Store(clock, "image")
    store.apply(CLUSTERS, "ADDED", cluster_object())
    store.apply(BROKERS, "ADDED", broker_object(0, version="60"))
    store.apply(TOPICS, "ADDED", topic_object(version="90"))
    clock.now += 5.0
    store.relist(TOPICS, [], "70", None, asked_at=clock.now - 1.0)
    told = store.snapshot(("default", "kafkalite"), controller_epoch=1, observing_since=None, balance_due=False)
    assert told.outdated == {0}


def test_a_restored_store_has_what_was_deleted():  # S11
    clock = Clock()
    store = Store(clock, "image")
    later = {"topicId": "id", "partitions": {"0": partition_json(partition_epoch=9)}}
    store.apply(TOPICS, "ADDED", topic_object(status=later, version="9"))
    made = topic_object(status={"topicId": "id", "partitions": {"0": partition_json(partition_epoch=3)}}, version="7")
    store.apply(TOPICS, "ADDED", made)
    store.apply(TOPICS, "DELETED", made)
    store.relist(TOPICS, [made], "8", None, asked_at=clock.now - 1.0)
    assert store.topic_views() == []
    clock.now += 5.0
    store.relist(TOPICS, [made], "8", None, asked_at=clock.now - 1.0)
    (view,) = store.topic_views()
    assert (view.topic.partitions[0].partition_epoch, view.epochs_seen[0][1]) == (3, 9)
