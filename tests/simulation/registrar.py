"""Carries out what the registration machine decides: reads, draws, writes, catching up (S6, R8, R15)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkalite_core.membership import registration as machine
from kafkalite_core.membership.predecessor import Predecessor
from kafkalite_core.membership.settlement import Attempt, Settled
from kafkalite_core.membership.stray_listing import StrayListing
from kafkalite_core.resources import patches
from kafkalite_core.resources.leases import parse_lease
from tests.simulation.api import Outcome
from tests.simulation.parsed import broker_of, cluster_of
from tests.simulation.writer import ATTEMPT_OF

if TYPE_CHECKING:
    from kafkalite_core.membership.registration_events import Identity
    from kafkalite_core.model.cluster import Broker as BrokerObject
    from kafkalite_core.model.cluster import BrokerState, Registration
    from kafkalite_core.model.topic import Holding, Stray
    from tests.simulation.broker import Broker
    from tests.simulation.patching import Json

LOOK_AGAIN_MS = 1000.0
CLUSTER = "kafkalite"
SETTLED_AS = {
    Attempt.APPLIED: Settled.APPLIED,
    Attempt.REFUSED: Settled.REJECTED,
    Attempt.GONE: Settled.REJECTED,
    Attempt.NOT_APPLIED: Settled.NOT_ATTEMPTED,
    Attempt.AMBIGUOUS: Settled.UNKNOWN,
}


class Registrar:
    """The shell of a `RegistrationMachine`."""

    def __init__(self, broker: Broker, identity: Identity) -> None:
        self._broker = broker
        self._machine = machine.RegistrationMachine(identity)
        self._object: Json | None = None
        self._seen: BrokerObject | None = None
        self._failures = 0
        self._predecessor = Predecessor()
        self._strays: tuple[Stray, ...] = ()
        self._strays_unlisted = 0
        self.listing = StrayListing()
        self._holdings: tuple[Holding, ...] = ()
        self._begin(machine.Tick())
        broker.world.at(LOOK_AGAIN_MS, broker.process, self._tick)
        broker.world.at(LOOK_AGAIN_MS, broker.process, self._watch_predecessor)

    @property
    def in_doubt(self) -> bool:
        """A registration with a newer epoch than that may be in the store, or get there yet."""
        return self._machine.in_doubt

    @property
    def broker_epoch(self) -> int:
        """Epoch registered last, -1 before the first registration."""
        return self._machine.broker_epoch

    @property
    def registration(self) -> Registration | None:
        """What the own object shows."""
        return self._machine.current

    @property
    def registered(self) -> bool:
        """Registered and not fenced, as far as is known."""
        return self._machine.registered

    @property
    def settled(self) -> bool:
        """The object says all that the broker wants it to say."""
        return self._machine.settled

    def says(self, state: BrokerState) -> bool:
        """Whether the API server has confirmed that state."""
        current = self._machine.current
        return self._machine.settled and current is not None and current.state is state

    def seen(self, broker: BrokerObject | None) -> None:
        """The watch showed this broker's own object."""
        self._seen = broker
        self.listing.may_say(() if broker is None else broker.strays)
        self._begin(machine.BrokerSeen(broker))
        registration = None if broker is None else broker.registration
        if broker is None or registration is None or registration.incarnation != self._broker.incarnation:
            return
        if not self._says_all(broker):
            self._begin(machine.StraysChanged())  # a store that went back does not say it any more

    def _look_at_listing(self) -> None:
        if self._seen is not None and self._seen.strays == self._strays and self._machine.confirmed:
            self.listing.says(self._strays, self._broker.mono_ms())

    @property
    def tells_all(self) -> bool:
        """The own object is known to have the lists of strays and of holdings as they were last looked at."""
        return self._seen is not None and self._says_all(self._seen) and self._machine.confirmed

    def _says_all(self, broker: BrokerObject) -> bool:
        wanted = (self._strays, self._strays_unlisted, self._holdings)
        return (broker.strays, broker.strays_unlisted, broker.holdings) == wanted

    def want_state(self, state: BrokerState) -> None:
        """Say that state from now on."""
        self._begin(machine.StateWanted(state))

    def want_strays(self, strays: tuple[Stray, ...], unlisted: int) -> None:
        """List these from now on."""
        if (strays, unlisted) != (self._strays, self._strays_unlisted):
            self._strays, self._strays_unlisted = strays, unlisted
            self.listing.may_say(strays)
            self._begin(machine.StraysChanged())

    def look_at_holdings(self) -> None:
        """What the broker reports may have changed (S11)."""
        holdings = self._find_holdings()
        if holdings != self._holdings:
            self._holdings = holdings
            self._begin(machine.StraysChanged())

    def _tick(self) -> None:
        broker = self._broker
        if not self._machine.settled:
            self._begin(machine.Tick())
        broker.world.at(LOOK_AGAIN_MS * (0.75 + 0.5 * broker.chance()), broker.process, self._tick)

    def _watch_predecessor(self) -> None:
        """One read at a time, with a pause after each."""
        broker, epoch, asked_s = self._broker, self._machine.predecessor, self._broker.mono_ms() / 1000.0

        def answered(outcome: Outcome, result: Any) -> None:
            if outcome in {Outcome.OK, Outcome.NOT_FOUND}:
                self._look_at_predecessor(epoch, outcome, result, asked_s)
            again()

        def again() -> None:
            broker.world.at(LOOK_AGAIN_MS * (0.75 + 0.5 * broker.chance()), broker.process, self._watch_predecessor)

        if epoch < 0:
            again()
        else:
            broker.call("get", "leases", broker.host.object_name, answer=answered)

    def _look_at_predecessor(self, epoch: int, outcome: Outcome, result: Any, asked_s: float) -> None:
        cluster = self._broker.link.cluster
        if cluster is None:
            return
        signature, duration_s = ("", "", ""), cluster.lease_duration_s
        if outcome is Outcome.OK and (lease := parse_lease(result)).holder != self._broker.incarnation:
            signature, duration_s = lease.signature, max(duration_s, lease.duration_s)
        now_s = self._broker.mono_ms() / 1000.0
        self._predecessor.read(epoch, signature, asked_s=asked_s, now_s=now_s)
        if self._predecessor.is_overdue(epoch, lease_duration_s=duration_s, now_s=now_s):
            self._begin(machine.PredecessorSilent(epoch))

    def _begin(self, event: machine.Event) -> None:
        broker = self._broker
        for effect in self._machine.step(event):
            if isinstance(effect, machine.Registered):
                broker.registered(effect.broker_epoch)
            elif isinstance(effect, machine.Superseded):
                broker.die(f"superseded: {effect.reason}")
            elif isinstance(effect, machine.Waits):
                broker.trace(f"not registered: {effect.reason}")
            else:
                self._work(effect)
        self._look_at_listing()

    def _work(self, work: machine.Work) -> None:
        broker = self._broker
        if isinstance(work, machine.ReadBroker):
            broker.call("get", "brokers", broker.host.object_name, answer=self._read)
        elif isinstance(work, machine.DrawEpoch):
            minimum = work.minimum
            broker.call("get", "clusters", CLUSTER, answer=lambda outcome, result: self._draw(outcome, result, minimum))
        elif isinstance(work, machine.WriteRegistration):
            self._write(work)
        else:
            epoch = work.broker_epoch
            broker.call("list", "brokers", answer=lambda outcome, result: self._listed(outcome, result, epoch))

    def _done(self, event: machine.Event, *, failed: bool) -> None:
        """Feed the end of the work, after a pause when it failed."""
        broker = self._broker
        if not failed:
            self._begin(event)
            if self._machine.settled or isinstance(event, (machine.RegistrationAnswered, machine.CaughtUp)):
                self._failures = 0
            return
        self._failures += 1
        ceiling = min(2000.0, 50.0 * 2.0 ** min(self._failures, 16))
        broker.world.at(ceiling * (0.5 + 0.5 * broker.chance()), broker.process, self._begin, event)

    def _took(self, found: Json | None) -> None:
        self._object = found
        self._seen = None if found is None else broker_of(found)
        self.listing.may_say(() if self._seen is None else self._seen.strays)

    def _read(self, outcome: Outcome, result: Any) -> None:
        if outcome not in {Outcome.OK, Outcome.NOT_FOUND}:
            self._done(machine.CallFailed(), failed=True)
            return
        self._took(result)
        self._done(machine.BrokerRead(self._seen), failed=False)

    def _draw(self, outcome: Outcome, result: Any, minimum: int) -> None:
        cluster = cluster_of(result) if outcome is Outcome.OK else None
        if cluster is None or not cluster.cluster_id:
            self._done(machine.CallFailed(), failed=True)
            return
        operations = patches.next_broker_epoch(cluster)
        drawn = max(cluster.next_broker_epoch, minimum)
        operations[-1] = {**operations[-1], "value": drawn + 1}

        def drew(outcome: Outcome, _result: Any) -> None:
            if outcome is Outcome.OK:
                self._done(machine.EpochDrawn(drawn), failed=False)
            else:
                self._done(machine.CallFailed(), failed=True)

        self._broker.call("patch", "clusters", CLUSTER, operations, answer=drew)

    def _write(self, work: machine.WriteRegistration) -> None:
        broker, registration = self._broker, work.registration
        operations = self._operations(registration, update=work.update)
        if operations is None:
            event = machine.RegistrationAnswered(registration, Settled.REJECTED)
            broker.world.at(0.0, broker.process, self._done_failed, event)
            return

        strays = self._strays

        def wrote(outcome: Outcome, result: Any) -> None:
            settled = SETTLED_AS[ATTEMPT_OF[outcome]]
            if settled is Settled.UNKNOWN:
                self.listing.may_come(strays, broker.mono_ms())
            if outcome is Outcome.OK:
                self._took(result)
                broker.link.absorb_broker(result)
            self._done(machine.RegistrationAnswered(registration, settled), failed=outcome is not Outcome.OK)

        broker.call("patch", "brokers", broker.host.object_name, operations, answer=wrote)

    def _done_failed(self, event: machine.Event) -> None:
        self._done(event, failed=True)

    def _find_holdings(self) -> tuple[Holding, ...]:
        return () if self._broker.partitions is None else self._broker.partitions.holdings()

    def _operations(self, registration: Registration, *, update: bool) -> list[dict[str, Any]] | None:
        self._holdings = self._find_holdings()
        if not update:
            if self._object is None:
                return None
            told = (self._strays, self._holdings, self._strays_unlisted)
            return patches.registration(self._object, registration, *told)
        current = None if self._seen is None else self._seen.registration
        if self._seen is None or current is None:
            return None
        if (current.broker_epoch, current.incarnation) != (registration.broker_epoch, registration.incarnation):
            return None
        told = (self._strays, self._holdings, self._strays_unlisted)
        return patches.registration_update(self._seen, registration, *told)

    def _listed(self, outcome: Outcome, result: Any, epoch: int) -> None:
        """Catching up: consistent lists of brokers, then topics."""
        broker = self._broker
        if outcome is not Outcome.OK:
            self._done(machine.CallFailed(), failed=True)
            return
        for found in result[0]:
            broker.link.absorb_broker(found)

        def listed(outcome: Outcome, result: Any) -> None:
            if outcome is not Outcome.OK:
                self._done(machine.CallFailed(), failed=True)
                return
            for found in result[0]:
                broker.link.absorb_topic(found)
            self._done(machine.CaughtUp(epoch), failed=False)

        broker.call("list", "topics", answer=listed)
