"""A disk in memory that forgets what was not synced, for tests and simulations.

A crash keeps what was synced. Of everything else it keeps what the given `choose` picks: unsynced bytes may be there,
gone, zeroed or torn per sector; unsynced directory entries may be there or not, each on its own. A rename of a file is
there or not as a whole, as on every journaling file system.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Final

from kafkalite_core.storage.errors import ReadInterrupted

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalite_core.storage.disk import Buffer

SECTOR_BYTES: Final = 512


def keep_synced_only(_choices: int) -> int:
    """A `choose` for which whatever was not synced is lost."""
    return 0


class _Inode:
    __slots__ = ("data", "modified_ms", "synced")

    def __init__(self, modified_ms: int) -> None:
        self.data = bytearray()
        self.synced = b""
        self.modified_ms = modified_ms


class MemoryFile:
    """A file of `MemoryDisk`."""

    def __init__(self, disk: MemoryDisk, path: str, inode: _Inode) -> None:
        self._disk = disk
        self._path = path
        self._inode = inode
        self._generation = disk.generation
        self._closed = False

    def append(self, data: Buffer) -> int:
        """See `File`; writes what fits when the disk is nearly full, as a real one does."""
        self._check("append")
        room = self._disk.free_bytes()
        if room <= 0 and len(data):
            raise OSError(errno.ENOSPC, "No space left on device")
        part = bytes(data[:room]) if len(data) > room else data
        self._inode.data += part
        self._inode.modified_ms = self._disk.now_ms
        return len(part)

    def pread(self, size: int, offset: int) -> bytes:
        """See `File`."""
        if self._closed:
            raise ReadInterrupted(self._path)
        self._check("pread")
        return bytes(self._inode.data[offset : offset + size])

    def size(self) -> int:
        """See `File`."""
        self._check("size")
        return len(self._inode.data)

    def modified_ms(self) -> int:
        """See `File`."""
        self._check("modified_ms")
        return self._inode.modified_ms

    def truncate(self, size: int) -> None:
        """See `File`."""
        self._check("truncate")
        del self._inode.data[size:]
        self._inode.modified_ms = self._disk.now_ms

    def sync(self) -> None:
        """See `File`."""
        if self._closed:
            raise ReadInterrupted(self._path)
        self._check("sync")
        self._inode.synced = bytes(self._inode.data)

    def drop_cached(self, offset: int) -> None:
        """See `File`; there is no cache."""

    def close(self) -> None:
        """See `File`."""
        self._closed = True

    def _check(self, operation: str) -> None:
        assert not self._closed, f"{operation} on closed {self._path}"
        assert self._generation == self._disk.generation, f"{operation} after the crash: {self._path}"
        self._disk.hook(operation, self._path)


class MemoryDisk:
    """See the module.

    Args:
        capacity: Bytes that all files together may hold; None for no bound.

    Attributes:
        hook: Called with (operation, path) before every operation that may fail; raises `OSError` to inject a fault.
        generation: Number of crashes so far; files opened before a crash are dead.
        now_ms: Wall clock for the times of files; it stands still unless it is set.
    """

    def __init__(self, capacity: int | None = None) -> None:
        self.capacity = capacity
        self.hook: Callable[[str, str], None] = lambda _operation, _path: None
        self.generation = 0
        self.now_ms = 0
        self._files: dict[str, _Inode] = {}
        self._directories: set[str] = {""}
        self._durable_files: dict[str, _Inode] = {}
        self._durable_directories: set[str] = {""}
        self._renamed: dict[str, str] = {}  # of files, since their directory was synced: target -> durable source

    # ------------------------------------------------------------------------------------------------ the port

    def open(self, path: str, *, create: bool = False) -> MemoryFile:
        """See `Disk`."""
        self.hook("open", path)
        inode = self._files.get(path)
        if inode is None:
            if not create or _parent(path) not in self._directories:
                raise FileNotFoundError(errno.ENOENT, path)
            inode = self._files[path] = _Inode(self.now_ms)
        return MemoryFile(self, path, inode)

    def exists(self, path: str) -> bool:
        """See `Disk`."""
        return path in self._files or path in self._directories

    def list(self, directory: str) -> list[str]:
        """See `Disk`."""
        if directory not in self._directories:
            raise FileNotFoundError(errno.ENOENT, directory)
        names = [*self._files, *self._directories]
        return sorted(name.rpartition("/")[2] for name in names if name and _parent(name) == directory)

    def makedirs(self, directory: str) -> None:
        """See `Disk`."""
        self.hook("makedirs", directory)
        while directory:
            self._directories.add(directory)
            directory = _parent(directory)

    def rename(self, source: str, target: str) -> None:
        """See `Disk`."""
        self.hook("rename", source)
        if source in self._files:
            self._files[target] = self._files.pop(source)
            self._renamed[target] = self._renamed.pop(source, source)
            return
        if source not in self._directories:
            raise FileNotFoundError(errno.ENOENT, source)
        for files in (self._files, self._durable_files):  # the rename of a directory is one entry of its parent
            for path in [path for path in files if path.startswith(source + "/")]:
                files[target + path[len(source) :]] = files.pop(path)
        self._directories.remove(source)
        self._directories.add(target)
        if source in self._durable_directories:
            self._durable_directories.remove(source)
            self._durable_directories.add(target)

    def remove(self, path: str) -> None:
        """See `Disk`."""
        self.hook("remove", path)
        if path in self._files:
            del self._files[path]
        elif path in self._directories:
            if self.list(path):
                raise OSError(errno.ENOTEMPTY, path)
            self._directories.remove(path)
        else:
            raise FileNotFoundError(errno.ENOENT, path)

    def sync_directory(self, directory: str) -> None:
        """See `Disk`."""
        self.hook("sync_directory", directory)
        self._renamed = {new: old for new, old in self._renamed.items() if _parent(new) != directory}
        for path in {*self._files, *self._durable_files}:
            if _parent(path) == directory:
                _copy_entry(self._files, self._durable_files, path)
        for path in self._directories | self._durable_directories:
            if path and _parent(path) == directory:
                if path in self._directories:
                    self._durable_directories.add(path)
                else:
                    self._durable_directories.discard(path)

    def free_bytes(self) -> int:
        """See `Disk`."""
        if self.capacity is None:
            return 2**62
        return self.capacity - sum(len(inode.data) for inode in self._files.values())

    # ------------------------------------------------------------------------------------------------ faults

    def crash(self, choose: Callable[[int], int] = keep_synced_only) -> None:
        """Power loss. `choose(n)` picks one of n possibilities, 0 being "as it was synced"."""
        self.generation += 1
        directories = set(self._durable_directories)
        for path in sorted(self._directories ^ self._durable_directories):
            if choose(2):
                directories ^= {path}
        files = {path: inode for path, inode in self._durable_files.items() if _parent(path) in directories}
        for path in sorted({*self._files, *self._durable_files}):
            differs = self._files.get(path) is not self._durable_files.get(path)
            if differs and _parent(path) in directories and choose(2):
                _copy_entry(self._files, files, path)
        for target, source in self._renamed.items():
            moved = self._durable_files.get(source)
            if moved is not None and self._files.get(target) is moved and _parent(target) in directories:
                # Neither both names nor none: where the new one is, the old one is not, and the other way round.
                if files.get(target) is moved and files.get(source) is moved:
                    del files[source]
                elif files.get(target) is not moved and files.get(source) is not moved:
                    files[source] = moved
        self._directories = {""}
        for path in directories:
            self.makedirs(path)
        survivors: dict[int, _Inode] = {}
        self._files = {}
        for path, inode in files.items():
            if id(inode) not in survivors:
                fresh = _Inode(inode.modified_ms)
                fresh.data = _torn(inode, choose)
                fresh.synced = bytes(fresh.data)
                survivors[id(inode)] = fresh
            self._files[path] = survivors[id(inode)]
        self._durable_files = dict(self._files)
        self._durable_directories = set(self._directories)
        self._renamed = {}

    def kill(self) -> None:
        """The process dies, the machine does not: everything written is still there, synced or not."""
        self.generation += 1

    def content(self, path: str) -> bytearray:
        """The bytes of a file, to be looked at or damaged by a test."""
        return self._files[path].data


def _copy_entry(source: dict[str, _Inode], target: dict[str, _Inode], path: str) -> None:
    if path in source:
        target[path] = source[path]
    else:
        target.pop(path, None)


def _torn(inode: _Inode, choose: Callable[[int], int]) -> bytearray:
    """What is left of a file: the synced bytes, or a mixture per sector with those that were not."""
    old, new = inode.synced, bytes(inode.data)
    if old == new:
        return bytearray(new)
    kind = choose(4)
    if kind == 0:
        return bytearray(old)
    if kind == 1:
        return bytearray(new)
    size = min(len(old), len(new)) + choose(abs(len(new) - len(old)) + 1)
    result = bytearray(size)
    for start in range(0, size, SECTOR_BYTES):
        stop = min(start + SECTOR_BYTES, size)
        pieces = [old[start:stop], new[start:stop]]
        if pieces[0] == pieces[1]:
            piece = pieces[0]
        elif kind == 2:
            piece = pieces[1]
        else:
            piece = pieces[choose(2)]
        result[start : start + len(piece)] = piece
    return result


def _parent(path: str) -> str:
    return path.rpartition("/")[0]
