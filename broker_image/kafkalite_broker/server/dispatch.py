"""The dispatch table: API key and version -> codec and handler. A new Kafka API is one row and one handler module."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Any

from kafkalite_core.model.errors import KafkaLiteError
from kafkalite_core.protocol.apis import API, unsupported_api_versions_response
from kafkalite_core.protocol.header import RequestHeader, decode_request_header, encode_response_frame
from kafkalite_runtime.logging import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kafkalite_broker.server.connection import Slot
    from kafkalite_broker.telemetry import BrokerTelemetry
    from kafkalite_core.protocol.api_spec import ApiSpec

API_VERSIONS_KEY = 18

log = get_logger(__name__)


class Request:
    """One request on its way: what a handler needs to answer it.

    Attributes:
        version: API version of request and answer.
        client_id: As the client calls itself; None when it does not.
        body: The decoded message.
        received_s: Monotonic time of arrival.
    """

    __slots__ = ("_on_answered", "_slot", "_spec", "body", "client_id", "correlation_id", "received_s", "version")

    def __init__(
        self, spec: ApiSpec, header: RequestHeader, body: Any, slot: Slot, on_answered: Callable[[str, float], None]
    ) -> None:
        self._spec = spec
        self._slot = slot
        self._on_answered = on_answered
        self.version = header.api_version
        self.correlation_id = header.correlation_id
        self.client_id = header.client_id
        self.body = body
        self.received_s = monotonic()

    def answer(self, response: object) -> None:
        """Encode and send the answer, in its turn."""
        if not self._slot.closed:
            self._slot.finish(encode_response_frame(self._spec, self.version, self.correlation_id, response))
        else:
            self._slot.finish(())
        self._on_answered(self._spec.name, monotonic() - self.received_s)

    def answer_nothing(self) -> None:
        """The request has no answer (acks=0)."""
        self._slot.finish(())
        self._on_answered(self._spec.name, monotonic() - self.received_s)

    def close(self, reason: str) -> None:
        """Close the connection: the only way to tell an error where there is no answer."""
        self._slot.close(reason)

    @property
    def peer(self) -> str:
        """Address of the client, for logs."""
        return self._slot.peer

    @property
    def abandoned(self) -> bool:
        """The client is gone; nobody waits for the answer."""
        return self._slot.closed


class RequestTable:
    """Decodes frames and calls handlers.

    Args:
        handlers: Handler by API key; called with the decoded request, answers now or later.
        telemetry: Counters.
    """

    def __init__(self, handlers: Mapping[int, Callable[[Request], None]], telemetry: BrokerTelemetry) -> None:
        self._handlers = dict(handlers)
        self._telemetry = telemetry

    def dispatch(self, frame: bytearray, slot: Slot) -> None:
        """Handle one frame. Whatever is wrong with it closes the connection, and this connection only."""
        view = memoryview(frame)
        try:
            header, offset = decode_request_header(view)
            spec = API.get(header.api_key)
            handler = self._handlers.get(header.api_key)
            if spec is None or handler is None:
                slot.close(f"API key {header.api_key} version {header.api_version} is not served")
                return
            if not spec.min_version <= header.api_version <= spec.max_version:
                self._unsupported_version(spec, header, slot)
                return
            body = spec.decode_request(view[offset:], header.api_version)
        except KafkaLiteError as error:
            slot.close(f"request cannot be read: {error}")
            return
        try:
            handler(Request(spec, header, body, slot, self._telemetry.request_answered))
        except Exception:
            # A defect of a handler must not take the other connections with it.
            log.exception("handler failed", api=spec.name, version=header.api_version, peer=slot.peer)
            slot.close(f"internal error while handling {spec.name}")

    def _unsupported_version(self, spec: ApiSpec, header: RequestHeader, slot: Slot) -> None:
        if header.api_key == API_VERSIONS_KEY:
            # The client retries with a version that it finds in this answer (KIP-35); always in version 0.
            response = unsupported_api_versions_response()
            slot.finish(encode_response_frame(spec, 0, header.correlation_id, response))
            return
        slot.close(
            f"{spec.name} version {header.api_version} is not served ({spec.min_version} to {spec.max_version} are)"
        )
