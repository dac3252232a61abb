"""The metadata: every broker knows a state that the store once had, and elections choose whom they may."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalite_core.model.partition import IsrEntry
from tests.simulation.oracles.safety import counting_ids
from tests.simulation.world import Violation

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kafkalite_core.model.cluster import Broker as BrokerObject
    from kafkalite_core.model.partition import Partition, TopicRef
    from kafkalite_core.model.topic import Holding
    from tests.simulation.broker import Broker
    from tests.simulation.oracles.ledger import Ledger


class MetadataIsHistory:
    """What a broker knows of a partition is an entry that the store had, and never an older one than before (S12).

    A topic that was deleted comes back only if the store goes back in time. Who knew of the deletion has it anew then:
    what it had known is left to its disk to remember (S11).

    Attributes:
        restored: The store has gone back in time.
    """

    name = "metadata is history"

    def __init__(self) -> None:
        self._history: dict[tuple[str, int], dict[int, list[Partition]]] = {}
        self._placed: dict[tuple[str, int], list[tuple[str, Partition]]] = {}
        self._seen: dict[str, dict[tuple[str, int], int]] = {}
        self._gone: dict[str, set[tuple[str, int]]] = {}
        self.restored = False

    def store_restored(self) -> None:
        """The store went back in time."""
        self.restored = True

    def lost(self, registered: int, named: int) -> bool:
        """Whether the store, which shows the one broker epoch, has had the other one and went back."""
        return self.restored and registered < named

    def stored(self, ref: TopicRef, number: int, entry: Partition) -> None:
        """The store has another entry."""
        self._placed.setdefault((ref.uid, number), []).append((ref.topic_id, entry))
        known = self._history.setdefault((ref.uid, number), {}).setdefault(entry.partition_epoch, [])
        if entry not in known:
            known.append(entry)  # several only if the store went back in time

    def check(self, broker: Broker, changed: set[tuple[TopicRef, int]]) -> None:
        """A broker's cache changed."""
        seen = self._seen.setdefault(broker.incarnation, {})
        gone = self._gone.setdefault(broker.incarnation, set())
        shown = [((ref.uid, number), broker.cache.partition(ref, number)) for ref, number in changed]
        # What is gone first: after a restore an object may be placed under another topic id, all in one change.
        for key, entry in sorted(shown, key=lambda one: one[1] is not None):
            if entry is None:
                gone.add(key)
                continue
            if self.restored and key in gone:
                seen.pop(key, None)
            gone.discard(key)
            known = self._history.get(key, {}).get(entry.partition_epoch, [])
            if entry not in known:
                raise Violation(self.name, f"broker {broker.host.id} knows {entry} of {key}, the store had {known}")
            if seen.get(key, -1) > entry.partition_epoch:
                raise Violation(self.name, f"broker {broker.host.id} went back to {entry.partition_epoch} of {key}")
            seen[key] = entry.partition_epoch

    def remembered(self, uid: str, number: int) -> tuple[int, int]:
        """The highest leader epoch and partition epoch that a running broker has in mind."""
        key = (uid, number)
        known = [
            seen[key] for incarnation, seen in self._seen.items() if key in seen and key not in self._gone[incarnation]
        ]
        entries = [entry for partition_epoch in known for entry in self._history[key][partition_epoch]]
        return max((entry.leader_epoch for entry in entries), default=-1), max(known, default=-1)

    def forgotten(self, ref: TopicRef, number: int, known: Partition, entry: Partition) -> bool:
        """Whether the store had more of that object before it went back than `known`, which `entry` goes beyond.

        Operators remember the epochs of an object, also if it was placed under another topic id after a restore. Of
        those of its own topic id `entry` has to be beyond all; of others an operator need not have been shown the last.
        """
        had = [(topic_id, older) for topic_id, older in self._placed[ref.uid, number] if older != entry]
        beyond = [
            topic_id == ref.topic_id
            for topic_id, older in had
            if older.leader_epoch >= entry.leader_epoch or older.partition_epoch >= entry.partition_epoch
        ]
        had_more = any(
            (older.leader_epoch > known.leader_epoch or older.partition_epoch > known.partition_epoch)
            and older.leader_epoch < entry.leader_epoch
            and older.partition_epoch < entry.partition_epoch
            for _, older in had
        )
        return self.restored and had_more and not any(beyond)

    def forget(self, broker: Broker) -> None:
        """The process ended."""
        self._seen.pop(broker.incarnation, None)
        self._gone.pop(broker.incarnation, None)


