"""Whoever goes on with a partition after the store has lost some of it uses no epoch that anybody knows (S10, S11)."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from kafkalite_core.controller.actions import ChangePartitions, CreateTopicStatus
from kafkalite_core.model.partition import PartitionChange
from kafkalite_core.model.topic import Holding, Stray
from kafkalite_core.resources import patches
from tests.simulation.oracles.epochs import AHEAD, EpochsOnce
from tests.simulation.world import Violation


def fires():
    return pytest.raises(Violation, match="epochs are not used twice")


class Operator:
    """Knows what the test says, and has decided on an entry; the store, the disks and the brokers know another thing."""

    def __init__(self, healthy, ledger, monkeypatch) -> None:
        self.ledger, self.oracles, self._patch = ledger, healthy.oracles, monkeypatch
        self.api = healthy.api
        self.ref = healthy.hosts[ledger.entry.leader].broker.driver("t0", 0).ref
        self.old = ledger.entry
        self.epochs = (self.old.leader_epoch, self.old.partition_epoch)
        self.seen = self.epochs
        self.brokers = {}
        monkeypatch.setattr(self.oracles, "epochs", EpochsOnce())
        self.know(store=self.epochs, disk=self.epochs, mind=self.epochs)

    def above(self, leader_epochs: int, partition_epochs: int) -> tuple[int, int]:
        return self.epochs[0] + leader_epochs, self.epochs[1] + partition_epochs

    def entry(self, epochs: tuple[int, int]):
        return replace(self.old, leader_epoch=epochs[0], partition_epoch=epochs[1])

    def know(self, *, store=None, disk=None, mind=None) -> None:
        if store is not None:
            self.ledger.newest = store
        if disk is not None:
            self._patch.setattr(type(self.ledger), "on_disks", lambda _self: disk)
        if mind is not None:
            self._patch.setattr(self.oracles.metadata, "remembered", lambda _uid, _number: mind)

    def holds(self, epochs: tuple[int, int], *, agrees: bool = False) -> None:
        self.brokers[1] = SimpleNamespace(strays=(), holdings=(Holding(
            topic="t0", topic_id=self.ref.topic_id, partition=0, leader_epoch=epochs[0], partition_epoch=epochs[1],
            log_epoch=0, end_offset=0, agrees=agrees,
        ),))  # fmt: skip

    def lists(self, epochs: tuple[int, int], log_epoch: int) -> None:
        self.brokers[1] = SimpleNamespace(holdings=(), strays=(Stray(
            topic="t0", topic_id=self.ref.topic_id, partition=0, leader_epoch=epochs[0], partition_epoch=epochs[1],
            log_epoch=log_epoch, end_offset=0,
        ),))  # fmt: skip

    def recover(self, epochs: tuple[int, int]) -> None:
        """Decide, and let it land."""
        entry = self.entry(epochs)
        view = SimpleNamespace(topic=SimpleNamespace(ref=self.ref), epochs_seen={0: self.seen})
        action = ChangePartitions(
            topic=self.ref, generation=1, changes={0: PartitionChange(self.old, entry)}, reasons={0: "a test"}
        )
        self.oracles.epochs.decided(SimpleNamespace(topics={"": view}, brokers=self.brokers), [action])
        self.land(entry)

    def adopt(self, epochs: tuple[int, int]) -> None:
        """The same of a topic that was made again."""
        entry = self.entry(epochs)
        action = CreateTopicStatus(
            topic=self.ref, resource_version="1", has_status=False, partitions={0: entry},
            topic_id=self.ref.topic_id, reason="a test",
        )  # fmt: skip
        self.oracles.epochs.decided(SimpleNamespace(topics={}, brokers=self.brokers), [action])
        self.land(entry)

    def land(self, entry) -> None:
        self.oracles.epochs.landed(self.ledger, self.ref.uid, entry)


@pytest.fixture
def operator(healthy, ledger, monkeypatch) -> Operator:
    return Operator(healthy, ledger, monkeypatch)


def both_fire(go_on, known: tuple[int, int]) -> None:
    """With the leader epoch that is known, and with the partition epoch; not with later ones."""
    with fires():
        go_on((known[0], known[1] + 1))
    with fires():
        go_on((known[0] + 1, known[1]))
    go_on((known[0] + 1, known[1] + 1))


@pytest.mark.parametrize("who", ["holds", "has seen"])
def test_a_recovery_with_epochs_of_which_its_operator_was_told(operator, who) -> None:
    known = operator.above(3 * AHEAD, 4 * AHEAD)
    if who == "holds":
        operator.holds(known)
    else:
        operator.seen = known
    both_fire(operator.recover, known)


def test_a_recovery_with_the_epochs_of_another_history(operator) -> None:
    operator.holds(operator.epochs)
    with fires():
        operator.recover(operator.above(0, 1))
    operator.recover(operator.above(1, 1))
    operator.holds(operator.epochs, agrees=True)
    operator.oracles.epochs = EpochsOnce()
    operator.recover(operator.above(0, 1))  # it goes by the entry: no recovery


@pytest.mark.parametrize("who", ["store", "disk", "mind"])
@pytest.mark.parametrize("how", ["recover", "adopt"])
def test_epochs_that_somebody_knows_who_was_not_asked(operator, who, how) -> None:
    """A broker was away, a person did not wait for it; or its disk comes back."""
    go_on = getattr(operator, how)
    operator.holds(operator.above(1, 1))
    known = operator.above(AHEAD, AHEAD)
    operator.know(**{who: known})
    both_fire(go_on, known)
    operator.know(**{who: operator.above(1 + AHEAD, 1 + AHEAD)})
    go_on(known)  # of another recovery, of which nobody knew that could be asked


def test_an_adoption_with_epochs_that_are_listed(operator) -> None:
    operator.lists(operator.above(5, 5), 0)
    both_fire(operator.adopt, operator.above(5, 5))
    operator.lists(operator.above(0, 7), operator.epochs[0] + 7)
    both_fire(operator.adopt, operator.above(7, 7))


def test_what_replicas_go_by_they_have_in_mind(operator, leader, monkeypatch) -> None:
    operator.holds(operator.above(1, 1))
    operator.know(mind=(-1, -1))
    seen = leader.replica.seen._replace(leader_epoch=8, partition_epoch=9)
    monkeypatch.setattr(type(leader.replica), "seen", property(lambda _self: seen))
    operator.know(store=(0, 0), disk=(0, 0))
    both_fire(operator.recover, (8, 9))


def test_what_lands_is_looked_at(operator) -> None:
    """Also late: what was decided is remembered, and nothing else is judged by it."""
    operator.holds(operator.above(1, 1))
    with fires():
        operator.recover(operator.above(1, 1))
    obj = operator.api.objects["topics"]["t0"]

    def shows(entry) -> None:
        status = {**obj["status"], "partitions": {"0": patches.render_partition(entry)}}
        operator.oracles.store_changed("topics", obj, {**obj, "status": status})

    with fires():
        shows(operator.entry(operator.above(1, 1)))
    operator.land(replace(operator.entry(operator.above(1, 1)), min_isr=1))
