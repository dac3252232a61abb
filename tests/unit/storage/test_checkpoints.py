"""Checkpoints, identity, restart verdicts."""

import contextlib
import errno
from types import SimpleNamespace

import pytest

from kafkalite_core.model.cluster import Registration
from kafkalite_core.model.errors import StorageError
from kafkalite_core.model.partition import TopicPartition
from kafkalite_core.storage.checkpoints import OffsetCheckpoint, decode_offsets, recovery_points_of
from kafkalite_core.storage.disk import append_all, replace_file
from kafkalite_core.storage.errors import CorruptCheckpoint, DiskFailure, ForeignDirectory
from kafkalite_core.storage.identity import (
    CLEAN_SHUTDOWN_FILE,
    IDENTITY_FILE,
    CleanShutdown,
    DirectoryFindings,
    TakenMarker,
    directory_findings,
    establish_identity,
    forget_taken,
    leave_clean_shutdown,
    restart_verdict,
    take_clean_shutdown,
    write_clean_shutdown,
)
from kafkalite_core.storage.memory_disk import MemoryDisk
from kafkalite_core.storage.reserve import FILE_NAME as RESERVE_FILE
from kafkalite_core.storage.reserve import Reserve

A, B = TopicPartition("a", 0), TopicPartition("b-c", 12)


def test_the_file_is_kafkas_text_and_survives_a_crash():
    disk = MemoryDisk()
    checkpoint = OffsetCheckpoint(disk, "x")
    assert not checkpoint.load()
    assert checkpoint.write({B: 7, A: 5}, checkpoint.take())
    assert not checkpoint.write({A: 5, B: 7}, checkpoint.take())
    disk.crash()
    assert bytes(disk.content("x")) == b"0\n2\na 0 5\nb-c 12 7\n"
    again = OffsetCheckpoint(disk, "x")
    assert again.load()
    assert again.values == {A: 5, B: 7}


@pytest.mark.parametrize(
    "data", [b"", b"0\n1\n", b"0\n2\na 0 5\n", b"0\n1\na 0 5", b"1\n0\n", b"0\n1\na 0 x\n", b"\xff\n"]
)
def test_a_damaged_file_is_refused(data):
    with pytest.raises(CorruptCheckpoint):
        decode_offsets(data, "x")


def test_a_cut_wins_over_values_taken_before_it():
    disk = MemoryDisk()
    checkpoint = OffsetCheckpoint(disk, "x")
    checkpoint.write({A: 100, B: 9}, checkpoint.take())
    taken_at = checkpoint.take()
    assert checkpoint.lower(A, 40)
    assert not checkpoint.lower(A, 60)
    assert decode_offsets(bytes(disk.content("x")), "x") == {A: 40, B: 9}
    checkpoint.write({A: 100, B: 10}, taken_at)
    assert checkpoint.values == {A: 40, B: 10}
    checkpoint.write({A: 100, B: 10}, checkpoint.take())
    assert checkpoint.values == {A: 100, B: 10}


@pytest.mark.parametrize("touch", ["lower", "forget"])
def test_older_values_that_are_written_later_undo_no_cut(touch):
    checkpoint = OffsetCheckpoint(MemoryDisk(), "x")
    older = checkpoint.take()
    if touch == "lower":
        checkpoint.lower(A, 40)
    else:
        checkpoint.forget(A)
    left = {A: 40} if touch == "lower" else {}
    checkpoint.write({**left, B: 10}, checkpoint.take())
    assert not checkpoint.write({A: 100, B: 9}, older)
    assert checkpoint.values == {**left, B: 10}


