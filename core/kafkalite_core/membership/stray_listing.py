"""What the store may say of the strays of one broker: whoever reads it may take over what it lists (S10)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kafkalite_core.model.topic import Stray

KEPT_MS: Final = 600_000.0
"""So long it is remembered when one left the list; nobody asks for more."""

Key = tuple[str, int]
"""Topic id and partition."""


class StrayListing:
    """See the module. Times are of a monotonic clock, in milliseconds.

    A list that was to be written may be in the store until a later one is known to be there: writes may be under way,
    and answers be lost.
    """

    __slots__ = ("_first_ms", "_left_ms", "_possible")

    def __init__(self) -> None:
        self._possible: set[Key] = set()
        self._left_ms: dict[Key, float] = {}
        self._first_ms: float | None = None

    def may_say(self, strays: Iterable[Stray]) -> None:
        """The store was seen to list these, or shall list them."""
        keys = _keys(strays)
        self._possible |= keys
        for key in keys:
            self._left_ms.pop(key, None)

    def says(self, strays: Iterable[Stray], now_ms: float) -> None:
        """The store lists these and no others, and no write of an earlier list is under way."""
        keys = _keys(strays)
        if self._first_ms is None:
            self._first_ms = now_ms
        kept = {key: ms for key, ms in self._left_ms.items() if key not in keys and now_ms - ms < KEPT_MS}
        self._left_ms = kept | dict.fromkeys(self._possible - keys, now_ms)
        self._possible = keys

    def unlisted_ms(self, topic_id: str, partition: int, now_ms: float) -> float:
        """For how long the store has not listed that stray for sure; 0 when it may list it, or nothing is known."""
        key = (topic_id, partition)
        if self._first_ms is None or key in self._possible:
            return 0.0
        return now_ms - max(self._first_ms, self._left_ms.get(key, self._first_ms))


def _keys(strays: Iterable[Stray]) -> set[Key]:
    return {(stray.topic_id, stray.partition) for stray in strays}
