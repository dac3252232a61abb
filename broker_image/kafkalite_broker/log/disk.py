"""The real disk behind the log: descriptors, positional reads, fdatasync, the lock of a data directory."""

from __future__ import annotations

import errno
import fcntl
import os
import resource
import shutil
import threading
from collections import OrderedDict
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from kafkalite_broker.descriptors import files_max
from kafkalite_core.model.errors import KafkaLiteError
from kafkalite_core.storage.errors import ReadInterrupted

if TYPE_CHECKING:
    from types import TracebackType

LOCK_FILE: Final = ".lock"
EVICTED_AT_ONCE: Final = 64
"""Files that one open looks at to come back below the bound."""
_MODE: Final = 0o644
_FLAGS: Final = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC

_SHORT: Final = frozenset({errno.EMFILE, errno.ENFILE})

_write = os.write


class DirectoryLocked(KafkaLiteError):
    """Another process holds the data directory; two incarnations never share a disk (R8)."""


class LocalFile:
    """A file of `LocalDisk`; its descriptor may be closed for want of descriptors and is opened again on use."""

    __slots__ = ("_closed", "_disk", "_fd", "_full_path", "_pins", "_unsynced")

    def __init__(self, disk: LocalDisk, full_path: str, descriptor: int) -> None:
        self._disk = disk
        self._full_path = full_path
        self._fd = descriptor
        self._pins = 0
        self._closed = False
        self._unsynced = 0
        """0, or the number of the disk's syncs before the last write: the next one to begin covers it."""

    def append(self, data: bytes | bytearray | memoryview) -> int:
        """See `File`."""
        descriptor = self._pin()  # another thread may be short of descriptors just now
        try:
            return _write(descriptor, data)
        finally:
            self._unsynced = self._disk.syncs_begun + 1  # a sync that began before this may not have it
            self._unpin()

    def pread(self, size: int, offset: int) -> bytes:
        """See `File`."""
        descriptor = self._pin()
        try:
            data = os.pread(descriptor, size, offset)
            if len(data) == size or not data:
                return data
            parts = [data]
            while data and size > (have := sum(map(len, parts))):
                data = os.pread(descriptor, size - have, offset + have)
                parts.append(data)
            return b"".join(parts)
        finally:
            self._unpin()

    def size(self) -> int:
        """See `File`."""
        descriptor = self._pin()
        try:
            return os.fstat(descriptor).st_size
        finally:
            self._unpin()

    def modified_ms(self) -> int:
        """See `File`."""
        descriptor = self._pin()
        try:
            return os.fstat(descriptor).st_mtime_ns // 1_000_000
        finally:
            self._unpin()

    def truncate(self, size: int) -> None:
        """See `File`."""
        descriptor = self._pin()
        try:
            os.ftruncate(descriptor, size)
        finally:
            self._unsynced = self._disk.syncs_begun + 1
            self._unpin()

    def sync(self) -> None:
        """See `File`."""
        descriptor = self._pin()
        try:
            self._unsynced = 0
            os.fdatasync(descriptor)
        finally:
            self._unpin()

    def begin_sync(self) -> int:
        """The descriptor, for a sync that begins before `sync_begun` is called. Raises `ReadInterrupted`: closed."""
        descriptor = self._pin()
        self._unsynced = 0
        return descriptor

    def sync_begun(self) -> None:
        """The kernel has the file: it may be closed."""
        self._unpin()

    def drop_cached(self, offset: int) -> None:
        """See `File`."""
        descriptor = self._pin()
        try:
            os.posix_fadvise(descriptor, offset, 0, os.POSIX_FADV_DONTNEED)
        finally:
            self._unpin()

    def close(self) -> None:
        """See `File`. A descriptor in use on another thread is closed when that is done."""
        with self._disk.lock:
            if self._closed:
                return
            self._closed = True
            self._disk.released(self)
            if not self._pins:
                self._close_descriptor()

    def evict(self) -> bool:
        """Closes the descriptor unless it is in use or has bytes that were not synced; called with the lock held."""
        if self._pins or self._unsynced > self._disk.syncs_done:
            return False
        self._close_descriptor()
        return True

    def _close_descriptor(self) -> None:
        descriptor, self._fd = self._fd, -1
        if descriptor >= 0:
            os.close(descriptor)

    def _pin(self) -> int:
        with self._disk.lock:
            if self._closed:
                raise ReadInterrupted(f"{self._full_path} is closed")
            if self._fd < 0:
                self._fd = self._disk.descriptor_of(self._full_path, _FLAGS)
                self._disk.acquired(self)
            self._pins += 1
            return self._fd

    def _unpin(self) -> None:
        with self._disk.lock:
            self._pins -= 1
            if self._closed and not self._pins:
                self._close_descriptor()


