"""The small log does what the production log does."""

from __future__ import annotations

import random

import pytest

from kafkalite_core.protocol.record_batch import SimpleRecord, build_batch, iter_batches
from kafkalite_core.storage.log import LogEnvironment
from kafkalite_core.storage.log_config import LogConfig
from kafkalite_core.storage.memory_disk import MemoryDisk
from kafkalite_core.storage.recovery import open_log
from kafkalite_core.storage.tail import TailBudget
from tests.search.small_log import RECORD, SmallLog, crashed

NAME = "t-0"


class Both:
    """One log of each kind, with the same done to both."""

    def __init__(self) -> None:
        self.disk = MemoryDisk()
        self.real = self.opened()
        self.small = SmallLog()
        self.epoch = 0
        self.value = 0

    def opened(self):
        environment = LogEnvironment(TailBudget(10_000))
        return open_log(self.disk, NAME, LogConfig(), environment, now_ms=1)[0]

    def batch(self, base: int, epoch: int) -> bytearray:
        return build_batch([SimpleRecord(1, b"", bytes((self.value,)))], base_offset=base, leader_epoch=epoch)

    def lead(self, chance: random.Random) -> None:
        self.epoch += 1
        for log in (self.real, self.small):
            log.epochs.assign(self.epoch, log.end_offset)

    def append_as_leader(self, chance: random.Random) -> None:
        self.value += 1
        epoch = max(self.epoch, 0)
        one = self.real.append_as_leader(self.batch(-1, -1), leader_epoch=epoch, now_ms=1)
        other = self.small.append_as_leader(bytearray((self.value,)), leader_epoch=epoch, now_ms=1)
        assert one.base_offset == other.base_offset
        assert one.last_offset == other.last_offset

    def append_as_follower(self, chance: random.Random) -> None:
        epochs = sorted(self.epoch + chance.randrange(3) for _ in range(chance.randrange(3)))
        limit = self.epoch + chance.randrange(3)
        base, real, small = self.small.end_offset, b"", b""
        for epoch in epochs:
            self.value += 1
            real += bytes(self.batch(base, epoch))
            small += RECORD.pack(base, epoch, self.value)
            base += 1
        one = self.real.append_as_follower(memoryview(real), max_epoch=limit, now_ms=1)
        assert one == self.small.append_as_follower(memoryview(small), max_epoch=limit, now_ms=1)
        self.epoch = max(self.epoch, self.small.epochs.latest_epoch)

    def truncate(self, chance: random.Random) -> None:
        offset = chance.randrange(self.small.end_offset + 2)
        for log in (self.real, self.small):
            log.truncate_to(offset)

    def flush(self, chance: random.Random) -> None:
        ticket = self.real.begin_flush()
        if ticket is not None:
            ticket.run()
            self.real.complete_flush(ticket)
        self.small.flushed_end = self.small.end_offset

    def crash(self, chance: random.Random) -> None:
        """Only what was synced survives, or what was written too."""
        lossy = chance.random() < 0.5
        if lossy:
            self.flush(chance)  # a cut that is not on the disk yet would come back
            self.append_as_leader(chance)
            self.disk.crash()
        else:
            self.disk.kill()
        self.real = self.opened()
        self.small = SmallLog(crashed(self.small.freeze(), self.real.end_offset))

    def records(self) -> tuple[tuple[int, int], ...]:
        found: list[tuple[int, int]] = []
        while len(found) < self.real.end_offset:
            result = self.real.read(len(found), max_bytes=1000, end=self.real.end_offset, minimum_one=True)
            for buffer in result.buffers:
                view = memoryview(buffer)
                for position, header in iter_batches(view):
                    content = bytes(view[position : position + header.size])
                    found.append((header.partition_leader_epoch, content[-2]))
        return tuple(found)

    def check(self) -> None:
        records, flushed, epochs = self.small.freeze()
        assert (self.real.end_offset, self.real.flushed_end) == (len(records), flushed)
        assert tuple(map(tuple, self.real.epochs.entries)) == epochs
        assert self.records() == records
        assert SmallLog(self.small.freeze()).freeze() == self.small.freeze()
        for epoch in range(-1, self.epoch + 2):
            end = self.small.end_offset
            assert self.real.epochs.end_offset_for(epoch, end) == self.small.epochs.end_offset_for(epoch, end)


@pytest.mark.parametrize("seed", range(20))
def test_it_does_what_the_production_log_does(seed):
    chance = random.Random(seed)
    both = Both()
    moves = [both.lead, both.append_as_leader, both.append_as_follower, both.truncate, both.flush, both.crash]
    for _ in range(40):
        chance.choices(moves, weights=(2, 4, 3, 2, 3, 1))[0](chance)
        both.check()
        if both.value > 200:
            break


def test_a_crash_keeps_what_was_flushed():
    log = SmallLog()
    for value in (1, 2, 3):
        log.append_as_leader(bytearray((value,)), leader_epoch=value, now_ms=0)
    log.flushed_end = 1
    assert crashed(log.freeze(), 1) == (((1, 1),), 1, ((1, 0),))
    assert crashed(log.freeze(), 3) == (((1, 1), (2, 2), (3, 3)), 3, ((1, 0), (2, 1), (3, 2)))
    with pytest.raises(AssertionError):
        crashed(log.freeze(), 0)
