"""What the end-to-end tests ask before they begin: whether the nodes of the cluster can have the images."""

from __future__ import annotations

import json

import pytest

from tests.e2e import images


class FakeCluster:
    """Answers with one status after the other."""

    def __init__(self, *statuses):
        self._statuses = list(statuses)
        self.calls = []

    def kubectl(self, *words, text="", **_):
        self.calls.append((words[0], json.loads(text)["kind"] if text else words[1]))
        return ""

    def get(self, *_):
        return {"status": self._statuses.pop(0)}


def waiting(name, reason):
    return {"image": name, "state": {"waiting": {"reason": reason, "message": "no such host"}}}


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    monkeypatch.setattr(images, "POLL_S", 0)


def test_a_cluster_that_has_the_images_is_tested():
    pulling = {"phase": "Pending", "containerStatuses": [waiting("a:1", "ContainerCreating")]}
    cluster = FakeCluster({}, pulling, {"phase": "Succeeded", "containerStatuses": [{"image": "a:1", "state": {}}]})
    assert images.why_not(cluster) == ""
    assert cluster.calls[-2:] == [("apply", "Pod"), ("delete", "namespace")]


@pytest.mark.parametrize("reason", sorted(images.REFUSED))
def test_one_that_cannot_have_them_is_told_what_to_do(reason):
    cluster = FakeCluster({"phase": "Pending", "containerStatuses": [waiting("kafkalite-broker:0.1.0", reason)]})
    why = images.why_not(cluster)
    assert f"kafkalite-broker:0.1.0: {reason}: no such host" in why
    assert "KAFKALITE_E2E_REGISTRY=registry/project make e2e" in why
    assert cluster.calls[-1] == ("delete", "namespace")


def test_every_image_of_ours_is_started():
    started = {each["image"] for each in images.pod()["spec"]["containers"]}
    assert started == {"kafkalite-broker:0.1.0", "kafkalite-operator:0.1.0", "kafkalite-e2e-client:0.1.0"}
