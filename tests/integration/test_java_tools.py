"""Apache Kafka's own command-line tools do here what they do on Apache Kafka, and the custom resource agrees.

The expectations are those of Apache Kafka 4.3.1: `java_tools.bootstrap_elsewhere` puts the same tests to a cluster of it.
"""

import json
import re

import pytest
from kubernetes.client.exceptions import ApiException

from tests.integration.cluster import GROUP, NAMESPACE, VERSION, in_sync
from tests.integration.java_tools import JavaTools, bootstrap_elsewhere, table


@pytest.fixture
def cluster(request):
    """The cluster of the tier; None when the tools are pointed somewhere else."""
    if bootstrap_elsewhere():
        yield None
    else:
        shared = request.getfixturevalue("shared_cluster")
        yield shared
        shared.wait_healed()


@pytest.fixture
def tools(cluster):
    return JavaTools(bootstrap_elsewhere() or cluster.bootstrap)


@pytest.fixture
def topic(tools, topic_name):
    """A topic of two partitions on three brokers."""
    create(tools, topic_name)
    yield topic_name
    tools.run("kafka-topics", "--delete", "--topic", topic_name)


def create(tools: JavaTools, name: str, *arguments: str) -> None:
    shape = arguments or ("--partitions", "2", "--replication-factor", "3")
    made = tools.run("kafka-topics", "--create", "--topic", name, *shape, "--config", "min.insync.replicas=2")
    assert made.lines == [f"Created topic {name}."]


def described(text: str) -> tuple[dict[str, str], list[dict[str, str]]]:
    """The head line of `kafka-topics --describe` and its partition lines, as field -> value."""

    def fields(line: str) -> dict[str, str]:
        pairs = [part.partition(":") for part in line.strip().split("\t")]
        return {name.strip(): value.strip() for name, _, value in pairs}

    head, *partitions = [fields(line) for line in text.splitlines() if line.strip()]
    return head, partitions


def configs(head: dict[str, str]) -> dict[str, str]:
    return dict(item.split("=", 1) for item in head["Configs"].split(",") if item)


def produce(tools: JavaTools, topic: str, values: list[str]) -> None:
    tools.run("kafka-console-producer", "--topic", topic, data="".join(f"{value}\n" for value in values))


def consume(tools: JavaTools, topic: str, count: int, *arguments: str) -> list[str]:
    limits = ("--max-messages", str(count), "--timeout-ms", "30000", "--from-beginning")
    return tools.run("kafka-console-consumer", "--topic", topic, *limits, *arguments).lines


def offsets(tools: JavaTools, topic: str, *arguments: str) -> list[str]:
    return tools.run("kafka-get-offsets", "--topic", topic, *arguments).lines


def dynamic(output: str) -> dict[str, str]:
    """`kafka-configs --describe`: key -> value, of the lines behind the title."""
    entries = [line.split()[0] for line in output.splitlines()[1:] if line.strip()]
    return dict(entry.split("=", 1) for entry in entries)


def cluster_resource(cluster) -> dict:
    return cluster.api.get_namespaced_custom_object(GROUP, VERSION, NAMESPACE, "kafkaliteclusters", "kafkalite")


def test_topics_are_made_shown_grown_and_deleted(tools, cluster, topic_name):
    create(tools, topic_name, "--partitions", "2", "--replication-factor", "3", "--config", "retention.ms=86400000")
    assert topic_name in tools.run("kafka-topics", "--list").lines
    again = tools.run("kafka-topics", "--create", "--topic", topic_name, code=1)
    assert f"Topic '{topic_name}' already exists." in again.text
    assert tools.run("kafka-topics", "--create", "--topic", topic_name, "--if-not-exists").lines == []

    assert tools.run("kafka-topics", "--alter", "--topic", topic_name, "--partitions", "4").lines == []
    fewer = tools.run("kafka-topics", "--alter", "--topic", topic_name, "--partitions", "3", code=1)
    assert f"The topic {topic_name} currently has 4 partition(s); 3 would not be an increase." in fewer.text
    assert "InvalidPartitionsException" in fewer.text

    head, partitions = described(tools.run("kafka-topics", "--describe", "--topic", topic_name).out)
    assert (head["Topic"], head["PartitionCount"], head["ReplicationFactor"]) == (topic_name, "4", "3")
    assert configs(head) == {"min.insync.replicas": "2", "retention.ms": "86400000"}
    assert [entry["Partition"] for entry in partitions] == ["0", "1", "2", "3"]
    for entry in partitions:
        replicas = entry["Replicas"].split(",")
        assert entry["Leader"] in replicas
        assert sorted(entry["Isr"].split(",")) == sorted(replicas)
        assert (entry["Elr"], entry["LastKnownElr"]) == ("", "")
    if cluster:
        topic = cluster.wait_topic(topic_name, in_sync)
        assert topic["spec"]["partitions"] == 4
        assert topic["spec"]["config"] == configs(head)
        assert {
            (number, str(entry["leader"]), ",".join(map(str, entry["replicas"])))
            for number, entry in topic["status"]["partitions"].items()
        } == {(entry["Partition"], entry["Leader"], entry["Replicas"]) for entry in partitions}

    assert tools.run("kafka-topics", "--delete", "--topic", topic_name).lines == []
    assert topic_name not in tools.run("kafka-topics", "--list").lines
    gone = tools.run("kafka-topics", "--describe", "--topic", topic_name, code=1)
    assert f"Topic '{topic_name}' does not exist as expected" in gone.text
    if cluster:
        with pytest.raises(ApiException, match="Not Found"):
            cluster.topic(topic_name)


