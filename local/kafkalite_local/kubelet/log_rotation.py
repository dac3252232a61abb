"""Keeps log files bounded without the help of those who write them."""

import os
import shutil
from pathlib import Path

MAX_BYTES = 16 * 1024 * 1024
CHECK_S = 5.0


def rotate(folder: Path, max_bytes: int = MAX_BYTES) -> list[Path]:
    """Copy each oversized `*.log` to `*.log.1` and empty it.

    The writers hold the file open for appending, and must survive us, so the file stays and is emptied; what is
    written between copy and truncation is lost.
    """
    rotated = []
    for path in folder.glob("*.log"):
        try:
            if path.stat().st_size <= max_bytes:
                continue
            shutil.copyfile(path, path.with_name(path.name + ".1"))
            os.truncate(path, 0)
        except OSError:
            continue
        rotated.append(path)
    return rotated
