"""S11: the store went back in time; which replicas a partition goes on with, and when."""

from dataclasses import replace

import pytest

from kafkalite_core.controller.actions import ChangePartitions
from kafkalite_core.controller.noticing import ADOPTION_GRACE_S
from kafkalite_core.controller.plan import plan
from kafkalite_core.controller.snapshot import LeaseView
from kafkalite_core.controller.store_recovery import outdated
from kafkalite_core.model.cluster import BrokerState
from kafkalite_core.model.partition import IsrEntry
from tests.unit.controller.builders import NOW, apply, brokers, entry, make_broker, snapshot, three, topic_view
from tests.unit.controller.recovering import emptied, holding, nameless, ready, reporting, run


def test_the_holders_of_the_greatest_epoch_and_end_go_on_above_all_epochs():
    action, state = run(reporting(holding(log_epoch=6, end=900), holding(), holding(leader_epoch=8, partition_epoch=9)))
    after = action.changes[0].proposed
    assert after.isr == (IsrEntry(1, 11), IsrEntry(2, 12))
    assert (after.leader, after.leader_epoch, after.partition_epoch) == (1, 1008, 1030)
    assert (after.elr, action.elected, action.unclean) == ((), {0}, frozenset())
    assert "the store went back in time" in action.reasons[0]
    healed = apply(state, [action])
    assert not [a for a in plan(healed, NOW) if isinstance(a, ChangePartitions)], "reports that are surpassed are over"


def test_nothing_is_decided_before_every_replica_has_reported():
    dead_leader = reporting(None, holding(), holding()) | {0: make_broker(0, fenced=10)}
    action, state = run(dead_leader)
    assert action is None, "not even an election: the entry describes a past"
    condition = ready(state)
    assert (condition.status, condition.reason) == ("False", "StoreWentBack")
    assert "brokers [1, 2] have reported what they hold, but broker 0 is fenced" in condition.message
    assert "recover-store" in condition.message
    assert "broker 0 has not reported yet" in ready(run(reporting(None, holding(), holding()))[1]).message


@pytest.mark.parametrize("state", [BrokerState.CATCHING_UP, BrokerState.SHUTTING_DOWN])
def test_a_broker_that_does_not_run_is_waited_for(state):
    waits = reporting(holding(), holding(), holding())
    waits[2] = make_broker(2, state=state, holdings=(holding(end=500),))
    assert run(waits)[0] is None


def test_consent_goes_on_without_the_missing_and_says_so():
    dead = reporting(None, holding(), holding(end=90)) | {0: make_broker(0, fenced=10, holdings=(holding(15, 99, 15),))}
    action, _ = run(dead, recovery_request="True")
    after = action.changes[0].proposed
    assert (after.isr_ids(), after.leader_epoch, after.partition_epoch) == ((1,), 1015, 1099)
    assert (action.unclean, action.recovery_request) == ({0}, "True")
    assert "brokers [0] were not waited for" in action.reasons[0]


def test_consent_does_not_go_on_without_a_live_replica_that_is_about_to_report():
    """Both in sync lost their disks; broker 2 has the records, and its report is on its way."""
    told = {i: replace(b, holdings=(holding(log_epoch=-1, end=0),)) if i < 2 else b for i, b in emptied(0, 1).items()}
    late = {**told, 2: replace(told[2], holdings=())}
    in_sync = entry(isr=((0, 10), (1, 11)))
    action, state = run(late, partition=in_sync, recovery_request="true")
    assert action is None
    assert "broker 2 has not reported yet" in ready(state).message
    assert run(told, partition=in_sync, recovery_request="true")[0].changes[0].proposed.isr_ids() == (2,)
    dead = {**late, 2: replace(late[2], fenced_epoch=22)}
    assert run(dead, partition=in_sync, recovery_request="true")[0] is not None, "who is away is not waited for"


def test_consent_is_not_needed_and_not_used_when_all_are_there():
    action, _ = run(reporting(holding(), holding(), holding()), recovery_request="true")
    assert action.unclean == frozenset()
    assert "not waited for" not in action.reasons[0]


