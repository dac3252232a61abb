"""The audit finds each defect; the report's figures are those that pandas computes from the same table."""

import json
from datetime import UTC, datetime

import pytest

from kafkalite_spark.transforms import audit, delays_by_origin_and_month, displaced, flights, with_bounds

RECORDS = "partition int, offset long"
BOUNDS = "partition int, earliest long, latest long"


def audited(spark, rows):
    return {row.partition: row for row in audit(spark.createDataFrame(rows, RECORDS).coalesce(1)).collect()}


def proven(spark, rows, bounds):
    found = with_bounds(audit(spark.createDataFrame(rows, RECORDS).coalesce(1)), spark.createDataFrame(bounds, BOUNDS))
    return {row.partition: row.ok for row in found.collect()}


def test_a_whole_partition_has_no_defect(spark):
    row = audited(spark, [(0, offset) for offset in range(5, 105)])[0]
    assert (row["first"], row["last"], row.records) == (5, 104, 100)
    assert (row.missing, row.duplicated, row.out_of_order) == (0, 0, 0)


@pytest.mark.parametrize(
    ("offsets", "missing", "duplicated", "out_of_order"),
    [([0, 1, 3, 4], 1, 0, 0), ([0, 1, 1, 2], 0, 1, 1), ([0, 2, 1, 3], 0, 0, 1), ([0, 5, 5], 4, 1, 1)],
)
def test_defects_are_counted_per_partition(spark, offsets, missing, duplicated, out_of_order):
    rows = audited(spark, [(7, offset) for offset in offsets] + [(1, 0), (1, 1)])
    assert (rows[7].missing, rows[7].duplicated, rows[7].out_of_order) == (missing, duplicated, out_of_order)
    assert (rows[1].missing, rows[1].duplicated, rows[1].out_of_order) == (0, 0, 0)


def test_what_was_read_must_fill_the_bounds(spark):
    whole = [(0, 3), (0, 4), (0, 5)]
    assert proven(spark, whole, [(0, 3, 6)]) == {0: True}
    assert proven(spark, whole, [(0, 3, 7)]) == {0: False}
    assert proven(spark, whole, [(0, 2, 6)]) == {0: False}
    assert proven(spark, whole, [(0, 2, 5)]) == {0: False}
    assert proven(spark, [(0, 3), (0, 5), (0, 4)], [(0, 3, 6)]) == {0: False}
    assert proven(spark, [(0, 3), (0, 3), (0, 5)], [(0, 3, 6)]) == {0: False}
    assert proven(spark, whole, [(0, 3, 6), (1, 9, 9), (2, 0, 1)]) == {0: True, 1: True, 2: False}


RAW = "value binary, timestamp timestamp, partition int, offset long"


def flight(departure, **columns):
    return (bytearray(json.dumps(columns).encode()), departure, 0, 0)


def test_event_times_are_utc_and_months_are_new_yorks(spark):
    late = datetime(2013, 2, 1, 1, 0, tzinfo=UTC)  # 20:00 on 31 January in New York
    rows = [flight(late, origin="JFK", year=2013, month=1, day=31, dep_delay=4)]
    flown = flights(spark.createDataFrame(rows, RAW))
    assert [tuple(row) for row in delays_by_origin_and_month(flown).collect()] == [("JFK", 1, 1, 1, 4.0)]
    assert displaced(flown).count() == 0
    moved = [flight(late, origin="JFK", year=2013, month=2, day=1, dep_delay=4)]
    assert displaced(flights(spark.createDataFrame(moved, RAW))).count() == 1


def test_cancelled_flights_count_as_scheduled_only(spark):
    at = datetime(2013, 1, 1, 12, tzinfo=UTC)
    day = {"origin": "EWR", "year": 2013, "month": 1, "day": 1}
    rows = [flight(at, **day, dep_delay=delay) for delay in (None, 10, -4)]
    report = delays_by_origin_and_month(flights(spark.createDataFrame(rows, RAW))).collect()
    assert [tuple(row) for row in report] == [("EWR", 1, 3, 2, 3.0)]


def test_a_value_that_is_no_flight_stops_the_report(spark):
    rows = [(bytearray(b"{not json"), datetime(2013, 1, 1, tzinfo=UTC), 0, 0)]
    with pytest.raises(Exception, match="MALFORMED_RECORD"):
        flights(spark.createDataFrame(rows, RAW)).collect()


def test_the_report_agrees_with_pandas_on_the_whole_year(spark, tmp_path):
    import flights as source
    import pandas as pd

    with (tmp_path / "records.jsonl").open("w") as file:
        for record in source.flights():
            row = {"value": record.value.decode(), "milliseconds": record.timestamp_ms}
            file.write(json.dumps(row) + "\n")
    raw = spark.read.schema("value string, milliseconds long").json(str(tmp_path / "records.jsonl"))
    flown = flights(raw.selectExpr("value", "timestamp_millis(milliseconds) as timestamp")).cache()
    found = {(row.origin, row.month): row for row in delays_by_origin_and_month(flown).collect()}

    table = pd.read_csv(source.table_path())
    expected = table.groupby(["origin", "month"])["dep_delay"].agg(["size", "count", "mean"])
    assert len(found) == len(expected) == 36
    for key, (scheduled, departures, mean) in zip(expected.index, expected.to_numpy(), strict=True):
        assert (found[key].scheduled, found[key].departures) == (scheduled, departures)
        assert found[key].mean_delay == pytest.approx(mean, rel=1e-12)
    assert displaced(flown).count() == 0
    flown.unpersist()
