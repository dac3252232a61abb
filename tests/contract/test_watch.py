"""Lists and watches: resource versions, bookmarks, history, selectors, pages."""

from __future__ import annotations

import asyncio
import time
import uuid

import aiohttp
import pytest

from kafkalite_local.apiserver.kubeconfig import write_kubeconfig
from kafkalite_local.apiserver.server import ApiServer
from tests.contract.conftest import (
    CONFIG_MAPS,
    EMBEDDED,
    EVENTS,
    LEASES,
    MERGE_PATCH,
    PODS,
    REAL,
    TOPICS,
    Api,
    Server,
    ServerProcess,
    config_map,
    entry,
    open_api,
    placed_topic,
    topic,
    until,
)


async def test_a_watch_goes_on_from_a_list(api, ns):
    path = TOPICS.format(ns=ns)
    await api.create(path, topic("a"))
    listed = await api.get(path)
    assert (listed.body["kind"], listed.body["apiVersion"]) == ("KafkaLiteTopicList", "kafkalite.io/v1alpha1")
    assert [item["metadata"]["name"] for item in listed.body["items"]] == ["a"]
    async with api.watch(path, resourceVersion=listed.revision) as next_event:
        created = await api.create(path, topic("b"))
        grown = await api.patch(f"{path}/b", {"spec": {"partitions": 5}}, MERGE_PATCH)
        await api.call("DELETE", f"{path}/b")
        seen = [await next_event() for _ in range(3)]
    assert [event["type"] for event in seen] == ["ADDED", "MODIFIED", "DELETED"]
    assert [event["object"]["metadata"]["resourceVersion"] for event in seen[:2]] == [created.revision, grown.revision]
    assert int(seen[2]["object"]["metadata"]["resourceVersion"]) > int(grown.revision)
    assert all(event["object"]["kind"] == "KafkaLiteTopic" for event in seen)


async def test_a_watch_from_an_earlier_version_replays(api, ns):
    path = TOPICS.format(ns=ns)
    start = (await api.get(path)).revision
    await placed_topic(api, ns, "a")
    async with api.watch(path, resourceVersion=start) as next_event:
        assert [(await next_event())["type"] for _ in range(2)] == ["ADDED", "MODIFIED"]


@pytest.mark.parametrize("query", [{}, {"resourceVersion": "0"}])
async def test_a_watch_without_a_version_begins_with_what_is_there(api, ns, query):
    path = TOPICS.format(ns=ns)
    await api.create(path, topic("a"))
    async with api.watch(path, **query) as next_event:
        first = await next_event()
        assert (first["type"], first["object"]["metadata"]["name"]) == ("ADDED", "a")
        await api.create(path, topic("b"))
        assert (await next_event())["object"]["metadata"]["name"] == "b"


async def test_initial_events_end_with_a_bookmark(api, ns):
    path = TOPICS.format(ns=ns)
    await api.create(path, topic("a"))
    query = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true"}
    async with api.watch(path, **query) as next_event:
        assert (await next_event())["type"] == "ADDED"
        bookmark = await next_event()
    assert bookmark["type"] == "BOOKMARK"
    assert bookmark["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}


async def test_other_namespaces_and_kinds_are_not_seen(api, ns):
    path = TOPICS.format(ns=ns)
    start = (await api.get(path)).revision
    async with api.watch(path, resourceVersion=start) as next_event:
        await api.create(CONFIG_MAPS.format(ns=ns), config_map("x"))
        await api.create(TOPICS.format(ns="default"), topic(f"t-{ns}"))
        await api.create(path, topic("mine"))
        assert (await next_event())["object"]["metadata"]["name"] == "mine"
    await api.call("DELETE", f"{TOPICS.format(ns='default')}/t-{ns}")


async def test_all_namespaces_are_watched_from_the_cluster_path(api, ns):
    path = TOPICS.format(ns=ns)
    everywhere = "/apis/kafkalite.io/v1alpha1/kafkalitetopics"
    start = (await api.get(everywhere)).revision
    async with api.watch(everywhere, resourceVersion=start) as next_event:
        await api.create(path, topic("seen"))
        while (event := await next_event())["object"]["metadata"]["namespace"] != ns:
            pass
        assert event["type"] == "ADDED"


async def test_label_selectors_turn_changes_into_comings_and_goings(api, ns):
    path = CONFIG_MAPS.format(ns=ns)
    start = (await api.get(path)).revision
    async with api.watch(path, resourceVersion=start, labelSelector="on=yes") as next_event:
        await api.create(path, config_map("a"))
        for labels in ({"on": "yes"}, {"x": "y"}, {"on": "no"}, {"on": "yes"}):
            await api.patch(f"{path}/a", {"metadata": {"labels": labels}}, MERGE_PATCH)
        await api.call("DELETE", f"{path}/a")
        types = [(await next_event())["type"] for _ in range(5)]
    assert types == ["ADDED", "MODIFIED", "DELETED", "ADDED", "DELETED"]


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("app=x", ["a", "b"]),
        ("app==x,tier!=front", ["b"]),
        ("tier in (front,middle)", ["a"]),
        ("tier notin (front)", ["b", "c"]),
        ("app", ["a", "b"]),
        ("!app,mine", ["c"]),
    ],
)
async def test_label_selectors(api, ns, selector, names):
    path = CONFIG_MAPS.format(ns=ns)
    marks = {"mine": "y"}
    for name, labels in (("a", {"app": "x", "tier": "front"}), ("b", {"app": "x"}), ("c", {})):
        await api.create(path, config_map(name, labels={**labels, **marks}))
    items = (await api.get(path, labelSelector=f"mine,{selector}")).body["items"]
    assert [item["metadata"]["name"] for item in items] == names
    assert (await api.get(path, labelSelector="a in b")).status == 400


