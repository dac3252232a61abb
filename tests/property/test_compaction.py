"""Compaction over a faulty disk against the list of all records ever written: whatever happens, no key loses its value."""

import contextlib
import copy

import hypothesis.strategies as st
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kafkalite_broker.compression import compress, decompress
from kafkalite_core.protocol.record_batch import (
    RecordHeader,
    SimpleRecord,
    build_batch,
    iter_batches,
    iter_records,
    parse_batch_header,
    validate_crc,
)
from kafkalite_core.storage import epoch_cache
from kafkalite_core.storage.compaction import plan_compaction
from kafkalite_core.storage.compaction_filter import DELETE_HORIZON, ENTRY_OVERHEAD_BYTES
from kafkalite_core.storage.compaction_pass import compact
from kafkalite_core.storage.log import LogEnvironment
from kafkalite_core.storage.log_config import LogConfig
from kafkalite_core.storage.memory_disk import MemoryDisk
from kafkalite_core.storage.recovery import open_log
from kafkalite_core.storage.tail import TailBudget
from tests.unit.storage.compaction_tools import finish

NAME = "t-0"
RETENTION_MS = 1000
KEYS = [b"", b"a", b"b", b"c", b"d" * 31, b"e" * 32, b"f" * 32, b"g" * 200]
RECORDS = st.lists(
    st.tuples(st.sampled_from(KEYS), st.one_of(st.none(), st.sampled_from([b"", b"x" * 10, b"y" * 150]))),
    min_size=1,
    max_size=5,
)


class PowerLoss(BaseException):
    pass


def batches_of(log):
    """(header, bytes) of every batch from the log start, read as consumers read."""
    found = []
    offset = log.start_offset
    while offset < log.end_offset:
        result = log.read(offset, max_bytes=300, end=log.end_offset, minimum_one=True)
        assert result.size, offset
        for buffer in result.buffers:
            view = memoryview(buffer)
            for position, header in iter_batches(view):
                assert validate_crc(view, position, header)
                assert header.last_offset >= offset
                found.append((header, bytes(view[position : position + header.size])))
                offset = header.next_offset
    assert offset == log.end_offset
    return found


def plain(record):
    key, value = (None if part is None else bytes(part) for part in (record.key, record.value))
    headers = [(header.key, None if header.value is None else bytes(header.value)) for header in record.headers]
    return record.offset, record.timestamp, key, value, headers


def records_in(header, batch):
    return [plain(record) for record in iter_records(memoryview(batch), 0, header, decompress)]


def fold(records):
    state = {}
    for _, _, key, value, _ in records:
        state.pop(key, None)
        if value is not None:
            state[key] = value
    return state


