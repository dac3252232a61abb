"""The sparse indexes beside a segment, in Kafka's format: `.index` (8-byte entries) and `.timeindex` (12-byte entries).

Entries of the active segment stay in memory and are written when the segment is sealed, flushed or closed: after a
crash the indexes of every segment at or beyond the recovery point are built anew anyway.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left, bisect_right
from contextlib import suppress
from itertools import chain, islice
from operator import lt
from struct import Struct
from typing import TYPE_CHECKING

from kafkalite_core.model.errors import StorageError
from kafkalite_core.storage.disk import append_all, disk_errors, read_file, remove_file

if TYPE_CHECKING:
    from kafkalite_core.storage.disk import Disk, File

_OFFSET_ENTRY = Struct(">ii")
_TIME_ENTRY = Struct(">qi")
_OFFSET_MAX = 2**31 - 1


class OffsetIndex:
    """Relative last offset of a batch → position of that batch in the segment.

    Args:
        disk: The disk.
        path: Path of the `.index` file.
        base_offset: Base offset of the segment.
        max_bytes: `segment.index.bytes`; the segment is rolled when the index is full.
    """

    __slots__ = ("_base", "_disk", "_file", "_written", "max_entries", "offsets", "path", "positions")

    def __init__(self, disk: Disk, path: str, base_offset: int, max_bytes: int) -> None:
        self._disk = disk
        self._base = base_offset
        self._file: File | None = None
        self._written = 0
        self.path = path
        self.max_entries = max_bytes // _OFFSET_ENTRY.size
        self.offsets = array("I")
        self.positions = array("I")

    @property
    def full(self) -> bool:
        """No further entry fits."""
        return len(self.offsets) >= self.max_entries

    def add(self, last_offset: int, position: int) -> None:
        """An entry for the batch at `position`; kept in memory until `write`."""
        self.offsets.append(last_offset - self._base)
        self.positions.append(position)

    def last_below(self, offset: int) -> tuple[int, int] | None:
        """(last offset of a batch, its position) of the last entry below `offset`, or None."""
        slot = bisect_left(self.offsets, offset - self._base) - 1
        return (self._base + self.offsets[slot], self.positions[slot]) if slot >= 0 else None

    def lookup(self, offset: int) -> int:
        """A position at or before the batch that holds `offset`."""
        slot = bisect_right(self.offsets, max(offset - self._base, 0)) - 1
        return self.positions[slot] if slot >= 0 else 0

    def truncate(self, size: int) -> None:
        """Forgets entries at or beyond byte `size` of the segment."""
        keep = bisect_left(self.positions, size)
        del self.offsets[keep:]
        del self.positions[keep:]
        if keep < self._written:
            with disk_errors(f"truncate {self.path}"):
                self._open().truncate(keep * _OFFSET_ENTRY.size)
            self._written = keep

    def write(self) -> None:
        """Writes the entries that are only in memory. Raises `StorageError`, `DiskFailure`."""
        if self._written == len(self.offsets) and self._file is not None:
            return
        file = _begun(self._open(), self._written, self.path)
        new = chain.from_iterable(zip(self.offsets[self._written :], self.positions[self._written :], strict=True))
        data = array("I", new)
        if sys.byteorder == "little":
            data.byteswap()
        append_all(file, data.tobytes(), self._written * _OFFSET_ENTRY.size, self.path, is_cache=True)
        self._written = len(self.offsets)

    def load(self, segment_size: int) -> bool:
        """Reads the file; False when it is missing or implausible (then the segment is scanned to rebuild it)."""
        data = read_file(self._disk, self.path)
        if data is None or len(data) % _OFFSET_ENTRY.size:
            return False
        entries = array("I", data)
        if sys.byteorder == "little":
            entries.byteswap()
        offsets, positions = entries[0::2], entries[1::2]
        if not _rising(offsets) or not _rising(positions) or (positions and positions[-1] >= segment_size):
            return False
        self.offsets, self.positions, self._written = offsets, positions, len(offsets)
        return True

    def twin(self) -> OffsetIndex:
        """Another one, empty, of the same file: `load` of it may run on any thread."""
        return OffsetIndex(self._disk, self.path, self._base, self.max_entries * _OFFSET_ENTRY.size)

    def adopt(self, twin: OffsetIndex) -> None:
        """Takes the entries that a twin has read."""
        self.offsets, self.positions, self._written = twin.offsets, twin.positions, len(twin.offsets)

    def reset(self) -> None:
        """Forgets everything, on disk too. Raises `StorageError` where a full disk does not even let the file go."""
        self.offsets = array("I")
        self.positions = array("I")
        self._written = 0
        try:
            with disk_errors(f"truncate {self.path}"):
                self._open().truncate(0)
        except StorageError:  # there is no file, and no room to make one
            self.close()
            remove_file(self._disk, self.path)

    def discard(self) -> None:
        """The file goes, if the disk lets it; what is in memory stays. The next `write` makes it anew."""
        self.close()
        self._written = 0
        with suppress(StorageError):
            remove_file(self._disk, self.path)

    def forget(self) -> None:
        """Gives back the memory; `load` reads the entries again."""
        self.offsets = array("I")
        self.positions = array("I")
        self._written = 0
        self.close()

    def file(self) -> File:
        """The open file, for syncing."""
        return self._open()

    def close(self) -> None:
        """Closes the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _open(self) -> File:
        if self._file is None:
            with disk_errors(f"open {self.path}"):
                self._file = self._disk.open(self.path, create=True)
        return self._file


