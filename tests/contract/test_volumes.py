"""What the operator does for volumes: a StatefulSet made again around its pods, and claims that grow."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from kafkalite_core.resources.manifests import ClusterSettings, cluster_settings, infrastructure
from kafkalite_local.kubelet.stateful_sets import plan
from kafkalite_operator.stateful_sets import StatefulSets
from kafkalite_operator.volumes import Volumes
from kafkalite_runtime.kube.errors import KubeConflict, KubeInvalid
from kafkalite_runtime.kube.kinds import CLUSTERS, CONFIG_MAPS, PERSISTENT_VOLUME_CLAIMS, PODS, STATEFUL_SETS
from tests.contract.conftest import cluster, until
from tests.contract.test_thin_client import connected

if TYPE_CHECKING:
    from kafkalite_runtime.kube.client import KubeClient
    from kafkalite_runtime.kube.kinds import Kind

NAME = "c-broker"


async def settings_of(client: KubeClient, ns: str, **spec) -> ClusterSettings:
    body = {"spec": spec}
    return cluster_settings(await client.merge_patch(CLUSTERS, ns, "c", body), default_image="broker:1")


def wanted(settings: ClusterSettings) -> dict:
    return next(obj for obj in infrastructure(settings, range(3)) if obj["kind"] == "StatefulSet")


def owner_of(stateful_set: dict) -> dict:
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "name": NAME,
        "uid": stateful_set["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


async def made(client: KubeClient, ns: str, **spec) -> dict:
    """A StatefulSet with one pod and one claim, as its controller would leave them."""
    await client.create(CLUSTERS, ns, cluster(**spec))
    stateful_set = await client.create(STATEFUL_SETS, ns, wanted(await settings_of(client, ns)))
    labels = stateful_set["spec"]["selector"]["matchLabels"]
    metadata = {"labels": labels, "ownerReferences": [owner_of(stateful_set)]}
    pod = {"containers": [{"name": "broker", "image": "broker:1"}]}
    await client.create(PODS, ns, {"metadata": {"name": f"{NAME}-0", **metadata}, "spec": pod})
    claim = {**stateful_set["spec"]["volumeClaimTemplates"][0]["spec"]}
    await client.create(
        PERSISTENT_VOLUME_CLAIMS, ns, {"metadata": {"name": f"data-{NAME}-0", **metadata}, "spec": claim}
    )
    return stateful_set


def size_of(stateful_set: dict) -> str:
    return stateful_set["spec"]["volumeClaimTemplates"][0]["spec"]["resources"]["requests"]["storage"]


async def test_templates_of_claims_are_immutable(api, ns, kubeconfig, real):
    async with connected(kubeconfig) as client:
        await made(client, ns, storage={"size": "1Gi"})
        path = "/spec/volumeClaimTemplates/0/spec/resources/requests/storage"
        with pytest.raises(KubeInvalid, match="Forbidden: updates to statefulset spec"):
            await client.json_patch(STATEFUL_SETS, ns, NAME, [{"op": "replace", "path": path, "value": "2Gi"}])


async def test_a_stateful_set_is_made_again_and_its_pods_and_claims_go_on(api, ns, kubeconfig):
    async with connected(kubeconfig) as client:
        old = await made(client, ns, storage={"size": "1Gi", "deleteClaim": True})
        pod, claim = await client.get(PODS, ns, f"{NAME}-0"), f"data-{NAME}-0"
        greater = wanted(await settings_of(client, ns, storage={"size": "2Gi"}))
        assert "made again" in await StatefulSets(client).update(old, greater)
        new = await client.get(STATEFUL_SETS, ns, NAME)
        assert new["metadata"]["uid"] != old["metadata"]["uid"]
        assert size_of(new) == "2Gi"

        async def collected() -> bool:
            """Whatever the garbage collector had to do for the old one it has done."""
            return "ownerReferences" not in (await client.get(PODS, ns, f"{NAME}-0"))["metadata"]

        await until(collected)
        after = await client.get(PODS, ns, f"{NAME}-0")
        assert after["metadata"]["uid"] == pod["metadata"]["uid"]
        assert "deletionTimestamp" not in after["metadata"]
        assert "deletionTimestamp" not in (await client.get(PERSISTENT_VOLUME_CLAIMS, ns, claim))["metadata"]
        # What was decided on the old one does nothing to the new one.
        with pytest.raises(KubeConflict):
            await StatefulSets(client).update(old, greater)
        assert (await client.get(STATEFUL_SETS, ns, NAME))["metadata"]["uid"] == new["metadata"]["uid"]


@pytest.mark.parametrize("deleted", [False, True])
async def test_claims_go_with_the_cluster_only_if_its_spec_says_so(api, ns, kubeconfig, deleted):
    """With its definition as well: whoever deletes that deletes the clusters."""
    async with connected(kubeconfig) as client:
        await client.create(CLUSTERS, ns, cluster(storage={"deleteClaim": deleted}))
        stateful_set = await client.create(STATEFUL_SETS, ns, wanted(await settings_of(client, ns)))
        # As the controller of StatefulSets makes them: with an owner, or without, as the retention policy says.
        [claim, *_] = plan(stateful_set, [], []).claims
        await client.create(PERSISTENT_VOLUME_CLAIMS, ns, claim)
        owned = {"metadata": {"name": "owned", "ownerReferences": [owner_of(stateful_set)]}}
        await client.create(CONFIG_MAPS, ns, owned)
        await client.delete(CLUSTERS, ns, "c")
        await until(lambda: gone(client, CONFIG_MAPS, ns, "owned"))
        if deleted:
            await until(lambda: gone(client, PERSISTENT_VOLUME_CLAIMS, ns, claim["metadata"]["name"]))
        else:
            left = await client.get(PERSISTENT_VOLUME_CLAIMS, ns, claim["metadata"]["name"])
            assert "deletionTimestamp" not in left["metadata"]


async def gone(client: KubeClient, kind: Kind, ns: str, name: str) -> bool:
    return name not in {each["metadata"]["name"] for each in (await client.list(kind, ns)).items}


async def test_what_was_taken_back_from_the_template_is_gone(api, ns, kubeconfig):
    async with connected(kubeconfig) as client:
        selector = {"pod": {"spec": {"nodeSelector": {"disk": "fast"}}}}
        old = await made(client, ns, template=selector)
        assert old["spec"]["template"]["spec"]["nodeSelector"] == {"disk": "fast"}
        plain = wanted(await settings_of(client, ns, template=None))
        assert not await StatefulSets(client).update(old, plain), "a patch is enough"
        new = await client.get(STATEFUL_SETS, ns, NAME)
        assert new["metadata"]["uid"] == old["metadata"]["uid"]
        assert "nodeSelector" not in new["spec"]["template"]["spec"]
        assert new["metadata"]["generation"] > old["metadata"]["generation"]


@pytest.mark.parametrize("expandable", [False, True])
async def test_a_claim_grows_if_its_class_lets_it_and_the_refusal_says_why(api, ns, kubeconfig, real, expandable):
    """Admission of the real server; the embedded one has one class, which is a folder."""
    async with connected(kubeconfig) as client:
        classes, name = "/apis/storage.k8s.io/v1/storageclasses", f"{ns}-class"
        body = {"metadata": {"name": name}, "provisioner": "example.com/x", "allowVolumeExpansion": expandable}
        assert (
            await api.create(classes, {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", **body})
        ).status == 201
        await made(client, ns, storage={"size": "1Gi", "storageClassName": name})
        claim = f"data-{NAME}-0"
        bound = {"spec": {"volumeName": f"{ns}-volume"}}
        await client.merge_patch(PERSISTENT_VOLUME_CLAIMS, ns, claim, bound)
        status = {"status": {"phase": "Bound", "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"]}}
        await client.merge_patch(PERSISTENT_VOLUME_CLAIMS, ns, claim, status, subresource="status")
        settings = await settings_of(client, ns, storage={"size": "2Gi"})
        volumes: dict = {}
        pods = SimpleNamespace(of=lambda *_: {})
        store = SimpleNamespace(volumes=volumes, note_volumes=volumes.__setitem__, raw=lambda *_: None, pods=pods)
        await Volumes(client, store, SimpleNamespace()).ensure(settings, range(3))
        (volume,) = store.volumes[settings.cluster.uid]
        assert (volume.requested, volume.capacity) == (("2Gi", "1Gi") if expandable else ("1Gi", "1Gi"))
        assert bool(volume.refused) is not expandable
        assert expandable or "storageclass" in volume.refused
        await api.call("DELETE", f"{classes}/{name}")
