"""When a broker removes what was set aside: once the store has long known, and until all is gone that has to go."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from kafkalite_broker.log.strays import StrayRules
from kafkalite_core.model.config import broker_integer
from kafkalite_core.model.errors import StorageError
from kafkalite_runtime.logging import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kafkalite_broker.log.manager import LogManager
    from kafkalite_core.storage.partition_metadata import PartitionMetadata

LOOK_AGAIN_S: Final = 10.0

log = get_logger(__name__)


class StrayRemoval:
    """See the module. Used on the loop's thread.

    Args:
        logs: The logs, and the strays.
        config: Of the broker.
        told_ms: For how long the store is known not to list a stray; 0 when it may list it, or is out of contact.
        claimed: Whether a topic that lives has this replica here: its stray is adopted when there is room.
        looked_ms: When the topics that `claimed` goes by were last listed consistently; monotonic.
        look_at_topics: Begins to list them anew.
        report: Called after each look: tells the store which strays may be taken over.
        on_fatal: Told of an error of which the process must end.
    """

    def __init__(
        self,
        logs: LogManager,
        *,
        config: Mapping[str, str],
        told_ms: Callable[[PartitionMetadata], float],
        claimed: Callable[[PartitionMetadata], bool],
        looked_ms: Callable[[], float],
        look_at_topics: Callable[[], None],
        report: Callable[[], None],
        on_fatal: Callable[[Exception], None],
    ) -> None:
        self._logs = logs
        self._config = config
        self._told_ms = told_ms
        self._claimed = claimed
        self._looked_ms = looked_ms
        self._look_at_topics = look_at_topics
        self._report = report
        self._on_fatal = on_fatal
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    def look(self) -> None:
        """Removes those whose time has come; looks again while there are some whose time is about to come.

        Raises `StorageError`, `DiskFailure`.
        """
        rules = StrayRules(
            retention_ms=broker_integer(self._config, "kafkalite.stray.retention.ms"),
            deleted_retention_ms=broker_integer(self._config, "kafkalite.stray.deleted.retention.ms"),
            told_ms=self._told_ms,
            claimed=self._claimed,
            looked_ms=self._looked_ms(),
        )
        try:
            for directory, reason in self._logs.remove_strays(rules):
                log.info("stray removed", directory=directory, reason=reason)
        finally:
            self._report()
            if self._logs.strays_due and not self._closed:
                self._look_at_topics()
            if self._logs.strays_leaving and self._timer is None and not self._closed:
                self._timer = asyncio.get_running_loop().call_later(LOOK_AGAIN_S, self._look_again)

    def _look_again(self) -> None:
        self._timer = None
        try:
            self.look()
        except StorageError as error:
            log.error("strays are not removed, trying again later", error=str(error))
        except Exception as error:
            self._on_fatal(error)

    def close(self) -> None:
        """Nothing is looked at any more."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
