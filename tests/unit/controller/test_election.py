from dataclasses import replace

import pytest

from kafkalite_core.controller.election import decide, prefer
from kafkalite_core.model.cluster import Adopted, BrokerState
from kafkalite_core.model.partition import IsrEntry, PartitionChange
from tests.unit.controller.builders import brokers, entry, make_broker, three


def run(partition, view, *, relaxed=False, unclean=False, min_isr=1):
    verdict = decide(partition, view, relaxed_flush=relaxed, unclean_allowed=unclean, min_isr=min_isr)
    return (verdict.change.proposed if verdict.change else None), verdict


def test_a_valid_leader_is_kept():
    assert run(entry(), three())[0] is None


def test_a_fenced_follower_leaves_the_isr_without_an_election():
    after, verdict = run(entry(), three() | {2: make_broker(2, fenced=12)})
    assert after.isr_ids() == (0, 1)
    assert (after.leader, after.leader_epoch, after.partition_epoch) == (0, 5, 10)
    assert verdict.reason == "removed from the ISR: broker 2 is fenced"


def test_the_first_live_member_in_replica_order_is_elected():
    after, verdict = run(entry(replicas=(0, 2, 1)), three() | {0: make_broker(0, fenced=10)})
    assert (after.leader, after.leader_epoch, after.partition_epoch) == (2, 6, 10)
    assert after.isr == (IsrEntry(1, 11), IsrEntry(2, 12))
    assert verdict.elected


def test_a_live_replica_outside_the_isr_is_never_elected():
    after, verdict = run(entry(isr=((0, 10),)), three() | {0: make_broker(0, fenced=10)})
    assert after.leader == -1
    assert after.isr == (IsrEntry(0, 10),), "the last member stays"
    assert after.leader_epoch == 6
    assert "broker 0 is fenced" in verdict.reason


def test_without_a_candidate_every_counting_member_stays():
    dead = brokers(make_broker(0, fenced=10), make_broker(1, fenced=11), make_broker(2, fenced=12))
    after, _ = run(entry(), dead)
    assert after.leader == -1
    assert after.isr == entry().isr
    assert run(after, dead)[0] is None, "and nothing more is written"


def test_offline_partition_is_led_again_by_whoever_returns_first():
    offline = entry(leader=-1)
    after, _ = run(offline, brokers(make_broker(0, fenced=10), make_broker(1, fenced=11), make_broker(2, 22)))
    assert (after.leader, after.leader_epoch, after.isr) == (2, 6, (IsrEntry(2, 22),))


def test_a_restarted_leader_needs_an_election_that_names_its_epoch():  # S1
    after, verdict = run(entry(isr=((0, 10),), replicas=(0,)), brokers(make_broker(0, 20)))
    assert (after.leader, after.leader_epoch, after.isr) == (0, 6, (IsrEntry(0, 20),))
    assert "restarted" in verdict.reason


def test_after_a_full_restart_all_pairs_are_refreshed():  # S2
    after, _ = run(entry(), brokers(*(make_broker(i, 20 + i) for i in range(3))))
    assert after.isr == (IsrEntry(0, 20), IsrEntry(1, 21), IsrEntry(2, 22))
    assert after.leader_epoch == 6


def test_an_empty_disk_is_no_candidate():  # S2, R9
    after, verdict = run(
        entry(isr=((0, 10), (1, 11))),
        brokers(make_broker(0, fenced=10), make_broker(1, 21, trusted=21), make_broker(2)),
    )
    assert after.leader == -1
    assert after.isr == (IsrEntry(0, 10),)
    _, verdict = run(
        entry(isr=((1, 11),), leader=1), brokers(make_broker(1, 21, trusted=21), make_broker(0), make_broker(2))
    )
    assert "came back without its data" in verdict.reason
    assert verdict.change.proposed.isr == (IsrEntry(1, 11),), "never empty, even if nobody counts"


def adopting(broker_id, epoch, *former):
    """A live broker whose object was lost, and whose directory remembers (broker epoch, trustedSince, cleanSince)."""
    broker = make_broker(broker_id, epoch, trusted=epoch, clean=epoch)
    found = tuple(Adopted(broker_epoch=last, trusted_since=since, clean_since=clean) for last, since, clean in former)
    return replace(broker, registration=replace(broker.registration, adopted=found))


def test_brokers_that_are_not_registered_keep_their_places_until_they_are():  # decision 011
    """All `KafkaLiteBroker`s were lost: each comes back in its own time, and is judged by its disk then."""
    before = replace(entry(isr=((0, 10), (1, 11)), min_isr=3), elr=(IsrEntry(2, 12),))
    after, verdict = run(before, {}, min_isr=3)
    assert (after.leader, after.isr, after.elr) == (-1, before.isr, before.elr)
    assert "broker 0 is not registered" in verdict.reason
    after, _ = run(after, brokers(make_broker(0, 20, trusted=20)), min_isr=3)
    assert (after.leader, after.isr_ids(), after.elr_ids()) == (-1, (1,), (2,)), "0 came back without its data"
    after, _ = run(after, brokers(make_broker(0, 20, trusted=20), adopting(2, 22, (12, 1, 1))), min_isr=3)
    assert (after.leader, after.isr, after.elr_ids()) == (2, (IsrEntry(2, 22),), (1,))


