"""InitProducerId (key 22): cluster-unique ids for idempotent producers (KIP-98)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalite_core.model.errors import BrokerError
from kafkalite_core.protocol.errors import ErrorCode
from kafkalite_core.protocol.init_producer_id import InitProducerIdResponse

if TYPE_CHECKING:
    from kafkalite_broker.server.dispatch import Request
    from kafkalite_broker.server.services import Services


class InitProducerIdHandler:
    """Draws a producer id. Waits only when a new block has to be drawn from the cluster's counter."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def __call__(self, request: Request) -> None:
        """Answer with a fresh producer id and epoch 0."""
        if request.body.transactional_id is not None:
            code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            if request.body.transactional_id == "":
                code = ErrorCode.INVALID_REQUEST
            request.answer(InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1))
            return
        self._services.background(request.guarded(self._allocate(request)))

    async def _allocate(self, request: Request) -> None:
        try:
            producer_id = await self._services.producer_ids.next()
        except BrokerError as error:
            request.answer(InitProducerIdResponse(error_code=error.error_code, producer_id=-1, producer_epoch=-1))
            return
        request.answer(InitProducerIdResponse(error_code=ErrorCode.NONE, producer_id=producer_id, producer_epoch=0))
