"""The recorder: what a watch shows is written as it comes, and what a broken watch may have hidden is marked."""

import asyncio
import itertools
import json
from pathlib import Path

import pytest

from kafkalite_cli.verify import metadata_recorder
from kafkalite_cli.verify.metadata_checker import check_metadata
from kafkalite_cli.verify.metadata_history import read_changes
from kafkalite_cli.verify.metadata_recorder import MetadataRecorder, RecordingError, record
from kafkalite_core.model.errors import ConfigError
from kafkalite_runtime.kube import (
    BROKERS,
    CLUSTERS,
    TOPICS,
    KubeForbidden,
    KubeGone,
    KubeList,
    KubeUnavailable,
    WatchEvent,
)
from tests.unit.verify.test_metadata_checker import entry

VERSIONS = itertools.count(1)


def topic(name, **status):
    version = str(next(VERSIONS))
    metadata = {"name": name, "uid": name, "resourceVersion": version, "managedFields": [{}]}
    return {"kind": TOPICS.kind, "metadata": metadata, "spec": {}, "status": status}


class Api:
    """Answers lists and watches of topics from a script; the other kinds are empty and quiet."""

    def __init__(self, *script):
        for step in script:
            if step[0] == "event":
                del step[2]["kind"]  # a server may leave it out
        self.script = list(script)  # ("list", objects) | ("event", type, object) | ("gone",)
        self.quiet = asyncio.Event()
        self.closed = False

    async def list(self, kind, _namespace, *, label_selector):
        assert label_selector == ""
        return KubeList(self.script.pop(0)[1] if kind is TOPICS else [], "1")

    async def watch(self, kind, _namespace, **_options):
        while kind is TOPICS and self.script:
            step = self.script.pop(0)
            if step[0] == "gone":
                raise KubeGone(410, "Expired", "too old")
            yield WatchEvent(step[1], step[2])
        if kind is TOPICS:
            self.quiet.set()
        await asyncio.Event().wait()
        yield WatchEvent("BOOKMARK", {})

    async def close(self):
        self.closed = True


async def record_script(path, *script):
    api, stop = Api(*script), asyncio.Event()
    task = asyncio.create_task(record(api, None, path, stop))
    await asyncio.wait_for(api.quiet.wait(), 60)
    stop.set()
    return await asyncio.wait_for(task, 60)


def seen(path):
    return [(change.type, change.object and change.object["metadata"]["name"]) for change in read_changes(path)]


def test_the_first_list_and_every_event_are_written(tmp_path):
    path = tmp_path / "metadata.jsonl"
    script = [("list", [topic("a")]), ("event", "ADDED", topic("b")), ("event", "MODIFIED", topic("a"))]
    lines = asyncio.run(record_script(path, *script, ("event", "DELETED", topic("b"))))
    assert seen(path) == [("ADDED", "a"), ("ADDED", "b"), ("MODIFIED", "a"), ("DELETED", "b")]
    assert lines == 4
    assert {change.kind for change in read_changes(path)} == {"KafkaLiteTopic"}
    assert "managedFields" not in path.read_text()


def test_a_watch_that_expired_is_a_gap_and_then_what_has_changed(tmp_path):
    path = tmp_path / "metadata.jsonl"
    same, moved = topic("same"), topic("moved")
    again = [dict(same, metadata=dict(same["metadata"])), topic("moved"), topic("new")]
    asyncio.run(record_script(path, ("list", [same, moved, topic("away")]), ("gone",), ("list", again)))
    assert seen(path)[:3] == [("ADDED", "same"), ("ADDED", "moved"), ("ADDED", "away")]
    assert seen(path)[3:] == [("GAP", None), ("DELETED", "away"), ("MODIFIED", "moved"), ("ADDED", "new")]


def test_the_recording_of_a_program(tmp_path):
    path, apis = tmp_path / "metadata.jsonl", []

    def make():
        apis.append(Api(("list", [topic("a", topicId="x", partitions={"0": entry()})])))
        return apis[0]

    with MetadataRecorder(make, path):
        assert json.loads(path.read_text())["type"] == "ADDED", "all that exists is there when the body begins"
    assert apis[0].closed
    assert check_metadata(path).changes == 1


def test_a_recording_that_cannot_begin_says_so(tmp_path, monkeypatch):
    def fail():
        raise OSError("no such server")

    with (
        pytest.raises(RecordingError, match="nothing could be listed") as caught,
        MetadataRecorder(fail, tmp_path / "m"),
    ):
        pass
    assert "no such server" in str(caught.value.__cause__)

    class Silent(Api):
        async def list(self, *_arguments, **_options):
            await asyncio.Event().wait()

    monkeypatch.setattr(metadata_recorder, "START_LIMIT_S", 0.1)
    with pytest.raises(RecordingError), MetadataRecorder(Silent, tmp_path / "m"):
        pass


class Refusing(Api):
    """Answers questions about brokers with errors, one after another, and then properly."""

    def __init__(self, verb, *errors):
        super().__init__(("list", []))
        self.verb, self.errors = verb, list(errors)

    def refuse(self, verb, kind):
        if kind is BROKERS and verb == self.verb and self.errors:
            raise self.errors.pop(0)

    async def list(self, kind, namespace, *, label_selector):
        self.refuse("list", kind)
        return await super().list(kind, namespace, label_selector=label_selector)

    async def watch(self, kind, namespace, **options):
        self.refuse("watch", kind)
        if kind is BROKERS and not self.errors:
            self.quiet.set()
        async for event in super().watch(kind, namespace, **options):
            yield event


