"""The Node object of local mode."""

import asyncio
import os
import platform
from typing import Any

from kafkalite_local.kubelet.pod_spec import POD_IP
from kafkalite_local.processes import now_text
from kafkalite_runtime.home import NODE_NAME
from kafkalite_runtime.kube import NODES, KubeClient, KubeConflict, KubeError, KubeUnavailable
from kafkalite_runtime.logging import get_logger

RETRY_S = 0.5
_log = get_logger(__name__)


def node_object() -> dict[str, Any]:
    """This machine, described as a Kubernetes node."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 1024
    resources = {"cpu": str(os.cpu_count() or 1), "memory": f"{memory}Ki", "pods": "110"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": NODE_NAME,
            "labels": {"kubernetes.io/hostname": NODE_NAME, "kubernetes.io/os": "linux"},
        },
        "spec": {},
        "status": {
            "addresses": [
                {"type": "InternalIP", "address": POD_IP},
                {"type": "Hostname", "address": NODE_NAME},
            ],
            "capacity": resources,
            "allocatable": resources,
            "conditions": [
                {
                    "type": "Ready",
                    "status": "True",
                    "reason": "KubeletReady",
                    "message": "the local kubelet runs pods as processes",
                    "lastTransitionTime": now_text(),
                }
            ],
            "nodeInfo": {
                "kernelVersion": platform.release(),
                "operatingSystem": "linux",
                "architecture": platform.machine(),
                "osImage": platform.system(),
                "kubeletVersion": "local",
                "containerRuntimeVersion": "local://process",
            },
        },
    }


async def register_node(client: KubeClient) -> None:
    """Create or refresh the Node object; tries until it is done."""
    node = node_object()
    while True:
        try:
            try:
                await client.create(NODES, None, node)
            except KubeConflict:
                _log.debug("node is registered already")
            await client.merge_patch(NODES, None, NODE_NAME, {"status": node["status"]}, subresource="status")
        except KubeUnavailable:
            await asyncio.sleep(RETRY_S)
        except KubeError as error:
            _log.warning("node not registered", error=str(error))
            return
        else:
            return
