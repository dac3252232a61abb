from dataclasses import replace

import pytest

from kafkalite_core.model.partition import IsrEntry, Partition
from kafkalite_core.replica import events
from kafkalite_core.replica.events import CasOutcome, ProposalAnswered, ProposePartition
from kafkalite_core.replica.isr import (
    ADDITIONS_PAUSE_MS,
    BACK_OFF_MAX_MS,
    BACK_OFF_MIN_MS,
    IsrChanges,
    back_off_ms,
    may_join,
    wanted_isr,
)
from tests.scripted.cluster import Cluster

OUT, IN = IsrEntry(3, 3), IsrEntry(2, 2)
BEFORE = Partition(
    leader=1, leader_epoch=1, partition_epoch=4, min_isr=1, replicas=(1, 2, 3), isr=(IsrEntry(1, 1), OUT)
)
AFTER = replace(BEFORE, partition_epoch=5, isr=(IsrEntry(1, 1), IN))
BUMP = replace(BEFORE, partition_epoch=5)


def changes() -> IsrChanges:
    made = IsrChanges(Cluster(3).nodes[1].replica._state)
    made.propose(BEFORE, AFTER, "test")
    return made


def proposals(made: IsrChanges) -> list[ProposePartition]:
    return [effect for effect in made._state.effects if isinstance(effect, ProposePartition)]


def answer(made: IsrChanges, outcome: CasOutcome, proposal_id: int = 1, now_ms: float = 0.0) -> Partition | None:
    return made.answered(now_ms, ProposalAnswered(proposal_id=proposal_id, outcome=outcome))


def test_the_union_is_in_force_while_pending() -> None:
    assert set(changes().maximal_isr(BEFORE)) == {IsrEntry(1, 1), OUT, IN}


def test_applied_yields_the_proposal_and_settles() -> None:
    made = changes()
    committed = answer(made, CasOutcome.APPLIED)
    assert committed == AFTER
    made.committed(AFTER)
    assert made.pending is None
    assert made.maximal_isr(AFTER) == AFTER.isr
    assert events.IsrChanged(shrunk=(3,), expanded=(2,)) in made._state.effects


def test_a_read_of_the_same_epoch_settles_nothing() -> None:
    made = changes()
    answer(made, CasOutcome.UNKNOWN)
    made.committed(BEFORE)
    assert set(made.maximal_isr(BEFORE)) == {IsrEntry(1, 1), OUT, IN}


def test_an_unknown_outcome_is_settled_by_the_same_patch() -> None:
    made = changes()
    answer(made, CasOutcome.UNKNOWN, now_ms=0.0)
    made.retry(BACK_OFF_MIN_MS - 1, AFTER)
    assert len(proposals(made)) == 1
    made.retry(BACK_OFF_MIN_MS, AFTER)
    assert proposals(made)[1] == proposals(made)[0]
    assert made.pending is not None


def test_or_by_a_raise_of_the_epoch_when_it_is_not_wanted_any_more() -> None:
    made = changes()
    answer(made, CasOutcome.UNKNOWN)
    made.retry(1000.0, BEFORE)
    bump = proposals(made)[1]
    assert (bump.expected, bump.proposed) == (BEFORE, BUMP)
    assert bump.proposal_id != 1
    assert set(made.maximal_isr(BEFORE)) == {IsrEntry(1, 1), OUT, IN}
    # The first attempt may be the one that was applied, even now.
    assert answer(made, CasOutcome.APPLIED, proposal_id=1) == AFTER


def test_a_refused_patch_is_not_repeated_but_settled() -> None:
    made = changes()
    answer(made, CasOutcome.REJECTED)
    assert IN in made.maximal_isr(BEFORE), "an earlier attempt of the driver may have been applied"
    made.retry(1000.0, AFTER)
    assert proposals(made)[1].proposed == BUMP
    made.committed(BUMP)
    assert made.pending is None


def test_what_was_never_attempted_is_dropped() -> None:
    made = changes()
    answer(made, CasOutcome.NOT_ATTEMPTED, now_ms=50.0)
    assert made.pending is None
    assert made.blocked_until_ms == 50.0 + BACK_OFF_MIN_MS


def test_unless_another_attempt_was_not_certain() -> None:
    made = changes()
    answer(made, CasOutcome.UNKNOWN)
    made.retry(1000.0, AFTER)
    answer(made, CasOutcome.NOT_ATTEMPTED)
    assert made.pending is not None


def test_an_answer_to_something_settled_only_tells_what_it_saw() -> None:
    made = changes()
    made.committed(AFTER)
    assert answer(made, CasOutcome.APPLIED) is None
    assert made.pending is None


