"""Records what a watch of the cluster's objects shows: `MetadataRecorder` in a program, `record` in a task."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING, Literal

import msgspec

from kafkalite_cli.verify.metadata_history import Change, JsonObject
from kafkalite_core.model.errors import KafkaLiteError
from kafkalite_runtime.kube import BROKERS, CLUSTERS, TOPICS, Reflector

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import TracebackType
    from typing import BinaryIO, Self

    from kafkalite_runtime.kube import Kind, KubeClient

START_LIMIT_S = 30.0
KINDS = (TOPICS, BROKERS, CLUSTERS)


class RecordingError(KafkaLiteError):
    """The recording cannot begin or has failed; the text says why."""


class _Recording:
    """One file. Every line is given to the operating system at once: a killed recorder leaves whole changes."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._encode = msgspec.json.Encoder().encode
        self._known: dict[str, dict[str, JsonObject]] = {}  # kind -> uid -> object as last written
        self.changes = 0

    def listed(self, kind: Kind, objects: list[JsonObject]) -> None:
        """Everything that exists; all but the first list mean that changes may have been missed."""
        known = self._known.get(kind.kind)
        if known is None:
            self._known[kind.kind] = {}
            for obj in objects:
                self.changed(kind, "ADDED", obj)
            return
        self._write("GAP", None)
        there = {str(obj["metadata"]["uid"]): obj for obj in objects}
        for uid, gone in list(known.items()):
            if uid not in there:
                self.changed(kind, "DELETED", gone)
        for uid, obj in there.items():
            before = known.get(uid)
            if before is None or before["metadata"]["resourceVersion"] != obj["metadata"]["resourceVersion"]:
                self.changed(kind, "ADDED" if before is None else "MODIFIED", obj)

    def changed(self, kind: Kind, type_: Literal["ADDED", "MODIFIED", "DELETED"], obj: JsonObject) -> None:
        """One change."""
        obj["metadata"].pop("managedFields", None)
        uid = str(obj["metadata"]["uid"])
        if type_ == "DELETED":
            self._known[kind.kind].pop(uid, None)
        else:
            self._known[kind.kind][uid] = obj
        self._write(type_, obj)

    def _write(self, type_: Literal["ADDED", "MODIFIED", "DELETED", "GAP"], obj: JsonObject | None) -> None:
        self._file.write(self._encode(Change(at_us=time.monotonic_ns() // 1000, type=type_, object=obj)) + b"\n")
        self.changes += 1


async def record(
    client: KubeClient,
    namespace: str | None,
    path: Path,
    stop: asyncio.Event,
    started: Callable[[], None] | None = None,
) -> int:
    """Record topics, brokers and clusters until `stop` is set; the number of lines written.

    `started` is called when the file holds everything that exists. An API server that is away is waited for.
    """
    with path.open("wb", buffering=0) as file:
        recording = _Recording(file)
        reflectors = [_reflector(client, kind, namespace, recording) for kind in KINDS]
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(reflector.run()) for reflector in reflectors]
            tasks.append(group.create_task(_announce(reflectors, started)))
            await stop.wait()
            for task in tasks:
                task.cancel()
        return recording.changes


async def _announce(reflectors: list[Reflector], started: Callable[[], None] | None) -> None:
    for reflector in reflectors:
        await reflector.synced.wait()
    if started is not None:
        started()


def _reflector(client: KubeClient, kind: Kind, namespace: str | None, recording: _Recording) -> Reflector:
    return Reflector(
        client,
        kind,
        namespace,
        "",
        lambda objects: recording.listed(kind, objects),
        lambda type_, obj: recording.changed(kind, type_, obj),  # type: ignore[arg-type]
        time.monotonic,
    )


class MetadataRecorder:
    """Records from `__enter__` to `__exit__`, on a thread of its own.

        with MetadataRecorder(make_client, Path("metadata.jsonl")):
            …
        report = check_metadata(Path("metadata.jsonl"))

    Args:
        make_client: Makes the client, on that thread: `lambda: KubeClient(KubeConfig.from_file(path))`.
        path: The file to write.
        namespace: Of the objects; None: all.

    Raises:
        RecordingError: the first list does not come within `START_LIMIT_S`, or the recording failed.
    """

    def __init__(self, make_client: Callable[[], KubeClient], path: Path, namespace: str | None = None) -> None:
        self._make_client, self._path, self._namespace = make_client, path, namespace
        self._started = threading.Event()
        self._failure: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._thread = threading.Thread(target=self._run, name="metadata-recorder", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        if not self._started.wait(START_LIMIT_S) or self._failure is not None:
            self.stop()
            raise RecordingError(f"nothing could be listed within {START_LIMIT_S:.0f} s") from self._failure
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        if self._failure is not None and error is None:
            raise RecordingError(f"the recording failed: {self._failure!r}") from self._failure

    def stop(self) -> None:
        """End the recording; harmless when it has ended."""
        if self._loop is not None and self._stop is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(START_LIMIT_S)

    def _run(self) -> None:
        try:
            asyncio.run(self._record())
        except BaseException as error:  # the thread's root; `__exit__` tells
            self._failure = error
        finally:
            self._started.set()

    async def _record(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        client = self._make_client()
        try:
            await record(client, self._namespace, self._path, self._stop, self._started.set)
        finally:
            await client.close()
