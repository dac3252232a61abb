"""A client is told addresses of the listener that it came in on, and of no other."""

from uuid import UUID

from kafkalite_core.model.cluster import Cluster
from kafkalite_core.model.listener import Endpoint
from kafkalite_core.protocol.apis import API
from kafkalite_core.protocol.describe_cluster import DescribeClusterRequest
from kafkalite_core.protocol.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from kafkalite_core.protocol.errors import ErrorCode
from kafkalite_core.protocol.find_coordinator import FindCoordinatorRequest
from kafkalite_core.protocol.metadata import MetadataRequest
from tests.unit.replication.rig import Client, Rig, batch, entry, on_uvloop, topic_ref
from tests.unit.server.client_requests import FETCH, METADATA, PRODUCE, fetch_request, produce_request

OUTSIDE = {0: Endpoint("kafka-0.example.com", 39090), 1: Endpoint("kafka-1.example.com", 39091)}


def cluster(endpoints):
    return Cluster(namespace="default", name="kafkalite", uid="u", endpoints={"ext": endpoints})


async def two_listeners(rig):
    """A second listener, and one partition led by each of two brokers."""
    port = await rig.server.listen("ext", "127.0.0.1", 0)
    rig.see_broker(0, rig.port, rack="a")
    rig.see_broker(1, 1001)
    partitions = {0: entry(0, replicas=(0,), epoch=3), 1: entry(1, replicas=(1,), epoch=3)}
    rig.see_topic(topic_ref(), partitions)
    rig.see_topic(topic_ref("__consumer_offsets"), partitions)
    await rig.flusher.drain()
    return Client(port)


def brokers(response):
    return {broker.node_id: (broker.host, broker.port) for broker in response.brokers}


@on_uvloop
async def test_metadata_of_each_listener(tmp_path):
    async with Rig(tmp_path) as rig:
        rig.cluster = cluster(OUTSIDE)
        async with await two_listeners(rig) as outside, rig.client() as inside:
            told = await outside.ask(METADATA, 12, MetadataRequest(topics=None))
            assert brokers(told) == OUTSIDE
            assert told.brokers[0].rack == "a"
            assert [part.leader_id for topic in told.topics for part in topic.partitions] == [0, 1] * 2
            told = await inside.ask(METADATA, 12, MetadataRequest(topics=None))
            assert brokers(told) == {0: ("127.0.0.1", rig.port), 1: ("127.0.0.1", 1001)}
            described = await outside.ask(60, 1, DescribeClusterRequest(endpoint_type=1))
            assert {each.broker_id: (each.host, each.port) for each in described.brokers} == OUTSIDE


@on_uvloop
async def test_a_leader_without_an_address_there_is_listener_not_found_and_one_that_is_gone_is_not(tmp_path):
    async with Rig(tmp_path) as rig:
        rig.cluster = cluster({0: OUTSIDE[0]})
        async with await two_listeners(rig) as outside:
            rig.see_topic(topic_ref("gone"), {0: entry(7, replicas=(7,))})
            answers = {}
            for version in (5, 12):
                told = await outside.ask(METADATA, version, MetadataRequest(topics=None))
                assert brokers(told) == {0: OUTSIDE[0]}
                answers[version] = {
                    (topic.name, part.partition_index): (part.error_code, part.leader_id)
                    for topic in told.topics
                    for part in topic.partitions
                }
            assert answers[12]["orders", 0] == (0, 0)
            assert answers[12]["orders", 1] == (ErrorCode.LISTENER_NOT_FOUND, -1)
            assert answers[12]["gone", 0] == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
            assert answers[5]["orders", 1] == (ErrorCode.LEADER_NOT_AVAILABLE, -1), "as Kafka tells clients that old"
            wanted = DescribeTopicPartitionsRequest(topics=[TopicRequest(name="orders")], response_partition_limit=9)
            page = await outside.ask(75, 0, wanted)
            assert [part.error_code for part in page.topics[0].partitions] == [0, ErrorCode.LISTENER_NOT_FOUND]
            assert page.topics[0].partitions[1].offline_replicas == [1]


@on_uvloop
async def test_before_the_operator_has_published_anything_nobody_is_sent_inside(tmp_path):
    async with Rig(tmp_path) as rig:
        assert rig.cluster is None
        async with await two_listeners(rig) as outside:
            assert brokers(await outside.ask(METADATA, 12, MetadataRequest(topics=None))) == {}


@on_uvloop
async def test_coordinators_and_hints_of_new_leaders(tmp_path):
    async with Rig(tmp_path) as rig:
        rig.cluster = cluster(OUTSIDE)
        async with await two_listeners(rig) as outside:
            keys = [f"group-{n}" for n in range(8)]
            found = await outside.ask(10, 4, FindCoordinatorRequest(coordinator_keys=keys))
            assert {(one.node_id, one.host, one.port) for one in found.coordinators} == {
                (number, *endpoint) for number, endpoint in OUTSIDE.items()
            }
            produced = await outside.ask(PRODUCE, 10, produce_request((1, batch())))
            assert [(hint.node_id, hint.host, hint.port) for hint in produced.node_endpoints] == [(1, *OUTSIDE[1])]
            assert API[FETCH].max_version >= 16
            fetched = await outside.ask(FETCH, 16, fetch_request(0, 0, topic_id=UUID(topic_ref().topic_id)))
            assert [(hint.node_id, hint.host, hint.port) for hint in fetched.node_endpoints] == [(1, *OUTSIDE[1])]
            rig.cluster = cluster({})
            found = await outside.ask(10, 4, FindCoordinatorRequest(coordinator_keys=["g"]))
            assert found.coordinators[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
