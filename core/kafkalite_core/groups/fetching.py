"""OffsetFetch: what is committed, whether or not the group has members."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from kafkalite_core.groups.records import OffsetValue
from kafkalite_core.groups.refusals import NO_OFFSET, OFFSET_FETCH_GROUPS
from kafkalite_core.protocol.offset_fetch import (
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkalite_core.groups.events import Requested
    from kafkalite_core.groups.offsets import OffsetStore
    from kafkalite_core.protocol.offset_fetch import OffsetFetchRequest

Topics: TypeAlias = "Sequence[OffsetFetchRequestTopic] | Sequence[OffsetFetchRequestTopics] | None"

_NONE = OffsetValue(offset=NO_OFFSET, leader_epoch=-1, metadata="", commit_timestamp_ms=-1)


class Fetching:
    """See the module.

    Without transactions no offset is unstable, so `require_stable` asks for nothing more.
    """

    __slots__ = ("_store",)

    def __init__(self, store: OffsetStore) -> None:
        self._store = store

    def fetch(self, event: Requested, request: OffsetFetchRequest) -> OffsetFetchResponse:
        """The offsets asked for; -1 for a partition without one."""
        if event.api_version >= OFFSET_FETCH_GROUPS:
            # A group that is named again is not answered again, lest a small request have a huge response.
            groups = {each.group_id: each.topics for each in reversed(request.groups)}
            return OffsetFetchResponse(
                groups=[self._group(name, groups[name]) for name in dict.fromkeys(g.group_id for g in request.groups)]
            )
        found = self._find(request.group_id, request.topics)
        return OffsetFetchResponse(
            topics=[
                OffsetFetchResponseTopic(
                    name=name,
                    partitions=[
                        OffsetFetchResponsePartition(
                            partition_index=index,
                            committed_offset=value.offset,
                            committed_leader_epoch=value.leader_epoch,
                            metadata=value.metadata,
                        )
                        for index, value in partitions
                    ],
                )
                for name, partitions in found
            ]
        )

    def _group(self, group_id: str, topics: Topics) -> OffsetFetchResponseGroup:
        return OffsetFetchResponseGroup(
            group_id=group_id,
            topics=[
                OffsetFetchResponseTopics(
                    name=name,
                    partitions=[
                        OffsetFetchResponsePartitions(
                            partition_index=index,
                            committed_offset=value.offset,
                            committed_leader_epoch=value.leader_epoch,
                            metadata=value.metadata,
                        )
                        for index, value in partitions
                    ],
                )
                for name, partitions in self._find(group_id, topics)
            ],
        )

    def _find(self, group_id: str, topics: Topics) -> list[tuple[str, list[tuple[int, OffsetValue]]]]:
        """Offsets by topic; for None all that the group has."""
        offsets = self._store.of(group_id)
        if topics is not None:
            return [
                (topic.name, [(index, offsets.get((topic.name, index), _NONE)) for index in topic.partition_indexes])
                for topic in topics
            ]
        found: dict[str, list[tuple[int, OffsetValue]]] = {}
        for (name, index), value in offsets.items():
            found.setdefault(name, []).append((index, value))
        return list(found.items())
