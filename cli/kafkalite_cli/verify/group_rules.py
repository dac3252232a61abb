"""The promises of a consumer group, one class for each concern; each sees all events once, in the order of time.

An event that takes time (a commit, an observation) is seen twice: `begun` when it was invoked, then when its answer was
there. Only what was complete before it began binds it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from kafkalite_cli.verify.group_history import (
    NO_OFFSET,
    Assigned,
    Commit,
    Committing,
    GroupEvent,
    Joining,
    Killed,
    Leaving,
    Observed,
    Revoked,
)
from kafkalite_cli.verify.history import OFFSET_UNKNOWN, Ack, Assign, Fault, Foreign, Read, Unknown, Unnamed

if TYPE_CHECKING:
    from kafkalite_cli.verify.group_report import Findings, GroupLimits


class Deliveries:
    """At least once: what was acknowledged is read by a member, in time, and before anybody commits past it."""

    def __init__(self, findings: Findings, limits: GroupLimits) -> None:
        self._findings, self._limits = findings, limits
        self._acked: dict[int, dict[int, int]] = defaultdict(dict)  # partition -> offset -> time
        self._first_read: dict[int, dict[int, int]] = defaultdict(dict)
        self._frontier: dict[int, int] = {}  # partition -> everything below was read by some member
        self.unknown = self.reads = 0
        self.latencies_ms: list[float] = []

    @property
    def acked(self) -> int:
        """Acknowledged records."""
        return sum(map(len, self._acked.values()))

    @property
    def delivered(self) -> int:
        """Records that members read, each counted once."""
        return sum(map(len, self._first_read.values()))

    def see(self, event: GroupEvent, *, begun: bool) -> None:
        """Take in one event."""
        match event:
            case Ack() if event.offset != OFFSET_UNKNOWN:
                self._acked[event.partition][event.offset] = event.acked_us
            case Unknown():
                self.unknown += 1
            case Read() | Unnamed() | Foreign():
                self.reads += 1
                self._first_read[event.partition].setdefault(event.offset, event.at_us)
            case Assign():
                self._frontier.setdefault(event.partition, event.offset)
            case Committing():
                self._committing(event, event.at_us)
            case Commit() if begun:
                self._committing(event, event.invoked_us)
            case _:
                pass

    def _committing(self, event: Commit | Committing, at_us: int) -> None:
        read, frontier = self._first_read[event.partition], self._frontier.get(event.partition, 0)
        while frontier in read:
            frontier += 1
        self._frontier[event.partition] = max(frontier, event.offset)
        if event.offset > frontier:
            text = f"offset {event.offset} was committed, and nobody had read {frontier}"
            place = {"partition": event.partition, "member": event.member}
            self._findings.add("committed-unread", at_us, text, **place)

    def finish(self, settled_us: int) -> None:
        """Judge what was acknowledged; the clock of records from before `settled_us` starts there."""
        for partition, acked in sorted(self._acked.items()):
            read = self._first_read[partition]
            for offset, acked_us in acked.items():
                read_us = read.get(offset)
                if read_us is None:
                    text = f"offset {offset} was acknowledged and no member ever read it"
                    self._findings.add("undelivered", acked_us, text, partition=partition)
                    continue
                waited_ms = max(0.0, (read_us - max(acked_us, settled_us)) / 1000)
                self.latencies_ms.append(waited_ms)
                if waited_ms > self._limits.stuck_ms:
                    text = f"offset {offset} was read {waited_ms:.0f} ms after its acknowledgement"
                    self._findings.add("stalled", read_us, text, partition=partition)
        self.latencies_ms.sort()


class Standing:
    """The commits of a partition any of which may have come last: none that was complete before the next began.

    Commits that overlap in time are in no order: a client whose connection broke sends one again, after a later one.
    """

    def __init__(self) -> None:
        # (offset, when it was complete). First of all none is committed: of a commit without an answer nobody knows.
        self._complete: list[tuple[int, int]] = [(NO_OFFSET, 0)]
        self._open: dict[int, int] = {}  # commits without an answer yet -> offset

    def begin(self, commit: int, offset: int) -> None:
        """A commit is sent."""
        self._open[commit] = offset

    def acknowledged(self, commit: int, begun_us: int, at_us: int) -> None:
        """It took the place of what was complete before it began."""
        self._complete = [entry for entry in self._complete if entry[1] >= begun_us]
        self._complete.append((self._open.pop(commit), at_us))

    def failed(self, commit: int, at_us: int, *, refused: bool) -> None:
        """It was refused, or nobody knows whether it happened."""
        offset = self._open.pop(commit)
        if not refused:
            self._complete.append((offset, at_us))

    def lowest_complete(self) -> int:
        """The lowest offset that may be the committed one, but for commits that are under way; -1: none is known."""
        return min((offset for offset, _ in self._complete), default=-1)

    def lowest(self) -> int:
        """The same, commits that are under way included."""
        return min([self.lowest_complete(), *self._open.values()])

    def lowest_since(self, offset: int, begun_us: int) -> int:
        """What may have become of an offset that was seen in a look begun at `begun_us`: overtaken by these commits."""
        since = [other for other, at_us in self._complete if at_us >= begun_us]
        return min([offset, *since, *self._open.values()])


class Offsets:
    """Committed offsets never go back, whoever asks, and only members of the current generation move them.

    What was told binds as much as what was committed: only a commit that overlaps the telling may take it back.
    """

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self.invoked: dict[int, int] = {}  # partition -> highest offset that anybody tried to commit
        self._standing: dict[int, Standing] = defaultdict(Standing)  # of each partition
        self._told: dict[int, int] = {}  # partition -> highest offset that the coordinator told anybody
        self._generation = -1
        self._before: dict[int, tuple[int, int]] = {}  # of an event that has begun: lowest offset, lowest generation
        self.commits = self.observations = 0
        self.errors: Counter[str] = Counter()

    def known(self, partition: int) -> int:
        """The offset that nobody may be told less than from now on; -1: none."""
        return max(self._standing[partition].lowest(), self._told.get(partition, -1))

    def see(self, event: GroupEvent, *, begun: bool) -> None:
        """Take in one event."""
        if isinstance(event, Assigned):
            self._generation = max(self._generation, event.generation)
        elif isinstance(event, Committing):
            self.invoked[event.partition] = max(event.offset, self.invoked.get(event.partition, -1))
        elif not isinstance(event, Commit | Observed):
            return
        elif begun:
            if isinstance(event, Commit):
                partition = event.partition
                self.invoked[partition] = max(event.offset, self.invoked.get(partition, -1))
                standing = self._standing[partition]
                self._before[id(event)] = standing.lowest_complete(), self._generation
                standing.begin(id(event), event.offset)
            else:
                self._before[id(event)] = self.known(event.partition), self._generation
        elif isinstance(event, Commit):
            self._committed(event, *self._before.pop(id(event)))
        else:
            self._observed(event, self._before.pop(id(event))[0])

    def _committed(self, event: Commit, offset: int, generation: int) -> None:
        standing = self._standing[event.partition]
        if event.error:
            self.errors[event.error] += 1
            standing.failed(id(event), event.at_us, refused=not _may_have_happened(event.error))
            return
        self.commits += 1
        place = {"partition": event.partition, "member": event.member}
        if event.offset < offset:
            text = f"offset {event.offset} was committed in generation {event.generation}, after {offset}"
            self._findings.add("commit-regressed", event.at_us, text, **place)
        if event.generation < generation:
            text = f"a commit of generation {event.generation} was taken in generation {generation}"
            self._findings.add("stale-commit", event.at_us, text, **place)
        standing.acknowledged(id(event), event.invoked_us, event.at_us)

    def _observed(self, event: Observed, offset: int) -> None:
        self.observations += 1
        if event.offset < offset:
            text = f"the coordinator said {event.offset}, after {offset} had been committed"
            self._findings.add("offset-regressed", event.at_us, text, partition=event.partition)
        if event.offset > self.invoked.get(event.partition, -1):
            text = f"the coordinator said {event.offset}, which nobody had committed"
            self._findings.add("commit-unexplained", event.at_us, text, partition=event.partition)
        told = self._standing[event.partition].lowest_since(event.offset, event.invoked_us)
        self._told[event.partition] = max(told, self._told.get(event.partition, -1))


def _may_have_happened(error: str) -> bool:
    """Whether a commit with this error may be stored all the same: nothing was heard of it, or not in time."""
    return error.startswith("_") or error in ("NO_ANSWER", "REQUEST_TIMED_OUT")


class Ownership:
    """A partition has one owner in a generation, who alone reads it: from the committed offset on, without a gap."""

    def __init__(self, findings: Findings, offsets: Offsets) -> None:
        self._findings, self._offsets = findings, offsets
        self._owners: dict[tuple[int, int], int] = {}  # (generation, partition) -> member
        self._owned: dict[int, frozenset[int]] = defaultdict(frozenset)
        self._generation: dict[int, int] = {}  # of each member
        self._start: dict[tuple[int, int], int] = {}  # (member, partition) not read yet -> lowest offset to begin at
        self._next: dict[tuple[int, int], int] = {}  # (member, partition) -> offset to come
        self._first: dict[int, int] = {}  # partition -> where the run began

    @property
    def generations(self) -> int:
        """How many generations had an owner."""
        return len({generation for generation, _ in self._owners})

    def see(self, event: GroupEvent, *, begun: bool) -> None:  # noqa: ARG002 - nothing that matters here takes time
        """Take in one event."""
        match event:
            case Assigned():
                self._assigned(event)
            case Revoked():
                self._owned[event.member] = frozenset(event.partitions)
            case Assign():
                self._first.setdefault(event.partition, event.offset)
            case Read() | Unnamed() | Foreign():
                self._read(event)
            case _:
                pass

    def _assigned(self, event: Assigned) -> None:
        member, generation = event.member, event.generation
        if generation < self._generation.get(member, -1):
            text = f"generation {generation} came after {self._generation[member]}"
            self._findings.add("generation-regressed", event.at_us, text, member=member)
        self._generation[member] = generation
        for partition in event.partitions:
            owner = self._owners.setdefault((generation, partition), member)
            if owner != member:
                text = f"members {owner} and {member} both own it in generation {generation}"
                self._findings.add("two-owners", event.at_us, text, partition=partition, member=member)
            if partition not in self._owned[member]:
                self._start[member, partition] = self._offsets.known(partition)
                self._next.pop((member, partition), None)
        self._owned[member] = frozenset(event.partitions)

    def _read(self, event: Read | Unnamed | Foreign) -> None:
        member, partition, offset = event.consumer, event.partition, event.offset
        place = {"partition": partition, "member": member}
        if partition not in self._owned[member]:
            self._findings.add("unowned-read", event.at_us, f"offset {offset} was read without owning it", **place)
        expected = self._next.get((member, partition))
        if expected is None:
            least = self._start.pop((member, partition), -1)
            most = max(self._offsets.invoked.get(partition, -1), self._first.get(partition, 0))
            if offset < least:
                text = f"the member began to read at {offset}, after {least} had been committed"
                self._findings.add("offset-regressed", event.at_us, text, **place)
            elif offset > most:
                text = f"the member began to read at {offset}, and nobody had committed more than {most}"
                self._findings.add("skip", event.at_us, text, **place)
        elif offset > expected:
            self._findings.add("skip", event.at_us, f"{offset} was read, {expected} was due", **place)
        elif offset < expected:
            self._findings.add("rewound", event.at_us, f"{offset} was read again, {expected} was due", **place)
        self._next[member, partition] = offset + 1


UNHEARD_US = 2_000_000
"""A member that leaves so soon after a fault may find no coordinator to tell. Clients say it once, and not at all while
they know of none; then the group waits for the member's session time-out, as it does on Apache Kafka."""


