"""Says of a cluster that its brokers' Leases may not be read: then nobody notices that a broker hangs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalite_core.model.topic import Condition
from kafkalite_core.resources.conditions import parse_conditions

if TYPE_CHECKING:
    from kafkalite_core.resources.manifests import ClusterSettings
    from kafkalite_operator.cluster_status import ClusterStatus
    from kafkalite_operator.lease_reader import LeaseReader

CONDITION = "LeasesRead"
READ = Condition(type=CONDITION, status="True", reason="Read", message="they are read every second")


class UnreadLeases:
    """See the module. Nothing is said of a cluster whose Leases could always be read."""

    def __init__(self, leases: LeaseReader, status: ClusterStatus) -> None:
        self._leases = leases
        self._status = status

    def due(self, settings: ClusterSettings) -> bool:
        """Whether the condition is not what it should be."""
        wanted = self._wanted(settings)
        return wanted is not None and wanted not in parse_conditions(self._status.of(settings))

    async def tell(self, settings: ClusterSettings) -> None:
        """Make it so. Raises errors of the client."""
        await self._status.write(settings, condition=self._wanted(settings))

    def _wanted(self, settings: ClusterSettings) -> Condition | None:
        namespace = settings.cluster.namespace
        why = self._leases.refused(namespace)
        if why:
            message = (
                "a broker that hangs is not noticed, only one whose container ends, and what waits for signs of life "
                f"waits: the operator may not read the Leases of namespace {namespace} ({why}); name it in "
                "brokers.namespaces of the chart, or give the operator the Role of helm/manifests there"
            )
            return Condition(type=CONDITION, status="False", reason="LeasesNotRead", message=message)
        told = self._status.has_condition(settings, CONDITION)
        return READ if told and self._leases.observing_since(namespace) is not None else None
