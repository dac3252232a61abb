import errno
import re

import pytest

from kafkalite_broker.compression import compress, decompress
from kafkalite_broker.log.disk import LocalDisk
from kafkalite_broker.log.manager import LogManager
from kafkalite_broker.log.strays import UNLISTED_MS
from kafkalite_core.protocol.record_batch import SimpleRecord, build_batch, iter_batches
from kafkalite_core.storage.log import LogEnvironment
from kafkalite_core.storage.log_config import LogConfig
from kafkalite_core.storage.memory_disk import MemoryDisk
from kafkalite_core.storage.recovery import open_log
from kafkalite_core.storage.tail import TailBudget
from tests.unit.storage.compaction_tools import CONFIG
from tests.unit.storage.stray_tools import rules


class Rig:
    """A log over a memory disk with small segments, and shorthands."""

    name = "orders-0"

    def __init__(self):
        self.disk = MemoryDisk()
        self.config = LogConfig(segment_bytes=1000, index_interval_bytes=200, file_delete_delay_ms=0)
        self.tail_bytes = 0
        self.shrunk = []
        self.decompress = None
        self.report = None

    def open(self, **options):
        environment = LogEnvironment(
            TailBudget(self.tail_bytes), lambda *call: self.shrunk.append(call), self.decompress
        )
        options = {"now_ms": 1000, **options}
        log, self.report = open_log(self.disk, self.name, self.config, environment, **options)
        return log

    def path(self, name):
        return f"{self.name}/{name}"


def batch(*timestamps, size=20, **fields):
    return build_batch([SimpleRecord(timestamp, b"k", b"v" * size) for timestamp in timestamps or (100,)], **fields)


def fill(log, count, *, records=1, size=60, epoch=1, first_timestamp=1000, step=10):
    for n in range(count):
        start = first_timestamp + n * step
        log.append_as_leader(batch(*range(start, start + records), size=size), leader_epoch=epoch, now_ms=start)


def flush(log):
    ticket = log.begin_flush()
    if ticket is not None:
        ticket.run()
        log.complete_flush(ticket)
    return ticket


def offsets(log):
    found = []
    offset = log.start_offset
    while offset < log.end_offset:
        result = log.read(offset, max_bytes=500, end=log.end_offset, minimum_one=True)
        assert result.size
        for buffer in result.buffers:
            for _, header in iter_batches(memoryview(buffer)):
                found.append(header.base_offset)
                offset = header.next_offset
    return found


@pytest.fixture
def rig():
    return Rig()


@pytest.fixture
def keeper(rig):
    """A rig whose logs are compacted, with codecs."""
    rig.config = CONFIG
    open_log = rig.open

    def with_codecs(**options):
        log = open_log(**options)
        log.environment = log.environment._replace(decompress=decompress, compress=compress)
        return log

    rig.open = with_codecs
    return rig


@pytest.fixture
def tools():
    class Tools:
        pass

    for function in (batch, fill, flush, offsets):
        setattr(Tools, function.__name__, staticmethod(function))
    return Tools


class Clock:
    """A wall clock, and a monotonic one that goes with it unless the wall clock is set."""

    def __init__(self):
        self._ahead_ms = 1_000_000
        self.mono_ms = 0.0

    @property
    def now_ms(self):
        return int(self.mono_ms) + self._ahead_ms

    @now_ms.setter
    def now_ms(self, now_ms):
        self.mono_ms += now_ms - self.now_ms

    def is_set(self, by_ms):
        self._ahead_ms += by_ms

    def __call__(self):
        return self.now_ms


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def removing(clock):
    """Removes the strays of a manager whose time has come, once the store knows and has known for long enough."""

    def remove(one, **limits):
        one.remove_strays(rules(**limits))
        clock.mono_ms += UNLISTED_MS
        return one.remove_strays(rules(**limits))

    return remove


@pytest.fixture
def manager(tmp_path, clock):
    made = []

    def make(**options):
        options = {
            "cluster_id": "c",
            "broker_id": 0,
            "wall_ms": clock,
            "mono_ms": lambda: clock.mono_ms,
            "reserve_bytes": 4096,
            **options,
        }
        manager = LogManager(LocalDisk(tmp_path / "data"), **options)
        made.append(manager)
        return manager

    yield make
    for one in made:
        one.abandon()


@pytest.fixture
def failing(monkeypatch):
    """Lets an operation of the disk fail for the paths that match a pattern, until it is called without one."""

    def fail(operation="", pattern="", code=errno.ENOSPC):
        monkeypatch.undo()
        if not operation:
            return
        real = getattr(LocalDisk, operation)

        def replacement(self, path, *rest, **options):
            if re.fullmatch(pattern, path):
                raise OSError(code, "injected")
            return real(self, path, *rest, **options)

        monkeypatch.setattr(LocalDisk, operation, replacement)

    return fail


@pytest.fixture
def opened(manager):
    def make():
        one = manager()
        one.open()
        return one

    return make


@pytest.fixture
def open_manager(manager):
    one = manager(decompress=decompress, compress=compress)
    one.open()
    return one
