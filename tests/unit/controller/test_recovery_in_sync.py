"""S11: who was in sync in the history that was lost, and who of them has kept what it had."""

from dataclasses import replace

import pytest

from kafkalite_core.controller.actions import ChangePartitions
from kafkalite_core.controller.plan import plan
from kafkalite_core.model.partition import IsrEntry
from tests.unit.controller.builders import NOW, brokers, entry, make_broker, snapshot, topic_view
from tests.unit.controller.recovering import emptied, holding, nameless, ready, reporting, run


def in_sync_of(reports):
    """Live brokers with (leader epoch, partition epoch, epoch of the last record, end, ISR) as they report."""
    return brokers(
        *(
            make_broker(i, holdings=(replace(holding(epoch, partition_epoch, log_epoch, end), isr=nameless(*isr)),))
            for i, (epoch, partition_epoch, log_epoch, end, isr) in enumerate(reports)
        )
    )


def test_who_was_in_sync_comes_before_who_has_a_record_of_a_later_epoch():
    """Broker 0 wrote one in epoch 8 that nobody copied; 2 and 1 led in epochs 9 and 10, and wrote nothing."""
    reports = [(8, 30, 8, 28, (0, 1, 2)), (10, 33, 7, 28, (1,)), (9, 32, 7, 28, (1, 2))]
    after = run(in_sync_of(reports))[0].changes[0].proposed
    assert (after.isr_ids(), after.leader_epoch, after.partition_epoch) == ((1,), 1010, 1033)
    later = [(8, 33, 8, 28, (0, 1)), *reports[1:]]
    after = run(in_sync_of(later))[0].changes[0].proposed
    assert after.isr_ids() == (0,), "in sync itself: its records may be committed"


def test_an_isr_of_which_no_disk_is_known_to_be_left_does_not_come_first():
    reports = in_sync_of([(8, 30, 8, 28, (0, 1, 2)), (10, 33, -1, 0, (1,)), (9, 32, 7, 28, (1, 2))])
    wiped = reports | {1: replace(make_broker(1, 21, trusted=21), holdings=reports[1].holdings)}
    assert run(wiped)[0] is None, "all that were in sync lost their disks"
    unknown = entry(isr=((0, 10), (2, 12)))  # of broker 1 the store shows nothing
    assert run(reports, partition=unknown)[0].changes[0].proposed.isr_ids() == (0,)


def test_where_all_that_were_in_sync_lost_their_disks_it_takes_consent():
    """Without a restore nobody of such an ISR would be elected either; what the others have may be older."""
    in_sync = entry(isr=((0, 10), (2, 12)))
    action, state = run(emptied(0, 2), partition=in_sync)
    assert action is None
    assert "all that were in sync, brokers [0, 2], came back without their data" in ready(state).message
    assert "lost disks" in ready(state).message
    action, _ = run(emptied(0, 2), partition=in_sync, recovery_request="true")
    assert (action.unclean, action.recovery_request) == ({0}, "true")
    assert "brokers [0, 2], lost their data" in action.reasons[0]


@pytest.mark.parametrize("lost", [(), (0,), (2,), (0, 1), (1,)])
def test_one_disk_of_those_that_were_in_sync_is_enough(lost):
    action, _ = run(emptied(*lost), partition=entry(isr=((0, 10), (2, 12))))
    assert action.unclean == frozenset()


def test_an_eligible_replica_has_everything_as_well():
    below_min_isr = replace(entry(isr=((0, 10),)), elr=(IsrEntry(2, 12),))
    assert run(emptied(0), partition=below_min_isr)[0].unclean == frozenset()
    assert run(emptied(0, 2), partition=below_min_isr)[0] is None


