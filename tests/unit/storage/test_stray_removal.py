"""Removing what was set aside: when, and what a full disk or a crash leaves of it (S10)."""

import errno
import shutil

import pytest

from kafkalite_broker.log.disk import LocalDisk
from kafkalite_broker.log.strays import UNLISTED_MS
from kafkalite_core.model.errors import StorageError
from kafkalite_core.model.partition import TopicRef
from tests.unit.storage.stray_tools import CONFIG, NEVER, OTHER, REF, a_log, rules


def gone_of(one):
    """What is left of the strays that were removed, by directory."""
    return [sorted(file.name for file in directory.iterdir()) for directory in one.disk.root.glob("*.gone")]


def test_what_is_left_of_a_stray_whose_removal_was_interrupted_is_no_stray(opened, tools, clock, removing, monkeypatch):
    one = opened()
    one.set_aside(a_log(one, tools), delete_seen=False)
    clock.now_ms += 1

    removed, remove = [], LocalDisk.remove

    def remove_some(disk, path):
        if removed:
            raise OSError(errno.EIO, "injected")
        removed.append(path)
        remove(disk, path)

    monkeypatch.setattr(LocalDisk, "remove", remove_some)
    removing(one)
    monkeypatch.undo()
    assert one.strays() == []
    ((left, *_),) = gone_of(one)
    assert left
    one.abandon()
    two = opened()
    assert two.strays() == []
    assert not list(two.disk.root.glob("orders-0*"))
    assert two.obtain(REF, 0, CONFIG)[0].end_offset == 0


def test_a_removal_that_found_a_full_disk_is_gone_on_with_by_the_next(opened, tools, clock, removing, failing):
    one = opened()
    one.set_aside(a_log(one, tools), delete_seen=False)
    clock.now_ms += 1
    failing("remove", r".*\.gone/.*")
    removing(one)
    assert removing(one) == []
    assert len(gone_of(one)[0]) > 1
    failing()
    assert removing(one) == []
    assert not list(one.disk.root.glob("orders-0*"))


def test_a_disk_has_not_lost_the_log_whose_stray_it_removed_before_a_checkpoint_forgot_it(
    opened, manager, tools, clock, removing, failing
):
    one = opened()
    log = a_log(one, tools)
    one.checkpoint({})
    one.set_aside(log, delete_seen=False)
    clock.now_ms += 1
    removing(one)
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
    removing(one)
    removing(one)
    assert gone_of(one) == [["partition.metadata"]]
    one.checkpoint({})
    removing(one)
    assert gone_of(one) == []


def test_a_new_log_of_the_name_counts_once_its_directory_is_on_disk(opened, manager, tools, clock, removing):
    """Until then a power loss may take the directory, and only what is left of the stray tells why."""
    one = opened()
    log = a_log(one, tools)
    one.checkpoint({})
    one.set_aside(log, delete_seen=False)
    clock.now_ms += 1
    new, _ = one.obtain(OTHER, 0, CONFIG)
    removing(one)
    assert len(gone_of(one)) == 1
    tools.fill(new, 1)
    tools.flush(new)
    removing(one)
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
    assert len(removing(one)) == 2
    assert gone_of(one) == [["partition.metadata"]] * 2


def test_a_stray_is_removed_when_the_store_has_long_known_that_it_will_be(opened, tools, clock):
    """Who reads the list may take over what it names, and calls its broker in sync (S10)."""
    one = opened()
    name = one.set_aside(a_log(one, tools), delete_seen=False).directory
    clock.now_ms += 1
    assert [stray.directory for stray in one.listed_strays()] == [name]
    assert one.remove_strays(rules()) == [], "of what the store was told before nobody asks"
    assert (one.listed_strays(), one.strays_leaving) == ([], True)
    clock.mono_ms += UNLISTED_MS - 1
    assert one.remove_strays(rules()) == []
    clock.mono_ms += 10 * UNLISTED_MS
    for told_ms in (0, UNLISTED_MS - 1):  # it has been told, has been away since, or shows an older list
        assert one.remove_strays(rules(told_ms=told_ms)) == []
    assert [stray.directory for stray in one.strays()] == [name]
    assert [gone for gone, _ in one.remove_strays(rules(told_ms=UNLISTED_MS))] == [name]
    assert (one.strays(), one.strays_leaving) == ([], False)


