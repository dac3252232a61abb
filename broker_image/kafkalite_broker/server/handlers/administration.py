"""The APIs that describe and change configurations, partitions and records."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalite_broker.server.handlers.alter_configs import alter_configs_handler, incremental_alter_configs_handler
from kafkalite_broker.server.handlers.alter_partition_reassignments import AlterPartitionReassignmentsHandler
from kafkalite_broker.server.handlers.delete_records import DeleteRecordsHandler
from kafkalite_broker.server.handlers.describe_cluster import DescribeClusterHandler
from kafkalite_broker.server.handlers.describe_configs import DescribeConfigsHandler
from kafkalite_broker.server.handlers.describe_log_dirs import DescribeLogDirsHandler
from kafkalite_broker.server.handlers.describe_topic_partitions import DescribeTopicPartitionsHandler
from kafkalite_broker.server.handlers.elect_leaders import ElectLeadersHandler
from kafkalite_broker.server.handlers.list_partition_reassignments import ListPartitionReassignmentsHandler

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalite_broker.server.dispatch import Request
    from kafkalite_broker.server.services import Services


def administration_handlers(services: Services) -> dict[int, Callable[[Request], None]]:
    """Handler by API key."""
    return {
        21: DeleteRecordsHandler(services),
        32: DescribeConfigsHandler(services),
        33: alter_configs_handler(services),
        35: DescribeLogDirsHandler(services),
        43: ElectLeadersHandler(services),
        44: incremental_alter_configs_handler(services),
        45: AlterPartitionReassignmentsHandler(services),
        46: ListPartitionReassignmentsHandler(services),
        60: DescribeClusterHandler(services),
        75: DescribeTopicPartitionsHandler(services),
    }
