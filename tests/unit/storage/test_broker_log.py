"""The real disk and the log manager."""

import os
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from kafkalite_broker.data_plane import DataPlane
from kafkalite_broker.log import metadata_files, strays
from kafkalite_broker.log.setting_aside import SettingAside
from kafkalite_core.model.cluster import Registration
from kafkalite_core.model.config import resolve_topic_config
from kafkalite_core.model.errors import StorageError
from kafkalite_core.model.partition import Seen, TopicRef
from kafkalite_core.storage.errors import ForeignDirectory
from kafkalite_core.storage.identity import restart_verdict
from kafkalite_core.storage.log import Log

REF = TopicRef("ns", "orders", "uid-1", "5f0c1c2e-0000-4000-8000-000000000001", "orders")
CONFIG = resolve_topic_config({"segment.bytes": "1024", "file.delete.delay.ms": "0"})


def test_life_of_a_data_directory(manager, tools, clock):
    first = manager()
    found = first.open().findings
    assert (found.fresh, found.clean_epoch, found.checkpoint_lost) == (True, None, False)
    log, mark = first.obtain(REF, 0, CONFIG)
    assert mark == 0
    tools.fill(log, 20)
    tools.flush(log)
    first.note_epochs(log, Seen(4, 6), 3)
    first.checkpoint({log: 15})
    first.close({log: 17}, broker_epoch=3)

    second = manager()
    recovered = second.open()
    taken = recovered.findings.taken
    assert taken.epoch == 3
    assert recovered.findings == found._replace(fresh=False, clean_epoch=3, taken=taken)
    assert [report.segments_scanned for report in recovered.reports] == [0]
    (unclaimed,) = second.unclaimed()
    assert unclaimed[1].leader_epoch == 4
    log, mark = second.obtain(REF, 0, CONFIG)
    assert (mark, log.end_offset) == (17, 20)
    assert second.unclaimed() == []
    tools.fill(log, 3)
    second.checkpoint({log: 18})
    second.abandon()

    third = manager()
    progress = []
    recovered = third.open(on_progress=progress.append)
    assert (recovered.findings.clean_epoch, recovered.findings.cut_below_flushed) == (None, False)
    assert (progress[0].logs, progress[-1]) == (1, (0, 0))
    log, mark = third.obtain(REF, 0, CONFIG)
    assert (mark, log.end_offset, log.flushed_end) == (18, 23, 23)


def test_an_end_in_order_without_a_known_epoch_leaves_no_marker(manager, tools):  # S11
    first = manager()
    first.open()
    log, _ = first.obtain(REF, 0, CONFIG)
    tools.fill(log, 20)
    tools.flush(log)
    first.close({log: 20}, broker_epoch=None)
    second = manager()
    found = second.open()
    assert (found.findings.clean_epoch, found.findings.taken, found.findings.trusted) == (None, None, True)
    assert [report.end_offset for report in found.reports] == [20]


def test_a_lost_log_directory_and_a_lost_checkpoint_are_noticed(manager, tools, tmp_path):
    first = manager()
    first.open()
    log, _ = first.obtain(REF, 0, CONFIG)
    tools.fill(log, 5)
    tools.flush(log)
    first.checkpoint({log: 5})
    first.abandon()
    (tmp_path / "data/orders-0").rename(tmp_path / "elsewhere")
    second = manager()
    assert second.open().findings.checkpoint_lost
    second.abandon()
    assert not manager().open().findings.checkpoint_lost


def test_a_lost_recovery_point_checkpoint_is_noticed(manager, tmp_path):
    first = manager()
    first.open()
    first.abandon()
    (tmp_path / "data/recovery-point-offset-checkpoint").unlink()
    assert manager().open().findings.checkpoint_lost


def test_a_cut_below_the_flushed_end_is_noticed(manager, tools, tmp_path):
    first = manager()
    first.open()
    log, _ = first.obtain(REF, 0, CONFIG)
    tools.fill(log, 3)
    tools.flush(log)
    first.checkpoint({log: 3})
    first.abandon()
    path = tmp_path / "data/orders-0" / ("0" * 20 + ".log")
    os.truncate(path, path.stat().st_size - 1)
    recovered = manager().open()
    assert recovered.findings.cut_below_flushed
    assert recovered.reports[0].end_offset == 2


