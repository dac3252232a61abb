"""What processes used, from /proc."""

from __future__ import annotations

import contextlib
import os
import platform
import subprocess
import sys
import time
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")
DEBIANS_PYTHON = Path("/usr/bin/python3")


def python_of_images(debians: Path = DEBIANS_PYTHON) -> tuple[str, str, str]:
    """Path, PYTHONPATH and version of the Python that the tests' images have: Debian's, with what this one imports.

    Where there is none of the same minor version: this one. A Python that was compiled without optimization, as pyenv
    does, takes a third more time than those that people run.
    """
    ours = ".".join(platform.python_version_tuple()[:2])
    asked = [str(debians), "-c", "import platform; print(platform.python_version())"]
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        version = subprocess.run(asked, capture_output=True, text=True, check=True, timeout=10).stdout.strip()
        if version.startswith(f"{ours}."):
            imported = [path for path in sys.path if path and not path.startswith(sys.base_prefix)]
            return str(debians), os.pathsep.join(imported), f"{version} (Debian's, as in the images of the tests)"
    return sys.executable, os.environ.get("PYTHONPATH", ""), platform.python_version()


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