def test_reports_that_the_store_has_from_before_the_backup_are_not_gone_by():
    """Brokers reported, the operator recovered and saw more, and the store went back to the reports: they may be dead."""
    view = topic_view(partitions={0: entry()}, epochs_seen={0: (8, 31)})
    before = reporting(holding(), holding(), holding(leader_epoch=8, partition_epoch=31, end=90))
    for outdated_, recovers in (((), True), ((0,), False), ((0, 1, 2), False), ((2,), True)):
        state = snapshot(view, brokers=before, outdated=frozenset(outdated_))
        assert bool([a for a in plan(state, NOW) if isinstance(a, ChangePartitions)]) == recovers, outdated_
    assert "broker 0 has not reported yet" in ready(snapshot(view, brokers=before, outdated=frozenset({0}))).message


def test_a_report_is_news_once_its_broker_was_heard_and_had_nothing_else_to_say():
    mine, other = (LeaseView(holder=holder, changed_at=NOW + ADOPTION_GRACE_S + 1) for holder in ("inc", "another"))
    early = LeaseView(holder="inc", changed_at=NOW + 1)
    in_time = LeaseView(holder="inc", changed_at=NOW + ADOPTION_GRACE_S)
    later = LeaseView(holder="next", changed_at=NOW + ADOPTION_GRACE_S + 1)
    said = ((None, True), (early, True), (in_time, True), (other, True), (later, True), (mine, False))
    for lease, is_outdated in said:
        assert outdated(incarnation="inc", seen_at=NOW, went_back_at=NOW, lease=lease) == is_outdated
    assert not outdated(incarnation="inc", seen_at=NOW + 1, went_back_at=NOW, lease=None), "written anew"
    assert not outdated(incarnation="inc", seen_at=0.0, went_back_at=float("-inf"), lease=None)


@pytest.mark.parametrize(("epochs", "counts"), [((8, 30), False), ((7, 31), False), ((8, 31), True)])
def test_a_report_of_before_the_backup_counts_if_both_epochs_are_as_high_as_what_was_seen(epochs, counts):
    view = topic_view(partitions={0: entry()}, epochs_seen={0: (8, 31)})
    state = snapshot(view, brokers=reporting(*[holding(*epochs)] * 3), outdated=frozenset({0}))
    assert bool([a for a in plan(state, NOW) if isinstance(a, ChangePartitions)]) == counts


def test_without_any_report_even_consent_cannot_choose():
    assert run(three(), seen={0: (9, 30)}, recovery_request="true")[0] is None
    dead = brokers(*(make_broker(i, fenced=10 + i) for i in range(3)))
    assert run(dead, seen={0: (9, 30)}, recovery_request="true")[0] is None


def test_a_report_of_what_the_store_shows_as_well_changes_nothing():
    old = holding(leader_epoch=4, partition_epoch=8)
    assert run(reporting(old, old, old))[0] is None
    other = holding(topic_id="another")
    assert run(reporting(other, other, other))[0] is None
    assert run(reporting(*(holding(partition=1) for _ in range(3))))[0] is None


@pytest.mark.parametrize(("leader_epoch", "partition_epoch"), [(5, 8), (4, 9), (5, 9), (9, 3)])
def test_both_epochs_have_to_be_above_what_was_reported(leader_epoch, partition_epoch):
    """The entry has epochs 5 and 9: another history may have reached one of them again."""
    report = holding(leader_epoch, partition_epoch, log_epoch=4)
    action, _ = run(reporting(report, report, report))
    after = action.changes[0].proposed
    assert after.leader_epoch > max(5, leader_epoch)
    assert after.partition_epoch > max(9, partition_epoch)


@pytest.mark.parametrize(("leader_epoch", "partition_epoch"), [(5, 9), (5, 8), (4, 3)])
def test_who_was_asked_and_goes_by_the_entry_is_no_reason_to_recover_again(leader_epoch, partition_epoch):
    """The condition may stand long after the recovery while the API server is slow; brokers report as long as it does."""
    agreed = replace(holding(leader_epoch, partition_epoch, log_epoch=4), agrees=True)
    assert run(reporting(agreed, agreed, agreed))[0] is None
    contradicted = replace(agreed, leader_epoch=5, partition_epoch=9, agrees=False)
    action, _ = run(reporting(agreed, contradicted, agreed))
    assert (action.changes[0].proposed.leader_epoch, action.changes[0].proposed.partition_epoch) == (1005, 1009)


@pytest.mark.parametrize(("leader_epoch", "partition_epoch"), [(6, 9), (5, 10), (6, 3)])
def test_who_agreed_with_what_the_store_has_lost_since_is_one(leader_epoch, partition_epoch):
    agreed = replace(holding(leader_epoch, partition_epoch, log_epoch=4), agrees=True)
    assert run(reporting(agreed, agreed, agreed))[0] is not None


