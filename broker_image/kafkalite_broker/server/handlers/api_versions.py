"""ApiVersions (key 18): which APIs and versions this broker serves."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kafkalite_core.protocol.api_versions import ApiVersionsResponse
from kafkalite_core.protocol.apis import api_versions_response
from kafkalite_core.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Collection

    from kafkalite_broker.server.dispatch import Request

SOFTWARE_NAME = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


class ApiVersionsHandler:
    """Answers with the APIs of `keys`: those that have a handler. A client calls whatever it finds here."""

    def __init__(self, keys: Collection[int]) -> None:
        self._keys = frozenset(keys)

    def __call__(self, request: Request) -> None:
        """Answer with the table of APIs (KIP-35, KIP-511)."""
        body = request.body
        if request.version >= 3 and not (
            SOFTWARE_NAME.fullmatch(body.client_software_name) and SOFTWARE_NAME.fullmatch(body.client_software_version)
        ):
            request.answer(ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST))
            return
        request.answer(api_versions_response(request.version, self._keys))
