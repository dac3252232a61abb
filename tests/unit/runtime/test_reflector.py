import asyncio
import time

import pytest
from aiohttp import web

from kafkalite_runtime.kube import PODS, KubeThrottled, Reflector, reflector
from tests.unit.runtime.fake_api import event, reset, running, status, stream


class Picture:
    """What a consumer would keep, and a way to wait for a state of it."""

    def __init__(self):
        self.names = set()
        self.lists = 0
        self.changed = asyncio.Event()

    def on_list(self, items):
        self.lists += 1
        self.names = {item["metadata"]["name"] for item in items}
        self.changed.set()

    def on_event(self, type_, obj):
        assert obj["kind"] == "Pod"
        name = obj["metadata"]["name"]
        if type_ == "DELETED":
            self.names.discard(name)
        else:
            self.names.add(name)
        self.changed.set()

    async def until(self, condition):
        async with asyncio.timeout(60):
            while not condition():
                self.changed.clear()
                await self.changed.wait()


@pytest.fixture
def picture():
    return Picture()


@pytest.fixture
def follow(client, picture, monkeypatch):
    monkeypatch.setattr(reflector, "BACKOFF_MIN_S", 0.005)
    monkeypatch.setattr(reflector, "BACKOFF_MAX_S", 0.02)
    return Reflector(client, PODS, None, "", picture.on_list, picture.on_event, time.monotonic, silence_limit_s=0.2)


def listing(version, *names):
    items = [{"metadata": {"name": name, "resourceVersion": version}} for name in names]
    return web.json_response({"metadata": {"resourceVersion": version}, "items": items})


def scripted(api, lists, watches):
    """Answers lists and watches from two scripts; the last step of each repeats."""
    seen = []

    async def answer(request):
        script = watches if request.query.get("watch") else lists
        if request.query.get("watch"):
            seen.append(request.query["resourceVersion"])
        step = script.pop(0) if len(script) > 1 else script[0]
        response = step(request)
        return await response if asyncio.iscoroutine(response) else response

    api.answer = answer
    return seen


async def test_every_fault_of_a_watch_continues_from_the_last_version(api, picture, follow):
    async def hang(request):
        await api.release.wait()

    bookmark = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "9"}}}
    seen = scripted(
        api,
        [lambda _: listing("5", "a", "b")],
        [
            lambda request: stream(request, event("ADDED", "c", "6"), then=reset),
            lambda request: stream(request, event("DELETED", "a", "7"), then=hang),
            lambda _: status(500),
            lambda request: stream(request, {"type": "ERROR", "object": {"code": 500}}),
            lambda request: stream(request, bookmark),
            lambda request: stream(request, event("MODIFIED", "d", "10"), then=hang),
        ],
    )
    async with running(follow.run()):
        await picture.until(lambda: "d" in picture.names)
    assert picture.names == {"b", "c", "d"}
    assert picture.lists == 1
    assert seen == ["5", "6", "7", "7", "7", "9"]
    assert follow.synced.is_set()
    assert time.monotonic() - follow.last_contact < 30


@pytest.mark.parametrize("in_stream", [True, False])
async def test_410_lists_again(api, picture, follow, in_stream):
    def gone(request):
        return stream(request, {"type": "ERROR", "object": {"code": 410}}) if in_stream else status(410)

    seen = scripted(
        api,
        [lambda _: listing("5", "a", "b"), lambda _: listing("50", "b")],
        [gone, lambda request: stream(request, event("ADDED", "c", "51"))],
    )
    async with running(follow.run()):
        await picture.until(lambda: "c" in picture.names)
    assert picture.names == {"b", "c"}
    assert seen[:2] == ["5", "50"]


async def test_the_list_is_tried_until_it_answers(api, picture, follow):
    def cut(request):
        request.transport.abort()
        return web.Response()

    scripted(
        api,
        [lambda _: status(503), cut, lambda _: status(429, **{"Retry-After": "0"}), lambda _: listing("5", "a")],
        [lambda request: stream(request, then=lambda _: api.release.wait())],
    )
    async with running(follow.run()):
        await picture.until(lambda: picture.lists)
        assert follow.last_error == ""
    assert picture.names == {"a"}


@pytest.fixture
def pauses(monkeypatch):
    """How many failures in a row there were before each pause, which takes no time."""
    counted = []
    monkeypatch.setattr(reflector, "_backoff_s", lambda failures, _error: counted.append(failures) or 0.0)
    return counted


@pytest.mark.parametrize(
    "watch",
    [
        stream,
        lambda _: status(410),
        lambda _: status(500),
        lambda request: stream(request, {"type": "ERROR", "object": {"code": 410}}),
        lambda request: stream(request, event("ADDED", "b", "6"), {"type": "ERROR", "object": {"code": 410}}),
        lambda request: stream(request, event("ADDED", "b", "6"), then=reset),
    ],
    ids=["ended", "410", "500", "ERROR", "event and ERROR", "event and reset"],
)
@pytest.mark.parametrize("list_after_loss", [False, True])
async def test_pauses_grow_while_lists_are_answered_and_watches_fail_at_once(
    api, picture, follow, pauses, watch, list_after_loss
):
    follow._silence_limit_s, follow._list_after_loss = 60.0, list_after_loss
    last = lambda request: stream(request, event("ADDED", "last", "9"), then=lambda _: api.release.wait())  # noqa: E731
    scripted(api, [lambda _: listing("5", "a")], [*[watch] * 5, last])
    async with running(follow.run()):
        await picture.until(lambda: "last" in picture.names)
    assert pauses == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("ended", [stream, lambda request: stream(request, then=reset)])
