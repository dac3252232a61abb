"""What `kafkalite up` brings to the API server: the real, embedded one; the operator and the brokers are not there."""

import pytest

from kafkalite_cli.local_mode import start
from kafkalite_cli.manifests import QUICKSTART_TOPIC
from kafkalite_local.apiserver.kubeconfig import write_kubeconfig
from kafkalite_local.apiserver.server import ApiServer
from kafkalite_runtime.home import Home
from kafkalite_runtime.kube import CLUSTERS, TOPICS, KubeClient, KubeNotFound
from kafkalite_runtime.kube.config import KubeConfig

CLUSTER = {
    "apiVersion": "kafkalite.io/v1alpha1",
    "kind": "KafkaLiteCluster",
    "metadata": {"name": "kafkalite"},
    "spec": {},
}


class Quiet:
    """Steps that say nothing."""

    def begin(self, _title):
        pass

    waiting = done = begin


@pytest.fixture
async def client(tmp_path):
    server = ApiServer(tmp_path / "control-plane.db")
    await server.start()
    write_kubeconfig(tmp_path / "kubeconfig", server.url, server.token)
    client = KubeClient(KubeConfig.from_file(tmp_path / "kubeconfig"))
    yield client
    await client.close()
    await server.stop()


@pytest.fixture
def up(client, tmp_path, monkeypatch):
    """Applies manifests as `up` does; `waited` is raised when the cluster is waited for."""

    async def up(*objects, waited=None):
        awaited = []

        async def api_server(*_args):
            return KubeClient(KubeConfig.from_file(tmp_path / "kubeconfig"))

        async def wait_until_ready(*_args):
            awaited.append(1)
            if waited:
                raise waited

        monkeypatch.setattr(start, "_api_server", api_server)
        monkeypatch.setattr(start, "_wait_until_ready", wait_until_ready)
        try:
            await start._bring_up(Home(tmp_path), [QUICKSTART_TOPIC], list(objects), Quiet(), 0, 60)
        finally:
            assert awaited, "what is refused is no reason not to wait for the cluster"

    return up


def topic(name, **spec):
    return QUICKSTART_TOPIC | {"metadata": {"name": name}, "spec": QUICKSTART_TOPIC["spec"] | spec}


async def partitions(client, name="quickstart"):
    return (await client.get(TOPICS, "default", name))["spec"]["partitions"]


async def test_the_quickstart_topic_is_made_once_and_then_left_to_its_owner(client, up):
    await up()
    assert await partitions(client) == 3
    change = {"spec": {"partitions": 6, "config": {"retention.ms": "1000"}}}
    await client.merge_patch(TOPICS, "default", "quickstart", change)
    await up()
    spec = (await client.get(TOPICS, "default", "quickstart"))["spec"]
    assert (spec["partitions"], spec["config"]["retention.ms"]) == (6, "1000")
    await client.create(CLUSTERS, "default", CLUSTER)
    await client.delete(TOPICS, "default", "quickstart")
    await up(topic("orders"))
    with pytest.raises(KubeNotFound):
        await client.get(TOPICS, "default", "quickstart")
    assert await partitions(client, "orders") == 3


async def test_a_refused_manifest_is_said_when_the_cluster_is_ready_and_the_others_are_applied(client, up):
    await up(topic("orders", partitions=6))
    with pytest.raises(start.ManifestsRefused) as refused:
        await up(topic("orders"), topic("payments"))
    assert "KafkaLiteTopic orders: " in refused.value.message
    assert "partitions can only grow" in refused.value.message
    assert "The cluster itself runs" in refused.value.message
    assert await partitions(client, "orders") == 6
    assert await partitions(client, "payments") == 3


@pytest.mark.parametrize("error", [start.NotReady("no broker", "operator"), start.TopicsNotReady(["no leader"])])
async def test_a_refused_manifest_is_not_forgotten_when_the_cluster_is_not_ready(client, up, error):
    said = error.message
    with pytest.raises(type(error)) as caught:
        await up(topic("orders", partitions=0), waited=error)
    assert caught.value.message.startswith("KafkaLiteTopic orders: spec.partitions: ")
    assert caught.value.message.endswith(said)
