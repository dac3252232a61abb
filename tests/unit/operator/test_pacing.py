"""The controller's rest between two rounds."""

import asyncio
import time
from types import SimpleNamespace

from kafkalite_core.controller.actions import ReadBrokers, ReadClusters
from kafkalite_core.controller.pacing import PAUSE_MAX_S
from kafkalite_operator.controller import Controller
from kafkalite_operator.listing import Listing
from kafkalite_runtime.kube.client import KubeList
from kafkalite_runtime.kube.kinds import BROKERS, CLUSTERS, PODS, TOPICS

LONG_ROUND_S = 30.0


def controller():
    one = object.__new__(Controller)
    one._clock = time.monotonic
    one._wake, one._hurry = asyncio.Event(), asyncio.Event()
    one._work = SimpleNamespace(waits=False)
    return one


async def test_what_is_not_urgent_waits_after_a_long_round_but_not_for_ever():
    one = controller()
    one.wake_up(urgent=False)
    began = time.monotonic()
    await asyncio.wait_for(one._rest(began - LONG_ROUND_S), 60)
    assert PAUSE_MAX_S * 0.9 <= time.monotonic() - began < LONG_ROUND_S


async def test_while_something_waits_for_its_turn_a_short_round_is_not_followed_by_the_next():
    one = controller()
    one._work.waits = True
    one.wake_up(urgent=False)
    began = time.monotonic()
    await asyncio.wait_for(one._rest(began), 60)
    assert time.monotonic() - began >= PAUSE_MAX_S * 0.9


async def test_what_is_urgent_is_planned_at_once():
    urgent, patient = controller(), controller()
    ended = []

    async def rest(one, name):
        await one._rest(time.monotonic() - LONG_ROUND_S)
        ended.append(name)

    tasks = [asyncio.create_task(rest(patient, "patient")), asyncio.create_task(rest(urgent, "urgent"))]
    patient.wake_up(urgent=False)
    urgent.wake_up()
    await asyncio.wait_for(asyncio.gather(*tasks), 60)
    assert ended == ["urgent", "patient"]


async def test_elections_that_wait_for_the_brokers_are_planned_as_soon_as_they_were_read():
    one = controller()

    async def listed(*_, **__):
        return KubeList([], "7")

    client, store = SimpleNamespace(list=listed), SimpleNamespace(relist=lambda *_, **__: None)
    one._listing = Listing(client, store, ("ns",), one._on_read)
    one._read_awaited = False
    await one._listing.kind(BROKERS, "ns")
    assert not one._hurry.is_set(), "read beside elections that go out"
    one._read_awaited = True
    await one._listing.kind(TOPICS, "ns")
    assert not one._hurry.is_set()
    await one._listing.kind(BROKERS, "ns")
    assert (one._hurry.is_set(), one._read_awaited) == (True, False)


async def test_what_a_plan_asks_for_is_read_and_waited_for():
    for action, kind in ((ReadBrokers(), BROKERS), (ReadClusters(), CLUSTERS)):
        one, listed = controller(), []

        async def lists(kind, namespace, *, listed=listed, **_):
            listed.append((kind, namespace))
            return KubeList([], "7")

        one._read_awaited = False
        store = SimpleNamespace(relist=lambda *_, **__: None)
        one._listing = Listing(SimpleNamespace(list=lists), store, ("ns",), one._on_read)
        begun = []
        one._work = SimpleNamespace(start=lambda key, work, begun=begun: begun.append((key, work)) or True)
        one._dispatch(SimpleNamespace(cluster=SimpleNamespace(namespace="ns")), [action], 1)
        assert one._read_awaited
        await begun[0][1]
        assert (listed, one._hurry.is_set(), one._read_awaited) == ([(kind, "ns")], True, False)


async def test_brokers_and_pods_are_urgent_and_topics_are_not():
    one = controller()
    known = True
    one._store = type("Store", (), {"apply": lambda *_: known})()
    one.on_object(TOPICS, "MODIFIED", {})
    assert (one._wake.is_set(), one._hurry.is_set()) == (True, False)
    for kind in (BROKERS, PODS):
        one._hurry.clear()
        one.on_object(kind, "MODIFIED", {})
        assert one._hurry.is_set()
    known = False
    one._wake.clear()
    one.on_object(PODS, "MODIFIED", {})
    assert not one._wake.is_set(), "what is known already is no reason to plan"


def test_a_read_of_the_leases_holds_elections_up_only_when_somebody_is_to_be_fenced(monkeypatch):
    one, fences = controller(), []
    one._work.electing = True
    settings = SimpleNamespace(cluster=SimpleNamespace(uid="uid"))
    one._store = SimpleNamespace(clusters=lambda: {("ns", "c"): settings})
    one._listing = SimpleNamespace(knows=lambda _: True)
    one._epochs = {"uid": 3}
    monkeypatch.setattr(one, "_snapshot", lambda key, epoch, balance_due: (key, epoch), raising=False)
    monkeypatch.setattr("kafkalite_operator.controller.judge", lambda snapshot, _: fences and [snapshot])
    one.on_leases()
    assert (one._wake.is_set(), one._hurry.is_set()) == (True, False)
    fences.append("somebody")
    one.on_leases()
    assert one._hurry.is_set()
    one._hurry.clear()
    fences.clear()
    one._work.electing = False
    one.on_leases()
    assert one._hurry.is_set(), "nothing is held up"
