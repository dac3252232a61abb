"""IncrementalAlterConfigs (key 44): its messages and their codec."""

from kafkalite_core.protocol.generated.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
)

__all__ = [
    "AlterConfigsResource",
    "AlterConfigsResourceResponse",
    "AlterableConfig",
    "IncrementalAlterConfigsRequest",
    "IncrementalAlterConfigsResponse",
    "decode_request",
    "decode_response",
    "encode_request",
    "encode_response",
]
