"""The official Python client, which the CLI and the tests use off the failover path."""

from __future__ import annotations

import asyncio

from kubernetes import client, config, watch

from tests.contract.conftest import topic


async def test_objects_pods_and_watches(api, ns, kubeconfig):
    await asyncio.to_thread(use_client, ns, kubeconfig)


def use_client(ns: str, kubeconfig) -> None:
    with config.new_client_from_config(config_file=str(kubeconfig)) as connected:
        custom = client.CustomObjectsApi(connected)
        where = ("kafkalite.io", "v1alpha1", ns, "kafkalitetopics")
        created = custom.create_namespaced_custom_object(*where, topic("orders"))
        custom.patch_namespaced_custom_object(*where, "orders", {"spec": {"partitions": 4}})
        listed = custom.list_namespaced_custom_object(*where)
        assert [item["spec"]["partitions"] for item in listed["items"]] == [4]
        events = []
        stream = watch.Watch().stream(
            custom.list_namespaced_custom_object,
            *where,
            resource_version=created["metadata"]["resourceVersion"],
            timeout_seconds=1,
        )
        events = [event["type"] for event in stream]
        assert events == ["MODIFIED"]
        core = client.CoreV1Api(connected)
        spec = client.V1PodSpec(containers=[client.V1Container(name="c", image="i")])
        core.create_namespaced_pod(ns, client.V1Pod(metadata=client.V1ObjectMeta(name="p"), spec=spec))
        assert core.read_namespaced_pod("p", ns).status.phase == "Pending"
        apps = client.AppsV1Api(connected)
        assert apps.list_namespaced_stateful_set(ns).items == []
        coordination = client.CoordinationV1Api(connected)
        lease = client.V1Lease(metadata=client.V1ObjectMeta(name="l"), spec=client.V1LeaseSpec(holder_identity="me"))
        assert coordination.create_namespaced_lease(ns, lease).spec.holder_identity == "me"
        core.delete_namespaced_pod("p", ns)
        assert core.list_namespaced_pod(ns).items == []
