"""A replica that follows: what it does with its leader's answers (KIP-101, KIP-279, KIP-320)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafkalite_core.model.errors import BrokerError, StorageError
from kafkalite_core.protocol.errors import ErrorCode
from kafkalite_core.replica.events import FetchPosition
from kafkalite_core.replica.state import FETCH_POSITION_CHANGED, HIGH_WATERMARK_ADVANCED, STORAGE_RETRY_MS
from kafkalite_core.storage.errors import UnexpectedAppendOffset

if TYPE_CHECKING:
    from kafkalite_core.replica.events import FetchResponded
    from kafkalite_core.replica.state import ReplicaState

BACK_OFF_MIN_MS: Final = 20.0
BACK_OFF_MAX_MS: Final = 1_000.0
_BASE_OFFSET_BYTES: Final = 8


class Follower:
    """Follows one leader in one leader epoch; a new one is made for every leader epoch.

    The log before `fetch_offset` agrees with the leader's exactly when the leader accepts the fetch; so the first
    fetch of an epoch is also the question where the logs diverge, and nothing is cut before it is answered (R3).
    """

    __slots__ = ("_failures", "_not_before_ms", "_state", "epoch", "leader")

    def __init__(self, state: ReplicaState, leader: int, epoch: int) -> None:
        self._state = state
        self.leader = leader
        self.epoch = epoch
        self._failures = 0
        self._not_before_ms = 0.0
        log = state.log
        if log.end_offset > log.start_offset:
            # An epoch that was led in and not written in goes: two logs agree if their last records are of one epoch.
            # After a restore of the store such an epoch may be another leader's, which has written in it (S11).
            log.epochs.truncate_from_end(log.end_offset)

    def fetch_position(self) -> FetchPosition | None:
        """Where to go on; None while bytes of the log are not on disk, since a fetch reports the flushed end (S8).

        The epoch is the newest in the cache: that of the last record, but in an empty log, where it may have none. A
        leader that does not know it answers where to cut, and that cut removes it. Otherwise later records of a lower
        epoch would be filed under it.
        """
        log = self._state.log
        if log.flushed_end < log.end_offset:
            return None
        return FetchPosition(
            leader=self.leader,
            current_leader_epoch=self.epoch,
            fetch_offset=log.end_offset,
            last_fetched_epoch=log.epochs.latest_epoch,
            log_start_offset=log.start_offset,
            not_before_ms=self._not_before_ms,
        )

    def tick(self, now_ms: float) -> None:
        """Announce the end of a back-off."""
        if self._not_before_ms and now_ms >= self._not_before_ms:
            self._not_before_ms = 0.0
            self._state.effects.append(FETCH_POSITION_CHANGED)

    def responded(self, now_ms: float, event: FetchResponded) -> None:
        """Apply an answer, if it belongs to the present leader epoch and to the present end (KAFKA-7786, 18991).

        The end counts with its epoch: another log may have ended at that offset, before a cut and what came after it.
        """
        log = self._state.log
        if (
            event.leader_epoch != self.epoch
            or event.leader_id != self.leader
            or (event.fetch_offset, event.last_fetched_epoch) != (log.end_offset, log.epochs.latest_epoch)
            or log.flushed_end < log.end_offset
        ):
            return
        if event.error_code == ErrorCode.OFFSET_OUT_OF_RANGE and log.end_offset < event.log_start_offset:
            # The leader has deleted what would come next.
            end = log.end_offset
            if self._cut(now_ms, event.log_start_offset):
                self._state.decided("log_restarted", end_offset=end, start_offset=event.log_start_offset)
        elif event.error_code != ErrorCode.NONE:
            self._back_off(now_ms, "fetch_refused", error=_error_name(event.error_code))
        elif event.diverging is not None:
            self._diverged(now_ms, event.diverging, event.log_start_offset)
        else:
            self._append(now_ms, event)

    def _diverged(self, now_ms: float, diverging: tuple[int, int], leader_start: int) -> None:
        """Cut where the logs may still agree, then ask again; it takes several rounds if both have epochs that the
        other has not (KIP-279). Neither high watermark nor log start is taken from such an answer (KAFKA-14704).

        Where the leader's log begins there its epochs tell nothing of what lies below: the logs may differ there as
        well. A log start lives in memory until the next checkpoint, so that would be shown after a crash; the log
        begins anew. One that somebody counts on has all that was committed, hence deleted: it agrees below.
        """
        log = self._state.log
        epoch, leader_end = diverging
        end, latest = log.end_offset, log.epochs.latest_epoch
        local_epoch, local_end = log.epochs.end_offset_for(epoch, end)
        if local_epoch < 0:
            target = min(leader_end, end)
        elif local_epoch == epoch:
            target = min(leader_end, local_end, end)
        else:
            target = min(local_end, end)
        before = self._state.high_watermark
        if not self._cut(now_ms, target, anew=0 < target == leader_start and not self._is_counted_on()):
            return
        self._state.decided(
            "truncated",
            leader=self.leader,
            leader_epoch=self.epoch,
            diverging_epoch=epoch,
            diverging_end=leader_end,
            local_epoch=local_epoch,
            end_offset=end,
            truncated_to=target,
            high_watermark=before,
        )
        if log.end_offset == end and log.epochs.latest_epoch == latest:
            self._back_off(now_ms, "divergence_without_progress", epoch=epoch, end_offset=leader_end)

    def _append(self, now_ms: float, event: FetchResponded) -> None:
        state = self._state
        log = state.log
        before = log.end_offset
        if self._has_only_what_was_deleted(event):
            if self._cut(now_ms, before, anew=True):
                state.decided("log_restarted", end_offset=before, start_offset=before)
            return
        if len(event.records):
            try:
                self._restart_inside_batch(event)
                before = log.end_offset
                log.append_as_follower(event.records, max_epoch=event.leader_epoch, now_ms=event.wall_ms)
            except StorageError as error:
                self._storage_full(now_ms, "append_failed", error)
                state.want_flush()  # of the batches that had room: it fetches from its flushed end on
                return
            except (BrokerError, UnexpectedAppendOffset) as error:
                if not isinstance(error, UnexpectedAppendOffset) or not self._of_another_history(now_ms, error):
                    self._back_off(now_ms, "append_failed", error=str(error))
                return
            if log.end_offset == before:
                # All of it was of a higher epoch: the answer comes from a leader that was replaced meanwhile.
                self._back_off(now_ms, "records_of_a_higher_epoch", leader_epoch=self.epoch)
                return
            state.storage_full_until_ms = 0.0
        self._failures = 0
        self._not_before_ms = 0.0
        self._take_bounds(event)
        if log.end_offset != before:
            if log.flushed_end < log.end_offset:
                state.want_flush()
            else:
                state.effects.append(FETCH_POSITION_CHANGED)

    def _of_another_history(self, now_ms: float, error: UnexpectedAppendOffset) -> bool:
        """This log ends inside a batch of the leader: what the two call one epoch is not the same; True if it was cut.

        That epoch came again after a restore of the store, with another leader (S11). Its records go, and the leader is
        asked about those before; unless somebody counts on this log, which no history makes necessary.
        """
        state = self._state
        log = state.log
        end = log.end_offset
        if error.first_offset >= end or self._is_counted_on():
            return False
        target = (
            min(error.first_offset, log.epochs.latest_start) if log.epochs.latest_epoch >= 0 else error.first_offset
        )
        if self._cut(now_ms, target):
            state.decided("epoch_began_twice", end_offset=end, truncated_to=target, error=str(error))
        return True

    def _has_only_what_was_deleted(self, event: FetchResponded) -> bool:
        """Whether the leader's log begins where this one ends: its epochs do not tell whether the logs agree below.

        As in `_diverged` the log begins anew then, unless somebody counts on it.
        """
        log = self._state.log
        return log.start_offset < log.end_offset == event.log_start_offset and not self._is_counted_on()

    def _restart_inside_batch(self, event: FetchResponded) -> None:
        """A log that ends where the leader's begins, inside a batch of the leader, begins anew with that batch.

        Such a log is empty, or somebody counts on it and the leader has deleted all that it holds (DeleteRecords cuts
        inside batches).
        """
        log = self._state.log
        if log.end_offset > max(log.start_offset, event.log_start_offset) or len(event.records) < _BASE_OFFSET_BYTES:
            return
        base_offset = int.from_bytes(event.records[:_BASE_OFFSET_BYTES], "big")
        if base_offset < log.end_offset:
            log.reset_to(base_offset)
            self._state.high_watermark = base_offset

    def _take_bounds(self, event: FetchResponded) -> None:
        """HW := max(HW, min(leader's HW, own end)); the start follows the leader's, never beyond the HW."""
        state = self._state
        candidate = min(event.high_watermark, state.log.end_offset)
        if candidate > state.high_watermark:
            state.high_watermark = candidate
            state.effects.append(HIGH_WATERMARK_ADVANCED)
        start = min(event.log_start_offset, state.high_watermark)
        if start > state.log.start_offset:
            state.log.advance_start(start)

    def _is_counted_on(self) -> bool:
        """Whether this replica may be elected as one that has all that was committed."""
        partition = self._state.partition
        return partition is None or self._state.broker_id in {*partition.isr_ids(), *partition.elr_ids()}

    def _cut(self, now_ms: float, offset: int, *, anew: bool = False) -> bool:
        """End the log at `offset`, or begin it anew there; on a full disk do neither, and ask the leader later."""
        state = self._state
        log = state.log
        try:
            if log.start_offset <= offset <= log.end_offset and not anew:
                log.truncate_to(offset)
            else:
                log.reset_to(offset)
        except StorageError as error:
            self._storage_full(now_ms, "cut_failed", error)
            return False
        state.high_watermark = max(min(state.high_watermark, log.end_offset), log.start_offset)
        self._failures = 0
        self._not_before_ms = 0.0
        state.want_flush()
        state.effects.append(FETCH_POSITION_CHANGED)
        return True

    def _storage_full(self, now_ms: float, why: str, error: StorageError) -> None:
        self._state.storage_full_until_ms = now_ms + STORAGE_RETRY_MS
        self._back_off(now_ms, why, at_least_ms=STORAGE_RETRY_MS, error=str(error))

    def _back_off(self, now_ms: float, why: str, *, at_least_ms: float = 0.0, **facts: object) -> None:
        delay_ms = max(min(BACK_OFF_MIN_MS * 2.0 ** min(self._failures, 6), BACK_OFF_MAX_MS), at_least_ms)
        self._failures += 1
        self._not_before_ms = now_ms + delay_ms
        self._state.decided(why, leader=self.leader, back_off_ms=delay_ms, **facts)
        self._state.effects.append(FETCH_POSITION_CHANGED)


def _error_name(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return str(code)
