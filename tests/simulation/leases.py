"""The renewal of a broker's Lease, on a thread of its own: only a stopped process, or a hung one, falls silent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkalite_core.membership.lease import may_take
from kafkalite_core.resources.leases import parse_lease, render_lease, told_annotations, told_operations
from tests.simulation.api import Outcome
from tests.simulation.parsed import broker_of

if TYPE_CHECKING:
    from tests.simulation.broker import Broker


class LeaseRenewer:
    """Renews every second while the broker is registered, its loop ticks and its disk answers."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def turn(self) -> None:
        """One look, and a renewal if all is well."""
        broker = self._broker
        cluster = broker.link.cluster
        assert cluster is not None
        if broker.may_renew(cluster.lease_duration_s):
            operations = [
                {"op": "test", "path": "/spec/holderIdentity", "value": broker.incarnation},
                {"op": "add", "path": "/spec/renewTime", "value": self._stamp()},
                *told_operations(noticed=broker.link.notice.uids, flushed=broker.link.flushed.tokens),
            ]
            broker.call("patch", "leases", broker.host.object_name, operations, answer=self._renewed)
        broker.after(cluster.renew_interval_s * 1000.0 * (0.9 + 0.1 * broker.chance()), self.turn)

    def _stamp(self) -> str:
        world = self._broker.world
        return self._broker.host.clock.stamp(world.now, world.events)

    def _renewed(self, outcome: Outcome, _result: Any) -> None:
        broker = self._broker
        if outcome is Outcome.NOT_FOUND:
            broker.call("create", "leases", self._render(0, ""), answer=self._ignore)
        elif outcome is Outcome.INVALID:
            broker.call("get", "leases", broker.host.object_name, answer=self._take_over)

    def _take_over(self, outcome: Outcome, result: Any) -> None:
        if outcome is not Outcome.OK:
            return
        broker, found = self._broker, parse_lease(result)

        def read(outcome: Outcome, result: Any) -> None:
            if outcome is not Outcome.OK or not may_take(broker_of(result), broker.incarnation):
                return
            body = self._render(found.transitions + 1, found.resource_version)
            broker.call("replace", "leases", broker.host.object_name, body, answer=self._ignore)

        if found.holder == broker.incarnation:  # an earlier write had no answer
            return
        broker.call("get", "brokers", broker.host.object_name, answer=read)

    def _ignore(self, _outcome: Outcome, _result: Any) -> None:
        """The next turn sees what came of it."""

    def _render(self, transitions: int, resource_version: str) -> dict[str, Any]:
        stamp, link = self._stamp(), self._broker.link
        return render_lease(
            "default",
            self._broker.host.object_name,
            holder=self._broker.incarnation,
            renewed=stamp,
            acquired=stamp,
            duration_s=5,
            transitions=transitions,
            resource_version=resource_version,
            annotations=told_annotations(noticed=link.notice.uids, flushed=link.flushed.tokens),
        )
