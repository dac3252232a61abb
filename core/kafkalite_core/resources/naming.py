"""Names of objects, labels and annotations."""

from __future__ import annotations

import hashlib
import re
from typing import Final

from kafkalite_core.model.limits import TOPIC_NAME_LENGTH_MAX

GROUP: Final = "kafkalite.io"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"
TOPIC_KIND: Final = "KafkaLiteTopic"
CLUSTER_KIND: Final = "KafkaLiteCluster"
BROKER_KIND: Final = "KafkaLiteBroker"

LABEL_NAME: Final = "app.kubernetes.io/name"
LABEL_COMPONENT: Final = "app.kubernetes.io/component"
LABEL_CLUSTER: Final = "kafkalite.io/cluster"
LABEL_BROKER_ID: Final = "kafkalite.io/broker-id"
LABEL_LISTENER: Final = "kafkalite.io/listener"
"""On Services of listeners that clients outside the cluster use: the listener's name."""
ANNOTATION_RACK: Final = "kafkalite.io/rack"
"""On a broker's pod, by the operator: the rack, copied from its node; `-` when the node has none."""
ANNOTATION_PAUSED: Final = "kafkalite.io/paused"
ANNOTATION_ADOPT: Final = "kafkalite.io/adopt-strays"
"""On a new topic. `"true"`: take over what brokers still hold of a topic of that name, even if it was deleted on
purpose; `"false"`: start empty in any case. Without it data of a deleted topic are left alone, lost ones taken (S10).
"""
ANNOTATION_CREATION_ID: Final = "kafkalite.io/creation-id"
"""Random, on topics made through the Kafka API: a broker whose answer was lost knows its own object by it."""
ANNOTATION_ELECT_PREFERRED: Final = "kafkalite.io/elect-preferred"
"""Partition numbers, or `all`: give the leadership to the first replica, once; the operator removes it when done."""
ANNOTATION_ELECT_UNCLEAN: Final = "kafkalite.io/elect-unclean"
"""As above: elect a replica that may lack acknowledged records where there is no leader, once."""
ANNOTATION_RECOVER_STORE: Final = "kafkalite.io/recover-store"
"""On a topic, `"true"`: after the store went back in time go on with the replicas that are there (S11). What only the
others have is lost.
"""
ANNOTATION_REPLACE: Final = "kafkalite.io/replace"
"""On a `KafkaLiteBroker`, `"true"`: its node or its volume is gone for good. The operator gives it a new volume, once
that loses nothing, and removes the annotation.
"""
ANNOTATION_NOTICED: Final = "kafkalite.io/noticed-topics"
ANNOTATION_FLUSHED: Final = "kafkalite.io/flushed-topics"
"""On a broker's Lease, by the broker: uids of topics without a place that it has seen, with commas between, while its
status tells all that it has set aside (S10). A version that does not say so leaves it out.
"""
ANNOTATION_HASH: Final = "kafkalite.io/applied-hash"
ANNOTATION_APPLIED: Final = "kafkalite.io/applied-annotations"
"""Names of the user's annotations on a Service, with commas between: what is not wanted any more is removed by it."""
ANNOTATION_REVISION: Final = "kafkalite.io/revision"
"""On pods: what they were made of, see `statefulset.revision`; `resizing.why_restart` reads it."""
BROKER_CONTAINER: Final = "broker"
OPERATOR_LEASE: Final = "kafkalite-operator"

OBJECT_NAME_LENGTH_MAX: Final = 253
_OBJECT_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
_LABEL_OF_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]+")
_BROKER_ID = re.compile(r"0|[1-9][0-9]{0,8}")
_DIGEST_HEX_DIGITS: Final = 8


def is_object_name(name: str) -> bool:
    """Whether Kubernetes takes it as `metadata.name` (RFC 1123 subdomain)."""
    return (
        0 < len(name) <= OBJECT_NAME_LENGTH_MAX
        and _OBJECT_NAME.fullmatch(name) is not None
        and all(_LABEL_OF_NAME.fullmatch(label) is not None for label in name.split("."))
    )


def is_topic_name(name: str) -> bool:
    """Whether Kafka takes it as a topic name: letters, digits, `.`, `_`, `-`, at most 249, not `.` or `..`."""
    return len(name) <= TOPIC_NAME_LENGTH_MAX and name not in {".", ".."} and _TOPIC_NAME.fullmatch(name) is not None


