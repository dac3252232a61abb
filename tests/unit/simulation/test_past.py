"""What leaders of the past acknowledge between a restore and the recovery may be missing then, and nothing else (S11)."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace

import pytest

from kafkalite_core.model.partition import IsrEntry
from kafkalite_core.model.topic import Holding
from kafkalite_core.resources import patches
from tests.simulation.final import promises_kept
from tests.simulation.oracles import past as past_module
from tests.simulation.oracles.order import ProducerOrder
from tests.simulation.oracles.safety import Completeness
from tests.simulation.world import LimitReached, Violation

LOST = "leader-candidate completeness"


class Restore:
    """The leader's log has a batch that the follower's lacks, and who acknowledges it when is up to the test."""

    def __init__(self, healthy, ledger, leader, follower, monkeypatch) -> None:
        self.cluster, self.ledger, self.leader, self.follower = healthy, ledger, leader, follower
        self.oracles = healthy.oracles
        self.past = ledger.entry
        self.batch = ledger.committed.pop()
        ledger.lines = ProducerOrder.lines(ledger.committed)
        self.marks = ledger.directory(follower.partitions.broker.host).segments()[-1][1].marks
        assert self.marks[-1][1:] == self.batch[1:]
        ledger.committed_end = self.batch.base
        ledger.newest = (self.past.leader_epoch, self.past.partition_epoch)
        ledger.past.highest = self.past.leader_epoch
        self.newest = self.above(2, 5)
        monkeypatch.setattr(self.oracles.metadata, "restored", False)
        monkeypatch.setattr(self.oracles, "brokers", self.oracles.brokers)
        self._monkeypatch = monkeypatch

    def above(self, leader_epochs: int, partition_epochs: int):
        epochs = (self.past.leader_epoch + leader_epochs, self.past.partition_epoch + partition_epochs)
        return replace(self.past, leader_epoch=epochs[0], partition_epoch=epochs[1])

    def later_epochs(self, entry=None) -> None:
        """The store has had entries that the leader never heard of, but some disk has."""
        newest = entry or self.newest
        self.ledger.stored(newest)
        self.ledger.entry = newest
        epochs = (newest.leader_epoch, newest.partition_epoch)
        self._monkeypatch.setattr(type(self.ledger), "on_disks", lambda _self: epochs)

    def restore(self) -> None:
        self.oracles.store_restored(self.cluster.api.objects)
        assert self.ledger.is_behind(self.ledger.entry)

    def commit(self) -> None:
        """The leader's high watermark reaches the end of its log, and it answers."""
        self.ledger.high_watermark_advanced(self.leader)
        self.ledger.acknowledged(self.leader, self.batch.base, self.batch.next, -1)

    def recover(self, *, log_epoch: int | None = None) -> None:
        """The partition goes on with the follower, whose log is in the newest epoch unless the test says otherwise."""
        host = self.follower.partitions.broker.host.id
        epoch = self.newest.leader_epoch if log_epoch is None else log_epoch
        holding = Holding(
            topic="t0", topic_id=self.ledger.tag[0], partition=0, leader_epoch=9, partition_epoch=9, log_epoch=epoch,
            end_offset=self.batch.base,
        )  # fmt: skip
        brokers = {**self.oracles.brokers, host: replace(self.oracles.brokers[host], holdings=(holding,))}
        self._monkeypatch.setattr(self.oracles, "brokers", brokers)
        self._write(replace(self.above(3, 6), leader=host, isr=(IsrEntry(host, brokers[host].epoch),)))

    def go_on(self, leader_epochs: int) -> None:
        """Nobody knows that there had been more: the follower, which lacks the batch, falls out of the ISR."""
        self._monkeypatch.setattr(type(self.ledger), "on_disks", lambda _self: (-1, -1))
        behind = self.follower.partitions.broker.host.id
        isr = tuple(member for member in self.past.isr if member.id != behind)
        self._write(replace(self.above(leader_epochs, 1), isr=isr))

    def begin(self, entry) -> None:
        """The restored store goes on with an entry of the past."""
        self._change(entry)
        assert self.ledger.is_behind(entry)

    def _change(self, entry) -> None:
        old = self.cluster.api.objects["topics"]["t0"]
        status = {**old["status"], "partitions": {"0": patches.render_partition(entry)}}
        self.oracles.store_changed("topics", old, {**old, "status": status})
        assert self.ledger.entry == entry

    def _write(self, entry) -> None:
        self._change(entry)
        assert not self.ledger.is_behind(entry)

    @contextmanager
    def leader_without_the_batch(self):
        """The leader's log lacks it as well, and so do all that are in sync."""
        hosts = [self.cluster.hosts[i] for i in self.ledger.entry.isr_ids()]
        logs = [self.ledger.directory(host).segments()[-1][1].marks for host in hosts]
        whole = [list(marks) for marks in logs]
        for marks in logs:
            marks[:] = [mark for mark in marks if mark.base < self.batch.base]
        yield
        for marks, kept in zip(logs, whole, strict=True):
            marks[:] = kept

    def missing(self) -> int:
        """Records that were promised and that are not there at the end; it is broken if that may not be."""
        promises_kept(self.cluster)
        return self.cluster.history.excused


