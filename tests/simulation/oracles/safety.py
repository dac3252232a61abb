"""The invariants of one partition; `Ledger` calls them at every step that could break them."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from operator import attrgetter
from typing import TYPE_CHECKING

from kafkalite_core.model.cluster import entry_counts
from kafkalite_core.model.errors import BrokerError
from kafkalite_core.model.partition import IsrEntry
from kafkalite_core.replica.events import Role
from tests.simulation.platter import Mark, batches, batches_between
from tests.simulation.world import LimitReached, Violation

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from kafkalite_core.model.cluster import Broker
    from kafkalite_core.model.partition import Partition
    from tests.simulation.driver import Driver
    from tests.simulation.host import Host
    from tests.simulation.oracles.ledger import Ledger

_BASE, _NEXT = attrgetter("base"), attrgetter("next")


class OneLeader:
    """At most one incarnation of one broker leads in a leader epoch; epochs rise with every change in the store."""

    name = "one leader"

    def led(self, ledger: Ledger, driver: Driver) -> None:
        """A replica began to lead."""
        broker = driver.partitions.broker
        epoch = driver.replica.leader_epoch
        who = (broker.host.id, broker.incarnation)
        if ledger.leaders.setdefault(epoch, who) != who:
            raise Violation(self.name, f"{ledger} epoch {epoch}: led by {ledger.leaders[epoch]} and by {who}")

    def stored(self, ledger: Ledger, old: Partition | None, new: Partition) -> None:
        """The entry in the store changed."""
        if old is None:
            return
        rises = new.partition_epoch > old.partition_epoch and new.leader_epoch >= old.leader_epoch
        if not rises or (new.leader != old.leader and new.leader_epoch == old.leader_epoch):
            raise Violation(self.name, f"{ledger}: {old} was followed by {new}")


class LogMatching:
    """Two logs never differ at the same (offset, leader epoch): batches are equal byte for byte (their CRC)."""

    name = "log matching"

    def check(self, ledger: Ledger, mark: Mark) -> None:
        """A replica wrote a batch."""
        known = ledger.written.setdefault((mark.base, mark.epoch), mark)
        if known is not mark and known[2:] != mark[2:]:
            if ledger.past.gave_way(known):
                ledger.written[mark.base, mark.epoch] = mark
                return
            if ledger.past.came_again(known):
                raise LimitReached(f"{ledger}: leader epoch {mark.epoch} came again with other records (limits of S11)")
            raise Violation(self.name, f"{ledger}: {known} and {mark} in the same epoch")


class Completeness:
    """Whoever leads, or could be elected, has everything that was committed.

    leader(e) begins              =>  its log holds, from its log start on, all that was committed at the election of e
    m in ISR or ELR and counts    =>  the disk of m holds every committed batch
    a leader's log starts at s    =>  a user asked to delete the records below some offset >= s

    Of a disk it is enough to look at the last committed batch: those before it are the same by log matching.
    """

    start_name = "log start"
    leader_name = "leader completeness"
    candidate_name = "leader-candidate completeness"

    def leader(self, ledger: Ledger, driver: Driver) -> None:
        """A replica began to lead."""
        directory = ledger.directory(driver.partitions.broker.host)
        own = [] if directory is None else batches(directory)
        start = driver.log.start_offset
        if start > ledger.deletable:
            raise Violation(self.start_name, f"{ledger}: a log starts at {start}, {ledger.deletable} was deleted")
        # One that hears of its election late, when another one has followed it, needs no more than it needed then.
        epoch = driver.replica.leader_epoch
        until = ledger.elected_at.get(epoch, 0)
        wanted = [mark for mark in ledger.committed if mark.next <= until]
        if ledger.is_deposed(epoch):  # what was committed then is given up, and others have taken its offsets
            wanted = [mark for mark in wanted if mark.epoch <= epoch]
        if start:
            # The batch that the start is in counts: records of it may be acknowledged, and not deleted.
            wanted = wanted[bisect_right(wanted, start, key=_NEXT) :]
            own = own[bisect_right(own, start, key=_NEXT) :]
        whole = [mark[1:] for mark in own[: len(wanted)]] == [mark[1:] for mark in wanted]
        lossy = ledger.lossy
        if lossy:
            # One that was not in sync may hold records that it has not flushed: a power loss takes them, as was allowed.
            durable = ledger.durable_end(driver.partitions.broker.host)
            if not whole or any(mark.next > durable for mark in wanted):
                self._lose(ledger, {mark[1:] for mark in own if mark.next <= durable}, wanted)
                self._passed(ledger, epoch)
            else:
                self.made_good(ledger, driver)
            # What one unclean election took the next may bring back: this leader serves up to its own high watermark.
            ledger.extend(driver, driver.replica.high_watermark)
        if whole or lossy:
            return
        have = {mark[1:] for mark in own}
        missing = [mark for mark in wanted if mark[1:] not in have]
        if not missing:
            return
        raise Violation(
            self.leader_name,
            f"{ledger}: broker {driver.partitions.broker.host.id} leads in epoch {driver.replica.leader_epoch} without "
            f"{len(missing)} committed batches, the first is {missing[0]}; its log ends at {driver.log.end_offset}, "
            f"{ledger.committed_end} is committed",
        )

    def made_good(self, ledger: Ledger, driver: Driver) -> None:
        """Of a leader after an election that was allowed to lose something, if it did not.

        Where the store went back and nobody knew of what it lost, the ISR of that election may be one of the past as
        well: a member that had left it, and lacks what was committed since. It lacks it no longer once the leader, who
        waits for all of them, has its high watermark where everything is; but it may have had it there before, as the
        last checkpoint does, from when it waited for fewer.
        """
        if driver.replica.leader_epoch < ledger.lossy_since:
            return
        if not ledger.unnoticed:
            ledger.lossy = False
            self._passed(ledger, driver.replica.leader_epoch)
        elif driver.replica.high_watermark >= ledger.committed_end:
            short = any(self._short(ledger, host) is not None for _, host in self._counting(ledger))
            ledger.lossy = ledger.unnoticed = short

    @staticmethod
    def _passed(ledger: Ledger, epoch: int) -> None:
        """The first leader has begun since elections were allowed to lose something: that of this epoch.

        Those that such elections made before it were allowed to lose anything, too. One that hears of its own late has
        nothing to bring: what this one has, it need not have had (seed 3409).
        """
        for passed in [known for known in ledger.elected_at if ledger.lossy_since <= known < epoch]:
            del ledger.elected_at[passed]

    @staticmethod
    def _lose(ledger: Ledger, have: set[tuple[int, ...]], wanted: list[Mark]) -> None:
        """An unclean election was allowed: what its leader lacks is lost, and that is known.

        Whoever is elected from then on need not have it: nor does a leader that an entry after that one names, before
        this one began. So it was not committed at their elections, also if a later unclean election brings it back.

        What lies below the start of its log no election has lost, a user has deleted it. It stays committed: another log
        may show it again when it leads later, since a crash takes a log start back to where the last checkpoint has it.
        """
        unnoticed = ledger.unnoticed
        ledger.lossy = ledger.unnoticed = False
        first = wanted[0].base if wanted else 0
        missing = (n for n, mark in enumerate(ledger.committed) if mark.base >= first and mark[1:] not in have)
        lost = next(missing, None)
        if lost is not None and wanted:
            if unnoticed and not ledger.relaxed:  # with relaxed flush a power loss may have taken it as well
                ledger.past.forgotten(ledger.committed[lost:])
            ledger.losses += len(ledger.committed) - lost
            ledger.given_up.update(mark[1:] for mark in ledger.committed[lost:])
            ledger.committed_end = ledger.committed[lost].base
            del ledger.committed[lost:]
            ledger.sequences = {key: base for key, base in ledger.sequences.items() if base < ledger.committed_end}
            ledger.lines = ledger.oracles.order.lines(ledger.committed)
            ledger.elected_at = {
                epoch: end if epoch < ledger.lossy_since else min(end, ledger.committed_end)
                for epoch, end in ledger.elected_at.items()
            }
            ledger.marks.clear()

    def candidates(self, ledger: Ledger, occasion: str) -> None:
        """The entry, the brokers, or what is committed changed."""
        entry = ledger.entry
        if entry is None or ledger.lossy or ledger.is_behind(entry):
            return
        for member, host in self._counting(ledger):
            end = self._short(ledger, host)
            if end is not None:
                raise Violation(
                    self.candidate_name,
                    f"{ledger}: at {occasion}, {member} counts (isr {entry.isr}, elr {entry.elr}, epoch "
                    f"{entry.leader_epoch}) but its disk ends at {end}, and {ledger.committed_end} is committed",
                )
            self._same_last(ledger, member, host, occasion)

    @staticmethod
    def _counting(ledger: Ledger) -> Iterator[tuple[IsrEntry, Host]]:
        """Who may be elected by the entry, whoever leads now."""
        entry, oracles = ledger.entry, ledger.oracles
        for member in () if entry is None else (*entry.isr, *entry.elr):
            host = oracles.hosts.get(member.id)
            if host is None or host.lost_unheard(relaxed=ledger.relaxed):
                continue  # it lost data, and whoever elects will know of that by its next registration
            if entry_counts(member, oracles.brokers, relaxed_flush=ledger.relaxed):
                yield member, host

    def _short(self, ledger: Ledger, host: Host) -> int | None:
        """Where its disk ends if that is before the end of what is committed."""
        end = ledger.durable_end(host)
        return None if end >= ledger.committed_end or self._starts_behind(ledger, host) else end

    def _same_last(self, ledger: Ledger, member: IsrEntry, host: Host, occasion: str) -> None:
        if not ledger.committed or self._starts_behind(ledger, host):
            return
        last, directory = ledger.committed[-1], ledger.directory(host)
        found = [] if directory is None else batches_between(directory, last.base, last.next)
        if last[1:] not in [mark[1:] for mark in found]:
            if ledger.past.came_again(last):
                raise LimitReached(f"{ledger}: leader epoch {last.epoch} came again with other records (limits of S11)")
            raise Violation(
                self.candidate_name, f"{ledger}: at {occasion}, {member} counts but has {found} instead of {last}"
            )

    @staticmethod
    def _starts_behind(ledger: Ledger, host: Host) -> bool:
        """Everything committed was deleted there (DeleteRecords): an empty log that begins at the end."""
        directory = ledger.directory(host)
        if directory is None or ledger.deletable < ledger.committed_end:
            return False
        segments = directory.segments()
        return bool(segments) and int(segments[0][0].partition(".")[0]) >= ledger.committed_end


class QuorumSuperset:
    """Nobody can be elected for whom the leader does not wait (R4, R7, R10).

    leader epoch of the store = leader epoch of the leader
        =>  ISR in the store and ELR in the store  ⊆  those whose ends the leader's high watermark waits for

    By entries, also of those that do not count at the moment. The entry of an earlier incarnation stands for that of a
    later one as long as it counts: operators name the present epochs of members that have lost nothing, and the leader
    hears of it late. If it does not count, the later one may have begun with less.

    The store's entry or the leader's members may break it: a patch that lands when the leader has dropped it, and a
    leader that drops one that has landed. An entry of the past (S11) says nothing of who may lead.
    """

    name = "quorum superset"

    def stored(self, ledger: Ledger, entry: Partition) -> None:
        """The entry changed. Raises `Violation`."""
        host = ledger.oracles.hosts.get(entry.leader)
        broker = None if host is None else host.broker
        driver = None if broker is None else broker.driver(ledger.topic, ledger.number)
        if driver is not None and driver.ref.topic_id == ledger.tag[0]:
            self._judge(ledger, entry, driver)

    def members_changed(self, ledger: Ledger, driver: Driver) -> None:
        """A replica was shown another entry, other brokers, or the end of a proposal. Raises `Violation`."""
        entry = ledger.entry
        if entry is not None and entry.leader == driver.partitions.broker.host.id and not ledger.is_behind(entry):
            self._judge(ledger, entry, driver)

    def _judge(self, ledger: Ledger, entry: Partition, driver: Driver) -> None:
        replica = driver.replica
        if replica.role is not Role.LEADER or replica.leader_epoch != entry.leader_epoch:
            return
        held = waited_for(driver)
        others = [each for each in (*entry.isr, *entry.elr) if each.id != entry.leader]
        missing = [each for each in others if each not in held and not self._stands(ledger, held, each)]
        if missing:
            raise Violation(
                self.name,
                f"{ledger}: in the store are isr {entry.isr} and elr {entry.elr} of partition epoch "
                f"{entry.partition_epoch}, but the leader waits for {sorted(held)} only, not for {missing}",
            )

    @staticmethod
    def _stands(ledger: Ledger, held: set[IsrEntry], member: IsrEntry) -> bool:
        """Whether the leader waits for an earlier incarnation that has told of nothing that this one lacks."""
        brokers, relaxed = ledger.oracles.brokers, ledger.lag_known
        earlier = [known for known in held if known.id == member.id and known.epoch < member.epoch]
        return any(
            entry_counts(known, brokers, relaxed_flush=relaxed)
            or not entry_counts(member, brokers, relaxed_flush=relaxed)
            for known in earlier
        )


def waited_for(driver: Driver) -> set[IsrEntry]:
    """The other members whose flushed ends a leader's high watermark waits for; what it goes by, not what it tells."""
    leader = driver.replica._leader
    return set() if leader is None else {IsrEntry(member.id, member.epoch) for member in leader._members}


