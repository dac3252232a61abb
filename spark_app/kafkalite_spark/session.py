"""The Spark session: where the connector's jars are, and that time means UTC."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

CONNECTOR = "spark-sql-kafka-0-10_2.13-*.jar"
CHECKOUT = Path(__file__).resolve().parents[2] / ".cache" / "spark-jars"


class JarsMissingError(Exception):
    """The Kafka connector is not on this machine; the text says how to get it."""


def jar_directory() -> Path | None:
    """Where the connector's jars are; None inside an image whose Spark has them among its own.

    Raises:
        JarsMissingError: they are nowhere.
    """
    spark_home = Path(os.environ.get("SPARK_HOME", "/nonexistent"))
    if any(spark_home.joinpath("jars").glob(CONNECTOR)):
        return None
    directory = Path(os.environ.get("KAFKALITE_SPARK_JARS", CHECKOUT))
    if not any(directory.glob(CONNECTOR)):
        raise JarsMissingError(
            f"no Kafka connector in {directory}: run spark_app/fetch_jars.sh (needs Java 17 and Maven)"
        )
    return directory


def build_session(name: str, *, jars: Path | None, master: str | None = None) -> SparkSession:
    """A session whose timestamps and dates are UTC, whatever the machine's time zone is.

    `master` None leaves the choice to spark-submit, and takes two local threads outside of it.
    """
    builder = SparkSession.builder.appName(name).config("spark.sql.session.timeZone", "UTC")
    builder = builder.config("spark.ui.enabled", "false").config("spark.ui.showConsoleProgress", "false")
    builder = builder.config("spark.sql.shuffle.partitions", "4")
    if jars is not None:
        builder = builder.config("spark.jars", ",".join(str(jar) for jar in sorted(jars.glob("*.jar"))))
    if master is not None:
        builder = builder.master(master)
    elif "SPARK_ENV_LOADED" not in os.environ and "KUBERNETES_SERVICE_HOST" not in os.environ:
        builder = builder.master("local[2]").config("spark.driver.host", "127.0.0.1")
    return builder.getOrCreate()


def read_topic(
    spark: SparkSession, bootstrap: str, topic: str, offsets: dict[str, dict[str, int]] | None = None
) -> DataFrame:
    """The records of a topic as a batch: key, value, topic, partition, offset, timestamp.

    `offsets` is {"starting": {partition: first}, "ending": {partition: behind the last}}; None: all there is now.
    """
    import json

    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic)
    for end, name in (("starting", "startingOffsets"), ("ending", "endingOffsets")):
        fallback = "earliest" if end == "starting" else "latest"
        reader = reader.option(name, json.dumps({topic: offsets[end]}) if offsets else fallback)
    return reader.option("failOnDataLoss", "true").load()
