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
    members join and leave                           :   as often as was asked for           else unmeasured
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
    Joining,
    Killed,
    Leaving,
    Observed,
    time_of,
)
from kafkalite_cli.verify.group_report import Change, Findings, GroupLimits, GroupReport
from kafkalite_cli.verify.group_rules import Deliveries, Offsets, Ownership, Rebalances
from kafkalite_cli.verify.history import Ack, Fault, HistoryError

if TYPE_CHECKING:
    from collections.abc import Iterable

SETTLE_MS = 5000.0
STUCK_AFTER_SESSION_MS = 2000.0


def check_group(
    events: Iterable[GroupEvent], limits: GroupLimits | None = None, ended_us: int | None = None
) -> GroupReport:
    """Judge one whole history, in any order of events but those of one process in their own.

    Every `Read` counts as a member's: leave out those of consumers outside the group. `limits` are by default what is
    promised: settled 5 s after the last change (11 s for an empty group, by Kafka's default for its initial delay),
    nobody stuck for longer than the session time-out and 2 s. Who leaves at `ended_us` (microseconds) or later does so
    because the run is over: that counts as no change of the membership.
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
    changes = Changes(findings, limits, rebalances, header.session_timeout_ms, ended_us)
    end_us = 0
    for at_us, order, event in _timeline(collected):
        for rule in (deliveries, ownership, offsets, rebalances, changes):
            rule.see(event, begun=order == _BEGUN)
        end_us = at_us
    rebalances.finish(end_us)
    changes.finish(end_us)
    deliveries.finish(rebalances.first_settled_us or 0)
    return _report(findings, deliveries, offsets, ownership, changes)


class Changes:
    """What each joining and leaving cost: the rebalance that followed it, measured when it is over.

    It sees every event after `rebalances` did, which knows when the group is settled. Not measured: how an empty group
    fills, how it empties in the end, and what a killed member's session time-out holds up.
    """

    def __init__(
        self,
        findings: Findings,
        limits: GroupLimits,
        rebalances: Rebalances,
        session_timeout_ms: int,
        ended_us: int | None,
    ) -> None:
        self._findings, self._limits, self._rebalances, self._ended_us = findings, limits, rebalances, ended_us
        self._session_us = session_timeout_ms * 1000
        self._alive: set[int] = set()
        self._filled = False  # the group has been settled since it was empty
        self._joined: list[int] = []
        self._left: list[int] = []
        self._first_us = self._changed_us = self._expires_us = 0
        self._fault: Fault | None = None
        self._counted = 0  # rebalances that are over and were looked at
        self._unsettled = 0  # anomalies of this kind up to the last event
        self.measured: list[Change] = []

    @property
    def rebalances(self) -> Rebalances:
        """All rebalances, whatever brought them about."""
        return self._rebalances

    @property
    def changed(self) -> int:
        """How many members joined and left in the rebalances that were measured."""
        return sum(len(change.joined) + len(change.left) for change in self.measured)

    def see(self, event: GroupEvent, *, begun: bool) -> None:  # noqa: ARG002 - nothing that matters here takes time
        """Take in one event."""
        match event:
            case Joining():
                self._alive.add(event.member)
                self._change(self._joined, event)
            case Leaving():
                self._alive.discard(event.member)
                self._change(self._left, event)
            case Killed():
                self._alive.discard(event.member)
                self._expires_us = event.at_us + self._session_us
            case Fault():
                self._fault = event
                if self._expires_us > event.at_us:
                    self._expires_us = event.at_us + self._session_us
            case _ if self._rebalances.count > self._counted:
                self._over(time_of(event))
        # A group that looks settled at the very event that changes it has its rebalance yet to come.
        self._counted = self._rebalances.count
        self._unsettled = self._findings.counts["unsettled"]
        if not self._alive:
            self._filled = False
            self._forget()

    def finish(self, end_us: int) -> None:
        """Judge whether there was enough to measure."""
        if self.changed < self._limits.changes_min:
            text = f"{self.changed} members joined or left and were followed by a settled group, not "
            self._findings.add("unmeasured", end_us, f"{text}{self._limits.changes_min} or more")

    def _change(self, members: list[int], event: Joining | Leaving) -> None:
        if not self._filled or (self._ended_us is not None and event.at_us >= self._ended_us):
            return
        if not self._joined and not self._left:
            self._first_us = event.at_us
        self._changed_us = event.at_us
        members.append(event.member)

    def _over(self, at_us: int) -> None:
        """The group is settled again."""
        self._filled = True
        if (self._joined or self._left) and self._expires_us <= at_us:
            fault = self._fault
            told_us = max(self._changed_us, self._expires_us, fault.at_us if fault else 0)
            began_us = self._rebalances.heard_us(told_us, self._first_us, at_us)
            change = Change(
                joined=self._joined,
                left=self._left,
                members=len(self._alive),
                changed_us=self._changed_us,
                took_ms=(at_us - began_us) / 1000,
                all_ms=(at_us - self._first_us) / 1000,
                unheard=began_us > told_us,
                fault=fault.name if fault else "",
                fault_ms=(self._changed_us - fault.at_us) / 1000 if fault else 0.0,
            )
            self.measured.append(change)
            already = self._findings.counts["unsettled"] > self._unsettled
            if change.took_ms > self._limits.settle_ms and not already:
                text = f"{change.took_ms:.0f} ms from the last change of the group until it was settled"
                self._findings.add("unsettled", at_us, text)
        self._forget()

    def _forget(self) -> None:
        self._joined, self._left = [], []


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
    findings: Findings, deliveries: Deliveries, offsets: Offsets, ownership: Ownership, changes: Changes
) -> GroupReport:
    rebalances = changes.rebalances
    latencies = deliveries.latencies_ms or [0.0]
    took_ms = sorted(change.took_ms for change in changes.measured) or [0.0]
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
        changed=changes.changed,
        changes=changes.measured,
        change_ms_p50=took_ms[len(took_ms) // 2],
        change_ms_max=took_ms[-1],
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