class LocalDisk:
    """A data directory of the local file system; see `kafkalite_broker.log.directory.DataDirectory`.

    Args:
        root: The directory; it is made when absent.
        open_files_max: Descriptors kept open at most, files with unsynced bytes excepted; by default half of what the
            process may have open, the rest being for connections (`kafkalite_broker.descriptors`).

    Attributes:
        syncs_begun: Syncs of the whole volume that have begun.
        syncs_done: The last of them that has ended well: what was written before it began is on the disk.
    """

    def __init__(self, root: Path, *, open_files_max: int | None = None) -> None:
        root.mkdir(parents=True, exist_ok=True)
        self.root = root
        self.lock = threading.RLock()
        self._prefix = f"{root}/"
        self._open_files_max = open_files_max or files_max(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        self._open: OrderedDict[int, LocalFile] = OrderedDict()
        self.syncs_begun = 0
        self.syncs_done = 0

    def open(self, path: str, *, create: bool = False) -> LocalFile:
        """See `Disk`."""
        full_path = self._prefix + path
        descriptor = self.descriptor_of(full_path, _FLAGS | (os.O_CREAT if create else 0))
        file = LocalFile(self, full_path, descriptor)
        with self.lock:
            self.acquired(file)
        return file

    def take(self) -> LockedDirectory:
        """See `DataDirectory`."""
        return LockedDirectory(self.root)

    def exists(self, path: str) -> bool:
        """See `Disk`."""
        return Path(self._prefix + path).exists()

    def is_directory(self, name: str) -> bool:
        """See `DataDirectory`."""
        return Path(self._prefix + name).is_dir()

    def list(self, directory: str) -> list[str]:
        """See `Disk`."""
        return sorted(entry.name for entry in Path(self._prefix + directory).iterdir())

    def makedirs(self, directory: str) -> None:
        """See `Disk`."""
        Path(self._prefix + directory).mkdir(parents=True, exist_ok=True)

    def rename(self, source: str, target: str) -> None:
        """See `Disk`."""
        Path(self._prefix + source).rename(self._prefix + target)

    def remove(self, path: str) -> None:
        """See `Disk`."""
        full_path = Path(self._prefix + path)
        if full_path.is_dir():
            full_path.rmdir()
        else:
            full_path.unlink()

    def remove_tree(self, directory: str) -> None:
        """See `DataDirectory`."""
        shutil.rmtree(self._prefix + directory)

    def tree_bytes(self, directory: str) -> int:
        """See `DataDirectory`."""
        total_bytes = 0
        with os.scandir(self._prefix + directory) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):  # a thread removes files that are no part of a log any more
                    total_bytes += entry.stat().st_size if entry.is_file() else 0
        return total_bytes

    def sync_directory(self, directory: str) -> None:
        """See `Disk`."""
        descriptor = self.descriptor_of(self._prefix + directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def free_bytes(self) -> int:
        """See `Disk`: what an unprivileged process may still write."""
        status = os.statvfs(self.root)
        return status.f_bavail * status.f_frsize

    # ------------------------------------------------------------------------------------------------ descriptors

    @property
    def open_files(self) -> int:
        """Descriptors open now."""
        return len(self._open)

    def acquired(self, file: LocalFile) -> None:
        """A descriptor was opened: the oldest ones beyond the bound are closed. Called with the lock held."""
        self._open[id(file)] = file
        if len(self._open) > self._open_files_max:
            self._evict(len(self._open) - self._open_files_max, EVICTED_AT_ONCE, keep=file)

    def _evict(self, wanted: int, looked_at_max: int, *, keep: LocalFile | None = None) -> int:
        """Closes files, the oldest first; those that cannot be go to the end. Returns how many were closed."""
        closed = 0
        for _ in range(min(looked_at_max, len(self._open))):
            key, candidate = next(iter(self._open.items()))
            if candidate is not keep and candidate.evict():
                del self._open[key]
                closed += 1
                if closed == wanted:
                    break
            else:
                self._open.move_to_end(key)
        return closed

    def descriptor_of(self, full_path: str, flags: int) -> int:
        """Opens. Where there are no descriptors left, files that are not in use give up theirs: that is no fault of
        the disk.
        """  # fmt: skip
        try:
            return os.open(full_path, flags, _MODE)
        except OSError as error:
            if error.errno not in _SHORT:
                raise
            with self.lock:
                if not self._evict(EVICTED_AT_ONCE, len(self._open)):
                    raise
        return os.open(full_path, flags, _MODE)

    def sync_begins(self) -> int:
        """A sync of the whole volume begins; its number, for `sync_ended`."""
        with self.lock:
            self.syncs_begun += 1
            return self.syncs_begun

    def sync_ended(self, number: int) -> None:
        """It ended without error."""
        with self.lock:
            self.syncs_done = max(self.syncs_done, number)

    def released(self, file: LocalFile) -> None:
        """A file was closed for good. Called with the lock held."""
        self._open.pop(id(file), None)


class LockedDirectory:
    """A data directory held by an exclusive `flock` as long as this object is open (R8).

    Raises `DirectoryLocked` when another process holds it.
    """

    def __init__(self, root: Path) -> None:
        root.mkdir(parents=True, exist_ok=True)
        self.root = root
        self._descriptor = os.open(root / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _MODE)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._descriptor)
            self._descriptor = -1
            raise DirectoryLocked(f"{root} is in use by another process; stop it first") from error

    def release(self) -> None:
        """Lets the directory go."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.release()