def test_back_off_doubles_up_to_its_bound() -> None:
    assert [back_off_ms(failures) for failures in (1, 2, 3)] == [
        BACK_OFF_MIN_MS,
        2 * BACK_OFF_MIN_MS,
        4 * BACK_OFF_MIN_MS,
    ]
    assert back_off_ms(1000) == BACK_OFF_MAX_MS


def test_one_change_replaces_a_stale_pair_drops_one_that_lags_and_keeps_the_leader() -> None:
    cluster = Cluster(3)
    for number in (1, 2, 3):
        cluster.metadata(number)
    cluster.produce(1, "a", 1)
    cluster.flush(1)
    cluster.crash(2)
    cluster.restart(2)
    cluster.metadata(1)
    leader = cluster.nodes[1].replica._leader
    state = cluster.nodes[1].replica._state
    cluster.now += 5000
    leader._followers.ensure(2, 4, 0.0).fetched_at(1, 1, cluster.now)
    start = leader.epoch_start
    assert may_join(state, leader._followers, 2, 4, start, cluster.now)
    assert not may_join(state, leader._followers, 2, 2, start, cluster.now), "an old incarnation never joins"
    wanted, why = wanted_isr(state, leader._followers, cluster.store.partition, 0, cluster.now)
    assert wanted == (IsrEntry(1, 1), IsrEntry(2, 4))
    assert "epoch 4 in the place of 2" in why
    assert "broker 3 lags" in why


def test_a_broker_that_is_not_known_neither_joins_nor_is_taken_for_wiped() -> None:
    cluster = Cluster(3, isr=2)
    cluster.metadata(1)
    state, leader = cluster.nodes[1].replica._state, cluster.nodes[1].replica._leader
    state.brokers = {}
    leader._followers.ensure(3, 3, 0.0).fetched_at(0, 0, cluster.now)
    assert not may_join(state, leader._followers, 3, 3, 0, cluster.now)
    assert (
        wanted_isr(state, leader._followers, cluster.store.partition, 0, cluster.now)[0] == cluster.store.partition.isr
    )


def test_one_that_fell_silent_does_not_join_although_it_has_all_that_is_committed() -> None:
    cluster = Cluster(3, isr=2)
    cluster.metadata(1)
    state, leader = cluster.nodes[1].replica._state, cluster.nodes[1].replica._leader
    leader._followers.ensure(3, 3, 0.0).fetched_at(0, 0, cluster.now)
    assert may_join(state, leader._followers, 3, 3, 0, cluster.now + cluster.LAG_MS)
    assert not may_join(state, leader._followers, 3, 3, 0, cluster.now + cluster.LAG_MS + 1)


# ---------------------------------------------------------------- eligible leader replicas (R10, KIP-966)

ONE, TWO, THREE = (IsrEntry(number, number) for number in (1, 2, 3))


def leading(*, fenced: int = 0, **entry: object) -> Cluster:
    """Broker 1 leads with that entry; records a and b are on its disk, a on the others'."""
    cluster = Cluster(3)
    for number in (1, 2, 3):
        cluster.metadata(number)
    cluster.produce(1, "a")
    cluster.flush(1)
    for number in (2, 3):
        for _ in range(2):
            cluster.step(number, cluster.ask(number, 1)[1])
            cluster.flush(number)
    assert cluster.nodes[1].replica.high_watermark == 1
    cluster.produce(1, "b")
    cluster.flush(1)
    cluster.proposals.clear()
    cluster.store.put(replace(cluster.store.partition, partition_epoch=7, **entry))
    if fenced:
        cluster.fence(fenced)
    cluster.nodes[1].replica._state.partition = None  # nobody was taken out just now
    cluster.metadata(1)
    return cluster


def test_an_eligible_replica_holds_the_high_watermark_back_until_a_change_has_removed_it() -> None:
    cluster = leading(isr=(ONE, TWO), elr=(THREE,))
    cluster.step(2, cluster.ask(2, 1)[1])
    cluster.flush(2)
    cluster.ask(2, 1)
    assert cluster.nodes[2].log.end_offset == 2
    assert cluster.nodes[1].replica.high_watermark == 1, "broker 3 may be elected without b"
    proposed = cluster.proposals[0].effect.proposed
    assert (proposed.isr, proposed.elr) == ((ONE, TWO, THREE), ())
    cluster.step(3, cluster.ask(3, 1)[1])
    cluster.flush(3)
    cluster.ask(3, 1)
    assert cluster.nodes[1].replica.high_watermark == 2, "now broker 3 has it as well"
    cluster.store.swap(cluster.store.uid, cluster.store.partition, proposed)
    cluster.answer_proposal(cluster.proposals[0], CasOutcome.APPLIED)
    assert cluster.nodes[1].replica.partition == proposed


