"""InitProducerId (key 22): its messages and their codec."""

from kafkalite_core.protocol.generated.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
)

__all__ = [
    "InitProducerIdRequest",
    "InitProducerIdResponse",
    "decode_request",
    "decode_response",
    "encode_request",
    "encode_response",
]
