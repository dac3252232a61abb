"""What pods, claims and logs are called in the folders of local mode; kubelet and API server agree here."""

from collections.abc import Mapping
from typing import Any

from kafkalite_runtime.home import NODE_NAME

OPERATOR = f"kafkalite-operator-{NODE_NAME}"


def pod_key(metadata: Mapping[str, Any]) -> str:
    """Name of a pod in the folders of local mode: the pod's own in namespace `default`, else with the namespace."""
    namespace = metadata.get("namespace") or "default"
    return str(metadata["name"]) if namespace == "default" else f"{namespace}.{metadata['name']}"


# A claim's folder and a pod's are named by one rule.
claim_key = pod_key


def log_name(pod: Mapping[str, Any]) -> str:
    """`operator` for the pod of `kafkalite up`, `broker-0` for a pod of the cluster kafkalite, else the pod's key."""
    metadata = pod["metadata"]
    key = pod_key(metadata)
    if key == OPERATOR:
        return "operator"
    labels = metadata.get("labels") or {}
    name = str(metadata["name"])
    if labels.get("app.kubernetes.io/component") == "broker" and labels.get("kafkalite.io/cluster") == "kafkalite":
        return key.removesuffix(name) + name.removeprefix("kafkalite-")
    return key
