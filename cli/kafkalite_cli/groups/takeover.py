"""Asking a group's coordinator while another broker takes the group over."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeVar

from confluent_kafka import KafkaException

from kafkalite_core.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable

COORDINATOR_S = 15.0
RETRY_S = 0.2
COMING = {ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR}

Answer = TypeVar("Answer")


def from_coordinator(ask: Callable[[], Answer], limit_s: float = COORDINATOR_S) -> Answer:
    """What `ask` returns, called again for `limit_s` while it raises that the coordinator is elsewhere or coming.

    librdkafka's admin client gives such an answer to the program instead of looking for the coordinator again. Raises
    the KafkaException of the last try.
    """
    limit = time.monotonic() + limit_s
    while True:
        try:
            return ask()
        except KafkaException as error:
            if error.args[0].code() not in COMING or time.monotonic() > limit:
                raise
        time.sleep(RETRY_S)