def test_strays_that_come_and_go_do_not_put_each_other_off(opened, tools, clock):
    one = opened()
    told = {0: UNLISTED_MS, 1: 0.0}
    for number in told:
        log, _ = one.obtain(REF, number, CONFIG)
        tools.fill(log, 1)
        tools.flush(log)
        one.set_aside(log, delete_seen=False)
    clock.now_ms += 1
    by_stray = rules()._replace(told_ms=lambda metadata: told[metadata.partition])
    one.remove_strays(by_stray)
    clock.mono_ms += UNLISTED_MS
    assert len(one.remove_strays(by_stray)) == 1
    assert [stray.metadata.partition for stray in one.strays()] == [1]


def test_a_stray_that_a_topic_claims_is_not_removed(opened, tools, clock, removing):
    one = opened()
    one.set_aside(a_log(one, tools), delete_seen=False)
    clock.now_ms += 1
    one.remove_strays(rules())
    clock.mono_ms += UNLISTED_MS
    assert one.remove_strays(rules(claimed=[0])) == []
    assert [stray.metadata.partition for stray in one.listed_strays()] == [0]
    assert len(removing(one, claimed=[1])) == 1


def test_a_stray_that_is_about_to_be_removed_may_still_be_taken_over(opened, tools, clock):
    one = opened()
    one.set_aside(a_log(one, tools), delete_seen=False)
    clock.now_ms += 1
    one.remove_strays(rules())
    assert one.obtain(REF, 0, CONFIG)[0].end_offset == 12
    assert not one.strays_leaving


def test_another_stray_of_the_name_is_not_removed_for_the_first_one(opened, tools, clock, failing):
    one = opened()
    failing("rename", "orders-0")  # it has to keep the name of its log
    one.set_aside(a_log(one, tools), delete_seen=False)
    failing()
    clock.now_ms += 1
    one.remove_strays(rules())
    clock.mono_ms += UNLISTED_MS
    other, _ = one.obtain(OTHER, 0, CONFIG)
    tools.fill(other, 1)
    tools.flush(other)
    failing("rename", "orders-0")
    one.set_aside(other, delete_seen=False)
    clock.now_ms += 1
    assert OTHER.topic_id in [stray.metadata.topic_id for stray in one.listed_strays()]
    one.remove_strays(rules())
    assert OTHER.topic_id in [stray.metadata.topic_id for stray in one.strays()]


def test_what_is_nobodys_is_removed_at_once(opened, tools, clock, monkeypatch):
    one = opened()
    log = a_log(one, tools)
    one.abandon()
    (one.disk.root / log.directory / "partition.metadata").write_text("garbage")
    two = opened()
    assert [stray.metadata for stray in two.strays()] == [None]
    monkeypatch.setattr(two.disk, "free_bytes", lambda: 0)
    two.make_room({})
    assert len(two.remove_strays(rules(told_ms=0, **NEVER))) == 1


def test_a_stray_that_cannot_be_renamed_is_not_removed(opened, tools, clock, removing, failing):
    one = opened()
    one.set_aside(a_log(one, tools), delete_seen=False)
    clock.now_ms += 1
    failing("rename", r"orders-0\..*")
    with pytest.raises(StorageError):
        removing(one)
    assert len(one.strays()) == 1
    failing()
    [(_, reason)] = one.remove_strays(rules())
    assert reason == f"absence never deletes: age {UNLISTED_MS + 1:.0f} ms, kept for 0 ms"


def test_a_stray_that_somebody_else_has_removed_is_forgotten(opened, tools, clock, removing):
    one = opened()
    stray = one.set_aside(a_log(one, tools), delete_seen=False)
    clock.now_ms += 1
    shutil.rmtree(one.disk.root / stray.directory)
    removing(one)
    assert one.strays() == []


@pytest.mark.parametrize("since", ["now", "before the start", "a clock that was ahead"])
def test_a_clock_that_is_set_forward_removes_nothing_early(opened, tools, clock, removing, since):
    one = opened()
    one.set_aside(a_log(one, tools), delete_seen=False)
    kept_ms = 100_000
    if since != "now":
        one.abandon()
        clock.now_ms += kept_ms // 2
        if since == "a clock that was ahead":
            clock.is_set(-kept_ms)
        one = opened()
    clock.is_set(100 * kept_ms)
    assert removing(one, retention_ms=10 * kept_ms) == []
    clock.now_ms += 10 * kept_ms
    [(_, reason)] = removing(one, retention_ms=10 * kept_ms)
    assert reason.startswith("absence never deletes: age")
