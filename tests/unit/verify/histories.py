"""Random good histories, and every way to spoil one: what the checker must pass, and what it must find."""

from __future__ import annotations

import random
from dataclasses import dataclass

from kafkalite_cli.verify.history import (
    FINAL_READ,
    Ack,
    Altered,
    Assign,
    End,
    Event,
    Failed,
    Fault,
    Foreign,
    Header,
    Read,
    Unknown,
    Unnamed,
    Watermark,
)

Record = tuple[int, int, int]


@dataclass
class World:
    """A history of producers, consumers and a log that does what it promises.

    Records of several producers are under way at the same time; some are refused, some have no answer and are in the
    log or not; somebody else writes too. Consumers read along, start in the middle, and are assigned anew; clients ask
    for the end of the log; the final read takes everything. `logs` holds what is at each offset (None: foreign).
    """

    rng: random.Random
    partitions: int
    keys: int
    producers: int
    consumers: int
    steps: int

    def __post_init__(self) -> None:
        rng = self.rng
        self.now = 1000
        self.events: list[Event] = [Header(1, "run", "orders", self.partitions, 0)]
        self.logs: list[list[Record | None]] = [[] for _ in range(self.partitions)]
        self.sequences: dict[tuple[int, int], int] = {}
        self.under_way: list[tuple[int, int, int, int]] = []  # invoked, producer, key, sequence
        self.positions: dict[tuple[int, int], int] = {}
        for consumer in range(self.consumers):
            for partition in range(self.partitions):
                self.assign(consumer, partition, rng.choice([0, -1]))
        for _ in range(self.steps):
            self.now += rng.randrange(1, 20)
            rng.choices(
                [self.send, self.answer, self.read, self.ask, self.foreign, self.reassign, self.fault],
                [30, 30, 30, 4, 2, 1, 1],
            )[0]()
        while self.under_way:
            self.now += 5
            self.answer()
        self.final_read()

    def send(self) -> None:
        producer, key = self.rng.randrange(self.producers), self.rng.randrange(self.keys)
        sequence = self.sequences[producer, key] = self.sequences.get((producer, key), 0) + 1
        self.under_way.append((self.now, producer, key, sequence))

    def answer(self) -> None:
        """The oldest record of some producer and key is taken, refused or forgotten; answers come in that order."""
        if not self.under_way:
            return
        chosen = self.rng.choice(self.under_way)
        chosen = next(each for each in self.under_way if each[1:3] == chosen[1:3])
        self.under_way.remove(chosen)
        invoked, producer, key, sequence = chosen
        partition = key % self.partitions
        outcome = self.rng.random()
        if outcome < 0.04:
            self.events.append(Failed(producer, key, sequence, partition, "refused", invoked, self.now))
            return
        if outcome >= 0.08:
            self.logs[partition].append((producer, key, sequence))
        if outcome < 0.12:
            self.events.append(Unknown(producer, key, sequence, partition, "timeout", invoked, self.now))
        else:
            at = len(self.logs[partition]) - 1
            self.events.append(Ack(producer, key, sequence, partition, at, invoked, self.now))

    def assign(self, consumer: int, partition: int, offset: int) -> None:
        self.positions[consumer, partition] = max(0, offset)
        self.events.append(Assign(consumer, partition, offset, self.now))

    def reassign(self) -> None:
        if self.positions:
            consumer, partition = self.rng.choice(sorted(self.positions))
            self.assign(consumer, partition, self.rng.randrange(len(self.logs[partition]) + 1))

    def read(self) -> None:
        if self.positions:
            consumer, partition = self.rng.choice(sorted(self.positions))
            for _ in range(self.rng.randrange(1, 10)):
                self.read_one(consumer, partition)

    def read_one(self, consumer: int, partition: int) -> None:
        at = self.positions[consumer, partition]
        if at < len(self.logs[partition]):
            record = self.logs[partition][at]
            if record is None:
                self.events.append(Foreign(consumer, partition, at, self.now))
            else:
                self.events.append(Read(consumer, partition, at, *record, self.now))
            self.positions[consumer, partition] = at + 1

    def ask(self) -> None:
        partition = self.rng.randrange(self.partitions)
        invoked, self.now = self.now, self.now + self.rng.randrange(5)
        self.events.append(Watermark(0, partition, len(self.logs[partition]), invoked, self.now))

    def foreign(self) -> None:
        self.logs[self.rng.randrange(self.partitions)].append(None)

    def fault(self) -> None:
        self.events.append(Fault("kill", [self.rng.randrange(self.partitions)], self.now))

    def final_read(self) -> None:
        self.now += 1
        for partition, log in enumerate(self.logs):
            self.assign(FINAL_READ, partition, 0)
            for _ in log:
                self.read_one(FINAL_READ, partition)
            self.events.append(End(FINAL_READ, partition, len(log), self.now))


def good(seed: int, steps: int = 200) -> World:
    """The history of a seed."""
    rng = random.Random(seed)
    return World(
        rng,
        partitions=rng.randrange(1, 4),
        keys=rng.randrange(1, 8),
        producers=rng.randrange(1, 4),
        consumers=rng.randrange(3),
        steps=steps,
    )


