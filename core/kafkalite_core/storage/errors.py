"""Errors of the log. Those that cross the wire carry Kafka's code; `DiskFailure` ends the process (R12)."""

from __future__ import annotations

from kafkalite_core.model.errors import BrokerError, KafkaLiteError
from kafkalite_core.protocol.errors import ErrorCode


class DiskFailure(KafkaLiteError):
    """A write error other than ENOSPC and EDQUOT, any error of fsync, any error of a read.

    The page cache may no longer say what is on the disk, so the process exits at once and never retries (R12).
    """


class ReadInterrupted(KafkaLiteError):
    """A cold read found its file closed or cut by a truncation or by retention; the reader looks again."""


class OffsetOutOfRange(BrokerError):
    """The offset lies below the start or beyond the end of the log."""

    def __init__(self, offset: int, start_offset: int, end_offset: int) -> None:
        super().__init__(ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {offset} is not in [{start_offset}, {end_offset}]")


class CorruptMessage(BrokerError):
    """A batch whose CRC, length, magic or offsets are wrong."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.CORRUPT_MESSAGE, message)


class UnexpectedAppendOffset(KafkaLiteError):
    """A follower was given a batch that begins before its log end.

    Attributes:
        first_offset: Base offset of that batch.
        last_offset: Last offset of that batch.
        end_offset: The log end.
    """

    def __init__(self, first_offset: int, last_offset: int, end_offset: int) -> None:
        super().__init__(f"batch [{first_offset}, {last_offset}] begins before the log end {end_offset}")
        self.first_offset = first_offset
        self.last_offset = last_offset
        self.end_offset = end_offset


class OutOfOrderSequence(BrokerError):
    """An idempotent batch neither repeats one of the last five nor follows the last one (KIP-98).

    Attributes:
        gap: Batches before it are missing; else it is older than what is remembered.
    """

    def __init__(self, message: str, *, gap: bool) -> None:
        super().__init__(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, message)
        self.gap = gap


class InvalidProducerEpoch(BrokerError):
    """An idempotent batch of an older epoch of its producer (KIP-98)."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.INVALID_PRODUCER_EPOCH, message)


class ForeignDirectory(KafkaLiteError):
    """The data directory belongs to another cluster or another broker; nothing in it may be touched."""


class CorruptCheckpoint(KafkaLiteError):
    """A checkpoint or metadata file that does not parse."""
