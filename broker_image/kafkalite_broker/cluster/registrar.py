"""Carries out what the registration machine decides: reads, draws, writes, catching up (S6, R8, R15)."""

from __future__ import annotations

import asyncio
import random
from time import monotonic
from typing import TYPE_CHECKING, Any

from kafkalite_broker.cluster.attempts import DEADLINE_S, attempt_of, backoff_s
from kafkalite_core.membership import registration as machine
from kafkalite_core.membership.predecessor import Predecessor
from kafkalite_core.membership.settlement import Attempt, Settled
from kafkalite_core.membership.stray_listing import StrayListing
from kafkalite_core.resources import patches
from kafkalite_core.resources.brokers import parse_broker
from kafkalite_core.resources.clusters import parse_cluster
from kafkalite_core.resources.fields import Fields, ResourceError
from kafkalite_core.resources.leases import parse_lease
from kafkalite_core.resources.replacing import parse_replacing
from kafkalite_runtime.kube import BROKERS, CLUSTERS, LEASES, KubeError, KubeInvalid, KubeNotFound, KubeUnavailable
from kafkalite_runtime.logging import get_logger

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from kafkalite_broker.cluster.settings import BrokerSettings
    from kafkalite_core.model.cluster import Broker, BrokerState, Registration
    from kafkalite_core.model.topic import Holding, Stray
    from kafkalite_runtime.kube import KubeClient

LOOK_AGAIN_S = 1.0
"""Interval at which a broker that waits (for its object, for a fence) reads again; the watch is usually faster."""

STRAYS_MAX = 1024
"""What the CRD allows in `status.strays`."""

SETTLED_AS = {
    Attempt.APPLIED: Settled.APPLIED,
    Attempt.REFUSED: Settled.REJECTED,
    Attempt.GONE: Settled.REJECTED,
    Attempt.NOT_APPLIED: Settled.NOT_ATTEMPTED,
    Attempt.AMBIGUOUS: Settled.UNKNOWN,
}

log = get_logger(__name__)