def forbidden(status=403, message='User "jane" cannot do that'):
    return KubeForbidden(status, "Forbidden", message)


def end_of(api, path):
    """What a recording that nobody stops ends with."""
    return asyncio.run(asyncio.wait_for(record(api, None, path, asyncio.Event()), 60))


@pytest.mark.parametrize("verb", ["list", "watch"])
def test_what_the_account_may_not_do_ends_the_recording(tmp_path, monkeypatch, verb):
    monkeypatch.setattr(metadata_recorder, "REFUSED_MAX_S", 0.0)
    with pytest.raises(RecordingError) as caught:
        end_of(Refusing(verb, forbidden()), tmp_path / "m")
    assert str(caught.value).startswith(f'cannot {verb} kafkalitebrokers: User "jane" cannot do that; ask for a Role')


def test_an_api_server_that_starts_may_refuse_for_a_while_what_it_permitted(tmp_path):
    async def started():
        api, stop = Refusing("watch", forbidden(), forbidden(), forbidden(401)), asyncio.Event()
        task = asyncio.create_task(record(api, None, tmp_path / "m", stop))
        await asyncio.wait_for(api.quiet.wait(), 60)
        stop.set()
        return await task

    assert asyncio.run(started()) == 0


def test_a_token_that_has_run_out_is_no_refusal_but_two_in_a_row_are(tmp_path, monkeypatch):
    monkeypatch.setattr(metadata_recorder, "REFUSED_MAX_S", 0.0)

    async def renewed():
        api, stop = Refusing("watch", forbidden(401)), asyncio.Event()
        task = asyncio.create_task(record(api, None, tmp_path / "m", stop))
        await asyncio.wait_for(api.quiet.wait(), 60)
        stop.set()
        return await task

    assert asyncio.run(renewed()) == 0
    with pytest.raises(RecordingError, match="cannot watch kafkalitebrokers: the API server does not know who you are"):
        end_of(Refusing("watch", forbidden(401), forbidden(401)), tmp_path / "m")


def test_a_login_that_fails_and_a_full_disk_are_told_as_they_are(tmp_path):
    with pytest.raises(ConfigError, match="the plugin failed"):
        end_of(Refusing("list", ConfigError("the plugin failed")), tmp_path / "m")
    with pytest.raises(OSError, match="No space left on device: '/dev/full'"):
        end_of(Api(("list", [topic("a")])), Path("/dev/full"))


def test_a_line_is_written_whole_although_the_disk_takes_it_in_parts():
    class Nearly:
        written = b""

        def write(self, data):
            self.written += bytes(data[:7])
            return len(data[:7])

    file = Nearly()
    metadata_recorder._Recording(file).listed(TOPICS, [topic("a"), topic("b")])
    lines = file.written.splitlines(keepends=True)
    assert [json.loads(line)["object"]["metadata"]["name"] for line in lines] == ["a", "b"]
    assert all(line.endswith(b"\n") for line in lines)


def test_a_recording_without_one_of_the_kinds_is_none(tmp_path):
    class Silent(Api):
        async def list(self, kind, namespace, *, label_selector):
            if kind is BROKERS:
                self.quiet.set()
                await asyncio.Event().wait()
            return await super().list(kind, namespace, label_selector=label_selector)

    async def stopped():
        api, stop = Silent(("list", [topic("a")])), asyncio.Event()
        task = asyncio.create_task(record(api, None, tmp_path / "m", stop))
        await asyncio.wait_for(api.quiet.wait(), 60)
        stop.set()
        await task

    with pytest.raises(RecordingError, match="no list of kafkalitebrokers ever came: no answer yet"):
        asyncio.run(stopped())


def test_an_api_server_that_never_answers_is_said_in_plain_words(tmp_path):
    class Away(Api):
        async def list(self, kind, namespace, *, label_selector):
            self.quiet.set()
            raise KubeUnavailable("GET /x: E(1)", ambiguous=False, server="http://there:1", why="Connection refused")

    async def stopped():
        api, stop = Away(), asyncio.Event()
        task = asyncio.create_task(record(api, None, tmp_path / "m", stop))
        await asyncio.wait_for(api.quiet.wait(), 60)
        stop.set()
        await task

    with pytest.raises(RecordingError) as caught:
        asyncio.run(stopped())
    assert str(caught.value).endswith(
        "ever came: the API server http://there:1 does not answer (Connection refused); "
        "see that it runs and can be reached from here"
    )


def test_a_program_is_told_why_a_recording_cannot_begin(tmp_path):
    with (
        pytest.raises(RecordingError, match="cannot list kafkalitebrokers"),
        MetadataRecorder(lambda: Refusing("list", forbidden()), tmp_path / "m"),
    ):
        pass


def test_all_kinds_that_the_checker_judges_are_recorded():
    assert set(metadata_recorder.KINDS) == {TOPICS, BROKERS, CLUSTERS}
