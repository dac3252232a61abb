"""OffsetCommit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalite_core.groups.group import GroupState
from kafkalite_core.groups.journal import offset_record
from kafkalite_core.groups.records import OffsetKey, OffsetValue
from kafkalite_core.groups.refusals import commit_error, commit_refusal
from kafkalite_core.model.limits import TOPIC_NAME_LENGTH_MAX
from kafkalite_core.protocol.errors import ErrorCode
from kafkalite_core.protocol.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

if TYPE_CHECKING:
    from kafkalite_core.groups.context import Context
    from kafkalite_core.groups.events import Record, Requested
    from kafkalite_core.groups.group import Group
    from kafkalite_core.groups.journal import Journal
    from kafkalite_core.groups.offsets import OffsetStore, Operation
    from kafkalite_core.groups.rebalancing import Rebalancing
    from kafkalite_core.groups.table import GroupTable
    from kafkalite_core.protocol.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition

COMMIT_GROUP_NOT_FOUND = 9
"""The first version of OffsetCommit that answers GROUP_ID_NOT_FOUND."""
TIMESTAMP_MAX = 2**63 - 1
METADATA_STORABLE_BYTES_MAX = 32_767
"""The metadata of an offset has a length of 16 bits in the log."""


class Committing:
    """See the module."""

    __slots__ = ("_context", "_groups", "_journal", "_rebalancing", "_store")

    def __init__(
        self, context: Context, groups: GroupTable, journal: Journal, rebalancing: Rebalancing, store: OffsetStore
    ) -> None:
        self._context = context
        self._groups = groups
        self._journal = journal
        self._rebalancing = rebalancing
        self._store = store

    def commit(self, event: Requested, request: OffsetCommitRequest) -> OffsetCommitResponse | None:
        """The response, or None: then it comes when the offsets are committed in the log, and visible."""
        group = self._groups.get(request.group_id)
        error = self._judge_commit(group, event, request)
        if error:
            return commit_refusal(request, error)
        if group is not None and request.member_id in group.members and request.generation_id_or_member_epoch >= 0:
            self._rebalancing.start_session(group, group.members[request.member_id])
        wall_ms = self._context.wall_ms
        retention_ms = request.retention_time_ms
        expiry_ms = min(wall_ms + retention_ms, TIMESTAMP_MAX) if retention_ms >= 0 else -1
        room = self._context.config.offsets_max - self._store.count_of(request.group_id)
        known, under_way = self._store.of(request.group_id), self._store.open_of(request.group_id)
        response = OffsetCommitResponse()
        records: list[Record] = []
        operations: list[Operation] = []
        for topic in request.topics:
            answers = OffsetCommitResponseTopic(name=topic.name)
            response.topics.append(answers)
            for partition in topic.partitions:
                place = (topic.name, partition.partition_index)
                code = self._judge_partition(topic.name, partition)
                if not code and place not in known and place not in under_way:
                    room -= 1
                    code = ErrorCode.INVALID_COMMIT_OFFSET_SIZE if room < 0 else code
                answers.partitions.append(
                    OffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=int(code))
                )
                if not code:
                    key = OffsetKey(request.group_id, *place)
                    value = OffsetValue(
                        offset=partition.committed_offset,
                        leader_epoch=partition.committed_leader_epoch,
                        metadata=partition.committed_metadata or "",
                        commit_timestamp_ms=wall_ms,
                        expire_timestamp_ms=expiry_ms,
                    )
                    records.append(offset_record(key, value))
                    operations.append((key, value))
        if not records:
            return response
        self._append(event, request, response, records, operations)
        return None

    def _append(
        self,
        event: Requested,
        request: OffsetCommitRequest,
        response: OffsetCommitResponse,
        records: list[Record],
        operations: list[Operation],
    ) -> None:
        self._context.wait(event.token, request, event.api_version)

        def done(error_code: int) -> None:
            if error_code:
                for topic in response.topics:
                    for partition in topic.partitions:
                        partition.error_code = partition.error_code or int(commit_error(error_code))
            else:
                self._context.statistics.offset_commits += len(records)
            self._context.answer(event.token, response)

        self._journal.append(records, operations, done)

    def _judge_commit(self, group: Group | None, event: Requested, request: OffsetCommitRequest) -> ErrorCode:
        generation = request.generation_id_or_member_epoch
        if group is None:
            if generation >= 0:
                found = event.api_version >= COMMIT_GROUP_NOT_FOUND
                return ErrorCode.GROUP_ID_NOT_FOUND if found else ErrorCode.ILLEGAL_GENERATION
            if self._groups.is_full:
                return ErrorCode.POLICY_VIOLATION
            return self._judge_journal()
        if group.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if generation < 0 and group.state is GroupState.EMPTY:
            return self._judge_journal()  # a simple consumer, or a tool that resets offsets
        error = group.validate_member(request.member_id, request.group_instance_id)
        if error:
            return error
        if generation != group.generation:
            return ErrorCode.ILLEGAL_GENERATION
        if group.state is GroupState.COMPLETING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return self._judge_journal()

    def _judge_journal(self) -> ErrorCode:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE if self._journal.is_full else ErrorCode.NONE

    def _judge_partition(self, topic: str, partition: OffsetCommitRequestPartition) -> ErrorCode:
        metadata = partition.committed_metadata
        limit = min(self._context.config.offset_metadata_max_bytes, METADATA_STORABLE_BYTES_MAX)
        if metadata and len(metadata.encode()) > limit:
            return ErrorCode.OFFSET_METADATA_TOO_LARGE
        if len(topic) > TOPIC_NAME_LENGTH_MAX:
            return ErrorCode.INVALID_TOPIC_EXCEPTION
        return ErrorCode.NONE
