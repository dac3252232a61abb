import json

import pytest
from click.testing import CliRunner

from kafkalite_cli import outage
from kafkalite_cli.main import main
from kafkalite_cli.topics import objects, sizes
from kafkalite_runtime.kube import KubeThrottled, KubeUnavailable
from tests.unit.cli.fakes import REFUSED, Api, cluster_object, topic_object


@pytest.fixture
def run(run_topics):
    return run_topics


def test_listing(run):
    api = Api(topic_object("b"), topic_object("a", partitions=2), topic_object("__consumer_offsets"))
    result = run(api, "list")
    assert result.exit_code == 0
    assert [line.split()[0] for line in result.output.splitlines()] == ["name", "__consumer_offsets", "a", "b"]
    assert "cluster" not in result.output, "they all have the same one"
    assert run(api, "list", "-o", "name", "--exclude-internal").output == "a\nb\n"
    [_, a, _] = json.loads(run(api, "list", "-o", "json").output)
    assert a == {
        "name": "a", "namespace": "default", "cluster": "kafkalite", "partitions": 2, "replicas": 3, "inSync": "6/6",
        "ready": True, "reason": "Serving", "internal": False,
    }  # fmt: skip
    assert run(Api(), "list").output == "no topics\n"


def test_listing_shows_clusters_and_namespaces_where_they_differ(run):
    api = Api(topic_object("a"), topic_object("b", namespace="other", clusterRef={"name": "second"}))
    assert run(api, "list").output.splitlines()[0].split()[:3] == ["name", "namespace", "cluster"]
    assert run(api, "list", "-n", "other", "-o", "name").output == "b\n"
    assert run(api, "list", "--cluster", "second", "-o", "name").output == "b\n"


def test_describing(run, monkeypatch):
    topic = topic_object("orders", partitions=2, topic_name="Orders", config={"retention.ms": "5"})
    api = Api(topic, clusters=[cluster_object(config={"log.segment.bytes": "2048"})])
    result = run(api, "describe", "Orders")
    assert result.exit_code == 0
    assert "topic Orders   id id   partitions 2   replicas 3   cluster kafkalite" in result.output
    assert "config  retention.ms=5" in result.output
    assert "Ready" in result.output
    assert "0,1,2" in result.output
    topic["status"]["partitions"]["1"]["leader"] = 1
    topic["spec"]["config"] |= {"segment.bytes": "soon", "segment.ms": "9"}
    api.clusters[0]["spec"]["config"]["log.roll.ms"] = "8"
    known = {("Orders", 0, 0): 5, ("Orders", 0, 1): 99, ("Orders", 1, 1): 7}
    monkeypatch.setattr(sizes, "read_sizes", lambda _addresses, _topics: known)
    monkeypatch.setattr(sizes, "addresses_of", lambda _brokers, _cluster: {0: ("h", 1)})
    [document] = json.loads(CliRunner().invoke(main, ["topics", "describe", "-o", "json"]).output)
    assert (document["object"], document["name"], document["sizeBytes"]) == ("orders", "Orders", 12)
    assert [entry["sizeBytes"] for entry in document["partitions"]] == [5, 7], "only the leader's log counts"
    assert document["partitions"][1] | {"sizeBytes": None} == {
        "partition": 1, "leader": 1, "leaderEpoch": 3, "partitionEpoch": 5, "replicas": [0, 1, 2], "isr": [0, 1, 2],
        "elr": [], "adding": [], "removing": [], "minIsr": 1, "sizeBytes": None,
    }  # fmt: skip
    assert document["effectiveConfig"]["retention.ms"] == {"value": "5", "source": "topic"}
    assert document["effectiveConfig"]["segment.bytes"] == {"value": "2048", "source": "cluster"}
    assert document["effectiveConfig"]["segment.ms"] == {"value": "9", "source": "topic"}
    assert document["effectiveConfig"]["cleanup.policy"] == {"value": "delete", "source": "default"}
    assert "segment.bytes" in run(api, "describe", "--all-config").output


@pytest.mark.parametrize(
    ("option", "leader", "isr", "found"),
    [
        ("--under-replicated", 0, [0, 1], True),
        ("--under-replicated", 0, [0, 1, 2], False),
        ("--unavailable", -1, [0, 1, 2], True),
        ("--unavailable", 0, [0], False),
        ("--under-min-isr", 0, [0], True),
        ("--under-min-isr", 0, [0, 1], False),
    ],
)
def test_describing_only_what_has_a_problem(run, option, leader, isr, found):
    topic = topic_object("t", partitions=2)
    topic["status"]["partitions"]["1"] |= {"leader": leader, "isr": list(isr), "minIsr": 2}
    documents = json.loads(run(Api(topic), "describe", option, "-o", "json").output)
    assert [entry["partition"] for each in documents for entry in each["partitions"]] == ([1] if found else [])


