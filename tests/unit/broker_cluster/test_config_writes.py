"""Changes of configurations, decided on what the API server has: against the embedded one."""

import asyncio

import pytest

from kafkalite_broker.cluster import persistence
from kafkalite_core.protocol.errors import ErrorCode
from kafkalite_runtime.kube import CLUSTERS, TOPICS
from tests.unit.broker_cluster.conftest import NAMESPACE
from tests.unit.broker_cluster.test_topic_writer import ONE, Side, listed, refused


@pytest.fixture
def side(world):
    return Side(world)


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(persistence, "backoff_s", lambda *_: 0.005)


def setting(changes):
    return lambda _present: changes


def adding(word):
    """Decides to append to a list, as IncrementalAlterConfigs does; of a topic or of a cluster's configuration."""

    def decide(present):
        config = getattr(present, "config", present)
        return {"cleanup.policy": ",".join(filter(None, (config.get("cleanup.policy"), word)))}

    return decide


async def test_keys_are_set_and_removed_one_by_one(world, side):
    await side.writer.create("orders", partitions=1, replicas=1, config={"a.b": "1", "c": "2"}, deadline_s=5)
    await asyncio.gather(
        side.writer.set_config("orders", setting({"retention.ms": "7", "c": None}), deadline_s=5),
        side.writer.set_config("orders", setting({"segment.ms": "8"}), deadline_s=5),
    )
    (found,) = await listed(world)
    assert found["spec"]["config"] == {"a.b": "1", "retention.ms": "7", "segment.ms": "8"}
    assert side.cache.topic("orders").config == found["spec"]["config"]
    with refused(ErrorCode.INVALID_CONFIG, "min.insync.replicas"):
        await side.writer.set_config("orders", setting({"min.insync.replicas": "9"}), deadline_s=5)


async def test_what_another_broker_has_changed_is_not_lost(world, side):
    behind = Side(world)
    await side.writer.create("orders", **ONE, deadline_s=5)
    behind.absorb((await listed(world))[0])
    await side.writer.set_config("orders", adding("delete"), deadline_s=5)
    assert await behind.writer.set_config("orders", adding("compact"), deadline_s=5) == {
        "cleanup.policy": "delete,compact"
    }
    (found,) = await listed(world)
    assert found["spec"]["config"] == {"cleanup.policy": "delete,compact"}


@pytest.mark.parametrize("of_cluster", [False, True])
async def test_a_change_is_decided_anew_when_somebody_was_faster(world, side, of_cluster):
    await world.create_cluster()
    await side.writer.create("orders", **ONE, deadline_s=5)
    other, seen, patch = Side(world), [], side.client.merge_patch

    async def change(writer, decide):
        if of_cluster:
            await writer.set_cluster_config(decide, deadline_s=5)
        else:
            await writer.set_config("orders", decide, deadline_s=5)

    async def late(*arguments, **named):
        if not seen:
            seen.append(arguments)
            await change(other.writer, adding("delete"))
        return await patch(*arguments, **named)

    side.client.merge_patch = late
    await change(side.writer, adding("compact"))
    kind, name = (CLUSTERS, "kafkalite") if of_cluster else (TOPICS, "orders")
    found = await world.client.get(kind, NAMESPACE, name)
    assert found["spec"]["config"]["cleanup.policy"] == "delete,compact"


async def test_a_change_to_nothing_is_not_written(world, side):
    await side.writer.create("orders", **ONE, deadline_s=5)
    (before,) = await listed(world)
    assert await side.writer.set_config("orders", setting({}), deadline_s=5) == {}
    assert await listed(world) == [before]


async def test_a_configuration_never_reaches_the_next_topic_of_that_name(world, side):
    await side.writer.create("orders", **ONE, deadline_s=5)
    await world.client.delete(TOPICS, NAMESPACE, "orders")
    await world.create_topic("orders", entry=None)
    with refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
        await side.writer.set_config("orders", setting({"retention.ms": "7"}), deadline_s=5)


async def test_the_clusters_configuration(world, side):
    await world.create_cluster()
    await side.writer.set_cluster_config(setting({"num.partitions": "4", "nothing": None}), deadline_s=5)
    found = await world.client.get(CLUSTERS, NAMESPACE, "kafkalite")
    assert found["spec"]["config"] == {"num.partitions": "4"}
