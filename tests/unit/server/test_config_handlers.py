"""DescribeConfigs, AlterConfigs and IncrementalAlterConfigs over a real socket; the custom resources are a fake."""

from dataclasses import replace

import pytest

from kafkalite_broker.cluster.topic_errors import unknown_topic
from kafkalite_broker.server.handlers import bounds, config_resources, describe_configs
from kafkalite_broker.server.handlers.config_resources import ResourceType
from kafkalite_core.model.cluster import Cluster
from kafkalite_core.model.config import BROKER_KEYS, DYNAMIC_BROKER_KEYS, THROTTLE_KEYS, TOPIC_KEYS
from kafkalite_core.model.config_entries import ConfigSource
from kafkalite_core.model.errors import BrokerError
from kafkalite_core.protocol import alter_configs, incremental_alter_configs
from kafkalite_core.protocol.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from kafkalite_core.protocol.errors import ErrorCode
from tests.unit.replication.rig import Rig, entry, on_uvloop, topic_ref

DESCRIBE, ALTER, INCREMENTAL = 32, 33, 44
TOPIC, BROKER = ResourceType.TOPIC, ResourceType.BROKER
SET, DELETE, APPEND, SUBTRACT = range(4)


class FakeWriter:
    """The API server, seen from the broker: changes show in the metadata when they are made."""

    def __init__(self, rig):
        self.rig = rig
        self.written = []
        self.refusal = None
        self.looked_for = []
        self.unseen = {}

    async def set_config(self, topic_name, decide, *, deadline_s, validate_only=False):
        if self.refusal is not None:
            raise self.refusal
        self.looked_for.append(topic_name)
        topic = self.rig.cache.topic(topic_name) or self.unseen.get(topic_name)
        if topic is None:
            raise unknown_topic(topic_name)
        changes = decide(topic)
        if changes:
            self.written.append((topic_name, dict(changes), validate_only))
        if changes and not validate_only:
            self.rig.see_topic(topic.ref, dict(topic.partitions), config=changed(topic.config, changes))
        return changes

    async def set_cluster_config(self, decide, *, deadline_s, validate_only=False):
        changes = decide(self.rig.cluster.config)
        if changes:
            self.written.append(("", dict(changes), validate_only))
        if changes and not validate_only:
            self.rig.cluster = replace(self.rig.cluster, config=changed(self.rig.cluster.config, changes))
            self.rig.changes.look_again()
        return changes


def changed(config, changes):
    return {name: text for name, text in {**config, **changes}.items() if text is not None}


async def with_topic(rig, cluster_config=None, **config):
    rig.cluster = Cluster(namespace="n", name="c", uid="u", cluster_id="i", replicas=3, config=cluster_config or {})
    rig.see_broker(rig.id, rig.port)
    ref = topic_ref()
    rig.see_topic(
        ref,
        {0: entry(rig.id, replicas=(rig.id,))},
        config={name.replace("_", "."): text for name, text in config.items()},
    )
    await rig.flusher.drain()
    return ref


def rig_with_writer(tmp_path):
    rig = Rig(tmp_path)
    rig.topic_writer = FakeWriter(rig)
    return rig


async def describe(client, *resources, version=4, keys=None, synonyms=True, documentation=True):
    wanted = [
        DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
        for kind, name in resources
    ]
    request = DescribeConfigsRequest(
        resources=wanted, include_synonyms=synonyms, include_documentation=documentation and version >= 3
    )
    return (await client.ask(DESCRIBE, version, request)).results


def by_name(result):
    assert result.error_code == 0, result.error_message
    return {config.name: config for config in result.configs}


def layers(config):
    return [(layer.name, layer.value, layer.source) for layer in config.synonyms]


# ------------------------------------------------------------------------------------------------ describing


