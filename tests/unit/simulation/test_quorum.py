"""Nobody may be elected for whom the leader does not wait: a lie for each side, the store and the leader."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafkalite_core.model.partition import IsrEntry
from kafkalite_core.replica.events import CasOutcome, MetadataChanged, ProposalAnswered
from kafkalite_core.replica.isr import IsrChanges
from tests.simulation import run
from tests.simulation.driver import Driver
from tests.simulation.partitions import Partitions
from tests.simulation.world import Violation


def fires(name: str):
    return pytest.raises(Violation, match=name)


def seen(driver) -> MetadataChanged:
    """What a driver knows, once more."""
    broker = driver.partitions.broker
    return MetadataChanged(
        partition=driver.replica.partition, brokers=broker.cache.brokers, broker_epoch=broker.broker_epoch,
        config=driver.config,
    )  # fmt: skip


@pytest.mark.parametrize("where", ["isr", "elr"])
def test_a_member_that_the_leader_does_not_wait_for(ledger, where) -> None:
    wider = replace(ledger.entry, **{where: (*getattr(ledger.entry, where), IsrEntry(9, 9))})
    with fires("quorum superset"):
        ledger.oracles.superset.stored(ledger, wider)


def test_an_earlier_incarnation_stands_for_a_member_while_its_entry_counts(healthy, ledger, monkeypatch) -> None:
    """An operator names the present epochs of who restarted, and the leader has not heard of it."""
    other = next(each for each in ledger.entry.isr if each.id != ledger.entry.leader)
    present = IsrEntry(other.id, other.epoch + 5)
    renamed = replace(ledger.entry, isr=tuple(present if each is other else each for each in ledger.entry.isr))
    broker = healthy.oracles.brokers[other.id]
    for since, told in ((0, True), (present.epoch, False)):
        again = replace(broker.registration, broker_epoch=present.epoch, trusted_since=since)
        monkeypatch.setattr(
            healthy.oracles, "brokers", {**healthy.oracles.brokers, other.id: replace(broker, registration=again)}
        )
        if told:
            ledger.oracles.superset.stored(ledger, renamed)
        else:  # its disk was lost in between
            with fires("quorum superset"):
                ledger.oracles.superset.stored(ledger, renamed)


def test_a_leader_that_drops_a_member_whose_patch_has_landed(ledger, leader, monkeypatch) -> None:
    """Its own step breaks it: the store's entry does not change any more."""
    state = leader.replica._leader
    lost = ProposalAnswered(proposal_id=77, outcome=CasOutcome.UNKNOWN, observed=None)
    leader.step(lost)
    monkeypatch.setattr(state, "_members", state._members[1:])
    monkeypatch.setattr(type(state), "refresh", lambda _self, _now_ms, _partition: None)
    with fires("quorum superset"):
        leader.step(lost)
    with fires("quorum superset"):
        leader.metadata_changed(seen(leader))
    monkeypatch.setattr(ledger, "entry", replace(ledger.entry, leader_epoch=ledger.entry.leader_epoch + 1))
    leader.step(lost)  # the store has another leader by now


def drop_unknown(monkeypatch) -> None:
    """M07: a compare-and-swap without answer is taken for not applied."""
    answered = IsrChanges.answered

    def taken(self: IsrChanges, now_ms: float, event: ProposalAnswered):
        found = answered(self, now_ms, event)
        if event.outcome is CasOutcome.UNKNOWN:
            self.pending = None
        return found

    monkeypatch.setattr(IsrChanges, "answered", taken)


def settle_by_reading(monkeypatch) -> None:
    """M08: an unknown outcome is settled by an entry that is seen unchanged."""
    committed = IsrChanges.committed

    def read(self: IsrChanges, partition) -> bool:
        if self.pending is not None and not self.pending.in_flight:
            self.pending = None
        return committed(self, partition)

    monkeypatch.setattr(IsrChanges, "committed", read)


@pytest.mark.parametrize("broken", [None, drop_unknown, settle_by_reading])
def test_a_member_whose_joining_has_landed_and_is_not_answered(fresh, monkeypatch, broken) -> None:
    """A follower dies and comes back; of its joining every answer is lost, and the leader's watch lags."""
    (ledger,) = fresh.oracles.ledgers.values()
    api, propose, step = fresh.api, Partitions.propose, Driver.step
    unknown: list[Driver] = []

    def proposed(self: Partitions, driver: Driver, proposal) -> None:
        if len(proposal.proposed.isr) > len(proposal.expected.isr) and not unknown:
            for fault in ("api_lost_answer", "watch_lag"):
                fresh.world.arm(fault)
            api.lose_answer = 1.0
            for watch in api.watches:
                watch.lag_ms = 30_000.0 if watch.host == driver.partitions.broker.host.name else 0.0
        propose(self, driver, proposal)

    def stepped(self: Driver, event) -> None:
        if isinstance(event, ProposalAnswered) and event.outcome is CasOutcome.UNKNOWN:
            unknown.append(self)
            step(self, event)
            event = seen(self)  # of brokers it may hear something
        step(self, event)

    monkeypatch.setattr(Partitions, "propose", proposed)
    monkeypatch.setattr(Driver, "step", stepped)
    if broken is not None:
        broken(monkeypatch)
    other = next(member.id for member in ledger.entry.isr if member.id != ledger.entry.leader)
    fresh.world.bury_now(fresh.hosts[other].broker.process, "crash")
    if broken is not None:
        with fires("quorum superset"):
            fresh.world.run(fresh.world.now + 30_000.0)
        assert len(unknown) == 1
        return
    fresh.world.run(fresh.world.now + 30_000.0)
    assert unknown, "the outcome of its joining was not known for a while"
    api.lose_answer = 0.0
    for watch in api.watches:
        watch.lag_ms = 0.0
    run._until(fresh, 90_000.0, "the cluster recovers")
