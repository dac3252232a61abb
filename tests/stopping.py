"""SIGSTOP that has happened: `kill` returns before the threads of the process have stopped, on a busy machine long
before, and files that are copied meanwhile may be of two moments."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from kafkalite_runtime.home import stat_fields

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
    threads = [stat_fields(int(each.name)) for each in Path(f"/proc/{pid}/task").glob("*")]
    return [fields[0] for fields in threads if fields is not None]
