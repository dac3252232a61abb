"""The small parts of the API server: patches, selectors, JSONPath, ages, kubeconfig, logs, the store."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from datetime import UTC, datetime, timedelta

import aiohttp
import pytest

from kafkalite_local.apiserver import openapi, printers
from kafkalite_local.apiserver.collector import Collector
from kafkalite_local.apiserver.errors import ApiError
from kafkalite_local.apiserver.jsonpath import compile_path
from kafkalite_local.apiserver.kubeconfig import new_token, read_token, write_kubeconfig
from kafkalite_local.apiserver.patching import JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, apply_patch
from kafkalite_local.apiserver.podlogs import _tail_start, log_file
from kafkalite_local.apiserver.registry import Registry, attributes
from kafkalite_local.apiserver.selectors import parse_selector
from kafkalite_local.apiserver.server import ApiServer
from kafkalite_local.apiserver.store import Store
from kafkalite_local.apiserver.tables import wants_table
from kafkalite_local.kubelet.log_rotation import rotate


@pytest.mark.parametrize(
    ("target", "patch", "result"),
    [  # the examples of RFC 7386
        ({"a": "b"}, b'{"a":"c"}', {"a": "c"}),
        ({"a": "b"}, b'{"b":"c"}', {"a": "b", "b": "c"}),
        ({"a": "b"}, b'{"a":null}', {}),
        ({"a": "b", "b": "c"}, b'{"a":null}', {"b": "c"}),
        ({"a": ["b"]}, b'{"a":"c"}', {"a": "c"}),
        ({"a": "c"}, b'{"a":["b"]}', {"a": ["b"]}),
        ({"a": {"b": "c"}}, b'{"a":{"b":"d","c":null}}', {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, b'{"a":[1]}', {"a": [1]}),
        ({"e": None}, b'{"a":1}', {"e": None, "a": 1}),
        ({}, b'{"a":{"bb":{"ccc":null}}}', {"a": {"bb": {}}}),
    ],
)
def test_merge_patch(target, patch, result):
    assert apply_patch(MERGE_PATCH, patch, target, custom=True) == result


def test_strategic_merge_patch_directives():
    def patched(target, patch: bytes):
        return apply_patch(STRATEGIC_PATCH, patch, target, custom=False)

    assert patched({"a": {"x": 1}}, b'{"a":{"$patch":"replace","y":2}}') == {"a": {"y": 2}}
    assert patched({"a": {"x": 1, "y": 2}}, b'{"a":{"$retainKeys":["y"],"y":3}}') == {"a": {"y": 3}}
    finalizers = {"metadata": {"finalizers": ["a", "b"]}}
    assert patched(finalizers, b'{"metadata":{"$deleteFromPrimitiveList/finalizers":["a"]}}') == {
        "metadata": {"finalizers": ["b"]}
    }
    assert patched({"metadata": {"finalizers": ["a"]}}, b'{"metadata":{"finalizers":["b","a"]}}') == {
        "metadata": {"finalizers": ["a", "b"]}
    }
    two = {"containers": [{"name": "a"}, {"name": "b"}]}
    order = b'{"$setElementOrder/containers":[{"name":"b"},{"name":"a"}],"containers":[{"name":"a","x":1}]}'
    assert patched(two, order) == {"containers": [{"name": "b"}, {"name": "a", "x": 1}]}
    assert patched({"spec": {"ports": [{"port": 1, "name": "a"}]}}, b'{"spec":{"ports":[{"port":1,"name":"b"}]}}') == {
        "spec": {"ports": [{"port": 1, "name": "b"}]}
    }
    assert patched({"args": ["a", "b"]}, b'{"args":["c"]}') == {"args": ["c"]}


@pytest.mark.parametrize(
    ("media", "body", "code"),
    [
        (JSON_PATCH, b'[{"op":"test","path":"/a","value":2}]', 422),
        (JSON_PATCH, b'[{"op":"remove","path":"/nothing"}]', 422),
        (JSON_PATCH, b'[{"op":"fly","path":"/a"}]', 400),
        (JSON_PATCH, b"{}", 400),
        (JSON_PATCH, b"[" + b",".join([b'{"op":"test","path":"/a","value":1}'] * 10_001) + b"]", 413),
        (MERGE_PATCH, b"[]", 400),
        (MERGE_PATCH, b"{", 400),
        ("text/plain", b"{}", 415),
        (STRATEGIC_PATCH, b"{}", 415),
        ("application/apply-patch+yaml", b"{}", 501),
    ],
)
def test_patches_that_do_not_apply(media, body, code):
    with pytest.raises(ApiError) as caught:
        apply_patch(media, body, {"a": 1}, custom=True)
    assert caught.value.code == code


def test_selectors_refuse_what_they_do_not_understand():
    known = frozenset({"metadata.name"})
    assert parse_selector("", "", known).matches(({}, {}))
    for labels, fields in (("a in b", ""), ("a>1", ""), ("", "spec.x=1"), ("", "metadata.name")):
        with pytest.raises(ApiError):
            parse_selector(labels, fields, known)
    assert parse_selector("", "metadata.name!=a", known).matches(({}, {"metadata.name": "b"}))


def test_json_path():
    value = {"a": {"b.c": [1, 2]}, "conditions": [{"type": "X", "status": "no"}, {"type": "Ready", "status": "yes"}]}
    assert compile_path('.conditions[?(@.type=="Ready")].status')(value) == "yes"
    assert compile_path(".a['b.c'][1]")(value) == 2
    assert compile_path(".a['b.c'][-1]")(value) == 2
    assert compile_path(".conditions[*].status")(value) == "no"
    assert compile_path(".nothing.here")(value) is None
    assert compile_path(".conditions[9].status")(value) is None
    with pytest.raises(ValueError, match="not understood"):
        compile_path(".a[?(@.x>1)]")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (150, "2m30s"),
        (600, "10m"),
        (10_799, "179m"),
        (10_800, "3h"),
        (12_000, "3h20m"),
        (28_800, "8h"),
        (172_800, "2d"),
        (200_000, "2d7h"),
        (691_200, "8d"),
        (63_072_000, "2y"),
        (-5, "<invalid>"),
    ],
)
def test_ages_read_as_kubectls(seconds, text):
    assert printers.human_duration(seconds) == text


def test_pod_columns():
    moment = (datetime.now(UTC) - timedelta(seconds=30)).strftime("%Y-%m-%dT%H:%M:%SZ")
    waiting = {"state": {"waiting": {"reason": "CrashLoopBackOff"}}, "restartCount": 4}
    waiting["lastState"] = {"terminated": {"finishedAt": moment}}
    pod = {
        "metadata": {"name": "p", "creationTimestamp": moment},
        "spec": {"containers": [{"name": "c"}]},
        "status": {"phase": "Running", "containerStatuses": [waiting]},
    }
    cells = {column.name: column.cell(pod) for column in printers.POD}
    assert (cells["Ready"], cells["Status"]) == ("0/1", "CrashLoopBackOff")
    assert cells["Restarts"].startswith("4 (3")
    pod["metadata"]["deletionTimestamp"] = moment
    assert {column.name: column.cell(pod) for column in printers.POD}["Status"] == "Terminating"


def test_accept_headers():
    assert wants_table("application/json;as=Table;v=v1;g=meta.k8s.io,application/json") == "v1"
    assert wants_table("application/json, application/json;as=Table;v=v1;g=meta.k8s.io") == ""
    assert wants_table("*/*") == ""


def test_a_kubeconfig_is_private_and_keeps_its_token(tmp_path):
    file = tmp_path / "home" / "kubeconfig"
    assert read_token(file) is None
    token = new_token()
    write_kubeconfig(file, f"http://127.0.0.1:1/{token}", token)
    assert file.stat().st_mode & 0o777 == 0o600
    assert read_token(file) == token


def test_log_files_stay_inside_their_folder(tmp_path):
    folder = tmp_path / "logs"
    folder.mkdir()
    (folder / "a.log").write_bytes(b"a\nb\nc\n")
    (tmp_path / "secret.log").write_text("no")
    assert log_file(folder, {"metadata": {"name": "a"}}).name == "a.log"
    assert [_tail_start(folder / "a.log", lines) for lines in (None, "0", "1", "2", "9")] == [0, 6, 4, 2, 0]
    for escape in ("../secret", "/etc/passwd"):
        with pytest.raises(ApiError):
            log_file(folder, {"metadata": {"name": escape}})


def test_a_pod_is_never_shown_the_log_of_another(tmp_path):
    """Each writes where its kubelet's rule says, and is read there alone."""
    labels = {"app.kubernetes.io/component": "broker", "kafkalite.io/cluster": "kafkalite"}
    for name in ("broker-0", "operator", "x.broker-0"):
        (tmp_path / f"{name}.log").touch()
    broker = {"name": "kafkalite-broker-0", "labels": labels}
    assert log_file(tmp_path, {"metadata": broker}).name == "broker-0.log"
    assert log_file(tmp_path, {"metadata": broker | {"namespace": "x"}}).name == "x.broker-0.log"
    assert log_file(tmp_path, {"metadata": {"name": "kafkalite-operator-local"}}).name == "operator.log"
    for other in ({"namespace": "y"}, {"labels": labels | {"kafkalite.io/cluster": "b"}}, {"name": "my-operator"}):
        with pytest.raises(ApiError):
            log_file(tmp_path, {"metadata": broker | other})


