"""One row of the API table."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kafkalite_core.protocol.primitives import Buffer


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiSpec:
    """An API, the versions that are served, and its codec.

    The four functions raise `ProtocolError` for a version outside `min_version`..`max_version` and for malformed or
    left-over bytes. Decoders return the message class of the API; its `records` fields are views into what was passed.

    Attributes:
        key: Kafka's number of the API.
        name: Kafka's name of it, as in "Produce".
        min_version: The first version that is served.
        max_version: The last version that is served.
        advertised_min: The first version that ApiVersions claims.
        flexible_from: The first version with compact types and tagged fields (KIP-482).
    """

    key: int
    name: str
    min_version: int
    max_version: int
    advertised_min: int
    flexible_from: int
    decode_request: Callable[[memoryview, int], Any]
    encode_request: Callable[[Any, int], list[Buffer]]
    decode_response: Callable[[memoryview, int], Any]
    encode_response: Callable[[Any, int], list[Buffer]]

    def serves(self, version: int) -> bool:
        """Whether requests of this version can be decoded and answered."""
        return self.min_version <= version <= self.max_version

    def is_flexible(self, version: int) -> bool:
        """Whether the version's messages and headers have tagged fields."""
        return version >= self.flexible_from
