"""Replicas move between real brokers under load; nothing acknowledged is lost, doubled or reordered.

What moves is asked for as users do: by `kubectl` (the spec), by the command line, by Apache Kafka's tool.
"""

import json
import signal
import time

import pytest
from kubernetes.client.exceptions import ApiException

from kafkalite_cli.verify.load import Load
from tests.integration.cluster import GROUP, NAMESPACE, VERSION, condition, in_sync
from tests.integration.java_tools import JavaTools

RATE = 300
PARTITIONS = 3
CLUSTER = (GROUP, VERSION, NAMESPACE, "kafkaliteclusters", "kafkalite")
SLOW = 5_000
"""Bytes per second: what the load writes meanwhile is more, so that a move lasts until it is harmed or let go."""


def still(topic):
    """Nothing moves, or waits to be moved."""
    partitions = topic["status"]["partitions"].values()
    progressing = condition(topic, "Progressing") or {}
    seen = progressing.get("observedGeneration", 0) >= topic["metadata"]["generation"]
    return (
        seen
        and progressing.get("reason") == "Stable"
        and not any(e.get("adding") or e.get("removing") for e in partitions)
    )


def replicas_of(topic):
    return {int(number): entry["replicas"] for number, entry in topic["status"]["partitions"].items()}


def moved_to(wanted):
    def all_moved(topic):
        return in_sync(topic) and still(topic) and replicas_of(topic) == wanted

    return all_moved


@pytest.fixture
def make(cluster, topic_name):
    """A topic with a load on it, and its verdict at the end."""
    running = []

    def make(assignment, **config):
        replicas = len(next(iter(assignment.values())))
        body = {
            "apiVersion": f"{GROUP}/{VERSION}",
            "kind": "KafkaLiteTopic",
            "metadata": {"name": topic_name},
            "spec": {
                "partitions": len(assignment),
                "replicas": replicas,
                "replicaAssignment": {str(number): ids for number, ids in assignment.items()},
                "config": {"min.insync.replicas": str(min(replicas, 2)), **config},
            },
        }
        cluster.api.create_namespaced_custom_object(GROUP, VERSION, NAMESPACE, "kafkalitetopics", body)
        cluster.wait_topic(topic_name, in_sync)
        cluster.wait_known(topic_name, len(assignment))
        load = Load(cluster.bootstrap, topic_name, rate=RATE, size=200)
        load.__enter__()
        running.append(load)
        load.wait_acks(RATE, timeout_s=30)
        return load

    yield make
    for load in running:
        load.__exit__(None, None, None)
        verdict = load.report()
        cluster.delete_topic(topic_name)
        assert verdict.ok, verdict


def slow_down(cluster, topic, **lists):
    """Throttle what catches up; the rates are the cluster's and hold for every broker."""
    rates = {f"{side}.replication.throttled.rate": str(SLOW) for side in ("leader", "follower")}
    cluster.api.patch_namespaced_custom_object(*CLUSTER, {"spec": {"config": rates}})
    both = {f"{side}.replication.throttled.replicas": "*" for side in ("leader", "follower")}
    cluster.patch_topic(topic, {"spec": {"config": both}})


@pytest.fixture
def full_speed(cluster):
    """No throttle is left behind."""
    yield
    none = {f"{side}.replication.throttled.rate": None for side in ("leader", "follower")}
    cluster.api.patch_namespaced_custom_object(*CLUSTER, {"spec": {"config": none}})


def test_the_replication_factor_goes_from_one_to_three_to_two(cluster, make):
    load = make({0: [0], 1: [1], 2: [2]})
    # Without lists of its own the topic follows the number.
    cluster.patch_topic(load.topic, {"spec": {"replicas": 3, "replicaAssignment": None}})
    grown = cluster.wait_topic(
        load.topic, lambda t: in_sync(t) and still(t) and all(len(r) == 3 for r in replicas_of(t).values())
    )
    assert {number: ids[0] for number, ids in replicas_of(grown).items()} == {0: 0, 1: 1, 2: 2}, "who was there stays"
    cluster.patch_topic(load.topic, {"spec": {"config": {"min.insync.replicas": "2"}}})
    load.wait_acks(RATE, timeout_s=30)
    cluster.patch_topic(load.topic, {"spec": {"replicas": 2}})
    shrunk = cluster.wait_topic(
        load.topic, lambda t: in_sync(t) and still(t) and all(len(r) == 2 for r in replicas_of(t).values())
    )
    carried = [sum(broker in ids for ids in replicas_of(shrunk).values()) for broker in range(3)]
    assert carried == [2, 2, 2]
    load.wait_acks(2 * RATE, timeout_s=30)


