"""The whole operator against the embedded API server, with brokers that only register, renew and end."""

import asyncio
import time

import pytest

from kafkalite_core.model.cluster import BrokerState
from kafkalite_core.resources.brokers import parse_broker
from kafkalite_core.resources.clusters import parse_cluster
from kafkalite_core.resources.topics import parse_topic
from kafkalite_runtime.kube.errors import KubeForbidden, KubeNotFound
from kafkalite_runtime.kube.kinds import BROKERS, CLUSTERS, EVENTS, SERVICES, STATEFUL_SETS, TOPICS
from tests.unit.operator.fakes import NAMESPACE, FakeBroker, eventually

pytestmark = pytest.mark.timeout(240)


async def make_topic(harness, name="orders", **spec):
    body = {
        "apiVersion": "kafkalite.io/v1alpha1",
        "kind": "KafkaLiteTopic",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"partitions": 3, "replicas": 3, **spec},
    }
    return await harness.client.create(TOPICS, NAMESPACE, body)


async def topic(harness, name="orders"):
    return parse_topic(await harness.client.get(TOPICS, NAMESPACE, name))


async def condition(harness, type_, name="orders", kind=TOPICS):
    obj = await harness.client.get(kind, NAMESPACE, name)
    for entry in obj.get("status", {}).get("conditions", []):
        if entry["type"] == type_:
            return entry["status"], entry["reason"], entry.get("message", "")
    return None


async def placed(harness, name="orders", partitions=3):
    async def check():
        found = await topic(harness, name)
        return found if len(found.partitions) == partitions else None

    return await eventually(check)


async def ready(harness, name="orders"):
    async def check():
        return (await condition(harness, "Ready", name) or ("",))[0] == "True"

    await eventually(check)


async def running_cluster(harness, **spec):
    harness.start_operator()
    await make_topic(harness, **spec)
    await harness.start_brokers()
    found = await placed(harness, partitions=spec.get("partitions", 3))
    await ready(harness)
    return found


async def test_a_topic_alone_yields_a_cluster_and_its_objects(harness):
    harness.start_operator()
    await make_topic(harness)
    cluster = await eventually(lambda: _get(harness, CLUSTERS, "kafkalite"))
    stateful_set = await eventually(lambda: _get(harness, STATEFUL_SETS, "kafkalite-broker"))
    assert stateful_set["spec"]["updateStrategy"] == {"type": "OnDelete"}
    assert stateful_set["metadata"]["ownerReferences"][0]["uid"] == cluster["metadata"]["uid"]
    assert await _get(harness, SERVICES, "kafkalite-broker-2")
    for broker_id in range(3):
        assert await eventually(lambda i=broker_id: _get(harness, BROKERS, f"kafkalite-broker-{i}"))

    async def waits():
        return await condition(harness, "Ready") == (
            "False",
            "WaitingForBrokers",
            "waiting for brokers: 0 of 3 are running",
        )

    await eventually(waits)


async def test_what_is_refused_for_good_keeps_no_condition_from_being_told(harness, monkeypatch):
    async def refuse(*_arguments):
        raise KubeForbidden(403, "Forbidden", "exceeded quota: brokers")

    operator = harness.start_operator()
    monkeypatch.setattr(operator.controller._executor, "_create_broker", refuse)
    await make_topic(harness)

    async def told():
        return (await condition(harness, "Ready") or ("", ""))[1] == "WaitingForBrokers"

    await eventually(told)
    assert await _get(harness, BROKERS, "kafkalite-broker-0") is None


async def _get(harness, kind, name):
    try:
        return await harness.client.get(kind, NAMESPACE, name)
    except KubeNotFound:
        return None


async def test_placement_leaders_are_spread_and_the_steady_state_writes_nothing(harness):
    found = await running_cluster(harness)
    assert sorted(entry.leader for entry in found.partitions.values()) == [0, 1, 2]
    assert all(len(entry.isr) == 3 for entry in found.partitions.values())
    assert found.controller_epoch == 1

    async def settled():
        status = await condition(harness, "Ready", "kafkalite", CLUSTERS)
        return status is not None and status[2] == "3 of 3 brokers run"

    await eventually(settled)
    before = await versions(harness)
    while True:  # Events are written in the background
        await asyncio.sleep(0.5)
        if (latest := await versions(harness)) == before:
            break
        before = latest
    await asyncio.sleep(1.5)
    assert await versions(harness) == before


async def versions(harness):
    listed = [await harness.client.list(kind, NAMESPACE) for kind in (TOPICS, CLUSTERS, BROKERS, STATEFUL_SETS, EVENTS)]
    return [item["metadata"]["resourceVersion"] for one in listed for item in one.items]


