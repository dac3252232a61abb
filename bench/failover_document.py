"""A page of figures and its pictures, from lines of results: docs/failover.md from bench/results/failover.jsonl."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from bench.failover_lab import KINDS
from bench.failover_plots import Series, cumulative, histograms, percentile

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

FEW = "\nOf fewer than 100 failures the p99 is the longest pause of all."
CURVES, BARS = "failover-cumulative.svg", "failover-histograms.svg"
NAMES = {
    "term": "graceful stop",
    "kill": "SIGKILL",
    "stop": "SIGSTOP (silent)",
    "cut": "network cut (silent)",
    "operator": "SIGKILL, operator too",
    "stop-default": "SIGSTOP, default client",
    "api": "API server away",
}
HEAD = """\
# Failover: how long clients wait

Made by `make failover-report`; do not edit. Every figure is measured on real processes: three brokers, operator and
control plane of a local cluster, a topic with replication factor 3 and `min.insync.replicas` 2, idempotent producers
with `acks=all`, flush before acknowledgement.

A *pause* is what a client sees: the longest time without an acknowledged record of a partition whose leader was
harmed, from the last acknowledgement before the harm until the cluster is whole again (the broker is back, every
replica in sync), so that hand-over and return count too. The broker that leads most partitions is harmed, at a random
moment; of its partitions the slowest counts. Every history is judged by [`kafkalite verify`](verify.md): nothing may
be lost, doubled or reordered.
"""
LEFT_OUT = "Measured again without it; not in the figures above.\n"
AWAY = """\
Produce and fetch go on while the API server hangs; when it is back nothing may happen on its own. *Afterwards*:
elections, fencings and restarts within 60 s of its return. *New topic*: how long after it a new topic was in sync.
"""
FOOT = """\
## What is behind the figures

- **Graceful stop**: the broker hands its leaderships over before it ends; clients learn it from the answer to their
  next request.
- **SIGKILL**: the kubelet sees the process end, the pod's status tells the operator, which fences the broker and
  elects; one compare-and-swap for each topic. Clients notice the closed connection.
- **Silent**: nobody reports anything. The broker's Lease, of 5 s and renewed every second, runs out; the operator
  looks once a second. A client that waits for an answer of a broker that hangs, or whose host is gone, does not ask
  for the new leader until its own time-out is over. The clients of these rows use `{quick}`.
- **Default client**: the same with librdkafka's defaults (`socket.timeout.ms` 60 s): what is then waited for is the
  client.
- **Operator too**: nobody elects until the kubelet has started the operator again and it has taken its Lease over.

## Run it again

```
make failover-report                                       # 100 failures of each kind, about three hours
make failover-report ARGS="--n 5 --api-minutes 1"          # a short one
make failover-report ARGS="--only kill,term --n 500"
make failover-report ARGS="--render"                       # write this document anew from the results
```

