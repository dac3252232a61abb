"""Registration of a broker: who may take a broker id, with which epoch, and what it then says of itself (R8, R9, S6).

Invariant: for one broker id at most one incarnation is registered with a given broker epoch e, and it is the one that
the object names: registered(i, e) => some compare-and-swap wrote (i, e) and was answered, or was read back. An epoch
comes only from a draw that was answered with 200, so no two processes ever hold the same one; the write tests the
version of the object that the decision was made on, so nothing (a fence, a rival) slips in between.

The machine does no I/O. `step` takes what happened and returns what to do: at most one piece of work is under way.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from kafkalite_core.membership.predecessor import PREDECESSOR_LEASES
from kafkalite_core.membership.registration_events import (
    STATE_ORDER,
    BrokerRead,
    BrokerSeen,
    CallFailed,
    CatchUp,
    CaughtUp,
    DrawEpoch,
    DrawRefused,
    Effect,
    EpochDrawn,
    Event,
    Identity,
    PredecessorSilent,
    ReadBroker,
    Registered,
    RegistrationAnswered,
    StateWanted,
    StraysChanged,
    Superseded,
    Tick,
    Waits,
    Work,
    WriteRegistration,
)
from kafkalite_core.membership.settlement import Settled
from kafkalite_core.model.cluster import BrokerState, Registration
from kafkalite_core.storage.identity import DirectoryFindings, restart_verdict
from kafkalite_core.storage.last_registration import adopted, judged_by

if TYPE_CHECKING:
    from kafkalite_core.model.cluster import Adopted, Broker

__all__ = [
    "STATE_ORDER",
    "BrokerRead",
    "BrokerSeen",
    "CallFailed",
    "CatchUp",
    "CaughtUp",
    "DrawEpoch",
    "DrawRefused",
    "Effect",
    "EpochDrawn",
    "Event",
    "Identity",
    "PredecessorSilent",
    "ReadBroker",
    "Registered",
    "RegistrationAnswered",
    "RegistrationMachine",
    "StateWanted",
    "StraysChanged",
    "Superseded",
    "Tick",
    "Waits",
    "Work",
    "WriteRegistration",
]


class Trust(NamedTuple):
    """Which entries of ISR and ELR count for a registration (S2); see `Registration`."""

    trusted_since: int
    clean_since: int
    adopted: tuple[Adopted, ...]


class RegistrationMachine:
    """See the module.

    Attributes:
        broker_epoch: Epoch registered last by this process; -1 before the first registration.
        waiting: Why there is no registration (yet), or the empty string.
        superseded: Why this process must end, or the empty string.
    """

    def __init__(self, identity: Identity, *, state: BrokerState = BrokerState.CATCHING_UP) -> None:
        self._identity = identity
        self._wanted_state = state
        self._seen: Broker | None = None
        self._highest = -1
        """The highest broker epoch that the object ever showed: after a restore of the store it shows less (S11), while
        whoever remembers more takes this broker for another with a lower one."""
        self._fresh = False
        self._reread = False
        self._busy = False
        self._dirty = False
        self._drawn = -1
        self._refused = ""
        """Why no epoch was to be had when it was asked for last; asked again with the next tick."""
        self._trust: Trust | None = None
        """Once registered."""
        self._caught_up_epoch = -1
        self._silent_epoch = -1
        """The registration whose holder is silent, as far as is known after the last call."""
        self.broker_epoch = -1
        self._sent = -1
        """The highest epoch of a new registration that was handed out to be written."""
        self.waiting = "not registered yet"
        self.superseded = ""

    @property
    def registered(self) -> bool:
        """The object names this incarnation with its epoch, and no fence covers it."""
        seen = self._seen
        return (
            self.broker_epoch >= 0
            and seen is not None
            and seen.registration is not None
            and seen.registration.incarnation == self._identity.incarnation
            and seen.registration.broker_epoch == self.broker_epoch
            and not seen.fenced
        )

    @property
    def current(self) -> Registration | None:
        """The registration that the object shows, whoever wrote it; None for none."""
        return None if self._seen is None else self._seen.registration

    @property
    def predecessor(self) -> int:
        """Epoch of the registration that this process waits for to be fenced, or -1 (S6)."""
        seen = self._seen
        if self.superseded or seen is None or seen.registration is None or not self._is_foreign(seen):
            return -1
        return seen.registration.broker_epoch

    @property
    def in_doubt(self) -> bool:
        """A new registration was handed out to be written and not seen since: it may be applied, or yet be."""
        return self._sent > self.broker_epoch

    @property
    def settled(self) -> bool:
        """The object says all that the broker wants it to say."""
        return (
            self.registered and not self._dirty and self._seen is not None and self._seen.registration == self._target()
        )

    @property
    def confirmed(self) -> bool:
        """`settled`, and the answer to the last write has come: one that is under way may be lost."""
        return self.settled and not self._busy

    def step(self, event: Event) -> list[Effect]:
        """Take in one event; the effects are to be carried out in order."""
        if self.superseded:
            return []
        effects: list[Effect] = []
        match event:
            case BrokerSeen(broker):
                self._see(broker, effects)
            case BrokerRead(broker):
                self._busy = False
                self._fresh = True
                self._see(broker, effects, consistent=True)
            case EpochDrawn(broker_epoch):
                self._busy = False
                assert broker_epoch > self._drawn, "an epoch is drawn once"
                self._drawn = broker_epoch
            case DrawRefused(reason):
                self._busy = False
                self._refused = reason
            case RegistrationAnswered(registration, outcome):
                self._busy = False
                self._answered(registration, outcome, effects)
            case CaughtUp(broker_epoch):
                self._busy = False
                self._caught_up_epoch = broker_epoch
            case StateWanted(state):
                self._want(state)
            case StraysChanged():
                self._dirty = True
            case PredecessorSilent(broker_epoch):
                self._silent_epoch = broker_epoch
            case CallFailed():
                self._busy = False
                self._fresh = False
                self._silent_epoch = -1
                # The call that failed was the read that was to tell: it is due still.
                self._reread = self.registered and self._caught_up_epoch >= self.broker_epoch
            case Tick():
                self._fresh = False
                self._refused = ""
        self._decide(effects)
        return effects

    # -------------------------------------------------------------------------------------------- what is known

    def _see(self, broker: Broker | None, effects: list[Effect], *, consistent: bool = False) -> None:
        if broker is not None:
            self._highest = max(self._highest, broker.epoch, broker.fenced_epoch)
        if not consistent:
            if _is_older(broker, self._seen):
                # An event that comes late, or a store that went back in time (S11): a read tells which.
                self._reread = self.registered
                return
            if broker != self._seen:
                # A new registration is decided on the whole object as read, not on what a watch shows of it.
                self._fresh = False
        was_registered = self.registered
        self._seen = broker
        registration = None if broker is None else broker.registration
        if was_registered and not self.registered and (registration is None or self._is_own(registration)):
            self._wait(self._why_lost(), effects)
        if registration is None:
            return
        if self._is_own(registration):
            if registration.broker_epoch > self.broker_epoch:
                self._registered(registration, effects)
        elif self.broker_epoch >= 0 and registration.broker_epoch >= self.broker_epoch:
            self.superseded = (
                f"broker {self._identity.broker_id} is registered as incarnation {registration.incarnation} with "
                f"epoch {registration.broker_epoch}, this one ({self._identity.incarnation}) had {self.broker_epoch}"
            )
            effects.append(Superseded(self.superseded))

    def _registered(self, registration: Registration, effects: list[Effect]) -> None:
        self.broker_epoch = registration.broker_epoch
        # Whatever happens to the object later, this process knows since when its directory can be trusted.
        self._trust = Trust(registration.trusted_since, registration.clean_since, registration.adopted)
        self.waiting = ""
        effects.append(Registered(registration.broker_epoch))

    def _answered(self, registration: Registration, outcome: Settled, effects: list[Effect]) -> None:
        if outcome is not Settled.APPLIED or self._seen is None:
            # Without an object: it was written, and the object was deleted with it before the answer was here.
            self._dirty = True
            self._silent_epoch = -1
            # Lost, refused or unknown: the object tells. An earlier copy that still lands is our own registration.
            self._fresh = False
            self._reread = self.registered
            return
        if registration.broker_epoch >= self._seen.epoch:
            self._see(replace(self._seen, registration=registration), effects, consistent=True)

    def _is_own(self, registration: Registration) -> bool:
        return registration.incarnation == self._identity.incarnation

    def _why_lost(self) -> str:
        if self._seen is None or self._seen.registration is None:
            return f"the registration with epoch {self.broker_epoch} is gone; registering anew"
        return f"fenced up to epoch {self._seen.fenced_epoch}, registered with {self.broker_epoch}; registering anew"

    def _wait(self, reason: str, effects: list[Effect]) -> None:
        if reason != self.waiting:
            self.waiting = reason
            effects.append(Waits(reason))

    def _want(self, state: BrokerState) -> None:
        if STATE_ORDER.index(state) >= STATE_ORDER.index(self._wanted_state):
            self._wanted_state = state

    # -------------------------------------------------------------------------------------------- what to do

    def _decide(self, effects: list[Effect]) -> None:
        if self.superseded or self._busy:
            return
        work = self._next_update() if self.registered else self._next_registration(effects)
        if work is not None:
            self._busy = True
            if isinstance(work, WriteRegistration):
                self._dirty = False
                self._sent = max(self._sent, work.registration.broker_epoch)
            effects.append(work)

    def _next_update(self) -> Work | None:
        if self._caught_up_epoch < self.broker_epoch:
            return CatchUp(self.broker_epoch)
        if self._reread:
            self._reread = False
            return ReadBroker()
        return None if self.settled else WriteRegistration(self._target(), update=True)

    def _next_registration(self, effects: list[Effect]) -> Work | None:
        if self.broker_epoch >= 0 and self._wanted_state is BrokerState.SHUTTING_DOWN:
            return None
        if not self._fresh:
            return ReadBroker()
        reason = self._obstacle() or self._refused
        if reason:
            self._wait(reason, effects)
            return None
        assert self._seen is not None
        last = self._identity.last
        # This process and the directory remember what a store that was restored or lost does not.
        floor = max(self.broker_epoch, self._highest, last.broker_epoch if last else -1)
        if self._drawn <= floor:
            return DrawEpoch(floor + 1)
        return WriteRegistration(self._new_registration(self._drawn), update=False)

    def _obstacle(self) -> str:
        """Why this incarnation may not register now, or the empty string (S6)."""
        if self._seen is None:
            return f"there is no KafkaLiteBroker for broker {self._identity.broker_id} yet; the operator makes it"
        registration = self._seen.registration
        if registration is None or not self._is_foreign(self._seen) or registration.broker_epoch == self._silent_epoch:
            return ""
        return (
            f"incarnation {registration.incarnation} with data directory {registration.directory_id} is registered as "
            f"broker {self._identity.broker_id} with epoch {registration.broker_epoch}; this one has directory "
            f"{self._identity.directory_id} and waits until that one is fenced, or its Lease has not been renewed for "
            f"{PREDECESSOR_LEASES} lease durations"
        )

    def _is_foreign(self, broker: Broker) -> bool:
        """Whether the registration is in force and of another data directory."""
        registration = broker.registration
        return (
            registration is not None and not broker.fenced and registration.directory_id != self._identity.directory_id
        )

    def _new_registration(self, broker_epoch: int) -> Registration:
        return self._registration(broker_epoch, self._trust or self._first_trust(broker_epoch), caught_up=False)

    def _first_trust(self, broker_epoch: int) -> Trust:
        """Of a process that starts; without proof it is trusted since the new epoch (R9, S2)."""
        assert self._seen is not None
        identity = self._identity
        findings = DirectoryFindings(
            directory_id=identity.directory_id,
            fresh=not identity.trusted,
            clean_epoch=identity.clean_epoch,
            cut_below_flushed=False,
            checkpoint_lost=False,
            taken=identity.taken,
        )
        previous = judged_by(self._seen.registration, identity.last, findings)
        verdict = restart_verdict(previous, findings, broker_epoch)
        kept = adopted(previous, findings, identity.last, verdict, broker_epoch)
        return Trust(verdict.trusted_since, verdict.clean_since, kept)

    def _target(self) -> Registration:
        assert self._trust is not None
        caught_up = self._caught_up_epoch >= self.broker_epoch
        return self._registration(self.broker_epoch, self._trust, caught_up=caught_up)

    def _registration(self, epoch: int, trust: Trust, *, caught_up: bool) -> Registration:
        state = self._wanted_state
        if state is BrokerState.RUNNING and not caught_up:
            state = BrokerState.CATCHING_UP
        identity = self._identity
        assert trust.trusted_since <= epoch
        assert trust.clean_since <= epoch
        return Registration(
            broker_epoch=epoch,
            incarnation=identity.incarnation,
            directory_id=identity.directory_id,
            trusted_since=trust.trusted_since,
            clean_since=trust.clean_since,
            adopted=trust.adopted,
            host=identity.host,
            port=identity.port,
            rack=identity.rack,
            state=state,
            metrics_url=identity.metrics_url,
        )


def _is_older(broker: Broker | None, than: Broker | None) -> bool:
    """Whether a watch shows a state of the same object that is behind what was read or written meanwhile."""
    if broker is None or than is None or broker.uid != than.uid:
        return False
    return broker.epoch < than.epoch or broker.fenced_epoch < than.fenced_epoch
