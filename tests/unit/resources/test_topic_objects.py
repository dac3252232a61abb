"""Objects that brokers write for Kafka's clients, and how wishes for elections are read."""

import copy
import json

import jsonpatch
import pytest

from kafkalite_core.model.partition import IsrEntry, Partition, PartitionChange, TopicRef
from kafkalite_core.model.topic import TopicSpec
from kafkalite_core.resources import naming, patches, topic_objects
from kafkalite_core.resources.topics import parse_topic_spec
from kafkalite_core.resources.views import topic_view
from tests.unit.resources.builders import topic_object

SPEC = TopicSpec(cluster="kafkalite", topic_name="Orders", partitions=2, replicas=2, config={"b": "2", "a": "1"},
                 replica_assignment={1: (0, 1), 0: (1, 0)})  # fmt: skip


def made(**changes):
    return topic_objects.topic_object(
        SPEC, namespace="ns", object_name=naming.topic_object_name("Orders"), creation_id="x", **changes
    )


def test_a_made_object_reads_back_as_what_was_asked():
    assert parse_topic_spec(made()) == SPEC
    assert topic_objects.creation_id_of(made()) == "x"
    assert topic_objects.creation_id_of({"metadata": {"name": "n"}}) == ""


def test_what_is_a_default_is_not_written():
    plain = TopicSpec(cluster="kafkalite", topic_name="orders", partitions=1, replicas=1)
    body = topic_objects.topic_object(plain, namespace="ns", object_name="orders", creation_id="x")
    assert body["spec"] == {"partitions": 1, "replicas": 1}


def test_a_slug_is_another_name_than_the_topics_own():
    assert naming.topic_slug("orders").startswith("orders-")
    assert naming.topic_slug("__consumer_offsets") == naming.topic_object_name("__consumer_offsets")
    assert naming.is_object_name(naming.topic_slug("__consumer_offsets"))


@pytest.mark.parametrize(
    ("text", "found"),
    [("all", {0, 1, 2}), ("1", {1}), (" 0, 2 ", {0, 2}), ("7", set()), ("", set()), ("x,1,-1", {1}), ("9" * 30, set())],
)
def test_partitions_in_an_annotation(text, found):
    assert topic_objects.parse_election(text, range(3)) == found


@pytest.mark.parametrize(
    ("before", "wanted", "after"),
    [
        (None, [3, 0], "0,3"),
        ("0,3", [1], "0,1,3"),
        ("all", [1], "all"),
        ("1", None, "all"),
        ("rubbish", [1], "1"),
    ],
)
def test_a_wish_is_added_to_what_is_there(before, wanted, after):
    obj = topic_object("orders")
    if before is not None:
        obj["metadata"]["annotations"] = {naming.ANNOTATION_ELECT_PREFERRED: before}
    body = topic_objects.election_request(obj, wanted, unclean=False)
    assert body["metadata"]["annotations"] == {naming.ANNOTATION_ELECT_PREFERRED: after}
    assert body["metadata"]["resourceVersion"] == obj["metadata"]["resourceVersion"]


def test_the_operator_reads_wishes_for_elections():
    obj = topic_object("orders", status={"topicId": "i", "partitions": {"0": RENDERED, "1": RENDERED}})
    obj["metadata"]["annotations"] = {
        naming.ANNOTATION_ELECT_PREFERRED: "all",
        naming.ANNOTATION_ELECT_UNCLEAN: "1,5",
        naming.ANNOTATION_ADOPT: "True",
    }
    view = topic_view(obj)
    assert (view.elect_preferred, view.elect_unclean, view.unclean_request) == ({0, 1}, {1}, "1,5")
    assert len(view.elections) == 2
    assert view.adopt_strays is True


@pytest.mark.parametrize(
    ("text", "adopts", "topic_id"),
    [
        ("", None, ""),
        ("TRUE", True, ""),
        ("false", False, ""),
        (" 5F0C-1 ", True, "5f0c-1"),
        ("perhaps", True, "perhaps"),
    ],
)
def test_the_operator_reads_whose_data_are_wanted(text, adopts, topic_id):
    obj = topic_object("orders")
    obj["metadata"]["annotations"] = {naming.ANNOTATION_ADOPT: text}
    assert (topic_view(obj).adopt_strays, topic_view(obj).adopt_topic_id) == (adopts, topic_id)


RENDERED = {
    "leader": 0,
    "leaderEpoch": 0,
    "partitionEpoch": 0,
    "minIsr": 1,
    "replicas": [0],
    "isr": [0],
    "isrBrokerEpochs": [1],
}


def landed(obj, operations):
    try:
        return jsonpatch.apply_patch(copy.deepcopy(obj), json.loads(json.dumps(operations)))
    except jsonpatch.JsonPatchException:
        return None


def test_an_annotation_is_removed_only_while_it_says_what_was_done():
    obj = topic_object("orders")
    requests = {naming.ANNOTATION_ELECT_PREFERRED: "1", naming.ANNOTATION_ELECT_UNCLEAN: "0"}
    obj["metadata"]["annotations"] = {**requests, "other": "stays"}
    operations = topic_objects.election_done(obj["metadata"]["uid"], requests)
    assert landed(obj, operations)["metadata"]["annotations"] == {"other": "stays"}
    obj["metadata"]["annotations"][naming.ANNOTATION_ELECT_PREFERRED] = "1,2"
    assert landed(obj, operations) is None


def test_a_withdrawn_wish_stops_the_unclean_election():
    old = Partition(leader=-1, leader_epoch=1, partition_epoch=1, min_isr=1, replicas=(0,), isr=(IsrEntry(0, 1),))
    new = Partition(leader=0, leader_epoch=2, partition_epoch=2, min_isr=1, replicas=(0,), isr=(IsrEntry(0, 1),))
    rendered = {**RENDERED, "leader": -1, "leaderEpoch": 1, "partitionEpoch": 1}
    obj = topic_object("orders", status={"topicId": "i", "partitions": {"0": rendered}})
    obj["metadata"]["annotations"] = {naming.ANNOTATION_ELECT_UNCLEAN: "0"}
    ref = TopicRef("ns", "orders", obj["metadata"]["uid"], "i", "orders")
    operations = patches.elections(ref, {0: PartitionChange(old, new)}, controller_epoch=1, unclean_request="0")
    assert landed(obj, operations)["status"]["partitions"]["0"]["leader"] == 0
    del obj["metadata"]["annotations"]
    assert landed(obj, operations) is None
