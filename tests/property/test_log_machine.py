"""A log over a faulty disk against a list of batches: whatever happens, no flushed batch is lost, no byte is invented."""

import contextlib
import errno
from dataclasses import replace

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kafkalite_core.model.errors import StorageError
from kafkalite_core.protocol.record_batch import SimpleRecord, build_batch, parse_batch_header
from kafkalite_core.storage.errors import DiskFailure, OffsetOutOfRange, OutOfOrderSequence
from kafkalite_core.storage.log import LogEnvironment
from kafkalite_core.storage.log_config import LogConfig
from kafkalite_core.storage.producer_state import Duplicate, New
from kafkalite_core.storage.recovery import open_log
from kafkalite_core.storage.tail import TailBudget
from tests.property.counted_disk import CountedDisk
from tests.property.log_content import assert_indexes_find_every_batch, batches_of

CONFIG = LogConfig(
    segment_bytes=700,
    index_interval_bytes=120,
    segment_index_bytes=96,
    retention_ms=-1,
    file_delete_delay_ms=100,
)
PRODUCER = 7
NAME = "t-0"


class LogMachine(RuleBasedStateMachine):
    @initialize(tail_bytes=st.sampled_from([0, 1500, 1_000_000]), relaxed=st.booleans())
    def begin(self, tail_bytes, relaxed):
        self.disk = CountedDisk()
        self.tail_bytes = tail_bytes
        self.config = CONFIG
        self.recovery_point = 0
        self.start_checkpoint = 0
        self.batches = []  # what the log holds: (base offset, bytes)
        self.gone = []  # what its start has left behind: a restart may find it, if no checkpoint told of the new start
        self.sequenced = []  # of the producer: (base sequence, base offset, last offset), truncated with the log
        self.ever = set()
        self.epoch = 1
        self.clock = 1000
        self.ticket = None
        self.flushed = 0
        self.disk.hook = self.find_no_room
        self.open(clean=False)

    def find_no_room(self, operation, path):
        if operation == "append" and path.endswith(self.disk.no_room or "\0"):
            raise OSError(errno.ENOSPC, "injected")

    def open(self, *, clean):
        environment = LogEnvironment(TailBudget(self.tail_bytes), self.before_shrink)
        self.log, self.report = open_log(
            self.disk,
            NAME,
            self.config,
            environment,
            now_ms=self.clock,
            clean=clean,
            recovery_point=self.recovery_point,
            start_offset=self.start_checkpoint,
        )
        self.ticket = None

    def before_shrink(self, directory, offset):
        assert directory == NAME
        self.recovery_point = min(self.recovery_point, offset)
        self.start_checkpoint = min(self.start_checkpoint, offset)

    @property
    def end(self):
        return self.log.end_offset

    def new_batch(self, records, size, *, sequenced, base=0, epoch=-1):
        self.clock += 7
        values = [SimpleRecord(self.clock + n, b"k", bytes([n % 256]) * size) for n in range(records)]
        if not sequenced:
            return build_batch(values, base_offset=base, leader_epoch=epoch)
        last = self.sequenced[-1] if self.sequenced else None
        sequence = 0 if last is None else last[0] + last[2] - last[1] + 1
        return build_batch(
            values, base_offset=base, leader_epoch=epoch, producer_id=PRODUCER, producer_epoch=0, base_sequence=sequence
        )

    def start_moved(self):
        """The log start did: whole batches below it are not shown any more."""
        ends = [parse_batch_header(content).next_offset for _, content in self.batches]
        below = sum(end <= self.log.start_offset for end in ends)
        self.gone += self.batches[:below]
        self.batches = self.batches[below:]

    def took(self, base, content):
        header = parse_batch_header(memoryview(content))
        self.batches.append((base, bytes(content)))
        self.ever.add(bytes(content))
        if header.producer_id >= 0:
            self.sequenced.append((header.base_sequence, base, header.last_offset))

    # ------------------------------------------------------------------------------------------------ appends

    @rule(records=st.integers(1, 4), size=st.sampled_from([0, 10, 90, 800]), sequenced=st.booleans())
    def append_as_leader(self, records, size, sequenced):
        batch = self.new_batch(records, size, sequenced=sequenced)
        if sequenced:
            assert self.log.producers.check(parse_batch_header(batch)) == New()
        base = self.end
        info = self.log.append_as_leader(batch, leader_epoch=self.epoch, now_ms=self.clock)
        assert (info.base_offset, info.last_offset) == (base, base + records - 1)
        self.took(base, bytes(batch))

    @rule(
        shape=st.lists(st.tuples(st.integers(1, 3), st.sampled_from([5, 200]), st.booleans()), max_size=5),
        cut=st.integers(0, 70),
    )
    def append_as_follower(self, shape, cut):
        frame = b""
        base = self.end
        whole = []
        for records, size, bump in shape:
            self.epoch += bump
            batch = bytes(self.new_batch(records, size, sequenced=False, base=base, epoch=self.epoch))
            whole.append((base, batch))
            frame += batch
            base += records
        too_new = bytes(self.new_batch(1, 5, sequenced=False, base=base, epoch=self.epoch + 1))
        frame += too_new[:cut] if cut < 61 else too_new
        assert self.log.append_as_follower(memoryview(frame), max_epoch=self.epoch, now_ms=self.clock) == base
        for start, batch in whole:
            self.took(start, batch)

    @rule(room=st.integers(0, 300), size=st.sampled_from([10, 400, 900]), follower=st.booleans())
    def append_to_a_full_disk(self, room, size, follower):
        batch = self.new_batch(1, size, sequenced=False, base=self.end, epoch=self.epoch)
        self.disk.capacity = 0
        self.disk.capacity = room - self.disk.free_bytes()
        before = self.end
        try:
            if follower:
                self.log.append_as_follower(memoryview(bytes(batch)), max_epoch=self.epoch, now_ms=self.clock)
            else:
                self.log.append_as_leader(batch, leader_epoch=self.epoch, now_ms=self.clock)
        except StorageError:
            assert self.end == before
        else:
            self.took(before, bytes(batch))
        self.disk.capacity = None

    @rule()
    def new_epoch(self):
        self.epoch += 1
        assert self.log.epochs.assign(self.epoch, self.end)

    @precondition(lambda self: self.sequenced and self.log.producers.entry(PRODUCER))
    @rule(back=st.integers(0, 6))
    def send_again(self, back):
        if back >= len(self.sequenced):
            return
        sequence, base, last = self.sequenced[-1 - back]
        header = parse_batch_header(self.new_batch(last - base + 1, 1, sequenced=True))._replace(base_sequence=sequence)
        known = len(self.log.producers.entry(PRODUCER).batches)
        if back < known:
            duplicate = self.log.producers.check(header)
            assert isinstance(duplicate, Duplicate)
            assert duplicate[:2] == (base, last)
        else:
            with pytest.raises(OutOfOrderSequence):
                self.log.producers.check(header)

    # ------------------------------------------------------------------------------------------------ reads

    @rule(data=st.data(), max_bytes=st.sampled_from([0, 150, 1000, 10_000]), minimum_one=st.booleans())
    def read(self, data, max_bytes, minimum_one):
        offset = data.draw(st.integers(self.log.start_offset, self.end))
        end = data.draw(st.integers(offset, self.end + 1))
        result = self.log.read(offset, max_bytes=max_bytes, end=end, minimum_one=minimum_one)
        content = b"".join(bytes(buffer) for buffer in result.buffers)
        assert result.size == len(content)
        expected = b""
        for base, batch in self.batches:
            if parse_batch_header(batch).last_offset < offset or offset >= end:
                continue
            fits = len(expected) + len(batch) <= max_bytes or (minimum_one and not expected)
            if base >= end or not fits:
                break
            expected += batch
        # A cold read may stop early, at the end of a segment; never before the first batch.
        assert expected.startswith(content)
        assert content or not expected
        if not result.cold:
            assert content == expected

    @rule(beyond=st.booleans())
    def read_out_of_range(self, beyond):
        offset = self.end + 1 if beyond else self.log.start_offset - 1
        with pytest.raises(OffsetOutOfRange):
            self.log.read(offset, max_bytes=100, end=self.end, minimum_one=True)

    @rule(data=st.data())
    def look_up_timestamp(self, data):
        timestamp = data.draw(st.integers(990, self.clock + 10))
        end = data.draw(st.integers(self.log.start_offset, self.end))
        expected = None
        for _, batch in self.batches:
            header = parse_batch_header(batch)
            for delta in range(header.record_count):
                offset, stamp = header.base_offset + delta, header.base_timestamp + delta
                if expected is None and self.log.start_offset <= offset < end and stamp >= timestamp:
                    expected = (stamp, offset, header.partition_leader_epoch)
        assert self.log.offset_for_timestamp(timestamp, end=end) == expected

    @rule()
    def look_up_newest(self):
        found = self.log.max_timestamp(end=self.end)
        headers = [parse_batch_header(batch) for _, batch in self.batches]
        headers = [header for header in headers if header.last_offset >= self.log.start_offset]
        newest = max((header.max_timestamp for header in headers), default=None)
        assert (found is None) == (newest is None)
        assert found is None or found.timestamp == newest

    # ------------------------------------------------------------------------------------------------ cuts

    @rule(data=st.data())
    def truncate(self, data):
        offset = data.draw(st.integers(self.log.start_offset, self.end + 2))
        generation = self.log.generation
        expected = [(b, c) for b, c in self.batches if parse_batch_header(c).last_offset < offset]
        changed = len(expected) != len(self.batches)
        start = self.log.start_offset
        self.log.truncate_to(offset)
        assert self.log.generation >= generation + changed
        assert self.log.start_offset == min(start, self.end)
        self.forget_from(self.end)
        self.batches = expected
        self.gone = [(b, c) for b, c in self.gone if parse_batch_header(c).last_offset < self.end]
        assert self.end <= offset or not changed

    def forget_from(self, end):
        self.sequenced = [entry for entry in self.sequenced if entry[2] < end]
        self.flushed = min(self.flushed, end)

    @rule(gap=st.integers(0, 50))
    def start_anew(self, gap):
        self.began_anew(self.end + gap, self.log.reset_to)

    @precondition(lambda self: self.log.start_offset)
    @rule(data=st.data())
    def truncate_below_the_start(self, data):
        bases = [segment.base_offset for _, segment in self.log.doomed]
        offset = data.draw(st.sampled_from(bases) if bases else st.integers(0, self.log.start_offset - 1))
        self.began_anew(offset, self.log.truncate_to)

    def began_anew(self, offset, begin):
        begin(offset)
        self.batches, self.gone, self.sequenced = [], [], []
        self.flushed = offset
        assert (self.log.start_offset, self.end, self.log.flushed_end) == (offset, offset, offset)
        assert self.log.latest_epoch == -1
        assert max(self.recovery_point, self.start_checkpoint) <= offset

    @rule(data=st.data())
    def delete_records(self, data):
        offset = data.draw(st.integers(self.log.start_offset, self.end))
        self.log.advance_start(offset)
        assert self.log.start_offset == offset
        self.start_moved()

    @rule(data=st.data())
    def retention(self, data):
        mark = data.draw(st.integers(self.log.start_offset, self.end))
        keep = data.draw(st.sampled_from([0, 500, 1500]))
        self.log.reconfigure(replace(CONFIG, retention_bytes=keep))
        bases = [segment.base_offset for segment in self.log.segments]
        start = self.log.start_offset
        names = self.log.retention(self.clock, mark)
        self.log.reconfigure(self.config)
        assert start <= self.log.start_offset <= max(mark, start)
        assert [int(name[:20]) for name in names] == bases[: len(names)]
        assert len(self.log.segments) >= 1
        self.start_moved()

    @rule(later=st.sampled_from([0, 100]))
    def purge(self, later):
        self.clock += later
        due = [segment.path for since, segment in self.log.doomed if since + 100 <= self.clock]
        self.log.purge(self.clock, durable_start=self.start_checkpoint)
        assert not any(map(self.disk.exists, due))
        assert all(self.disk.exists(segment.path) for segment in self.log.segments)

    @rule(room=st.booleans())
    def roll(self, room):
        before, self.disk.no_room = self.disk.no_room, self.disk.no_room if room else (".index", ".timeindex")
        if self.log.active.size:
            self.log.roll(self.clock)
        self.disk.no_room = before

    # ------------------------------------------------------------------------------------------------ flushes

    @precondition(lambda self: self.ticket is None)
    @rule()
    def begin_flush(self):
        self.ticket = self.log.begin_flush()
        if self.ticket is None:
            assert self.log.recovery_point == self.end

    @precondition(lambda self: self.ticket is not None)
    @rule()
    def complete_flush(self):
        ticket, self.ticket = self.ticket, None
        ticket.run()
        before = self.log.recovery_point
        self.log.complete_flush(ticket)
        if ticket.generation == self.log.generation:
            assert self.log.recovery_point >= ticket.end_offset
        else:
            assert self.log.recovery_point == before
        self.flushed = max(self.flushed, self.log.recovery_point)

    @precondition(lambda self: self.ticket is not None)
    @rule()
    def fail_to_flush(self):
        def fail(operation, _path):
            if operation in {"sync", "sync_directory"}:
                raise OSError(errno.EIO, "injected")

        self.disk.hook = fail
        before = self.log.flushed_end
        if self.ticket.generation != self.log.generation:
            # The log was begun anew meanwhile: its old files are closed, and nobody waits for their bytes.
            with contextlib.suppress(DiskFailure):
                self.ticket.run()
        elif self.ticket.directories or any(self.disk.exists(path) for _, path in self.ticket.files):
            with pytest.raises(DiskFailure):
                self.ticket.run()
        self.disk.hook = self.find_no_room
        assert self.log.flushed_end == before
        self.ticket = None
        self.kill()  # R12: the process dies

    @rule()
    def checkpoint(self):
        self.recovery_point = self.log.recovery_point
        self.start_checkpoint = self.log.start_offset

    @rule(epochs=st.booleans(), indexes=st.sampled_from([(), (".index",), (".timeindex",), (".index", ".timeindex")]))
    def room_for_small_files(self, epochs, indexes):
        """Or none, as where a quota counts files. Neither a start nor a stop, a roll nor a flush needs them."""
        self.disk.no_room = (*(("leader-epoch-checkpoint.tmp",) if epochs else ()), *indexes)

    # ------------------------------------------------------------------------------------------------ restarts

    @rule()
    def restart_cleanly(self):
        start, end, epochs = self.log.start_offset, self.end, self.log.epochs.entries
        producers = self.log.producers.encode()
        self.log.close(high_watermark=end)
        self.recovery_point, self.start_checkpoint = self.log.recovery_point, start
        assert self.recovery_point == end
        self.flushed = end
        self.gone = []
        self.open(clean=True)
        assert (self.log.start_offset, self.end, self.log.flushed_end) == (start, end, end)
        assert self.log.epochs.entries == [entry for entry in epochs if entry.start_offset < end]
        assert self.log.producers.encode() == producers
        assert not self.report.cut

    @rule()
    def kill(self):
        """The process dies; what it wrote is in the page cache."""
        end, start = self.end, self.log.start_offset
        self.disk.kill()
        self.open(clean=False)
        assert not self.report.cut, self.report
        assert (self.end, self.log.start_offset <= start) == (end, True)
        self.flushed = end
        self.batches = self.came_back()
        self.gone = []

    def came_back(self):
        """What there should be, if all of it is there: the start is where it was, or further back."""
        everything = [*self.gone, *self.batches]
        return [(b, c) for b, c in everything if parse_batch_header(c).last_offset >= self.log.start_offset]

    @rule(data=st.data(), lose_all=st.booleans())
    def crash(self, data, lose_all):
        """Power loss: whatever was not synced may be gone, torn or there."""
        start = self.log.start_offset
        self.disk.crash((lambda _n: 0) if lose_all else lambda n: data.draw(st.integers(0, n - 1)))
        self.open(clean=False)
        assert not self.report.cut_below_flushed, (self.report, self.recovery_point)
        assert self.log.start_offset <= start
        found = batches_of(self.log)
        kept = [(b, c) for b, c in self.came_back() if parse_batch_header(c).last_offset < self.flushed]
        assert found[: len(kept)] == kept, "a flushed batch is gone"
        assert all(content in self.ever for _, content in found), "a batch that nobody wrote"
        self.batches, self.gone = found, []
        self.sequenced = [
            (header.base_sequence, header.base_offset, header.last_offset)
            for header in (parse_batch_header(content) for _, content in found)
            if header.producer_id >= 0
        ]
        self.flushed = self.end
        if found:
            self.epoch = max(self.epoch, self.log.latest_epoch)
        # The producer may also be known from batches below the log start.
        entry = self.log.producers.entry(PRODUCER)
        known = [(b.base_sequence, b.base_offset, b.last_offset) for b in entry.batches] if entry else []
        assert not self.sequenced or known[-len(self.sequenced) :] == self.sequenced[-len(known) :]
        self.sequenced = known if len(known) > len(self.sequenced) else self.sequenced

    # ------------------------------------------------------------------------------------------------ always

    @invariant()
    def content_is_that_of_the_model(self):
        if not hasattr(self, "log"):
            return
        assert batches_of(self.log) == self.batches
        assert self.log.flushed_end <= self.end
        assert self.log.recovery_point >= min(self.flushed, self.end)
        for base, content in self.batches:
            epoch = self.log.epochs.epoch_at(max(base, self.log.start_offset))
            assert epoch == parse_batch_header(content).partition_leader_epoch
        entry = self.log.producers.entry(PRODUCER)
        if entry is not None and entry.batches and self.sequenced:
            known = [(batch.base_sequence, batch.base_offset, batch.last_offset) for batch in entry.batches]
            assert known[-len(self.sequenced) :] == self.sequenced[-len(known) :]

    @invariant()
    def indexes_find_every_batch(self):
        if hasattr(self, "log"):
            assert_indexes_find_every_batch(self.log)


LogMachine.TestCase.settings = settings(
    max_examples=300,
    stateful_step_count=50,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
TestLogMachine = LogMachine.TestCase
