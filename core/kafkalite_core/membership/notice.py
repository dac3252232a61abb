"""Which topics a broker has noticed that have no place yet, told with its Lease (S10).

Theorem: while a broker says that it has noticed an object without a place, its status tells all that it has set aside,
or holds and was not shown, of topics that were gone when it saw that object. For what made an object visible, or showed
it without a topic id, made the broker give up what it had under that name before it went on; and it says so only
while the store has its lists, with nothing on the way. So whoever reads the Lease first and lists the brokers
afterwards knows all that is left of a lost topic, however late the broker's watches are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalite_core.model.limits import NOTICED_MAX

if TYPE_CHECKING:
    from kafkalite_core.membership.metadata_cache import MetadataCache


class Notice:
    """What one broker says.

    Attributes:
        uids: Uids of the topics; a tuple that never changes, replaced by another one.
    """

    __slots__ = ("uids",)

    def __init__(self) -> None:
        self.uids: tuple[str, ...] = ()

    def look(self, cache: MetadataCache, *, tells_all: bool) -> None:
        """To be called when nothing that the cache has shown is still to be set aside, but by a full disk.

        `tells_all`: there is nothing of that kind either, and the store is known to have the broker's lists of strays
        and holdings as they are. Otherwise what was said before still holds.
        """
        if tells_all:
            self.uids = tuple(cache.unplaced()[:NOTICED_MAX])
