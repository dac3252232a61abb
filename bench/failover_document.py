"""A page of figures and its pictures, from lines of results: docs/failover.md from bench/results/failover.jsonl."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bench import failover_clauses as asked_for
from bench.failover_clauses import AT_CLIENTS, FAILED, HAPPENED, anomalies, number, samples, total
from bench.failover_lab import KINDS
from bench.failover_plots import Series, cumulative, histograms, percentile

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from bench.failover_clauses import Clause, KindOfFailure, Lines

FEW = "\nOf fewer than 100 failures the p99 is the longest pause of all."
CURVES, BARS = "failover-cumulative.svg", "failover-histograms.svg"
NAMES = {
    "term": "graceful stop",
    "kill": "SIGKILL",
    "stop": "SIGSTOP (silent)",
    "cut": "network cut (silent)",
    "operator": "SIGKILL, operator too",
    "stop-default": "SIGSTOP, default client",
    "api-short": "API server away, short",
    "api": "API server away, long",
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
Produce and fetch go on while the API server hangs; when it is back nothing may happen on its own. What fails is counted
from the beginning of the first outage until a minute after the last one's end, on both sides. *Brokers*: produce and
fetch requests that they have answered with an error, by their own counters. *Clients*: errors that they report, and, by
librdkafka's statistics, requests that could not be sent or whose answer could not be received, that timed out, and that
were sent again; then records without an answer. *Meanwhile*: elections, fencings, and restarts of brokers and
containers. *New topic*: how long after the last return one that was made then was in sync.
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
- **Again and again**: every broker is restarted each twelve seconds or so. librdkafka doubles its pause between two
  attempts to connect to a broker, up to 10 s, and begins anew only when the last attempt was ten seconds ago: a client
  may so let a leader wait for seconds that is there. With that default 7 of 619 graceful stops had a pause above 0.9 s,
  of 8.2 s at most, in which the client's log says `Delaying next reconnect by 7851ms`. All other clients therefore
  use `reconnect.backoff.max.ms=1000`, the default of Java's client.
- **The client on the same machine**: while more than five records of a partition are under way and others wait,
  librdkafka's idempotent producer spins, with one thread for each broker. Where brokers run on the same two processors
  a slow answer becomes a pause of a second and more by that: with 600 records a second and brokers that hang for 0.8 s
  it took 1.3 s of processor time, and none with one request under way. Clients other than the default one use
  `max.in.flight=1`.
- **Default client**: as silent ones, with librdkafka's defaults (`socket.timeout.ms` 60 s): what is then waited for is
  the client.
- **Operator too**: nobody elects until the kubelet has started the operator again and it has taken its Lease over.
- **API server away**: brokers lead on by what they know, and nobody is fenced for a Lease that could not be renewed.
  Nothing of the API server's is in the way of a record: a pause is the longest wait of any partition in that time,
  whatever it was for.

## Run it again

```
make failover-report                                       # 100 failures of each kind, about two hours
make failover-report ARGS="--n 5 --api-minutes 1"          # a short one
make failover-report ARGS="--only kill,term --n 500"
make failover-report ARGS="--render"                       # write this document anew from the results
```

Every run adds lines to `bench/results/failover.jsonl`, with all samples, commit and tree hash (of core, runtime,
broker and operator); lines of one tree hash add up. Run it on a machine that does nothing else, or say what else it
does (`--beside "a build"`): such lines count only where there are no others. The load average before each run is in
its line, too.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """What is written around the figures.

    Attributes:
        kinds: What is told of kinds whose pauses are shown, and of others.
        names: Kind -> how the tables call it.
        curves, bars: File names of the pictures.
        apart: Kinds that have no part in the table of pauses -> the fact that a usable line of it has.
        asked: What else was asked for, by kind.
        sections: What is written of single kinds, given the lines of each kind that has any; empty for nothing.
    """

    kinds: Mapping[str, KindOfFailure]
    names: Mapping[str, str]
    head: str
    foot: str
    curves: str
    bars: str
    apart: Mapping[str, str] = field(default_factory=dict)
    asked: Mapping[str, Callable[[Lines], list[Clause]]] = field(default_factory=dict)
    sections: Sequence[Callable[[Mapping[str, Lines]], str]] = ()


def render(lines: Lines, document: Path, page: Page | None = None) -> list[Path]:
    """Write the document and its pictures; their paths. Without any result nothing is written."""
    page = page or LOCAL
    found = {kind: chosen for kind in page.names if (chosen := newest(lines, kind, page.apart.get(kind, "")))}
    if not found:
        return []
    measured = {kind: chosen for kind, chosen in found.items() if kind not in page.apart}
    parts = [page.head]
    written = [document]
    document.parent.mkdir(parents=True, exist_ok=True)
    if measured:
        parts += ["## Pauses\n", table(measured, page)]
    parts += ["## What was asked for\n", asked_for.table(clauses(lines, found, page))]
    if measured:
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
            "## Distributions\n",
            f"![Cumulative distribution of the pauses]({page.curves})\n\n![Histograms of the pauses]({page.bars})\n",
        ]
        parts += ["### Partition by partition\n", per_partition(measured, page)]
    parts += [said for said in (disturbed(lines, measured, page), problems(lines, found, page)) if said]
    parts += [said for section in page.sections if (said := section(found))]
    parts += [conditions(found, page), page.foot]
    document.write_text("\n".join(parts), encoding="utf-8")
    return written


def newest(lines: Lines, kind: str, fact: str = "") -> Lines:
    """All lines of a kind that have samples (or this fact) and the tree of the last such line.

    What was measured while the machine did something else counts only where there is nothing better.
    """
    usable = [
        line for line in lines if line["kind"] == kind and (line["facts"].get(fact) if fact else line["pauses_s"])
    ]
    ours = [line for line in usable if line["tree"] == usable[-1]["tree"]]
    return [line for line in ours if not line.get("beside")] or ours


def clauses(lines: Lines, found: Mapping[str, Lines], page: Page) -> list[tuple[str, Clause]]:
    """All clauses of all kinds, those of kinds without any result too, with the kind's name."""
    every = []
    for kind, name in page.names.items():
        shown = found.get(kind, [])
        ours = [] if kind in page.apart else asked_for.of_pauses(page.kinds[kind], shown)
        ours += page.asked[kind](shown) if kind in page.asked else []
        every += [(name, each) for each in (*ours, asked_for.to_the_end(shown, broken(lines, kind, shown)))]
    return every


