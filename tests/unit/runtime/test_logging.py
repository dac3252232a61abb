import io
import json
import logging

import pytest
import structlog

from kafkalite_core.model.errors import ConfigError
from kafkalite_runtime.logging import configure_logging, format_of, get_logger, level_of


@pytest.fixture
def stream():
    root = logging.getLogger()
    before = root.handlers[:], root.level
    yield io.StringIO()
    root.handlers[:], level = before
    root.setLevel(level)
    structlog.reset_defaults()


def test_json_lines_for_us_and_for_libraries(stream):
    configure_logging("broker", "info", json=True, stream=stream)
    get_logger("a.b").bind(partition=3).info("shrunk", isr=[1, 2])
    get_logger("a.b").debug("not shown")
    logging.getLogger("library").warning("about %s", "it")
    try:
        {}[1]
    except KeyError:
        get_logger("a.b").exception("broken")
    ours, theirs, broken = map(json.loads, stream.getvalue().splitlines())
    assert ours.items() >= {
        "component": "broker", "logger": "a.b", "level": "info", "msg": "shrunk", "partition": 3, "isr": [1, 2]
    }.items()  # fmt: skip
    assert "ts" in ours
    assert theirs.items() >= {"component": "broker", "logger": "library", "level": "warning", "msg": "about it"}.items()
    assert "KeyError" in broken["exception"]


def test_lines_for_people(stream):
    configure_logging("kubelet", "debug", json=False, stream=stream)
    get_logger("x").debug("pod started", pod="a")
    assert "pod started" in stream.getvalue()
    assert "\x1b" not in stream.getvalue()


def test_levels_and_formats_that_there_are_not():
    assert [level_of({"KAFKALITE_LOG_LEVEL": text}) for text in ("", "debug", "WARNING")] == [
        "info",
        "debug",
        "warning",
    ]
    assert (level_of({}), format_of({}), format_of({"KAFKALITE_LOG_FORMAT": "text"})) == ("info", "json", "text")
    with pytest.raises(ConfigError, match="KAFKALITE_LOG_LEVEL='loud': expected debug, info, warning or error"):
        level_of({"KAFKALITE_LOG_LEVEL": "loud"})
    with pytest.raises(ConfigError, match="KAFKALITE_LOG_FORMAT='xml': expected json or text"):
        format_of({"KAFKALITE_LOG_FORMAT": "xml"})
