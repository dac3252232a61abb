"""What the store may say of the strays of one broker: whoever reads it may take over what it lists (S10)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kafkalite_core.model.topic import Stray

KEPT_MS: Final = 600_000.0
"""So long it is remembered when one left the list; nobody asks for more."""

LATE_MS: Final = 60_000.0
"""So long a write without an answer may still come: then the API server has given it up."""

Key = tuple[str, int]
"""Topic id and partition."""


class StrayListing:
    """See the module. Times are of a monotonic clock, in milliseconds.

    A list that was to be written may be in the store until a later one is known to be there: writes may be under way,
    and answers be lost. One whose write had no answer may also come after a later one, since its patch tests nothing
    that the later one changes: it may be in the store until `LATE_MS` are over.
    """

    __slots__ = ("_first_ms", "_late_ms", "_left_ms", "_possible")

    def __init__(self) -> None:
        self._possible: set[Key] = set()
        self._left_ms: dict[Key, float] = {}
        """Since when the store has not listed them; ahead of now where a write may still come."""
        self._late_ms: dict[Key, float] = {}
        """Until when a write may come that lists them."""
        self._first_ms: float | None = None

    def may_say(self, strays: Iterable[Stray]) -> None:
        """The store was seen to list these, or shall list them."""
        keys = _keys(strays)
        self._possible |= keys
        for key in keys:
            self._left_ms.pop(key, None)

    def may_come(self, strays: Iterable[Stray], now_ms: float) -> None:
        """A write of this list ended without an answer: nobody knows whether it is lost, applied, or still to come."""
        self.may_say(strays)
        self._late_ms |= dict.fromkeys(_keys(strays), now_ms + LATE_MS)

    def says(self, strays: Iterable[Stray], now_ms: float) -> None:
        """The store lists these and no others; no write of an earlier list is under way, but as `may_come` said."""
        keys = _keys(strays)
        if self._first_ms is None:
            self._first_ms = now_ms
        kept = {key: ms for key, ms in self._left_ms.items() if key not in keys and now_ms - ms < KEPT_MS}
        self._late_ms = {key: ms for key, ms in self._late_ms.items() if ms > now_ms}
        self._left_ms = kept | {key: self._late_ms.get(key, now_ms) for key in self._possible - keys}
        self._possible = keys

    def unlisted_ms(self, topic_id: str, partition: int, now_ms: float) -> float:
        """For how long the store has not listed that stray for sure; 0 when it may list it, or nothing is known."""
        key = (topic_id, partition)
        if self._first_ms is None or key in self._possible:
            return 0.0
        return max(0.0, now_ms - max(self._first_ms, self._left_ms.get(key, self._first_ms)))


def _keys(strays: Iterable[Stray]) -> set[Key]:
    return {(stray.topic_id, stray.partition) for stray in strays}
