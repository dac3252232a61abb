"""For how long the store is known to list the strays of a broker, and no others (S10)."""

import asyncio
from dataclasses import replace
from time import monotonic

from kafkalite_core.model.cluster import BrokerState
from kafkalite_core.model.topic import Stray
from kafkalite_core.resources.brokers import render_stray
from kafkalite_runtime.kube import BROKERS
from tests.unit.broker_cluster.conftest import NAMESPACE, TOPIC_ID, eventually, identity_of


async def test_for_how_long_the_store_lists_a_stray_no_more_is_known(world, settings, linked, monkeypatch):
    """None is removed that anybody may still read of in the store (S10)."""
    await world.create_cluster()
    await world.create_broker()
    link, _, client = await linked()

    def unlisted_ms(partition=3):
        return link.unlisted_ms(TOPIC_ID, partition)

    assert unlisted_ms() == 0
    await link.register(identity_of(settings))
    assert await link.set_state(BrokerState.RUNNING)
    await eventually(lambda: unlisted_ms() > 20)
    stray = Stray(topic="gone", topic_id=TOPIC_ID, partition=3, leader_epoch=5, partition_epoch=9, end_offset=77)
    link.report_strays([stray])
    assert unlisted_ms() == 0, "the write is under way"
    await eventually(lambda: link.cache.brokers[0].strays == (stray,))
    client.outage_of = (f"{settings.object_name}/status",)
    link.report_strays([replace(stray, partition=4)])
    await asyncio.sleep(0.3)  # it is written again and again
    assert unlisted_ms() == 0
    link.report_strays([stray])  # what the store says, but for the write that may be on its way
    await asyncio.sleep(0.1)
    assert unlisted_ms(4) == 0
    link.report_strays([replace(stray, partition=4)])
    client.outage_of = ()
    await eventually(lambda: unlisted_ms() > 20)
    assert unlisted_ms(4) == 0
    before = monotonic()
    written = {"status": {"strays": [render_stray(stray)]}}  # as in a store that was restored
    await world.client.merge_patch(BROKERS, NAMESPACE, settings.object_name, written, subresource="status")
    await eventually(lambda: link.cache.brokers[0].strays == (stray,))
    await eventually(lambda: link.cache.brokers[0].strays == (replace(stray, partition=4),))
    await eventually(lambda: unlisted_ms() > 0)
    assert unlisted_ms() <= (monotonic() - before) * 1000.0
    for number in range(5, 9):  # others come: that changes nothing
        link.report_strays([replace(stray, partition=number)])
        await eventually(lambda number=number: link.cache.brokers[0].strays == (replace(stray, partition=number),))
    known = unlisted_ms()
    assert known > unlisted_ms(5) > 0
    monkeypatch.setattr(link, "contact_age_s", lambda: 30.0)
    assert unlisted_ms() == 0, "out of contact nobody knows what others have read"


async def test_a_list_whose_write_had_no_answer_may_still_come(world, settings, linked):
    """The API server may apply it after a later list, which the broker's watch may tell long after others (S10)."""
    await world.create_cluster()
    await world.create_broker()
    link, _, client = await linked()
    await link.register(identity_of(settings))
    assert await link.set_state(BrokerState.RUNNING)
    strays = [
        Stray(topic="gone", topic_id=TOPIC_ID, partition=number, leader_epoch=5, partition_epoch=9, end_offset=77)
        for number in (3, 4)
    ]
    client.faults = ["lose request"]
    link.report_strays(strays[:1])
    await eventually(lambda: link.cache.brokers[0].strays == (strays[0],))  # it was written again
    link.report_strays(strays[1:])
    await eventually(lambda: link.cache.brokers[0].strays == (strays[1],))
    link.report_strays([])
    await eventually(lambda: link.unlisted_ms(TOPIC_ID, 4) > 20)
    assert link.unlisted_ms(TOPIC_ID, 3) == 0


async def test_how_many_strays_the_list_has_no_room_for_is_told_and_forgotten_with_the_disk(world, settings, linked):
    """The operator keeps the volume of a broker that may have what somebody needs, and that of no other (S10)."""
    await world.create_cluster()
    await world.create_broker()
    link, _, client = await linked()
    await link.register(identity_of(settings))
    assert await link.set_state(BrokerState.RUNNING)
    link.report_strays([], 5)
    await eventually(lambda: link.cache.brokers[0].strays_unlisted == 5)
    writes = client.writes
    link.report_strays([], 5)
    written = {"status": {"straysUnlisted": None}}  # a definition of an earlier version drops it
    await world.client.merge_patch(BROKERS, NAMESPACE, settings.object_name, written, subresource="status")
    await eventually(lambda: link.cache.brokers[0].strays_unlisted is None)
    assert await link.set_state(BrokerState.RUNNING)
    assert client.writes == writes, "and is not written again and again"
    written = {"status": {"straysUnlisted": 7}}  # as in a store that was restored
    await world.client.merge_patch(BROKERS, NAMESPACE, settings.object_name, written, subresource="status")
    await eventually(lambda: link.cache.brokers[0].strays_unlisted == 5)
    await link.stop()
    await world.fence()
    other, _, _ = await linked(incarnation="second")
    await other.register(identity_of(settings, incarnation="second", directory_id="disk-2"))
    await eventually(lambda: other.cache.brokers.get(0) and other.cache.brokers[0].epoch > 1)
    assert (other.cache.brokers[0].registration.directory_id, other.cache.brokers[0].strays_unlisted) == ("disk-2", 0)
