"""What a broker writes for Kafka's clients, against the embedded API server and a client that loses requests."""

import asyncio
import itertools
from dataclasses import replace
from types import SimpleNamespace

import pytest

from kafkalite_broker.cluster import persistence
from kafkalite_broker.cluster.internal_topics import OFFSETS_TOPIC
from kafkalite_broker.cluster.topic_changes import TopicChanges
from kafkalite_broker.cluster.topic_errors import refusal
from kafkalite_broker.cluster.topic_writer import TopicWriter
from kafkalite_core.membership.metadata_cache import MetadataCache, Sighting
from kafkalite_core.model.cluster import Cluster
from kafkalite_core.model.errors import BrokerError
from kafkalite_core.protocol.errors import ErrorCode
from kafkalite_core.resources.naming import ANNOTATION_CREATION_ID, topic_object_names, topic_slug
from kafkalite_core.resources.topics import parse_topic
from kafkalite_runtime.kube import TOPICS, KubeConflict, KubeForbidden, KubeInvalid, KubeNotFound
from tests.unit.broker_cluster.conftest import NAMESPACE

ONE = {"partitions": 1, "replicas": 1, "config": {}}


class Side:
    """A broker's writer with its own cache and its own client."""

    def __init__(self, world, cluster="kafkalite"):
        self.cache = MetadataCache()
        self.client = world.new_client()
        self.cluster = Cluster(namespace=NAMESPACE, name=cluster, uid="c", cluster_id="x")
        self.writer = TopicWriter(
            self.client,
            NAMESPACE,
            cluster,
            cache=self.cache,
            absorb=self.absorb,
            found_cluster=lambda: self.cluster,
        )

    def absorb(self, found):
        metadata = found["metadata"]
        self.cache.see_topic(
            Sighting(
                value=parse_topic(found),
                resource_version=metadata["resourceVersion"],
                created=metadata["creationTimestamp"],
            )
        )


@pytest.fixture
def side(world):
    return Side(world)


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(persistence, "backoff_s", lambda *_: 0.005)


async def listed(world):
    return (await world.client.list(TOPICS, NAMESPACE)).items


def refused(code, *words):
    return pytest.raises(BrokerError, match="(?s)" + ".*".join(words), check=lambda error: error.error_code == code)


async def test_a_topic_is_made_as_a_person_would_write_it(world, side):
    made = await side.writer.create(
        "orders", partitions=2, replicas=1, config={"retention.ms": "5"}, assignment={0: [1], 1: [0]}, deadline_s=5
    )
    (found,) = await listed(world)
    assert found["metadata"]["name"] == "orders"
    assert found["metadata"]["uid"] == made.ref.uid
    assert found["spec"] == {
        "partitions": 2,
        "replicas": 1,
        "config": {"retention.ms": "5"},
        "replicaAssignment": {"0": [1], "1": [0]},
        "deletionPolicy": "Delete",
    }
    assert side.cache.topic("orders").ref.uid == made.ref.uid


async def test_names_that_kubernetes_does_not_take_and_other_clusters_are_spelled_out(world):
    side = Side(world, "other")
    await side.writer.create("Orders_EU", **ONE, deadline_s=5)
    (found,) = await listed(world)
    assert found["metadata"]["name"] == topic_slug("Orders_EU")
    assert found["spec"]["topicName"] == "Orders_EU"
    assert found["spec"]["clusterRef"] == {"name": "other"}


async def test_a_name_that_another_topic_has_as_object_name_gets_a_slug(world, side):
    await world.create_topic("orders", entry=None, topic_name="Something")
    made = await side.writer.create("orders", **ONE, deadline_s=5)
    assert made.ref.object_name == topic_slug("orders")
    with refused(ErrorCode.TOPIC_ALREADY_EXISTS, "orders"):
        await side.writer.create("orders", **ONE, deadline_s=5)


@pytest.mark.parametrize("fault", ["lose request", "lose answer"])
async def test_an_object_of_another_topic_is_no_topic_of_that_name_after_silence_either(world, side, fault):
    await world.create_topic("orders", entry=None, topic_name="Something")
    side.client.faults = [fault]
    made = await side.writer.create("orders", **ONE, deadline_s=5)
    assert made.ref.object_name == topic_slug("orders")


async def test_two_clusters_in_one_namespace_may_have_topics_of_one_name(world):
    sides = [Side(world), Side(world, "other")]
    made = [await side.writer.create("orders", **ONE, deadline_s=5) for side in sides]
    assert [topic.cluster for topic in made] == ["kafkalite", "other"]
    for side, topic in zip(sides, made, strict=True):
        with refused(ErrorCode.TOPIC_ALREADY_EXISTS):
            await side.writer.create("orders", **ONE, deadline_s=5)
        side.cache.delete_topic(topic.ref.uid)
        await side.writer.delete("orders", deadline_s=5)
    assert await listed(world) == []


