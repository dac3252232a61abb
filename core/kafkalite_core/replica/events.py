"""What goes into a replica and what comes out of it.

A driver (broker, simulator, exhaustive search) calls `Replica.step(now_ms, event)` and carries out the effects in
order. `now_ms` is monotonic. Changes of the log itself happen inside the step, through the `ReplicaLog` port; what is
asynchronous (answers, flushes, compare-and-swaps) is an effect, and comes back as an event.

They are msgspec structs: several are made for each batch, and a frozen dataclass costs four times as much to make.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from msgspec import Struct

from kafkalite_core.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkalite_core.model.cluster import Broker
    from kafkalite_core.model.config import TopicConfig
    from kafkalite_core.model.partition import Partition
    from kafkalite_core.protocol.record_batch import BatchHeader

CONSUMER_ID = -1
"""`replica_id` of a fetch that comes from a client."""


class Role(StrEnum):
    """What this broker is for the partition now."""

    OFFLINE = "offline"
    LEADER = "leader"
    FOLLOWER = "follower"


class CasOutcome(StrEnum):
    """How a compare-and-swap ended (S5, R6)."""

    APPLIED = "applied"
    """200: the proposal is the committed state."""
    REJECTED = "rejected"
    """422: a test failed or a fence refused it. Earlier attempts of the same proposal may still have been applied."""
    NOT_ATTEMPTED = "not attempted"
    """Certainly never applied by any attempt (409, 429, connection refused); it may be proposed again."""
    UNKNOWN = "unknown"
    """Time-out, reset or 5xx: it may be applied now, later, or never."""


# ---------------------------------------------------------------------------------------------------- events


class MetadataChanged(Struct, frozen=True, kw_only=True):
    """The committed state of the partition or of the brokers, as the metadata cache holds it.

    Attributes:
        partition: The entry of `status.partitions`; None when the partition is gone.
        brokers: Every known broker by id.
        broker_epoch: This broker's own registered epoch; -1 while it is not registered.
        config: The topic's configuration in force.
        went_back: A consistent list shows less than `partition`, or not even the partition: the store went back in
            time (S11).
        flush_lag_known: The operator judges entries as under a relaxed flush, as it still does for a while after a
            tightening (S4); so must the replica.
    """

    partition: Partition | None
    brokers: Mapping[int, Broker]
    broker_epoch: int
    config: TopicConfig
    went_back: bool = False
    flush_lag_known: bool = False


class ProduceRequested(Struct, frozen=True, kw_only=True):
    """A client's batch, already checked as by `batch_validation.analyze_client_batch`, unless it is given up.

    Attributes:
        token: The driver's name for the request; comes back in exactly one `ProduceAnswered` (with acks=0 as well).
        acks: 0, 1 or -1; any other value is answered INVALID_REQUIRED_ACKS.
        batch: The bytes of exactly one batch; a writable buffer is patched in place.
        header: Its parsed header.
        received_ms: Monotonic time at which it was read from its connection; it may have waited since.
        deadline_ms: Monotonic time at which an unfinished acks=all request is answered REQUEST_TIMED_OUT.
        wall_ms: Wall clock, for LogAppendTime and bounds of timestamps only.
        given_up: Why it is not to be appended, since it is not as it should be, or has waited for too long before it
            came here; the empty string as a rule. It is answered `given_up_code`, and what was sent behind it waits
            until it comes again.
        given_up_code: What the client is told then.
    """

    token: object
    acks: int
    batch: bytearray | memoryview
    header: BatchHeader
    received_ms: float
    deadline_ms: float
    wall_ms: int
    given_up: str = ""
    given_up_code: int = ErrorCode.REQUEST_TIMED_OUT


class FetchRequested(Struct, frozen=True, kw_only=True):
    """One partition of a Fetch request, from a follower or a consumer.

    Attributes:
        token: The driver's name for it; comes back in exactly one `FetchAnswered`, in the same step.
        replica_id: Broker id of the follower, or `CONSUMER_ID`.
        replica_epoch: The follower's broker epoch, or -1.
        current_leader_epoch: The leader epoch that the requester knows, or -1.
        fetch_offset: First offset wanted. From a follower: its flushed end (S8).
        last_fetched_epoch: Leader epoch of the record before `fetch_offset`, or -1.
        log_start_offset: The follower's log start offset, or -1.
        reread: The same request is looked at again after waiting: follower state is not touched a second time.
        any_replica: The consumer accepts to be served by a replica that follows (KIP-392, Fetch version 11).
        rack: The consumer's rack, where the leader shall look for a replica in it; else empty.
        reachable: Brokers that the consumer has an address of, which is sent to no other; None for all.
    """

    token: object
    replica_id: int
    replica_epoch: int
    current_leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int = -1
    reread: bool = False
    any_replica: bool = False
    rack: str = ""
    reachable: frozenset[int] | None = None


class FetchResponded(Struct, frozen=True, kw_only=True):
    """One partition of the leader's answer to this broker's own fetch.

    Attributes:
        leader_id: Broker that answered.
        leader_epoch: The leader epoch that the request carried.
        fetch_offset: The offset that the request carried.
        last_fetched_epoch: The epoch that the request carried.
        error_code: Kafka's error code.
        high_watermark: The leader's.
        log_start_offset: The leader's.
        diverging: (epoch, end offset) when the logs diverge, else None.
        records: Whole batches; empty when there are none.
        wall_ms: Wall clock.
    """

    leader_id: int
    leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    error_code: int
    high_watermark: int
    log_start_offset: int
    diverging: tuple[int, int] | None
    records: memoryview
    wall_ms: int


class DeleteRecordsRequested(Struct, frozen=True, kw_only=True):
    """Delete all records before an offset (KIP-107). Answered by exactly one `DeleteRecordsAnswered`.

    Attributes:
        token: The driver's name for the request.
        offset: First offset to be kept; -1 for the high watermark.
        deadline_ms: Monotonic time at which a request that waits for followers is answered REQUEST_TIMED_OUT.
    """

    token: object
    offset: int
    deadline_ms: float


class FlushCompleted(Struct, frozen=True):
    """`ReplicaLog.complete_flush` was called: `flushed_end` may have moved."""


class ProposalAnswered(Struct, frozen=True, kw_only=True):
    """The answer to one `ProposePartition`.

    Attributes:
        proposal_id: The effect's id.
        outcome: How it ended.
        observed: The entry as the API server returned it with the answer, where it did.
    """

    proposal_id: int
    outcome: CasOutcome
    observed: Partition | None = None


class Tick(Struct, frozen=True):
    """Time went by: lag checks, expiry of waiting produce requests, proposals to be made again."""


class HandOver(Struct, frozen=True, kw_only=True):
    """Give leadership to another member of the ISR and leave the ISR: the disk is full, or the broker shuts down."""

    reason: str


Event = (
    MetadataChanged
    | ProduceRequested
    | FetchRequested
    | FetchResponded
    | DeleteRecordsRequested
    | FlushCompleted
    | ProposalAnswered
    | Tick
    | HandOver
)


# ---------------------------------------------------------------------------------------------------- effects


class ProduceAnswered(Struct, frozen=True, kw_only=True):
    """The end of a produce request (R11, S9 for duplicates).

    Attributes:
        token: Of the request.
        error_code: 0 or Kafka's code.
        base_offset: Offset of the first record; -1 on an error.
        log_append_time_ms: Append time for LogAppendTime topics, else -1.
        log_start_offset: Of the partition; -1 on an error.
        message: A sentence, on errors.
    """

    token: object
    error_code: int
    base_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    message: str = ""


class FetchAnswered(Struct, frozen=True, kw_only=True):
    """What may be read. The driver reads `[read_from, read_end)` from the log; nothing when they are equal.

    Attributes:
        token: Of the request.
        error_code: 0 or Kafka's code.
        high_watermark: Of the leader; without transactions it is the last stable offset as well.
        log_start_offset: Of the partition.
        read_from: First offset to read.
        read_end: Offset at which reading stops: the log end for followers, the high watermark for consumers.
        diverging: (epoch, end offset) as KIP-595's DivergingEpoch; then nothing is read.
        preferred_read_replica: Broker to read from instead, or -1; then nothing is read here.
    """

    token: object
    error_code: int
    high_watermark: int = -1
    log_start_offset: int = -1
    read_from: int = 0
    read_end: int = 0
    diverging: tuple[int, int] | None = None
    preferred_read_replica: int = -1


class DeleteRecordsAnswered(Struct, frozen=True, kw_only=True):
    """The end of a deletion of records.

    Attributes:
        token: Of the request.
        error_code: 0 or Kafka's code.
        low_watermark: Least log start of the live replicas; -1 when it is not known or the request was refused.
        message: A sentence, on errors.
    """

    token: object
    error_code: int
    low_watermark: int
    message: str = ""


class FlushWanted(Struct, frozen=True):
    """The log has bytes that are not on disk: begin a flush soon and report `FlushCompleted`."""


class LogEndAdvanced(Struct, frozen=True):
    """Followers that wait for data can be answered."""


class HighWatermarkAdvanced(Struct, frozen=True):
    """Consumers that wait for data can be answered."""


class RoleChanged(Struct, frozen=True, kw_only=True):
    """The role or the leader epoch changed. All waiting fetches of the partition are to be looked at again.

    Attributes:
        role: The new role.
        leader: Broker id of the leader, -1 for none.
        leader_epoch: The new leader epoch.
    """

    role: Role
    leader: int
    leader_epoch: int


class FetchPositionChanged(Struct, frozen=True, kw_only=True):
    """`Replica.fetch_position()` has changed for another reason than a flush (truncation, back-off over)."""


class ProposePartition(Struct, frozen=True, kw_only=True):
    """Compare-and-swap `expected` for `proposed` (JSON Patch with tests); answer with `ProposalAnswered`.

    The same id may be proposed again after an unknown outcome: it is the same patch.

    Attributes:
        proposal_id: Unique in this replica.
        expected: The committed entry that the decision was made on.
        proposed: The entry wanted; `partition_epoch` is one higher.
        reason: For the log and the Event: what is done and on which facts.
    """

    proposal_id: int
    expected: Partition
    proposed: Partition
    reason: str


class IsrChanged(Struct, frozen=True, kw_only=True):
    """An ISR change by this leader was committed: for the counters IsrShrinks and IsrExpands.

    Attributes:
        shrunk: Members that left.
        expanded: Members that joined.
    """

    shrunk: tuple[int, ...]
    expanded: tuple[int, ...]


class Decided(Struct, frozen=True, kw_only=True):
    """One decision with its inputs, for the log.

    Attributes:
        event: Short name in snake case.
        facts: Inputs by name.
    """

    event: str
    facts: Mapping[str, object]


Effect = (
    ProduceAnswered
    | FetchAnswered
    | DeleteRecordsAnswered
    | FlushWanted
    | LogEndAdvanced
    | HighWatermarkAdvanced
    | RoleChanged
    | FetchPositionChanged
    | ProposePartition
    | IsrChanged
    | Decided
)


class FetchPosition(Struct, frozen=True, kw_only=True):
    """Where a follower goes on fetching.

    Attributes:
        leader: Broker id to fetch from.
        current_leader_epoch: Epoch for the request.
        fetch_offset: The flushed log end (S8).
        last_fetched_epoch: Latest epoch in the log before it, -1 for an empty log.
        log_start_offset: The follower's log start.
        not_before_ms: Back-off: do not fetch before this monotonic time.
    """

    leader: int
    current_leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int
    not_before_ms: float = 0.0
