"""The election by Lease against a client that does as it is told."""

import pytest

from kafkalite_core.resources.leases import render_lease
from kafkalite_operator.elector import CALL_DEADLINE_S, LEASE_DURATION_S, RENEW_DEADLINE_S, RETRY_S, Elector
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
    clock.now += RENEW_DEADLINE_S + 0.1
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


def losing_answers(client, clock, after_s=CALL_DEADLINE_S):
    """What is written lands, and the answer is waited for in vain."""
    real = client.replace

    async def replace(*arguments, **more):
        await real(*arguments, **more)
        clock.now += after_s
        raise KubeUnavailable("no answer", ambiguous=True)

    client.replace = replace
    return real


async def test_a_renewal_that_hangs_does_not_end_the_term():
    client, clock = OneObject(), Clock()
    one, other = elector(client, clock, "a"), elector(client, clock, "b")
    await one.attempt()
    assert not await other.attempt()
    clock.now += RETRY_S
    real = losing_answers(client, clock)
    await one.turn()
    assert one.held(), "nothing was confirmed for three seconds, and the Lease lasts five"
    client.replace = real
    await one.turn()
    assert (one.held(), one.terms) == (True, 1)
    assert not await other.attempt()


async def test_a_renewal_that_was_applied_counts_from_when_it_was_sent_though_its_answer_was_lost():
    client, clock = OneObject(), Clock()
    one = elector(client, clock, "a")
    await one.attempt()
    began = clock.now
    clock.now += RETRY_S
    real = losing_answers(client, clock)
    await one.turn()
    client.replace = real
    losing_answers(client, clock, after_s=1.5)
    await one.turn()  # it reads what it has written; the renewal after that is lost as well
    assert clock.now - began > RENEW_DEADLINE_S, "more than that since the last answer"
    assert (one.held(), one.terms) == (True, 1)
    clock.now = began + RETRY_S + RENEW_DEADLINE_S
    assert not one.held(), "it counts from when it was sent"


async def test_nothing_is_written_any_more_before_another_may_take_the_lease():
    client, clock = OneObject(), Clock()
    one = elector(client, clock, "a")
    await one.attempt()
    began = clock.now
    client.down = True
    while one.held():
        clock.now += 0.05
        await one.turn()
    assert RENEW_DEADLINE_S <= clock.now - began < RENEW_DEADLINE_S + 0.1 < LEASE_DURATION_S


async def test_an_answer_that_was_lost_after_the_term_revives_nothing():
    client, clock = OneObject(), Clock()
    one = elector(client, clock, "a")
    await one.attempt()
    clock.now += 1.0
    real = losing_answers(client, clock, after_s=RENEW_DEADLINE_S)
    await one.turn()
    client.replace = real
    assert not one.held()
    await one.turn()
    assert (one.held(), one.terms) == (True, 2), "everything is read again"