def test_several_problems_are_looked_for_at_once(run):
    topic = topic_object("t", partitions=3)
    topic["status"]["partitions"]["0"]["leader"] = -1
    topic["status"]["partitions"]["1"]["isr"].pop()
    options = ("--unavailable", "--under-replicated", "--under-min-isr")
    documents = json.loads(run(Api(topic), "describe", *options, "-o", "json").output)
    assert [entry["partition"] for each in documents for entry in each["partitions"]] == [0, 1]
    words = run(Api(topic_object("u")), "describe", *options).stderr
    assert words == "no under-replicated or unavailable or under-min-isr partitions\n"


def test_topics_that_are_not_there_or_there_twice(run):
    assert "topic 'x' does not exist" in run(Api(), "describe", "x").stderr
    api = Api(topic_object("a", topic_name="t"), topic_object("t", namespace="other"))
    result = run(api, "describe", "t")
    assert result.exit_code == 1
    assert "default/a, other/t" in result.stderr
    assert run(api, "describe", "t", "-n", "other").exit_code == 0


def test_creating(run):
    api = Api(clusters=[cluster_object(config={"num.partitions": "4", "default.replication.factor": "2"})], lazy=2)
    result = run(api, "create", "Orders", "--config", "min.insync.replicas=2", "--deletion-policy", "Retain")
    assert (result.exit_code, result.stdout) == (0, "topic Orders created (4 partitions, 2 replicas)\n")
    assert "the operator has not seen it yet" in result.stderr
    [(name, made)] = api.objects.items()
    assert name.startswith("orders-"), "not the name that Kubernetes would refuse"
    assert made["spec"] == {
        "partitions": 4, "replicas": 2, "topicName": "Orders", "config": {"min.insync.replicas": "2"},
        "deletionPolicy": "Retain",
    }  # fmt: skip


def test_creating_again(run):
    api = Api(topic_object("t"))
    result = run(api, "create", "t")
    assert (result.exit_code, "topic 't' already exists" in result.stderr) == (1, True)
    result = run(api, "create", "t", "--if-not-exists")
    assert (result.exit_code, result.output) == (0, "topic t exists already\n")


def test_creating_by_hand(run):
    api = Api(clusters=[cluster_object()])
    assert run(api, "create", "t", "--assignment", "0:1,1:2,2:0").exit_code == 0
    spec = api.objects["t"]["spec"]
    assert (spec["partitions"], spec["replicas"]) == (3, 2)
    assert spec["replicaAssignment"] == {"0": [0, 1], "1": [1, 2], "2": [2, 0]}
    for wrong, words in [("0:1,1", "same number"), ("0:0", "twice"), ("a", "not of the form")]:
        assert words in run(api, "create", "u", "--assignment", wrong).stderr
    assert "leave the other options out" in run(api, "create", "u", "--assignment", "0", "--partitions", "1").stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["create", "a b"], "is not a topic name"),
        (["create", "t", "--replicas", "4"], "4 replicas, but the cluster has 3 brokers"),
        (["create", "t", "--config", "retention.sm=1"], "unknown topic configuration key"),
        (["create", "t", "--config", "retention.ms=soon"], "is not a whole number"),
        (["create", "t", "--config", "min.insync.replicas=3", "--replicas", "2"], "more than the topic's 2 replicas"),
        (
            ["create", "t", "--assignment", "0:1:9,1:2:0"],
            "--assignment names 9, and the brokers of the cluster are 0, 1, 2",
        ),
        (["create", "t", "--cluster", "absent"], "there is no KafkaLiteCluster 'absent'"),
    ],
)
def test_what_cannot_be_is_not_made(run, arguments, words):
    api = Api(clusters=[cluster_object()])
    result = run(api, *arguments)
    assert result.exit_code == 1
    assert words in result.stderr
    assert api.objects == {}


def test_a_topic_that_must_be_corrected_is_not_waited_for(run):
    api = Api(clusters=[cluster_object()])
    real = api._operate

    def judge(topic):
        real(topic)
        topic["status"]["conditions"][0] |= {
            "status": "False",
            "reason": "TooManyPartitions",
            "message": "one too many",
        }

    api._operate = judge
    result = run(api, "create", "t")
    assert (result.exit_code, "topic 't': one too many" in result.stderr) == (1, True)


def test_partitions_that_are_wanted_are_waited_for():
    topic = topic_object("t", partitions=2)
    assert objects.waits_for(topic) == ""
    topic["spec"]["partitions"] = 3
    assert objects.waits_for(topic) == "2 of 3 partitions are placed"


