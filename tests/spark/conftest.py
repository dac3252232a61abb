"""A local session for the whole tier; without pyspark or Java the tier is skipped with the reason, and fails when CI=true."""

import os
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "spark_app"), str(ROOT / "examples" / "flights")]


def missing():
    """Why Spark cannot run here."""
    if find_spec("pyspark") is None:
        return "pyspark is not installed: pip install 'kafkalite[spark]'"
    if "JAVA_HOME" not in os.environ and shutil.which("java") is None:
        return "Java 17 is not installed"
    return None


if REASON := missing():
    collect_ignore_glob = ["test_*.py"]


def pytest_report_header():
    return f"tests/spark does not run: {REASON}" if REASON else []


def pytest_configure():
    if REASON and os.environ.get("CI") == "true":
        pytest.exit(f"tests/spark cannot run: {REASON}", returncode=1)


@pytest.fixture(scope="session")
def spark():
    from kafkalite_spark.session import build_session

    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    session = build_session("tests", jars=None, master="local[2]")
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()
