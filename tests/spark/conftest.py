"""A local session for the whole tier; without pyspark or Java the tier is skipped, with the reason."""

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


REASON = missing()
if REASON:
    collect_ignore_glob = ["test_transforms.py", "test_command.py"]  # test_tier.py says why


def pytest_collection_modifyitems(items):
    """Py4J leaves its sockets to the garbage collector, at any time later."""
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"))
            item.add_marker(pytest.mark.filterwarnings("ignore:.*<socket:pytest.PytestUnraisableExceptionWarning"))


@pytest.fixture(scope="session")
def reason():
    return REASON


@pytest.fixture(scope="session")
def spark():
    from kafkalite_spark.session import build_session

    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    session = build_session("tests", jars=None, master="local[2]")
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()
