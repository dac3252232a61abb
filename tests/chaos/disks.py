"""Every broker's data on a disk of its own: an ext4 in a sparse file on a tmpfs, so that everything can go wrong.

A full tmpfs is a device that takes no more writes (a real EIO from fsync), a full ext4 is ENOSPC, ext4's shutdown ioctl
is a power failure, fsfreeze is a disk that hangs, and a throttled loop device is a slow one.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import shutil
import struct
import subprocess
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.chaos.cluster import BROKERS, ChaosError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.chaos.cluster import Cluster

EXT4_IOC_SHUTDOWN = 0x8004587D
NO_LOG_FLUSH = 2
SIZE_MIB = 384
BLKIO = Path("/sys/fs/cgroup/blkio")
UMOUNT_LIMIT_S = 10.0
BALLAST = ".ballast"
CANARY = ".canary"
UNFLUSHED = b"not flushed" * 400
MIB = 1 << 20


def command(*words: str) -> str:
    """Run a program of the system; its output. Raises ChaosError with what it said."""
    try:
        done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False)
    except FileNotFoundError:
        raise ChaosError(f"{words[0]} is missing") from None
    if done.returncode != 0:
        raise ChaosError(f"{' '.join(words)}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout.strip()


@dataclass(slots=True)
class Disk:
    """The disk of one broker, mounted where the broker keeps its data."""

    folder: Path
    mount: Path
    device: str = ""

    @property
    def image(self) -> Path:
        """The sparse file behind it."""
        return self.folder / "image"

    def make(self) -> None:
        """Make and mount it."""
        self.folder.mkdir(parents=True)
        self.mount.mkdir(parents=True, exist_ok=True)
        command("mount", "-t", "tmpfs", "-o", f"size={SIZE_MIB + 16}m", "tmpfs", str(self.folder))
        with self.image.open("wb") as file:
            file.truncate(SIZE_MIB * MIB)
        command("mkfs.ext4", "-q", "-m", "0", "-E", "lazy_itable_init=0,lazy_journal_init=0", str(self.image))
        self.device = command("losetup", "--find", "--show", str(self.image))
        self.attach()
        (self.mount / "lost+found").rmdir()

    def attach(self) -> None:
        """Mount; what the journal holds is replayed."""
        command("mount", "-t", "ext4", self.device, str(self.mount))

    def detach(self) -> None:
        """Unmount; the process that used it must have ended. Raises ChaosError when it is busy for too long."""
        limit = time.monotonic() + UMOUNT_LIMIT_S
        while True:
            try:
                command("umount", str(self.mount))
            except ChaosError:
                if time.monotonic() > limit:
                    raise
                time.sleep(0.1)
            else:
                return

    def repair(self) -> None:
        """What an administrator does after errors: unmount, check, mount."""
        self.detach()
        done = subprocess.run(["e2fsck", "-fy", self.device], capture_output=True, text=True, timeout=120, check=False)
        if done.returncode not in {0, 1, 2}:  # 1 and 2: errors were corrected
            raise ChaosError(f"e2fsck {self.device}: {done.stdout[-500:]}")
        self.attach()

    def fail_power(self) -> None:
        """From now on nothing reaches the disk, and what was not flushed is lost.

        The witness is written in the last moment, since a broker that syncs the volume takes it along: into a mapping,
        since a call of the system could leave the interpreter to another thread for milliseconds before it goes on.
        """
        descriptor = os.open(self.mount, os.O_RDONLY)
        canary = os.open(self.mount / CANARY, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        how = struct.pack("I", NO_LOG_FLUSH)
        try:
            os.ftruncate(canary, len(UNFLUSHED))
            with mmap.mmap(canary, len(UNFLUSHED)) as mapping:
                mapping[:] = UNFLUSHED
                fcntl.ioctl(descriptor, EXT4_IOC_SHUTDOWN, how)
        finally:
            os.close(canary)
            os.close(descriptor)

    def lost(self) -> bool:
        """After a power failure and `attach`: whether what was written at the last moment is gone."""
        canary = self.mount / CANARY
        lost = not canary.exists() or canary.read_bytes() != UNFLUSHED
        canary.unlink(missing_ok=True)
        return lost

    @contextmanager
    def full(self) -> Iterator[None]:
        """No space left on the file system for the body."""
        path = self.mount / BALLAST
        try:
            _fill(path)
            yield
        finally:
            with contextlib.suppress(OSError):
                path.unlink()

    @contextmanager
    def failing(self) -> Iterator[None]:
        """The device takes no more new blocks for the body: writes that were accepted fail when they are flushed."""
        path = self.folder / BALLAST
        try:
            _fill(path)
            yield
        finally:
            path.unlink(missing_ok=True)

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Writes hang for the body."""
        command("fsfreeze", "-f", str(self.mount))
        try:
            yield
        finally:
            command("fsfreeze", "-u", str(self.mount))

    @contextmanager
    def slow(self, bytes_per_s: int, writes_per_s: int) -> Iterator[None]:
        """The device is throttled for the body."""
        number = Path(self.device).stat().st_rdev
        name = f"{os.major(number)}:{os.minor(number)}"
        limits = {
            BLKIO / "blkio.throttle.write_bps_device": bytes_per_s,
            BLKIO / "blkio.throttle.write_iops_device": writes_per_s,
        }
        if not all(path.exists() for path in limits):
            raise ChaosError("the kernel offers no throttling of block devices (cgroup v1, blkio)")
        try:
            for path, limit in limits.items():
                path.write_text(f"{name} {limit}\n")
            yield
        finally:
            for path in limits:
                path.write_text(f"{name} 0\n")

    def flush_s(self) -> float:
        """How long it takes now to write and flush a few blocks."""
        path = self.mount / ".probe"
        began = time.monotonic()
        with path.open("wb") as file:
            file.write(os.urandom(64 << 10))
            file.flush()
            os.fdatasync(file.fileno())
        path.unlink()
        return time.monotonic() - began


def _fill(path: Path) -> None:
    """Take all the space that there is."""
    block = bytes(MIB)
    with path.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(block)
    with path.open("ab", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(block[:4096])


class Disks:
    """One per broker."""

    def __init__(self, folder: Path, cluster: Cluster) -> None:
        if os.geteuid() != 0:
            raise ChaosError("mounting needs root")
        self._disks = [Disk(folder / "disks" / str(n), cluster.data_directory(n)) for n in range(BROKERS)]

    def __getitem__(self, broker: int) -> Disk:
        return self._disks[broker]

    def make(self) -> None:
        """Make and mount them all."""
        for disk in self._disks:
            disk.make()


def wipe(directory: Path) -> int:
    """Remove everything in a data directory; how many entries there were."""
    entries = list(directory.iterdir())
    for entry in entries:
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()
    return len(entries)


def tear(directory: Path, topic: str, at_most: int) -> int:
    """Cut up to so many bytes off the end of the last segment of each of the topic's logs; how many were cut in all."""
    cut = 0
    for log in sorted(directory.glob(f"**/{topic}-*")):
        segments = sorted(log.glob("*.log"))
        if segments and (size := segments[-1].stat().st_size):
            less = min(at_most, size)
            os.truncate(segments[-1], size - less)
            cut += less
    return cut