def test_one_recovery_for_each_regression():
    """Brokers answer the condition again and again, each time with what the operator wrote last."""
    _, state = run(reporting(holding(), holding(), holding()))
    state = apply(state, [action for action in plan(state, NOW) if isinstance(action, ChangePartitions)])
    written = state.topics["uid-orders"].topic.partitions[0]
    for _ in range(3):
        answer = replace(holding(written.leader_epoch, written.partition_epoch), agrees=True)
        state = replace(state, brokers=reporting(answer, answer, answer))
        again = plan(state, NOW)
        assert not [action for action in again if isinstance(action, ChangePartitions)]
        assert ready(state).reason != "StoreWentBack", "and the condition goes, so that they end"


def test_what_the_controller_itself_has_seen_is_not_forgotten():
    held = holding(leader_epoch=2, partition_epoch=2, log_epoch=2)
    assert run(reporting(held, held, held), seen={0: (5, 9)})[0] is None
    action, _ = run(reporting(held, held, held), seen={0: (8, 40)})
    assert (action.changes[0].proposed.leader_epoch, action.changes[0].proposed.partition_epoch) == (1008, 1040)
    for seen, above in (((8, 9), (1008, 1009)), ((5, 40), (1005, 1040))):
        after = run(reporting(held, held, held), seen={0: seen})[0].changes[0].proposed
        assert (after.leader_epoch, after.partition_epoch) == above, "one of the two is enough"


def test_a_holder_that_is_no_replica_in_this_past_becomes_one():
    moved = reporting(holding(end=10), holding(end=10), holding(end=10)) | {3: make_broker(3, holdings=(holding(),))}
    action, _ = run(moved)
    after = action.changes[0].proposed
    assert (after.replicas, after.isr_ids(), after.leader) == ((0, 1, 2, 3), (3,), 3)
    action, _ = run(moved | {8: make_broker(8, holdings=(holding(),))})
    assert action.changes[0].proposed.replicas == (0, 1, 2, 3, 8)


def test_a_holder_that_is_no_replica_in_this_past_is_waited_for():
    """It died after its report, or the store has the report from before the backup."""
    known = reporting(holding(), holding(), holding())
    dead = {**known, 3: make_broker(3, fenced=13, holdings=(holding(end=500),))}
    action, state = run(dead)
    assert action is None
    assert "broker 3 is fenced" in ready(state).message
    assert run(dead, recovery_request="true")[0].unclean == {0}
    alive = {**known, 3: make_broker(3, holdings=(holding(end=500),))}
    view = topic_view(partitions={0: entry()}, epochs_seen={0: (8, 31)}, recovery_request="true")
    late = snapshot(view, brokers=alive, outdated=frozenset({3}))
    assert not [a for a in plan(late, NOW) if isinstance(a, ChangePartitions)], "it is about to report anew"


def test_who_is_not_waited_for_is_named_in_order():
    known = {**reporting(holding()), **{i: make_broker(i, fenced=10 + i) for i in (1, 8)}}
    action, _ = run(known, partition=entry(replicas=(0, 8, 1)), recovery_request="true")
    assert "brokers [1, 8] were not waited for" in action.reasons[0]


def test_an_empty_disk_reports_and_is_not_chosen():
    empty = holding(leader_epoch=5, partition_epoch=9, log_epoch=-1, end=0)
    action, _ = run(reporting(empty, empty, holding()))
    assert action.changes[0].proposed.isr_ids() == (2,)


@pytest.mark.parametrize(
    ("agree", "isr", "after"),
    [
        ((0, 1), ((0, 10), (1, 11)), (0, 1)),
        ((0, 1), ((0, 10),), (0,)),
        ((0, 1), ((0, 10), (1, 7)), (0,)),
        ((0,), ((0, 10), (1, 11)), (0,)),
        ((1,), ((0, 10), (1, 11)), (0, 1, 2)),
        ((0, 1), ((0, 9), (1, 11)), (0, 1, 2)),
    ],
    ids=[
        "its isr",
        "outside its isr",
        "an earlier incarnation",
        "contradicts",
        "leader contradicts",
        "leader restarted",
    ],
)
def test_a_leader_that_goes_on_keeps_only_those_that_it_waits_for(agree, isr, after):
    """It acknowledges on the strength of the entry's ISR, also after broker 2 has reported the same end."""
    held = [replace(holding(5, 30, 5), agrees=i in agree) for i in range(3)]
    partition = entry(isr=isr)
    action, _ = run(reporting(*held), partition=partition)
    assert action.changes[0].proposed.isr_ids() == after