def test_an_eligible_replica_has_everything_also_if_all_report_the_isr_that_the_store_shows():
    below_min_isr = replace(entry(isr=((0, 10),)), elr=(IsrEntry(2, 12),))
    agreed = replace(holding(5, 9, log_epoch=5), isr=nameless(0), agrees=True)
    ahead = replace(holding(6, 9, log_epoch=6), isr=nameless(0))  # elected, and gone before its checkpoint
    reports = {0: agreed, 1: agreed, 2: ahead}
    present = {i: replace(broker, holdings=(reports[i],)) for i, broker in emptied(0).items()}
    assert run(present, partition=below_min_isr)[0].unclean == frozenset()


@pytest.mark.parametrize(
    ("partition_epoch", "isr", "lost", "decided"),
    [
        (8, (1,), (1,), True),
        (9, (1,), (1,), False),
        (9, (0, 1), (0, 1), True),
        (9, (0, 1, 3), (0, 1), False),
        (33, (0, 1), (0, 1), False),
    ],
    ids=["the store shows a later one", "another one", "the one that the store shows", "one with more", "a later one"],
)
def test_the_eligible_count_as_long_as_the_store_shows_the_newest_isr(partition_epoch, isr, lost, decided):
    """Broker 3 has a new disk in any case, and 2 has kept its own."""
    named = tuple(IsrEntry(i, 10 + i) for i in isr)
    told = replace(holding(partition_epoch=partition_epoch), isr=named)
    present = {**emptied(*lost), 3: make_broker(3, 23, trusted=23)}
    reports = {i: replace(broker, holdings=(told,)) for i, broker in present.items()}
    below_min_isr = replace(entry(isr=((0, 10), (1, 11)), min_isr=3), elr=(IsrEntry(2, 12),))
    action, state = run(reports, partition=below_min_isr)
    assert (action is not None) == decided
    if not decided:
        assert f"all that were in sync, brokers {list(isr)}, came back" in ready(state).message


def test_who_was_eligible_and_lost_its_disk_is_known_by_the_entry_that_the_store_shows():
    told = replace(holding(partition_epoch=33), isr=nameless(2))
    reports = {i: replace(broker, holdings=(told,)) for i, broker in emptied(2).items()}
    below_min_isr = replace(entry(isr=((0, 10),), min_isr=2), elr=(IsrEntry(2, 12),))
    assert run(reports, partition=below_min_isr)[0] is None


def test_those_who_came_back_empty_are_named_in_order():
    told = replace(holding(partition_epoch=33), isr=(IsrEntry(8, 10), IsrEntry(1, 10)))
    reports = {i: make_broker(i, 20, trusted=20, holdings=(told,)) for i in (0, 1, 2, 8)}
    assert "all that were in sync, brokers [1, 8], came back" in ready(run(reports)[1]).message


@pytest.mark.parametrize(("isr", "decided"), [((0,), True), ((1,), False), ((1, 2), True), ((3,), True)])
def test_the_newest_isr_is_the_one_that_may_be_without_disks(isr, decided):
    """Of broker 3 the store shows no entry, so that nobody knows which incarnation was meant: it counts as whole."""
    present = {i: replace(b, holdings=(replace(holding(), isr=nameless(*isr)),)) for i, b in emptied(1).items()}
    present[3] = make_broker(3, holdings=(holding(end=7),))
    assert (run(present)[0] is not None) == decided


NEW_DISK_SINCE = 21


@pytest.mark.parametrize(
    ("epoch", "trusted", "knows", "lost"),
    [
        (11, NEW_DISK_SINCE, False, True),
        (20, NEW_DISK_SINCE, False, True),
        (21, NEW_DISK_SINCE, True, False),
        (21, NEW_DISK_SINCE, False, True),
        (20, 13, False, True),
        (11, 1, True, False),
        (25, 21, False, True),
    ],
    ids=[
        "an earlier disk",
        "the one before",
        "copied since",
        "drew the very epoch that its former disk had, knowing nothing",
        "drew a lower one, and registered once more",
        "the same disk",
        "drew a lower one",
    ],
)
def test_an_isr_that_names_incarnations_says_whose_disk_was_lost(epoch, trusted, knows, lost):
    """Broker 1 alone was in sync in the history that was lost; the store shows it with the epoch of before the backup."""
    reports = [holding(partition_epoch=33), holding(5, 9, -1, end=0), holding(partition_epoch=32)]
    reports[0] = replace(reports[0], isr=(IsrEntry(1, epoch),))
    reports[1] = replace(reports[1], agrees=True) if not knows else replace(reports[0], end_offset=50)
    present = brokers(*(make_broker(i, 21, trusted=trusted, holdings=(held,)) for i, held in enumerate(reports)))
    action, state = run(present, partition=entry(isr=((0, 21), (1, 11))))
    assert (action is None) == lost
    if lost:
        assert "all that were in sync, brokers [1], came back without their data" in ready(state).message
    else:
        assert action.changes[0].proposed.isr_ids() == (1,), "it had all that was committed, and has it"