class CompactionMachine(RuleBasedStateMachine):
    @initialize(
        segment_bytes=st.sampled_from([300, 700, 2500]),
        map_keys=st.sampled_from([1, 2, 4, 1000]),
        interval=st.sampled_from([0, 200]),
    )
    def begin(self, segment_bytes, map_keys, interval):
        self.disk = MemoryDisk()
        self.config = LogConfig(
            segment_bytes=segment_bytes,
            segment_index_bytes=400,
            index_interval_bytes=interval,
            retention_ms=-1,
            file_delete_delay_ms=0,
            compacts=True,
            deletes=False,
            gaps=True,
            delete_retention_ms=RETENTION_MS,
            min_cleanable_dirty_ratio=0.0,
        )
        self.map_bytes = map_keys * (ENTRY_OVERHEAD_BYTES + 32)
        self.clock = 10_000
        self.epoch = 1
        self.records = {}  # offset -> record, of all that was ever written and not cut off
        self.batches = {}  # base offset -> (header, bytes) as it was written
        self.horizons = {}  # offset of a tombstone -> its delete horizon
        self.gone_below = 0  # no record below it has an older one of the same key
        self.sequences = {}
        self.checkpoint = None
        self.recovery_point = 0
        self.start_checkpoint = 0
        self.open(clean=False)

    def open(self, *, clean):
        environment = LogEnvironment(TailBudget(0), self.before_shrink, decompress, compress)
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

    def before_shrink(self, _directory, offset):
        self.recovery_point = min(self.recovery_point, offset)
        self.start_checkpoint = min(self.start_checkpoint, offset)
        self.checkpoint = None if self.checkpoint is None else min(self.checkpoint, offset)
        self.gone_below = min(self.gone_below, offset)

    def flush(self):
        ticket = self.log.begin_flush()
        if ticket is not None:
            ticket.run()
            self.log.complete_flush(ticket)

    # ------------------------------------------------------------------------------------------------ writing

    @rule(shape=RECORDS, codec=st.integers(0, 4), producer=st.sampled_from([-1, -1, 7, 8]), late=st.integers(-50, 0))
    def append(self, shape, codec, producer, late):
        self.clock += 13
        values = [
            SimpleRecord(self.clock + late * n, key, value, (RecordHeader("h", b"%d" % n),) if n % 2 else ())
            for n, (key, value) in enumerate(shape)
        ]
        sequence = self.sequences.get(producer, 0)
        fields = {"producer_id": producer, "producer_epoch": 0, "base_sequence": sequence} if producer >= 0 else {}
        batch = build_batch(values, codec=codec, compress=compress, **fields)
        if producer >= 0:
            self.sequences[producer] = sequence + len(values)
        self.log.append_as_leader(batch, leader_epoch=self.epoch, now_ms=self.clock)
        header = parse_batch_header(batch)
        self.batches[header.base_offset] = header, bytes(batch)
        for record in records_in(header, bytes(batch)):
            self.records[record[0]] = record

    @rule(times=st.integers(5, 30), key=st.sampled_from(KEYS))
    def append_much(self, times, key):
        for n in range(times):
            self.append([(key, b"%d" % n)], n % 5, -1, 0)

    @rule()
    def new_epoch(self):
        self.epoch += 1
        self.log.epochs.assign(self.epoch, self.log.end_offset)

    @rule(ms=st.sampled_from([10, RETENTION_MS // 2, RETENTION_MS, 3 * RETENTION_MS]))
    def wait(self, ms):
        self.clock += ms

    # ------------------------------------------------------------------------------------------------ compaction

    def begin_pass(self, mark):
        plan = plan_compaction(self.log, self.checkpoint, high_watermark=mark, now_ms=self.clock)
        return plan, compact(self.log, plan, map_bytes=self.map_bytes, now_ms=self.clock)

    def run_pass(self, mark):
        plan, work = self.begin_pass(mark)
        return plan, finish(work)

    @rule(data=st.data())
    def compact(self, data):
        self.flush()
        mark = data.draw(st.integers(self.log.start_offset, self.log.end_offset) | st.just(self.log.end_offset))
        before = batches_of(self.log)
        active = self.log.active.base_offset
        plan, result = self.run_pass(mark)
        assert result.reason == ""
        assert plan.first_dirty <= result.cleaned_to <= plan.first_uncleanable <= max(active, plan.first_dirty)
        assert plan.first_uncleanable <= max(mark, plan.first_dirty)
        assert result.map_full == (result.cleaned_to < plan.first_uncleanable)
        assert result.cleaned_to > plan.first_dirty or not plan.dirty_bytes
        self.checkpoint = result.cleaned_to
        if result.cleaned_to > self.log.segments[0].base_offset:
            self.gone_below = max(self.gone_below, result.cleaned_to)
        names = self.disk.list(NAME)
        assert not [name for name in names if name.endswith((".cleaned", ".swap", ".deleted"))]
        self.judge_pass(before, batches_of(self.log), plan.first_dirty, result.cleaned_to)

    def judge_pass(self, before, after, first_dirty, cleaned_to):
        """Tombstones go after their horizon and no sooner; whoever is kept whole is kept as it was."""
        left = {record[0] for header, batch in after for record in records_in(header, batch)}
        last = {}
        for header, batch in before:
            for record in records_in(header, batch):
                last[record[2]] = record[0]
        kept = {header.base_offset: (header, batch) for header, batch in after}
        for header, batch in before:
            # A horizon beyond what passes are known to have cleaned does not count: a leader may have set it, or a pass
            # that a crash ended after the swap and before its checkpoint.
            has_horizon = header.attributes & DELETE_HORIZON
            marked = has_horizon and header.next_offset <= first_dirty
            rows = records_in(header, batch)
            for offset, _, key, value, _ in rows:
                covered = offset < cleaned_to
                expired = value is None and marked and header.base_timestamp <= self.clock
                if last[key] == offset and not (covered and expired):
                    assert offset in left, "the last record of its key is gone"
                if last[key] == offset and covered and expired and cleaned_to > self.log.start_offset:
                    assert offset not in left, "a tombstone outlived its horizon"
            now, content = kept.get(header.base_offset, (None, b""))
            if marked and now is not None and now.record_count:
                assert now.attributes & DELETE_HORIZON
                assert now.base_timestamp == header.base_timestamp
            if (
                content
                and now.record_count == header.record_count
                and bool(now.attributes & DELETE_HORIZON) == bool(has_horizon)
                and now.base_timestamp == header.base_timestamp
            ):
                assert content == batch, "a batch that is kept whole was rewritten"
            set_anew = now is not None and now.base_timestamp != header.base_timestamp
            if now is not None and now.attributes & DELETE_HORIZON and not marked and (set_anew or not has_horizon):
                assert now.base_timestamp == self.clock + RETENTION_MS
                assert any(record[3] is None for record in records_in(now, content))
                assert now.next_offset <= cleaned_to

    @rule(after=st.integers(0, 120), data=st.data(), kind=st.sampled_from(["lose", "keep", "mix"]))
    def crash_while_compacting(self, after, data, kind):
        self.flush()
        self.recovery_point = data.draw(st.sampled_from([self.recovery_point, self.log.recovery_point]))
        left = after

        def hook(_operation, _path):
            nonlocal left
            left -= 1
            if left < 0:
                raise PowerLoss

        entries, end = self.log.epochs.entries, self.log.end_offset
        self.disk.hook = hook
        with contextlib.suppress(PowerLoss):
            self.run_pass(self.log.end_offset)
        self.disk.hook = lambda _operation, _path: None
        choices = {"lose": lambda n: 0, "keep": lambda n: 1, "mix": lambda n: data.draw(st.integers(0, n - 1))}
        self.disk.crash(choices[kind])
        self.open(clean=False)
        assert not self.report.cut, self.report
        assert self.log.end_offset == end
        assert self.log.epochs.entries == [entry for entry in entries if entry.start_offset < end], entries

    @rule(after=st.integers(0, 60), data=st.data())
    def truncate_while_compacting(self, after, data):
        """The log is cut between two jobs of a pass; power is lost right after that or not."""
        self.flush()
        _, work = self.begin_pass(self.log.end_offset)
        offset = data.draw(st.integers(self.log.start_offset, self.log.end_offset))
        job = next(work, None)
        for _ in range(after):
            if job is not None:
                job()
                job = next(work, None)
        end = self.log.end_offset
        self.log.truncate_to(offset)
        # What compaction has taken by then cannot come back: as in Kafka, keys may lose values by such a cut.
        self.forget_from(self.log.end_offset, harmed=self.log.end_offset < end)
        if data.draw(st.booleans()):
            self.disk.crash(lambda n: data.draw(st.integers(0, n - 1)))
            before = self.log.end_offset
            self.recovery_point = min(self.recovery_point, before)
            self.open(clean=False)
            assert self.log.end_offset >= before
            if self.log.end_offset > before:  # the cut was not synced yet
                self.log.truncate_to(before)
                assert self.log.end_offset <= before
        elif job is not None:
            result = finish(work, job)
            assert (result.cleaned_to is None) == (self.log.end_offset < end)
        self.flush()

    def forget_from(self, end, *, harmed):
        self.records = {offset: record for offset, record in self.records.items() if offset < end}
        self.batches = {offset: batch for offset, batch in self.batches.items() if offset < end}
        for producer in (7, 8):
            entry = self.log.producers.entry(producer)
            self.sequences[producer] = entry.batches[-1].last_sequence + 1 if entry else 0
        if harmed:
            found = {record[0] for header, batch in batches_of(self.log) for record in records_in(header, batch)}
            self.records = {offset: record for offset, record in self.records.items() if offset in found}

    # ------------------------------------------------------------------------------------------------ other changes

    @rule(data=st.data())
    def delete_records(self, data):
        offset = data.draw(st.integers(self.log.start_offset, self.log.end_offset))
        if data.draw(st.integers(0, 3)):
            return
        self.log.advance_start(offset)
        self.log.retention(self.clock, self.log.end_offset)
        self.start_checkpoint = self.log.start_offset
        self.log.purge(self.clock + 1)
        self.records = {n: record for n, record in self.records.items() if n >= self.log.start_offset}

    @rule()
    def restart_cleanly(self):
        self.flush()
        producers = self.log.producers.encode()
        self.log.close(high_watermark=self.log.end_offset)
        self.recovery_point = self.log.end_offset
        self.open(clean=True)
        assert not self.report.cut
        assert self.report.segments_scanned == 0 or not len(self.log.epochs)
        assert self.log.producers.encode() == producers

    @rule(snapshots=st.booleans())
    def kill(self, snapshots):
        self.flush()
        self.disk.kill()
        if not snapshots:
            for name in self.disk.list(NAME):
                if name.endswith(".snapshot"):
                    self.disk.remove(f"{NAME}/{name}")
        self.open(clean=False)
        assert not self.report.cut

    @rule()
    def epochs_of_the_batches_that_are_left(self):
        """Without the epoch file an epoch may seem to end earlier than it did, never later: too much is cut, or nothing."""
        self.flush()
        disk = copy.deepcopy(self.disk)
        disk.kill()
        path = f"{NAME}/{epoch_cache.FILE_NAME}"
        if disk.exists(path):
            disk.remove(path)
        left, _ = open_log(
            disk,
            NAME,
            self.config,
            LogEnvironment(TailBudget(0), lambda _directory, _offset: None, decompress, compress),
            now_ms=self.clock,
            recovery_point=self.recovery_point,
            start_offset=self.start_checkpoint,
        )
        assert left.end_offset == self.log.end_offset
        for epoch in range(self.epoch + 1):
            assert left.end_offset_for(epoch)[1] <= self.log.end_offset_for(epoch)[1], epoch

    # ------------------------------------------------------------------------------------------------ always

    @invariant()
    def content_is_that_of_the_model(self):
        if not hasattr(self, "log"):
            return
        log = self.log
        found = batches_of(log)
        records = [record for header, batch in found for record in records_in(header, batch)]
        records = [record for record in records if record[0] >= log.start_offset]
        assert fold(records) == fold(self.records[offset] for offset in sorted(self.records))
        for record in records:
            assert record == self.records[record[0]], "a record has changed"
        keys = [key for offset, _, key, _, _ in records if offset < self.gone_below]
        assert len(keys) == len(set(keys)), "a superseded record is still there"
        for header, _ in found:
            was, _ = self.batches[header.base_offset]
            for field in (
                "last_offset_delta",
                "partition_leader_epoch",
                "producer_id",
                "producer_epoch",
                "base_sequence",
            ):
                assert getattr(header, field) == getattr(was, field)
            assert header.max_timestamp <= was.max_timestamp

    @invariant()
    def producers_are_known_from_the_log(self):
        if not hasattr(self, "log"):
            return
        for producer, sequence in self.sequences.items():
            entry = self.log.producers.entry(producer)
            if producer >= 0 and sequence and entry is not None:
                assert entry.batches[-1].last_sequence == sequence - 1

    @invariant()
    def segments_join_and_indexes_find_every_batch(self):
        if not hasattr(self, "log"):
            return
        end = self.log.segments[0].base_offset
        for segment in self.log.segments:
            assert segment.base_offset == end
            end = segment.end_offset
            segment.load_indexes()
            for brief in segment.briefs(0):
                assert segment.index.lookup(brief.base_offset) <= brief.position
                assert segment.find(brief.last_offset).position == brief.position
        stamps = [
            (record[1], record[0])
            for header, batch in batches_of(self.log)
            for record in records_in(header, batch)
            if record[0] >= self.log.start_offset
        ]
        newest = self.log.max_timestamp(end=self.log.end_offset)
        straddles = any(h.base_offset < self.log.start_offset for h, _ in batches_of(self.log))
        assert straddles or (newest.timestamp if newest else None) == max((stamp for stamp, _ in stamps), default=None)
        if stamps:
            wanted = stamps[len(stamps) // 2][0]
            found = self.log.offset_for_timestamp(wanted, end=self.log.end_offset)
            assert found[:2] == next(pair for pair in stamps if pair[0] >= wanted)


CompactionMachine.TestCase.settings = settings(
    max_examples=150,
    stateful_step_count=25,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
TestCompactionMachine = CompactionMachine.TestCase
