"""The clients of a verification run: one producer thread and one consumer thread that write a history.

    load = Load("127.0.0.1:9092", "orders", rate=2000)
    with load:
        load.wait_acks(1000, timeout_s=10)
        killed = load.fault("SIGKILL broker 1", partitions_led_by_1)      # at the very instant of the kill
        pause_s = load.pause_after(killed, partitions_led_by_1, timeout_s=10)
    report = load.report()                                                 # 0 lost, 0 duplicated, order kept?

The producer is idempotent with acks=all; every record names its partition, so that the traffic is even and the pause of
each partition can be measured. The consumer assigns all partitions itself (no group). When the run stops, a second
consumer reads everything from the beginning: what it does not find is lost.
"""

from __future__ import annotations

import functools
import math
import threading
import time
import uuid
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from kafkalite_cli.errors import Failure
from kafkalite_cli.guard import os_words
from kafkalite_cli.kafka import partitions_of, plain_errors, serve
from kafkalite_cli.verify.acks import Acks
from kafkalite_cli.verify.checker import Report, check
from kafkalite_cli.verify.history import (
    FINAL_READ,
    KEYS_MAX,
    OFFSET_UNKNOWN,
    PRODUCERS_MAX,
    Ack,
    Failed,
    Fault,
    FileRecorder,
    Header,
    MemoryRecorder,
    Recorder,
    Unknown,
    encode_key,
    encode_value,
    read_history,
)
from kafkalite_cli.verify.observer import EndObserver
from kafkalite_cli.verify.reading import METADATA_TIMEOUT_S, Reader, end_offset
from kafkalite_core.model.errors import KafkaLiteError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from pathlib import Path
    from types import TracebackType
    from typing import Self

    from confluent_kafka import Message

    from kafkalite_cli.pasting import Commands

UNUSABLE = "these settings cannot be used"
TOO_LARGE = {KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE}
REFUSED = {*TOO_LARGE, KafkaError.INVALID_RECORD, KafkaError._PURGE_QUEUE}  # noqa: SLF001
"""Errors after which a record is surely in no log: the same record is refused every time, or it was never sent."""


class LoadError(KafkaLiteError):
    """The run cannot be made or did not reach what was awaited; the text says what."""


def _now_us() -> int:
    return time.monotonic_ns() // 1000


