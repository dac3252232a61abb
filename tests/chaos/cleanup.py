"""Puts away whatever a scenario left on the machine: processes, mounts, loop devices, network namespaces.

Everything is found by the scenario's folder, so that this works for a run that was itself killed as well.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from kafkalite_runtime.home import start_time_of

OWNER = "owner"
COMMAND_LIMIT_S = 120


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
    return f"klc-{folder.name[-12:]}"


def clean(folder: Path) -> None:
    """Stop the folder's processes, thaw, unmount, detach, delete. Harmless when there is nothing."""
    _stop_processes(folder)
    for mount in reversed(_mounts(folder)):
        _run("fsfreeze", "-u", mount)
        if _run("umount", mount):
            _run("umount", "-l", mount)
    for device in _loops(folder):
        _run("losetup", "-d", device)
    for name in _namespaces(namespace_tag(folder)):
        _run("ip", "netns", "del", name)
    (folder / OWNER).unlink(missing_ok=True)


def sweep(parent: Path) -> list[str]:
    """Clean after every run below `parent` that was killed; names of their folders."""
    orphans = [folder for folder in sorted(parent.glob("*")) if folder.is_dir() and is_orphan(folder)]
    for folder in orphans:
        clean(folder)
    return [folder.name for folder in orphans]


def _stop_processes(folder: Path) -> None:
    home = folder / "home"
    if not (home / "run").is_dir():
        return
    for mount in _mounts(folder):
        _run("fsfreeze", "-u", mount)  # who waits for a frozen disk cannot even be killed
    environment = dict(os.environ, KAFKALITE_HOME=str(home))
    environment.pop("KAFKALITE_PORT", None)
    subprocess.run(
        [sys.executable, "-m", "kafkalite_cli.main", "down", "--timeout", "20"],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=COMMAND_LIMIT_S,
        check=False,
    )


def _mounts(folder: Path) -> list[str]:
    """Mount points below the folder, in the order in which they were mounted."""
    prefix = f"{folder.absolute()}/"
    lines = Path("/proc/self/mounts").read_text(encoding="utf-8", errors="replace").splitlines()
    points = [line.split()[1].replace("\\040", " ") for line in lines]
    return [point for point in points if point.startswith(prefix)]


def _loops(folder: Path) -> list[str]:
    """Loop devices whose file lies below the folder."""
    prefix = f"{folder.absolute()}/"
    found = []
    for backing in Path("/sys/block").glob("loop*/loop/backing_file"):
        try:
            if backing.read_text(encoding="utf-8", errors="replace").startswith(prefix):
                found.append(f"/dev/{backing.parts[3]}")
        except OSError:
            continue
    return found


def _namespaces(tag: str) -> list[str]:
    folder = Path("/run/netns")
    return sorted(path.name for path in folder.glob(f"{tag}-*")) if folder.is_dir() else []


def _run(*command: str) -> int:
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=False)
    except (FileNotFoundError, subprocess.TimeoutExpired):
        return 1
    return done.returncode