class Rebalances:
    """After the last change every member has an assignment of one generation within a bound, and together all of it."""

    def __init__(self, findings: Findings, limits: GroupLimits, partitions: int, session_timeout_ms: int) -> None:
        self._findings, self._limits, self._partitions = findings, limits, partitions
        self._session_us = session_timeout_ms * 1000
        self._members: dict[int, tuple[int, frozenset[int]] | None] = {}  # alive -> (generation, partitions)
        self._waiting: dict[int, int] = {}  # member without an assignment -> since when
        self._killed: dict[int, int] = {}  # member -> when the group learns of its death at the latest
        self._fault_us: int | None = None
        self._unheard: list[
            tuple[int, int]
        ] = []  # leaves that may be: when, and when that session ends at the earliest
        self._unsettled_since: int | None = None
        self._change_us = self._settled_us = 0
        self._settled_members = 0
        self.first_settled_us: int | None = None
        self.joined = self.count = self.faults = 0
        self.first_ms = self.settle_ms_max = self.unsettled_ms_max = self.waiting_ms_max = 0.0

    def see(self, event: GroupEvent, *, begun: bool) -> None:  # noqa: ARG002 - nothing that matters here takes time
        """Take in one event."""
        match event:
            case Joining():
                self.joined += 1
                self._members[event.member] = None
                self._waiting[event.member] = self._change_us = event.at_us
            case Assigned() if event.member in self._members:
                self._members[event.member] = event.generation, frozenset(event.partitions)
                self._had_to_wait(event.member, event.at_us)
            case Revoked() if event.member in self._members:
                self._members[event.member] = None
                self._waiting.setdefault(event.member, event.at_us)
            case Leaving() | Killed():
                self._members.pop(event.member, None)
                self._had_to_wait(event.member, event.at_us)
                self._change_us = event.at_us
                if isinstance(event, Killed):
                    self._killed[event.member] = event.at_us + self._session_us
                elif self._fault_us is not None and event.at_us <= self._fault_us + UNHEARD_US:
                    self._unheard.append((event.at_us, self._fault_us + self._session_us))
            case Fault():
                self.faults += 1
                self._change_us = self._fault_us = event.at_us
                # A coordinator that takes over gives every member of the group a whole session time-out anew.
                pending = [member for member, until in self._killed.items() if until > event.at_us]
                self._killed.update(dict.fromkeys(pending, event.at_us + self._session_us))
            case _:
                return
        self._look(event.at_us)

    def heard_us(self, change_us: int, since_us: int, at_us: int) -> int:
        """When the group, settled at `at_us`, knew of its last change: then, or when an unheard leave had run out.

        The latter only for leaves from `since_us` on, when the group was settled the last time, and only where it would
        be too late otherwise: neither a leave that was heard nor anything after it is excused.
        """
        if at_us - change_us <= 1000 * self._limits.settle_ms:
            return change_us
        return max([change_us, *(until for left_us, until in self._unheard if left_us >= since_us and until <= at_us)])

    def finish(self, end_us: int) -> None:
        """Judge what is still open when the history ends."""
        for member in list(self._waiting):
            self._had_to_wait(member, end_us)
        if self._unsettled_since is not None:
            self._settled(end_us, "and the history ends")

    def _had_to_wait(self, member: int, at_us: int) -> None:
        since = self._waiting.pop(member, at_us)
        waited_ms = (at_us - since) / 1000
        self.waiting_ms_max = max(self.waiting_ms_max, waited_ms)
        if waited_ms > self._limits.stuck_ms:
            text = f"no assignment for {waited_ms:.0f} ms"
            self._findings.add("stuck", at_us, text, member=member)

    def _look(self, at_us: int) -> None:
        """Note when the group ceases to be settled and when it is settled again."""
        states = list(self._members.values())
        known = [state for state in states if state is not None]
        owned = [partition for _, partitions in known for partition in partitions]
        one_generation = len(known) == len(states) and len({generation for generation, _ in known}) <= 1
        settled = not states or (one_generation and sorted(owned) == list(range(self._partitions)))
        if not settled and self._unsettled_since is None:
            self._unsettled_since = at_us
        elif settled and self._unsettled_since is not None:
            if states and self.first_settled_us is None:
                self.first_settled_us = at_us
            self._settled(at_us, "until it was settled")
        if settled:
            self._settled_members = len(states)

    def _settled(self, at_us: int, how: str) -> None:
        assert self._unsettled_since is not None
        since, self._unsettled_since = self._unsettled_since, None
        expiries = [until for until in self._killed.values() if until <= at_us]
        change_us = self.heard_us(max([since, self._change_us, *expiries]), self._settled_us, at_us)
        self._settled_us = at_us
        took_ms = max(0.0, (at_us - change_us) / 1000)
        # Whoever was killed less than a session time-out ago is still waited for.
        if any(until > at_us for until in self._killed.values()):
            took_ms = 0.0
        self.count += 1
        limit_ms = self._limits.settle_ms
        if self._settled_members:
            self.settle_ms_max = max(self.settle_ms_max, took_ms)
            self.unsettled_ms_max = max(self.unsettled_ms_max, (at_us - since) / 1000)
        else:
            self.first_ms = max(self.first_ms, took_ms)
            limit_ms += self._limits.empty_ms
        if took_ms > limit_ms:
            text = f"{took_ms:.0f} ms from the last change of the group {how}"
            self._findings.add("unsettled", at_us, text)
