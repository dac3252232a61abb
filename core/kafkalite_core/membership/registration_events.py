"""What goes into the registration of a broker and what comes out of it; see `registration`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafkalite_core.model.cluster import BrokerState

if TYPE_CHECKING:
    from kafkalite_core.membership.settlement import Settled
    from kafkalite_core.model.cluster import Broker, Registration
    from kafkalite_core.storage.identity import TakenMarker
    from kafkalite_core.storage.last_registration import LastRegistration

STATE_ORDER = (BrokerState.CATCHING_UP, BrokerState.RUNNING, BrokerState.SHUTTING_DOWN)
"""Within one registration a broker only moves forward."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """What a broker process registers.

    Attributes:
        broker_id: Ordinal of the pod.
        incarnation: Random id of this process.
        directory_id: Random id of the data directory whose lock this process holds.
        trusted: The directory lost nothing that it ever reported: it is not new, recovery did not cut below the
            checkpointed flushed end, and no checkpoint is missing (R9).
        clean_epoch: Broker epoch in the clean-shutdown marker, or None without the marker.
        taken: A clean-shutdown marker that was taken; no registration has followed as far as the directory knows.
        host: Advertised host.
        port: Advertised port.
        rack: Failure domain or the empty string.
        metrics_url: URL of the metrics endpoint or the empty string.
        last: What the directory knows of its last registration.
    """

    broker_id: int
    incarnation: str
    directory_id: str
    trusted: bool
    clean_epoch: int | None
    host: str
    port: int
    rack: str = ""
    metrics_url: str = ""
    taken: TakenMarker | None = None
    last: LastRegistration | None = None


# ---------------------------------------------------------------------------------------------------- events


@dataclass(frozen=True, slots=True)
class BrokerSeen:
    """The broker's own object as the watch shows it; None when it does not exist."""

    broker: Broker | None


@dataclass(frozen=True, slots=True)
class BrokerRead:
    """The answer to `ReadBroker`: the object as a consistent read shows it; None when it does not exist."""

    broker: Broker | None


@dataclass(frozen=True, slots=True)
class EpochDrawn:
    """The answer to `DrawEpoch`: this epoch is ours and nobody else's."""

    broker_epoch: int


@dataclass(frozen=True, slots=True)
class DrawRefused:
    """The other answer to `DrawEpoch`: the cluster gives this broker's data directory up, see `given_up`."""

    reason: str


@dataclass(frozen=True, slots=True)
class RegistrationAnswered:
    """The answer to `WriteRegistration`."""

    registration: Registration
    outcome: Settled


@dataclass(frozen=True, slots=True)
class CaughtUp:
    """The answer to `CatchUp`: the metadata cache is as new as the registration with that epoch."""

    broker_epoch: int


@dataclass(frozen=True, slots=True)
class CallFailed:
    """The work under way came to nothing (no answer, no counter, throttled); it may be begun again."""


@dataclass(frozen=True, slots=True)
class StateWanted:
    """The broker wants to be in that state. A state never goes back within a process."""

    state: BrokerState


@dataclass(frozen=True, slots=True)
class StraysChanged:
    """What is written beside the registration, strays or holdings, changed: write it again (S10, S11)."""


@dataclass(frozen=True, slots=True)
class PredecessorSilent:
    """The holder of that registration gives no sign of life: see `predecessor`."""

    broker_epoch: int


@dataclass(frozen=True, slots=True)
class Tick:
    """Time went by: look again at what was waited for."""


Event = (
    BrokerSeen
    | BrokerRead
    | EpochDrawn
    | DrawRefused
    | RegistrationAnswered
    | CaughtUp
    | CallFailed
    | StateWanted
    | StraysChanged
    | PredecessorSilent
    | Tick
)

# --------------------------------------------------------------------------------------------------- effects


@dataclass(frozen=True, slots=True)
class ReadBroker:
    """Read the broker's own object consistently; answer with `BrokerRead`."""


@dataclass(frozen=True, slots=True)
class DrawEpoch:
    """Draw a broker epoch that is at least `minimum` from the cluster's counter; answer with `EpochDrawn`.

    Or, when the same read of the cluster says that this directory is given up, with `DrawRefused`.
    """

    minimum: int


@dataclass(frozen=True, slots=True)
class WriteRegistration:
    """Write the registration; answer with `RegistrationAnswered`.

    Attributes:
        registration: What to write.
        update: It changes the registration that stands there (test its epoch and incarnation); else it is a new one,
            decided on the object that was read last (test that object's version).
    """

    registration: Registration
    update: bool


@dataclass(frozen=True, slots=True)
class CatchUp:
    """Bring the metadata cache up to at least the moment of the registration (R15); answer with `CaughtUp`."""

    broker_epoch: int


@dataclass(frozen=True, slots=True)
class Registered:
    """The broker is registered with a new epoch: followers, leases and answers use it from now on."""

    broker_epoch: int


@dataclass(frozen=True, slots=True)
class Superseded:
    """Another incarnation took over: this process must end (R8)."""

    reason: str


@dataclass(frozen=True, slots=True)
class Waits:
    """Registration waits; the reason is for the log and the readiness probe. Said once for each reason."""

    reason: str


Work = ReadBroker | DrawEpoch | WriteRegistration | CatchUp
Effect = Work | Registered | Superseded | Waits
