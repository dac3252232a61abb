"""Every client joins the same group: they share the partitions, and take over from one that leaves or dies.

The Java console consumer, kcat, confluent-kafka, kafka-python and aiokafka have the range assignor in common; whoever
joins first computes the assignment of all. Against Apache Kafka itself: `java_tools.bootstrap_elsewhere`.
"""

import collections
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, ConsumerGroupState, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.integration.client_process import HEARTBEAT_MS, SESSION_MS
from tests.integration.coordinators import committed_offsets
from tests.integration.java_tools import JavaTools, bootstrap_elsewhere, command_line, table

PARTITIONS = 10
RECORDS = 20  # of each partition in each round
CONFIG = {"session.timeout.ms": SESSION_MS, "heartbeat.interval.ms": HEARTBEAT_MS, "auto.commit.interval.ms": 200}
PYTHON_CLIENTS = ("confluent-kafka", "kafka-python", "aiokafka")


@pytest.fixture
def bootstrap(request):
    if elsewhere := bootstrap_elsewhere():
        yield elsewhere
    else:
        yield request.getfixturevalue("cluster").bootstrap


@pytest.fixture
def topic(bootstrap, topic_name):
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
    new = NewTopic(topic_name, PARTITIONS, 3, config={"min.insync.replicas": "2"})
    admin.create_topics([new])[topic_name].result(30)
    yield topic_name
    admin.delete_topics([topic_name])[topic_name].result(30)


class Member:
    """A client's process and what it printed: (partition, offset) of each record."""

    def __init__(self, client: str, command: list[str], directory: Path) -> None:
        self.client = client
        self.seen: list[tuple[int, int]] = []
        self.errors = directory / f"{client}.err"
        with self.errors.open("wb") as errors:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def _read(self) -> None:
        for line in self.process.stdout:
            partition, offset, _ = line.replace("Partition:", "").replace("Offset:", "").split(maxsplit=2)
            self.seen.append((int(partition), int(offset)))

    def end(self, number: int = signal.SIGTERM) -> None:
        self.process.send_signal(number)
        try:
            self.process.wait(20)
        finally:
            self.process.kill()
            self.process.wait()
            self._reading.join()
            self.process.stdout.close()


def commands(bootstrap: str, group: str, topic: str) -> dict[str, list[str]]:
    java = command_line(
        "kafka-console-consumer",
        "--bootstrap-server",
        bootstrap,
        "--topic",
        topic,
        "--group",
        group,
        "--from-beginning",
    )
    for name in ("print.partition", "print.offset"):
        java += ["--formatter-property", f"{name}=true"]
    properties = {
        **CONFIG,
        "client.id": "java",
        "partition.assignment.strategy": "org.apache.kafka.clients.consumer.RangeAssignor",
    }
    kcat = ["kcat", "-b", bootstrap, "-G", group, "-q", "-u", "-f", "%p %o %s\n"]
    for name, value in properties.items():
        java += ["--command-property", f"{name}={value}"]
    for name, value in {
        **CONFIG,
        "client.id": "kcat",
        "partition.assignment.strategy": "range",
        "auto.offset.reset": "earliest",
    }.items():
        kcat += ["-X", f"{name}={value}"]
    script = [sys.executable, str(Path(__file__).with_name("client_process.py"))]
    python = {client: [*script, client, bootstrap, group, topic] for client in PYTHON_CLIENTS}
    return {"java": java, "kcat": [*kcat, topic], **python}


