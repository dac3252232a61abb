"""Setting a log aside and adopting it again, on a disk that is full or a broker that dies on the way (S10, S12)."""

import errno
import re
import shutil

import pytest

from kafkalite_broker.log.disk import LocalDisk
from kafkalite_broker.log.strays import UNLISTED_MS
from kafkalite_core.model.config import resolve_topic_config
from kafkalite_core.model.errors import StorageError
from kafkalite_core.model.partition import TopicRef
from kafkalite_core.storage.errors import DiskFailure

REF = TopicRef("ns", "orders", "uid-1", "5f0c1c2e-0000-4000-8000-000000000001", "orders")
OTHER = TopicRef("ns", "orders", "uid-2", REF.topic_id[:-1] + "2", "orders")
CONFIG = resolve_topic_config({"segment.bytes": "1024", "file.delete.delay.ms": "0"})
COMPACTED = resolve_topic_config({"segment.bytes": "1024", "cleanup.policy": "compact"})
LIMITS = {"retention_ms": 0, "deleted_retention_ms": 0}


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


def a_log(one, tools, *, config=CONFIG):
    """Of twelve records, of which three are deleted."""
    log, _ = one.obtain(REF, 0, config)
    tools.fill(log, 12)
    tools.flush(log)
    log.advance_start(3)
    return log


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize(
    ("operation", "pattern"),
    [
        ("open", r"log-start-offset-checkpoint\.tmp"),
        ("rename", r"orders-0\..*\.stray"),
        ("open", r"orders-0/.*\.index"),
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


def gone_of(one):
    """What is left of the strays that were removed, by directory."""
    return [sorted(file.name for file in directory.iterdir()) for directory in one.disk.root.glob("*.gone")]


def test_what_is_left_of_a_stray_whose_removal_was_interrupted_is_no_stray(opened, tools, clock, removing, monkeypatch):
    one = opened()
    one.set_aside(a_log(one, tools), delete_seen=False)
    clock.now_ms += 1

    def remove_some(disk, name, _keep):
        next((disk.root / name).glob("*.log")).unlink()
        raise OSError(errno.EIO, "injected")

    monkeypatch.setattr(LocalDisk, "empty_tree", remove_some)
    with pytest.raises(DiskFailure):
        removing(one, **LIMITS)
    monkeypatch.undo()
    assert one.strays() == []
    one.abandon()
    two = opened()
    assert two.strays() == []
    assert not list(two.disk.root.glob("orders-0*"))
    assert two.obtain(REF, 0, CONFIG)[0].end_offset == 0


def test_a_removal_that_found_a_full_disk_is_gone_on_with_by_the_next(opened, tools, clock, removing, failing):
    one = opened()
    one.set_aside(a_log(one, tools), delete_seen=False)
    clock.now_ms += 1
    failing("empty_tree", r".*\.gone")
    for _ in range(2):
        with pytest.raises(StorageError):
            removing(one, **LIMITS)
    failing()
    assert removing(one, **LIMITS) == []
    assert not list(one.disk.root.glob("orders-0*"))


def test_a_disk_has_not_lost_the_log_whose_stray_it_removed_before_a_checkpoint_forgot_it(
    opened, manager, tools, clock, removing, failing
):
    one = opened()
    log = a_log(one, tools)
    one.checkpoint({})
    one.set_aside(log, delete_seen=False)
    clock.now_ms += 1
    removing(one, **LIMITS)
    assert gone_of(one) == [["partition.metadata"]]
    one.abandon()
    next(one.disk.root.glob("*.gone")).joinpath("left.log").touch()
    failing("open", r"recovery-point-offset-checkpoint\.tmp")
    for _ in range(2):
        two = manager()
        assert not two.open().findings.checkpoint_lost
        assert gone_of(two) == [["partition.metadata"]]
        two.abandon()
    failing()
    three = manager()
    assert not three.open().findings.checkpoint_lost
    assert gone_of(three) == []


def test_what_is_left_of_a_removed_stray_goes_when_a_checkpoint_leaves_it_out(opened, tools, clock, removing):
    one = opened()
    log = a_log(one, tools)
    one.checkpoint({})
    one.set_aside(log, delete_seen=False)
    clock.now_ms += 1
    removing(one, **LIMITS)
    removing(one, **LIMITS)
    assert gone_of(one) == [["partition.metadata"]]
    one.checkpoint({})
    removing(one, **LIMITS)
    assert gone_of(one) == []


def test_a_new_log_of_the_name_counts_once_its_directory_is_on_disk(opened, manager, tools, clock, removing):
    """Until then a power loss may take the directory, and only what is left of the stray tells why."""
    one = opened()
    log = a_log(one, tools)
    one.checkpoint({})
    one.set_aside(log, delete_seen=False)
    clock.now_ms += 1
    new, _ = one.obtain(OTHER, 0, CONFIG)
    removing(one, **LIMITS)
    assert len(gone_of(one)) == 1
    tools.fill(new, 1)
    tools.flush(new)
    removing(one, **LIMITS)
    assert gone_of(one) == []
    one.abandon()
    assert not manager().open().findings.checkpoint_lost


def test_two_strays_with_the_longest_names_are_removed_side_by_side(opened, tools, clock, removing, failing):
    one = opened()
    ref = TopicRef("ns", "t" * 249, "uid-1", REF.topic_id, "t" * 249)
    logs = [one.obtain(ref, number, CONFIG)[0] for number in (0, 1)]
    for log in logs:
        tools.fill(log, 2)
        tools.flush(log)
    one.checkpoint({})
    failing("rename", r"t+-[01]")  # they keep their names
    for log in logs:
        one.set_aside(log, delete_seen=False)
    failing()
    clock.now_ms += 1
    assert len(removing(one, **LIMITS)) == 2
    assert gone_of(one) == [["partition.metadata"]] * 2


def test_a_stray_is_removed_when_the_store_has_long_known_that_it_will_be(opened, tools, clock):
    """Who reads the list may take over what it names, and calls its broker in sync (S10)."""
    one = opened()
    name = one.set_aside(a_log(one, tools), delete_seen=False).directory
    clock.now_ms += 1
    assert [stray.directory for stray in one.listed_strays()] == [name]
    for told in (True, False, False):  # of what the store was told before the first call nobody asks
        assert one.remove_strays(told=told, **LIMITS) == []
        assert (one.listed_strays(), one.strays_leaving) == ([], True)
        clock.mono_ms += UNLISTED_MS
    assert one.remove_strays(told=True, **LIMITS) == []
    clock.mono_ms += UNLISTED_MS - 1
    assert one.remove_strays(told=False, **LIMITS) == []
    assert [stray.directory for stray in one.strays()] == [name]
    clock.mono_ms += 1
    assert [gone for gone, _ in one.remove_strays(told=False, **LIMITS)] == [name]
    assert (one.strays(), one.strays_leaving) == ([], False)


def test_a_stray_that_may_stay_after_all_is_listed_again(opened, tools, clock):
    one = opened()
    one.set_aside(a_log(one, tools), delete_seen=False)
    full = {"retention_ms": 10**9, "deleted_retention_ms": 10**9, "told": True}
    one.remove_strays(bytes_wanted=1, **full)
    one.remove_strays(bytes_wanted=1, **full)
    one.remove_strays(**full)
    assert len(one.listed_strays()) == 1
    clock.mono_ms += UNLISTED_MS
    assert one.remove_strays(bytes_wanted=1, **full) == [], "the time begins anew"


def test_a_stray_that_is_about_to_be_removed_may_still_be_taken_over(opened, tools, clock):
    one = opened()
    one.set_aside(a_log(one, tools), delete_seen=False)
    clock.now_ms += 1
    one.remove_strays(told=True, **LIMITS)
    assert one.obtain(REF, 0, CONFIG)[0].end_offset == 12
    assert not one.strays_leaving


def test_what_is_nobodys_is_removed_at_once(opened, tools, clock):
    one = opened()
    log = a_log(one, tools)
    one.abandon()
    (one.disk.root / log.directory / "partition.metadata").write_text("garbage")
    two = opened()
    assert [stray.metadata for stray in two.strays()] == [None]
    full = {"retention_ms": 10**9, "deleted_retention_ms": 10**9, "told": False}
    assert len(two.remove_strays(bytes_wanted=1, **full)) == 1


def test_a_stray_that_cannot_be_renamed_is_not_removed(opened, tools, clock, removing, failing):
    one = opened()
    one.set_aside(a_log(one, tools), delete_seen=False)
    clock.now_ms += 1
    failing("rename", r"orders-0\..*")
    with pytest.raises(StorageError):
        removing(one, **LIMITS)
    assert len(one.strays()) == 1
    failing()
    assert [reason for _, reason in removing(one, **LIMITS)] == [
        "absence never deletes: age 1 ms, kept for 0 ms"
    ]  # fmt: skip


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
    failing("open", r"orders-0/.*\.index")
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


def test_a_stray_that_somebody_else_has_removed_is_forgotten(opened, tools, clock, removing):
    one = opened()
    stray = one.set_aside(a_log(one, tools), delete_seen=False)
    clock.now_ms += 1
    shutil.rmtree(one.disk.root / stray.directory)
    removing(one, **LIMITS)
    assert one.strays() == []


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
