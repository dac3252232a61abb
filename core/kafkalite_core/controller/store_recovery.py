"""After the store went back in time: which replicas a partition goes on with (S11).

A partition is behind when its entry does not settle what a broker reports (`Broker.holdings`, `Holding.settled_by`), or
shows less than this controller has seen itself. A broker without a replica may be the one that remembers more
(`Holding.hosted`). Nothing else is decided on it: its entry describes a past. Brokers
neither acknowledge nor truncate meanwhile, so what they report stays true. Once all replicas are alive and reported,
also the ISR of the newest entry that a report tells of (a reassignment may have been lost with the store),

    leaderEpoch' = max over entry and reports + EPOCHS_AHEAD       no epoch that any disk knows is used again
    partitionEpoch' = max over entry and reports + EPOCHS_AHEAD
    isr' = holders of the greatest (epoch of the log, flushed end), be they replicas of the entry or not: among the
           newest ISR that is known to those who contradict the store, if one of it is known to have kept its disk.
           Of these only members of the ISR that agree, if the leader of the entry is one, alive, and goes by it: it
           goes on
    elr' = {}

Every record acknowledged with acks=all is in isr': it was on every member of the ISR of its time, the leader of the
last epoch had all of them, and a log with that epoch's records has a prefix of that leader's. But leaders of later
epochs may have written nothing in them, while somebody out of the ISR has records of an earlier one that were never
committed: so the newest ISR comes first. Without all replicas that is not known, and where every member of the newest
ISR has lost its disk since, it is not true: so either takes a person's consent (`kafkalite.io/recover-store`), and
counts as an unclean election. Consent is to go on without brokers that are away, not without who is about to report.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from kafkalite_core.controller.configs import relaxed_flush
from kafkalite_core.controller.election import Verdict, describe_broker, leader_is_valid
from kafkalite_core.controller.newest_isr import newest_of_holdings
from kafkalite_core.controller.noticing import ADOPTION_GRACE_S
from kafkalite_core.model.cluster import entry_lost
from kafkalite_core.model.limits import EPOCHS_AHEAD
from kafkalite_core.model.partition import IsrEntry, PartitionChange

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkalite_core.controller.newest_isr import NewestIsr
    from kafkalite_core.controller.snapshot import LeaseView, Snapshot, TopicView
    from kafkalite_core.model.partition import Partition
    from kafkalite_core.model.topic import Holding

ANNOTATION: Final = "kafkalite.io/recover-store"


def outdated(*, incarnation: str, seen_at: float, went_back_at: float, lease: LeaseView | None) -> bool:
    """Whether a report may be one of the past itself: the restored store shows what was reported before the backup.

    As long as the store is not known to have gone back since the object was seen, it is not; nor when the incarnation
    that is registered was heard `ADOPTION_GRACE_S` later, and had nothing else to say.

    Args:
        incarnation: The registered one.
        seen_at: When this version of the broker's object was first seen.
        went_back_at: When the store was last seen to show older versions than before; -inf for never.
        lease: The broker's Lease.
    """
    if seen_at > went_back_at:
        return False
    return lease is None or lease.holder != incarnation or lease.changed_at <= went_back_at + ADOPTION_GRACE_S


class StoreRecovery:
    """The partitions of one snapshot that are behind. `decide` is asked for every partition before anything else."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._brokers = snapshot.brokers
        self._outdated = snapshot.outdated
        self._reports: dict[tuple[str, int], dict[int, Holding]] = {}
        for broker_id, broker in snapshot.brokers.items():
            for holding in broker.holdings:
                self._reports.setdefault((holding.topic_id, holding.partition), {})[broker_id] = holding

    def decide(self, view: TopicView, number: int, entry: Partition, *, min_isr: int) -> Verdict | None:
        """None for a partition that is not behind; else what is to be done, or what is waited for."""
        reports = self._reports.get((view.topic.ref.topic_id, number), {})
        seen = view.epochs_seen.get(number, (-1, -1))
        forgotten = entry.leader_epoch < seen[0] or entry.partition_epoch < seen[1]
        if not forgotten and all(
            holding.settled_by(entry.leader_epoch, entry.partition_epoch) for holding in reports.values()
        ):
            return None
        # Who has no replica tells of epochs, and of who had them, no more.
        hosts = {i: holding for i, holding in reports.items() if holding.hosted}
        present = {i: held for i, held in hosts.items() if self._alive(i) and self._is_news(i, held, seen)}
        newest = newest_of_holdings(reports.values())
        absent = sorted({*entry.replicas, *hosts, *newest.ids} - set(present))
        emptied = self._emptied(entry, newest, reports)
        # Who lives and has a replica is about to report, whatever a person allows to go on without.
        silent = any(self._alive(i) for i in absent if i in entry.replicas or i in hosts)
        if not present or silent or ((absent or emptied) and not view.recovery_request):
            return Verdict(change=None, reason=self._waiting(entry, present, absent, emptied))
        known = [seen, *((holding.leader_epoch, holding.partition_epoch) for holding in reports.values())]
        relaxed = relaxed_flush(self._snapshot, view)
        sure = self._newest_in_sync(entry, reports, present, relaxed=relaxed) or present
        return self._recovered(entry, known, sure, min_isr=min_isr, absent=absent, emptied=emptied)

    def _is_news(self, broker_id: int, holding: Holding, seen: tuple[int, int]) -> bool:
        """Whether the broker says so now, not before what this controller has seen since: then it may be gone."""
        known = holding.leader_epoch >= seen[0] and holding.partition_epoch >= seen[1]
        return known or broker_id not in self._outdated

    def reasons(self, view: TopicView) -> list[str]:
        """For each partition of a topic that is behind: what is waited for, or done."""
        verdicts = {
            number: self.decide(view, number, entry, min_isr=entry.min_isr)
            for number, entry in sorted(view.topic.partitions.items())
        }
        return [f"partition {number}: {verdict.reason}" for number, verdict in verdicts.items() if verdict is not None]

    def _alive(self, broker_id: int) -> bool:
        broker = self._brokers.get(broker_id)
        return broker is not None and broker.alive

    def _lost(self, member: IsrEntry, entry: Partition, report: Holding | None, *, relaxed: bool = False) -> bool:
        """Whether a member of an ISR is known to have lost since what it had.

        Broker epochs go back with the store. So a new disk may draw one that a former disk had, and only who reports
        that it knows of another history is believed to be the one that was meant; else the entry's incarnation counts.
        What is registered may be of the past itself, as far as it is below what the member was registered with.
        `relaxed`: who died since counts as one who lost something.
        """
        broker = self._brokers.get(member.id)
        if broker is None:
            return False
        knows = report is not None and report.hosted and not report.agrees
        past = member.epoch > broker.epoch and (knows or not broker.alive or member.id in self._outdated)
        if member.epoch >= 0 and not past and entry_lost(member, self._brokers, relaxed_flush=relaxed):
            return True
        if member.epoch >= 0 and knows:
            return False
        shown = [one for one in (*entry.elr, *entry.isr) if one.id == member.id]
        return any(entry_lost(one, self._brokers, relaxed_flush=relaxed) for one in shown)

    def _emptied(self, entry: Partition, newest: NewestIsr, reports: Mapping[int, Holding]) -> list[int]:
        """The newest ISR that is known, if all of its members lost since what they had; empty if one may have it still.

        As long as the store shows the newest, eligible replicas have all that was committed, too.
        """
        epochs = newest.partition_epoch - entry.partition_epoch
        shown = epochs < 0 or not newest.members or (epochs == 0 and newest.ids == set(entry.isr_ids()))
        members = (*entry.elr, *entry.isr) if shown else newest.members
        lost = all(self._lost(one, entry, reports.get(one.id)) for one in members)
        return sorted({one.id for one in members}) if lost else []

    def _newest_in_sync(
        self, entry: Partition, reports: Mapping[int, Holding], present: Mapping[int, Holding], *, relaxed: bool
    ) -> dict[int, Holding]:
        """The newest ISR of the history that was lost, if one of it has kept its disk: that one has all of its records.

        Whoever goes by the store knows of no other history. That the entry does not name such a member says that the
        store has gone on without it; then what was lost comes first only if it had come further. Where a log has
        records of a later epoch, or more of the same one, there was a newer ISR, which nobody noted: all are compared.
        """
        newest = newest_of_holdings(holding for holding in reports.values() if not holding.agrees)
        found = {i: present[i] for i in sorted(newest.ids) if i in present}
        kept = {
            one.id
            for one in newest.members
            if one.id in found and not self._lost(one, entry, found[one.id], relaxed=relaxed)
        }
        if any(holding.log_epoch > newest.leader_epoch for holding in present.values() if not holding.agrees):
            return {}
        if kept & {*entry.isr_ids(), *entry.elr_ids()}:
            return found
        known = any(one.epoch >= 0 and one.id in kept and not found[one.id].agrees for one in newest.members)
        if not known or not newest.got_further(entry):
            return {}
        epoch = max(holding.log_epoch for holding in found.values())
        furthest = max(holding.log_epoch for holding in present.values())
        return {} if furthest == epoch else found

    def _waiting(self, entry: Partition, present: Mapping[int, Holding], absent: list[int], emptied: list[int]) -> str:
        words = [
            f"broker {i} has not reported yet" if self._alive(i) else describe_broker(i, self._brokers) for i in absent
        ]
        if emptied:
            words.append(f"all that were in sync, brokers {emptied}, came back without their data")
        return (
            f"the store shows leader epoch {entry.leader_epoch}, more is known; brokers {sorted(present)} have "
            f"reported what they hold, but {', '.join(words)}"
        )

    def _recovered(
        self,
        entry: Partition,
        known: list[tuple[int, int]],
        present: Mapping[int, Holding],
        *,
        min_isr: int,
        absent: list[int],
        emptied: list[int],
    ) -> Verdict:
        best = max((holding.log_epoch, holding.end_offset) for holding in present.values())
        holders = self._goes_on(
            entry, present, {i for i, holding in present.items() if (holding.log_epoch, holding.end_offset) == best}
        )
        # A holder that this past knows nothing of is a replica again: its log is what counts.
        replicas = (*entry.replicas, *sorted(holders - set(entry.replicas)))
        isr = tuple(IsrEntry(i, self._brokers[i].epoch) for i in replicas if i in holders)
        proposed = replace(
            entry,
            leader=isr[0].id,
            leader_epoch=max(entry.leader_epoch, *(epochs[0] for epochs in known)) + EPOCHS_AHEAD,
            partition_epoch=max(entry.partition_epoch, *(epochs[1] for epochs in known)) + EPOCHS_AHEAD,
            min_isr=min_isr,
            replicas=replicas,
            isr=isr,
            elr=(),
            recovering=False,
        )
        reason = (
            f"the store went back in time: brokers {sorted(holders)} hold the most, up to offset {best[1]} of leader "
            f"epoch {best[0]}"
        )
        if absent:
            reason += f"; brokers {absent} were not waited for, as {ANNOTATION} allows, and may hold more"
        if emptied:
            reason += f"; all that were in sync, brokers {emptied}, lost their data, as {ANNOTATION} accepts"
        unclean = bool(absent or emptied)
        return Verdict(change=PartitionChange(entry, proposed), reason=reason, elected=True, unclean=unclean)

    def _goes_on(self, entry: Partition, present: Mapping[int, Holding], holders: set[int]) -> set[int]:
        """Of the holders those that have what may have been acknowledged since they reported.

        A leader that goes by the entry sees nothing wrong, and goes on acknowledging what the ISR of the entry has.
        What the others reported is true of them still, but no longer of the leader.
        """
        leader = present.get(entry.leader)
        if entry.leader not in holders or leader is None or not leader.agrees:
            return holders
        if not leader_is_valid(entry, self._brokers):
            return holders
        return {i for i in holders if present[i].agrees and entry.isr_epoch_of(i) == self._brokers[i].epoch}
