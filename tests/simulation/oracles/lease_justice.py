"""Nobody is fenced for silence unless an operator listened for a whole lease duration and heard nothing (R16).

A liveness check: a fence by mistake heals, since the broker registers anew, but it costs an election that nobody
needed; made on all brokers after each outage of the API server it stops the cluster. This is a model of its own of
what each operator process was shown, by its own monotonic clock, whatever the core makes of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.world import Violation

if TYPE_CHECKING:
    from collections.abc import Mapping

GAP_S = 2.5
"""Two reads further apart than this: nobody listened in between."""

ROUNDING_S = 0.001


class LeaseJustice:
    """One for the whole history; operators are told apart by the name of the process."""

    def __init__(self) -> None:
        self._read_s: dict[str, float] = {}
        self._since_s: dict[str, float] = {}
        self._heard: dict[tuple[str, str], tuple[object, float]] = {}

    def read(self, operator: str, stamps: Mapping[str, object], now_s: float) -> None:
        """An operator was shown all Leases; `stamps` by name of the Lease, different after each renewal."""
        if now_s - self._read_s.get(operator, float("-inf")) > GAP_S:
            self._since_s[operator] = now_s
        self._read_s[operator] = now_s
        for name, stamp in stamps.items():
            heard = self._heard.get((operator, name))
            if heard is None or heard[0] != stamp:
                self._heard[operator, name] = (stamp, now_s)

    def fenced_for_silence(self, operator: str, name: str, now_s: float, duration_s: float) -> None:
        """An operator decided to fence the holder of a Lease because it expired. Raises `Violation` if it may not."""
        signs = [self._since_s.get(operator, now_s)]
        heard = self._heard.get((operator, name))
        if heard is not None:
            signs.append(heard[1])
        silence_s = now_s - max(signs)
        if silence_s < duration_s - ROUNDING_S:
            raise Violation(
                "nobody is fenced for silence without a hearing",
                f"{operator} fenced the holder of {name} after listening to its silence for {silence_s:.3f} s only, "
                f"the lease duration is {duration_s:g} s",
            )