@pytest.fixture
def restore(healthy, ledger, leader, follower, monkeypatch):
    made = Restore(healthy, ledger, leader, follower, monkeypatch)
    whole = list(made.marks)
    made.marks.pop()
    yield made
    made.marks[:] = whole


def lost(name: str = LOST):
    return pytest.raises(Violation, match=name)


def test_what_a_leader_of_the_past_acknowledged_may_be_missing_and_is_counted(restore) -> None:
    restore.later_epochs()
    restore.restore()
    restore.commit()
    assert restore.ledger.committed_end == restore.batch.base, "the present has not committed it"
    restore.oracles.watermark.read(restore.ledger, "c", restore.batch)
    restore.recover()
    promised = [p for p in restore.cluster.history.promised[restore.ledger.tag] if p[0] == restore.batch.base]
    assert promised
    assert restore.missing() == restore.batch.next - restore.batch.base
    restore.oracles.watermark.read(restore.ledger, "another", restore.batch)  # on its way since before the recovery
    with lost("nothing lost"):
        restore.ledger.past.excused.clear()
        restore.missing()


def test_what_a_leader_of_the_past_acknowledges_may_be_on_its_own_disk_alone(restore, ledger, monkeypatch) -> None:
    """Its followers were cut by a later leader since they told it what they have."""
    restore.later_epochs()
    mark = ledger.committed[-1]
    with monkeypatch.context() as patch:
        patch.setattr(type(ledger), "durable_end", lambda _self, _host: 0)
        with lost("acknowledged is durable"):
            ledger.acknowledged(restore.leader, mark.base, mark.next, -1)
        restore.restore()
        ledger.acknowledged(restore.leader, mark.base, mark.next, -1)


def test_what_was_acknowledged_before_the_restore_may_not(restore) -> None:
    restore.marks.append(restore.batch)
    restore.commit()
    restore.later_epochs()
    restore.restore()
    restore.marks.pop()
    restore.commit()  # an answer to a second attempt
    with lost():
        restore.recover()


def test_what_is_acknowledged_after_the_recovery_may_not(restore) -> None:
    restore.later_epochs()
    restore.restore()
    restore.recover()
    with lost():
        restore.commit()


def test_what_a_leader_of_the_newest_epoch_acknowledged_may_not(restore) -> None:
    restore.later_epochs(restore.above(0, 5))
    restore.restore()
    restore.commit()
    with lost():
        restore.recover()


def test_what_was_acknowledged_without_a_restore_may_not(restore) -> None:
    restore.later_epochs()
    with lost():
        restore.commit()


def test_what_the_log_has_that_the_recovery_goes_on_with_is_not_left_out(restore, ledger) -> None:
    restore.later_epochs()
    restore.restore()
    restore.commit()
    restore.marks.append(restore.batch)
    restore.recover()
    assert ledger.committed[-1] == restore.batch
    assert restore.missing() == 0
    restore.marks.pop()
    with lost():
        restore.oracles.completeness.candidates(ledger, "now")