def test_a_leader_that_goes_on_with_less_than_others_hold_does_not_count():
    held = [replace(holding(5, 30, 5, end=90), agrees=True), holding(5, 30, 5), holding(5, 30, 5)]
    assert run(reporting(*held))[0].changes[0].proposed.isr_ids() == (1, 2)


def test_an_eligible_replica_of_the_past_is_none_any_more():
    partition = replace(entry(isr=((0, 10),), min_isr=2), elr=(IsrEntry(2, 12),))
    action, _ = run(reporting(holding(), holding(end=1), holding(end=1)), partition=partition)
    assert action.changes[0].proposed.elr == ()


def test_members_of_an_isr_that_the_store_has_forgotten_are_waited_for():
    """Broker 2 was one of three before a reassignment to broker 3 alone, which the restored store does not know of."""
    moved = replace(holding(leader_epoch=9, partition_epoch=40, end=259), isr=nameless(3))
    known = reporting(holding(), holding(), moved)
    alive = make_broker(3)
    action, state = run({**known, 3: alive})
    assert action is None
    assert "broker 3 has not reported yet" in ready(state).message
    told = replace(alive, holdings=(replace(moved, log_epoch=9, end_offset=531),))
    action, _ = run({**known, 3: told})
    assert (action.changes[0].proposed.isr_ids(), action.unclean) == ((3,), frozenset())
    gone, _ = run({**known, 3: make_broker(3, fenced=13)})
    assert gone is None, "it may have more, so it takes consent"
    gone, _ = run({**known, 3: make_broker(3, fenced=13)}, recovery_request="True")
    assert gone.unclean == {0}
    # Who was a member in an earlier entry only may be gone for good.
    newer = replace(moved, partition_epoch=41, isr=nameless(0, 1, 2))
    assert run({**reporting(holding(), newer, moved), 3: alive})[0] is not None
    # Nor does a past that somebody was shown say who is one: it has got further than the entry that it contradicts.
    shown = replace(holding(leader_epoch=9, partition_epoch=60, end=259), isr=nameless(0, 1), isr_epoch=39)
    action, state = run({**reporting(shown, holding(), moved), 3: alive})
    assert action is None
    assert "broker 3 has not reported yet" in ready(state).message
    action, _ = run({**reporting(shown, holding(), moved), 3: told})
    assert action.changes[0].proposed.partition_epoch == 1060


def remembering(leader_epoch=9, partition_epoch=40, isr=()):
    """A broker without a replica, which remembers what the store has shown it."""
    told = holding(leader_epoch=leader_epoch, partition_epoch=partition_epoch, log_epoch=-1, end=0)
    return {3: make_broker(3, holdings=(replace(told, hosted=False, isr=nameless(*isr)),))}


def test_who_has_no_replica_tells_of_epochs_and_is_not_chosen():
    agreed = replace(holding(leader_epoch=0, partition_epoch=0, log_epoch=-1, end=0), agrees=True)
    action, state = run(reporting(agreed, agreed, agreed) | remembering())
    after = action.changes[0].proposed
    assert (after.leader_epoch, after.partition_epoch) == (1009, 1040)
    assert (after.replicas, after.isr_ids()) == ((0, 1, 2), (0, 1, 2)), "all logs are empty; there is none of broker 3"
    healed = apply(state, [action])
    assert not [a for a in plan(healed, NOW) if isinstance(a, ChangePartitions)]


def test_who_has_no_replica_names_whom_else_to_wait_for():
    dead = {4: make_broker(4, fenced=14)}
    action, state = run(reporting(holding(), holding(), holding()) | remembering(isr=(0, 4)) | dead)
    assert action is None
    assert "broker 4 is fenced" in ready(state).message


def test_who_has_no_replica_does_not_stand_for_one():
    """It reports before it has heard that it is to have one."""
    moved = entry(replicas=(0, 1, 3))
    action, state = run(reporting(holding(), holding()) | remembering(), partition=moved)
    assert action is None
    assert "broker 3 has not reported yet" in ready(state).message


def test_who_has_no_replica_is_not_waited_for():
    """It is gone, and has said all that it can say."""
    gone = {3: replace(remembering()[3], fenced_epoch=13)}
    assert not gone[3].alive
    action, _ = run(reporting(holding(), holding(), holding()) | gone)
    assert action.changes[0].proposed.leader_epoch == 1009
