"""DeleteTopics (key 20): the custom resource is deleted, and the answer waits until the topic is gone."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING
from uuid import UUID

from kafkalite_broker.cluster.topic_requests import TOPICS_PER_REQUEST_MAX
from kafkalite_broker.server.handlers.bounds import within_bounds
from kafkalite_broker.server.handlers.topic_admin import Deadline, not_in_time, outcomes, world_of
from kafkalite_core.controller.preferred import setting
from kafkalite_core.model.errors import BrokerError
from kafkalite_core.protocol.delete_topics import DeletableTopicResult, DeleteTopicsResponse, DeleteTopicState
from kafkalite_core.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from kafkalite_broker.server.dispatch import Request
    from kafkalite_broker.server.services import Services
    from kafkalite_core.model.partition import TopicRef

ZERO_UUID = UUID(int=0)
BY_ID_VERSION = 6
DISABLED_CODE_VERSION = 3
Wanted = tuple[str | None, UUID]


class DeleteTopicsHandler:
    """Deletes by name or by id. Waits until this broker no longer sees the topics."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def __call__(self, request: Request) -> None:
        """Answer later."""
        if within_bounds(request, len(request.body.topics) + len(request.body.topic_names)):
            self._services.background(request.guarded(self._delete(request)))

    async def _delete(self, request: Request) -> None:
        deadline = Deadline(request)
        entries: list[Wanted] = [(name, ZERO_UUID) for name in request.body.topic_names]
        if request.version >= BY_ID_VERSION:
            entries = [_wanted(entry) for entry in request.body.topics]
        counts = Counter(entries)
        refusal = self._refusal(request, len(counts))

        async def one(wanted: Wanted) -> TopicRef:
            if refusal is not None:
                raise refusal
            if counts[wanted] > 1:
                raise BrokerError(ErrorCode.INVALID_REQUEST, "Duplicate topic name or topic id.")
            return await self._delete_one(wanted, deadline)

        results = dict(zip(counts, await outcomes(one(wanted) for wanted in counts), strict=True))
        results |= await self._gone(results, deadline)
        request.answer(DeleteTopicsResponse(responses=[_result(wanted, result) for wanted, result in results.items()]))

    def _refusal(self, request: Request, count: int) -> BrokerError | None:
        """Why nothing at all is deleted."""
        if setting(world_of(self._services).config, "delete.topic.enable") is not True:
            early = request.version < DISABLED_CODE_VERSION
            code = ErrorCode.INVALID_REQUEST if early else ErrorCode.TOPIC_DELETION_DISABLED
            return BrokerError(code, "Topic deletion is disabled (delete.topic.enable=false).")
        if count > TOPICS_PER_REQUEST_MAX:
            message = f"{count} topics in one request, at most {TOPICS_PER_REQUEST_MAX} are deleted."
            return BrokerError(ErrorCode.POLICY_VIOLATION, message)
        return None

    async def _delete_one(self, wanted: Wanted, deadline: Deadline) -> TopicRef:
        name, topic_id = wanted
        if (name is None) == (topic_id == ZERO_UUID):
            raise BrokerError(
                ErrorCode.INVALID_REQUEST,
                "Neither topic name nor id were specified."
                if name is None
                else "You may not specify both topic name and topic id.",
            )
        uid = None
        if name is None:
            topic = self._services.cache.topic_by_id(str(topic_id))
            if topic is None:
                raise BrokerError(ErrorCode.UNKNOWN_TOPIC_ID, f"no topic has the id {topic_id}")
            name, uid = topic.ref.name, topic.ref.uid
        try:
            return await self._services.topic_writer.delete(name, uid=uid, deadline_s=deadline.write_s())
        except BrokerError as error:
            if uid is not None and error.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise BrokerError(ErrorCode.UNKNOWN_TOPIC_ID, f"no topic has the id {topic_id}") from error
            raise

    async def _gone(
        self, results: dict[Wanted, TopicRef | BrokerError], deadline: Deadline
    ) -> dict[Wanted, BrokerError]:
        """Wait until the topics are gone; errors of those that are still there."""
        waiting = {wanted: result for wanted, result in results.items() if not isinstance(result, BrokerError)}

        def done() -> bool:
            for wanted, ref in list(waiting.items()):
                topic = self._services.cache.topic(ref.name)
                if topic is None or topic.ref.uid != ref.uid:
                    del waiting[wanted]
            return not waiting

        if await self._services.topic_changes.until(done, deadline.left_s()):
            return {}
        by_name = {ref.name: wanted for wanted, ref in waiting.items()}
        errors = await not_in_time(self._services, list(by_name), "the topic is being deleted and is not gone yet")
        return {by_name[name]: error for name, error in errors.items()}


def _wanted(entry: DeleteTopicState) -> Wanted:
    return entry.name, entry.topic_id


def _result(wanted: Wanted, result: TopicRef | BrokerError) -> DeletableTopicResult:
    name, topic_id = wanted
    if isinstance(result, BrokerError):
        return DeletableTopicResult(
            name=name, topic_id=topic_id, error_code=result.error_code, error_message=result.message or None
        )
    known = UUID(result.topic_id) if result.topic_id else ZERO_UUID
    return DeletableTopicResult(name=result.name, topic_id=known)
