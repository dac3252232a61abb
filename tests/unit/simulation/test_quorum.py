"""Nobody may be elected for whom the leader does not wait: a lie for each side, the store and the leader."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafkalite_core.model.partition import IsrEntry
from kafkalite_core.replica.events import CasOutcome, MetadataChanged, ProposalAnswered
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
