"""What brokers were registered with, and when: the part of the metadata history that elections are judged by."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalite_cli.verify.metadata_history import Change
    from kafkalite_core.model.cluster import Broker, Registration
    from kafkalite_core.model.partition import IsrEntry

RACE_MS = 10_000
"""A change of a broker that is younger may not have been known to whoever changed a partition. Harmless: a leader whose
broker epoch was superseded does not lead (S1), nor does one that is fenced."""


class _Known(NamedTuple):
    """What a registration said, and when it was superseded (0: it was not)."""

    registration: Registration
    superseded_us: int


class _BrokerState:
    """One broker id over all its incarnations; `uid` is that of the object that there is, or was last."""

    __slots__ = ("epochs", "fenced_epoch", "fenced_us", "gap", "missed", "uid")

    def __init__(self, uid: str) -> None:
        self.uid = uid
        self.epochs: dict[int, _Known] = {}
        self.missed: list[tuple[int, int]] = []  # broker epochs between these two may have been missed in a gap
        self.gap = False
        self.fenced_epoch = -1
        self.fenced_us = 0

    @property
    def epoch(self) -> int:
        """The broker epoch that it is registered with; -1: none."""
        return max(self.epochs, default=-1)

    def may_have_had(self, epoch: int) -> bool:
        """Whether nothing says that it never had that epoch: registered, before the record began, or in a gap."""
        if epoch in self.epochs or not self.epochs or epoch < min(self.epochs):
            return True
        return (self.gap and epoch > self.epoch) or any(low < epoch < high for low, high in self.missed)


class BrokerHistory:
    """Takes in the states of one cluster's brokers in the store's order: ids and broker epochs are those of a cluster.

    Args:
        found: Called with (kind, name, text) for each anomaly.
    """

    def __init__(self, found: Callable[[str, str, str], None]) -> None:
        self._found = found
        self._states: dict[int, _BrokerState] = {}
        self._owners: dict[int, tuple[int, str]] = {}  # broker epoch -> (broker, incarnation)

    @property
    def count(self) -> int:
        """How many brokers had a registration."""
        return sum(1 for state in self._states.values() if state.epochs)

    def gap(self) -> None:
        """Changes may have been missed here."""
        for state in self._states.values():
            state.gap = True

    def see(self, broker: Broker, change: Change) -> None:
        """Take in one state of a `KafkaLiteBroker`; one that was deleted is succeeded by another of its id."""
        state = self._states.setdefault(broker.id, _BrokerState(broker.uid))
        name = broker.object_name or f"broker {broker.id}"
        if broker.uid != state.uid:
            # Made again, with its cluster: what was fenced is not known to it, and no epoch of before is registered.
            state.uid, state.fenced_epoch, state.fenced_us = broker.uid, -1, change.at_us
        if broker.fenced_epoch < state.fenced_epoch:
            self._found("fence-fell", name, f"fencedEpoch {broker.fenced_epoch} came after {state.fenced_epoch}")
        elif broker.fenced_epoch > state.fenced_epoch:
            state.fenced_epoch, state.fenced_us = broker.fenced_epoch, change.at_us
        if broker.registration is not None:
            self._registered(name, broker.id, broker.registration, change.at_us)
        state.gap = False

    def _registered(self, name: str, broker_id: int, registration: Registration, at_us: int) -> None:
        state = self._states[broker_id]
        epoch, incarnation = registration.broker_epoch, registration.incarnation
        if epoch < state.epoch:
            self._found("broker-epoch-fell", name, f"brokerEpoch {epoch} came after {state.epoch}")
        elif epoch > state.epoch:
            if state.gap:
                state.missed.append((state.epoch, epoch))
            for earlier, known in state.epochs.items():
                if not known.superseded_us:
                    state.epochs[earlier] = known._replace(superseded_us=at_us)
        if epoch >= state.epoch:
            state.epochs[epoch] = _Known(registration, 0)
        if self._owners.setdefault(epoch, (broker_id, incarnation)) != (broker_id, incarnation):
            other, its_incarnation = self._owners[epoch]
            text = f"brokerEpoch {epoch} belongs to {incarnation} and to {its_incarnation} of broker {other}"
            self._found("broker-epoch-reused", name, text)

    # --- questions

    def epoch_of(self, broker_id: int) -> int:
        """The broker epoch that it is registered with; -1: none."""
        return self._states[broker_id].epoch if broker_id in self._states else -1

    def may_have_had(self, member: IsrEntry) -> bool:
        """Whether the broker may ever have had that epoch."""
        return member.id not in self._states or self._states[member.id].may_have_had(member.epoch)

    def had_lately(self, member: IsrEntry, at_us: int) -> bool:
        """Whether the broker is registered with that epoch, or was a moment ago."""
        if member.id not in self._states:
            return True
        state = self._states[member.id]
        if member.epoch not in state.epochs:
            return state.may_have_had(member.epoch) and member.epoch > min(state.epochs, default=-1)
        superseded_us = state.epochs[member.epoch].superseded_us
        return not superseded_us or at_us - superseded_us < RACE_MS * 1000

    def long_fenced(self, member: IsrEntry, at_us: int) -> bool:
        """Whether that epoch has been fenced for longer than a moment."""
        state = self._states.get(member.id)
        return state is not None and member.epoch <= state.fenced_epoch and at_us - state.fenced_us >= RACE_MS * 1000

    def trusted_since(self, member: IsrEntry, *, relaxed_flush: bool) -> int:
        """The lowest broker epoch since which the registration of `member` had lost nothing; -1: not known."""
        state = self._states.get(member.id)
        known = state.epochs.get(member.epoch) if state is not None else None
        if known is None:
            return -1
        registration = known.registration
        return (
            max(registration.trusted_since, registration.clean_since) if relaxed_flush else registration.trusted_since
        )

    def adopts(self, elected: IsrEntry, member: IsrEntry, *, relaxed_flush: bool) -> bool:
        """Whether the registration of `elected` says that its directory remembers the one that `member` names."""
        state = self._states.get(elected.id)
        known = state.epochs.get(elected.epoch) if state is not None else None
        return known is not None and any(
            one.covers(member.epoch, relaxed_flush=relaxed_flush) for one in known.registration.adopted
        )