@pytest.mark.parametrize(
    ("lost_history", "goes_on"),
    [((4, 50), (0, 1)), ((5, 31), (0, 1)), ((7, 32), (0, 1)), ((5, 33), (2,)), ((7, 33), (2,))],
    ids=["fewer elections", "fewer changes", "as many changes", "the same leader epoch, and later", "further in both"],
)
def test_a_history_that_was_lost_comes_first_only_if_it_had_come_further(lost_history, goes_on):
    """Broker 2 was alone in sync in it. The store has gone on without it since; 0 and 1 acknowledged in epoch 5."""
    back = replace(holding(*lost_history, log_epoch=4, end=300), isr=(IsrEntry(2, 12),))
    agreed = replace(holding(5, 32, log_epoch=5, end=900), agrees=True, isr=(IsrEntry(0, 10), IsrEntry(1, 11)))
    shown = replace(entry(isr=((0, 10), (1, 11))), partition_epoch=32)
    action, _ = run(reporting(agreed, agreed, back), partition=shown)
    assert action.changes[0].proposed.isr_ids() == goes_on


@pytest.mark.parametrize(
    ("comes_first", "log_epoch", "end"),
    [(False, 7, 120), (False, 8, 5), (True, 6, 120)],
    ids=["more of the same epoch", "of a later epoch", "of an earlier one"],
)
def test_more_records_than_the_newest_isr_that_is_noted_has_say_that_there_was_a_newer_one(comes_first, log_epoch, end):
    """Broker 0 joined the ISR and died before its checkpoint."""
    noted = replace(holding(7, 33, log_epoch=7, end=100), isr=(IsrEntry(2, 12),))
    unnoted = holding(max(7, log_epoch), 32, log_epoch, end=end)
    action, _ = run(reporting(unnoted, holding(7, 31, 6, end=90), noted), partition=entry(isr=((0, 10), (1, 11))))
    assert action.changes[0].proposed.isr_ids() == ((2,) if comes_first else (0,))
    shown = entry(isr=((0, 10), (2, 12)))
    action, _ = run(reporting(unnoted, holding(7, 31, 6, end=90), noted), partition=shown)
    assert action.changes[0].proposed.isr_ids() == ((0,) if log_epoch == 8 else (2,)), (
        "the store shows broker 2 in sync"
    )


@pytest.mark.parametrize("shown", [((0, 10), (1, 11)), ((0, 10), (2, 12))])
def test_with_relaxed_flush_who_died_since_it_was_in_sync_does_not_come_first(shown):
    noted = replace(holding(7, 33, log_epoch=6, end=20), isr=(IsrEntry(2, 12),))
    rest = holding(7, 32, log_epoch=7, end=100)
    present = reporting(rest, rest, noted) | {2: replace(make_broker(2, 22, clean=22), holdings=(noted,))}
    for config, isr in (({}, (2,)), ({"flush.messages": "1000"}, (0, 1))):
        action, _ = run(present, partition=entry(isr=shown), spec={"config": config})
        assert (action.changes[0].proposed.isr_ids(), action.unclean) == (isr, frozenset()), config


