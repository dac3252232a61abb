"""`partition.metadata` beside every log: whose data these are (S10, S11, S12), and what becomes of strays.

The first two lines are Kafka's; the rest is ours, one `key: value` per line. The file is written before any data.
"""

from __future__ import annotations

import math
from base64 import urlsafe_b64decode, urlsafe_b64encode
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalite_core.model.errors import StorageError
from kafkalite_core.model.partition import IsrEntry, Seen, TopicPartition
from kafkalite_core.storage.disk import disk_errors, join, read_file, replace_file, sync_file
from kafkalite_core.storage.errors import CorruptCheckpoint

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kafkalite_core.storage.disk import Disk

FILE_NAME: Final = "partition.metadata"
STRAY_SUFFIX: Final = ".stray"
REMOVED_SUFFIX: Final = ".gone"
_NAME_LENGTH_MAX: Final = 255


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionMetadata:
    """The file's content.

    Attributes:
        topic: Name of the topic.
        partition: Number of the partition.
        topic_id: UUID in canonical text form.
        uid: `metadata.uid` of the topic's object.
        deletion_policy: `Delete` or `Retain`.
        leader_epoch: Highest leader epoch seen (S11).
        partition_epoch: Highest partition epoch seen.
        isr: ISR of the newest entry that was taken, in the order of the broker ids. Empty when it is not known; broker
            epochs are -1 in files of earlier versions.
        isr_epoch: Partition epoch of that entry. Less than `partition_epoch` while entries that contradict it are
            refused (S11).
        isr_leader_epoch: Leader epoch of that entry.
        broker_epoch: Highest broker epoch of this broker that used the log.
        compacted: `cleanup.policy` has `compact`: recovery accepts gaps between offsets.
        stray_since_ms: Wall clock at which it became a stray; -1 for a log in use.
        start_offset: Log start when it became a stray, else -1: what was deleted before it stays so when it is adopted.
        log_epoch: Leader epoch of the log's last record when it became a stray (`epoch_of_records`), else -1.
        end_offset: Flushed end of the log when it became a stray, else -1.
        recovery_point: Below it the disk had the log when it became a stray, else -1. With relaxed flush it may be less
            than `end_offset`; then the next process reads the end from the log, see `stray_ends`.
        relaxed_flush: The log has had relaxed flush: who was in sync with it and died since may lack records.
        delete_seen: The broker saw the deletion of the topic's object.
        moved_away: The topic lives on, and a reassignment took this replica from it (KAFKA-13972).
    """

    topic: str
    partition: int
    topic_id: str
    uid: str
    deletion_policy: str = "Delete"
    leader_epoch: int = -1
    partition_epoch: int = -1
    isr: tuple[IsrEntry, ...] = ()
    isr_epoch: int = -1
    isr_leader_epoch: int = -1
    broker_epoch: int = -1
    compacted: bool = False
    stray_since_ms: int = -1
    start_offset: int = -1
    log_epoch: int = -1
    end_offset: int = -1
    recovery_point: int = -1
    relaxed_flush: bool = False
    delete_seen: bool = False
    moved_away: bool = False

    @property
    def key(self) -> TopicPartition:
        """Name of the partition."""
        return TopicPartition(self.topic, self.partition)

    @property
    def deleted(self) -> bool:
        """The delete was seen, and the policy is Delete."""
        return self.delete_seen and self.deletion_policy == "Delete"

    @property
    def given_up(self) -> bool:
        """Nobody needs it: it was deleted, or its replica moved away and left all that was acknowledged to others."""
        return self.moved_away or self.deleted

    @property
    def newest(self) -> Seen:
        """What is noted of the entries that were seen."""
        return Seen(self.leader_epoch, self.partition_epoch, self.isr, self.isr_epoch, self.isr_leader_epoch)

    def noting(self, seen: Seen, *, broker_epoch: int, relaxed_flush: bool = False) -> PartitionMetadata:
        """With the higher of each epoch, and the newer ISR; the same object when nothing is news."""
        newer = seen.isr_epoch > self.isr_epoch or (
            seen.isr_epoch == self.isr_epoch and not _names_epochs(self.isr) and _names_epochs(seen.isr)
        )
        higher = seen.leader_epoch > self.leader_epoch or seen.partition_epoch > self.partition_epoch
        known = broker_epoch <= self.broker_epoch and self.relaxed_flush >= relaxed_flush
        if not newer and not higher and known:
            return self
        return replace(
            self,
            leader_epoch=max(self.leader_epoch, seen.leader_epoch),
            partition_epoch=max(self.partition_epoch, seen.partition_epoch),
            isr=seen.isr if newer else self.isr,
            isr_epoch=max(self.isr_epoch, seen.isr_epoch),
            isr_leader_epoch=seen.isr_leader_epoch if newer else self.isr_leader_epoch,
            broker_epoch=max(self.broker_epoch, broker_epoch),
            relaxed_flush=self.relaxed_flush or relaxed_flush,
        )

    def in_use(self, uid: str) -> PartitionMetadata:
        """Of a log that the topic object `uid` claims: nothing of what was said of a stray is true of it any more."""
        return replace(
            self,
            uid=uid,
            stray_since_ms=-1,
            start_offset=-1,
            log_epoch=-1,
            end_offset=-1,
            recovery_point=-1,
            delete_seen=False,
            moved_away=False,
        )

    @property
    def marked(self) -> bool:
        """The directory is a stray, or was one and no log has been written in it since."""
        return self.stray_since_ms >= 0

    @property
    def kept_start(self) -> int:
        """Where the log of a marked directory begins; 0 for any other, of which the checkpoints tell."""
        return max(self.start_offset, 0) if self.marked else 0

    @property
    def kept_recovery_point(self) -> int:
        """Below it the disk has the log of a marked directory; 0 for any other."""
        return max(self.recovery_point, 0) if self.marked else 0

    def of_stray(
        self,
        *,
        newest_epoch: int,
        start_offset: int,
        log_epoch: int,
        end_offset: int,
        recovery_point: int,
        relaxed_flush: bool,
        delete_seen: bool,
        moved_away: bool,
    ) -> PartitionMetadata:
        """With what the log itself knows when it becomes a stray: the file was written with the last checkpoint only,
        and whoever adopts the data goes by how far they reach (S10). What was given up once stays given up when it is
        set aside once more, as on a disk that was full.
        """
        return replace(
            self,
            leader_epoch=max(self.leader_epoch, newest_epoch),
            start_offset=start_offset,
            log_epoch=log_epoch,
            end_offset=end_offset,
            recovery_point=recovery_point,
            relaxed_flush=self.relaxed_flush or relaxed_flush,
            delete_seen=self.delete_seen or delete_seen,
            moved_away=self.moved_away or moved_away,
        )

    def encode(self) -> bytes:
        """The file's content."""
        raw = bytes.fromhex(self.topic_id.replace("-", ""))
        lines = ["version: 0", f"topic_id: {urlsafe_b64encode(raw).decode().rstrip('=')}"]
        # Apart from the ids, so that earlier versions can read the file.
        lines.append(f"isr: {','.join(str(member.id) for member in self.isr)}")
        lines.append(f"isr_broker_epochs: {','.join(str(member.epoch) for member in self.isr)}")
        others = [name for name in self.__dataclass_fields__ if name not in {"topic_id", "isr"}]
        lines += [f"{name}: {getattr(self, name)}" for name in others]
        return ("\n".join(lines) + "\n").encode()

    @classmethod
    def decode(cls, data: bytes) -> PartitionMetadata:
        """Reads the file; `CorruptCheckpoint` when it does not parse."""
        try:
            lines = data.decode().split("\n")
            if lines[-1]:
                raise CorruptCheckpoint(f"{FILE_NAME}: cut short")
            fields = dict(line.split(": ", 1) for line in lines[:-1])
            if fields["version"] != "0":
                raise CorruptCheckpoint(f"{FILE_NAME}: unknown version {fields['version']}")
            raw = urlsafe_b64decode(fields["topic_id"] + "==").hex()
            return cls(
                topic=fields["topic"],
                partition=int(fields["partition"]),
                topic_id="-".join((raw[:8], raw[8:12], raw[12:16], raw[16:20], raw[20:32])),
                uid=fields["uid"],
                deletion_policy=fields["deletion_policy"],
                leader_epoch=int(fields["leader_epoch"]),
                partition_epoch=int(fields["partition_epoch"]),
                isr=(isr := _members(fields.get("isr", ""), fields.get("isr_broker_epochs", ""))),
                isr_epoch=int(fields.get("isr_epoch", fields["partition_epoch"] if isr else "-1")),
                isr_leader_epoch=int(fields.get("isr_leader_epoch", fields["leader_epoch"] if isr else "-1")),
                broker_epoch=int(fields["broker_epoch"]),
                compacted=fields["compacted"] == "True",
                stray_since_ms=int(fields["stray_since_ms"]),
                start_offset=int(fields.get("start_offset", "-1")),
                log_epoch=int(fields.get("log_epoch", "-1")),
                end_offset=int(fields.get("end_offset", "-1")),
                recovery_point=int(fields.get("recovery_point", "-1")),
                relaxed_flush=fields.get("relaxed_flush") == "True",
                delete_seen=fields["delete_seen"] == "True",
                moved_away=fields.get("moved_away") == "True",
            )
        except (ValueError, KeyError) as error:
            raise CorruptCheckpoint(f"{FILE_NAME}: {error}") from error


