"""Leases: judged by an observer, renewed by a holder. A lease is liveness, never safety.

Theorem of the observer: a holder is called silent for t seconds only if the observer itself, by its own monotonic
clock, spent t seconds in which it could read the lease and saw no change. So no clock of another host is ever
compared (threat 10), and a time in which nobody could read or renew counts for nobody (R16, threat 7).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

GAP_FRACTION = 0.5
"""Share of the lease duration; an observer that was blind for longer begins anew."""


@dataclass(slots=True)
class _Observation:
    signature: Hashable
    changed_s: float
    seen_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseVerdict:
    """Whether a holder is silent for too long, with the facts.

    Attributes:
        expired: The holder may be fenced.
        reason: A sentence with the inputs.
        silence_s: Observed silence; 0 for a lease that was never observed.
    """

    expired: bool
    reason: str
    silence_s: float


class LeaseObserver:
    """Judges leases by name. `now_s` is the observer's monotonic clock and never goes back.

    The first observation, a changed signature, and an observation after a blind time longer than half the lease
    duration count as fresh.
    """

    __slots__ = ("_observations",)

    def __init__(self) -> None:
        self._observations: dict[str, _Observation] = {}

    def observe(self, name: str, signature: Hashable, *, now_s: float, duration_s: float) -> None:
        """A successful read of the lease; `signature` changes with every renewal and is only compared for equality."""
        known = self._observations.get(name)
        if known is None or known.signature != signature or now_s - known.seen_s > duration_s * GAP_FRACTION:
            self._observations[name] = _Observation(signature, now_s, now_s)
            return
        known.seen_s = now_s

    def retain(self, names: Iterable[str]) -> None:
        """Forget every lease that is not named: it does not exist any more."""
        keep = set(names)
        for name in [name for name in self._observations if name not in keep]:
            del self._observations[name]

    def judge(self, name: str, *, duration_s: float) -> LeaseVerdict:
        """Whether the lease has expired, as of its last observation. A lease that was never observed has not."""
        known = self._observations.get(name)
        if known is None:
            return LeaseVerdict(expired=False, reason=f"lease {name} was never observed", silence_s=0.0)
        silence_s = known.seen_s - known.changed_s
        expired = silence_s > duration_s
        verb = "was not renewed" if expired else "was renewed"
        relation = "longer than" if expired else "within"
        reason = (
            f"lease {name} {verb} for {silence_s:.1f} s of observation, {relation} its duration of {duration_s:g} s"
        )
        if not expired:
            reason = f"lease {name} {verb} {silence_s:.1f} s ago, {relation} its duration of {duration_s:g} s"
        return LeaseVerdict(expired=expired, reason=reason, silence_s=silence_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class RenewalVerdict:
    """Whether the holder should renew now, and why (not)."""

    renew: bool
    reason: str


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
