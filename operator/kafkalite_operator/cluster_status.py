"""Parts of a cluster's status that no plan depends on: `status.listeners` and conditions of their own."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from kafkalite_core.resources import patches
from kafkalite_core.resources.conditions import parse_conditions, set_condition
from kafkalite_runtime.kube.kinds import CLUSTERS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kafkalite_core.model.topic import Condition
    from kafkalite_core.resources.manifests import ClusterSettings
    from kafkalite_operator.executor import Executor
    from kafkalite_operator.store import Store
    from kafkalite_runtime.kube.events import EventRecorder


class ClusterStatus:
    """Writes them by compare-and-swap, and only when something is different."""

    def __init__(self, executor: Executor, store: Store, events: EventRecorder) -> None:
        self._executor = executor
        self._store = store
        self._events = events

    def of(self, settings: ClusterSettings) -> Mapping[str, Any]:
        """The status as it is."""
        obj = self._store.raw(CLUSTERS, settings.cluster.uid)
        status: Mapping[str, Any] = (obj or {}).get("status") or {}
        return status

    def has_condition(self, settings: ClusterSettings, type_: str) -> bool:
        """Whether there is a condition of that type."""
        return any(each.type == type_ for each in parse_conditions(self.of(settings)))

    async def write(
        self,
        settings: ClusterSettings,
        *,
        condition: Condition | None = None,
        without: Sequence[str] = (),
        fields: Mapping[str, Any] | None = None,
        quietly: bool = False,
    ) -> None:
        """Set a condition and fields, and take conditions away. Raises errors of the client.

        A condition becomes an Event as well, unless that is done `quietly`.
        """
        obj = self._store.raw(CLUSTERS, settings.cluster.uid)
        if obj is None:
            return
        status = obj.get("status") or {}
        listed: list[dict[str, Any]] = [each for each in status.get("conditions") or [] if each["type"] not in without]
        known = {each.type: each for each in parse_conditions(status)}
        changed = {name: value for name, value in (fields or {}).items() if status.get(name) != value}
        told = condition is None or known.get(condition.type) == condition
        if condition is not None and not told:
            now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            listed = set_condition(listed, condition, generation=int(obj["metadata"].get("generation", 0)), now=now)
        if not told or known.keys() & set(without):
            changed["conditions"] = listed
        if not changed:
            return
        operations = patches.status_summary(
            settings.cluster.uid,
            changed,
            resource_version=str(obj["metadata"]["resourceVersion"]),
            has_status=obj.get("status") is not None,
        )
        await self._executor.patch(CLUSTERS, settings.cluster.namespace, settings.cluster.name, operations)
        if condition is not None and not told and not quietly:
            type_ = "Normal" if condition.status == "True" else "Warning"
            self._events.record(obj, type_, condition.reason, f"{condition.type}: {condition.message}")
