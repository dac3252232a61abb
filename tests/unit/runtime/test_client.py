import asyncio
import json
import socket
from contextlib import aclosing

import aiohttp
import pytest
from aiohttp import web

from kafkalite_runtime.kube import (
    LEASES,
    NODES,
    PODS,
    TOPICS,
    KubeClient,
    KubeConflict,
    KubeError,
    KubeForbidden,
    KubeGone,
    KubeInvalid,
    KubeNotFound,
    KubeThrottled,
    KubeUnauthorized,
    KubeUnavailable,
)
from kafkalite_runtime.kube.answers import error_for
from kafkalite_runtime.kube.config import KubeConfig, TokenFile
from kafkalite_runtime.kube.errors import cause_of
from tests.unit.runtime.fake_api import event, reset, status, stream

POD = {"metadata": {"name": "a"}}


def answering(response_of):
    async def answer(request):
        response = response_of(request)
        return await response if asyncio.iscoroutine(response) else response

    return answer


def test_paths():
    assert PODS.path("ns", "a", "status") == "/api/v1/namespaces/ns/pods/a/status"
    assert PODS.path() == "/api/v1/pods"
    assert TOPICS.path("ns") == "/apis/kafkalite.io/v1alpha1/namespaces/ns/kafkalitetopics"
    assert NODES.path(None, "local") == "/api/v1/nodes/local"
    with pytest.raises(AssertionError):
        PODS.path(None, "a")


async def test_strict_writes_ask_for_refusal_of_unknown_fields(api, client):
    asked = []

    async def answer(request):
        asked.append(request.query.get("fieldValidation"))
        return web.json_response({"metadata": {"name": "a"}})

    api.answer = answer
    for strict in (False, True):
        await client.create(PODS, "ns", POD, strict=strict)
        await client.merge_patch(PODS, "ns", "a", {}, strict=strict)
    assert asked == [None, None, "Strict", "Strict"]


async def test_writes_carry_method_type_and_body(api, client):
    api.answer = answering(lambda _: web.json_response({"metadata": {"name": "a"}}))
    await client.create(PODS, "ns", POD)
    await client.replace(PODS, "ns", "a", POD, subresource="status")
    await client.json_patch(PODS, "ns", "a", [{"op": "test", "path": "/x", "value": 1}])
    await client.merge_patch(PODS, "ns", "a", {"x": None})
    await client.delete(PODS, "ns", "a", uid="u", grace_period_s=0)
    assert api.methods == ["POST", "PUT", "PATCH", "PATCH", "DELETE"]
    assert [request[4].get("Content-Type") for request in api.requests] == [
        "application/json",
        "application/json",
        "application/json-patch+json",
        "application/merge-patch+json",
        "application/json",
    ]
    assert api.requests[1][1] == "/api/v1/namespaces/ns/pods/a/status"
    options = json.loads(api.requests[4][3])
    assert options["preconditions"] == {"uid": "u"}
    assert options["gracePeriodSeconds"] == 0


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (400, KubeError),
        (401, KubeUnauthorized),
        (403, KubeForbidden),
        (404, KubeNotFound),
        (409, KubeConflict),
        (410, KubeGone),
        (422, KubeInvalid),
        (429, KubeThrottled),
        (501, KubeError),
    ],
)
async def test_a_refusal_is_an_error_with_the_servers_words(api, client, code, error):
    api.answer = answering(lambda _: status(code, "Because", "of this", **{"Retry-After": "7"}))
    with pytest.raises(KubeError) as caught:
        await client.merge_patch(PODS, "ns", "a", POD)
    assert type(caught.value) is error
    assert (caught.value.status, caught.value.reason) == (code, "Because")
    assert "of this" in caught.value.message
    if code == 429:
        errors = [error_for(code, "", "", "7", write=False) for _ in range(50)]
        pauses = {error.retry_after_s for error in (caught.value, *errors)}
        assert all(7 <= pause_s <= 10.5 for pause_s in pauses)
        assert len(pauses) > 1, "others were told the same"
    assert len(api.requests) == 1


@pytest.mark.parametrize(
    ("said", "left"),
    [
        (' "" is invalid: patch: Invalid value: "{\\"a\\":\\"s3cret\\"}": json: no', ' "" is invalid: patch: json: no'),
        (
            ' "" is invalid: patch: Invalid value: "{"a": "s3cret"}": unknown field',
            ' "" is invalid: patch: unknown field',
        ),
        ('spec.replicas: Invalid value: "x": must be', 'spec.replicas: Invalid value: "x": must be'),
    ],
)
async def test_a_patch_that_makes_no_object_is_refused_without_the_object(api, client, said, left):
    api.answer = answering(lambda _: status(422, "Invalid", said))
    with pytest.raises(KubeInvalid) as caught:
        await client.merge_patch(PODS, "ns", "a", POD)
    assert caught.value.message == f"PATCH /api/v1/namespaces/ns/pods/a: {left}"


