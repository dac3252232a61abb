"""The log of one replica as it lies in a data directory, batch by batch: for whoever looks at it from outside."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from crc32c import crc32c

from kafkalite_core.model.errors import KafkaLiteError
from kafkalite_core.storage.checkpoints import CLEANER, HIGH_WATERMARK, LOG_START, decode_offsets
from kafkalite_core.storage.identity import IDENTITY_FILE, Identity
from kafkalite_core.storage.partition_metadata import FILE_NAME, PartitionMetadata, parse_directory_name
from kafkalite_core.storage.segment import HEADER, HEADER_BYTES, LENGTH_OVERHEAD_BYTES, LOG_SUFFIX, offset_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import BinaryIO

    from kafkalite_core.model.partition import TopicPartition

_PART_BYTES = 1 << 17  # what fits into a processor's cache is copied fastest
_CRC_POSITION, _CRC_START = 17, 21
_FIELDS = (
    (0, "baseOffset"),
    (8, "batchLength"),
    (12, "partitionLeaderEpoch"),
    (16, "magic"),
    (17, "crc"),
    (21, "attributes"),
    (23, "lastOffsetDelta"),
    (27, "baseTimestamp"),
    (35, "maxTimestamp"),
    (43, "producerId"),
    (51, "producerEpoch"),
    (53, "baseSequence"),
    (57, "recordCount"),
    (61, "records"),
)


class DirectoryError(KafkaLiteError):
    """A data directory that cannot be read; the text names it."""


class Batch(NamedTuple):
    """One batch of a log and where it lies."""

    base_offset: int
    last_offset: int
    leader_epoch: int
    file: str
    position: int
    data: bytes

    def is_intact(self) -> bool:
        """Whether the CRC is that of the bytes it covers."""
        return crc32c(self.data[_CRC_START:]) == int.from_bytes(self.data[_CRC_POSITION:_CRC_START], "big")

    def __str__(self) -> str:
        return (
            f"offsets {self.base_offset} to {self.last_offset}, leader epoch {self.leader_epoch}, {len(self.data)} "
            f"bytes at {self.position} of {self.file}, CRC {'right' if self.is_intact() else 'WRONG'}"
        )


def first_difference(one: bytes, other: bytes) -> str:
    """Where two batches differ first: position and name of the field."""
    common = min(len(one), len(other))
    at = next((index for index in range(common) if one[index] != other[index]), common)
    return f"byte {at} ({next(name for start, name in reversed(_FIELDS) if at >= start)})"


class ReplicaLog:
    """One partition's directory on one broker.

    Attributes:
        start: Lowest offset that the replica serves.
        high_watermark: As checkpointed; everything below it was committed then.
        cleaned_to: Compaction may have changed what lies below.
        end: Behind the last whole batch, known when `batches` was exhausted.
    """

    def __init__(self, broker: int, directory: Path, metadata: PartitionMetadata) -> None:
        self.broker, self.directory, self.metadata = broker, directory, metadata
        self.start = self.high_watermark = self.cleaned_to = 0
        self.end = 0

    @property
    def bounds(self) -> tuple[int, int, int]:
        """What the checkpoints said."""
        return self.start, self.cleaned_to, self.high_watermark

    def files(self) -> list[tuple[int, Path]]:
        """(base offset, file) of every segment, ascending."""
        found = [(offset_of(path.name), path) for path in self.directory.iterdir() if path.suffix == LOG_SUFFIX]
        return sorted((base, path) for base, path in found if base is not None)

    def has_records(self) -> bool:
        """Whether there is anything in it."""
        return any(path.stat().st_size for _, path in self.files())

    def batches(self, start: int) -> Iterator[Batch]:
        """Every batch with an offset at or above `start`. It ends at the first bytes that are no whole batch."""
        files = self.files()
        self.end = max(self.end, files[0][0] if files else 0)
        for index, (_, path) in enumerate(files):
            if index + 1 < len(files) and files[index + 1][0] <= start:
                continue
            for batch in _batches_of(path):
                self.end = batch.last_offset + 1
                if batch.last_offset >= start:
                    yield batch


def _batches_of(path: Path) -> Iterator[Batch]:
    """Read, not mapped: a running broker may cut the file off, and who touches a mapped page that is gone is killed."""
    with path.open("rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        position, part, at = 0, b"", 0  # part[at:] is what lies at `position`
        while position + HEADER_BYTES <= size:
            if len(part) - at < HEADER_BYTES:
                part, at = _read_on(file, part[at:], HEADER_BYTES), 0
                if len(part) < HEADER_BYTES:
                    return
            base, length, epoch, magic, _, _, last_delta, *_ = HEADER.unpack_from(part, at)
            total = length + LENGTH_OVERHEAD_BYTES
            if magic != 2 or total < HEADER_BYTES or position + total > size or last_delta < 0:
                return
            if len(part) - at < total:
                part, at = _read_on(file, part[at:], total), 0
                if len(part) < total:
                    return
            yield Batch(base, base + last_delta, epoch, path.name, position, part[at : at + total])
            position += total
            at += total


def _read_on(file: BinaryIO, held: bytes, wanted: int) -> bytes:
    """`held` and what follows it in the file, at least `wanted` bytes in all; fewer where the file ends."""
    parts, count = [held], len(held)
    while count < wanted and (more := file.read(max(_PART_BYTES, wanted - count))):
        parts.append(more)
        count += len(more)
    return b"".join(parts)


def identity_of(directory: Path) -> Identity:
    """Whose data directory it is. Raises DirectoryError."""
    try:
        return Identity.decode((directory / IDENTITY_FILE).read_bytes())
    except (OSError, KafkaLiteError) as error:
        raise DirectoryError(f"{directory}: {error}") from error


def open_directory(directory: Path) -> tuple[Identity, dict[TopicPartition, ReplicaLog]]:
    """(whose it is, its logs by partition), strays left out. Raises DirectoryError."""
    identity = identity_of(directory)
    try:
        folders = [path for path in sorted(directory.iterdir()) if path.is_dir() and parse_directory_name(path.name)]
        checkpoints = _Checkpoints.read(directory)
        logs = [log for path in folders if (log := _open(identity.broker_id, path, checkpoints)) is not None]
    except (OSError, KafkaLiteError) as error:
        raise DirectoryError(f"{directory}: {error}") from error
    return identity, {log.metadata.key: log for log in logs}


def open_log(directory: Path) -> ReplicaLog | None:
    """One partition's directory; None when it is gone. Raises DirectoryError."""
    parent = directory.parent
    broker = identity_of(parent).broker_id
    try:
        return _open(broker, directory, _Checkpoints.read(parent))
    except (OSError, KafkaLiteError) as error:
        raise DirectoryError(f"{directory}: {error}") from error


class _Checkpoints(NamedTuple):
    """Read before the logs: what they name is in them."""

    high_watermarks: dict[TopicPartition, int]
    starts: dict[TopicPartition, int]
    cleaned: dict[TopicPartition, int]

    @classmethod
    def read(cls, directory: Path) -> _Checkpoints:
        return cls(*(_offsets(directory / name) for name in (HIGH_WATERMARK, LOG_START, CLEANER)))


def _open(broker: int, directory: Path, checkpoints: _Checkpoints) -> ReplicaLog | None:
    try:
        log = ReplicaLog(broker, directory, PartitionMetadata.decode((directory / FILE_NAME).read_bytes()))
        files = log.files()
    except FileNotFoundError:
        return None  # removed, or not complete yet
    key = log.metadata.key
    log.start = max(checkpoints.starts.get(key, 0), files[0][0] if files else 0)
    log.high_watermark, log.cleaned_to = checkpoints.high_watermarks.get(key, 0), checkpoints.cleaned.get(key, 0)
    return log


def _offsets(path: Path) -> dict[TopicPartition, int]:
    try:
        return decode_offsets(path.read_bytes(), path.name)
    except FileNotFoundError:
        return {}
