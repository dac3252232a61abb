"""CreateTopics, DeleteTopics, CreatePartitions and topics made on demand: over a socket, with a writer by hand."""

import asyncio
from uuid import UUID

import pytest

from kafkalite_broker.cluster import topic_requests
from kafkalite_core.model.errors import BrokerError
from kafkalite_core.protocol.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from kafkalite_core.protocol.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from kafkalite_core.protocol.delete_topics import DeleteTopicsRequest, DeleteTopicState
from kafkalite_core.protocol.errors import ErrorCode
from tests.unit.replication.rig import entry, on_uvloop, topic_ref
from tests.unit.server.admin_rig import AdminRig

CREATE, DELETE, GROW = 19, 20, 37


def wanted(name="orders", partitions=1, replicas=1, assignments=None, **configs):
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replicas,
        assignments=[
            CreatableReplicaAssignment(partition_index=n, broker_ids=list(ids)) for n, ids in assignments or ()
        ],
        configs=[CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()],
    )


async def create(client, *topics, version=7, timeout_ms=5000, validate_only=False):
    request = CreateTopicsRequest(topics=list(topics), timeout_ms=timeout_ms, validate_only=validate_only)
    return (await client.ask(CREATE, version, request)).topics


# -------------------------------------------------------------------------------------------------------- creation


@on_uvloop
async def test_the_answer_comes_when_the_topic_has_leaders_and_says_what_it_is(tmp_path):
    async with AdminRig(tmp_path, **{"log.segment.bytes": "5000"}) as rig, rig.client() as client:
        (result,) = await create(client, wanted(partitions=2, replicas=3, retention_ms="77"))
        assert (result.error_code, result.error_message) == (0, None)
        assert (result.num_partitions, result.replication_factor) == (2, 3)
        assert result.topic_id == UUID(rig.cache.topic("orders").ref.topic_id)
        configs = {found.name: (found.value, found.config_source) for found in result.configs}
        assert configs["retention.ms"] == ("77", 1)
        assert configs["segment.bytes"] == ("5000", 3)
        assert configs["cleanup.policy"] == ("delete", 5)
        assert rig.topic_writer.calls == [("create", "orders", 2, 3, {"retention.ms": "77"}, {}, False)]


@on_uvloop
async def test_every_version_carries_the_answer(tmp_path):
    async with AdminRig(tmp_path) as rig, rig.client() as client:
        for version in range(2, 8):
            good, bad = await create(client, wanted(f"t{version}"), wanted(f"t{version}!"), version=version)
            assert (good.name, good.error_code) == (f"t{version}", 0)
            assert (bad.error_code, "invalid" in bad.error_message) == (ErrorCode.INVALID_TOPIC_EXCEPTION, True)
        assert len(rig.topic_writer.calls) == 6


@on_uvloop
async def test_minus_one_means_the_clusters_defaults(tmp_path):
    config = {"num.partitions": "4", "default.replication.factor": "2"}
    async with AdminRig(tmp_path, **config) as rig, rig.client() as client:
        (result,) = await create(client, wanted(partitions=-1, replicas=-1))
        assert (result.num_partitions, result.replication_factor) == (4, 2)
        assert rig.topic_writer.calls[0][2:4] == (4, 2)


ONCE = "more than once"