class Durability:
    """An acknowledgement with acks=all: below the high watermark, and on at least min ISR disks (R11).

    A disk that was lost a moment ago, which nobody has heard of yet, counts as it was. Nor has a leader heard of it that
    is cut off from the API server, while the store shows that the broker is registered anew, or no longer. It goes by
    what the incarnation that it knows has told it: to commit a batch when the last one that lacked it has left the ISR,
    or to acknowledge one again that is sent again. For such a leader a disk counts as that incarnation left it. Nothing
    is lost by it: who lost the batch does not count, and can't be elected for it (R7, leader-candidate completeness).

    A leader of the past (S11) goes by what followers told it before they followed a later one, which had them cut it off.
    Whether what it acknowledges may be missing later is for the recovery to show (`Past`).
    """

    name = "acknowledged is durable"

    def acknowledged(self, ledger: Ledger, driver: Driver, base: int, stop: int) -> None:
        """A leader answers that [base, stop) is safe."""
        replica = driver.replica
        epoch = replica.leader_epoch
        committed_end = max(ledger.committed_end, ledger.past.end(epoch), ledger.deposed_ends.get(epoch, 0))
        if stop > replica.high_watermark or stop > committed_end:
            raise Violation(
                self.name,
                f"{ledger}: [{base}, {stop}) acknowledged, the high watermark is {replica.high_watermark}, "
                f"{committed_end} is committed",
            )
        partition = replica.partition
        if partition is None or ledger.past.leads(driver):
            return
        hosts = [ledger.oracles.hosts[broker_id] for broker_id in partition.replicas]
        disks = [h.id for h in hosts if h.lost_unheard(relaxed=ledger.relaxed) or ledger.durable_end(h) >= stop]
        wanted = min(partition.min_isr, len(partition.replicas))
        if len(disks) >= wanted:
            return
        disks += [h.id for h in hosts if h.id not in disks and self._known_end(ledger, driver, h) >= stop]
        if len(disks) < wanted:
            raise Violation(
                self.name,
                f"{ledger}: [{base}, {stop}) acknowledged, but only the disks of {disks} hold it; min ISR is "
                f"{partition.min_isr}, the ISR is {partition.isr}",
            )

    @staticmethod
    def _known_end(ledger: Ledger, driver: Driver, host: Host) -> int:
        """How a disk was left by the incarnation that the leader takes for registered, and the store does not."""
        known, now = driver.partitions.broker.cache.brokers.get(host.id), ledger.oracles.brokers.get(host.id)
        if known is None or known.registration is None:
            return 0
        incarnation = known.registration.incarnation
        if now is not None and now.registration is not None and now.registration.incarnation == incarnation:
            return 0
        return ledger.durable_end_of(incarnation)