def test_a_candidate_with_another_batch_of_an_epoch_that_came_again_is_at_the_limit(
    restore, ledger, monkeypatch
) -> None:
    restore.later_epochs()
    restore.restore()
    restore.commit()
    restore.marks.append(restore.batch)
    restore.recover()
    restore.marks[-1] = restore.batch._replace(crc=restore.batch.crc ^ 1)
    check = restore.oracles.completeness.candidates
    for others, expected in (({restore.batch}, pytest.raises(LimitReached, match="came again")), (set(), lost())):
        monkeypatch.setattr(ledger.past, "came_again", others.__contains__)
        with expected:
            check(ledger, "now")
    restore.marks.pop()


def test_a_recovery_with_a_log_of_the_same_epoch_has_all_that_its_leader_acknowledged(restore) -> None:
    restore.later_epochs()
    restore.restore()
    restore.commit()
    with lost():
        restore.recover(log_epoch=restore.past.leader_epoch)


def test_a_leader_that_knows_of_a_later_epoch_is_not_one_of_the_past(restore, monkeypatch) -> None:
    restore.later_epochs()
    restore.restore()
    noted = SimpleNamespace(leader_epoch=restore.newest.leader_epoch)
    monkeypatch.setattr(past_module, "read_metadata", lambda _disk, _name: noted)
    for driver in (restore.leader, restore.follower):
        with lost("nobody goes by a past"):
            restore.ledger.role_changed(driver)
    restore.commit()
    with lost():
        restore.recover()


@pytest.mark.parametrize("leader_epochs", [0, 1])
def test_where_nobody_knows_that_there_was_more_nothing_is_left_out(restore, leader_epochs) -> None:
    restore.later_epochs()
    restore.restore()
    restore.commit()
    restore.go_on(leader_epochs)
    assert restore.ledger.committed[-1] == restore.batch
    assert not restore.ledger.past.excused
    restore.later_epochs(restore.above(leader_epochs, 3))
    restore.restore()
    assert restore.ledger.past.below == restore.past.leader_epoch + leader_epochs, (
        "epochs that nobody knows are not above anything"
    )


def test_a_replica_that_was_shown_another_entry_with_the_epochs_that_it_knows_knows_that_there_was_more(
    restore, monkeypatch
) -> None:
    """Also when the next entry is above them by numbers: only one with a leader epoch above them may be a recovery."""
    restore.later_epochs(restore.above(0, 1))
    restore.restore()
    epochs = (restore.past.leader_epoch, restore.past.partition_epoch)
    monkeypatch.setattr(type(restore.ledger), "on_disks", lambda _self: epochs)
    replica = restore.leader.replica
    with monkeypatch.context() as patch:
        patch.setattr(type(replica), "store_went_back", property(lambda self: self is replica))
        restore.begin(restore.above(0, 2))
    restore.go_on(1)


def test_where_the_restored_entry_goes_on_without_a_change_what_was_acknowledged_by_it_counts(restore) -> None:
    restore.later_epochs()
    restore.restore()
    restore.commit()
    restore.marks.append(restore.batch)
    assert restore.missing() == 0
    assert restore.ledger.committed[-1] == restore.batch
    assert not restore.ledger.past.excused


def other_batch(restore, leader_epochs: int):
    """A batch that a leader of a later epoch once wrote behind the end of all logs, and another one in its place."""
    end = restore.batch.next
    written = restore.batch._replace(base=end, next=end + 1, epoch=restore.past.leader_epoch + leader_epochs)
    restore.ledger.wrote(written)
    return written, written._replace(crc=1)


@pytest.mark.parametrize("leader_epochs", [1, 2])
def test_a_leader_epoch_that_the_store_lost_may_come_again_with_other_batches(restore, ledger, leader_epochs) -> None:
    written, other = other_batch(restore, leader_epochs)
    restore.later_epochs()
    with lost("log matching"):
        ledger.wrote(other)  # the store has not gone back
    restore.restore()
    ledger.wrote(other)
    restore.marks.append(other)
    with lost("log matching"):
        ledger.wrote(written)  # a message on its way had it still
    restore.marks.pop()


def test_a_leader_epoch_that_a_restored_store_shows_has_but_one_history(restore, ledger) -> None:
    _, other = other_batch(restore, 0)
    restore.later_epochs()
    restore.restore()
    with lost("log matching"):
        ledger.wrote(other)


