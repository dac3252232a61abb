"""The reader of the brokers' Leases against a client that does as it is told."""

from kafkalite_core.resources.leases import render_lease
from kafkalite_operator.lease_reader import FORGET_S, LASTING_S, LeaseReader
from kafkalite_runtime.kube.client import KubeList
from kafkalite_runtime.kube.errors import KubeForbidden, KubeUnauthorized, KubeUnavailable
from tests.unit.operator.test_parts import Clock, OneObject


async def test_leases_are_fresh_again_after_a_gap():  # R16
    client, clock = (
        OneObject(render_lease("ns", "kafkalite-broker-0", holder="i", renewed="t", acquired="t", duration_s=5)),
        Clock(),
    )
    leases = {}
    reader = LeaseReader(client, leases, lambda: ["ns"], lambda: None, clock)
    assert reader.observing_since("ns") is None
    await reader.read("ns")
    for _ in range(4):
        clock.now += 1.0
        await reader.read("ns")
    assert reader.observing_since("ns") == 100.0
    assert leases["ns", "kafkalite-broker-0"].changed_at == 100.0
    assert leases["ns", "kafkalite-broker-0"].duration_s == 5
    clock.now += 3.0
    assert reader.observing_since("ns") is None
    await reader.read("ns")
    assert reader.observing_since("ns") == 107.0
    assert reader.unheard_until("ns") == 113.0  # brokers may be cut off for twice as long as this observer was


async def test_of_leases_those_of_brokers_are_kept_for_as_long_as_they_are_there():
    client, clock, leases, where = OneObject(), Clock(), {}, ["ns"]
    reader = LeaseReader(client, leases, lambda: where, lambda: None, clock)

    def shows(name):
        client.obj = render_lease("ns", name, holder="i", renewed="t", acquired="t", duration_s=5)

    for name in ("somebody", "kafkalite-broker-x", "-broker-0", "kafkalite-broker-0"):
        shows(name)
        await reader.read_all()
    assert list(leases) == [("ns", "kafkalite-broker-0")]
    shows("kafkalite-broker-1")
    clock.now += FORGET_S
    await reader.read_all()
    assert len(leases) == 2, "a Lease that is deleted by hand takes nothing of its holder's time"
    clock.now += 1.0
    await reader.read_all()
    assert list(leases) == [("ns", "kafkalite-broker-1")]
    where.clear()
    clock.now += FORGET_S + 1.0
    await reader.read_all()
    assert (leases, reader._observers) == ({}, {})


async def test_a_refusal_that_lasts_is_known_and_nothing_else_is_one():
    clock = Clock()

    class Answers:
        error = None

        async def list(self, *_, **__):
            if self.error is not None:
                raise self.error
            return KubeList([], "1")

    client = Answers()
    reader = LeaseReader(client, {}, lambda: ["ns"], lambda: None, clock)

    async def refused(error):
        client.error = error
        await reader.read_all()
        clock.now += LASTING_S
        return reader.refused("ns")

    for error in (
        None,
        KubeUnauthorized(401, "Unauthorized", "the token has expired"),
        KubeUnavailable("500 InternalError", ambiguous=False, status=500),
    ):
        assert not await refused(error)
    client.error = KubeForbidden(403, "Forbidden", "leases is forbidden")
    await reader.read_all()
    assert not reader.refused("ns"), "an API server that has just started knows no Roles yet"
    clock.now += LASTING_S
    assert reader.refused("ns") == "leases is forbidden"
    assert await refused(KubeUnavailable("500 InternalError", ambiguous=False, status=500)), "nobody has said otherwise"
    assert not await refused(None)
