"""From where a consumer reads: another replica in its rack, when the leader finds one that can serve it (KIP-392).

The leader alone decides, for it alone knows who is in sync. It names a replica r to a consumer that asks for offset o,

    r is a member of the ISR under its present epoch, alive, in the consumer's rack and not the leader,
    the consumer has an address of it, it fetched in this leader epoch, and  logStart(r) <= o <= end(r)

and it names nobody when it is in that rack itself. Of several the one with the greatest end is taken. A follower serves
consumers below its own high watermark only, which is never above what is committed; between it and its end there is
nothing to read yet, beyond its end OFFSET_OUT_OF_RANGE sends the consumer back to the leader.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafkalite_core.protocol.errors import ErrorCode
from kafkalite_core.replica.events import CONSUMER_ID, FetchAnswered

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from kafkalite_core.model.cluster import Broker
    from kafkalite_core.model.partition import Partition
    from kafkalite_core.replica.events import FetchRequested
    from kafkalite_core.replica.followers import Followers
    from kafkalite_core.replica.state import ReplicaState

NO_PREFERENCE: Final = -1


def preferred_read_replica(
    partition: Partition,
    followers: Followers,
    brokers: Mapping[int, Broker],
    *,
    rack: str,
    offset: int,
    reachable: Collection[int] | None = None,
) -> int:
    """The broker to read from, or `NO_PREFERENCE`: the leader. See the theorem above.

    `reachable`: brokers that the consumer has an address of; None for all.
    """
    if not rack or _rack_of(partition.leader, brokers) == rack:
        return NO_PREFERENCE
    best, best_end = NO_PREFERENCE, -1
    for member in partition.isr:
        broker = brokers.get(member.id)
        if member.id == partition.leader or broker is None or not broker.alive or broker.epoch != member.epoch:
            continue
        if reachable is not None and member.id not in reachable:
            continue
        progress = followers.get(member.id, member.epoch)
        if progress is None or not progress.fetched or _rack_of(member.id, brokers) != rack:
            continue
        if 0 <= progress.log_start_offset <= offset <= progress.end_offset and progress.end_offset > best_end:
            best, best_end = member.id, progress.end_offset
    return best


def _rack_of(broker_id: int, brokers: Mapping[int, Broker]) -> str:
    broker = brokers.get(broker_id)
    return broker.registration.rack if broker is not None and broker.registration is not None else ""


def serves(event: FetchRequested) -> bool:
    """Whether a replica that follows may answer: a consumer that knows what that means."""
    return event.replica_id == CONSUMER_ID and event.any_replica


def follower_read(state: ReplicaState, event: FetchRequested) -> FetchAnswered:
    """What a consumer may read from a replica that follows; the leader epoch has been checked."""
    log, offset = state.log, event.fetch_offset
    inside = log.start_offset <= offset <= log.end_offset
    return FetchAnswered(
        token=event.token,
        error_code=int(ErrorCode.NONE if inside else ErrorCode.OFFSET_OUT_OF_RANGE),
        high_watermark=state.high_watermark,
        log_start_offset=log.start_offset,
        read_from=offset,
        read_end=max(offset, state.high_watermark) if inside else offset,
    )
