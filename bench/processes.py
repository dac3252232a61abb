"""What processes used, from /proc."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")


def cpu_s(pids: list[int]) -> float:
    """User and system CPU seconds that the processes have used since they started."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            total += int(fields[11]) + int(fields[12])
    return total / TICKS


def memory_mb(pids: list[int]) -> float:
    """Proportional resident memory (shared pages counted once) in MB."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
            total += next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total / 1000


def cpu_percent(pids: list[int], seconds: float) -> float:
    """CPU use of the processes over a time in which nothing is asked of them, percent of one core."""
    before, began = cpu_s(pids), time.monotonic()
    time.sleep(seconds)
    return 100 * (cpu_s(pids) - before) / (time.monotonic() - began)
