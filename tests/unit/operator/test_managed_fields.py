"""The operator and the API server's record of who wrote which field (`metadata.managedFields`)."""

import copy

import pytest

from kafkalite_core.controller.actions import CreateTopicStatus, UpdateTopicStatus
from kafkalite_core.model.topic import Condition
from kafkalite_core.resources.fields import Fields
from kafkalite_core.resources.manifests import cluster_settings
from kafkalite_core.resources.topics import parse_partition, parse_topic
from kafkalite_operator.executor import Executor
from kafkalite_operator.metrics import OperatorMetrics
from kafkalite_operator.store import Store
from kafkalite_runtime.kube.errors import KubeForbidden, KubeInvalid, KubeUnauthorized
from kafkalite_runtime.kube.kinds import TOPICS
from tests.unit.operator.test_parts import Clock, NoEvents, OneObject
from tests.unit.resources.builders import cluster_object, partition_json, topic_object


class Tracking(OneObject):
    """It records who wrote what, as the real server does; `refusing` is raised by a patch of the object itself."""

    def __init__(self, obj, operation="Update"):
        super().__init__(obj)
        self.obj["metadata"]["managedFields"] = [{"manager": "kubectl-create", "operation": operation}]
        self.refusing = None
        self.written = []

    async def json_patch(self, kind, namespace, name, operations, *, subresource="", deadline_s=3.0):
        self.written.append(subresource)
        if self.refusing is not None and not subresource:
            raise self.refusing
        before = copy.deepcopy(self.obj["metadata"].get("managedFields"))
        answer = await super().json_patch(kind, namespace, name, operations, subresource=subresource)
        if not subresource and self.obj["metadata"]["managedFields"] == [{}]:
            before = None
        for each in (self.obj, answer):
            each["metadata"].pop("managedFields", None)
            if before is not None:
                each["metadata"]["managedFields"] = copy.deepcopy(before)
        return answer


def executor_that_writes_once(client):
    """What places the topic that the client has, or else tells of it."""
    store = Store(Clock(), "image")
    store.apply(TOPICS, "ADDED", copy.deepcopy(client.obj))
    topic = parse_topic(client.obj)
    told = UpdateTopicStatus(
        topic=topic.ref,
        generation=1,
        conditions=(Condition(type="Ready", status="True", reason="Serving"),),
        in_sync="1/1",
    )
    placed = CreateTopicStatus(
        topic=topic.ref,
        resource_version="7",
        has_status=False,
        partitions={0: parse_partition(Fields(partition_json(), "entry"))},
        topic_id="id",
        reason="why",
    )
    action = told if "status" in client.obj else placed
    executor = Executor(client, store, OperatorMetrics(), NoEvents())
    return store, lambda: executor.carry_out(cluster_settings(cluster_object()), action, 2)


STATUSES = pytest.mark.parametrize("status", [None, {"topicId": "id"}], ids=["new", "placed before an upgrade"])


@STATUSES
async def test_the_api_server_keeps_no_record_of_fields_from_the_first_write_on(status):
    client = Tracking(topic_object(status=status))
    store, write = executor_that_writes_once(client)
    await write()
    assert client.written == ["", "status"]
    assert "managedFields" not in client.obj["metadata"]
    assert store.raw(TOPICS, "uid-1") == client.obj
    if status is not None:
        await write()
        assert client.written == ["", "status", "status"], "once"


@STATUSES
async def test_a_record_of_fields_that_somebody_needs_stays(status):
    client = Tracking(topic_object(status=status), operation="Apply")
    _, write = executor_that_writes_once(client)
    await write()
    assert client.written == ["status"]
    assert client.obj["metadata"]["managedFields"][0]["operation"] == "Apply"


@STATUSES
async def test_what_was_decided_on_another_version_is_not_written_after_the_record_is_removed(status):
    client = Tracking(topic_object(status=status))
    _, write = executor_that_writes_once(client)
    client.obj["metadata"]["resourceVersion"] = "8"
    with pytest.raises(KubeInvalid):
        await write()
    assert client.written == [""]


@STATUSES
@pytest.mark.parametrize("refusal", [KubeForbidden(403, "Forbidden", "no"), KubeInvalid(422, "Invalid", "a policy")])
async def test_who_may_not_write_the_topic_itself_writes_its_status(status, refusal):
    client = Tracking(topic_object(status=status))
    _, write = executor_that_writes_once(client)
    client.refusing = refusal
    await write()
    assert client.written == ["", "status"]
    assert "managedFields" in client.obj["metadata"]
    if status is not None:
        await write()
        assert client.written == ["", "status", "status"], "and does not try again"


@STATUSES
async def test_who_is_not_known_for_a_moment_tries_again(status):
    client = Tracking(topic_object(status=status))
    _, write = executor_that_writes_once(client)
    client.refusing = KubeUnauthorized(401, "Unauthorized", "the token has expired")
    with pytest.raises(KubeUnauthorized):
        await write()
    client.refusing = None
    await write()
    assert client.written == ["", "", "status"]
    assert "managedFields" not in client.obj["metadata"]
