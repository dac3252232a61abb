"""Consumers that read from a replica in their rack (KIP-392), between two brokers over real sockets."""

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from kafkalite_core.model.cluster import Cluster
from kafkalite_core.model.config import RACK_AWARE_SELECTOR
from kafkalite_core.model.listener import Endpoint
from kafkalite_core.model.partition import IsrEntry
from kafkalite_core.protocol.errors import ErrorCode
from kafkalite_core.replica.followers import Followers
from kafkalite_core.replica.read_replica import NO_PREFERENCE, preferred_read_replica
from tests.unit.controller.builders import brokers, make_broker
from tests.unit.replication.rig import Client, Rig, batch, entry, on_uvloop, topic_ref, until
from tests.unit.server.client_requests import FETCH, fetch_request, produce

VERSION = 11


async def fetch(client, offset, *, rack="b", version=VERSION, wait_ms=0):
    request = fetch_request(offset, wait_ms=wait_ms)
    request.rack_id = rack
    response = await client.ask(FETCH, version, request)
    return response.responses[0].partitions[0]


def size(part):
    return sum(len(buffer) for buffer in part.records) if isinstance(part.records, list) else len(part.records or b"")


def racks(*rigs, **of):
    """Every broker registers once more, with its rack."""
    for rig in rigs:
        for broker_id, rack in ((0, of.get("leader", "a")), (1, of.get("follower", "b"))):
            port = next(other.port for other in rigs if other.id == broker_id)
            rig.see_broker(broker_id, port, rack=rack)


@asynccontextmanager
async def two(tmp_path, *, selector=RACK_AWARE_SELECTOR, **of):
    async with Rig(tmp_path, 0) as leader, Rig(tmp_path, 1) as follower:
        for rig in (leader, follower):
            rig.config["replica.selector.class"] = selector
            rig.partitions.reconfigure(rig.config)
        racks(leader, follower, **of)
        for rig in (leader, follower):
            rig.see_topic(topic_ref(), {0: entry(0, min_isr=2)})
        async with leader.client() as writer:
            for _ in range(3):
                (part,) = await produce(writer, (0, batch()))
                assert part.error_code == 0
        await until(lambda: follower.driver().replica.high_watermark == 3)
        yield leader, follower


@on_uvloop
async def test_the_leader_sends_a_consumer_to_the_replica_in_its_rack(tmp_path):
    async with two(tmp_path) as (leader, follower), leader.client() as there, follower.client() as here:
        part = await fetch(there, 0)
        assert (part.error_code, part.preferred_read_replica, size(part)) == (0, 1, 0)
        assert part.high_watermark == 3
        part = await fetch(here, 0)
        assert (part.error_code, part.preferred_read_replica) == (0, -1)
        assert size(part) == 3 * len(batch())
        assert (part.high_watermark, part.log_start_offset) == (3, 0)
        # At the end of what is committed it waits, and hears of what comes.
        waiting = asyncio.create_task(fetch(here, 3, wait_ms=10_000))
        async with leader.client() as writer:
            await produce(writer, (0, batch()))
        assert size(await waiting) == len(batch())