def _members(ids: str, epochs: str) -> tuple[IsrEntry, ...]:
    """Of files of earlier versions without broker epochs."""
    known = [int(each) for each in ids.split(",") if each]
    named = [int(each) for each in epochs.split(",") if each] or [-1] * len(known)
    return tuple(IsrEntry(broker_id, epoch) for broker_id, epoch in zip(known, named, strict=True))


def _names_epochs(isr: tuple[IsrEntry, ...]) -> bool:
    return bool(isr) and all(member.epoch >= 0 for member in isr)


def read_metadata(disk: Disk, directory: str) -> PartitionMetadata | None:
    """The metadata of a log or stray; None when it is missing or unreadable (the data are then nobody's)."""
    data = read_file(disk, join(directory, FILE_NAME))
    try:
        return None if data is None else PartitionMetadata.decode(data)
    except CorruptCheckpoint:
        return None


def write_metadata(disk: Disk, directory: str, metadata: PartitionMetadata, *, durable: bool = True) -> None:
    """Replaces the file atomically. Raises `StorageError`, `DiskFailure`."""
    replace_file(disk, join(directory, FILE_NAME), metadata.encode(), durable=durable)


def sync_metadata(disk: Disk, directory: str, *, flushed: bool) -> None:
    """Makes the file durable that a process before this one may have left to a flush which it did not live to begin.

    Raises `DiskFailure`, `StorageError`. Without it recovery would call the log flushed, and a power loss could still
    take from it whose log it is. Unless something of the log was `flushed` before, and the file with it, that process
    may have ended because the sync failed. A later one succeeds then whatever the disk has, so the file is written
    anew; a full disk has no room for it, and the sync has to do.
    """
    path = join(directory, FILE_NAME)
    data = None if flushed else read_file(disk, path)
    if data is not None:
        with suppress(StorageError):
            replace_file(disk, path, data)
            return
    with disk_errors(f"open {path}"):
        file = disk.open(path)
    try:
        sync_file(file, path)
    finally:
        file.close()


