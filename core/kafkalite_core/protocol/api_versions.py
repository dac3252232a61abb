"""ApiVersions (key 18): its messages and their codec."""

from kafkalite_core.protocol.generated.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
)

__all__ = [
    "ApiVersion",
    "ApiVersionsRequest",
    "ApiVersionsResponse",
    "FinalizedFeatureKey",
    "SupportedFeatureKey",
    "decode_request",
    "decode_response",
    "encode_request",
    "encode_response",
]