def test_a_member_whose_directory_remembers_the_epoch_leads_again_without_consent():
    after, verdict = run(entry(), brokers(adopting(1, 21, (11, 3, 3))))
    assert (after.leader, after.isr, after.leader_epoch, verdict.unclean) == (1, (IsrEntry(1, 21),), 6, False)


@pytest.mark.parametrize(
    ("former", "relaxed"), [((10, 1, 1), False), ((15, 12, 12), False), ((15, 1, 16), True), (None, False)]
)
def test_one_that_does_not_remember_it_waits_for_consent(former, relaxed):
    """Registered last below the entry's epoch (an older disk), trusted above it, not closed in order, or nothing known."""
    only = entry(isr=((1, 11),), leader=1)
    view = brokers(make_broker(0), adopting(1, 21, *([former] if former else [])), make_broker(2))
    assert run(only, view, relaxed=relaxed)[0].leader == -1
    assert run(only, view, relaxed=relaxed, unclean=True)[1].unclean


def test_relaxed_flush_looks_at_clean_since():  # S2
    view = brokers(make_broker(0, 20, clean=20), make_broker(1, fenced=11), make_broker(2, fenced=12))
    only = entry(isr=((0, 10),))
    assert run(only, view)[0].leader == 0
    assert run(only, view, relaxed=True)[0].leader == -1


@pytest.mark.parametrize("state", [BrokerState.CATCHING_UP, BrokerState.SHUTTING_DOWN])
def test_a_broker_that_does_not_run_neither_leads_nor_stays(state):
    after, _ = run(entry(), three() | {0: make_broker(0, state=state)})
    assert (after.leader, after.isr_ids()) == (1, (1, 2))


def test_unclean_election_only_when_allowed():
    lost = brokers(make_broker(0, fenced=10), make_broker(1), make_broker(2))
    only = entry(isr=((0, 10),), replicas=(0, 2, 1))
    assert run(only, lost)[0].leader == -1
    after, verdict = run(only, lost, unclean=True)
    assert (after.leader, after.isr, verdict.unclean) == (2, (IsrEntry(2, 12),), True)
    assert "may lack acknowledged records" in verdict.reason


def test_unclean_is_not_used_while_a_clean_candidate_lives():
    _, verdict = run(entry(), three() | {0: make_broker(0, fenced=10)}, unclean=True)
    assert not verdict.unclean


def test_min_isr_changes_in_the_entry():  # S4
    after, _ = run(entry(), three(), min_isr=2)
    assert (after.min_isr, after.leader_epoch, after.partition_epoch) == (2, 5, 10)


def test_an_unregistered_broker_counts_as_dead():
    after, _ = run(entry(), {1: make_broker(1)})
    assert (after.leader, after.isr_ids()) == (1, (1,))


def test_preferred_leader_takes_over_only_in_sync():
    moved = entry(leader=1)
    change = prefer(moved, three()).change.proposed
    assert (change.leader, change.leader_epoch, change.isr) == (0, 6, moved.isr)
    assert prefer(entry(leader=1, isr=((1, 11), (2, 12))), three()).change is None
    assert prefer(moved, three() | {0: make_broker(0, 20)}).change is None, "its pair names an older incarnation"
    assert prefer(entry(), three()).change is None
    assert prefer(replace(moved, leader=-1), three()).change is None


# ---------------------------------------------------------------- eligible leader replicas (R10, KIP-966)


def eligible(*members, **more):
    return replace(entry(min_isr=2, **more), elr=tuple(IsrEntry(i, e) for i, e in members))


def test_members_that_leave_below_min_isr_stay_eligible():
    view = three() | {1: make_broker(1, fenced=11), 2: make_broker(2, fenced=12)}
    after, verdict = run(entry(min_isr=2), view, min_isr=2)
    assert (after.isr, after.elr) == ((IsrEntry(0, 10),), (IsrEntry(1, 11), IsrEntry(2, 12)))
    assert "eligible to lead: 1, 2" in verdict.reason
    assert run(after, view, min_isr=2)[0] is None


def test_above_min_isr_nobody_is_eligible():
    after, _ = run(entry(min_isr=2), three() | {2: make_broker(2, fenced=12)}, min_isr=2)
    assert (after.isr_ids(), after.elr) == ((0, 1), ())


