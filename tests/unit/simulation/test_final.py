"""What the end of a history looks at fires: one hand-made lie for each thing that is looked for."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tests.simulation import final, run
from tests.simulation.clients import Consumer, asked_from
from tests.simulation.driver import Driver
from tests.simulation.history import UNKNOWN
from tests.simulation.oracles import noting
from tests.simulation.world import Violation


def fires(name: str):
    return pytest.raises(Violation, match=name)


def test_a_log_that_starts_where_nobody_asked_it_to(healthy, ledger, leader, monkeypatch) -> None:
    start = ledger.committed[3].next
    monkeypatch.setattr(leader.log, "start_offset", start)
    with fires("log start"):
        ledger.oracles.completeness.leader(ledger, leader)
    with fires("log start"):
        run.final_read(healthy)
    ledger.deletable = start
    ledger.oracles.completeness.leader(ledger, leader)
    run.final_read(healthy)


def test_a_replica_that_lacks_the_beginning(healthy, ledger, follower) -> None:
    """An empty log is equal to every other as far as it goes."""
    marks = ledger.directory(follower.partitions.broker.host).segments()[0][1].marks
    whole = list(marks)
    marks[:] = whole[2:]
    with fires("equal replicas"):
        run.final_read(healthy)
    ledger.deletable = whole[2].base
    run.final_read(healthy)
    marks[:] = whole


def test_a_replica_that_has_nothing(healthy, ledger, follower, monkeypatch) -> None:
    own = ledger.directory(follower.partitions.broker.host)
    directory_of = type(ledger).directory
    monkeypatch.setattr(type(ledger), "directory", lambda self, host: None if directory_of(self, host) is own else own)
    with fires("equal replicas"):
        run.final_read(healthy)


@pytest.mark.parametrize(
    ("given", "invariant"),
    [
        (lambda _read, _answer: b"", "nothing lost"),
        (lambda read, answer: read if answer.read_from else read[81:], "nothing lost"),
        (lambda read, _answer: bytes([*read[:60], read[60] ^ 1, *read[61:]]), "consumer reads committed"),
    ],
)
def test_a_leader_that_does_not_give_what_it_has(healthy, ledger, monkeypatch, given, invariant) -> None:
    """What is on its disk is whole: only who asks finds out."""
    read = Driver.read
    monkeypatch.setattr(Driver, "read", lambda self, answer, limit: given(read(self, answer, limit), answer))
    with fires(invariant):
        run.final_read(healthy)


def test_a_topic_that_is_gone_though_nobody_deleted_it(healthy, ledger) -> None:
    promised = sum(count for _, count, _ in healthy.history.promised[ledger.tag])
    ledger.entry = None
    with fires("nothing lost"):
        final.promises_kept(healthy)
    ledger.superseded = True
    final.promises_kept(healthy)
    assert (healthy.history.excused, healthy.history.given_up) == (promised, 0)
    ledger.forfeited = True
    final.promises_kept(healthy)
    assert (healthy.history.excused, healthy.history.given_up) == (0, promised)
    assert promised > 0
    ledger.forfeited = ledger.superseded = False
    ledger.destroyed = True
    final.promises_kept(healthy)
    assert (healthy.history.excused, healthy.history.given_up) == (0, promised)


def test_destroyed_is_what_the_last_disk_had(healthy, ledger, monkeypatch) -> None:
    first, second, last = healthy.host_list
    own = type(ledger).logs
    gone = set()
    monkeypatch.setattr(type(ledger), "logs", lambda self: [each for each in own(self) if each[0] not in gone])
    for host in (first, second):
        ledger.disk_goes(host)
        assert not ledger.destroyed, "others have it"
        gone.add(host)
    ledger.disk_goes(first)
    assert not ledger.destroyed, "it had nothing"
    ledger.disk_goes(last)
    assert ledger.destroyed
    ledger.wrote(ledger.committed[0])
    assert not ledger.destroyed, "there is something to lose again"


def test_only_what_was_given_up_may_be_missing_where_something_was(healthy, ledger) -> None:
    lost, other = ledger.committed.pop(), ledger.committed[-1]
    ledger.losses, ledger.forfeited = 1, True
    with fires("nothing lost"):
        final.promises_kept(healthy)
    ledger.given_up.add(other[1:])
    with fires("nothing lost"):
        final.promises_kept(healthy)
    ledger.given_up.add(lost[1:])
    final.promises_kept(healthy)
    assert healthy.history.given_up == lost.next - lost.base


def test_what_was_acknowledged_with_a_later_batch_is_somewhere(healthy, ledger) -> None:
    mark = ledger.committed[-1]
    count = mark.next - mark.base
    promised = healthy.history.promised[ledger.tag]
    promised.append((UNKNOWN, count, mark.crc))
    final.promises_kept(healthy)
    promised.append((UNKNOWN, count, mark.crc ^ 1))
    with fires("nothing lost"):
        final.promises_kept(healthy)
    ledger.given_up.add((*mark[1:4], mark.crc ^ 1))
    final.promises_kept(healthy)
    assert healthy.history.given_up == count
    ledger.given_up.clear()
    ledger.past.excused.add((mark.base, mark.next, mark.crc ^ 1))
    final.promises_kept(healthy)
    assert healthy.history.excused == count
    del promised[-2:]


def test_an_entry_that_asks_for_less_than_the_user_wants(healthy, ledger) -> None:
    spec = dict(healthy.api.objects["topics"]["t0"]["spec"])
    healthy.api.objects["topics"]["t0"]["spec"] = {**spec, "config": {"min.insync.replicas": "3"}}
    assert "min ISR is to be 3" in run.unhealthy(healthy)
    healthy.api.objects["topics"]["t0"]["spec"] = spec
    less = SimpleNamespace(min_isr=1, replicas=ledger.entry.replicas)
    with fires("min ISR is the user's"):
        healthy.oracles._wanted_min_isr(ledger, spec, less)
    healthy.oracles._wanted_min_isr(ledger, {**spec, "config": {}}, less)


def test_a_consumer_that_is_given_what_comes_later(healthy, ledger, leader) -> None:
    consumer = Consumer(healthy, 9)
    answer = leader.fetch(asked_from(0))
    records = leader.read(answer, 4_000)
    consumer._got("t0", 0, ledger.tag[0], 0, answer, records)
    consumer._positions.clear()
    with fires("consumer reads committed"):
        consumer._got("t0", 0, ledger.tag[0], 0, answer, records[ledger.committed[0].stop :])
    with fires("consumer reads committed"):
        consumer._got("t0", 0, ledger.tag[0], 0, answer, bytes([*records[:60], records[60] ^ 1, *records[61:]]))


def test_a_checkpoint_that_forgets(healthy, ledger, leader, monkeypatch) -> None:
    broker = leader.partitions.broker
    broker.logs.checkpoint(broker.partitions.high_watermarks())
    noting.checked(broker)
    for noted in (None, SimpleNamespace(leader_epoch=9, partition_epoch=-1)):
        monkeypatch.setattr(noting, "read_metadata", lambda _disk, _name, noted=noted: noted)
        with fires("a checkpoint notes"):
            noting.checked(broker)
    monkeypatch.setattr(broker.host.disk, "room", 10)
    noting.checked(broker)
