"""The truth about one partition, kept beside the cluster under test: what was written, committed and acknowledged."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.platter import Directory, Mark, batches, batches_between, durable_last, last_batch

if TYPE_CHECKING:
    from kafkalite_core.model.partition import Partition, TopicRef
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
        leaders: Who led in which leader epoch.
        lossy: An unclean election was allowed, and its leader has not begun yet.
        behind: The store went back in time: until its leader epoch is above this one it says nothing of who may lead.
        damaged: Some replica's disk lost data at some time.
        forfeited: The user has deleted the topic at some time: nothing is promised of what was in it.
        losses: How many committed batches unclean elections took.
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
        self.leaders: dict[int, tuple[int, str]] = {}
        self.marks: dict[int, int] = {}
        self.elected_at: dict[int, int] = {}
        self.sequences: dict[tuple[int, int, int], int] = {}
        self.relaxed = False
        self.lossy = False
        self.losses = 0
        self.damaged = False
        self.behind = -1
        self.forfeited = False

    def __str__(self) -> str:
        return self.directory_name

    # ------------------------------------------------------------------------------------------------ disks

    def directory(self, host: Host) -> Directory | None:
        """The log of this very partition on a machine's disk, as a running process sees it; also when set aside."""
        entries = host.disk.root.entries
        found = entries.get(self.directory_name)
        if isinstance(found, Directory) and found.tag == self.tag:
            return found
        strays = (node for node in entries.values() if isinstance(node, Directory) and node.tag == self.tag)
        return next(strays, None)

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

    # ------------------------------------------------------------------------------------------------ what happens

    def made_again(self) -> None:
        """The partition is made again of what the disks have, in epochs above those that they know.

        An epoch of which no disk has kept a batch (relaxed flush, and every copy lost) may come again: nothing is left
        that its batches could be confused with.
        """
        directories = [
            node
            for host in self.oracles.hosts.values()
            for node in host.disk.root.entries.values()
            if isinstance(node, Directory) and node.tag == self.tag
        ]
        kept = {(mark.base, mark.epoch) for directory in directories for mark in batches(directory)}
        self.written = {key: mark for key, mark in self.written.items() if key in kept}
        self.leaders.clear()
        self.marks.clear()

    def wrote(self, mark: Mark) -> None:
        """A replica wrote a batch."""
        self.oracles.log_matching.check(self, mark)

    def leader_began(self, driver: Driver) -> None:
        """A replica leads from now on."""
        self.oracles.one_leader.led(self, driver)
        self.oracles.completeness.leader(self, driver)

    def high_watermark_advanced(self, driver: Driver) -> None:
        """A replica moved its high watermark."""
        self.oracles.watermark.advanced(self, driver)

    def extend(self, driver: Driver, stop: int) -> None:
        """A leader has committed up to `stop`."""
        directory = self.directory(driver.partitions.broker.host)
        if directory is None:
            return
        for mark in batches_between(directory, self.committed_end, stop):
            self.committed.append(mark)
            self.committed_end = mark.next
            self.oracles.sequences.check(self, mark)
        self.oracles.world.note(self.number, self.committed_end)

    def acknowledged(self, driver: Driver, base: int, stop: int, acks: int) -> None:
        """A leader answers a producer that its batch [base, stop) is safe."""
        if acks == -1:
            self.acked_end = max(self.acked_end, stop)
            self.oracles.durability.acknowledged(self, driver, base, stop)
            self.oracles.completeness.candidates(self, "an acknowledgement")