async def test_a_log_is_followed_through_its_rotation(tmp_path):
    server = ApiServer(tmp_path / "control-plane.db")
    await server.start()
    log = tmp_path / "logs" / "p.log"
    log.parent.mkdir()
    log.write_text("before the rotation\n")
    pod = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    pods = f"{server.url}/api/v1/namespaces/default/pods"
    async with asyncio.timeout(60), aiohttp.ClientSession() as session:
        async with session.post(pods, json=pod) as made:
            assert made.status == 201
        async with session.get(f"{pods}/p/log", params={"follow": "true"}) as shown:
            assert await shown.content.readline() == b"before the rotation\n"
            assert rotate(log.parent, 1) == [log]
            with log.open("a") as writer:
                writer.write("after\n")
            assert await shown.content.readline() == b"after\n"
    await server.stop()


def test_every_kind_has_a_document():
    registry = Registry()
    root = openapi.root(registry)["paths"]
    assert {"api/v1", "apis/apps/v1"} <= set(root)
    assert openapi.document(registry, "nobody.io", "v1") is None


def config_map(name: str, **labels: str):
    return {"metadata": {"name": name, "namespace": "n", "uid": name, "labels": labels}}


async def test_the_store_keeps_revisions_and_history_over_a_restart(tmp_path):
    failures: list[BaseException] = []
    store = Store(tmp_path / "db", attributes, failures.append)
    store.open()
    _, done = store.put("configmaps", "n", "a", config_map("a", x="1"))
    assert store.get("configmaps", "n", "a") is None, "readers see only what is on the disk"
    assert store.head("configmaps", "n", "a") is not None
    await done
    store.put("configmaps", "n", "a", config_map("a", x="2"))
    store.remove("configmaps", "n", "a", config_map("a", x="2"))
    await store.close()

    again = Store(tmp_path / "db", attributes, failures.append)
    again.open()
    assert (again.revision, again.entries("configmaps")) == (3, [])
    history = again.since(1)
    assert [(event.type, event.revision) for event in history] == [("MODIFIED", 2), ("DELETED", 3)]
    assert [event.before[0] for event in history if event.before] == [{"x": "1"}, {"x": "2"}]
    entry, done = again.put("configmaps", "n", "b", config_map("b"))
    await done
    assert entry.revision == 4
    await again.close()
    assert failures == []


