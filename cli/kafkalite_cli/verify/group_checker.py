"""Judges the history of a consumer group. Pure: events in, a report out; time and memory grow with their number.

    acked (r, o)                                     =>  a member read o, in time            else undelivered | stalled
    commit of C                                      =>  all below C had been read           else committed-unread
    commits, and what the coordinator tells about them, in real time:  never lower           else commit-regressed |
                                                                                                  offset-regressed
    the coordinator tells C                          =>  somebody committed C or more        else commit-unexplained
    commit of generation g taken                     =>  no member was in a later one        else stale-commit
    generation g, partition p                        :   one owner                           else two-owners
    a member reads p                                 =>  it owns p                           else unowned-read
    reads of one owner                               :   committed offset, +1, +2, …         else skip | rewound
    generations of one member                        :   never lower                         else generation-regressed
    every rebalance                                  :   over soon after the last change     else unsettled
    every member                                     :   never long without an assignment    else stuck

The members' own reports are what is judged: a partition's owner is who says so. Real-time rules compare only what was
complete before the other began, so neither the clocks nor the delays of a process can make an anomaly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalite_cli.verify.group_history import (
    GROUP_VERSION,
    Commit,
    GroupEvent,
    GroupHeader,
    Observed,
    time_of,
)
from kafkalite_cli.verify.group_report import Findings, GroupLimits, GroupReport
from kafkalite_cli.verify.group_rules import Deliveries, Offsets, Ownership, Rebalances
from kafkalite_cli.verify.history import Ack, HistoryError

if TYPE_CHECKING:
    from collections.abc import Iterable

SETTLE_MS = 5000.0
STUCK_AFTER_SESSION_MS = 2000.0


def check_group(events: Iterable[GroupEvent], limits: GroupLimits | None = None) -> GroupReport:
    """Judge one whole history, in any order of events but those of one process in their own.

    Every `Read` counts as a member's: leave out those of consumers outside the group. `limits` are by default what is
    promised: settled 5 s after the last change (11 s for an empty group, by Kafka's default for its initial delay),
    nobody stuck for longer than the session time-out and 2 s.
    Raises HistoryError unless there is exactly one header, of this version.
    """
    collected = list(events)
    headers = [event for event in collected if isinstance(event, GroupHeader)]
    if len(headers) != 1 or headers[0].version != GROUP_VERSION:
        raise HistoryError(f"not the history of one group, version {GROUP_VERSION}: {len(headers)} headers")
    header = headers[0]
    if limits is None:
        limits = GroupLimits(settle_ms=SETTLE_MS, stuck_ms=header.session_timeout_ms + STUCK_AFTER_SESSION_MS)
    findings = Findings()
    deliveries, offsets = Deliveries(findings, limits), Offsets(findings)
    ownership = Ownership(findings, offsets)
    rebalances = Rebalances(findings, limits, header.partitions, header.session_timeout_ms)
    end_us = 0
    for at_us, order, event in _timeline(collected):
        for rule in (deliveries, ownership, offsets, rebalances):
            rule.see(event, begun=order == _BEGUN)
        end_us = at_us
    rebalances.finish(end_us)
    deliveries.finish(rebalances.first_settled_us or 0)
    return _report(findings, deliveries, offsets, ownership, rebalances)


_INSTANT, _BEGUN, _COMPLETE = range(3)


def _timeline(events: list[GroupEvent]) -> list[tuple[int, int, GroupEvent]]:
    """(time, order, event), ascending; at one instant, what begins comes before what is complete: it does not bind."""
    places: list[tuple[int, int, GroupEvent]] = []
    for event in events:
        if isinstance(event, Commit | Observed):
            places.append((event.invoked_us, _BEGUN, event))
            places.append((event.at_us, _COMPLETE, event))
        else:
            order = _COMPLETE if isinstance(event, Ack) else _INSTANT
            places.append((time_of(event), order, event))
    places.sort(key=lambda place: place[:2])
    return places


def _report(
    findings: Findings, deliveries: Deliveries, offsets: Offsets, ownership: Ownership, rebalances: Rebalances
) -> GroupReport:
    latencies = deliveries.latencies_ms or [0.0]
    return GroupReport(
        ok=not findings.counts,
        counts=dict(findings.counts),
        examples=findings.examples,
        members=rebalances.joined,
        generations=ownership.generations,
        rebalances=rebalances.count,
        first_ms=rebalances.first_ms,
        settle_ms_max=rebalances.settle_ms_max,
        unsettled_ms_max=rebalances.unsettled_ms_max,
        waiting_ms_max=rebalances.waiting_ms_max,
        acked=deliveries.acked,
        unknown=deliveries.unknown,
        delivered=deliveries.delivered,
        redelivered=deliveries.reads - deliveries.delivered,
        commits=offsets.commits,
        commit_errors=dict(offsets.errors),
        observations=offsets.observations,
        faults=rebalances.faults,
        delivery_ms_p50=latencies[len(latencies) // 2],
        delivery_ms_p99=latencies[len(latencies) * 99 // 100],
        delivery_ms_max=latencies[-1],
    )
