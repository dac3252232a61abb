"""A Prometheus looks at a running cluster: every panel has data, and the alerts fire when, and only when, they should."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from confluent_kafka import Consumer, Producer
from kubernetes import client, config

from kafkalite_core.resources.naming import broker_labels
from kafkalite_local.pytest_plugin import running_cluster
from tests.helm.conftest import Helm, only
from tests.helm.prometheus import (
    MONITORED,
    Prometheus,
    by_name,
    chosen,
    dashboard,
    put,
    rules,
    running_prometheus,
    targets,
)
from tests.integration.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from kafkalite_local.pytest_plugin import LocalCluster

NAMESPACE, CLUSTER = "default", "kafkalite"  # of local mode
WINDOW = "10s"
LIMIT_S = 60.0

EMPTY_PANELS = {
    "Room on the volumes": "the kubelet of Kubernetes measures volumes; local mode has none",
    "Failed actions": "a kind of action has a series once one has failed",
}
EMPTY_ALERTS = {
    "KafkaLiteDiskFills": "as above",
    "KafkaLiteOperatorActionsFail": "as above",
}
PATIENCE = {
    # What these look at is true for a moment during every fail-over: not here.
    "KafkaLiteFailedProduceRequests": "1h",
    "KafkaLiteEventLoopLag": "1h",
    "KafkaLiteSlowDisk": "1h",
    "KafkaLiteCoordinatorsLoading": "1h",
    # Some scrapes may be late on a busy machine.
    "KafkaLiteScrapeFails": "5s",
    "KafkaLiteActiveControllerCount": "5s",
    # While a replica may lag for no longer than 1.5 s, a busy machine may lose another one for a moment.
    "KafkaLiteUnderMinIsrPartitions": "5s",
}
"""For how long an alert waits here; the others wait not at all."""

TOPICS = [
    {"name": "orders", "spec": {"partitions": 3, "replicas": 3, "config": {"min.insync.replicas": "2"}}},
    {"name": "lonely", "spec": {"partitions": 1, "replicas": 1, "replicaAssignment": {"0": [0]}}},
]


@dataclass
class Story:
    """What happened, and the Prometheus that saw it.

    Attributes:
        phases: Name -> when it began and ended, by the wall clock.
        before: Name -> the alerts that fired already when it began.
        seen: Name -> the alerts that fired at its end.
    """

    prometheus: Prometheus
    phases: dict[str, tuple[float, float]] = field(default_factory=dict)
    before: dict[str, set[str]] = field(default_factory=dict)
    seen: dict[str, dict[str, list[dict[str, Any]]]] = field(default_factory=dict)

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        self.before[name] = set(self.prometheus.firing())
        start = time.time()
        yield
        self.seen[name] = self.prometheus.firing()
        self.phases[name] = (start, time.time())

    def await_firing(self, *names: str) -> None:
        """All of these fire."""
        self._await(lambda firing: firing >= set(names), f"waited for {names}")

    def await_silence(self, *but: str) -> None:
        """Nothing fires but these, or not even these."""
        self._await(lambda firing: firing <= set(but), f"waited for silence but {but}")

    def _await(self, check: Callable[[set[str]], bool], words: str) -> None:
        end = time.monotonic() + LIMIT_S
        while not check(firing := set(self.prometheus.firing())):
            assert time.monotonic() < end, f"{words}: {firing} fire"
            time.sleep(0.2)

    @property
    def whole(self) -> tuple[float, float]:
        return min(start for start, _ in self.phases.values()), max(end for _, end in self.phases.values())


def scrape_config(helm: Helm, cluster: LocalCluster) -> list[dict[str, Any]]:
    """With the labels that the Prometheus operator would give to targets of the chart's monitors."""
    documents = helm.template(MONITORED, namespace=NAMESPACE)
    pods, service = only(documents, "PodMonitor"), only(documents, "Service")
    brokers = []
    for number in range(3):
        name = f"{CLUSTER}-broker-{number}"
        own = broker_labels(CLUSTER, number)
        labels = {"namespace": NAMESPACE, "container": "broker", "pod": name}
        labels |= {re.sub(r"\W", "_", label): own[label] for label in pods["spec"]["podTargetLabels"]}
        labels["endpoint"] = pods["spec"]["podMetricsEndpoints"][0]["port"]
        brokers.append({"targets": [f"127.0.0.1:{cluster.ports.broker_metrics(number)}"], "labels": labels})
    name = service["metadata"]["name"]
    labels = {
        "namespace": NAMESPACE,
        "service": name,
        "pod": "operator-0",
        "container": "operator",
        "endpoint": "metrics",
    }
    operator = [{"targets": [f"127.0.0.1:{cluster.ports.operator_metrics}"], "labels": labels}]
    return [
        {"job_name": f"{NAMESPACE}/{pods['metadata']['name']}", "static_configs": brokers},
        {"job_name": name, "static_configs": operator},
    ]


