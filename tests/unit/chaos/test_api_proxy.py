"""Each kind of ill-treatment by the API proxy, against a server that remembers what reached it."""

import asyncio
import json
import random

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from yarl import URL

from tests.chaos.api_proxy import KINDS, Proxy, Rule

OBJECT = {"kind": "Thing", "spec": {"text": "x" * 2000}}


class Upstream:
    """Answers everything with one object, and a watch with an event every 20 ms until its client goes."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str, bytes]] = []
        self.server: TestServer | None = None

    async def start(self) -> str:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self.handle)
        self.server = TestServer(app)
        await self.server.start_server()
        return f"{self.server.host}:{self.server.port}"

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.seen.append((request.method, request.path_qs, await request.read()))
        if request.query.get("watch") != "true":
            return web.json_response(OBJECT)
        response = web.StreamResponse()
        await response.prepare(request)
        for number in range(1000):
            await response.write(json.dumps({"type": "MODIFIED", "object": {"n": number}}).encode() + b"\n")
            await asyncio.sleep(0.02)
        return response


@pytest.fixture
async def world():
    upstream = Upstream()
    proxy = Proxy(await upstream.start(), random.Random(1))
    servers = {}
    for client in ("broker-0", "operator"):
        servers[client] = TestServer(proxy.application(client))
        await servers[client].start_server()
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60)) as session:

        def ask(method="GET", path="/apis/x", client="broker-0", **arguments):
            server = servers[client]
            return session.request(method, URL(f"http://{server.host}:{server.port}{path}", encoded=True), **arguments)

        yield proxy, upstream, ask
    proxy.set_rules(())
    await proxy.close()
    for server in servers.values():
        await server.close()
    await upstream.server.close()


def force(proxy: Proxy, kind: str, **fields) -> None:
    proxy.set_rules((Rule.parse({"kind": kind, **fields}),))


async def test_without_rules_it_passes_everything_on(world):
    proxy, upstream, ask = world
    async with ask(
        "PATCH", "/apis/x?a=%2F1", data=b"body", headers={"Content-Type": "application/json-patch+json"}
    ) as answer:
        assert (answer.status, await answer.json()) == (200, OBJECT)
    assert upstream.seen == [("PATCH", "/apis/x?a=%2F1", b"body")]
    assert dict(proxy.counters) == {"requests": 1}


@pytest.mark.parametrize("code", [429, 500])
async def test_refusals_do_not_reach_the_server(world, code):
    proxy, upstream, ask = world
    force(proxy, str(code))
    async with ask() as answer:
        assert answer.status == code
        assert (await answer.json())["code"] == code
        assert ("Retry-After" in answer.headers) == (code == 429)
    assert upstream.seen == []
    assert proxy.counters[f"{code}/broker-0"] == 1


async def test_an_answer_that_takes_time_takes_it_and_arrives(world):
    proxy, _, ask = world
    force(proxy, "latency", low_s=0.2, high_s=0.2)
    began = asyncio.get_running_loop().time()
    async with ask() as answer:
        assert await answer.json() == OBJECT
    assert asyncio.get_running_loop().time() - began >= 0.2


async def test_half_an_answer_is_half(world):
    proxy, upstream, ask = world
    force(proxy, "cut")
    with pytest.raises(aiohttp.ClientError):
        async with ask() as answer:
            assert answer.status == 200
            await answer.read()
    assert len(upstream.seen) == 1


async def test_a_write_whose_answer_is_lost_was_carried_out(world):
    proxy, upstream, ask = world
    force(proxy, "lost-answer")
    with pytest.raises(aiohttp.ClientError):
        async with ask("PATCH", data=b"w"):
            pass
    assert [method for method, _, _ in upstream.seen] == ["PATCH"]
    async with ask("GET") as answer:
        assert answer.status == 200, "only answers to writes are lost"


async def test_a_late_write_is_carried_out_after_its_client_gave_up(world):
    proxy, upstream, ask = world
    force(proxy, "late-write", low_s=2.0, high_s=2.0)  # later than the client is told, on a busy machine too
    with pytest.raises(aiohttp.ClientError):
        async with ask("PATCH", data=b"late"):
            pass
    assert upstream.seen == []
    async with asyncio.timeout(60):
        while not proxy.counters["late-write answered 200"]:  # noqa: ASYNC110  (a counter tells nobody)
            await asyncio.sleep(0.02)
    assert upstream.seen == [("PATCH", "/apis/x", b"late")]


async def test_a_duplicate_reaches_the_server_twice(world):
    proxy, upstream, ask = world
    force(proxy, "duplicate")
    async with ask("PATCH", data=b"w") as answer:
        assert answer.status == 200
    assert upstream.seen == [("PATCH", "/apis/x", b"w")] * 2


async def test_a_rule_is_for_the_clients_that_it_names(world):
    proxy, _, ask = world
    force(proxy, "500", clients=["operator"])
    async with ask(client="broker-0") as answer:
        assert answer.status == 200
    async with ask(client="operator") as answer:
        assert answer.status == 500


async def test_a_rule_may_be_for_reads_or_for_writes(world):
    proxy, _, ask = world
    force(proxy, "500", writes=True)
    async with ask("GET") as answer:
        assert answer.status == 200
    async with ask("POST") as answer:
        assert answer.status == 500


async def test_reset_breaks_what_is_open(world):
    proxy, _, ask = world
    with pytest.raises(aiohttp.ClientError):
        async with ask(path="/apis/x?watch=true") as answer:
            assert await answer.content.readline()
            force(proxy, "reset")
            await answer.read()
    with pytest.raises(aiohttp.ClientError):
        async with ask():
            pass
    assert proxy.counters["reset"] >= 2


async def test_a_stalled_server_says_nothing_until_it_breaks(world):
    proxy, upstream, ask = world
    async with ask(path="/apis/x?watch=true") as watching:
        assert await watching.content.readline()
        force(proxy, "stall")
        waiting = asyncio.create_task(ask("POST").__aenter__())  # a GET would be tried again by the client
        await asyncio.sleep(0.2)
        assert not waiting.done()
        reading = asyncio.create_task(watching.read())
        await asyncio.sleep(0.2)
        assert not reading.done()
        proxy.set_rules(())
        with pytest.raises(aiohttp.ClientError):
            await waiting
        with pytest.raises(aiohttp.ClientError):
            await reading
    assert [path for _, path, _ in upstream.seen] == ["/apis/x?watch=true"]


async def test_a_slow_watch_delivers_late(world):
    proxy, _, ask = world
    force(proxy, "slow-watch", low_s=0.2, high_s=0.2)
    began = asyncio.get_running_loop().time()
    async with ask(path="/apis/x?watch=true") as answer:
        assert json.loads(await answer.content.readline())["object"] == {"n": 0}
    assert asyncio.get_running_loop().time() - began >= 0.2
    assert proxy.counters["slow-watch"] >= 1


async def test_a_watch_is_told_that_its_version_is_gone(world):
    proxy, upstream, ask = world
    force(proxy, "gone")
    async with ask(path="/apis/x?watch=true") as answer:
        event = json.loads(await answer.text())
    assert (event["type"], event["object"]["code"], event["object"]["reason"]) == ("ERROR", 410, "Expired")
    async with ask() as answer:
        assert await answer.json() == OBJECT
    assert len(upstream.seen) == 1


async def test_some_requests_are_spared_when_a_rule_has_a_probability(world):
    proxy, _, ask = world
    force(proxy, "500", probability=0.5)
    statuses = []
    for _ in range(40):
        async with ask() as answer:
            statuses.append(answer.status)
    assert 5 < statuses.count(500) < 35


def test_rules_that_mean_nothing_are_refused():
    with pytest.raises(ValueError, match="no rule of kind"):
        Rule.parse({"kind": "explode"})
    with pytest.raises(TypeError):
        Rule.parse({"kind": "429", "probabilty": 0.5})


def test_every_kind_has_requests_that_it_concerns():
    for kind in KINDS:
        rule = Rule(kind)
        assert any(rule.concerns("c", method, watch=watch) for method in ("GET", "PATCH") for watch in (False, True))