async def test_a_watch_that_lived_begins_the_pauses_anew(api, picture, follow, pauses, ended):
    now_s = [0.0]
    follow._clock = lambda: now_s[0]

    async def lives(request):
        now_s[0] += 0.1  # of the 0.2 s after which silence is death
        return await ended(request)

    last = lambda request: stream(request, event("ADDED", "last", "9"), then=lambda _: api.release.wait())  # noqa: E731
    scripted(api, [lambda _: listing("5", "a")], [stream, stream, lives, stream, last])
    async with running(follow.run()):
        await picture.until(lambda: "last" in picture.names)
    assert pauses == ([1, 2, 1] if ended is stream else [1, 2, 1, 2])


def test_back_off_grows_to_its_ceiling():
    error = RuntimeError()
    assert 0.1 <= reflector._backoff_s(1, error) <= 0.2
    assert all(1 <= reflector._backoff_s(99, error) <= 2 for _ in range(50))
    assert reflector._backoff_s(1, KubeThrottled(429, "", "", 7.5)) == 7.5
    assert reflector._backoff_s(99, KubeThrottled(429, "", "", 0.0)) >= 1


@pytest.fixture
def wary(client, picture, monkeypatch):
    """Lists again after every loss of contact."""
    monkeypatch.setattr(reflector, "BACKOFF_MIN_S", 0.005)
    monkeypatch.setattr(reflector, "BACKOFF_MAX_S", 0.02)
    picture.asked = []
    return Reflector(
        client, PODS, None, "", picture.on_list, picture.on_event, time.monotonic, silence_limit_s=0.2,
        on_ask=lambda: picture.asked.append(picture.lists), list_after_loss=True,
    )  # fmt: skip


async def test_after_a_loss_of_contact_another_history_may_answer(api, picture, wary):
    seen = scripted(
        api,
        [lambda _: listing("50", "a", "b"), lambda _: listing("20", "a")],
        [
            lambda request: stream(request, event("ADDED", "c", "51"), then=reset),
            lambda request: stream(request, event("ADDED", "d", "21"), then=lambda _: api.release.wait()),
        ],
    )
    async with running(wary.run()):
        await picture.until(lambda: "d" in picture.names)
    assert picture.names == {"a", "d"}
    assert seen[:2] == ["50", "20"]
    assert picture.asked[:2] == [0, 1], "told before each list"


@pytest.mark.parametrize(
    "answer",
    [
        stream,
        lambda request: stream(request, event("ADDED", "c", "51")),
        lambda _: status(429, **{"Retry-After": "0"}),
    ],
    ids=["ended", "event and ended", "429"],
)
async def test_a_server_whose_store_goes_back_may_end_a_watch_in_order_or_refuse_it(api, picture, wary, answer):
    seen = scripted(
        api,
        [lambda _: listing("50", "a", "b"), lambda _: listing("20", "a")],
        [answer, lambda request: stream(request, event("ADDED", "d", "21"), then=lambda _: api.release.wait())],
    )
    async with running(wary.run()):
        await picture.until(lambda: "d" in picture.names)
    assert picture.names == {"a", "d"}
    assert seen[:2] == ["50", "20"]


async def test_an_end_at_the_time_that_was_asked_for_is_no_loss(api, picture, wary):
    now_s = [0.0]
    wary._clock = lambda: now_s[0]

    async def ends(request):
        now_s[0] += float(request.query["timeoutSeconds"])
        return await stream(request)

    scripted(
        api,
        [lambda _: listing("5", "a")],
        [ends, lambda request: stream(request, event("ADDED", "b", "6"), then=lambda _: api.release.wait())],
    )
    async with running(wary.run()):
        await picture.until(lambda: "b" in picture.names)
    assert picture.lists == 1


async def test_a_consumer_that_could_not_judge_gets_another_list_but_not_for_ever(api, picture, wary):
    answers = [True, False]
    keep = picture.on_list
    wary._on_list = lambda items: keep(items) or answers.pop(0)
    scripted(api, [lambda _: listing("5", "a")], [lambda request: stream(request, then=lambda _: api.release.wait())])
    async with running(wary.run()):
        await picture.until(lambda: picture.lists == 2)
        await wary.synced.wait()
    assert picture.lists == 2
    picture.lists = 0
    wary._on_list = lambda items: keep(items) or True
    wary._version = ""
    async with running(wary.run()):
        await picture.until(lambda: picture.lists == reflector.LISTS_MAX)