def impatient(spec: dict[str, Any]) -> dict[str, Any]:
    """The rules with short ranges and little patience."""
    groups = []
    for group in spec["groups"]:
        changed = [
            {**rule, "expr": in_short(rule["expr"]), "for": PATIENCE.get(rule["alert"], "0s")}
            for rule in group["rules"]
        ]
        groups.append(group | {"rules": changed})
    return {"groups": groups}


def in_short(expression: str) -> str:
    return re.sub(r"\[\w+\]", f"[{WINDOW}]", expression)


# --- the story -----------------------------------------------------------------------------------------------------------


def process(cluster: LocalCluster, name: str) -> int:
    """Pid of `kubelet`, of a broker or of the operator."""
    [record] = (cluster.home.root / "run").glob(f"**/*{name}.json")
    return int(json.loads(record.read_text())["pid"])


@contextlib.contextmanager
def stopped(pid: int) -> Iterator[None]:
    """The process stands still."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@contextlib.contextmanager
def lag_time(cluster: LocalCluster, milliseconds: int) -> Iterator[None]:
    """How long a follower may lag, on all brokers."""
    with config.new_client_from_config(str(cluster.kubeconfig)) as api:
        for value in (str(milliseconds), None):
            body = {"spec": {"config": {"replica.lag.time.max.ms": value}}}
            place = ("kafkalite.io", "v1alpha1", NAMESPACE, "kafkaliteclusters", CLUSTER)
            client.CustomObjectsApi(api).patch_namespaced_custom_object(*place, body)
            if value:
                yield


@contextlib.contextmanager
def clients(cluster: LocalCluster) -> Iterator[Callable[[], int]]:
    """A producer and a consumer of a group, busy all the time; gives the number of records that were read so far."""
    stop = threading.Event()
    read = [0]

    def produce() -> None:
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "linger.ms": 20, "log_level": 0})
        while not stop.is_set():
            producer.produce("orders", b"an order")
            producer.poll(0.02)
        producer.flush(10)

    def consume() -> None:
        settings = {"bootstrap.servers": cluster.bootstrap, "group.id": "billing", "auto.offset.reset": "earliest"}
        consumer = Consumer(settings | {"auto.commit.interval.ms": 500, "log_level": 0})
        consumer.subscribe(["orders"])
        while not stop.is_set():
            message = consumer.poll(0.1)
            read[0] += message is not None and message.error() is None
        consumer.close()

    threads = [threading.Thread(target=work) for work in (produce, consume)]
    for thread in threads:
        thread.start()
    try:
        yield lambda: read[0]
    finally:
        stop.set()
        for thread in threads:
            thread.join(30)


def make_topics(cluster: LocalCluster, folder: Path) -> None:
    kind = {"apiVersion": "kafkalite.io/v1alpha1", "kind": "KafkaLiteTopic"}
    objects = [{**kind, "metadata": {"name": topic["name"]}, "spec": topic["spec"]} for topic in TOPICS]
    (folder / "topics.yaml").write_text(yaml.safe_dump_all(objects))
    cluster.apply(folder / "topics.yaml")


@pytest.fixture(scope="module")
def story(helm: Helm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    folder = tmp_path_factory.mktemp("monitoring")
    with contextlib.ExitStack() as stack:
        cluster = stack.enter_context(running_cluster(folder))
        settings = {
            "global": {"scrape_interval": "1s", "scrape_timeout": "900ms", "evaluation_interval": "1s"},
            "rule_files": ["rules.yaml"],
            "scrape_configs": scrape_config(helm, cluster),
        }
        (folder / "rules.yaml").write_text(yaml.safe_dump(impatient(rules(helm, NAMESPACE))))
        # Before the topics: it takes five seconds until it looks at its targets.
        port = cluster.ports.operator_metrics + 1
        told = Story(stack.enter_context(running_prometheus(folder, port, settings)))
        make_topics(cluster, folder)
        read = stack.enter_context(clients(cluster))
        tell(told, cluster, read)
        yield told


def tell(told: Story, cluster: LocalCluster, read: Callable[[], int]) -> None:
    """What happens."""
    prometheus = told.prometheus
    wait_until(lambda: len(prometheus.instant("up == 1")) == 4, LIMIT_S, "not all are scraped", 0.2)
    wait_until(lambda: read() > 0, LIMIT_S, "nothing is consumed")
    told.await_silence()
    with told.phase("healthy"):
        before = read()
        wait_until(lambda: read() > before + 200, LIMIT_S, "clients stand still")
        wait_until(
            lambda: prometheus.instant('sum(rate(kafka_server_brokertopicmetrics_bytesout_total{topic="orders"}[5s])) > 0'),
            LIMIT_S, "what is consumed is not counted", 0.2,
        )  # fmt: skip
    with told.phase("a replica lags"), lag_time(cluster, 1_500), stopped(process(cluster, "broker-2")):
        told.await_firing(*EXPECTED["a replica lags"])
    told.await_silence("KafkaLiteIsrShrinks")  # which looks back
    with stopped(process(cluster, "kubelet")):  # so what is killed stays dead, and Leases tell of it
        with told.phase("a broker is dead"):
            os.kill(process(cluster, "broker-2"), signal.SIGKILL)
            told.await_firing(*EXPECTED["a broker is dead"])
        with told.phase("the only replica is dead"):
            os.kill(process(cluster, "broker-0"), signal.SIGKILL)
            told.await_firing(*EXPECTED["the only replica is dead"])
        with told.phase("the operator is dead"):
            os.kill(process(cluster, "operator*"), signal.SIGKILL)
            told.await_firing(*EXPECTED["the operator is dead"])
    with told.phase("all come back"):
        told.await_silence()


DEAD = {"KafkaLiteUnderReplicatedPartitions", "KafkaLiteScrapeFails", "KafkaLiteBrokersFenced"}
EXPECTED: dict[str, set[str]] = {
    "healthy": set(),
    "a replica lags": {"KafkaLiteIsrShrinks", "KafkaLiteUnderReplicatedPartitions"},
    "a broker is dead": DEAD,  # which the operator takes out of the ISRs: no leader shrinks any
    "the only replica is dead": DEAD | {"KafkaLiteOfflinePartitions", "KafkaLiteUnderMinIsrPartitions"},
    "the operator is dead": {
        "KafkaLiteActiveControllerCount", "KafkaLiteUnderReplicatedPartitions", "KafkaLiteUnderMinIsrPartitions",
        "KafkaLiteScrapeFails",
    },
    "all come back": set(),
}  # fmt: skip
TOLERATED = {
    "a replica lags": {"KafkaLiteScrapeFails", "KafkaLiteBrokersFenced"},  # if it stands still for long enough
    # The operator may be back before the brokers, and says what it finds.
    "all come back": {"KafkaLiteBrokersFenced", "KafkaLiteOfflinePartitions"},
}


# --- what Prometheus saw -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("phase", EXPECTED)
def test_the_alerts_of_a_phase_fire_and_no_others(story: Story, phase: str):
    fired = story.prometheus.fired(*story.phases[phase]) | story.seen[phase].keys()
    known = story.before[phase] | TOLERATED.get(phase, set())
    assert fired - known == EXPECTED[phase] - known
    assert EXPECTED[phase] <= story.seen[phase].keys()


def test_alerts_name_what_they_mean(story: Story):
    """No template failed, and the labels are those by which an alert is routed."""
    said = {}
    for phase in EXPECTED:
        for alerts in story.seen[phase].values():
            for alert in alerts:
                text = " ".join(alert["annotations"].values())
                assert not re.search(r"<|\{\{", text), text
                assert alert["labels"]["namespace"] == NAMESPACE
                said[phase, alert["labels"]["alertname"]] = alert["annotations"]["summary"]
    assert said["the only replica is dead", "KafkaLiteOfflinePartitions"] == "Partitions without leader: 1"
    assert said["a broker is dead", "KafkaLiteScrapeFails"].endswith("default/kafkalite-broker-2")


OPTIONS = {
    "namespace": {NAMESPACE},
    "cluster": {CLUSTER},
    "broker": {f"{CLUSTER}-broker-{number}" for number in range(3)},
    "topic": {"orders", "lonely", "__consumer_offsets"},
    "operator_namespace": {NAMESPACE},
    "operator": {"release-kafkalite-operator"},
}


def test_every_query_of_the_dashboard_has_data(helm: Helm, story: Story):
    document = dashboard(helm)
    variables = chosen(story.prometheus, document, *story.whole)
    assert variables.keys() == OPTIONS.keys()
    for name, (_, options) in variables.items():
        assert options >= OPTIONS[name], name
    values = {"__rate_interval": WINDOW} | {name: value for name, (value, _) in variables.items()}
    empty = {
        title: expression
        for title, expression in targets(document)
        if not story.prometheus.series(put(values, expression), *story.whole)
    }
    assert empty.keys() - EMPTY_PANELS.keys() == set(), empty


def test_every_metric_of_an_alert_is_there(helm: Helm, story: Story):
    """An alert with a misspelt metric or label is silent for ever: without its comparisons it has to have data."""
    for name, rule in by_name(rules(helm, NAMESPACE)).items():
        story.prometheus.instant(rule["expr"])
        for part in rule["expr"].split(" or "):
            bare = re.sub(r" (?:[<>]|[!=]=) [\d.]+", "", part)
            expression = in_short(bare)
            if name not in EMPTY_ALERTS:
                assert story.prometheus.series(expression, *story.whole), (name, expression)