def test_a_leader_epoch_of_after_the_restore_has_but_one_history(restore, ledger) -> None:
    restore.later_epochs()
    restore.restore()
    _, other = other_batch(restore, 3)
    with lost("log matching"):
        ledger.wrote(other)


@pytest.mark.parametrize("name", ["t0-0", "t0-0.1.stray"])
def test_a_leader_epoch_does_not_come_again_while_a_log_has_batches_of_it(restore, ledger, name) -> None:
    written, other = other_batch(restore, 1)
    restore.later_epochs()
    restore.restore()
    root = restore.follower.partitions.broker.host.disk.root.entries
    root[name] = root.pop("t0-0")
    restore.marks.append(written)
    with lost("log matching"):
        ledger.wrote(other)
    with pytest.raises(LimitReached, match="came again"):
        restore.begin(restore.above(1, 1))  # by somebody who does not know that there was one
        ledger.wrote(other)
    restore.marks.pop()
    ledger.wrote(other)
    root["t0-0"] = root.pop(name)


def test_a_leader_epoch_that_no_entry_of_the_past_began_does_not_come_again(restore, ledger) -> None:
    _, other = other_batch(restore, 2)
    restore.later_epochs()
    restore.restore()
    restore.begin(restore.above(1, 1))
    restore.marks.append(other._replace(crc=restore.batch.crc))
    with lost("log matching"):
        ledger.wrote(other)
    restore.marks.pop()


def test_a_leader_epoch_that_comes_again_in_a_past_begins_with_its_own_high_watermark(restore, ledger) -> None:
    """Whoever led in it before the restore had come further, and said so."""
    again = restore.above(1, 1)
    replica = SimpleNamespace(
        role=restore.leader.replica.role,
        leader_epoch=again.leader_epoch,
        high_watermark=restore.batch.base,
        list_offset_bounds=lambda *_: restore.batch.base,
    )
    leader = restore.leader
    anew = SimpleNamespace(
        replica=replica, log=leader.log, partitions=leader.partitions, ledger=ledger, ref=leader.ref, number=0
    )
    watermark, further = restore.oracles.watermark, restore.batch.base + 1
    ledger.marks[again.leader_epoch] = further, "another"
    ledger.elected_at[again.leader_epoch] = ledger.committed_end = further
    restore.later_epochs()
    restore.restore()
    for check in (watermark.latest, lambda driver: watermark.advanced(ledger, driver)):
        with lost("high watermark"):
            check(anew)  # nothing says that this epoch is another one
    restore.begin(again)
    watermark.latest(anew)
    watermark.advanced(ledger, anew)
    ledger.marks[again.leader_epoch] = further, leader.partitions.broker.incarnation
    with lost("high watermark"):
        watermark.advanced(ledger, anew)
    ledger.marks[again.leader_epoch] = further, "another"
    replica.leader_epoch = restore.newest.leader_epoch
    ledger.marks[replica.leader_epoch] = further, "another"
    with lost("high watermark"):
        watermark.advanced(ledger, anew)  # the newest epoch has not come again
    restore.begin(restore.newest)
    watermark.advanced(ledger, anew)


def lose_with(ledger, *, relaxed: bool):
    """Completeness._lose, of a topic whose flush is relaxed or not; the store says so with each change."""
    lose = Completeness._lose

    def relaxed_or_not(*arguments) -> None:
        before, ledger.relaxed = ledger.relaxed, relaxed
        lose(*arguments)
        ledger.relaxed = before

    return relaxed_or_not


@pytest.mark.parametrize("relaxed", [False, True])
def test_what_is_lost_with_the_store_since_nobody_knows_of_it_is_counted(restore, ledger, relaxed, monkeypatch) -> None:
    restore.marks.append(restore.batch)
    restore.commit()
    restore.later_epochs()
    restore.restore()
    with restore.leader_without_the_batch():
        monkeypatch.setattr(Completeness, "_lose", staticmethod(lose_with(ledger, relaxed=relaxed)))
        restore.go_on(0)
        assert ledger.losses == 1
        assert restore.missing() == (0 if relaxed else restore.batch.next - restore.batch.base)
        ledger.past.excused.clear()
        assert restore.missing() == 0, "not lost with the store, but by an election that was allowed"
    ledger.losses = 0