async def test_when_every_object_name_is_taken_it_says_so(world, side):
    await world.create_topic("orders", entry=None, topic_name="Something")
    for name in topic_object_names("orders", "kafkalite")[1:]:
        await world.create_topic(name, entry=None, topic_name="Else")
    with refused(ErrorCode.INVALID_TOPIC_EXCEPTION, "object names"):
        await side.writer.create("orders", **ONE, deadline_s=5)


async def test_of_two_brokers_that_make_one_topic_one_wins(world):
    sides = [Side(world), Side(world)]
    results = await asyncio.gather(
        *(side.writer.create("orders", **ONE, deadline_s=5) for side in sides), return_exceptions=True
    )
    errors = [result for result in results if isinstance(result, BrokerError)]
    assert [error.error_code for error in errors] == [ErrorCode.TOPIC_ALREADY_EXISTS]
    assert len(await listed(world)) == 1


async def test_a_topic_made_by_kubectl_under_another_object_name_is_there_and_one_that_is_gone_is_not(world, side):
    made = await world.create_topic("my-object", entry=None, topic_name="orders")
    side.absorb(made)
    with refused(ErrorCode.TOPIC_ALREADY_EXISTS, "orders"):
        await side.writer.create("orders", **ONE, deadline_s=5)
    await world.client.delete(TOPICS, NAMESPACE, "my-object")
    # The cache still shows it: the API server is asked.
    await side.writer.create("orders", **ONE, deadline_s=5)
    assert [found["metadata"]["name"] for found in await listed(world)] == ["orders"]


@pytest.mark.parametrize("faults", list(itertools.product(["lose request", "lose answer", "refuse", "ok"], repeat=2)))
async def test_lost_requests_and_answers_never_make_two_and_never_a_wrong_verdict(world, side, faults):
    side.client.faults = list(faults)
    await side.writer.create("orders", **ONE, deadline_s=5)
    assert len(await listed(world)) == 1
    if faults[0] == "lose answer":
        assert side.client.writes == 1, "not sent again before a read"


async def test_an_outage_is_a_clean_time_out_that_says_what_is_known(world, side):
    side.client.outage = True
    with refused(ErrorCode.REQUEST_TIMED_OUT, "was not done", "connection refused"):
        await side.writer.create("orders", **ONE, deadline_s=0.05)
    side.client.outage = False
    side.client.faults = ["lose request"] * 100
    with refused(ErrorCode.REQUEST_TIMED_OUT, "may or may not"):
        await side.writer.create("orders", **ONE, deadline_s=0.05)
    assert await listed(world) == []


async def test_validation_alone_stores_nothing_and_finds_the_same_faults(world, side):
    await side.writer.create("orders", **ONE, deadline_s=5, validate_only=True)
    assert await listed(world) == []
    assert side.cache.topic("orders") is None
    await side.writer.create("orders", **ONE, deadline_s=5)
    with refused(ErrorCode.TOPIC_ALREADY_EXISTS):
        await side.writer.create("orders", **ONE, deadline_s=5, validate_only=True)
    with refused(ErrorCode.INVALID_PARTITIONS, "256"):
        await side.writer.create("big", partitions=300, replicas=1, config={}, deadline_s=5, validate_only=True)
    await side.writer.grow("orders", 4, deadline_s=5, validate_only=True)
    await side.writer.set_config("orders", lambda _: {"retention.ms": "5"}, deadline_s=5, validate_only=True)
    (found,) = await listed(world)
    assert found["spec"]["partitions"] == 1
    assert "config" not in found["spec"]


@pytest.mark.parametrize(
    ("wish", "code", "word"),
    [
        ({"partitions": 300}, ErrorCode.INVALID_PARTITIONS, "256"),
        ({"replicas": 17}, ErrorCode.INVALID_REPLICATION_FACTOR, "16"),
        ({"config": {"min.insync.replicas": "2"}}, ErrorCode.INVALID_CONFIG, "min.insync.replicas"),
        ({"assignment": {0: [-1]}}, ErrorCode.INVALID_REPLICA_ASSIGNMENT, "replicaAssignment"),
    ],
)
async def test_what_the_schema_refuses_has_kafkas_code_and_the_servers_sentence(world, side, wish, code, word):
    with refused(code, word):
        await side.writer.create("orders", **{**ONE, **wish}, deadline_s=5)
    assert await listed(world) == []