class Registrar:
    """The tasks around a `RegistrationMachine`. API outages of any length make them wait, never end.

    Args:
        client: Of the main loop.
        settings: Of this broker.
        identity: What to register.
        state: The state to begin with.
        lease_duration_s: Of the cluster, now.
        absorb: Shows an own object as the API server returned it to the metadata cache.
        catch_up: Brings the metadata cache up to now; raises `KubeError` or `KubeUnavailable`.
        on_registered: Told every new broker epoch.
        on_superseded: Told, once, why the process must end.
    """

    def __init__(
        self,
        client: KubeClient,
        settings: BrokerSettings,
        identity: machine.Identity,
        *,
        state: BrokerState,
        strays: Sequence[Stray],
        strays_unlisted: int = 0,
        holdings: Callable[[], tuple[Holding, ...]],
        lease_duration_s: Callable[[], float],
        absorb: Callable[[dict[str, Any]], None],
        catch_up: Callable[[], Awaitable[None]],
        on_registered: Callable[[int], None],
        on_superseded: Callable[[str], None],
    ) -> None:
        self._client = client
        self._settings = settings
        self._directory_id = identity.directory_id
        self._machine = machine.RegistrationMachine(identity, state=state)
        self._strays = tuple(strays)[:STRAYS_MAX]
        self._strays_unlisted = strays_unlisted
        self._find_holdings = holdings
        self._holdings: tuple[Holding, ...] = ()
        self._lease_duration_s = lease_duration_s
        self._predecessor = Predecessor()
        self._absorb = absorb
        self._catch_up = catch_up
        self._on_registered = on_registered
        self._on_superseded = on_superseded
        self._work: asyncio.Queue[machine.Work] = asyncio.Queue()
        self._progress = asyncio.Event()
        self._object: dict[str, Any] | None = None
        self._broker: Broker | None = None
        self.listing = StrayListing()
        self.listing.may_say(self._strays)
        self._complaint = ""
        self._lease_complaint = ""

    @property
    def broker_epoch(self) -> int:
        """Epoch registered last, -1 before the first registration."""
        return self._machine.broker_epoch

    @property
    def in_doubt(self) -> bool:
        """A registration with a newer epoch than that may be in the store, or get there yet."""
        return self._machine.in_doubt

    @property
    def registered(self) -> bool:
        """Registered and not fenced, as far as is known."""
        return self._machine.registered

    @property
    def registration(self) -> Registration | None:
        """What the own object shows, whoever wrote it; within `on_registered` it is the new one of this process."""
        return self._machine.current

    @property
    def obstacle(self) -> str:
        """Why the broker is not registered, or the empty string."""
        return "" if self._machine.registered else (self._complaint or self._machine.waiting)

    # ------------------------------------------------------------------------------------------------ inputs

    def seen(self, broker: Broker | None) -> None:
        """The watch showed this broker's own object; None when it was deleted."""
        self._broker = broker
        self.listing.may_say(() if broker is None else broker.strays)
        self._feed(machine.BrokerSeen(broker))

    def current(self, broker: Broker | None) -> None:
        """The newest known state of this broker's own object: what is missing there is written again.

        A restored store has forgotten what was written once (S10, S11).
        """
        if broker is not None and self.registered and not self._says_all(broker):
            self._feed(machine.StraysChanged())

    def _says_all(self, broker: Broker) -> bool:
        """A definition of an earlier version has no room for the number of unlisted strays."""
        unlisted = broker.strays_unlisted in {None, self._strays_unlisted}
        return unlisted and (broker.strays, broker.holdings) == (self._strays, self._holdings)

    def _look_at_listing(self) -> None:
        if self._broker is not None and self._broker.strays == self._strays and self._machine.confirmed:
            self.listing.says(self._strays, monotonic() * 1000.0)

    @property
    def tells_all(self) -> bool:
        """The own object is known to have the lists of strays and of holdings as they were last looked at."""
        return self._broker is not None and self._says_all(self._broker) and self._machine.confirmed

    def want_strays(self, strays: Sequence[Stray], unlisted: int = 0) -> None:
        """List these in the status from now on, and say how many more there are."""
        wanted = tuple(strays)[:STRAYS_MAX]
        if (wanted, unlisted) != (self._strays, self._strays_unlisted):
            self._strays, self._strays_unlisted = wanted, unlisted
            self.listing.may_say(wanted)
            self._feed(machine.StraysChanged())

    def look_at_holdings(self) -> None:
        """What this broker reports may have changed: see to it that the status says so (S11)."""
        holdings = self._find_holdings()
        if holdings != self._holdings:
            self._holdings = holdings
            self._feed(machine.StraysChanged())

    async def want_state(self, state: BrokerState, *, deadline_s: float) -> bool:
        """Write the state; goes on in the background when it takes longer than the deadline.

        Returns:
            Whether the API server has confirmed it.
        """
        self._feed(machine.StateWanted(state))
        try:
            async with asyncio.timeout(deadline_s):
                while not self._machine.settled or (self._broker_state() is not state):
                    self._progress.clear()
                    await self._progress.wait()
        except TimeoutError:
            return False
        return True

    def _broker_state(self) -> BrokerState | None:
        registration = self._machine.current
        return None if registration is None else registration.state

    # -------------------------------------------------------------------------------------------------- work

    async def run(self) -> None:
        """Never returns; cancel it to stop."""
        failures = 0
        self._feed(machine.Tick())
        while True:
            try:
                pause_s = LOOK_AGAIN_S * random.uniform(0.75, 1.25)
                async with asyncio.timeout(pause_s):  # `wait_for` may swallow the cancellation that ends this task
                    work = await self._work.get()
            except TimeoutError:
                if not self._machine.settled:
                    self._feed(machine.Tick())
                continue
            event, error = await self._carry_out(work)
            self._complain(error)
            if _failed(event):
                failures += 1
                await asyncio.sleep(backoff_s(failures, error))
            self._feed(event)
            # A read or a draw is only on the way: an API server may answer these and refuse every write.
            if self._machine.settled or (_is_goal(event) and not _failed(event)):
                failures = 0

    async def watch_predecessor(self) -> None:
        """Look at the Lease of whoever holds this broker's id with another disk (S6). Never returns; cancel it to stop.

        At a pace of its own: the reads of the own object would leave a gap between two looks when each takes seconds.
        """
        failures, pause_s = 0, 0.0
        while True:
            await asyncio.sleep(max(pause_s, LOOK_AGAIN_S * random.uniform(0.75, 1.25)))
            epoch = self._machine.predecessor
            error = await self._look_at_lease(epoch) if epoch >= 0 else None
            failures = failures + 1 if error is not None else 0
            pause_s = backoff_s(failures, error) if error is not None else 0.0

    async def _look_at_lease(self, epoch: int) -> Exception | None:
        settings, asked_s = self._settings, monotonic()
        signature, duration_s = ("", "", ""), self._lease_duration_s()
        try:
            lease = parse_lease(
                await self._client.get(LEASES, settings.namespace, settings.object_name, deadline_s=DEADLINE_S)
            )
            # After the store went back this process may still hold it, from when it was registered (S11).
            if lease.holder != settings.incarnation:
                # It renews at the interval of the lease duration that it has heard of last.
                signature, duration_s = lease.signature, max(duration_s, lease.duration_s)
        except KubeNotFound:
            pass
        except (KubeError, KubeUnavailable, ResourceError) as error:
            if str(error) != self._lease_complaint:
                self._lease_complaint = str(error)
                log.warning("the Lease of the former incarnation cannot be read", error=self._lease_complaint)
            return error
        now_s = monotonic()
        self._predecessor.read(epoch, signature, asked_s=asked_s, now_s=now_s)
        if self._predecessor.is_overdue(epoch, lease_duration_s=duration_s, now_s=now_s):
            self._feed(machine.PredecessorSilent(epoch))
        return None

    def _complain(self, error: Exception | None) -> None:
        complaint = "" if error is None else str(error)
        if complaint and not self._complaint:
            log.warning("registration waits for the API server", error=complaint)
        elif self._complaint and not complaint:
            log.info("the API server answers again")
        self._complaint = complaint

    def _feed(self, event: machine.Event) -> None:
        for effect in self._machine.step(event):
            match effect:
                case machine.Registered(broker_epoch):
                    log.info("registered", broker_epoch=broker_epoch, incarnation=self._settings.incarnation)
                    self._on_registered(broker_epoch)
                case machine.Superseded(reason):
                    log.error("superseded by another incarnation", reason=reason)
                    self._on_superseded(reason)
                case machine.Waits(reason):
                    log.warning("not registered", reason=reason)
                case _:
                    self._work.put_nowait(effect)
        self._look_at_listing()
        self._progress.set()

    async def _carry_out(self, work: machine.Work) -> tuple[machine.Event, Exception | None]:
        try:
            match work:
                case machine.ReadBroker():
                    return await self._read(), None
                case machine.DrawEpoch(minimum):
                    return await self._draw(minimum), None
                case machine.WriteRegistration(registration, update):
                    return await self._write(registration, update=update)
                case machine.CatchUp(broker_epoch):
                    await self._catch_up()
                    return machine.CaughtUp(broker_epoch), None
        except (KubeError, KubeUnavailable, ResourceError) as error:
            return machine.CallFailed(), error

    async def _read(self) -> machine.Event:
        settings = self._settings
        try:
            found = await self._client.get(BROKERS, settings.namespace, settings.object_name, deadline_s=DEADLINE_S)
        except KubeNotFound:
            self._object, self._broker = None, None
            return machine.BrokerRead(None)
        self._took(found)
        return machine.BrokerRead(self._broker)

    def _took(self, found: dict[str, Any]) -> None:
        self._broker = parse_broker(found)
        self.listing.may_say(self._broker.strays)
        self._object = found

    async def _draw(self, minimum: int) -> machine.Event:
        """One draw. An answer that is lost costs an epoch and nothing else."""
        settings = self._settings
        found = await self._client.get(CLUSTERS, settings.namespace, settings.cluster, deadline_s=DEADLINE_S)
        cluster = parse_cluster(found)
        if not cluster.cluster_id:
            raise ResourceError(f"cluster {settings.cluster} has no status yet; the operator writes it")
        replacing = parse_replacing(Fields(found["status"], "status"))
        if replacing.gives_up(self._directory_id):
            return machine.DrawRefused(f"the data directory of this broker is given up: {replacing.cause}")
        operations = patches.next_broker_epoch(cluster)
        drawn = max(cluster.next_broker_epoch, minimum)
        # A counter that was restored from a backup may be behind what this broker once had: it is moved beyond it.
        operations[-1] = {**operations[-1], "value": drawn + 1}
        await self._client.json_patch(
            CLUSTERS, settings.namespace, settings.cluster, operations, subresource="status", deadline_s=DEADLINE_S
        )
        return machine.EpochDrawn(drawn)

    async def _write(self, registration: Registration, *, update: bool) -> tuple[machine.Event, Exception | None]:
        operations = self._operations(registration, update=update)
        if operations is None:
            return machine.RegistrationAnswered(registration, Settled.REJECTED), None
        settings, strays = self._settings, self._strays
        try:
            answer = await self._client.json_patch(
                BROKERS,
                settings.namespace,
                settings.object_name,
                operations,
                subresource="status",
                deadline_s=DEADLINE_S,
            )
        except (KubeError, KubeUnavailable) as error:
            if isinstance(error, KubeInvalid):
                log.info("registration refused", broker_epoch=registration.broker_epoch, error=str(error))
            settled = SETTLED_AS[attempt_of(error)]
            if settled is Settled.UNKNOWN:
                self.listing.may_come(strays, monotonic() * 1000.0)
            return machine.RegistrationAnswered(registration, settled), error
        self._took(answer)
        self._absorb(answer)
        return machine.RegistrationAnswered(registration, Settled.APPLIED), None

    def _operations(self, registration: Registration, *, update: bool) -> list[dict[str, Any]] | None:
        # With the state Running goes what this broker knows by then: as soon as it runs it may be elected (S11).
        self._holdings = self._find_holdings()
        if not update:
            if self._object is None:
                return None
            told = (self._strays, self._holdings, self._strays_unlisted)
            return patches.registration(self._object, registration, *told)
        current = None if self._broker is None else self._broker.registration
        if self._broker is None or current is None:
            return None
        if (current.broker_epoch, current.incarnation) != (registration.broker_epoch, registration.incarnation):
            return None
        told = (self._strays, self._holdings, self._strays_unlisted)
        return patches.registration_update(self._broker, registration, *told)


def _is_goal(event: machine.Event) -> bool:
    return isinstance(event, (machine.RegistrationAnswered, machine.CaughtUp))


def _failed(event: machine.Event) -> bool:
    if isinstance(event, machine.RegistrationAnswered):
        return event.outcome is not Settled.APPLIED
    return isinstance(event, machine.CallFailed)