class Watermark:
    """The high watermark rises within a leader epoch, lies in the log, and what lies below it never changes.

    That is of one incarnation where a leader of the past leads in an epoch that came again (S11, `Past.anew`).

    Consumers read below the true high watermark, and always the same bytes at an offset. After an unclean election they may
    be given what it lost, by a leader that has not heard of it.
    """

    name = "high watermark"
    read_name = "consumer reads committed"

    def advanced(self, ledger: Ledger, driver: Driver) -> None:
        """A replica moved its high watermark."""
        replica, log = driver.replica, driver.log
        mark = replica.high_watermark
        if not log.start_offset <= mark <= log.end_offset:
            raise Violation(self.name, f"{ledger}: {mark} is not in [{log.start_offset}, {log.end_offset}]")
        if replica.role is not Role.LEADER:
            return
        epoch, who = replica.leader_epoch, driver.partitions.broker.incarnation
        before, whose = ledger.marks.get(epoch, (0, who))
        if mark < before and (whose == who or not ledger.past.anew(driver)):
            raise Violation(self.name, f"{ledger}: fell from {before} to {mark} in epoch {epoch}")
        ledger.marks[epoch] = mark, who
        if ledger.unnoticed and not ledger.past.leads(driver):
            ledger.oracles.completeness.made_good(ledger, driver)
        if ledger.past.leads(driver):
            ledger.past.commit(driver, mark)
        elif ledger.is_deposed(epoch):
            ledger.give_up(driver, before, mark)
        elif mark > ledger.committed_end:
            ledger.extend(driver, mark)
            ledger.oracles.completeness.candidates(ledger, "an advance of the high watermark")

    def latest(self, driver: Driver) -> None:
        """Somebody asks for the end: never less than any leader of an earlier epoch had shown (R13, KIP-207)."""
        ledger = driver.ledger
        if ledger.past.anew(driver):
            return
        try:
            latest = driver.replica.list_offset_bounds(-1, False)
        except BrokerError:
            return
        epoch = driver.replica.leader_epoch
        before = ledger.elected_at.get(epoch, 0)
        if latest < min(before, ledger.committed_end):
            raise Violation(self.name, f"{ledger}: latest is {latest} in epoch {epoch}, {before} was shown before")

    def read(self, ledger: Ledger, who: str, mark: Mark) -> None:
        """A consumer was given a batch."""
        place = bisect_left(ledger.committed, mark.base, key=_BASE)
        known = ledger.committed[place] if place < len(ledger.committed) else None
        shown = ledger.past.has_shown(mark) or mark[1:] in ledger.given_up
        if (known is None or known[1:] != mark[1:]) and not shown:
            raise Violation(
                self.read_name,
                f"{ledger}: {who} read {mark}, the truth is {known} ({ledger.committed_end} is committed)",
            )
        ledger.oracles.read_order.read(ledger, who, mark)


