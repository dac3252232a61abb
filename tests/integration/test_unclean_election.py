"""Nobody who may lead is left: the partition stays without leader until somebody asks for an unclean election."""

import contextlib
import signal
import time

import confluent_kafka

from tests.integration.cluster import in_sync
from tests.integration.compaction import epoch_of, wait_back
from tests.integration.java_tools import JavaTools
from tests.integration.test_divergence import stored


def produce(cluster, topic, *values):
    failed = []
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "log_level": 0})
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, _: error and failed.append(error))
    assert producer.flush(30) == 0
    assert failed == []


def isr(topic):
    return topic["status"]["partitions"]["0"]["isr"]


@contextlib.contextmanager
def stranded(cluster, topic):
    """The replica that knows the last records is dead, and the other one lives and lacks them: both brokers' ids.

    The kubelet stands still meanwhile, or it would bring the dead one back; the body ends with its return.
    """
    entry = cluster.partition(topic)
    leader = int(entry["leader"])
    (other,) = (int(broker) for broker in entry["replicas"] if int(broker) != leader)
    produce(cluster, topic, b"on both 0", b"on both 1", b"on both 2")
    epoch = epoch_of(cluster, leader)

    def leader_alone(seen):
        return isr(seen) == [leader]

    def nobody_leads(seen):
        return seen["status"]["partitions"]["0"]["leader"] < 0

    with cluster.frozen("kubelet"):
        with cluster.frozen(other):
            cluster.wait_topic(topic, leader_alone)
            produce(cluster, topic, b"on one 3", b"on one 4")
            cluster.signal(leader, signal.SIGKILL)
        cluster.wait_topic(topic, nobody_leads)
        yield leader, other
    wait_back(cluster, {leader: epoch})


def test_an_unclean_election_on_request(cluster, topic_name):
    topic = topic_name
    cluster.create_topic(topic, replicas=2, min_insync_replicas="1")
    this = ("--topic", topic, "--partition", "0")
    with stranded(cluster, topic) as (dead, alive):
        tools = JavaTools(f"127.0.0.1:{cluster.port + alive}")
        refused = tools.run("kafka-leader-election", "--election-type", "preferred", *this, code=None)
        assert "PreferredLeaderNotAvailableException" in refused.text
        assert cluster.leader(topic) == -1, "nothing is given up before somebody asks for it"
        began = time.monotonic()
        done = tools.run("kafka-leader-election", "--election-type", "unclean", *this)
        print(f"elected after {time.monotonic() - began:.1f} s, the start of the JVM included: {done.lines}")
        assert done.lines == [f"Successfully completed leader election (UNCLEAN) for partitions {topic}-0"]
        assert cluster.leader(topic) == alive
        assert isr(cluster.topic(topic)) == [alive]
        produce(cluster, topic, b"afterwards 3", b"afterwards 4", b"afterwards 5")
        again = tools.run("kafka-leader-election", "--election-type", "unclean", *this)
        assert again.lines == [f"Valid replica already elected for partitions {topic}-0"]
    cluster.wait_topic(topic, in_sync)
    copies = [stored(cluster, broker, topic) for broker in (dead, alive)]
    assert copies[0] == copies[1], "who was dead follows the new history"
    assert b"on both 2" in copies[0]
    assert b"afterwards 5" in copies[0]
    assert b"on one" not in copies[0], "that is what an unclean election costs"
    cluster.delete_topic(topic)
