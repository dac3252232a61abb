"""DescribeConfigs (key 32): configuration in force of topics and of this broker, and where each value comes from."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kafkalite_broker.cluster.topic_errors import MESSAGE_LENGTH_MAX
from kafkalite_broker.server.handlers.bounds import within_bounds
from kafkalite_broker.server.handlers.config_resources import ResourceType, type_name
from kafkalite_core.model.config_entries import ConfigSource, ConfigView
from kafkalite_core.model.errors import BrokerError
from kafkalite_core.protocol.describe_configs import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from kafkalite_core.protocol.errors import ErrorCode
from kafkalite_core.resources.naming import is_topic_name

if TYPE_CHECKING:
    from kafkalite_broker.server.dispatch import Request
    from kafkalite_broker.server.services import Services
    from kafkalite_core.model.config_entries import ConfigEntry
    from kafkalite_core.protocol.describe_configs import DescribeConfigsRequest, DescribeConfigsResource

RESOURCES_AT_ONCE = 20
"""Resources described in one turn of the event loop; each has some 25 to 90 keys."""


class DescribeConfigsHandler:
    """Answers from the metadata."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def __call__(self, request: Request) -> None:
        """Answer now, or in several turns when many resources are asked for."""
        resources = request.body.resources
        if not within_bounds(request, len(resources)):
            return
        # Each once: a request that repeats a name thousands of times must not have thousands of answers.
        distinct = list({(one.resource_type, one.resource_name): one for one in resources}.values())
        if len(distinct) <= RESOURCES_AT_ONCE:
            description = Description(self._services, request.body)
            request.answer(DescribeConfigsResponse(results=[description.of(one) for one in distinct]))
        else:
            self._services.background(request.guarded(self._describe_many(request, distinct)))

    async def _describe_many(self, request: Request, resources: list[DescribeConfigsResource]) -> None:
        await request.turn()
        description, results = Description(self._services, request.body), []
        for number, resource in enumerate(resources, start=1):
            results.append(description.of(resource))
            if number % RESOURCES_AT_ONCE == 0:
                await asyncio.sleep(0)
        await request.answer_large(DescribeConfigsResponse(results=results), self._services.io_pool)


class Description:
    """What one request is told. Topics share what they have not set themselves, so that many of them need little."""

    def __init__(self, services: Services, body: DescribeConfigsRequest) -> None:
        self._services = services
        self._synonyms = body.include_synonyms
        self._documentation = body.include_documentation
        self._shared: dict[str, DescribeConfigsResourceResult] = {}
        started = services.facts.config
        cluster = services.cluster()
        self._view = ConfigView(started, started if cluster is None else cluster.config)

    def of(self, resource: DescribeConfigsResource) -> DescribeConfigsResult:
        """One resource, or why it cannot be described."""
        result = DescribeConfigsResult(
            error_message=None, resource_type=resource.resource_type, resource_name=resource.resource_name
        )
        try:
            entries = self._entries(resource)
        except BrokerError as error:
            result.error_code, result.error_message = error.error_code, error.message[:MESSAGE_LENGTH_MAX]
            return result
        of_topic = resource.resource_type == ResourceType.TOPIC
        result.configs = [self._topic_entry(entry) if of_topic else self._described(entry) for entry in entries]
        return result

    def _topic_entry(self, entry: ConfigEntry) -> DescribeConfigsResourceResult:
        if entry.source is ConfigSource.DYNAMIC_TOPIC_CONFIG:
            return self._described(entry)
        shared = self._shared.get(entry.name)
        if shared is None:
            shared = self._shared[entry.name] = self._described(entry)
        return shared

    def _entries(self, resource: DescribeConfigsResource) -> list[ConfigEntry]:
        name = resource.resource_name
        # An empty list asks for all keys, as a null does.
        names = frozenset(resource.configuration_keys) if resource.configuration_keys else None
        match resource.resource_type:
            case ResourceType.TOPIC:
                topic = self._services.cache.topic(name)
                if topic is not None:
                    return self._view.topic(topic.config, names)
                if not is_topic_name(name):
                    raise BrokerError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name!r} is no topic name")
                raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"the topic {name!r} does not exist")
            case ResourceType.BROKER:
                if not name:
                    return self._view.cluster_default(names)
                self._refuse_others(name)
                return self._view.broker(self._services.facts.as_config(), names)
            case ResourceType.BROKER_LOGGER:
                # Levels are set by the environment of the process.
                self._refuse_others(name)
                return []
            case ResourceType.GROUP | ResourceType.CLIENT_METRICS:
                # Neither has a configuration of its own here: the broker's group.* hold for every group.
                if not name:
                    raise BrokerError(ErrorCode.INVALID_REQUEST, "the resource needs a name")
                return []
        raise BrokerError(
            ErrorCode.INVALID_REQUEST, f"there are no resources of type {type_name(resource.resource_type)}"
        )

    def _refuse_others(self, name: str) -> None:
        own = str(self._services.broker_id)
        if name != own:
            raise BrokerError(
                ErrorCode.INVALID_REQUEST,
                f"this is broker {own}: its configuration is known here, that of {name!r} not",
            )

    def _described(self, entry: ConfigEntry) -> DescribeConfigsResourceResult:
        layers = entry.synonyms if self._synonyms else ()
        return DescribeConfigsResourceResult(
            name=entry.name,
            value=entry.value,
            read_only=entry.read_only,
            config_source=int(entry.source),
            is_sensitive=False,
            synonyms=[
                DescribeConfigsSynonym(name=layer.name, value=layer.value, source=int(layer.source)) for layer in layers
            ],
            config_type=int(entry.type),
            documentation=entry.doc if self._documentation else None,
        )
