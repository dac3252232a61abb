"""The table of values that the chart is rendered with: each optional thing on and off, and everything at once."""

from __future__ import annotations

from typing import Any

PEER = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "apps"}}}

EVERYTHING: dict[str, Any] = {
    "fullnameOverride": "kl",
    "commonLabels": {"team": "data"},
    "watchNamespaces": ["kafka", "orders"],
    "replicas": 3,
    "image": {"repository": "registry.example/kafkalite-operator", "tag": "0.2.0", "pullPolicy": "Always"},
    "imagePullSecrets": ["registry"],
    "logLevel": "debug",
    "logFormat": "text",
    "extraEnv": [
        {"name": "MALLOC_ARENA_MAX", "value": "2"},
        {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
    ],
    "podAnnotations": {"a/b": "true"},
    "podLabels": {"colour": "blue"},
    "nodeSelector": {"kubernetes.io/os": "linux"},
    "tolerations": [{"key": "dedicated", "operator": "Exists", "effect": "NoSchedule"}],
    "affinity": {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {
                    "topologyKey": "kubernetes.io/hostname",
                    "labelSelector": {"matchLabels": {"app.kubernetes.io/component": "operator"}},
                }
            ]
        }
    },
    "topologySpreadConstraints": [
        {"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule"}
    ],
    "priorityClassName": "system-cluster-critical",
    "podDisruptionBudget": {"maxUnavailable": "50%"},
    "serviceAccount": {"annotations": {"a/b": "c"}},
    "rbac": {"aggregateClusterRoles": True},
    "brokers": {
        "image": {"repository": "registry.example/kafkalite-broker", "digest": "sha256:" + "a" * 64},
        "serviceAccount": {"annotations": {"a/b": "c"}},
        "admissionPolicy": {"enabled": True},
    },
    "defaultCluster": {
        "spec": {
            "replicas": 5,
            "config": {"log.retention.bytes": "10737418240"},
            "rack": {"topologyKey": "topology.kubernetes.io/zone"},
            "storage": {"size": "100Gi", "storageClassName": "fast", "deleteClaim": False},
        }
    },
    "cluster": {"create": True, "name": "main", "spec": {"replicas": 3, "config": {"num.partitions": "6"}}},
    "topics": {
        "orders": {
            "partitions": 6,
            "replicas": 3,
            "config": {"min.insync.replicas": "2", "segment.bytes": "1073741824"},
        },
        "audit": {"clusterRef": {"name": "other"}},
    },
    "metrics": {
        "port": 9999,
        "service": {"annotations": {"a/b": "c"}},
        "serviceMonitor": {"enabled": True, "interval": "30s", "labels": {"release": "prometheus"}},
        "podMonitor": {"enabled": True, "interval": "15s", "labels": {"release": "prometheus"}},
        "prometheusRule": {
            "enabled": True,
            "labels": {"release": "prometheus"},
            "alertLabels": {"team": "data"},
            "alerts": {
                "KafkaLiteEventLoopLag": {"threshold": 0.5, "severity": "info", "for": "1h"},
                "KafkaLiteDiskFills": {"enabled": False},
            },
        },
        "dashboard": {"enabled": True, "labels": {"find": "me"}, "annotations": {"grafana_folder": "Kafka"}},
    },
    "networkPolicy": {
        "enabled": True,
        "metricsFrom": [PEER],
        "clientsFrom": [PEER],
        "listenerPorts": [9092, 9094],
        "apiServerCidrs": ["10.0.0.0/8"],
    },
}

NOTHING: dict[str, Any] = {
    "replicas": 1,
    "podDisruptionBudget": {"enabled": False},
    "serviceAccount": {"create": False, "name": "mine"},
    "rbac": {"create": False},
    "brokers": {"serviceAccount": {"create": False}},
    "crds": {"enabled": False},
    "defaultCluster": {"enabled": False},
    "metrics": {"service": {"enabled": False}},
}

LISTENERS = [
    {"name": "plain", "type": "internal", "port": 9092},
    {
        "name": "external",
        "type": "loadbalancer",
        "port": 9094,
        "configuration": {
            "advertisedHostTemplate": "kafka-{nodeId}.example.com",
            "annotations": {"external-dns.alpha.kubernetes.io/hostname": "kafka-{nodeId}.example.com"},
            "loadBalancerSourceRanges": ["192.0.2.0/24"],
        },
    },
    {
        "name": "nodes",
        "type": "nodeport",
        "port": 9095,
        "configuration": {"bootstrap": {"nodePort": 32100}, "brokers": [{"broker": 0, "nodePort": 32000}]},
    },
]

CASES: dict[str, dict[str, Any]] = {
    "defaults": {},
    "everything": EVERYTHING,
    "nothing": NOTHING,
    "other namespaces": {"watchNamespaces": ["a", "b"], "brokers": {"namespaces": ["b"]}},
    "all namespaces": {"watchAllNamespaces": True},
    "all namespaces, brokers in some": {"watchAllNamespaces": True, "brokers": {"namespaces": ["a", "b"]}},
    "no default cluster": {"defaultCluster": {"enabled": False}},
    "a cluster": {"cluster": {"create": True}},
    "topics": {"topics": {"a": {}, "b": {"partitions": 2, "replicas": 1}}},
    "a cluster and its topics": {"cluster": {"create": True}, "topics": {"a": {}, "b": {"replicas": 1}}},
    "service monitor": {"metrics": {"serviceMonitor": {"enabled": True}}},
    "pod monitor": {"metrics": {"podMonitor": {"enabled": True}}},
    "alerts": {"metrics": {name: {"enabled": True} for name in ("serviceMonitor", "podMonitor", "prometheusRule")}},
    "alerts without monitors": {
        "metrics": {"prometheusRule": {"enabled": True, "operatorSelector": 'job="o"', "brokerSelector": 'job="b"'}}
    },
    "external listeners": {"cluster": {"create": True, "spec": {"listeners": LISTENERS}}},
    "nodes may be read": {"rbac": {"readNodes": True}},
    "racks, all namespaces": {
        "watchAllNamespaces": True,
        "brokers": {"namespaces": ["a", "kafka"]},
        "cluster": {"create": True, "spec": {"rack": {"topologyKey": "topology.kubernetes.io/zone"}}},
    },
    "dashboard": {"metrics": {"dashboard": {"enabled": True}}},
    "network policies": {"networkPolicy": {"enabled": True}},
    "network policies with clients": {"networkPolicy": {"enabled": True, "clientsFrom": [PEER]}},
    "any uid, as OpenShift wants it": {"podSecurityContext": {"runAsUser": None, "runAsGroup": None}},
}
