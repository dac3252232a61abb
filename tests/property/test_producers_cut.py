"""What a log knows of producers after a cut is what it would know had it never had the batches that were cut."""

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, example, given, settings

from kafkalite_core.protocol.record_batch import SimpleRecord, build_batch
from kafkalite_core.storage import replay
from kafkalite_core.storage.log import LogEnvironment
from kafkalite_core.storage.log_config import LogConfig
from kafkalite_core.storage.memory_disk import MemoryDisk
from kafkalite_core.storage.recovery import open_log
from kafkalite_core.storage.segment import Segment
from kafkalite_core.storage.tail import TailBudget

CONFIG = LogConfig(segment_bytes=2500, index_interval_bytes=150, retention_ms=-1, file_delete_delay_ms=0)

BATCHES = st.tuples(st.just("batches"), st.integers(0, 2), st.integers(1, 7), st.booleans())
"""So many batches of a producer, the first perhaps in a new epoch."""

STEPS = st.one_of(
    BATCHES,
    BATCHES,
    st.tuples(st.just("cut"), st.integers(0, 40)),
    st.tuples(st.just("cut"), st.integers(0, 8)),
    st.sampled_from([("checkpoint",), ("restart",), ("kill",), ("roll",)]),
)


class Twin:
    """A log, and all that was ever appended to it and not cut."""

    def __init__(self):
        self.disk = MemoryDisk()
        self.sequences = {}
        self.history = []
        self.open(clean=False)

    def open(self, *, clean):
        environment = LogEnvironment(TailBudget(0), lambda _directory, _offset: None)
        point = self.log.end_offset if hasattr(self, "log") else 0
        options = {"now_ms": 1, "clean": clean, "recovery_point": point}
        self.log, report = open_log(self.disk, "t-0", CONFIG, environment, **options)
        assert not report.cut

    def batches(self, producer, count, new_epoch):
        epoch, sequence = self.sequences.get(producer, (0, 0))
        if new_epoch:
            epoch, sequence = epoch + 1, 0
        for n in range(count):
            header = {"producer_id": producer, "producer_epoch": epoch, "base_sequence": sequence + n}
            self.history.append((self.log.end_offset, header))
            append(self.log, header)
        self.sequences[producer] = epoch, sequence + count

    def cut(self, back):
        self.log.truncate_to(max(self.log.end_offset - back, 0))
        self.history = [(offset, header) for offset, header in self.history if offset < self.log.end_offset]
        last = {header["producer_id"]: header for _, header in self.history}
        self.sequences = {
            producer: (header["producer_epoch"], header["base_sequence"] + 1) for producer, header in last.items()
        }

    def checkpoint(self):
        replay.checkpoint_producers(self.log)

    def roll(self):
        if self.log.active.size:
            self.log.roll(1)

    def restart(self):
        self.log.close(high_watermark=0)
        self.open(clean=True)

    def kill(self):
        ticket = self.log.begin_flush()
        if ticket is not None:
            ticket.run()
            self.log.complete_flush(ticket)
        self.disk.kill()
        self.open(clean=False)

    def check(self):
        other, _ = open_log(MemoryDisk(), "t-0", CONFIG, LogEnvironment(TailBudget(0)), now_ms=1)
        for _, header in self.history:
            append(other, header)
        found, wanted = dict(self.log.producers.items()), dict(other.producers.items())
        assert found.keys() == wanted.keys()
        for producer, entry in found.items():
            known = wanted[producer]
            assert entry.epoch == known.epoch
            # The oldest of the five may be missing: when so many came after it, its producer had the answer.
            assert entry.batches
            assert entry.batches == known.batches[-len(entry.batches) :]


def append(log, header):
    batch = build_batch([SimpleRecord(1000 + log.end_offset, b"k", bytes(20))], **header)
    log.append_as_leader(batch, leader_epoch=1, now_ms=1)


