"""What was asked for, clause by clause, and whether the results keep it: what was not measured or counted does not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from bench.failover_plots import percentile

if TYPE_CHECKING:
    from collections.abc import Sequence

Lines = list[dict[str, Any]]
LONG_AWAY_S, SHORT_AWAY_S = 600.0, 20.0
FIRST_RECORD_S, FIRST_LEAST = 60.0, 3
FAILED = ("failed_produce_requests", "failed_fetch_requests")
AT_CLIENTS = ("client_errors", "client_request_errors", "client_timeouts", "client_retries", "unknown")
HAPPENED = ("elections", "fencings", "restarts")
UNMEASURED = "not measured"


class KindOfFailure(Protocol):
    """What the page needs to know of a kind."""

    @property
    def text(self) -> str: ...

    @property
    def targets(self) -> dict[str, float]: ...

    @property
    def least(self) -> int: ...

    @property
    def by_partition(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class Clause:
    """One thing that was asked for, what was measured, and whether that keeps it."""

    asked: str
    measured: str
    kept: bool


def samples(lines: Lines, name: str) -> list[float]:
    """The samples of several lines."""
    return [sample for line in lines for sample in line[name]]


def total(lines: Lines, fact: str) -> float | None:
    """A fact of several lines added up; None when one of them lacks it, or there is none."""
    values = [line["facts"].get(fact) for line in lines]
    return sum(values) if values and None not in values else None


def number(value: float | None, lacking: str = "not counted") -> str:
    """A count in words."""
    return lacking if value is None else f"{value:,.0f}"


def anomalies(lines: Lines) -> str:
    """What the checkers found."""
    counts: dict[str, int] = {}
    for line in lines:
        for name, count in line["anomalies"].items():
            counts[name] = counts.get(name, 0) + count
    return ", ".join(f"{count} {name}" for name, count in sorted(counts.items())) or "0"


def of_pauses(kind: KindOfFailure, lines: Lines) -> list[Clause]:
    """How many failures, and each percentile with a limit. A p99 of fewer than 100 samples is their maximum."""
    pauses = samples(lines, "pauses_s")
    judged = samples(lines, "partition_pauses_s") if kind.by_partition else pauses
    clauses = [Clause(f"n ≥ {kind.least}", str(len(pauses)), len(pauses) >= kind.least)] if kind.least else []
    for name, limit_s in kind.targets.items():
        asked = f"{name} < {limit_s:g} s{', partition by partition' if kind.by_partition else ''}"
        value_s = percentile(judged, float(name[1:])) if judged else None
        measured = UNMEASURED if value_s is None else f"{value_s:.2f} s"
        clauses.append(Clause(asked, measured, value_s is not None and value_s < limit_s))
    return clauses


def to_the_end(lines: Lines, broken: Lines) -> Clause:
    """No promise was broken, and no run ended before its time: of those that are shown, and later ones."""
    said = [found] if (found := anomalies([*lines, *(line for line in broken if line not in lines)])) != "0" else []
    said += ["ended before its time"] if broken else []
    measured = ", ".join(said) or ("0" if lines else UNMEASURED)
    return Clause("0 anomalies, and it came to its end", measured, bool(lines) and not said)


def of_outages(lines: Lines) -> list[Clause]:
    """Nothing fails while the API server is away, and nothing happens on its own when it is back."""
    failed = {fact: total(lines, fact) for fact in (*FAILED, *AT_CLIENTS)}
    words = ("produce", "fetch", "errors", "failed", "timed out", "sent again", "no answer")
    counts = [f"{what} {number(count)}" for what, count in zip(words, failed.values(), strict=True)]
    told = f"brokers: {', '.join(counts[:2])}; clients: {', '.join(counts[2:])}"
    after = {fact: total(lines, fact) for fact in HAPPENED}
    happened = ", ".join(number(each) for each in after.values())
    return [
        Clause("0 failed requests", told if lines else UNMEASURED, set(failed.values()) == {0}),
        Clause(
            "0 elections, 0 fencings, 0 restarts on its return",
            happened if lines else UNMEASURED,
            set(after.values()) == {0},
        ),
    ]


def long_outage(lines: Lines) -> list[Clause]:
    """The one that lasts."""
    return [at_least("away for 10 min", lines, LONG_AWAY_S), *of_outages(lines)]


def short_outages(lines: Lines) -> list[Clause]:
    """Those that come again and again."""
    return [at_least("away for 20 s each time", lines, SHORT_AWAY_S), *of_outages(lines)]


def at_least(asked: str, lines: Lines, seconds: float) -> Clause:
    """Every run's outages lasted so long."""
    shortest_s = min((line["facts"]["away_s"] for line in lines), default=None)
    return Clause(asked, UNMEASURED if shortest_s is None else f"{shortest_s:g} s", (shortest_s or 0) >= seconds)


def first_record(lines: Lines) -> list[Clause]:
    """From the installation of the chart to the first record that a client has read."""
    found = [each for line in lines for each in line["facts"]["first_record_s"]]
    return [
        Clause(f"n ≥ {FIRST_LEAST}", str(len(found)), len(found) >= FIRST_LEAST),
        Clause(
            f"each < {FIRST_RECORD_S:g} s",
            f"{max(found):.1f} s at most" if found else UNMEASURED,
            bool(found) and max(found) < FIRST_RECORD_S,
        ),
    ]


def table(clauses: Sequence[tuple[str, Clause]]) -> str:
    """One row for each clause, with the name of its kind of failure, and how many are kept."""
    rows = [
        f"| {name} | {each.asked} | {each.measured} | {'yes' if each.kept else '**no**'} |" for name, each in clauses
    ]
    kept = sum(each.kept for _, each in clauses)
    head = ["| failure | asked for | measured | kept |", "|---|---|---|---|"]
    return "\n".join([f"{kept} of {len(clauses)} clauses are kept.\n", *head, *rows, ""])