async def test_field_selectors(api, ns):
    pods = PODS.format(ns=ns)
    for name, node in (("p0", "n0"), ("p1", "n1")):
        spec = {"nodeName": node, "containers": [{"name": "c", "image": "i"}]}
        await api.create(pods, {"metadata": {"name": name}, "spec": spec})
    for selector, expected in (
        ("metadata.name=p1", ["p1"]),
        ("spec.nodeName=n0", ["p0"]),
        ("spec.nodeName!=n0,status.phase=Pending", ["p1"]),
    ):
        items = (await api.get(pods, fieldSelector=selector)).body["items"]
        assert [item["metadata"]["name"] for item in items] == expected
    assert (await api.get(pods, fieldSelector="spec.colour=red")).status == 400
    regarding = {"kind": "Pod", "name": "p0", "namespace": ns, "uid": "u"}
    event = {"metadata": {"name": "e"}, "involvedObject": regarding, "reason": "Made", "message": "m", "type": "Normal"}
    await api.create(EVENTS.format(ns=ns), event)
    found = await api.get(EVENTS.format(ns=ns), fieldSelector="involvedObject.name=p0,involvedObject.kind=Pod")
    assert len(found.body["items"]) == 1
    other_form = await api.get(f"/apis/events.k8s.io/v1/namespaces/{ns}/events/e")
    assert (other_form.body["regarding"]["name"], other_form.body["note"]) == ("p0", "m")


async def test_bookmarks_carry_the_newest_version(api, ns):
    """The real server sends one each minute and one shortly before it ends the watch, the embedded one every 5 s."""
    path = TOPICS.format(ns=ns)
    start = (await api.get(path)).revision
    query = {"resourceVersion": start, "allowWatchBookmarks": "true", "timeoutSeconds": 12}
    async with api.watch(path, **query) as next_event:
        other = await api.create(CONFIG_MAPS.format(ns=ns), config_map("elsewhere"))
        bookmark = await next_event(30)
    assert bookmark["type"] == "BOOKMARK"
    assert bookmark["object"]["kind"] == "KafkaLiteTopic"
    assert int(bookmark["object"]["metadata"]["resourceVersion"]) >= int(other.revision)


async def test_a_watch_ends_at_its_timeout(api, ns):
    began = time.monotonic()
    async with api.watch(TOPICS.format(ns=ns), timeoutSeconds="1") as next_event:
        assert await next_event(30) is None
    assert 0.5 < time.monotonic() - began < 20


