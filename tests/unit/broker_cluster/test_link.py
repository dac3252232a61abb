"""Watches, registration and state against a real (embedded) API server."""

from dataclasses import replace

import pytest

from kafkalite_broker.cluster import link as link_module
from kafkalite_broker.cluster import registrar
from kafkalite_core.model.cluster import BrokerState, Registration
from kafkalite_core.model.topic import Holding, Stray
from kafkalite_core.resources.brokers import render_registration
from kafkalite_runtime.kube import BROKERS, TOPICS, KubeClient
from tests.unit.broker_cluster.conftest import ENTRY, NAMESPACE, TOPIC_ID, eventually, identity_of


async def test_registers_catches_up_and_runs(world, settings, linked):
    await world.create_cluster()
    await world.create_broker()
    await world.create_topic()
    link, told, _ = await linked()
    await link.synced()
    assert await link.cluster_id_known() == "MkU3OEVBNTcwNTJENDM2Qk"
    assert link.broker_epoch == -1
    await link.register(identity_of(settings))
    assert await link.set_state(BrokerState.RUNNING)
    assert told.epochs == [1]
    assert link.registered
    assert link.obstacle == ""
    assert told.partitions == {("orders", 0)}
    registration = (await world.broker())["status"]["registration"]
    assert registration["state"] == "Running"
    assert registration["trustedSince"] == registration["cleanSince"] == 1
    assert registration["metrics"] == "http://127.0.0.1:19404/metrics"
    await eventually(lambda: link.cache.brokers[0].alive)
    assert link.cache.topic("orders").partitions[0] == ENTRY
    assert link.cache.topic_by_id(TOPIC_ID).ref.name == "orders"


async def test_waits_for_its_object_and_for_the_clusters_counter(world, settings, linked):
    link, told, _ = await linked()
    await link.register(identity_of(settings))
    await eventually(lambda: "no KafkaLiteBroker" in link.obstacle)
    await world.create_broker()
    await eventually(lambda: "404" in link.obstacle or "not found" in link.obstacle)
    await world.create_cluster(nextBrokerEpoch=7)
    await eventually(lambda: link.registered)
    assert told.epochs == [7]


async def test_without_the_api_server_it_waits_and_then_registers(world, settings, linked):
    await world.create_cluster()
    await world.create_broker()
    link, told, client = await linked()
    await link.synced()
    client.outage = True
    await link.register(identity_of(settings))
    assert not await link.set_state(BrokerState.RUNNING, deadline_s=1.0)
    assert "refused" in link.obstacle
    assert client.calls < 40, "an outage is no busy loop"
    client.outage = False
    await eventually(lambda: link.registered)
    assert await link.set_state(BrokerState.RUNNING)
    assert told.epochs == [1]


@pytest.mark.parametrize("fault", ["lose request", "lose answer", "refuse"])
@pytest.mark.parametrize("position", [0, 1, 2])
async def test_every_single_fault_is_survived(world, settings, linked, fault, position):
    await world.create_cluster()
    await world.create_broker()
    link, told, client = await linked()
    client.faults = ["ok"] * position + [fault]
    await link.register(identity_of(settings))
    assert await link.set_state(BrokerState.RUNNING)
    registration = (await world.broker())["status"]["registration"]
    assert registration["state"] == "Running"
    assert told.epochs[-1] == link.broker_epoch == registration["brokerEpoch"]
    assert not client.faults


async def test_a_defect_that_ends_the_registration_is_told(world, settings, linked, monkeypatch):
    def broken(_found):
        raise ZeroDivisionError

    await world.create_cluster()
    await world.create_broker()
    link, told, _ = await linked()
    await link.synced()
    monkeypatch.setattr(registrar, "parse_cluster", broken)
    await link.register(identity_of(settings))
    await eventually(lambda: told.failed)
    assert isinstance(told.failed[0], ZeroDivisionError)


async def test_pauses_grow_while_reads_are_answered_and_writes_are_not(world, settings, linked, monkeypatch):
    counted = []
    monkeypatch.setattr(registrar, "backoff_s", lambda failures, _error: counted.append(failures) or 0.0)
    await world.create_cluster()
    await world.create_broker()
    link, _, client = await linked()
    client.faults = ["refuse", "refuse", "ok", "refuse", "lose request", "refuse"]  # three for the draw
    await link.register(identity_of(settings))
    await eventually(lambda: link.registered)
    assert counted == [1, 2, 3, 4, 5]
    client.faults += ["refuse", "refuse"]
    assert await link.set_state(BrokerState.RUNNING, deadline_s=60.0)
    assert counted[5:] == [1, 2]


async def registered(world, settings, linked):
    """A registered broker: its link, and what that told."""
    await world.create_cluster()
    await world.create_broker()
    link, told, _ = await linked()
    await link.register(identity_of(settings))
    await eventually(lambda: link.registered)
    return link, told


