"""What brokers have set aside stays as long as somebody may rely on it (S10)."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from kafkalite_core.controller.actions import CreateTopicStatus
from kafkalite_core.model.topic import Stray
from tests.simulation.oracles import last_resort
from tests.simulation.world import Violation


def fires(name: str):
    return pytest.raises(Violation, match=name)


def test_a_stray_is_removed_that_the_store_lists_or_that_a_replica_adopts(healthy, ledger, monkeypatch) -> None:
    oracles, tag = healthy.oracles, next(iter(healthy.oracles.ledgers))
    monkeypatch.setattr(healthy.hosts[0].disk, "of", lambda _tag: [])

    def broker_lists(partition: int) -> None:
        stray = Stray(topic="t0", topic_id=tag[0], partition=partition, leader_epoch=0, partition_epoch=0, end_offset=1)
        broker = replace(oracles.brokers[0], strays=(stray,))
        monkeypatch.setattr(oracles, "brokers", {**oracles.brokers, 0: broker})

    broker_lists(tag[1])
    with fires("what may be adopted stays: .* has removed it, and lists it"):
        oracles.stray_removed(0, tag)
    broker_lists(tag[1] + 1)
    with fires("what may be adopted stays: .* has removed it, and Partition"):
        oracles.stray_removed(0, tag)
    member, others = ledger.entry.isr[0], ledger.entry.isr[1:]
    assert member.id == 0
    ledger.entry = replace(ledger.entry, isr=others, elr=(member,))
    with fires("what may be adopted stays: .* has removed it, and Partition"):
        oracles.stray_removed(0, tag)
    # A replica that nobody relies on begins anew: it may be placed there while the stray goes.
    ledger.entry = replace(ledger.entry, elr=())
    oracles.stray_removed(0, tag)


def test_a_stray_that_nobody_listed_when_the_partition_was_made_again_may_go(
    healthy, ledger, leader, monkeypatch
) -> None:
    oracles, tag = healthy.oracles, ledger.tag
    host = leader.partitions.broker.host
    monkeypatch.setattr(host.disk, "of", lambda _tag: [])
    monkeypatch.setattr(ledger, "named", {})
    brokers = {number: replace(broker, strays=()) for number, broker in oracles.brokers.items()}
    stray = Stray(topic="t0", topic_id=tag[0], partition=tag[1], leader_epoch=0, partition_epoch=0, end_offset=1)
    listing = {**brokers, host.id: replace(brokers[host.id], strays=(stray,))}

    def placed(known) -> None:
        action = CreateTopicStatus(
            topic=leader.ref,
            resource_version="1",
            has_status=False,
            partitions={tag[1]: ledger.entry},
            topic_id=tag[0],
            reason="a test",
        )
        last_resort.decided(oracles, SimpleNamespace(brokers=known, topics={}), [action])

    placed(brokers)
    oracles.stray_removed(host.id, tag)
    placed(listing)  # one operator relied on it, and its patch may be the one that was applied
    placed(brokers)
    with fires("what may be adopted stays: .* has removed it, and Partition"):
        oracles.stray_removed(host.id, tag)
    ledger.named.clear()
    placed(brokers)
    ledger.role_changed(leader)  # what it holds from now on is relied on
    with fires("what may be adopted stays: .* has removed it, and Partition"):
        oracles.stray_removed(host.id, tag)
