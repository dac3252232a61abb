"""R9, S2: what a data directory proves of a registration that the store has lost (decision 011)."""

from dataclasses import replace

import pytest

from kafkalite_core.model.cluster import Adopted, Broker, Registration, entry_counts, entry_lost
from kafkalite_core.model.partition import IsrEntry
from kafkalite_core.storage.identity import DirectoryFindings, TakenMarker, incarnation_tag, restart_verdict
from kafkalite_core.storage.last_registration import (
    ADOPTED_MAX,
    LAST_REGISTRATION_FILE,
    LastRegistration,
    adopted,
    judged_by,
    last_registration,
    note_registration,
)
from kafkalite_core.storage.memory_disk import MemoryDisk

FORMER = Registration(
    broker_epoch=5, incarnation="old", directory_id="disk", trusted_since=2, clean_since=4, host="h", port=1
)
LAST = LastRegistration.of(FORMER)
FOUND = DirectoryFindings(
    directory_id="disk", fresh=False, clean_epoch=None, cut_below_flushed=False, checkpoint_lost=False
)
NEW_EPOCH = 20


def judged(findings=FOUND, last=LAST, previous=None):
    """What a registration with epoch 20 adopts."""
    return adopted(previous, findings, last, restart_verdict(previous, findings, NEW_EPOCH), NEW_EPOCH)


def counting(found, *, relaxed_flush=False):
    """The epochs whose entries count for that registration."""
    registration = replace(
        FORMER, broker_epoch=NEW_EPOCH, trusted_since=NEW_EPOCH, clean_since=NEW_EPOCH, adopted=found
    )
    brokers = {0: Broker(id=0, registration=registration)}
    return [
        epoch
        for epoch in range(NEW_EPOCH + 2)
        if entry_counts(IsrEntry(0, epoch), brokers, relaxed_flush=relaxed_flush)
    ]


def test_what_was_reported_by_this_directory_counts_again():
    assert counting(judged()) == [2, 3, 4, 5, NEW_EPOCH], "after its last registration it may have been another disk's"


def test_with_relaxed_flush_only_after_a_clean_shutdown():
    assert counting(judged(), relaxed_flush=True) == [NEW_EPOCH]
    clean = FOUND._replace(clean_epoch=5, taken=TakenMarker(5, (incarnation_tag("new"),)))
    assert counting(judged(clean), relaxed_flush=True) == [4, 5, NEW_EPOCH]
    assert counting(judged(clean)) == [2, 3, 4, 5, NEW_EPOCH]


@pytest.mark.parametrize(
    "findings",
    [
        FOUND._replace(fresh=True),
        FOUND._replace(cut_below_flushed=True),
        FOUND._replace(checkpoint_lost=True),
        FOUND._replace(directory_id="renewed"),
        FOUND._replace(clean_epoch=4),
        FOUND._replace(clean_epoch=6),
        FOUND._replace(taken=TakenMarker(4, (incarnation_tag("another"),))),
    ],
)
def test_a_directory_that_lost_something_or_is_not_the_one_adopts_nothing(findings):
    assert judged(findings) == ()
    assert judged(findings, replace(LAST, adopted=(Adopted(broker_epoch=3, trusted_since=1, clean_since=1),))) == ()


def test_no_evidence_denies():
    assert judged(last=None) == ()
    disk = MemoryDisk()
    assert last_registration(disk) is None


STORED = replace(FORMER, broker_epoch=2, incarnation="older", trusted_since=1, clean_since=1)


def test_a_later_registration_of_the_same_directory_is_what_a_restart_is_judged_by():  # S11
    """The store was restored: it shows epoch 2 of a directory that was closed in order in epoch 5 since."""
    closed = FOUND._replace(clean_epoch=5, taken=TakenMarker(5, (incarnation_tag("new"),)))
    assert restart_verdict(STORED, closed, NEW_EPOCH).trusted_since == NEW_EPOCH, (
        "by the store alone it is another past"
    )
    verdict = restart_verdict(judged_by(STORED, LAST, closed), closed, NEW_EPOCH)
    assert (verdict.trusted_since, verdict.clean_since) == (2, 4)
    assert (
        adopted(judged_by(STORED, replace(LAST, adopted=judged()), closed), closed, LAST, verdict, NEW_EPOCH)
        == judged()
    )