def test_an_eligible_replica_joins_with_its_next_fetch_and_not_before_it_fetched() -> None:
    cluster = leading(isr=(ONE,), elr=(TWO, THREE))
    assert [proposal.effect.proposed.isr for proposal in cluster.proposals] == [(ONE, TWO, THREE)]
    cluster.answer_proposal(cluster.proposals.pop(), CasOutcome.NOT_ATTEMPTED)
    cluster.elect(1)
    cluster.metadata(1)
    cluster.metadata(3)
    cluster.now += 100  # the back-off of the refused proposal
    assert cluster.proposals == []
    cluster.ask(3, 1)
    assert [proposal.effect.proposed.isr for proposal in cluster.proposals] == []
    cluster.step(3, cluster.ask(3, 1)[1])
    cluster.flush(3)
    cluster.ask(3, 1)
    assert [proposal.effect.proposed.isr for proposal in cluster.proposals] == [(ONE, THREE)]
    assert cluster.proposals[0].effect.proposed.elr == ()


def test_only_members_that_lost_nothing_become_eligible() -> None:
    cluster = leading(isr=(ONE, TWO, THREE))
    cluster.crash(3)
    cluster.restart(3, wiped=True)
    cluster.metadata(1)
    cluster.now += cluster.LAG_MS + 1
    cluster.proposals.clear()
    cluster.nodes[1].replica._changes.pending = None
    cluster.step(1, events.Tick())
    proposed = cluster.proposals[0].effect.proposed
    assert (proposed.isr, proposed.elr) == ((ONE,), (TWO,))


def test_members_whose_registrations_are_gone_stay_eligible() -> None:  # decision 011
    """The cluster was deleted, this leader has not ended yet: the others may come back with their disks."""
    cluster = leading(isr=(ONE, TWO, THREE))
    cluster.store.brokers = {1: cluster.store.brokers[1]}
    cluster.now += cluster.LAG_MS + 1
    cluster.proposals.clear()
    cluster.nodes[1].replica._changes.pending = None
    cluster.metadata(1)
    cluster.step(1, events.Tick())
    proposed = cluster.proposals[0].effect.proposed
    assert (proposed.isr, proposed.elr) == ((ONE,), (TWO, THREE))
    assert cluster.nodes[1].replica.high_watermark == 1, "and nothing is committed without them"


def test_an_eligible_replica_that_is_away_holds_the_high_watermark_back_as_well() -> None:
    cluster = leading(fenced=3, isr=(ONE, TWO), elr=(THREE,))
    cluster.step(2, cluster.ask(2, 1)[1])
    cluster.flush(2)
    cluster.ask(2, 1)
    assert cluster.nodes[1].replica.high_watermark == 1, "it may come back and be elected without b"


def test_a_leader_that_leaves_below_min_isr_stays_eligible() -> None:
    cluster = leading(isr=(ONE, TWO))
    cluster.proposals.clear()
    cluster.nodes[1].replica._changes.pending = None
    cluster.step(1, events.HandOver(reason="shutdown"))
    proposed = cluster.proposals[0].effect.proposed
    assert (proposed.leader, proposed.isr, proposed.elr) == (2, (TWO,), (ONE,))


@pytest.mark.parametrize(("known", "successor"), [(False, 2), (True, 3)])
def test_who_restarted_uncleanly_does_not_take_over_while_what_was_acknowledged_may_not_be_on_disk(
    known: bool, successor: int
) -> None:  # S4: the configuration is strict again, and the operator's condition not yet
    cluster = leading(isr=(ONE, TWO, THREE))
    broker = cluster.store.brokers[2]
    restarted = replace(broker, registration=replace(broker.registration, broker_epoch=9, clean_since=9))
    cluster.store.brokers = {**cluster.store.brokers, 2: restarted}
    cluster.flush_lag_known = known
    cluster.metadata(1)
    cluster.proposals.clear()
    cluster.nodes[1].replica._changes.pending = None
    cluster.step(1, events.HandOver(reason="shutdown"))
    assert cluster.proposals[0].effect.proposed.leader == successor


def test_the_leader_that_was_elected_uncleanly_confirms_it_at_once() -> None:
    cluster = leading()
    cluster.elect(1, [1], unclean=True)
    cluster.metadata(1)
    proposed = cluster.proposals[0].effect.proposed
    assert (proposed.recovering, proposed.isr, proposed.leader_epoch) == (False, (ONE,), 2)
    cluster.store.swap(cluster.store.uid, cluster.store.partition, proposed)
    cluster.answer_proposal(cluster.proposals.pop(), CasOutcome.APPLIED)
    assert cluster.proposals == []


