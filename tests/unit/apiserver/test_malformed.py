"""Objects that are not of their kind's form: refused, or, where an earlier release stored them, no end of the server."""

from __future__ import annotations

import asyncio
import json

import aiohttp
import pytest

from kafkalite_local.apiserver.server import ApiServer
from kafkalite_local.apiserver.store import Store

TABLE = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"}
PODS = "/api/v1/namespaces/default/pods"


class Client:
    def __init__(self, server: ApiServer, session: aiohttp.ClientSession) -> None:
        self.server, self.session = server, session

    async def call(self, method: str, path: str, body=None, **headers: str):
        async with self.session.request(method, self.server.url + path, json=body, headers=headers) as response:
            return response.status, json.loads(await response.read())


@pytest.fixture
async def server(tmp_path):
    server = ApiServer(tmp_path / "control-plane.db")
    await server.start()
    yield server
    assert not server.failed.done()
    await server.stop()


@pytest.fixture
async def api(server):
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60)) as session:
        yield Client(server, session)


def pod(name="p", **more):
    return {"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}]} | more}


def stored(storage, name, namespace="default", **more):
    """As an earlier release may have stored it."""
    metadata = {"name": name, "namespace": namespace, "uid": f"uid-{name}", "creationTimestamp": "2026-01-01T00:00:00Z"}
    return storage, namespace, name, {"metadata": metadata | more.pop("metadata", {})} | more


@pytest.mark.parametrize(
    ("spec", "code", "said"),
    [
        ({"containers": None}, 422, 'Pod "p" is invalid: spec.containers: Required value'),
        ({"containers": [{"image": "i"}]}, 422, "spec.containers[0].name: Required value"),
        ({"containers": 5}, 400, "cannot be handled as a Pod: spec.containers: expected a list, found a whole number"),
        ({"terminationGracePeriodSeconds": "soon"}, 400, "spec.terminationGracePeriodSeconds: expected a whole number"),
        ({"terminationGracePeriodSeconds": True}, 400, "expected a whole number, found true or false"),
        ({"volumes": [None]}, 400, "spec.volumes[0]: expected an object, found null"),
        ({"containers": [{"name": "c", "readinessProbe": {"httpGet": {"port": []}}}]}, 400, "a whole number or a str"),
    ],
)
async def test_a_pod_of_another_form_is_refused(api, spec, code, said):
    status, body = await api.call("POST", PODS, pod(**spec))
    assert (status, body["code"]) == (code, code)
    assert said in body["message"]
    assert (await api.call("POST", PODS, pod()))[0] == 201
    status, body = await api.call("PUT", f"{PODS}/p", pod(**spec))
    assert (status, said in body["message"]) == (code, True)


async def test_what_is_null_is_not_there(api):
    status, body = await api.call(
        "POST", PODS, pod(terminationGracePeriodSeconds=None, volumes=None, initContainers=None)
    )
    assert status == 201
    assert body["spec"]["terminationGracePeriodSeconds"] == 30
    assert not {"volumes", "initContainers"} & set(body["spec"])
    path = "/api/v1/namespaces/default/configmaps"
    made = await api.call("POST", path, {"metadata": {"name": "c"}, "data": {"a": None, "b": "1"}})
    assert made[1]["data"] == {"a": "", "b": "1"}


@pytest.mark.parametrize(
    ("metadata", "said"),
    [
        ({"finalizers": 5}, "metadata.finalizers is not a list of strings"),
        ({"finalizers": ["a/b", None]}, "metadata.finalizers is not a list of strings"),
        ({"ownerReferences": 5}, "metadata.ownerReferences is not a list of references"),
        ({"ownerReferences": [5]}, "metadata.ownerReferences is not a list of references"),
        ({"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": ["u"]}]}, "is not a list of ref"),
        ({"name": None, "generateName": 5}, "metadata.generateName is not a string"),
    ],
)
async def test_metadata_of_another_form_is_refused(api, metadata, said):
    status, body = await api.call("POST", "/api/v1/namespaces", {"metadata": {"name": "n"} | metadata})
    assert (status, said in body["message"]) == (400, True), body