def test_what_the_directory_lost_before_its_last_registration_stays_lost():  # S11
    """It was found to be an older copy when it was registered with epoch 5; the store has forgotten that."""
    assert restart_verdict(STORED, FOUND, NEW_EPOCH).trusted_since == 1
    older_copy = replace(LAST, trusted_since=5, clean_since=5)
    assert restart_verdict(judged_by(STORED, older_copy, FOUND), FOUND, NEW_EPOCH).trusted_since == 5


@pytest.mark.parametrize(
    ("stored", "last", "findings"),
    [
        (None, LAST, FOUND),
        (STORED, None, FOUND),
        (replace(STORED, broker_epoch=5), LAST, FOUND),
        (replace(STORED, broker_epoch=9), LAST, FOUND),
        (replace(STORED, directory_id="another"), LAST, FOUND),
        (STORED, replace(LAST, directory_id="another"), FOUND),
        (STORED, LAST, FOUND._replace(directory_id="renewed")),
        (replace(STORED, directory_id="renewed"), LAST, FOUND._replace(directory_id="renewed")),
    ],
)
def test_else_it_is_the_one_in_the_store(stored, last, findings):
    assert judged_by(stored, last, findings) == stored


def test_a_marker_that_the_last_registered_process_had_taken_is_none_of_an_older_copy():
    """The power failed before it was forgotten for good."""
    taken = TakenMarker(4, (incarnation_tag("old"), incarnation_tag("new")))
    assert counting(judged(FOUND._replace(taken=taken))) == [2, 3, 4, 5, NEW_EPOCH]


def test_it_is_adopted_until_the_directory_loses_something_and_twice_if_need_be():
    first = judged()
    registered = replace(FORMER, broker_epoch=9, trusted_since=9, clean_since=9, adopted=first)
    assert judged(previous=registered) == first, "restarted before anybody was elected"
    assert judged(FOUND._replace(cut_below_flushed=True), previous=registered) == ()
    again = judged(last=LastRegistration.of(registered))
    assert counting(again) == [2, 3, 4, 5, 9, NEW_EPOCH]
    assert judged(last=None, previous=FORMER) == (), "nothing was lost, so nothing is adopted"


def test_an_unclean_restart_takes_from_what_was_adopted_with_relaxed_flush():
    clean = FOUND._replace(clean_epoch=5)
    registered = replace(FORMER, broker_epoch=9, trusted_since=9, clean_since=9, adopted=judged(clean))
    assert counting(judged(FOUND._replace(clean_epoch=9), previous=registered), relaxed_flush=True) == [4, 5, NEW_EPOCH]
    assert counting(judged(previous=registered), relaxed_flush=True) == [NEW_EPOCH]


def test_the_latest_are_remembered():
    earlier = tuple(Adopted(broker_epoch=i, trusted_since=i, clean_since=i) for i in range(ADOPTED_MAX))
    found = judged(last=replace(LAST, adopted=earlier, broker_epoch=15, trusted_since=15, clean_since=15))
    assert len(found) == ADOPTED_MAX
    assert (found[0].broker_epoch, found[-1].broker_epoch) == (1, 15)


def test_the_file_is_durable_and_says_what_was_registered():
    disk = MemoryDisk()
    registered = replace(FORMER, adopted=judged())
    note_registration(disk, registered)
    disk.crash()
    assert last_registration(disk) == LastRegistration.of(registered)
    note_registration(disk, replace(registered, broker_epoch=9))
    disk.crash()
    assert last_registration(disk).broker_epoch == 9


def test_a_file_that_is_not_as_it_was_written_says_nothing():
    disk = MemoryDisk()
    note_registration(disk, FORMER)
    data = bytes(disk.content(LAST_REGISTRATION_FILE))
    for place in range(len(data)):
        for broken in (data[:place], data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]):
            disk.content(LAST_REGISTRATION_FILE)[:] = broken
            assert last_registration(disk) is None, place


def test_who_is_not_registered_counts_for_nothing_and_is_not_lost():
    entry = IsrEntry(0, 5)
    for brokers in ({}, {0: Broker(id=0)}):
        assert not entry_counts(entry, brokers, relaxed_flush=False)
        assert not entry_lost(entry, brokers, relaxed_flush=False)
    wiped = {0: Broker(id=0, registration=replace(FORMER, broker_epoch=6, trusted_since=6))}
    assert entry_lost(entry, wiped, relaxed_flush=False)
    assert not entry_lost(entry, {0: Broker(id=0, registration=FORMER)}, relaxed_flush=False)
