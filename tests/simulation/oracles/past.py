"""What leaders of the past acknowledge after a restore of the store, the one thing that a recovery may lose (S11)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalite_core.replica.events import Role
from kafkalite_core.storage.partition_metadata import read_metadata
from tests.simulation.platter import batches, batches_between, last_batch
from tests.simulation.world import Violation

if TYPE_CHECKING:
    from kafkalite_core.model.partition import Partition
    from tests.simulation.driver import Driver
    from tests.simulation.oracles.ledger import Ledger
    from tests.simulation.platter import Mark


class Past:
    """One for each partition, open from a restore until the partition is recovered.

    The store shows somebody as leader of epoch e again who has never heard of a later one, or has forgotten it. With
    replicas that know no more than it does it commits batches, which nobody can tell from those of the present.

    a batch may be missing after the recovery  <=>  a leader of epoch e committed it, and nobody else had,
                                                    after the restore and before the recovery
                                                    e < the highest leader epoch that the store had had until the
                                                    restore, or it is that one, and came again
                                                    neither memory nor disk of that leader knew of an epoch above e
                                                    the recovery goes on with a log of an epoch above e, or of e
                                                    itself if that came again

    So nothing that was acknowledged before the restore or after the recovery, or by a leader of the newest epoch, and
    nothing that the log with which the recovery goes on has.

    A leader epoch e of the history that the store lost may come again, with other batches:

    a batch of e may differ from the one that was at its offset
                                           <=>  the store had e before some restore, and showed less after it
                                                no log has that one any more, in use or set aside

    A leader that never knew of e, or has forgotten it, leads in it by an entry that nobody alive contradicts, and all
    who had been in e are cut to its log before it writes so far. While one of them still has its batch, two logs differ
    in an epoch that they call the same, which no later fetch finds out. Where an entry of the past began it anew the
    history ends there, as one that reached a limit (`LimitReached`); else it is broken.

    What is known of e itself is then of the lost history: how far its leader had got, and what was committed before it.
    It says nothing of the leader that an entry of the past has named anew:

    epoch e is anew for a leader           <=>  an entry of the past began it, after the restore and before the recovery,
                                                and this is a leader of the past, which knows of no epoch above e

    Attributes:
        highest: The highest leader epoch that the store has had in the history that goes on.
        below: Leader epochs below it are of the past; -1 when the partition is not waiting for a recovery.
        excused: (base offset, next offset, crc) of the batches that a recovery left out, or that were lost with the
            store because nobody knew of them any more.
    """

    name = "nobody goes by a past"

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.highest = self.below = -1
        self.excused: set[tuple[int, int, int]] = set()
        self._committed: dict[tuple[int, ...], tuple[Mark, int]] = {}
        self._ends: dict[int, int] = {}
        self._shown: set[tuple[int, ...]] = set()
        self._lost: list[tuple[int, int]] = []
        self._anew: set[int] = set()
        self._ever_anew: set[int] = set()

    def restored(self, entry: Partition | None) -> None:
        """The store went back in time, to this entry."""
        self.below = self.highest
        self._lost.append((-1 if entry is None else entry.leader_epoch, self.highest))

    def gave_way(self, mark: Mark) -> bool:
        """Whether that batch, of a leader epoch that the store has lost, is gone from every log."""
        if not any(shown < mark.epoch <= highest for shown, highest in self._lost):
            return False
        return all(mark[1:] != other[1:] for _, _, log in self._ledger.logs() for other in batches(log))

    def came_again(self, mark: Mark) -> bool:
        """Whether the leader epoch of that batch was lost with the store, and an entry of the past began it anew.

        Also when the partition has gone on since: the entry may have become the very one that a dead disk remembers.
        """
        return mark.epoch in self._ever_anew and any(shown < mark.epoch <= highest for shown, highest in self._lost)

    def began(self, driver: Driver) -> None:
        """A replica leads or follows from now on. Raises `Violation` if it has been told of a later epoch."""
        replica = driver.replica
        if replica.role in {Role.LEADER, Role.FOLLOWER} and replica.leader_epoch < self.below:
            known = self._told(driver)
            if known > replica.leader_epoch:
                host = driver.partitions.broker.host.id
                raise Violation(
                    self.name,
                    f"{self._ledger}: broker {host} is {replica.role.value} of epoch {replica.leader_epoch}, and knows "
                    f"{known}",
                )

    def leads(self, driver: Driver) -> bool:
        """Whether what this leader commits is of the past."""
        epoch = driver.replica.leader_epoch
        past = epoch < self.below or (epoch == self.below and epoch in self._anew)
        return past and self._known(driver) <= epoch

    def stored(self, known: Partition | None, entry: Partition) -> None:
        """The store has another entry, of the past."""
        if known is None or entry.leader_epoch > known.leader_epoch:
            self._anew.add(entry.leader_epoch)
            self._ever_anew.add(entry.leader_epoch)

    def anew(self, driver: Driver) -> bool:
        """Whether this leader is of the past, in an epoch that began in it."""
        return driver.replica.leader_epoch in self._anew and self.leads(driver)

    def commit(self, driver: Driver, stop: int) -> None:
        """A leader of the past has committed up to `stop`."""
        ledger, epoch = self._ledger, driver.replica.leader_epoch
        directory = ledger.directory(driver.partitions.broker.host)
        if directory is None:
            return
        present = {mark[1:] for mark in ledger.committed}
        for mark in batches_between(directory, self._ends.get(epoch, 0), stop):
            if mark[1:] not in present:
                known = self._committed.get(mark[1:])
                self._committed[mark[1:]] = (mark, epoch if known is None else max(epoch, known[1]))
                self._shown.add(mark[1:])
        self._ends[epoch] = max(stop, self._ends.get(epoch, 0))

    def end(self, epoch: int) -> int:
        """Up to where leaders of that epoch have committed in this past."""
        return self._ends.get(epoch, 0)

    def has_shown(self, mark: Mark) -> bool:
        """Whether consumers may have read that batch of a leader of the past, now or before the recovery."""
        return mark[1:] in self._shown

    def recovered(self, entry: Partition, log_epoch: int) -> None:
        """The partition goes on with this entry, and with a log of that epoch."""
        ledger = self._ledger
        host = ledger.oracles.hosts[entry.leader]
        directory = ledger.directory(host)
        durable = ledger.durable_end(host)
        own = {mark[1:] for mark in batches(directory) if mark.next <= durable} if directory is not None else set()
        own |= {mark[1:] for mark in ledger.committed}
        for mark, epoch in self._in_order():
            other = epoch < log_epoch or (epoch == log_epoch and epoch in self._anew)
            if other and mark[1:] not in own:
                self.excused.add((mark.base, mark.next, mark.crc))
            else:
                ledger.append(mark)
        self._close()

    def kept(self, leader_epoch: int) -> None:
        """The partition goes on without a recovery: what was committed counts like anything else."""
        for mark, _ in self._in_order():
            self._ledger.append(mark)
        self._close()
        self.highest = leader_epoch

    def ended(self, leader_epoch: int) -> None:
        """All is well, and nobody knows more than the store shows: what it was restored to goes on, without a change."""
        if self.below >= 0:
            self.kept(leader_epoch)

    def forgotten(self, marks: list[Mark]) -> None:
        """These were committed, and the partition goes on without them since nobody knows of what the store lost."""
        self.excused.update((mark.base, mark.next, mark.crc) for mark in marks)

    def _in_order(self) -> list[tuple[Mark, int]]:
        return sorted(self._committed.values(), key=lambda found: found[0][1:])

    def _close(self) -> None:
        self.below = -1
        self._committed.clear()
        self._ends.clear()
        self._anew.clear()

    def _known(self, driver: Driver) -> int:
        """The highest leader epoch of which the process has been told, or its log has a batch."""
        directory = self._ledger.directory(driver.partitions.broker.host)
        last = None if directory is None else last_batch(directory)
        return max(self._told(driver), -1 if last is None else last.epoch)

    def _told(self, driver: Driver) -> int:
        """The highest leader epoch that the process has in mind, or its disk has noted."""
        broker = driver.partitions.broker
        entry = broker.cache.partition(driver.ref, driver.number)
        metadata = read_metadata(broker.host.disk, self._ledger.directory_name)
        return max((found.leader_epoch for found in (entry, metadata) if found is not None), default=-1)