class TimeIndex:
    """Largest timestamp so far → last offset of the batch that has it. Rises strictly in timestamp."""

    __slots__ = ("_base", "_disk", "_file", "_written", "max_entries", "offsets", "path", "timestamps")

    def __init__(self, disk: Disk, path: str, base_offset: int, max_bytes: int) -> None:
        self._disk = disk
        self._base = base_offset
        self._file: File | None = None
        self._written = 0
        self.path = path
        self.max_entries = max_bytes // _TIME_ENTRY.size
        self.timestamps = array("q")
        self.offsets = array("I")

    @property
    def full(self) -> bool:
        """No further entry fits besides the last one, which a sealed segment needs for its largest timestamp."""
        return len(self.timestamps) >= self.max_entries - 1

    def add(self, timestamp: int, offset: int) -> None:
        """An entry, unless the timestamp is no news."""
        if timestamp >= 0 and (not self.timestamps or timestamp > self.timestamps[-1]):
            self.timestamps.append(timestamp)
            self.offsets.append(offset - self._base)

    def newest_up_to(self, offset: int) -> tuple[int, int] | None:
        """(timestamp, last offset of its batch) of the last entry up to that offset, or None."""
        slot = bisect_right(self.offsets, offset - self._base) - 1
        return (self.timestamps[slot], self._base + self.offsets[slot]) if slot >= 0 else None

    def lookup(self, timestamp: int) -> int:
        """An offset below or at which no record has a timestamp ≥ `timestamp`; the base offset when there is none."""
        slot = bisect_left(self.timestamps, timestamp) - 1
        return self._base + self.offsets[slot] if slot >= 0 else self._base

    def truncate(self, offset: int) -> None:
        """Forgets entries at or beyond `offset`."""
        keep = bisect_left(self.offsets, max(offset - self._base, 0))
        del self.timestamps[keep:]
        del self.offsets[keep:]
        if keep < self._written:
            with disk_errors(f"truncate {self.path}"):
                self._open().truncate(keep * _TIME_ENTRY.size)
            self._written = keep

    def write(self) -> None:
        """Writes the entries that are only in memory. Raises `StorageError`, `DiskFailure`."""
        if self._written == len(self.offsets) and self._file is not None:
            return
        file = _begun(self._open(), self._written, self.path)
        pack = _TIME_ENTRY.pack
        new = zip(self.timestamps[self._written :], self.offsets[self._written :], strict=True)
        data = b"".join([pack(timestamp, offset) for timestamp, offset in new])
        append_all(file, data, self._written * _TIME_ENTRY.size, self.path, is_cache=True)
        self._written = len(self.offsets)

    def load(self) -> bool:
        """Reads the file; False when it is missing or implausible."""
        data = read_file(self._disk, self.path)
        if data is None or len(data) % _TIME_ENTRY.size:
            return False
        timestamps, offsets = array("q", _column(data, 0, 8)), array("I", _column(data, 8, 12))
        if sys.byteorder == "little":
            timestamps.byteswap()
            offsets.byteswap()
        if not _rising(timestamps) or not _rising(offsets) or (offsets and offsets[-1] > _OFFSET_MAX):
            return False
        self.timestamps, self.offsets, self._written = timestamps, offsets, len(offsets)
        return True

    def twin(self) -> TimeIndex:
        """Another one, empty, of the same file: `load` of it may run on any thread."""
        return TimeIndex(self._disk, self.path, self._base, self.max_entries * _TIME_ENTRY.size)

    def adopt(self, twin: TimeIndex) -> None:
        """Takes the entries that a twin has read."""
        self.timestamps, self.offsets, self._written = twin.timestamps, twin.offsets, len(twin.offsets)

    def reset(self) -> None:
        """Forgets everything, on disk too. Raises `StorageError` where a full disk does not even let the file go."""
        self.timestamps = array("q")
        self.offsets = array("I")
        self._written = 0
        try:
            with disk_errors(f"truncate {self.path}"):
                self._open().truncate(0)
        except StorageError:  # there is no file, and no room to make one
            self.close()
            remove_file(self._disk, self.path)

    def discard(self) -> None:
        """The file goes, if the disk lets it; what is in memory stays. The next `write` makes it anew."""
        self.close()
        self._written = 0
        with suppress(StorageError):
            remove_file(self._disk, self.path)

    def forget(self) -> None:
        """Gives back the memory; `load` reads the entries again."""
        self.timestamps = array("q")
        self.offsets = array("I")
        self._written = 0
        self.close()

    def file(self) -> File:
        """The open file, for syncing."""
        return self._open()

    def close(self) -> None:
        """Closes the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _open(self) -> File:
        if self._file is None:
            with disk_errors(f"open {self.path}"):
                self._file = self._disk.open(self.path, create=True)
        return self._file


def _begun(file: File, written: int, path: str) -> File:
    """The file of an index of which so many entries are in it: without any it is empty, whatever was left in it."""
    if not written:
        with disk_errors(f"truncate {path}"):
            if file.size():
                file.truncate(0)
    return file


def _column(data: bytes, begin: int, end: int) -> bytearray:
    """Bytes `begin` to `end` of every entry of a time index, one after the other."""
    size = end - begin
    column = bytearray(len(data) // _TIME_ENTRY.size * size)
    for byte in range(size):
        column[byte::size] = data[begin + byte :: _TIME_ENTRY.size]
    return column


def _rising(values: array[int]) -> bool:
    """Whether the values rise strictly."""
    return all(map(lt, values, islice(values, 1, None)))
