"""The API server with one partition entry and three registrations, the controller, and the registration of brokers."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from kafkalite_core.controller.election import decide, prefer
from kafkalite_core.membership.registration import (
    BrokerRead,
    BrokerSeen,
    CatchUp,
    CaughtUp,
    DrawEpoch,
    EpochDrawn,
    Identity,
    ReadBroker,
    RegistrationAnswered,
    RegistrationMachine,
    StateWanted,
    WriteRegistration,
)
from kafkalite_core.membership.settlement import Settled
from kafkalite_core.model.cluster import Broker, BrokerState
from kafkalite_core.model.partition import IsrEntry, Partition
from tests.search.snapshot import BROKER_IDS, Brokers, isr_sorted

CALLS_MAX = 20


class Store(NamedTuple):
    """What the API server holds.

    Attributes:
        entry: The partition entry.
        brokers: By broker id, rising.
        past: Entries of before, the newest first, that brokers may see late.
    """

    entry: Partition
    brokers: Brokers
    past: tuple[Partition, ...] = ()

    def broker(self, broker_id: int) -> Broker:
        return self.brokers[broker_id - 1]

    def with_broker(self, broker: Broker) -> Store:
        brokers = Brokers.of(broker if one.id == broker.id else one for one in self.brokers)
        return self._replace(brokers=brokers)


# ------------------------------------------------------------------------------------------------------ registration


def register(store: Store, broker_id: int, identity: Identity, *, known: int = -1) -> tuple[Store, int] | None:
    """A process registers, catches up with the metadata and runs; the store and its broker epoch, or None: it waits.

    Args:
        store: The store.
        broker_id: Its id.
        identity: Of the process.
        known: Broker epoch that this very process had before it was fenced, or -1.
    """
    broker = store.broker(broker_id)
    if known >= 0:
        machine = RegistrationMachine(identity, state=BrokerState.RUNNING)
        machine.step(BrokerSeen(replace(broker, fenced_epoch=-1)))
        machine.step(CaughtUp(known))
        assert machine.settled
    else:
        machine = RegistrationMachine(identity)
    event: object = BrokerSeen(broker)
    running = known >= 0
    for _ in range(CALLS_MAX):
        effects = machine.step(event)
        work = next(
            (one for one in effects if isinstance(one, ReadBroker | DrawEpoch | WriteRegistration | CatchUp)), None
        )
        if isinstance(work, ReadBroker):
            event = BrokerRead(broker)
        elif isinstance(work, DrawEpoch):
            event = EpochDrawn(max(1, work.minimum))
        elif isinstance(work, WriteRegistration):
            broker = replace(broker, registration=work.registration)
            event = RegistrationAnswered(work.registration, Settled.APPLIED)
        elif isinstance(work, CatchUp):
            event = CaughtUp(work.broker_epoch)
        elif machine.registered and not running:
            running = True
            event = StateWanted(BrokerState.RUNNING)
        else:
            break
    if not machine.registered:
        return None
    assert broker.alive
    return store.with_broker(broker), machine.broker_epoch


def identity_of(broker: Broker, *, new_directory: bool, same_process: bool = False) -> Identity:
    """A new process on the registered directory or on an empty one; or the registered process itself."""
    registered = broker.registration
    assert registered is not None
    return Identity(
        broker_id=broker.id,
        incarnation=registered.incarnation if same_process else f"i{broker.epoch + 1}",
        directory_id=f"d{broker.epoch + 1}" if new_directory else registered.directory_id,
        trusted=not new_directory,
        clean_epoch=None,
        host="b",
        port=9092,
    )


def first_store(*, isr: int, min_isr: int) -> Store:
    """Three brokers with epoch 1, the first `isr` of them in sync; broker 1 leads in epoch 1."""
    entry = Partition(
        leader=1, leader_epoch=1, partition_epoch=1, min_isr=min_isr, replicas=BROKER_IDS,
        isr=tuple(IsrEntry(broker_id, 1) for broker_id in BROKER_IDS[:isr]),
    )  # fmt: skip
    store = Store(entry, Brokers.of(Broker(id=broker_id) for broker_id in BROKER_IDS))
    for broker_id in BROKER_IDS:
        identity = Identity(
            broker_id=broker_id, incarnation="i1", directory_id="d1", trusted=False, clean_epoch=None,
            host="b", port=9092,
        )  # fmt: skip
        registered = register(store, broker_id, identity)
        assert registered is not None
        store = registered[0]
        assert registered[1] == 1
    return store


# -------------------------------------------------------------------------------------------------------- controller


def fence(store: Store, broker_id: int) -> Store:
    """The controller fences the registered incarnation."""
    broker = store.broker(broker_id)
    return store.with_broker(replace(broker, fenced_epoch=broker.epoch))


def decisions(store: Store, min_isr: int, *, any_order: bool) -> list[tuple[str, Partition]]:
    """Every entry that the controller may want now, in words: its decision, and every preferred leader.

    The controller takes the first replica that will do; with every replica in first place, this is every candidate.

    Args:
        store: What it looks at.
        min_isr: The min ISR that the topic's configuration asks for.
        any_order: Every replica is put first in turn; else the order is that of the entry.
    """
    entry, brokers = store.entry, store.brokers.by_id
    wanted: dict[Partition, str] = {}
    for first in BROKER_IDS if any_order else entry.replicas[:1]:
        replicas = (first, *(one for one in entry.replicas if one != first))
        shown = replace(entry, replicas=replicas)
        verdict = decide(shown, brokers, relaxed_flush=False, unclean_allowed=False, min_isr=min_isr)
        words = "elects" if verdict.elected else "changes the members"
        if verdict.change is None:
            verdict = prefer(shown, brokers)
            words = "prefers"
        if verdict.change is not None:
            proposed = isr_sorted(replace(verdict.change.proposed, replicas=entry.replicas))
            wanted.setdefault(proposed, words)
    return [(words, proposed) for proposed, words in wanted.items()]