def directory_name(topic: str, partition: int) -> str:
    """`<topic>-<partition>`."""
    return f"{topic}-{partition}"


def parse_directory_name(name: str) -> TopicPartition | None:
    """The partition whose log the directory of this name is, or None."""
    topic, dash, number = name.rpartition("-")
    if not dash or not topic or not (number.isascii() and number.isdigit()) or name.endswith(STRAY_SUFFIX):
        return None
    return TopicPartition(topic, int(number))


def stray_name(directory: str, unique_hex: str) -> str:
    """`<directory>.<hex>.stray`, shortened to what a file name may be; the metadata hold the full name."""
    suffix = f".{unique_hex}{STRAY_SUFFIX}"
    return directory[: _NAME_LENGTH_MAX - len(suffix)] + suffix


def removed_name(stray: str, unique_hex: str) -> str:
    """`<directory>.<hex>.gone`, the name that a stray has while it is removed; the hex is its own where it has one."""
    suffix = "" if stray.endswith(STRAY_SUFFIX) else f".{unique_hex}"
    stem = stray.removesuffix(STRAY_SUFFIX)
    return stem[: _NAME_LENGTH_MAX - len(suffix) - len(REMOVED_SUFFIX)] + suffix + REMOVED_SUFFIX


class Stray(NamedTuple):
    """A directory that was set aside.

    Attributes:
        directory: Its name.
        metadata: None when they can't be read.
        size_bytes: Bytes in it.
        end_offset: Flushed end, where it is known; else -1. What no disk has is nothing to be adopted (S8).
        clock_offset_ms: What the wall clock was ahead of the monotonic one when this process first saw the stray: a
            clock that is set forward later makes it no older.
    """

    directory: str
    metadata: PartitionMetadata | None
    size_bytes: int = 0
    end_offset: int = -1
    clock_offset_ms: float = math.inf


