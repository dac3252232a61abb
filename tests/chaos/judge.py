"""After a scenario: what the clients saw, whether the replicas are equal, whether the metadata history is sound."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kafkalite_cli.verify.metadata_checker import check_metadata
from kafkalite_cli.verify.replicas import compare_replicas
from tests.chaos.cluster import BROKERS

if TYPE_CHECKING:
    from pathlib import Path

    from tests.chaos.cluster import Cluster
    from tests.chaos.workloads import Traffic


@dataclass(slots=True)
class Verdict:
    """`broken` says in words which promises were; empty: none. `unfit`: why the traffic says nothing of the program.

    `late`: who did not come back in its time.
    """

    acked: int = 0
    read: int = 0
    replica_bytes: int = 0
    metadata_changes: int = 0
    longest_gap_ms: float = 0.0
    broken: list[str] = field(default_factory=list)
    thin: list[str] = field(default_factory=list)
    unfit: list[str] = field(default_factory=list)
    late: list[str] = field(default_factory=list)


def judge(cluster: Cluster, traffics: list[Traffic], metadata: Path) -> Verdict:
    """Of stopped traffic on a cluster that is whole again."""
    verdict = Verdict()
    for traffic in traffics:
        seen = traffic.judge()
        verdict.acked += seen.acked
        verdict.read += seen.read
        verdict.longest_gap_ms = max(verdict.longest_gap_ms, seen.longest_gap_ms)
        if not seen.ok:
            verdict.broken.append(f"{traffic.topic}: {seen.anomalies} {' | '.join(seen.examples)}")
        if seen.too_large:
            # librdkafka raises its producer epoch after such an answer, and sends again what it had under way elsewhere.
            verdict.unfit.append(f"{traffic.topic}: {seen.too_large} records of the load were refused as too large")
        if seen.unread:
            verdict.late.append(
                f"{traffic.topic}: the reader in the load was not given {seen.unread} acknowledged records"
            )
        if seen.acked < traffic.floor():
            verdict.thin.append(f"{traffic.topic}: {seen.acked} acknowledged, at least {traffic.floor()} are wanted")
    directories = {broker: cluster.data_directory(broker) for broker in range(BROKERS)}
    ends = {
        (traffic.topic, partition): offset + 1
        for traffic in traffics
        for partition, offset in traffic.load.acks.highest.items()
    }
    starts = {(traffic.topic, number): offset for traffic in traffics for number, offset in traffic.load.starts.items()}
    topics = {traffic.topic for traffic in traffics}
    replicas = compare_replicas(directories, topics=topics, high_watermarks=ends, starts=starts, copies=BROKERS)
    verdict.replica_bytes = replicas.bytes
    if not replicas.ok or not replicas.bytes:
        examples = " | ".join(str(example) for example in replicas.examples[:5])
        verdict.broken.append(f"replicas: {replicas.counts} {examples}, {replicas.bytes} bytes")
    if replicas.uncompared:
        verdict.broken.append(f"replicas: nothing to compare of {replicas.uncompared}")
    history = check_metadata(metadata)
    verdict.metadata_changes = history.changes
    if not history.ok or not history.changes:
        verdict.broken.append(f"metadata: {history.counts} {history.examples[:5]}, {history.changes} changes")
    return verdict
