"""How far the recovery of all logs has come, told by several threads."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class RecoveryTally:
    """Segments still to be scanned over all logs that are being recovered."""

    def __init__(self, on_progress: Callable[[int], None] | None) -> None:
        self._on_progress = on_progress
        self._remaining: dict[str, int] = {}
        self._lock = threading.Lock()

    def update(self, name: str, remaining: int) -> None:
        """One log has `remaining` segments left."""
        if self._on_progress is None:
            return
        with self._lock:
            self._remaining[name] = remaining
            total = sum(self._remaining.values())
        self._on_progress(total)
