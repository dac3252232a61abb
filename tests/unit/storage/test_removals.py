"""Removing large files: not on the loop's thread, under no name that is in use, and whatever the disk answers."""

import errno
import os
import threading

import pytest

from kafkalite_broker.log.disk import LocalDisk
from kafkalite_broker.log.removals import Removals, on_thread
from kafkalite_broker.log.strays import UNLISTED_MS
from kafkalite_core.model.config import resolve_topic_config
from tests.unit.storage.stray_tools import CONFIG, NEVER, OTHER, REF, rules

SMALL_SEGMENTS = resolve_topic_config(
    {"segment.bytes": "1024", "file.delete.delay.ms": "0", "retention.bytes": "0"}
)  # fmt: skip


class Later:
    """Has the work done when a test says so."""

    def __init__(self):
        self.works = []

    def __call__(self, work):
        self.works.append(work)

    def run(self):
        while self.works:
            self.works.pop(0)()


@pytest.fixture
def later():
    return Later()


def names(one, directory, pattern="*"):
    return sorted(path.name for path in (one.disk.root / directory).glob(pattern))


def with_retired_segments(one, tools, clock):
    log, _ = one.obtain(REF, 0, SMALL_SEGMENTS)
    tools.fill(log, 30, first_timestamp=clock.now_ms)
    tools.flush(log)
    retired = one.retention_pass({log: 25})["orders-0"]
    assert len(retired) >= 2
    return log, retired


def test_retention_leaves_its_segments_to_be_removed_under_other_names(manager, tools, clock, later):
    one = manager(start_removals=later)
    one.open()
    log, retired = with_retired_segments(one, tools, clock)
    assert len(later.works) == 1, "one after the other"
    assert names(one, "orders-0", "*.deleted") == [f"{name}.deleted" for name in retired]
    assert len(names(one, "orders-0", "*.log")) == len(log.segments)
    assert one.removals.pending_bytes > 1024
    later.run()
    assert names(one, "orders-0", "*.deleted") == []
    assert one.removals.pending_bytes == 0


def test_what_was_left_to_be_removed_is_no_part_of_the_log_after_a_kill(manager, tools, clock, later):
    one = manager(start_removals=later)
    one.open()
    log, _ = with_retired_segments(one, tools, clock)
    one.abandon()
    two = manager()
    assert not two.open().findings.cut_below_flushed
    assert two.obtain(REF, 0, CONFIG)[0].start_offset == log.start_offset
    assert names(two, "orders-0", "*.deleted") == []


def test_a_log_of_the_same_name_keeps_its_files_while_another_is_removed(manager, tools, clock, later, removing):
    one = manager(start_removals=later)
    one.open()
    one.set_aside(with_retired_segments(one, tools, clock)[0], delete_seen=False)
    clock.now_ms += 1
    assert len(removing(one)) == 1
    new, _ = one.obtain(OTHER, 0, SMALL_SEGMENTS)
    tools.fill(new, 5)
    tools.flush(new)
    before = names(one, "orders-0")
    assert list(one.disk.root.glob("*.gone/*.log"))
    later.run()
    assert names(one, "orders-0") == before
    assert list(one.disk.root.glob("*.gone/*.log")) == []
    assert tools.offsets(new) == list(range(5))


def test_a_thread_of_its_own_removes_what_is_large(manager, tools, clock, removing, monkeypatch):
    threads, remove = {}, LocalDisk.remove
    monkeypatch.setattr(
        LocalDisk, "remove", lambda disk, path: threads.setdefault(path, threading.get_ident()) and remove(disk, path)
    )
    one = manager(start_removals=on_thread)
    one.open()
    one.set_aside(with_retired_segments(one, tools, clock)[0], delete_seen=False)
    clock.now_ms += 1
    removing(one)
    with one.removals._changed:
        assert one.removals._changed.wait_for(lambda: not one.removals._working, 10)
    large = {path: thread for path, thread in threads.items() if path.endswith((".log", ".log.deleted"))}
    assert any(".gone/" in path for path in large)
    assert any(path.endswith(".deleted") for path in large)
    assert threading.get_ident() not in large.values()


