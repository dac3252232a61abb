"""One broker: its process with the production `Replica`, its disk, and its compare-and-swap that is under way.

A node is a tuple, so that it can be kept, compared and hashed; every function returns new ones. `Up` is a running
process, `Down` a disk without one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kafkalite_core.membership.settlement import Attempt, Entry, Settled, Settlement
from kafkalite_core.model.config import resolve_topic_config
from kafkalite_core.protocol.errors import ErrorCode
from kafkalite_core.replica import events
from kafkalite_core.replica.events import CasOutcome
from tests.search import snapshot
from tests.search.small_log import HEADER, FrozenLog, SmallLog, crashed
from tests.search.snapshot import LATER_MS, LONG_AGO_MS, NOW_MS, Brokers, Stage

if TYPE_CHECKING:
    from kafkalite_core.model.partition import Partition
    from kafkalite_core.replica.replica import Replica

CONFIG = resolve_topic_config({})
STAGE = Stage()
HIGH_WATERMARK = snapshot.STATE.slot("high_watermark")
FLUSHED = events.FlushCompleted()
TICK = events.Tick()


class Patch(NamedTuple):
    """A proposal that was sent. `proposal_id` 0: the replica no longer knows it."""

    proposal_id: int
    expected: Partition
    proposed: Partition


class Answer(NamedTuple):
    """The answer to a proposal on its way back."""

    proposal_id: int
    outcome: CasOutcome
    observed: Partition | None


class Up(NamedTuple):
    """A running broker.

    Attributes:
        id: Broker id.
        epoch: The broker epoch that the process registered with.
        log: Its log.
        replica: The replica, as `snapshot.freeze` tells it.
        wire: Its compare-and-swap under way.
        unsettled: (expected, proposed) of the patch of which a copy may still be under way, as the broker remembers it.
    """

    id: int
    epoch: int
    log: FrozenLog
    replica: tuple
    wire: Patch | Answer | None = None
    unsettled: tuple[Partition, Partition] | None = None


class Down(NamedTuple):
    """A disk without a process; the checkpointed high watermark."""

    id: int
    log: FrozenLog
    high_watermark: int


Node = Up | Down


class Response(NamedTuple):
    """A fetch answer on its way to a follower; the fields of `FetchResponded`."""

    leader_id: int
    leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    error_code: int
    high_watermark: int
    diverging: tuple[int, int] | None
    records: bytes


class Request(NamedTuple):
    """A follower's fetch; the fields of `FetchRequested`, and the leader that it goes to."""

    leader_id: int
    replica_id: int
    replica_epoch: int
    current_leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int


class Stepped(NamedTuple):
    """What one step of a replica came to."""

    node: Up
    answers: tuple[events.ProduceAnswered, ...] = ()
    response: Response | None = None
    high_watermark_before: int = 0


def thawed(node: Up) -> Replica:
    return STAGE.thaw(node.id, node.log, node.replica)


def frozen(node: Up, replica: Replica, effects: list, *, epoch: int | None = None) -> Stepped:
    """The node after a step of its replica."""
    taken, numbers = snapshot.freeze(replica)
    wire, answers = node.wire, ()
    if wire is not None:
        wire = wire._replace(proposal_id=numbers.get(wire.proposal_id, 0))
    for effect in effects:
        if isinstance(effect, events.ProposePartition):
            wire = Patch(
                numbers[effect.proposal_id], snapshot.isr_sorted(effect.expected), snapshot.isr_sorted(effect.proposed)
            )
        elif isinstance(effect, events.ProduceAnswered):
            answers = (*answers, effect)
    after = Up(
        node.id, node.epoch if epoch is None else epoch, replica._state.log.freeze(), taken, wire, node.unsettled
    )
    return Stepped(after, answers, high_watermark_before=node.replica[1][HIGH_WATERMARK])


def step(node: Up, event: events.Event, now_ms: float = NOW_MS) -> Stepped:
    """One step of the production replica."""
    replica = thawed(node)
    return frozen(node, replica, replica.step(now_ms, event))


# ------------------------------------------------------------------------------------------------------ what it sees


def as_proposed(replica: Replica, entry: Partition | None) -> Partition | None:
    """The entry with its ISR in the order in which the replica itself proposed it, as the API server would show it."""
    pending = replica._changes.pending
    attempts = () if pending is None or entry is None else pending.attempts.values()
    return next((attempt for attempt in attempts if snapshot.isr_sorted(attempt) == entry), entry)


def metadata(node: Up, entry: Partition | None, brokers: Brokers, epoch: int | None = None) -> Stepped:
    """The broker sees the entry and the registrations; `epoch` is its own broker epoch if it has a new one."""
    replica = thawed(node)
    own = node.epoch if epoch is None else epoch
    seen = events.MetadataChanged(
        partition=as_proposed(replica, entry), brokers=brokers.by_id, broker_epoch=own, config=CONFIG
    )
    return frozen(node, replica, replica.step(NOW_MS, seen), epoch=own)


def started(node: Down, epoch: int, high_watermark: int, log: FrozenLog | None = None) -> Up:
    """A new process on the disk; it has seen nothing yet."""
    log = node.log if log is None else log
    replica = snapshot.new_replica(node.id, SmallLog(log), high_watermark)
    return Up(node.id, epoch, log, snapshot.freeze(replica)[0])


def crashes(node: Up) -> list[Down]:
    """Every disk that may be found after the process ended: any part of what was not flushed, an old or new mark."""
    records, flushed, _ = node.log
    known = thawed(node).high_watermark
    return [
        Down(node.id, crashed(node.log, kept), mark)
        for kept in range(flushed, len(records) + 1)
        for mark in sorted({0, min(known, kept)})
    ]


