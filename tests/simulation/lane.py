"""What a producer sends to one partition: a window of batches in flight, as librdkafka's idempotent producer has it.

Requests go over one connection to the leader, in order. After a refusal nothing new is sent until all that is under way
is answered or given up; then everything unanswered is sent again, in order ("drain before retrying").

The acknowledgement of a batch is one of all before it that were refused and wait to be sent again: the producer takes
their earlier attempt for the one that got through. So a log that took a batch over a gap has lost what was promised.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from kafkalite_core.protocol.errors import ErrorCode
from tests.simulation.batches import batch_of
from tests.simulation.oracles.order import Told

if TYPE_CHECKING:
    from kafkalite_core.protocol.record_batch import BatchHeader
    from tests.simulation.broker import Broker
    from tests.simulation.clients import Producer

RETRY_MS = 100.0
NO_ANSWER = -2
OUT_OF_ORDER = int(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
FATAL = frozenset({OUT_OF_ORDER, int(ErrorCode.INVALID_PRODUCER_EPOCH), int(ErrorCode.UNKNOWN_PRODUCER_ID)})
"""Out of order is fatal only at the head of the line: what is behind a batch that was refused is sent again after it."""


class Batch:
    """One batch until it is answered for good; its number is its place in the lane."""

    __slots__ = ("content", "count", "flying", "given_up", "header", "number")

    def __init__(self, number: int, content: bytearray, header: BatchHeader, count: int) -> None:
        self.number = number
        self.content = content
        self.header = header
        self.count = count
        self.flying = False
        self.given_up = False


class Pipe:
    """A connection to one process of a broker. A message that is lost takes along all that come after it, as TCP does.

    What the network delivers a second time was sent on a connection that was given up since: nobody hears the answer.
    """

    __slots__ = ("answered", "answers", "arrived", "broker", "busy_until_ms", "flying", "open", "sent")

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.open = True
        self.busy_until_ms = 0.0
        self.sent = self.arrived = self.answered = 0
        self.flying: deque[Batch] = deque()
        self.answers: dict[int, tuple[int, str, int, int]] = {}

    def deliver(self, lane: Lane, place: int, batch: Batch) -> None:
        """A request reaches the broker, which takes requests as they come and answers in their order."""
        if place > self.arrived:
            return  # one before it was lost, and the connection with it
        broker, producer = self.broker, lane.producer
        again = place < self.arrived
        self.arrived += not again

        def reply(error_code: int, topic_id: str, base: int, epoch: int) -> None:
            if not again:
                producer.network.send(
                    broker.host.name, producer.name, producer.process, lane.heard, self, place, error_code, topic_id,
                    base, epoch,
                )  # fmt: skip

        broker.produce(lane.topic, lane.number, batch.content, batch.header, producer.acks, reply)


class Lane:
    """One partition of one producer.

    Attributes:
        window: Batches without a last word, in the order of their sequences.
    """

    __slots__ = ("_burst", "_draining", "_in_flight", "_made", "_pipe", "_producer_id", "_retry_is_due", "_sequence",
                 "_waiting", "number", "producer", "topic", "window")  # fmt: skip

    def __init__(self, producer: Producer, topic: str, number: int) -> None:
        self.producer = producer
        self.topic = topic
        self.number = number
        self.window: list[Batch] = []
        self._in_flight = producer.cluster.shape.in_flight if producer.idempotent else 1
        self._burst = 1
        self._pipe: Pipe | None = None
        self._producer_id = -1
        self._made = self._sequence = 0
        self._draining = False
        self._retry_is_due = False
        self._waiting = False

    # ------------------------------------------------------------ sending

    def begin(self) -> None:
        """Make the next batches and send them."""
        producer, window = self.producer, self.window
        if producer.stopped:
            return
        if producer.idempotent and producer.producer_id < 0:
            producer.ask_id()
            producer.world.at(RETRY_MS * (0.5 + producer.chance()), producer.process, self.begin)
            return
        if (window and self._is_stale()) or len(window) >= self._in_flight:
            self._waiting = True
            return
        if self._producer_id != producer.producer_id:
            self._producer_id, self._sequence = producer.producer_id, 0
        self._burst = 1
        if self._in_flight > 1:  # what one at a time would be sent evenly comes in bursts: together on their way
            self._burst = min(self._in_flight - len(window), 1 + int(producer.chance() * self._in_flight))
        for _ in range(self._burst):
            batch = self._make()
            window.append(batch)
            if not self._draining:
                self._send(batch)
        if len(window) >= self._in_flight:
            self._waiting = True
        else:
            producer.world.at(self._pause_ms(), producer.process, self.begin)
        self._settle()

    def _is_stale(self) -> bool:
        """The producer has, or waits for, another id than that of the window."""
        return self._producer_id != self.producer.producer_id

    def _pause_ms(self) -> float:
        return self.producer.cluster.shape.pause_ms * self._burst * (0.5 + self.producer.chance())

    def _make(self) -> Batch:
        producer = self.producer
        count, padding = 1 + int(producer.chance() * 8), 0
        if producer.chance() < 0.05:
            count, padding = 1, 600  # more than one sector of the disk
        idempotent = self._producer_id >= 0
        content, header = batch_of(
            producer.cluster.history.new_values(count),
            count,
            1_700_000_000_000 + int(producer.world.now),
            producer=self._producer_id,
            producer_epoch=0 if idempotent else -1,
            sequence=self._sequence if idempotent else -1,
            padding=padding,
        )
        self._sequence += count
        self._made += 1
        return Batch(self._made, content, header, count)

    def _send(self, batch: Batch) -> None:
        producer, pipe = self.producer, self._pipe
        network, shape, now_ms = producer.network, producer.cluster.shape, producer.world.now
        leader = producer.leader(self.topic, self.number)
        if leader is None:
            self._refuse(NO_ANSWER)
            return
        if pipe is None or pipe.broker is not leader:
            pipe = self._pipe = Pipe(leader)  # what is under way on the other one may still be answered
        place = pipe.sent
        pipe.sent += 1
        pipe.flying.append(batch)
        batch.flying = True
        pipe.busy_until_ms = max(pipe.busy_until_ms, now_ms) + shape.transfer_ms
        lag_ms = pipe.busy_until_ms - now_ms
        process, name = leader.process, leader.host.name
        if network.send_large(lag_ms, producer.name, name, process, pipe.deliver, self, place, batch):
            producer.world.at(shape.patience_ms, producer.process, self._time_is_up, pipe, place)
        else:
            self._break(pipe)

    def _send_again(self) -> None:
        self._retry_is_due = False
        if self._is_stale():
            self._settle()
            return
        self._draining = False
        for batch in self.window:
            self._send(batch)
            if self._draining:
                break
        self._settle()

    # ------------------------------------------------------------ answers

    def heard(self, pipe: Pipe, place: int, error_code: int, topic_id: str, base: int, epoch: int) -> None:
        """An answer has come; it counts when all before it on its connection have come."""
        if place < pipe.answered:
            return
        pipe.answers[place] = error_code, topic_id, base, epoch
        while pipe.open and (answer := pipe.answers.pop(pipe.answered, None)) is not None:
            pipe.answered += 1
            batch = pipe.flying.popleft()
            batch.flying = False
            if not batch.given_up:
                self._answered(pipe.broker, batch, *answer)

    def _time_is_up(self, pipe: Pipe, place: int) -> None:
        if pipe.open and place >= pipe.answered:
            self._break(pipe)
            self._settle()
        else:
            self.producer.world.events -= 1  # the answer came long ago

    def connection_lost(self, host: str) -> None:
        """The connection to that machine broke, if the lane has one: it is given up at once, as after its patience."""
        pipe = self._pipe
        if pipe is not None and pipe.broker.host.name == host:
            if pipe.flying:
                self.producer.world.bite("client_reset")
            self._time_is_up(pipe, pipe.sent)

    def _break(self, pipe: Pipe) -> None:
        """The connection is given up: of what was under way on it nobody knows whether it arrived."""
        pipe.open = False
        if self._pipe is pipe:
            self._pipe = None
        lost = [batch for batch in pipe.flying if not batch.given_up]
        for batch in lost:
            batch.flying = False
        if lost:
            self._refuse(NO_ANSWER)

    def _answered(self, leader: Broker, batch: Batch, error_code: int, topic_id: str, base: int, epoch: int) -> None:
        if not error_code:
            self._acknowledged((leader, epoch), batch, topic_id, base)
        elif error_code in FATAL and (error_code != OUT_OF_ORDER or self.window[0] is batch):
            self._refuse(error_code)
            if not self._is_stale():
                self.producer.bump()
            self._give_up()
        else:
            self._refuse(error_code)
        self._settle()

    def _acknowledged(self, leader: tuple[Broker, int], batch: Batch, topic_id: str, base: int) -> None:
        history, window = self.producer.cluster.history, self.window
        tag, acks = (topic_id, self.number), self.producer.acks
        if window[0] is not batch:
            before = window[: window.index(batch)]
            for earlier in before:
                if not earlier.flying:
                    history.acknowledged_implicitly(tag, earlier.count, earlier.header.crc, acks)
                    window.remove(earlier)
        history.acknowledged(tag, base, batch.count, batch.header.crc, acks)
        told = Told(batch.number, base, base + batch.count, batch.header.crc)
        history.order.heard(tag, self, leader, told, judge=not history.store_went_back)
        window.remove(batch)

    def _refuse(self, error_code: int) -> None:
        self.producer.refresh()
        self.producer.cluster.history.refused(error_code)
        self._draining = True

    def _give_up(self) -> None:
        """What has no answer may be in the log or not."""
        for batch in self.window:
            batch.given_up = True
        self.window.clear()

    def _settle(self) -> None:
        """Something was answered: see how to go on."""
        producer, window = self.producer, self.window
        world = producer.world
        drained = self._draining
        if self._draining:
            if any(batch.flying for batch in window):
                return
            if not producer.idempotent or self._is_stale():
                self._give_up()  # sent again it might be there twice
            if window:
                if not self._retry_is_due:
                    self._retry_is_due = True
                    world.at(RETRY_MS * (0.5 + producer.chance()), producer.process, self._send_again)
            else:
                self._draining = False
        if self._waiting and len(window) < self._in_flight and not (window and self._is_stale()):
            self._waiting = False
            pause_ms = RETRY_MS * (0.5 + producer.chance()) if drained else self._pause_ms()
            world.at(pause_ms, producer.process, self.begin)