async def test_many_writes_share_a_commit(tmp_path):
    store = Store(tmp_path / "db", attributes, lambda error: None)
    store.open()
    seen: list[int] = []
    store.subscribe(lambda event: seen.append(event.revision))
    futures = [store.put("configmaps", "n", f"c{number}", config_map(f"c{number}"))[1] for number in range(50)]
    await asyncio.gather(*futures)
    assert seen == list(range(1, 51))
    assert store._commits <= 3
    await store.close()


async def test_a_writer_that_goes_away_disturbs_nobody_who_waits_for_the_same_commit(tmp_path):
    """A request is cancelled when its client closes the connection; the garbage collector once died of it."""
    store = Store(tmp_path / "db", attributes, lambda error: None)
    store.open()
    store.put("configmaps", "n", "first", config_map("first"))
    await asyncio.sleep(0)  # it is on its way to the disk; the next one has to wait for it
    _, gone = store.put("configmaps", "n", "a", config_map("a"))
    readers = [asyncio.create_task(store.settled()) for _ in range(2)]
    await asyncio.sleep(0)
    gone.cancel()
    readers[0].cancel()
    await asyncio.wait_for(readers[1], 30)
    assert store.get("configmaps", "n", "a") is not None, "settled means that it is on the disk"
    await store.close()


