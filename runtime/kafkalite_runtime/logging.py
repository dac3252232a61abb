"""One line per decision: structlog on top of the standard library's logging, JSON or for people."""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Any, Final, TextIO

import structlog

from kafkalite_core.model.errors import ConfigError

LEVELS: Final = ("debug", "info", "warning", "error")
FORMATS: Final = ("json", "text")

if TYPE_CHECKING:
    from collections.abc import Mapping

_SHARED: list[Any] = [
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_log_level,
    structlog.processors.TimeStamper(fmt="iso", utc=True, key="ts"),
    structlog.processors.StackInfoRenderer(),
]


def level_of(environ: Mapping[str, str]) -> str:
    """`KAFKALITE_LOG_LEVEL`, `info` where it is empty. Raises `ConfigError`."""
    return _one_of(LEVELS, "info", environ, "KAFKALITE_LOG_LEVEL")


def format_of(environ: Mapping[str, str]) -> str:
    """`KAFKALITE_LOG_FORMAT`, `json` where it is empty. Raises `ConfigError`."""
    return _one_of(FORMATS, "json", environ, "KAFKALITE_LOG_FORMAT")


def _one_of(known: tuple[str, ...], default: str, environ: Mapping[str, str], name: str) -> str:
    text = environ.get(name, "")
    if text.lower() not in ("", *known):
        raise ConfigError(f"{name}={text!r}: expected {', '.join(known[:-1])} or {known[-1]}")
    return text.lower() or default


def configure_logging(component: str, level: str = "info", json: bool = True, stream: TextIO | None = None) -> None:
    """Send everything that is logged, libraries included, to `stream` (default standard error).

    Args:
        component: `broker`, `operator`, `kubelet` …; stands in every line.
        level: debug, info, warning or error.
        json: one JSON object per line (for machines); otherwise coloured only on a terminal.
        stream: where to; default `sys.stderr`.
    """
    target = stream if stream is not None else sys.stderr
    number = logging.getLevelNamesMapping()[level.upper()]

    def add_component(_logger: object, _method: str, event: Any) -> Any:
        event.setdefault("component", component)
        return event

    renderer: list[Any]
    if json:
        renderer = [
            structlog.processors.format_exc_info,
            structlog.processors.EventRenamer("msg"),
            structlog.processors.JSONRenderer(default=str),
        ]
    else:
        renderer = [structlog.dev.ConsoleRenderer(colors=target.isatty())]
    shared = [add_component, *_SHARED]
    handler = logging.StreamHandler(target)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared, structlog.stdlib.add_logger_name],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *renderer],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(number)
    logging.getLogger("aiohttp.access").setLevel(logging.WARNING)
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.add_logger_name,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,
    )


def get_logger(name: str) -> structlog.stdlib.BoundLogger:
    """A logger: `log.info("what happened", key=value, …)`; usable before `configure_logging`."""
    return structlog.stdlib.get_logger(name)
