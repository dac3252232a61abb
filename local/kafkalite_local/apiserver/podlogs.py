"""`pods/log`: the log files of local mode's processes."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any, Final

from aiohttp import web

from kafkalite_local.apiserver.errors import ApiError, bad_request, not_implemented
from kafkalite_local.pod_names import log_name

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

Json = dict[str, Any]

_UNKNOWN: Final = ("sinceSeconds", "sinceTime", "timestamps", "previous")
_POLL_S: Final = 0.25
_CHUNK: Final = 1 << 16


def log_file(folder: Path, pod: Json) -> Path:
    """The log file of a pod's process. Raises ApiError 404 when there is none."""
    file: Path = folder / f"{log_name(pod)}.log"
    if not file.is_file() or not file.resolve().is_relative_to(folder.resolve()):
        raise ApiError(404, "NotFound", f'the log file of pod "{pod["metadata"]["name"]}" was not found')
    return file


async def serve(request: web.Request, file: Path, query: Mapping[str, str]) -> web.StreamResponse:
    """Send the log: the last `tailLines`, at most `limitBytes`, and on with `follow`. Raises ApiError."""
    for name in _UNKNOWN:
        if query.get(name) not in (None, "", "false"):
            raise not_implemented("GET", f"pods/log?{name}")
    for name in ("tailLines", "limitBytes"):
        if query.get(name, "0") and not query.get(name, "0").isdigit():
            raise bad_request(f"PodLogOptions is invalid: {name}: Invalid value: {query[name]!r}")
    response = web.StreamResponse(headers={"Content-Type": "text/plain"})
    response.enable_chunked_encoding()
    start = await asyncio.to_thread(_tail_start, file, query.get("tailLines"))
    left = int(query["limitBytes"]) if query.get("limitBytes") else None
    await response.prepare(request)
    with file.open("rb") as stream:
        stream.seek(start)
        while left is None or left > 0:
            chunk = await asyncio.to_thread(stream.read, _CHUNK if left is None else min(_CHUNK, left))
            if chunk:
                left = None if left is None else left - len(chunk)
                await response.write(chunk)
            elif query.get("follow") == "true":
                if os.fstat(stream.fileno()).st_size < stream.tell():
                    stream.seek(0)  # it was rotated, which empties it
                    continue
                await asyncio.sleep(_POLL_S)
            else:
                break
    await response.write_eof()
    return response


def _tail_start(file: Path, lines: str | None) -> int:
    """Where the last `lines` lines begin."""
    if not lines:
        return 0
    wanted = int(lines)
    with file.open("rb") as stream:
        position = size = stream.seek(0, 2)
        if wanted == 0:
            return size
        tail = b""
        while position and tail.rstrip(b"\n").count(b"\n") < wanted:
            step = min(_CHUNK, position)
            position -= step
            stream.seek(position)
            tail = stream.read(step) + tail
    kept = tail.splitlines(keepends=True)[-wanted:]
    return size - sum(len(line) for line in kept)
