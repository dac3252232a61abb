"""Logs are compacted by real brokers that are killed meanwhile; what a key holds last survives on every replica."""

import contextlib
import os
import random
import signal
import subprocess
import threading
import time

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition

from kafkalite_core.groups.routing import partition_for
from tests.integration.cluster import GROUP, NAMESPACE, VERSION
from tests.integration.compaction import (
    BACKOFF_KEY,
    epoch_of,
    fold,
    log_bytes,
    passes,
    restart,
    stored,
    under_way,
    wait_back,
    wait_compacted,
    wait_quiet,
)
from tests.integration.coordinators import committed_offsets, follow
from tests.integration.java_tools import JavaTools
from tests.integration.waiting import wait_until

OFFSETS = "__consumer_offsets"
SEGMENT_BYTES = 16_384
PARTITIONS = 6
KEYS = 300
ROUNDS = int(os.environ.get("KAFKALITE_COMPACTION_ROUNDS", "3"))
SEED = int(os.environ.get("KAFKALITE_COMPACTION_SEED", "11"))
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


@pytest.fixture(scope="module", autouse=True)
def restless_cleaner(shared_cluster):
    """The cleaner looks for work ten times a second."""
    follow(shared_cluster, BACKOFF_KEY, "100")
    yield
    follow(shared_cluster, BACKOFF_KEY, None)


def replicas(cluster, topic, number=0):
    """The directories of a partition; a follower makes its own when it first hears of it."""
    found = {}

    def all_there():
        for broker in range(3):
            with contextlib.suppress(StopIteration):
                found[broker] = cluster.log_directory(broker, topic, number)
        return len(found) == 3

    wait_until(all_there, words=f"not everybody has {topic}-{number}")
    return [found[broker] for broker in range(3)]


# ------------------------------------------------------------------------------------------------ committed offsets


class Committer:
    """Commits higher and higher offsets of every partition as one group, whatever becomes of the brokers."""

    def __init__(self, cluster, group, topic):
        self.group, self.topic = group, topic
        self.attempted = self.acknowledged = self.commits = 0
        self._bootstrap = cluster.bootstrap
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        consumer = Consumer(
            {"bootstrap.servers": self._bootstrap, "group.id": self.group, "enable.auto.commit": False, "log_level": 0}
        )
        while not self._stop.is_set():
            self.attempted += 1
            wanted = [TopicPartition(self.topic, number, self.attempted) for number in range(PARTITIONS)]
            try:
                done = consumer.commit(offsets=wanted, asynchronous=False)
            except KafkaException:
                continue
            if all(entry.error is None for entry in done):
                self.acknowledged = self.attempted
                self.commits += 1
        consumer.close()

    def stop(self):
        self._stop.set()
        self._thread.join(60)
        assert not self._thread.is_alive()


def committed(cluster, group, topic):
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": group, "log_level": 0})
    try:
        found = committed_offsets(consumer, topic, PARTITIONS)
        assert [entry.error for entry in found] == [None] * PARTITIONS
        return [entry.offset for entry in found]
    finally:
        consumer.close()


@pytest.fixture
def small_offsets_segments(cluster, topic_name):
    """`__consumer_offsets` in small segments, which are compacted as soon as they are closed."""
    committed_once = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": topic_name, "log_level": 0})
    wait_until(lambda: _has_a_coordinator(committed_once), words="__consumer_offsets was not made")
    committed_once.close()
    items = cluster.api.list_namespaced_custom_object(GROUP, VERSION, NAMESPACE, "kafkalitetopics")["items"]
    (name,) = [item["metadata"]["name"] for item in items if item["spec"].get("topicName") == OFFSETS]
    before = cluster.topic(name)["spec"]["config"]
    cluster.wait_healed()
    small = {"segment.bytes": str(SEGMENT_BYTES), "min.cleanable.dirty.ratio": "0.01"}
    cluster.patch_topic(name, {"spec": {"config": small}})
    yield
    cluster.patch_topic(name, {"spec": {"config": {key: before.get(key) for key in small}}})


def _has_a_coordinator(consumer):
    try:
        return consumer.committed([TopicPartition("any", 0)], timeout=2)[0].error is None
    except KafkaException:
        return False