def test_topics_that_cannot_be_are_refused_with_kafkas_errors(tools, topic_name):
    made = ("kafka-topics", "--create", "--topic")
    many = tools.run(*made, topic_name, "--partitions", "1", "--replication-factor", "9", code=1)
    assert "InvalidReplicationFactorException" in many.text
    assert "Unable to replicate the partition 9 time(s)" in many.text
    wrong = tools.run(*made, topic_name, "--replica-assignment", "0:98,1:99", code=1)
    assert "InvalidReplicaAssignmentException" in wrong.text
    assert topic_name not in tools.run("kafka-topics", "--list").lines


def test_replicas_are_where_they_were_asked_for(tools, topic, topic_name):
    _, partitions = described(tools.run("kafka-topics", "--describe", "--topic", topic).out)
    first, second, third = partitions[0]["Replicas"].split(",")
    other = f"{topic_name}-placed"
    wanted = [f"{first},{second}", f"{third},{first}", f"{second},{third}"]
    placed = ",".join(replicas.replace(",", ":") for replicas in wanted)
    create(tools, other, "--replica-assignment", placed)
    _, partitions = described(tools.run("kafka-topics", "--describe", "--topic", other).out)
    assert [entry["Replicas"] for entry in partitions] == wanted
    assert [entry["Leader"] for entry in partitions] == [first, third, second]
    tools.run("kafka-topics", "--delete", "--topic", other)


def test_configurations_of_a_topic_change_and_go(tools, cluster, topic):
    this = ("kafka-configs", "--entity-type", "topics", "--entity-name", topic)
    changed = tools.run(*this, "--alter", "--add-config", "retention.ms=100000,cleanup.policy=compact")
    assert changed.lines == [f"Completed updating config for topic {topic}."]
    shown = tools.run(*this, "--describe")
    assert shown.lines[0] == f"Dynamic configs for topic {topic} are:"
    assert dynamic(shown.out) == {"cleanup.policy": "compact", "min.insync.replicas": "2", "retention.ms": "100000"}
    assert (
        "synonyms={DYNAMIC_TOPIC_CONFIG:cleanup.policy=compact, DEFAULT_CONFIG:log.cleanup.policy=delete}" in shown.out
    )
    if cluster:
        assert cluster.topic(topic)["spec"]["config"] == dynamic(shown.out)

    tools.run(*this, "--alter", "--delete-config", "retention.ms")
    every = tools.run(*this, "--describe", "--all")
    assert every.lines[0] == f"All configs for topic {topic} are:"
    assert dynamic(every.out).items() >= {"retention.ms": "604800000", "cleanup.policy": "compact"}.items()
    if cluster:
        assert cluster.topic(topic)["spec"]["config"] == {"cleanup.policy": "compact", "min.insync.replicas": "2"}

    for change, key in {"foo.bar=1": "foo.bar", "retention.ms=abc": "retention.ms"}.items():
        refused = tools.run(*this, "--alter", "--add-config", change, code=1)
        assert re.search(rf"InvalidConfigurationException: .*\b{re.escape(key)}\b", refused.text), refused
    absent = ("kafka-configs", "--entity-type", "topics", "--entity-name", f"{topic}-absent")
    assert "doesn't exist and doesn't have dynamic config." in tools.run(*absent, "--describe").out
    refused = tools.run(*absent, "--alter", "--add-config", "retention.ms=1", code=1)
    assert "UnknownTopicOrPartitionException" in refused.text


def test_the_default_of_all_brokers_changes_and_goes(tools, cluster):
    every = ("kafka-configs", "--entity-type", "brokers", "--entity-default")
    changed = tools.run(*every, "--alter", "--add-config", "message.max.bytes=2000000")
    assert changed.lines == ["Completed updating default config for brokers in the cluster."]
    shown = tools.run(*every, "--describe")
    assert shown.lines[0] == "Default configs for brokers in the cluster are:"
    assert dynamic(shown.out)["message.max.bytes"] == "2000000"
    if cluster:
        assert cluster_resource(cluster)["spec"]["config"]["message.max.bytes"] == "2000000"
    tools.run(*every, "--alter", "--delete-config", "message.max.bytes")
    assert "message.max.bytes" not in dynamic(tools.run(*every, "--describe").out)
    refused = tools.run(*every, "--alter", "--add-config", "log.cleaner.enable=false", code=1)
    assert re.search(r"InvalidRequestException: .*\blog\.cleaner\.enable\b", refused.text), refused


