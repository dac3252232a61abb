"""Puts away whatever a scenario left on the machine: processes, mounts, loop devices, network namespaces.

Everything is found by the scenario's folder, so that this works for a run that was itself killed as well.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from kafkalite_runtime.home import start_time_of

OWNER = "owner"
BROKEN_MARK = "broken"  # in the folder of a run that shows a broken promise
COMMAND_LIMIT_S = 120
STRAGGLER_LIMIT_S = 10.0


def claim(folder: Path) -> None:
    """Note that this process runs a scenario in the folder."""
    (folder / OWNER).write_text(f"{os.getpid()} {start_time_of(os.getpid())}", encoding="ascii")


def is_orphan(folder: Path) -> bool:
    """Whether a scenario was run in the folder by a process that is gone, and nobody has put things away."""
    try:
        pid, start_time = (folder / OWNER).read_text(encoding="ascii").split()
    except (OSError, ValueError):
        return False
    return str(start_time_of(int(pid))) != start_time


def namespace_tag(folder: Path) -> str:
    """The beginning of the names of the folder's network namespaces."""
    return f"klc-{hashlib.sha256(str(folder.absolute()).encode()).hexdigest()[:8]}"


def clean(folder: Path) -> None:
    """Stop the folder's processes, thaw, unmount, detach, delete. Harmless when there is nothing."""
    _stop_processes(folder)
    for mount in _mounts(folder, "ext4"):
        _run("fsfreeze", "-u", mount)
    _unmount(_mounts(folder, "ext4"))
    for device in _loops(folder):
        _run("losetup", "--detach", device)
    _unmount(_mounts(folder))
    for name in _namespaces(namespace_tag(folder)):
        _run("ip", "netns", "del", name)
    (folder / OWNER).unlink(missing_ok=True)


def leftovers(folder: Path) -> list[str]:
    """Mounts, loop devices, namespaces and processes of a folder that are there now."""
    found = [*_mounts(folder), *_loops(folder), *_namespaces(namespace_tag(folder))]
    return [*found, *(f"process {pid}" for pid in processes(folder))]


def sweep(parent: Path) -> list[str]:
    """Clean after every run below `parent` that was killed; names of their folders."""
    orphans = [folder for folder in sorted(parent.glob("*")) if folder.is_dir() and is_orphan(folder)]
    for folder in orphans:
        clean(folder)
    return [folder.name for folder in orphans]


def prune(parent: Path, keep: int, bytes_max: int) -> list[str]:
    """Remove folders of finished runs below `parent` until so many, and so many bytes, are left; names of what went.

    The oldest goes first. A folder that shows a broken promise never goes for the number, and for the bytes only when
    nothing else is left, the youngest first: what was found first is what one looks into.
    """
    finished = [folder for folder in parent.glob("*") if folder.is_dir() and not (folder / OWNER).exists()]
    finished.sort(key=lambda each: each.stat().st_mtime)
    broken = [folder for folder in finished if (folder / BROKEN_MARK).exists()]
    others = [folder for folder in finished if folder not in broken]
    sizes = {folder: _size(folder) for folder in finished}
    removed: list[str] = []
    for folder in [*others, *reversed(broken)]:
        crowded = folder in others and len(finished) - len(removed) > keep
        if crowded or sum(sizes.values()) > bytes_max:
            shutil.rmtree(folder, ignore_errors=True)
            del sizes[folder]
            removed.append(folder.name)
    return removed


def _size(folder: Path) -> int:
    """Bytes on the disk, holes not counted."""
    total = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):
            total += path.lstat().st_blocks * 512
    return total


def _stop_processes(folder: Path) -> None:
    home = folder / "home"
    if not (home / "run").is_dir():
        return
    for mount in _mounts(folder, "ext4"):
        _run("fsfreeze", "-u", mount)  # who waits for a frozen disk cannot even be killed
    environment = dict(os.environ, KAFKALITE_HOME=str(home))
    environment.pop("KAFKALITE_PORT", None)
    with contextlib.suppress(subprocess.TimeoutExpired):
        subprocess.run(
            [sys.executable, "-m", "kafkalite_cli.main", "down", "--timeout", "20"],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=COMMAND_LIMIT_S,
            check=False,
        )
    limit = time.monotonic() + STRAGGLER_LIMIT_S
    while (stragglers := processes(folder)) and time.monotonic() < limit:
        for pid in stragglers:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)


def processes(folder: Path) -> list[int]:
    """Programs of KafkaLite whose environment names the folder's home: control plane, operator, brokers."""
    mark = f"={(folder / 'home').absolute()}".encode()
    found = []
    for proc in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if mark in (proc / "environ").read_bytes() and b"kafkalite" in (proc / "cmdline").read_bytes():
                found.append(int(proc.name))
    return sorted(found)


def _mounts(folder: Path, kind: str = "") -> list[str]:
    """Mount points below the folder (of one kind of file system), in the order in which they were mounted."""
    prefix = f"{folder.absolute()}/"
    found = []
    for line in Path("/proc/self/mounts").read_text(encoding="utf-8", errors="replace").splitlines():
        point, type_ = (word.replace("\\040", " ") for word in line.split()[1:3])
        if point.startswith(prefix) and kind in {"", type_}:
            found.append(point)
    return found


def _loops(folder: Path) -> list[str]:
    """Loop devices of the folder's disks, whose files can be seen as long as what they lie on is mounted."""
    found = []
    for image in folder.glob("disks/*/image"):
        found += _output("losetup", "--noheadings", "--output", "NAME", "--associated", str(image)).split()
    return found


def _unmount(points: list[str]) -> None:
    for point in reversed(points):
        if _run("umount", point):
            _run("umount", "--lazy", point)


def _namespaces(tag: str) -> list[str]:
    folder = Path("/run/netns")
    return sorted(path.name for path in folder.glob(f"{tag}-*")) if folder.is_dir() else []


def _run(*command: str) -> int:
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=False)
    except (FileNotFoundError, subprocess.TimeoutExpired):
        return 1
    return done.returncode


def _output(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except (FileNotFoundError, subprocess.TimeoutExpired):
        return ""
    return done.stdout
