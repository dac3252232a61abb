"""`partition.metadata` of the open logs: what is known, what the disk has yet to learn, and who writes it."""

from __future__ import annotations

import threading
from collections import deque
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from kafkalite_core.model.errors import StorageError
from kafkalite_core.storage.partition_metadata import write_metadata

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalite_core.storage.disk import Disk
    from kafkalite_core.storage.log import Log
    from kafkalite_core.storage.partition_metadata import PartitionMetadata


class MetadataFiles:
    """See the module. Used on the loop's thread, but for the jobs and `allow_gaps`.

    Args:
        disk: The data directory.

    Attributes:
        writing: Held while a file is written: nobody may write into the successor of a log that has its name.
    """

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self.writing = threading.Lock()
        self._known: dict[Log, PartitionMetadata] = {}
        self._dirty: dict[Log, None] = {}  # in the order of the news: the simulator replays it
        self._failed: deque[Log] = deque()
        self._gaps_allowed: set[Log] = set()

    def __getitem__(self, log: Log) -> PartitionMetadata:
        """What is known of an open log."""
        return self._known[log]

    def opened(self, log: Log, metadata: PartitionMetadata) -> None:
        """A log was opened beside whose data the file says this, or will with its first flush."""
        self._known[log] = metadata
        if metadata.compacted:
            self._gaps_allowed.add(log)

    def note(self, log: Log, metadata: PartitionMetadata) -> None:
        """News of a log, for its file when the next checkpoint is written. Of a marked log they are durable at once.

        Raises `StorageError`: nothing has changed. The mark tells where the log began and what the disk had of it; that
        is wrong from the first change of the log on.
        """
        if self._known[log].marked:
            self.write_now(log, metadata)
            return
        self._known[log] = metadata
        self._dirty[log] = None

    def remember(self, log: Log, metadata: PartitionMetadata) -> None:
        """News of a log whose file says them soon, or else may never do."""
        self._known[log] = metadata

    def write_now(self, log: Log, metadata: PartitionMetadata) -> None:
        """News of a log, durable when it returns (blocking). Raises `StorageError`: nothing has changed."""
        with self.writing:
            write_metadata(self._disk, log.directory, metadata)
            self._known[log] = metadata

    def mark(self, log: Log, now_ms: int) -> None:
        """Says that a log becomes a stray now, durably (blocking), on whatever thread. `StorageError`: it is as before.

        A stray that nobody can read after a power loss is nobody's, and its data would be lost (S10).
        """
        with self.writing:
            metadata = replace(self._known[log], stray_since_ms=now_ms)
            write_metadata(self._disk, log.directory, metadata)
            self._known[log] = metadata

    def note_losses(self) -> None:
        """What marked logs have lost is noted in them: the disk is distrusted for it, durably, and shall be so once."""
        for log, known in list(self._known.items()):
            if log.end_offset < known.kept_recovery_point:
                with suppress(StorageError):
                    self.write_now(log, replace(known, recovery_point=log.end_offset, end_offset=log.end_offset))

    def closed(self, log: Log) -> PartitionMetadata:
        """The log is given up, and its file is somebody else's; what was known."""
        self._dirty.pop(log, None)
        self._gaps_allowed.discard(log)
        return self._known.pop(log)

    def allow_gaps(self, log: Log) -> None:
        """Batches are about to be missing in a log: returns when its metadata say so durably (blocking, once).

        Recovery would otherwise take the first gap for damage and cut the log there.
        """
        if log not in self._gaps_allowed:
            with self.writing:
                self._known[log] = replace(self._known[log], compacted=True)
                write_metadata(self._disk, log.directory, self._known[log])
            self._gaps_allowed.add(log)

    def job(self) -> Callable[[], None]:
        """What was noted until now; the job writes it, on whatever thread. What finds no room is left for the next."""
        while self._failed:
            self._dirty[self._failed.popleft()] = None
        dirty, self._dirty = self._dirty, {}

        def write() -> None:
            for log in dirty:
                with self.writing:
                    if log.closed:
                        continue
                    try:
                        # What is known now: meanwhile another thread may have written that the log has gaps.
                        write_metadata(self._disk, log.directory, self._known[log])
                    except StorageError:
                        self._failed.append(log)

        return write