async def test_the_same_directory_supersedes_at_once_and_the_former_one_ends(world, settings, linked):
    _, told_first = await registered(world, settings, linked)
    second, told_second, _ = await linked(incarnation="incarnation-2")
    await second.register(identity_of(settings, incarnation="incarnation-2"))
    await eventually(lambda: told_first.superseded)
    assert "incarnation-2" in told_first.superseded[0]
    assert told_second.epochs == [2]
    registration = (await world.broker())["status"]["registration"]
    assert (registration["trustedSince"], registration["cleanSince"]) == (1, 2)


async def test_another_directory_waits_until_the_registered_one_is_fenced(world, settings, linked):
    first, _ = await registered(world, settings, linked)
    await first.stop()
    second, told, _ = await linked(incarnation="incarnation-2")
    await second.register(identity_of(settings, incarnation="incarnation-2", directory_id="disk-2"))
    await eventually(lambda: "waits until that one is fenced" in second.obstacle)
    assert told.epochs == []
    await world.fence()
    await eventually(lambda: second.registered)
    assert told.epochs == [2]
    assert (await world.broker())["status"]["registration"]["trustedSince"] == 2


async def test_a_fenced_broker_registers_anew_with_its_data_intact(world, settings, linked):
    await world.create_cluster()
    await world.create_broker()
    link, told, _ = await linked()
    await link.register(identity_of(settings))
    assert await link.set_state(BrokerState.RUNNING)
    await world.fence()
    await eventually(lambda: told.epochs == [1, 2])
    assert await link.set_state(BrokerState.RUNNING)
    registration = (await world.broker())["status"]["registration"]
    assert registration["trustedSince"] == 1
    assert registration["incarnation"] == settings.incarnation
    await eventually(lambda: link.cache.brokers[0].alive)


async def test_a_broker_whose_disk_is_given_up_does_not_come_back_between_fence_and_removal(world, settings, linked):
    """It would be fenced and be back some hundred times a minute, and each time put its own removal off."""
    await world.create_cluster()
    await world.create_broker()
    link, told, _ = await linked()
    identity = identity_of(settings)
    await link.register(identity)
    assert await link.set_state(BrokerState.RUNNING)
    given_up = {"phase": "Removing", "broker": 0, "cause": "it is lost", "directoryId": identity.directory_id}
    await world.change_cluster(replacing=given_up)
    await world.fence()
    await eventually(lambda: "given up: it is lost" in link.obstacle)
    counter = (await world.cluster())["status"]["nextBrokerEpoch"]
    # Where something speaks against the removal, this broker may be what is missing.
    blocked = [{"pod": "kafkalite-broker-0", "partition": "t-0", "reason": "would lose its last copy"}]
    await world.change_cluster(replacing=given_up | {"blockedBy": blocked})
    await eventually(lambda: link.registered)
    assert told.epochs == [1, counter], "nothing was drawn while it waited"


async def test_a_broker_object_that_was_made_again_is_registered_again(world, settings, linked):
    await world.create_cluster()
    await world.create_broker()
    link, told, _ = await linked()
    await link.register(identity_of(settings))
    await eventually(lambda: link.registered)
    await world.client.delete(BROKERS, NAMESPACE, settings.object_name)
    await eventually(lambda: not link.registered)
    await world.create_broker()
    await eventually(lambda: link.registered)
    assert told.epochs == [1, 2]
    assert (await world.broker())["status"]["registration"]["trustedSince"] == 1


async def test_shutting_down_is_written_and_not_taken_back(world, settings, linked):
    await world.create_cluster()
    await world.create_broker()
    link, told, _ = await linked()
    await link.register(identity_of(settings))
    assert await link.set_state(BrokerState.RUNNING)
    assert await link.set_state(BrokerState.SHUTTING_DOWN)
    assert (await world.broker())["status"]["registration"]["state"] == "ShuttingDown"
    await world.fence()
    await eventually(lambda: link.cache.brokers[0].fenced)
    assert told.epochs == [1]


async def test_strays_are_listed(world, settings, linked):
    await world.create_cluster()
    await world.create_broker()
    link, _, client = await linked()
    await link.register(identity_of(settings))
    assert await link.set_state(BrokerState.RUNNING)
    stray = Stray(topic="gone", topic_id=TOPIC_ID, partition=3, leader_epoch=5, partition_epoch=9, end_offset=77)
    link.report_strays([stray])
    await eventually(lambda: link.cache.brokers[0].strays == (stray,))
    writes = client.writes
    link.report_strays([stray])
    assert await link.set_state(BrokerState.RUNNING)
    assert client.writes == writes, "what is listed already is not written again"


async def test_holdings_are_listed_and_taken_back(world, settings, linked):  # S11
    await world.create_cluster()
    await world.create_broker()
    link, _, _ = await linked()
    held = Holding(
        topic="t", topic_id=TOPIC_ID, partition=3, leader_epoch=5, partition_epoch=9, log_epoch=5, end_offset=77
    )
    reported = (held,)
    link.report_holdings()
    await link.register(identity_of(settings))
    link.holdings = lambda: reported
    assert await link.set_state(BrokerState.RUNNING)
    status = (await world.broker())["status"]
    assert (status["registration"]["state"], len(status["holdings"])) == ("Running", 1), "said in one patch"
    await eventually(lambda: link.cache.brokers[0].holdings == (held,))
    # Somebody (a restored store) takes it out of the object: it is written again.
    await world.forget_holdings()
    await eventually(lambda: link.cache.brokers[0].holdings == (held,))
    assert (await world.broker())["status"]["holdings"]
    reported = ()
    link.report_holdings()
    await eventually(lambda: link.cache.brokers[0].holdings == ())


