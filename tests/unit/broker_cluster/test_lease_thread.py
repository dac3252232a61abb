"""The Lease against the embedded API server; the thread has its own loop and client, as in the broker."""

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from kafkalite_broker.cluster.lease_thread import LeaseThread
from kafkalite_core.resources.leases import parse_lease
from kafkalite_runtime.kube import LEASES, KubeClient, KubeNotFound
from tests.unit.broker_cluster.conftest import NAMESPACE, FaultyClient


class Holder:
    """What the broker would tell its Lease thread."""

    def __init__(self):
        self.epoch = 1
        self.owner = "owner-uid"
        self.loop_age_s = 0.0
        self.flush_age_s = 0.0
        self.noticed = ()


@pytest.fixture
def fast(settings):
    return replace(settings, broker=replace(settings.broker, renew_interval_s=0.05, lease_duration_s=1))


@asynccontextmanager
async def thread_of(world, settings, holder, make_client=None):
    thread = LeaseThread(
        make_client or (lambda: KubeClient(world.config)),
        settings,
        config=lambda: settings.broker,
        broker_epoch=lambda: holder.epoch,
        owner_uid=lambda: holder.owner,
        noticed=lambda: holder.noticed,
        main_loop_age_s=lambda: holder.loop_age_s,
        oldest_flush_age_s=lambda: holder.flush_age_s,
    )
    thread.start()
    try:
        yield thread
    finally:
        await asyncio.to_thread(thread.stop)
        assert not thread._thread.is_alive()


async def read(world):
    return await world.client.get(LEASES, NAMESPACE, "kafkalite-broker-0")


async def changes(world, *, limit_s=60.0):
    """Wait for the next renewal; the Lease after it."""
    async with asyncio.timeout(limit_s):
        before = await lease_or_none(world)
        after = before
        while after == before or after is None:
            after = await lease_or_none(world)
    return after


async def lease_or_none(world):
    try:
        return parse_lease(await read(world))
    except KubeNotFound:
        return None


async def stands_still(world, *, duration_s=0.4):
    before = await lease_or_none(world)
    await asyncio.sleep(duration_s)
    return await lease_or_none(world) == before


async def owner(world):
    """A Lease whose owner does not exist is garbage."""
    return (await world.create_broker())["metadata"]["uid"]


async def test_makes_and_renews(world, fast):
    holder = Holder()
    holder.owner = await owner(world)
    async with thread_of(world, fast, holder) as thread:
        first = await changes(world)
        second = await changes(world)
        assert first.holder == second.holder == fast.incarnation
        assert second.renewed > first.renewed
        assert second.duration_s == 1
        assert thread.renewal_age_s < 5
    found = await read(world)
    assert found["metadata"]["ownerReferences"][0]["uid"] == holder.owner
    assert found["metadata"]["ownerReferences"][0]["kind"] == "KafkaLiteBroker"
    assert found["metadata"]["labels"]["kafkalite.io/broker-id"] == "0"
    assert await stands_still(world), "a stopped thread renews no more"


async def test_says_which_topics_the_broker_has_noticed(world, fast):
    """Beside whatever somebody else has annotated, and again when that somebody has taken it away."""
    holder = Holder()
    holder.owner = await owner(world)
    async with thread_of(world, fast, holder):
        assert (await changes(world)).noticed == frozenset(), "it says so from the first renewal on"
        holder.noticed = ("uid-1", "uid-2")
        await says(world, {"uid-1", "uid-2"})
        for annotations in ({"team": "a"}, {"kafkalite.io/noticed-topics": "uid-9"}, None):
            patch = {"metadata": {"annotations": annotations}}
            await world.client.merge_patch(LEASES, NAMESPACE, "kafkalite-broker-0", patch)
            await says(world, {"uid-1", "uid-2"})
        holder.noticed = ()
        await says(world, set())


async def test_a_user_s_annotation_stays(world, fast):
    holder = Holder()
    holder.owner = await owner(world)
    async with thread_of(world, fast, holder):
        await changes(world)
        patch = {"metadata": {"annotations": {"team": "a"}}}
        await world.client.merge_patch(LEASES, NAMESPACE, "kafkalite-broker-0", patch)
        holder.noticed = ("uid-1",)
        await says(world, {"uid-1"})
        assert (await changes(world)).annotations["team"] == "a"


async def says(world, uids):
    async with asyncio.timeout(60):
        while (await changes(world)).noticed != frozenset(uids):
            pass


async def test_only_after_registration(world, fast):
    holder = Holder()
    holder.owner, holder.epoch = await owner(world), -1
    async with thread_of(world, fast, holder):
        assert await stands_still(world)
        assert await lease_or_none(world) is None
        holder.epoch = 1
        await changes(world)


@pytest.mark.parametrize("symptom", ["loop_age_s", "flush_age_s"])
async def test_stops_while_the_broker_hangs_and_goes_on_after(world, fast, symptom):
    holder = Holder()
    holder.owner = await owner(world)
    async with thread_of(world, fast, holder):
        await changes(world)
        setattr(holder, symptom, 1.1)
        await asyncio.sleep(0.2)
        assert await stands_still(world)
        setattr(holder, symptom, 0.0)
        await changes(world)


async def test_takes_over_from_the_former_incarnation_once(world, fast):
    former, later = Holder(), Holder()
    former.owner = later.owner = await owner(world)
    later.epoch = 2
    async with thread_of(world, fast, former):
        await changes(world)
        async with thread_of(world, replace(fast, incarnation="incarnation-2"), later):
            async with asyncio.timeout(60):
                while (await changes(world)).holder != "incarnation-2":
                    pass
            for _ in range(10):
                assert (await changes(world)).holder == "incarnation-2", "the former one does not take it back"
            assert parse_lease(await read(world)).transitions == 1


async def test_survives_an_outage_and_a_defect(world, fast):
    holder = Holder()
    holder.owner = await owner(world)
    made = []

    def make_client():
        made.append(FaultyClient(world.config))
        return made[-1]

    async with thread_of(world, fast, holder, make_client):
        await changes(world)
        made[0].outage = True
        await asyncio.sleep(0.2)
        assert await stands_still(world)
        made[0].outage = False
        await changes(world)
        holder.flush_age_s = None  # a defect: it cannot be compared
        async with asyncio.timeout(60):
            while len(made) < 2:  # noqa: ASYNC110 - it happens in a thread
                await asyncio.sleep(0.01)
        holder.flush_age_s = 0.0
        await changes(world)
