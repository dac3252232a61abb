"""AlterConfigs (key 33): replaces a whole configuration. Old clients use it; IncrementalAlterConfigs loses no keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalite_broker.server.handlers.bounds import within_bounds
from kafkalite_broker.server.handlers.config_changes import replacing_changes
from kafkalite_broker.server.handlers.config_resources import alter_all
from kafkalite_core.protocol.alter_configs import AlterConfigsResourceResponse, AlterConfigsResponse

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from kafkalite_broker.server.dispatch import Request
    from kafkalite_broker.server.services import Services
    from kafkalite_core.model.config import ConfigKey
    from kafkalite_core.protocol.alter_configs import AlterConfigsResource


class AlterConfigsHandler:
    """Writes into `spec.config` of topics and of the cluster."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def __call__(self, request: Request) -> None:
        """Answered when the changes show."""
        resources = request.body.resources
        if within_bounds(request, len(resources) + sum(len(resource.configs) for resource in resources)):
            self._services.background(request.guarded(self._alter(request)))

    async def _alter(self, request: Request) -> None:
        body = request.body
        results = await alter_all(self._services, body.resources, _plan, validate_only=body.validate_only)
        responses = [
            AlterConfigsResourceResponse(
                error_code=code,
                error_message=message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource, (code, message) in zip(body.resources, results, strict=True)
        ]
        request.answer(AlterConfigsResponse(responses=responses))


def _plan(
    resource: AlterConfigsResource,
    _keys: Mapping[str, ConfigKey],
    current: Mapping[str, str],
    replaced: Collection[str],
) -> dict[str, str | None]:
    return replacing_changes(resource.configs, current, replaced)
