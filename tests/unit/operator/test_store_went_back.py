"""The operator's store when the API server's went back in time (S11)."""

import pytest

from kafkalite_operator.store import LATE_S, Store
from kafkalite_runtime.kube.kinds import BROKERS, CLUSTERS, TOPICS
from tests.unit.resources.builders import broker_object, cluster_object, partition_json, topic_object


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def test_the_store_remembers_the_highest_epochs_of_a_topic_that_went_back():  # S11
    store = Store(Clock(), "image")
    status = {"topicId": "id", "partitions": {"0": partition_json(partition_epoch=9)}}
    assert store.apply(TOPICS, "ADDED", topic_object(status=status, version="7"))
    back = {"topicId": "id", "partitions": {"0": partition_json(partition_epoch=3)}}
    assert store.apply(TOPICS, "MODIFIED", topic_object(status=back, version="8"))
    (view,) = store.topic_views()
    assert view.topic.partitions[0].partition_epoch == 3
    assert view.epochs_seen == {0: (view.topic.partitions[0].leader_epoch, 9)}


def test_epochs_are_those_of_a_topic_id():  # S11
    """The store went back to before the topic was placed, and it was placed again as if it had not been."""
    store = Store(Clock(), "image")
    status = {"topicId": "id", "partitions": {"0": partition_json(partition_epoch=9)}}
    again = {"topicId": "other", "partitions": {"0": partition_json(partition_epoch=0)}}
    store.apply(TOPICS, "ADDED", topic_object(status=status, version="7"))
    store.apply(TOPICS, "MODIFIED", topic_object(status=again, version="8"))
    assert store.topic_views()[0].epochs_seen[0][1] == 0
    back = {"topicId": "id", "partitions": {"0": partition_json(partition_epoch=3)}}
    store.apply(TOPICS, "MODIFIED", topic_object(status=back, version="9"))
    assert store.topic_views()[0].epochs_seen[0][1] == 9


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


def test_a_version_that_comes_again_with_something_else_is_taken_from_a_list_that_was_asked_for_later():  # S11
    clock = Clock()
    store = Store(clock, "image")
    store.apply(CLUSTERS, "ADDED", cluster_object())
    status = {"topicId": "id", "partitions": {"0": partition_json(partition_epoch=9)}}
    lost = topic_object(status=status, version="70")
    store.apply(TOPICS, "ADDED", lost)
    store.apply(BROKERS, "ADDED", broker_object(0, version="60"))
    again = topic_object(status={"topicId": "id", "partitions": {"0": partition_json(partition_epoch=3)}}, version="70")
    clock.now += 5.0
    assert not store.apply(TOPICS, "MODIFIED", again)
    store.relist(TOPICS, [again], "70", None, asked_at=clock.now - 6.0)
    assert store.topic_views()[0].topic.partitions[0].partition_epoch == 9, "the list may be the older of the two"

    def told():
        return store.snapshot(("default", "kafkalite"), controller_epoch=1, observing_since=None, balance_due=False)

    store.relist(TOPICS, [{**lost, "status": dict(status)}], "70", None, asked_at=clock.now - 1.0)
    assert told().outdated == frozenset(), "it is the same"
    store.relist(TOPICS, [again], "70", None, asked_at=clock.now - 1.0)
    assert store.topic_views()[0].topic.partitions[0].partition_epoch == 3
    assert store.topic_views()[0].epochs_seen[0][1] == 9
    assert told().outdated == {0}


def test_a_spec_that_is_not_read_is_no_sign_that_a_version_came_again():  # S11
    clock = Clock()
    store = Store(clock, "image")
    store.apply(TOPICS, "ADDED", topic_object(version="7"))
    unread = topic_object(version="8")
    unread["spec"] = {**unread["spec"], "partitions": "many"}
    store.apply(TOPICS, "MODIFIED", unread)
    assert store.refused
    clock.now += 5.0
    assert not store.apply(TOPICS, "ADDED", unread, listed_at=clock.now - 1.0)


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


def test_who_asked_for_it_is_told_of_every_sign():  # S11
    clock, told = Clock(), []
    store = Store(clock, "image")
    store.on_went_back(lambda: told.append(clock.now))
    store.apply(TOPICS, "ADDED", topic_object(version="90"))
    store.relist(TOPICS, [topic_object(version="95")], "96", None, asked_at=clock.now)
    assert told == []
    clock.now += 5.0
    store.relist(TOPICS, [topic_object(version="30")], "40", None, asked_at=clock.now - 1.0)
    assert told == [clock.now]


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


def test_what_was_known_of_deleted_objects_is_remembered_within_bounds(monkeypatch):  # S11
    monkeypatch.setattr("kafkalite_operator.store.REMEMBERED_MAX", 1)
    clock = Clock()
    store = Store(clock, "image")
    shown = [
        topic_object(
            status={"topicId": "id", "partitions": {"0": partition_json(partition_epoch=epoch)}},
            version=f"{epoch}",
            uid="uid-1",
        )
        for epoch in (9, 3)
    ]
    for topic in (shown[0], topic_object(version="10", uid="uid-2")):
        store.apply(TOPICS, "ADDED", topic)
        store.apply(TOPICS, "DELETED", topic)
    store.apply(TOPICS, "ADDED", shown[1])
    (view,) = store.topic_views()
    assert view.epochs_seen[0][1] == 3, "the oldest of too many is forgotten"
