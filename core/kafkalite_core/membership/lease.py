"""Leases: judged by an observer, renewed by a holder. A lease is liveness, never safety.

Theorem of the observer: a holder is called silent for t seconds only if the observer itself, by its own monotonic
clock, spent t seconds in which it could read the lease and saw no change. So no clock of another host is ever
compared (threat 10), and a time in which nobody could read or renew counts for nobody (R16, threat 7).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from kafkalite_core.model.cluster import Broker


class LeaseObserver:
    """What one observer learns of Leases, each of its reads showing all of them.

    Signs of life are the first sight of a Lease and every change of its signature. A holder has been silent since the
    later one of its last sign (`changed_s`) and the begin of the reads without a gap (`since_s`): nobody could see a
    renewal in a gap, and perhaps nobody could make one.

    Args:
        gap_s: Two reads further apart than this leave a gap between them. The time that an answer took is none.
        grace_s: So long after a gap, but not longer than twice the gap, holders may still be cut off: an API server
            that comes back is not reached from every node in one moment. Whoever asks for it with pauses that double,
            each made longer by up to its own length, waits at most twice the time that it was away.
            Until a holder was heard again, that time counts for nobody either (`unheard_until_s`).
    """

    __slots__ = ("_gap_s", "_grace_s", "_read_s", "_seen", "_since_s", "_unheard_until_s")

    def __init__(self, *, gap_s: float, grace_s: float = 0.0) -> None:
        self._gap_s = gap_s
        self._grace_s = grace_s
        self._seen: dict[str, tuple[Hashable, float]] = {}
        self._since_s = 0.0
        self._unheard_until_s = 0.0
        self._read_s: float | None = None

    def read(self, signatures: Mapping[str, Hashable], *, now_s: float, asked_s: float | None = None) -> None:
        """A successful read, at `now_s` of the observer's monotonic clock; a Lease that it lacks is forgotten.

        A signature changes with every renewal and is only compared for equality. `asked_s`: when the read was begun, by
        an observer that has only one under way; None: nothing is known of what the API server did before `now_s`.
        """
        begun_s = now_s if asked_s is None else asked_s
        gap_s = 0.0 if self._read_s is None else begun_s - self._read_s
        if self._read_s is None or gap_s > self._gap_s:
            self._since_s = now_s
            # A server that has just come back may falter: the second, short gap takes nothing of the first one's time.
            self._unheard_until_s = max(self._unheard_until_s, now_s + min(2.0 * gap_s, self._grace_s))
        self._read_s = now_s
        for name, signature in signatures.items():
            known = self._seen.get(name)
            if known is None or known[0] != signature:
                self._seen[name] = (signature, now_s)
        for name in [name for name in self._seen if name not in signatures]:
            del self._seen[name]

    def since_s(self, *, now_s: float) -> float | None:
        """Since when Leases have been read without a gap; None while the last read is too long ago, or without one."""
        if self._read_s is None or now_s - self._read_s > self._gap_s:
            return None
        return self._since_s

    @property
    def unheard_until_s(self) -> float:
        """Until when the silence of a holder that was not heard since `since_s` counts for nothing."""
        return self._unheard_until_s

    def changed_s(self, name: str) -> float | None:
        """When the holder of a Lease last gave a sign of life; None for a Lease that was not in the last read."""
        known = self._seen.get(name)
        return None if known is None else known[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class RenewalVerdict:
    """Whether the holder should renew now, and why (not)."""

    renew: bool
    reason: str


def may_take(registered: Broker | None, incarnation: str) -> bool:
    """Whether an incarnation may take its broker's Lease from another holder.

    `registered`: the broker's object as a consistent read shows it, None when it does not exist. That read begins after
    the Lease was read whose version the write tests: who registers later takes the Lease later, and that version is
    gone then. So nobody takes it back from a successor, whatever it remembers: one that still runs although its pod is
    deleted, whose own write had no answer, or who comes to it late.
    """
    registration = None if registered is None else registered.registration
    return registration is not None and registration.incarnation == incarnation


def plan_renewal(
    *,
    broker_epoch: int,
    lease_duration_s: float,
    main_loop_age_s: float,
    oldest_flush_age_s: float,
) -> RenewalVerdict:
    """Whether a broker may claim to be alive: it is registered, its main loop ticks and its disk answers.

    Args:
        broker_epoch: Registered broker epoch, -1 for none: a Lease is renewed only after registration.
        lease_duration_s: Of the cluster.
        main_loop_age_s: Time since the main loop ticked last.
        oldest_flush_age_s: Age of the oldest flush that has not ended; 0 for none.
    """
    if broker_epoch < 0:
        return RenewalVerdict(renew=False, reason="not registered")
    if main_loop_age_s > lease_duration_s:
        return RenewalVerdict(renew=False, reason=f"the main loop has not ticked for {main_loop_age_s:.1f} s")
    if oldest_flush_age_s > lease_duration_s:
        return RenewalVerdict(renew=False, reason=f"a flush has been running for {oldest_flush_age_s:.1f} s")
    return RenewalVerdict(renew=True, reason="registered, main loop and disk answer")
