"""Brokers and the cluster as the custom resources tell them; the verdicts which brokers and ISR entries count (S2)."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkalite_core.model.listener import Endpoint
    from kafkalite_core.model.partition import IsrEntry
    from kafkalite_core.model.topic import Condition, Holding, Stray


class BrokerState(StrEnum):
    """`status.registration.state` of a `KafkaLiteBroker`. One that still recovers its logs is not registered, see
    `Recovery`.
    """

    CATCHING_UP = "CatchingUp"
    RUNNING = "Running"
    SHUTTING_DOWN = "ShuttingDown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Adopted:
    """A registration that the store has lost with its object, and that the data directory proves (decision 011).

    Attributes:
        broker_epoch: Entries up to this epoch are those of the directory; later ones may be another's.
        trusted_since: As in `Registration`.
        clean_since: The same for topics with relaxed flush; above `broker_epoch` when it has not been closed in order.
    """

    broker_epoch: int
    trusted_since: int
    clean_since: int

    def covers(self, epoch: int, *, relaxed_flush: bool) -> bool:
        """Whether what was reported in that broker epoch is still in the directory."""
        since = max(self.trusted_since, self.clean_since) if relaxed_flush else self.trusted_since
        return since <= epoch <= self.broker_epoch


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """What a broker says of itself, written by it alone in one compare-and-swap (S6).

    Attributes:
        broker_epoch: Drawn from the cluster's counter; above every earlier one of this broker and above its fence.
        incarnation: Random id of the process.
        directory_id: Random id of the data directory.
        trusted_since: Lowest broker epoch since which the directory lost nothing that it ever reported (R9).
        clean_since: The broker epoch of the last restart without the clean-shutdown marker; it replaces
            `trusted_since` for topics with relaxed flush (S2).
        host: Advertised host of the listener that other brokers use.
        port: Advertised port of that listener.
        rack: Failure domain, or the empty string.
        state: Life-cycle state.
        metrics_url: URL of the metrics endpoint, or the empty string.
        adopted: Registrations before `trusted_since` that only the directory remembers.
    """

    broker_epoch: int
    incarnation: str
    directory_id: str
    trusted_since: int
    clean_since: int
    host: str
    port: int
    rack: str = ""
    state: BrokerState = BrokerState.CATCHING_UP
    metrics_url: str = ""
    adopted: tuple[Adopted, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """How far a process is that recovers the logs, which it does before it registers: `status.recovery`.

    Attributes:
        incarnation: Random id of the process.
        started_at: When it began, RFC 3339.
        remaining_logs: Logs that are not recovered yet.
        remaining_segments: Segments still to be scanned of those that are under way.
        seen_at: When the observer first saw it so far, in seconds of its monotonic clock.
    """

    incarnation: str
    started_at: str = ""
    remaining_logs: int = 0
    remaining_segments: int = 0
    seen_at: float = field(default=0.0, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Broker:
    """One `KafkaLiteBroker`: the registration by the broker and the fence by the operator.

    Attributes:
        id: Broker id, the ordinal of its pod.
        registration: None before the first registration.
        fenced_epoch: Broker epochs up to this one are fenced (R15); -1 for none.
        cordoned: No new replicas are placed here.
        hold: It is left out of rolling restarts.
        replace_request: The annotation that declares its node or volume gone, as it is; empty when it does not.
        leaving: Its replicas move away. `plan` fills it in; see `controller.scale_down`.
        object_name: `metadata.name` of the object.
        uid: `metadata.uid`.
        strays: Directories on this broker that no topic claims (S10).
        strays_unlisted: How many more it has that were not given up, for which its list has no room; None: it does not
            say, as one of an earlier version.
        holdings: What it holds of partitions of which the store shows less than is known (S11); usually none.
        conditions: `status.conditions`.
        recovery: A process that has begun after the registered one and does not register before it has recovered the
            logs; None for none. What tells two brokers apart leaves it out: no election or placement depends on it,
            and it changes every few seconds.
    """

    id: int
    registration: Registration | None = None
    fenced_epoch: int = -1
    cordoned: bool = False
    hold: bool = False
    replace_request: str = ""
    leaving: bool = False
    object_name: str = ""
    uid: str = ""
    strays: tuple[Stray, ...] = ()
    strays_unlisted: int | None = None
    holdings: tuple[Holding, ...] = ()
    conditions: tuple[Condition, ...] = ()
    recovery: Recovery | None = field(default=None, compare=False)

    @property
    def epoch(self) -> int:
        """The registered broker epoch, or -1."""
        return -1 if self.registration is None else self.registration.broker_epoch

    @property
    def fenced(self) -> bool:
        """Not registered, or the registration is at or below the fence."""
        return self.registration is None or self.registration.broker_epoch <= self.fenced_epoch

    @property
    def alive(self) -> bool:
        """Registered, not fenced and caught up with the metadata: it may lead and may join an ISR."""
        return not self.fenced and self.registration is not None and self.registration.state is BrokerState.RUNNING

    @property
    def recovering(self) -> bool:
        """A process recovers the logs, or ended while it did: whether it runs is for its pod to tell."""
        registered = "" if self.registration is None else self.registration.incarnation
        return self.recovery is not None and self.recovery.incarnation != registered

    @property
    def reachable(self) -> bool:
        """Listed in Metadata answers: registered and not fenced, in whatever state."""
        return not self.fenced


def entry_counts(entry: IsrEntry, brokers: Mapping[int, Broker], *, relaxed_flush: bool) -> bool:
    """Whether an ISR or ELR entry stands for data that its broker still has (S2).

    entry counts <=> trustedSince <= entry.epoch <= brokerEpoch, with cleanSince in the place of trustedSince for
    topics with relaxed flush, or the same is true of a registration that was adopted. A broker that is unknown or
    never registered: no (deny on missing data).
    """
    broker = brokers.get(entry.id)
    if broker is None or broker.registration is None:
        return False
    registration = broker.registration
    since = max(registration.trusted_since, registration.clean_since) if relaxed_flush else registration.trusted_since
    return since <= entry.epoch <= registration.broker_epoch or any(
        one.covers(entry.epoch, relaxed_flush=relaxed_flush) for one in registration.adopted
    )


def entry_lost(entry: IsrEntry, brokers: Mapping[int, Broker], *, relaxed_flush: bool) -> bool:
    """Whether an entry is known to stand for nothing any more.

    A broker that is not registered is no candidate, and its entry counts for nothing; but what is on its disk is not
    known either. When the objects of all brokers were lost, each comes back in its own time, and is judged then.
    """
    broker = brokers.get(entry.id)
    registered = broker is not None and broker.registration is not None
    return registered and not entry_counts(entry, brokers, relaxed_flush=relaxed_flush)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """The parts of a `KafkaLiteCluster` that rules look at.

    Attributes:
        namespace: Namespace of the object.
        name: `metadata.name`.
        uid: `metadata.uid`.
        cluster_id: 22 characters, base64 of a UUID; empty before the operator set it.
        replicas: Number of brokers wanted.
        config: Kafka's broker keys, as strings.
        controller_epoch: `status.controller.epoch`.
        controller_holder: `status.controller.holder`.
        next_broker_epoch: Next broker epoch to be drawn.
        next_producer_id: Next producer id to be drawn.
        lease_duration_s: Silence after which a broker is fenced.
        renew_interval_s: Interval of a broker's Lease renewals.
        paused: The annotation `kafkalite.io/paused` is set, or `template_problem` is.
        template_problem: Why `spec.template` cannot be read, where the cluster is treated as paused for it.
        deleting: It is on its way out: nothing is made for it any more, or the garbage collector would never end.
        endpoints: `status.listeners`: what clients of a listener are told, by its name and by broker id.
        max_unavailable: `spec.rolling.maxUnavailable`: most brokers that are away at once in a rolling restart; None:
            as many as the partitions allow.
        node_loss: `spec.nodeLoss`: `wait` or `replace`.
        node_loss_s: `spec.nodeLossSeconds`: how long a node is not ready before it counts as lost.
        generation: `metadata.generation`: rises with every change of the spec.
    """

    namespace: str
    name: str
    uid: str
    cluster_id: str = ""
    replicas: int = 3
    config: dict[str, str] = field(default_factory=dict)
    controller_epoch: int = 0
    controller_holder: str = ""
    next_broker_epoch: int = 1
    next_producer_id: int = 0
    lease_duration_s: float = 5.0
    renew_interval_s: float = 1.0
    paused: bool = False
    template_problem: str = ""
    deleting: bool = False
    endpoints: Mapping[str, Mapping[int, Endpoint]] = field(default_factory=dict)
    max_unavailable: int | None = None
    node_loss: str = "wait"
    node_loss_s: float = 300.0
    generation: int = 0
