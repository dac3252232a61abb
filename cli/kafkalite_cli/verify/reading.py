"""The consumers of a verification run: what each is given, whether it is what was sent, and how far each has come."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from kafkalite_cli.kafka import final_codes
from kafkalite_cli.verify.history import (
    Altered,
    Assign,
    End,
    Foreign,
    Read,
    Unnamed,
    UnnamedError,
    decode_value,
    encode_key,
    encode_value,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from confluent_kafka import Message

    from kafkalite_cli.verify.history import Event, Recorder

METADATA_TIMEOUT_S = 20.0


def now_us() -> int:
    """Microseconds of the machine's monotonic clock."""
    return time.monotonic_ns() // 1000


class Reader:
    """One consumer, which assigns itself all partitions.

    Args:
        config: Of the client.
        topic: The topic.
        number: Of the consumer in the history.
        first: Partition -> offset to begin at.
        run, size: Of the records that are looked for: those of this run, with values of so many bytes.
        recorder: Where everything goes that it is given.
        note_error: Called with what the client reports.

    Attributes:
        positions: Partition -> next offset.
        received: Records of this run that it was given.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        topic: str,
        number: int,
        first: Mapping[int, int],
        *,
        run: str,
        size: int,
        recorder: Recorder,
        note_error: Callable[[KafkaError], None],
    ) -> None:
        self.positions = dict(first)
        self.received = 0
        self._topic, self._number, self._run, self._size = topic, number, run, size
        self._recorder, self._note_error = recorder, note_error
        self._consumer = Consumer({**config, "error_cb": note_error})
        self._consumer.assign([TopicPartition(topic, partition, offset) for partition, offset in first.items()])
        for partition, offset in first.items():
            recorder.record(Assign(number, partition, offset, now_us()))

    def take(self) -> None:
        """Note one batch of records."""
        for message in self._consumer.consume(1000, 0.1):
            if (error := message.error()) is not None:
                self._note_error(error)
                continue
            partition, offset = message.partition(), message.offset()
            assert partition is not None
            assert offset is not None
            event = self._event(message, partition, offset)
            self._recorder.record(event)
            self.received += not isinstance(event, Foreign)
            self.positions[partition] = offset + 1

    def _event(self, message: Message, partition: int, offset: int) -> Event:
        key, value = message.key(), message.value()
        try:
            record = decode_value(value if isinstance(value, bytes) else None, self._run)
        except UnnamedError:
            return Unnamed(self._number, partition, offset, now_us())
        if record is None:
            return Foreign(self._number, partition, offset, now_us())
        producer, named, _ = record
        as_sent = value == encode_value(self._run, *record, self._size) and key == encode_key(producer, named)
        return (Read if as_sent else Altered)(self._number, partition, offset, *record, now_us())

    def read_to_the_end(self, acknowledged: Mapping[int, int], timeout_s: float) -> None:
        """Read past everything that was acknowledged and is served now, for so long at most, and note how far it came.

        `acknowledged`: partition -> highest offset.
        """
        try:
            limit = time.monotonic() + timeout_s
            targets = {p: max(offset, acknowledged.get(p, -1) + 1) for p, offset in self.positions.items()}
            for partition, known in targets.items():
                left_s = max(0.5, limit - time.monotonic())
                targets[partition] = max(
                    known, end_offset(self._consumer, TopicPartition(self._topic, partition), left_s)
                )
            while any(self.positions[p] < target for p, target in targets.items()) and time.monotonic() < limit:
                self.take()
        except KafkaException as error:
            self._note_error(error.args[0])
        finally:
            for partition, offset in self.positions.items():
                self._recorder.record(End(self._number, partition, offset, now_us()))

    def close(self) -> None:
        """End it."""
        self._consumer.close()


def end_offset(consumer: Consumer, partition: TopicPartition, timeout_s: float = METADATA_TIMEOUT_S) -> int:
    """The high watermark of a partition, asked for again while its leader is elsewhere or silent.

    The client calls no error of this question retriable, so it is said here which ones are final.
    """
    limit = time.monotonic() + timeout_s
    while True:
        try:
            return int(
                consumer.get_watermark_offsets(partition, timeout=max(0.1, min(5.0, limit - time.monotonic())))[1]
            )
        except KafkaException as error:
            if time.monotonic() > limit or error.args[0].fatal() or error.args[0].code() in final_codes():
                raise
            time.sleep(0.1)  # no poll: it would take a record that nobody notes