@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_a_topic_shows_every_key_with_the_layers_in_kafkas_order(tmp_path, version):
    @on_uvloop
    async def run():
        rig = Rig(tmp_path)
        rig.config = {"log.segment.bytes": "4096"}
        async with rig, rig.client() as client:
            await with_topic(
                rig,
                {"log.retention.ms": "5000", "log.segment.bytes": "2048"},
                retention_ms="1000",
                cleanup_policy=" compact , delete",
            )
            (result,) = await describe(client, (TOPIC, "orders"), version=version)
            found = by_name(result)
            assert found.keys() == TOPIC_KEYS.keys()
            retention = found["retention.ms"]
            assert (retention.value, retention.config_source) == ("1000", ConfigSource.DYNAMIC_TOPIC_CONFIG)
            assert layers(retention) == [
                ("retention.ms", "1000", ConfigSource.DYNAMIC_TOPIC_CONFIG),
                ("log.retention.ms", "5000", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
                ("log.retention.ms", "604800000", ConfigSource.DEFAULT_CONFIG),
            ]
            assert (found["segment.bytes"].value, found["segment.bytes"].config_source) == (
                "2048", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG,
            )  # fmt: skip
            assert found["cleanup.policy"].value == "compact,delete"
            assert found["max.message.bytes"].config_source == ConfigSource.DEFAULT_CONFIG
            assert not any(config.read_only or config.is_sensitive for config in result.configs)
            if version >= 3:
                types = {config.name: config.config_type for config in result.configs}
                assert types["retention.ms"] == 5
                assert (types["preallocate"], types["cleanup.policy"], types["segment.bytes"]) == (1, 7, 3)
                assert (types["min.cleanable.dirty.ratio"], types["compression.type"]) == (6, 2)
                assert all(config.documentation for config in result.configs)

    run()


@on_uvloop
async def test_a_value_that_cannot_be_understood_is_passed_over_as_where_it_is_used(tmp_path):
    async with Rig(tmp_path) as rig, rig.client() as client:
        await with_topic(rig, {"log.roll.ms": "soon"}, segment_ms="many", retention_ms="long", segment_bytes="2048")
        (result,) = await describe(client, (TOPIC, "orders"))
        assert (by_name(result)["segment.ms"].value, rig.driver().config.segment_ms) == ("604800000", 604800000)
        assert (by_name(result)["retention.ms"].value, rig.driver().config.retention_ms) == ("-1", -1), "all is kept"


@on_uvloop
async def test_names_filter_and_what_is_not_asked_for_is_left_out(tmp_path):
    async with Rig(tmp_path) as rig, rig.client() as client:
        await with_topic(rig)
        (result,) = await describe(
            client, (TOPIC, "orders"), keys=["retention.ms", "nonsense"], synonyms=False, documentation=False
        )
        (config,) = result.configs
        assert (config.name, config.synonyms, config.documentation) == ("retention.ms", [], None)
        (result,) = await describe(client, (BROKER, "0"), keys=["node.id", "num.partitions"])
        assert [config.name for config in result.configs] == ["node.id", "num.partitions"]
        (result,) = await describe(client, (TOPIC, "orders"), keys=[])
        assert {config.name for config in result.configs} == TOPIC_KEYS.keys()


@on_uvloop
async def test_the_broker_shows_what_it_runs_with_and_what_can_be_changed(tmp_path):
    rig = Rig(tmp_path)
    rig.config = {"log.retention.check.interval.ms": "2", "log.retention.ms": "9000"}
    async with rig, rig.client() as client:
        await with_topic(
            rig, {"log.retention.check.interval.ms": "5", "log.retention.ms": "7000", "min.insync.replicas": "2"}
        )
        (result,) = await describe(client, (BROKER, "0"))
        found = by_name(result)
        assert BROKER_KEYS.keys() <= found.keys()
        interval = found["log.retention.check.interval.ms"]
        assert (interval.value, interval.config_source, interval.read_only) == (
            "2",
            ConfigSource.STATIC_BROKER_CONFIG,
            True,
        )
        retention = found["log.retention.ms"]
        assert (retention.value, retention.read_only) == ("7000", False)
        assert [source for _, _, source in layers(retention)] == [3, 5]
        assert found["min.insync.replicas"].value == "2"
        assert (found["broker.id"].value, found["log.dirs"].value) == ("0", str(rig.root))
        assert found["advertised.listeners"].value == "plain://localhost:9092"
        (result,) = await describe(client, (BROKER, ""))
        assert {name: config.value for name, config in by_name(result).items()} == {
            "log.retention.ms": "7000", "min.insync.replicas": "2",
        }  # fmt: skip


@on_uvloop
async def test_other_resources_are_answered_or_refused_with_a_sentence(tmp_path):
    async with Rig(tmp_path) as rig, rig.client() as client:
        await with_topic(rig)
        wanted = [
            (TOPIC, "nope"), (TOPIC, "no/pe"), (BROKER, "1"), (BROKER, "x"), (ResourceType.GROUP, "g"),
            (ResourceType.CLIENT_METRICS, "m"), (ResourceType.BROKER_LOGGER, "0"), (ResourceType.BROKER_LOGGER, "1"),
            (ResourceType.GROUP, ""), (3, "x"),
        ]  # fmt: skip
        results = await describe(client, *wanted)
        assert [(result.resource_type, result.resource_name) for result in results] == wanted
        assert [result.error_code for result in results] == [
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.INVALID_REQUEST,
            ErrorCode.INVALID_REQUEST, 0, 0, 0, ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_REQUEST,
            ErrorCode.INVALID_REQUEST,
        ]  # fmt: skip
        assert all(result.error_message for result in results if result.error_code)
        assert not any(result.configs for result in results)


@on_uvloop
async def test_many_resources_are_described_in_several_turns_and_encoded_on_a_thread(tmp_path, monkeypatch):
    monkeypatch.setattr(describe_configs, "RESOURCES_AT_ONCE", 2)
    async with Rig(tmp_path) as rig, rig.client() as client:
        await with_topic(rig)
        rig.see_topic(topic_ref("second"), {0: entry(0, replicas=(0,))}, config={"retention.ms": "77"})
        results = await describe(client, *[(TOPIC, "nope"), (TOPIC, "orders"), (BROKER, "0"), (TOPIC, "second")] * 2)
        assert [result.error_code for result in results] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0, 0, 0]
        assert [len(result.configs) for result in results[1::2]] == [len(TOPIC_KEYS)] * 2
        assert [by_name(result)["retention.ms"].value for result in results[1::2]] == ["604800000", "77"]
        monkeypatch.setattr(bounds, "ENTRIES_MAX", 3)
        client.send(DESCRIBE, 4, DescribeConfigsRequest(resources=[DescribeConfigsResource(TOPIC, "orders", None)] * 4))
        assert await client.closed()


