"""Acknowledgement bookkeeping, and a whole run against the mock cluster that librdkafka carries."""

import threading

import pytest
from confluent_kafka import Producer

from kafkalite_cli.verify.acks import Acks
from kafkalite_cli.verify.load import Load, LoadError


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


def test_waiting_for_acknowledgements_ends_when_they_come():
    acks = Acks()
    assert not acks.wait(1, 0.0)
    waiter = threading.Thread(target=acks.wait, args=(1, 30.0))
    waiter.start()
    acks.acknowledge(0, 0, 1, 2)
    waiter.join(10)
    assert not waiter.is_alive()


@pytest.fixture
def mock_bootstrap():
    """A cluster of three inside librdkafka; it lives as long as the producer that made it."""
    owner = Producer({"test.mock.num.brokers": 3, "bootstrap.servers": "ignored", "log_level": 0})
    metadata = owner.list_topics(timeout=10)
    owner.list_topics("load", timeout=10)  # the mock makes the topic, with four partitions
    yield ",".join(f"{broker.host}:{broker.port}" for broker in metadata.brokers.values())
    owner.flush(0)


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
