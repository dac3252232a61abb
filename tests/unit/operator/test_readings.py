"""The store and objects that it does not understand: what it still hears of them, and what it remembers of it."""

import pytest
import structlog

from kafkalite_core.controller.conditions import cluster_conditions
from kafkalite_core.model.partition import Partition
from kafkalite_operator import readings
from kafkalite_operator.store import Store
from kafkalite_runtime.kube.kinds import BROKERS, CLUSTERS, TOPICS
from tests.unit.resources.builders import broker_object, cluster_object, partition_json, topic_object

KEY = ("default", "kafkalite")


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def store(clock):
    found = Store(clock, "image")
    found.apply(CLUSTERS, "ADDED", cluster_object())
    return found


def topic(*, leader=0, bad=False, version="7", status=True, **more):
    spec = {"replicaAssignment": {"p0": [0]}} if bad else {}
    shown = (
        {"topicId": "id", "partitions": {"0": partition_json(leader, leader_epoch=4 + leader)}} if status else {"x": 1}
    )
    return topic_object(spec=spec, status=shown, version=version, generation=2 if bad else 1, **more)


def snapshot(store):
    return store.snapshot(KEY, controller_epoch=1, observing_since=None, balance_due=False)


def entry(store) -> Partition:
    (view,) = store.topic_views()
    return view.topic.partitions[0]


def test_an_election_lands_on_a_topic_whose_spec_cannot_be_read(store, clock):
    store.apply(TOPICS, "ADDED", topic())
    with structlog.testing.capture_logs() as logs:
        for version, leader in (("8", 0), ("9", 1), ("10", 2)):
            clock.now += 10.0
            assert store.apply(TOPICS, "MODIFIED", topic(bad=True, leader=leader, version=version))
            assert entry(store).leader == leader
    (view,) = store.topic_views()
    assert (view.topic.generation, view.generation_seen) == (1, 100.0), "the spec that is in force is the first one"
    assert store.raw(TOPICS, "uid-1")["metadata"]["resourceVersion"] == "10"
    assert snapshot(store).complete, "replicas stand in the status"
    (refused,) = store.refused.values()
    assert (refused.kind, refused.namespace, refused.name) == (TOPICS, "default", "orders")
    assert "replicaAssignment.p0: 'p0' is not a partition number" in refused.message
    assert refused.status_heard
    assert [each["event"] for each in logs] == ["spec not understood, its last good one stays in force"]
    assert store.apply(TOPICS, "MODIFIED", topic(version="11"))
    assert not store.refused


def test_without_an_earlier_spec_nothing_is_known_of_a_topic(store):
    assert not store.apply(TOPICS, "ADDED", topic(bad=True))
    assert store.topic_views() == []
    assert not snapshot(store).complete
    (refused,) = store.refused.values()
    assert not refused.status_heard
    store.apply(TOPICS, "DELETED", topic(bad=True))
    assert not store.refused
    assert snapshot(store).complete


def test_a_topic_made_again_has_no_spec_of_its_predecessor(store):
    store.apply(TOPICS, "ADDED", topic())
    store.apply(TOPICS, "DELETED", topic())
    assert not store.apply(TOPICS, "ADDED", topic(bad=True, uid="uid-2", version="9"))
    assert store.topic_views() == []


def test_a_bad_pod_template_keeps_the_cluster_that_is_known(store):
    before = snapshot(store)
    changed = {"replicas": 5, "template": {"pod": {"spec": "x"}}}
    status = {"clusterId": "id", "nextBrokerEpoch": 9, "controller": {"holder": "op", "epoch": 3}}
    assert store.apply(CLUSTERS, "MODIFIED", cluster_object(spec=changed, status=status, version="6", generation=2))
    after = snapshot(store)
    assert (after.cluster.next_broker_epoch, after.cluster.controller_epoch) == (9, 3)
    assert (after.cluster.replicas, after.generation, after.revision) == (3, 1, before.revision)
    assert "spec.template.pod.spec is not an object" in store.refused["cluster-uid"].message


SPOILT = {"pod": {"spec": {"containers": [{"name": "broker", "resources": {"limits": {"cpu": True}}}]}}}
CONTROLLED = {"clusterId": "id", "nextBrokerEpoch": 9, "observedGeneration": 4}


def test_a_cluster_whose_template_was_spoilt_before_this_process_began_is_controlled_as_if_it_were_paused(clock):
    """The definition lets such a template pass, and who begins after that knows no earlier one."""
    store, went_back = Store(clock, "image"), []
    store.on_went_back(lambda: went_back.append(1))
    obj = cluster_object(spec={"replicas": 5, "template": SPOILT}, status=CONTROLLED, version="6", generation=5)
    assert store.apply(CLUSTERS, "ADDED", obj)
    found = snapshot(store)
    assert (found.cluster.replicas, found.cluster.next_broker_epoch, found.cluster.paused) == (5, 9, True)
    assert (found.generation, found.observed_generation) == (4, 4), "nobody says that this spec was acted on"
    (refused,) = store.refused.values()
    assert "limits.cpu is not a quantity" in refused.message
    assert "elections and fencing go on" in refused.consequence
    (paused,) = [one for one in cluster_conditions(found, clock.now) if one.type == "ReconciliationPaused"]
    assert (paused.status, paused.reason) == ("True", "NotUnderstood"), "there is no annotation to take away"
    assert "Correct spec.template" in paused.message
    assert "limits.cpu is not a quantity" in paused.message
    clock.now += 10.0
    store.relist(CLUSTERS, [obj], "7", None, asked_at=clock.now)
    assert not went_back
    assert snapshot(store).cluster.paused
    mended = cluster_object(spec={"replicas": 5}, status=CONTROLLED, version="8", generation=6)
    assert store.apply(CLUSTERS, "MODIFIED", mended)
    assert (snapshot(store).cluster.paused, snapshot(store).generation, store.refused) == (False, 6, {})


