"""DescribeConfigs (key 32): configuration in force of topics and of this broker, and where each value comes from."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kafkalite_broker.server.handlers.bounds import within_bounds
from kafkalite_broker.server.handlers.config_resources import ResourceType, type_name
from kafkalite_core.model.config_entries import ConfigView
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
        if len(resources) <= RESOURCES_AT_ONCE:
            view = self._view()
            request.answer(
                DescribeConfigsResponse(results=[self._result(request.body, one, view) for one in resources])
            )
        else:
            self._services.background(request.guarded(self._describe_many(request)))

    async def _describe_many(self, request: Request) -> None:
        view, results = self._view(), []
        for number, resource in enumerate(request.body.resources, start=1):
            results.append(self._result(request.body, resource, view))
            if number % RESOURCES_AT_ONCE == 0:
                await asyncio.sleep(0)
        await request.answer_large(DescribeConfigsResponse(results=results), self._services.io_pool)

    def _view(self) -> ConfigView:
        started = self._services.facts.config
        cluster = self._services.cluster()
        return ConfigView(started, started if cluster is None else cluster.config)

    def _result(
        self, body: DescribeConfigsRequest, resource: DescribeConfigsResource, view: ConfigView
    ) -> DescribeConfigsResult:
        result = DescribeConfigsResult(
            error_message=None, resource_type=resource.resource_type, resource_name=resource.resource_name
        )
        try:
            entries = self._entries(resource, view)
        except BrokerError as error:
            result.error_code, result.error_message = error.error_code, error.message
            return result
        result.configs = [
            _described(entry, synonyms=body.include_synonyms, documentation=body.include_documentation)
            for entry in entries
        ]
        return result

    def _entries(self, resource: DescribeConfigsResource, view: ConfigView) -> list[ConfigEntry]:
        name = resource.resource_name
        names = None if resource.configuration_keys is None else frozenset(resource.configuration_keys)
        match resource.resource_type:
            case ResourceType.TOPIC:
                topic = self._services.cache.topic(name)
                if topic is not None:
                    return view.topic(topic.config, names)
                if not is_topic_name(name):
                    raise BrokerError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name!r} is no topic name")
                raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"the topic {name!r} does not exist")
            case ResourceType.BROKER:
                if not name:
                    return view.cluster_default(names)
                self._refuse_others(name)
                return view.broker(self._services.facts.as_config(), names)
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


def _described(entry: ConfigEntry, *, synonyms: bool, documentation: bool) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        config_source=int(entry.source),
        is_sensitive=False,
        synonyms=[
            DescribeConfigsSynonym(name=layer.name, value=layer.value, source=int(layer.source))
            for layer in entry.synonyms
        ]
        if synonyms
        else [],
        config_type=int(entry.type),
        documentation=entry.doc if documentation else None,
    )
