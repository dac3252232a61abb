"""Offsets of all logs of a data directory in Kafka's text format: recovery point, high watermark, log start, cleaner.

The recovery point is also the "flushed end" that recovery is measured by (R9): it only names what is surely on disk,
so before a log is cut below it the file is lowered first (`lower`).
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Final, NamedTuple

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


class _Touch(NamedTuple):
    """What happened to one log outside `OffsetCheckpoint.write`.

    Attributes:
        number: When.
        offset: At most this is written; None: the log is gone.
        exact: This very offset is written, also where the values do not name the log.
    """

    number: int
    offset: int | None
    exact: bool = False


class OffsetCheckpoint:
    """One checkpoint file.

    Values may be taken on one thread and written on another; a `lower`, `begin` or `forget` in between wins over them,
    and values that were taken before those that were written last are not written any more. The caller serialises all
    methods but `take` by a lock where there are several threads; `take` is called where the others but `write` are.

    Attributes:
        values: What the file holds, without the logs that were forgotten since.
    """

    __slots__ = ("_disk", "_name", "_numbers", "_stored", "_touched", "_written_at", "values")

    def __init__(self, disk: Disk, name: str) -> None:
        self._disk = disk
        self._name = name
        self._numbers = count(1)
        self._written_at = 0
        self._touched: dict[TopicPartition, _Touch] = {}
        self.values: dict[TopicPartition, int] = {}
        self._stored: dict[TopicPartition, int] = {}

    @property
    def stored(self) -> Mapping[TopicPartition, int]:
        """What the file holds, forgotten logs too. A later write changes another mapping."""
        return self._stored

    def take(self) -> int:
        """A number that tells when values were taken, for `write`; called just before. Never waits."""
        return next(self._numbers)

    def load(self) -> bool:
        """Reads the file; False when there is none. `CorruptCheckpoint` when it does not parse."""
        data = read_file(self._disk, self._name)
        if data is None:
            return False
        self._stored = decode_offsets(data, self._name)
        self.values = dict(self._stored)
        return True

    def write(self, values: Mapping[TopicPartition, int], taken_at: int, *, force: bool = False) -> bool:
        """Makes the file hold `values`, which `take` gave the number `taken_at`; True when it was written.

        Not those that are older than what was written last: what has been touched in between is forgotten by then.
        """
        if taken_at < self._written_at:
            return False
        self._written_at = taken_at
        self._touched = {key: touch for key, touch in self._touched.items() if touch.number > taken_at}
        result = dict(values)
        for key, touch in self._touched.items():
            if touch.offset is None:
                result.pop(key, None)
            elif touch.exact:
                result[key] = touch.offset
            elif key in result:
                result[key] = min(result[key], touch.offset)
        if result == self._stored and not force:
            self.values = dict(result)
            return False
        self._store(result)
        self.values = dict(result)
        return True

    def lower(self, key: TopicPartition, offset: int) -> bool:
        """The file does not say more than `offset` of this log when this returns; True when it had to be written."""
        touched = self._touched.get(key)
        if touched is not None and touched.offset is not None:
            offset = min(offset, touched.offset)
        self._touched[key] = _Touch(next(self._numbers), offset, touched is not None and touched.exact)
        if key in self.values:
            self.values[key] = min(self.values[key], offset)
        if self._stored.get(key, -1) <= offset:
            return False
        self._store({**self._stored, key: offset})
        return True

    def cap(self, ends: Mapping[TopicPartition, int]) -> None:
        """No value of these logs is above their ends any more, in memory: the next write tells the file."""
        for key, end in ends.items():
            if self.values.get(key, 0) > end:
                self.values[key] = end

    def begin(self, key: TopicPartition, offset: int) -> bool:
        """The file says `offset` of a log that is about to be opened when this returns; True when it was written.

        Raises `StorageError`: the file is as before.
        """
        news = self._stored.get(key, 0) != offset
        if news:
            self._store({**self._stored, key: offset})
        self._touched[key] = _Touch(next(self._numbers), offset, exact=True)
        self.values[key] = offset
        return news

    def forget(self, key: TopicPartition) -> None:
        """The log is gone: whatever was taken before, the next write does not name it."""
        self._touched[key] = _Touch(next(self._numbers), None)
        self.values.pop(key, None)

    def _store(self, values: dict[TopicPartition, int]) -> None:
        replace_file(self._disk, self._name, encode_offsets(values))
        self._stored = values


def recovery_points_of(logs: Mapping[TopicPartition, Log]) -> dict[TopicPartition, int]:
    """What the recovery-point checkpoint says of open logs; a log that it names must have a directory ever after (R9).

    So it leaves out the empty ones whose directory a power loss may still take, or the file that says whose log it is:
    nothing of them was ever flushed, and their absence shall say nothing against the other logs.
    """
    return {
        key: log.recovery_point
        for key, log in logs.items()
        if log.recovery_point or not (log.parent_unsynced or log.unsynced_files)
    }


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