async def test_a_container_exit_is_answered_at_once(harness):
    before = await running_cluster(harness)
    victim = before.partitions[0].leader
    written_at = await harness.brokers[victim].die()

    async def elected():
        found = await topic(harness)
        return found if all(e.leader not in {victim, -1} for e in found.partitions.values()) else None

    after = await eventually(elected, every_s=0.002)
    took_ms = (time.monotonic() - written_at) * 1000
    assert after.partitions[0].leader_epoch == before.partitions[0].leader_epoch + 1

    async def left():
        return all(victim not in entry.isr_ids() for entry in (await topic(harness)).partitions.values())

    assert await eventually(left)
    fenced = await harness.client.get(BROKERS, NAMESPACE, f"kafkalite-broker-{victim}")
    assert parse_broker(fenced).fenced
    print(f"exit to election: {took_ms:.0f} ms")
    assert fenced["status"]["fencing"]["reason"].startswith("ContainerExited"), "not the end of the Lease"
    reasons = {event["reason"] for event in (await harness.client.list(EVENTS, NAMESPACE)).items}
    await eventually(lambda: reasons)
    assert await eventually(lambda: _has_event(harness, "BrokerFenced"))
    assert await eventually(lambda: _has_event(harness, "LeaderElected"))


async def _has_event(harness, reason):
    return any(event["reason"] == reason for event in (await harness.client.list(EVENTS, NAMESPACE)).items)


async def test_an_exit_that_names_another_incarnation_fences_nobody(harness):
    before = await running_cluster(harness)
    late = '{"incarnation": "long gone", "brokerEpoch": 1}'
    broker = harness.brokers[0]
    await broker.die(late)
    broker._renewing = asyncio.create_task(broker._renew_for_ever())
    await asyncio.sleep(0.5)
    assert (await topic(harness)).partitions == before.partitions


async def test_a_frozen_broker_is_fenced_when_its_lease_expires(harness):
    before = await running_cluster(harness)
    victim = before.partitions[1].leader
    await harness.brokers[victim].freeze()

    async def elected():
        return (await topic(harness)).partitions[1].leader not in {victim, -1}

    await eventually(elected)
    broker = parse_broker(await harness.client.get(BROKERS, NAMESPACE, f"kafkalite-broker-{victim}"))
    assert broker.fenced


async def test_when_all_brokers_freeze_nobody_is_fenced(harness):
    before = await running_cluster(harness)
    await asyncio.gather(*(broker.freeze() for broker in harness.brokers.values()))
    await asyncio.sleep(4.0)
    assert (await topic(harness)).partitions == before.partitions
    for broker_id in range(3):
        assert not parse_broker(await harness.client.get(BROKERS, NAMESPACE, f"kafkalite-broker-{broker_id}")).fenced


async def test_controlled_shutdown_moves_leaderships_before_the_exit(harness):
    before = await running_cluster(harness)
    victim = before.partitions[2].leader
    await harness.brokers[victim].become(BrokerState.SHUTTING_DOWN)

    async def moved():
        found = await topic(harness)
        return all(e.leader != victim and victim not in e.isr_ids() for e in found.partitions.values())

    await eventually(moved)
    assert not parse_broker(await harness.client.get(BROKERS, NAMESPACE, f"kafkalite-broker-{victim}")).fenced


async def test_a_restarted_sole_leader_leads_again_in_a_new_epoch(harness):
    before = await running_cluster(harness, partitions=1, replicas=1)
    leader = before.partitions[0].leader
    broker = harness.brokers[leader]
    await broker.die()

    async def offline():
        found = await topic(harness)
        return found if found.partitions[0].leader == -1 else None

    down = await eventually(offline)
    assert down.partitions[0].isr == before.partitions[0].isr

    async def says_so():
        status = await condition(harness, "Ready")
        return status[1] == "OfflinePartitions" and f"broker {leader} is fenced" in status[2]

    await eventually(says_so)
    await broker.start()

    async def led():
        found = await topic(harness)
        return found.partitions[0] if found.partitions[0].leader == leader else None

    entry = await eventually(led)
    assert entry.leader_epoch == before.partitions[0].leader_epoch + 2
    assert entry.isr_epoch_of(leader) == broker.registration.broker_epoch


async def test_growth_and_configuration(harness):
    await running_cluster(harness)
    await harness.client.merge_patch(
        TOPICS, NAMESPACE, "orders", {"spec": {"partitions": 5, "config": {"min.insync.replicas": "2"}}}
    )
    found = await placed(harness, partitions=5)

    async def effective():
        entries = (await topic(harness)).partitions.values()
        return all(entry.min_isr == 2 for entry in entries)

    await eventually(effective)
    assert found.partitions[4].leader_epoch == 0


