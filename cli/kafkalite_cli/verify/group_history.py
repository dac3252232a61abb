"""The history of a consumer group: what each member was given, read and committed, and what others were told of it.

One JSON array per line, like `history`, whose records (`Ack`, `Unknown`, `Read`, `Unnamed`, `Foreign`, `Fault`) are
used here with the same meaning; the `consumer` of a `Read` is the number of a member. Every process of a run writes its
own file; they share one clock (microseconds of the machine's monotonic clock), so the order of their lines together is
that of time.
docs/verify.md describes the format.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import msgspec

from kafkalite_cli.verify.history import (
    Ack,
    Assign,
    End,
    Fault,
    Foreign,
    Header,
    HistoryError,
    Read,
    Unknown,
    Unnamed,
)

if TYPE_CHECKING:
    from pathlib import Path
    from typing import BinaryIO

GROUP_VERSION = 1
NO_OFFSET = -1
_METADATA_MAGIC = b"CGMDv2:"


class GroupHeader(msgspec.Struct, frozen=True, array_like=True, tag="group"):
    """First line of the file of whoever drives the run."""

    version: int
    run: str
    topic: str
    group: str
    partitions: int
    session_timeout_ms: int
    started_ms: int


class Joining(msgspec.Struct, frozen=True, array_like=True, tag="joining"):
    """A new member is about to subscribe; `strategies` are the assignors that it supports, the preferred one first."""

    member: int
    strategies: list[str]
    at_us: int


class Assigned(msgspec.Struct, frozen=True, array_like=True, tag="assigned"):
    """A member learnt its assignment of a generation: from now on it owns exactly these partitions."""

    member: int
    generation: int
    partitions: list[int]
    at_us: int


class Revoked(msgspec.Struct, frozen=True, array_like=True, tag="revoked"):
    """A member gave partitions up and keeps these; `lost`: it had been put out of the group before it knew."""

    member: int
    generation: int
    partitions: list[int]
    lost: bool
    at_us: int


class Committing(msgspec.Struct, frozen=True, array_like=True, tag="committing", gc=False):
    """A member is about to commit `offset`: in its file before anything is sent, so that a killed one leaves it."""

    member: int
    partition: int
    offset: int
    at_us: int


class Commit(msgspec.Struct, frozen=True, array_like=True, tag="commit", gc=False):
    """A member committed `offset`: everything below it is done with. `error` is empty when it was acknowledged.

    `generation` is the highest that the commit can have carried. A commit with an error may have happened or not.
    """

    member: int
    generation: int
    partition: int
    offset: int
    error: str
    invoked_us: int
    at_us: int


class Observed(msgspec.Struct, frozen=True, array_like=True, tag="observed", gc=False):
    """The coordinator told somebody the committed offset of a partition (NO_OFFSET: none)."""

    partition: int
    offset: int
    invoked_us: int
    at_us: int


class Leaving(msgspec.Struct, frozen=True, array_like=True, tag="leaving"):
    """A member closes its consumer: it leaves the group in order."""

    member: int
    at_us: int


class Killed(msgspec.Struct, frozen=True, array_like=True, tag="killed"):
    """A member's process was killed: the group learns of it by the session time-out."""

    member: int
    at_us: int


GroupEvent = (
    GroupHeader
    | Joining
    | Assigned
    | Revoked
    | Committing
    | Commit
    | Observed
    | Leaving
    | Killed
    | Header
    | Ack
    | Unknown
    | Assign
    | Read
    | Unnamed
    | Foreign
    | End
    | Fault
)


def time_of(event: GroupEvent) -> int:
    """When the event was complete, microseconds; 0 for headers."""
    if isinstance(event, Header | GroupHeader):
        return 0
    if isinstance(event, Ack):
        return event.acked_us
    if isinstance(event, Unknown):
        return event.ended_us
    return event.at_us


def generation_of(metadata: bytes | None) -> int:
    """The generation in what `Consumer.consumer_group_metadata()` returns; -1: not a member.

    That value is opaque in librdkafka's interface: a magic word, the generation as a native 32-bit number, names.
    Raises HistoryError when a release of librdkafka writes it in another form.
    """
    if metadata is None:
        return -1
    if not metadata.startswith(_METADATA_MAGIC) or len(metadata) < len(_METADATA_MAGIC) + 4:
        raise HistoryError(f"the group metadata of this librdkafka has a form that is not known: {metadata[:16]!r}")
    return int.from_bytes(metadata[len(_METADATA_MAGIC) :][:4], sys.byteorder, signed=True)


class GroupRecorder:
    """Writes the lines of one process. What `flush` has written survives the process being killed."""

    def __init__(self, path: Path) -> None:
        self._encode = msgspec.json.Encoder().encode
        self._file: BinaryIO = path.open("wb", buffering=1 << 16)

    def record(self, event: GroupEvent) -> None:
        """Append one line."""
        self._file.write(self._encode(event) + b"\n")

    def flush(self) -> None:
        """Give everything recorded so far to the operating system."""
        self._file.flush()

    def close(self) -> None:
        """Write out what is buffered."""
        self._file.close()


def read_group_history(path: Path) -> list[GroupEvent]:
    """The events of one file. A last line without its newline is what a killed process leaves: it is ignored.

    Raises:
        HistoryError: a line that is no event, or a file that cannot be read.
    """
    decode = msgspec.json.Decoder(GroupEvent).decode
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise HistoryError(f"{path}: {error.strerror}") from error
    events: list[GroupEvent] = []
    for number, line in enumerate(lines[:-1], 1):
        try:
            events.append(decode(line))
        except msgspec.MsgspecError as error:
            raise HistoryError(f"{path}, line {number}: {error}") from error
    return events
