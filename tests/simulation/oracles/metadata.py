"""The metadata: every broker knows a state that the store once had, and elections choose whom they may."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.oracles.safety import counting_ids
from tests.simulation.world import Violation

if TYPE_CHECKING:
    from kafkalite_core.model.partition import Partition, TopicRef
    from tests.simulation.broker import Broker
    from tests.simulation.oracles.ledger import Ledger


class MetadataIsHistory:
    """What a broker knows of a partition is an entry that the store had, and never an older one than before (S12)."""

    name = "metadata is history"

    def __init__(self) -> None:
        self._history: dict[tuple[str, int], dict[int, list[Partition]]] = {}
        self._seen: dict[str, dict[tuple[str, int], int]] = {}

    def stored(self, uid: str, number: int, entry: Partition) -> None:
        """The store has another entry."""
        known = self._history.setdefault((uid, number), {}).setdefault(entry.partition_epoch, [])
        if entry not in known:
            known.append(entry)  # several only if the store went back in time

    def check(self, broker: Broker, changed: set[tuple[TopicRef, int]]) -> None:
        """A broker's cache changed."""
        seen = self._seen.setdefault(broker.incarnation, {})
        for ref, number in changed:
            entry = broker.cache.partition(ref, number)
            if entry is None:
                continue
            key = (ref.uid, number)
            known = self._history.get(key, {}).get(entry.partition_epoch, [])
            if entry not in known:
                raise Violation(self.name, f"broker {broker.host.id} knows {entry} of {key}, the store had {known}")
            if seen.get(key, -1) > entry.partition_epoch:
                raise Violation(self.name, f"broker {broker.host.id} went back to {entry.partition_epoch} of {key}")
            seen[key] = entry.partition_epoch

    def forget(self, broker: Broker) -> None:
        """The process ended."""
        self._seen.pop(broker.incarnation, None)


class PermittedElections:
    """A new leader was a member of ISR or ELR whose entry counted, or the topic allows unclean elections (R10, R14)."""

    name = "permitted elections"

    def check(self, ledger: Ledger, old: Partition | None, new: Partition, *, unclean_allowed: bool) -> None:
        """The entry in the store changed."""
        if not new.has_leader or (old is not None and new.leader_epoch == old.leader_epoch):
            return
        ledger.elected_at[new.leader_epoch] = ledger.committed_end
        if old is None:
            return
        oracles = ledger.oracles
        named, known = new.isr_epoch_of(new.leader), oracles.brokers.get(new.leader)
        if named is not None and known is not None and known.registration.broker_epoch > named:
            # A patch that came late: the incarnation that it names is gone, so nobody leads by it (S1).
            return
        if new.leader not in counting_ids(old, oracles.brokers, relaxed=ledger.relaxed):
            if not unclean_allowed:
                raise Violation(self.name, f"{ledger}: {old} was followed by {new}, whose leader was no candidate")
            ledger.lossy = True
        oracles.elections_seen += 1