def test_a_log_that_is_about_to_be_opened_is_named_whatever_was_taken_before():
    disk = MemoryDisk()
    checkpoint = OffsetCheckpoint(disk, "x")
    checkpoint.write({A: 100, B: 9}, checkpoint.take())
    taken_at = checkpoint.take()
    checkpoint.forget(A)
    assert checkpoint.begin(A, 30)
    assert not checkpoint.begin(A, 30)
    assert decode_offsets(bytes(disk.content("x")), "x") == {A: 30, B: 9}
    checkpoint.write({A: 100, B: 9}, taken_at)
    assert checkpoint.values == {A: 30, B: 9}
    checkpoint.lower(A, 20)
    checkpoint.write({B: 9}, taken_at)
    assert checkpoint.values == {A: 20, B: 9}
    assert not OffsetCheckpoint(disk, "y").begin(A, 0), "as if it had no line"
    assert not disk.exists("y")


def test_a_forgotten_log_stays_forgotten():
    disk = MemoryDisk()
    checkpoint = OffsetCheckpoint(disk, "x")
    checkpoint.write({A: 100, B: 9}, checkpoint.take())
    taken_at = checkpoint.take()
    checkpoint.forget(A)
    assert A not in checkpoint.values
    checkpoint.write({A: 100, B: 9}, taken_at)
    assert decode_offsets(bytes(disk.content("x")), "x") == {B: 9}
    checkpoint.write({A: 100, B: 9}, checkpoint.take())
    checkpoint.forget(A)
    assert checkpoint.lower(A, 0), "a successor of the same name must not find the old value"
    assert decode_offsets(bytes(disk.content("x")), "x") == {A: 0, B: 9}


@pytest.mark.parametrize("fail_at", range(6))
def test_replacing_a_file_keeps_the_old_or_has_the_new(fail_at):
    disk = MemoryDisk()
    replace_file(disk, "x", b"old")
    steps = [0]

    def hook(_operation, _path):
        steps[0] += 1
        if steps[0] > fail_at:
            raise OSError(errno.EDQUOT, "injected")

    disk.hook = hook
    with contextlib.suppress(StorageError, DiskFailure):
        replace_file(disk, "x", b"new")
    disk.hook = lambda *_: None
    assert bytes(disk.content("x")) in {b"old", b"new"}
    disk.crash()
    assert bytes(disk.content("x")) in {b"old", b"new"}


def test_identity_is_made_once_and_foreign_directories_are_left_alone():
    disk = MemoryDisk()
    made = establish_identity(disk, cluster_id="c", broker_id=1, new_directory_id="d1")
    assert made.fresh
    disk.crash()
    found = establish_identity(disk, cluster_id="c", broker_id=1, new_directory_id="d2")
    assert (found.fresh, found.identity.directory_id) == (False, "d1")
    for other in ({"cluster_id": "x", "broker_id": 1}, {"cluster_id": "c", "broker_id": 2}):
        with pytest.raises(ForeignDirectory, match="belongs to broker 1"):
            establish_identity(disk, **other, new_directory_id="d2")
    disk.content(IDENTITY_FILE)[:] = b"{}"
    assert establish_identity(disk, cluster_id="c", broker_id=1, new_directory_id="d3").fresh


def test_the_clean_marker_is_taken_once_and_durably():
    disk = MemoryDisk()
    assert take_clean_shutdown(disk, "a") == (None, None)
    write_clean_shutdown(disk, 12)
    disk.crash()
    assert take_clean_shutdown(disk, "a").epoch == 12
    disk.crash()
    assert not disk.exists(CLEAN_SHUTDOWN_FILE)
    assert take_clean_shutdown(disk, "b").epoch is None
    write_clean_shutdown(disk, 12)
    disk.content(CLEAN_SHUTDOWN_FILE)[:] = b"{"
    assert take_clean_shutdown(disk, "c") == (None, None)
    assert disk.list("") == []


def opened(disk, incarnation, previous):
    """The verdict of an incarnation that starts on this disk, of which nothing else is known."""
    shutdown = take_clean_shutdown(disk, incarnation)
    disk.crash()
    found = findings(clean_epoch=shutdown.epoch, taken=shutdown.taken)
    return restart_verdict(previous, found, previous.broker_epoch + 1)


