"""What a leader knows of the other replicas: how far their disks are, and when they were last caught up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

UNKNOWN_END: Final = -1
UNKNOWN_START: Final = -1


class Progress:
    """One incarnation of a replica, as its fetches in the current leader epoch show it.

    Attributes:
        id: Broker id.
        epoch: Broker epoch.
        end_offset: Its flushed end: the offset of its last fetch (S8); `UNKNOWN_END` before the first in this epoch.
        caught_up_ms: Last time at which it had all that the leader had flushed.
        fetch_ms: Time of its last fetch.
        leader_end_at_fetch: The leader's flushed end at that time.
        log_start_offset: Its log start, as told with its last fetch; -1 before.
    """

    __slots__ = (
        "caught_up_ms",
        "end_offset",
        "epoch",
        "fetch_ms",
        "id",
        "leader_end_at_fetch",
        "log_start_offset",
    )

    def __init__(self, broker_id: int, epoch: int, caught_up_ms: float) -> None:
        self.id = broker_id
        self.epoch = epoch
        self.end_offset = UNKNOWN_END
        self.caught_up_ms = caught_up_ms
        self.fetch_ms = 0.0
        self.leader_end_at_fetch = UNKNOWN_END
        self.log_start_offset = UNKNOWN_START

    def __repr__(self) -> str:
        return f"Progress({self.id}@{self.epoch} end={self.end_offset})"

    @property
    def fetched(self) -> bool:
        """It fetched in the current leader epoch, so its log is known to agree with the leader's up to its end (R5)."""
        return self.end_offset != UNKNOWN_END

    def fetched_at(self, offset: int, leader_end: int, now_ms: float) -> None:
        """A fetch from `offset` while the leader's flushed end, before the read, is `leader_end`.

        Caught up now, when it has everything; else at the time of its previous fetch, when it has what there was then:
        under steady load a healthy follower is always one round trip behind.
        """
        if offset >= leader_end:
            self.caught_up_ms = max(self.caught_up_ms, now_ms)
        elif self.leader_end_at_fetch != UNKNOWN_END and offset >= self.leader_end_at_fetch:
            self.caught_up_ms = max(self.caught_up_ms, self.fetch_ms)
        self.end_offset = offset
        self.leader_end_at_fetch = leader_end
        self.fetch_ms = now_ms

    def caught_up(self, leader_end: int, now_ms: float, lag_time_max_ms: int) -> bool:
        """Whether it may be in the ISR: at the end, or there not longer than `lag_time_max_ms` ago.

        A replica that is idle at the end stays for ever; removing dead brokers is the controller's job.
        """
        return self.end_offset >= leader_end or now_ms - self.caught_up_ms <= lag_time_max_ms

    def within(self, leader_end: int, lag_max_messages: int) -> bool:
        """Whether it is not behind by more than so many records; 0 for no such limit.

        Before its first fetch in a leader epoch nothing is known of it: then only time counts.
        """
        return not lag_max_messages or not self.fetched or leader_end - self.end_offset <= lag_max_messages


class Followers:
    """Progress by (broker id, broker epoch): what one incarnation flushed says nothing of the next (S3, KIP-903)."""

    __slots__ = ("_by_incarnation",)

    def __init__(self) -> None:
        self._by_incarnation: dict[tuple[int, int], Progress] = {}

    def __iter__(self) -> Iterator[Progress]:
        return iter(self._by_incarnation.values())

    def get(self, broker_id: int, epoch: int) -> Progress | None:
        """The progress of one incarnation, or None."""
        return self._by_incarnation.get((broker_id, epoch))

    def ensure(self, broker_id: int, epoch: int, caught_up_ms: float) -> Progress:
        """The progress of one incarnation; when it is new, nothing is known but when it counts as last caught up."""
        progress = self._by_incarnation.get((broker_id, epoch))
        if progress is None:
            progress = self._by_incarnation[broker_id, epoch] = Progress(broker_id, epoch, caught_up_ms)
        return progress

    def retain(self, incarnations: Iterable[tuple[int, int]]) -> None:
        """Forget all but these: a replica has at most a stale entry and its present incarnation."""
        wanted = set(incarnations)
        for incarnation in [key for key in self._by_incarnation if key not in wanted]:
            del self._by_incarnation[incarnation]

    def clear(self) -> None:
        """A new leader epoch: what was known before is void."""
        self._by_incarnation.clear()
