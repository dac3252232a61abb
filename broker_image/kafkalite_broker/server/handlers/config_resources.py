"""Changes of the configuration of topics and of the cluster, for AlterConfigs and IncrementalAlterConfigs.

They go into `spec.config` of the custom resources, where `kubectl` shows them. A change is answered once the metadata
of this broker show it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from enum import IntEnum
from time import monotonic
from typing import TYPE_CHECKING, TypeVar

from kafkalite_broker.cluster.topic_errors import MESSAGE_LENGTH_MAX, unknown_topic
from kafkalite_broker.server.handlers.config_changes import shows
from kafkalite_core.model.config import (
    BROKER_KEYS,
    DYNAMIC_BROKER_KEYS,
    THROTTLE_KEYS,
    TOPIC_KEYS,
    check_broker_config,
    check_topic_config,
)
from kafkalite_core.model.config_steps import check_step
from kafkalite_core.model.errors import BrokerError
from kafkalite_core.protocol.errors import ErrorCode
from kafkalite_core.resources.naming import is_topic_name

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from kafkalite_broker.server.services import Services
    from kafkalite_core.model.config import ConfigKey
    from kafkalite_core.model.partition import Topic
    from kafkalite_core.protocol import alter_configs, incremental_alter_configs

    Resource = alter_configs.AlterConfigsResource | incremental_alter_configs.AlterConfigsResource

DEADLINE_S = 15.0
"""For the writes of one request; the requests themselves carry none. Clients wait for 30 s or more."""

CHANGES_AT_ONCE_MAX = 8
"""Resources of one request that are written at the same time."""

LOOKED_FOR_MAX = 1000
"""Topics of one request that this broker does not see: with more of them none is looked for at the API server."""

PER_BROKER_KEYS = THROTTLE_KEYS | {"leader.replication.throttled.replicas", "follower.replication.throttled.replicas"}
"""Keys that may be set on a single broker, where they then hold for all: the reassignment tool does so."""


class ResourceType(IntEnum):
    """Kafka's types of resources that have a configuration."""

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


ResourceT = TypeVar("ResourceT", bound="Resource")


async def alter_all(
    services: Services,
    resources: Sequence[ResourceT],
    plan: Callable[[ResourceT, Mapping[str, ConfigKey], Mapping[str, str], Collection[str]], dict[str, str | None]],
    *,
    validate_only: bool,
) -> list[tuple[int, str | None]]:
    """Change the resources; (error code, sentence) of each, in their order.

    Args:
        services: Of the broker.
        resources: Each may be named once only.
        plan: (resource, its keys, its present configuration, keys that a replacement covers) -> changes.
        validate_only: Check all, change nothing.
    """
    named = Counter((resource.resource_type, resource.resource_name) for resource in resources)
    end_s = monotonic() + DEADLINE_S
    slots = asyncio.Semaphore(CHANGES_AT_ONCE_MAX)
    unseen = _unseen_topics(services, resources)

    async def alter(resource: ResourceT) -> tuple[int, str | None]:
        if named[resource.resource_type, resource.resource_name] > 1:
            return int(ErrorCode.INVALID_REQUEST), "each resource may be named once only"
        try:
            if resource.resource_type == ResourceType.TOPIC and resource.resource_name in unseen:
                raise unknown_topic(resource.resource_name)
            async with slots:
                await _alter(services, resource, plan, end_s, validate_only)
        except BrokerError as error:
            return error.error_code, error.message[:MESSAGE_LENGTH_MAX] or None
        return int(ErrorCode.NONE), None

    return list(await asyncio.gather(*(alter(resource) for resource in resources)))


def _unseen_topics(services: Services, resources: Sequence[Resource]) -> set[str]:
    """Names of topics that this broker does not see, and that the API server is not asked for either.

    It is asked for some: another broker may have made them, and told its client so, a moment ago.
    """
    names = {one.resource_name for one in resources if one.resource_type == ResourceType.TOPIC}
    unseen = {name for name in names if services.cache.topic(name) is None}
    return unseen if len(unseen) > LOOKED_FOR_MAX else {name for name in unseen if not is_topic_name(name)}


