"""`pods/log`: the log files of local mode's processes."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any, Final

from aiohttp import web

from kafkalite_local.apiserver.errors import ApiError, bad_request, not_implemented

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

Json = dict[str, Any]

ANNOTATION: Final = "kafkalite.io/log-file"
"""Names the file inside the log folder, where it is not found by the pod's name."""

_UNKNOWN: Final = ("sinceSeconds", "sinceTime", "timestamps", "previous")
_POLL_S: Final = 0.25
_CHUNK: Final = 1 << 16


def log_file(folder: Path, pod: Json) -> Path:
    """The log file of a pod's process. Raises ApiError 404 when there is none."""
    name = pod["metadata"]["name"]
    candidates: list[str] = [(pod["metadata"].get("annotations") or {}).get(ANNOTATION, ""), f"{name}.log"]
    if found := re.search(r"-(broker-\d+)$", name):
        candidates.append(f"{found[1]}.log")
    if (pod["metadata"].get("labels") or {}).get("app.kubernetes.io/component") == "operator" or "operator" in name:
        candidates.append("operator.log")
    for candidate in candidates:
        file: Path = folder / candidate
        if candidate and file.is_file() and file.resolve().is_relative_to(folder.resolve()):
            return file
    raise ApiError(404, "NotFound", f'the log file of pod "{name}" was not found')


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