def test_every_replica_of_every_partition_moves_again_and_again(cluster, make):
    load = make({0: [0], 1: [1], 2: [2]})
    for turn in range(1, 5):
        wanted = {number: [(number + turn) % 3] for number in range(PARTITIONS)}
        before = replicas_of(cluster.topic(load.topic))
        begun = load.fault(f"all replicas move, turn {turn}", range(PARTITIONS))
        cluster.patch_topic(load.topic, {"spec": {"replicaAssignment": {str(n): ids for n, ids in wanted.items()}}})
        cluster.wait_topic(load.topic, moved_to(wanted))
        print(f"turn {turn}: pause {load.pause_after(begun, range(PARTITIONS), timeout_s=30):.3f} s")
        load.wait_acks(RATE, timeout_s=30)
        assert not any(set(before[n]) & set(wanted[n]) for n in wanted)
    broker = cluster.wait_broker(0, lambda b: any(s["topic"] == load.topic for s in b["status"].get("strays", [])))
    strays = [stray for stray in broker["status"]["strays"] if stray["topic"] == load.topic]
    assert not any(stray.get("deleted") for stray in strays), "moved away is not deleted: the topic lives"


def test_a_move_is_cancelled_in_the_middle(cluster, make, full_speed):
    load = make({0: [0, 1], 1: [1, 2], 2: [2, 0]})
    load.wait_acks(6 * RATE, timeout_s=60)
    slow_down(cluster, load.topic)
    before = replicas_of(cluster.topic(load.topic))
    cluster.patch_topic(load.topic, {"spec": {"replicaAssignment": {"0": [2, 1], "1": [0, 2], "2": [1, 0]}}})
    cluster.wait_topic(load.topic, lambda t: all(len(ids) == 3 for ids in replicas_of(t).values()))
    moving = json.loads(cluster.run("reassign", "status", load.topic, "-o", "json").stdout)
    assert [row["state"] for row in moving] == ["moving"] * PARTITIONS
    assert condition(cluster.topic(load.topic), "Progressing")["reason"] in {"Reassigning", "Stable"}
    cancelled = json.loads(cluster.run("reassign", "cancel", "--topics", load.topic, "-o", "json").stdout)
    assert len(cancelled["partitions"]) == PARTITIONS
    back = cluster.wait_topic(load.topic, lambda t: in_sync(t) and still(t))
    assert {n: set(ids) for n, ids in replicas_of(back).items()} == {n: set(ids) for n, ids in before.items()}
    load.wait_acks(2 * RATE, timeout_s=30)


def test_the_leader_is_killed_in_the_middle_of_a_move(cluster, make, full_speed):
    load = make({0: [0, 1], 1: [0, 1], 2: [0, 1]})
    load.wait_acks(6 * RATE, timeout_s=60)
    slow_down(cluster, load.topic)
    cluster.patch_topic(load.topic, {"spec": {"replicaAssignment": {str(n): [2, 1] for n in range(PARTITIONS)}}})
    cluster.wait_topic(
        load.topic, lambda t: all(entry.get("adding") == [2] for entry in t["status"]["partitions"].values())
    )
    killed = load.fault("SIGKILL broker 0", range(PARTITIONS))
    cluster.signal(0, signal.SIGKILL)
    pause = load.pause_after(killed, range(PARTITIONS), timeout_s=60)
    middle = cluster.topic(load.topic)
    print(
        f"pause {pause:.3f} s; still moving: {sum(bool(e.get('adding')) for e in middle['status']['partitions'].values())}"
    )
    none = {f"{side}.replication.throttled.rate": None for side in ("leader", "follower")}
    cluster.api.patch_namespaced_custom_object(*CLUSTER, {"spec": {"config": none}})
    cluster.wait_topic(load.topic, moved_to({number: [2, 1] for number in range(PARTITIONS)}))
    load.wait_acks(2 * RATE, timeout_s=30)


def test_the_operator_dies_in_the_middle_of_a_move(cluster, make):
    load = make({0: [0], 1: [1], 2: [2]})
    wanted = {0: [2, 1], 1: [0, 2], 2: [1, 0]}
    cluster.patch_topic(
        load.topic, {"spec": {"replicas": 2, "replicaAssignment": {str(n): ids for n, ids in wanted.items()}}}
    )
    cluster.kill("operator")
    cluster.wait_topic(load.topic, moved_to(wanted), timeout=90)
    load.wait_acks(RATE, timeout_s=30)


def test_the_throttle_holds_a_move_back(cluster, topic_name, full_speed):
    """1.5 MB at 250 kB/s."""
    cluster.create_topic(topic_name, partitions=1, replicas=1)
    leader = cluster.leader(topic_name)
    with Load(cluster.bootstrap, topic_name, rate=0, size=1000, count=1500) as load:
        assert load.wait_produced(60)
    wanted = [(leader + 1) % 3]
    plan = cluster.home.parent / f"{topic_name}.json"
    plan.write_text(
        json.dumps({"version": 1, "partitions": [{"topic": topic_name, "partition": 0, "replicas": wanted}]})
    )
    begun = time.monotonic()
    cluster.run("reassign", "execute", str(plan), "--throttle", "250000", "--wait", "--timeout", "60")
    took = time.monotonic() - begun
    assert took > 3, took  # how long it may take at most is what --timeout says
    assert cluster.partition(topic_name)["replicas"] == wanted
    spec = cluster.topic(topic_name)["spec"]
    assert not any("throttled" in key for key in spec.get("config", {}))
    cluster.delete_topic(topic_name)


