from dataclasses import replace

from kafkalite_core.model.partition import IsrEntry, Partition
from kafkalite_core.replica import events
from kafkalite_core.replica.events import CasOutcome, ProposalAnswered, ProposePartition
from kafkalite_core.replica.isr import BACK_OFF_MAX_MS, BACK_OFF_MIN_MS, IsrChanges, back_off_ms, may_join, wanted_isr
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
    leader._followers.ensure(2, 4, 0.0).fetched_at(1, 1, cluster.now)
    assert may_join(state, leader._followers, 2, 4, leader.epoch_start)
    assert not may_join(state, leader._followers, 2, 2, leader.epoch_start), "an old incarnation never joins"
    wanted, why = wanted_isr(state, leader._followers, cluster.store.partition, 0, cluster.now + 5000)
    assert wanted == (IsrEntry(1, 1), IsrEntry(2, 4))
    assert "epoch 4 in the place of 2" in why
    assert "broker 3 lags" in why


def test_a_broker_that_is_not_known_neither_joins_nor_is_taken_for_wiped() -> None:
    cluster = Cluster(3, isr=2)
    cluster.metadata(1)
    state, leader = cluster.nodes[1].replica._state, cluster.nodes[1].replica._leader
    state.brokers = {}
    leader._followers.ensure(3, 3, 0.0).fetched_at(0, 0, cluster.now)
    assert not may_join(state, leader._followers, 3, 3, 0)
    assert (
        wanted_isr(state, leader._followers, cluster.store.partition, 0, cluster.now)[0] == cluster.store.partition.isr
    )
