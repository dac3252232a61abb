"""What the operator says of the cluster in conditions of their own, that nothing else here looks into."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalite_cli.doctor.model import Finding
from kafkalite_cli.snapshot import condition

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafkalite_cli.doctor.model import Evidence

FALSE = {
    "LeasesRead": "nobody notices when a broker of {} hangs: the operator may not read their Leases",
    "ListenersReady": "clients cannot reach every broker of {} from outside: listeners have no address",
    "VolumesSized": "volumes of {} are not as large as its spec says",
    "PodsResized": "pods of {} do not have the CPU and memory that its spec says",
    "RacksKnown": "racks of brokers of {} are not known, so replicas may share one",
    "Replacing": "a broker of {} that is to get a new volume does not get it",
}
BY_ITSELF = frozenset({"Growing", "Resizing", "InProgress", "NotReplacing"})
"""Reasons that end without anybody's doing."""
ELSEWHERE = "VolumeLost"
"""Told with the volume claims, where these may be read."""


def check(evidence: Evidence) -> Iterator[Finding]:
    """A finding for each; its code is the reason."""
    for type_, what in FALSE.items():
        found = condition(evidence.cluster, type_)
        reason = str(found.get("reason", ""))
        if found.get("status") != "False" or reason in BY_ITSELF:
            continue
        if reason == ELSEWHERE and evidence.claims is not None:
            continue
        yield _finding(evidence, reason, what, str(found.get("message", "")))
    paused = condition(evidence.cluster, "ReconciliationPaused")
    if paused.get("status") == "True" and paused.get("reason") == "NotUnderstood":
        what = "the cluster {} is treated as paused: its spec.template cannot be understood"
        yield _finding(evidence, "NotUnderstood", what, str(paused.get("message", "")))


def _finding(evidence: Evidence, reason: str, what: str, message: str) -> Finding:
    return Finding(
        code=reason,
        about=f"cluster/{evidence.name}",
        what=what.format(evidence.name),
        why=message,
        todo=f"as it says there, and in docs/operations.md under {reason}: "
        + evidence.kubectl(f"describe klc {evidence.name}"),
    )
