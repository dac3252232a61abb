"""FindCoordinator (key 10): advertised, and answered "not available" while there are no consumer groups.

Older librdkafka takes the mere presence of this API as the sign of a broker that knows compression (KAFKA-18659 and its
relatives), so leaving it out would silently turn compression off.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalite_core.protocol.errors import ErrorCode
from kafkalite_core.protocol.find_coordinator import Coordinator, FindCoordinatorResponse

if TYPE_CHECKING:
    from kafkalite_broker.server.dispatch import Request

BATCHED_FROM_VERSION = 4
MESSAGE = "This broker does not serve consumer groups yet: assign partitions instead of subscribing."


def handle(request: Request) -> None:
    """Answer COORDINATOR_NOT_AVAILABLE for every key asked for."""
    code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    if request.version >= BATCHED_FROM_VERSION:
        coordinators = [
            Coordinator(key=key, node_id=-1, host="", port=-1, error_code=code, error_message=MESSAGE)
            for key in request.body.coordinator_keys
        ]
        request.answer(FindCoordinatorResponse(coordinators=coordinators))
        return
    request.answer(FindCoordinatorResponse(error_code=code, error_message=MESSAGE, node_id=-1, host="", port=-1))
