"""The election by Lease against a client that does as it is told."""

import pytest

from kafkalite_core.resources.leases import render_lease
from kafkalite_operator.elector import Elector
from kafkalite_runtime.kube.errors import KubeUnavailable
from tests.unit.operator.test_parts import Clock, OneObject


def elector(client, clock, name, instance=""):
    return Elector(client, namespace="ns", identity=name, instance=instance, clock=clock)


async def test_one_of_two_holds_the_lease():
    client, clock = OneObject(), Clock()
    first, second = elector(client, clock, "a"), elector(client, clock, "b")
    assert await first.attempt()
    assert not await second.attempt()
    for _ in range(20):
        clock.now += 1.0
        assert await first.attempt()
        assert not await second.attempt()
    assert (first.held(), second.held()) == (True, False)


async def test_a_silent_holder_stops_before_the_next_one_starts():
    client, clock = OneObject(), Clock()
    first, second = elector(client, clock, "a"), elector(client, clock, "b")
    await first.attempt()
    await second.attempt()
    taken_at = None
    for _ in range(80):
        clock.now += 0.1
        if await second.attempt():
            taken_at = clock.now
            break
        assert not (second.held() and first.held())
    assert taken_at == pytest.approx(105.1, abs=0.2)
    assert not first.held()
    assert not await first.attempt()


async def test_expiry_is_judged_by_the_own_clock_only():
    lease = render_lease(
        "ns", "n", holder="x", renewed="1999-01-01T00:00:00Z", acquired="", duration_s=5, resource_version="7"
    )
    client, clock = OneObject(lease), Clock()
    one = elector(client, clock, "a")
    assert not await one.attempt(), "an old time stamp proves nothing"
    clock.now += 5.5
    assert await one.attempt()


async def test_a_released_lease_is_taken_at_once_and_so_is_a_dead_predecessor_s():
    client, clock = OneObject(), Clock()
    first = elector(client, clock, "pod_uid_1", "pod_uid")
    await first.attempt()
    other = elector(client, clock, "b")
    assert not await other.attempt()
    assert await elector(client, clock, "pod_uid_2", "pod_uid").attempt(), "the same pod's earlier container"
    released = elector(client, clock, "c")
    clock.now += 0.1
    client.obj["spec"]["holderIdentity"] = "c"
    released._renewed_at = clock.now
    await released.release()
    assert client.obj["spec"]["holderIdentity"] == ""
    assert await other.attempt()


async def test_an_outage_ends_the_term():
    client, clock = OneObject(), Clock()
    one = elector(client, clock, "a")
    await one.attempt()
    client.down = True
    clock.now += 3.5
    with pytest.raises(KubeUnavailable):
        await one.attempt()
    assert not one.held()
    client.down = False
    assert await one.attempt()
    assert one.terms == 2, "a new term: everything is read again"


async def test_a_renewal_is_one_call_and_notices_who_took_the_lease():
    client, clock = OneObject(), Clock()
    first, second = elector(client, clock, "a"), elector(client, clock, "b")
    assert await first.attempt()
    reads = []
    real = client.get

    async def get(*arguments, **more):
        reads.append(arguments)
        return await real(*arguments, **more)

    client.get = get
    for _ in range(3):
        clock.now += 1.0
        assert await first.attempt()
    assert not reads
    client.obj["spec"]["holderIdentity"] = ""
    client.obj["metadata"]["resourceVersion"] = "99"
    assert await second.attempt()
    assert not await first.attempt()
    assert not first.held()