@pytest.mark.parametrize(
    ("topic", "code", "words"),
    [
        pytest.param(wanted(""), "INVALID_TOPIC_EXCEPTION", "empty", id="empty name"),
        pytest.param(wanted(".."), "INVALID_TOPIC_EXCEPTION", "'..'", id="dots"),
        pytest.param(wanted("a b"), "INVALID_TOPIC_EXCEPTION", "alphanumerics", id="space"),
        pytest.param(wanted("x" * 250), "INVALID_TOPIC_EXCEPTION", "249", id="long"),
        pytest.param(wanted("there.it_is"), "INVALID_TOPIC_EXCEPTION", "collides", id="collision"),
        pytest.param(wanted("there_it_is"), "TOPIC_ALREADY_EXISTS", "already exists", id="exists"),
        pytest.param(wanted(partitions=0), "INVALID_PARTITIONS", "non-positive", id="no partitions"),
        pytest.param(wanted(partitions=-2), "INVALID_PARTITIONS", "non-positive", id="negative partitions"),
        pytest.param(wanted(partitions=257), "INVALID_PARTITIONS", "256", id="too many partitions"),
        pytest.param(wanted(replicas=0), "INVALID_REPLICATION_FACTOR", "larger than 0", id="no replicas"),
        pytest.param(wanted(replicas=4), "INVALID_REPLICATION_FACTOR", "only 3", id="too many replicas"),
        pytest.param(wanted(retention_sm="1"), "INVALID_CONFIG", "retention.sm", id="unknown key"),
        pytest.param(wanted(retention_ms="soon"), "INVALID_CONFIG", "retention.ms", id="bad value"),
        pytest.param(wanted(retention_ms=None), "INVALID_CONFIG", "Null", id="null value"),
        pytest.param(wanted(min_insync_replicas="2"), "INVALID_CONFIG", "min.insync.replicas", id="min isr"),
        pytest.param(wanted(assignments=[(0, [0])]), "INVALID_REQUEST", "numPartitions", id="both"),
        pytest.param(wanted("t", -1, 1, [(0, [0])]), "INVALID_REQUEST", "replication factor", id="both factors"),
        pytest.param(wanted("t", -1, -1, [(1, [0])]), "INVALID_REPLICA_ASSIGNMENT", "consecutive", id="gap"),
        pytest.param(wanted("t", -1, -1, [(0, [0]), (0, [1])]), "INVALID_REPLICA_ASSIGNMENT", "multiple", id="twice"),
        pytest.param(wanted("t", -1, -1, [(0, [])]), "INVALID_REPLICA_ASSIGNMENT", "empty", id="no brokers"),
        pytest.param(wanted("t", -1, -1, [(0, [1, 1])]), "INVALID_REPLICA_ASSIGNMENT", ONCE, id="one broker twice"),
        pytest.param(wanted("t", -1, -1, [(0, [9])]), "INVALID_REPLICA_ASSIGNMENT", "broker 9", id="unknown broker"),
        pytest.param(
            wanted("t", -1, -1, [(0, [0]), (1, [0, 1])]), "INVALID_REPLICA_ASSIGNMENT", "consistent", id="uneven"
        ),
    ],
)  # fmt: skip
def test_bad_input_has_its_code_and_a_sentence_and_nothing_is_written(tmp_path, topic, code, words):
    @on_uvloop
    async def run():
        async with AdminRig(tmp_path) as rig, rig.client() as client:
            rig.see_topic(topic_ref("there_it_is"), {0: entry(0, replicas=(0,))})
            for validate_only in (True, False):
                (result,) = await create(client, topic, validate_only=validate_only)
                assert ErrorCode(result.error_code).name == code
                assert words in result.error_message
            assert rig.topic_writer.calls == []

    run()


@on_uvloop
async def test_a_manual_assignment_is_written_in_order(tmp_path):
    async with AdminRig(tmp_path) as rig, rig.client() as client:
        (result,) = await create(client, wanted("t", -1, -1, [(1, [2, 0]), (0, [0, 1])]))
        assert (result.error_code, result.num_partitions, result.replication_factor) == (0, 2, 2)
        assert rig.topic_writer.calls == [("create", "t", 2, 2, {}, {0: (0, 1), 1: (2, 0)}, False)]


@on_uvloop
async def test_one_request_with_good_and_bad_and_repeated_topics(tmp_path):
    async with AdminRig(tmp_path) as rig, rig.client() as client:
        results = await create(
            client, wanted("a"), wanted("b", 0), wanted("c"), wanted("c", 2), wanted("d.e"), wanted("d_e")
        )
        codes = {result.name: ErrorCode(result.error_code).name for result in results}
        assert codes == {
            "a": "NONE",
            "b": "INVALID_PARTITIONS",
            "c": "INVALID_REQUEST",
            "d.e": "NONE",
            "d_e": "INVALID_TOPIC_EXCEPTION",
        }


@on_uvloop
async def test_validation_alone_writes_nothing_and_does_not_wait(tmp_path):
    async with AdminRig(tmp_path) as rig, rig.client() as client:
        (result,) = await create(client, wanted(), validate_only=True, timeout_ms=60_000)
        assert (result.error_code, result.topic_id) == (0, UUID(int=0))
        assert rig.topic_writer.calls[0][-1] is True


