"""Each alert fires when it should and not before, as promtool sees it; what the values say about alerts is done."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.helm.conftest import ROOT, Helm, kinds, only
from tests.helm.prometheus import MONITORED, by_name, promtool, rules
from tools.chart.alerts import alerts, sections

if TYPE_CHECKING:
    from pathlib import Path

OPERATOR = 'namespace="kafka",job="release-kafkalite-operator",pod="op-{}"'
BROKER = 'namespace="kafka",kafkalite_io_cluster="c",job="kafka/release-kafkalite-broker",pod="c-broker-{}"'
OF_OPERATOR = {"namespace": "kafka", "job": "release-kafkalite-operator"}
OF_CLUSTER = {"namespace": "kafka", "kafkalite_io_cluster": "c"}
CONTROLLER = "kafka_controller_kafkacontroller_"
MANAGER = "kafka_server_replicamanager_"
TOPIC = "kafka_server_brokertopicmetrics_"
VOLUME = 'namespace="kafka",persistentvolumeclaim="data-c-broker-0"'


@dataclass(frozen=True)
class Case:
    """One history, a sample each minute.

    Attributes:
        series: Metric and labels -> values, in promtool's notation.
        silent: Minutes at which the alert does not fire.
        fires: Minute -> what it says then.
        labels: Of the alert that fires, besides its name and severity.
    """

    alert: str
    what: str
    series: dict[str, str]
    silent: tuple[int, ...] = ()
    fires: dict[int, str] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)


def operator(metric: str, number: int = 0, more: str = "") -> str:
    return f"{metric}{{{OPERATOR.format(number)}{more}}}"


def broker(metric: str, number: int = 0, more: str = "") -> str:
    return f"{metric}{{{BROKER.format(number)}{more}}}"


ACTIVE = {operator(CONTROLLER + "activecontrollercount"): "1x60"}
STANDBY = {operator(CONTROLLER + "activecontrollercount", 1): "0x60"}

CASES = [
    Case(
        "KafkaLiteOfflinePartitions", "two partitions for three minutes",
        ACTIVE | {operator(CONTROLLER + "offlinepartitionscount"): "0x4 2x3 0x20"},
        silent=(4, 5, 9, 10), fires={6: "Partitions without leader: 2", 8: "Partitions without leader: 2"}, labels=OF_OPERATOR,
    ),
    Case(
        "KafkaLiteOfflinePartitions", "a standby remembers what was",
        ACTIVE | STANDBY
        | {
            operator(CONTROLLER + "offlinepartitionscount"): "0x60",
            operator(CONTROLLER + "offlinepartitionscount", 1): "7x60",
        },
        silent=(10, 30),
    ),
    Case(
        "KafkaLiteUnderMinIsrPartitions", "on two leaders",
        {broker(MANAGER + "underminisrpartitioncount"): "0x4 1x20", broker(MANAGER + "underminisrpartitioncount", 1): "0x4 2x20"},
        silent=(5,), fires={6: "Partitions of kafka/c below min.insync.replicas: 3"}, labels=OF_CLUSTER,
    ),
    Case(
        "KafkaLiteUnderReplicatedPartitions", "a restart of four minutes",
        {broker(MANAGER + "underreplicatedpartitions"): "0x4 9x3 0x20"}, silent=(5, 8, 9, 20),
    ),
    Case(
        "KafkaLiteUnderReplicatedPartitions", "leadership moves, and the alert goes on",
        {
            broker(MANAGER + "underreplicatedpartitions"): "0x4 9x3 0x20",
            broker(MANAGER + "underreplicatedpartitions", 1): "0x7 0 9x20",
        },
        silent=(9,), fires={10: "Under-replicated partitions of kafka/c: 9"}, labels=OF_CLUSTER,
    ),
    Case(
        "KafkaLiteIsrShrinks", "one broker dies",
        {broker(MANAGER + "isrshrinks_total"): "0x4 100x60"}, silent=(5, 8, 20, 30, 60),
    ),
    Case(
        "KafkaLiteIsrShrinks", "a replica comes and goes",
        {broker(MANAGER + "isrshrinks_total"): "0x4 3+3x60"},
        silent=(10, 19), fires={30: "Replicas of kafka/c keep leaving the ISR, 0.05 a second"}, labels=OF_CLUSTER,
    ),
    Case(
        "KafkaLiteUncleanElections", "one",
        {operator("kafka_controller_controllerstats_uncleanleaderelections_total"): "0x4 1x60"},
        silent=(4, 30), fires={6: "A leader was elected from outside the ISR"}, labels=OF_OPERATOR,
    ),
    Case("KafkaLiteActiveControllerCount", "one acts, one stands by", ACTIVE | STANDBY, silent=(1, 30)),
    Case(
        "KafkaLiteActiveControllerCount", "a takeover",
        {
            operator(CONTROLLER + "activecontrollercount"): "1x4 0x20",
            operator(CONTROLLER + "activecontrollercount", 1): "0x4 0 1x20",
        },
        silent=(4, 5, 6, 7, 20),
    ),
    Case(
        "KafkaLiteActiveControllerCount", "both stand by", STANDBY,
        fires={2: "There is not exactly one active controller"}, silent=(0,), labels=OF_OPERATOR,
    ),
    Case(
        "KafkaLiteActiveControllerCount", "it is gone, series and all",
        {operator(CONTROLLER + "activecontrollercount"): "1x4 stale"},
        silent=(4, 5), fires={6: "There is not exactly one active controller"}, labels=OF_OPERATOR,
    ),
    Case(
        "KafkaLiteActiveControllerCount", "two",
        ACTIVE | {operator(CONTROLLER + "activecontrollercount", 1): "0x4 1x30"},
        silent=(5,), fires={6: "There is not exactly one active controller"}, labels=OF_OPERATOR,
    ),
    Case(
        "KafkaLiteActiveControllerCount", "that of an Apache Kafka beside it",
        {CONTROLLER + 'activecontrollercount{namespace="kafka",job="kafka/other",pod="k-0"}': "1x60"},
        fires={2: "There is not exactly one active controller"}, labels=OF_OPERATOR,
    ),
    Case(
        "KafkaLiteOperatorStalled", "its clock stands still from minute 5 on; a standby never planned",
        {
            operator("kafkalite_operator_reconcile_last_success_timestamp_seconds"): "0+60x5 300x30",
            operator("kafkalite_operator_reconcile_last_success_timestamp_seconds", 1): "0x60",
        },
        silent=(1, 5, 6, 7), fires={8: "The operator has not planned for 3m 0s"}, labels=OF_OPERATOR,
    ),
    Case(
        "KafkaLiteOperatorStalled", "it was started just now, and has not planned yet",
        {operator("kafkalite_operator_reconcile_last_success_timestamp_seconds"): "0x10"}, silent=(1, 5, 9),
    ),
    Case(
        "KafkaLiteOperatorActionsFail", "elections that are refused, beside a lost race now and then",
        {
            operator("kafkalite_operator_action_failures_total", more=',action="elect"'): "0+4x60",
            operator("kafkalite_operator_action_failures_total", more=',action="fence"'): "0+1x60",
        },
        silent=(10,), fires={40: "Failures of the operator in 15 minutes, elect: 60"}, labels=OF_OPERATOR | {"action": "elect"},
    ),
    Case(
        "KafkaLiteBrokersFenced", "one",
        ACTIVE | {operator(CONTROLLER + "fencedbrokercount"): "0x4 1x20"},
        silent=(9,), fires={10: "Fenced brokers: 1"}, labels=OF_OPERATOR,
    ),
    Case(
        "KafkaLiteScrapeFails", "a broker", {broker("up"): "1x4 0x20", broker("up", 1): "1x60", operator("up"): "1x60"},
        silent=(9,), fires={10: "Prometheus cannot read the metrics of kafka/c-broker-0"},
        labels={**OF_CLUSTER, "job": "kafka/release-kafkalite-broker", "pod": "c-broker-0"},
    ),
    Case(
        "KafkaLiteScrapeFails", "the operator", {broker("up"): "1x60", operator("up"): "1x4 0x20"},
        silent=(9,), fires={10: "Prometheus cannot read the metrics of kafka/op-0"}, labels={**OF_OPERATOR, "pod": "op-0"},
    ),
    Case(
        "KafkaLiteScrapeFails", "somebody else's process", {'up{namespace="kafka",job="other",pod="x"}': "0x60"}, silent=(30,)
    ),
    Case(
        "KafkaLiteFailedProduceRequests", "one topic of two",
        {
            broker(TOPIC + "totalproducerequests_total"): "0+200x60",
            broker(TOPIC + "failedproducerequests_total"): "0+20x60",
            broker(TOPIC + "totalproducerequests_total", more=',topic="a"'): "0+100x60",
            broker(TOPIC + "failedproducerequests_total", more=',topic="a"'): "0+20x60",
            broker(TOPIC + "totalproducerequests_total", more=',topic="b"'): "0+100x60",
            broker(TOPIC + "failedproducerequests_total", more=',topic="b"'): "0x60",
            broker(TOPIC + "totalproducerequests_total", more=',topic="idle"'): "0x60",
            broker(TOPIC + "failedproducerequests_total", more=',topic="idle"'): "0x60",
        },
        silent=(9,), fires={20: "20% of the batches for a are refused"}, labels=OF_CLUSTER | {"topic": "a"},
    ),
    Case(
        "KafkaLiteFailedProduceRequests", "all are too large, which are not among all that arrived",
        {
            broker(TOPIC + "totalproducerequests_total", more=',topic="a"'): "0x60",
            broker(TOPIC + "failedproducerequests_total", more=',topic="a"'): "0+20x60",
        },
        silent=(9,), fires={20: "100% of the batches for a are refused"}, labels=OF_CLUSTER | {"topic": "a"},
    ),
    Case(
        "KafkaLiteFailedProduceRequests", "more are too large than are not",
        {
            broker(TOPIC + "totalproducerequests_total", more=',topic="a"'): "0+10x60",
            broker(TOPIC + "failedproducerequests_total", more=',topic="a"'): "0+30x60",
        },
        silent=(9,), fires={20: "100% of the batches for a are refused"}, labels=OF_CLUSTER | {"topic": "a"},
    ),
    Case(
        "KafkaLiteFailedProduceRequests", "none gets through for want of replicas",
        {
            broker(TOPIC + "totalproducerequests_total", more=',topic="a"'): "0+10x60",
            broker(TOPIC + "failedproducerequests_total", more=',topic="a"'): "0+10x60",
        },
        silent=(9,), fires={20: "100% of the batches for a are refused"}, labels=OF_CLUSTER | {"topic": "a"},
    ),
    Case(
        "KafkaLiteEventLoopLag", "for long, not for a moment",
        {broker("kafkalite_event_loop_lag_seconds"): "0.5x60", broker("kafkalite_event_loop_lag_seconds", 1): "0x20 1 0x40"},
        silent=(5,), fires={30: "Broker kafka/c-broker-0 is late by 500ms"},
        labels={**OF_CLUSTER, "job": "kafka/release-kafkalite-broker", "pod": "c-broker-0"},
    ),
    Case(
        "KafkaLiteSlowDisk", "one of two; for long, not for a moment",
        {
            broker("kafkalite_log_flush_seconds_sum"): "0+30x60",
            broker("kafkalite_log_flush_seconds_count"): "0+60x60",
            broker("kafkalite_log_flush_seconds_sum", 1): "0+0.3x20 0+30x1 36+0.3x40",
            broker("kafkalite_log_flush_seconds_count", 1): "0+60x60",
        },
        silent=(9,), fires={30: "Flushes of kafka/c-broker-0 take 500ms"},
        labels={**OF_CLUSTER, "job": "kafka/release-kafkalite-broker", "pod": "c-broker-0"},
    ),
    Case(
        "KafkaLiteRestarts", "a broker ends after minutes, another was restarted twice, the operator once",
        {
            broker("process_start_time_seconds"): "0x4 300x4 600x4 900x60",
            broker("process_start_time_seconds", 1): "0x4 300x4 600x64",
            operator("process_start_time_seconds"): "0x4 300x68",
        },
        silent=(14, 50), fires={15: "kafka/c-broker-0 was started again 3 times in half an hour"},
        labels={**OF_CLUSTER, "job": "kafka/release-kafkalite-broker", "pod": "c-broker-0"},
    ),
    Case(
        "KafkaLiteRestarts", "the operator",
        {operator("process_start_time_seconds"): "0 60 120 180 240x60"},
        silent=(2,), fires={10: "kafka/op-0 was started again 4 times in half an hour"},
        labels={**OF_OPERATOR, "pod": "op-0"},
    ),
    Case(
        "KafkaLiteCoordinatorsLoading", "it does not end",
        {
            broker("kafka_server_group_coordinator_metrics_num_partitions", more=',state="loading"'): "0x4 2x20",
            broker("kafka_server_group_coordinator_metrics_num_partitions", more=',state="active"'): "50x60",
        },
        silent=(9,), fires={10: "Partitions of __consumer_offsets that do not finish loading: 2"}, labels=OF_CLUSTER,
    ),
    Case(
        "KafkaLiteUncleanableLogs", "one",
        {broker("kafka_log_logcleanermanager_uncleanable_partitions_count"): "0x4 1x40"},
        silent=(19,), fires={20: "Logs of kafka/c-broker-0 that cannot be compacted: 1"},
        labels={**OF_CLUSTER, "job": "kafka/release-kafkalite-broker", "pod": "c-broker-0"},
    ),
    Case(
        "KafkaLiteDiskFills", "to a tenth, and somebody else's volume",
        {
            f"kubelet_volume_stats_capacity_bytes{{{VOLUME}}}": "100x60",
            f"kubelet_volume_stats_available_bytes{{{VOLUME}}}": "20x4 10x20",
            'kubelet_volume_stats_capacity_bytes{namespace="kafka",persistentvolumeclaim="db"}': "100x60",
            'kubelet_volume_stats_available_bytes{namespace="kafka",persistentvolumeclaim="db"}': "1x60",
        },
        silent=(9,), fires={10: "Volume kafka/data-c-broker-0 has 10% left"},
        labels={"namespace": "kafka", "persistentvolumeclaim": "data-c-broker-0"},
    ),
]  # fmt: skip


@pytest.fixture(scope="module")
def spec(helm: Helm) -> dict[str, Any]:
    return rules(helm)


def unit_test(case: Case, rule: dict[str, Any]) -> dict[str, Any]:
    """As promtool wants it."""
    checks = [{"eval_time": f"{minute}m", "alertname": case.alert, "exp_alerts": []} for minute in case.silent]
    for minute, said in case.fires.items():
        expected = {
            "exp_labels": {**case.labels, **rule["labels"]},
            "exp_annotations": {**rule["annotations"], "summary": said},
        }
        checks.append({"eval_time": f"{minute}m", "alertname": case.alert, "exp_alerts": [expected]})
    return {
        "name": f"{case.alert}: {case.what}",
        "interval": "1m",
        "input_series": [{"series": series, "values": values} for series, values in case.series.items()],
        "alert_rule_test": checks,
    }


def test_each_fires_when_it_should_and_says_what_is_wrong(spec: dict[str, Any], tmp_path: Path):
    """All cases at once: promtool takes a second to start. It names those that fail."""
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(spec))
    document = {
        "rule_files": ["rules.yaml"],
        "evaluation_interval": "1m",
        "tests": [unit_test(case, by_name(spec)[case.alert]) for case in CASES],
    }
    (tmp_path / "test.yaml").write_text(yaml.safe_dump(document))
    done = promtool("test", "rules", "test.yaml", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_has_a_case_that_fires_it():
    assert {case.alert for case in CASES if case.fires} == {rule["alert"] for rule in alerts()}


def test_promtool_accepts_the_rules(spec: dict[str, Any], tmp_path: Path):
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(spec))
    done = promtool("check", "rules", "--lint-fatal", "rules.yaml", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(alerts())} rules found" in done.stdout


def test_every_alert_says_how_bad_it_is_and_where_to_read_on(spec: dict[str, Any]):
    headings = set(re.findall(r"^## (.+)$", (ROOT / "docs/operations.md").read_text(encoding="utf-8"), re.MULTILINE))
    for name, rule in by_name(spec).items():
        assert rule["labels"]["severity"] in {"critical", "warning"}
        named = sections(rule["annotations"]["description"])
        assert named, f"{name} names no section of docs/operations.md"
        assert set(named) <= headings, name
        assert "$" not in rule["annotations"]["description"], "the page of alerts repeats it"


# --- values --------------------------------------------------------------------------------------------------------------


def test_rules_come_when_asked_for(helm: Helm):
    assert "PrometheusRule" not in kinds(helm.template())
    made = only(helm.template(MONITORED), "PrometheusRule")
    assert [rule["alert"] for group in made["spec"]["groups"] for rule in group["rules"]] == [
        rule["alert"] for rule in alerts()
    ]
    values = {"metrics": {**MONITORED["metrics"], "prometheusRule": {"enabled": True, "labels": {"release": "p"}}}}
    assert only(helm.template(values), "PrometheusRule")["metadata"]["labels"]["release"] == "p"


def test_nothing_is_left_to_replace(spec: dict[str, Any]):
    assert [
        rule["alert"] for rule in by_name(spec).values() if "$" in rule["expr"] or "<no value>" in rule["expr"]
    ] == []


def test_an_alert_can_be_changed_and_left_out(helm: Helm):
    own = {
        "KafkaLiteEventLoopLag": {"threshold": 0.5, "severity": "info", "for": "1h"},
        "KafkaLiteIsrShrinks": {"threshold": 0},
        "KafkaLiteUnderReplicatedPartitions": {"enabled": False},
        "KafkaLiteOfflinePartitions": {"enabled": True},
    }
    changed = by_name(rules(helm, alerts=own, alertLabels={"team": "data"}))
    plain = by_name(rules(helm))
    assert plain.keys() - changed.keys() == {"KafkaLiteUnderReplicatedPartitions"}
    lag = changed.pop("KafkaLiteEventLoopLag")
    assert (lag["labels"], lag["for"], lag["expr"].rpartition(" > ")[2]) == (
        {"severity": "info", "team": "data"},
        "1h",
        "0.5",
    )
    for name, rule in changed.items():
        assert rule == {**plain[name], "labels": {**plain[name]["labels"], "team": "data"}}


def test_a_group_without_alerts_is_left_out(helm: Helm):
    own = {rule["alert"]: {"enabled": False} for rule in alerts()}
    own["KafkaLiteOfflinePartitions"] = {"enabled": True}
    assert [group["name"] for group in rules(helm, alerts=own)["groups"]] == ["kafkalite-replication"]


@pytest.mark.parametrize(
    ("own", "why"),
    [
        ({"UnderReplicatedPartitions": {"for": "1m"}}, "additional properties 'UnderReplicatedPartitions' not allowed"),
        ({"KafkaLiteScrapeFails": {"threshold": 1}}, "additional properties 'threshold' not allowed"),
        ({"KafkaLiteIsrShrinks": {"threshold": "many"}}, "does not match pattern"),
        ({"KafkaLiteIsrShrinks": {"for": "ten minutes"}}, "does not match pattern"),
    ],
)
def test_what_no_alert_has_is_refused(helm: Helm, own: dict[str, Any], why: str):
    values = {"metrics": {**MONITORED["metrics"], "prometheusRule": {"enabled": True, "alerts": own}}}
    assert why in helm.refused(values)


def test_alerts_look_at_the_namespaces_of_this_release(helm: Helm):
    values = {**MONITORED, "watchNamespaces": ["a", "b"]}
    made = by_name(only(helm.template(values, namespace="op"), "PrometheusRule")["spec"])
    assert 'namespace=~"a|b", kafkalite_io_cluster!=""' in made["KafkaLiteIsrShrinks"]["expr"]
    assert 'namespace="op", job="release-kafkalite-operator"' in made["KafkaLiteOperatorStalled"]["expr"]


def test_without_monitors_the_labels_have_to_be_named(helm: Helm):
    chosen = {"enabled": True, "operatorSelector": 'job="o"', "brokerSelector": 'job="b"'}
    made = by_name(only(helm.template({"metrics": {"prometheusRule": chosen}}), "PrometheusRule")["spec"])
    assert made["KafkaLiteScrapeFails"]["expr"] == 'up{job="b"} == 0 or up{job="o"} == 0'
    for missing in ("operatorSelector", "brokerSelector"):
        said = helm.refused({"metrics": {"prometheusRule": {**chosen, missing: ""}}})
        assert f"in metrics.prometheusRule.{missing} the labels" in said
