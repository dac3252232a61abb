"""The Lease against the embedded API server; the thread has its own loop and client, as in the broker."""

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from kafkalite_broker.cluster import lease_thread
from kafkalite_broker.cluster.lease_thread import LeaseThread
from kafkalite_core.model.cluster import Registration
from kafkalite_core.resources.brokers import render_registration
from kafkalite_core.resources.leases import parse_lease, render_lease
from kafkalite_runtime.kube import BROKERS, LEASES, KubeClient, KubeNotFound
from tests.unit.broker_cluster.conftest import NAMESPACE, FaultyClient, eventually


class Holder:
    """What the broker would tell its Lease thread."""

    def __init__(self):
        self.epoch = 1
        self.owner = "owner-uid"
        self.loop_age_s = 0.0
        self.flush_age_s = 0.0
        self.noticed = self.flushed = ()


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
        flushed=lambda: holder.flushed,
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


async def comes_to_rest(world):
    """A renewal that was on its way may still arrive; after that nothing does."""
    async with asyncio.timeout(60):
        while not await stands_still(world):
            pass
    assert await stands_still(world)


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


async def test_says_which_topics_the_broker_has_flushed(world, fast):
    holder = Holder()
    holder.owner = await owner(world)
    async with thread_of(world, fast, holder):
        assert (await changes(world)).flushed == frozenset()
        holder.flushed = ("uid-1:2:3",)
        async with asyncio.timeout(60):
            while (await changes(world)).flushed != {"uid-1:2:3"}:
                pass


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
        await comes_to_rest(world)
        setattr(holder, symptom, 0.0)
        await changes(world)


async def register(world, incarnation, epoch):
    registration = Registration(
        broker_epoch=epoch, incarnation=incarnation, directory_id="d", trusted_since=1, clean_since=1, host="h", port=1
    )
    status = {"status": {"registration": render_registration(registration)}}
    await world.client.merge_patch(BROKERS, NAMESPACE, "kafkalite-broker-0", status, subresource="status")


async def make_lease(world, holder):
    now = "2026-01-01T00:00:00.000000Z"
    lease = render_lease(NAMESPACE, "kafkalite-broker-0", holder=holder, renewed=now, acquired=now, duration_s=1)
    await world.client.create(LEASES, NAMESPACE, lease)


async def held_by(world, incarnation):
    async with asyncio.timeout(60):
        while (await changes(world)).holder != incarnation:
            pass


@pytest.mark.parametrize("memory", ["its own write", "a write without an answer", "a later epoch", "nothing"])
async def test_who_is_not_registered_any_more_takes_no_lease_from_its_successor(world, fast, memory):
    """A former process that still runs, although its pod is deleted: it holds, or held, the Lease, or comes late."""
    former, later = Holder(), Holder()
    former.owner = later.owner = await owner(world)
    later.epoch = 3
    await register(world, fast.incarnation, 1)
    await make_lease(world, "incarnation-0")
    client = FaultyClient(world.config)
    if memory == "a write without an answer":
        client.faults = ["lose answer"]
    if memory == "nothing":
        former.epoch = -1
    async with thread_of(world, fast, former, lambda: client):
        if memory != "nothing":
            await held_by(world, fast.incarnation)
            await changes(world)
        await register(world, "incarnation-2", 3)
        async with thread_of(world, replace(fast, incarnation="incarnation-2"), later):
            await held_by(world, "incarnation-2")
            former.epoch = 2 if memory == "a later epoch" else 1
            taken, calls = await lease_or_none(world), client.calls
            await eventually(lambda: client.calls >= calls + 10)
            found = await changes(world)
            assert (found.holder, found.transitions) == ("incarnation-2", taken.transitions)


async def test_the_registered_one_takes_its_lease_from_whoever_has_it(world, fast):
    """It was deleted, and a former process that still runs made it anew before its successor did."""
    holder = Holder()
    holder.owner = await owner(world)
    await register(world, fast.incarnation, 1)
    async with thread_of(world, fast, holder):
        await held_by(world, fast.incarnation)
        taken = {"spec": {"holderIdentity": "incarnation-0", "leaseTransitions": 7}}
        await world.client.merge_patch(LEASES, NAMESPACE, "kafkalite-broker-0", taken)
        await held_by(world, fast.incarnation)
        assert (await changes(world)).transitions == 8


@pytest.mark.parametrize("former", [True, False])
async def test_takes_it_over_from_an_api_server_that_takes_nearly_its_deadline_for_each_call(
    world, fast, monkeypatch, former
):
    monkeypatch.setattr(lease_thread, "DEADLINE_S", 1.0)
    holder, client = Holder(), FaultyClient(world.config)
    client.answer_s = 0.7
    holder.owner = await owner(world)
    await register(world, fast.incarnation, 1)
    if former:
        await make_lease(world, "former")
    async with thread_of(world, fast, holder, lambda: client):
        await held_by(world, fast.incarnation)
        await changes(world)


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
        await comes_to_rest(world)
        made[0].outage = False
        await changes(world)
        holder.flush_age_s = None  # a defect: it cannot be compared
        async with asyncio.timeout(60):
            while len(made) < 2:  # noqa: ASYNC110 - it happens in a thread
                await asyncio.sleep(0.01)
        holder.flush_age_s = 0.0
        await changes(world)