# ------------------------------------------------------------------------------------------------ changing


async def incremental(client, *resources, version=1, validate_only=False):
    wanted = [
        incremental_alter_configs.AlterConfigsResource(
            kind, name, [incremental_alter_configs.AlterableConfig(*change) for change in changes]
        )
        for kind, name, changes in resources
    ]
    request = incremental_alter_configs.IncrementalAlterConfigsRequest(wanted, validate_only)
    return (await client.ask(INCREMENTAL, version, request)).responses


async def alter(client, *resources, version=2, validate_only=False):
    wanted = [
        alter_configs.AlterConfigsResource(kind, name, [alter_configs.AlterableConfig(*change) for change in changes])
        for kind, name, changes in resources
    ]
    request = alter_configs.AlterConfigsRequest(wanted, validate_only)
    return (await client.ask(ALTER, version, request)).responses


def codes(responses):
    assert all(bool(response.error_code) == bool(response.error_message) for response in responses)
    return [response.error_code for response in responses]


@pytest.mark.parametrize("version", [0, 1])
def test_set_delete_append_and_subtract(tmp_path, version):
    @on_uvloop
    async def run():
        async with rig_with_writer(tmp_path) as rig, rig.client() as client:
            await with_topic(rig, retention_ms="1000", retention_bytes="7")
            changes = [
                ("retention.ms", SET, "2000"),
                ("retention.bytes", DELETE, None),
                ("cleanup.policy", APPEND, "compact"),
                ("leader.replication.throttled.replicas", APPEND, "0:1,0:2,0:1"),
            ]
            assert codes(await incremental(client, (TOPIC, "orders", changes), version=version)) == [0]
            config = rig.cache.topic("orders").config
            assert config == {
                "retention.ms": "2000",
                "cleanup.policy": "delete,compact",
                "leader.replication.throttled.replicas": "0:1,0:2",
            }
            assert rig.driver().config.retention_ms == 2000
            # What is in the list already does not come again.
            assert codes(await incremental(client, (TOPIC, "orders", [("cleanup.policy", APPEND, "compact")]))) == [0]
            assert rig.cache.topic("orders").config["cleanup.policy"] == "delete,compact"
            changes = [
                ("cleanup.policy", SUBTRACT, "delete, nothing"),
                ("leader.replication.throttled.replicas", SUBTRACT, "0:1,0:2"),
            ]
            assert codes(await incremental(client, (TOPIC, "orders", changes), version=version)) == [0]
            config = rig.cache.topic("orders").config
            assert (config["cleanup.policy"], config["leader.replication.throttled.replicas"]) == ("compact", "")

    run()


