"""The batch jobs: read a topic, prove that it is whole, report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalite_spark.session import read_topic
from kafkalite_spark.transforms import audit, delays_by_origin_and_month, displaced, flights, with_bounds

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class NoTopicError(Exception):
    """There is nothing to prove: the topic does not exist. That is no topic which is whole."""


BOUNDS = "partition int, earliest long, latest long"


def topic_bounds(spark: SparkSession, bootstrap: str, topic: str) -> dict[str, dict[str, int]]:
    """First and end offset of every partition, asked of the brokers through the JVM's own Kafka client.

    Returns:
        {"starting": {partition: earliest}, "ending": {partition: latest}}

    Raises:
        NoTopicError: nobody there knows it.
    """
    jvm = spark._jvm  # noqa: SLF001 - pyspark has no public door to the classes of its jars
    assert jvm is not None
    settings = jvm.java.util.HashMap()
    settings.put("bootstrap.servers", bootstrap)
    deserializer = jvm.org.apache.kafka.common.serialization.ByteArrayDeserializer
    consumer = jvm.org.apache.kafka.clients.consumer.KafkaConsumer(settings, deserializer(), deserializer())
    try:
        partitions = jvm.java.util.ArrayList()
        for info in consumer.partitionsFor(topic):
            partitions.add(jvm.org.apache.kafka.common.TopicPartition(topic, info.partition()))
        if partitions.isEmpty():
            raise NoTopicError(f"topic {topic} does not exist on {bootstrap}")
        earliest, latest = consumer.beginningOffsets(partitions), consumer.endOffsets(partitions)
        return {
            "starting": {str(p.partition()): int(earliest[p]) for p in partitions},
            "ending": {str(p.partition()): int(latest[p]) for p in partitions},
        }
    finally:
        consumer.close()


def audit_topic(spark: SparkSession, bootstrap: str, topic: str) -> tuple[DataFrame, DataFrame, bool]:
    """Prove a topic whole: (its records, the audit's rows, whether every partition is ok).

    The bounds are asked for first and then read exactly: what is produced meanwhile does not blur the proof.
    """
    offsets = topic_bounds(spark, bootstrap, topic)
    records = read_topic(spark, bootstrap, topic, offsets)
    rows = [(int(p), first, offsets["ending"][p]) for p, first in offsets["starting"].items()]
    proof = with_bounds(audit(records), spark.createDataFrame(rows, BOUNDS)).cache()
    return records, proof, proof.where("not ok").isEmpty()


def run_audit(spark: SparkSession, bootstrap: str, topic: str) -> bool:
    """Print the audit of a topic; returns whether it is whole."""
    _, proof, whole = audit_topic(spark, bootstrap, topic)
    show(proof)
    return verdict(topic, proof, whole=whole)


def run_flights(spark: SparkSession, bootstrap: str, topic: str) -> bool:
    """Print departures and mean delay per origin and month, and the audit; returns whether the topic is whole."""
    records, proof, whole = audit_topic(spark, bootstrap, topic)
    flown = flights(records).cache()
    show(delays_by_origin_and_month(flown))
    show(proof)
    shifted = displaced(flown).count()
    if shifted:
        print(f"{shifted:,} flights have an event time on another day than their columns")  # noqa: T201
    return verdict(topic, proof, whole=whole) and not shifted


def show(rows: DataFrame) -> None:
    """Print all rows of a small table; decimal numbers with two digits."""
    from pyspark.sql import functions as f

    decimals = {name for name, kind in rows.dtypes if kind == "double"}
    rows.select([f.round(name, 2).alias(name) if name in decimals else f.col(name) for name in rows.columns]).show(1000)


def verdict(topic: str, proof: DataFrame, *, whole: bool) -> bool:
    """Print the verdict line; returns `whole`."""
    totals = proof.selectExpr("count(*)", "sum(records)", "sum(missing)", "sum(duplicated)", "sum(out_of_order)").head()
    assert totals is not None
    partitions, *sums = totals
    records, missing, duplicated, unordered = (value or 0 for value in sums)
    print(  # noqa: T201 - a report's standard output
        f"{'OK' if whole else 'BROKEN'}: {topic}: {partitions} partitions, {records:,} records, "
        f"{missing:,} missing, {duplicated:,} duplicated, {unordered:,} out of order"
    )
    return whole
