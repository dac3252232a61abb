"""One module for each Kafka API that the broker serves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalite_broker.server.handlers.administration import administration_handlers
from kafkalite_broker.server.handlers.api_versions import ApiVersionsHandler
from kafkalite_broker.server.handlers.create_partitions import CreatePartitionsHandler
from kafkalite_broker.server.handlers.create_topics import CreateTopicsHandler
from kafkalite_broker.server.handlers.delete_topics import DeleteTopicsHandler
from kafkalite_broker.server.handlers.fetch import FetchHandler
from kafkalite_broker.server.handlers.find_coordinator import FindCoordinatorHandler
from kafkalite_broker.server.handlers.groups import group_handlers
from kafkalite_broker.server.handlers.init_producer_id import InitProducerIdHandler
from kafkalite_broker.server.handlers.list_offsets import ListOffsetsHandler
from kafkalite_broker.server.handlers.metadata import MetadataHandler
from kafkalite_broker.server.handlers.offset_for_leader_epoch import OffsetForLeaderEpochHandler
from kafkalite_broker.server.handlers.produce import ProduceHandler
from kafkalite_core.protocol.apis import API_VERSIONS_KEY

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalite_broker.server.dispatch import Request
    from kafkalite_broker.server.services import Services


def handlers(services: Services) -> dict[int, Callable[[Request], None]]:
    """Handler by API key. ApiVersions claims what stands here, and nothing else."""
    table: dict[int, Callable[[Request], None]] = {
        0: ProduceHandler(services),
        1: FetchHandler(services),
        2: ListOffsetsHandler(services),
        3: MetadataHandler(services),
        10: FindCoordinatorHandler(services),
        19: CreateTopicsHandler(services),
        20: DeleteTopicsHandler(services),
        22: InitProducerIdHandler(services),
        23: OffsetForLeaderEpochHandler(services),
        **group_handlers(services),
        37: CreatePartitionsHandler(services),
        **administration_handlers(services),
    }
    table[API_VERSIONS_KEY] = ApiVersionsHandler({*table, API_VERSIONS_KEY})
    return table