@pytest.fixture(autouse=True)
def often(monkeypatch):
    monkeypatch.setattr(replay, "SNAPSHOT_EVERY_BYTES", 300)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(STEPS, max_size=40))
def test_a_log_that_was_cut_knows_what_one_knows_that_never_had_the_rest(steps):
    twin = Twin()
    for name, *arguments in steps:
        getattr(twin, name)(*arguments)
        twin.check()


@pytest.mark.parametrize("before", range(6, 12))
@pytest.mark.parametrize("after", range(8))
def test_what_lies_between_a_snapshot_and_the_cut_counts_once(before, after):
    twin = Twin()
    twin.batches(0, before, new_epoch=False)
    twin.checkpoint()
    assert twin.log.snapshots() == [before]
    twin.batches(0, after + 7, new_epoch=False)
    twin.cut(7)
    assert [batch.last_offset for batch in twin.log.producers.entry(0).batches] == list(range(before + after))[-5:]
    twin.check()


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(1, 20), st.booleans()), max_size=120))
@example([*[(n, False) for n in (16, 17, 31, 15, 15)], *[(1, True)] * 3])
def test_snapshots_are_few_and_none_is_far_below_a_cut(steps):
    kept, end = [0], 0
    for count, thins in steps:
        end += count
        kept.append(end)
        if thins:
            gone = replay.superfluous(kept, 0, end)
            assert end not in gone
            kept = [offset for offset in kept if offset not in gone]
            assert len(kept) <= end.bit_length() + 1
    for cut in range(kept[0], end):
        below = max(offset for offset in kept if offset <= cut)
        assert end - below <= 4 * (end - cut + 20)


def test_a_snapshot_from_before_the_first_segment_says_nothing():
    """Its producer went on in a segment that is gone: taken from it, the next batch would seem to be far ahead."""
    assert replay.superfluous([5, 7, 10, 13, 14], 7, 15) == [5, 10]
    disk = MemoryDisk()
    log, _ = open_log(disk, "t-0", CONFIG, LogEnvironment(TailBudget(0)), now_ms=1)
    for n in range(60):
        append(log, {"producer_id": n // 50, "producer_epoch": 0, "base_sequence": n % 50})
        if n % 10 == 9:
            log.roll(1)
    old = log.snapshots()[0]
    data = replay.read_file(disk, f"t-0/{old:020d}.snapshot")
    log.advance_start(50)
    log.retention(1, 60)
    for offset in log.snapshots():
        disk.remove(f"t-0/{offset:020d}.snapshot")
    replay.replace_file(disk, f"t-0/{old:020d}.snapshot", data)
    replay.rebuild_producers(log)
    assert [producer for producer, _ in log.producers.items()] == [1]


@pytest.mark.parametrize("producers", [1, 3])
def test_a_deposed_leader_reads_little_of_its_segment(producers, monkeypatch):
    config = LogConfig(segment_bytes=1 << 20, index_interval_bytes=500)
    log, _ = open_log(MemoryDisk(), "t-0", config, LogEnvironment(TailBudget(0)), now_ms=1)
    monkeypatch.setattr(replay, "SNAPSHOT_EVERY_BYTES", 5000)
    for n in range(3000):
        if n % 10 == 0:
            replay.checkpoint_producers(log)
        append(log, {"producer_id": n % producers, "producer_epoch": 0, "base_sequence": n // producers})
    assert len(log.segments) == 1
    read = []
    briefs = Segment.briefs

    def counting(segment, position, *rest, **options):
        for brief in briefs(segment, position, *rest, **options):
            read.append(brief)
            yield brief

    monkeypatch.setattr(Segment, "briefs", counting)
    before = [log.producers.entry(producer).batches[-6:] for producer in range(producers)]
    log.truncate_to(log.end_offset - 5 * producers)
    assert 0 < len(read) < 300
    assert len(log.producers) == producers
    assert all(log.producers.entry(n).batches[-1].last_offset < before[n][0].last_offset for n in range(producers))
