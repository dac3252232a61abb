"""The indexes of a sealed segment that are not in memory, read on a thread of choice.

A gigabyte's indexes are megabytes: reading and checking those of every segment that one request names would hold the
log's thread for seconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafkalite_core.storage.segment import Segment


class IndexLoading:
    """Made on the log's thread, `run` on any, and `Log.keep_indexes` on the log's again.

    Attributes:
        segment: Whose indexes they are.
        generation: Truncation generation of the log when it was planned.
        index: Offsets to positions, once it was run.
        time_index: Timestamps to offsets, once it was run.
        whole: Both are what they should be; None before it was run.
    """

    __slots__ = ("_size", "generation", "index", "segment", "time_index", "whole")

    def __init__(self, segment: Segment, generation: int) -> None:
        self.segment = segment
        self.generation = generation
        self.index = segment.index.twin()
        self.time_index = segment.time_index.twin()
        self.whole: bool | None = None
        self._size = segment.size

    def run(self) -> bool:
        """Reads them; False when they are missing or damaged. Raises `DiskFailure`."""
        self.whole = self.index.load(self._size) and self.time_index.load()
        return self.whole
