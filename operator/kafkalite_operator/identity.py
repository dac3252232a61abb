"""The id of a cluster that was made before: it outlives its object, as the volumes do.

A data directory names the cluster that it belongs to, and is refused by brokers of another one. So a cluster that was
deleted, by itself or with its definition, and is made again gets the id that it had.
"""

from __future__ import annotations

import re
import uuid
from base64 import urlsafe_b64encode
from typing import TYPE_CHECKING

from kafkalite_core.resources import naming
from kafkalite_core.resources.manifests import CLUSTER_ID
from kafkalite_runtime.kube.errors import KubeNotFound
from kafkalite_runtime.kube.kinds import CONFIG_MAPS
from kafkalite_runtime.logging import get_logger

if TYPE_CHECKING:
    from kafkalite_core.model.cluster import Cluster
    from kafkalite_runtime.kube.client import KubeClient

CALL_DEADLINE_S = 3.0
_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_log = get_logger(__name__)


def new_cluster_id() -> str:
    """22 characters, as Kafka's own ids."""
    return urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")


async def cluster_id_for(client: KubeClient, cluster: Cluster) -> str:
    """The id that a cluster without one gets: that of the earlier cluster of its name, else a new one.

    Raises errors of the client: it must not get a new id because an old one could not be read just now.
    """
    name = naming.identity_name(cluster.name)
    try:
        found = await client.get(CONFIG_MAPS, cluster.namespace, name, deadline_s=CALL_DEADLINE_S)
    except KubeNotFound:
        return new_cluster_id()
    known = (found.get("data") or {}).get(CLUSTER_ID)
    if not isinstance(known, str) or not _ID.fullmatch(known):
        _log.warning("identity not understood, the cluster gets a new one", name=name, found=known)
        return new_cluster_id()
    _log.info("the cluster was here before", cluster=cluster.name, namespace=cluster.namespace, cluster_id=known)
    return known
