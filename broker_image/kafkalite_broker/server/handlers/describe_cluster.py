"""DescribeCluster (key 60): the brokers, the cluster's id, and whom to ask for changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalite_core.protocol.describe_cluster import DescribeClusterBroker, DescribeClusterResponse
from kafkalite_core.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from kafkalite_broker.server.dispatch import Request
    from kafkalite_broker.server.services import Services

BROKERS, CONTROLLERS = 1, 2
"""Types of endpoints (KIP-919)."""

CLUSTER_OPERATIONS = sum(1 << operation for operation in (5, 7, 8, 9, 10, 11, 12))
"""Create, alter, describe, act as a broker, describe and alter configurations, write with idempotence: without ACLs
everybody may do everything."""

NOT_ASKED_FOR = -(2**31)


class DescribeClusterHandler:
    """Answers from the metadata."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def __call__(self, request: Request) -> None:
        """Answer with all brokers that clients can reach."""
        services, body = self._services, request.body
        if body.endpoint_type != BROKERS:
            request.answer(_wrong_endpoint(body.endpoint_type, services.cluster_id))
            return
        brokers = [
            DescribeClusterBroker(broker_id=broker_id, host=endpoint[0], port=endpoint[1], rack=endpoint[2])
            for broker_id in sorted(services.cache.brokers)
            if (endpoint := services.endpoint(broker_id, request.listener)) is not None
        ]
        request.answer(
            DescribeClusterResponse(
                endpoint_type=BROKERS,
                cluster_id=services.cluster_id,
                # As in Metadata: every broker takes requests that change something.
                controller_id=brokers[0].broker_id if brokers else services.broker_id,
                brokers=brokers,
                cluster_authorized_operations=CLUSTER_OPERATIONS
                if body.include_cluster_authorized_operations
                else NOT_ASKED_FOR,
            )
        )


def _wrong_endpoint(wanted: int, cluster_id: str) -> DescribeClusterResponse:
    if wanted == CONTROLLERS:
        code = ErrorCode.MISMATCHED_ENDPOINT_TYPE
        message = "this is a broker; the controllers are the operator's pods, which speak to the Kubernetes API only"
    else:
        code, message = ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"there is no endpoint type {wanted}"
    return DescribeClusterResponse(
        error_code=code, error_message=message, endpoint_type=BROKERS, cluster_id=cluster_id, brokers=[]
    )
