"""What a long-lived operator remembers goes with what it is about."""

from kafkalite_core.resources.manifests import cluster_settings
from kafkalite_runtime.kube.kinds import CLUSTERS, TOPICS
from tests.unit.operator.test_parts import executor_on
from tests.unit.resources.builders import cluster_object


async def test_what_is_remembered_of_objects_goes_with_them():
    client, store, executor = executor_on(1)
    store.apply(CLUSTERS, "ADDED", cluster_object())
    settings = cluster_settings(cluster_object())
    failovers = executor._failovers
    failovers.failed(settings.cluster.uid, 0, 1.0)
    failovers._leaderless[client.obj["metadata"]["uid"]] = {0: 1.0}
    executor._in_vain.note(settings.cluster.uid, "told")
    executor._tracked.add(client.obj["metadata"]["uid"])
    store.note_expiry_fence(("default", "kafkalite"))
    store.nodes_refused.add(settings.cluster.uid)
    store.forget(CLUSTERS, settings.cluster.uid)
    assert (failovers._failed_at, executor._in_vain._told, len(executor._tracked)) == ({}, {}, 1)
    assert (store.expiry_fences, store.nodes_refused) == ({}, set())
    store.forget(TOPICS, client.obj["metadata"]["uid"])
    assert (executor._tracked, failovers._leaderless) == (set(), {})
