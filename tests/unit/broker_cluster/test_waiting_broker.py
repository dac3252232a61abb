"""S6: a broker with another disk watches the Lease of its predecessor, against a real (embedded) API server."""

import asyncio
import itertools
from time import monotonic

import pytest

from kafkalite_broker.cluster import registrar
from kafkalite_core.membership import predecessor
from kafkalite_core.resources.leases import render_lease
from kafkalite_runtime.kube import LEASES
from tests.unit.broker_cluster.conftest import NAMESPACE, eventually, identity_of
from tests.unit.broker_cluster.test_link import registered

LEASE_DURATION_S = 5.0


@pytest.fixture
def silence(monkeypatch):
    """Makes a predecessor overdue after so many seconds of silence; its Lease is read every 0.1 s."""

    def set_to(seconds):
        monkeypatch.setattr(predecessor, "PREDECESSOR_LEASES", seconds / LEASE_DURATION_S)
        monkeypatch.setattr(predecessor, "GAP_S", 0.5)
        monkeypatch.setattr(registrar, "LOOK_AGAIN_S", 0.1)

    return set_to


async def waiting_for(world, settings, linked):
    """A registered broker, and one with another disk that waits for it: (link, what it told) of each, and the client."""
    _, told_first = await registered(world, settings, linked)
    second, told, client = await linked(incarnation="incarnation-2")
    await second.synced()
    assert second.cluster.lease_duration_s == LEASE_DURATION_S
    await second.register(identity_of(settings, incarnation="incarnation-2", directory_id="disk-2"))
    await eventually(lambda: "waits until that one is fenced" in second.obstacle)
    return told_first, second, told, client


@pytest.mark.parametrize("lost", ["everything", "the Lease"])
async def test_another_directory_does_not_wait_for_ever_when_nobody_fences(world, settings, linked, silence, lost):
    """Every broker of a cluster lost its disk while no operator looked: there is nobody whose Lease is renewed."""
    silence(3.0)
    told_first, second, told, client = await waiting_for(world, settings, linked)
    await asyncio.sleep(0.5)  # it reads, and there is no Lease
    if lost == "everything":
        client.outage = True
    else:
        client.outage_of = LEASES.path(NAMESPACE, settings.object_name)
    await asyncio.sleep(1.5)
    assert told.epochs == []
    client.outage, client.outage_of = False, ()
    ended_at = monotonic()
    await eventually(lambda: second.registered)
    assert monotonic() - ended_at > 3.0, "a time in which it could not read counts for nobody"
    assert told.epochs == [2]
    assert (await world.broker())["status"]["registration"]["trustedSince"] == 2
    await eventually(lambda: told_first.superseded)


async def test_a_slow_api_server_shows_a_silent_predecessor_as_well(world, settings, linked, silence):
    """Two answers and the pause between two looks take longer than the gap that is allowed."""
    silence(1.0)
    _, second, told, client = await waiting_for(world, settings, linked)
    client.answer_s = 0.3
    await eventually(lambda: second.registered, limit_s=60.0)
    assert told.epochs == [2]


@pytest.mark.parametrize(("holder", "left_alone"), [("incarnation-1", True), ("incarnation-2", False)])
async def test_a_lease_that_is_renewed_is_a_sign_of_life_of_its_holder(
    world, settings, linked, silence, holder, left_alone
):
    """A broker may hold the Lease itself, from when it was registered, and see another one after the store went back."""
    silence(2.0)
    _, second, told, _ = await waiting_for(world, settings, linked)
    now = "2026-01-01T00:00:00.000000Z"
    lease = render_lease(NAMESPACE, settings.object_name, holder=holder, renewed=now, acquired=now, duration_s=5)
    await world.client.create(LEASES, NAMESPACE, lease)

    async def renew():
        for number in itertools.count(1):
            renewed = {"spec": {"renewTime": f"2026-01-01T00:00:00.{number:06}Z"}}
            await world.client.merge_patch(LEASES, NAMESPACE, settings.object_name, renewed)
            await asyncio.sleep(0.3)

    renewing = asyncio.create_task(renew())
    if left_alone:
        await asyncio.sleep(4.5)
        assert told.epochs == []
        renewing.cancel()
    await eventually(lambda: second.registered)
    assert told.epochs == [2]
    renewing.cancel()


async def test_a_predecessor_is_judged_by_the_lease_duration_that_it_goes_by(world, settings, linked, monkeypatch):
    """The cluster's was lowered, and it has not heard of that: its Lease says the former one."""
    judged = asyncio.Queue()
    is_overdue = predecessor.Predecessor.is_overdue

    def seen(watch, epoch, *, lease_duration_s, now_s):
        judged.put_nowait(lease_duration_s)
        return is_overdue(watch, epoch, lease_duration_s=lease_duration_s, now_s=now_s)

    monkeypatch.setattr(predecessor.Predecessor, "is_overdue", seen)
    monkeypatch.setattr(registrar, "LOOK_AGAIN_S", 0.01)
    await waiting_for(world, settings, linked)
    now = "2026-01-01T00:00:00.000000Z"
    lease = render_lease(
        NAMESPACE, settings.object_name, holder="incarnation-1", renewed=now, acquired=now, duration_s=60
    )
    await world.client.create(LEASES, NAMESPACE, lease)
    async with asyncio.timeout(60):
        while await judged.get() != 60:
            pass
    mine = {"spec": {"holderIdentity": "incarnation-2"}}
    await world.client.merge_patch(LEASES, NAMESPACE, settings.object_name, mine)
    async with asyncio.timeout(60):
        while await judged.get() != LEASE_DURATION_S:
            pass


async def test_a_defect_that_ends_the_watch_of_the_predecessor_is_told(world, settings, linked, silence, monkeypatch):
    def broken(*_arguments, **_options):
        raise ZeroDivisionError

    silence(60.0)
    monkeypatch.setattr(predecessor.Predecessor, "is_overdue", broken)
    _, _, told, _ = await waiting_for(world, settings, linked)
    await eventually(lambda: told.failed)
    assert isinstance(told.failed[0], ZeroDivisionError)
