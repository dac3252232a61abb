import json
import socket
import subprocess
import sys

import pytest

from kafkalite_cli.errors import Failure
from kafkalite_cli.manifests import LAST_APPLIED, apply, difference, plain_words, read_manifests
from kafkalite_runtime.kube import KubeConflict, KubeInvalid, KubeNotFound, KubeUnavailable

TOPIC = """
apiVersion: kafkalite.io/v1alpha1
kind: KafkaLiteTopic
metadata: {name: orders}
spec: {partitions: 3, config: {a: "1"}}
"""


def write(tmp_path, text, name="t.yaml"):
    (tmp_path / name).write_text(text)
    return str(tmp_path / name)


def test_reading_files_folders_and_lists(tmp_path):
    write(tmp_path, TOPIC + "---\n" + TOPIC.replace("orders", "payments"), "a.yaml")
    write(
        tmp_path,
        json.dumps({"kind": "List", "items": [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}}]}),
        "b.yml",
    )
    assert [obj["metadata"]["name"] for obj in read_manifests(str(tmp_path))] == ["orders", "payments", "c"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "not YAML"),
        ("- 1", "expected an object"),
        (TOPIC.replace("orders", '""'), "has no metadata.name"),
        (TOPIC.replace("KafkaLiteTopic", "Deployment"), "use kubectl"),
        ("kind: List", "a List has items"),
        ("{kind: List, items: {a: b}}", "a List has items"),
        ("{kind: List, items: [text]}", "a List has items"),
        (TOPIC.replace("{name: orders}", "orders"), "metadata of KafkaLiteTopic is not an object with a name, but str"),
        (
            TOPIC.replace("{name: orders}", "{name: orders, labels: text}"),
            "metadata.labels of KafkaLiteTopic is not of",
        ),
        (TOPIC.replace("{name: orders}", "{name: orders, annotations: [a]}"), "metadata.annotations of KafkaLiteTopic"),
    ],
)
def test_manifests_that_cannot_be_applied(tmp_path, text, words):
    path = write(tmp_path, text)
    with pytest.raises(Failure, match=words) as caught:
        read_manifests(path)
    assert path in caught.value.message


def test_no_such_file():
    with pytest.raises(Failure, match="absent: no such file"):
        read_manifests("absent")


class Api:
    """Objects by name; `errors` are raised first, one per call."""

    def __init__(self, *errors):
        self.objects = {}
        self.errors = list(errors)
        self.patches = []
        self.config = type("Config", (), {"namespace": "ns"})

    def _fail(self):
        if self.errors and (error := self.errors.pop(0)):
            raise error

    async def get(self, kind, namespace, name):
        self._fail()
        if name not in self.objects:
            raise KubeNotFound(404, "NotFound", name)
        return self.objects[name]

    async def create(self, kind, namespace, body, *, strict):
        assert strict, "unknown fields are refused"
        self._fail()
        assert body["metadata"]["namespace"] == namespace == "ns"
        self.objects[body["metadata"]["name"]] = body

    async def merge_patch(self, kind, namespace, name, patch, *, strict):
        assert strict, "unknown fields are refused"
        self._fail()
        self.patches.append(patch)
        merge(self.objects[name], patch)


def merge(target, patch):
    for key, value in patch.items():
        if value is None:
            target.pop(key, None)
        elif isinstance(value, dict):
            merge(target.setdefault(key, {}), value)
        else:
            target[key] = value


def topic(**spec):
    return {
        "apiVersion": "kafkalite.io/v1alpha1",
        "kind": "KafkaLiteTopic",
        "metadata": {"name": "orders"},
        "spec": spec,
    }


async def test_create_change_remove_and_leave_alone():
    api = Api()
    assert await apply(api, [topic(partitions=3, config={"a": "1", "b": "2"})]) == ["KafkaLiteTopic orders created"]
    api.objects["orders"]["spec"]["replicas"] = 3  # a default that the server filled in
    api.objects["orders"]["spec"]["config"]["c"] = "by somebody else"
    assert await apply(api, [topic(partitions=3, config={"a": "1", "b": "2"})]) == ["KafkaLiteTopic orders unchanged"]
    assert api.patches == []
    assert await apply(api, [topic(partitions=6, config={"a": "1"})]) == ["KafkaLiteTopic orders configured"]
    assert api.objects["orders"]["spec"] == {
        "partitions": 6,
        "replicas": 3,
        "config": {"a": "1", "c": "by somebody else"},
    }


async def test_what_happens_at_the_same_time_is_seen():
    assert await apply(Api(None, KubeConflict(409, "AlreadyExists", "")), [topic()]) == [
        "KafkaLiteTopic orders created"
    ]
    with pytest.raises(Failure, match="changed by somebody else"):
        await apply(Api(*[None, KubeConflict(409, "AlreadyExists", "")] * 3), [topic()])


async def test_refusals_are_in_plain_words():
    text = 'POST /apis/x: KafkaLiteTopic.kafkalite.io "orders" is invalid: spec.partitions: Invalid value: 0'
    with pytest.raises(Failure) as caught:
        await apply(Api(None, KubeInvalid(422, "Invalid", text)), [topic()])
    assert caught.value.message == "KafkaLiteTopic orders: spec.partitions: Invalid value: 0"
    assert "does not answer" in plain_words(KubeUnavailable("refused", ambiguous=False))


def test_difference_against_an_object_that_was_not_applied():
    existing = {"metadata": {"name": "orders"}, "spec": {"partitions": 3, "replicas": 3}, "status": {"x": 1}}
    wanted = topic(partitions=3)
    wanted["metadata"]["annotations"] = {LAST_APPLIED: "now"}
    assert difference(existing, wanted) == {"metadata": {"annotations": {LAST_APPLIED: "now"}}}
    existing["metadata"]["annotations"] = {LAST_APPLIED: "not json"}
    assert difference(existing, wanted) == {"metadata": {"annotations": {LAST_APPLIED: "now"}}}
    existing["metadata"]["annotations"] = {LAST_APPLIED: "now"}
    assert difference(existing, wanted) == {}


async def test_what_somebody_else_has_set_before_is_removed_with_its_line():
    api = Api()
    await apply(api, [topic(config={"a": "1"})])
    api.objects["orders"]["spec"]["config"]["b"] = "2"
    assert await apply(api, [topic(config={"a": "1", "b": "2"})]) == ["KafkaLiteTopic orders unchanged"]
    assert await apply(api, [topic(config={"a": "1"})]) == ["KafkaLiteTopic orders configured"]
    assert api.objects["orders"]["spec"]["config"] == {"a": "1"}


async def test_what_was_read_back_does_not_remember_itself():
    api = Api()
    await apply(api, [topic(partitions=3)])
    read_back = json.loads(json.dumps(api.objects["orders"]))
    await apply(api, [read_back])
    remembered = json.loads(api.objects["orders"]["metadata"]["annotations"][LAST_APPLIED])
    assert remembered["metadata"] == {"name": "orders", "namespace": "ns", "annotations": {}}


def test_standard_input_may_be_a_socket():
    """As under some supervisors and CI runners: /dev/stdin cannot be opened then."""
    ours, theirs = socket.socketpair()
    code = "from kafkalite_cli.manifests import read_manifests; print(read_manifests('-')[0]['metadata']['name'])"
    with ours, theirs:
        ours.sendall(TOPIC.encode())
        ours.shutdown(socket.SHUT_WR)
        done = subprocess.run(
            [sys.executable, "-c", code], stdin=theirs.fileno(), capture_output=True, text=True, check=False
        )
    assert (done.returncode, done.stdout) == (0, "orders\n"), done.stderr