@on_uvloop
async def test_whoever_is_not_sent_elsewhere_reads_from_the_leader(tmp_path):
    async with two(tmp_path) as (leader, follower), leader.client() as there, follower.client() as here:
        for rack in ("", "a", "c"):
            part = await fetch(there, 0, rack=rack)
            assert (part.preferred_read_replica, size(part)) == (-1, 3 * len(batch()))
        assert (await fetch(there, 3)).preferred_read_replica == 1
        assert (await fetch(there, 9)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        # A client that does not know of it gets nothing from a follower, and is not sent to one.
        request = fetch_request(0)
        (topic,) = (await there.ask(FETCH, 10, request)).responses
        assert size(topic.partitions[0]) == 3 * len(batch())
        (topic,) = (await here.ask(FETCH, 10, request)).responses
        assert topic.partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


@on_uvloop
async def test_without_the_selector_the_leader_serves_everybody(tmp_path):
    async with two(tmp_path, selector="org.apache.kafka.common.replica.LeaderSelector") as (leader, _):
        async with leader.client() as there:
            part = await fetch(there, 0)
            assert (part.preferred_read_replica, size(part)) == (-1, 3 * len(batch()))


@on_uvloop
async def test_nobody_is_sent_to_a_replica_that_has_no_address_on_the_listener_he_came_in_on(tmp_path):
    def outside(*broker_ids):
        endpoints = {i: Endpoint("example.com", 39090 + i) for i in broker_ids}
        return Cluster(namespace="default", name="kafkalite", uid="u", endpoints={"ext": endpoints})

    async with two(tmp_path) as (leader, _), Client(await leader.server.listen("ext", "127.0.0.1", 0)) as there:
        for known in (None, outside(0)):
            leader.cluster = known
            part = await fetch(there, 0)
            assert (part.preferred_read_replica, size(part)) == (-1, 3 * len(batch())), "he would ask here for ever"
        leader.cluster = outside(0, 1)
        assert (await fetch(there, 0)).preferred_read_replica == 1
        leader.cluster = outside(0)
        async with leader.client() as inside:
            assert (await fetch(inside, 0)).preferred_read_replica == 1


@on_uvloop
async def test_a_follower_shows_nothing_that_is_not_committed_as_far_as_it_knows(tmp_path):
    async with two(tmp_path) as (leader, follower), follower.client() as here:
        # It has a record that a third replica has not, so that it is not committed.
        ref = topic_ref()
        wider = replace(entry(0, replicas=(0, 1, 2), min_isr=2, partition_epoch=1))
        for rig in (leader, follower):
            rig.see_broker(2, 1)
            rig.see_topic(ref, {0: wider})
        async with leader.client() as writer:
            await produce(writer, (0, batch()), acks=1)
        await until(lambda: follower.driver().log.end_offset == 4)
        part = await fetch(here, 3)
        assert (part.error_code, size(part), part.high_watermark) == (0, 0, 3)
        assert size(await fetch(here, 0)) == 3 * len(batch())
        assert (await fetch(here, 4)).error_code == 0, "its end: nothing yet"
        assert (await fetch(here, 5)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


# ------------------------------------------------------------------------------------------------ the choice


RACKS = brokers(*(make_broker(i, rack=rack) for i, rack in enumerate("abbbb")))
PARTITION = replace(entry(0, replicas=(0, 1, 2, 3)), isr=tuple(IsrEntry(i, 10 + i) for i in range(4)))


def known(**ends):
    followers = Followers()
    for name, (start, end) in ends.items():
        broker_id = int(name[1:])
        progress = followers.ensure(broker_id, 10 + broker_id, 0.0)
        if end is not None:
            progress.fetched_at(end, 100, 0.0)
            progress.log_start_offset = start
    return followers


def chosen(followers, *, partition=PARTITION, known_brokers=RACKS, rack="b", offset=50, reachable=None):
    return preferred_read_replica(partition, followers, known_brokers, rack=rack, offset=offset, reachable=reachable)


def test_the_one_that_is_furthest_among_those_that_have_the_offset():
    assert chosen(known(b1=(0, 60), b2=(0, 80), b3=(0, 70))) == 2
    assert chosen(known(b1=(0, 60), b2=(55, 80), b3=(0, 49))) == 1
    assert chosen(known(b1=(0, 60), b2=(0, 80)), offset=80) == 2
    assert chosen(known(b1=(0, 60)), offset=61) == NO_PREFERENCE
    assert chosen(known(b1=(51, 60))) == NO_PREFERENCE
    assert chosen(known(b1=(0, 60), b2=(0, 80)), reachable=frozenset({1})) == 1


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"rack": "a"}, "the leader is in that rack"),
        ({"rack": ""}, "no rack"),
        ({"rack": "z"}, "nobody there"),
        ({"known_brokers": {**RACKS, 1: make_broker(1, rack="b", fenced=11)}}, "fenced (KAFKA-15390)"),
        ({"known_brokers": {**RACKS, 1: make_broker(1, 99, rack="b")}}, "another incarnation"),
        ({"known_brokers": {i: b for i, b in RACKS.items() if i != 1}}, "gone (KAFKA-14379)"),
        ({"partition": replace(PARTITION, isr=PARTITION.isr[:1])}, "not in sync"),
        ({"reachable": frozenset({0, 2, 3})}, "the consumer has no address of it"),
    ],
)
def test_nobody_is_named(changes, why):
    assert chosen(known(b1=(0, 60))) == 1
    assert chosen(known(b1=(0, 60)), **changes) == NO_PREFERENCE, why
    assert chosen(known(b1=(0, None))) == NO_PREFERENCE, "it has not fetched in this epoch"
