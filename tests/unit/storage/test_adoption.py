"""Setting a log aside and adopting it again, on a disk that is full or a broker that dies on the way (S10, S12)."""

import errno

import pytest

from kafkalite_core.model.errors import StorageError
from kafkalite_core.storage.errors import DiskFailure
from tests.unit.storage.stray_tools import COMPACTED, CONFIG, OTHER, REF, a_log


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize(
    ("operation", "pattern"),
    [
        ("open", r"log-start-offset-checkpoint\.tmp"),
        ("rename", r"orders-0\..*\.stray"),
        ("open", r"orders-0/.*\.log"),
        ("open", r"orders-0/partition\.metadata\.tmp"),
    ],
)
def test_an_adoption_that_a_full_disk_interrupts_is_gone_on_with(opened, tools, failing, operation, pattern, restarted):
    one = opened()
    one.set_aside(a_log(one, tools, config=COMPACTED), delete_seen=False)
    failing(operation, pattern)
    for _ in range(2):
        with pytest.raises(StorageError):
            one.obtain(REF, 0, CONFIG)
    failing()
    if restarted:
        one.abandon()
        one = opened()
    log, mark = one.obtain(REF, 0, CONFIG)
    assert (log.start_offset, mark, log.end_offset) == (3, 3, 12)
    assert one.metadata(log).compacted, "else the next start would take a gap for damage"
    assert not one.metadata(log).marked
    assert (one.strays(), one.unclaimed()) == ([], [])


@pytest.mark.parametrize("claimed_by", [REF, OTHER])
def test_a_log_is_a_stray_under_its_own_name_where_there_is_no_room_for_another(opened, tools, failing, claimed_by):
    one = opened()
    log = a_log(one, tools)
    failing("rename", "orders-0")
    stray = one.set_aside(log, delete_seen=False)
    assert [known.directory for known in one.strays()] == [stray.directory] == ["orders-0"]
    if claimed_by is REF:
        log, mark = one.obtain(REF, 0, CONFIG)
        assert (log.start_offset, mark, log.end_offset) == (3, 3, 12)
        assert one.strays() == []
        return
    with pytest.raises(StorageError, match="no room to set orders-0 aside"):
        one.obtain(OTHER, 0, CONFIG)
    failing()
    assert one.obtain(OTHER, 0, CONFIG)[0].end_offset == 0
    (stray,) = one.strays()
    assert (stray.directory.endswith(".stray"), stray.metadata.topic_id) == (True, REF.topic_id)
    one.abandon()
    two = opened()
    assert two.obtain(REF, 0, CONFIG)[0].end_offset == 12


def test_a_power_loss_that_takes_the_name_of_a_stray_back_brings_no_deleted_records_back(opened, tools):
    one = opened()
    stray = one.set_aside(a_log(one, tools), delete_seen=False)
    one.checkpoint({})  # it does not name the log any more
    one.abandon()
    (one.disk.root / stray.directory).rename(one.disk.root / "orders-0")
    two = opened()
    log, mark = two.obtain(REF, 0, CONFIG)
    assert (log.start_offset, mark, log.end_offset) == (3, 3, 12)


def test_what_an_adopted_log_has_become_is_not_what_was_noted_of_the_stray(opened, tools):
    """Cut below where the stray began, and killed before a checkpoint: it must not seem to end before it begins."""
    one = opened()
    one.set_aside(a_log(one, tools), delete_seen=False)
    one.abandon()
    two = opened()
    log, _ = two.obtain(REF, 0, CONFIG)
    log.truncate_to(1)
    tools.fill(log, 1)
    tools.flush(log)
    two.abandon()
    three = opened()
    log, _ = three.obtain(REF, 0, CONFIG)
    assert (log.start_offset, log.end_offset) == (1, 2)


def test_the_start_of_an_adopted_log_is_known_before_its_directory_has_its_name(opened, tools):
    one = opened()
    one.set_aside(a_log(one, tools), delete_seen=False)
    one.checkpoint({})
    older = one.checkpoint_job({})
    one.obtain(REF, 0, CONFIG)
    older()  # taken before, written after
    one.abandon()
    two = opened()
    log, mark = two.obtain(REF, 0, CONFIG)
    assert (log.start_offset, mark, log.end_offset) == (3, 3, 12)


