"""One partition on one broker: `Replica`, the facade over leader, follower and ISR changes.

Safety comes from leader epochs, the ISR and compare-and-swap; a lease plays no part here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalite_core.model.errors import BrokerError
from kafkalite_core.model.limits import NO_LEADER
from kafkalite_core.model.partition import NOTHING_SEEN
from kafkalite_core.model.topic import Holding
from kafkalite_core.protocol.errors import ErrorCode
from kafkalite_core.replica.events import (
    DeleteRecordsAnswered,
    DeleteRecordsRequested,
    FetchAnswered,
    FetchRequested,
    FetchResponded,
    FlushCompleted,
    HandOver,
    MetadataChanged,
    ProduceAnswered,
    ProduceRequested,
    ProposalAnswered,
    Role,
    RoleChanged,
    Tick,
)
from kafkalite_core.replica.follower import Follower
from kafkalite_core.replica.isr import IsrChanges
from kafkalite_core.replica.leader import Leader
from kafkalite_core.replica.newest import Newest
from kafkalite_core.replica.read_replica import follower_read, serves
from kafkalite_core.replica.state import ReplicaState
from kafkalite_core.storage.epoch_cache import epoch_of_records

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalite_core.model.partition import IsrEntry, Partition, Seen, TopicRef
    from kafkalite_core.replica.events import Effect, Event, FetchPosition
    from kafkalite_core.replica.log_port import ReplicaLog


class Replica:
    """One replica of one partition of one incarnation of a topic (S12).

    Args:
        broker_id: This broker.
        number: Partition number.
        ref: The topic's incarnation.
        log: The log; only this replica changes it while it exists.
        high_watermark: The checkpointed high watermark; may be stale.
        lag_time_max_ms: `replica.lag.time.max.ms`.
        seen: (leader epoch, partition epoch), the highest that the disk knows of: an entry below them shows that the
            store went back in time (S11).
    """

    __slots__ = ("_changes", "_follower", "_handlers", "_leader", "_led", "_listed_less", "_newest", "_role", "_state")

    def __init__(
        self,
        *,
        broker_id: int,
        number: int,
        ref: TopicRef,
        log: ReplicaLog,
        high_watermark: int,
        lag_time_max_ms: int,
        seen: Seen = NOTHING_SEEN,
    ) -> None:
        self._state = ReplicaState(
            broker_id=broker_id,
            number=number,
            ref=ref,
            log=log,
            high_watermark=high_watermark,
            lag_time_max_ms=lag_time_max_ms,
        )
        self._changes = IsrChanges(self._state)
        self._leader: Leader | None = None
        self._follower: Follower | None = None
        self._role = Role.OFFLINE
        # What the disk knows was noted with the checkpoints, if ever; the log itself may know a later epoch.
        self._newest = Newest.noted(seen, log.epochs.latest_epoch)
        """Of the newest entry ever seen; outlives the entry itself."""
        self._listed_less = False
        """The last consistent list showed less than was seen (S11)."""
        self._led = (-1, -1)
        """(leader epoch, own broker epoch) of the last leadership."""
        self._handlers: dict[type, Callable[..., None]] = {
            ProduceRequested: self._produce,
            FetchRequested: self._fetch,
            FlushCompleted: self._flushed,
            DeleteRecordsRequested: self._delete_records,
            FetchResponded: self._fetch_responded,
            MetadataChanged: self._metadata_changed,
            ProposalAnswered: self._proposal_answered,
            Tick: self._tick,
            HandOver: self._hand_over,
        }

    def step(self, now_ms: float, event: Event) -> list[Effect]:
        """Take one event; the effects are to be carried out in order. `now_ms` is monotonic."""
        effects = self._state.effects = []
        self._handlers[type(event)](now_ms, event)
        return effects

    def reconfigure(self, *, lag_time_max_ms: int, lag_max_messages: int = 0) -> None:
        """Other `replica.lag.time.max.ms` and `replica.lag.max.messages`; from the next look at the followers on."""
        self._state.lag_time_max_ms = lag_time_max_ms
        self._state.lag_max_messages = lag_max_messages

    # ------------------------------------------------------------ what others may look at

    @property
    def role(self) -> Role:
        """What this broker is for the partition."""
        return self._role

    @property
    def is_leader(self) -> bool:
        """Whether this incarnation of this broker leads (S1)."""
        return self._leader is not None

    @property
    def leader_id(self) -> int:
        """The leader in the newest entry seen, or -1."""
        return self._state.leader_id

    @property
    def leader_epoch(self) -> int:
        """The leader epoch of the newest entry seen, or -1."""
        return self._state.leader_epoch

    @property
    def high_watermark(self) -> int:
        """Offsets below it are committed, as far as this replica knows."""
        return self._state.high_watermark

    @property
    def partition(self) -> Partition | None:
        """The newest committed entry seen; None before the first and when the partition is gone."""
        return self._state.partition

    @property
    def store_went_back(self) -> bool:
        """The store shows less than this replica knows: it neither leads nor follows until the operator has written
        epochs above all that any disk knows (S11).
        """
        return self._shown_less or self._disowned

    @property
    def _shown_less(self) -> bool:
        """What the store shows is not the latest that this process knows of it."""
        return self._newest.contradicted or self._listed_less

    @property
    def _disowned(self) -> bool:
        """This very incarnation is to lead in an epoch that its log has records of, and it has not led in it.

        So whoever did is forgotten by the store: the topic was deleted, set aside here, and is back as it was before.
        """
        state, partition = self._state, self._state.partition
        if partition is None or partition.leader != state.broker_id:
            return False
        named = partition.isr_epoch_of(state.broker_id) == state.broker_epoch
        led = self._led == (partition.leader_epoch, state.broker_epoch)
        return named and not led and state.log.epochs.latest_epoch >= partition.leader_epoch

    @property
    def shown(self) -> tuple[int, int]:
        """(leader epoch, partition epoch) of the entry that it goes by; (-1, -1) without one."""
        partition = self._state.partition
        return (-1, -1) if partition is None else (partition.leader_epoch, partition.partition_epoch)

    @property
    def seen(self) -> Seen:
        """What it knows of the entries that it was shown, for the disk to note (S11)."""
        return self._newest.seen

    def holding(self) -> Holding:
        """What this replica holds, for the operator's decision after the store went back in time (S11)."""
        state, newest = self._state, self._newest
        log = state.log
        return Holding(
            topic=state.ref.name,
            topic_id=state.ref.topic_id,
            partition=state.number,
            leader_epoch=max(newest.leader_epoch, log.epochs.latest_epoch),
            partition_epoch=newest.partition_epoch,
            log_epoch=epoch_of_records(log.epochs, log.start_offset, log.flushed_end),
            end_offset=log.flushed_end,
            agrees=state.partition is not None and not self.store_went_back,
            isr=newest.isr,
            isr_epoch=newest.isr_epoch if newest.isr_epoch != newest.partition_epoch else None,
            isr_leader_epoch=newest.isr_leader_epoch if newest.isr else None,
        )

    @property
    def maximal_isr(self) -> tuple[IsrEntry, ...]:
        """The committed ISR and every unsettled proposal (R4); empty on a replica that does not lead."""
        return () if self._leader is None else self._leader.maximal_isr

    @property
    def under_replicated(self) -> bool:
        """Leads with fewer replicas in sync than there are."""
        partition = self._state.partition
        return self._leader is not None and partition is not None and partition.under_replicated

    @property
    def under_min_isr(self) -> bool:
        """Leads with fewer counting members than min ISR: acks=all is refused."""
        partition = self._state.partition
        return self._leader is not None and partition is not None and self._leader.counting < partition.min_isr

    @property
    def at_min_isr(self) -> bool:
        """Leads with exactly as many counting members as min ISR."""
        partition = self._state.partition
        return self._leader is not None and partition is not None and self._leader.counting == partition.min_isr

    def fetch_position(self) -> FetchPosition | None:
        """Where to go on fetching; None when there is nothing to fetch, or not before the next flush (S8)."""
        return None if self._follower is None else self._follower.fetch_position()

    def list_offset_bounds(self, current_leader_epoch: int, from_replica: bool) -> int:
        """The end for ListOffsets: the high watermark, for replicas the log end.

        Raises `BrokerError`: a wrong leader epoch, NOT_LEADER_OR_FOLLOWER, or OFFSET_NOT_AVAILABLE while the high
        watermark of a new leader may be below the one that its predecessor had shown (R13, KIP-207).
        """
        leader = self._leading(current_leader_epoch)
        if from_replica:
            return self._state.log.end_offset
        if self._state.high_watermark < leader.epoch_start:
            message = f"high watermark {self._state.high_watermark} below the epoch's start {leader.epoch_start}"
            raise BrokerError(ErrorCode.OFFSET_NOT_AVAILABLE, message)
        return self._state.high_watermark

    def end_offset_for_epoch(self, current_leader_epoch: int, epoch: int) -> tuple[int, int]:
        """(largest epoch ≤ `epoch`, where it ends), (-1, -1) when undefined (KIP-320). Raises as above."""
        self._leading(current_leader_epoch)
        log = self._state.log
        return log.epochs.end_offset_for(epoch, log.end_offset)

    def _leading(self, current_leader_epoch: int) -> Leader:
        code = self._check_epoch(current_leader_epoch)
        if code is not ErrorCode.NONE:
            raise BrokerError(code, f"leader epoch {current_leader_epoch}, here it is {self._state.leader_epoch}")
        assert self._leader is not None
        return self._leader

    def _check_epoch(self, current_leader_epoch: int) -> ErrorCode:
        """Epoch first, then leadership, as Kafka answers (R2, KIP-320); -1 means that the requester knows none."""
        if 0 <= current_leader_epoch < self._state.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if current_leader_epoch > self._state.leader_epoch:
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        return ErrorCode.NOT_LEADER_OR_FOLLOWER if self._leader is None else ErrorCode.NONE

    # ------------------------------------------------------------ events

    def _produce(self, now_ms: float, event: ProduceRequested) -> None:
        if self._leader is not None:
            self._leader.produce(now_ms, event)
            return
        self._state.effects.append(
            ProduceAnswered(
                token=event.token, error_code=int(ErrorCode.NOT_LEADER_OR_FOLLOWER), message="this broker does not lead"
            )
        )

    def _fetch(self, now_ms: float, event: FetchRequested) -> None:
        code = self._check_epoch(event.current_leader_epoch)
        if code is ErrorCode.NONE and self._leader is not None:
            answer = self._leader.fetch(now_ms, event)
        elif code is ErrorCode.NOT_LEADER_OR_FOLLOWER and self._follower is not None and serves(event):
            answer = follower_read(self._state, event)
        else:
            answer = FetchAnswered(token=event.token, error_code=int(code))
        self._state.effects.append(answer)

    def _delete_records(self, _now_ms: float, event: DeleteRecordsRequested) -> None:
        if self._leader is not None:
            self._leader.delete_records(event)
            return
        code = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        message = "this broker does not lead"
        self._state.effects.append(
            DeleteRecordsAnswered(token=event.token, error_code=code, low_watermark=-1, message=message)
        )

    def _fetch_responded(self, now_ms: float, event: FetchResponded) -> None:
        if self._follower is not None:
            self._follower.responded(now_ms, event)

    def _flushed(self, now_ms: float, _event: FlushCompleted) -> None:
        if self._leader is not None:
            self._leader.commit(now_ms)
        self._state.want_flush()

    def _tick(self, now_ms: float, _event: Tick) -> None:
        if self._leader is not None:
            self._leader.tick(now_ms)
        elif self._follower is not None:
            self._follower.tick(now_ms)

    def _hand_over(self, now_ms: float, event: HandOver) -> None:
        if self._leader is not None:
            self._leader.hand_over(now_ms, event.reason)

    def _proposal_answered(self, now_ms: float, event: ProposalAnswered) -> None:
        committed = self._changes.answered(now_ms, event)
        if committed is not None:
            self._accept(now_ms, committed)
        self._follow_metadata(now_ms)
        self._state.want_flush()

    def _metadata_changed(self, now_ms: float, event: MetadataChanged) -> None:
        state = self._state
        state.brokers = event.brokers
        state.broker_epoch = event.broker_epoch
        state.take_config(event.config, flush_lag_known=event.flush_lag_known)
        if event.partition is None:
            state.partition = None
        else:
            self._accept(now_ms, event.partition)
        if event.went_back and not self._listed_less:
            self._tell_went_back(None)
        self._listed_less = event.went_back
        self._follow_metadata(now_ms)
        # Bytes may be unflushed because flush.messages was tightened; a follower fetches from its flushed end only.
        state.want_flush()

    # ------------------------------------------------------------ metadata

    def _accept(self, now_ms: float, partition: Partition) -> None:
        """Take a committed entry unless a newer one was seen: leader epoch first, then partition epoch (KAFKA-14144).

        Answers to own proposals and the watch come through here alike, in any order. What cannot have come before or
        after the newest one in one history of the store is not taken at all (S11).
        """
        before = self._newest
        self._newest, taken = before.shown(partition)
        if self._newest.contradicted and not before.contradicted:
            self._tell_went_back(partition)
        if not taken:
            return
        known, self._state.partition = self._state.partition, partition
        self._changes.followed(now_ms, known, partition)

    def _tell_went_back(self, shown: Partition | None) -> None:
        newest = self._newest
        self._state.decided(
            "store_went_back",
            known=(newest.leader_epoch, newest.partition_epoch),
            shown=None if shown is None else (shown.leader_epoch, shown.partition_epoch, shown.leader),
        )

    def _wanted_role(self) -> Role:
        """What this incarnation is to be.

        leads <=> the entry names this broker leader and its ISR holds (id, exactly the own broker epoch) (S1), and no
        other incarnation has led in this epoch: then the log has no record of it yet. While the store is behind what
        is known it is nothing: no acknowledgement, no truncation (S11).
        """
        state = self._state
        partition = state.partition
        if partition is None or state.broker_epoch < 0 or state.broker_id not in partition.replicas:
            return Role.OFFLINE
        if self._shown_less:
            return Role.OFFLINE
        if partition.leader == NO_LEADER:
            return Role.OFFLINE
        if partition.leader != state.broker_id:
            return Role.FOLLOWER
        if partition.isr_epoch_of(state.broker_id) != state.broker_epoch:
            return Role.OFFLINE
        led_already = self._led == (partition.leader_epoch, state.broker_epoch)
        return Role.LEADER if led_already or state.log.epochs.latest_epoch < partition.leader_epoch else Role.OFFLINE

    def _follow_metadata(self, now_ms: float) -> None:
        """Become what the metadata says; a leader that stays one looks at its ISR anew."""
        state = self._state
        role, partition = self._wanted_role(), state.partition
        before = self._role
        if role is Role.LEADER:
            assert partition is not None
            self._lead(now_ms, partition)
            return
        if self._leader is not None:
            self._leader.resigned("this broker no longer leads")
            self._leader = None
        follower = self._follower
        if role is Role.FOLLOWER:
            assert partition is not None
            same = follower is not None and (follower.leader, follower.epoch) == (
                partition.leader,
                partition.leader_epoch,
            )
            if not same:
                self._follower = Follower(state, partition.leader, partition.leader_epoch)
                self._role_changed(role)
        else:
            self._follower = None
            if before is not role:
                self._role_changed(role)

    def _lead(self, now_ms: float, partition: Partition) -> None:
        state = self._state
        leader = self._leader
        if leader is not None and leader.epoch == partition.leader_epoch:
            leader.refresh(now_ms, partition)
        else:
            self._follower = None
            if leader is None:
                leader = self._leader = Leader(state, self._changes, partition)
            self._led = (partition.leader_epoch, state.broker_epoch)
            self._role_changed(Role.LEADER)
            leader.elected(now_ms, partition)
        leader.consider(now_ms)

    def _role_changed(self, role: Role) -> None:
        """Say so; the flush is wanted because a follower fetches only from its flushed end."""
        state = self._state
        self._role = role
        state.effects.append(RoleChanged(role=role, leader=state.leader_id, leader_epoch=state.leader_epoch))
        partition = state.partition
        state.decided(
            "replica_role",
            role=role.value,
            broker_epoch=state.broker_epoch,
            leader=state.leader_id,
            leader_epoch=state.leader_epoch,
            partition_epoch=-1 if partition is None else partition.partition_epoch,
            isr=() if partition is None else tuple((entry.id, entry.epoch) for entry in partition.isr),
            log_end=state.log.end_offset,
            flushed_end=state.log.flushed_end,
            latest_epoch=state.log.epochs.latest_epoch,
            high_watermark=state.high_watermark,
        )
