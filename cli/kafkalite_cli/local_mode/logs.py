"""`kafkalite logs`."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

POLL_S = 0.2
BLOCK = 64 * 1024


def last_lines(path: Path, count: int) -> list[str]:
    """The last `count` lines; none when there is no such file."""
    try:
        with path.open("rb") as file:
            file.seek(0, os.SEEK_END)
            position, tail = file.tell(), b""
            while position > 0 and tail.count(b"\n") <= count:
                step = min(BLOCK, position)
                position -= step
                file.seek(position)
                tail = file.read(step) + tail
    except OSError:
        return []
    lines = tail.decode("utf-8", "replace").splitlines()
    return lines[-count:] if count else []


def follow(path: Path, start: int) -> Iterator[str]:
    """Text appended after offset `start`, for ever; goes on from the beginning when the file was rotated."""
    position = start
    while True:
        size = path.stat().st_size if path.exists() else 0
        position = min(position, size) if size >= position else 0
        if size > position:
            with path.open("rb") as file:
                file.seek(position)
                data = file.read()
            position += len(data)
            yield data.decode("utf-8", "replace")
        else:
            time.sleep(POLL_S)
