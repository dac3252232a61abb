"""How large partitions are, as the brokers themselves say (DescribeLogDirs)."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from kafkalite_cli.errors import Failure
from kafkalite_cli.snapshot import broker_state, registration
from kafkalite_cli.wire import Connection
from kafkalite_core.protocol.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest

if TYPE_CHECKING:
    from kafkalite_cli.topics.views import Sizes

JsonObject = dict[str, Any]
DESCRIBE_LOG_DIRS = (35, 2)
TIMEOUT_S = 1.5
THREADS = 16


def addresses_of(brokers: list[JsonObject], cluster: str) -> dict[int, tuple[str, int]]:
    """Where the live brokers of a cluster listen, by broker id."""
    found = {}
    for broker in brokers:
        registered = registration(broker)
        mine = (broker["spec"].get("clusterRef") or {}).get("name") == cluster
        if mine and registered.get("host") and registered.get("port") and broker_state(broker) == "Running":
            found[int(broker["spec"]["brokerId"])] = (str(registered["host"]), int(registered["port"]))
    return found


def read_sizes(addresses: dict[int, tuple[str, int]], topics: dict[str, list[int]]) -> Sizes:
    """Bytes by topic, partition and broker; brokers that do not answer at once are left out."""
    if not addresses or not topics:
        return {}
    wanted = [DescribableLogDirTopic(topic=name, partitions=numbers) for name, numbers in topics.items()]
    request = DescribeLogDirsRequest(topics=wanted)

    def ask(broker: int) -> Sizes:
        try:
            with Connection(addresses[broker], timeout_s=TIMEOUT_S) as connection:
                response = connection.request(*DESCRIBE_LOG_DIRS, request)
        except Failure:
            return {}
        return {
            (topic.name, partition.partition_index, broker): int(partition.partition_size)
            for result in response.results
            for topic in result.topics
            for partition in topic.partitions
            if not partition.is_future_key
        }

    sizes: Sizes = {}
    with ThreadPoolExecutor(min(len(addresses), THREADS)) as pool:
        for found in pool.map(ask, sorted(addresses)):
            sizes |= found
    return sizes