@pytest.mark.parametrize("loss", ["cut", "checkpoint", "none"])
def test_a_loss_is_remembered_until_it_is_registered_whatever_dies_meanwhile(manager, tools, tmp_path, loss):
    """The second start overwrites what shows the loss; if it dies before it registers, the third must not be trusted."""
    first = manager()
    known = first.open().findings.directory_id
    log, _ = first.obtain(REF, 0, CONFIG)
    tools.fill(log, 3)
    tools.flush(log)
    first.checkpoint({log: 3})
    first.abandon()
    if loss == "cut":
        path = tmp_path / "data/orders-0" / ("0" * 20 + ".log")
        os.truncate(path, path.stat().st_size - 1)
    elif loss == "checkpoint":
        (tmp_path / "data/recovery-point-offset-checkpoint").unlink()
    second = manager()
    findings = second.open().findings
    assert findings.trusted == (loss == "none")
    second.abandon()
    third = manager()
    again = third.open().findings
    assert again.trusted
    assert again.directory_id == findings.directory_id == third.identity.directory_id
    previous = Registration(
        broker_epoch=7, incarnation="first", directory_id=known, trusted_since=2, clean_since=2, host="h", port=1
    )
    assert restart_verdict(previous, again, 8).trusted_since == (2 if loss == "none" else 8)


def test_a_loss_is_durable_before_it_is_overwritten(manager, tools, tmp_path, monkeypatch):
    first = manager()
    known = first.open().findings.directory_id
    first.abandon()
    (tmp_path / "data/recovery-point-offset-checkpoint").unlink()
    second = manager()

    def killed(*_arguments, **_named):
        raise KeyboardInterrupt

    monkeypatch.setattr(second._checkpoints, "write", killed)
    with pytest.raises(KeyboardInterrupt):
        second.open()
    second.abandon()
    assert manager().open().findings.directory_id != known


def test_a_truncation_before_a_kill_is_no_loss(manager, tools):
    first = manager()
    first.open()
    log, _ = first.obtain(REF, 0, CONFIG)
    tools.fill(log, 9)
    tools.flush(log)
    job = first.checkpoint_job({log: 9})
    first.checkpoint({log: 9})
    log.truncate_to(4)
    job()  # values from before the truncation are written after it
    first.abandon()
    assert not manager().open().findings.cut_below_flushed


def test_a_foreign_directory_is_refused(manager):
    first = manager()
    first.open()
    first.abandon()
    with pytest.raises(ForeignDirectory):
        manager(broker_id=1).open()


def test_another_topic_id_makes_a_stray_and_the_same_one_adopts_it(manager, tools, clock, removing):
    one = manager()
    one.open()
    log, _ = one.obtain(REF, 0, CONFIG)
    tools.fill(log, 5)
    tools.flush(log)
    one.checkpoint({log: 5})
    other = TopicRef("ns", "orders", "uid-2", REF.topic_id[:-1] + "2", "orders")
    fresh, mark = one.obtain(other, 0, CONFIG)
    assert (fresh.end_offset, mark) == (0, 0)
    (stray,) = one.strays()
    assert (stray.metadata.topic_id, stray.end_offset, stray.metadata.delete_seen) == (REF.topic_id, 5, False)
    one.set_aside(fresh, delete_seen=True)
    again, mark = one.obtain(REF, 0, CONFIG)
    assert (again.end_offset, again.flushed_end) == (5, 5)
    assert [stray.metadata.delete_seen for stray in one.strays()] == [True]
    assert removing(one, retention_ms=10**9, deleted_retention_ms=100) == []
    clock.now_ms += 101
    ((name, reason),) = removing(one, retention_ms=10**9, deleted_retention_ms=100)
    assert "delete seen" in reason
    assert not (one.disk.root / name).exists()
    one.abandon()
    two = manager()
    assert not two.open().findings.checkpoint_lost
    assert two.obtain(REF, 0, CONFIG)[0].end_offset == 5


def test_a_set_aside_log_is_not_missed_after_a_kill(manager, tools):
    one = manager()
    one.open()
    log, _ = one.obtain(REF, 0, CONFIG)
    tools.fill(log, 5)
    tools.flush(log)
    one.checkpoint({log: 5})
    tools.fill(log, 3)
    one.set_aside(log, delete_seen=True)
    assert [stray.end_offset for stray in one.strays()] == [5], "what no disk has is not offered for adoption (S8)"
    one.abandon()
    two = manager()
    assert not two.open().findings.checkpoint_lost
    assert [stray.metadata.key for stray in two.strays()] == [("orders", 0)]


