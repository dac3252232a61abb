"""The log of a scripted replica: a list of records, each a batch of its own."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafkalite_core.model.errors import StorageError
from kafkalite_core.storage.epoch_cache import EpochCache
from kafkalite_core.storage.errors import OutOfOrderSequence, UnexpectedAppendOffset
from kafkalite_core.storage.producer_state import Duplicate, New

if TYPE_CHECKING:
    from kafkalite_core.protocol.record_batch import BatchHeader

HEAD = struct.Struct(">qii")  # base offset, leader epoch, length of the payload


@dataclass
class Entry:
    """A record, which is a batch of its own."""

    epoch: int
    value: str


@dataclass
class Appended:
    base_offset: int
    last_offset: int
    log_append_time: int = -1


@dataclass
class Ticket:
    generation: int
    end: int
    epochs: EpochCache


class ListProducers:
    """Idempotence by looking through the log. Values of idempotent producers are written `p<id>.<sequence>`."""

    def __init__(self, log: ListLog) -> None:
        self.log = log

    def check(self, head: BatchHeader, *, begins_anywhere: bool = True) -> New | Duplicate:
        mine = [
            (int(entry.value[1:].split(".")[1]), offset)
            for offset, entry in self.log.records()
            if entry.value.startswith(f"p{head.producer_id}.")
        ]
        for sequence, offset in mine:
            if sequence == head.base_sequence:
                return Duplicate(offset, offset, -1)
        if mine and head.base_sequence != mine[-1][0] + 1:
            gap = head.base_sequence > mine[-1][0]
            raise OutOfOrderSequence(f"{head.base_sequence} does not follow {mine[-1][0]}", gap=gap)
        if not mine and head.base_sequence > 0 and not begins_anywhere:
            raise OutOfOrderSequence(f"{head.base_sequence} is not the first", gap=True)
        return New()


class ListLog:
    """`ReplicaLog` on a list. What was not flushed is lost in a crash."""

    stamps_append_time = False

    def __init__(self, *, relaxed: bool = False) -> None:
        self.start_offset = 0
        self.first = 0  # offset of entries[0]; below start_offset after advance_start
        self.entries: list[Entry] = []
        self.on_disk = 0
        self.generation = 0
        self.epochs = EpochCache()
        self.durable_epochs = EpochCache()
        self.producers = ListProducers(self)
        self.relaxed = relaxed
        self.full = False

    @property
    def end_offset(self) -> int:
        return self.first + len(self.entries)

    @property
    def flushed_end(self) -> int:
        return self.end_offset if self.relaxed else self.on_disk

    def records(self):
        return [(self.first + slot, entry) for slot, entry in enumerate(self.entries)]

    def at(self, offset: int) -> Entry | None:
        slot = offset - self.first
        return self.entries[slot] if 0 <= slot < len(self.entries) else None

    def append_as_leader(self, batch, *, leader_epoch: int, now_ms: int) -> Appended:
        if self.full:
            raise StorageError("no space left on device")
        offset = self.end_offset
        self.entries.append(Entry(leader_epoch, bytes(batch).decode()))
        self.epochs.assign(leader_epoch, offset)
        return Appended(offset, offset)

    def append_as_follower(self, records, *, max_epoch: int, now_ms: int) -> int:
        if self.full:
            raise StorageError("no space left on device")
        position = 0
        data = bytes(records)
        while position < len(data):
            base, epoch, size = HEAD.unpack_from(data, position)
            value = data[position + HEAD.size : position + HEAD.size + size].decode()
            position += HEAD.size + size
            if epoch > max_epoch:
                break
            if base != self.end_offset:
                raise UnexpectedAppendOffset(base, base, self.end_offset)
            self.entries.append(Entry(epoch, value))
            self.epochs.assign(epoch, base)
        return self.end_offset

    def read(self, offset: int, end: int) -> bytes:
        out = bytearray()
        for position in range(offset, min(end, self.end_offset)):
            entry = self.entries[position - self.first]
            value = entry.value.encode()
            out += HEAD.pack(position, entry.epoch, len(value)) + value
        return bytes(out)

    def truncate_to(self, offset: int) -> None:
        del self.entries[max(offset - self.first, 0) :]
        self.epochs.truncate_from_end(offset)
        self.on_disk = min(self.on_disk, self.end_offset)
        self.generation += 1

    def reset_to(self, offset: int) -> None:
        self.entries.clear()
        self.first = self.start_offset = self.on_disk = offset
        self.epochs.clear()
        self.generation += 1

    def advance_start(self, offset: int) -> None:
        assert offset <= self.end_offset
        if offset > self.start_offset:
            self.start_offset = offset
            self.epochs.truncate_from_start(offset)

    def begin_flush(self) -> Ticket:
        return Ticket(self.generation, self.end_offset, EpochCache.decode(self.epochs.encode()))

    def complete_flush(self, ticket: Ticket) -> None:
        if ticket.generation == self.generation:
            self.on_disk = max(self.on_disk, ticket.end)
            self.durable_epochs = ticket.epochs

    def crash(self) -> None:
        """A power loss: the unflushed suffix is gone, the epoch cache is what was written and what the batches say."""
        del self.entries[max(self.on_disk - self.first, 0) :]
        self.start_offset = self.first  # the checkpoint of the log start may be old
        rebuilt = EpochCache()
        for offset, entry in self.records():
            rebuilt.assign(entry.epoch, offset)
        for epoch, start in self.durable_epochs.entries:
            if start <= self.end_offset:
                rebuilt.assign(epoch, max(start, self.end_offset) if epoch > rebuilt.latest_epoch else start)
        self.epochs = rebuilt
        self.generation += 1
