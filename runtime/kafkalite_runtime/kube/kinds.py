"""The resources that KafkaLite reads and writes."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Kind:
    """A resource type: where it lives in the REST API and what its objects call themselves."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """`apiVersion` of its objects."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str | None = None, name: str = "", subresource: str = "") -> str:
        """URL path of the collection (no name), the object, or its subresource; None means all namespaces."""
        assert not subresource or name, "a subresource belongs to a named object"
        assert not (name and self.namespaced and not namespace), f"{self.plural} {name}: a namespace is needed"
        parts = ["/apis", self.group, self.version] if self.group else ["/api", self.version]
        if self.namespaced and namespace:
            parts += ["namespaces", namespace]
        parts += [part for part in (self.plural, name, subresource) if part]
        return "/".join(parts)


TOPICS = Kind("kafkalite.io", "v1alpha1", "kafkalitetopics", "KafkaLiteTopic")
CLUSTERS = Kind("kafkalite.io", "v1alpha1", "kafkaliteclusters", "KafkaLiteCluster")
BROKERS = Kind("kafkalite.io", "v1alpha1", "kafkalitebrokers", "KafkaLiteBroker")
LEASES = Kind("coordination.k8s.io", "v1", "leases", "Lease")
STATEFUL_SETS = Kind("apps", "v1", "statefulsets", "StatefulSet")
POD_DISRUPTION_BUDGETS = Kind("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")
PODS = Kind("", "v1", "pods", "Pod")
SERVICES = Kind("", "v1", "services", "Service")
CONFIG_MAPS = Kind("", "v1", "configmaps", "ConfigMap")
EVENTS = Kind("", "v1", "events", "Event")
PERSISTENT_VOLUME_CLAIMS = Kind("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")
NODES = Kind("", "v1", "nodes", "Node", namespaced=False)