async def test_conditions_say_what_to_do(harness):
    await running_cluster(harness)
    await make_topic(harness, "wide", replicas=5)
    await make_topic(harness, "typo", config={"retention.millis": "1"})
    await make_topic(harness, "copy", topicName="orders")

    async def told():
        wide = await condition(harness, "Ready", "wide")
        typo = await condition(harness, "Ready", "typo")
        copy = await condition(harness, "Ready", "copy")
        return (wide, typo, copy) if wide and typo and copy else None

    wide, typo, copy = await eventually(told)
    assert wide[1] == "NotEnoughBrokers"
    assert "lower spec.replicas" in wide[2]
    assert typo[1] == "InvalidConfig"
    assert "retention.millis: unknown topic configuration key" in typo[2]
    assert copy[1] == "ResourceConflict"
    assert "'orders'" in copy[2]


async def test_a_standby_takes_over_with_a_higher_epoch(harness):
    await running_cluster(harness)
    harness.start_operator("operator-2")
    await asyncio.sleep(0.3)
    await harness.stop_operator("operator-1")

    async def taken():
        cluster = parse_cluster(await harness.client.get(CLUSTERS, NAMESPACE, "kafkalite"))
        return cluster if cluster.controller_holder == "operator-2" else None

    cluster = await eventually(taken)
    assert cluster.controller_epoch == 2
    victim = (await topic(harness)).partitions[0].leader
    await harness.brokers[victim].die()

    async def elected():
        found = await topic(harness)
        return found if found.partitions[0].leader not in {victim, -1} else None

    assert (await eventually(elected)).controller_epoch == 2


async def test_a_new_operator_finishes_what_its_predecessor_left(harness):
    """The broker is fenced, and the operator dies before the election."""
    before = await running_cluster(harness)
    victim = before.partitions[0].leader
    await harness.stop_operator("operator-1", kill=True)
    await harness.brokers[victim].die()
    from kafkalite_core.resources import patches

    broker = parse_broker(await harness.client.get(BROKERS, NAMESPACE, f"kafkalite-broker-{victim}"))
    fence = patches.fence(broker, reason="ContainerExited", since="2026-01-01T00:00:00Z")
    await harness.client.json_patch(BROKERS, NAMESPACE, broker.object_name, fence, subresource="status")
    harness.start_operator("operator-2")

    async def elected():
        return (await topic(harness)).partitions[0].leader not in {victim, -1}

    await eventually(elected)


async def test_an_outage_of_the_api_changes_nothing(harness):
    """Two lease durations without an API server: no fence, no election, and the operator goes on afterwards."""
    before = await running_cluster(harness)
    await harness.server.stop()
    await asyncio.sleep(4.5)
    server = type(harness.server)(
        harness.home / "control-plane.db", port=harness.server._port, token=harness.server.token
    )
    await server.start()
    harness.server = server
    await asyncio.sleep(3.0)
    assert (await topic(harness)).partitions == before.partitions
    for broker_id in range(3):
        assert not parse_broker(await harness.client.get(BROKERS, NAMESPACE, f"kafkalite-broker-{broker_id}")).fenced
    victim = before.partitions[0].leader
    await harness.brokers[victim].die()

    async def elected():
        return (await topic(harness)).partitions[0].leader not in {victim, -1}

    await eventually(elected)


async def test_a_deleted_broker_object_is_made_again(harness):
    await running_cluster(harness)
    old = await harness.client.get(BROKERS, NAMESPACE, "kafkalite-broker-1")
    await harness.client.delete(BROKERS, NAMESPACE, "kafkalite-broker-1")

    async def again():
        found = await _get(harness, BROKERS, "kafkalite-broker-1")
        return found is not None and found["metadata"]["uid"] != old["metadata"]["uid"]

    await eventually(again)
    await harness.brokers[1].freeze()
    successor = await FakeBroker(harness.client, 1).start()
    harness.brokers[1] = successor
    assert successor.registration.broker_epoch > 3


async def test_kopf_watches_where_the_user_has_no_name(harness, monkeypatch):
    """As in a container that runs as a number."""

    def nameless():
        raise KeyError("getpwuid(): uid not found: 10001")

    monkeypatch.setattr("getpass.getuser", nameless)
    monkeypatch.delenv("POD_ID", raising=False)
    operator = harness.start_operator()
    seen = []
    operator.controller.on_object = lambda kind, _type, _obj: seen.append(kind)
    await make_topic(harness)

    async def watched():
        return TOPICS in seen

    await eventually(watched)
    assert operator.watcher.restarts == 0