def topic_object_name(topic_name: str) -> str:
    """`metadata.name` of the object for a topic: its own name, or a slug plus 8 hex digits of its SHA-256.

    Two topics get one name only if they are equal: a slug always ends in the digest, and a topic whose own name looks
    like such a slug differs from it in the digest with overwhelming likelihood.
    """
    return topic_name if is_object_name(topic_name) else topic_slug(topic_name)


def topic_object_names(topic_name: str, cluster: str) -> tuple[str, ...]:
    """The names that the object of a topic may have, the best first: they are taken by objects of other topics when
    somebody chose `metadata.name` freely, or when another cluster in the namespace has a topic of that name.
    """
    names = (topic_object_name(topic_name), topic_slug(topic_name), topic_slug(topic_name, f"{cluster}/{topic_name}"))
    return tuple(dict.fromkeys(names))


def topic_slug(topic_name: str, digested: str = "") -> str:
    """A slug of the name with the digest of `digested` (default: of the name itself)."""
    digest = hashlib.sha256((digested or topic_name).encode()).hexdigest()[:_DIGEST_HEX_DIGITS]
    slug = re.sub(r"[^a-z0-9]+", "-", topic_name.lower()).strip("-")
    slug = slug[: OBJECT_NAME_LENGTH_MAX - _DIGEST_HEX_DIGITS - 1].strip("-")
    return f"{slug}-{digest}" if slug else f"topic-{digest}"


def stateful_set_name(cluster: str) -> str:
    """Name of the StatefulSet and of the PodDisruptionBudget."""
    return f"{cluster}-broker"


def broker_name(cluster: str, broker_id: int) -> str:
    """Name of a broker's pod, Service, Lease and `KafkaLiteBroker`."""
    return f"{cluster}-broker-{broker_id}"


def is_broker_name(name: str) -> bool:
    """Whether `broker_name` may have made it, of some cluster."""
    cluster, separator, digits = name.rpartition("-broker-")
    return bool(cluster and separator) and _BROKER_ID.fullmatch(digits) is not None


def data_claim_name(cluster: str, broker_id: int) -> str:
    """Name of the PersistentVolumeClaim that a StatefulSet makes for a broker's data."""
    return f"data-{broker_name(cluster, broker_id)}"


def headless_service_name(cluster: str) -> str:
    """Name of the headless Service."""
    return f"{cluster}-brokers"


def bootstrap_service_name(cluster: str) -> str:
    """Name of the bootstrap Service."""
    return f"{cluster}-bootstrap"


def listener_service_name(cluster: str, listener: str, broker_id: int | None = None) -> str:
    """Name of the Service that leads clients of a listener to one broker, or to any (`broker_id` None)."""
    base = bootstrap_service_name(cluster) if broker_id is None else broker_name(cluster, broker_id)
    return f"{base}-{listener}"


def config_map_name(cluster: str) -> str:
    """Name of the ConfigMap with `broker.json`."""
    return f"{cluster}-config"


def identity_name(cluster: str) -> str:
    """Name of the ConfigMap that keeps the cluster's id."""
    return f"{cluster}-identity"


def broker_id_of(cluster: str, name: str) -> int | None:
    """The broker id in the name of a pod, Lease or `KafkaLiteBroker`; None when it is not one of that cluster."""
    prefix = f"{stateful_set_name(cluster)}-"
    digits = name.removeprefix(prefix)
    if not name.startswith(prefix) or _BROKER_ID.fullmatch(digits) is None:
        return None
    return int(digits)


def broker_labels(cluster: str, broker_id: int | None = None) -> dict[str, str]:
    """Labels of everything that belongs to a cluster's brokers."""
    labels = {LABEL_NAME: "kafkalite", LABEL_COMPONENT: "broker", LABEL_CLUSTER: cluster}
    return labels if broker_id is None else {**labels, LABEL_BROKER_ID: str(broker_id)}


def annotation_path(name: str) -> str:
    """JSON Pointer (RFC 6901) of an annotation."""
    return f"/metadata/annotations/{name.replace('~', '~0').replace('/', '~1')}"
