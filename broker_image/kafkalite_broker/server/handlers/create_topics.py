"""CreateTopics (key 19): a custom resource for each topic, and the wait until the operator has placed it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID

from kafkalite_broker.cluster.topic_requests import (
    PARTITIONS_PER_REQUEST_MAX,
    TOPICS_PER_REQUEST_MAX,
    Collisions,
    TopicWish,
    check_name,
    config_in_force,
    judge_topic,
)
from kafkalite_broker.server.handlers.bounds import within_bounds
from kafkalite_broker.server.handlers.topic_admin import (
    Deadline,
    duplicates,
    not_in_time,
    outcomes,
    world_of,
)
from kafkalite_core.model.errors import BrokerError
from kafkalite_core.protocol.create_topics import (
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsResponse,
)
from kafkalite_core.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from kafkalite_broker.cluster.topic_requests import World
    from kafkalite_broker.server.dispatch import Request
    from kafkalite_broker.server.services import Services
    from kafkalite_core.model.partition import TopicRef
    from kafkalite_core.protocol.create_topics import CreatableTopic


@dataclass(frozen=True, slots=True)
class Made:
    """A topic whose object is there (or, when only validating, could be): not placed yet.

    Attributes:
        wish: What was written.
        ref: The incarnation that was made.
        stale_uid: A deleted topic of that name which the cache still shows.
    """

    wish: TopicWish
    ref: TopicRef
    stale_uid: str


class CreateTopicsHandler:
    """Answers when every topic has leaders, or with REQUEST_TIMED_OUT when that takes longer than the client waits.

    A topic whose time is over is not taken back: the operator places it as soon as it can, as Kafka's controller does.
    """

    def __init__(self, services: Services) -> None:
        self._services = services

    def __call__(self, request: Request) -> None:
        """Answer later."""
        topics = request.body.topics
        assignments = sum(len(topic.assignments) + len(topic.configs) for topic in topics)
        if within_bounds(request, len(topics) + assignments):
            self._services.background(request.guarded(self._create(request)))

    async def _create(self, request: Request) -> None:
        deadline = Deadline(request)
        validate_only = request.body.validate_only
        topics = {topic.name: topic for topic in request.body.topics}
        twice = duplicates(topic.name for topic in request.body.topics)
        world = world_of(self._services)
        collisions = Collisions(world.names)
        too_many = _too_many(list(topics.values()))

        async def one(topic: CreatableTopic) -> Made:
            if topic.name in twice:
                raise BrokerError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            if too_many:
                raise BrokerError(ErrorCode.POLICY_VIOLATION, too_many)
            return await self._make(topic, world, collisions, deadline, validate_only=validate_only)

        results = dict(zip(topics, await outcomes(one(topic) for topic in topics.values()), strict=True))
        if not validate_only:
            results |= await self._placed(results, deadline)
        request.answer(
            CreateTopicsResponse(topics=[self._result(name, result, world) for name, result in results.items()])
        )

    async def _make(
        self, topic: CreatableTopic, world: World, collisions: Collisions, deadline: Deadline, *, validate_only: bool
    ) -> Made:
        check_name(topic.name)
        writer = self._services.topic_writer
        known = self._services.cache.topic(topic.name)
        await writer.check_free(topic.name, deadline_s=deadline.write_s())
        collisions.check(topic.name)
        wish = judge_topic(topic, world)
        made = await writer.create(
            wish.name,
            partitions=wish.partitions,
            replicas=wish.replicas,
            config=wish.config,
            assignment=wish.assignment,
            deadline_s=deadline.write_s(),
            validate_only=validate_only,
        )
        return Made(wish, made.ref, "" if known is None else known.ref.uid)

    async def _placed(self, results: dict[str, Made | BrokerError], deadline: Deadline) -> dict[str, BrokerError]:
        """Wait until the topics have leaders; errors of those that have none in time, or never will."""
        waiting = {name: result for name, result in results.items() if isinstance(result, Made)}
        errors: dict[str, BrokerError] = {}

        def done() -> bool:
            for name, made in list(waiting.items()):
                topic = self._services.cache.topic(name)
                if topic is None:
                    continue
                if topic.ref.uid != made.ref.uid:
                    if topic.partitions and topic.ref.uid != made.stale_uid:
                        # An object of another name claimed this topic name a moment earlier, and has it.
                        errors[name] = BrokerError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
                        del waiting[name]
                elif len(topic.partitions) >= made.wish.partitions:
                    del waiting[name]
            return not waiting

        if not await self._services.topic_changes.until(done, deadline.left_s()):
            errors |= await not_in_time(self._services, list(waiting), "the topic was created and has no leaders yet")
        for name in [name for name, error in errors.items() if error.error_code == ErrorCode.TOPIC_ALREADY_EXISTS]:
            await self._withdraw(results[name])
        return errors

    async def _withdraw(self, lost: Made | BrokerError) -> None:
        """Of two objects that claim one topic name ours came second: it would only confuse."""
        assert isinstance(lost, Made)
        await self._services.topic_writer.withdraw(lost.ref)

    def _result(self, name: str, result: Made | BrokerError, world: World) -> CreatableTopicResult:
        if isinstance(result, BrokerError):
            return CreatableTopicResult(name=name, error_code=result.error_code, error_message=result.message or None)
        topic = self._services.cache.topic(name)
        placed = topic is not None and topic.ref.uid == result.ref.uid and topic.ref.topic_id
        return CreatableTopicResult(
            name=name,
            topic_id=UUID(topic.ref.topic_id) if topic is not None and placed else UUID(int=0),
            error_message=None,
            num_partitions=result.wish.partitions,
            replication_factor=result.wish.replicas,
            configs=[
                CreatableTopicConfigs(name=entry.name, value=entry.value, config_source=entry.source)
                for entry in config_in_force(result.wish.config, world.config)
            ],
        )


def _too_many(topics: list[CreatableTopic]) -> str:
    """Why the request is too large, or the empty string."""
    partitions = sum(max(topic.num_partitions, len(topic.assignments), 1) for topic in topics)
    if len(topics) > TOPICS_PER_REQUEST_MAX:
        return f"{len(topics)} topics in one request, at most {TOPICS_PER_REQUEST_MAX} are made; send several requests."
    if partitions > PARTITIONS_PER_REQUEST_MAX and len(topics) > 1:
        return (
            f"{partitions} partitions in one request, at most {PARTITIONS_PER_REQUEST_MAX} are made; send several "
            "requests."
        )
    return ""