@pytest.mark.parametrize("knows", [True, False])
def test_a_live_member_that_has_yet_to_register_anew_has_lost_nothing_if_it_knows_of_that_history(knows):
    """The operator was restarted, and does not know that the store went back: the registration that it sees is old."""
    told = replace(holding(partition_epoch=33), isr=(IsrEntry(1, 25),))
    report = told if knows else replace(holding(5, 9, 5), agrees=True)
    behind = holding(partition_epoch=32, log_epoch=6)
    action, state = run(reporting(behind, report, replace(told, log_epoch=6)), partition=entry(isr=((0, 10), (2, 12))))
    if knows:
        assert (action.changes[0].proposed.isr_ids(), action.unclean) == ((1,), frozenset())
    else:
        assert "came back without their data" in ready(state).message


def test_who_was_registered_above_what_the_store_shows_has_lost_nothing_that_is_known():
    """Its registration went back with the store, and it has not registered anew: it is dead, or what it said is old."""
    newest = replace(holding(partition_epoch=33), isr=(IsrEntry(1, 25),))
    known = reporting(newest, holding(), holding())
    agreed = replace(holding(5, 9, log_epoch=5), agrees=True)
    for report in (holding(), agreed):
        dead = known | {1: replace(make_broker(1, fenced=11), holdings=(report,))}
        assert "without their data" not in ready(run(dead)[1]).message
    late = reporting(newest, agreed, None)
    view = topic_view(partitions={0: entry()})
    for known_outdated in (set(), {1}):
        said = ready(snapshot(view, brokers=late, outdated=frozenset(known_outdated))).message
        assert ("without their data" in said) != bool(known_outdated), "what it says now is what its disk has"
    old = snapshot(topic_view(partitions={0: entry()}), brokers=known, outdated=frozenset({1}))
    (action,) = (action for action in plan(old, NOW) if isinstance(action, ChangePartitions))
    assert (action.changes[0].proposed.isr_ids(), action.unclean) == ((1,), frozenset())


def test_an_isr_is_of_the_leader_epoch_of_its_entry_whatever_was_refused_since():
    """Broker 0 led in epoch 8 and died before its checkpoint; broker 2 was shown a past of epoch 9, and refused it."""
    refused = replace(holding(9, 40, log_epoch=7), isr=(IsrEntry(2, 12),), isr_epoch=33, isr_leader_epoch=7)
    led = holding(8, 32, log_epoch=8, end=5)
    action, _ = run(reporting(led, holding(7, 31, log_epoch=6), refused), partition=entry(isr=((0, 10), (2, 12))))
    assert action.changes[0].proposed.isr_ids() == (0,), "its record says that there was a newer ISR"
    told = holding(9, 32, log_epoch=7, end=120)
    action, _ = run(reporting(told, holding(7, 31, log_epoch=6), refused), partition=entry(isr=((0, 10), (2, 12))))
    assert action.changes[0].proposed.isr_ids() == (2,), "to be told of an epoch is to have no record of it"


def test_a_member_of_the_newest_isr_without_an_object_may_have_kept_what_it_had():
    """The store went back to before its object was made."""
    told = replace(holding(partition_epoch=33), isr=(IsrEntry(7, 20),))
    present = reporting(told, holding(), holding())
    action, state = run(present)
    assert action is None
    assert "broker 7" in ready(state).message
    assert "without their data" not in ready(state).message
    action, _ = run(present, recovery_request="true")
    assert (action.unclean, "lost their data" in action.reasons[0]) == ({0}, False)


def test_to_remember_a_history_is_not_to_have_the_disk_of_it():
    """Broker 1 has a new disk, and no replica on it: that it had a broker epoch once again says nothing."""
    told = replace(holding(partition_epoch=33), isr=(IsrEntry(1, 21),))
    reports = [told, replace(told, log_epoch=-1, end_offset=0, hosted=False), holding(partition_epoch=32)]
    present = brokers(*(make_broker(i, 21, trusted=21, holdings=(held,)) for i, held in enumerate(reports)))
    _, state = run(present, partition=entry(isr=((0, 21), (1, 11))))
    assert "all that were in sync, brokers [1], came back without their data" in ready(state).message