def test_an_older_copy_of_a_disk_stays_one_whatever_dies_before_it_is_registered():  # R9
    disk = MemoryDisk()
    write_clean_shutdown(disk, 7)
    for incarnation in ("a", "b", "c"):  # each of the first two dies before it is registered
        verdict = opened(disk, incarnation, registration(broker_epoch=9, incarnation="elsewhere"))
        assert verdict.trusted_since == 10, verdict.reason
        assert verdict.reason.endswith(("went back in time", "it is an older copy"))


@pytest.mark.parametrize("registered", ["a", "b"])
def test_a_disk_whose_openers_were_registered_is_no_older_copy(registered):
    disk = MemoryDisk()
    write_clean_shutdown(disk, 7)
    for incarnation in ("a", "b"):  # nobody registers
        assert opened(disk, incarnation, registration(broker_epoch=7)).trusted_since == 3
    # One of them had been, and died before it could forget the marker.
    assert opened(disk, "c", registration(broker_epoch=9, incarnation=registered)).trusted_since == 3


def test_a_registration_ends_what_a_taken_marker_says():
    disk = MemoryDisk()
    write_clean_shutdown(disk, 7)
    assert opened(disk, "a", registration(broker_epoch=7)).trusted_since == 3
    forget_taken(disk)
    assert take_clean_shutdown(disk, "b") == (None, None)


def test_a_taken_marker_that_too_many_have_seen_says_nothing_more():
    disk = MemoryDisk()
    write_clean_shutdown(disk, 7)
    found = [take_clean_shutdown(disk, f"i{number}").taken for number in range(20)]
    assert found[11].epoch == 7
    assert len(found[11].takers) == 12
    assert all(taken is None for taken in found[12:])
    assert disk.list("") == []


@pytest.mark.parametrize(("registered", "found", "left"), [(9, 7, 9), (9, None, 9), (-1, 7, 7), (-1, None, None)])
def test_who_was_never_registered_leaves_the_marker_that_it_found(registered, found, left):  # S11
    disk = MemoryDisk()
    if found is not None:
        write_clean_shutdown(disk, found)
    leave_clean_shutdown(disk, registered, take_clean_shutdown(disk, "a"))
    assert take_clean_shutdown(disk, "b").epoch == left


def test_without_a_known_epoch_the_directory_is_judged_by_the_incarnations_that_opened_it():  # S11
    """One that is stopped while its first registration is on its way: a marker of the epoch before were a false one."""
    disk = MemoryDisk()
    write_clean_shutdown(disk, 5)
    found = take_clean_shutdown(disk, "a")
    landed = registration(broker_epoch=6, incarnation="a")
    assert opened(disk, "b", landed).trusted_since == 3, "no marker"
    write_clean_shutdown(disk, 5)
    take_clean_shutdown(disk, "a")
    leave_clean_shutdown(disk, -1, found)
    assert opened(disk, "b", landed).trusted_since > 3, "which is why there is none"


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_half_a_write_that_cannot_be_cut_off_is_a_failed_disk(code):  # R12
    """The next batch would stand behind it, and be lost with it at the next start."""
    disk = MemoryDisk()
    file = disk.open("log", create=True)
    append_all(file, bytes(100), 0, "log")
    disk.capacity = 150

    def fails(operation, _path):
        if operation == "truncate":
            raise OSError(code, "no room")

    with pytest.raises(StorageError):
        append_all(file, bytes(100), 100, "log")
    assert file.size() == 100
    disk.hook = fails
    with pytest.raises(DiskFailure, match="cut partial write off log"):
        append_all(file, bytes(100), 100, "log")


def registration(**fields):
    defaults = {
        "broker_epoch": 9,
        "incarnation": "i",
        "directory_id": "d",
        "trusted_since": 3,
        "clean_since": 5,
        "host": "h",
        "port": 1,
    }
    return Registration(**{**defaults, **fields})


def findings(**fields):
    defaults = {
        "directory_id": "d",
        "fresh": False,
        "clean_epoch": None,
        "cut_below_flushed": False,
        "checkpoint_lost": False,
    }
    return DirectoryFindings(**{**defaults, **fields})


