"""The project's own Kubernetes client, which brokers and operator use, against the server."""

from __future__ import annotations

import asyncio
import contextlib
import time

import pytest

from kafkalite_core.resources.listener_services import with_removals
from kafkalite_runtime.kube.client import KubeClient
from kafkalite_runtime.kube.config import KubeConfig
from kafkalite_runtime.kube.errors import KubeConflict, KubeError, KubeInvalid, KubeNotFound
from kafkalite_runtime.kube.kinds import CONFIG_MAPS, LEASES, SERVICES, STATEFUL_SETS, TOPICS
from kafkalite_runtime.kube.reflector import Reflector
from tests.contract.conftest import ServerProcess, config_map, entry, placed_topic, topic


@contextlib.asynccontextmanager
async def connected(kubeconfig):
    client = KubeClient(KubeConfig.from_file(kubeconfig))
    try:
        yield client
    finally:
        await client.close()


async def test_verdicts_become_exceptions(api, ns, kubeconfig):
    async with connected(kubeconfig) as client:
        stored = await client.create(TOPICS, ns, topic())
        with pytest.raises(KubeConflict):
            await client.create(TOPICS, ns, topic())
        with pytest.raises(KubeNotFound):
            await client.get(TOPICS, ns, "nothing")
        with pytest.raises(KubeInvalid, match="partitions can only grow"):
            await client.merge_patch(TOPICS, ns, "orders", {"spec": {"partitions": 1}})
        failing = [{"op": "test", "path": "/metadata/uid", "value": "x"}]
        with pytest.raises(KubeInvalid):
            await client.json_patch(TOPICS, ns, "orders", failing, subresource="status")
        grown = await client.merge_patch(TOPICS, ns, "orders", {"spec": {"partitions": 5}})
        with pytest.raises(KubeConflict):
            await client.replace(TOPICS, ns, "orders", stored)
        assert (await client.replace(TOPICS, ns, "orders", grown))["spec"]["partitions"] == 5
        with pytest.raises(KubeConflict):
            await client.delete(TOPICS, ns, "orders", uid="00000000-0000-0000-0000-000000000000")
        await client.delete(TOPICS, ns, "orders", uid=stored["metadata"]["uid"])
        assert (await client.list(TOPICS, ns)).items == []


def pods_of(value) -> dict:
    """A StatefulSet whose pods have an environment variable of that value, and one that nobody shall read."""
    variables = [{"name": "PASSWORD", "value": 's3cret "quoted"'}, {"name": "A", "value": value}]
    pod = {
        "metadata": {"labels": {"app": "x"}},
        "spec": {"containers": [{"name": "broker", "image": "none", "env": variables}]},
    }
    spec = {"serviceName": "x", "selector": {"matchLabels": {"app": "x"}}, "template": pod}
    return {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "x"}, "spec": spec}


async def test_a_patch_that_makes_no_object_is_refused_with_the_reason_and_without_the_object(ns, kubeconfig, real):
    async with connected(kubeconfig) as client:
        with pytest.raises(KubeError, match="cannot unmarshal number") as refused:
            await client.create(STATEFUL_SETS, ns, pods_of(1))
        assert refused.value.status == 400
        await client.create(STATEFUL_SETS, ns, pods_of("1"))
        patch = [{"op": "add", "path": "/spec/template", "value": pods_of(1)["spec"]["template"]}]
        with pytest.raises(KubeInvalid, match="cannot unmarshal number") as refused:
            await client.json_patch(STATEFUL_SETS, ns, "x", patch)
        assert "s3cret" not in str(refused.value)
        assert len(str(refused.value)) < 400


