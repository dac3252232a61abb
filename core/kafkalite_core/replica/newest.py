"""The newest entry of a partition that this broker has seen, in memory or on its disk, and what contradicts it (S11).

Within one history of the store every change raises partitionEpoch, leaderEpoch never falls, and a leaderEpoch has one
leader (R1; the API server refuses anything else). So of two entries of one history one is below the other in both
epochs, and entries with one leaderEpoch name one leader. Where that fails the store was restored from a backup and went
on from there: its entry is not newer, it is of another history.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalite_core.model.partition import Seen

if TYPE_CHECKING:
    from kafkalite_core.model.partition import IsrEntry, Partition

FROM_DISK: Final = -2
"""As the leader: the epochs come from the disk, and no entry has been seen yet."""


class Newest(NamedTuple):
    """See the module.

    Attributes:
        leader_epoch: Highest leader epoch seen.
        partition_epoch: Highest partition epoch seen.
        leader: Leader of the newest entry, `FROM_DISK` before the first one.
        isr: ISR of the newest entry in the order of the broker ids; before the first one what the disk knows of
            it; broker epochs are -1 where it has noted none.
        isr_epoch: Partition epoch of the entry that `isr` is of: of entries that contradict it none is the newest,
            however high their partition epochs are.
        isr_leader_epoch: Leader epoch of that entry.
        contradicted: An entry of another history was shown, and none yet that is above everything seen.
    """

    leader_epoch: int
    partition_epoch: int
    leader: int = FROM_DISK
    isr: tuple[IsrEntry, ...] = ()
    isr_epoch: int = -1
    isr_leader_epoch: int = -1
    contradicted: bool = False

    @classmethod
    def noted(cls, seen: Seen, log_epoch: int) -> Newest:
        """What the disk knows: what was noted of entries, and the newest epoch of the log itself.

        An ISR of an earlier entry than the newest that was noted: that one was refused, and none above it was shown.
        """
        refused = bool(seen.isr) and seen.isr_epoch < seen.partition_epoch
        leader_epoch = max(seen.leader_epoch, log_epoch)
        return cls(
            leader_epoch,
            seen.partition_epoch,
            isr=seen.isr,
            isr_epoch=seen.isr_epoch,
            isr_leader_epoch=seen.isr_leader_epoch,
            contradicted=refused,
        )

    @property
    def seen(self) -> Seen:
        """What a disk is to note of it."""
        return Seen(self.leader_epoch, self.partition_epoch, self.isr, self.isr_epoch, self.isr_leader_epoch)

    def shown(self, entry: Partition) -> tuple[Newest, bool]:
        """What is known after an entry was shown, and whether that entry is to be the current one.

        The first entry that a process is shown comes from a consistent list, so it may not be below what the disk
        knows; later ones may be late.

        The epochs of what is not taken count as seen too: they may be those of a history that is lost by now, which
        the metadata cache goes on to know, and a recovery that is not above them would not get past it.
        """
        leader_epochs = entry.leader_epoch - self.leader_epoch
        partition_epochs = entry.partition_epoch - self.partition_epoch
        surpassed = leader_epochs > 0 and partition_epochs > 0
        if not surpassed and (self.contradicted or self._is_of_another_history(entry, leader_epochs, partition_epochs)):
            leader_epoch = max(self.leader_epoch, entry.leader_epoch)
            partition_epoch = max(self.partition_epoch, entry.partition_epoch)
            return self._replace(leader_epoch=leader_epoch, partition_epoch=partition_epoch, contradicted=True), False
        if leader_epochs < 0 or partition_epochs < 0:
            return self, False
        epochs, isr = (entry.leader_epoch, entry.partition_epoch), tuple(sorted(entry.isr))
        return Newest(*epochs, entry.leader, isr, isr_epoch=epochs[1], isr_leader_epoch=epochs[0]), True

    def _had_others_in_sync(self, entry: Partition) -> bool:
        """The disk has noted another ISR for that very partition epoch, which has one entry."""
        if not self.isr or self.isr_epoch != entry.partition_epoch:
            return False
        if any(member.epoch < 0 for member in self.isr):
            return {member.id for member in self.isr} != set(entry.isr_ids())
        return set(self.isr) != set(entry.isr)

    def _is_of_another_history(self, entry: Partition, leader_epochs: int, partition_epochs: int) -> bool:
        if self.leader == FROM_DISK:
            return leader_epochs < 0 or partition_epochs < 0 or self._had_others_in_sync(entry)
        if leader_epochs == 0:
            return entry.leader != self.leader
        return leader_epochs * partition_epochs <= 0
