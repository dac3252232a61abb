"""The end of a history: all that was promised is there, on every replica in sync, and is given to who asks for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.batches import marks_of
from tests.simulation.clients import asked_from
from tests.simulation.history import UNKNOWN
from tests.simulation.platter import batches
from tests.simulation.world import Violation

if TYPE_CHECKING:
    from kafkalite_core.model.partition import Partition
    from tests.simulation.cluster import SimCluster
    from tests.simulation.driver import Driver
    from tests.simulation.oracles.ledger import Ledger
    from tests.simulation.platter import Tag

READ_BYTES = 1_500


def final_read(cluster: SimCluster) -> None:
    """Look at everything. Raises `Violation`."""
    promises_kept(cluster)
    for ledger in cluster.oracles.ledgers.values():
        cluster.history.order.committed(ledger.tag, ledger.committed)
        if ledger.entry is not None:
            for broker_id in ledger.entry.isr_ids():
                _replica(cluster, ledger, broker_id)
            _read(cluster, ledger, ledger.entry)


def promises_kept(cluster: SimCluster) -> None:
    """What clients were promised is committed. Raises `Violation`.

    A promised batch is where it was promised, or is one of those that nobody has to have: that a restore of the store
    took (`Past.excused`), that an election which somebody allowed gave up (`Ledger.given_up`), or of a topic that is
    gone, because its user deleted it, or its object was lost and the last disk that had any of it as well. Each of them
    is counted, and not among the records that were checked. Where a batch is that was acknowledged with a later one only
    the producer does not know: it has to be anywhere, and its checksum is of no other.
    """
    history = cluster.history
    history.excused = history.given_up = 0
    for ledger in cluster.oracles.ledgers.values():
        if ledger.entry is not None:
            ledger.past.ended(ledger.entry.leader_epoch)
    for tag, promised in history.promised.items():
        _promises(cluster, tag, promised)


def _promises(cluster: SimCluster, tag: Tag, promised: list[tuple[int, int, int]]) -> None:
    history, ledger = cluster.history, cluster.oracles.ledgers[tag]
    if ledger.entry is None:
        records = sum(count for _, count, _ in promised)
        if ledger.forfeited or ledger.destroyed:
            history.given_up += records
        elif ledger.superseded:
            history.excused += records  # it was made after the backup, and another one has its name
        else:
            raise Violation("nothing lost", f"{ledger}: it is gone, and nobody deleted it")
        return
    committed = {mark.base: mark for mark in ledger.committed}
    given_up = {(base, after, crc) for base, after, _epoch, crc, *_ in ledger.given_up}
    unknown = any(base == UNKNOWN for base, *_ in promised)
    places = _places(ledger, given_up) if unknown else {}
    for told, count, crc in promised:
        base = told if told != UNKNOWN else places.get((count, crc), UNKNOWN)
        if base == UNKNOWN:
            raise Violation("nothing lost", f"{ledger}: {count} records acknowledged with a later batch are in no log")
        mark, key = committed.get(base), (base, base + count, crc)
        if mark is not None and (mark.base, mark.next, mark.crc) == key:
            continue
        if key in ledger.past.excused:
            history.excused += count
        elif key in given_up:
            history.given_up += count
        else:
            raise Violation("nothing lost", f"{ledger}: [{base}, {base + count}) was acknowledged, there is {mark}")


def _places(ledger: Ledger, given_up: set[tuple[int, int, int]]) -> dict[tuple[int, int], int]:
    """Where a batch is, by the number of its records and its checksum: committed if it is so at any offset."""
    known = [*ledger.past.excused, *given_up, *((mark.base, mark.next, mark.crc) for mark in ledger.committed)]
    return {(after - base, crc): base for base, after, crc in known}


def _replica(cluster: SimCluster, ledger: Ledger, broker_id: int) -> None:
    """A member of the ISR has every committed batch, but those that a user deleted."""
    directory = ledger.directory(cluster.hosts[broker_id])
    marks = [] if directory is None else batches(directory)
    have = {mark[1:] for mark in marks}
    lacking = next((m for m in ledger.committed if m.next > ledger.deletable and m[1:] not in have), None)
    if lacking is not None:
        raise Violation("equal replicas", f"{ledger}: broker {broker_id} lacks {lacking}; deleted: {ledger.deletable}")
    if not ledger.committed or not marks:  # without a batch it begins behind all that was deleted
        return
    start = max(marks[0].base, ledger.committed[0].base)
    marks = [mark for mark in marks if mark.base >= start]
    wanted = [mark[1:] for mark in ledger.committed if mark.base >= start]
    if [mark[1:] for mark in marks[: len(wanted)]] != wanted:
        raise Violation("equal replicas", f"{ledger}: broker {broker_id} differs below {ledger.committed_end}")


def _driver(cluster: SimCluster, ledger: Ledger, broker_id: int) -> Driver:
    broker = cluster.hosts[broker_id].broker
    driver = None if broker is None else broker.driver(ledger.topic, ledger.number)
    if driver is None:
        raise Violation("nothing lost", f"{ledger}: broker {broker_id} does not serve it")
    return driver


def _read(cluster: SimCluster, ledger: Ledger, entry: Partition) -> None:
    """A consumer that begins at the start of the leader's log is given all that is committed, and nothing else."""
    driver = _driver(cluster, ledger, entry.leader)
    position = start = driver.log.start_offset
    if start > ledger.deletable:
        raise Violation("log start", f"{ledger}: it starts at {start}, {ledger.deletable} was deleted")
    given: list[tuple[int, ...]] = []
    while position < driver.replica.high_watermark:
        answer, before = driver.fetch(asked_from(position)), position
        for mark, sound in marks_of(driver.read(answer, READ_BYTES)):
            if not sound:
                raise Violation("consumer reads committed", f"{ledger}: {mark} is damaged")
            given.append(mark[1:])
            position = mark.next
        if position == before:
            raise Violation("nothing lost", f"{ledger}: a consumer at {position} is given nothing: {answer}")
    wanted = [mark[1:] for mark in ledger.committed if mark.next > start]
    if given != wanted:
        missing = sorted(set(wanted) - set(given))[:3]
        raise Violation(
            "nothing lost", f"{ledger}: consumers are given {len(given)} of {len(wanted)} batches, not {missing}"
        )
