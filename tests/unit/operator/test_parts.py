"""Executor, Lease reader and metrics against a client that does as it is told."""

import copy
import logging
from dataclasses import replace

import jsonpatch
import kopf
import pytest

from kafkalite_core.controller.actions import ChangePartitions, UpdateTopicStatus
from kafkalite_core.model.errors import ConfigError
from kafkalite_core.model.partition import PartitionChange
from kafkalite_core.model.topic import Condition
from kafkalite_core.resources.manifests import cluster_settings
from kafkalite_core.resources.topics import parse_topic
from kafkalite_operator.executor import Executor
from kafkalite_operator.handlers import configure, first_attempt
from kafkalite_operator.metrics import OperatorMetrics
from kafkalite_operator.settings import OperatorSettings
from kafkalite_operator.store import Store
from kafkalite_operator.telling import grouped, ready_event
from kafkalite_runtime.kube.client import KubeList
from kafkalite_runtime.kube.errors import KubeConflict, KubeInvalid, KubeNotFound, KubeUnavailable
from kafkalite_runtime.kube.kinds import BROKERS, CLUSTERS, TOPICS
from tests.unit.resources.builders import broker_object, cluster_object, partition_json, topic_object


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


class OneObject:
    """A client of a server that holds one object; `down` makes it unreachable, `rule` refuses patches."""

    def __init__(self, obj=None):
        self.obj = obj
        self.down = False
        self.rule = lambda _: True
        self.patches = []

    def _version(self):
        return int(self.obj["metadata"].get("resourceVersion", "0") or 0)

    def _reach(self):
        if self.down:
            raise KubeUnavailable("down", ambiguous=True)

    async def get(self, kind, namespace, name, *, deadline_s=3.0):
        self._reach()
        if self.obj is None:
            raise KubeNotFound(404, "", "")
        return copy.deepcopy(self.obj)

    async def create(self, kind, namespace, body, *, deadline_s=3.0):
        self._reach()
        self.obj = copy.deepcopy(body)
        self.obj["metadata"]["resourceVersion"] = "1"
        return self.obj

    async def replace(self, kind, namespace, name, body, *, subresource="", deadline_s=3.0):
        self._reach()
        if int(body["metadata"]["resourceVersion"]) != self._version():
            raise KubeConflict(409, "", "")
        self.obj = copy.deepcopy(body)
        self.obj["metadata"]["resourceVersion"] = str(self._version() + 1)
        return self.obj

    async def json_patch(self, kind, namespace, name, operations, *, subresource="", deadline_s=3.0):
        self._reach()
        self.patches.append(operations)
        try:
            after = jsonpatch.apply_patch(self.obj, operations)
        except jsonpatch.JsonPatchTestFailed:
            raise KubeInvalid(422, "", "test failed") from None
        if not self.rule(after):
            raise KubeInvalid(422, "", "a rule")
        after["metadata"]["resourceVersion"] = str(self._version() + 1)
        self.obj = after
        return copy.deepcopy(after)

    async def list(self, kind, namespace=None, *, label_selector="", deadline_s=10.0):
        self._reach()
        return KubeList([copy.deepcopy(self.obj)], str(self._version()))


class NoEvents:
    def record(self, *_):
        pass


def executor_on(partitions=8):
    status = {
        "topicId": "id",
        "controllerEpoch": 1,
        "partitions": {str(n): partition_json() for n in range(partitions)},
    }
    client = OneObject(topic_object(spec={"partitions": partitions}, status=status, version="7"))
    store = Store(Clock(), "image")
    store.apply(TOPICS, "ADDED", copy.deepcopy(client.obj))
    return client, store, Executor(client, store, OperatorMetrics(), NoEvents())


def change_all(client):
    topic = parse_topic(client.obj)
    changes = {
        n: PartitionChange(e, replace(e, min_isr=1, partition_epoch=e.partition_epoch + 1))
        for n, e in topic.partitions.items()
    }
    return ChangePartitions(topic=topic.ref, generation=1, changes=changes, reasons=dict.fromkeys(changes, "why"))


