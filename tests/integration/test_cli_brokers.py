"""`kafkalite rebalance`, `restart`, `decommission` and `doctor` on three real brokers under load."""

from __future__ import annotations

import contextlib
import json
import time
from collections import Counter

import pytest

from kafkalite_cli.verify.load import Load
from tests.integration.cluster import in_sync, running, started

RATE = 300


@pytest.fixture(scope="module")
def own_cluster(tmp_path_factory):
    """A cluster without topics of other tests: one with a single replica forbids every restart."""
    with started(tmp_path_factory.mktemp("brokers") / "home") as cluster:
        yield cluster


@contextlib.contextmanager
def load_on(cluster, topic):
    load = Load(cluster.bootstrap, topic, rate=RATE, size=200)
    with load:
        load.wait_acks(RATE, timeout_s=60)
        yield load
        load.wait_acks(RATE, timeout_s=60)
    verdict = load.report()
    assert verdict.ok, verdict


def held(cluster, topic):
    partitions = cluster.topic(topic)["status"]["partitions"].values()
    return Counter(broker for each in partitions for broker in each["replicas"])


def doctor(cluster, code):
    """What it finds, once it ends with `code`: the operator's words come a moment after what they tell of."""
    limit = time.monotonic() + 60
    while (result := cluster.run("doctor", "-o", "json", check=False)).returncode != code:
        assert time.monotonic() < limit, result.stdout + result.stderr
    return {each["code"]: each for each in json.loads(result.stdout)["findings"]}


def test_a_rebalance_under_load_loses_nothing(own_cluster, topic_name):
    own_cluster.run("topics", "create", topic_name, "--assignment", ",".join(["0:1"] * 6))
    own_cluster.wait_known(topic_name, 6)
    plan = json.loads(own_cluster.run("rebalance", "-o", "json").stdout)
    assert plan["partitions"]
    assert held(own_cluster, topic_name) == {0: 6, 1: 6}, "a dry run changes nothing"
    with load_on(own_cluster, topic_name) as load:
        own_cluster.run("rebalance", "--execute", "--wait", timeout=300)
        load.wait_acks(2 * RATE, timeout_s=60)
    assert held(own_cluster, topic_name) == {0: 4, 1: 4, 2: 4}

    def led_by_the_first(topic):
        partitions = topic["status"]["partitions"].values()
        return in_sync(topic) and all(each["leader"] == each["replicas"][0] for each in partitions)

    own_cluster.wait_topic(topic_name, led_by_the_first)
    again = json.loads(own_cluster.run("rebalance", "-o", "json").stdout)
    assert again["partitions"] == []
    for what in ("replicas", "preferredLeader"):
        counts = [each[what] for each in again["brokers"]]
        assert max(counts) - min(counts) <= 1, again
    own_cluster.run("topics", "delete", topic_name, "--yes")


def test_every_broker_is_restarted_under_load_and_nothing_is_lost(own_cluster, topic_name):
    own_cluster.create_topic(topic_name, partitions=3, min_insync_replicas="2")
    before = [own_cluster.pid(number) for number in range(3)]
    with load_on(own_cluster, topic_name):
        result = own_cluster.run("restart", "--all", "--yes", timeout=300)
    assert result.stdout == "restarted 0, 1, 2\n"
    after = [own_cluster.pid(number) for number in range(3)]
    assert not set(before) & set(after)
    assert in_sync(own_cluster.topic(topic_name)), "the last one is back as well"
    assert not {code for code, each in doctor(own_cluster, 0).items() if each["severity"] == "problem"}
    own_cluster.run("topics", "delete", topic_name, "--yes")


def test_a_broker_that_is_needed_is_not_restarted_and_the_doctor_says_why(own_cluster, topic_name):
    own_cluster.create_topic(topic_name, partitions=1, min_insync_replicas="2")
    before = own_cluster.pid(0)
    with own_cluster.frozen(1):
        own_cluster.wait_broker(1, lambda broker: not running(broker))
        own_cluster.wait_topic(topic_name, lambda topic: not in_sync(topic))
        found = doctor(own_cluster, 1)
        assert "broker 1 is fenced" in found["BrokerFenced"]["what"]
        assert f"{topic_name}-0" in found["UnderReplicated"]["items"]
        result = own_cluster.run("restart", "0", "--yes", check=False)
        assert result.returncode == 1
        assert "broker 0 is needed now" in result.stderr
        assert "broker 1 is fenced" in result.stderr
    assert own_cluster.pid(0) == before
    own_cluster.wait_healed()
    doctor(own_cluster, 0)
    own_cluster.run("topics", "delete", topic_name, "--yes")


def test_the_doctor_notices_that_no_operator_acts(own_cluster):
    with own_cluster.frozen("operator"):
        # The Lease runs for five seconds after the last renewal; the doctor itself looks twice.
        found = {}
        for _ in range(20):
            result = own_cluster.run("doctor", "-o", "json", check=False)
            found = {each["code"]: each for each in json.loads(result.stdout)["findings"]}
            if "NoOperator" in found:
                break
        assert "has not renewed its Lease" in found["NoOperator"]["what"]
        refused = own_cluster.run("restart", "0", "--yes", check=False)
        assert "nobody would elect other leaders" in refused.stderr


def test_a_broker_is_emptied_under_load(own_cluster, topic_name):
    own_cluster.run("topics", "create", topic_name, "--partitions", "6", "--replicas", "2")
    own_cluster.wait_known(topic_name, 6)
    with load_on(own_cluster, topic_name):
        # Three replicas on three brokers cannot be moved anywhere.
        for name in own_cluster.run("topics", "list", "-o", "name").stdout.split():
            own_cluster.run("topics", "alter", name, "--replicas", "2", "--timeout", "60")
        result = own_cluster.run("decommission", "2", "--yes", timeout=300)
    assert "broker 2 is empty; to remove it: kubectl --kubeconfig " in result.stdout
    assert " -n default scale klc kafkalite --replicas=2 (its volume stays)" in result.stdout
    assert held(own_cluster, topic_name) == {0: 6, 1: 6}
    assert doctor(own_cluster, 0)["BrokerCordoned"]["about"] == "broker/kafkalite-broker-2"
    assert "takes replicas again" in own_cluster.run("decommission", "2", "--cancel").stderr
