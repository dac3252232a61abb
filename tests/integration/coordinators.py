"""Which broker coordinates a group, what it has committed, and settings of all brokers."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from kafkalite_core.model.config import BROKER_KEYS
from kafkalite_core.protocol.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from kafkalite_core.protocol.find_coordinator import FindCoordinatorRequest
from tests.integration.cluster import GROUP, NAMESPACE, VERSION
from tests.integration.wire import Wire

if TYPE_CHECKING:
    from collections.abc import Iterator

    from confluent_kafka import Consumer

    from tests.integration.cluster import Cluster

RETRIABLE = {14, 15, 16}
BROKER = 4
DELAY_KEY = "group.initial.rebalance.delay.ms"


def ask_any(cluster: Cluster, key: int, version: int, request: object):
    """Ask the first broker that answers."""
    for number in range(3):
        try:
            with Wire(("127.0.0.1", cluster.port + number)) as wire:
                return wire.request(key, version, request)
        except (OSError, EOFError):
            continue
    raise AssertionError("no broker answers")


def coordinator_of(cluster: Cluster, group: str, timeout: float = 30) -> int:
    """The id of the broker that coordinates the group."""
    end = time.monotonic() + timeout
    while time.monotonic() < end:
        found = ask_any(cluster, 10, 3, FindCoordinatorRequest(key=group))
        if found.error_code == 0:
            return found.node_id
        assert found.error_code in RETRIABLE
        time.sleep(0.1)
    raise AssertionError(f"no coordinator within {timeout} s")


@contextlib.contextmanager
def without_initial_delay(cluster: Cluster) -> Iterator[None]:
    """The first rebalance of a group does not wait for more members."""
    follow(cluster, DELAY_KEY, "0")
    try:
        yield
    finally:
        set_cluster_config(cluster, {DELAY_KEY: None})


def value_in_force(cluster: Cluster, broker: int, key: str) -> str | None:
    """The value of a key on a broker, None while it does not answer."""
    asked = DescribeConfigsResource(resource_type=BROKER, resource_name=str(broker), configuration_keys=[key])
    try:
        with Wire(("127.0.0.1", cluster.port + broker)) as wire:
            [result] = wire.request(32, 4, DescribeConfigsRequest(resources=[asked])).results
    except (OSError, EOFError):
        return None
    [found] = result.configs
    return found.value


def set_cluster_config(cluster: Cluster, config: dict[str, str | None]) -> None:
    """Change keys of all brokers; None removes one."""
    cluster.api.patch_namespaced_custom_object(
        GROUP, VERSION, NAMESPACE, "kafkaliteclusters", "kafkalite", {"spec": {"config": config}}
    )


def follow(cluster: Cluster, key: str, value: str | None) -> None:
    """As above, for a key that brokers follow while they run: waits until all of them do."""
    set_cluster_config(cluster, {key: value})
    wanted = BROKER_KEYS[key].default if value is None else value
    end = time.monotonic() + 60
    while any(value_in_force(cluster, number, key) != wanted for number in range(3)):
        assert time.monotonic() < end, "the brokers did not take the configuration over"
        time.sleep(0.1)


def committed_offsets(consumer: Consumer, topic: str, partitions: int, timeout: float = 60) -> list[TopicPartition]:
    """What the group of the consumer has committed; asked again while another coordinator takes it over.

    librdkafka leaves that to its caller: who asks right after the one before has died comes too early.
    """
    end = time.monotonic() + timeout
    while True:
        try:
            return consumer.committed([TopicPartition(topic, number) for number in range(partitions)], timeout=20)
        except KafkaException as error:
            moving = error.args[0].code() in (KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_LOAD_IN_PROGRESS)
            if not moving or time.monotonic() > end:
                raise
            time.sleep(0.1)