class Spoiler:
    """Each method spoils a history in one way and names what must be found; None: this history offers no occasion."""

    def __init__(self, world: World, rng: random.Random) -> None:
        self.world, self.rng, self.events = world, rng, list(world.events)

    # --- choosing

    def an_ack(self) -> Ack | None:
        acks = [event for event in self.events if isinstance(event, Ack)]
        return self.rng.choice(acks) if acks else None

    def final(self, partition: int, at: int) -> int:
        """Index of the final read of an offset."""
        return next(
            index
            for index, event in enumerate(self.events)
            if isinstance(event, Read)
            and (event.consumer, event.partition, event.offset) == (FINAL_READ, partition, at)
        )

    def replace_reads(self, partition: int, at: int, record: Record | None) -> None:
        """All readers find another record there, or somebody else's."""
        for index, event in enumerate(self.events):
            if isinstance(event, Read) and (event.partition, event.offset) == (partition, at):
                found = (event.consumer, partition, at)
                self.events[index] = (
                    Foreign(*found, event.at_us) if record is None else Read(*found, *record, event.at_us)
                )

    def end(self, partition: int) -> int:
        return len(self.world.logs[partition])

    def append(self, partition: int, record: Record) -> None:
        """The final read finds one more record at the end."""
        at = self.end(partition)
        index = self.events.index(End(FINAL_READ, partition, at, self.world.now))
        new = [Read(FINAL_READ, partition, at, *record, self.world.now), End(FINAL_READ, partition, at + 1, 0)]
        self.events[index : index + 1] = new

    # --- spoiling

    def lost(self) -> str | None:
        """An acknowledged record is nowhere; something else is in its place."""
        victim = self.an_ack()
        if victim is None:
            return None
        self.replace_reads(victim.partition, victim.offset, None)
        return "lost"

    def lost_after_it_was_read(self) -> str | None:
        """As above, but consumers had been given it before."""
        read = [event for event in self.events if isinstance(event, Read) and event.consumer < FINAL_READ]
        acked = {(event.partition, event.offset) for event in self.events if isinstance(event, Ack)}
        read = [event for event in read if (event.partition, event.offset) in acked]
        if not read:
            return None
        victim = self.rng.choice(read)
        index = self.final(victim.partition, victim.offset)
        self.events[index] = Foreign(FINAL_READ, victim.partition, victim.offset, self.world.now)
        return "lost"

    def altered(self) -> str | None:
        """A consumer is given a record with other bytes than were sent."""
        places = [index for index, event in enumerate(self.events) if isinstance(event, Read)]
        if not places:
            return None
        index = self.rng.choice(places)
        given = self.events[index]
        assert isinstance(given, Read)
        self.events[index] = Altered(*(getattr(given, name) for name in given.__struct_fields__))
        return "altered"

    def unnamed(self) -> str | None:
        """As above, and the bytes no longer tell which record it was."""
        index = self.a_live_read()
        if index is None:
            return None
        given = self.events[index]
        self.events[index] = Unnamed(given.consumer, given.partition, given.offset, given.at_us)
        return "altered"

    def vanished(self) -> str | None:
        """A record without an answer was given to a consumer, and is not there any more."""
        unknown = {(event.producer, event.key, event.sequence) for event in self.events if isinstance(event, Unknown)}
        read = [
            event
            for event in self.events
            if isinstance(event, Read)
            and event.consumer < FINAL_READ
            and (event.producer, event.key, event.sequence) in unknown
        ]
        if not read:
            return None
        victim = self.rng.choice(read)
        index = self.final(victim.partition, victim.offset)
        self.events[index] = Foreign(FINAL_READ, victim.partition, victim.offset, self.world.now)
        return "vanished"

    def unseen(self) -> str | None:
        """The final read ends before the last acknowledged record."""
        victim = self.an_ack()
        if victim is None:
            return None
        partition, at = victim.partition, victim.offset
        self.events = [
            event
            for event in self.events
            if not (
                isinstance(event, Read | Foreign)
                and event.consumer == FINAL_READ
                and event.partition == partition
                and event.offset >= at
            )
        ]
        self.events[self.events.index(End(FINAL_READ, partition, self.end(partition), self.world.now))] = End(
            FINAL_READ, partition, at, self.world.now
        )
        return "unseen"

    def duplicate(self) -> str | None:
        """A record is in the log once more."""
        victim = self.an_ack()
        if victim is None:
            return None
        self.append(victim.partition, (victim.producer, victim.key, victim.sequence))
        return "duplicate"

    def reordered(self) -> str | None:
        """Two records of one producer and key change places, in the log and in the acknowledgements."""
        acks: dict[tuple[int, int], list[Ack]] = {}
        for event in self.events:
            if isinstance(event, Ack):
                acks.setdefault((event.producer, event.key), []).append(event)
        several = [found for found in acks.values() if len(found) > 1]
        if not several:
            return None
        first, second = sorted(self.rng.sample(self.rng.choice(several), 2), key=lambda event: event.offset)
        for one, other in ((first, second), (second, first)):
            record = (one.producer, one.key, one.sequence)
            self.events[self.events.index(one)] = Ack(
                *record, one.partition, other.offset, one.invoked_us, one.acked_us
            )
        self.swap_reads(first, second)
        return "reordered"

    def swap_reads(self, first: Ack, second: Ack) -> None:
        records = {
            (first.partition, first.offset): (second.producer, second.key, second.sequence),
            (second.partition, second.offset): (first.producer, first.key, first.sequence),
        }
        for index, event in enumerate(self.events):
            if isinstance(event, Read) and (record := records.get((event.partition, event.offset))):
                self.events[index] = Read(event.consumer, event.partition, event.offset, *record, event.at_us)

    def stale_offset(self) -> str | None:
        """Records of two keys change places, one of which was sent after the other was acknowledged."""
        acks = [event for event in self.events if isinstance(event, Ack)]
        pairs = [
            (one, other)
            for one in acks
            for other in acks
            if one.partition == other.partition
            and (one.producer, one.key) != (other.producer, other.key)
            and one.acked_us < other.invoked_us
        ]
        if not pairs:
            return None
        first, second = self.rng.choice(pairs)
        for one, other in ((first, second), (second, first)):
            record = (one.producer, one.key, one.sequence)
            self.events[self.events.index(one)] = Ack(
                *record, one.partition, other.offset, one.invoked_us, one.acked_us
            )
        self.swap_reads(first, second)
        return "stale-offset"

    def wrong_offset(self) -> str | None:
        """A record is in the log, behind everything, and not where it was acknowledged."""
        victim = self.an_ack()
        if victim is None:
            return None
        self.replace_reads(victim.partition, victim.offset, None)
        self.append(victim.partition, (victim.producer, victim.key, victim.sequence))
        return "wrong-offset"

    def wrong_partition(self) -> str | None:
        """A record is also in a partition that is not its key's."""
        victim = self.an_ack()
        if victim is None or self.world.partitions < 2:
            return None
        record = (victim.producer, victim.key, victim.sequence)
        self.append((victim.partition + 1) % self.world.partitions, record)
        return "wrong-partition"

    def inconsistent(self) -> str | None:
        """One consumer finds another record where others find this one."""
        victim = self.an_ack()
        if victim is None:
            return None
        again = [Assign(70_000, victim.partition, victim.offset, 0)]
        again.append(Read(70_000, victim.partition, victim.offset, victim.producer, victim.key, 4_000_000, 0))
        self.events += again
        return "inconsistent"

    def a_live_read(self) -> int | None:
        """Index of a read that another one of the same consumer and partition follows without an assignment."""
        last: dict[tuple[int, int], int] = {}
        found = []
        for index, event in enumerate(self.events):
            if isinstance(event, Assign):
                last.pop((event.consumer, event.partition), None)
            elif isinstance(event, Read | Foreign) and event.consumer < FINAL_READ:
                if (event.consumer, event.partition) in last:
                    found.append(last[event.consumer, event.partition])
                last[event.consumer, event.partition] = index
        return self.rng.choice(found) if found else None

    def skip(self) -> str | None:
        """A consumer is not served one record; its first one only counts where it was told where to begin."""
        index = self.a_live_read()
        if index is None:
            return None
        victim = self.events[index]
        before = [
            event
            for event in self.events[:index]
            if isinstance(event, Assign | Read | Foreign)
            and (event.consumer, event.partition) == (victim.consumer, victim.partition)
        ]
        if isinstance(before[-1], Assign) and before[-1].offset < 0:
            return None
        del self.events[index]
        return "skip"

    def non_monotonic(self) -> str | None:
        """A consumer is served a record twice."""
        index = self.a_live_read()
        if index is None:
            return None
        self.events.insert(index, self.events[index])
        return "non-monotonic"

    def failed_read(self) -> str | None:
        """A record that was refused is in the log."""
        failed = [event for event in self.events if isinstance(event, Failed)]
        if not failed:
            return None
        victim = self.rng.choice(failed)
        self.append(victim.partition, (victim.producer, victim.key, victim.sequence))
        return "failed-read"

    def unexplained(self) -> str | None:
        """A record that nobody sent is in the log."""
        self.append(0, (0, 0, 4_000_000))
        return "unexplained"

    def watermark_regressed(self) -> str | None:
        """Somebody is told an end of the log below an acknowledged record."""
        victim = self.an_ack()
        if victim is None:
            return None
        at = self.rng.randrange(victim.offset + 1)
        self.events.append(Watermark(1, victim.partition, at, victim.acked_us + 1, victim.acked_us + 2))
        return "watermark-regressed"


SPOILERS = sorted(name for name in vars(Spoiler) if not name.startswith("_"))
for helper in ("an_ack", "final", "replace_reads", "end", "append", "swap_reads", "a_live_read"):
    SPOILERS.remove(helper)
