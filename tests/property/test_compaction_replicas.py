"""Replicas that compact on their own, or were copied from a compacted one, still find where they diverge."""

import hypothesis.strategies as st
from hypothesis import HealthCheck, given, settings

from kafkalite_core.protocol.record_batch import SimpleRecord, build_batch, iter_batches, iter_records
from kafkalite_core.replica.events import FetchResponded
from kafkalite_core.replica.follower import Follower
from kafkalite_core.storage.compaction import plan_compaction
from kafkalite_core.storage.compaction_pass import compact
from kafkalite_core.storage.log import LogEnvironment
from kafkalite_core.storage.log_config import LogConfig
from kafkalite_core.storage.memory_disk import MemoryDisk
from kafkalite_core.storage.recovery import open_log
from kafkalite_core.storage.tail import TailBudget

EPOCH = 50
"""Leader epoch in which the replicas meet again; its leader has written nothing yet."""


class State:
    """What a follower needs of its replica."""

    def __init__(self, log, high_watermark):
        self.log = log
        self.high_watermark = high_watermark
        self.storage_full_until_ms = 0.0
        self.effects = []
        self.cuts = []

    def decided(self, name, **facts):
        assert name in {"truncated", "log_restarted"}, (name, facts)
        self.cuts.append(facts)

    def want_flush(self):
        ticket = self.log.begin_flush()
        if ticket is not None:
            ticket.run()
            self.log.complete_flush(ticket)


def new_log(segment_bytes):
    config = LogConfig(segment_bytes=segment_bytes, compacts=True, gaps=True, min_cleanable_dirty_ratio=0.0)
    environment = LogEnvironment(TailBudget(0))
    log, _ = open_log(MemoryDisk(), "t-0", config, environment, now_ms=0)
    return log


def write(log, history):
    for epoch, key, value in history:
        record = SimpleRecord(1000 + log.end_offset, key, value)
        log.append_as_leader(build_batch([record]), leader_epoch=epoch, now_ms=0)
    State(log, 0).want_flush()


def clean(log, high_watermark):
    plan = plan_compaction(log, None, high_watermark=high_watermark, now_ms=0)
    for job in compact(log, plan, map_bytes=1 << 20, now_ms=0):
        job()


def follow(leader, follower, high_watermark, own_high_watermark):
    """Fetches until the follower has the leader's end, as `replica.leader` answers; how it was cut."""
    state = State(follower, own_high_watermark)
    machine = Follower(state, 1, EPOCH)
    for _ in range(200):
        position = machine.fetch_position()
        offset, epoch = position.fetch_offset, position.last_fetched_epoch
        diverging, records, code = None, b"", 0
        known, end = leader.epochs.end_offset_for(epoch, leader.end_offset) if epoch >= 0 else (-1, -1)
        if offset < leader.start_offset:
            code = 1
        elif epoch >= 0 and (0 <= known < epoch or (known >= 0 and end < offset)):
            diverging = known, end
        elif (epoch >= 0 and known < 0) or offset > leader.end_offset:
            diverging = leader.epochs.latest_epoch, leader.end_offset
        elif offset == leader.end_offset:
            return state
        else:
            found = leader.read(offset, max_bytes=400, end=leader.end_offset, minimum_one=True)
            records = b"".join(map(bytes, found.buffers))
        machine.responded(
            0.0,
            FetchResponded(
                leader_id=1,
                leader_epoch=EPOCH,
                fetch_offset=offset,
                last_fetched_epoch=epoch,
                error_code=code,
                high_watermark=high_watermark,
                log_start_offset=leader.start_offset,
                diverging=diverging,
                records=memoryview(records),
                wall_ms=0,
            ),
        )
        state.want_flush()
    raise AssertionError("the follower never arrives")


def records(log):
    found, offset = {}, log.start_offset
    while offset < log.end_offset:
        for buffer in log.read(offset, max_bytes=400, end=log.end_offset, minimum_one=True).buffers:
            view = memoryview(buffer)
            for position, header in iter_batches(view):
                offset = header.next_offset
                for record in iter_records(view, position, header):
                    found[record.offset] = header.partition_leader_epoch, bytes(record.key), bytes(record.value)
    return found


def fold(log):
    return {key: value for _, key, value in records(log).values()}


def entries(tag, epochs, keys):
    values = st.tuples(st.sampled_from(epochs), st.sampled_from(keys))
    return st.lists(values, max_size=25).map(
        lambda rows: [(e, k, f"{tag}{n}".encode() + bytes(40)) for n, (e, k) in enumerate(sorted(rows))]
    )


@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    shared=entries("s", [1, 2], [b"a", b"b"]),
    committed=entries("c", [5, 6, 8], [b"a", b"b", b"c"]),
    tail=entries("t", [9], [b"a", b"d"]),
    stray=entries("x", [3, 4, 7], [b"p", b"q", b"a"]),
    sizes=st.lists(st.sampled_from([150, 300, 900]), min_size=3, max_size=3),
    compact_stray=st.booleans(),
)
def test_a_diverged_replica_finds_its_way(shared, committed, tail, stray, sizes, compact_stray):
    leader, lost, copy = (new_log(size) for size in sizes)
    write(leader, shared)
    write(lost, shared)
    first_mark = leader.end_offset
    write(leader, committed)
    mark = leader.end_offset
    write(leader, tail)
    write(lost, stray)
    truth = records(leader)
    wanted = fold(leader)
    clean(leader, mark)
    if compact_stray:
        clean(lost, first_mark)
    # A replica that was copied from the compacted leader, and compacts once more, leads now.
    assert follow(leader, copy, mark, 0).cuts == []
    clean(copy, mark)
    assert fold(copy) == wanted
    state = follow(copy, lost, mark, first_mark)
    assert lost.end_offset == leader.end_offset
    assert fold(lost) == wanted
    assert all(truth[offset] == record for offset, record in records(lost).items()), "a record that was never committed"
    assert state.high_watermark == mark
    # The old leader comes back as a follower: it agrees with its copy and is not cut.
    assert follow(copy, leader, mark, mark).cuts == []
    assert follow(lost, copy, mark, mark).cuts == []
