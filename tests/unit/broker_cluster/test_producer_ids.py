import asyncio

import pytest

from kafkalite_broker.cluster import producer_ids
from kafkalite_broker.cluster.producer_ids import ProducerIdAllocator
from kafkalite_core.membership.producer_ids import IDS_PER_MS
from kafkalite_core.model.errors import BrokerError
from kafkalite_core.protocol.errors import ErrorCode
from kafkalite_runtime.kube import CLUSTERS
from tests.unit.broker_cluster.conftest import NAMESPACE, eventually


@pytest.fixture
async def allocators(world):
    made = []

    def make(wall_ms=lambda: 0):
        client = world.new_client()
        allocator = ProducerIdAllocator(client, NAMESPACE, "kafkalite", wall_ms=wall_ms)
        made.append(allocator)
        return allocator, client

    yield make
    for allocator in made:
        await allocator.stop()


async def test_two_brokers_never_hand_out_the_same_id(world, allocators):
    await world.create_cluster()
    (first, _), (second, _) = allocators(), allocators()
    ids = await asyncio.gather(*(allocator.next() for _ in range(1200) for allocator in (first, second)))
    assert len(set(ids)) == 2400
    stored = await world.client.get(CLUSTERS, NAMESPACE, "kafkalite")
    assert stored["status"]["nextProducerId"] > max(ids)


async def test_the_next_block_is_drawn_ahead(world, allocators):
    await world.create_cluster()
    allocator, client = allocators()
    for expected in range(901):
        assert await allocator.next() == expected
    await eventually(lambda: allocator._ids.remaining > 1000)
    client.outage = True
    assert [await allocator.next() for _ in range(3)] == [901, 902, 903]


async def test_a_block_whose_answer_was_lost_is_never_used(world, allocators, monkeypatch):
    monkeypatch.setattr(producer_ids, "backoff_s", lambda *_: 0.0)
    await world.create_cluster()
    allocator, client = allocators()
    client.faults = ["lose answer"]
    assert await allocator.next() == 1000


async def test_during_an_outage_clients_are_told_to_retry_and_the_server_is_left_in_peace(world, allocators):
    await world.create_cluster()
    allocator, client = allocators()
    client.outage = True
    for _ in range(50):
        with pytest.raises(BrokerError) as caught:
            await allocator.next()
        assert caught.value.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert "refused" in caught.value.message
    assert client.calls < 10
    client.outage = False
    await asyncio.sleep(0)
    async with asyncio.timeout(60):
        while True:
            try:
                assert await allocator.next() == 0
                break
            except BrokerError:
                await asyncio.sleep(0.02)


async def test_ids_met_in_logs_are_not_handed_out(world, allocators):
    await world.create_cluster()
    allocator, _ = allocators()
    allocator.highest_in_logs = lambda: 1500
    ids = []
    for _ in range(3):
        try:
            ids.append(await allocator.next())
        except BrokerError:
            await asyncio.sleep(0.05)
    assert ids[0] == 1501


async def test_an_id_in_a_log_far_above_the_counter_is_passed_in_one_draw(world, allocators):
    await world.create_cluster()
    allocator, _ = allocators()
    allocator.highest_in_logs = lambda: 10**12
    assert await allocator.next() == 10**12 + 1
    stored = await world.client.get(CLUSTERS, NAMESPACE, "kafkalite")
    assert stored["status"]["nextProducerId"] == 10**12 + 1001


async def test_an_id_that_no_counter_can_have_reached_is_ignored(world, allocators):
    await world.create_cluster()
    allocator, _ = allocators()
    allocator.highest_in_logs = lambda: 2**63 - 1
    assert await allocator.next() == 0


async def test_a_counter_that_went_back_while_the_broker_ran_gives_no_id_twice(world, allocators):  # S11
    await world.create_cluster()
    allocator, _ = allocators()
    assert await allocator.next() == 0
    # Replication has brought ids that other brokers gave out, and the store was restored to before they were drawn.
    allocator.highest_in_logs = lambda: 4321
    ids = [await allocator.next() for _ in range(1200)]
    assert all(producer_id < 1000 or producer_id > 4321 for producer_id in ids)
    assert ids == sorted(set(ids))
    assert max(ids) > 4321


async def test_a_cluster_that_is_made_again_gives_no_id_twice(world, allocators):
    """Its counter begins anew a second later, and the broker that draws has no log in which the producers of before are known."""
    now_ms = 1_800_000_000_000
    await world.create_cluster()
    (first, _), (second, _) = allocators(lambda: now_ms), allocators(lambda: now_ms + 1000)
    before = {await first.next() for _ in range(1200)}
    await world.client.delete(CLUSTERS, NAMESPACE, "kafkalite")
    await world.create_cluster()
    assert before.isdisjoint({await second.next() for _ in range(1200)})


async def test_by_default_ids_go_by_the_clock_of_the_machine(world):
    await world.create_cluster()
    allocator = ProducerIdAllocator(world.new_client(), NAMESPACE, "kafkalite")
    earliest_ms = 1_767_225_600_000  # 2026
    assert await allocator.next() >= earliest_ms * IDS_PER_MS
    await allocator.stop()
