"""A thin Kubernetes client: hard deadlines, compare-and-swap writes, watches that notice silence."""

from kafkalite_runtime.kube.client import KubeClient, KubeList, WatchEvent
from kafkalite_runtime.kube.errors import (
    KubeConflict,
    KubeError,
    KubeForbidden,
    KubeGone,
    KubeInvalid,
    KubeNotFound,
    KubeThrottled,
    KubeUnauthorized,
    KubeUnavailable,
)
from kafkalite_runtime.kube.events import EventRecorder
from kafkalite_runtime.kube.kinds import (
    BROKERS,
    CLUSTERS,
    CONFIG_MAPS,
    EVENTS,
    LEASES,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    POD_DISRUPTION_BUDGETS,
    PODS,
    SERVICES,
    STATEFUL_SETS,
    TOPICS,
    Kind,
)
from kafkalite_runtime.kube.reflector import Reflector

__all__ = [
    "BROKERS",
    "CLUSTERS",
    "CONFIG_MAPS",
    "EVENTS",
    "LEASES",
    "NODES",
    "PERSISTENT_VOLUME_CLAIMS",
    "PODS",
    "POD_DISRUPTION_BUDGETS",
    "SERVICES",
    "STATEFUL_SETS",
    "TOPICS",
    "EventRecorder",
    "Kind",
    "KubeClient",
    "KubeConflict",
    "KubeError",
    "KubeForbidden",
    "KubeGone",
    "KubeInvalid",
    "KubeList",
    "KubeNotFound",
    "KubeThrottled",
    "KubeUnauthorized",
    "KubeUnavailable",
    "Reflector",
    "WatchEvent",
]
