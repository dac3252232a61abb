"""The work of `kafkalite produce`: lines in, records out, and what became of each."""

from __future__ import annotations

import io
import os
import select
import time
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol

from kafkalite_cli.kafka import sentence, serve
from kafkalite_cli.records.parse import LineError, LineSplitter, Record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kafkalite_cli.guard import Stop
    from kafkalite_cli.records.meter import Meter

JsonObject = dict[str, Any]
BLOCK = 256 * 1024
WAIT_S = 0.1
FAILURES_TOLD = 10
STOP_S = 5.0  # after an interrupt, what was taken may still be sent for so long
NO_PARTITION = -1


class HasProduce(Protocol):
    """The part of confluent_kafka.Producer that is used."""

    def produce(
        self, topic: str, value: bytes | None = None, key: bytes | None = None, *args: Any, **more: Any
    ) -> None:
        """Queue a record; BufferError when the queue is full."""

    def poll(self, timeout: float = -1) -> int:
        """Serve delivery reports."""

    def purge(self) -> None:
        """Give up what is queued or in flight; each gets its delivery report."""

    def __len__(self) -> int: ...


class Outbox:
    """Sends records and counts what became of them.

    Args:
        tell: shown the first failures, one sentence each.
    """

    def __init__(self, producer: HasProduce, topic: str, *, partition: int | None, tell: Callable[[str], None]) -> None:
        self._producer, self._topic, self._partition, self._tell = producer, topic, partition, tell
        self.sent = self.acknowledged = self.failed = self.size_bytes = 0
        self.errors: dict[str, int] = {}

    def send(self, record: Record, number: int) -> None:
        """Queue it; waits while the queue is full. `number` is that of its line."""

        def delivered(error: Any, _message: Any) -> None:
            if error is None:
                self.acknowledged += 1
                self.size_bytes += record.size_bytes
            else:
                self._note_failure(error, number)

        options: dict[str, Any] = {"headers": record.headers} if record.headers else {}
        if record.timestamp_ms is not None:
            options["timestamp"] = record.timestamp_ms
        partition = self._partition if self._partition is not None else record.partition
        options["partition"] = NO_PARTITION if partition is None else partition
        self.sent += 1
        while True:
            try:
                self._producer.produce(self._topic, record.value, record.key, on_delivery=delivered, **options)
            except BufferError:
                self._producer.poll(WAIT_S)
                continue
            except Exception as error:
                cause = error.args[0] if error.args else None
                if not hasattr(cause, "name"):
                    self.sent -= 1  # it was not queued
                    raise
                self._note_failure(cause, number)  # refused by the client itself: too large, for example
            return

    def _note_failure(self, error: Any, number: int) -> None:
        self.failed += 1
        self.errors[error.name()] = self.errors.get(error.name(), 0) + 1
        if self.failed <= FAILURES_TOLD:
            self._tell(f"line {number}: not sent: {sentence(error)}")
        elif self.failed == FAILURES_TOLD + 1:
            self._tell("more records were not sent; they are counted")

    def poll(self, limit_s: float = 0.0) -> None:
        """Serve delivery reports."""
        serve(self._producer, limit_s)

    def finish(self, limit: float, stop: Stop, *, tick: Callable[[], None]) -> None:
        """Wait until every record has its delivery report; give up at `limit` (monotonic) or soon after a stop."""
        while len(self._producer):
            if stop.requested:
                limit = min(limit, time.monotonic() + STOP_S)
            if time.monotonic() > limit:
                self._producer.purge()
                self._producer.poll(1.0)
                break
            self._producer.poll(WAIT_S)
            tick()

    def summary(self, topic: str, elapsed_s: float) -> JsonObject:
        """The document of `-o json`."""
        return {
            "topic": topic,
            "sent": self.sent,
            "acknowledged": self.acknowledged,
            "failed": self.failed,
            "sizeBytes": self.size_bytes,
            "elapsedSeconds": round(elapsed_s, 3),
            "errors": dict(sorted(self.errors.items())),
        }


def chunks(file: BinaryIO) -> Iterator[bytes]:
    """What can be read, as it comes; b"" now and then while nothing comes. Ends with the input."""
    try:
        descriptor = file.fileno()
    except (OSError, io.UnsupportedOperation):
        while data := file.read(BLOCK):
            yield data
        return
    while True:
        if not select.select([descriptor], [], [], WAIT_S)[0]:
            yield b""
            continue
        data = os.read(descriptor, BLOCK)
        if not data:
            return
        yield data


def pump(
    source: Iterator[bytes],
    parse: Callable[[bytes], Record],
    outbox: Outbox,
    *,
    stop: Stop,
    meter: Meter,
    rate: float | None = None,
) -> None:
    """Send every line of the source, at most `rate` a second. Raises LineError with the line's number."""
    splitter = LineSplitter()
    number = read_bytes = 0
    began = time.monotonic()

    def take(lines: list[bytes]) -> None:
        nonlocal number
        for line in lines:
            if stop.requested:
                return
            number += 1
            outbox.send(parse(line), number)
            while rate and not stop.requested and (ahead_s := began + number / rate - time.monotonic()) > 0:
                outbox.poll(ahead_s)
                show()

    def show() -> None:
        if meter.due():
            waiting = outbox.sent - outbox.acknowledged - outbox.failed
            extra = f"{waiting:,} under way" + (f", {outbox.failed:,} failed" if outbox.failed else "")
            meter.update(outbox.acknowledged, outbox.size_bytes, done=read_bytes, extra=extra)

    try:
        for chunk in source:
            read_bytes += len(chunk)
            take(splitter.feed(chunk) if chunk else [])
            if stop.requested:
                return
            outbox.poll()
            show()
        take(splitter.finish())
    except LineError as error:
        raise LineError(f"line {max(number, 1)}: {error}") from error
