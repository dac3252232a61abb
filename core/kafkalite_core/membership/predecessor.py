"""When a broker may stop waiting for the holder of its id to be fenced (S6).

A broker with another data directory waits for the fence, and the operator fences nobody by expiry while nobody
renews. So brokers that lost all their disks, and whose containers ended while no operator was there to see it, would
wait for one another for ever; a cluster of one broker would do so after the loss of its node. The one who waits can
tell more than the operator: it reaches the API server itself, hence a broker could renew, and the holder does not.

    overdue  =>  for `PREDECESSOR_LEASES` lease durations, by the own monotonic clock and without a gap in the reads,
                 the registration stayed the same and its Lease did not change

Like every judgement by Lease it concerns liveness alone: a holder that is alive after all is superseded (R8), and what
it held counts for nothing under the new epoch because the directory is another one (S2).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalite_core.membership.lease import LeaseObserver

if TYPE_CHECKING:
    from collections.abc import Hashable

PREDECESSOR_LEASES = 3
"""Silence in lease durations. The operator, which may fence after one, is to come first wherever it can."""

GAP_S = 2.5
"""Two reads of the Lease further apart than this leave a gap, from the answer of one to the beginning of the next. That
is about a second, however long the answers take: a slow API server is one that the holder reaches as well."""


class Predecessor:
    """The watch of one waiting broker over the holder of its id."""

    __slots__ = ("_asked_s", "_epoch", "_observer")

    def __init__(self) -> None:
        self._epoch = -1
        self._asked_s = 0.0
        self._observer = LeaseObserver(gap_s=GAP_S)

    def read(self, broker_epoch: int, signature: Hashable, *, asked_s: float, now_s: float) -> None:
        """A successful read of the Lease, begun at `asked_s`, while that registration stood. One at a time.

        No Lease at all is a signature as well.
        """
        if broker_epoch != self._epoch:
            self._epoch = broker_epoch
            self._observer = LeaseObserver(gap_s=GAP_S)
        self._observer.read({_LEASE: signature}, now_s=now_s, asked_s=asked_s)
        self._asked_s = asked_s

    def is_overdue(self, broker_epoch: int, *, lease_duration_s: float, now_s: float) -> bool:
        """Whether the holder of that registration has been silent for long enough."""
        since_s, changed_s = self._observer.since_s(now_s=now_s), self._observer.changed_s(_LEASE)
        if broker_epoch != self._epoch or since_s is None or changed_s is None:
            return False
        # The answer may be as old as the question.
        return self._asked_s - max(since_s, changed_s) > PREDECESSOR_LEASES * lease_duration_s


_LEASE = "predecessor"