@pytest.mark.parametrize(
    ("changes", "code", "words"),
    [
        ([("retention.sm", SET, "1")], ErrorCode.INVALID_CONFIG, "retention.sm: unknown"),
        ([("retention.ms", SET, "soon")], ErrorCode.INVALID_CONFIG, "'soon' is not a whole number"),
        ([("min.insync.replicas", SET, "2")], ErrorCode.INVALID_CONFIG, "more than the topic's 1 replicas"),
        ([("cleanup.policy", SUBTRACT, "delete")], ErrorCode.INVALID_CONFIG, "use delete, compact"),
        ([("retention.ms", APPEND, "1")], ErrorCode.INVALID_CONFIG, "APPEND is for lists"),
        ([("unheard.of", SUBTRACT, "1")], ErrorCode.INVALID_CONFIG, "SUBTRACT is for lists"),
        ([("retention.ms", SET, None)], ErrorCode.INVALID_REQUEST, "a value is needed"),
        ([("retention.ms", 9, "1")], ErrorCode.INVALID_REQUEST, "no operation 9"),
        ([("retention.ms", SET, "1"), ("retention.ms", DELETE, None)], ErrorCode.INVALID_REQUEST, "retention.ms"),
    ],
)
def test_what_is_wrong_is_refused_in_a_sentence_and_nothing_is_written(tmp_path, changes, code, words):
    @on_uvloop
    async def run():
        async with rig_with_writer(tmp_path) as rig, rig.client() as client:
            await with_topic(rig)
            (response,) = await incremental(client, (TOPIC, "orders", [*changes, ("segment.bytes", SET, "2048")]))
            assert response.error_code == code
            assert words in response.error_message
            assert rig.topic_writer.written == []

    run()


@on_uvloop
async def test_validate_only_changes_nothing_and_asks_the_api_server(tmp_path):
    async with rig_with_writer(tmp_path) as rig, rig.client() as client:
        await with_topic(rig)
        good = (TOPIC, "orders", [("retention.ms", SET, "5")])
        assert codes(await incremental(client, good, validate_only=True)) == [0]
        assert codes(await alter(client, (TOPIC, "orders", [("retention.ms", "6")]), validate_only=True)) == [0]
        assert [validate_only for _, _, validate_only in rig.topic_writer.written] == [True, True]
        assert rig.cache.topic("orders").config == {}
        rig.topic_writer.refusal = BrokerError(ErrorCode.INVALID_CONFIG, "the API server says no")
        (response,) = await incremental(client, good)
        assert (response.error_code, response.error_message) == (ErrorCode.INVALID_CONFIG, "the API server says no")


@on_uvloop
async def test_each_resource_is_answered_for_itself_in_the_order_of_the_request(tmp_path):
    async with rig_with_writer(tmp_path) as rig, rig.client() as client:
        await with_topic(rig)
        change = [("retention.ms", SET, "5")]
        wanted = [
            (TOPIC, "nope", change), (TOPIC, "orders", change), (ResourceType.GROUP, "g", change),
            (ResourceType.BROKER_LOGGER, "0", change), (77, "x", change), (TOPIC, "twice", change), (TOPIC, "twice", change),
        ]  # fmt: skip
        responses = await incremental(client, *wanted)
        assert [(each.resource_type, each.resource_name) for each in responses] == [item[:2] for item in wanted]
        assert codes(responses) == [
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0, *[ErrorCode.INVALID_REQUEST] * 5,
        ]  # fmt: skip