async def test_partitions_that_moved_on_do_not_hold_the_others_up():
    client, store, executor = executor_on()
    action = change_all(client)
    client.obj["status"]["partitions"]["3"]["partitionEpoch"] = 12
    client.obj["metadata"]["resourceVersion"] = "8"
    await executor.carry_out(cluster_settings(cluster_object()), action, 2)
    after = parse_topic(client.obj).partitions
    assert [n for n, e in after.items() if e.min_isr == 1] == [0, 1, 2, 4, 5, 6, 7]
    assert parse_topic(store.raw(TOPICS, action.topic.uid)).partitions == after


async def test_a_patch_that_a_rule_refuses_is_halved_down_to_the_culprit():
    client, _, executor = executor_on()
    client.rule = lambda obj: obj["status"]["partitions"]["5"]["minIsr"] != 1
    await executor.carry_out(cluster_settings(cluster_object()), change_all(client), 2)
    after = parse_topic(client.obj).partitions
    assert [n for n, e in after.items() if e.min_isr != 1] == [5]
    assert len(client.patches) <= 8


async def test_an_ambiguous_patch_that_landed_is_not_applied_twice():
    client, _, executor = executor_on(2)
    action = change_all(client)
    await executor.carry_out(cluster_settings(cluster_object()), action, 2)
    epochs = [e.partition_epoch for e in parse_topic(client.obj).partitions.values()]
    await executor.carry_out(cluster_settings(cluster_object()), action, 2)
    assert [e.partition_epoch for e in parse_topic(client.obj).partitions.values()] == epochs


def test_the_store_keeps_the_newest_and_never_revives_the_dead():
    store = Store(Clock(), "image")
    old, new = topic_object(version="7"), topic_object(version="9")
    assert store.apply(TOPICS, "ADDED", new)
    assert not store.apply(TOPICS, "MODIFIED", old)
    assert store.apply(TOPICS, "DELETED", new)
    assert not store.apply(TOPICS, "MODIFIED", topic_object(version="10"))
    assert store.apply(TOPICS, "ADDED", topic_object(version="11", uid="uid-2")), "made again"
    store.relist(TOPICS, [], "12", None)
    assert store.topic_views() == []
    store.apply(TOPICS, "ADDED", topic_object(version="20", uid="uid-3"))
    store.relist(TOPICS, [], "15", None)
    assert len(store.topic_views()) == 1, "it is younger than the list"


def test_brokers_of_one_namespace_are_not_fresh_because_those_of_another_were_read():
    clock = Clock()
    store = Store(clock, "image")
    store.apply(CLUSTERS, "ADDED", cluster_object())

    def age_s():
        told = store.snapshot(("default", "kafkalite"), controller_epoch=1, observing_since=None, balance_due=False)
        return told.brokers_age_s

    assert age_s() == float("inf"), "they have not been read"
    asked_at = clock.now
    clock.now += 5.0
    for namespace, age in (("elsewhere", float("inf")), (None, 5.0)):
        store.relist(BROKERS, [], "7", namespace, asked_at=asked_at)
        assert age_s() == age
    store.relist(BROKERS, [], "8", "default", asked_at=clock.now - 1.0)
    assert age_s() == 1.0
    store.relist(BROKERS, [], "8", "default", asked_at=asked_at)
    assert age_s() == 1.0, "a late answer says nothing newer"


def test_how_long_a_read_of_the_brokers_takes_is_the_shorter_one_of_two():
    """One that took long may have waited in the socket of an operator that stood still."""
    clock = Clock()
    store = Store(clock, "image")
    store.apply(CLUSTERS, "ADDED", cluster_object())
    found = []
    for took in (1.5, 60.0, 2.0, 0.1, 3.0):
        store.relist(BROKERS, [], "7", None, asked_at=clock.now - took)
        told = store.snapshot(("default", "kafkalite"), controller_epoch=1, observing_since=None, balance_due=False)
        found.append(round(told.brokers_read_s, 3))
    assert found == [0.0, 1.5, 2.0, 0.1, 0.1]


def test_how_old_the_clusters_are_is_known_as_it_is_of_the_brokers():
    clock = Clock()
    store = Store(clock, "image")
    store.apply(CLUSTERS, "ADDED", cluster_object())
    found = []
    for kind, asked_at in ((BROKERS, clock.now), (CLUSTERS, clock.now - 0.5), (CLUSTERS, clock.now - 0.25)):
        store.relist(kind, [] if kind is BROKERS else [cluster_object()], "7", "default", asked_at=asked_at)
        told = store.snapshot(("default", "kafkalite"), controller_epoch=1, observing_since=None, balance_due=False)
        found.append((told.clusters_age_s, told.clusters_read_s))
    assert found == [(float("inf"), 0.0), (0.5, 0.0), (0.25, 0.25)]


