"""A follower whose leader's log begins inside a batch, on the log that brokers have: batches of several records."""

import errno
from collections.abc import Callable
from functools import partial

import pytest

from kafkalite_core.model.errors import StorageError
from kafkalite_core.protocol.errors import ErrorCode
from kafkalite_core.protocol.record_batch import SimpleRecord, build_batch, iter_batches
from kafkalite_core.replica import events
from kafkalite_core.storage.log import Log, LogEnvironment
from kafkalite_core.storage.log_config import LogConfig
from kafkalite_core.storage.memory_disk import MemoryDisk, MemoryFile
from kafkalite_core.storage.recovery import open_log
from kafkalite_core.storage.tail import TailBudget
from tests.scripted.cluster import Cluster


def flush(log: Log) -> None:
    ticket = log.begin_flush()
    if ticket is not None:
        ticket.run()
        log.complete_flush(ticket)


def batch(offset: int, *values: bytes) -> memoryview:
    """A batch of the leader's, of epoch 9."""
    records = [SimpleRecord(1000, None, value) for value in values]
    return memoryview(build_batch(records, base_offset=offset, leader_epoch=9))


class Following:
    """Broker 2 follows broker 1 in epoch 9; its flushed log has offsets 0 and 1, of epoch 1."""

    def __init__(self) -> None:
        self.disk = MemoryDisk()
        self.log, _ = open_log(self.disk, "t-0", LogConfig(), LogEnvironment(TailBudget(0)), now_ms=0)
        for value in (b"a", b"b"):
            self.log.append_as_leader(build_batch([SimpleRecord(1000, None, value)]), leader_epoch=1, now_ms=0)
        flush(self.log)
        self.cluster = Cluster(2)
        for _ in range(8):
            self.cluster.elect(1)
        self.replica = self.cluster.start(2, self.log, 2).replica
        self.cluster.metadata(2)

    def respond(self, **changed: object) -> None:
        """An answer to what the follower asks now; the leader's log begins at 2, inside its batch of 1 to 3."""
        flush(self.log)
        position = self.replica.fetch_position()
        assert position is not None
        values = {
            "leader_id": 1, "leader_epoch": 9, "fetch_offset": position.fetch_offset,
            "last_fetched_epoch": position.last_fetched_epoch, "error_code": 0, "high_watermark": 4,
            "log_start_offset": 2, "diverging": None, "records": memoryview(b""), "wall_ms": 0,
        }  # fmt: skip
        self.cluster.step(2, events.FetchResponded(**(values | changed)))

    def before_shrink(self, told: Callable[[str, int], None] | None) -> None:
        """Who is told before the log is cut."""
        self.log.environment = self.log.environment._replace(before_shrink=told)

    @property
    def bounds(self) -> tuple[int, int]:
        return self.log.start_offset, self.log.end_offset

    def batches(self) -> list[tuple[int, int, int]]:
        """(first offset, next offset, epoch) of everything in the log's file."""
        [segment] = self.log.segments
        found = memoryview(segment.file.pread(1 << 20, 0))
        return [(h.base_offset, h.next_offset, h.partition_leader_epoch) for _, h in iter_batches(found)]


@pytest.fixture
def following() -> Following:
    return Following()


LEADERS = batch(1, b"x", b"y", b"z")


def test_a_log_that_the_leader_has_deleted_whole_begins_anew_inside_its_first_batch(following: Following) -> None:
    following.respond(records=LEADERS, high_watermark=0)
    assert following.bounds == (1, 4), "the start does not pass the high watermark"
    assert following.batches() == [(1, 4, 9)]
    following.respond(high_watermark=4)
    assert following.bounds == (2, 4)
    assert following.replica.high_watermark == 4
    assert [epoch for epoch, _ in following.log.epochs.entries] == [9], "nothing is left of the older one"


def test_a_disk_that_is_full_when_it_begins_anew_leaves_an_empty_log_that_finds_its_way(following: Following) -> None:
    def full(operation: str, _path: str) -> None:
        if operation == "append":
            raise OSError(errno.ENOSPC, "No space left on device")

    following.disk.hook = full
    following.respond(records=LEADERS)
    assert following.bounds == (1, 1)
    assert following.replica.high_watermark == 1
    following.disk.hook = lambda _operation, _path: None
    following.respond(error_code=int(ErrorCode.OFFSET_OUT_OF_RANGE))
    assert following.bounds == (2, 2)
    following.respond(records=LEADERS)
    assert following.bounds == (2, 4)
    assert following.batches() == [(1, 4, 9)]


def no_room(_directory: str, _offset: int) -> None:
    raise StorageError("no space left on device")


def test_a_disk_that_is_full_when_the_log_must_be_cut_leaves_it_as_it_was(following: Following) -> None:
    """The checkpoints have to be lowered before, which takes room; the leader is asked again later."""
    lowered: list[int] = []
    following.before_shrink(no_room)
    before = (following.bounds, following.batches(), following.log.epochs.entries)
    following.respond(diverging=(1, 1))
    assert (following.bounds, following.batches(), following.log.epochs.entries) == before
    position = following.replica.fetch_position()
    assert position is not None
    assert position.not_before_ms > 0, "not in a tight loop"
    following.before_shrink(lambda _directory, offset: lowered.append(offset))
    following.respond(diverging=(1, 1))
    assert following.bounds == (0, 1)
    assert lowered == [1]


