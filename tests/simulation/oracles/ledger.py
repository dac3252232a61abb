"""The truth about one partition, kept beside the cluster under test: what was written, committed and acknowledged."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalite_core.replica.events import Role
from kafkalite_core.storage.partition_metadata import read_metadata
from tests.simulation.oracles.past import Past
from tests.simulation.platter import Directory, Mark, batches, batches_between, durable_last, last_batch

if TYPE_CHECKING:
    from kafkalite_core.model.partition import IsrEntry, Partition, TopicRef
    from tests.simulation.broker import Broker
    from tests.simulation.driver import Driver
    from tests.simulation.host import Host
    from tests.simulation.oracles.oracles import Oracles
    from tests.simulation.platter import Tag


class Ledger:
    """See the module.

    Attributes:
        written: Every batch that any replica ever wrote, by (base offset, leader epoch).
        committed: The batches below the true high watermark, in order.
        committed_end: The true high watermark: the greatest that any leader has reached.
        elected_at: What was committed when the store took a leader epoch, by that epoch.
        acked_end: End of what was acknowledged with acks=all.
        entry: The entry in the store, None when the topic is gone.
        last: The entry that went with the topic.
        leaders: Who led in which leader epoch.
        lines: The last committed batch of every producer.
        marks: The high watermark by leader epoch, and the incarnation whose it is.
        lossy: An unclean election was allowed, and its leader has not begun yet.
        lossy_since: The leader epoch of that election.
        unnoticed: It is lossy because the store went back in time, and nobody knew of what it lost.
        newest: The highest leader epoch and the highest partition epoch that the store ever had.
        behind: The same when the store went back in time: an entry that is not above both says nothing of who may lead.
        past: What leaders of the past commit meanwhile, which is not in `committed`.
        damaged: Some replica's disk lost data at some time.
        unlisted: Brokers that have data of it set aside which they list no more.
        named: Members of the ISR with which an operator has decided to make it again, until their replica begins; whether
            their broker listed it then, in the eyes of that operator. If not, nobody relies on what it had set aside.
        lag_known: The topic's status says that records may be acknowledged before they are flushed (S4).
        forfeited: The user has deleted the topic at some time: nothing is promised of what was in it.
        superseded: The store went back to another topic of this name, placed under another topic id or not placed yet.
        destroyed: The last disk that had a batch of it was lost, or a power failure took it with relaxed flush, and none
            was written since.
        losses: How many committed batches unclean elections took.
        given_up: Those batches, and what a leader commits that an unclean election has deposed: whoever has not heard
            of the election yet may still show them.
        unclean_since: The newest leader epoch that an unclean election began; -1 without any.
        deletable: The highest offset up to which a user has asked to delete records (KIP-107): nothing else moves the start
            of a log, since the histories are too short for retention.
        min_isrs: What min ISR may have been wanted at some time (S4).
        deposed_ends: How far leaders have got that it deposed, by leader epoch.
    """

    def __init__(self, oracles: Oracles, ref: TopicRef, number: int) -> None:
        self.oracles = oracles
        self.topic = ref.name
        self.number = number
        self.tag: Tag = (ref.topic_id, number)
        self.directory_name = f"{ref.name}-{number}"
        self.written: dict[tuple[int, int], Mark] = {}
        self.committed: list[Mark] = []
        self.committed_end = 0
        self.acked_end = 0
        self.acked = 0
        self.entry: Partition | None = None
        self.last: Partition | None = None
        self.leaders: dict[int, tuple[int, str]] = {}
        self.marks: dict[int, tuple[int, str]] = {}
        self.elected_at: dict[int, int] = {}
        self.sequences: dict[tuple[int, int, int], int] = {}
        self.lines: dict[int, Mark] = {}
        self.relaxed = self.lag_known = False
        self.unlisted: set[int] = set()
        self.named: dict[IsrEntry, bool] = {}
        self.lossy = self.unnoticed = False
        self.lossy_since = -1
        self._ended: dict[str, int] = {}
        self.losses = 0
        self.given_up: set[tuple[int, ...]] = set()
        self.unclean_since = -1
        self.deletable = 0
        self.min_isrs: set[int] = set()
        self.deposed_ends: dict[int, int] = {}
        self.damaged = False
        self.newest = self.behind = (-1, -1)
        self.past = Past(self)
        self.forfeited = self.superseded = self.destroyed = False

    def __str__(self) -> str:
        return self.directory_name

    # ------------------------------------------------------------------------------------------------ disks

    def directory(self, host: Host) -> Directory | None:
        """The log of this very partition on a machine's disk, as a running process sees it; also when set aside."""
        found = host.disk.root.entries.get(self.directory_name)
        if isinstance(found, Directory) and found.tag == self.tag:
            return found
        return next((node for _, node in host.disk.of(self.tag)), None)

    def durable_end(self, host: Host) -> int:
        """Everything of this partition below it outlives a power failure of that machine."""
        directory = self.directory(host)
        if directory is None:
            return 0
        if not self.relaxed:
            if all(node is not directory for node in host.disk.root.durable.values()):
                return 0
            last = durable_last(directory)
        else:
            last = last_batch(directory)
        return 0 if last is None else last.next

    def is_held(self) -> bool:
        """Whether any disk has a batch of it."""
        return any(last_batch(directory) is not None for _, _, directory in self.logs())

    def disk_goes(self, host: Host) -> None:
        """A disk is about to be lost."""
        has = {other.id for other, _, directory in self.logs() if last_batch(directory) is not None}
        if has == {host.id}:
            self.destroyed = True

    def strays_leave(self, leaving: dict[int, set[str]]) -> None:
        """These directories of brokers are removed, by age or from a full disk, as users are told that they may be.

        Where nobody else has all that is committed, that is lost.
        """
        ends = {True: -1, False: -1}
        for host, name, directory in self.logs():
            last, leaves = last_batch(directory), name in leaving.get(host.id, set())
            ends[leaves] = max(ends[leaves], -1 if last is None else last.next)
        self.unlisted |= {number for number, names in leaving.items() if names}
        if ends[True] >= self.committed_end > ends[False]:
            self.destroyed = True

    def process_ended(self, broker: Broker) -> None:
        """A broker ended, and its disk is still as it left it."""
        self._ended[broker.incarnation] = self.durable_end(broker.host)

    def durable_end_of(self, incarnation: str) -> int:
        """What the disk of that incarnation of a broker held when it ended; 0 while it runs."""
        return self._ended.get(incarnation, 0)

    # ------------------------------------------------------------------------------------------------ what happens

    def made_again(self) -> None:
        """The partition is made again of what the disks have, in epochs above those that they know.

        An epoch that all have forgotten (relaxed flush, and a power loss of every copy) may come again: a batch of it
        is forgotten here if no log of the partition has it, in use or set aside, flushed or only in the memory of a
        machine that runs. A directory without readable metadata is no log of any partition. Whatever else still has
        such a batch, a message on its way, is noticed as soon as it is written. What was committed is not forgotten.
        """
        self.forget(-1)
        self.behind = (-1, -1)
        self.past.kept(-1)

    def logs(self) -> list[tuple[Host, str, Directory]]:
        """All logs of the partition: the machine, the name of the directory, which may be set aside, and what is in it."""
        return [(host, name, node) for host in self.oracles.hosts.values() for name, node in host.disk.of(self.tag)]

    def begins_behind(self, offset: int, mark: Mark) -> bool:
        """Whether a log that has that batch begins behind an offset: what lay below it was never told, or is forgotten."""
        logs = [batches(directory) for _, _, directory in self.logs()]
        return any(own[0].base >= offset and mark[1:] in [other[1:] for other in own] for own in logs if own)

    def forget(self, epoch: int) -> None:
        """Of leader epochs above that one nobody knows any more, but by the batches that are left of them."""
        kept = {(mark.base, mark.epoch) for _, _, directory in self.logs() for mark in batches(directory)}
        self.written = {key: mark for key, mark in self.written.items() if key in kept or key[1] <= epoch}
        self.leaders = {known: who for known, who in self.leaders.items() if known <= epoch}
        self.marks = {known: end for known, end in self.marks.items() if known <= epoch}

    def on_disks(self) -> tuple[int, int]:
        """The highest leader epoch and partition epoch that any machine's disk has noted or has batches of."""
        noted = [(-1, -1)]
        for host, name, directory in self.logs():
            metadata = read_metadata(host.disk, name)
            if metadata is not None:
                noted.append((metadata.leader_epoch, metadata.partition_epoch))
            noted += [(mark.epoch, -1) for mark in batches(directory)]
        return max(epochs[0] for epochs in noted), max(epochs[1] for epochs in noted)

    def stored(self, entry: Partition) -> None:
        """The store has another entry, or had it before it went back in time."""
        self.newest = (max(self.newest[0], entry.leader_epoch), max(self.newest[1], entry.partition_epoch))
        self.past.highest = max(self.past.highest, entry.leader_epoch)
        if entry.leader_epoch < self.unclean_since:
            self.unclean_since = -1  # made again, or of a store that went back

    def is_behind(self, entry: Partition | None) -> bool:
        """The entry is of a past of the store, or was decided on one: brokers that know more do not go by it (S11)."""
        return entry is not None and (entry.leader_epoch <= self.behind[0] or entry.partition_epoch <= self.behind[1])

    def may_lose(self, leader_epoch: int) -> None:
        """An election with that leader epoch is allowed to lose what was committed."""
        self.lossy_since = min(leader_epoch, self.lossy_since) if self.lossy else leader_epoch
        self.lossy = True

    def elected_unclean(self, leader_epoch: int) -> None:
        """An unclean election that the topic, or its user, allows."""
        self.may_lose(leader_epoch)
        self.unclean_since = leader_epoch

    def is_deposed(self, leader_epoch: int) -> bool:
        """Whether the leader of an unclean election has begun, and that of this epoch has not heard of it.

        Nothing fences the deposed one if it was alone in its ISR: it goes on committing what will be lost.
        """
        return not self.lossy and leader_epoch < self.unclean_since

    def give_up(self, driver: Driver, start: int, stop: int) -> None:
        """A leader that an unclean election has deposed has committed [start, stop)."""
        directory = self.directory(driver.partitions.broker.host)
        found = [] if directory is None else batches_between(directory, start, stop)
        lost = {mark[1:] for mark in found} - {mark[1:] for mark in self.committed}
        self.given_up |= lost
        self.losses += len(lost)
        self.deposed_ends[driver.replica.leader_epoch] = stop

    def wrote(self, mark: Mark) -> None:
        """A replica wrote a batch."""
        self.oracles.log_matching.check(self, mark)
        self.destroyed = False

    def role_changed(self, driver: Driver) -> None:
        """A replica leads or follows from now on; in a past of the store only one that knows nothing else."""
        self.past.began(driver)
        broker_id = driver.partitions.broker.host.id
        self.named = {member: listed for member, listed in self.named.items() if member.id != broker_id}
        if driver.replica.role is not Role.LEADER or self.is_behind(driver.replica.partition):
            return
        self.oracles.one_leader.led(self, driver)
        self.oracles.completeness.leader(self, driver)

    def members_changed(self, driver: Driver) -> None:
        """A replica was shown another entry, other brokers, or the end of a proposal."""
        self.oracles.superset.members_changed(self, driver)

    def high_watermark_advanced(self, driver: Driver) -> None:
        """A replica moved its high watermark."""
        self.oracles.watermark.advanced(self, driver)

    def extend(self, driver: Driver, stop: int) -> None:
        """A leader has committed up to `stop`."""
        directory = self.directory(driver.partitions.broker.host)
        if directory is None:
            return
        for mark in batches_between(directory, self.committed_end, stop):
            self._commit(mark)
        self.oracles.world.note(self.number, self.committed_end)

    def append(self, mark: Mark) -> None:
        """A batch that a leader committed whom nothing was known against counts, if it is the next one."""
        if mark.base == self.committed_end:
            self._commit(mark)

    def _commit(self, mark: Mark) -> None:
        self.committed.append(mark)
        self.committed_end = mark.next
        self.oracles.sequences.check(self, mark)
        self.oracles.order.check(self, mark)

    def acknowledged(self, driver: Driver, base: int, stop: int, acks: int) -> None:
        """A leader answers a producer that its batch [base, stop) is safe."""
        if acks == -1:
            self.acked_end = max(self.acked_end, stop)
            self.oracles.durability.acknowledged(self, driver, base, stop)
            self.oracles.completeness.candidates(self, "an acknowledgement")