@pytest.fixture
def no_room(monkeypatch):
    """Nothing can be written that says that a log is a stray, until `undo`."""

    def write(_disk, directory, _metadata, **_named):
        raise StorageError(f"no space for {directory}")

    for writer in (metadata_files, strays):
        monkeypatch.setattr(writer, "write_metadata", write)
    return monkeypatch


def test_a_topic_made_again_on_a_full_disk_never_takes_over_the_data_of_its_predecessor(manager, tools, no_room):
    one = manager()
    one.open()
    log, _ = one.obtain(REF, 0, CONFIG)
    tools.fill(log, 5)
    tools.flush(log)
    other = TopicRef("ns", "orders", "uid-2", REF.topic_id[:-1] + "2", "orders")
    for attempt in (lambda: one.set_aside(log, delete_seen=True), *[lambda: one.obtain(other, 0, CONFIG)] * 2):
        with pytest.raises(StorageError):
            attempt()
        assert [known for known, _ in one.unclaimed()] == [log]
        assert log.end_offset == 5
    no_room.undo()
    fresh, _ = one.obtain(other, 0, CONFIG)
    assert fresh.end_offset == 0
    (stray,) = one.strays()
    assert (stray.metadata.topic_id, stray.end_offset, stray.metadata.delete_seen) == (REF.topic_id, 5, True)
    assert one.unclaimed() == []


def test_a_log_that_could_not_be_set_aside_is_the_same_one_when_its_topic_is_back(manager, tools, no_room):
    one = manager()
    one.open()
    log, _ = one.obtain(REF, 0, CONFIG)
    tools.fill(log, 5)
    with pytest.raises(StorageError):
        one.set_aside(log, delete_seen=True)
    again, _ = one.obtain(TopicRef("ns", "orders", "uid-2", REF.topic_id, "orders"), 0, CONFIG)
    assert again is log
    assert one.unclaimed() == []
    assert (one.metadata(log).uid, one.metadata(log).delete_seen) == ("uid-2", False)


def test_a_directory_in_the_way_of_a_new_log_is_set_aside(manager, tools):
    one = manager()
    one.open()
    log, _ = one.obtain(REF, 0, CONFIG)
    tools.fill(log, 5)
    tools.flush(log)
    two = manager()
    two.identity = one.identity
    other = TopicRef("ns", "orders", "uid-2", REF.topic_id[:-1] + "2", "orders")
    fresh, _ = two.obtain(other, 0, CONFIG)  # it never opened the directory, so it knows of no log there
    assert fresh.end_offset == 0
    assert [stray.metadata.topic_id for stray in two.strays()] == [REF.topic_id]


async def test_what_nobody_claims_is_set_aside_when_there_is_room(manager, tools, no_room):
    one = manager()
    one.open()
    log, _ = one.obtain(REF, 0, CONFIG)
    tools.fill(log, 5)
    with pytest.raises(StorageError):
        one.set_aside(log, delete_seen=False, moved_away=True)
    wanted, fatal = [], []
    with ThreadPoolExecutor(1) as pool:
        aside = SettingAside(
            one, pool, settle=wanted.append, on_disk_full=lambda: wanted.append("room"), on_fatal=fatal.append
        )
        cache = SimpleNamespace(unreadable=set())
        plane = SimpleNamespace(
            logs=one,
            partitions=SimpleNamespace(moved_away=lambda *_: False, aside=aside),
            _link=SimpleNamespace(cache=cache),
        )
        DataPlane._set_unclaimed_aside(plane)
        assert await aside.finished()
        assert (wanted, one.strays()) == (["room"], [])
        no_room.undo()
        DataPlane._set_unclaimed_aside(plane)
        assert await aside.finished()
    assert [stray.metadata.moved_away for stray in one.strays()] == [True]
    assert one.unclaimed() == []
    assert (wanted[1:], fatal) == ([("orders", 0)], [])