def test_other_refusals_are_policy():
    quota = refusal(KubeForbidden(403, "Forbidden", "POST /x: exceeded quota: topics, used: 5, limited: 5"))
    assert quota.error_code == ErrorCode.POLICY_VIOLATION
    assert "exceeded quota" in quota.message
    assert "POST" not in quota.message
    assert refusal(KubeInvalid(422, "Invalid", "POST /x: by a policy")).error_code == ErrorCode.POLICY_VIOLATION
    assert refusal(KubeNotFound(404, "NotFound", "POST /x: no such")).error_code == ErrorCode.UNKNOWN_SERVER_ERROR


async def test_at_most_so_many_writes_at_once(world, side):
    under_way = highest = 0
    original = side.client.create

    async def counted(*arguments, **named):
        nonlocal under_way, highest
        under_way += 1
        highest = max(highest, under_way)
        try:
            return await original(*arguments, **named)
        finally:
            under_way -= 1

    side.client.create = counted
    await asyncio.gather(*(side.writer.create(f"t-{n}", **ONE, deadline_s=20) for n in range(40)))
    assert len(await listed(world)) == 40
    assert 1 < highest <= 16


# ------------------------------------------------------------------------------------------------------- deletion


async def test_deletion_by_name_and_by_incarnation(world, side):
    made = await side.writer.create("orders", **ONE, deadline_s=5)
    with refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
        await side.writer.delete("orders", uid="another", deadline_s=5)
    assert await side.writer.delete("orders", uid=made.ref.uid, deadline_s=5) == made.ref
    assert await listed(world) == []
    with refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "orders"):
        await side.writer.delete("orders", deadline_s=5)


async def test_a_delayed_deletion_never_hits_the_next_topic_of_that_name(world, side):
    await side.writer.create("orders", **ONE, deadline_s=5)
    await world.client.delete(TOPICS, NAMESPACE, "orders")
    await world.create_topic("orders", entry=None)
    with refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
        await side.writer.delete("orders", deadline_s=5)
    assert len(await listed(world)) == 1


@pytest.mark.parametrize("fault", ["lose request", "lose answer", "refuse"])
async def test_a_deletion_without_answer_is_settled(world, side, fault):
    await side.writer.create("orders", **ONE, deadline_s=5)
    side.client.faults = [fault]
    await side.writer.delete("orders", deadline_s=5)
    assert await listed(world) == []


async def test_a_topic_that_the_cache_does_not_show_yet_is_found(world, side):
    await world.create_topic(topic_slug("Orders"), entry=None, topic_name="Orders")
    await side.writer.delete("Orders", deadline_s=5)
    assert await listed(world) == []


# --------------------------------------------------------------------------------------------------------- growth


async def test_growth_keeps_what_is_there(world, side):
    await side.writer.create("orders", partitions=1, replicas=1, config={}, assignment={0: [2]}, deadline_s=5)
    await side.writer.grow("orders", 3, [[0], [1]], deadline_s=5)
    (found,) = await listed(world)
    assert found["spec"]["partitions"] == 3
    assert found["spec"]["replicaAssignment"] == {"0": [2], "1": [0], "2": [1]}
    for count in (3, 2):
        with refused(ErrorCode.INVALID_PARTITIONS, "3 partition"):
            await side.writer.grow("orders", count, deadline_s=5)
    with refused(ErrorCode.INVALID_PARTITIONS, "256"):
        await side.writer.grow("orders", 257, deadline_s=5)
    with refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
        await side.writer.grow("nothing", 2, deadline_s=5)


async def test_two_that_grow_one_topic_do_not_both_believe_it(world):
    sides = [Side(world), Side(world)]
    await sides[0].writer.create("orders", **ONE, deadline_s=5)
    results = await asyncio.gather(
        *(side.writer.grow("orders", 2, [[n]], deadline_s=5) for n, side in enumerate(sides)),
        return_exceptions=True,
    )
    assert [error.error_code for error in results if error is not None] == [ErrorCode.INVALID_PARTITIONS]
    (found,) = await listed(world)
    winner = results.index(None)
    assert found["spec"]["replicaAssignment"] == {"1": [winner]}


async def test_a_growth_decided_on_an_older_state_moves_no_partition_that_is_there(world, side):
    behind = Side(world)
    await side.writer.create("orders", **ONE, deadline_s=5)
    behind.absorb((await listed(world))[0])
    await side.writer.grow("orders", 3, [[0], [0]], deadline_s=5)
    with refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "add 1 .*but 3"):
        await behind.writer.grow("orders", 4, [[1], [1], [1]], deadline_s=5)
    (found,) = await listed(world)
    assert (found["spec"]["partitions"], found["spec"]["replicaAssignment"]) == (3, {"1": [0], "2": [0]})
    await behind.writer.grow("orders", 4, [[1]], deadline_s=5)
    (found,) = await listed(world)
    assert found["spec"]["replicaAssignment"] == {"1": [0], "2": [0], "3": [1]}


