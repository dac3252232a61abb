"""A client that keeps asking for the end of every partition, as tools and monitors do."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from kafkalite_cli.verify.history import Watermark

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kafkalite_cli.verify.history import Recorder

ASK_TIMEOUT_S = 5.0


class EndObserver:
    """Asks for the ends of all partitions in turn, again every `every_s` seconds, and records what it is told.

    Args:
        config: Of a consumer; it subscribes to nothing.
        topic: The topic.
        partitions: How many it has.
        recorder: Where the answers go, as `Watermark`.
        every_s: Pause between two rounds.
        note_error: Called with what the client reports; a question without an answer is just not recorded.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        topic: str,
        partitions: int,
        recorder: Recorder,
        *,
        every_s: float,
        note_error: Callable[[KafkaError], None],
    ) -> None:
        self._config, self._topic, self._partitions = dict(config), topic, partitions
        self._recorder, self._every_s, self._note_error = recorder, every_s, note_error
        self._stop = threading.Event()

    def stop(self) -> None:
        """`run` ends after the question under way."""
        self._stop.set()

    def run(self) -> None:
        """Until `stop`."""
        consumer = Consumer({**self._config, "error_cb": self._note_error})
        try:
            while not self._stop.wait(self._every_s):
                for partition in range(self._partitions):
                    if self._stop.is_set():  # where nobody answers, each question takes its whole time
                        return
                    self._ask(consumer, partition)
        finally:
            consumer.close()

    def _ask(self, consumer: Consumer, partition: int) -> None:
        invoked_us = time.monotonic_ns() // 1000
        try:
            asked = TopicPartition(self._topic, partition)
            answer = consumer.get_watermark_offsets(asked, timeout=ASK_TIMEOUT_S, cached=False)
        except KafkaException as error:
            self._note_error(error.args[0])
            return
        if answer is not None:
            at_us = time.monotonic_ns() // 1000
            self._recorder.record(Watermark(0, partition, int(answer[1]), invoked_us, at_us))
