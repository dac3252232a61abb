"""How far the recovery of all logs has come, told by several threads."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from kafkalite_core.storage.log import Log
    from kafkalite_core.storage.recovery import RecoveryProgress, RecoveryReport


class RecoveryTally:
    """Segments still to be scanned over all logs that are being recovered."""

    def __init__(self, on_progress: Callable[[int], None] | None) -> None:
        self._on_progress = on_progress
        self._remaining: dict[str, int] = {}
        self._lock = threading.Lock()

    def follow(
        self, name: str, loading: Generator[RecoveryProgress, None, tuple[Log, RecoveryReport]]
    ) -> tuple[Log, RecoveryReport]:
        """The result of loading one log, while its progress is told."""
        while True:
            try:
                self.update(name, next(loading).remaining_segments)
            except StopIteration as done:
                self.update(name, 0)
                result: tuple[Log, RecoveryReport] = done.value
                return result

    def update(self, name: str, remaining: int) -> None:
        """One log has `remaining` segments left."""
        if self._on_progress is None:
            return
        with self._lock:
            self._remaining[name] = remaining
            total = sum(self._remaining.values())
        self._on_progress(total)
