"""The history of a verification run: one JSON array per line, written as things happen (docs/verify.md).

Every record that a producer of `verify` sends is identified by (producer, key, sequence): sequences count 1, 2, 3, …
per producer and key, and a key always goes to the same partition. Times are microseconds of the machine's
monotonic clock.
"""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, Protocol

import msgspec

from kafkalite_core.model.errors import KafkaLiteError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path
    from types import TracebackType
    from typing import BinaryIO, Self

VERSION = 1
PRODUCERS_MAX = 1 << 12
KEYS_MAX = 1 << 20
SEQUENCE_MAX = (1 << 32) - 1
FINAL_READ = 1 << 16  # consumers from this number on make the final read
_MAGIC = b"kafkalite-verify"
_CHUNK_BYTES = 1 << 22
_LINE_BYTES_MAX = 1 << 26


class HistoryError(KafkaLiteError):
    """A history that cannot be read; the text names file, line and reason."""


class UnnamedError(KafkaLiteError):
    """A value that says that it is of this run, and not of which record: somebody has altered it."""


class Header(msgspec.Struct, frozen=True, array_like=True, tag="header"):
    """First line: format version, run id, topic, number of partitions, wall clock in milliseconds at the start."""

    version: int
    run: str
    topic: str
    partitions: int
    started_ms: int


OFFSET_UNKNOWN = -1


class Ack(msgspec.Struct, frozen=True, array_like=True, tag="ack", gc=False):
    """The broker acknowledged a record at `offset`; `invoked_us` is when produce() was called.

    The offset is `OFFSET_UNKNOWN` when the client does not know it: librdkafka takes the acknowledgement of a later
    sequence of the same producer for that of the earlier one, whose own answer was lost.
    """

    producer: int
    key: int
    sequence: int
    partition: int
    offset: int
    invoked_us: int
    acked_us: int


class Unknown(msgspec.Struct, frozen=True, array_like=True, tag="unknown", gc=False):
    """A record without an acknowledgement: it may be in the log or not, but at most once and in order."""

    producer: int
    key: int
    sequence: int
    partition: int
    error: str
    invoked_us: int
    ended_us: int


class Failed(msgspec.Struct, frozen=True, array_like=True, tag="failed", gc=False):
    """A record that is known not to have been taken: nobody may ever read it."""

    producer: int
    key: int
    sequence: int
    partition: int
    error: str
    invoked_us: int
    ended_us: int


class Assign(msgspec.Struct, frozen=True, array_like=True, tag="assign", gc=False):
    """A consumer begins to read a partition at `offset`; -1: wherever its first record is."""

    consumer: int
    partition: int
    offset: int
    at_us: int


class Read(msgspec.Struct, frozen=True, array_like=True, tag="read", gc=False):
    """A consumer got a record of this run."""

    consumer: int
    partition: int
    offset: int
    producer: int
    key: int
    sequence: int
    at_us: int


class Altered(msgspec.Struct, frozen=True, array_like=True, tag="altered", gc=False):
    """A consumer got a record that names one of this run, and whose key or value are not the bytes that were sent."""

    consumer: int
    partition: int
    offset: int
    producer: int
    key: int
    sequence: int
    at_us: int


class Unnamed(msgspec.Struct, frozen=True, array_like=True, tag="unnamed", gc=False):
    """A consumer got a record of this run that was altered so that nobody can tell which one it is."""

    consumer: int
    partition: int
    offset: int
    at_us: int


class Foreign(msgspec.Struct, frozen=True, array_like=True, tag="foreign", gc=False):
    """A consumer got a record that no producer of this run made; it counts for the order of offsets only."""

    consumer: int
    partition: int
    offset: int
    at_us: int


class End(msgspec.Struct, frozen=True, array_like=True, tag="end", gc=False):
    """A consumer stopped: all below `offset` was served to it. The last one of a partition is the final read."""

    consumer: int
    partition: int
    offset: int
    at_us: int


class Watermark(msgspec.Struct, frozen=True, array_like=True, tag="watermark", gc=False):
    """A client asked for the end of the log (ListOffsets, latest) and was told `offset`."""

    client: int
    partition: int
    offset: int
    invoked_us: int
    at_us: int


class Fault(msgspec.Struct, frozen=True, array_like=True, tag="fault"):
    """Somebody did harm: `partitions` are those whose leader it hit."""

    name: str
    partitions: list[int]
    at_us: int


Event = Header | Ack | Unknown | Failed | Assign | Read | Altered | Unnamed | Foreign | End | Watermark | Fault