class Sequences:
    """No (producer id, producer epoch, sequence) is committed twice (KIP-98), while its records are there.

    A replica that began at its leader's log start does not know of the producers whose last batches lie below. So when
    a user has deleted what a producer has no answer about yet, and that replica leads when the producer repeats it, the
    history ends there, as one that reached a limit.
    """

    name = "no duplicate"

    def check(self, ledger: Ledger, mark: Mark) -> None:
        """A batch is committed."""
        if mark.producer < 0:
            return
        key = (mark.producer, mark.producer_epoch, mark.sequence)
        first = ledger.sequences.setdefault(key, mark.base)
        if first == mark.base:
            return
        after = first + mark.next - mark.base
        if after <= ledger.deletable and ledger.begins_behind(after, mark):
            raise LimitReached(f"{ledger}: {key} was deleted at {first}, and came again at {mark.base} (limits of S9)")
        raise Violation(self.name, f"{ledger}: {key} at {first} and at {mark.base}")


def counting_ids(entry: Partition, brokers: Mapping[int, Broker], *, relaxed: bool) -> set[int]:
    """Who may be elected cleanly: members of ISR and ELR whose entries count."""
    return {m.id for m in (*entry.isr, *entry.elr) if entry_counts(m, brokers, relaxed_flush=relaxed)}
