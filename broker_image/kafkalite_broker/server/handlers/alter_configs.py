"""AlterConfigs (key 33) and IncrementalAlterConfigs (key 44, KIP-339): they differ in how the changes are planned.

AlterConfigs replaces a whole configuration. Old clients use it; IncrementalAlterConfigs loses no keys.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkalite_broker.server.handlers.bounds import within_bounds
from kafkalite_broker.server.handlers.config_changes import incremental_changes, replacing_changes
from kafkalite_broker.server.handlers.config_resources import alter_all
from kafkalite_core.protocol import alter_configs, incremental_alter_configs

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from kafkalite_broker.server.dispatch import Request
    from kafkalite_broker.server.services import Services
    from kafkalite_core.model.config import ConfigKey


class _Handler:
    """Writes into `spec.config` of topics and of the cluster."""

    def __init__(
        self, services: Services, plan: Callable[..., dict[str, str | None]], response: type, resource_response: type
    ) -> None:
        self._services = services
        self._plan = plan
        self._response = response
        self._resource_response = resource_response

    def __call__(self, request: Request) -> None:
        """Answered when the changes show."""
        resources = request.body.resources
        if within_bounds(request, len(resources) + sum(len(resource.configs) for resource in resources)):
            self._services.background(request.guarded(self._alter(request)))

    async def _alter(self, request: Request) -> None:
        body = request.body
        results = await alter_all(self._services, body.resources, self._plan, validate_only=body.validate_only)
        responses = [
            self._resource_response(
                error_code=code,
                error_message=message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource, (code, message) in zip(body.resources, results, strict=True)
        ]
        request.answer(self._response(responses=responses))


def alter_configs_handler(services: Services) -> Callable[[Request], None]:
    """Handler of AlterConfigs."""

    def plan(
        resource: Any, _keys: Mapping[str, ConfigKey], current: Mapping[str, str], replaced: Collection[str]
    ) -> dict[str, str | None]:
        return replacing_changes(resource.configs, current, replaced)

    messages = alter_configs
    return _Handler(services, plan, messages.AlterConfigsResponse, messages.AlterConfigsResourceResponse)


def incremental_alter_configs_handler(services: Services) -> Callable[[Request], None]:
    """Handler of IncrementalAlterConfigs."""

    def plan(
        resource: Any, keys: Mapping[str, ConfigKey], current: Mapping[str, str], _replaced: Collection[str]
    ) -> dict[str, str | None]:
        return incremental_changes(resource.configs, keys, current)

    messages = incremental_alter_configs
    return _Handler(services, plan, messages.IncrementalAlterConfigsResponse, messages.AlterConfigsResourceResponse)
