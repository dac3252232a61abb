"""Cutting a log at its end (by leader epoch, R3) and moving its start."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from kafkalite_core.model.errors import StorageError
from kafkalite_core.storage import replay
from kafkalite_core.storage.disk import join, remove_file, sync_directory
from kafkalite_core.storage.errors import DiskFailure
from kafkalite_core.storage.reading import segment_index
from kafkalite_core.storage.segment import SNAPSHOT_SUFFIX, file_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafkalite_core.storage.log import Log


def truncate_to(log: Log, offset: int) -> None:
    """See `Log.truncate_to`."""
    assert offset >= 0
    if offset >= log.end_offset:
        log.epochs.truncate_from_end(offset)
        return
    if offset < log.start_offset or offset < log.segments[0].base_offset:
        reset_to(log, offset, 0)
        return
    log.settle_swap()
    offset = _batch_boundary(log, offset)
    _announce(log, offset)  # on a full disk this raises, and nothing has changed: not the epochs either
    _begin_cut(log)
    with _no_way_back(log):
        drop_snapshots_after(log, offset)
        _drop_segments_after(log, offset)
        segment = log.segments[-1]
        segment.truncate_to(offset)
    log.active = segment
    log.end_offset = segment.end_offset
    _settle(log)
    if not log.producers.truncate_to(log.end_offset):
        replay.rebuild_producers(log)


def reset_to(log: Log, offset: int, now_ms: int) -> None:
    """See `Log.reset_to`.

    What waits to be purged goes as well, the last segment first, each durably before the next. One of these before the
    new segment would be a hole to the next start; one of the same name would be written into, and the purge take it.
    """
    assert offset >= 0
    log.settle_swap()
    everything = [*(segment for _, segment in log.doomed), *log.segments]
    _announce(log, 0)  # between the last of the old segments and the new one there is nothing
    _begin_cut(log)
    began_ms = now_ms or log.active.created_ms
    with _no_way_back(log):
        drop_snapshots_after(log, -1)
        log.segments.clear()
        log.doomed.clear()
        while everything:
            everything.pop().remove()
            sync_directory(log.disk, log.directory)
        log.epochs.clear()
        log.producers.clear()
        log.restart_active(offset, began_ms)
    log.start_offset = log.end_offset = log.recovery_point = offset
    _settle(log)
    ticket = log.begin_flush()  # the new start is reported as flushed at once
    if ticket is not None:
        ticket.run()
        log.complete_flush(ticket)


def advance_start(log: Log, offset: int) -> bool:
    """See `Log.advance_start`. Segments that lie below as a whole go with the next retention pass."""
    offset = min(offset, log.end_offset)
    if offset <= log.start_offset:
        return False
    log.start_offset = offset
    log.epochs.truncate_from_start(offset)
    return True


def _batch_boundary(log: Log, offset: int) -> int:
    """Where the log will end: behind the last batch below `offset`. One that holds it inside goes as a whole.

    In a compacted log that may be lower still: the batches just below may be gone.
    """
    segment = log.segments[segment_index(log.segments, offset)]
    segment.load_indexes()
    for start in (segment.index.lookup(offset), 0):
        end = segment.base_offset
        for brief in segment.briefs(start):
            if brief.last_offset >= offset:
                break
            end = brief.last_offset + 1
        if end > segment.base_offset or not start:
            break
    return end


def _announce(log: Log, offset: int) -> None:
    before_shrink = log.environment.before_shrink
    if before_shrink is not None:
        before_shrink(log.directory, offset)


def _begin_cut(log: Log) -> None:
    log.generation += 1
    log.tail.clear()
    log.snapshot_size = 0


@contextmanager
def _no_way_back(log: Log) -> Iterator[None]:
    """A full disk that lets nothing be removed, or no empty file be made, leaves half a log: the process ends (R12)."""
    try:
        yield
    except StorageError as error:
        raise DiskFailure(f"the cut of {log.directory} cannot go on: {error}") from error


def drop_snapshots_after(log: Log, offset: int) -> None:
    """Removes producer snapshots beyond `offset`, durably: other records may come to stand before them."""
    gone = [snapshot for snapshot in log.snapshots() if snapshot > offset]
    for snapshot in gone:
        remove_file(log.disk, join(log.directory, file_name(snapshot, SNAPSHOT_SUFFIX)))
    if gone:
        sync_directory(log.disk, log.directory)


def _drop_segments_after(log: Log, offset: int) -> None:
    """Removes segments that begin at or beyond `offset`, the last one first, each durably before the next.

    Otherwise a power loss could bring one back behind a cut, and the log would have a hole.
    """
    while len(log.segments) > 1 and log.segments[-1].base_offset >= offset:
        log.segments.pop().remove()
        sync_directory(log.disk, log.directory)


def _settle(log: Log) -> None:
    """After a cut nothing beyond the log end is remembered."""
    log.forget_loaded()
    log.recovery_point = min(log.recovery_point, log.end_offset)
    log.epochs.truncate_from_end(log.end_offset)
    log.start_offset = min(log.start_offset, log.end_offset)
    log.update_flushed_end()