@on_uvloop
async def test_what_has_no_leaders_in_time_is_a_time_out_with_the_operators_words(tmp_path):
    async with AdminRig(tmp_path) as rig, rig.client() as client:
        rig.topic_writer.places = False
        rig.topic_writer.reason = "waiting for brokers: 1 of 3 are running"
        (result,) = await create(client, wanted(), timeout_ms=50)
        assert result.error_code == ErrorCode.REQUEST_TIMED_OUT
        assert "was created" in result.error_message
        assert rig.topic_writer.reason in result.error_message


@on_uvloop
async def test_a_refusal_of_the_api_server_reaches_the_client(tmp_path):
    async with AdminRig(tmp_path) as rig, rig.client() as client:
        rig.topic_writer.error = BrokerError(ErrorCode.POLICY_VIOLATION, "exceeded quota")
        (result,) = await create(client, wanted())
        assert (result.error_code, result.error_message) == (ErrorCode.POLICY_VIOLATION, "exceeded quota")


@on_uvloop
async def test_a_stale_cache_does_not_refuse_a_topic_that_was_just_deleted(tmp_path):
    async with AdminRig(tmp_path) as rig, rig.client() as client:
        old = topic_ref("orders", uid="old")
        rig.see_topic(
            old,
            {0: entry(0, replicas=(0,))},
        )
        rig.topic_writer.stale = {"orders"}
        asyncio.get_running_loop().call_later(0.02, rig.delete_topic, old)
        rig.topic_writer.places = True
        results = await create(client, wanted())
        # The old one is still visible for a moment; it counts as another claim only once it is known to have the name.
        assert [ErrorCode(result.error_code).name for result in results] == ["NONE"]


@on_uvloop
async def test_bounds_on_one_request(tmp_path):
    async with AdminRig(tmp_path) as rig, rig.client() as client:
        results = await create(client, *(wanted(f"t{n}") for n in range(topic_requests.TOPICS_PER_REQUEST_MAX + 1)))
        assert {result.error_code for result in results} == {ErrorCode.POLICY_VIOLATION}
        results = await create(client, *(wanted(f"t{n}", 250) for n in range(41)))
        assert {result.error_code for result in results} == {ErrorCode.POLICY_VIOLATION}
        assert rig.topic_writer.calls == []


# -------------------------------------------------------------------------------------------------------- deletion


async def delete(client, *names, ids=(), version=6, timeout_ms=5000):
    request = DeleteTopicsRequest(topic_names=list(names), timeout_ms=timeout_ms)
    if version >= 6:
        states = [DeleteTopicState(name=name) for name in names]
        states += [DeleteTopicState(name=None, topic_id=found) for found in ids]
        request = DeleteTopicsRequest(topics=states, timeout_ms=timeout_ms)
    return (await client.ask(DELETE, version, request)).responses


@on_uvloop
async def test_deletion_by_name_and_by_id_waits_until_the_topics_are_gone(tmp_path):
    async with AdminRig(tmp_path) as rig, rig.client() as client:
        for version in range(1, 7):
            rig.see_topic(topic_ref("orders", uid=f"u{version}"), {0: entry(0, replicas=(0,))})
            (result,) = await delete(client, "orders", version=version)
            assert (result.name, result.error_code) == ("orders", 0)
            assert rig.cache.topic("orders") is None
        ref = topic_ref("payments")
        rig.see_topic(ref, {0: entry(0, replicas=(0,))})
        (result,) = await delete(client, ids=[UUID(ref.topic_id)])
        assert (result.name, result.topic_id, result.error_code) == ("payments", UUID(ref.topic_id), 0)
        assert rig.topic_writer.calls[-1] == ("delete", "payments", ref.uid)


@on_uvloop
async def test_deletion_of_what_is_not_there(tmp_path):
    async with AdminRig(tmp_path) as rig, rig.client() as client:
        rig.see_topic(topic_ref("twice"), {0: entry(0, replicas=(0,))})
        unknown = UUID(int=7)
        results = await delete(client, "nothing", "twice", "twice", ids=[unknown])
        codes = {result.name or result.topic_id: ErrorCode(result.error_code).name for result in results}
        assert codes == {
            "nothing": "UNKNOWN_TOPIC_OR_PARTITION",
            "twice": "INVALID_REQUEST",
            unknown: "UNKNOWN_TOPIC_ID",
        }
        both = DeleteTopicState(name="twice", topic_id=unknown)
        neither = DeleteTopicState(name=None, topic_id=UUID(int=0))
        request = DeleteTopicsRequest(topics=[both, neither], timeout_ms=1000)
        answers = (await client.ask(DELETE, 6, request)).responses
        assert {answer.error_code for answer in answers} == {ErrorCode.INVALID_REQUEST}
        assert rig.cache.topic("twice") is not None