def test_an_adoption_waits_for_room_to_set_aside_what_is_in_its_way(opened, tools, failing):
    one = opened()
    one.set_aside(a_log(one, tools), delete_seen=False)
    tools.fill(one.obtain(OTHER, 0, CONFIG)[0], 5)
    failing("rename", "orders-0")
    for _ in range(2):
        with pytest.raises(StorageError, match="no room to set orders-0 aside"):
            one.obtain(REF, 0, CONFIG)
    failing()
    assert one.obtain(REF, 0, CONFIG)[0].end_offset == 12
    assert [stray.metadata.topic_id for stray in one.strays()] == [OTHER.topic_id]


def test_who_adopts_less_than_was_flushed_is_no_more_in_sync(opened, manager, tools):
    """The operator called the broker in sync by what is noted of the stray; a bit of it has rotted since (S2, S10)."""
    one = opened()
    log = a_log(one, tools)
    directory = one.set_aside(log, delete_seen=False).directory
    (one.disk.root / directory / f"{log.segments[-1].base_offset:020}.log").write_bytes(b"rotten")
    with pytest.raises(DiskFailure, match=r"orders-0: 12 was flushed, and \d+ is left"):
        one.obtain(REF, 0, CONFIG)
    one.abandon()
    two = manager()
    found = two.open().findings
    assert (found.cut_below_flushed, found.trusted) == (True, False)
    assert two.obtain(REF, 0, CONFIG)[0].end_offset < 12
    two.abandon()
    assert manager().open().findings.trusted


def test_a_disk_that_lost_records_of_many_strays_is_distrusted_once(opened, manager, tools):
    one = opened()
    for number in range(6):
        log, _ = one.obtain(REF, number, CONFIG)
        tools.fill(log, 4)
        tools.flush(log)
        one.checkpoint({})
        directory = one.set_aside(log, delete_seen=False).directory
        if number:
            (one.disk.root / directory / f"{0:020}.log").write_bytes(b"rotten")
    one.checkpoint({})
    assert one.obtain(REF, 0, CONFIG)[0].end_offset == 4
    with pytest.raises(DiskFailure):
        one.obtain(REF, 1, CONFIG)
    one.abandon()
    two = manager()
    assert not two.open().findings.trusted
    two.abandon()
    three = manager()
    assert three.open().findings.trusted
    assert [stray.metadata.end_offset for stray in three.strays()] == [0] * 4, "what they list is true again"
    assert [three.obtain(REF, number, CONFIG)[0].end_offset for number in range(6)] == [4, 0, 0, 0, 0, 0]
    three.abandon()
    assert manager().open().findings.trusted


def a_disk_that_lost_records_of_two_strays(opened, tools):
    """Its broker found that when it adopted the first one."""
    one = opened()
    for number in range(2):
        log, _ = one.obtain(REF, number, CONFIG)
        tools.fill(log, 4)
        tools.flush(log)
        one.checkpoint({})
        directory = one.set_aside(log, delete_seen=False).directory
        (one.disk.root / directory / f"{0:020}.log").write_bytes(b"rotten")
    one.checkpoint({})
    with pytest.raises(DiskFailure):
        one.obtain(REF, 0, CONFIG)
    one.abandon()


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_a_stray_that_cannot_be_read_keeps_no_broker_from_its_start(opened, manager, tools, failing, code):
    a_disk_that_lost_records_of_two_strays(opened, tools)
    failing("open", r"orders-1\..*\.log", code)
    two = manager()
    assert not two.open().findings.trusted
    assert [stray.metadata.end_offset for stray in two.strays()] == [4], "who adopts it finds out"


