"""What the files of a data directory say after a cut by recovery, and what several threads write into them."""

import errno

import pytest

from kafkalite_broker.log.checkpointing import Checkpoints
from kafkalite_core.model.config import resolve_topic_config
from kafkalite_core.model.partition import Seen, TopicPartition, TopicRef
from kafkalite_core.protocol.record_batch import SimpleRecord, build_batch
from kafkalite_core.storage.memory_disk import MemoryDisk
from kafkalite_core.storage.partition_metadata import read_metadata

REF = TopicRef("ns", "orders", "uid-1", "5f0c1c2e-0000-4000-8000-000000000001", "orders")
CONFIG = resolve_topic_config({"segment.bytes": "1024", "file.delete.delay.ms": "0"})
COMPACTED = resolve_topic_config({"segment.bytes": "1024", "cleanup.policy": "compact"})
A, B = TopicPartition("a", 0), TopicPartition("b", 0)


def damage(log, offset):
    """Flips the last bit of the batch at `offset`, behind the back of the log."""
    segment = next(s for s in reversed(log.segments) if s.base_offset <= offset)
    brief = segment.find(offset)
    with (log.disk.root / segment.path).open("r+b") as file:
        file.seek(brief.position + brief.size - 1)
        byte = file.read(1)
        file.seek(-1, 1)
        file.write(bytes([byte[0] ^ 1]))


def test_nothing_outlives_what_a_recovery_cuts_off(manager, tools):
    one = manager()
    one.open()
    log, _ = one.obtain(REF, 0, COMPACTED)
    tools.fill(log, 30)
    tools.flush(log)
    one.cleaned_job(log, 25)()
    one.checkpoint({log: 30})
    damage(log, 29)
    damage(log, 4)
    log.recovery_point = 0
    one.checkpoint({log: 30})
    one.abandon()
    two = manager()
    assert two.open().reports[0].end_offset == 4
    for name in ("cleaner", "replication", "recovery-point", "log-start"):
        checkpoint = (two.disk.root / f"{name}-offset-checkpoint").read_text()
        assert checkpoint in {"0\n1\norders 0 4\n", "0\n1\norders 0 0\n"}, name
    log, mark = two.obtain(REF, 0, COMPACTED)
    assert (mark, two.cleaner_offset(log)) == (4, 4)
    tools.fill(log, 20)
    tools.flush(log)
    two.abandon()  # killed before the next checkpoint
    three = manager()
    three.open()
    assert three.obtain(REF, 0, COMPACTED)[1] == 4, "what was written over the cut is not committed by that"


def test_a_recovery_that_cuts_flushed_records_is_judged_before_the_files_forget_them(manager, tools):
    one = manager()
    one.open()
    log, _ = one.obtain(REF, 0, CONFIG)
    tools.fill(log, 30)
    tools.flush(log)
    one.checkpoint({log: 30})
    damage(log, 29)
    one.abandon()
    two = manager()
    assert two.open().findings.cut_below_flushed
    two.abandon()
    assert not manager().open().findings.cut_below_flushed, "once"


def test_a_checkpoint_does_not_take_back_that_a_log_has_gaps(manager, tools):
    one = manager()
    one.open()
    log, _ = one.obtain(REF, 0, CONFIG)
    tools.flush(log)
    one.note_epochs(log, Seen(3, 4, (), 4, 3), 7)
    job = one.checkpoint_job({})
    one.allow_gaps(log.directory)
    job()
    metadata = read_metadata(one.disk, log.directory)
    assert (metadata.compacted, metadata.leader_epoch) == (True, 3)


def test_metadata_that_found_no_room_go_with_the_next_checkpoint(manager, tools, monkeypatch):
    one = manager()
    one.open()
    log, _ = one.obtain(REF, 0, CONFIG)
    tools.flush(log)
    one.note_epochs(log, Seen(3, 4, (), 4, 3), 7)
    real = one.disk.open

    def find_no_room(path, **options):
        if path.endswith("partition.metadata.tmp"):
            raise OSError(errno.ENOSPC, "injected")
        return real(path, **options)

    monkeypatch.setattr(one.disk, "open", find_no_room)
    one.checkpoint({})
    assert read_metadata(one.disk, log.directory).leader_epoch == -1
    monkeypatch.undo()
    one.checkpoint({})
    assert read_metadata(one.disk, log.directory).leader_epoch == 3


def test_passes_of_compaction_that_end_in_any_order_undo_no_cut():
    checkpoints = Checkpoints(MemoryDisk())
    first, second = checkpoints.cleaned_job(A, 50), checkpoints.cleaned_job(B, 70)
    checkpoints.before_shrink("a-0", 20)
    second()
    first()
    assert checkpoints.cleaner_offsets.values == {A: 20, B: 70}
    late = checkpoints.cleaned_job(A, 60)
    checkpoints.forget(A)
    late()
    assert checkpoints.cleaner_offsets.values == {B: 70}


def test_what_is_remembered_of_forgotten_logs_goes_with_the_next_checkpoint():
    checkpoints = Checkpoints(MemoryDisk())
    checkpoints.cleaned_job(A, 50)()
    checkpoints.forget(A)
    checkpoints.write(checkpoints.take({}, {}))
    assert not checkpoints.cleaner_offsets._touched
    again = Checkpoints(checkpoints.cleaner_offsets._disk)
    again.load()
    assert again.cleaner_offsets.values == {}


def test_retention_on_a_full_disk_takes_old_segments_though_no_new_one_can_be_begun(manager, tools, clock, monkeypatch):
    one = manager()
    one.open()
    config = resolve_topic_config({"segment.bytes": "1024", "file.delete.delay.ms": "0", "retention.ms": "1"})
    log, _ = one.obtain(REF, 0, config)
    tools.fill(log, 30)
    tools.flush(log)
    end, segments = log.end_offset, len(log.segments)
    real = one.disk.open

    def find_no_room(path, *, create=False):
        if create and path.endswith((".log", ".index", ".tmp")) and not one.disk.exists(path):
            raise OSError(errno.ENOSPC, "injected")
        return real(path, create=create)

    monkeypatch.setattr(one.disk, "open", find_no_room)
    one.make_room({log: end})
    assert (segments > 2, len(log.segments), log.end_offset) == (True, 1, end)
    assert len(list((one.disk.root / log.directory).glob("*.log"))) == 1


@pytest.mark.parametrize("free", [0, 4095])
def test_a_broker_that_was_killed_on_a_full_disk_starts_again(manager, tools, monkeypatch, free):
    one = manager()
    one.open()
    log, _ = one.obtain(REF, 0, CONFIG)
    tools.fill(log, 5)
    tools.flush(log)
    one.abandon()
    assert (one.disk.root / ".reserve").exists()
    two = manager()
    monkeypatch.setattr(two.disk, "free_bytes", lambda: free)
    two.open()
    assert not (two.disk.root / ".reserve").exists()


def test_a_checkpoint_writes_what_was_learnt_of_producers_since_the_segment_began(opened):
    one = opened()
    log, _ = one.obtain(REF, 0, resolve_topic_config({"segment.bytes": "4096"}))
    record = SimpleRecord(1, b"k", bytes(200))
    for n in range(9):
        batch = build_batch([record], producer_id=7, producer_epoch=0, base_sequence=n)
        log.append_as_leader(batch, leader_epoch=1, now_ms=1)
        one.checkpoint({log: 0})
    assert log.snapshots() == [8]