def test_what_cannot_be_is_refused_with_a_sentence(cluster, topic_name):
    cluster.create_topic(topic_name, partitions=1, replicas=2)
    before = cluster.partition(topic_name)["replicas"]
    (other,) = {0, 1, 2} - set(before)

    def reason(topic):
        progressing = condition(topic, "Progressing") or {}
        return (
            progressing.get("reason")
            if progressing.get("observedGeneration") == topic["metadata"]["generation"]
            else ""
        )

    for spec, word in (
        # With one of the present replicas the other would pass for a stand-in for a broker 7 that was scaled away.
        ({"replicaAssignment": {"0": [other, 7]}}, "InvalidReplicaAssignment"),
        ({"replicaAssignment": {"0": [1, 1]}}, "InvalidReplicaAssignment"),
        ({"replicaAssignment": None, "replicas": 4}, "NotEnoughBrokers"),
    ):
        cluster.patch_topic(topic_name, {"spec": spec})
        told = cluster.wait_topic(topic_name, lambda t, word=word: reason(t) == word)
        assert told["status"]["partitions"]["0"]["replicas"] == before
    with pytest.raises(ApiException, match="replicaAssignment"):
        cluster.patch_topic(topic_name, {"spec": {"replicaAssignment": {"0": []}}})
    cluster.delete_topic(topic_name)


# ------------------------------------------------------------------------------------------------ Apache Kafka's tool


@pytest.fixture
def tools(cluster):
    return JavaTools(cluster.bootstrap)


def java_plan(path, topic, assignment):
    partitions = [{"topic": topic, "partition": n, "replicas": ids} for n, ids in assignment.items()]
    path.write_text(json.dumps({"version": 1, "partitions": partitions}))
    return "--reassignment-json-file", str(path)


def test_the_java_tool_executes_verifies_and_cancels(cluster, tools, make, tmp_path, full_speed):
    load = make({0: [0, 1], 1: [1, 2], 2: [2, 0]})
    wanted = {0: [2, 1], 1: [0, 2], 2: [1, 0]}
    plan = java_plan(tmp_path / "plan.json", load.topic, wanted)
    executed = tools.run("kafka-reassign-partitions", *plan, "--execute")
    assert (
        f"Successfully started partition reassignments for {load.topic}-0,{load.topic}-1,{load.topic}-2" in executed.out
    )
    assert cluster.topic(load.topic)["spec"]["replicaAssignment"] == {str(n): ids for n, ids in wanted.items()}
    cluster.wait_topic(load.topic, moved_to(wanted))
    verified = tools.run("kafka-reassign-partitions", *plan, "--verify")
    for number in wanted:
        assert f"Reassignment of partition {load.topic}-{number} is completed." in verified.out
    load.wait_acks(6 * RATE, timeout_s=60)
    # Back again, slowly, and stopped in the middle.
    original = {0: [0, 1], 1: [1, 2], 2: [2, 0]}
    plan = java_plan(tmp_path / "back.json", load.topic, original)
    tools.run("kafka-reassign-partitions", *plan, "--execute", "--throttle", str(SLOW))
    config = cluster.topic(load.topic)["spec"]["config"]
    assert "leader.replication.throttled.replicas" in config
    listed = tools.run("kafka-reassign-partitions", "--list")
    assert listed.out.count(f"{load.topic}-") == PARTITIONS, listed
    verified = tools.run("kafka-reassign-partitions", *plan, "--verify")
    assert f"Reassignment of partition {load.topic}-0 is still in progress." in verified.out
    cancelled = tools.run("kafka-reassign-partitions", *plan, "--cancel")
    assert "Successfully cancelled partition reassignments for" in cancelled.out
    back = cluster.wait_topic(load.topic, lambda t: in_sync(t) and still(t))
    assert {n: set(ids) for n, ids in replicas_of(back).items()} == {n: set(ids) for n, ids in wanted.items()}
    assert not any("throttled" in key for key in back["spec"]["config"]), "the tool clears the throttle"
    assert "No partition reassignments found." in tools.run("kafka-reassign-partitions", "--list").out
    refused = tools.run(
        "kafka-reassign-partitions", *java_plan(tmp_path / "no.json", load.topic, {0: [0, 9]}), "--execute", code=1
    )
    assert "9" in refused.text


def test_the_java_tool_changes_the_replication_factor(cluster, tools, make, tmp_path):
    load = make({0: [0], 1: [1], 2: [2]})
    wanted = {n: [n, (n + 1) % 3] for n in range(PARTITIONS)}
    tools.run("kafka-reassign-partitions", *java_plan(tmp_path / "up.json", load.topic, wanted), "--execute")
    topic = cluster.wait_topic(load.topic, moved_to(wanted))
    assert topic["spec"]["replicas"] == 2, "kubectl shows what clients see"
