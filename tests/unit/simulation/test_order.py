"""Nothing passes that is committed, acknowledged or read in another order than it was sent."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from kafkalite_core.protocol.errors import ErrorCode
from kafkalite_core.protocol.fetch import PartitionData
from tests.simulation import run
from tests.simulation.clients import Consumer
from tests.simulation.oracles import ledger as oracles_ledger
from tests.simulation.oracles.order import AcknowledgedOrder, ProducerOrder, Told
from tests.simulation.platter import Mark
from tests.simulation.world import Violation

LAST = 2**31 - 1
TAG = ("id", 0)


def fires():
    return pytest.raises(Violation, match="no reordering")


def mark(base: int, sequence: int, *, count: int = 1, producer: int = 7, epoch: int = 0) -> Mark:
    """A batch of one producer; its checksum is that of no other."""
    return Mark(0, base, base + count, 0, 1000 + base, producer, epoch, sequence)


class Hashed(SimpleNamespace):
    """A lane that two tests do not share."""

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other


@pytest.fixture
def sender() -> Hashed:
    return Hashed(producer=SimpleNamespace(name="p0", acks=-1), number=0)


def judge(ledger, *marks: Mark) -> None:
    ledger.lines = {}
    for each in marks:
        ledger.oracles.order.check(ledger, each)


# ------------------------------------------------------------ committed


@pytest.mark.parametrize(
    "marks",
    [
        [mark(0, 5, count=5), mark(5, 0, count=5)],
        [mark(0, 0, count=2), mark(2, 3)],  # a gap
        [mark(0, 0, count=3), mark(3, 2)],
        [mark(0, LAST, count=2), mark(2, 2)],
        [mark(0, 0), mark(1, 1, epoch=1)],  # a new epoch begins at 0
        [mark(0, 0, epoch=1), mark(1, 0)],
        [mark(0, 0), mark(1, 9, producer=8), mark(2, 2)],  # others in between
    ],
)
def test_sequences_that_do_not_follow_each_other(ledger, marks) -> None:
    with fires():
        judge(ledger, *marks)


@pytest.mark.parametrize(
    "marks",
    [
        [mark(0, 5, count=5), mark(5, 10)],  # the first one may be any
        [mark(0, LAST - 1, count=4), mark(4, 2)],
        [mark(0, LAST), mark(1, 0)],
        [mark(0, 3), mark(1, 0, epoch=1), mark(2, 1, epoch=1)],
        [mark(0, -1, producer=-1), mark(1, -1, producer=-1)],
        [mark(0, 0), mark(1, 9, producer=8), mark(2, 1), mark(3, 10, producer=8)],
    ],
)
def test_sequences_that_follow_each_other(ledger, marks) -> None:
    judge(ledger, *marks)


def test_what_is_committed_is_looked_at(healthy, ledger) -> None:
    before = ledger.committed[-1]
    last = next(each for each in reversed(ledger.committed) if each.producer >= 0)
    assert ledger.lines == ProducerOrder.lines(ledger.committed)
    after = last.sequence + last.next - last.base
    wrong = last._replace(base=before.next, next=before.next + 1, sequence=after + 1)
    with fires():
        ledger.append(wrong)


def test_the_order_goes_on_from_what_an_unclean_election_left(ledger) -> None:
    own = [each for each in ledger.committed if each.producer == ledger.committed[-1].producer]
    *kept, lost = own
    have = {each[1:] for each in ledger.committed if each.base < lost.base}
    ledger.lossy = True
    ledger.oracles.completeness._lose(ledger, have, list(ledger.committed))
    assert ledger.lines[lost.producer] == kept[-1]
    ledger.append(lost)
    assert ledger.lines[lost.producer] == lost


def test_a_log_that_begins_behind_a_producer_may_let_it_begin_anywhere(ledger, monkeypatch) -> None:
    first, later = mark(0, 0, count=2), mark(2, 9)
    ledger.deletable = 1
    monkeypatch.setattr(oracles_ledger, "batches", lambda log: log)
    logs = [[first, later], [later]]
    monkeypatch.setattr(ledger, "logs", lambda: [(None, "", log) for log in logs])
    with fires():  # not all of the first was deleted
        judge(ledger, first, later)
    ledger.deletable = 2
    judge(ledger, first, later)
    del logs[1]
    with fires():  # the only log has the first
        judge(ledger, first, later)


# ------------------------------------------------------------ read


def test_a_consumer_that_is_given_a_batch_again(healthy, ledger, monkeypatch) -> None:
    watermark, (first, second, *_) = healthy.oracles.watermark, ledger.committed
    watermark.read(ledger, "again", first)
    watermark.read(ledger, "again", second)
    for again in (second, first):
        with fires():
            watermark.read(ledger, "again", again)
    watermark.read(ledger, "another", first)
    other = SimpleNamespace(topic=ledger.topic, number=ledger.number)
    monkeypatch.setitem(healthy.oracles.ledgers, ("other", 0), other)
    healthy.oracles.read_order.read(ledger, "again", first)  # it has read another topic of that name
    with fires():
        healthy.oracles.read_order.read(ledger, "again", first._replace(base=1, next=1))


def test_a_consumer_goes_on_where_a_topic_that_was_made_again_begins(healthy, ledger) -> None:
    """Its first records are deleted already. An answer that came late sends nobody back."""
    consumer, key = Consumer(healthy, 9), ("t0", 0)
    gone = PartitionData(error_code=int(ErrorCode.OFFSET_OUT_OF_RANGE), log_start_offset=20)
    consumer._got(*key, ledger.tag[0], 0, gone, b"")
    assert consumer._positions[key] == (ledger.tag[0], 20)
    consumer._positions[key] = ledger.tag[0], 30
    for late in (0, 10):
        consumer._got(*key, ledger.tag[0], late, gone, b"")
        assert consumer._positions[key] == (ledger.tag[0], 30)
    consumer._got(*key, "another topic of that name", 0, gone, b"")
    assert consumer._positions[key] == ("another topic of that name", 20)


# ------------------------------------------------------------ acknowledged


def test_a_later_batch_that_is_acknowledged_at_a_lower_offset(sender) -> None:
    order, leader = AcknowledgedOrder(), ("process", 3)
    order.heard(TAG, sender, leader, Told(2, 10, 12, 1))
    order.heard(TAG, sender, leader, Told(4, 20, 22, 2))
    order.heard(TAG, sender, leader, Told(3, 15, 18, 3))  # its answer came on an earlier connection
    for wrong in (Told(5, 21, 23, 4), Told(1, 9, 11, 5), Told(6, 0, 1, 6)):
        with fires():
            order.heard(TAG, sender, leader, wrong)


@pytest.mark.parametrize("other", ["leader", "epoch", "lane", "topic", "unjudged"])
def test_what_says_nothing_of_the_order_at_once(sender, other) -> None:
    order = AcknowledgedOrder()
    order.heard(TAG, sender, ("process", 3), Told(1, 10, 12, 1))
    order.heard(
        ("another", 0) if other == "topic" else TAG,
        Hashed(producer=sender.producer) if other == "lane" else sender,
        ("other" if other == "leader" else "process", 4 if other == "epoch" else 3),
        Told(2, 8, 10, 2),
        judge=other != "unjudged",
    )


def test_at_the_end_all_that_is_committed_counts_whoever_acknowledged_it(sender) -> None:
    order = AcknowledgedOrder()
    first, second = mark(10, 0, count=2), mark(8, 0, count=2, producer=8)
    order.heard(TAG, sender, ("process", 3), Told(1, first.base, first.next, first.crc))
    order.heard(TAG, sender, ("other", 4), Told(2, second.base, second.next, second.crc))
    order.committed(("another", 0), [second, first])
    order.committed(TAG, [second])  # somebody gave up the first
    order.committed(TAG, [second, first._replace(crc=1)])
    with fires():
        order.committed(TAG, [second, first])
    sender.producer.acks = 1  # lost and sent again by the network, it may come to where it was
    order.committed(TAG, [second, first])


def test_the_end_looks_at_the_order_of_acknowledgements(healthy, ledger, sender) -> None:
    first, second = ledger.committed[:2]
    order = healthy.history.order
    for number, each in enumerate((second, first)):
        told = Told(number, each.base, each.next, each.crc)
        order.heard(ledger.tag, sender, (f"process {number}", 0), told)
    with fires():
        run.final_read(healthy)
    del order._told[ledger.tag, sender]
    run.final_read(healthy)
    assert any(tag == ledger.tag for tag, _ in order._told), "the producers of the simulator tell it"