class PermittedElections:
    """A new leader was a member of ISR or ELR whose entry counted, or the topic allows unclean elections (R10, R14)."""

    name = "permitted elections"

    def __init__(self) -> None:
        self._told: dict[tuple[int, int], tuple[Holding, ...]] = {}

    def reported(self, broker: BrokerObject) -> None:
        """What a registered incarnation holds, as it has written itself: a restored store may show another report."""
        self._told[broker.id, broker.epoch] = broker.holdings

    def check(self, ledger: Ledger, old: Partition | None, new: Partition, *, unclean_allowed: bool) -> None:
        """The entry in the store changed."""
        if not new.has_leader or (old is not None and new.leader_epoch == old.leader_epoch):
            return
        ledger.elected_at[new.leader_epoch] = ledger.committed_end
        if old is None:
            return
        oracles = ledger.oracles
        named, known = new.isr_epoch_of(new.leader), oracles.brokers.get(new.leader)
        unregistered = known is None or known.registration is None
        if unregistered and new.leader in {*old.isr_ids(), *old.elr_ids()}:
            # By a leader that has not heard yet that the registrations are gone with their objects (decision 011), or
            # by a controller from before, whose patch comes late: there may be new objects by then.
            return
        candidate = named is not None and IsrEntry(new.leader, named) in (*old.isr, *old.elr)
        if named is not None and known is not None and known.epoch > named:
            # A patch that came late: the incarnation that it names is gone, so nobody leads by it (S1). But whoever of
            # its ISR counts still, that broker's next incarnation, is a candidate from then on: an election that was
            # allowed to lose something loses it all the same (seed 48242).
            if unclean_allowed and not candidate:
                ledger.elected_unclean(new.leader_epoch)
            return
        if candidate and known is not None and oracles.metadata.lost(known.epoch, named):
            # By somebody who has not listed the brokers since the store went back, and knows a registration that the
            # store has lost: that incarnation was a candidate, and it alone leads by the entry (S1).
            return
        # As long as the topic does not say that records may lag behind their flush, none are acknowledged before it, so
        # whoever restarted uncleanly may lead (S4); the operator asks for more.
        if new.leader not in counting_ids(old, oracles.brokers, relaxed=ledger.lag_known):
            # A broker may find, once it is a replica, what it had not listed any more: then it holds more than is shown.
            if not unclean_allowed and (new.leader in ledger.unlisted or self._answers(ledger, old, new)):
                self.recovered(ledger, new)
                return
            if not unclean_allowed:
                raise Violation(self.name, f"{ledger}: {old} was followed by {new}, whose leader was no candidate")
            ledger.elected_unclean(new.leader_epoch)
        oracles.elections_seen += 1

    @staticmethod
    def _answers(ledger: Ledger, old: Partition, new: Partition) -> bool:
        """Whether the entry is a recovery because of what some broker reports, which the one before did not settle (S11).

        The store may show an entry of the lost history again, made anew with the same epochs. Whoever has been shown
        less meanwhile cannot tell the two apart and contradicts it, until an entry is above all that it knows. To lose
        nothing by it is for the completeness of candidates, as after any recovery.
        """
        found = [one for broker in ledger.oracles.brokers.values() for one in holdings_of(ledger, broker.holdings)]
        asked = any(not one.settled_by(old.leader_epoch, old.partition_epoch) for one in found)
        above = all(new.leader_epoch > one.leader_epoch and new.partition_epoch > one.partition_epoch for one in found)
        return ledger.oracles.metadata.restored and asked and above

    def recovered(self, ledger: Ledger, new: Partition) -> int:
        """The store had gone back in time, and goes on with this entry: with the newest epoch of a log, returned (S11).

        By what brokers have reported, since an epoch may have begun in a log without a record. Whether that is true,
        and how far these logs reach, is for the completeness of candidates.

        A member is judged by what the incarnation that its entry names has reported. If the patch came late, that may
        have been registered anew since, or its report be lost with the store: what is registered under that broker id
        by now has not reported for it, and whether its log is still what the entry stands for is for R7 and R9 to say.
        """
        brokers = ledger.oracles.brokers
        reported = {i: one.log_epoch for i, broker in brokers.items() for one in holdings_of(ledger, broker.holdings)}
        named: dict[int, int] = {}
        for member in new.isr:
            broker = brokers.get(member.id)
            shown = () if broker is None or broker.epoch != member.epoch else holdings_of(ledger, broker.holdings)
            for one in shown or holdings_of(ledger, self._told.get((member.id, member.epoch), ())):
                named[member.id] = one.log_epoch
        in_sync = newest_in_sync(ledger)
        if in_sync & set(new.isr_ids()):
            # They had everything that was committed; a record of a later epoch that somebody else has never was.
            reported = {i: epoch for i, epoch in reported.items() if i in in_sync}
        best = max((*reported.values(), *named.values()), default=-1)
        short = [member.id for member in new.isr if named.get(member.id, -2) < best]
        if new.leader not in new.isr_ids() or short:
            raise Violation(
                self.name, f"{ledger}: recovered as {new}, but the logs of {short} are older: {reported}, {named}"
            )
        return best


def newest_in_sync(ledger: Ledger) -> set[int]:
    """The ISR of the newest entry that is known to those who contradict the store."""
    found = [one for broker in ledger.oracles.brokers.values() for one in holdings_of(ledger, broker.holdings)]
    known = [one for one in found if not one.agrees]
    epochs = [one.partition_epoch if one.isr_epoch is None else one.isr_epoch for one in known]
    return {m.id for one, epoch in zip(known, epochs, strict=True) if epoch == max(epochs) for m in one.isr}


def holdings_of(ledger: Ledger, holdings: Iterable[Holding]) -> list[Holding]:
    """Those that are about that partition: one or none, of one broker."""
    return [one for one in holdings if (one.topic_id, one.partition) == ledger.tag]