def test_all_strays_of_a_topic_are_renamed_with_one_sync(manager, tools, clock, later, removing, monkeypatch):
    one = manager(start_removals=later)
    one.open()
    for number in range(8):
        log, _ = one.obtain(REF, number, CONFIG)
        tools.fill(log, 1)
        tools.flush(log)
        one.set_aside(log, delete_seen=False)
    clock.now_ms += 1
    synced, sync = [], LocalDisk.sync_directory
    monkeypatch.setattr(LocalDisk, "sync_directory", lambda disk, path: synced.append(path) or sync(disk, path))
    assert len(removing(one)) == 8
    assert synced == [""]


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC, errno.EROFS])
def test_what_cannot_be_removed_is_tried_again(opened, tools, clock, removing, failing, code):
    one = opened()
    failing("remove", r".*(\.log\.deleted|\.gone/.*\.log)", code)
    log, retired = with_retired_segments(one, tools, clock)
    assert len(names(one, "orders-0", "*.deleted")) == len(retired)
    one.remove_strays(rules())
    one.set_aside(log, delete_seen=False)
    one.checkpoint({})
    clock.now_ms += 1
    assert len(removing(one)) == 1
    assert removing(one) == []
    assert list(one.disk.root.glob("*.gone/*.log"))
    failing()
    assert removing(one) == []
    assert not list(one.disk.root.glob("orders-0*"))
    assert one.removals.pending_bytes == 0


def test_what_is_gone_already_is_no_error(tmp_path):
    disk = LocalDisk(tmp_path)
    for path in ("t.gone", "t.gone/deep"):
        disk.makedirs(path)
    for path in ("t.gone/a", "t.gone/deep/b", "t.gone/keep", "other"):
        disk.open(path, create=True).close()
    real = disk.list
    disk.list = lambda path: ["absent", *real(path)]
    removals = Removals(disk)
    removals.remove("absent", 5)
    removals.remove("t.gone", 7, keep="keep")
    assert real("t.gone") == ["keep"]
    removals.remove("t.gone")
    removals.remove("other")
    assert real("") == []
    removals.again()
    assert removals.pending_bytes == 0


def test_a_broker_that_ends_waits_for_one_file_and_not_for_long(tmp_path):
    disk = LocalDisk(tmp_path)
    began, go_on, removed = threading.Event(), threading.Event(), []

    def remove(path):
        began.set()
        assert go_on.wait(10)
        removed.append(path)

    disk.makedirs("t.gone")
    for name in ("t.gone/a", "t.gone/b", "c"):
        disk.open(name, create=True).close()
    disk.remove = remove
    removals = Removals(disk, on_thread)
    removals.remove("t.gone")
    removals.remove("c")
    assert began.wait(10)
    assert not removals.close(0.01)
    go_on.set()
    assert removals.close(10)
    removals.remove("c")
    removals.again()
    assert removed == ["t.gone/a"]


def test_a_full_disk_takes_no_stray_for_the_room_that_another_is_about_to_give(
    manager, tools, clock, later, monkeypatch
):
    one = manager(start_removals=later)
    one.open()
    for number in range(2):
        log, _ = one.obtain(REF, number, SMALL_SEGMENTS)
        tools.fill(log, 80)
        tools.flush(log)
        one.set_aside(log, delete_seen=False)
        clock.now_ms += 1
    later.run()
    monkeypatch.setattr(one.disk, "free_bytes", lambda: 4096)
    one.make_room({})
    one.remove_strays(rules(**NEVER))
    clock.mono_ms += UNLISTED_MS
    assert len(one.remove_strays(rules(**NEVER))) == 1
    one.remove_strays(rules(**NEVER))
    assert not one.strays_leaving, "the room comes when the thread gets to it"
    assert len(one.listed_strays()) == 1


def test_a_file_that_goes_while_a_directory_is_measured_has_no_size(tmp_path, monkeypatch):
    disk = LocalDisk(tmp_path)
    disk.makedirs("t")
    for name in ("t/a", "t/b"):
        disk.open(name, create=True).append(b"12345")
    scandir = os.scandir

    class Vanishing:
        def __init__(self, path):
            self.entries = scandir(path)

        def __enter__(self):
            return self

        def __exit__(self, *_):
            self.entries.close()

        def __iter__(self):
            for entry in self.entries:
                if entry.name == "a":
                    disk.remove("t/a")
                yield entry

    monkeypatch.setattr("os.scandir", Vanishing)
    assert disk.tree_bytes("t") == 5
