"""Exit codes of the Spark jobs, with a Spark made by hand: 1 says that a topic is not whole, and nothing else may."""

import sys
from types import ModuleType, SimpleNamespace

import pytest

from kafkalite_spark import __main__ as command


class Py4JError(Exception):
    """As py4j's: the answer of a JVM that is gone."""


class Py4JJavaError(Py4JError):
    """As py4j's: an exception in Java, of which the JVM is asked when it is told."""

    def __init__(self, said):
        super().__init__("An error occurred while calling o1.count.\n: a stack")
        self.java_exception = SimpleNamespace(toString=said)


class PySparkException(Exception):
    """As pyspark's."""


class PySparkRuntimeError(PySparkException):
    """As pyspark's."""


class NoTopicError(Exception):
    """As the jobs'."""


class JarsMissingError(Exception):
    """As the session's."""


def says(text):
    return lambda: text


def fails(error):
    def fail(*_arguments, **_options):
        raise error

    return fail


@pytest.fixture
def spark(monkeypatch):
    """`spark.start`, `spark.run` and `spark.stop` are what happens then."""
    spark = SimpleNamespace(stopped=0, run=says(True))
    session = SimpleNamespace(sparkContext=SimpleNamespace(setLogLevel=lambda _level: None))

    def stop():
        spark.stopped += 1

    session.stop = stop
    spark.session, spark.start = session, says(session)
    modules = {
        "pyspark": {},
        "pyspark.errors": {"PySparkException": PySparkException, "PySparkRuntimeError": PySparkRuntimeError},
        "py4j": {},
        "py4j.protocol": {"Py4JError": Py4JError, "Py4JJavaError": Py4JJavaError},
        "kafkalite_spark.jobs": {
            "NoTopicError": NoTopicError,
            "run_audit": lambda *_arguments: spark.run(),
            "run_flights": lambda *_arguments: spark.run(),
        },
        "kafkalite_spark.session": {
            "JarsMissingError": JarsMissingError,
            "jar_directory": says(None),
            "build_session": lambda *_arguments, **_options: spark.start(),
        },
    }
    for name, content in modules.items():
        module = ModuleType(name)
        vars(module).update(content)
        monkeypatch.setitem(sys.modules, name, module)
    return spark


@pytest.mark.parametrize(("whole", "code"), [(True, 0), (False, 1)])
def test_a_topic_is_whole_or_not(spark, whole, code):
    spark.run = says(whole)
    assert command.main(["audit", "--topic", "orders"]) == code
    assert spark.stopped == 1


GONE = "Spark's JVM does not answer (An error occurred while calling o57.count): was it killed"


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (NoTopicError("topic orders does not exist on there:1"), "topic orders does not exist on there:1"),
        (Py4JJavaError(says("org.apache.Timeout: no answer")), "orders on there:1: org.apache.Timeout: no answer"),
        (Py4JJavaError(fails(Py4JError("gone"))), "orders on there:1: Py4JJavaError: An error occurred while calling"),
        (Py4JError("An error occurred while calling o57.count"), f"orders on there:1: {GONE}"),
        (ConnectionRefusedError(111, "Connection refused"), "orders on there:1: Spark's JVM does not answer"),
        (PySparkException("[PATH_NOT_FOUND]"), "orders on there:1: [PATH_NOT_FOUND]"),
        (KeyError("0"), "orders on there:1: KeyError: '0'"),
    ],
)
def test_whatever_ends_a_job_is_no_verdict_on_the_topic(spark, capsys, error, said):
    spark.run = fails(error)
    spark.session.stop = fails(Py4JError("the JVM that is gone cannot be stopped"))
    assert command.main(["audit", "--topic", "orders", "--bootstrap", "there:1"]) == 2
    assert capsys.readouterr().err.startswith(f"error: {said}")


def test_a_verdict_stands_whatever_the_end_of_the_session_says(spark):
    spark.run, spark.session.stop = says(False), fails(Py4JError("gone"))
    assert command.main(["flights"]) == 1


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (Py4JJavaError(says("SparkException: Could not parse Master URL: 'foo'")), "SparkException: Could not parse"),
        (
            PySparkRuntimeError("[JAVA_GATEWAY_EXITED]"),
            "[JAVA_GATEWAY_EXITED]. It needs Java 17 or newer (JAVA_HOME), and 'foo' to be a master",
        ),
        (FileNotFoundError(2, "No such file or directory"), "FileNotFoundError: [Errno 2] No such file"),
    ],
)
def test_a_session_that_does_not_start_is_exit_code_2(spark, capsys, error, said):
    spark.start = fails(error)
    assert command.main(["audit", "--topic", "orders", "--master", "foo"]) == 2
    assert capsys.readouterr().err.startswith(f"error: Spark does not start: {said}")
