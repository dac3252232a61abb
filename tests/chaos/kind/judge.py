"""After a round: what the clients saw, whether the replicas are equal, whether the metadata history is sound."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkalite_cli.verify.metadata_checker import check_metadata
from kafkalite_cli.verify.replicas import compare_replicas
from tests.chaos.judge import IN_TIME, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path


def judge(topic: str, report: dict[str, Any], replicas: Mapping[int, Path], metadata: Path, floor: int) -> Verdict:
    """Of a traffic that has ended on a cluster that is whole again.

    Args:
        topic: of the round, on every broker.
        report: what client/traffic.py says in the end.
        replicas: broker -> a copy of its data directory, made since.
        metadata: the recorded history of the custom resources.
        floor: the acknowledged records without which the round shows nothing.
    """
    verdict = Verdict()
    _add(verdict, report)
    if report["counts"]:
        verdict.broken.append(f"{topic}: {report['counts']} {' | '.join(report['examples'])}")
    if report["too_large"]:
        verdict.unfit.append(f"{topic}: {report['too_large']} records of the load were refused as too large")
    if report["unread"]:
        verdict.late.append(f"{topic}: the reader in the load was not given {report['unread']} acknowledged records")
    if report["acked"] < floor:
        verdict.thin.append(f"{topic}: {report['acked']} acknowledged, at least {floor} are wanted")
    ends = {(topic, int(number)): offset + 1 for number, offset in report["highest"].items()}
    starts = {(topic, int(number)): offset for number, offset in report["starts"].items()}
    found = compare_replicas(replicas, topics={topic}, high_watermarks=ends, starts=starts, copies=len(replicas))
    verdict.replica_bytes = found.bytes
    if not found.ok or not found.bytes:
        examples = " | ".join(str(example) for example in found.examples[:5])
        verdict.broken.append(f"replicas: {found.counts} {examples}, {found.bytes} bytes")
    if found.uncompared:
        verdict.broken.append(f"replicas: nothing to compare of {found.uncompared}")
    history = check_metadata(metadata)
    verdict.metadata_changes = history.changes
    if not history.ok or not history.changes:
        verdict.broken.append(f"metadata: {history.counts} {history.examples[:5]}, {history.changes} changes")
    return verdict


def judge_early(topic: str, problem: str, report: Callable[[], dict[str, Any]], metadata: Path) -> Verdict:
    """Of a round that did not become whole again within its limits: what was acknowledged is looked for all the same.

    What says no more than that something did not come in its time is no loss then.
    """
    verdict = Verdict(late=[problem])
    with verdict.as_far_as_possible(f"clients of {topic}"):
        seen = report()
        _add(verdict, seen)
        if lost := {kind: count for kind, count in seen["counts"].items() if kind not in IN_TIME}:
            verdict.broken.append(f"{topic}: {lost} {' | '.join(seen['examples'])}")
    with verdict.as_far_as_possible("metadata"):
        history = check_metadata(metadata)
        verdict.metadata_changes = history.changes
        if not history.ok:
            verdict.broken.append(f"metadata: {history.counts} {history.examples[:5]}")
    return verdict


def _add(verdict: Verdict, report: dict[str, Any]) -> None:
    """The figures; and how many answers came from coordinators that hung, which nobody is blamed for."""
    verdict.acked, verdict.read = report["acked"], report["read"]
    verdict.longest_gap_ms = report["longest_ack_gap_ms"]
    if report["excused"]:
        verdict.allowed["offset-regressed"] = report["excused"]
