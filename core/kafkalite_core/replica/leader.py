"""A replica that leads: it appends, judges how far its followers are, commits, and proposes ISR changes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from msgspec import structs

from kafkalite_core.model.eligible import with_eligible
from kafkalite_core.model.errors import BrokerError, StorageError
from kafkalite_core.protocol.errors import ErrorCode
from kafkalite_core.replica.deletions import WaitingDeletions, delete_records, low_watermark, refusal
from kafkalite_core.replica.events import CONSUMER_ID, DeleteRecordsAnswered, FetchAnswered, ProduceAnswered
from kafkalite_core.replica.followers import Followers, Progress
from kafkalite_core.replica.hand_over import hand_over_entry
from kafkalite_core.replica.high_watermark import advanced_high_watermark
from kafkalite_core.replica.isr import wanted_isr
from kafkalite_core.replica.parked import NONE, Parked, ParkedProduces
from kafkalite_core.replica.read_replica import NO_PREFERENCE, preferred_read_replica
from kafkalite_core.replica.refused import Refused
from kafkalite_core.replica.state import (
    FLUSH_WANTED,
    HIGH_WATERMARK_ADVANCED,
    LOG_END_ADVANCED,
    STORAGE_HAND_OVER_INTERVAL_MS,
    STORAGE_RETRY_MS,
)
from kafkalite_core.storage.errors import OutOfOrderSequence
from kafkalite_core.storage.producer_state import Duplicate

if TYPE_CHECKING:
    from kafkalite_core.model.partition import Partition
    from kafkalite_core.replica.events import DeleteRecordsRequested, FetchRequested, ProduceRequested
    from kafkalite_core.replica.isr import IsrChanges
    from kafkalite_core.replica.state import ReplicaState

ACKS_ALL: Final = -1
ACKS_LEADER: Final = 1
ACKS_NONE: Final = 0
DISK_FULL: Final = "disk full"


class Leader:
    """Leads the partition in one leader epoch, or in several in a row.

    Attributes:
        epoch: The leader epoch.
        epoch_start: The log end at the election.
        counting: Members of the committed ISR that count towards min ISR (S2, S3).
        maximal_isr: The committed ISR and every unsettled proposal.
    """

    __slots__ = (
        "_changes",
        "_deletions",
        "_followers",
        "_hand_over_reason",
        "_hand_over_refused",
        "_joining",
        "_members",
        "_parked_all",
        "_parked_one",
        "_partition",
        "_refused",
        "_state",
        "counting",
        "epoch",
        "epoch_start",
        "maximal_isr",
    )

    def __init__(self, state: ReplicaState, changes: IsrChanges, partition: Partition) -> None:
        self._state = state
        self._changes = changes
        self._partition = partition
        self._followers = Followers()
        self._members: list[Progress] = []
        self._joining: list[Progress] = []
        self._parked_all = ParkedProduces()
        self._parked_one = ParkedProduces()
        self._deletions = WaitingDeletions()
        self._refused = Refused()
        self._hand_over_reason = ""
        self._hand_over_refused = False
        self.epoch = -1
        self.epoch_start = 0
        self.counting = 0
        self.maximal_isr = partition.isr

    # ------------------------------------------------------------ becoming and ceasing to be leader

    def elected(self, now_ms: float, partition: Partition) -> None:
        """Begin a leader epoch: its start is in the epoch cache before anything is served (KAFKA-7415).

        What followers had in an earlier epoch is void, so the high watermark stands until every member of the maximal
        ISR has fetched once in this one. Parked requests survive a re-election: their records are still in this log.

        A follower outside the ISR may know a high watermark above what it has flushed. When it is elected uncleanly,
        that is not what a leader may call committed (S8): it comes back with the flush.
        """
        state = self._state
        state.high_watermark = min(state.high_watermark, state.log.flushed_end)
        self.epoch = partition.leader_epoch
        self.epoch_start = state.log.end_offset
        self._refused.elected(now_ms)
        state.log.epochs.assign(self.epoch, self.epoch_start)
        state.effects.append(FLUSH_WANTED)
        self._followers.clear()
        self.refresh(now_ms, partition)

    def refresh(self, now_ms: float, partition: Partition) -> None:
        """The committed entry, the brokers or the pending proposal changed: look at members and commit anew."""
        state, followers = self._state, self._followers
        before, self._partition = self._partition, partition
        self.maximal_isr = self._changes.maximal_isr(partition)
        others = [entry for entry in self.maximal_isr if entry.id != state.broker_id]
        members = [followers.ensure(entry.id, entry.epoch, now_ms) for entry in others]
        for entry in partition.isr:
            if entry not in before.isr and (progress := followers.get(entry.id, entry.epoch)) is not None:
                # It joined at the high watermark, perhaps below this log's end: it has the whole time to catch up.
                # Without it the entry would be thrown out and taken in again as fast as the store answers.
                progress.caught_up_ms = max(progress.caught_up_ms, now_ms)
        keep = {(member.id, member.epoch) for member in members}
        # Whoever may be elected holds the high watermark back, not only the ISR; see `model.eligible`.
        eligible = [followers.ensure(entry.id, entry.epoch, self._never_ms) for entry in partition.elr]
        keep.update((member.id, member.epoch) for member in eligible)
        keep.update((broker_id, state.registered_epoch(broker_id)) for broker_id in partition.replicas)
        followers.retain(keep)
        self._members = members + eligible
        self._joining = [progress for progress in followers if progress not in members]
        self.counting = sum(state.counts(entry) for entry in partition.isr)
        self.commit(now_ms)
        self._settle_deletions()

    @property
    def _never_ms(self) -> float:
        """A time so long ago that who was caught up then lags."""
        return -self._state.lag_time_max_ms - 1.0

    def resigned(self, message: str) -> None:
        """Leadership is lost: nobody is left waiting."""
        effects = self._state.effects
        self._parked_all.fail(ErrorCode.NOT_LEADER_OR_FOLLOWER, message, effects)
        self._parked_one.fail(ErrorCode.NOT_LEADER_OR_FOLLOWER, message, effects)
        self._deletions.fail(ErrorCode.NOT_LEADER_OR_FOLLOWER, effects)

    # ------------------------------------------------------------ produce

    def produce(self, now_ms: float, event: ProduceRequested) -> None:
        """Append a batch and answer it: with acks=0 at once; with acks=1 when this broker's disk has it, which with
        relaxed flush is at once; with acks=all when the high watermark has passed it (R11).
        """
        if event.given_up:
            self._refuse(event, event.given_up_code, event.given_up)
            return
        state = self._state
        acks = event.acks
        if acks == ACKS_ALL:
            if self.counting < self._partition.min_isr:
                message = f"{self.counting} in sync, min.insync.replicas is {self._partition.min_isr}"
                self._refused.refusing(now_ms)
                self._refuse(event, ErrorCode.NOT_ENOUGH_REPLICAS, message)
                return
        elif acks not in {ACKS_NONE, ACKS_LEADER}:
            self._refuse(event, ErrorCode.INVALID_REQUIRED_ACKS, f"acks={acks}")
            return
        if state.storage_full_until_ms > now_ms:
            self._refused.refusing(now_ms)
            self._refuse(event, ErrorCode.KAFKA_STORAGE_ERROR, "the disk is full")
            return
        log = state.log
        try:
            if event.header.producer_id >= 0:
                begins = self._refused.may_begin(event.header, now_ms, event.received_ms)
                verdict = log.producers.check(event.header, begins_anywhere=begins)
                if isinstance(verdict, Duplicate):
                    stamp_ms = verdict.timestamp if log.stamps_append_time else -1
                    self._await(event, verdict.base_offset, verdict.last_offset + 1, stamp_ms)
                    return
            appended = log.append_as_leader(event.batch, leader_epoch=self.epoch, now_ms=event.wall_ms)
        except StorageError as error:
            self._storage_failed(now_ms, str(error))
            self._refuse(event, ErrorCode.KAFKA_STORAGE_ERROR, str(error))
            return
        except OutOfOrderSequence as error:
            self._out_of_order(now_ms, event, error)
            return
        except BrokerError as error:
            self._refuse(event, error.error_code, error.message)
            return
        self._refused.appended(event.header)
        if state.storage_full_until_ms:
            self._storage_recovered()
        state.effects.append(LOG_END_ADVANCED)
        state.want_flush()
        self._await(event, appended.base_offset, appended.last_offset + 1, appended.log_append_time)
        if log.flushed_end == log.end_offset:
            self.commit(now_ms)

    def _out_of_order(self, now_ms: float, event: ProduceRequested, error: OutOfOrderSequence) -> None:
        """The batch before it was refused, here or by who had not heard yet that it leads, and is sent again first."""
        if error.gap and self._refused.is_behind(event.header, now_ms, event.received_ms):
            self._refuse(event, ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{error.message}; send what is missing first")
        else:
            self._refuse(event, error.error_code, error.message)

    def _await(self, event: ProduceRequested, base_offset: int, end_offset: int, log_append_time_ms: int) -> None:
        """Answer now or park. A duplicate waits exactly like its original (S9)."""
        state = self._state
        reached = state.high_watermark if event.acks == ACKS_ALL else state.log.flushed_end
        if event.acks != ACKS_NONE and end_offset > reached:
            parked = self._parked_all if event.acks == ACKS_ALL else self._parked_one
            parked.park(Parked(end_offset, event.token, base_offset, log_append_time_ms, event.deadline_ms))
            return
        state.effects.append(
            ProduceAnswered(
                token=event.token,
                error_code=NONE,
                base_offset=base_offset,
                log_append_time_ms=log_append_time_ms,
                log_start_offset=state.log.start_offset,
            )
        )

    def _refuse(self, event: ProduceRequested, error_code: int, message: str) -> None:
        self._refused.note(event.header)
        self._state.effects.append(ProduceAnswered(token=event.token, error_code=int(error_code), message=message))

    def _storage_failed(self, now_ms: float, message: str) -> None:
        """The disk is full: serve reads, try to hand leadership over, try one append again after a while."""
        state = self._state
        state.storage_full_until_ms = now_ms + STORAGE_RETRY_MS
        state.decided("storage_full", end_offset=state.log.end_offset, error=message)
        if now_ms >= state.storage_hand_over_after_ms:
            state.storage_hand_over_after_ms = now_ms + STORAGE_HAND_OVER_INTERVAL_MS
            self.hand_over(now_ms, DISK_FULL)

    def _storage_recovered(self) -> None:
        self._state.storage_full_until_ms = 0.0
        if self._hand_over_reason == DISK_FULL:
            self._hand_over_reason = ""

    # ------------------------------------------------------------ fetch

    def fetch(self, now_ms: float, event: FetchRequested) -> FetchAnswered:
        """What a follower or a consumer may read; the leader epoch has been checked (R2)."""
        if event.replica_id != CONSUMER_ID:
            refusal = self._fenced(event)
            if refusal is not ErrorCode.NONE:
                return FetchAnswered(token=event.token, error_code=int(refusal))
        log = self._state.log
        offset, start, end = event.fetch_offset, log.start_offset, log.end_offset
        if offset < start:
            return self._answer(event, ErrorCode.OFFSET_OUT_OF_RANGE)
        if event.last_fetched_epoch >= 0:
            epoch, epoch_end = log.epochs.end_offset_for(event.last_fetched_epoch, end)
            if 0 <= epoch < event.last_fetched_epoch or (epoch >= 0 and epoch_end < offset):
                return self._answer(event, ErrorCode.NONE, diverging=(epoch, epoch_end))
            if epoch < 0:
                return self._beyond(event)
        if offset > end:
            return self._beyond(event)
        if event.replica_id != CONSUMER_ID:
            diverging = self._other_history(event)
            if diverging is not None:
                return self._answer(event, ErrorCode.NONE, diverging=diverging)
            if not event.reread:
                self._follower_fetched(now_ms, event)
            return self._answer(event, ErrorCode.NONE, read_end=end)
        if event.rack:
            brokers, reachable = self._state.brokers, event.reachable
            elsewhere = preferred_read_replica(
                self._partition, self._followers, brokers, rack=event.rack, offset=offset, reachable=reachable
            )
            if elsewhere != NO_PREFERENCE:
                return structs.replace(self._answer(event, ErrorCode.NONE), preferred_read_replica=elsewhere)
        return self._answer(event, ErrorCode.NONE, read_end=max(offset, self._state.high_watermark))

    def _other_history(self, event: FetchRequested) -> tuple[int, int] | None:
        """Where to cut if the follower's newest epoch begins in this log only after the follower's end.

        Whoever knows an epoch has its first record. So it has begun twice: the second time after a restore of the
        store, with another leader (S11).
        """
        log, newest = self._state.log, event.last_fetched_epoch
        began = log.epochs.end_offset_for(newest - 1, log.end_offset)[1]
        here = log.epochs.epoch_at(event.fetch_offset)
        if began <= event.fetch_offset or not 0 <= here < newest:
            return None
        return log.epochs.end_offset_for(here, log.end_offset)

    def _fenced(self, event: FetchRequested) -> ErrorCode:
        """Why a follower is refused (R2, R8, KIP-903); NONE when it is the incarnation that is registered."""
        if event.current_leader_epoch < 0 or event.replica_id not in self._partition.replicas:
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        registered = self._state.registered_epoch(event.replica_id)
        if event.replica_epoch > registered:
            # This broker's metadata is behind; the follower tries again.
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        return ErrorCode.NONE if event.replica_epoch == registered >= 0 else ErrorCode.NOT_LEADER_OR_FOLLOWER

    def _beyond(self, event: FetchRequested) -> FetchAnswered:
        """The requester has what this log has not. A follower is told to cut to this log's end."""
        if event.replica_id == CONSUMER_ID:
            return self._answer(event, ErrorCode.OFFSET_OUT_OF_RANGE)
        log = self._state.log
        return self._answer(event, ErrorCode.NONE, diverging=(log.epochs.latest_epoch, log.end_offset))

    def _answer(
        self, event: FetchRequested, code: ErrorCode, *, read_end: int = -1, diverging: tuple[int, int] | None = None
    ) -> FetchAnswered:
        state = self._state
        return FetchAnswered(
            token=event.token,
            error_code=int(code),
            high_watermark=state.high_watermark,
            log_start_offset=state.log.start_offset,
            read_from=event.fetch_offset,
            read_end=max(read_end, event.fetch_offset),
            diverging=diverging,
        )

    def _follower_fetched(self, now_ms: float, event: FetchRequested) -> None:
        """A follower's log agrees with this one up to its fetch offset, and is on its disk up to there (S8)."""
        progress = self._followers.get(event.replica_id, event.replica_epoch)
        if progress is None:
            progress = self._followers.ensure(event.replica_id, event.replica_epoch, self._never_ms)
            self._joining.append(progress)
        progress.fetched_at(event.fetch_offset, self._state.log.flushed_end, now_ms)
        progress.log_start_offset = event.log_start_offset
        self.commit(now_ms)
        if self._deletions:
            self._settle_deletions()
        if self._joining:
            self.consider(now_ms)

    # ------------------------------------------------------------ deleting

    def delete_records(self, event: DeleteRecordsRequested) -> None:
        """Delete here at once; answer when every live replica has done so as well."""
        state = self._state
        code, message = refusal(state, event.offset)
        if code is not ErrorCode.NONE:
            state.effects.append(
                DeleteRecordsAnswered(token=event.token, error_code=int(code), low_watermark=-1, message=message)
            )
            return
        self._deletions.add(event, delete_records(state, event.offset))
        self._settle_deletions()

    def _settle_deletions(self) -> None:
        if self._deletions:
            low = low_watermark(self._state, self._followers, self._partition)
            self._deletions.settle(low, self._state.effects)

    # ------------------------------------------------------------ committing

    def commit(self, now_ms: float) -> None:
        """Move the high watermark as far as the theorem of `advanced_high_watermark` allows; answer who waited."""
        state = self._state
        log = state.log
        members = self._members
        if self._joining:
            members = members + [progress for progress in self._joining if self._about_to_join(progress, now_ms)]
        flushed_end = log.flushed_end
        advanced = advanced_high_watermark(
            state.high_watermark, flushed_end, members, counting=self.counting, min_isr=self._partition.min_isr
        )
        if advanced != state.high_watermark:
            state.high_watermark = advanced
            state.effects.append(HIGH_WATERMARK_ADVANCED)
        if self._parked_all:
            self._parked_all.complete(state.high_watermark, log.start_offset, state.effects)
        if self._parked_one:
            self._parked_one.complete(flushed_end, log.start_offset, state.effects)

    def _about_to_join(self, progress: Progress, now_ms: float) -> bool:
        """A live replica outside the ISR that is caught up holds the high watermark back, so that it can join."""
        state = self._state
        return (
            progress.fetched
            and progress.id in self._partition.replicas
            and state.registered_epoch(progress.id) == progress.epoch
            and state.alive(progress.id)
            and progress.caught_up(state.log.flushed_end, now_ms, state.lag_time_max_ms)
            and progress.within(state.log.flushed_end, state.lag_max_messages)
        )

    # ------------------------------------------------------------ time, ISR, hand-over

    def tick(self, now_ms: float) -> None:
        """Expire waiting requests, look for members that lag, try again what is due."""
        effects = self._state.effects
        self._refused.seen(now_ms)
        self.commit(now_ms)
        if self.counting < self._partition.min_isr:
            code, message = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, "fewer in sync than min.insync.replicas"
        else:
            code, message = ErrorCode.REQUEST_TIMED_OUT, "not committed in time"
        self._parked_all.expire(now_ms, int(code), message, effects)
        self._parked_one.expire(now_ms, int(ErrorCode.REQUEST_TIMED_OUT), "not flushed in time", effects)
        if self._deletions:
            low = low_watermark(self._state, self._followers, self._partition)
            self._deletions.expire(now_ms, low, effects)
        self.consider(now_ms)

    def hand_over(self, now_ms: float, reason: str) -> None:
        """Give leadership away, now or as soon as another member of the ISR is alive."""
        self._hand_over_reason = reason
        self.consider(now_ms)

    def consider(self, now_ms: float) -> None:
        """Propose the change of the entry that is wanted, if any; one at a time."""
        pending = self._changes.pending
        if pending is not None:
            if not pending.in_flight and now_ms >= pending.retry_ms:
                self._changes.retry(now_ms, self._wanted(now_ms, pending.expected)[0])
            return
        if now_ms < self._changes.blocked_until_ms:
            return
        partition = self._partition
        proposed, reason = self._wanted(now_ms, partition)
        if proposed == partition:
            return
        self._changes.propose(partition, proposed, reason)
        self.refresh(now_ms, partition)

    def _wanted(self, now_ms: float, partition: Partition) -> tuple[Partition, str]:
        """The entry as it should be; the given one when nothing is to be done."""
        state = self._state
        why = self._hand_over_reason
        if why:
            successor, reason = hand_over_entry(state, partition)
            if successor is not None:
                self._hand_over_refused = False
                return successor, f"{why}: {reason}"
            if not self._hand_over_refused:
                self._hand_over_refused = True
                state.decided("hand_over_impossible", wanted_for=why, reason=reason, isr=partition.isr_ids())
        may_add = now_ms >= self._changes.additions_blocked_until_ms
        isr, reason = wanted_isr(state, self._followers, partition, self.epoch_start, now_ms, may_add=may_add)
        # The first change after an unclean election confirms it (KIP-704).
        wanted = with_eligible(partition, replace(partition, isr=isr, recovering=False), state.counts, state.lost)
        if wanted == partition:
            return partition, ""
        if not reason:
            reason = "took over after an unclean election" if partition.recovering else "the ISR suffices without ELR"
        return replace(wanted, partition_epoch=partition.partition_epoch + 1), reason