async def test_events_come_within_milliseconds(api, ns, embedded):
    path = LEASES.format(ns=ns)
    await api.create(path, {"metadata": {"name": "beat"}, "spec": {"leaseTransitions": 0}})
    start = (await api.get(path)).revision
    delays = []
    async with api.watch(path, resourceVersion=start) as next_event:
        for number in range(1, 41):
            began = time.perf_counter()
            patch = asyncio.create_task(api.patch(f"{path}/beat", {"spec": {"leaseTransitions": number}}, MERGE_PATCH))
            event = await next_event()
            delays.append(time.perf_counter() - began)
            assert event["object"]["spec"]["leaseTransitions"] == number
            await patch
    assert sorted(delays)[len(delays) // 2] < 0.1, delays


async def test_a_version_of_the_future(api, ns):
    answer = await api.get(TOPICS.format(ns=ns), resourceVersion="999999999")
    assert answer.status == 504
    assert answer.body["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"
    assert (await api.get(TOPICS.format(ns=ns), resourceVersion="x")).status == 400
    alone = await api.get(TOPICS.format(ns=ns), resourceVersionMatch="Exact")
    assert (alone.status, alone.body["details"]["causes"][0]["field"]) == (422, "resourceVersionMatch")


async def test_pages_show_one_consistent_state(api, ns):
    path = CONFIG_MAPS.format(ns=ns)
    for number in range(7):
        await api.create(path, config_map(f"page-{number}", labels={"paged": "y"}))
    first = await api.get(path, limit=3, labelSelector="paged")
    await api.call("DELETE", f"{path}/page-6")
    names = [item["metadata"]["name"] for item in first.body["items"]]
    token = first.body["metadata"]["continue"]
    while token:
        page = await api.get(path, limit=3, labelSelector="paged", **{"continue": token})
        assert page.revision == first.revision
        names += [item["metadata"]["name"] for item in page.body["items"]]
        token = page.body["metadata"].get("continue")
    assert names == [f"page-{number}" for number in range(7)]
    assert (await api.get(path, limit=3, **{"continue": "bm9uc2Vuc2U="})).status in {400, 410}


@pytest.fixture
async def forgetful(server: Server, kubeconfig, tmp_path):
    """A server that does not know any more what was at resource version 1; and the function that makes it forget."""
    if server.kind == EMBEDDED:
        own = ApiServer(tmp_path / "db", history_events_max=20)
        await own.start()
        write_kubeconfig(tmp_path / "kubeconfig", own.url, own.token)
        try:
            async with open_api(tmp_path / "kubeconfig") as api:
                yield api, "default", lambda _: asyncio.sleep(0)
        finally:
            await own.stop()
    elif server.kind == REAL:
        async with open_api(kubeconfig) as api:
            yield api, "default", lambda revision: compact(api, server, revision)
    else:
        pytest.skip("it cannot be made to forget from here")


async def compact(api: Api, server: Server, revision: str) -> None:
    """What the API server has etcd do every five minutes."""
    async with api.session.post(f"{server.etcd_url}/v3/kv/compaction", json={"revision": revision}) as response:
        assert response.status == 200, await response.text()


async def test_history_that_is_gone_answers_410_and_a_new_list_helps(forgetful):
    """A watch: HTTP 200, then an ERROR event with a Status of code 410. A list: HTTP 410."""
    api, ns, forget = forgetful
    path = TOPICS.format(ns=ns)
    name = f"forgotten-{uuid.uuid4().hex[:8]}"
    await api.create(path, topic(name))
    for number in range(30):
        last = await api.patch(f"{path}/{name}", {"metadata": {"annotations": {"n": str(number)}}}, MERGE_PATCH)
    await forget(last.revision)
    async with api.watch(path, resourceVersion="1") as next_event:
        event = await next_event()
        assert event["type"] == "ERROR"
        assert (event["object"]["code"], event["object"]["reason"]) == (410, "Expired")
        assert await next_event() is None
    gone = await api.get(path, resourceVersion="1", resourceVersionMatch="Exact")
    assert (gone.status, gone.body["reason"]) == (410, "Expired")
    relisted = await api.get(path, fieldSelector=f"metadata.name={name}")
    assert [item["metadata"]["annotations"]["n"] for item in relisted.body["items"]] == ["29"]
    async with api.watch(path, resourceVersion=relisted.revision) as next_event:
        await api.call("DELETE", f"{path}/{name}")
        assert (await next_event())["type"] == "DELETED"


async def test_concurrent_writers_of_one_entry_one_wins_each_round(api, ns):
    await placed_topic(api, ns)
    path = f"{TOPICS.format(ns=ns)}/orders/status"
    for epoch in range(11, 16):
        operations = [
            {"op": "test", "path": "/status/partitions/0/partitionEpoch", "value": epoch},
            {"op": "replace", "path": "/status/partitions/0", "value": entry(0, 4, epoch + 1)},
        ]
        answers = await asyncio.gather(*(api.patch(path, operations) for _ in range(8)))
        assert sorted(answer.status for answer in answers) == [200] + [422] * 7


async def test_a_killed_server_resumes_where_it_was(own_server: ServerProcess):
    path = TOPICS.format(ns="default")
    async with open_api(own_server.kubeconfig) as api:
        await placed_topic(api, "default", "kept")
        before = await api.get(path)
        acknowledged = []

        async def write() -> None:
            number = 0
            while True:
                try:
                    answer = await api.patch(
                        f"{path}/kept", {"metadata": {"annotations": {"n": str(number)}}}, MERGE_PATCH
                    )
                except aiohttp.ClientError:
                    return
                acknowledged.append((number, answer.revision))
                number += 1

        writer = asyncio.create_task(write())

        async def twenty() -> bool:
            return len(acknowledged) >= 20

        await until(twenty)
        own_server.kill()
        await writer
        await asyncio.to_thread(own_server.start)
        assert own_server.cpu_seconds() < 2, "a restart has to be quick"
        after = await api.get(path)
        stored = after.body["items"][0]
        assert int(stored["metadata"]["annotations"]["n"]) >= acknowledged[-1][0], "an acknowledged write is lost"
        assert stored["status"] == before.body["items"][0]["status"]
        assert stored["metadata"]["uid"] == before.body["items"][0]["metadata"]["uid"]
        seen = []
        async with api.watch(path, resourceVersion=before.revision) as next_event:
            while not seen or seen[-1] != stored["metadata"]["resourceVersion"]:
                seen.append((await next_event())["object"]["metadata"]["resourceVersion"])
        assert [revision for _, revision in acknowledged] == seen[: len(acknowledged)]
        created = await api.create(path, topic("later"))
        assert int(created.revision) > int(stored["metadata"]["resourceVersion"])