# ------------------------------------------------------------------------------------------------- client and clock


def produced(node: Up, value: int) -> tuple[Stepped, int]:
    """A client's record with acks=all; with acks=0 where acks=all is refused for want of members in sync. (step, acks)"""
    for acks in (-1, 0):
        replica = thawed(node)
        request = events.ProduceRequested(
            token=value, acks=acks, batch=bytearray((value,)), header=HEADER,
            received_ms=NOW_MS, deadline_ms=float("inf"), wall_ms=0,
        )  # fmt: skip
        effects = replica.step(NOW_MS, request)
        refused = any(
            isinstance(effect, events.ProduceAnswered) and effect.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
            for effect in effects
        )
        if not refused:
            break
    return frozen(node, replica, effects), acks


def flushed(node: Up) -> Stepped:
    """A flush that began after the last append ends."""
    replica = thawed(node)
    log = replica._state.log
    log.flushed_end = log.end_offset
    return frozen(node, replica, replica.step(NOW_MS, FLUSHED))


def ticked(node: Up) -> Stepped:
    """Time enough for every back-off to end; whoever was caught up still is."""
    return step(node, TICK, LATER_MS)


def lapses(node: Up) -> list[tuple[int, str, Stepped]]:
    """For longer than the lag limit a follower fetched without catching up, or did not fetch. (id, how, step)"""
    known = thawed(node)._leader._followers._by_incarnation
    result = []
    for key in sorted(known, key=str):
        for how, slots in (("lags", ("caught_up_ms",)), ("is silent", ("caught_up_ms", "fetch_ms"))):
            replica = thawed(node)
            progress = replica._leader._followers._by_incarnation[key]
            if all(getattr(progress, slot) == LONG_AGO_MS for slot in slots):
                continue
            for slot in slots:
                setattr(progress, slot, LONG_AGO_MS)
            result.append((progress.id, how, frozen(node, replica, replica.step(LATER_MS, TICK))))
    return result


def hands_over(node: Up) -> Stepped:
    """The broker shuts down, or its disk is full: it wants to give its leadership away."""
    return step(node, events.HandOver(reason="leaves"))


# -------------------------------------------------------------------------------------------------------- replication


def fetch_request(node: Up) -> Request | None:
    """The fetch that the follower would send now."""
    position = thawed(node).fetch_position()
    if position is None:
        return None
    return Request(
        position.leader,
        node.id,
        node.epoch,
        position.current_leader_epoch,
        position.fetch_offset,
        position.last_fetched_epoch,
    )


def answered_fetch(node: Up, request: Request) -> Stepped:
    """The leader takes a fetch and answers it."""
    replica = thawed(node)
    asked = events.FetchRequested(
        token=0,
        replica_id=request.replica_id,
        replica_epoch=request.replica_epoch,
        current_leader_epoch=request.current_leader_epoch,
        fetch_offset=request.fetch_offset,
        last_fetched_epoch=request.last_fetched_epoch,
        log_start_offset=0,
    )
    effects = replica.step(NOW_MS, asked)
    answer = next(effect for effect in effects if isinstance(effect, events.FetchAnswered))
    records = b""
    if not answer.error_code and answer.diverging is None:
        records = replica._state.log.read(answer.read_from, answer.read_end)
    response = Response(
        node.id,
        request.current_leader_epoch,
        request.fetch_offset,
        request.last_fetched_epoch,
        answer.error_code,
        answer.high_watermark,
        answer.diverging,
        records,
    )
    return frozen(node, replica, effects)._replace(response=response)


def took_response(node: Up, response: Response) -> Stepped:
    """The follower takes its leader's answer."""
    got = events.FetchResponded(
        leader_id=response.leader_id,
        leader_epoch=response.leader_epoch,
        fetch_offset=response.fetch_offset,
        last_fetched_epoch=response.last_fetched_epoch,
        error_code=response.error_code,
        high_watermark=response.high_watermark,
        log_start_offset=0,
        diverging=response.diverging,
        records=memoryview(response.records),
        wall_ms=0,
    )
    return step(node, got)


# -------------------------------------------------------------------------------------------------- compare-and-swap


def settlement_of(node: Up) -> Settlement:
    """What the broker knows of the patch that it sends; as `PartitionWriter` remembers it."""
    assert isinstance(node.wire, Patch)
    patch = (node.wire.expected, node.wire.proposed)
    return Settlement(*patch, ambiguous=node.unsettled == patch)


def cas_ended(node: Up, attempt: Attempt, entry: Partition | Entry = Entry.UNREAD) -> Up:
    """The patch was answered, or is given up: the outcome is on its way to the replica."""
    settlement = settlement_of(node)
    outcome = settlement.settle(attempt, entry)
    observed = None if isinstance(entry, Entry) else entry
    if outcome is Settled.APPLIED and attempt is Attempt.APPLIED:
        observed = settlement.proposed
    answer = Answer(node.wire.proposal_id, CasOutcome(outcome.value), observed)
    unsettled = (settlement.expected, settlement.proposed) if settlement.ambiguous else None
    return node._replace(wire=answer, unsettled=unsettled)


def cas_told(node: Up) -> Stepped:
    """The replica hears how its proposal ended."""
    assert isinstance(node.wire, Answer)
    number, outcome, observed = node.wire
    told = node._replace(wire=None)
    replica = thawed(told)
    answer = events.ProposalAnswered(proposal_id=number, outcome=outcome, observed=as_proposed(replica, observed))
    return frozen(told, replica, replica.step(NOW_MS, answer))
