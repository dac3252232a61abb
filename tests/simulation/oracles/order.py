"""Nothing is reordered: what one producer sends to a partition is committed, acknowledged and read in that order."""

from __future__ import annotations

from bisect import bisect_left
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

from tests.simulation.world import Violation

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.simulation.broker import Broker
    from tests.simulation.lane import Lane
    from tests.simulation.oracles.ledger import Ledger
    from tests.simulation.platter import Mark, Tag

NAME: Final = "no reordering"
_SEQUENCES: Final = 2**31


class ProducerOrder:
    """Along the offsets the sequences of one producer rise without a gap (KIP-98).

    b is committed after a, both of one producer, and nothing of that producer in between
        epochs are equal      =>  sequence(b) = sequence(a) + records of a, modulo 2^31
        epochs are not equal  =>  b has the higher one, and sequence(b) = 0

    The first batch of a producer that is committed may have any sequence: those before it may be given up, or lost with
    a leader that had acknowledged them with acks=1, and whoever does not know the producer lets it begin anywhere. So
    may one that comes after everything of its producer was deleted, if the log that takes it begins behind that (limits
    of S9). What an unclean election took no log has any more: the order goes on from what it left.

    Replicas and consumers need no order of their own: a replica has what is committed, at the same offsets (log matching,
    equal replicas), consumers read nothing else, and what is read comes at rising offsets (`ReadOrder`).
    """

    def check(self, ledger: Ledger, mark: Mark) -> None:
        """A batch is committed. Raises `Violation`."""
        if mark.producer < 0 or mark.sequence < 0:
            return
        before = ledger.lines.get(mark.producer)
        ledger.lines[mark.producer] = mark
        if before is None:
            return
        if mark.producer_epoch == before.producer_epoch:
            expected = (before.sequence + before.next - before.base) % _SEQUENCES
        else:
            expected = 0 if mark.producer_epoch > before.producer_epoch else -1
        if mark.sequence == expected:
            return
        if before.next <= ledger.deletable and ledger.begins_behind(before.next, mark):
            return
        raise Violation(NAME, f"{ledger}: {mark} is committed after {before}")

    @staticmethod
    def lines(committed: Iterable[Mark]) -> dict[int, Mark]:
        """The last batch of every producer."""
        return {mark.producer: mark for mark in committed if mark.producer >= 0 and mark.sequence >= 0}


class ReadOrder:
    """A consumer is given batches at rising offsets, each once.

    A topic that was deleted, or went with the store, may come back under its topic id when the consumer has read another
    one of that name: then it reads this one from its start again.
    """

    def __init__(self) -> None:
        self._reached: dict[tuple[str, Tag], int] = {}

    def read(self, ledger: Ledger, who: str, mark: Mark) -> None:
        """A consumer was given a batch. Raises `Violation`."""
        key = who, ledger.tag
        reached = self._reached.get(key, 0)
        self._reached[key] = mark.next
        if mark.next > reached:
            return
        if mark.base <= ledger.deletable and any(
            (other.topic, other.number) == (ledger.topic, ledger.number) and other is not ledger
            for other in ledger.oracles.ledgers.values()
        ):
            return
        raise Violation(NAME, f"{ledger}: {who} has read up to {reached} and is given {mark}")


class Told(NamedTuple):
    """A batch that a producer heard is safe: its place in its lane, and where its leader has it."""

    number: int
    base: int
    next: int
    crc: int


class AcknowledgedOrder:
    """Of two batches of one lane, a producer's partition, the later one is acknowledged at a higher offset.

    That is so of what one process acknowledges in one leader epoch, at once, and at the end of all that was acknowledged
    with acks=all and is committed there, whoever did. In between an election may lose what was acknowledged, with acks=1
    or because somebody allowed it: then a later batch may take a lower offset. What the other oracles do not see of this
    are the batches of producers without idempotence, and those of one producer under several ids.
    """

    def __init__(self) -> None:
        self._told: dict[tuple[Tag, Lane], dict[tuple[Broker, int], list[Told]]] = {}

    def heard(self, tag: Tag, lane: Lane, leader: tuple[Broker, int], told: Told, *, judge: bool = True) -> None:
        """An acknowledgement of that process and leader epoch has come. Raises `Violation`."""
        known = self._told.setdefault((tag, lane), {}).setdefault(leader, [])
        place = len(known)
        if place and known[-1].number > told.number:  # an answer on an earlier connection may come later
            place = bisect_left(known, told)
        known.insert(place, told)
        if judge:
            _rising(known[max(place - 1, 0) : place + 2], lane, tag)

    def committed(self, tag: Tag, marks: Iterable[Mark]) -> None:
        """All that is committed of a partition at the end. Raises `Violation`."""
        there = {(mark.base, mark.next, mark.crc) for mark in marks}
        for (of, lane), leaders in self._told.items():
            if of == tag and lane.producer.acks == -1:
                told = sorted(each for known in leaders.values() for each in known if each[1:] in there)
                _rising(told, lane, tag)


def _rising(told: list[Told], lane: Lane, tag: Tag) -> None:
    for earlier, later in pairwise(told):
        if later.base < earlier.next:
            where = f"{lane.producer.name}: {tag}"
            raise Violation(NAME, f"{where}: {later} was acknowledged, and {earlier} before it in its lane")
