"""A disk with a write-back cache: what was not synced may be lost or torn when the power fails.

Every `.log` file also keeps its batches as they were written (`Mark`): the simulator's own view of every log,
independent of the code under test.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from kafkalite_core.storage.checkpoints import RECOVERY_POINT, decode_offsets
from kafkalite_core.storage.errors import CorruptCheckpoint, ReadInterrupted
from kafkalite_core.storage.identity import CLEAN_SHUTDOWN_FILE
from kafkalite_core.storage.partition_metadata import FILE_NAME as METADATA
from kafkalite_core.storage.partition_metadata import REMOVED_SUFFIX, read_metadata
from tests.simulation.platter import HEADER, LENGTH_OVERHEAD, Directory, Inode, Mark, Tag, mark_of, torn
from tests.simulation.world import ProcessDied

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from tests.simulation.world import Process

Buffer = bytes | bytearray | memoryview

NAME_BYTES = 512
"""With less room than this some names find none."""

BASE_TO = 8
EPOCH_FROM, EPOCH_TO = 12, 16
"""Where base offset and leader epoch stand in a batch."""


class FailingDevice:
    """A device that fails: so many more operations succeed, then so many fail.

    Attributes:
        share: So much of a write that fails is in the file all the same.
    """

    __slots__ = ("fails", "share", "succeeds")

    def __init__(self, *, succeeds: int, fails: int, share: float = 0.0) -> None:
        self.succeeds = succeeds
        self.fails = fails
        self.share = share

    def strikes(self) -> bool:
        """Whether the operation that is under way fails."""
        if self.succeeds or not self.fails:
            self.succeeds -= 1 if self.succeeds else 0
            return False
        self.fails -= 1
        return True


class SimFile:
    """An open file. Reads of one that is `spared` do not fail: the oracles read `partition.metadata` as well."""

    __slots__ = ("_disk", "_directory", "_inode", "_closed", "_spared")  # noqa: RUF023

    def __init__(self, disk: SimDisk, directory: Directory, inode: Inode, *, spared: bool) -> None:
        self._disk = disk
        self._directory = directory
        self._inode = inode
        self._closed = False
        self._spared = spared

    def append(self, data: Buffer) -> int:
        """See `kafkalite_core.storage.disk.File`."""
        disk, inode = self._disk, self._inode
        disk.step()
        size = len(data)
        failing = disk.failing_writes
        if failing is not None and failing.strikes():
            written = bytes(data)[: int(size * failing.share)]
            disk.failing_writes = None
            if written:
                self.append(written)
            disk.failing_writes = failing
            disk.bite("write_error")
            raise OSError(errno.EIO, "Input/output error")
        if size > disk.room:
            if disk.room <= 0:
                disk.bite("disk_full")
                raise OSError(errno.ENOSPC, "No space left on device")
            data = bytes(data)[: disk.room]
            size = len(data)
        position = len(inode.data)
        inode.data += data
        inode.modified_ms = disk.wall_ms()
        disk.room -= size
        if inode.marks is not None:
            self._note_batches(inode.marks, data, position)
        return size

    def _note_batches(self, marks: list[Mark], data: Buffer, position: int) -> None:
        at, size = 0, len(data)
        while at + HEADER.size <= size:
            fields = HEADER.unpack_from(data, at)
            at += fields[1] + LENGTH_OVERHEAD
            if at > size:
                return
            mark = mark_of(position + at, fields)
            marks.append(mark)
            if self._directory.tag is not None:
                self._disk.on_batch(self._directory.tag, mark)

    def pread(self, size: int, offset: int) -> bytes:
        """See `File`."""
        if self._closed:
            raise ReadInterrupted("closed")
        failing = self._disk.failing_reads
        if failing is not None and not self._spared and self._disk.process is not None and failing.strikes():
            self._disk.bite("read_error")
            raise OSError(errno.EIO, "Input/output error")
        return bytes(self._inode.data[offset : offset + size])

    def size(self) -> int:
        """See `File`."""
        return len(self._inode.data)

    def modified_ms(self) -> int:
        """See `File`."""
        return self._inode.modified_ms

    def truncate(self, size: int) -> None:
        """See `File`."""
        disk, inode = self._disk, self._inode
        disk.step()
        inode.modified_ms = disk.wall_ms()
        if size >= len(inode.data):
            return
        if size < inode.synced:
            if inode.old is None:
                inode.old = bytes(inode.data[: inode.synced])
                inode.floor = size
            inode.floor = min(inode.floor, size)
        disk.room += len(inode.data) - size
        del inode.data[size:]
        if inode.lost:
            inode.lost = [(start, min(stop, size)) for start, stop in inode.lost if start < size]
        marks = inode.marks
        while marks and marks[-1].stop > size:
            marks.pop()

    def sync(self) -> None:
        """See `File`; after an error the cache still shows what the platter never got."""
        if self._closed:
            raise ReadInterrupted("closed")
        disk, inode = self._disk, self._inode
        disk.step()
        if disk.sync_errors:
            disk.sync_errors -= 1
            disk.bite("sync_error")
            disk.forgot_unsynced = True
            start = inode.durable_prefix
            if start < len(inode.data):
                inode.lost.append((start, len(inode.data)))
            inode.synced, inode.old = len(inode.data), None
            raise OSError(errno.EIO, "Input/output error")
        inode.synced, inode.old = len(inode.data), None

    def drop_cached(self, offset: int) -> None:
        """See `File`: what was never written is seen to be missing now."""
        del offset
        inode = self._inode
        if inode.lost:
            inode.synced = len(inode.data)
            inode.old = None
            inode.reread(inode.durable())

    def close(self) -> None:
        """See `File`."""
        self._closed = True


class Held:
    """See `DataDirectory.take`."""

    def release(self) -> None:
        """See there."""


class SimDisk:
    """One data directory, one level of directories deep; a `kafkalite_broker.log.directory.DataDirectory`.

    Attributes:
        room: Bytes that may still be written.
        sync_errors: So many of the next syncs fail.
        failing_reads: When reads of the process fail with EIO; None while they do not.
        failing_writes: The same of appends.
        forgot_unsynced: A sync failed: the pages of that file that were dirty are marked clean and gone, as Linux does
            it. What an earlier sync wrote is still there; what was only written is not, as after a power failure. So a
            topic with relaxed flush may lack the end of its log, and its broker says so with its next registration.
        fuse: After so many more operations the process dies; 0 for not at all.
        fuse_power: It dies because the power fails.
        process: Whose disk operations these are.
    """

    def __init__(
        self,
        *,
        room: int,
        wall_ms: Callable[[], int],
        bite: Callable[[str], None],
        on_batch: Callable[[Tag, Mark], None],
    ) -> None:
        self.room = room
        self.wall_ms = wall_ms
        self.bite = bite
        self.on_batch = on_batch
        self.sync_errors = 0
        self.failing_reads: FailingDevice | None = None
        self.failing_writes: FailingDevice | None = None
        self.forgot_unsynced = False
        self.fuse = 0
        self.fuse_power = False
        self._names_wanted = 0
        self.process: Process | None = None
        self.root = Directory()

    def step(self) -> None:
        """Every operation comes through here: the process may die before it."""
        if self.fuse:
            self.fuse -= 1
            if not self.fuse and self.process is not None:
                self.bite("crash_disk")
                raise ProcessDied(self.process, "died between two disk operations", power=self.fuse_power)

    # ------------------------------------------------------------------------------------------------ the port

    def _place(self, path: str) -> tuple[Directory, str]:
        head, slash, name = path.rpartition("/")
        if not slash:
            return self.root, path
        directory = self.root.entries.get(head)
        if not isinstance(directory, Directory):
            raise FileNotFoundError(errno.ENOENT, path)
        return directory, name

    def _name_finds_room(self, path: str) -> None:
        """A disk that is as good as full has no room for every third new name."""
        if self.room < NAME_BYTES:
            self._names_wanted += 1
            if self._names_wanted % 3 == 0:
                self.bite("disk_full")
                raise OSError(errno.ENOSPC, f"No space left on device: {path}")

    def open(self, path: str, *, create: bool = False) -> SimFile:
        """See `kafkalite_core.storage.disk.Disk`."""
        directory, name = self._place(path)
        node = directory.entries.get(name)
        if node is None:
            if not create:
                raise FileNotFoundError(errno.ENOENT, path)
            self.step()
            self._name_finds_room(path)
            node = directory.entries[name] = Inode(is_log=name.endswith(".log"))
            node.modified_ms = self.wall_ms()
            directory.note("set", name, node=node)
        assert isinstance(node, Inode), path
        return SimFile(self, directory, node, spared=name == METADATA)

    def exists(self, path: str) -> bool:
        """See `Disk`."""
        try:
            directory, name = self._place(path)
        except FileNotFoundError:
            return False
        return name in directory.entries

    def is_directory(self, path: str) -> bool:
        """Whether there is a directory of that name."""
        return isinstance(self.root.entries.get(path), Directory)

    def directory(self, path: str) -> Directory:
        """A directory of the data directory."""
        found = self.root.entries[path]
        assert isinstance(found, Directory)
        return found

    def list(self, directory: str) -> list[str]:
        """See `Disk`."""
        found = self.root.entries.get(directory) if directory else self.root
        if not isinstance(found, Directory):
            raise FileNotFoundError(errno.ENOENT, directory)
        return sorted(found.entries)

    def makedirs(self, directory: str) -> None:
        """See `Disk`."""
        if directory not in self.root.entries:
            self.step()
            self._name_finds_room(directory)
            made = self.root.entries[directory] = Directory()
            self.root.note("set", directory, node=made)

    def rename(self, source: str, target: str) -> None:
        """See `Disk`; always within one directory."""
        self.step()
        self._name_finds_room(target)
        directory, name = self._place(source)
        other, new_name = self._place(target)
        assert other is directory, (source, target)
        node = directory.entries.pop(name, None)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, source)
        replaced = directory.entries.get(new_name)
        if isinstance(replaced, Inode):
            self.room += len(replaced.data)
        directory.entries[new_name] = node
        directory.note("move", name, new_name, node)
        if new_name == METADATA:
            metadata = read_metadata(self, source.rpartition("/")[0])
            assert metadata is not None, target
            directory.tag = (metadata.topic_id, metadata.partition)

    def remove(self, path: str) -> None:
        """See `Disk`."""
        self.step()
        directory, name = self._place(path)
        node = directory.entries.get(name)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, path)
        if isinstance(node, Directory):
            if node.entries:
                raise OSError(errno.ENOTEMPTY, path)
        else:
            self.room += len(node.data)
        del directory.entries[name]
        directory.note("unlink", name)

    def sync_directory(self, directory: str) -> None:
        """See `Disk`."""
        self.step()
        found = self.root.entries.get(directory) if directory else self.root
        if not isinstance(found, Directory):
            raise FileNotFoundError(errno.ENOENT, directory)
        found.sync()

    def free_bytes(self) -> int:
        """See `Disk`."""
        return max(self.room, 0)

    def remove_tree(self, name: str) -> None:
        """A directory with all its files."""
        for entry in list(self.directory(name).entries):
            self.remove(f"{name}/{entry}")
        self.remove(name)

    def take(self) -> Held:
        """See `DataDirectory`: one process after the other uses it."""
        return Held()

    def tree_bytes(self, name: str) -> int:
        """Bytes of all files of a directory."""
        return sum(len(node.data) for node in self.directory(name).entries.values() if isinstance(node, Inode))

    # ------------------------------------------------------------------------------------------------ faults

    def crash(self, chance: Random) -> None:
        """The power fails."""
        before = self._used()
        seen: set[int] = set()
        for directory in [self.root, *self._directories(self.root)]:
            if id(directory) not in seen:
                seen.add(id(directory))
                directory.crash(chance)
        for directory in [self.root, *self._directories(self.root)]:
            for node in directory.entries.values():
                if isinstance(node, Inode) and id(node) not in seen:
                    seen.add(id(node))
                    if node.synced != len(node.data) or node.old is not None or node.lost:
                        node.reread(torn(node, chance))
        self._forget_whose()
        self.room += before - self._used()

    def _forget_whose(self) -> None:
        """A directory that has lost its `partition.metadata` is nobody's log any more, whatever else is in it."""
        for name, node in self.root.entries.items():
            if isinstance(node, Directory) and node.tag is not None and read_metadata(self, name) is None:
                node.tag = None

    def _directories(self, root: Directory) -> list[Directory]:
        nodes = [*root.entries.values(), *root.durable.values(), *(step[3] for step in root.journal)]
        return list(dict.fromkeys(node for node in nodes if isinstance(node, Directory)))

    def _used(self) -> int:
        directories = [self.root, *(n for n in self.root.entries.values() if isinstance(n, Directory))]
        return sum(len(n.data) for d in directories for n in d.entries.values() if isinstance(n, Inode))

    def wipe(self) -> None:
        """Another, empty disk is in its place."""
        self.room += self._used()
        self.root = Directory()

    def flip_bit(self, chance: Random) -> bool:
        """One bit of a log changes on the platter, in what recovery checks and below the checkpointed flushed end.

        Beyond the checkpoint a broken batch looks like a write that was under way, which nobody can tell apart; what
        lies in segments before the one with the recovery point is not read again by a recovery. After a clean stop
        nothing is: bits rot on a real disk then as well, but only whoever reads the batch can notice, as with Kafka.
        No sum covers a batch's leader epoch and base offset; a wrong offset shows where offsets may not be missing.
        """
        if self.exists(CLEAN_SHUTDOWN_FILE):
            return False
        try:
            file = self.open(RECOVERY_POINT)
            points = decode_offsets(file.pread(file.size(), 0), RECOVERY_POINT)
        except (FileNotFoundError, CorruptCheckpoint):
            return False
        victims: list[tuple[Inode, int, int, bool]] = []
        for key, point in sorted(points.items()):
            directory = self.root.entries.get(f"{key.topic}-{key.partition}")
            if not isinstance(directory, Directory):
                continue
            metadata = read_metadata(self, f"{key.topic}-{key.partition}")
            gaps = metadata is not None and metadata.compacted
            scanned = [inode for name, inode in directory.segments() if int(name.partition(".")[0]) <= point][-1:]
            for inode in scanned:
                start = 0
                for mark in inode.marks or []:
                    if mark.next <= point:
                        victims.append((inode, start, mark.stop, gaps))
                    start = mark.stop
        if not victims:
            return False
        inode, start, stop, gaps = chance.choice(victims)
        content = bytearray(inode.data)
        place = chance.randrange(start, stop)
        while EPOCH_FROM <= place - start < EPOCH_TO or (gaps and place - start < BASE_TO):
            place = chance.randrange(start, stop)
        content[place] ^= 1 << chance.randrange(8)
        inode.reread(content)
        return True

    # ------------------------------------------------------------------------------------------------ the truth

    def of(self, tag: Tag) -> list[tuple[str, Directory]]:
        """The logs of a partition, also those that were set aside, with the names of their directories."""
        return [
            (name, node)
            for name, node in self.root.entries.items()
            if isinstance(node, Directory) and node.tag == tag and not name.endswith(REMOVED_SUFFIX)
        ]