class Load:
    """A producer and a consumer on one topic, and the history of what they saw.

    Args:
        bootstrap: addresses of brokers.
        topic: must exist.
        rate: records per second, 0: as fast as possible.
        partitions: how many of the topic's partitions to use; None: all.
        keys: number of keys; key k goes to partition k mod partitions.
        size: bytes of a value (at least what names the record).
        count: stop producing after so many records; None: until `stop`.
        history: file to write the history to, from `start` on; None: kept in memory.
        observe_s: also have a client ask for the ends of all partitions, with this pause between; 0: none.
        say: commands that reach this cluster, for who has no topic yet.
        producer_config, consumer_config: librdkafka settings on top of (idempotent, acks=all) and of the defaults.
    """

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        rate: float = 2000,
        partitions: int | None = None,
        keys: int = 60,
        *,
        size: int = 100,
        count: int | None = None,
        producers: int = 1,
        history: Path | None = None,
        observe_s: float = 0.0,
        producer_config: Mapping[str, Any] | None = None,
        consumer_config: Mapping[str, Any] | None = None,
        say: Commands | None = None,
    ) -> None:
        if not (0 < keys < KEYS_MAX and 0 < producers < PRODUCERS_MAX and rate >= 0):
            raise LoadError(f"keys {keys}, producers {producers} or rate {rate} out of range")
        self.bootstrap, self.topic, self.rate, self.keys, self.size = bootstrap, topic, rate, keys, size
        self.count, self.producers, self.history = count, producers, history
        self.run = uuid.uuid4().hex[:12]
        self.acks = Acks()
        self.sent = 0
        self.errors: dict[str, int] = {}
        self.too_large = 0
        """Records that brokers refused for their size, or that of their batch: such a load says nothing of the log."""
        self.unread: dict[int, int] = {}
        """Partition -> acknowledged offsets that the reader in the load had not been given when `stop` gave it up."""
        self.recorder: Recorder = MemoryRecorder()
        self._partitions, self._say = partitions, say
        self._producer_config = {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "acks": "all",
            "log_level": 2,  # what goes wrong is counted in `errors`
            **(producer_config or {}),
        }
        self._consumer_config = {
            "bootstrap.servers": bootstrap,
            "group.id": f"kafkalite-verify-{self.run}",  # the client wants one; nothing is ever committed
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "error",
            "log_level": 2,
            **(consumer_config or {}),
        }
        self._stop_producing = threading.Event()
        self._stop_consuming = threading.Event()
        self._producing: list[threading.Thread] = []
        self._consuming: threading.Thread | None = None
        self._live: Reader | None = None
        self._observe_s = observe_s
        self._observer: EndObserver | None = None
        self._observing: threading.Thread | None = None
        self._failure: BaseException | None = None
        self._stopped = False
        self._flush_limit = math.inf
        self._first: dict[int, int] = {}

    # --- life

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop(timeout_s=1.0 if kind else 60.0)

    @property
    def partitions(self) -> int:
        """How many partitions are in use; known from `start` on."""
        assert self._partitions is not None, "start() first"
        return self._partitions

    @property
    def received(self) -> int:
        """Records of this run that the reader in the load was given so far."""
        return self._live.received if self._live is not None else 0

    @property
    def starts(self) -> Mapping[int, int]:
        """Partition -> where this run began; known from `start` on."""
        return self._first

    def start(self) -> None:
        """Look at the topic and begin.

        Raises LoadError when the topic does not exist, no broker answers or the clients' settings cannot be used: a
        file that has the name of the history is what it was then. OSError: it cannot be written.
        """
        try:
            first = self._first_offsets()
            with plain_errors(UNUSABLE):
                config = {**self._producer_config, "error_cb": self._note_error}
                clients = [Producer(config) for _ in range(self.producers)]
        except Failure as error:
            raise LoadError(f"{self.bootstrap}: {error.message}") from error
        self._partitions = len(first)
        if self.history is not None:
            self.recorder = FileRecorder(self.history)
        self.recorder.record(Header(1, self.run, self.topic, len(first), time.time_ns() // 1_000_000))
        self._first = first
        self._consuming = threading.Thread(
            target=self._guard, args=(self._consume, 0), name="verify-consumer", daemon=True
        )
        self._consuming.start()
        if self._observe_s:
            self._observe(len(first))
        for number in range(self.producers):
            work = functools.partial(self._produce, clients.pop())
            thread = threading.Thread(target=self._guard, args=(work, number), daemon=True)
            thread.name = f"verify-producer-{number}"
            thread.start()
            self._producing.append(thread)

    def stop(self, timeout_s: float = 60.0) -> None:
        """End the producers, wait for what is in flight, then read everything once more from the beginning.

        Records without an answer after `timeout_s` count as unknown; what the reader in the load has not been given
        within another `timeout_s` is `unread`, and what the final read does not find within a third one is unseen.
        Raises LoadError when one of the threads failed.
        """
        if self._stopped or self._consuming is None:
            return
        self._stopped = True
        self._stop_producing.set()
        self._flush_limit = time.monotonic() + timeout_s
        for thread in self._producing:
            thread.join()
        self._catch_up(timeout_s)
        self._stop_consuming.set()
        self._consuming.join()
        if self._observer is not None and self._observing is not None:
            self._observer.stop()
            self._observing.join()
        self._read_everything(timeout_s)
        if isinstance(self.recorder, FileRecorder):
            self.recorder.close()
        if isinstance(self._failure, OSError):  # the history's disk, for example
            raise LoadError(f"the run ended early: {os_words(self._failure)}") from self._failure
        if self._failure is not None:
            raise LoadError(f"a client of the run failed: {self._failure!r}") from self._failure

    def _observe(self, partitions: int) -> None:
        self._observer = EndObserver(
            self._consumer_config,
            self.topic,
            partitions,
            self.recorder,
            every_s=self._observe_s,
            note_error=self._note_error,
        )
        observer = self._observer
        self._observing = threading.Thread(
            target=self._guard, args=(lambda _: observer.run(), 0), name="verify-observer", daemon=True
        )
        self._observing.start()

    def wait_produced(self, timeout_s: float | None = None) -> bool:
        """Wait until the producers have sent `count` records; False when the time is over."""
        limit = None if timeout_s is None else time.monotonic() + timeout_s
        for thread in self._producing:
            thread.join(None if limit is None else max(0.0, limit - time.monotonic()))
        return not any(thread.is_alive() for thread in self._producing)

    def wait_acks(self, count: int, timeout_s: float) -> None:
        """Wait until `count` records in all were acknowledged. Raises LoadError when they were not."""
        if not self.acks.wait(count, timeout_s):
            raise LoadError(
                f"{self.acks.count} of {count} records acknowledged after {timeout_s} s; errors: {self.errors}"
            )

    # --- faults

    def fault(self, name: str, partitions: Iterable[int]) -> float:
        """Note that the leader of these partitions is harmed now; returns the instant (time.monotonic seconds)."""
        numbers = list(partitions)
        at_us = _now_us()
        self.acks.watch(at_us, numbers)
        self.recorder.record(Fault(name, numbers, at_us))
        return at_us / 1e6

    def pause_after(self, kill_monotonic_s: float, partitions: Iterable[int], timeout_s: float = 30.0) -> float:
        """Seconds from a `fault` to the first acknowledgement of a record sent after it; the slowest partition's.

        Waits for that acknowledgement. Raises LoadError when one of the partitions has none within `timeout_s`.
        """
        per_partition = self.pauses_after(kill_monotonic_s, partitions, timeout_s)
        return max(per_partition.values(), default=0.0)

    def pauses_after(
        self, kill_monotonic_s: float, partitions: Iterable[int], timeout_s: float = 30.0
    ) -> dict[int, float]:
        """As `pause_after`, for each partition."""
        at_us, numbers = round(kill_monotonic_s * 1e6), list(partitions)

        def answered() -> bool:
            return None not in self.acks.first_after(at_us, numbers).values()

        with self.acks.changed:
            complete = self.acks.changed.wait_for(answered, timeout_s)
            first = self.acks.first_after(at_us, numbers)
        if not complete:
            silent = [number for number, acked_us in first.items() if acked_us is None]
            raise LoadError(f"partitions {silent} acknowledged nothing within {timeout_s} s; errors: {self.errors}")
        return {number: (acked_us - at_us) / 1e6 for number, acked_us in first.items() if acked_us is not None}

    @property
    def longest_gap_s(self) -> float:
        """The longest time between two acknowledgements, whatever their partitions."""
        return self.acks.longest_gap_s

    def report(self, allowed: Collection[str] = ()) -> Report:
        """Judge the history; call it after `stop`. `allowed` as for `Checker`."""
        assert self._stopped, "stop() first"
        if self.history is not None:
            return check(read_history(self.history), allowed)
        assert isinstance(self.recorder, MemoryRecorder)
        return check(self.recorder.events, allowed)

    # --- the clients

    def _guard(self, work: Any, number: int) -> None:
        try:
            work(number)
        except BaseException as error:
            self._failure = error
            self._stop_producing.set()

    def _note_error(self, error: KafkaError) -> None:
        self.errors[error.name()] = self.errors.get(error.name(), 0) + 1

    def _first_offsets(self) -> dict[int, int]:
        """Partition -> end of the log now: where this run begins. Raises Failure or LoadError."""
        with plain_errors(UNUSABLE):
            consumer = Consumer({**self._consumer_config, "error_cb": self._note_error})
        try:
            known = partitions_of(consumer, self.topic, timeout_s=METADATA_TIMEOUT_S, say=self._say)
            wanted = range(self._partitions if self._partitions is not None else len(known))
            if len(known) < len(wanted):
                raise LoadError(f"topic {self.topic!r} has {len(known)} partitions on {self.bootstrap}: create more")
            partitions = [TopicPartition(self.topic, number) for number in wanted]
            return {p.partition: end_offset(consumer, p) for p in partitions}
        except KafkaException as error:
            raise LoadError(f"no answer from {self.bootstrap}: {error.args[0].str()}") from error
        finally:
            consumer.close()

    def _produce(self, producer: Producer, number: int) -> None:
        in_flight: dict[tuple[int, int], tuple[int, int]] = {}
        sequences = [0] * self.keys
        interval_s = self.producers / self.rate if self.rate else 0.0
        began = time.monotonic()
        quota = None if self.count is None else len(range(number, self.count, self.producers))
        index = 0
        while not self._stop_producing.is_set() and (quota is None or index < quota):
            while (delay_s := began + index * interval_s - time.monotonic()) > 0:
                serve(producer, delay_s)
                if self._stop_producing.is_set():
                    break
            key = index % self.keys
            sequences[key] += 1
            self._send(producer, in_flight, number, key, sequences[key])
            producer.poll(0)
            index += 1
        while len(producer) and time.monotonic() < self._flush_limit:
            producer.poll(0.1)
        at_us = _now_us()
        for (key, sequence), (partition, invoked_us) in in_flight.items():
            self.recorder.record(Unknown(number, key, sequence, partition, "no answer", invoked_us, at_us))

    def _send(
        self,
        producer: Producer,
        in_flight: dict[tuple[int, int], tuple[int, int]],
        number: int,
        key: int,
        sequence: int,
    ) -> None:
        value = encode_value(self.run, number, key, sequence, self.size)
        partition = key % self.partitions

        def delivered(error: KafkaError | None, message: Message) -> None:
            acked_us = _now_us()
            in_flight.pop((key, sequence), None)
            if error is not None:
                self._note_error(error)
                self.acks.unknown += 1
                self.too_large += error.code() in TOO_LARGE
                outcome = Failed if error.code() in REFUSED else Unknown
                self.recorder.record(outcome(number, key, sequence, partition, error.name(), invoked_us, acked_us))
                return
            offset = message.offset()
            offset = OFFSET_UNKNOWN if offset is None else offset
            self.recorder.record(Ack(number, key, sequence, partition, offset, invoked_us, acked_us))
            self.acks.acknowledge(partition, offset, invoked_us, acked_us)

        while True:
            invoked_us = _now_us()
            try:
                producer.produce(self.topic, value, encode_key(number, key), partition=partition, on_delivery=delivered)
            except BufferError:  # the client's queue is full: serve acknowledgements until it is not
                producer.poll(0.1)
                if time.monotonic() > self._flush_limit:
                    return
            else:
                in_flight[key, sequence] = (partition, invoked_us)
                self.sent += 1
                return

    def _consume(self, number: int) -> None:
        reader = self._live = self._reader(number)
        try:
            while not self._stop_consuming.is_set():
                reader.take()
        finally:
            reader.close()

    def _reader(self, number: int) -> Reader:
        return Reader(
            self._consumer_config,
            self.topic,
            number,
            self._first,
            run=self.run,
            size=self.size,
            recorder=self.recorder,
            note_error=self._note_error,
        )

    def _catch_up(self, timeout_s: float) -> None:
        """Wait until the reader in the load has been given all that was acknowledged; `unread` is what it lacks."""
        assert self._consuming is not None
        limit = time.monotonic() + timeout_s
        while (unread := self._behind()) and self._consuming.is_alive() and time.monotonic() < limit:
            time.sleep(0.05)
        self.unread = unread

    def _behind(self) -> dict[int, int]:
        reached = self._live.positions if self._live is not None else self._first
        lacking = {p: highest + 1 - reached.get(p, 0) for p, highest in self.acks.highest.items()}
        return {partition: count for partition, count in lacking.items() if count > 0}

    def _read_everything(self, timeout_s: float) -> None:
        """The final read: from where the run began to behind everything that was acknowledged and is served now."""
        reader = self._reader(FINAL_READ)
        try:
            reader.read_to_the_end(self.acks.highest, timeout_s)
        finally:
            reader.close()
