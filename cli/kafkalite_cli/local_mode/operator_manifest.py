"""The operator as a static pod of the local kubelet."""

import json
from typing import Any

import yaml

from kafkalite_runtime.home import Home, Ports, write_atomically

NAMESPACE = "default"
BROKERS = 3


def default_cluster(ports: Ports) -> dict[str, Any]:
    """Spec of the KafkaLiteCluster that the operator makes for topics without one."""
    return {
        "replicas": BROKERS,
        "storage": {"size": "10Gi"},
        "listeners": [{"name": "plain", "type": "hostport", "port": ports.base, "host": "127.0.0.1"}],
        "metrics": {"port": ports.broker_metrics(0)},
    }


def operator_pod(ports: Ports) -> dict[str, Any]:
    """The manifest."""
    ready = {"path": "/readyz", "port": ports.operator_metrics}
    # /healthz looks at the event loop alone: an API server that is away for minutes restarts no operator.
    healthy = {"path": "/healthz", "port": ports.operator_metrics}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "kafkalite-operator",
            "namespace": NAMESPACE,
            "labels": {"app.kubernetes.io/name": "kafkalite", "app.kubernetes.io/component": "operator"},
        },
        "spec": {
            "hostNetwork": True,
            "terminationGracePeriodSeconds": 10,
            "containers": [
                {
                    "name": "operator",
                    "image": "kafkalite-operator",
                    "command": ["kafkalite-operator"],
                    "env": [
                        {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                        # With its uid the operator knows its own Lease again after a restart and need not wait for it.
                        {"name": "POD_UID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}},
                        {"name": "POD_NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}},
                        {"name": "KAFKALITE_OPERATOR_NAMESPACE", "value": NAMESPACE},
                        {"name": "KAFKALITE_METRICS_HOST", "value": "127.0.0.1"},
                        {"name": "KAFKALITE_METRICS_PORT", "value": str(ports.operator_metrics)},
                        {"name": "KAFKALITE_DEFAULT_CLUSTER", "value": json.dumps(default_cluster(ports))},
                    ],
                    "readinessProbe": {"httpGet": ready, "periodSeconds": 2},
                    "livenessProbe": {
                        "httpGet": healthy,
                        "initialDelaySeconds": 10,
                        "periodSeconds": 5,
                        "timeoutSeconds": 3,
                        "failureThreshold": 3,
                    },
                }
            ],
        },
    }


def write_operator_manifest(home: Home, ports: Ports) -> None:
    """Put it where the kubelet looks."""
    text = yaml.safe_dump(operator_pod(ports), sort_keys=False)
    write_atomically(home.manifests / "operator.yaml", text.encode())
