"""SIGSTOP that has happened: `kill` returns before the threads of the process have stopped, on a busy machine long
before, and files that are copied meanwhile may be of two moments."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

LIMIT_S = 30.0


def stop(pid: int) -> None:
    """Stop a process and wait until each of its threads stands still, or is gone.

    Raises ProcessLookupError when there is none, and TimeoutError after 30 s.
    """
    os.kill(pid, signal.SIGSTOP)
    deadline = time.monotonic() + LIMIT_S
    while runs := [state for state in _states(pid) if state not in "TtZX"]:
        if time.monotonic() >= deadline:
            raise TimeoutError(f"{len(runs)} threads of process {pid} have not stopped, their states are {runs}")
        time.sleep(0.002)  # nothing tells of it but /proc


def _states(pid: int) -> list[str]:
    """State letter of each thread (proc_pid_stat(5))."""
    found = []
    for stat in Path(f"/proc/{pid}/task").glob("*/stat"):
        try:
            found.append(stat.read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()[0])
        except OSError:
            continue  # that thread has ended
    return found