def test_since_when_a_recovery_does_not_get_on_is_known_whatever_else_changes():
    clock = Clock()
    store = Store(clock, "image")

    def seen_at(version, logs):
        status = {"recovery": {"incarnation": "new", "remainingLogs": logs}}
        store.apply(BROKERS, "MODIFIED", broker_object(0, version=version, status=status))
        return store.brokers_of(("default", "kafkalite"))[0].recovery.seen_at

    first = seen_at("60", 3)
    clock.now += 10
    assert seen_at("61", 3) == first
    assert seen_at("62", 2) == first + 10


def test_the_store_tells_since_when_the_clusters_spec_is_what_it_is():  # S4
    clock = Clock()
    store = Store(clock, "image")
    seen = []
    for version, generation in (("5", 1), ("6", 1), ("7", 2)):
        store.apply(CLUSTERS, "MODIFIED", cluster_object(version=version, generation=generation))
        snapshot = store.snapshot(("default", "kafkalite"), controller_epoch=1, observing_since=None, balance_due=False)
        seen.append((snapshot.generation, snapshot.generation_seen))
        clock.now += 10.0
    assert seen == [(1, 100.0), (1, 100.0), (2, 120.0)]


async def test_a_status_that_was_decided_on_another_spec_is_left_to_the_next_round():  # S4
    client, store, executor = executor_on()
    decided = parse_topic(client.obj)
    condition = Condition(type="DurableFlush", status="True", reason="Flushed")
    action = UpdateTopicStatus(topic=decided.ref, generation=1, conditions=(condition,), in_sync="2/3")
    client.obj["metadata"].update(generation=2, resourceVersion="8")
    store.apply(TOPICS, "MODIFIED", copy.deepcopy(client.obj))
    await executor.carry_out(cluster_settings(cluster_object()), action, 2)
    assert client.patches == []
    await executor.carry_out(cluster_settings(cluster_object()), replace(action, generation=2), 2)
    assert client.obj["status"]["observedGeneration"] == 2
    assert client.obj["status"]["conditions"][0]["reason"] == "Flushed"


def test_the_store_survives_nonsense():
    store = Store(Clock(), "image")
    assert store.apply(TOPICS, "ADDED", topic_object(version="8"))
    assert not store.apply(TOPICS, "MODIFIED", topic_object(status={"partitions": "x"}, version="9"))
    assert not store.apply(BROKERS, "ADDED", broker_object(brokerId="zero"))
    assert not store.apply(TOPICS, "ADDED", {})


def test_settings():
    settings = OperatorSettings.from_environment(
        {
            "POD_NAME": "op-0",
            "POD_UID": "u",
            "KAFKALITE_METRICS_PORT": "9202",
            "KAFKALITE_METRICS_HOST": "127.0.0.1",
            "KAFKALITE_DEFAULT_CLUSTER": '{"replicas": 1}',
        }
    )
    assert settings.identity.startswith("op-0_u_")
    assert (settings.metrics_port, settings.default_cluster, settings.namespace) == (9202, {"replicas": 1}, "default")
    assert (settings.metrics_host, OperatorSettings.from_environment({}).metrics_host) == ("127.0.0.1", "")
    for name, value in [
        ("KAFKALITE_METRICS_HOST", "localhost"),
        ("KAFKALITE_METRICS_PORT", "x"),
        ("KAFKALITE_DEFAULT_CLUSTER", "["),
        ("KAFKALITE_DEFAULT_CLUSTER", "1"),
        ("KAFKALITE_LOG_LEVEL", "loud"),
        ("KAFKALITE_LOG_FORMAT", "xml"),
        ("KAFKALITE_WATCH_NAMESPACES", "a, B"),
        ("KAFKALITE_WATCH_NAMESPACES", "a b"),
        ("KAFKALITE_WATCH_NAMESPACES", "a" * 64),
    ]:
        with pytest.raises(ConfigError, match=name):
            OperatorSettings.from_environment({name: value})
    several = OperatorSettings.from_environment(
        {"KAFKALITE_WATCH_NAMESPACES": " a, team-2 ,", "KAFKALITE_LOG_LEVEL": ""}
    )
    assert (several.watch_namespaces, several.log_level, several.log_json) == (("a", "team-2"), "info", True)


