"""One `syncfs` for the whole data volume, where that is safe."""

from __future__ import annotations

import ctypes
import os
import platform
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalite_broker.log.disk import LocalDisk

KERNEL_MIN: Final = (5, 17)
"""Older kernels may swallow a write-back error in syncfs."""

FILE_SYSTEMS: Final = frozenset({"ext4", "xfs"})


def kernel_version(release: str) -> tuple[int, int]:
    """(major, minor) of a kernel release such as `6.1.0-18-amd64`; (0, 0) when it is not understood."""
    match = re.match(r"(\d+)\.(\d+)", release)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def file_system_at(mounts: str, mount_point: str) -> str:
    """Type of the file system mounted at `mount_point`, from the text of `/proc/self/mounts`; the last line wins."""
    found = ""
    for line in mounts.splitlines():
        fields = line.split(" ")
        if len(fields) > 2 and fields[1].replace("\\040", " ") == mount_point:
            found = fields[2]
    return found


def volume_is_own(root: Path) -> bool:
    """Whether `root` is the top of an ext4 or xfs volume and the kernel reports errors of syncfs reliably."""
    root = root.resolve()
    if kernel_version(platform.release()) < KERNEL_MIN or root.stat().st_dev == root.parent.stat().st_dev:
        return False
    try:
        mounts = Path("/proc/self/mounts").read_text()
    except OSError:
        return False
    return file_system_at(mounts, str(root)) in FILE_SYSTEMS


class VolumeSync:
    """Syncs the file system of a data directory; made before the first write, so that no error is missed.

    Thread-safe.
    """

    def __init__(self, disk: LocalDisk) -> None:
        root = disk.root
        self._disk = disk
        self._descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._syncfs: Callable[[int], int] = ctypes.CDLL(None, use_errno=True).syncfs

    def run(self) -> None:
        """Blocks until everything written before the call is on disk; `OSError` when that failed."""
        number = self._disk.sync_begins()
        if self._syncfs(self._descriptor) != 0:
            code = ctypes.get_errno()
            raise OSError(code, f"syncfs: {os.strerror(code)}")
        self._disk.sync_ended(number)

    def close(self) -> None:
        """Closes the descriptor."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def volume_sync_for(disk: LocalDisk) -> VolumeSync | None:
    """A `VolumeSync` where it is safe, else None (then every file is synced by itself)."""
    return VolumeSync(disk) if volume_is_own(disk.root) else None
