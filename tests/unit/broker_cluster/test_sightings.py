"""Objects that a broker does not understand: what it still hears of them, and what they cost others."""

from dataclasses import replace

import structlog

from kafkalite_broker.cluster import link as link_module
from kafkalite_broker.cluster.sightings import SightingReader
from kafkalite_core.resources.topics import parse_topic, render_partition
from tests.unit.broker_cluster.conftest import ENTRY


async def test_an_election_is_heard_of_a_topic_whose_spec_cannot_be_understood(world, linked):
    await world.create_cluster()
    created = await world.create_topic()
    link, told, _ = await linked()
    await link.synced()
    bad_spec = {**created["spec"], "replicaAssignment": {"p0": [0]}}
    elected = replace(ENTRY, leader=1, leader_epoch=ENTRY.leader_epoch + 1, partition_epoch=ENTRY.partition_epoch + 1)
    version = int(created["metadata"]["resourceVersion"])
    shown = {
        **created,
        "metadata": {**created["metadata"], "generation": 2, "resourceVersion": str(version + 1)},
        "spec": bad_spec,
        "status": {**created["status"], "partitions": {"0": render_partition(elected)}},
    }
    told.partitions.clear()
    link._topic_event("MODIFIED", shown)
    assert link.cache.topic("orders").partitions[0] == elected
    assert told.partitions == {("orders", 0)}
    further = replace(elected, partition_epoch=elected.partition_epoch + 1)
    shown = {**shown, "status": {**created["status"], "partitions": {"0": render_partition(further)}}}
    link._list_topics([shown])
    assert link.cache.topic("orders").partitions[0] == further, "a list keeps the spec of what it lists"
    link._topic_event("DELETED", shown)
    assert link._topic_sighting(shown) is None, "of what is gone nothing is remembered"


async def test_one_object_that_nobody_foresaw_does_not_hold_up_the_others(world, linked, monkeypatch):
    await world.create_cluster()
    await world.create_broker()
    created = await world.create_topic()
    link, _, _ = await linked()
    await link.synced()
    other = {**created, "metadata": {**created["metadata"], "name": "odd", "uid": "odd"}}

    def parse(found):
        if found["metadata"]["name"] == "odd":
            raise ZeroDivisionError
        return parse_topic(found)

    monkeypatch.setattr(link_module, "parse_topic", parse)
    link._list_topics([other, created])
    assert [topic.ref.name for topic in link.cache.topics()] == ["orders"]
    for name in ("parse_broker", "parse_cluster"):
        monkeypatch.setattr(link_module, name, lambda found: 1 // 0)
    link._broker_event("MODIFIED", await world.broker())
    link._cluster_event("MODIFIED", await world.cluster())
    assert link.cluster_id


async def test_who_cannot_read_a_topic_knows_that_it_is_there(world, linked):
    """Until it can be read, or is gone: an event says so, or a list."""
    await world.create_cluster()
    created = await world.create_topic()
    link, _, _ = await linked()
    await link.synced()
    odd = {**created, "metadata": {**created["metadata"], "name": "odd", "uid": "odd"}, "spec": {"partitions": "all"}}
    assert not link.cache.unreadable
    for gone in (
        lambda: link._topic_event("MODIFIED", {**odd, "spec": created["spec"]}),
        lambda: link._topic_event("DELETED", odd),
        lambda: link._list_topics([created]),
    ):
        link._list_topics([created, odd])
        assert link.cache.unreadable == {"odd"}
        assert [topic.ref.name for topic in link.cache.topics()] == ["orders"]
        gone()
        assert not link.cache.unreadable
        link._topic_event("DELETED", odd)
    link._topic_event("ADDED", odd)
    assert link.cache.unreadable == {"odd"}, "also one that only an event has shown"


def test_of_an_object_the_same_is_said_once():
    with structlog.testing.capture_logs() as logs:
        reader = SightingReader()
        for number in range(3):
            found = {"kind": "KafkaLiteTopic", "metadata": {"name": "t", "uid": "u", "resourceVersion": str(number)}}
            assert reader.read({**found, "spec": {"partitions": "x"}}, parse_topic) is None
        assert reader.read({**found, "spec": {}}, parse_topic) is not None
        assert reader.read({**found, "spec": {"partitions": []}}, parse_topic) is not None
    assert [entry["event"] for entry in logs] == [
        "object not understood, its last good state stays in force",
        "spec not understood, its last good one stays in force",
    ]