def test_a_group_is_listed_described_reset_and_deleted(tools, topic):
    group = f"{topic}-group"
    this = ("kafka-consumer-groups", "--group", group)
    values = [f"value {number}" for number in range(10)]
    produce(tools, topic, values)
    assert sorted(consume(tools, topic, 10, "--group", group)) == values
    ends = {line.split(":")[1]: line.split(":")[2] for line in offsets(tools, topic)}
    assert sum(map(int, ends.values())) == 10

    assert group in tools.run("kafka-consumer-groups", "--list").lines
    shown = tools.run(*this, "--describe")
    assert f"Consumer group '{group}' has no active members." in shown.text
    # The producer may put all of them into one partition; of an empty one the consumer may know no position to commit.
    filled = {partition: end for partition, end in ends.items() if end != "0"}
    rows = [(row["TOPIC"], row["PARTITION"], row["CURRENT-OFFSET"], row["LAG"]) for row in table(shown.out)]
    assert [row for row in rows if row[1] in filled] == [
        (topic, part, end, "0") for part, end in sorted(filled.items())
    ]
    assert {row[1:] for row in rows if row[1] not in filled} <= {(part, "0", "0") for part in ends}
    [state] = table(tools.run(*this, "--describe", "--state").out)
    assert (state["GROUP"], state["ASSIGNMENT-STRATEGY"], state["STATE"], state["#MEMBERS"]) == (
        group,
        "-",
        "Empty",
        "0",
    )
    unknown = tools.run("kafka-consumer-groups", "--describe", "--group", "absent", code=None)
    assert "GroupIdNotFoundException: Group absent not found." in unknown.text

    reset = ("--reset-offsets", "--topic", topic, "--to-earliest")
    planned = tools.run(*this, *reset, "--dry-run")
    assert {(row["PARTITION"], row["NEW-OFFSET"]) for row in table(planned.out)} == {("0", "0"), ("1", "0")}
    assert {part: offset for part, offset in consumed(tools, group).items() if part in filled} == filled
    tools.run(*this, *reset, "--execute")
    assert consumed(tools, group) == {"0": "0", "1": "0"}
    assert sorted(consume(tools, topic, 10, "--group", group)) == values

    removed = tools.run(*this, "--delete-offsets", "--topic", topic)
    assert f"Request succeeded for deleting offsets from group {group}." in removed.out
    assert [(row["PARTITION"], row["STATUS"]) for row in table(removed.out)] == [
        ("0", "Successful"),
        ("1", "Successful"),
    ]
    deleted = tools.run(*this, "--delete")
    assert f"Deletion of requested consumer groups ('{group}') was successful." in deleted.out
    assert group not in tools.run("kafka-consumer-groups", "--list").lines
    again = tools.run(*this, "--delete", code=None)
    assert f"* Group '{group}' could not be deleted due to: " in again.text
    assert "GroupIdNotFoundException" in again.text


def consumed(tools: JavaTools, group: str) -> dict[str, str]:
    shown = tools.run("kafka-consumer-groups", "--group", group, "--describe")
    return {row["PARTITION"]: row["CURRENT-OFFSET"] for row in table(shown.out)}


def test_records_are_deleted_and_log_directories_shown(tools, topic, tmp_path):
    produce(tools, topic, [f"value {number}" for number in range(10)])
    [busy] = [line.split(":")[1] for line in offsets(tools, topic) if line.endswith(":10")]
    plan = tmp_path / "records.json"
    plan.write_text(json.dumps({"version": 1, "partitions": [{"topic": topic, "partition": int(busy), "offset": 3}]}))
    done = tools.run("kafka-delete-records", "--offset-json-file", str(plan))
    assert done.lines[-1] == f"partition: {topic}-{busy}\tlow_watermark: 3"
    assert f"{topic}:{busy}:3" in offsets(tools, topic, "--time", "earliest")
    plan.write_text(json.dumps({"version": 1, "partitions": [{"topic": topic, "partition": int(busy), "offset": 11}]}))
    beyond = tools.run("kafka-delete-records", "--offset-json-file", str(plan), code=None)
    assert "OffsetOutOfRangeException" in beyond.text

    report = tools.run("kafka-log-dirs", "--describe", "--topic-list", topic).lines[-1]
    brokers = json.loads(report)["brokers"]
    assert len(brokers) == 3
    for broker in brokers:
        [directory] = broker["logDirs"]
        assert directory["error"] is None
        sizes = {entry["partition"]: entry["size"] for entry in directory["partitions"]}
        assert set(sizes) == {f"{topic}-0", f"{topic}-1"}
        assert sizes[f"{topic}-{busy}"] > 0
        assert {(entry["offsetLag"], entry["isFuture"]) for entry in directory["partitions"]} == {(0, False)}


def test_an_election_that_is_not_needed_says_so(tools, topic):
    this = ("--topic", topic, "--partition", "0")
    for kind in ("preferred", "unclean"):
        said = tools.run("kafka-leader-election", "--election-type", kind, *this)
        assert said.lines == [f"Valid replica already elected for partitions {topic}-0"]
    unknown = tools.run(
        "kafka-leader-election",
        "--election-type",
        "preferred",
        "--topic",
        f"{topic}-absent",
        "--partition",
        "0",
        code=1,
    )
    assert "UnknownTopicOrPartitionException" in unknown.text