async def test_history_is_bounded(tmp_path):
    store = Store(tmp_path / "db", attributes, lambda error: None, history_events_max=10)
    store.open()
    for number in range(30):
        await store.put("configmaps", "n", "a", config_map("a", x=str(number)))[1]
    assert store.compacted == 20
    assert len(store.since(20)) == 10
    with pytest.raises(ApiError) as caught:
        store.since(19)
    assert (caught.value.code, caught.value.reason) == (410, "Expired")
    await store.close()


async def test_a_failing_disk_stops_the_server(tmp_path):
    failure: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
    store = Store(tmp_path / "db", attributes, failure.set_result)
    store.open()
    assert store._database is not None
    store._database.close()
    _, done = store.put("configmaps", "n", "a", config_map("a"))
    assert isinstance(await asyncio.wait_for(failure, 30), sqlite3.Error)
    assert not done.done(), "nothing is acknowledged that is not on the disk"
    store._thread.shutdown()


async def test_an_answer_does_not_wait_for_what_others_write_meanwhile(tmp_path):
    """Two who write all the time, each during the other's flush: then there is always something to flush."""
    store = Store(tmp_path / "db", attributes, lambda error: None)
    store.open()
    stopping = asyncio.Event()

    async def write(name: str) -> None:
        while not stopping.is_set():
            await store.put("configmaps", "n", name, config_map(name))[1]

    _, first = store.put("configmaps", "n", "first", config_map("first"))
    await asyncio.sleep(0)
    writers = [asyncio.create_task(write("b"))]  # during the flush of the first
    await first
    writers.append(asyncio.create_task(write("a")))
    await asyncio.sleep(0)
    try:
        for _ in range(20):
            await asyncio.wait_for(store.settled(), 30)
    finally:
        stopping.set()
        await asyncio.gather(*writers)
        await store.close()


async def test_an_answer_that_changes_nothing_waits_for_the_write_it_rests_on(tmp_path, monkeypatch):
    free = threading.Event()
    server = ApiServer(tmp_path / "db")
    await server.start()
    headers = {"Authorization": f"Bearer {server.token}"}
    url = f"{server.address}/api/v1/namespaces/default/configmaps"
    body = {"metadata": {"name": "a", "finalizers": ["example.com/f"]}}
    async with aiohttp.ClientSession(headers=headers) as client:
        async with client.post(url, json=body) as answer:
            assert answer.status == 201
        commit = Store._commit
        monkeypatch.setattr(Store, "_commit", lambda store, events: (free.wait(10), commit(store, events)))
        deletions = [asyncio.create_task(client.delete(f"{url}/a")) for _ in range(2)]
        done, _ = await asyncio.wait(deletions, timeout=0.3)
        free.set()
        assert not done
        for deletion in deletions:
            answer = await deletion
            assert answer.status == 200
            answer.release()
    await server.stop()


async def test_after_a_failure_of_the_disk_nothing_is_confirmed_and_nothing_written(tmp_path):
    failure = asyncio.get_running_loop().create_future()
    store = Store(tmp_path / "db", attributes, failure.set_result)
    store.open()
    assert store._database is not None
    store._database.execute("CREATE TRIGGER full BEFORE INSERT ON objects WHEN NEW.name = 'lost' BEGIN "
                            "SELECT RAISE(ROLLBACK, 'disk full'); END")  # fmt: skip
    _, lost = store.put("configmaps", "n", "lost", config_map("lost"))
    await asyncio.sleep(0)
    same = asyncio.create_task(store.settled())  # of a writer who wanted what is there already
    await failure
    _, later = store.put("configmaps", "n", "later", config_map("later"))
    done, waiting = await asyncio.wait([lost, same, later], timeout=0.2)
    assert (done, len(waiting)) == (set(), 3)
    same.cancel()
    await store.close()
    again = Store(tmp_path / "db", attributes, lambda error: None)
    again.open()
    assert again.entries("configmaps") == []
    await again.close()


async def test_a_garbage_collector_that_ends_stops_the_server(tmp_path, monkeypatch):
    """A server without it looks well, and deletes nothing that was owned."""

    def broken(self):
        raise ZeroDivisionError

    monkeypatch.setattr(Collector, "_collect", broken)
    server = ApiServer(tmp_path / "control-plane.db")
    await server.start()
    try:
        with pytest.raises(ZeroDivisionError):
            await asyncio.wait_for(asyncio.shield(server.failed), 30)
    finally:
        await server.stop()
