"""Directories that were set aside instead of deleted (S10)."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalite_broker.log.directory import each
from kafkalite_core.model.errors import StorageError
from kafkalite_core.storage.disk import disk_errors, sync_directory
from kafkalite_core.storage.errors import DiskFailure
from kafkalite_core.storage.partition_metadata import (
    FILE_NAME,
    REMOVED_SUFFIX,
    STRAY_SUFFIX,
    PartitionMetadata,
    Stray,
    adoptable,
    directory_name,
    parse_directory_name,
    read_metadata,
    removed_name,
    stray_name,
    strays_to_remove,
    write_metadata,
)
from kafkalite_core.storage.stray_ends import recovered_metadata

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from kafkalite_broker.log.directory import DataDirectory
    from kafkalite_broker.log.removals import Removals
    from kafkalite_core.model.partition import Seen, TopicPartition, TopicRef


UNLISTED_MS: Final = 75_000.0
"""So long a stray stays that the broker's status names no more: an operator may have read the list just before, and
take over what it names (`controller/adoption.py`). Whoever is called in sync then has to have it. The operator waits
for no answer of the API server for a minute, and the broker may hear of what it has written 10 s later.
"""


class StrayRules(NamedTuple):
    """What decides over the removal of strays.

    Attributes:
        retention_ms: So long one stays whose topic was lost.
        deleted_retention_ms: So long one stays whose topic was deleted, or that was moved away.
        told_ms: For how long the store is known not to list a stray; 0 when it may list it.
        claimed: Whether a topic that lives has this replica here, so that its stray is about to be adopted; or may have
            it, since it cannot be read.
        looked_ms: When the topics that `claimed` goes by were last listed consistently, or rather asked for; monotonic.
            A watch may be late, so before a stray goes they have to have been listed once its time had come.
        unlisted_ms: See `UNLISTED_MS`.
    """

    retention_ms: int
    deleted_retention_ms: int
    told_ms: Callable[[PartitionMetadata], float]
    claimed: Callable[[PartitionMetadata], bool]
    looked_ms: float
    unlisted_ms: float = UNLISTED_MS


class StrayDirectories:
    """The strays of one data directory.

    Args:
        disk: The data directory.
        wall_ms: Wall clock.
        mono_ms: Monotonic clock.
        unique_hex: Hexadecimal digits that are never given again.
        removals: Removes what takes room.
    """

    def __init__(
        self,
        disk: DataDirectory,
        wall_ms: Callable[[], int],
        mono_ms: Callable[[], float],
        unique_hex: Callable[[], str],
        removals: Removals,
    ) -> None:
        self._disk = disk
        self._removals = removals
        self._wall_ms = wall_ms
        self._mono_ms = mono_ms
        self._unique_hex = unique_hex
        self._strays: dict[str, Stray] = {}
        self._of_topics: dict[tuple[str, int], list[Stray]] | None = None
        """By topic id and partition; None: to be made of the strays when it is asked for. Every partition asks."""
        self._leaving: dict[str, float] = {}
        """Since when they are listed no more, since they are about to be removed; monotonic ms."""
        self.due = False
        """The time of some has come, but for a list of the topics."""
        self._lossy: dict[str, PartitionMetadata] = {}
        """What is to be noted in strays that lack flushed records."""
        self._gone: dict[str, TopicPartition | None] = {}
        """Directories of strays that are removed, by name: see `end_removals`."""

    def find(self, threads: int) -> bool:
        """Reads which there are, and the end of a log that was not flushed. Raises `DiskFailure`, `StorageError`.

        A removal that the last process did not live to end is gone on with. Returns whether they had all that was
        flushed of them, as far as they were read.
        """
        for name in self._disk.list(""):
            if name.endswith(REMOVED_SUFFIX):
                metadata = read_metadata(self._disk, name)
                self._gone[name] = None if metadata is None else metadata.key
                self._removals.remove(name, self._disk.tree_bytes(name), keep=FILE_NAME)
        names = [name for name in self._disk.list("") if name.endswith(STRAY_SUFFIX)]

        return self._recover(names, threads, thoroughly=False)

    def verify(self, threads: int) -> None:
        """Reads all strays whole: the disk has lost flushed records. What they say they have is true afterwards.

        One that can't be read, or not without room, says what it said: who adopts it finds out.
        """
        self._recover(list(self._strays), threads, thoroughly=True)

    def _recover(self, names: list[str], threads: int, *, thoroughly: bool) -> bool:
        def recovered(name: str) -> tuple[PartitionMetadata | None, bool] | None:
            try:
                return recovered_metadata(self._disk, name, now_ms=self._wall_ms(), thoroughly=thoroughly)
            except (DiskFailure, StorageError):
                if not thoroughly:
                    raise
                return None

        whole = True
        for name, found in zip(names, each(recovered, names, threads, "recovery"), strict=True):
            if found is None:
                continue
            metadata, cut = found
            offset_ms = self._clock_offset_ms(name, metadata)
            self._strays[name] = Stray(name, metadata, self._disk.tree_bytes(name), clock_offset_ms=offset_ms)
            if cut and metadata is not None:
                self._lossy[name] = metadata
                whole = False
        self._of_topics = None
        return whole

    def _clock_offset_ms(self, name: str, metadata: PartitionMetadata | None) -> float:
        """See `Stray`. Of one from the future, since the clock was set back, the time counts from now on."""
        known = self._strays.get(name)
        if known is not None:
            return known.clock_offset_ms
        since_ms = -1 if metadata is None else metadata.stray_since_ms
        return max(self._wall_ms(), since_ms) - self._mono_ms()

    def note_losses(self) -> None:
        """What strays have lost is noted in them: the disk is distrusted for it, durably, so the evidence may go."""
        for name, metadata in self._lossy.items():
            with suppress(StorageError):  # an adoption finds it once more
                write_metadata(self._disk, name, metadata)
        self._lossy.clear()

    def find_logs(self) -> dict[TopicPartition, PartitionMetadata]:
        """Logs by partition; whatever has no readable metadata or another name than they say becomes a stray."""
        found: dict[TopicPartition, PartitionMetadata] = {}
        for name in self._disk.list(""):
            key = parse_directory_name(name)
            if key is None or not self._disk.is_directory(name):
                continue
            metadata = read_metadata(self._disk, name)
            if metadata is not None and metadata.key == key:
                found[key] = metadata
            elif self._disk.tree_bytes(name):
                self.set_aside(name, metadata)
            else:
                self._disk.remove_tree(name)  # made, but nothing was written before the crash
        return found

    def all(self) -> list[Stray]:
        """Every stray, by name."""
        return [self._strays[name] for name in sorted(self._strays)]

    def listed(self) -> list[Stray]:
        """Those that may be taken over, by name: not who is about to be removed."""
        return [stray for stray in self.all() if stray.directory not in self._leaving]

    @property
    def leaving(self) -> bool:
        """Whether some are about to be removed."""
        return bool(self._leaving)

    def partitions(self) -> set[TopicPartition]:
        """The partitions whose directories were set aside, also those whose removal has not ended."""
        strays = {stray.metadata.key for stray in self._strays.values() if stray.metadata is not None}
        return strays | {key for key in self._gone.values() if key is not None}

    def set_aside(self, name: str, metadata: PartitionMetadata | None, *, end_offset: int = -1) -> Stray:
        """Renames a log's directory. After a power loss it may have its old name again; then it is set aside again.

        It has been a stray since the first time: one that had to keep its name shall not always be the youngest.
        """
        if metadata is not None and not metadata.marked:
            metadata = self.mark(name, metadata)
        return self.rename(name, metadata, end_offset=end_offset)

    def mark(self, name: str, metadata: PartitionMetadata) -> PartitionMetadata:
        """Says in a log's directory that it becomes a stray now. `StorageError` on a full disk: nothing has changed.

        Durably: a stray that nobody can read after a power loss is nobody's, and its data would be lost (S10).
        """
        metadata = replace(metadata, stray_since_ms=self._wall_ms())
        write_metadata(self._disk, name, metadata)
        return metadata

    def rename(self, name: str, metadata: PartitionMetadata | None, *, end_offset: int = -1) -> Stray:
        """Gives a marked directory its name as a stray. A disk without room for a name leaves it the one it has."""
        target = stray_name(name, self._unique_hex())
        try:
            with disk_errors(f"set {name} aside"):
                self._disk.rename(name, target)
        except StorageError:
            target = name
        offset_ms = self._clock_offset_ms(name, metadata)
        self._strays.pop(name, None)
        self._leaving.pop(name, None)
        with disk_errors(f"measure {target}"):
            stray = Stray(target, metadata, self._disk.tree_bytes(target), end_offset, offset_ms)
        self._strays[target] = stray
        self._of_topics = None
        return stray

    def clear_way(self, name: str, topic_id: str) -> None:
        """Sets aside what is in the way of a new log: other data are never taken over (S12). `StorageError`."""
        if not self._disk.exists(name):
            return
        metadata = read_metadata(self._disk, name)
        if not self._disk.tree_bytes(name):  # a log was begun, and nothing was written
            self._disk.remove_tree(name)
            return
        key = parse_directory_name(name)
        foreign = metadata is None or metadata.topic_id != topic_id or metadata.key != key
        if foreign and self.set_aside(name, metadata).directory == name:
            raise StorageError(f"no room to set {name} aside: no space left for its new name")

    def find_own(self, ref: TopicRef, number: int) -> tuple[str, PartitionMetadata] | None:
        """The directory that has this very partition's data, and its metadata: a stray, or None without one.

        It may have the name of a log already: an adoption that a full disk interrupted is gone on with.
        """
        name = directory_name(ref.name, number)
        metadata = read_metadata(self._disk, name) if self._disk.exists(name) else None
        if metadata is not None and metadata.key == (ref.name, number) and metadata.topic_id == ref.topic_id:
            return name, metadata
        stray = adoptable(self._strays.values(), ref.name, number, ref.topic_id)
        return None if stray is None or stray.metadata is None else (stray.directory, stray.metadata)

    def give_back(self, directory: str, name: str) -> None:
        """Gives a stray the name of its log, durably. It is a stray until `adopted`, and marked until it is used."""
        if directory != name:
            with disk_errors(f"adopt {directory}"):
                self._disk.rename(directory, name)
        sync_directory(self._disk, "")
        stray = self._strays.pop(directory, None)
        if stray is not None:
            self._strays[name] = stray._replace(directory=name)
        self._leaving.pop(directory, None)
        self._of_topics = None

    def adopted(self, name: str) -> None:
        """The log of that name is open."""
        self._strays.pop(name, None)
        self._leaving.pop(name, None)
        self._of_topics = None

    def seen(self, ref: TopicRef, number: int) -> Seen | None:
        """The highest epochs that a stray of this very partition has noted, and the ISR; None without one (S11)."""
        if self._of_topics is None:
            self._of_topics = {}
            for stray in self._strays.values():
                if stray.metadata is not None:
                    self._of_topics.setdefault((stray.metadata.topic_id, stray.metadata.partition), []).append(stray)
        found = adoptable(self._of_topics.get((ref.topic_id, number), ()), ref.name, number, ref.topic_id)
        return None if found is None or found.metadata is None else found.metadata.newest

    def remove(self, rules: StrayRules, *, now_ms: float, bytes_wanted: int = 0) -> list[tuple[str, str]]:
        """Removes those whose time has come, and the oldest until `bytes_wanted` bytes are free; (name, reason).

        The first call that finds one only leaves it out of `listed`; it goes when the store has known that for long
        enough. Each gets another name first, durably: what a crash leaves of it is no stray any more. What takes room
        goes afterwards, see `Removals`; what could not be removed before is tried again. Raises `StorageError`,
        `DiskFailure`.
        """
        self._removals.again()
        chosen = strays_to_remove(
            [stray for stray in self._strays.values() if stray.metadata is None or not rules.claimed(stray.metadata)],
            self._wall_ms(),
            mono_ms=now_ms,
            retention_ms=rules.retention_ms,
            deleted_retention_ms=rules.deleted_retention_ms,
            bytes_wanted=bytes_wanted - self._removals.pending_bytes,
        )
        self._leaving = {stray.directory: self._leaving.get(stray.directory, now_ms) for stray, _ in chosen}
        self._of_topics = None
        self.due = False
        removed: list[tuple[str, str]] = []
        gone: list[tuple[str, int]] = []
        try:
            for stray, reason in chosen:
                if stray.metadata is not None:
                    overdue_ms = self._unlisted_ms(stray.directory, stray.metadata, rules, now_ms) - rules.unlisted_ms
                    looked = now_ms - rules.looked_ms <= overdue_ms
                    self.due |= overdue_ms >= 0.0 and not looked
                    if overdue_ms < 0.0 or not looked:
                        continue
                gone.append((self._rename_gone(stray), stray.size_bytes))
                removed.append((stray.directory, reason))
        except StorageError:
            self._empty(gone)
            raise
        self._empty(gone)
        return removed

    def _unlisted_ms(self, name: str, metadata: PartitionMetadata, rules: StrayRules, now_ms: float) -> float:
        return min(rules.told_ms(metadata), now_ms - self._leaving[name])

    def _rename_gone(self, stray: Stray) -> str:
        gone = removed_name(stray.directory, self._unique_hex())
        with disk_errors(f"remove {stray.directory}"), suppress(FileNotFoundError):  # somebody else has removed it
            self._disk.rename(stray.directory, gone)
        del self._strays[stray.directory], self._leaving[stray.directory]
        self._gone[gone] = None if stray.metadata is None else stray.metadata.key
        return gone

    def _empty(self, gone: list[tuple[str, int]]) -> None:
        """All that takes room goes, once no power loss can give the directories the names of strays again."""
        if gone:
            sync_directory(self._disk, "")
        for name, size_bytes in gone:
            self._removals.remove(name, size_bytes, keep=FILE_NAME)

    def end_removals(self, missed: Collection[TopicPartition]) -> None:
        """Removes what is left of the strays that were removed: whose data they were.

        Not of the partitions that the next start would miss: `missed` are those that the checkpoint on disk names.
        """
        for name in [name for name, key in self._gone.items() if key not in missed]:
            self._removals.remove(name)
            del self._gone[name]
