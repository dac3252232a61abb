"""Acknowledgement bookkeeping, and a whole run against the mock cluster that librdkafka carries."""

import threading
import time
from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from kafkalite_cli.verify import observer, reading
from kafkalite_cli.verify.acks import Acks
from kafkalite_cli.verify.history import (
    FINAL_READ,
    OFFSET_UNKNOWN,
    Ack,
    Altered,
    Assign,
    Failed,
    Foreign,
    Read,
    Unknown,
    Unnamed,
    Watermark,
    encode_value,
)
from kafkalite_cli.verify.load import Load, LoadError
from kafkalite_cli.verify.observer import EndObserver
from kafkalite_cli.verify.reading import Reader, end_offset


def test_first_acknowledgement_after_a_fault_counts_only_for_records_sent_after_it():
    acks = Acks()
    acks.watch(1000, [0, 1])
    acks.acknowledge(0, 5, 900, 1100)
    assert acks.first_after(1000, [0, 1]) == {0: None, 1: None}
    acks.acknowledge(0, 6, 1001, 1500)
    acks.acknowledge(0, 7, 1002, 1600)
    acks.acknowledge(2, 7, 1002, 1600)
    assert acks.first_after(1000, [0, 1]) == {0: 1500, 1: None}
    assert acks.longest_gap_s == 400e-6
    assert acks.highest == {0: 7, 2: 7}


def test_faults_are_told_apart_whatever_comes_between_them():
    acks = Acks()
    for instant in (1000, 2000):
        acks.watch(instant, [0])
    acks.watch(2500, [])
    acks.acknowledge(0, 1, 1500, 2600)
    assert [acks.first_after(instant, [0]) for instant in (1000, 2000)] == [{0: 2600}, {0: None}]
    acks.acknowledge(0, 2, 2100, 2700)
    acks.acknowledge(0, 3, 2200, 2800)
    assert [acks.first_after(instant, [0]) for instant in (1000, 2000)] == [{0: 2600}, {0: 2700}]


def test_waiting_for_acknowledgements_ends_when_they_come():
    acks = Acks()
    assert not acks.wait(1, 0.0)
    waiter = threading.Thread(target=acks.wait, args=(1, 30.0))
    waiter.start()
    acks.acknowledge(0, 0, 1, 2)
    waiter.join(10)
    assert not waiter.is_alive()


class Asked:
    """A client whose first questions are answered by errors."""

    def __init__(self, *codes):
        self.codes = list(codes)

    def get_watermark_offsets(self, partition, timeout):
        if self.codes:
            raise KafkaException(KafkaError(self.codes.pop(0)))
        return 0, 7


def test_the_end_of_a_partition_is_asked_for_until_it_has_a_leader():
    moved = Asked(KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE, KafkaError._TIMED_OUT)
    assert end_offset(moved, TopicPartition("t", 0)) == 7
    with pytest.raises(KafkaException, match="TOPIC_AUTHORIZATION_FAILED"):
        end_offset(Asked(KafkaError.TOPIC_AUTHORIZATION_FAILED), TopicPartition("t", 0))
    with pytest.raises(KafkaException, match="NOT_LEADER"):
        end_offset(Asked(KafkaError.NOT_LEADER_FOR_PARTITION), TopicPartition("t", 0), timeout_s=-1.0)


def test_a_run_reads_back_what_was_acknowledged(mock_bootstrap, tmp_path):
    load = Load(mock_bootstrap, "load", 0, keys=8, count=500, history=tmp_path / "run.jsonl")
    with load:
        load.wait_acks(100, 20)
        instant = load.fault("nothing happened", [0, 1])
        assert load.wait_produced(30)
    report = load.report()
    assert report.counts == {}
    assert (report.acked, report.unknown, report.read) == (500, 0, 500 + load.received)
    assert instant > 0


def test_a_load_does_not_ask_again_and_again_between_its_records():
    waited = []

    class Counting:
        def __len__(self):
            return 0

        def poll(self, timeout):
            waited.append(timeout)

        def produce(self, *_arguments, **_more):
            pass

    load = Load("h:1", "load", 2000, partitions=1, count=200)
    load._produce(Counting(), 0)
    # In whole milliseconds, which is what the client knows: with less it returns at once, and a core is gone.
    assert [timeout for timeout in waited if 0 < timeout < 0.001] == []
    assert len(waited) <= 3 * 200, waited


class Given:
    """A client that is given messages made by hand."""

    def __init__(self, config):
        self.messages = []

    def assign(self, partitions):
        self.partitions = partitions

    def consume(self, count, timeout):
        given, self.messages = self.messages, []
        return given


def message(offset, value, key=b"key-1-2"):
    known = {"error": None, "partition": 0, "offset": offset, "value": value, "key": key}
    return SimpleNamespace(**{name: (lambda answer=answer: answer) for name, answer in known.items()})


def test_a_record_is_read_only_with_the_bytes_that_were_sent(monkeypatch):
    monkeypatch.setattr(reading, "Consumer", Given)
    events = []
    recorder = SimpleNamespace(record=events.append)
    reader = Reader({}, "load", 0, {0: 7}, run="run", size=100, recorder=recorder, note_error=print)
    sent = encode_value("run", 1, 2, 3, 100)
    spoilt = sent[:-1] + b"X"
    others = [spoilt, sent[:-1], sent + b"."]
    reader._consumer.messages = [message(7, sent), message(8, sent, b"key-1-3"), message(9, b"somebody else's")]
    reader._consumer.messages += [message(10 + number, value) for number, value in enumerate(others)]
    unnamed = [sent.replace(b" 1 2 3 ", numbers) for numbers in (b" 1 x 3 ", b" 91111 2 3 ")]
    reader._consumer.messages += [message(13 + number, value) for number, value in enumerate(unnamed)]
    reader.take()
    kinds = [Assign, Read, Altered, Foreign, Altered, Altered, Altered, Unnamed, Unnamed]
    assert [type(event) for event in events] == kinds
    assert (reader.positions, reader.received) == ({0: 15}, 7)