def test_what_shows_a_loss_stays_until_the_disk_is_distrusted_for_it(opened, manager, tools, monkeypatch):
    a_disk_that_lost_records_of_two_strays(opened, tools)

    def killed(*_arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr("kafkalite_broker.log.manager.settle_identity", killed)
    two = manager()
    with pytest.raises(KeyboardInterrupt):
        two.open()
    two.abandon()
    monkeypatch.undo()
    three = manager()
    assert not three.open().findings.trusted
    three.abandon()
    assert manager().open().findings.trusted


def test_a_log_that_was_only_begun_is_not_in_the_way_of_an_adoption(opened, tools, failing):
    one = opened()
    one.set_aside(a_log(one, tools), delete_seen=False)
    failing("open", r"orders-0/partition\.metadata\.tmp")
    with pytest.raises(StorageError):
        one.obtain(OTHER, 0, CONFIG)
    failing()
    assert one.obtain(REF, 0, CONFIG)[0].end_offset == 12


def test_an_adoption_that_is_under_way_is_listed(opened, tools, failing):
    one = opened()
    one.set_aside(a_log(one, tools), delete_seen=False)
    failing("open", r"orders-0/.*\.log")
    with pytest.raises(StorageError):
        one.obtain(REF, 0, CONFIG)
    assert [stray.directory for stray in one.strays()] == ["orders-0"]
    assert one.seen(REF, 0, set_aside=True) is not None


def test_a_clean_stop_says_nothing_of_a_log_that_it_did_not_close(opened, tools, failing):
    one = opened()
    log = a_log(one, tools)
    tools.fill(log, 4, epoch=5)  # neither flushed nor in the epoch checkpoint
    failing("rename", "orders-0")
    one.set_aside(log, delete_seen=False)
    one.close({}, broker_epoch=1)
    failing()
    two = opened()
    log, _ = two.obtain(REF, 0, CONFIG)
    assert log.latest_epoch == 5
    assert log.end_offset_for(1) == (1, 12)


def test_a_recovered_log_loses_its_mark_only_when_the_checkpoint_tells_where_it_begins(opened, tools, failing):
    one = opened()
    failing("rename", "orders-0")
    one.set_aside(a_log(one, tools), delete_seen=False)
    one.checkpoint({})
    one.abandon()
    failing("open", r"log-start-offset-checkpoint\.tmp")
    two = opened()
    with pytest.raises(StorageError):
        two.obtain(REF, 0, CONFIG)
    failing()
    two.obtain(REF, 0, CONFIG)
    two.abandon()
    three = opened()
    assert three.obtain(REF, 0, CONFIG)[0].start_offset == 3


def test_data_of_another_partition_of_the_topic_are_not_taken_over(opened, tools, failing):
    one = opened()
    a_log(one, tools)
    one.abandon()
    (one.disk.root / "orders-0").rename(one.disk.root / "orders-1")
    failing("rename", "orders-1")
    two = opened()
    with pytest.raises(StorageError, match="no room to set orders-1 aside"):
        two.obtain(REF, 1, CONFIG)
    failing()
    assert two.obtain(REF, 1, CONFIG)[0].end_offset == 0


def test_what_kept_the_name_of_a_log_has_been_a_stray_since_the_first_time(opened, tools, failing, clock):
    one = opened()
    tools.fill(one.obtain(OTHER, 0, CONFIG)[0], 5)
    failing("rename", "orders-0")
    since = clock.now_ms
    for _ in range(3):
        with pytest.raises(StorageError, match="no room to set orders-0 aside"):
            one.obtain(REF, 0, CONFIG)
        clock.now_ms += 1000
    assert [stray.metadata.stray_since_ms for stray in one.strays()] == [since]


def test_a_start_on_a_full_disk_that_has_no_room_for_a_checkpoint_opens_what_it_has(opened, tools, failing):
    one = opened()
    log = a_log(one, tools)
    one.checkpoint({log: 12})
    segment = log.active
    with (one.disk.root / segment.path).open("r+b") as file:
        file.truncate(segment.size - 1)
    one.abandon()
    failing("open", r".*-checkpoint\.tmp")
    two = opened()
    log, mark = two.obtain(REF, 0, CONFIG)
    assert log.end_offset == mark == 11
