import asyncio
import json

import pytest
from aiohttp import web

from kafkalite_runtime.kube import EventRecorder, events
from tests.unit.runtime.fake_api import status

TOPIC = {
    "apiVersion": "kafkalite.io/v1alpha1",
    "kind": "KafkaLiteTopic",
    "metadata": {"name": "orders", "namespace": "ns", "uid": "u1", "resourceVersion": "3"},
}


@pytest.fixture
async def recorder(client, monkeypatch):
    monkeypatch.setattr(events, "RETRY_S", 0.005)
    recorder = EventRecorder(client, "operator")
    yield recorder
    await recorder.close()


async def accept(_request):
    return web.json_response({"metadata": {}})


async def test_repetition_raises_the_count_of_one_event(api, recorder):
    api.answer = accept
    recorder.record(TOPIC, "Normal", "Elected", "leader 1")
    await recorder.flush()
    recorder.record(TOPIC, "Normal", "Elected", "leader 1")
    recorder.record(TOPIC, "Normal", "Elected", "leader 1")
    recorder.record(TOPIC, "Normal", "Elected", "leader 2")
    await recorder.flush()
    assert api.methods == ["POST", "PATCH", "POST"]
    created = json.loads(api.requests[0][3])
    assert created["involvedObject"]["uid"] == "u1"
    assert created["metadata"]["namespace"] == "ns"
    assert (created["reason"], created["count"], created["source"]["component"]) == ("Elected", 1, "operator")
    assert json.loads(api.requests[1][3])["count"] == 3
    assert api.requests[1][1].endswith(created["metadata"]["name"])


async def test_an_answer_lost_after_the_create_does_not_make_two(api, recorder):
    answers = [status(500), status(409, "AlreadyExists")]

    async def answer(_request):
        return answers.pop(0)

    api.answer = answer
    recorder.record(TOPIC, "Normal", "Elected", "leader 1")
    await recorder.flush()
    assert json.loads(api.requests[0][3])["metadata"] == json.loads(api.requests[1][3])["metadata"]
    assert recorder.dropped == 0


async def test_an_expired_event_is_made_again(api, recorder):
    api.answer = accept
    recorder.record(TOPIC, "Normal", "Elected", "leader 1")
    await recorder.flush()

    async def answer(request):
        return status(404) if request.method == "PATCH" else web.json_response({})

    api.answer = answer
    recorder.record(TOPIC, "Normal", "Elected", "leader 1")
    await recorder.flush()
    assert api.methods == ["POST", "PATCH", "POST"]


async def test_refused_unavailable_and_overfull_are_dropped_without_an_exception(api, recorder):
    async def answer(_request):
        return status(403)

    api.answer = answer
    recorder.record(TOPIC, "Normal", "A", "refused")
    await recorder.flush()
    assert (recorder.dropped, len(api.requests)) == (1, 1)

    async def unavailable(_request):
        return status(503)

    api.answer = unavailable
    recorder.record(TOPIC, "Normal", "B", "unavailable")
    await recorder.flush()
    assert (recorder.dropped, len(api.requests)) == (2, 1 + events.ATTEMPTS)
    for number in range(events.QUEUE_LIMIT + 10):
        recorder.record(TOPIC, "Normal", "C", str(number))
    assert recorder.dropped == 12
    recorder.record({"metadata": {}}, "Normal", "D", "no name")
    assert recorder.dropped == 13


async def test_a_server_that_asks_for_patience_is_given_some(api, recorder, monkeypatch):
    monkeypatch.setattr(events, "THROTTLED_LIMIT_S", 0.02)
    slept = []
    sleep = asyncio.sleep

    async def asleep(seconds, *rest):
        slept.append(seconds)
        await sleep(min(seconds, 0.01), *rest)

    async def throttled(_request):
        return web.json_response({"kind": "Status", "code": 429}, status=429, headers={"Retry-After": "1"})

    api.answer = throttled
    monkeypatch.setattr(events.asyncio, "sleep", asleep)
    recorder.record(TOPIC, "Normal", "A", "later")
    await recorder.flush()
    assert slept.count(0.02) == events.ATTEMPTS, "a second was asked for, more than it ever waits here"


def test_record_outside_a_loop_does_not_raise(client_without_loop):
    client_without_loop.record(TOPIC, "Normal", "A", "b")
    assert client_without_loop.dropped == 1


@pytest.fixture
def client_without_loop():
    return EventRecorder(None, "operator")


async def test_close_is_prompt(api, recorder):
    async def answer(_request):
        await api.release.wait()
        return web.Response()

    api.answer = answer
    recorder.record(TOPIC, "Normal", "A", "b")
    await api.asked.wait()
    async with asyncio.timeout(30):
        await recorder.close()


async def test_nothing_is_written_while_the_caller_has_more_urgent_writes(api, client, monkeypatch):
    api.answer = accept
    asked, busy = asyncio.Event(), True

    def is_busy():
        asked.set()
        return busy

    monkeypatch.setattr(events, "BUSY_PAUSE_S", 0.005)
    recorder = EventRecorder(client, "operator", busy=is_busy)
    for _ in range(3):
        recorder.record(TOPIC, "Normal", "Elected", "leader 1")
        asked.clear()
        await asyncio.wait_for(asked.wait(), 60)
    assert api.methods == []
    busy = False
    await recorder.flush()
    assert api.methods == ["POST"]
    assert json.loads(api.requests[0][3])["count"] == 3
    busy = True
    monkeypatch.setattr(events, "BUSY_LIMIT_S", 0.02)
    recorder.record(TOPIC, "Normal", "Elected", "leader 2")
    await recorder.flush()
    assert api.methods == ["POST", "POST"], "not for ever"
    await recorder.close()
