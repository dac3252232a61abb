"""After a scenario: what the clients saw, whether the replicas are equal, whether the metadata history is sound."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kafkalite_cli.verify.metadata_checker import check_metadata
from kafkalite_cli.verify.replicas import compare_replicas
from tests.chaos.cluster import BROKERS
from tests.chaos.rest import OFFSETS_TOPIC

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from kafkalite_cli.verify.replicas import ReplicaReport
    from tests.chaos.cluster import Cluster
    from tests.chaos.workloads import Judgement, Traffic

IN_TIME = frozenset({"unseen", "undelivered", "stalled", "stuck", "unsettled", "unmeasured", "short"})
"""Anomalies that say no more than that something did not come in its time: while a cluster is not whole they are no
loss. Of a `short` replica nobody knows then whether it was still to be filled."""


@dataclass(slots=True)
class Verdict:
    """`broken` says in words which promises were; empty: none. `unfit`: why the traffic says nothing of the program.

    `late`: who did not come back in its time. `unjudged`: what could not be looked at, of a run that ended early.
    """

    acked: int = 0
    read: int = 0
    replica_bytes: int = 0
    metadata_changes: int = 0
    longest_gap_ms: float = 0.0
    allowed: dict[str, int] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)
    thin: list[str] = field(default_factory=list)
    unfit: list[str] = field(default_factory=list)
    late: list[str] = field(default_factory=list)
    unjudged: list[str] = field(default_factory=list)

    @contextmanager
    def as_far_as_possible(self, what: str) -> Iterator[None]:
        """Note that this could not be done, and go on: it is one of several things that are."""
        try:
            yield
        except Exception as problem:  # whatever it is, the other judges are to be heard
            self.unjudged.append(f"{what}: {type(problem).__name__}: {problem}")


def judge(
    cluster: Cluster,
    traffics: list[Traffic],
    metadata: Path,
    *,
    ends: Mapping[tuple[str, int], int] | None = None,
    so_far: Verdict | None = None,
) -> Verdict:
    """Of stopped traffic on a cluster that is whole again.

    Args:
        cluster: Whose data directories are compared.
        traffics: What was produced and read.
        metadata: The recorded history of the custom resources.
        ends: (topic, partition) -> high watermark at rest, of further topics as well.
        so_far: What is known of a run that did not come to its end. It is judged as far as it can be: a loss is one,
            but nobody has to be complete yet.
    """
    if so_far is not None:
        return _unfinished(so_far, cluster, traffics, metadata)
    verdict = Verdict()
    for traffic in traffics:
        seen = traffic.judge()
        _add(verdict, traffic.topic, seen)
        if not seen.ok:
            verdict.broken.append(f"{traffic.topic}: {seen.anomalies} {' | '.join(seen.examples)}")
        if seen.acked < traffic.floor():
            verdict.thin.append(f"{traffic.topic}: {seen.acked} acknowledged, at least {traffic.floor()} are wanted")
    committed = dict(ends or {})
    for traffic in traffics:
        for number, offset in traffic.load.acks.highest.items():
            key = traffic.topic, number
            committed[key] = max(committed.get(key, 0), offset + 1)
    starts = {(traffic.topic, number): offset for traffic in traffics for number, offset in traffic.load.starts.items()}
    topics = {topic for topic, _ in committed}
    replicas = compare_replicas(
        _directories(cluster), topics=topics, high_watermarks=committed, starts=starts, copies=BROKERS
    )
    verdict.replica_bytes = replicas.bytes
    if not replicas.ok or not replicas.bytes:
        verdict.broken.append(f"replicas: {_words(replicas)}, {replicas.bytes} bytes")
    # What compaction has been through up to its end cannot be compared.
    if bare := [name for name in replicas.uncompared if not name.startswith(f"{OFFSETS_TOPIC}-")]:
        verdict.broken.append(f"replicas: nothing to compare of {bare}")
    _metadata(verdict, metadata)
    return verdict


def _unfinished(verdict: Verdict, cluster: Cluster, traffics: list[Traffic], metadata: Path) -> Verdict:
    """As `judge`, with what there is."""
    for traffic in traffics:
        with verdict.as_far_as_possible(f"clients of {traffic.topic}"):
            seen = traffic.judge()
            _add(verdict, traffic.topic, seen)
            _sort(verdict, traffic.topic, seen.anomalies, " | ".join(seen.examples))
    with verdict.as_far_as_possible("replicas"):
        # Each up to the high watermark that it has written down itself: below it all are equal at any time.
        replicas = compare_replicas(_directories(cluster), topics={traffic.topic for traffic in traffics})
        verdict.replica_bytes = replicas.bytes
        _sort(verdict, "replicas", replicas.counts, _words(replicas))
    with verdict.as_far_as_possible("metadata"):
        _metadata(verdict, metadata)
    return verdict


def _sort(verdict: Verdict, whose: str, counts: Mapping[str, int], examples: str) -> None:
    """What was broken, and what was only not there in time."""
    if lost := {kind: count for kind, count in counts.items() if kind not in IN_TIME}:
        verdict.broken.append(f"{whose}: {lost} {examples}")
    if late := {kind: count for kind, count in counts.items() if kind in IN_TIME}:
        verdict.late.append(f"{whose}: {late} {'' if lost else examples}")


def _add(verdict: Verdict, topic: str, seen: Judgement) -> None:
    """The figures, and what speaks against the traffic itself."""
    verdict.acked += seen.acked
    verdict.read += seen.read
    verdict.longest_gap_ms = max(verdict.longest_gap_ms, seen.longest_gap_ms)
    for kind, count in seen.allowed.items():
        verdict.allowed[kind] = verdict.allowed.get(kind, 0) + count
    if seen.too_large:
        # librdkafka raises its producer epoch after such an answer, and sends again what it had under way elsewhere.
        verdict.unfit.append(f"{topic}: {seen.too_large} records of the load were refused as too large")
    if seen.unread:
        verdict.late.append(f"{topic}: the reader in the load was not given {seen.unread} acknowledged records")


def _directories(cluster: Cluster) -> dict[int, Path]:
    return {broker: cluster.data_directory(broker) for broker in range(BROKERS)}


def _words(replicas: ReplicaReport) -> str:
    return f"{replicas.counts} {' | '.join(str(example) for example in replicas.examples[:5])}"


def _metadata(verdict: Verdict, path: Path) -> None:
    history = check_metadata(path)
    verdict.metadata_changes = history.changes
    if not history.ok or not history.changes:
        verdict.broken.append(f"metadata: {history.counts} {history.examples[:5]}, {history.changes} changes")