def test_waiting_has_an_end(run):
    result = run(Api(clusters=[cluster_object()], lazy=10**9), "create", "t", "--timeout", "0.1")
    assert result.exit_code == 1
    assert "not ready within 0.1 s: the operator has not seen it yet" in result.stderr
    assert run(Api(lazy=10**9), "create", "t", "--no-wait").exit_code == 0


def test_altering(run):
    api = Api(topic_object("t", partitions=2, config={"retention.ms": "5", "segment.bytes": "2048"}), lazy=1)
    result = run(
        api, "alter", "t", "--partitions", "4", "--config", "retention.ms=6", "--delete-config", "segment.bytes"
    )
    assert (result.exit_code, result.stdout) == (0, "topic t altered\n")
    assert "keys may go to other partitions" in result.stderr
    assert api.patches == [{"spec": {"partitions": 4, "config": {"retention.ms": "6", "segment.bytes": None}}}]
    assert api.objects["t"]["spec"]["config"] == {"retention.ms": "6"}
    result = run(api, "alter", "t", "--config", "retention.ms=6", "--delete-config", "segment.bytes")
    assert (result.output, len(api.patches)) == ("topic t unchanged\n", 1)
    run(api, "alter", "t", "--config", "retention.ms=6", "--config", "segment.ms=7")
    assert api.patches[1:] == [{"spec": {"config": {"segment.ms": "7"}}}], "what is so already is left alone"


def test_another_number_of_replicas_frees_partitions_with_lists_of_another_length():
    topic = topic_object("t", partitions=3, replicaAssignment={"0": [0, 1], "1": [0, 1, 2]})
    assert objects.patch_of(topic, objects.Change(replicas=3)) == {"replicaAssignment": {"0": None}}
    wanted = {"replicas": 2, "replicaAssignment": {"1": None}}
    assert objects.patch_of(topic, objects.Change(replicas=2)) == wanted
    with pytest.raises(objects.Failure, match=r"min\.insync\.replicas"):
        objects.patch_of(topic, objects.Change(replicas=2, config={"min.insync.replicas": "3"}))


def test_replicas_are_waited_for_until_nothing_moves():
    topic = topic_object("t", generation=2)
    progressing = {"type": "Progressing", "status": "True", "reason": "Reassigning", "message": "moving"}
    topic["status"]["conditions"].append(progressing)
    entry = topic["status"]["partitions"]["0"] | {"adding": [3], "removing": []}
    topic["status"]["partitions"]["0"] = entry
    assert objects.waits_for_replicas(topic) == "the operator has not seen it yet"
    progressing["observedGeneration"] = 2
    assert objects.waits_for_replicas(topic) == "moving"
    progressing |= {"status": "False", "reason": "Stable"}
    assert objects.waits_for_replicas(topic) == "partitions 0 are moving", "the condition is a moment behind"
    entry["adding"] = []
    assert objects.waits_for_replicas(topic) == ""
    progressing |= {"reason": "NotEnoughBrokers", "message": "4 replicas need 4 brokers"}
    with pytest.raises(objects.Failure, match="need 4 brokers"):
        objects.waits_for_replicas(topic)


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--partitions", "1"], 1, "can only grow"),
        (["--config", "nonsense=1"], 1, "unknown topic configuration key"),
        (["--delete-config", "nonsense"], 1, "no such topic configuration key"),
        (["--config", "compression.type=refused"], 1, "'refused' is not allowed"),
        (["--config", f"retention.ms={REFUSED}"], 1, "topic 't': spec.config: no"),
        (["--config", "a=1", "--delete-config", "a"], 2, "a: set or deleted?"),
        (["--config", "retention.ms"], 2, "not of the form key=value"),
        ([], 2, "say what to change"),
    ],
)
def test_alterations_that_cannot_be(run, arguments, code, words):
    api = Api(topic_object("t", partitions=2))
    result = run(api, "alter", "t", *arguments)
    assert (result.exit_code, words in result.stderr) == (code, True), result.stderr
    assert api.objects["t"]["spec"]["partitions"] == 2


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("t", ["--replicas", "5"], "topic 't': 5 replicas, but the cluster has 3 brokers"),
        ("t", ["--replicas", "1"], "2 is more than the topic's 1 replicas"),
        ("__consumer_offsets", ["--partitions", "3"], "keeps its 2 partitions: with more of them groups would look"),
    ],
)
def test_alterations_that_the_operator_could_only_complain_about(run, name, arguments, words):
    api = Api(
        topic_object(name, partitions=2, config={"min.insync.replicas": "2"}),
        clusters=[cluster_object(), cluster_object("large", replicas=9)],
    )
    result = run(api, "alter", name, *arguments)
    assert (result.exit_code, words in result.stderr) == (1, True), result.stderr
    assert api.patches == []