@pytest.mark.parametrize(
    ("previous", "found", "trusted", "clean"),
    [
        (registration(), findings(clean_epoch=9), 3, 5),
        (registration(), findings(), 3, 12),
        (registration(), findings(clean_epoch=8), 12, 12),
        (registration(), findings(fresh=True), 12, 12),
        (registration(), findings(directory_id="other", clean_epoch=9), 12, 12),
        (registration(), findings(cut_below_flushed=True, clean_epoch=9), 12, 12),
        (registration(), findings(checkpoint_lost=True), 12, 12),
        (None, findings(clean_epoch=9), 12, 12),
        (None, findings(fresh=True), 12, 12),
    ],
)
def test_restart_verdicts(previous, found, trusted, clean):
    verdict = restart_verdict(previous, found, 12)
    assert verdict[:2] == (trusted, clean)
    assert verdict.reason


@pytest.mark.parametrize(("epoch", "which"), [(8, "the directory went back"), (10, "the store went back")])
def test_which_of_the_two_is_older(epoch, which):  # S11
    verdict = restart_verdict(registration(), findings(clean_epoch=epoch), 12)
    assert which in verdict.reason
    assert verdict[:2] == (12, 12), "neither proves that nothing was lost"


@pytest.mark.parametrize(
    ("recovery_point", "parent_unsynced", "files", "named"),
    [(0, True, {}, False), (0, False, {}, True), (0, False, {"partition.metadata": None}, False), (7, True, {}, True)],
)
def test_a_log_is_named_once_its_directory_is_there_to_stay(recovery_point, parent_unsynced, files, named):  # R9
    log = SimpleNamespace(recovery_point=recovery_point, parent_unsynced=parent_unsynced, unsynced_files=files)
    key = TopicPartition("orders", 0)
    assert recovery_points_of({key: log}) == ({key: recovery_point} if named else {})


@pytest.mark.parametrize(
    ("changes", "trusted"),
    [
        ({}, True),
        ({"cut_below_flushed": [False, True]}, False),
        ({"flushed_ends_known": False}, False),
        ({"missing": {"orders-0"}}, False),
    ],
)
def test_what_the_steps_of_opening_a_directory_add_up_to(changes, trusted):  # R9
    disk = MemoryDisk()
    new = establish_identity(disk, cluster_id="c", broker_id=1, new_directory_id="d1")
    known = establish_identity(disk, cluster_id="c", broker_id=1, new_directory_id="d2")
    steps = {"cut_below_flushed": [False], "flushed_ends_known": True, "missing": set(), **changes}
    taken = TakenMarker(7, ("a",))
    found = directory_findings(known, CleanShutdown(7, taken), **steps)
    assert (found.directory_id, found.clean_epoch, found.taken, found.trusted) == ("d1", 7, taken, trusted)
    empty = CleanShutdown(None, None)
    assert not directory_findings(new, empty, **steps).trusted
    assert not directory_findings(new, empty, **steps).checkpoint_lost, "a new directory has none to lose"


def test_the_reserve_is_taken_when_there_is_room_and_given_back():
    disk = MemoryDisk(capacity=3_000_000)
    reserve = Reserve(disk, 1_200_000)
    assert reserve.ensure()
    assert disk.free_bytes() == 1_800_000
    assert Reserve(disk, 1_200_000).ensure()
    assert reserve.release()
    assert not reserve.release()
    assert disk.free_bytes() == 3_000_000
    assert not Reserve(disk, 2_000_000).ensure()
    assert not disk.exists(RESERVE_FILE)


def test_a_start_on_a_full_disk_has_the_reserve_that_the_last_process_held():
    disk = MemoryDisk(capacity=3_000_000)
    assert Reserve(disk, 1_200_000).ensure()
    again = Reserve(disk, 1_200_000)
    assert not again.lend()
    replace_file(disk, "data", bytes(1_700_000))
    assert again.lend()
    assert disk.free_bytes() == 1_300_000
    assert not again.lend()