def disturbed(lines: Lines, found: dict[str, Lines], page: Page) -> str:
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


def table(found: dict[str, Lines], page: Page) -> str:
    """One row for each kind."""
    rows = ["| failure | n | p50 | p90 | p99 | max |", "|---|---|---|---|---|---|"]
    for kind, lines in found.items():
        pauses = samples(lines, "pauses_s")
        figures = " | ".join(f"{percentile(pauses, percent):.2f} s" for percent in (50, 90, 99, 100))
        rows.append(f"| {page.names[kind]} | {len(pauses)} | {figures} |")
    few = [] if all(len(samples(lines, "pauses_s")) >= 100 for lines in found.values()) else [FEW]
    return "\n".join([*rows, "", *(f"- *{page.names[kind]}*: {page.kinds[kind].text}" for kind in found), *few, ""])


def broken(lines: Lines, kind: str, shown: Lines) -> Lines:
    """Runs of a kind that ended before their time: those that are shown, and later ones."""
    ours = [line for line in lines if line["kind"] == kind]
    since = max((at for at, line in enumerate(ours) if line in shown), default=-1)
    return [line for at, line in enumerate(ours) if line["problem"] and (line in shown or at > since)]


def problems(lines: Lines, found: dict[str, Lines], page: Page) -> str:
    """Runs that ended before their time: those whose samples are shown, and later ones that have none."""
    rows = []
    for kind, name in page.names.items():
        for line in broken(lines, kind, found.get(kind, [])):
            reason = " ".join(line["problem"].split())
            count = len(line["pauses_s"] or line["facts"].get("first_record_s", ()))
            rows.append(f"- *{name}*, tree `{line['tree'][:12]}`, samples until then: {count}; {reason}")
    return "\n".join(["### Runs that ended before their time\n", *rows, ""]) if rows else ""


def per_partition(found: dict[str, Lines], page: Page) -> str:
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


def without_api(found: Mapping[str, Lines]) -> str:
    """The runs without API server, the many short outages and the long one."""
    lines = [line for kind in ("api-short", "api") for line in found.get(kind, [])]
    if not lines:
        return ""
    rows = [
        "## Without API server\n",
        AWAY,
        (
            "| outages | acknowledged | read | brokers: produce, fetch "
            "| clients: errors, failed, timed out, sent again, no answer | longest pause | meanwhile | new topic |"
        ),
        "|---|---|---|---|---|---|---|---|",
    ]
    for line in lines:
        facts = line["facts"]
        failed, clients, happened = (
            ", ".join(number(total([line], each)) for each in names) for names in (FAILED, AT_CLIENTS, HAPPENED)
        )
        longest = max(line["pauses_s"], default=0.0)
        rows.append(
            f"| {facts['outages']} of {facts['away_s']:.0f} s | {number(facts['acked'])} | {number(facts['received'])} "
            f"| {failed} | {clients} | {longest * 1000:.0f} ms | {happened} "
            f"| {facts.get('new_topic_in_sync_s', '?')} s |"
        )
    return "\n".join([*rows, ""])


def conditions(found: dict[str, Lines], page: Page) -> str:
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


def _settings(kind: str) -> str:
    """The settings of a kind's clients, as they are written."""
    return ", ".join(f"{name}={value}" for name, value in KINDS[kind].client.items())


LOCAL = Page(
    kinds=KINDS,
    names=NAMES,
    head=HEAD,
    foot=FOOT.format(quick=_settings("stop")),
    curves=CURVES,
    bars=BARS,
    apart={"api": "away_s"},
    asked={"api-short": asked_for.short_outages, "api": asked_for.long_outage},
    sections=(without_api,),
)