def test_the_names_of_the_metrics():
    names = {metric.name for metric in OperatorMetrics().registry.collect()}
    for wanted in (
        "kafka_controller_kafkacontroller_activecontrollercount",
        "kafka_controller_kafkacontroller_offlinepartitionscount",
        "kafka_controller_kafkacontroller_preferredreplicaimbalancecount",
        "kafka_controller_kafkacontroller_globaltopiccount",
        "kafka_controller_kafkacontroller_globalpartitioncount",
        "kafka_controller_kafkacontroller_activebrokercount",
        "kafka_controller_kafkacontroller_fencedbrokercount",
        "kafka_controller_controllerstats_leaderelectionrateandtimems",
        "kafka_controller_controllerstats_uncleanleaderelections",
        "kafkalite_failover_duration_seconds",
        "kafkalite_cas_latency_seconds",
        "kafkalite_cas_conflicts",
    ):
        assert wanted in names


@pytest.mark.parametrize(
    ("status", "reason", "event"),
    [
        ("True", "Serving", ("Normal", "Ready")),
        ("False", "WaitingForBrokers", ("Normal", "WaitingForBrokers")),
        ("False", "WaitingForCluster", ("Normal", "WaitingForCluster")),
        ("False", "NotEnoughBrokers", ("Warning", "NotEnoughBrokers")),
        ("False", "OfflinePartitions", ("Warning", "OfflinePartitions")),
    ],
)
def test_only_what_does_not_pass_by_itself_is_a_warning(status, reason, event):
    assert ready_event(status, reason) == event


def test_of_kopf_s_attempts_the_first_is_told():
    def told(name, text):
        return first_attempt(logging.LogRecord(name, logging.ERROR, "", 0, text, (), None))

    kopf = "kopf._cogs.clients.watching"
    assert told(kopf, "Request attempt #1 failed; will retry: GET http://x -> ClientConnectorError()")
    assert not told(kopf, "Request attempt #2 failed; will retry: GET http://x -> ClientConnectorError()")
    assert not told(kopf, "Request attempt #31/40 failed; escalating: GET http://x")
    assert told(kopf, "Watch-stream is gone")
    assert told("kafkalite_operator.elector", "Request attempt #2 failed; will retry")


@pytest.mark.parametrize(
    ("policy", "annotations", "waits"),
    [("Retain", {}, True), ("Delete", {}, False), ("Delete", {"kafkalite.io/adopt-strays": "true"}, True)],
)
def test_the_store_tells_whose_data_a_new_topic_may_take_over(policy, annotations, waits):
    store = Store(Clock(), "image")
    store.apply(CLUSTERS, "ADDED", cluster_object())
    old = topic_object(
        spec={"partitions": 1, "replicas": 3, "deletionPolicy": policy},
        status={"topicId": "t", "partitions": {"0": partition_json()}},
    )
    store.apply(TOPICS, "ADDED", old)
    assert store.forget(TOPICS, old["metadata"]["uid"])
    new = topic_object(uid="another", spec={"partitions": 1, "replicas": 3}, annotations=annotations)
    store.apply(TOPICS, "ADDED", new)
    snapshot = store.snapshot(("default", "kafkalite"), controller_epoch=1, observing_since=None, balance_due=False)
    (view,) = snapshot.topics.values()
    assert view.left_by == (frozenset({0, 1, 2}) if waits else frozenset())


def test_kopf_copies_no_object_to_compare_it():
    settings = kopf.OperatorSettings()
    configure(settings)
    body = kopf.Body(topic_object(status={"topicId": "id"}, version="1"))
    storage = settings.persistence.diffbase_storage
    assert (storage.build(body=body, extra_fields=None), storage.fetch(body=body)) == ({}, None)


def test_the_log_groups_partitions_by_the_reason_of_their_change():
    reasons = {0: "broker 1 is fenced", 1: "broker 1 is fenced", 2: "another", 3: "not applied"}
    assert grouped(reasons, [0, 1, 2]) == {"broker 1 is fenced": [0, 1], "another": [2]}
