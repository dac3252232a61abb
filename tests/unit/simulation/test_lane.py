"""The window of a producer's lane: what is sent, in which order, and what an answer is taken for."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from kafkalite_core.protocol.errors import ErrorCode
from tests.simulation.cluster import SimCluster
from tests.simulation.history import UNKNOWN, History
from tests.simulation.lane import FATAL, RETRY_MS, Lane
from tests.simulation.network import Network
from tests.simulation.swarm import TopicShape, draw
from tests.simulation.world import Process, Violation, World

PATIENCE_MS = 400.0
RETRIABLE = ErrorCode.NOT_ENOUGH_REPLICAS
OUT_OF_ORDER = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
TAG = ("id", 0)


class Broker:
    """Takes requests and answers them when it is told to."""

    def __init__(self, name: str) -> None:
        self.host = SimpleNamespace(name=name)
        self.process = Process(name)
        self.taken = []

    def produce(self, topic, number, content, header, acks, reply) -> None:
        assert (topic, number) == ("t0", 0)
        self.taken.append((header.base_sequence, reply))

    def sequences(self) -> list[int]:
        return [sequence for sequence, _ in self.taken]

    def answer(self, place: int, error_code: int = 0, base: int | None = None) -> None:
        self.taken[place][1](int(error_code), TAG[0], 100 * place if base is None else base, 0)


class Sender:
    """What a lane knows of its producer."""

    def __init__(self, *, idempotent: bool = True, in_flight: int = 5) -> None:
        self.world = World(1)
        self.network = Network(self.world, delay_ms=1.0)
        shape = SimpleNamespace(in_flight=in_flight, pause_ms=1.0, patience_ms=PATIENCE_MS, transfer_ms=0.0)
        self.cluster = SimpleNamespace(shape=shape, history=History())
        self.history = self.cluster.history
        self.name, self.process = "p", Process("p")
        self.idempotent, self.acks = idempotent, -1
        self.producer_id = 5 if idempotent else -1
        self.bumped = 0
        self.stopped = False
        self.chance = lambda: 0.99  # bursts fill the window
        self.broker = Broker("b0")
        self.lane = Lane(self, "t0", 0)
        self.lane.begin()
        self.run(10.0)

    def leader(self, topic: str, number: int) -> Broker:
        return self.broker

    def refresh(self) -> None:
        pass

    def ask_id(self) -> None:
        pass

    def bump(self) -> None:
        self.bumped += 1
        self.producer_id = -1

    def run(self, ms: float) -> None:
        self.world.run(self.world.now + ms)

    def answer(self, place: int, error_code: int = 0, base: int | None = None) -> None:
        self.broker.answer(place, error_code, base)
        self.run(5.0)

    def go_on(self) -> None:
        self.stopped = False
        self.lane.begin()
        self.run(10.0)

    def retry(self) -> None:
        self.run(2 * RETRY_MS)


@pytest.fixture
def sender() -> Sender:
    made = Sender()
    assert len(made.broker.taken) == 5
    assert made.broker.sequences() == sorted(made.broker.sequences())
    made.stopped = True  # nothing new comes
    return made


def crcs(sender: Sender) -> list[int]:
    return [batch.header.crc for batch in sender.lane.window]


def test_there_are_no_more_under_way_than_the_window_has() -> None:
    for in_flight in (1, 3):
        sender = Sender(in_flight=in_flight)
        sender.run(200.0)
        assert len(sender.broker.taken) == in_flight
        sender.answer(0)
        sender.run(200.0)
        assert len(sender.broker.taken) == in_flight + 1


def test_the_acknowledgement_of_a_later_batch_is_one_of_what_was_refused_before_it(sender) -> None:
    (first, second, third, *_), (before, own, *_) = crcs(sender), sender.lane.window
    sender.answer(0, RETRIABLE)
    assert sender.history.acked == 0
    sender.answer(1, base=40)
    assert sender.history.promised[TAG] == [(UNKNOWN, before.count, first), (40, own.count, second)]
    assert sender.history.implied == before.count
    assert sender.history.acked == before.count + own.count
    assert crcs(sender)[0] == third


def test_what_is_still_under_way_elsewhere_is_not_implied(sender) -> None:
    old, sender.broker = sender.broker, Broker("b1")
    sequence = old.sequences()[-1] + sender.lane.window[-1].count
    old.answer(0)
    sender.run(5.0)
    sender.go_on()
    sender.stopped = True
    assert sender.broker.sequences() == [sequence], "what is new goes to who leads now"
    sender.answer(0)
    assert sender.history.implied == 0
    assert [batch.flying for batch in sender.lane.window] == [True] * 4, "their answers are still to come"


def test_after_a_refusal_all_that_is_unanswered_is_sent_again_in_order(sender) -> None:
    sequences = sender.broker.sequences()
    sender.answer(0)
    sender.stopped = False
    sender.answer(1, RETRIABLE)
    sender.answer(2, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    sender.answer(3, OUT_OF_ORDER)
    sender.retry()
    assert len(sender.broker.taken) == 5, "one is under way"
    sender.answer(4, RETRIABLE)
    sender.retry()
    again = sender.broker.sequences()[5:]
    assert again[:4] == sequences[1:]
    assert again == sorted(again)
    assert sender.bumped == 0
    for place in range(5, 9):
        sender.answer(place)
    assert sender.history.implied == 0
    assert len(sender.history.promised[TAG]) == 5


def test_out_of_order_at_the_head_of_the_line_is_fatal(sender) -> None:
    sender.answer(0)
    sender.answer(1, OUT_OF_ORDER)
    assert sender.bumped == 1
    assert not sender.lane.window
    sender.answer(2)
    assert len(sender.history.promised[TAG]) == 1, "of what was given up nothing is heard any more"
    sender.producer_id = 6
    sender.go_on()
    assert sender.broker.sequences()[5] == 0, "the new id begins at 0"


@pytest.mark.parametrize("error_code", sorted(FATAL - {OUT_OF_ORDER}))
def test_other_fatal_errors_are_fatal_anywhere(sender, error_code) -> None:
    sender.answer(0, RETRIABLE)
    sender.answer(1, error_code)
    assert (sender.bumped, sender.lane.window) == (1, [])


def test_batches_of_an_id_that_is_gone_are_not_sent_again(sender) -> None:
    sender.bump()
    for place in range(4):
        sender.answer(place, RETRIABLE)
    sender.answer(4)
    assert sender.history.implied > 0
    assert not sender.lane.window
    sender.retry()
    assert len(sender.broker.taken) == 5


def test_a_request_that_is_lost_takes_those_behind_it_along() -> None:
    sender = Sender(in_flight=2)
    link = sender.network.link("p", "b0")
    link.cut = True
    sender.answer(0)
    sender.run(50.0)
    assert len(sender.broker.taken) == 2, "that one is lost"
    link.cut = False
    sender.answer(1)
    sender.run(50.0)
    assert len(sender.lane.window) == 2
    assert len(sender.broker.taken) == 2, "and the one behind it, though nothing is wrong with the network any more"
    sequences = [batch.header.base_sequence for batch in sender.lane.window]
    sender.run(PATIENCE_MS + 2 * RETRY_MS)
    assert sender.broker.sequences()[2:] == sequences


def test_requests_take_a_while_to_send() -> None:
    sender = Sender(in_flight=2)
    sender.cluster.shape.transfer_ms = 20.0
    for place in (0, 1):
        sender.answer(place)
    sender.run(15.0)
    assert len(sender.broker.taken) == 2
    sender.run(15.0)
    assert len(sender.broker.taken) == 3, "one has arrived, the next is being sent"
    sender.run(20.0)
    assert len(sender.broker.taken) == 4


def test_answers_count_in_the_order_of_the_requests(sender) -> None:
    sender.answer(1, RETRIABLE)
    sender.answer(2)
    assert not sender.history.refusals
    assert sender.history.acked == 0
    sender.answer(0)
    assert sender.history.refusals == {RETRIABLE: 1}
    assert len(sender.history.promised[TAG]) == 3


@pytest.mark.parametrize("went_back", [False, True])
def test_a_later_batch_at_a_lower_offset_is_noticed(sender, went_back) -> None:
    """After a restore of the store only what is committed at the end says so."""
    sender.history.store_went_back = went_back
    sender.answer(0, base=40)
    sender.broker.answer(1, base=20)
    if went_back:
        sender.run(5.0)
        assert len(sender.history.promised[TAG]) == 2
        return
    with pytest.raises(Violation, match="no reordering"):
        sender.run(5.0)


def test_what_arrives_twice_is_answered_once() -> None:
    sender = Sender(in_flight=1)
    sender.cluster.shape.patience_ms = 5_000.0
    sender.network.repeat = 1.0
    sender.answer(0)
    sender.run(30.0)
    (batch,) = sender.lane.window
    sender.network.heal()
    sender.run(2_500.0)
    assert sender.broker.sequences()[1:] == [batch.header.base_sequence] * 2
    sender.answer(2)
    assert sender.lane.window == [batch], "it came on a connection that is gone"
    sender.answer(1)
    assert sender.lane.window != [batch]


def test_without_idempotence_nothing_is_sent_again() -> None:
    sender = Sender(idempotent=False)
    assert sender.broker.sequences() == [-1]
    sent = crcs(sender)
    sender.answer(0, RETRIABLE)
    assert not sender.lane.window
    sender.retry()
    assert len(sender.broker.taken) == 2
    assert crcs(sender) != sent


def test_a_connection_that_broke_is_given_up_at_once_and_no_other(sender) -> None:
    sender.lane.connection_lost("b1")
    sender.run(5.0)
    assert all(batch.flying for batch in sender.lane.window)
    assert not sender.world.effects["client_reset"]
    sender.lane.connection_lost("b0")
    assert sender.world.effects["client_reset"] == 1
    sender.retry()
    assert sender.broker.sequences()[5:] == sender.broker.sequences()[:5], "long before its patience is over"


def test_a_process_that_is_gone_breaks_the_connection(sender) -> None:
    sender.broker.process.alive = False
    sender.stopped = False
    sender.answer(0)
    sender.run(50.0)
    assert not any(batch.flying for batch in sender.lane.window)
    sender.broker = Broker("b0")
    sender.retry()
    assert sender.broker.sequences() == [batch.header.base_sequence for batch in sender.lane.window]


def test_applications_begin_anew_and_most_windows_have_more_than_one() -> None:
    topic = TopicShape(name="t0", partitions=1, replicas=1, config={"min.insync.replicas": "1"})
    shape = replace(draw(0), brokers=3, operators=1, topics=(topic,), members=0, producers=1, renewal_ms=400.0)
    cluster = SimCluster(World(0), shape)
    cluster.begin()
    cluster.world.run(6_000.0)
    assert len({mark.producer for ledger in cluster.oracles.ledgers.values() for mark in ledger.committed}) > 2
    shapes = [draw(seed) for seed in range(200)]
    assert {shape.in_flight for shape in shapes} == {1, 2, 3, 4, 5}
    assert sum(shape.in_flight > 1 for shape in shapes) > 150
    assert {shape.renewal_ms for shape in shapes} == {0.0, 600.0, 2_000.0}