def test_a_reader_that_stands_still_is_waited_for_and_told(mock_bootstrap, monkeypatch):
    """What the final read finds says nothing of who reads while the load goes on."""
    take = Reader.take

    def stands_still(reader):
        if reader._number == FINAL_READ:
            take(reader)
        else:
            time.sleep(0.05)

    load = Load(mock_bootstrap, "load", 0, keys=8, count=5000)
    load.start()
    load.wait_produced(30)
    monkeypatch.setattr(Reader, "take", stands_still)
    late = Load(mock_bootstrap, "load", 500, keys=8)
    late.start()
    late.wait_acks(300, 20)
    late.stop(6.0)  # the final read has as long
    assert late.report().ok
    assert sum(late.unread.values()) > 0
    monkeypatch.setattr(Reader, "take", take)
    load.stop(20.0)
    assert load.unread == {}
    assert load.received == 5000


def test_an_observer_that_is_to_stop_asks_nothing_more(monkeypatch):
    """Where no broker answers, each question takes its whole time: of many partitions they are minutes."""
    asked = []

    class Unanswered:
        def __init__(self, _config):
            pass

        def get_watermark_offsets(self, partition, timeout, cached):
            asked.append(partition.partition)
            observing.stop()
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

        def close(self):
            pass

    monkeypatch.setattr(observer, "Consumer", Unanswered)
    noted = []
    recorder = SimpleNamespace(record=None)
    observing = EndObserver({}, "load", 24, recorder, every_s=0.0, note_error=noted.append)
    observing.run()
    assert asked == [0]
    assert [error.code() for error in noted] == [KafkaError._TIMED_OUT]


def test_an_observer_asks_for_the_ends_of_all_partitions(mock_bootstrap):
    with Load(mock_bootstrap, "load", 500, keys=4, observe_s=0.01) as load:
        load.wait_acks(100, 20)
        wanted = {0, 1, 2, 3}
        limit = time.monotonic() + 20
        while time.monotonic() < limit and {e.partition for e in watermarks(load)} != wanted:
            load.wait_acks(load.acks.count + 1, 20)
    told = watermarks(load)
    assert {event.partition for event in told} == wanted
    assert all(event.invoked_us <= event.at_us for event in told)
    assert load.report().counts == {}
    regressed = Watermark(0, told[-1].partition, 0, told[-1].at_us + 10**6, told[-1].at_us + 10**6)
    load.recorder.record(regressed)
    assert load.report().counts == {"watermark-regressed": 1}


def watermarks(load):
    return [event for event in load.recorder.events if isinstance(event, Watermark)]


def test_a_record_that_is_refused_for_its_size_is_a_failed_one(mock_bootstrap):
    """The mock cluster takes anything; the client itself refuses to send what is above its own limit."""
    with Load(mock_bootstrap, "load", 500, keys=4) as load:
        load.wait_acks(10, 20)
    assert not [event for event in load.recorder.events if isinstance(event, Failed)]
    outcomes = {type(event) for event in outcomes_of(load, KafkaError.MSG_SIZE_TOO_LARGE)}
    assert outcomes == {Failed}
    assert {type(event) for event in outcomes_of(load, KafkaError._MSG_TIMED_OUT)} == {Unknown}
    assert load.too_large == 1
    assert {type(event) for event in outcomes_of(load, KafkaError.RECORD_LIST_TOO_LARGE)} == {Failed}
    assert load.too_large == 2, "a whole batch that is refused, too"
    (acked,) = outcomes_of(load, None)
    assert (type(acked), acked.offset) == (Ack, OFFSET_UNKNOWN), "the client was not told the offset"


def outcomes_of(load, code):
    """What is recorded when a client reports this error for a record."""

    class Client:
        def produce(self, *_arguments, on_delivery, **_options):
            on_delivery(KafkaError(code) if code is not None else None, SimpleNamespace(offset=lambda: None))

    before = len(load.recorder.events)
    load._send(Client(), {}, 0, 0, 1)
    return load.recorder.events[before:]


def test_pauses_need_an_acknowledgement_of_every_partition(mock_bootstrap):
    with Load(mock_bootstrap, "load", 500, keys=4) as load:
        load.wait_acks(20, 20)
        instant = load.fault("kill", [0, 1, 2, 3])
        pauses = load.pauses_after(instant, [0, 1, 2, 3], 20)
        assert set(pauses) == {0, 1, 2, 3}
        assert all(0 < pause < 20 for pause in pauses.values())
        assert load.pause_after(instant, [0, 1]) == max(pauses[0], pauses[1])
        with pytest.raises(LoadError, match="acknowledged nothing"):
            load.pauses_after(load.fault("kill", [99]), [99], 0.05)
    assert load.report().ok
    assert load.report().pauses[0].pause_ms == pytest.approx(max(pauses.values()) * 1000, abs=0.01)


def test_a_topic_with_too_few_partitions_is_named(mock_bootstrap):
    with pytest.raises(LoadError, match="'load' has 4 partitions"):
        Load(mock_bootstrap, "load", partitions=99).start()


def test_numbers_out_of_range_are_refused():
    with pytest.raises(LoadError, match="out of range"):
        Load("127.0.0.1:1", "load", keys=0)