def write(client, method):
    if method == "POST":
        return client.create(PODS, "ns", POD, deadline_s=0.3)
    if method == "PUT":
        return client.replace(PODS, "ns", "a", POD, deadline_s=0.3)
    if method == "PATCH":
        return client.json_patch(PODS, "ns", "a", [], deadline_s=0.3)
    return client.delete(PODS, "ns", "a", deadline_s=0.3)


async def cut_body(request):
    response = web.StreamResponse(headers={"Content-Length": "100"})
    await response.prepare(request)
    await response.write(b'{"metadata"')
    request.transport.abort()
    return response


def faults(api):
    async def hang(_request):
        await api.release.wait()
        return web.json_response({})

    async def hang_in_body(request):
        response = web.StreamResponse(headers={"Content-Length": "100"})
        await response.prepare(request)
        await response.write(b'{"metadata"')
        await api.release.wait()
        return response

    async def abort(request):
        request.transport.abort()
        return web.Response()

    return {
        "timeout": hang,
        "body timeout": hang_in_body,
        "reset": abort,
        "cut body": cut_body,
        "500": answering(lambda _: status(500, "InternalError", "etcd")),
        "503": answering(lambda _: web.Response(status=503, text="proxy")),
        "not json": answering(lambda _: web.Response(text="<html>")),
    }


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (aiohttp.ClientConnectorError(None, ConnectionRefusedError(111, "Connect call failed")), "Connection refused"),
        (aiohttp.ClientConnectorError(None, OSError("Multiple exceptions: …")), "no connection"),
        (aiohttp.ClientConnectorDNSError(None, socket.gaierror(-2, "Name or service not known")), "Name or service not known"),
        (aiohttp.ServerTimeoutError("…"), "no answer in time"),
        (aiohttp.ServerDisconnectedError(), "Server disconnected"),
        (ConnectionResetError(104, "…"), "Connection reset by peer"),
    ],
)  # fmt: skip
def test_why_there_is_no_connection_is_told_in_words(error, words):
    assert cause_of(error) == words


@pytest.mark.parametrize("fault", ["timeout", "reset", "503", "not json"])
async def test_who_does_not_answer_is_told_with_the_error(api, client, fault):
    api.answer = faults(api)[fault]
    with pytest.raises(KubeUnavailable) as caught:
        await client.get(PODS, "ns", "a", deadline_s=0.3)
    assert caught.value.server == client.config.server
    words = {"timeout": "no answer in time", "reset": "Server disconnected", "503": "503 proxy"}
    assert caught.value.why == words.get(fault, "its answer is not JSON")


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
@pytest.mark.parametrize("fault", ["timeout", "body timeout", "reset", "cut body", "500", "503", "not json"])
async def test_a_write_without_a_usable_answer_is_ambiguous_and_sent_once(api, client, method, fault):
    """Also on a kept-alive connection, where aiohttp would by itself repeat PUT and DELETE."""
    api.answer = answering(lambda _: web.json_response({"metadata": {}}))
    await client.get(PODS, "ns", "a")
    api.answer = faults(api)[fault]
    with pytest.raises(KubeUnavailable) as caught:
        await write(client, method)
    assert caught.value.ambiguous
    assert api.methods == ["GET", method]


@pytest.mark.parametrize("fault", ["timeout", "reset", "cut body", "500"])
async def test_a_read_is_never_ambiguous(api, client, fault):
    api.answer = faults(api)[fault]
    with pytest.raises(KubeUnavailable) as caught:
        await client.get(PODS, "ns", "a", deadline_s=0.3)
    assert not caught.value.ambiguous


async def test_connection_refused_is_not_ambiguous():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        client = KubeClient(KubeConfig(server=f"http://127.0.0.1:{probe.getsockname()[1]}"))
        with pytest.raises(KubeUnavailable) as caught:
            await client.create(PODS, "ns", POD)
    assert not caught.value.ambiguous
    await client.close()


