"""The port through which a log reaches its disk, and what every use of it shares.

Paths are relative to the data directory and use `/`. Implementations (the broker's real disk, the simulator, the
tests' `MemoryDisk`) raise plain `OSError`; what an error means is decided here: ENOSPC and EDQUOT become
`StorageError` after the partial write was cut off, everything else is a `DiskFailure` of which the process dies (R12).
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Protocol

from kafkalite_core.model.errors import KafkaLiteError, StorageError
from kafkalite_core.storage.errors import DiskFailure

if TYPE_CHECKING:
    from types import TracebackType

Buffer = bytes | bytearray | memoryview

FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


class File(Protocol):
    """One file, open for appending and for positional reads.

    `sync` and `pread` may be called from any thread, everything else from one at a time: the log's thread, or the
    cleaner's for a file that is not yet part of the log.
    """

    def append(self, data: Buffer) -> int:
        """Writes at the end of the file; returns how many bytes were written, which may be fewer than given."""
        ...

    def pread(self, size: int, offset: int) -> bytes:
        """Up to `size` bytes from `offset`; fewer at the end of the file. `ReadInterrupted` when it was closed."""
        ...

    def size(self) -> int:
        """Length in bytes."""
        ...

    def modified_ms(self) -> int:
        """Wall clock, in ms, when bytes were last written or cut off."""
        ...

    def truncate(self, size: int) -> None:
        """Cuts the file to `size` bytes."""
        ...

    def sync(self) -> None:
        """Data and length reach the disk (fdatasync). Its directory entry is `Disk.sync_directory`'s business."""
        ...

    def drop_cached(self, offset: int) -> None:
        """Forgets clean cached pages from `offset` on, so that the next read comes from the disk. Best effort."""
        ...

    def close(self) -> None:
        """Closes the file; a second call does nothing."""
        ...


class Disk(Protocol):
    """One data directory."""

    def open(self, path: str, *, create: bool = False) -> File:
        """Opens a file; with `create` an absent one is made, without it that is `FileNotFoundError`."""
        ...

    def exists(self, path: str) -> bool:
        """Whether there is a file or directory of that name."""
        ...

    def list(self, directory: str) -> list[str]:
        """Names in a directory, sorted; the empty string names the data directory itself."""
        ...

    def makedirs(self, directory: str) -> None:
        """Makes a directory and its parents; an existing one is no error."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Renames a file (replacing the target) or a directory."""
        ...

    def remove(self, path: str) -> None:
        """Removes a file or an empty directory."""
        ...

    def sync_directory(self, directory: str) -> None:
        """The entries of a directory reach the disk."""
        ...

    def free_bytes(self) -> int:
        """Bytes that may still be written."""
        ...


def translate(error: OSError, action: str) -> KafkaLiteError:
    """What an `OSError` of a write means: `StorageError` when the disk is full, else `DiskFailure` (R12)."""
    if error.errno in FULL:
        return StorageError(f"{action}: no space left ({error})")
    return DiskFailure(f"{action}: {error}")


class disk_errors:  # noqa: N801 - used as a statement
    """Context manager: an `OSError` of the block is raised as `translate` says."""

    __slots__ = ("_action",)

    def __init__(self, action: str) -> None:
        self._action = action

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if isinstance(error, OSError):
            raise translate(error, self._action) from error


def append_all(file: File, data: Buffer, size: int, path: str, *, is_cache: bool = False) -> None:
    """Appends all of `data` to a file of `size` bytes, or nothing.

    Raises `StorageError` when the disk is full (the file has its old length again), `DiskFailure` otherwise, also where
    there is no room to cut it: what came behind half a batch would be lost with it at the next start (R12). Half a file
    that `is_cache` is discarded by whoever asked, and stays a `StorageError`.
    """
    try:
        _append_all(file, data)
    except OSError as error:
        cause = translate(error, f"append to {path}")
        if isinstance(cause, StorageError):
            try:
                file.truncate(size)
            except OSError as failed:
                if not is_cache or not isinstance(translate(failed, ""), StorageError):
                    raise DiskFailure(f"cut partial write off {path}: {failed}") from error
        raise cause from error


def _append_all(file: File, data: Buffer) -> None:
    written = file.append(data)
    if written == len(data):
        return
    rest = memoryview(data)[written:]
    while rest:
        written = file.append(rest)
        if written <= 0:
            raise OSError(errno.EIO, "write returned 0 bytes")
        rest = rest[written:]


def sync_file(file: File, path: str) -> None:
    """Syncs a file; every error is a `DiskFailure`, also ENOSPC: what was written before is in doubt (R12)."""
    try:
        file.sync()
    except OSError as error:
        raise DiskFailure(f"sync {path}: {error}") from error


def sync_directory(disk: Disk, directory: str) -> None:
    """Syncs the entries of a directory; every error is a `DiskFailure` (R12)."""
    try:
        disk.sync_directory(directory)
    except OSError as error:
        raise DiskFailure(f"sync directory {directory or '.'}: {error}") from error


def read_file(disk: Disk, path: str) -> bytes | None:
    """The whole content of a small file, or None when there is none."""
    with disk_errors(f"read {path}"):
        try:
            file = disk.open(path)
        except FileNotFoundError:
            return None
        try:
            return file.pread(file.size(), 0)
        finally:
            file.close()


def replace_file(disk: Disk, path: str, data: Buffer, *, durable: bool = True) -> None:
    """Writes a small file atomically: temporary file, fsync, rename, fsync of the directory.

    Without `durable` both fsyncs are left to the caller (who calls `syncfs`) or not needed. Raises `StorageError`
    (the old file is intact) or `DiskFailure`.
    """
    temporary = path + ".tmp"
    with disk_errors(f"replace {path}"):
        file = disk.open(temporary, create=True)
        try:
            file.truncate(0)
            _append_all(file, data)  # what a full disk cuts short is cut to nothing by the next attempt
            if durable:
                sync_file(file, temporary)
        finally:
            file.close()
        disk.rename(temporary, path)
    if durable:
        sync_directory(disk, parent(path))


def remove_file(disk: Disk, path: str) -> None:
    """Removes a file; an absent one is no error."""
    with disk_errors(f"remove {path}"):
        try:
            disk.remove(path)
        except FileNotFoundError:
            return


def parent(path: str) -> str:
    """The directory part of a path; empty for the data directory itself."""
    return path.rpartition("/")[0]


def join(directory: str, name: str) -> str:
    """A name inside a directory."""
    return f"{directory}/{name}" if directory else name
