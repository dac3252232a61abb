"""The JSON that `kafka-reassign-partitions` reads and writes, both ways."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

from kafkalite_cli.errors import Failure
from kafkalite_core.model.foreign_json import parse_json

if TYPE_CHECKING:
    from collections.abc import Mapping

Assignment = dict[tuple[str, int], tuple[int, ...]]
"""Replicas by topic and partition."""

VERSION = 1


def read_assignment(path: str) -> Assignment:
    """A file, or `-` for standard input. Raises Failure that says what is wrong with it."""
    try:
        text = sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Failure(f"{path}: {getattr(error, 'strerror', None) or error}") from error
    try:
        document = parse_json(text)
    except ValueError as error:
        raise Failure(f"{path} is not JSON: {error}") from error
    return parse_assignment(document, path)


def parse_assignment(document: Any, path: str) -> Assignment:
    """`{"version": 1, "partitions": [{"topic": …, "partition": …, "replicas": […]}]}`; `log_dirs` are passed over."""
    if not isinstance(document, dict) or document.get("version", VERSION) != VERSION:
        raise Failure(f"{path}: version {VERSION} of kafka-reassign-partitions' JSON is expected")
    entries = document.get("partitions")
    if not isinstance(entries, list) or not entries:
        raise Failure(f'{path}: there is no partition in "partitions"')
    found: Assignment = {}
    for entry in entries:
        if not isinstance(entry, dict):
            raise Failure(f"{path}: {entry!r} is not a partition")
        topic, number, replicas = entry.get("topic"), entry.get("partition"), entry.get("replicas")
        if not isinstance(topic, str) or not isinstance(replicas, list) or not _is_number(number):
            raise Failure(f"{path}: a partition needs topic, partition and replicas: {json.dumps(entry)}")
        if not replicas or not all(map(_is_number, replicas)):
            raise Failure(f"{path}: the replicas of {topic}-{number} are not a list of broker ids")
        if len(set(replicas)) != len(replicas):
            raise Failure(f"{path}: the replicas of {topic}-{number} name a broker twice")
        if (topic, number) in found:
            raise Failure(f"{path}: partition {topic}-{number} is named twice")
        found[topic, number] = tuple(replicas)
    return found


def _is_number(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def document_of(assignment: Mapping[tuple[str, int], tuple[int, ...]]) -> dict[str, Any]:
    """As `kafka-reassign-partitions` writes it."""
    return {
        "version": VERSION,
        "partitions": [
            {"topic": topic, "partition": number, "replicas": list(replicas), "log_dirs": ["any"] * len(replicas)}
            for (topic, number), replicas in sorted(assignment.items())
        ],
    }


def line_of(assignment: Mapping[tuple[str, int], tuple[int, ...]]) -> str:
    """On one line, to be copied into a file."""
    return json.dumps(document_of(assignment), separators=(",", ":"))