def test_a_dead_leader_below_min_isr_is_eligible_and_so_is_who_was_before():
    view = three() | {0: make_broker(0, fenced=10), 2: make_broker(2, fenced=12)}
    after, _ = run(eligible((2, 12), isr=((0, 10), (1, 11))), view, min_isr=3)
    assert (after.leader, after.isr_ids(), after.elr) == (1, (1,), (IsrEntry(2, 12), IsrEntry(0, 10)))


def test_an_eligible_replica_is_elected_when_no_member_of_the_isr_lives():
    view = three() | {0: make_broker(0, fenced=10), 2: make_broker(2, 22)}
    after, verdict = run(eligible((1, 11), (2, 12), isr=((0, 10),), replicas=(0, 2, 1)), view, min_isr=2)
    assert (after.leader, after.leader_epoch, after.isr) == (2, 6, (IsrEntry(2, 22),)), "one, with its present epoch"
    assert after.elr == (IsrEntry(1, 11), IsrEntry(0, 10))
    assert (verdict.elected, verdict.unclean) == (True, False)
    assert "it holds every committed record" in verdict.reason


def test_a_live_member_of_the_isr_goes_before_an_eligible_replica():
    after, _ = run(eligible((1, 11), isr=((2, 12),), leader=-1, replicas=(0, 1, 2)), three(), min_isr=2)
    assert after.leader == 2


@pytest.mark.parametrize("epoch", [9, 99])
def test_an_eligible_replica_whose_entry_does_not_count_is_not_elected(epoch):  # S2
    view = three() | {0: make_broker(0, fenced=10), 1: make_broker(1, 11, trusted=10)}
    after, verdict = run(eligible((1, epoch), isr=((0, 10),)), view, min_isr=2)
    assert (after.leader, after.isr_ids(), after.elr) == (-1, (0,), ())
    assert "broker 1 came back without its data" in verdict.reason


def test_relaxed_flush_takes_an_unclean_restart_for_a_loss_of_eligibility():  # S2, KAFKA-18106
    view = three() | {0: make_broker(0, fenced=10), 1: make_broker(1, 21, clean=21)}
    only = eligible((1, 11), isr=((0, 10),))
    assert run(only, view, min_isr=2)[0].leader == 1
    assert run(only, view, min_isr=2, relaxed=True)[0].leader == -1


def test_nobody_lives_and_the_eligible_wait_with_the_isr():
    dead = brokers(make_broker(0, fenced=10), make_broker(1, fenced=11), make_broker(2))
    after, _ = run(eligible((1, 11), isr=((0, 10),)), dead, min_isr=2)
    assert (after.leader, after.isr_ids(), after.elr_ids()) == (-1, (0,), (1,))
    assert run(after, dead, min_isr=2)[0] is None
    assert run(after, dead, min_isr=1)[0].elr_ids() == (1,), "without a leader nothing is committed (KAFKA-16540)"


def test_a_lower_min_isr_empties_the_elr_in_the_same_change():  # S4, KAFKA-16540
    after, _ = run(eligible((1, 11), isr=((0, 10),)), three(), min_isr=1)
    assert (after.min_isr, after.elr, after.leader_epoch) == (1, (), 5)


def test_a_higher_min_isr_makes_nobody_eligible():
    after, _ = run(entry(min_isr=1, isr=((0, 10),)), three(), min_isr=3)
    assert (after.min_isr, after.elr) == (3, ())


def test_a_clean_election_from_the_elr_goes_before_an_unclean_one_which_empties_it():
    view = three() | {0: make_broker(0, fenced=10)}
    after, verdict = run(eligible((2, 12), isr=((0, 10),)), view, min_isr=2, unclean=True)
    assert (after.leader, verdict.unclean, after.recovering) == (2, False, False)
    view = view | {2: make_broker(2, fenced=12)}
    after, verdict = run(eligible((2, 12), isr=((0, 10),)), view, min_isr=2, unclean=True)
    assert (after.leader, after.isr_ids(), after.elr, after.recovering) == (1, (1,), (), True)
    assert verdict.unclean


def test_recovery_goes_on_in_whoever_leads_next():  # KIP-704
    recovering = replace(entry(isr=((1, 11),), leader=1, min_isr=2), recovering=True)
    after, _ = run(recovering, three() | {1: make_broker(1, 31)}, min_isr=2)
    assert (after.leader, after.isr, after.recovering) == (1, (IsrEntry(1, 31),), True)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"elr": (IsrEntry(7, 7),)}, "subset of the replicas"),
        ({"elr": (IsrEntry(0, 10),)}, "in the ISR or in the ELR"),
        ({"isr": (IsrEntry(0, 10),), "elr": (IsrEntry(1, 12),)}, "having been in sync"),
        ({"recovering": True}, "alone"),
        ({"isr": (IsrEntry(0, 10),), "recovering": True}, "begins elected"),
    ],
)
def test_changes_that_the_fences_refuse_are_not_made(changes, why):
    with pytest.raises(AssertionError, match=why):
        PartitionChange(entry(), replace(entry(partition_epoch=10), **changes))