def test_a_question_that_nobody_can_answer_names_the_way_round(run):
    api = Api(topic_object("a"))
    for typed in ("", "n\n"):
        result = run(api, "delete", "a", input=typed)
        assert (result.exit_code, set(api.objects)) == (1, {"a"})
        assert "nothing was done: nobody said yes; with --yes it is not asked" in result.stderr


def test_deleting_asks(run):
    api = Api(topic_object("a"), topic_object("b"))
    result = run(api, "delete", "a", input="n\n")
    assert (result.exit_code, set(api.objects)) == (1, {"a", "b"})
    assert "Delete topic a and all records?" in result.stderr
    assert run(api, "delete", "a", input="y\n").stdout == "topic a deleted\n"
    assert run(api, "delete", "a", "b", "--yes").exit_code == 1
    assert set(api.objects) == {"b"}, "nothing is deleted when one name is wrong"
    result = run(api, "delete", "a", "b", "--yes", "--if-exists")
    assert (result.exit_code, result.output) == (0, "topic a does not exist\ntopic b deleted\n")
    assert api.objects == {}


def test_deleting_waits_until_it_is_gone(run):
    api = Api(topic_object("a"))
    api.finalized_reads = 3
    assert run(api, "delete", "a", "--yes").exit_code == 0
    assert api.objects == {}
    api = Api(topic_object("a"))
    api.finalized_reads = 10**9
    assert "is not gone after 0.1 s" in run(api, "delete", "a", "--yes", "--timeout", "0.1").stderr


@pytest.mark.parametrize("method", ["get", "delete"])
def test_an_outage_does_not_end_the_waiting_for_a_deletion(run, method, monkeypatch):
    monkeypatch.setattr(outage, "POLL_S", 0.001)
    api = Api(topic_object("a"))
    api.finalized_reads = 3
    really, left = getattr(api, method), [KubeUnavailable("refused", ambiguous=True), KubeThrottled(429, "", "", 1.0)]

    async def sometimes(*arguments, **more):
        if left:
            raise left.pop()
        return await really(*arguments, **more)

    setattr(api, method, sometimes)
    assert run(api, "delete", "a", "--yes").stdout == "topic a deleted\n"
    assert not left


def test_a_topic_that_is_made_again_at_once_was_deleted(run):
    api = Api(topic_object("a"))
    really = api.delete

    async def delete(*arguments, **more):
        await really(*arguments, **more)
        api.objects["a"] = topic_object("a") | {
            "metadata": {"name": "a", "namespace": "default", "uid": "another", "generation": 1}
        }

    api.delete = delete
    assert run(api, "delete", "a", "--yes", "--timeout", "0.2").stdout == "topic a deleted\n"


def test_the_brokers_topics_are_not_deleted_by_accident(run):
    api = Api(topic_object("x", topic_name="__consumer_offsets"))
    assert "belongs to the brokers" in run(api, "delete", "__consumer_offsets", "--yes").stderr
    assert run(api, "delete", "__consumer_offsets", "--yes", "--internal").exit_code == 0


def test_only_the_object_that_was_confirmed_is_deleted(run):
    api = Api(topic_object("a"))
    really = api.delete

    async def delete(*arguments, **more):
        api.objects["a"] = topic_object("a") | {
            "metadata": {"name": "a", "namespace": "default", "uid": "another", "generation": 1}
        }
        await really(*arguments, **more)

    api.delete = delete
    result = run(api, "delete", "a", "--yes")
    assert (result.exit_code, "a" in api.objects) == (1, True)
    assert "made again just now" in result.stderr


def test_an_api_server_that_does_not_answer(run):
    class Silent(Api):
        async def list(self, *_arguments, **_more):
            raise KubeUnavailable("refused", ambiguous=False)

    api = Silent()
    result = run(api, "list")
    assert result.exit_code == 1
    assert "`kafkalite up` starts it" in result.stderr
    assert ("close",) in api.calls


def test_addresses_of_live_brokers():
    def broker(number, state="Running", cluster="kafkalite", fenced=0):
        registered = {"brokerEpoch": 5, "state": state, "host": "h", "port": number}
        return {
            "spec": {"brokerId": number, "clusterRef": {"name": cluster}},
            "status": {"registration": registered, "fencing": {"fencedEpoch": fenced}},
        }

    brokers = [
        broker(1),
        broker(2, cluster="other"),
        broker(3, fenced=5),
        broker(4, state="Starting"),
        {"spec": {"brokerId": 9}},
    ]
    assert sizes.addresses_of(brokers, "kafkalite") == {1: ("h", 1)}