def test_committed_offsets_survive_compaction_kills_and_a_blackout(cluster, topic_name, small_offsets_segments):
    cluster.create_topic(topic_name, partitions=PARTITIONS)
    committers = [Committer(cluster, f"{topic_name}-{number}", topic_name) for number in range(4)]
    places = {partition_for(committer.group, 16) for committer in committers}
    directories = [directory for number in places for directory in replicas(cluster, OFFSETS, number)]
    before = {(broker, number): passes(cluster, broker, OFFSETS, number) for broker in range(3) for number in places}
    for broker in range(3):
        target = [committer.commits + 150 for committer in committers]
        wait_until(lambda wanted=target: all(c.commits >= n for c, n in zip(committers, wanted, strict=True)))
        restart(cluster, broker)
    for committer in committers:
        committer.stop()
    appended = sum(committer.commits for committer in committers) * PARTITIONS * 60  # a record is longer than that
    wait_compacted(cluster, directories)
    compacted = {key: passes(cluster, *key[:1], OFFSETS, key[1]) - count for key, count in before.items()}
    sizes = [log_bytes(directory) for directory in directories]
    print(f"{sum(c.commits for c in committers)} commits, passes {compacted}, bytes of the replicas {sizes}")
    assert all(count > 0 for count in compacted.values()), compacted
    assert sum(sizes) / 3 < appended / 3, "compaction leaves little of what was committed again and again"
    assert max(sizes) <= 4 * SEGMENT_BYTES

    found = {committer.group: committed(cluster, committer.group, topic_name) for committer in committers}
    for committer in committers:
        low, high = committer.acknowledged, committer.attempted
        assert all(low <= offset <= high for offset in found[committer.group]), (low, high, found)
    restart(cluster, 0, 1, 2)
    after = {committer.group: committed(cluster, committer.group, topic_name) for committer in committers}
    assert after == found, "what was shown once is shown by whoever has loaded the compacted log"
    cluster.delete_topic(topic_name)


# ------------------------------------------------------------------------------------------------ keys and values


class Writer:
    """Writes values of few keys all the time, deletes some, and keeps what was acknowledged in a dict."""

    def __init__(self, cluster, topic, seed):
        self.topic = topic
        self.records = 0
        self.failed = []
        self._latest = {}
        self._chance = random.Random(seed)
        self._producer = Producer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "enable.idempotence": True,
                "linger.ms": 20,
                "batch.size": 65_536,  # what piles up while a broker is away must not outgrow a segment
                "log_level": 0,
            }
        )
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        number = 0
        while not self._stop.is_set():
            for _ in range(100):
                number += 1
                key = f"key-{self._chance.randrange(KEYS)}"
                value = None if self._chance.random() < 0.05 else f"{number} " + "x" * self._chance.randrange(600)
                self._producer.produce(self.topic, value, key, on_delivery=self._delivered(key, value))
            self._producer.poll(0.05)

    def _delivered(self, key, value):
        def told(error, message):
            if error is not None:
                self.failed.append(error)
            elif message.offset() > self._latest.get(key, (-1, None))[0]:
                self._latest[key] = message.offset(), value
                self.records += 1

        return told

    def stop(self):
        """What every key holds."""
        self._stop.set()
        self._thread.join(30)
        assert self._producer.flush(60) == 0
        assert self.failed == []
        return {key: value for key, (_, value) in self._latest.items() if value is not None}