# ---------------------------------------------------------------- replica.lag.max.messages


def test_a_member_that_is_behind_by_too_many_records_leaves_whatever_the_time() -> None:
    cluster = leading()
    replica = cluster.nodes[1].replica
    for _ in range(3):
        cluster.produce(1, "x", 1)
    cluster.flush(1)
    cluster.ask(3, 1)
    cluster.step(1, events.Tick())
    assert cluster.proposals == [], "without the limit only time counts"
    replica.reconfigure(lag_time_max_ms=cluster.LAG_MS, lag_max_messages=4)
    cluster.step(1, events.Tick())
    assert cluster.proposals == [], "four records behind"
    replica.reconfigure(lag_time_max_ms=cluster.LAG_MS, lag_max_messages=3)
    cluster.step(1, events.Tick())
    proposal = cluster.proposals.pop().effect
    assert proposal.proposed.isr == (ONE,)
    assert "broker 3 lags by more than 3 records" in proposal.reason


def test_and_joins_when_it_is_within_the_limit() -> None:
    cluster = leading(isr=(ONE, TWO), min_isr=1)
    replica = cluster.nodes[1].replica
    replica.reconfigure(lag_time_max_ms=cluster.LAG_MS, lag_max_messages=1)
    cluster.answer_proposal(cluster.proposals.pop(), CasOutcome.NOT_ATTEMPTED)
    cluster.now += 200
    cluster.produce(1, "x", 1)
    cluster.flush(1)
    cluster.step(1, events.Tick())
    assert [proposal.effect.proposed.isr for proposal in cluster.proposals] == [(ONE,)], "two behind: 2 goes"
    cluster.answer_proposal(cluster.proposals.pop(), CasOutcome.NOT_ATTEMPTED)
    replica.reconfigure(lag_time_max_ms=cluster.LAG_MS, lag_max_messages=2)
    cluster.now += 200
    cluster.ask(3, 1)
    assert [proposal.effect.proposed.isr for proposal in cluster.proposals] == [(ONE, TWO, THREE)]


def test_an_election_throws_nobody_out_before_it_has_fetched() -> None:
    cluster = leading()
    replica = cluster.nodes[1].replica
    replica.reconfigure(lag_time_max_ms=cluster.LAG_MS, lag_max_messages=1)
    cluster.elect(1)
    cluster.metadata(1)
    cluster.step(1, events.Tick())
    assert cluster.proposals == []


def test_who_was_taken_out_by_the_controller_is_not_put_back_at_once() -> None:
    """Its view of the brokers may be behind the controller's: they would undo each other's changes without end."""
    cluster = Cluster(3)
    for number in (1, 2, 3):
        cluster.metadata(number)
    leader = cluster.nodes[1].replica._leader
    before = cluster.store.partition
    without = replace(before, partition_epoch=before.partition_epoch + 1, isr=before.isr[:2])
    started_ms = cluster.now
    cluster.metadata(1, without)

    def proposed(now_ms: float) -> list[ProposePartition]:
        cluster.now = now_ms
        for number in (2, 3):
            leader._followers.ensure(number, number, 0.0).fetched_at(0, 0, now_ms)
        return [effect for effect in cluster.step(1, events.Tick()) if isinstance(effect, ProposePartition)]

    assert proposed(started_ms + 1.0) == []
    assert proposed(started_ms + ADDITIONS_PAUSE_MS - 1.0) == []
    assert set(proposed(started_ms + ADDITIONS_PAUSE_MS)[0].proposed.isr) == set(before.isr)


def test_meanwhile_a_stale_pair_stays_and_one_that_lags_leaves() -> None:
    cluster = Cluster(3)
    for number in (1, 2, 3):
        cluster.metadata(number)
    cluster.crash(2)
    cluster.restart(2)
    cluster.metadata(1)
    state, leader = cluster.nodes[1].replica._state, cluster.nodes[1].replica._leader
    cluster.now += 5000
    leader._followers.ensure(2, 4, 0.0).fetched_at(0, 0, cluster.now)
    wanted, _ = wanted_isr(state, leader._followers, cluster.store.partition, 0, cluster.now, may_add=False)
    assert wanted == (IsrEntry(1, 1), IsrEntry(2, 2))


def test_what_the_leader_took_out_itself_blocks_nothing() -> None:
    made = changes()
    made.followed(7.0, BEFORE, AFTER)
    assert made.additions_blocked_until_ms == 0.0
    made.followed(7.0, AFTER, replace(AFTER, partition_epoch=6, isr=AFTER.isr[:1]))
    assert made.additions_blocked_until_ms == 7.0 + ADDITIONS_PAUSE_MS