async def test_a_log_whose_topic_cannot_be_read_is_not_set_aside(manager, tools):
    """A broker of an earlier version that starts beside a topic of a later one."""
    one = manager()
    one.open()
    log, _ = one.obtain(REF, 0, CONFIG)
    tools.fill(log, 5)
    tools.flush(log)
    one.abandon()
    two = manager()
    two.open()
    with ThreadPoolExecutor(1) as pool:
        aside = SettingAside(
            two, pool, settle=lambda _key: None, on_disk_full=lambda: None, on_fatal=lambda _error: None
        )
        cache = SimpleNamespace(unreadable={REF.uid})
        plane = SimpleNamespace(
            logs=two,
            partitions=SimpleNamespace(moved_away=lambda *_: False, aside=aside),
            _link=SimpleNamespace(cache=cache),
        )
        DataPlane._set_unclaimed_aside(plane)
        assert await aside.finished()
        assert two.strays() == []
        assert two.obtain(REF, 0, CONFIG)[0].end_offset == 5, "it goes on where it was, once it can be read"
        two.unclaim(two.obtain(REF, 0, CONFIG)[0])
        cache.unreadable.clear()
        DataPlane._set_unclaimed_aside(plane)
        assert await aside.finished()
    assert [stray.metadata.uid for stray in two.strays()] == [REF.uid], "the topic is gone"


def test_a_log_of_the_same_name_does_not_inherit_the_flushed_end(manager, tools):
    one = manager()
    one.open()
    log, _ = one.obtain(REF, 0, CONFIG)
    tools.fill(log, 5)
    tools.flush(log)
    one.checkpoint({log: 5})
    one.obtain(TopicRef("ns", "orders", "uid-2", REF.topic_id[:-1] + "2", "orders"), 0, CONFIG)
    one.abandon()
    found = manager().open().findings
    assert not found.cut_below_flushed
    assert not found.checkpoint_lost


@pytest.mark.parametrize("adopted", [False, True])
def test_a_log_of_the_same_name_inherits_no_high_watermark_and_no_log_start(manager, tools, adopted):
    other = TopicRef("ns", "orders", "uid-2", REF.topic_id[:-1] + "2", "orders")
    one = manager()
    one.open()
    if adopted:
        tools.fill(one.obtain(other, 0, CONFIG)[0], 4)
    log, _ = one.obtain(REF, 0, CONFIG)
    tools.fill(log, 9)
    tools.flush(log)
    log.advance_start(3)
    one.checkpoint({log: 7})
    fresh, mark = one.obtain(other, 0, CONFIG)
    assert mark == 0
    if not adopted:
        tools.fill(fresh, 4)
    tools.flush(fresh)
    one.abandon()  # killed before the next checkpoint
    two = manager()
    two.open()
    again, mark = two.obtain(other, 0, CONFIG)
    assert (again.end_offset, again.start_offset, mark) == (4, 0, 0)


def test_a_high_watermark_does_not_outlive_what_was_cut(manager, tools):
    one = manager()
    one.open()
    log, _ = one.obtain(REF, 0, CONFIG)
    tools.fill(log, 9)
    tools.flush(log)
    one.checkpoint({log: 9})
    log.truncate_to(4)  # after an unclean election
    tools.fill(log, 5)
    tools.flush(log)
    one.abandon()
    two = manager()
    two.open()
    assert two.obtain(REF, 0, CONFIG)[1] <= 4


def test_a_retention_pass_checkpoints_before_it_removes(manager, tools, clock, monkeypatch):
    told = []
    purge = Log.purge
    monkeypatch.setattr(Log, "purge", lambda log, now_ms, **known: told.append(known) or purge(log, now_ms, **known))
    one = manager()
    one.open()
    log, _ = one.obtain(
        REF, 0, resolve_topic_config({"segment.bytes": "1024", "file.delete.delay.ms": "0", "retention.bytes": "0"})
    )
    tools.fill(log, 30, first_timestamp=clock.now_ms)
    tools.flush(log)
    retired = one.retention_pass({log: 25})
    assert len(retired["orders-0"]) >= 2
    assert 0 < log.start_offset <= 25
    assert told == [{"durable_start": log.start_offset}]
    left = sorted(path.name for path in (one.disk.root / "orders-0").glob("*.log"))
    assert len(left) == len(log.segments)
    one.abandon()
    two = manager()
    assert not two.open().findings.cut_below_flushed
    assert two.obtain(REF, 0, CONFIG)[0].start_offset == log.start_offset