async def _alter(
    services: Services,
    resource: ResourceT,
    plan: Callable[[ResourceT, Mapping[str, ConfigKey], Mapping[str, str], Collection[str]], dict[str, str | None]],
    end_s: float,
    validate_only: bool,
) -> None:
    if resource.resource_type == ResourceType.TOPIC:
        name = resource.resource_name

        def of_topic(topic: Topic) -> dict[str, str | None]:
            changes = plan(resource, TOPIC_KEYS, topic.config, topic.config.keys())
            replicas = max((len(entry.replicas) for entry in topic.partitions.values()), default=None)
            _refuse(check_topic_config(_set_in(changes), replicas=replicas))
            return changes

        await _change_topic(services, name, of_topic, end_s, validate_only)
    elif resource.resource_type == ResourceType.BROKER:
        allowed = _allowed_on(resource.resource_name)

        def of_cluster(current: Mapping[str, str]) -> dict[str, str | None]:
            changes = plan(resource, BROKER_KEYS, current, allowed & current.keys())
            _check_broker(resource.resource_name, changes, allowed)
            _refuse(check_step(current, _set_in({**current, **changes})))
            return changes

        await _change_cluster(services, of_cluster, end_s, validate_only)
    else:
        raise BrokerError(
            ErrorCode.INVALID_REQUEST,
            f"resources of type {type_name(resource.resource_type)} have no configuration that can be changed here",
        )


def type_name(resource_type: int) -> str:
    """Kafka's name of a type of resources, or its number."""
    return ResourceType(resource_type).name if resource_type in set(ResourceType) else str(resource_type)


def _set_in(changes: Mapping[str, str | None]) -> dict[str, str]:
    return {name: text for name, text in changes.items() if text is not None}


def _refuse(problems: list[str]) -> None:
    if problems:
        raise BrokerError(ErrorCode.INVALID_CONFIG, "; ".join(problems))


def _allowed_on(broker: str) -> frozenset[str]:
    """Keys that may be changed on all brokers (the empty name), or on one."""
    if not broker:
        return DYNAMIC_BROKER_KEYS
    if not broker.isascii() or not broker.isdigit():
        raise BrokerError(ErrorCode.INVALID_REQUEST, f"{broker!r} is no broker id")
    return PER_BROKER_KEYS


def _check_broker(broker: str, changes: Mapping[str, str | None], allowed: frozenset[str]) -> None:
    _refuse(check_broker_config(_set_in(changes)))
    known = sorted(name for name in changes if name in BROKER_KEYS and name not in allowed)
    static = [name for name in known if name not in DYNAMIC_BROKER_KEYS]
    if static:
        raise BrokerError(
            ErrorCode.INVALID_REQUEST,
            f"a running broker does not change {', '.join(static)}: set spec.config of the KafkaLiteCluster and "
            "restart the brokers",
        )
    if known:
        raise BrokerError(
            ErrorCode.INVALID_REQUEST,
            f"{', '.join(known)}: broker keys hold for the whole cluster, so change the default of all brokers "
            f"instead of broker {broker}",
        )


async def _change_topic(
    services: Services, name: str, decide: Callable[[Topic], dict[str, str | None]], end_s: float, validate_only: bool
) -> None:
    changes = await services.topic_writer.set_config(
        name, decide, deadline_s=end_s - monotonic(), validate_only=validate_only
    )

    def shown() -> bool:
        topic = services.cache.topic(name)
        return topic is None or shows(topic.config, changes)

    if not validate_only:
        # The change is made: when the metadata are late, the answer does not become another one.
        await services.topic_changes.until(shown, end_s - monotonic())


async def _change_cluster(
    services: Services,
    decide: Callable[[Mapping[str, str]], dict[str, str | None]],
    end_s: float,
    validate_only: bool,
) -> None:
    changes = await services.topic_writer.set_cluster_config(
        decide, deadline_s=end_s - monotonic(), validate_only=validate_only
    )

    def shown() -> bool:
        cluster = services.cluster()
        return cluster is not None and shows(cluster.config, changes)

    if changes and not validate_only:
        await services.topic_changes.until(shown, end_s - monotonic())