async def test_a_connection_that_is_not_accepted_in_time_is_not_ambiguous():
    """A full backlog: the TCP handshake does not end, so nothing was sent."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        fill = [socket.socket() for _ in range(4)]
        for each in fill:
            each.setblocking(False)
            each.connect_ex(listener.getsockname())
        await asyncio.sleep(0.05)
        client = KubeClient(KubeConfig(server=f"http://127.0.0.1:{listener.getsockname()[1]}"))
        with pytest.raises(KubeUnavailable) as caught:
            await client.create(PODS, "ns", POD, deadline_s=0.3)
        assert not caught.value.ambiguous
        await client.close()
        for each in fill:
            each.close()


async def test_list_reads_pages_and_fills_in_the_type(api, client):
    async def answer(request):
        if "continue" not in request.query:
            return web.json_response({"metadata": {"resourceVersion": "7", "continue": "t"}, "items": [POD]})
        return web.json_response({"metadata": {"resourceVersion": "7"}, "items": [{"metadata": {"name": "b"}}]})

    api.answer = answer
    listed = await client.list(LEASES, "ns", label_selector="a=b")
    assert [item["metadata"]["name"] for item in listed.items] == ["a", "b"]
    assert {(item["apiVersion"], item["kind"]) for item in listed.items} == {("coordination.k8s.io/v1", "Lease")}
    assert listed.resource_version == "7"
    assert [request[2].get("labelSelector") for request in api.requests] == ["a=b", "a=b"]
    assert all("resourceVersion" not in request[2] for request in api.requests)


async def test_list_has_one_deadline_over_all_pages(api, client):
    async def answer(_request):
        await asyncio.sleep(0.05)
        return web.json_response({"metadata": {"resourceVersion": "7", "continue": "again"}, "items": []})

    api.answer = answer
    with pytest.raises(KubeUnavailable):
        await client.list(PODS, deadline_s=0.4)


async def collect(client, **options):
    events = []
    async with aclosing(client.watch(PODS, "ns", resource_version="1", **options)) as watching:
        async for each in watching:
            events.append((each.type, each.object["metadata"]["name"]))
    return events


async def test_watch_ends_normally_and_drops_a_line_that_was_cut(api, client):
    async def answer(request):
        response = web.StreamResponse()
        await response.prepare(request)
        text = "".join(json.dumps(event("ADDED", name, "2")) + "\n" for name in "ab")
        for position in range(0, len(text), 7):
            await response.write(text[position : position + 7].encode())
        await response.write(b'{"type": "ADDED", "obj')
        return response

    api.answer = answer
    assert await collect(client, label_selector="x=y", silence_limit_s=3) == [("ADDED", "a"), ("ADDED", "b")]
    query = api.requests[0][2]
    assert query["resourceVersion"] == "1"
    assert query["allowWatchBookmarks"] == "true"
    assert query["labelSelector"] == "x=y"
    assert query["timeoutSeconds"] == "2"


@pytest.mark.parametrize("after", [0, 1])
async def test_watch_notices_silence(api, client, after):
    async def answer(request):
        return await stream(request, *[event("ADDED", "a", "2")] * after, then=lambda _: api.release.wait())

    api.answer = answer
    with pytest.raises(KubeUnavailable, match="no answer in time"):
        await collect(client, silence_limit_s=0.2)


async def test_watch_notices_silence_before_the_headers(api, client):
    async def answer(_request):
        await api.release.wait()
        return web.Response()

    api.answer = answer
    with pytest.raises(KubeUnavailable):
        await collect(client, silence_limit_s=0.2)


async def test_a_watch_that_is_left_early_waits_for_no_goodbye(api, client, monkeypatch):
    """TLS would, and a watch that is left because of its silence has a peer that is gone."""
    aborted, abort = [], asyncio.selector_events._SelectorTransport.abort
    monkeypatch.setattr(
        asyncio.selector_events._SelectorTransport, "abort", lambda self: (aborted.append(self), abort(self))
    )
    api.answer = lambda request: stream(request, event("ADDED", "a", "2"), then=lambda _: api.release.wait())
    async with aclosing(client.watch(PODS, "ns", resource_version="1")) as watching:
        assert (await anext(watching)).type == "ADDED"
        assert aborted == []
    assert len(aborted) == 1


async def test_watch_reset(api, client):
    api.answer = lambda request: stream(request, event("ADDED", "a", "2"), then=reset)
    with pytest.raises(KubeUnavailable):
        await collect(client)


@pytest.mark.parametrize(
    ("code", "error"), [(410, KubeGone), (500, KubeUnavailable), (429, KubeThrottled), (403, KubeForbidden)]
)
@pytest.mark.parametrize("in_stream", [True, False])
async def test_watch_refused(api, client, code, error, in_stream):
    async def answer(request):
        if in_stream:
            return await stream(request, {"type": "ERROR", "object": {"code": code, "message": "no"}})
        return status(code, "X", "no")

    api.answer = answer
    with pytest.raises(error):
        await collect(client)


async def test_watch_of_garbage(api, client):
    api.answer = lambda request: stream(request, "what?")
    with pytest.raises(KubeUnavailable, match="not an event"):
        await collect(client)


async def test_token_file_is_read_again(api, client, tmp_path):
    api.answer = answering(lambda _: web.json_response({}))
    (tmp_path / "token").write_text("one\n")
    now = [0.0]
    client.config = KubeConfig(server=api.url, token_file=TokenFile(tmp_path / "token", clock=lambda: now[0]))

    async def token():
        await client.get(PODS, "ns", "a")
        return api.requests[-1][4]["Authorization"]

    assert await token() == "Bearer one"
    (tmp_path / "token").write_text("two")
    assert await token() == "Bearer one"
    now[0] = 61
    assert await token() == "Bearer two"
    (tmp_path / "token").write_text("three")
    api.answer = answering(lambda _: status(401))
    with pytest.raises(KubeForbidden):
        await token()
    api.answer = answering(lambda _: web.json_response({}))
    assert await token() == "Bearer three"


async def test_cancellation_stays_a_cancellation(api, client):
    async def answer(_request):
        await api.release.wait()
        return web.Response()

    api.answer = answer
    task = asyncio.ensure_future(client.create(PODS, "ns", POD, deadline_s=30))
    await api.asked.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
