"""The API server's absence, with a cluster that is none: what is counted, what a pause is, when an outage is over."""

import json
import threading
from collections import Counter
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest
from confluent_kafka import Consumer, Producer

from bench import failover_api
from bench.client_statistics import COUNTED, ClientStatistics, SilentError
from bench.failover_api import FAILED, counters, happened, renewed, without_api
from bench.failover_lab import HEALED, Result
from tests.chaos.cluster import ChaosError

SCRAPE = """\
# HELP kafka_server_brokertopicmetrics_failedproducerequests_total Batches answered with an error
# TYPE kafka_server_brokertopicmetrics_failedproducerequests_total counter
kafka_server_brokertopicmetrics_failedproducerequests_total 3.0
kafka_server_brokertopicmetrics_failedproducerequests_total{topic="failover"} 2.0
kafka_server_brokertopicmetrics_failedfetchrequests_total 4.0
kafka_server_brokertopicmetrics_failedfetchrequests_total{topic="failover"} 4.0
"""
PRODUCE, FETCH = FAILED.values()


def statistics(client, ts, **broker):
    broker = {"txerrs": 0, "rxerrs": 0, "req_timeouts": 0, "txretries": 0, **broker}
    return json.dumps({"name": f"rdkafka#{client}-1", "type": client, "ts": ts, "brokers": {"a": broker, "b": broker}})


# --- brokers' counters


def test_a_brokers_counters_are_those_of_all_topics_once():
    assert counters(SCRAPE, FAILED.values()) == {PRODUCE: 3.0, FETCH: 4.0}


@pytest.mark.parametrize("name", FAILED.values())
def test_a_counter_that_a_broker_does_not_export_is_not_0(name):
    scrape = "\n".join(line for line in SCRAPE.splitlines() if name not in line)
    with pytest.raises(ChaosError, match=f"a broker exports no {name}"):
        counters(scrape, FAILED.values())


def test_a_counter_of_single_topics_alone_is_none():
    scrape = SCRAPE.replace(f"{FETCH} 4.0\n", "")
    with pytest.raises(ChaosError, match=FETCH):
        counters(scrape, FAILED.values())


# --- clients' statistics


def test_what_clients_count_is_added_up_over_brokers_and_clients(monkeypatch):
    told = ClientStatistics()
    monkeypatch.setattr("bench.client_statistics.time", SimpleNamespace(monotonic_ns=lambda: 7_000_000))
    told.take(statistics("producer", 7_000, txerrs=1, rxerrs=2, req_timeouts=4, txretries=8))
    told.take(statistics("consumer", 7_001, txerrs=0, rxerrs=0, req_timeouts=1, txretries=0))
    assert told.counts(0) == {"client_request_errors": 6, "client_timeouts": 10, "client_retries": 16}
    told.take(statistics("producer", 7_002, txerrs=0, rxerrs=2, req_timeouts=4, txretries=8))
    assert told.counts(0)["client_request_errors"] == 4, "the latest of each client, which adds up by itself"


def test_clients_that_have_not_told_since_have_not_counted_nothing(monkeypatch):
    told = ClientStatistics()
    monkeypatch.setattr("bench.client_statistics.time", SimpleNamespace(monotonic_ns=lambda: 7_000_000))
    told.take(statistics("producer", 7_000))
    told.take(statistics("consumer", 6_999))
    with pytest.raises(SilentError, match="no statistics of consumer within 0 s"):
        told.counts(0)


def test_who_asks_waits_for_what_clients_tell():
    told, asked, found = ClientStatistics(), threading.Event(), []
    later = 2**62

    def ask():
        asked.set()
        found.append(told.counts())

    thread = threading.Thread(target=ask)
    thread.start()
    asked.wait()
    told.take(statistics("producer", later, txretries=1))
    told.take(statistics("consumer", later))
    thread.join()
    assert found == [{"client_request_errors": 0, "client_timeouts": 0, "client_retries": 2}]


def test_librdkafka_tells_all_that_is_counted_by_the_clock_that_is_asked():
    told = ClientStatistics()
    settings = {"bootstrap.servers": "127.0.0.1:1", **told.config, "statistics.interval.ms": 10, "log_level": 0}
    clients = [Producer(settings), Consumer({**settings, "group.id": "g"})]
    stop = threading.Event()

    def poll():
        while not stop.is_set():
            for client in clients:
                client.poll(0.01)

    thread = threading.Thread(target=poll)
    thread.start()
    try:
        assert set(told.counts()) == set(COUNTED)
    finally:
        stop.set()
        thread.join()
        clients[1].close()


# --- outages


