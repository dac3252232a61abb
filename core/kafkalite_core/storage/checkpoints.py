"""Offsets of all logs of a data directory in Kafka's text format: recovery point, high watermark, log start, cleaner.

The recovery point is also the "flushed end" that recovery is measured by (R9): it only names what is surely on disk,
so before a log is cut below it the file is lowered first (`lower`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafkalite_core.model.partition import TopicPartition
from kafkalite_core.storage.disk import read_file, replace_file
from kafkalite_core.storage.errors import CorruptCheckpoint

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkalite_core.storage.disk import Disk
    from kafkalite_core.storage.log import Log

RECOVERY_POINT: Final = "recovery-point-offset-checkpoint"
HIGH_WATERMARK: Final = "replication-offset-checkpoint"
LOG_START: Final = "log-start-offset-checkpoint"
CLEANER: Final = "cleaner-offset-checkpoint"


class OffsetCheckpoint:
    """One checkpoint file.

    Values may be taken on one thread and written on another; a `lower` or `forget` in between wins over them. The
    caller serialises `write`, `lower` and `forget` by a lock where there are several threads.

    Attributes:
        values: What the file holds, without the logs that were forgotten since.
        sequence: Rises with every `lower` and `forget`; taken together with the values that are written later.
    """

    __slots__ = ("_disk", "_name", "_stored", "_touched", "sequence", "values")

    def __init__(self, disk: Disk, name: str) -> None:
        self._disk = disk
        self._name = name
        self._touched: dict[TopicPartition, tuple[int, int | None]] = {}
        self.sequence = 0
        self.values: dict[TopicPartition, int] = {}
        self._stored: dict[TopicPartition, int] = {}

    def load(self) -> bool:
        """Reads the file; False when there is none. `CorruptCheckpoint` when it does not parse."""
        data = read_file(self._disk, self._name)
        if data is None:
            return False
        self._stored = decode_offsets(data, self._name)
        self.values = dict(self._stored)
        return True

    def write(self, values: Mapping[TopicPartition, int], taken_at: int, *, force: bool = False) -> bool:
        """Makes the file hold `values`, taken when `sequence` was `taken_at`; True when it was written."""
        result = dict(values)
        for key, (sequence, offset) in self._touched.items():
            if sequence > taken_at and key in result:
                if offset is None:
                    del result[key]
                else:
                    result[key] = min(result[key], offset)
        self._touched = {key: touch for key, touch in self._touched.items() if touch[0] > taken_at}
        if result == self._stored and not force:
            self.values = dict(result)
            return False
        self._store(result)
        self.values = dict(result)
        return True

    def lower(self, key: TopicPartition, offset: int) -> bool:
        """The file does not say more than `offset` of this log when this returns; True when it had to be written."""
        self.sequence += 1
        touched = self._touched.get(key)
        if touched is not None and touched[1] is not None:
            offset = min(offset, touched[1])
        self._touched[key] = (self.sequence, offset)
        if key in self.values:
            self.values[key] = min(self.values[key], offset)
        if self._stored.get(key, -1) <= offset:
            return False
        self._store({**self._stored, key: offset})
        return True

    def forget(self, key: TopicPartition) -> None:
        """The log is gone: whatever was taken before, the next write does not name it."""
        self.sequence += 1
        self._touched[key] = (self.sequence, None)
        self.values.pop(key, None)

    def _store(self, values: dict[TopicPartition, int]) -> None:
        replace_file(self._disk, self._name, encode_offsets(values))
        self._stored = values


def recovery_points_of(logs: Mapping[TopicPartition, Log]) -> dict[TopicPartition, int]:
    """What the recovery-point checkpoint says of open logs; a log that it names must have a directory ever after (R9).

    So it leaves out the empty ones whose directory a power loss may still take: nothing of them was ever flushed, and
    their absence shall say nothing against the other logs.
    """
    return {key: log.recovery_point for key, log in logs.items() if log.recovery_point or not log.parent_unsynced}


def encode_offsets(values: Mapping[TopicPartition, int]) -> bytes:
    """Kafka's format: version 0, number of lines, then `topic partition offset`."""
    lines = ["0", str(len(values))]
    lines += [f"{key.topic} {key.partition} {offset}" for key, offset in sorted(values.items())]
    return ("\n".join(lines) + "\n").encode()


def decode_offsets(data: bytes, name: str) -> dict[TopicPartition, int]:
    """Reads `encode_offsets`; `CorruptCheckpoint` when it does not parse or is cut short."""
    values: dict[TopicPartition, int] = {}
    try:
        lines = data.decode("ascii").split("\n")
        if lines[0] != "0" or lines[-1]:
            raise CorruptCheckpoint(f"{name}: bad version or cut short")
        for line in lines[2:-1]:
            topic, partition, offset = line.split(" ")
            values[TopicPartition(topic, int(partition))] = int(offset)
        if len(values) != int(lines[1]):
            raise CorruptCheckpoint(f"{name}: {len(values)} lines instead of {lines[1]}")
    except (ValueError, IndexError) as error:
        raise CorruptCheckpoint(f"{name}: {error}") from error
    return values
