"""Brokers, operator and control plane are harmed under load; nothing acknowledged is lost, doubled or reordered.

Pauses are printed and bounded generously here; their distribution is a matter of the benchmark reports.
"""

import json
import signal
import time

import pytest

from kafkalite_cli.verify.load import Load
from tests.integration.cluster import in_sync

RATE = 500
PARTITIONS = 6
HANDED_OVER = "leadership handed over"

HANGING_BROKER = {"socket.timeout.ms": 10_000}
"""A hung broker keeps its connections open: a client gives it up by its own time-out, 60 s by default."""


@pytest.fixture
def load(cluster, topic_name):
    cluster.create_topic(topic_name, partitions=PARTITIONS, min_insync_replicas="2")
    with Load(
        cluster.bootstrap, topic_name, rate=RATE, producer_config=HANGING_BROKER, consumer_config=HANGING_BROKER
    ) as running:
        running.wait_acks(RATE, timeout_s=30)
        yield running
    verdict = running.report()
    cluster.delete_topic(topic_name)
    assert verdict.ok, verdict


def led_by(cluster, topic: str, broker: int) -> list[int]:
    partitions = cluster.topic(topic)["status"]["partitions"]
    return [int(number) for number, entry in partitions.items() if entry["leader"] == broker]


def some_leader(cluster, topic: str) -> int:
    """The broker that leads most partitions of the topic."""
    return max(range(3), key=lambda broker: len(led_by(cluster, topic, broker)))


def said(cluster, broker: int, event: str) -> list[dict]:
    """The lines of the broker's log with this event, oldest first."""
    lines = (cluster.home / "logs" / f"broker-{broker}.log").read_text().splitlines()
    return [json.loads(line) for line in lines if f'"{event}"' in line]


def test_ten_leaders_are_killed_one_after_another(cluster, load):
    pauses = []
    for _ in range(10):
        leader = some_leader(cluster, load.topic)
        partitions = led_by(cluster, load.topic, leader)
        killed = load.fault(f"SIGKILL broker {leader}", partitions)
        cluster.signal(leader, signal.SIGKILL)
        pauses.append(load.pause_after(killed, partitions, timeout_s=30))
        cluster.wait_topic(load.topic, in_sync)
    print("pauses in s:", " ".join(f"{pause:.3f}" for pause in sorted(pauses)))


def test_a_leader_is_stopped_in_order(cluster, load):
    leader = some_leader(cluster, load.topic)
    partitions = led_by(cluster, load.topic, leader)
    stopped = load.fault(f"SIGTERM broker {leader}", partitions)
    cluster.signal(leader, signal.SIGTERM)
    print(f"pause in s: {load.pause_after(stopped, partitions, timeout_s=30):.3f}")
    cluster.wait_healed()
    # It fetched until no leader waited for it: otherwise every producer would have, until the leaders noticed.
    assert said(cluster, leader, "left the ISRs")[-1]["partitions_left"] == 0


def test_a_broker_that_is_stopped_waits_for_a_slow_leader(cluster, load):
    slow = some_leader(cluster, load.topic)
    stopped = (slow + 1) % 3
    handed_over, left = len(said(cluster, stopped, HANDED_OVER)), len(said(cluster, stopped, "left the ISRs"))
    with cluster.frozen("operator", slow):  # the operator would take it out instead of the leader
        cluster.signal(stopped, signal.SIGTERM)
        end = time.monotonic() + 30
        while len(said(cluster, stopped, HANDED_OVER)) == handed_over:
            assert time.monotonic() < end, f"broker {stopped} does not hand over its leadership"
            time.sleep(0.02)
        time.sleep(1)  # longer than it stays without reason, shorter than it waits
        assert len(said(cluster, stopped, "left the ISRs")) == left, "it did not wait"
    cluster.wait_healed()
    assert said(cluster, stopped, "left the ISRs")[-1]["partitions_left"] == 0


def test_a_leader_hangs_and_wakes_up_again(cluster, load):
    leader = some_leader(cluster, load.topic)
    partitions = led_by(cluster, load.topic, leader)
    stopped = load.fault(f"SIGSTOP broker {leader}", partitions)
    with cluster.frozen(leader):
        print(f"pause in s: {load.pause_after(stopped, partitions, timeout_s=60):.3f}")
    cluster.wait_healed()


def test_a_follower_dies_and_comes_back(cluster, load):
    leader = some_leader(cluster, load.topic)
    follower = next(broker for broker in range(3) if broker != leader)
    cluster.signal(follower, signal.SIGKILL)
    load.wait_acks(2 * RATE, timeout_s=60)
    cluster.wait_healed()


def test_all_brokers_die_at_once(cluster, load):
    partitions = range(PARTITIONS)
    killed = load.fault("SIGKILL every broker", partitions)
    for broker in range(3):
        cluster.signal(broker, signal.SIGKILL)
    print(f"pause in s: {load.pause_after(killed, partitions, timeout_s=90):.3f}")
    cluster.wait_healed()


def test_the_operator_dies_together_with_a_leader(cluster, load):
    leader = some_leader(cluster, load.topic)
    partitions = led_by(cluster, load.topic, leader)
    killed = load.fault(f"SIGKILL operator and broker {leader}", partitions)
    cluster.signal("operator", signal.SIGKILL)
    cluster.signal(leader, signal.SIGKILL)
    print(f"pause in s: {load.pause_after(killed, partitions, timeout_s=90):.3f}")
    cluster.wait_healed()


@pytest.mark.parametrize("name", ["apiserver", "kubelet", "operator"])
def test_a_part_of_the_control_plane_dies_and_brokers_do_not_notice(cluster, load, name):
    pids = [cluster.pid(broker) for broker in range(3)]
    before = cluster.topic(load.topic)["status"]["partitions"]
    cluster.signal(name, signal.SIGKILL)
    load.wait_acks(4 * RATE, timeout_s=60)
    cluster.wait_topic(load.topic, in_sync)
    cluster.wait_healed()
    assert [cluster.pid(broker) for broker in range(3)] == pids
    assert cluster.topic(load.topic)["status"]["partitions"] == before


@pytest.mark.parametrize("parts", [("apiserver", "kubelet", "operator"), ("apiserver", "operator")], ids="-".join)
def test_the_control_plane_is_away_for_thirty_seconds(cluster, load, parts):
    before = cluster.topic(load.topic)["status"]["partitions"]
    with cluster.frozen(*parts):
        end = time.monotonic() + 30
        acked = RATE
        while time.monotonic() < end:
            acked += RATE
            load.wait_acks(acked, timeout_s=10)
    cluster.wait_healed()
    load.wait_acks(acked + 5 * RATE, timeout_s=60)
    assert cluster.topic(load.topic)["status"]["partitions"] == before, "an election on the control plane's return"


def test_a_leader_dies_right_after_the_api_server_was_away(cluster, load):
    """The operator's Lease has run out meanwhile: it has to be elected again before it can elect."""
    with cluster.frozen("apiserver"):
        end = time.monotonic() + 6
        acked = RATE
        while time.monotonic() < end:
            acked += RATE
            load.wait_acks(acked, timeout_s=10)
    leader = some_leader(cluster, load.topic)
    partitions = led_by(cluster, load.topic, leader)
    killed = load.fault(f"SIGKILL broker {leader}", partitions)
    cluster.signal(leader, signal.SIGKILL)
    print(f"pause in s: {load.pause_after(killed, partitions, timeout_s=30):.3f}")
    cluster.wait_healed()
