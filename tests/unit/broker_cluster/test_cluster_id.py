"""The id of the cluster, for which the data directory is opened."""

import asyncio

from kafkalite_broker.cluster.link import ClusterLink
from kafkalite_runtime.kube import CLUSTERS
from tests.unit.broker_cluster.conftest import NAMESPACE, eventually

CALLBACKS = ("on_partitions_changed", "on_brokers_changed", "on_registered", "on_superseded")


async def test_the_id_of_a_cluster_that_is_made_again_is_waited_for(world, settings):
    """With none the data directory would look foreign, and a new one would belong to no cluster for ever."""
    await world.create_cluster()
    link = ClusterLink(world.new_client(), settings, **dict.fromkeys(CALLBACKS, lambda *_: None))
    await link.start()
    try:
        await link.synced()
        assert await link.cluster_id_known()
        await world.client.delete(CLUSTERS, NAMESPACE, "kafkalite")
        metadata = {"name": "kafkalite"}
        body = {"apiVersion": CLUSTERS.api_version, "kind": CLUSTERS.kind, "metadata": metadata, "spec": {}}
        await world.client.create(CLUSTERS, NAMESPACE, body)
        await eventually(lambda: link.cluster_id == "")
        waiting = asyncio.create_task(link.cluster_id_known())
        await asyncio.sleep(0)
        assert not waiting.done()
        await world.change_cluster(clusterId="QUFBQUFBQUFBQUFBQUFBQQ")
        assert await asyncio.wait_for(waiting, 30.0) == "QUFBQUFBQUFBQUFBQUFBQQ"
    finally:
        await link.stop()