async def test_a_service_of_a_load_balancer_becomes_one_of_nodes(ns, kubeconfig, real):
    """A merge patch leaves what it does not name, and some of that is for load balancers alone."""
    special = {"loadBalancerSourceRanges": ["10.0.0.0/8"], "loadBalancerClass": "example.com/x"}
    balanced = {"type": "LoadBalancer", **special}
    common = {"selector": {"app": "x"}, "ports": [{"name": "tcp-ext", "port": 9094, "targetPort": 9094}]}
    body = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "x"}, "spec": {**common, **balanced}}
    async with connected(kubeconfig) as client:
        existing = await client.create(SERVICES, ns, body)
        wanted = {**body, "spec": {**common, "type": "NodePort"}}
        with pytest.raises(KubeInvalid, match="may only be used when"):
            await client.merge_patch(SERVICES, ns, "x", wanted)
        patched = await client.merge_patch(SERVICES, ns, "x", with_removals(wanted, existing))
    assert patched["spec"]["type"] == "NodePort"
    assert not patched["spec"].keys() & special.keys()


async def test_a_list_of_many_is_read_in_pages(api, ns, kubeconfig):
    async with connected(kubeconfig) as client:
        bodies = [config_map(f"m-{number:04}", labels={"many": "y"}) for number in range(520)]
        await asyncio.gather(*(client.create(CONFIG_MAPS, ns, body, deadline_s=60) for body in bodies))
        listed = await client.list(CONFIG_MAPS, ns, label_selector="many=y", deadline_s=60)
    assert [item["metadata"]["name"] for item in listed.items] == [body["metadata"]["name"] for body in bodies]


async def test_a_reflector_follows_over_a_killed_server(own_server: ServerProcess):
    """Neither the objects nor the place in the history are lost: no second list, no change missed."""
    events: asyncio.Queue[tuple[str, int]] = asyncio.Queue()
    lists: list[int] = []

    def on_event(kind: str, value: dict) -> None:
        epoch = value.get("status", {}).get("partitions", {}).get("0", {}).get("partitionEpoch", -1)
        events.put_nowait((kind, epoch))

    from tests.contract.conftest import open_api

    async with connected(own_server.kubeconfig) as client, open_api(own_server.kubeconfig) as api:
        await placed_topic(api, "default")
        reflector = Reflector(
            client, TOPICS, "default", "", lambda items: lists.append(len(items)), on_event, time.monotonic
        )
        following = asyncio.create_task(reflector.run())
        try:
            await asyncio.wait_for(reflector.synced.wait(), 30)

            async def swap(epoch: int) -> None:
                operations = [
                    {"op": "test", "path": "/status/partitions/0/partitionEpoch", "value": epoch - 1},
                    {"op": "replace", "path": "/status/partitions/0", "value": entry(0, 4, epoch)},
                ]
                await client.json_patch(TOPICS, "default", "orders", operations, subresource="status", deadline_s=30)

            await swap(12)
            assert await asyncio.wait_for(events.get(), 30) == ("MODIFIED", 12)
            own_server.kill()
            await asyncio.to_thread(own_server.start)
            await swap(13)
            await swap(14)
            assert await asyncio.wait_for(events.get(), 30) == ("MODIFIED", 13)
            assert await asyncio.wait_for(events.get(), 30) == ("MODIFIED", 14)
            assert lists == [1]
        finally:
            following.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await following


async def test_a_lease_is_renewed_by_patch(api, ns, kubeconfig):
    async with connected(kubeconfig) as client:
        spec = {"holderIdentity": "a", "leaseDurationSeconds": 5, "renewTime": "2026-01-02T03:04:05.000001Z"}
        await client.create(LEASES, ns, {"metadata": {"name": "b"}, "spec": spec})
        renew = [
            {"op": "test", "path": "/spec/holderIdentity", "value": "a"},
            {"op": "add", "path": "/spec/renewTime", "value": "2026-01-02T03:04:06.000002Z"},
        ]
        renewed = await client.json_patch(LEASES, ns, "b", renew)
    assert renewed["spec"]["renewTime"] == "2026-01-02T03:04:06.000002Z"
