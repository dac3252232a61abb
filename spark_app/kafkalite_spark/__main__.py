"""`python -m kafkalite_spark flights --bootstrap 127.0.0.1:9092`. Exit code 1: not whole; 2: cannot be read."""

from __future__ import annotations

import argparse
import contextlib
import sys


def main(arguments: list[str] | None = None) -> int:
    """Run one job. What nobody foresaw is 2, too: 1 says that records are missing, and nothing else may say that."""
    options = _parse(arguments)
    try:
        import pyspark  # noqa: F401
    except ImportError:
        return _fail("pyspark is not installed: pip install 'kafkalite[spark]' (700 MB, needs Java 17)")

    from kafkalite_spark.jobs import NoTopicError, run_audit, run_flights
    from kafkalite_spark.session import JarsMissingError, build_session, jar_directory

    try:
        jars = jar_directory()
    except JarsMissingError as error:
        return _fail(str(error))
    from pyspark.errors import PySparkRuntimeError

    try:
        spark = build_session(f"kafkalite-{options.job}", jars=jars, master=options.master)
        spark.sparkContext.setLogLevel("ERROR")
    except PySparkRuntimeError as error:  # Spark found no Java, or one that is too old, or no such kind of master
        master = f", and {options.master!r} to be a master that it knows" if options.master else ""
        return _fail(f"Spark does not start: {error}. It needs Java 17 or newer (JAVA_HOME){master}")
    except Exception as error:
        return _fail(f"Spark does not start: {_words(error)}")
    run = run_audit if options.job == "audit" else run_flights
    try:
        return 0 if run(spark, options.bootstrap, options.topic) else 1
    except NoTopicError as error:
        return _fail(str(error))
    except Exception as error:
        return _fail(f"{options.topic} on {options.bootstrap}: {_words(error)}")
    finally:
        with contextlib.suppress(Exception):  # a JVM that is gone needs no end
            spark.stop()


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="kafkalite_spark", description="Batch jobs on committed records.")
    jobs = parser.add_subparsers(dest="job", required=True)
    for name, topic, text in (
        ("audit", None, "prove per partition that offsets have no gap, no duplicate and are in order"),
        ("flights", "flights", "departures and mean delay per origin and month, with the audit"),
    ):
        job = jobs.add_parser(name, help=text, description=text)
        job.add_argument("--bootstrap", default="127.0.0.1:9092", help="addresses of brokers (%(default)s)")
        job.add_argument("--topic", default=topic, required=topic is None)
        job.add_argument("--master", help="Spark master; default: spark-submit's, or local[2] outside of it")
    return parser.parse_args(arguments)


def _words(error: Exception) -> str:
    """What went wrong, in one line if it can be: of an exception in Java what that says, not the stack."""
    from py4j.protocol import Py4JError, Py4JJavaError
    from pyspark.errors import PySparkException

    if isinstance(error, Py4JJavaError):
        with contextlib.suppress(Exception):  # the question goes to the JVM
            return str(error.java_exception.toString())
    if isinstance(error, Py4JError | ConnectionError) and not isinstance(error, Py4JJavaError):
        return f"Spark's JVM does not answer ({error}): was it killed, perhaps for want of spark.driver.memory?"
    return str(error) if isinstance(error, PySparkException) else f"{type(error).__name__}: {error}"


def _fail(text: str) -> int:
    sys.stderr.write(f"error: {text}\n")
    return 2


if __name__ == "__main__":
    sys.exit(main())
