from dataclasses import replace

import pytest

from kafkalite_core.controller.election import decide, prefer
from kafkalite_core.model.cluster import BrokerState
from kafkalite_core.model.partition import IsrEntry
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


def test_relaxed_flush_looks_at_clean_since():  # S2
    view = brokers(make_broker(0, 20, clean=20), make_broker(1, fenced=11), make_broker(2, fenced=12))
    only = entry(isr=((0, 10),))
    assert run(only, view)[0].leader == 0
    assert run(only, view, relaxed=True)[0].leader == -1


@pytest.mark.parametrize("state", [BrokerState.RECOVERING, BrokerState.CATCHING_UP, BrokerState.SHUTTING_DOWN])
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