class Group:
    """The members of one group, and what the coordinator says about it."""

    def __init__(self, bootstrap: str, name: str, topic: str, directory: Path) -> None:
        self.bootstrap, self.name, self.topic = bootstrap, name, topic
        self.members: dict[str, Member] = {}
        self.gone: list[Member] = []
        self._producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 2})
        self._asking = Consumer({"bootstrap.servers": bootstrap, "group.id": name, "log_level": 2})  # never a member
        for client, command in commands(bootstrap, name, topic).items():
            self.members[client] = Member(client, command, directory)

    def end(self, client: str, number: int = signal.SIGTERM) -> None:
        member = self.members.pop(client)
        self.gone.append(member)
        member.end(number)

    def owners(self, timeout_s: float = 40) -> dict[int, str]:
        """Partition -> client, once the group is stable with the members that are alive."""
        limit, seen = time.monotonic() + timeout_s, ""
        while time.monotonic() < limit:
            try:
                admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 2})
                group = admin.describe_consumer_groups([self.name], request_timeout=5)[self.name].result()
            except KafkaException as error:
                seen = str(error)
            else:
                clients = sorted(member.client_id for member in group.members)
                seen = f"{group.state} {clients}"
                if group.state == ConsumerGroupState.STABLE and len(clients) == len(self.members):
                    pairs = [
                        (partition.partition, self.client_of(member.client_id))
                        for member in group.members
                        for partition in member.assignment.topic_partitions
                    ]
                    assert len(pairs) == len(dict(pairs)) == PARTITIONS, pairs
                    return dict(pairs)
            time.sleep(0.1)
        errors = {member.client: member.errors.read_text()[-500:] for member in self.members.values()}
        raise AssertionError(f"not stable with {sorted(self.members)} after {timeout_s} s: {seen}; {errors}")

    def close(self) -> None:
        for member in self.members.values():
            member.end(signal.SIGKILL)
        self._asking.close()

    def client_of(self, client_id: str) -> str:
        """Clients add a suffix of their own."""
        return next(client for client in self.members if client_id.startswith(client))

    def round(self, timeout_s: float = 20) -> None:
        """Produce to every partition; each record goes to the owner of its partition and nobody else, once.

        Ends when the owners have committed what they read.
        """
        owners = self.owners()
        shares = collections.Counter(owners.values())
        assert set(shares) == set(self.members)
        assert max(shares.values()) - min(shares.values()) <= 1, shares
        sent = self._send()
        limit = time.monotonic() + timeout_s
        found: dict[tuple[int, int], list[str]] = {}
        while time.monotonic() < limit and not set(sent) <= set(found):
            time.sleep(0.05)
            found = collections.defaultdict(list)
            for member in self.members.values():
                for place in list(member.seen):
                    found[place].append(member.client)
        assert {place: found.get(place) for place in sent} == {place: [owners[place[0]]] for place in sent}
        ends = {partition: 1 + max(o for p, o in sent if p == partition) for partition in range(PARTITIONS)}
        while (committed := self._committed()) != ends:
            assert time.monotonic() < limit, (committed, ends)
            time.sleep(0.1)

    def _committed(self) -> dict[int, int]:
        """By partition."""
        answers = committed_offsets(self._asking, self.topic, PARTITIONS)
        return {answer.partition: answer.offset for answer in answers}

    def _send(self) -> list[tuple[int, int]]:
        sent, failed = [], []

        def delivered(error, message) -> None:
            failed.append(error) if error else sent.append((message.partition(), message.offset()))

        for number in range(PARTITIONS * RECORDS):
            self._producer.produce(
                self.topic, b"value %d" % number, partition=number % PARTITIONS, on_delivery=delivered
            )
        assert self._producer.flush(20) == 0
        assert failed == []
        return sent


@pytest.fixture
def group(bootstrap, topic, tmp_path):
    group = Group(bootstrap, f"{topic}-group", topic, tmp_path)
    try:
        yield group
    finally:
        group.close()


def the_tool_shows_the_group_and_leaves_it_alone(group):
    """kafka-consumer-groups on a group that is at work, as on Apache Kafka."""
    tools = JavaTools(group.bootstrap)
    this = ("kafka-consumer-groups", "--group", group.name)
    owners = group.owners()
    rows = table(tools.run(*this, "--describe").out)
    assert {int(row["PARTITION"]): group.client_of(row["CLIENT-ID"]) for row in rows} == owners
    for row in rows:
        assert (row["TOPIC"], row["LAG"], row["HOST"]) == (group.topic, "0", "/127.0.0.1")
        assert row["CURRENT-OFFSET"] == row["LOG-END-OFFSET"] == str(RECORDS)
        assert row["CONSUMER-ID"].startswith(row["CLIENT-ID"])
    [state] = table(tools.run(*this, "--describe", "--state").out)
    assert (state["ASSIGNMENT-STRATEGY"], state["STATE"], state["#MEMBERS"]) == ("range", "Stable", "5")
    reset = tools.run(*this, "--reset-offsets", "--topic", group.topic, "--to-earliest", "--execute", code=None)
    assert f"if the group '{group.name}' is inactive, but the current state is Stable." in reset.text
    assert "GroupNotEmptyException" in tools.run(*this, "--delete", code=None).text
    removed = tools.run(*this, "--delete-offsets", "--topic", group.topic, code=None)
    assert removed.text.count("GroupSubscribedToTopicException") == PARTITIONS
    assert group.owners() == owners


def test_five_clients_share_a_group_and_take_over_from_one_that_leaves_and_one_that_dies(group):
    group.round()
    the_tool_shows_the_group_and_leaves_it_alone(group)
    group.end("kcat")
    group.round()
    group.end("java")
    group.round()
    group.end("aiokafka", signal.SIGKILL)
    group.round()
    every = collections.Counter(place for member in [*group.members.values(), *group.gone] for place in member.seen)
    assert len(every) == 4 * PARTITIONS * RECORDS
    assert {place for place, count in every.items() if count > 1} == set(), "what was committed was read again"