def test_a_disk_that_is_full_when_the_log_must_begin_anew_leaves_it_as_it_was(following: Following) -> None:
    following.before_shrink(no_room)
    following.respond(error_code=int(ErrorCode.OFFSET_OUT_OF_RANGE), log_start_offset=7)
    assert following.bounds == (0, 2)
    following.before_shrink(None)
    following.respond(error_code=int(ErrorCode.OFFSET_OUT_OF_RANGE), log_start_offset=7)
    assert following.bounds == (7, 7)


@pytest.mark.parametrize("counted_on", [True, False])
def test_what_lies_below_the_start_of_the_leaders_log_may_differ_from_what_the_leader_had(
    following: Following, counted_on: bool
) -> None:
    """A crash takes a log start back to the last checkpoint, and a batch that was never committed would be shown.

    Whoever may be elected has all that was committed, and a leader deletes nothing else.
    """
    cluster = following.cluster
    if not counted_on:
        cluster.set_min_isr(1)
        cluster.elect(1, isr=[1])
        cluster.metadata(2)
    epoch = cluster.store.partition.leader_epoch
    following.respond(leader_epoch=epoch, diverging=(1, 1), log_start_offset=1)
    assert following.bounds == (0 if counted_on else 1, 1)
    following.respond(leader_epoch=epoch, log_start_offset=1, records=LEADERS)
    assert following.bounds == (1, 4)
    flush(following.log)
    restarted, _ = open_log(following.disk, "t-0", LogConfig(), LogEnvironment(TailBudget(0)), now_ms=0)
    assert (restarted.start_offset, restarted.end_offset) == (0 if counted_on else 1, 4)
    assert [epoch for epoch, _ in restarted.epochs.entries] == ([1, 9] if counted_on else [9])


def test_a_log_that_the_leader_has_from_its_beginning_on_is_cut(following: Following) -> None:
    following.respond(diverging=(1, 0), log_start_offset=0)
    assert following.bounds == (0, 0)


@pytest.mark.parametrize("fails", ["append", "open"])
@pytest.mark.parametrize("damage", ["missing", "damaged"])
@pytest.mark.parametrize("in_memory", [True, False])
@pytest.mark.parametrize("target", range(1, 12))
def test_a_cut_on_a_full_disk_is_whole_though_indexes_have_to_be_built_anew(
    following: Following, target: int, in_memory: bool, damage: str, fails: str
) -> None:
    """What a producer did before the cut is read from earlier segments; the disk had no room for snapshots of it."""
    log, disk = following.log, following.disk
    log.config = LogConfig(segment_bytes=200)
    for sequence in range(10):
        data = build_batch(
            [SimpleRecord(1000, None, b"c" * 20)], producer_id=7, producer_epoch=0, base_sequence=sequence
        )
        log.append_as_leader(data, leader_epoch=1, now_ms=0)
    flush(log)
    following.respond(high_watermark=12, log_start_offset=0)
    assert following.replica.high_watermark == 12
    assert len(log.segments) > 4
    for segment in log.segments:
        if not (in_memory and segment.base_offset <= target < segment.end_offset):
            segment.unload_indexes()
    for name in disk.list("t-0"):
        if name.endswith((".index", ".timeindex", ".snapshot")):
            if damage == "missing" or name.endswith(".snapshot"):
                disk.remove(f"t-0/{name}")
            else:
                disk.content(f"t-0/{name}").extend(b"rubbish")

    def full(operation: str, path: str) -> None:
        if operation == fails and path.endswith("index"):
            raise OSError(errno.ENOSPC, "No space left on device")

    def open_file(path: str, *, create: bool = False) -> MemoryFile:
        if create and not disk.exists(path):
            full("open", path)
        return MemoryDisk.open(disk, path, create=create)

    disk.open = open_file  # type: ignore[method-assign]
    disk.hook = lambda operation, path: None if operation == "open" else full(operation, path)
    following.respond(diverging=(1, target), log_start_offset=0)
    assert following.bounds == (0, target)
    assert following.replica.high_watermark == target
    producer = log.producers.entry(7)
    assert (-1 if producer is None else producer.batches[-1].last_sequence) == max(target - 3, -1)
    disk.hook, disk.open = (lambda _operation, _path: None), partial(MemoryDisk.open, disk)  # type: ignore[method-assign]
    following.respond(records=batch(target, b"x", b"y"), high_watermark=target + 2, log_start_offset=0)
    assert following.bounds == (0, target + 2)
    assert log.offset_for_timestamp(1000, end=target + 2) == (1000, 0, 1)
    log.close(high_watermark=following.replica.high_watermark)
    again, report = open_log(disk, "t-0", log.config, LogEnvironment(TailBudget(0)), now_ms=0, clean=True)
    assert (again.end_offset, report.cut) == (target + 2, False)
    for segment in again.segments:
        segment.load_indexes()
        assert disk.exists(segment.index.path)
