"""The broker's rack, which is known only once its pod has a node: from a volume of the downward API (KIP-36)."""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import TYPE_CHECKING

from kafkalite_core.resources.places import ANNOTATION_FILE, LABEL_FILE, rack_read
from kafkalite_runtime.logging import get_logger

if TYPE_CHECKING:
    from pathlib import Path

    from kafkalite_broker.cluster.settings import BrokerSettings

RACK_LIMIT_S = 30.0
"""A broker without a rack serves; one that waits for ever does not."""

POLL_INTERVAL_S = 0.2

log = get_logger(__name__)


async def rack_of(settings: BrokerSettings, *, limit_s: float = RACK_LIMIT_S) -> str:
    """The rack; the empty string for none, or when nobody told one in time."""
    if settings.rack or settings.rack_directory is None:
        return settings.rack
    directory = settings.rack_directory
    deadline_s = monotonic() + limit_s
    while (found := rack_read(_text(directory / LABEL_FILE), _text(directory / ANNOTATION_FILE))) is None:
        if monotonic() >= deadline_s:
            log.warning(
                "the rack is not known: registering without one",
                waited_s=limit_s,
                what_to_do="see the condition RacksKnown of the KafkaLiteCluster, then restart this broker",
            )
            return ""
        await asyncio.sleep(POLL_INTERVAL_S)
    log.info("rack", rack=found)
    return found


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""
