"""Which operator acts (a Lease), and its reading of the brokers' Leases: thin twins of the operator's own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkalite_core.controller.snapshot import LeaseView
from kafkalite_core.membership.lease import LeaseObserver
from kafkalite_core.resources.leases import LeaseRecord, parse_lease, render_lease
from kafkalite_core.resources.naming import OPERATOR_LEASE
from tests.simulation.api import Outcome

if TYPE_CHECKING:
    from tests.simulation.operator import Operator

LEASE_DURATION_S = 5
RENEW_DEADLINE_S = 3.0
RETRY_MS = 1000.0
GAP_S = 2.5
GRACE_S = 60.0
NEVER_READ = LeaseView(holder="", changed_at=0.0)


class Elector:
    """Holds, or tries to get, the operators' Lease."""

    def __init__(self, operator: Operator) -> None:
        self._operator = operator
        self._renewed_s: float | None = None
        self._observed: tuple[str, str, str] | None = None
        self._observed_s = 0.0
        self.terms = 0

    def held(self) -> bool:
        """Whether this process may act now."""
        return self._renewed_s is not None and self._operator.now_s() - self._renewed_s < RENEW_DEADLINE_S

    def turn(self) -> None:
        """One attempt to acquire or to renew."""
        operator = self._operator
        if self._renewed_s is not None and not self.held():
            self._lose()
        operator.call("get", "leases", OPERATOR_LEASE, answer=self._read)
        operator.after(RETRY_MS * (0.8 + 0.2 * operator.chance()), self.turn)

    def _read(self, outcome: Outcome, result: Any) -> None:
        operator = self._operator
        if outcome not in {Outcome.OK, Outcome.NOT_FOUND}:
            return
        record = parse_lease(result) if outcome is Outcome.OK else None
        if record is not None and not self._may_write(record):
            if self._renewed_s is not None:
                self._lose()
            return
        started_s = operator.now_s()
        body = self._render(record)
        verb = ("create", "leases", body) if record is None else ("replace", "leases", OPERATOR_LEASE, body)

        def wrote(outcome: Outcome, _result: Any) -> None:
            if outcome is Outcome.OK:
                if not self.held():
                    self.terms += 1
                    operator.trace(f"holds the lease, term {self.terms}")
                self._renewed_s = started_s
                operator.wake()

        operator.call(*verb, answer=wrote)

    def _may_write(self, record: LeaseRecord) -> bool:
        if record.signature != self._observed:
            self._observed = record.signature
            self._observed_s = self._operator.now_s()
        if record.holder in {"", self._operator.identity}:
            return True
        return self._operator.now_s() - self._observed_s > max(record.duration_s, 1)

    def _render(self, record: LeaseRecord | None) -> dict[str, Any]:
        operator = self._operator
        stamp = operator.host.clock.stamp(operator.world.now, operator.world.events)
        mine = record is not None and record.holder == operator.identity
        return render_lease(
            "default",
            OPERATOR_LEASE,
            holder=operator.identity,
            renewed=stamp,
            acquired=stamp,
            duration_s=LEASE_DURATION_S,
            transitions=0 if record is None else record.transitions + (0 if mine else 1),
            resource_version="" if record is None else record.resource_version,
        )

    def _lose(self) -> None:
        self._operator.trace("lost the lease")
        self._renewed_s = None


class LeaseReader:
    """Reads the brokers' Leases every second; a gap makes all of them fresh (R16)."""

    def __init__(self, operator: Operator) -> None:
        self._operator = operator
        self._observer = LeaseObserver(gap_s=GAP_S, grace_s=GRACE_S)

    def observing_since(self) -> float | None:
        """Since when Leases have been read without a gap; None when the last read is too old."""
        return self._observer.since_s(now_s=self._operator.now_s())

    def unheard_until(self) -> float:
        """Until when the silence of brokers that were not heard since then counts for nothing."""
        return self._observer.unheard_until_s

    def turn(self) -> None:
        """One consistent read."""
        self._operator.call("list", "leases", answer=self._listed)
        self._operator.after(RETRY_MS, self.turn)

    def _listed(self, outcome: Outcome, result: Any) -> None:
        operator = self._operator
        if outcome is Outcome.OK:
            now_s = operator.now_s()
            records = [parse_lease(item) for item in result[0]]
            justice = operator.host.cluster.oracles.justice
            justice.read(operator.identity, {record.name: record.signature for record in records}, now_s)
            self._observer.read({record.name: record.signature for record in records}, now_s=now_s)
            for record in records:
                changed_s = self._observer.changed_s(record.name)
                assert changed_s is not None
                before = operator.store.leases.get(record.name, NEVER_READ)
                operator.store.leases[record.name] = before.followed_by(record, changed_at=changed_s, now=now_s)
        operator.wake()
