"""Parsed objects, one for each version: objects and what they mean are never changed, so all nodes share them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalite_core.membership.metadata_cache import Sighting
from kafkalite_core.resources.brokers import parse_broker
from kafkalite_core.resources.clusters import parse_cluster
from kafkalite_core.resources.topics import parse_topic

if TYPE_CHECKING:
    from kafkalite_core.model.cluster import Broker, Cluster
    from kafkalite_core.model.partition import Topic
    from tests.simulation.patching import Json

KEPT_MAX = 256

_topics: dict[int, tuple[Json, Topic]] = {}
_brokers: dict[int, tuple[Json, Broker]] = {}
_clusters: dict[int, tuple[Json, Cluster]] = {}


def topic_of(obj: Json) -> Topic:
    """The topic that an object describes."""
    known = _topics.get(id(obj))
    if known is None or known[0] is not obj:
        if len(_topics) > KEPT_MAX:
            _topics.clear()
        known = _topics[id(obj)] = (obj, parse_topic(obj))
    return known[1]


def broker_of(obj: Json) -> Broker:
    """The broker that an object describes."""
    known = _brokers.get(id(obj))
    if known is None or known[0] is not obj:
        if len(_brokers) > KEPT_MAX:
            _brokers.clear()
        known = _brokers[id(obj)] = (obj, parse_broker(obj))
    return known[1]


def cluster_of(obj: Json) -> Cluster:
    """The cluster that an object describes."""
    known = _clusters.get(id(obj))
    if known is None or known[0] is not obj:
        if len(_clusters) > KEPT_MAX:
            _clusters.clear()
        known = _clusters[id(obj)] = (obj, parse_cluster(obj))
    return known[1]


def topic_sighting(obj: Json) -> Sighting[Topic]:
    """For the metadata cache."""
    metadata = obj["metadata"]
    return Sighting(
        value=topic_of(obj), resource_version=metadata["resourceVersion"], created=metadata["creationTimestamp"]
    )


def broker_sighting(obj: Json) -> Sighting[Broker]:
    """For the metadata cache."""
    metadata = obj["metadata"]
    return Sighting(
        value=broker_of(obj), resource_version=metadata["resourceVersion"], created=metadata["creationTimestamp"]
    )
