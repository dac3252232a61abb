"""Whether the cluster can get the images that the tests name, asked before the first of them; and what is in these."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

from tests.e2e.cluster import PATIENCE, POLL_S, REGISTRY, CommandError, image

if TYPE_CHECKING:
    from tests.e2e.cluster import Cluster

IMAGES = ("kafkalite-broker", "kafkalite-operator", "kafkalite-e2e-client")
TAG = "0.1.0"
NAMESPACE = "kafkalite-e2e-images"
PULL_LIMIT_S = 180
# A node goes on trying, which is of no use where the name is wrong.
REFUSED = {"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"}


def pod() -> dict[str, Any]:
    """One that starts each image once and ends."""
    containers = [{"name": name, "image": f"{image(name)}:{TAG}", "command": ["python3", "-c", ""]} for name in IMAGES]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "images"},
        "spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "containers": containers},
    }


def refused(found: dict[str, Any]) -> list[str]:
    """A sentence for each image that the node of the pod cannot have."""
    states = found.get("status", {}).get("containerStatuses") or []
    waiting = [(each["image"], each.get("state", {}).get("waiting") or {}) for each in states]
    return [
        f"{name}: {why['reason']}: {why.get('message', '')}" for name, why in waiting if why.get("reason") in REFUSED
    ]


def what_to_do(problems: list[str]) -> str:
    """For who started the tests."""
    named = f"KAFKALITE_E2E_REGISTRY={REGISTRY}" if REGISTRY else "no KAFKALITE_E2E_REGISTRY"
    return "\n".join([
        f"the nodes of the cluster cannot have the images of the tests ({named}):",
        *(f"  {each}" for each in problems),
        f"push {', '.join(f'{name}:{TAG}' for name in IMAGES)} to a registry that the nodes reach and name it:",
        "  KAFKALITE_E2E_REGISTRY=registry/project make e2e",
        "(docs/kind.md says how they are built; those of a cluster of `make kind-up` are built and copied by `make e2e`)",
    ])  # fmt: skip


def why_not(cluster: Cluster) -> str:
    """Why the tests cannot begin; "" when every image was started. Its namespace is gone afterwards."""
    space = f"--namespace={NAMESPACE}"
    cluster.kubectl("delete", "namespace", NAMESPACE, "--ignore-not-found", limit_s=120)
    cluster.kubectl("create", "namespace", NAMESPACE)
    try:
        cluster.kubectl("wait", space, "--for=create", "serviceaccount/default", "--timeout=60s", limit_s=90)
        cluster.kubectl("apply", space, "--filename=-", text=json.dumps(pod()))
        end = time.monotonic() + PULL_LIMIT_S * PATIENCE
        while True:
            found = cluster.get(space, "pod/images")
            if problems := refused(found):
                return what_to_do(problems)
            if (phase := found["status"].get("phase")) == "Succeeded":
                return ""
            if phase == "Failed" or time.monotonic() > end:
                raise CommandError(f"the images were not started in time: {json.dumps(found['status'])}")
            time.sleep(POLL_S)
    finally:
        cluster.kubectl("delete", "namespace", NAMESPACE, "--wait=false")