async def test_an_assignment_of_a_topic_that_the_cache_does_not_show_yet_is_kept(world, side):
    await side.writer.create("orders", **ONE, deadline_s=5)
    behind = Side(world)
    await behind.writer.grow("orders", 2, [[1]], deadline_s=5)
    (found,) = await listed(world)
    assert found["spec"]["replicaAssignment"] == {"1": [1]}


@pytest.mark.parametrize("fault", ["lose request", "lose answer", "refuse"])
async def test_growth_without_answer_is_settled(world, side, fault):
    await side.writer.create("orders", **ONE, deadline_s=5)
    side.client.faults = [fault]
    await side.writer.grow("orders", 2, [[0]], deadline_s=5)
    (found,) = await listed(world)
    assert found["spec"]["partitions"] == 2


# ------------------------------------------------------------------------------------------------------- elections


async def test_requests_for_elections_add_up(world, side):
    await side.writer.create("orders", partitions=4, replicas=1, config={}, deadline_s=5)

    async def annotations():
        (found,) = await listed(world)
        kept = dict(found["metadata"]["annotations"])
        del kept[ANNOTATION_CREATION_ID]
        return {name.removeprefix("kafkalite.io/"): value for name, value in kept.items()}

    await asyncio.gather(
        side.writer.request_election("orders", [2], unclean=False, deadline_s=5),
        side.writer.request_election("orders", [0, 10], unclean=False, deadline_s=5),
    )
    assert await annotations() == {"elect-preferred": "0,2,10"}
    await side.writer.request_election("orders", [1], unclean=True, deadline_s=5)
    await side.writer.request_election("orders", None, unclean=False, deadline_s=5)
    await side.writer.request_election("orders", [3], unclean=False, deadline_s=5)
    assert await annotations() == {"elect-preferred": "all", "elect-unclean": "1"}


# --------------------------------------------------------------------------------------------- the brokers' own topic


async def test_the_offsets_topic_is_made_once_as_the_cluster_says(world):
    sides = [Side(world), Side(world)]
    for side in sides:
        side.cluster = replace(side.cluster, replicas=2, config={"offsets.topic.num.partitions": "5"})
    await asyncio.gather(*(side.writer.ensure_offsets_topic(deadline_s=5) for side in sides for _ in range(5)))
    (found,) = await listed(world)
    assert found["spec"]["topicName"] == OFFSETS_TOPIC
    assert found["metadata"]["name"].startswith("consumer-offsets-")
    assert (found["spec"]["partitions"], found["spec"]["replicas"]) == (5, 2)
    assert found["spec"]["config"]["cleanup.policy"] == "compact"
    assert found["spec"]["config"]["segment.bytes"] == "104857600"
    assert sum(side.client.writes for side in sides) == 2


async def test_a_failed_offsets_topic_tells_everyone_who_waits_and_is_tried_again(world, side):
    side.client.outage = True
    results = await asyncio.gather(
        *(side.writer.ensure_offsets_topic(deadline_s=0.05) for _ in range(3)), return_exceptions=True
    )
    assert [error.error_code for error in results] == [ErrorCode.REQUEST_TIMED_OUT] * 3
    side.client.outage = False
    await side.writer.ensure_offsets_topic(deadline_s=5)
    assert len(await listed(world)) == 1


# ---------------------------------------------------------------------------------------------------------- waiting


async def test_those_who_wait_are_woken_by_changes_alone():
    changes, state, looks = TopicChanges(), SimpleNamespace(there=False), []

    def shown():
        looks.append(1)
        return state.there

    waiting = [asyncio.create_task(changes.until(shown, 20)) for _ in range(3)]
    await asyncio.sleep(0)
    for _ in range(5):
        changes.look_again()
    await asyncio.sleep(0.01)
    assert len(looks) == 6
    state.there = True
    changes.look_again()
    assert await asyncio.gather(*waiting) == [True, True, True]
    assert await changes.until(lambda: False, 0.01) is False
    assert await changes.until(lambda: True, 0) is True


async def test_a_conflict_in_between_is_decided_anew(world, side, monkeypatch):
    await side.writer.create("orders", **ONE, deadline_s=5)
    original, refusals = side.client.json_patch, [KubeConflict(409, "Conflict", "PATCH /x: try again")]

    async def once(*arguments, **named):
        if refusals:
            raise refusals.pop()
        return await original(*arguments, **named)

    monkeypatch.setattr(side.client, "json_patch", once)
    await side.writer.grow("orders", 2, deadline_s=5)
    assert (await listed(world))[0]["spec"]["partitions"] == 2
