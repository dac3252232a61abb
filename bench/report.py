"""From samples to ratios with their spread, as Markdown."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import Any

UNITS = {
    "mb_per_s": "MB/s",
    "records_per_s": "records/s",
    "broker_cpu_s_per_100_mb": "brokers' CPU s per 100 MB",
    "control_cpu_s_per_100_mb": "control plane's CPU s per 100 MB",
    "ack_p50_ms": "ack p50, ms",
    "ack_p99_ms": "ack p99, ms",
    "end_to_end_p50_ms": "end to end p50, ms",
    "end_to_end_p99_ms": "end to end p99, ms",
    "start_s": "start, s",
    "idle_broker_memory_mb": "idle memory of the brokers, MB",
    "idle_control_memory_mb": "idle memory of the control plane, MB",
    "idle_broker_cpu_percent": "idle CPU of the brokers, % of a core",
    "idle_control_cpu_percent": "idle CPU of the control plane, % of a core",
}
CONDITIONS = """\
Three brokers, replication factor 3, min.insync.replicas 2, six partitions, acks=all, the same confluent-kafka clients.
*flush*: the log is flushed before the acknowledgement (flush.messages=1); *relaxed*: it is not, which is Kafka's
default. Both remove the files of a deleted topic after a minute (KafkaLite would keep them for an hour). Median (range)
of the rounds; a ratio compares the two measurements of one round."""
SYSTEMS = ("kafkalite", "kafka")


@dataclass(frozen=True, slots=True)
class Sample:
    """One measurement: system, case ("produce 1024 B, batch 16384, flush"), round, metric -> value."""

    system: str
    case: str
    round: int
    figures: dict[str, float]


def figure(value: float) -> str:
    """Three significant digits, no exponent."""
    if value == 0:
        return "0"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def spread(values: list[float]) -> str:
    """Median, and the range when there is more than one value."""
    middle = figure(statistics.median(values))
    return middle if len(values) == 1 else f"{middle} ({figure(min(values))} to {figure(max(values))})"


def values_of(samples: list[Sample], system: str, case: str, metric: str) -> dict[int, float]:
    """Round -> value."""
    chosen = [s for s in samples if s.system == system and s.case == case and metric in s.figures]
    return {sample.round: sample.figures[metric] for sample in chosen}


def ratios(samples: list[Sample], case: str, metric: str) -> list[float]:
    """KafkaLite over Kafka, round by round: what was measured close together is compared."""
    ours, theirs = (values_of(samples, system, case, metric) for system in SYSTEMS)
    return [ours[number] / theirs[number] for number in sorted(ours.keys() & theirs.keys()) if theirs[number]]


def across(samples: list[Sample], case: str, other: str, metric: str) -> list[float]:
    """KafkaLite in `case` over Kafka in `other`: equal promises cost different settings."""
    ours = values_of(samples, "kafkalite", case, metric)
    theirs = values_of(samples, "kafka", other, metric)
    return [ours[number] / theirs[number] for number in sorted(ours.keys() & theirs.keys()) if theirs[number]]


def tables(samples: list[Sample]) -> str:
    """One table: a row per case and metric, median (range) per system, ratio of KafkaLite to Kafka."""
    lines = ["| case | metric | KafkaLite | Apache Kafka | ratio |", "|---|---|---|---|---|"]
    for case in dict.fromkeys(sample.case for sample in samples):
        for metric, unit in UNITS.items():
            ours, theirs = (list(values_of(samples, system, case, metric).values()) for system in SYSTEMS)
            if not ours and not theirs:
                continue
            if not any(ours + theirs) and metric.startswith("control"):
                continue
            compared = ratios(samples, case, metric)
            row = [case, unit, spread(ours) if ours else "-", spread(theirs) if theirs else "-"]
            lines.append("| " + " | ".join([*row, f"x{spread(compared)}" if compared else "-"]) + " |")
    return "\n".join(lines)


def unlike_tables(samples: list[Sample]) -> str:
    """KafkaLite with flush before ack against Kafka as it comes (no flush): the harder comparison."""
    lines = []
    for case in dict.fromkeys(sample.case for sample in samples):
        if not case.endswith(", flush"):
            continue
        for metric in ("mb_per_s", "broker_cpu_s_per_100_mb"):
            compared = across(samples, case, case.removesuffix("flush") + "relaxed", metric)
            if compared:
                lines.append(f"| {case.removesuffix(', flush')} | {UNITS[metric]} | x{spread(compared)} |")
    return "\n".join(["| case | metric | ratio |", "|---|---|---|", *lines]) if lines else ""


def markdown(samples: list[Sample], about: dict[str, Any]) -> str:
    """The whole report."""
    parts = [
        "# Benchmark: KafkaLite and Apache Kafka in turn",
        "\n".join(f"- {name}: {value}" for name, value in about.items()),
        CONDITIONS,
        tables(samples),
    ]
    unlike = unlike_tables(samples)
    if unlike:
        parts += ["KafkaLite with flush before ack, its default, over Kafka without, its default:", unlike]
    return "\n\n".join(parts) + "\n"
