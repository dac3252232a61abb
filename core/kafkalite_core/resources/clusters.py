"""`KafkaLiteCluster`: JSON -> model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkalite_core.model.cluster import Cluster
from kafkalite_core.resources.fields import Fields, open_object
from kafkalite_core.resources.listeners import parse_endpoints
from kafkalite_core.resources.naming import ANNOTATION_PAUSED

if TYPE_CHECKING:
    from collections.abc import Mapping

DEFAULT_METRICS_PORT = 9404


def parse_cluster(obj: Mapping[str, Any]) -> Cluster:
    """The parts of a cluster that rules look at.

    `cluster_id` is empty until the operator has written the first status; until then no broker epoch can be drawn.

    Raises:
        ResourceError: the object cannot be understood.
    """
    fields, metadata = open_object(obj)
    spec = fields.map("spec")
    status = fields.map("status")
    detection = spec.map("failureDetection")
    rolling = spec.map("rolling")
    return Cluster(
        namespace=metadata.text("namespace", ""),
        name=metadata.text("name"),
        uid=metadata.text("uid", ""),
        cluster_id=status.text("clusterId", ""),
        replicas=spec.integer("replicas", 3),
        config=spec.texts("config"),
        controller_epoch=status.map("controller").integer("epoch", 0),
        controller_holder=status.map("controller").text("holder", ""),
        next_broker_epoch=status.integer("nextBrokerEpoch", 1),
        next_producer_id=status.integer("nextProducerId", 0),
        lease_duration_s=detection.number("leaseDurationSeconds", 5.0),
        renew_interval_s=detection.number("renewIntervalSeconds", 1.0),
        paused=is_paused(metadata),
        deleting=metadata.has("deletionTimestamp"),
        endpoints=parse_endpoints(status),
        max_unavailable=rolling.integer("maxUnavailable") if rolling.has("maxUnavailable") else None,
        node_loss=spec.text("nodeLoss", "wait"),
        node_loss_s=spec.number("nodeLossSeconds", 300.0),
        generation=metadata.integer("generation", 0),
    )


def is_paused(metadata: Fields) -> bool:
    """Whether the annotation `kafkalite.io/paused` says true."""
    return metadata.map("annotations").texts_or_empty().get(ANNOTATION_PAUSED, "").lower() == "true"
