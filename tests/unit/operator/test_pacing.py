"""The controller's rest between two rounds."""

import asyncio
import time

from kafkalite_core.controller.pacing import PAUSE_MAX_S
from kafkalite_operator.controller import Controller
from kafkalite_runtime.kube.kinds import BROKERS, PODS, TOPICS

LONG_ROUND_S = 30.0


def controller():
    one = object.__new__(Controller)
    one._clock = time.monotonic
    one._wake, one._hurry = asyncio.Event(), asyncio.Event()
    return one


async def test_what_is_not_urgent_waits_as_long_as_the_round_took_and_a_second_at_most():
    one = controller()
    one.wake_up(urgent=False)
    began = time.monotonic()
    await asyncio.wait_for(one._rest(began - LONG_ROUND_S), 60)
    assert PAUSE_MAX_S * 0.9 <= time.monotonic() - began < LONG_ROUND_S


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
