"""The table of the APIs that have a codec, and what ApiVersions says about them."""

from collections.abc import Collection

from kafkalite_core.protocol.api_spec import ApiSpec
from kafkalite_core.protocol.errors import ErrorCode
from kafkalite_core.protocol.generated.api_versions import (
    ApiVersion,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from kafkalite_core.protocol.generated.table import SPECS

API: dict[int, ApiSpec] = {spec.key: spec for spec in SPECS}

API_VERSIONS_KEY = 18

# 3.9-IV0. Tools show it as the cluster's version and choose IncrementalAlterConfigs by its presence. Transactions v2,
# KIP-848 groups and ELR in topic metadata have features of their own, which stay unclaimed.
METADATA_VERSION_FEATURE = "metadata.version"
METADATA_VERSION_MIN = 1
METADATA_VERSION_LEVEL = 21


def unsupported_api_versions_response() -> ApiVersionsResponse:
    """The answer to an ApiVersions request of an unknown version; encode it as version 0.

    The client repeats the request with the version that it finds here (KIP-511). Closing the connection, or a body of
    any other version, leaves it stuck.
    """
    spec = API[API_VERSIONS_KEY]
    return ApiVersionsResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION,
        api_keys=[ApiVersion(api_key=spec.key, min_version=spec.advertised_min, max_version=spec.max_version)],
    )


def api_versions_response(version: int, keys: Collection[int]) -> ApiVersionsResponse:
    """The answer to an ApiVersions request of `version`: the APIs of `keys`, and the one finalized feature.

    A broker passes the keys that it has handlers for, each of which must be in `API`. A codec alone does not make an
    API: a client that finds one here will call it.
    A supported feature whose minimum is 0 is left out below version 4, because clients then reject it (KAFKA-17492).
    """
    supported = [
        SupportedFeatureKey(
            name=METADATA_VERSION_FEATURE, min_version=METADATA_VERSION_MIN, max_version=METADATA_VERSION_LEVEL
        )
    ]
    return ApiVersionsResponse(
        error_code=ErrorCode.NONE,
        api_keys=[
            ApiVersion(api_key=spec.key, min_version=spec.advertised_min, max_version=spec.max_version)
            for spec in (API[key] for key in sorted(keys))
        ],
        supported_features=[feature for feature in supported if version >= 4 or feature.min_version > 0],
        finalized_features_epoch=0,
        finalized_features=[
            FinalizedFeatureKey(
                name=METADATA_VERSION_FEATURE,
                max_version_level=METADATA_VERSION_LEVEL,
                min_version_level=METADATA_VERSION_LEVEL,
            )
        ],
    )
