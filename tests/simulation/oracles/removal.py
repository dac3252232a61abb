"""Nobody is scaled away who has a replica."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.parsed import topic_of
from tests.simulation.world import Violation

if TYPE_CHECKING:
    from tests.simulation.api import ApiServer


class Removals:
    """Asked when the StatefulSet becomes smaller; looks at what the store has, not at what an operator believes."""

    def pod_ends(self, api: ApiServer, broker_id: int) -> None:
        """The pod of that broker is about to end. Raises `Violation`."""
        for obj in api.objects["topics"].values():
            for number, entry in topic_of(obj).partitions.items():
                if broker_id in entry.replicas:
                    name = obj["metadata"]["name"]
                    raise Violation("no broker with replicas is removed", f"{name}-{number} is on {broker_id}: {entry}")
