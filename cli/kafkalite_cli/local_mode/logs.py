"""`kafkalite logs`."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

POLL_S = 0.2
BLOCK = 64 * 1024
LINE_LIMIT = 300
HIDDEN = {"ts", "level", "msg", "component", "logger", "exception"}


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


def readable(lines: list[str]) -> list[str]:
    """JSON log lines as `time level message (error)`, long lines cut, repetitions counted."""
    shown: list[tuple[str, str, int]] = []
    for line in lines:
        time_text, text = _readable(line)
        if shown and shown[-1][1] == text:
            shown[-1] = (shown[-1][0], text, shown[-1][2] + 1)
        else:
            shown.append((time_text, text, 1))
    return [f"{when}{text}" + (f" ({count} times)" if count > 1 else "") for when, text, count in shown]


def _readable(line: str) -> tuple[str, str]:
    try:
        document = msgspec.json.decode(line)
        when, level, message = str(document["ts"])[11:23] + " ", document["level"], str(document["msg"])
    except (msgspec.DecodeError, RecursionError, KeyError, TypeError):
        return "", line[:LINE_LIMIT]
    details = [f"{key}={value}" for key, value in document.items() if key not in HIDDEN]
    if trace := str(document.get("exception") or "").strip():
        details.append(trace.splitlines()[-1])
    text = " ".join([f"{level:7} {message.splitlines()[0]}", *details])
    return when, text if len(text) <= LINE_LIMIT else text[: LINE_LIMIT - 1] + "…"


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