class Recorder(Protocol):
    """Where the clients of a run write what they saw; called from several threads."""

    def record(self, event: Event) -> None:
        """Append one event."""


class MemoryRecorder:
    """Keeps the events in a list: for tests and short demonstrations."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def record(self, event: Event) -> None:
        """Append one event; list.append is atomic."""
        self.events.append(event)


class FileRecorder:
    """Writes the events to a file as they come, so that a run's length does not matter to memory.

    Its methods raise OSError, with the name of the file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = Lock()
        self._encode = msgspec.json.Encoder().encode
        self._file: BinaryIO = path.open("wb", buffering=1 << 20)

    def record(self, event: Event) -> None:
        """Append one line."""
        line = self._encode(event)
        try:
            with self._lock:
                self._file.write(line + b"\n")
        except OSError as error:
            raise self._named(error) from error

    def close(self) -> None:
        """Write out what is buffered."""
        try:
            with self._lock:
                self._file.close()
        except OSError as error:
            raise self._named(error) from error

    def _named(self, error: OSError) -> OSError:
        """A full disk does not say of which file."""
        return OSError(error.errno, error.strerror, str(self.path))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def read_history(path: Path) -> Iterator[Event]:
    """Yield the events of a file, a few MB of it in memory at a time. Raises as `read_history_parts`."""
    for part in read_history_parts(path):
        yield from part


def read_history_parts(path: Path) -> Iterator[list[Event]]:
    """As `read_history`, in lists of many events each, which is faster for whoever takes them in at once.

    Raises:
        HistoryError: a line that is no event, or a file that does not begin with a header of this version. A last line
            without its newline is what a killed run leaves behind: it is ignored.
    """
    decoder = msgspec.json.Decoder(Event)
    try:
        file = path.open("rb", buffering=0)
    except OSError as error:
        raise HistoryError(f"{path}: {error.strerror}") from error
    with file:
        rest, lines_before = b"", 0
        while chunk := file.read(_CHUNK_BYTES):
            whole, newline, rest = (rest + chunk).rpartition(b"\n")
            if not newline:
                if len(rest) > _LINE_BYTES_MAX:
                    raise HistoryError(f"{path}, line {lines_before + 1}: no history has such long lines")
                continue
            try:
                events: list[Event] = decoder.decode_lines(whole)
            except msgspec.MsgspecError:
                raise _broken_line(path, whole, lines_before) from None
            lines_before += len(events)
            yield events
        if rest and not lines_before:
            raise _broken_line(path, rest, 0)


def _broken_line(path: Path, text: bytes, lines_before: int) -> HistoryError:
    """The error of the first line in `text` that is no event."""
    decode = msgspec.json.Decoder(Event).decode
    for number, line in enumerate(text.split(b"\n"), lines_before + 1):
        try:
            decode(line)
        except msgspec.MsgspecError as error:
            return HistoryError(f"{path}, line {number}: {error}")
    return HistoryError(f"{path}: the history is one line without an end")


def write_history(path: Path, events: Iterable[Event]) -> None:
    """Write a whole history; the twin of `read_history` for tests and generators."""
    with FileRecorder(path) as recorder:
        for event in events:
            recorder.record(event)


def encode_key(producer: int, key: int) -> bytes:
    """The key of a record."""
    return b"key-%d-%d" % (producer, key)


def encode_value(run: str, producer: int, key: int, sequence: int, size: int) -> bytes:
    """The value of a record: readable text that names it, padded with dots to `size` bytes."""
    return (b"%s %s %d %d %d " % (_MAGIC, run.encode(), producer, key, sequence)).ljust(size, b".")


def decode_value(value: bytes | None, run: str) -> tuple[int, int, int] | None:
    """(producer, key, sequence) of a record of this run, None for anybody else's.

    Raises UnnamedError: it is of this run, and the numbers are missing, unreadable, or none that a run can have.
    """
    words = (value or b"").split(b" ", 5)
    if words[:2] != [_MAGIC, run.encode()]:
        return None
    try:
        producer, key, sequence = map(int, words[2:5])
    except ValueError:
        raise UnnamedError(f"unreadable name: {value!r:.200}") from None
    if len(words) < 6 or not is_name(producer, key, sequence):
        raise UnnamedError(f"a name that no record has: {value!r:.200}")
    return producer, key, sequence


def is_name(producer: int, key: int, sequence: int) -> bool:
    """Whether a record can have that name."""
    return 0 <= producer < PRODUCERS_MAX and 0 <= key < KEYS_MAX and 0 < sequence <= SEQUENCE_MAX