Every run adds lines to `bench/results/failover.jsonl`, with all samples, commit and tree hash (of core, runtime,
broker and operator); lines of one tree hash add up. Run it on a machine that does nothing else, or say what else it
does (`--beside "a build"`): such lines count only where there are no others. The load average before each run is in
its line, too.
"""


class KindOfFailure(Protocol):
    """What the page needs to know of a kind."""

    @property
    def text(self) -> str: ...

    @property
    def targets(self) -> dict[str, float]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """What is written around the figures.

    Attributes:
        names: Kind -> how the tables call it.
        curves, bars: File names of the pictures.
    """

    kinds: Mapping[str, KindOfFailure]
    names: Mapping[str, str]
    head: str
    foot: str
    curves: str
    bars: str


LOCAL = Page(
    kinds=KINDS,
    names=NAMES,
    head=HEAD,
    foot=FOOT.format(quick=", ".join(f"{name}={value}" for name, value in KINDS["stop"].client.items())),
    curves=CURVES,
    bars=BARS,
)


def render(lines: list[dict[str, Any]], document: Path, page: Page = LOCAL) -> list[Path]:
    """Write the document and its pictures; their paths. Without any result nothing is written."""
    found = {kind: chosen for kind in page.kinds if (chosen := newest(lines, kind))}
    if not found:
        return []
    measured = {kind: chosen for kind, chosen in found.items() if kind != "api"}
    parts = [page.head]
    written = [document]
    document.parent.mkdir(parents=True, exist_ok=True)
    if measured:
        parts += ["## Pauses\n", table(measured, page)]
        series = [
            Series(page.names[kind], samples(chosen, "pauses_s"), page.kinds[kind].targets)
            for kind, chosen in measured.items()
        ]
        pictures = {page.curves: cumulative(series, "Share of failures with a pause no longer than …")}
        pictures[page.bars] = histograms(series, "Pauses, failure by failure")
        for name, picture in pictures.items():
            (document.parent / name).write_text(picture, encoding="utf-8")
            written.append(document.parent / name)
        parts += [
            f"![Cumulative distribution of the pauses]({page.curves})\n\n![Histograms of the pauses]({page.bars})\n"
        ]
        parts += ["### Partition by partition\n", per_partition(measured, page)]
    parts += [said for said in (disturbed(lines, measured, page), problems(lines, found, page)) if said]
    if "api" in found:
        parts += ["## Without API server\n", away(found["api"])]
    parts += [conditions(found, page), page.foot]
    document.write_text("\n".join(parts), encoding="utf-8")
    return written


def newest(lines: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    """All lines of a kind that have samples or facts and the tree of the last such line.

    What was measured while the machine did something else counts only where there is nothing better.
    """
    usable = [
        line
        for line in lines
        if line["kind"] == kind and (line["pauses_s"] if kind != "api" else "away_s" in line["facts"])
    ]
    ours = [line for line in usable if line["tree"] == usable[-1]["tree"]]
    return [line for line in ours if not line.get("beside")] or ours


def disturbed(lines: list[dict[str, Any]], found: dict[str, list[dict[str, Any]]], page: Page) -> str:
    """What was measured of the same tree beside something else, and is not in the figures above."""
    rows = []
    for kind, shown in found.items():
        for line in lines:
            if (line["kind"], line["tree"]) == (kind, shown[-1]["tree"]) and line["pauses_s"] and line not in shown:
                pauses, each = line["pauses_s"], line["partition_pauses_s"]
                figures = [percentile(pauses, 50), percentile(pauses, 99), percentile(each, 99)]
                said = " | ".join(f"{figure:.2f} s" for figure in figures)
                rows.append(f"| {page.names[kind]} | {line['beside']} | {len(pauses)} | {said} | {anomalies([line])} |")
    if not rows:
        return ""
    head = ["| failure | beside | n | p50 | p99 | p99, by partition | anomalies |", "|---|---|---|---|---|---|---|"]
    return "\n".join(["### On a machine that did something else, too\n", LEFT_OUT, *head, *rows, ""])


def samples(lines: list[dict[str, Any]], name: str) -> list[float]:
    """The samples of several lines."""
    return [sample for line in lines for sample in line[name]]


def table(found: dict[str, list[dict[str, Any]]], page: Page) -> str:
    """One row for each kind."""
    rows = ["| failure | n | p50 | p90 | p99 | max | aim | reached |", "|---|---|---|---|---|---|---|---|"]
    for kind, lines in found.items():
        pauses, targets = samples(lines, "pauses_s"), page.kinds[kind].targets
        figures = " | ".join(f"{percentile(pauses, percent):.2f} s" for percent in (50, 90, 99))
        aim = ", ".join(f"{name} < {limit:g} s" for name, limit in targets.items()) or "-"
        rest = f"{max(pauses):.2f} s | {aim} | {reached(pauses, targets, lines)} |"
        rows.append(f"| {page.names[kind]} | {len(pauses)} | {figures} | {rest}")
    few = [] if all(len(samples(lines, "pauses_s")) >= 100 for lines in found.values()) else [FEW]
    return "\n".join([*rows, "", *(f"- *{page.names[kind]}*: {page.kinds[kind].text}" for kind in found), *few, ""])


def reached(pauses: list[float], targets: dict[str, float], lines: list[dict[str, Any]]) -> str:
    """Yes, no and by what, or nothing to reach. A p99 of fewer than 100 samples is their maximum.

    Nothing was reached by runs that ended before their time, or in which a promise was broken.
    """
    missed = [name for name, limit in targets.items() if percentile(pauses, float(name[1:])) >= limit]
    missed += ["incomplete"] if any(line["problem"] for line in lines) else []
    missed += ["anomalies"] if any(line["anomalies"] for line in lines) else []
    if missed:
        return f"**no** ({', '.join(missed)})"
    return "yes" if targets else "-"


def problems(lines: list[dict[str, Any]], found: dict[str, list[dict[str, Any]]], page: Page) -> str:
    """Runs that ended before their time: those whose samples are shown, and later ones that have none."""
    rows = []
    for kind, name in page.names.items():
        ours = [line for line in lines if line["kind"] == kind]
        shown = found.get(kind, [])
        since = max((number for number, line in enumerate(ours) if line in shown), default=-1)
        bad = [line for number, line in enumerate(ours) if line["problem"] and (line in shown or number > since)]
        for line in bad:
            reason = " ".join(line["problem"].split())
            rows.append(
                f"- *{name}*, tree `{line['tree'][:12]}`, samples until then: {len(line['pauses_s'])}; {reason}"
            )
    return "\n".join(["### Runs that ended before their time\n", *rows, ""]) if rows else ""


def per_partition(found: dict[str, list[dict[str, Any]]], page: Page) -> str:
    """The same for single partitions, with what else was seen."""
    rows = [
        "| failure | partitions harmed | p50 | p99 | whole again, p50 | acknowledged | without an answer | anomalies |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for kind, lines in found.items():
        each, whole = samples(lines, "partition_pauses_s"), samples(lines, "heal_s")
        acked, unknown = sum(line["acked"] for line in lines), sum(line["unknown"] for line in lines)
        rows.append(
            f"| {page.names[kind]} | {len(each)} | {percentile(each, 50):.2f} s | {percentile(each, 99):.2f} s "
            f"| {percentile(whole, 50):.1f} s | {acked:,} | {unknown:,} | {anomalies(lines)} |"
        )
    return "\n".join([*rows, ""])


def anomalies(lines: list[dict[str, Any]]) -> str:
    """What the checkers found."""
    counts: dict[str, int] = {}
    for line in lines:
        for name, count in line["anomalies"].items():
            counts[name] = counts.get(name, 0) + count
    return ", ".join(f"{count} {name}" for name, count in sorted(counts.items())) or "0"


def away(lines: list[dict[str, Any]]) -> str:
    """The runs without API server."""
    rows = [
        AWAY,
        "| away for | acknowledged | read | failed requests | client errors | longest pause | afterwards | new topic |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for line in lines:
        facts = line["facts"]
        after = f"{facts.get('elections', '?')}, {facts.get('fencings', '?')}, {facts.get('restarts', '?')}"
        longest = max(line["pauses_s"], default=0.0)
        rows.append(
            f"| {facts['away_s'] / 60:.1f} min | {facts['acked']:,} | {facts['received']:,} "
            f"| {facts['failed_requests']:.0f} | {facts['client_errors']} | {longest * 1000:.0f} ms | {after} "
            f"| {facts.get('new_topic_in_sync_s', '?')} s |"
        )
    return "\n".join([*rows, ""])


def conditions(found: dict[str, list[dict[str, Any]]], page: Page) -> str:
    """What was measured, on what."""
    rows = [
        "## Conditions\n",
        "| failure | commit | tree | machine | records/s, partitions | load before | beside |",
        "|---|---|---|---|---|---|---|",
    ]
    for kind, lines in found.items():
        commits = ", ".join(dict.fromkeys(line["commit"] for line in lines))
        last, load = lines[-1], ", ".join(str(line["load_before"]) for line in lines)
        beside = ", ".join(dict.fromkeys(line["beside"] for line in lines if line.get("beside"))) or "-"
        rows.append(
            f"| {page.names[kind]} | {commits} | `{last['tree'][:12]}` | {last['machine']} "
            f"| {last['rate']:g}, {last['partitions']} | {load} | {beside} |"
        )
    return "\n".join([*rows, ""])