class StrayVerdict(NamedTuple):
    """Whether a stray may be removed now, and why."""

    remove: bool
    reason: str


def stray_verdict(
    metadata: PartitionMetadata | None, now_ms: int, *, retention_ms: int, deleted_retention_ms: int
) -> StrayVerdict:
    """Judges one stray (S10).

    remove <=> now - strayedAt > (deleted_retention if given up else retention)
    given up <=> the replica was moved away, or the delete was seen and the policy is Delete
    Without metadata: never by age (deny on missing data); a full disk may still take it.
    """
    if metadata is None or metadata.stray_since_ms < 0:
        return StrayVerdict(remove=False, reason="its metadata can't be read")
    limit = deleted_retention_ms if metadata.given_up else retention_ms
    age = now_ms - metadata.stray_since_ms
    why = "delete seen" if metadata.deleted else "moved away" if metadata.given_up else "absence never deletes"
    return StrayVerdict(age > limit, f"{why}: age {age} ms, kept for {limit} ms")


def strays_to_remove(
    strays: Iterable[Stray],
    now_ms: int,
    *,
    mono_ms: float,
    retention_ms: int,
    deleted_retention_ms: int,
    bytes_wanted: int = 0,
) -> list[tuple[Stray, str]]:
    """The strays to be removed with reasons: those of age, then the oldest until `bytes_wanted` bytes are freed.

    `now_ms`: wall clock; `mono_ms`: the monotonic one.
    """
    chosen: list[tuple[Stray, str]] = []
    kept: list[Stray] = []
    for stray in strays:
        verdict = stray_verdict(
            stray.metadata,
            int(min(now_ms, mono_ms + stray.clock_offset_ms)),
            retention_ms=retention_ms,
            deleted_retention_ms=deleted_retention_ms,
        )
        if verdict.remove:
            chosen.append((stray, verdict.reason))
        else:
            kept.append(stray)
    missing = bytes_wanted - sum(stray.size_bytes for stray, _ in chosen)
    for stray in sorted(kept, key=lambda stray: stray.metadata.stray_since_ms if stray.metadata else 0):
        if missing <= 0:
            break
        chosen.append((stray, f"disk nearly full, {missing} bytes wanted"))
        missing -= stray.size_bytes
    return chosen


def adoptable(strays: Iterable[Stray], topic: str, partition: int, topic_id: str) -> Stray | None:
    """The stray that is this very partition: same name, number and topic id; the youngest if there are several."""
    matching = [
        stray
        for stray in strays
        if stray.metadata is not None
        and stray.metadata.key == (topic, partition)
        and stray.metadata.topic_id == topic_id
    ]
    return max(matching, key=lambda stray: stray.metadata.stray_since_ms if stray.metadata else 0, default=None)
