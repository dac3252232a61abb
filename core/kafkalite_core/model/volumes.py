"""Volumes of brokers, as rules look at them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Volume:
    """The PersistentVolumeClaim of one broker. Sizes are quantities as Kubernetes writes them, such as `10Gi`.

    Attributes:
        name: `metadata.name`.
        uid: `metadata.uid`.
        requested: `spec.resources.requests.storage`.
        capacity: `status.capacity.storage`; empty before it is bound.
        refused: Why the API server did not take a greater size; empty when it did.
        node: The node that the scheduler chose for it (`volume.kubernetes.io/selected-node`), or the empty string.
        last_node: The node that its pod was last seen on, as far as is remembered.
        lost: Its phase is `Lost`: the volume behind it is gone.
        deleting: It has a deletion timestamp.
        resizing: What the volume's own conditions say of a growth under way, or the empty string.
    """

    name: str
    uid: str
    requested: str
    capacity: str = ""
    refused: str = ""
    resizing: str = ""
    node: str = ""
    last_node: str = ""
    lost: bool = False
    deleting: bool = False