@on_uvloop
async def test_a_topic_that_another_broker_has_just_made_is_looked_for(tmp_path, monkeypatch):
    async with rig_with_writer(tmp_path) as rig, rig.client() as client:
        await with_topic(rig)
        writer = rig.topic_writer
        writer.unseen = {"new": replace(rig.cache.topic("orders"), ref=topic_ref("new"))}
        wanted = [(TOPIC, name, [("retention.ms", SET, "5")]) for name in ("new", "nope", "no name")]
        assert codes(await incremental(client, *wanted)) == [0, *[ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2]
        assert sorted(writer.looked_for) == ["new", "nope"]
        monkeypatch.setattr(config_resources, "LOOKED_FOR_MAX", 1)
        writer.looked_for.clear()
        assert codes(await incremental(client, *wanted[1:])) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2
        assert writer.looked_for == []


@pytest.mark.parametrize("version", [0, 1, 2])
def test_alter_configs_replaces_everything(tmp_path, version):
    @on_uvloop
    async def run():
        async with rig_with_writer(tmp_path) as rig, rig.client() as client:
            await with_topic(rig, retention_ms="1", segment_bytes="2048")
            assert codes(await alter(client, (TOPIC, "orders", [("retention.ms", "9")]), version=version)) == [0]
            assert rig.cache.topic("orders").config == {"retention.ms": "9"}
            refused = [
                (TOPIC, "orders", [("retention.ms", None)]),
                (TOPIC, "nope", []),
                (BROKER, "", [("log.retention.check.interval.ms", "3")]),
            ]
            assert codes(await alter(client, *refused, version=version)) == [
                ErrorCode.INVALID_REQUEST, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_REQUEST,
            ]  # fmt: skip

    run()


@on_uvloop
async def test_the_default_of_all_brokers_goes_into_the_cluster(tmp_path):
    async with rig_with_writer(tmp_path) as rig, rig.client() as client:
        await with_topic(rig, {"log.retention.check.interval.ms": "3", "log.retention.ms": "1000"})
        changes = [("log.retention.ms", DELETE, None), ("log.segment.bytes", SET, "4096")]
        assert codes(await incremental(client, (BROKER, "", changes))) == [0]
        assert rig.cluster.config == {"log.retention.check.interval.ms": "3", "log.segment.bytes": "4096"}
        # A replacement covers what clients may change, and leaves the rest to the owner of the cluster.
        assert codes(await alter(client, (BROKER, "", [("group.max.size", "9")]))) == [0]
        assert rig.cluster.config == {"log.retention.check.interval.ms": "3", "group.max.size": "9"}


@pytest.mark.parametrize(
    ("broker", "key", "value", "code", "words"),
    [
        ("", "log.retention.check.interval.ms", "2", ErrorCode.INVALID_REQUEST, "restart the brokers"),
        ("0", "log.retention.check.interval.ms", "2", ErrorCode.INVALID_REQUEST, "restart the brokers"),
        ("0", "log.retention.ms", "2", ErrorCode.INVALID_REQUEST, "the whole cluster"),
        ("0", "max.connections", "2", ErrorCode.INVALID_REQUEST, "the whole cluster"),
        ("", "num.io.threads", "0", ErrorCode.INVALID_CONFIG, "out of range"),
        ("", "log.retention.ms", "x", ErrorCode.INVALID_CONFIG, "not a whole number"),
        ("", "unheard.of", "2", ErrorCode.INVALID_CONFIG, "unknown broker configuration key"),
        ("one", "log.retention.ms", "2", ErrorCode.INVALID_REQUEST, "no broker id"),
    ],
)
def test_what_brokers_do_not_take_is_refused(tmp_path, broker, key, value, code, words):
    @on_uvloop
    async def run():
        async with rig_with_writer(tmp_path) as rig, rig.client() as client:
            await with_topic(rig)
            (response,) = await incremental(client, (BROKER, broker, [(key, SET, value)]))
            assert response.error_code == code
            assert words in response.error_message
            assert rig.topic_writer.written == []

    run()


@on_uvloop
async def test_the_reassignment_tool_sets_and_clears_its_throttles_on_single_brokers(tmp_path):
    async with rig_with_writer(tmp_path) as rig, rig.client() as client:
        await with_topic(rig)
        for key in sorted(THROTTLE_KEYS):
            for broker in ("0", "1", "2"):
                assert codes(await incremental(client, (BROKER, broker, [(key, SET, "1000")]))) == [0]
        (result,) = await describe(client, (BROKER, "0"))
        assert {by_name(result)[key].value for key in THROTTLE_KEYS} == {"1000"}
        gone = [(key, DELETE, None) for key in sorted(THROTTLE_KEYS)]
        assert codes(await incremental(client, *[(BROKER, broker, gone) for broker in ("0", "1", "2")])) == [0, 0, 0]
        assert rig.cluster.config == {}


def test_every_key_has_a_sentence_and_dynamic_ones_exist():
    assert all(key.doc for key in {**TOPIC_KEYS, **BROKER_KEYS}.values())
    assert BROKER_KEYS.keys() >= DYNAMIC_BROKER_KEYS