async def test_a_status_of_another_form_is_refused(api):
    await api.call("POST", PODS, pod())
    for status in (5, {"containerStatuses": 5}, {"containerStatuses": [{"restartCount": "1"}]}):
        assert (await api.call("PUT", f"{PODS}/p/status", pod() | {"status": status}))[0] == 400
    answer = await api.call("PUT", f"{PODS}/p/status", pod() | {"status": {"phase": "Running", "reason": None}})
    assert answer[1]["status"] == {"phase": "Running"}


async def test_a_printer_that_fails_shows_that_in_its_cell(api, server):
    await server._store.put(*stored("pods", "old", spec={"containers": None}, status={}))[1]
    status, body = await api.call("GET", PODS, **TABLE)
    assert status == 200
    assert body["rows"][0]["cells"][:3] == ["old", "<invalid>", "Unknown"]


async def test_an_event_that_cannot_be_shown_ends_the_watch_alone(api, server, monkeypatch):
    def broken(*_args):
        raise RuntimeError("a defect")

    async with api.session.get(server.url + PODS, params={"watch": "true"}) as watch:
        monkeypatch.setattr("kafkalite_local.apiserver.watching.in_version", broken)
        assert (await api.call("POST", PODS, pod()))[0] == 201
        line = json.loads(await watch.content.readline())
        assert (line["type"], line["object"]["code"]) == ("ERROR", 500)
        assert await watch.content.readline() == b""
    assert not server.failed.done()


async def test_a_listener_that_fails_keeps_nothing_from_the_others(tmp_path):
    failures, seen = [], []
    store = Store(tmp_path / "db", lambda *_: ({}, {}), failures.append)
    store.open()
    store.subscribe(lambda _event: 1 / 0)
    store.subscribe(seen.append)
    async with asyncio.timeout(60):
        await store.put(*stored("pods", "p"))[1]
        await store.put(*stored("pods", "q"))[1]
    assert ([event.name for event in seen], failures) == (["p", "q"], [])
    await store.close()


DELETED = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
OWNED = {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "gone", "uid": "gone"}]}


@pytest.mark.parametrize(
    "old",
    [
        stored("pods", "old", metadata=OWNED, spec={"nodeName": "local", "terminationGracePeriodSeconds": None}),
        stored("pods", "old", metadata=OWNED, spec={"nodeName": "local"}, status=5),
        stored("pods", "old", metadata=OWNED | {"finalizers": 5}, spec={}),
        stored("configmaps", "old", metadata={"ownerReferences": 5}),
        stored("configmaps", "old", metadata={"ownerReferences": [{"uid": []}, 5]}),
        stored("namespaces", "old", "", metadata={"finalizers": 5}, status={}),
        stored("namespaces", "old", "", metadata=DELETED | {"finalizers": 5}, status={}),
    ],
)
async def test_what_an_earlier_release_stored_ends_neither_this_start_nor_the_next(tmp_path, old):
    """The collector looks at all there is at every start."""
    path = tmp_path / "control-plane.db"
    server = ApiServer(path)
    await server.start()
    await server._store.put(*old)[1]
    await server.stop()
    server = ApiServer(path)
    await server.start()
    assert server.failed is not None
    async with asyncio.timeout(60), aiohttp.ClientSession() as session:
        api = Client(server, session)
        # A dependent of nobody goes: the collector has been here, and passed the other one.
        owned = {"metadata": {"name": "owned"} | OWNED}
        await api.call("POST", "/api/v1/namespaces/default/configmaps", owned)
        while (await api.call("GET", "/api/v1/namespaces/default/configmaps/owned"))[0] == 200:  # noqa: ASYNC110
            await asyncio.sleep(0)
        assert not server.failed.done()
    await server.stop()
