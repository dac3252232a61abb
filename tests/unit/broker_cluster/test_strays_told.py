"""For how long the store is known to list the strays of a broker, and no others (S10)."""

import asyncio
from time import monotonic

from kafkalite_core.model.cluster import BrokerState
from kafkalite_core.model.topic import Stray
from kafkalite_runtime.kube import BROKERS
from tests.unit.broker_cluster.conftest import NAMESPACE, TOPIC_ID, eventually, identity_of


async def test_for_how_long_the_store_lists_the_strays_is_known(world, settings, linked, monkeypatch):
    """None is removed that anybody may still read of in the store (S10)."""
    await world.create_cluster()
    await world.create_broker()
    link, _, client = await linked()
    assert link.strays_told_ms() == 0
    await link.register(identity_of(settings))
    assert await link.set_state(BrokerState.RUNNING)
    await eventually(lambda: link.strays_told_ms() > 20)
    stray = Stray(topic="gone", topic_id=TOPIC_ID, partition=3, leader_epoch=5, partition_epoch=9, end_offset=77)
    client.outage_of = (f"{settings.object_name}/status",)
    link.report_strays([stray])
    await asyncio.sleep(0.3)  # it is written again and again
    assert link.strays_told_ms() == 0
    client.outage_of = ()
    await eventually(lambda: link.strays_told_ms() > 20)
    before = monotonic()
    written = {"status": {"strays": []}}  # as in a store that was restored
    await world.client.merge_patch(BROKERS, NAMESPACE, settings.object_name, written, subresource="status")
    await eventually(lambda: link.cache.brokers[0].strays == ())
    await eventually(lambda: link.cache.brokers[0].strays == (stray,))
    await eventually(lambda: link.strays_told_ms() > 0)
    assert link.strays_told_ms() <= (monotonic() - before) * 1000.0
    monkeypatch.setattr(link, "contact_age_s", lambda: 30.0)
    assert link.strays_told_ms() == 0, "out of contact nobody knows what others have read"
