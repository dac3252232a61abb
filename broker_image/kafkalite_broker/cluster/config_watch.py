"""Notices when the operator changed `broker.json` while the broker runs."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kafkalite_broker.cluster.settings import BrokerConfig, read_broker_config
from kafkalite_core.model.errors import ConfigError
from kafkalite_runtime.logging import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

POLL_INTERVAL_S = 5.0

log = get_logger(__name__)


class ConfigWatch:
    """Polls the file; the kubelet replaces a ConfigMap's files at its own pace and sends no signal.

    A file that cannot be read or understood leaves the last good settings in force and is logged once.
    """

    def __init__(
        self,
        path: Path,
        current: BrokerConfig,
        on_change: Callable[[BrokerConfig], None],
        *,
        interval_s: float = POLL_INTERVAL_S,
    ) -> None:
        self._path = path
        self._on_change = on_change
        self._interval_s = interval_s
        self._stamp = self._read_stamp()
        self._complaint = ""
        self.current = current

    async def run(self) -> None:
        """Never returns; cancel it to stop."""
        while True:
            await asyncio.sleep(self._interval_s)
            self.poll()

    def poll(self) -> bool:
        """Look once. True when new settings came into force."""
        stamp = self._read_stamp()
        if stamp == self._stamp:
            return False
        try:
            config = read_broker_config(self._path)
        except ConfigError as error:
            # The stamp stays: it is read again until it is right.
            if str(error) != self._complaint:
                self._complaint = str(error)
                log.error("new configuration refused, the old one stays in force", error=str(error))
            return False
        self._stamp = stamp
        self._complaint = ""
        if config == self.current:
            return False
        log.info("configuration changed", config=config.config)
        self.current = config
        self._on_change(config)
        return True

    def _read_stamp(self) -> tuple[int, int, int]:
        try:
            status = self._path.stat()
        except OSError:
            return (0, 0, 0)
        return (status.st_mtime_ns, status.st_size, status.st_ino)
