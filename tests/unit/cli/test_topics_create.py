"""`kafkalite topics create` where objects are not called as their topics: whose name counts, and whose cluster."""

import pytest

from kafkalite_core.resources.naming import topic_object_names
from kafkalite_runtime.kube import TOPICS, KubeForbidden
from tests.unit.cli.fakes import Api, cluster_object, topic_object


@pytest.fixture
def run(run_topics):
    return run_topics


def test_a_topic_is_known_by_its_kafka_name_whatever_its_object_is_called(run):
    api = Api(topic_object("my-orders", topic_name="orders"), clusters=[cluster_object()])
    result = run(api, "create", "orders")
    assert (result.exit_code, list(api.objects)) == (1, ["my-orders"])
    assert "topic 'orders' already exists (its object is my-orders)" in result.stderr
    result = run(api, "create", "orders", "--if-not-exists")
    assert (result.exit_code, result.output) == (0, "topic orders exists already\n")
    assert run(api, "delete", "orders", "--yes").stdout == "topic orders deleted\n"


def test_an_object_that_is_called_as_it_should_be_is_not_named(run):
    api = Api(clusters=[cluster_object()])
    assert run(api, "create", "Orders", "--no-wait").exit_code == 0
    assert run(api, "create", "Orders").stderr == "Error: topic 'Orders' already exists\n"


def test_another_clusters_topic_is_another_topic(run):
    api = Api(topic_object("orders"), clusters=[cluster_object(), cluster_object("b")])
    result = run(api, "create", "orders", "--cluster", "b", "--if-not-exists")
    assert (result.exit_code, result.stdout) == (0, "topic orders created (1 partitions, 3 replicas)\n")
    [mine] = [each for name, each in api.objects.items() if name != "orders"]
    assert (mine["spec"]["topicName"], mine["spec"]["clusterRef"]) == ("orders", {"name": "b"})
    result = run(api, "create", "orders", "--cluster", "b", "--if-not-exists")
    assert (result.stdout, len(api.objects)) == ("topic orders exists already\n", 2)


@pytest.mark.parametrize("listed", [True, False])
def test_an_object_of_that_name_may_be_another_topics(run, listed):
    """Known from the list, or found when it is in the way."""
    api = Api(topic_object("orders", topic_name="sold"), clusters=[cluster_object()])
    really = api.list

    async def forbidden(kind, *arguments, **more):
        if kind is TOPICS:
            raise KubeForbidden(403, "Forbidden", "no")
        return await really(kind, *arguments, **more)

    if not listed:
        api.list = forbidden
    assert run(api, "create", "orders", "--no-wait").exit_code == 0
    [mine] = [each for name, each in api.objects.items() if name != "orders"]
    assert mine["spec"]["topicName"] == "orders"
    assert run(api, "create", "orders", "--no-wait").exit_code == 1


def test_a_name_that_somebody_takes_at_the_same_moment(run):
    api = Api(clusters=[cluster_object()])
    really = api.create

    async def create(kind, namespace, body, **more):
        api.objects.setdefault("t", topic_object("t"))
        return await really(kind, namespace, body, **more)

    api.create = create
    assert "topic 't' already exists" in run(api, "create", "t").stderr
    assert list(api.objects) == ["t"]


def test_when_every_name_is_taken_it_is_told(run):
    others = [topic_object(name, topic_name=f"x{at}") for at, name in enumerate(topic_object_names("t", "kafkalite"))]
    api = Api(*others, clusters=[cluster_object()])
    result = run(api, "create", "t", "--if-not-exists")
    assert (result.exit_code, len(api.objects)) == (1, len(others))
    assert "other topics have every name that its object could have (t, t-" in result.stderr
    assert "make it with `kafkalite apply -f FILE` and a metadata.name of yours\n" in result.stderr
    others = [topic_object(name, topic_name=f"x{at}") for at, name in enumerate(topic_object_names("t", "events"))]
    api = Api(*others, clusters=[cluster_object("events")])
    result = run(api, "create", "t", "-n", "default", "--cluster", "events")
    make = "`kafkalite apply -f FILE -n default` and a metadata.name of yours and spec.clusterRef.name events"
    assert make in result.stderr


def test_what_is_being_deleted_is_not_called_existing(run):
    api = Api(topic_object("t"), clusters=[cluster_object()])
    api.objects["t"]["metadata"]["deletionTimestamp"] = "now"
    result = run(api, "create", "t", "--if-not-exists")
    assert (result.exit_code, "topic 't' is being deleted" in result.stderr) == (1, True)