@pytest.mark.parametrize(
    ("spec", "status"),
    [
        ({"template": SPOILT}, None),
        ({"template": SPOILT}, {"replicas": 3}),
        ({"template": SPOILT, "replicas": "many"}, CONTROLLED),
        ({"replicas": "many"}, CONTROLLED),
    ],
)
def test_a_cluster_that_is_new_or_of_which_more_is_spoilt_is_passed_over(clock, spec, status):
    store = Store(clock, "image")
    assert not store.apply(CLUSTERS, "ADDED", cluster_object(spec=spec, status=status))
    (refused,) = store.refused.values()
    assert (store.clusters(), refused.consequence) == ({}, "it is passed over")


@pytest.mark.parametrize(
    "pod",
    [
        {"spec": "x"},
        {"spec": {"containers": [None]}},
        {"spec": {"containers": [{"name": ["a"]}]}},
        {"spec": {"volumes": [{"name": {"a": 1}}]}},
    ],
)
def test_a_cluster_that_cannot_be_read_ends_nothing(pod, store):
    obj = cluster_object("other", spec={"template": {"pod": pod}}, uid="uid-2")
    assert not store.apply(CLUSTERS, "ADDED", obj)
    assert list(store.clusters()) == [KEY]
    assert snapshot(store).revision
    assert "spec.template.pod.spec" in store.refused["uid-2"].message


def test_the_fence_of_a_broker_is_heard_whatever_its_spec_says(store):
    store.apply(BROKERS, "ADDED", broker_object(1))
    assert store.apply(
        BROKERS, "MODIFIED", broker_object(1, status={"fencing": {"fencedEpoch": 6}}, version="4", hold=3)
    )
    assert store.brokers_of(KEY)[1].fenced_epoch == 6
    assert store.refused["broker-uid-1"].kind is BROKERS


@pytest.mark.parametrize("later", ["revision", "wanted_amounts", "topic_view", "parse_broker"])
def test_whatever_is_raised_costs_one_object(store, monkeypatch, later):
    """Also what nobody foresaw: the controller of all clusters must not end by it."""
    monkeypatch.setattr(readings, later, lambda *_arguments, **_options: {}["nothing"])
    kind, obj = {
        "topic_view": (TOPICS, topic()),
        "parse_broker": (BROKERS, broker_object(1)),
    }.get(later, (CLUSTERS, cluster_object("other", uid="uid-2")))
    assert not store.apply(kind, "ADDED", obj)
    assert "KeyError" in store.refused[obj["metadata"]["uid"]].message
    assert list(store.clusters()) == [KEY]


def test_what_a_list_lacks_is_not_remembered(store):
    elsewhere = topic(bad=True, uid="uid-2", namespace="elsewhere")
    store.apply(TOPICS, "ADDED", topic(bad=True))
    store.apply(TOPICS, "ADDED", elsewhere)
    store.apply(BROKERS, "ADDED", broker_object(1, hold=3))
    store.relist(TOPICS, [topic(bad=True)], "9", "default")
    assert list(store.refused) == ["uid-1", "uid-2", "broker-uid-1"]
    store.relist(TOPICS, [], "9", "default")
    assert list(store.refused) == ["uid-2", "broker-uid-1"]
    assert snapshot(store).complete
    store.relist(TOPICS, [], "9", None)
    store.relist(BROKERS, [], "9", None)
    assert not store.refused


def test_what_is_remembered_is_bounded_and_who_is_unread_is_not(store, monkeypatch):
    monkeypatch.setattr(readings, "REFUSED_MAX", 2)
    for number in range(4):
        store.apply(TOPICS, "ADDED", topic(bad=True, uid=f"uid-{number}", name=f"t{number}"))
    assert list(store.refused) == ["uid-2", "uid-3"]
    for number in (1, 2, 3):
        store.apply(TOPICS, "DELETED", topic(uid=f"uid-{number}"))
    assert not snapshot(store).complete, "the first one's replicas are not known"
    store.relist(TOPICS, [], "9", None)
    assert snapshot(store).complete


def test_a_broker_of_another_name_is_nobody(store):
    """A copy that somebody made of the object of broker 1, for instance."""
    for name in ("kafkalite-broker-1", "backup-of-it"):
        metadata = {"name": name, "namespace": "default", "uid": f"uid-{name}", "resourceVersion": "7"}
        spec = {"clusterRef": {"name": "kafkalite"}, "brokerId": 1}
        assert store.apply(BROKERS, "ADDED", {"metadata": metadata, "spec": spec})
    (broker,) = store.brokers_of(("default", "kafkalite")).values()
    assert broker.uid == "uid-kafkalite-broker-1"