@on_uvloop
async def test_deletion_can_be_forbidden(tmp_path):
    async with AdminRig(tmp_path, **{"delete.topic.enable": "false"}) as rig, rig.client() as client:
        rig.see_topic(topic_ref(), {0: entry(0, replicas=(0,))})
        codes = [(await delete(client, "orders", version=version))[0].error_code for version in (2, 3, 6)]
        assert codes == [
            ErrorCode.INVALID_REQUEST,
            ErrorCode.TOPIC_DELETION_DISABLED,
            ErrorCode.TOPIC_DELETION_DISABLED,
        ]
        assert rig.topic_writer.calls == []


@on_uvloop
async def test_a_topic_that_is_not_gone_in_time(tmp_path):
    async with AdminRig(tmp_path) as rig, rig.client() as client:
        rig.see_topic(topic_ref(), {0: entry(0, replicas=(0,))})
        rig.topic_writer.places = False
        (result,) = await delete(client, "orders", timeout_ms=50)
        assert result.error_code == ErrorCode.REQUEST_TIMED_OUT
        assert "not gone" in result.error_message


# ---------------------------------------------------------------------------------------------------------- growth


def more(name="orders", count=3, rows=None):
    assignments = None if rows is None else [CreatePartitionsAssignment(broker_ids=row) for row in rows]
    return CreatePartitionsTopic(name=name, count=count, assignments=assignments)


async def grow(client, *topics, version=3, timeout_ms=5000, validate_only=False):
    request = CreatePartitionsRequest(topics=list(topics), timeout_ms=timeout_ms, validate_only=validate_only)
    return (await client.ask(GROW, version, request)).results


@on_uvloop
async def test_growth_waits_for_the_new_leaders(tmp_path):
    async with AdminRig(tmp_path) as rig, rig.client() as client:
        rig.see_topic(topic_ref(), {0: entry(0, replicas=(0,))})
        for version in range(4):
            (result,) = await grow(client, more(count=2 + version), version=version)
            assert result.error_code == 0
            assert len(rig.cache.topic("orders").partitions) == 2 + version
        (result,) = await grow(client, more(count=7, rows=[[1], [2]]))
        assert result.error_code == 0
        assert rig.topic_writer.calls[-1] == ("grow", "orders", 7, [[1], [2]], False)


@on_uvloop
async def test_brokers_named_for_new_partitions_are_passed_on_whatever_the_cache_shows(tmp_path):
    async with AdminRig(tmp_path) as rig, rig.client() as client:
        await grow(client, more("unseen", count=2, rows=[[1]]), timeout_ms=50)
        assert rig.topic_writer.calls == [("grow", "unseen", 2, [[1]], False)]
        rig.topic_writer.calls.clear()
        rig.see_topic(topic_ref(), {0: entry(0, replicas=(0,))})
        (result,) = await grow(client, more(count=2, rows=[]))
        assert result.error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT


@on_uvloop
async def test_growth_with_bad_input(tmp_path):
    async with AdminRig(tmp_path) as rig, rig.client() as client:
        rig.see_topic(topic_ref(), {0: entry(0, replicas=(0,))})
        for rows, word in (
            ([[1]], "2 additional partition(s), but 1"),
            ([[1], [9]], "broker 9"),
            ([[1], [1, 2]], "1 replica"),
            ([[1], []], "empty"),
        ):
            (result,) = await grow(client, more(rows=rows))
            assert result.error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
            assert word in result.error_message
        (result,) = await grow(client, more(count=257))
        assert result.error_code == ErrorCode.INVALID_PARTITIONS
        (result,) = await grow(client, more("__consumer_offsets", 50))
        assert result.error_code == ErrorCode.INVALID_PARTITIONS
        assert "groups" in result.error_message
        results = await grow(client, more("a"), more("a"))
        assert {result.error_code for result in results} == {ErrorCode.INVALID_REQUEST}
        assert rig.topic_writer.calls == []
        rig.topic_writer.places = False
        (result,) = await grow(client, more(), timeout_ms=50)
        assert result.error_code == ErrorCode.REQUEST_TIMED_OUT
        (result,) = await grow(client, more(), validate_only=True)
        assert result.error_code == 0