async def test_topics_come_change_and_go(world, linked):
    await world.create_cluster()
    link, told, _ = await linked()
    await link.synced()
    created = await world.create_topic()
    await eventually(lambda: told.partitions == {("orders", 0)})
    ref = link.cache.topic("orders").ref
    told.partitions.clear()
    await world.set_entry(replace(ENTRY, partition_epoch=4))
    await eventually(lambda: told.partitions == {("orders", 0)})
    assert link.cache.partition(ref, 0).partition_epoch == 4
    link.absorb_topic(created)
    assert link.cache.partition(ref, 0).partition_epoch == 4, "an older answer changes nothing"
    assert not link.cache.delete_seen(ref)
    await world.client.delete(TOPICS, NAMESPACE, "orders")
    await eventually(lambda: link.cache.topic("orders") is None)
    assert link.cache.delete_seen(ref)
    assert link.cache.partition(ref, 0) is None
    link.absorb_topic(created)
    assert link.cache.topic("orders") is None, "a late answer brings nothing back"


async def test_what_is_deleted_during_an_outage_is_gone_but_not_seen_to_go(world, linked):
    await world.create_cluster()
    await world.create_topic()
    link, _, _ = await linked()
    await link.synced()
    ref = link.cache.topic("orders").ref
    link._list_topics([])
    assert link.cache.topic("orders") is None
    assert not link.cache.delete_seen(ref)


async def test_a_list_of_brokers_that_shows_less_is_believed_unless_it_may_be_late(world, linked, monkeypatch):  # S11
    await world.create_cluster()
    shown = await world.create_broker(1)
    registration = Registration(
        broker_epoch=8, incarnation="i", directory_id="d", trusted_since=8, clean_since=8, host="h", port=1
    )
    metadata = {**shown["metadata"], "resourceVersion": "999999"}
    later = {**shown, "metadata": metadata, "status": {"registration": render_registration(registration)}}
    links, known = [], []
    list_all = KubeClient.list

    async def list_slowly(client, kind, *arguments, **options):
        known.extend(link.cache.brokers[1].epoch for link in links if kind is BROKERS and link.cache.brokers)
        answer = await list_all(client, kind, *arguments, **options)
        if kind is BROKERS and not known:
            links[0].absorb_broker(later)  # the answer to another call, which was served after the list
        return answer

    monkeypatch.setattr(KubeClient, "list", list_slowly)
    link, _, _ = await linked()
    links.append(link)
    await eventually(lambda: known == [8])  # it is kept, and asked for once more
    await eventually(lambda: link.cache.brokers[1].epoch == -1)  # the store was restored


async def test_topics_and_brokers_of_other_clusters_are_ignored(world, linked):
    await world.create_cluster()
    await world.create_broker(cluster="other")
    await world.create_topic("foreign", cluster="other")
    await world.create_topic("own", cluster="kafkalite")
    link, _, _ = await linked()
    await link.synced()
    assert [topic.ref.name for topic in link.cache.topics()] == ["own"]
    assert dict(link.cache.brokers) == {}


async def test_an_object_that_cannot_be_understood_keeps_its_last_good_state(world, linked):
    await world.create_cluster()
    created = await world.create_topic()
    link, _, _ = await linked()
    await link.synced()
    broken = {**created, "status": {"topicId": 5}}
    link._list_topics([broken])
    assert link.cache.topic("orders").partitions[0] == ENTRY
    link._topic_event("MODIFIED", broken)
    assert link.cache.topic("orders").partitions[0] == ENTRY


async def test_of_two_claims_the_one_with_status_is_visible(world, linked):
    await world.create_cluster()
    await world.create_topic("older", entry=None, topic_name="orders")
    await world.create_topic("younger", topic_name="orders")
    link, _, _ = await linked()
    await link.synced()
    assert link.cache.topic("orders").ref.object_name == "younger"
    await world.client.delete(TOPICS, NAMESPACE, "younger")
    await eventually(lambda: link.cache.topic("orders").ref.object_name == "older")


async def test_a_defect_in_a_callback_does_not_leave_the_broker_blind(world, linked, monkeypatch):
    monkeypatch.setattr(link_module, "REBIRTH_PAUSE_S", 0.01)
    await world.create_cluster()
    link, told, _ = await linked()
    await link.synced()
    sound = link._on_partitions_changed

    def broken(changed):
        link._on_partitions_changed = sound
        raise ZeroDivisionError

    link._on_partitions_changed = broken
    await world.create_topic()
    await eventually(lambda: link._on_partitions_changed is sound)
    await world.set_entry(replace(ENTRY, partition_epoch=4))
    await eventually(lambda: told.partitions == {("orders", 0)})
    assert link.cache.topic("orders").partitions[0].partition_epoch == 4
    assert link.contact_age_s() < 60