class FakeCluster:
    """Whole, and with Leases that are renewed as soon as the API server is back."""

    def __init__(self):
        self.log = SimpleNamespace(counts=lambda: Counter(self.counted), sync=lambda: None)
        self.counted = Counter()
        self.ports = SimpleNamespace(broker_metrics=lambda broker: 9000 + broker)
        self.asked, self.created = 0, []
        self.api = SimpleNamespace(list=self.list, create=lambda _, body: self.created.append(body["metadata"]["name"]),
                                   get=lambda *_: {"status": {"inSync": "9/9"}})  # fmt: skip
        self.renewed_at = None
        self.stuck = ()
        self.refused = 0

    @contextmanager
    def frozen(self, *_):
        yield

    def wait_whole(self, _limit_s):
        pass

    def list(self, _plural):
        self.asked += 1
        if self.asked <= self.refused:
            raise ConnectionRefusedError("not yet")
        names = ["kafkalite-operator", *(f"kafkalite-broker-{number}" for number in range(3))]
        old, new = "2020-01-01T00:00:00.000000Z", (datetime.now(UTC) + timedelta(seconds=1)).isoformat()
        return {"items": [
            {"metadata": {"name": name}, "spec": {"renewTime": old if name in self.stuck else new}} for name in names
        ]}  # fmt: skip


class FakeLoad:
    def __init__(self):
        self.acks, self.received, self.errors = SimpleNamespace(count=0, unknown=0), 0, {}
        self.faults = []

    def fault(self, name, partitions):
        self.faults.append((name, list(partitions)))
        self.acks.count += 10
        return 0.0


@pytest.fixture
def lab(monkeypatch):
    monkeypatch.setattr(failover_api, "RETURN_S", 0)
    monkeypatch.setattr(failover_api, "ASKED_EVERY_S", 0)
    monkeypatch.setattr(failover_api, "random", SimpleNamespace(random=lambda: 0))
    found = SimpleNamespace(cluster=FakeCluster(), load=FakeLoad(), result=Result("api-short", 1, 2, {}))
    found.statistics = SimpleNamespace(
        counts=lambda: Counter(client_request_errors=0, client_timeouts=0, client_retries=0)
    )
    found.say = lambda _: None
    monkeypatch.setattr(failover_api, "failed", lambda _url: dict.fromkeys(FAILED, 5.0))
    return found


def test_each_short_outage_is_a_failure_of_all_partitions_and_what_goes_wrong_is_counted_over_all(lab, monkeypatch):
    lab.cluster.refused = 2
    without_api(lab, [0, 0, 0])
    assert lab.cluster.asked == 2 + 3, "an outage lasts until the Leases are renewed"
    assert lab.load.faults == [("API server away", [0, 1]), (HEALED, [])] * 3
    facts = lab.result.facts
    assert (facts["outages"], len(lab.result.heal_s), facts["elections"]) == (3, 3, 0)
    assert {name: facts[name] for name in (*FAILED, "client_errors", "client_retries", "unknown")} == dict.fromkeys(
        (*FAILED, "client_errors", "client_retries", "unknown"), 0
    )
    assert lab.cluster.created == ["after"], "once, after the last"


def test_what_brokers_and_clients_count_meanwhile_and_what_happens_is_told(lab, monkeypatch):
    values = iter([1.0] * 3 + [2.0, 1.0, 1.0])
    monkeypatch.setattr(
        failover_api, "failed", lambda _url: {"failed_produce_requests": 7.0, "failed_fetch_requests": next(values)}
    )
    retries = iter([2, 5])
    lab.statistics.counts = lambda: {"client_request_errors": 0, "client_timeouts": 0, "client_retries": next(retries)}
    create = lab.cluster.api.create

    def made(plural, body):
        create(plural, body)
        lab.load.errors["_TRANSPORT"] = 2
        lab.cluster.counted.update({"elections/failover": 1, "fencings/2": 1, "restarts/kafkalite-broker-2": 1})

    lab.cluster.api.create = made
    without_api(lab, [0])
    facts = lab.result.facts
    assert (facts["failed_produce_requests"], facts["failed_fetch_requests"]) == (0, 1)
    assert (facts["client_errors"], facts["client_retries"]) == (2, 3)
    assert (facts["elections"], facts["fencings"], facts["restarts"]) == (1, 1, 1)


def test_an_outage_is_not_over_before_the_leases_are_renewed(lab, monkeypatch):
    lab.cluster.refused = 3
    renewed(lab.cluster, datetime.now(UTC), float("inf"))
    assert lab.cluster.asked == 4
    lab.cluster.stuck = ("kafkalite-broker-1",)
    with pytest.raises(ChaosError, match=r"not renewed since the API server is back: kafkalite-broker-1$"):
        renewed(lab.cluster, datetime.now(UTC), 0.0)


def test_a_broker_that_does_not_count_ends_the_run_before_the_api_server_is_harmed(lab, monkeypatch):
    def lacking(_url):
        raise ChaosError("a broker exports no such counter")

    monkeypatch.setattr(failover_api, "failed", lacking)
    with pytest.raises(ChaosError, match="exports no"):
        without_api(lab, [0])
    assert lab.load.faults == []


def test_what_has_happened_is_told_by_kind():
    counted = Counter({"elections/a": 2, "elections/b": 1, "incarnations/0": 1, "isr_shrinks/a": 4, "restarts/x": 1})
    assert happened(counted) == {"elections": 3, "fencings": 0, "restarts": 2}