def consumed(cluster, topic, partitions=1):
    """Every record of the topic in the order of its partition, as an ordinary consumer reads it."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(partitions)])
    found = {number: [] for number in range(partitions)}
    ends = set()
    try:
        while len(ends) < partitions:
            message = consumer.poll(30)
            assert message is not None
            if message.error() is None:
                value = message.value()
                found[message.partition()].append((message.key().decode(), value and value.decode()))
            else:
                assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                ends.add(message.partition())
    finally:
        consumer.close()
    return found


def test_sigkill_in_the_middle_of_a_pass_costs_no_key(cluster, topic_name):
    print(f"KAFKALITE_COMPACTION_SEED={SEED} KAFKALITE_COMPACTION_ROUNDS={ROUNDS}")
    chance = random.Random(SEED)
    cluster.create_topic(
        topic_name,
        min_insync_replicas="2",
        cleanup_policy="compact",
        segment_bytes="524288",
        min_cleanable_dirty_ratio="0.01",
    )
    directories = replicas(cluster, topic_name)
    writer = Writer(cluster, topic_name, SEED)
    left_over = []
    for number in range(ROUNDS):
        victim = (number + SEED) % 3
        epoch = epoch_of(cluster, victim)
        wait_until(lambda v=victim: under_way(directories[v]), words="no pass begins", pause=0.001)
        time.sleep(chance.choice((0, chance.uniform(0, 0.02))))
        cluster.signal(victim, signal.SIGKILL)
        left_over.append(under_way(directories[victim]))
        wait_back(cluster, {victim: epoch})
    wanted = writer.stop()
    wait_compacted(cluster, directories)
    print(f"{writer.records} records, left over by the killed: {left_over}")
    assert sum(map(bool, left_over)) >= ROUNDS // 2, "hardly any of the kills hit a pass"
    assert fold(consumed(cluster, topic_name)[0]) == wanted
    for broker, directory in enumerate(directories):
        assert under_way(directory) == []
        records = stored(directory)
        assert [record.offset for record in records] == sorted({record.offset for record in records})
        assert fold([(record.key, record.value) for record in records]) == wanted, f"on broker {broker}"
        assert len(records) < writer.records / 2, f"broker {broker} has compacted nothing"
    cluster.delete_topic(topic_name)


@pytest.fixture
def rewritten(cluster, topic_name):
    """A compacted topic, each partition written with another codec, and what its keys hold; batches have holes."""
    cluster.create_topic(
        topic_name,
        partitions=len(CODECS),
        min_insync_replicas="2",
        cleanup_policy="compact",
        segment_bytes="16384",
        min_cleanable_dirty_ratio="0.01",
    )
    chance = random.Random(SEED)
    wanted = {}
    for number, codec in enumerate(CODECS):
        producer = Producer(
            {"bootstrap.servers": cluster.bootstrap, "compression.type": codec, "linger.ms": 100, "acks": "all"}
        )
        records = []
        for place in range(60):
            # Half of each batch is overwritten by the next one.
            batch = [(f"{place} {n}" if n % 2 else f"hot {n}", chance.randbytes(40).hex()) for n in range(40)]
            for key, value in batch:
                producer.produce(topic_name, value, key, partition=number)
            assert producer.flush(30) == 0
            records += batch
        wanted[number] = fold(records)
    directories = [directory for number in range(len(CODECS)) for directory in replicas(cluster, topic_name, number)]
    wait_until(lambda: all(any(not record.whole for record in _tried(directory)) for directory in directories))
    wait_quiet(directories)
    for number in range(len(CODECS)):
        for directory in replicas(cluster, topic_name, number):
            holes = [record for record in stored(directory) if not record.whole]
            assert {record.codec for record in holes} == {number}, "a rewritten batch keeps its codec"
    yield topic_name, wanted
    cluster.delete_topic(topic_name)


def _tried(directory):
    """The files may be swapped while they are read."""
    try:
        return stored(directory)
    except FileNotFoundError:
        return []


def test_every_client_reads_rewritten_batches_of_every_codec(cluster, rewritten):
    topic, wanted = rewritten
    count = 0
    for number, records in consumed(cluster, topic, len(CODECS)).items():
        count += len(records)
        assert fold(records) == wanted[number], f"confluent-kafka, {CODECS[number]}"
    kcat = subprocess.run(
        ["kcat", "-C", "-b", cluster.bootstrap, "-t", topic, "-o", "beginning", "-e", "-q", "-f", "%p\t%k\t%s\n"],
        capture_output=True, text=True, timeout=60, check=True, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    java = JavaTools(cluster.bootstrap).run(
        "kafka-console-consumer", "--topic", topic, "--from-beginning", "--max-messages", str(count),
        "--formatter-property", "print.partition=true", "--formatter-property", "print.key=true",
    )  # fmt: skip
    for name, lines in (("kcat", kcat.stdout.splitlines()), ("Java", java.lines)):
        found = {number: [] for number in range(len(CODECS))}
        for line in lines:
            partition, key, value = line.removeprefix("Partition:").split("\t")
            found[int(partition)].append((key, value))
        assert sum(map(len, found.values())) == count
        for number, records in found.items():
            assert fold(records) == wanted[number], f"{name}, {CODECS[number]}"
