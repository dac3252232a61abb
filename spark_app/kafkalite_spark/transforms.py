"""Pure functions from DataFrame to DataFrame: no session, no source, no sink."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as f
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FLIGHT = StructType(
    [
        StructField("carrier", StringType()),
        StructField("origin", StringType()),
        StructField("dest", StringType()),
        StructField("flight", IntegerType()),
        StructField("year", IntegerType()),
        StructField("month", IntegerType()),
        StructField("day", IntegerType()),
        StructField("dep_delay", IntegerType()),
    ]
)


def audit(records: DataFrame) -> DataFrame:
    """What the offsets of each partition say.

    Args:
        records: (partition int, offset long, …) in the order in which the source delivered them.

    Returns:
        One row per partition: partition, first, last (offsets), records, missing (offsets between first and last
        that are not there), duplicated (records beyond one per offset), out_of_order (records whose offset is not above
        that of the record delivered before).
    """
    delivered = records.select("partition", "offset", f.monotonically_increasing_id().alias("delivery"))
    before = f.lag("offset").over(Window.partitionBy("partition").orderBy("delivery"))
    summary = (
        delivered.withColumn("before", before)
        .groupBy("partition")
        .agg(
            f.min("offset").alias("first"),
            f.max("offset").alias("last"),
            f.count("*").alias("records"),
            f.countDistinct("offset").alias("distinct"),
            f.count_if(f.col("offset") <= f.col("before")).alias("out_of_order"),
        )
    )
    return summary.select(
        "partition",
        "first",
        "last",
        "records",
        (f.col("last") - f.col("first") + 1 - f.col("distinct")).alias("missing"),
        (f.col("records") - f.col("distinct")).alias("duplicated"),
        "out_of_order",
    ).orderBy("partition")


def with_bounds(audited: DataFrame, bounds: DataFrame) -> DataFrame:
    """`audit` beside what the broker says that the partition holds.

    Args:
        audited: rows of `audit`.
        bounds: (partition, earliest, latest): the first offset and the one behind the last.

    Returns:
        The columns of both, a row for every partition of `bounds`, and ok: records = latest - earliest, the first and
        the last offset are the bounds, nothing is missing, duplicated or out of order.
    """
    counts = ("records", "missing", "duplicated", "out_of_order")
    joined = bounds.join(audited, "partition", "left").fillna(0, list(counts))
    size = f.col("latest") - f.col("earliest")
    empty = (size == 0) & (f.col("records") == 0)
    whole = (
        (f.col("records") == size)
        & (f.col("first") == f.col("earliest"))
        & (f.col("last") == f.col("latest") - 1)
        & (f.col("missing") + f.col("duplicated") + f.col("out_of_order") == 0)
    )
    return joined.withColumn("ok", empty | f.coalesce(whole, f.lit(False))).orderBy("partition")


def flights(records: DataFrame) -> DataFrame:
    """Records of the flights topic as columns of `FLIGHT`, with departure: the record's timestamp."""
    parsed = f.from_json(f.col("value").cast("string"), FLIGHT, {"mode": "FAILFAST"})
    return records.select(parsed.alias("flight"), f.col("timestamp").alias("departure")).select("flight.*", "departure")


def delays_by_origin_and_month(flown: DataFrame) -> DataFrame:
    """Scheduled flights, departures and mean delay in minutes, per origin and month; cancelled ones did not depart.

    The month is that of the table, New York's: a flight at 20:00 on the last of a month is in the next one in UTC.
    """
    return (
        flown.groupBy("origin", "month")
        .agg(
            f.count("*").alias("scheduled"),
            f.count("dep_delay").alias("departures"),
            f.avg("dep_delay").alias("mean_delay"),
        )
        .orderBy("origin", "month")
    )


def displaced(flown: DataFrame) -> DataFrame:
    """Flights whose event time, in New York, is not on the date of their columns: none, unless zones got mixed up."""
    local = f.from_utc_timestamp(f.col("departure"), "America/New_York")
    return flown.where(f.to_date(local) != f.make_date("year", "month", "day"))
