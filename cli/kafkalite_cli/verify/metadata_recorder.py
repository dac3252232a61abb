"""Records what a watch of the cluster's objects shows: `MetadataRecorder` in a program, `record` in a task."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Literal, cast

import msgspec

from kafkalite_cli.manifests import plain_words
from kafkalite_cli.verify.metadata_history import Change, JsonObject
from kafkalite_core.model.errors import KafkaLiteError
from kafkalite_runtime.kube import BROKERS, CLUSTERS, TOPICS, KubeForbidden, KubeUnavailable, Reflector

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from io import FileIO
    from pathlib import Path
    from types import TracebackType
    from typing import Self

    from kafkalite_runtime.kube import Kind, KubeClient, KubeList, WatchEvent

START_LIMIT_S = 30.0
REFUSED_MAX_S = 30.0
"""How long an API server that starts may say 403 to what it permitted before."""
KINDS = (TOPICS, BROKERS, CLUSTERS)


class RecordingError(KafkaLiteError):
    """The recording cannot begin or has failed; the text says why."""


class _Recording:
    """One file. Every line is given to the operating system at once: a killed recorder leaves whole changes.

    Its methods raise OSError, with the name of the file.
    """

    def __init__(self, file: FileIO) -> None:
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
        line = self._encode(Change(at_us=time.monotonic_ns() // 1000, type=type_, object=obj)) + b"\n"
        try:
            while line:  # a disk that is nearly full takes a part
                line = line[self._file.write(line) :]
        except OSError as error:
            raise OSError(error.errno, error.strerror, self._file.name) from error
        self.changes += 1


class _Permitted:
    """What the reflectors ask: they try again whatever the answer is, and what is forbidden stays so.

    Not at once where it was permitted before: an API server that has just started knows no Roles yet, and answers 403.
    Nobody lists without watching, so whoever may list and not watch is told after that time, too.
    """

    def __init__(self, client: KubeClient, clock: Callable[[], float]) -> None:
        self._client = client
        self._clock = clock
        self._listed: set[str] = set()
        self._refused_at: dict[tuple[str, str], float] = {}  # verb and kind -> the first refusal since it was permitted
        self.away = ""
        """Why the last list had no answer, for people; empty when it had one."""

    async def list(self, kind: Kind, namespace: str | None, *, label_selector: str) -> KubeList:
        """As the client's. Raises RecordingError where the account may not."""
        try:
            listed = await self._client.list(kind, namespace, label_selector=label_selector)
        except KubeForbidden as error:
            self._refused("list", kind, error)
            raise
        except KubeUnavailable as error:
            self.away = f"{plain_words(error)}; see that it runs and can be reached from here"
            raise
        self.away = ""
        self._listed.add(kind.plural)
        self._permitted("list", kind)
        return listed

    async def watch(self, kind: Kind, namespace: str | None, **options: Any) -> AsyncIterator[WatchEvent]:
        """As the client's. Raises RecordingError where the account may not."""
        try:
            async with aclosing(self._client.watch(kind, namespace, **options)) as events:
                async for event in events:
                    self._permitted("watch", kind)
                    yield event
        except KubeForbidden as error:
            self._refused("watch", kind, error)
            raise
        self._permitted("watch", kind)

    def _permitted(self, verb: str, kind: Kind) -> None:
        self._refused_at.pop((verb, kind.plural), None)

    def _refused(self, verb: str, kind: Kind, error: KubeForbidden) -> None:
        """A token that has run out is answered once with 401: the next request brings a new one."""
        now_s, key = self._clock(), (verb, kind.plural)
        first = key not in self._refused_at
        since_s = now_s - self._refused_at.setdefault(key, now_s)
        if (error.status == 401 and first) or (kind.plural in self._listed and since_s < REFUSED_MAX_S):
            return
        raise RecordingError(f"cannot {verb} {kind.plural}: {plain_words(error)}") from error


async def record(
    client: KubeClient,
    namespace: str | None,
    path: Path,
    stop: asyncio.Event,
    started: Callable[[], None] | None = None,
) -> int:
    """Record topics, brokers and clusters until `stop` is set; the number of lines written.

    `started` is called when the file holds everything that exists. An API server that is away is waited for.

    Raises:
        RecordingError: the account may not list or watch a kind, or one was never listed: that is no recording.
        ConfigError: a login plugin fails.
        OSError: the file cannot be written.
    """
    permitted = _Permitted(client, time.monotonic)
    with path.open("wb", buffering=0) as file:
        recording = _Recording(file)
        reflectors = {kind: _reflector(cast("KubeClient", permitted), kind, namespace, recording) for kind in KINDS}
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(reflector.run()) for reflector in reflectors.values()]
                tasks.append(group.create_task(_announce(list(reflectors.values()), started)))
                await stop.wait()
                for task in tasks:
                    task.cancel()
        except ExceptionGroup as failures:
            raise _first_of(failures) from None
    missing = {
        kind.plural: reflector.last_error for kind, reflector in reflectors.items() if not reflector.synced.is_set()
    }
    if missing:
        why = permitted.away or next((error for error in missing.values() if error), "no answer yet")
        raise RecordingError(f"no list of {', '.join(missing)} ever came: {why}")
    return recording.changes


def _first_of(failures: ExceptionGroup) -> Exception:
    """What ended the tasks: one of them failed first, and the others were cancelled."""
    first = failures.exceptions[0]
    return _first_of(first) if isinstance(first, ExceptionGroup) else first


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
        RecordingError: a first list does not come within `START_LIMIT_S` or is not permitted, or the recording failed.
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
            why = f"nothing could be listed within {START_LIMIT_S:.0f} s"
            if isinstance(self._failure, RecordingError):
                why = str(self._failure)
            raise RecordingError(why) from self._failure
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
