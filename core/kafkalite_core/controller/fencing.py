"""Which registered brokers have to be fenced, and by which evidence.

    fenced  =>  the container of the registered incarnation ended (S7), or its Lease showed no renewal for longer than
                the lease duration while Leases were being read without a gap (R16); after a gap it is given some time
                to be heard at all, since not every node reaches a restarted API server in one moment

The lease duration is the longer one of the cluster's and of the one that the holder wrote into its Lease: when the
cluster's is lowered, a broker goes on renewing at the interval of the former one until it hears of it, and says so.

A Lease is liveness, never safety: a broker that is fenced by mistake loses its leaderships, not data. Still a mistake
made on all brokers at once stops the cluster, so expiry alone never fences
  - anybody while nobody's Lease is renewed: that looks like the Leases' fault, and there would be nobody to elect;
  - more than N - minISR brokers within one lease duration (at least one), N being the registered brokers.
Neither bound holds for container exits: they are evidence of their own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalite_core.controller.actions import Fence

if TYPE_CHECKING:
    from kafkalite_core.controller.snapshot import Snapshot
    from kafkalite_core.model.cluster import Broker


def judge(snapshot: Snapshot, now: float) -> list[Fence]:
    """The brokers to be fenced now, with reasons. Empty while Leases cannot be read, container exits excepted."""
    fences = [fence for broker in _registered(snapshot) if (fence := _by_exit(snapshot, broker)) is not None]
    ended = {fence.broker.id for fence in fences}
    silent = [broker for broker in _registered(snapshot) if broker.id not in ended and _expired(snapshot, broker, now)]
    if not silent:
        return fences
    renewing = [
        broker.id for broker in _registered(snapshot) if broker.id not in ended and not _expired(snapshot, broker, now)
    ]
    if not renewing:
        return fences
    allowance = _allowance(snapshot, now)
    # Longest silence first, so that a restarted controller takes the same decision.
    silent.sort(key=lambda broker: (_last_sign(snapshot, broker), broker.id))
    return fences + [_by_expiry(snapshot, broker, now) for broker in silent[:allowance]]


def heard(snapshot: Snapshot, broker: Broker, now: float) -> bool:
    """Whether the registered incarnation was seen to renew its Lease within the last lease duration.

    Without the benefit of the doubt that `judge` gives: who was not fenced may have been dead all the time that nobody
    could be heard, or while everybody was silent. Whoever goes by what that incarnation knows asks here.
    """
    lease = snapshot.leases.get(broker.id)
    if lease is None or snapshot.observing_since is None or broker.registration is None:
        return False
    if lease.holder != broker.registration.incarnation or lease.changed_at <= snapshot.observing_since:
        return False
    return now - lease.changed_at <= _duration_s(snapshot, broker)


def silent(snapshot: Snapshot, now: float) -> frozenset[int]:
    """Brokers that are alive as far as is known, and not `heard`: nobody knows whether they would hear that they lead.

    After an outage of the API server they go on serving what they lead, and may not reach it for a while. Who has just
    registered has reached it, though the first renewal is yet to be seen.
    """
    there = {i: broker for i, broker in snapshot.brokers.items() if broker.alive and not _is_new(snapshot, broker, now)}
    return frozenset(i for i, broker in there.items() if not heard(snapshot, broker, now))


def _is_new(snapshot: Snapshot, broker: Broker, now: float) -> bool:
    registered_at = snapshot.registered_at.get(broker.id)
    return registered_at is not None and registered_at >= now - _duration_s(snapshot, broker)


def _duration_s(snapshot: Snapshot, broker: Broker) -> float:
    """What a former holder went by says nothing of a process that has just begun."""
    lease = snapshot.leases.get(broker.id)
    own = lease is not None and broker.registration is not None and lease.holder == broker.registration.incarnation
    return max(snapshot.cluster.lease_duration_s, lease.duration_s if own and lease is not None else 0.0)


def _registered(snapshot: Snapshot) -> list[Broker]:
    """Brokers that are registered and not fenced, by id."""
    return [broker for _, broker in sorted(snapshot.brokers.items()) if not broker.fenced]


def _by_exit(snapshot: Snapshot, broker: Broker) -> Fence | None:
    assert broker.registration is not None
    reason = snapshot.exits.get((broker.id, broker.registration.incarnation))
    if reason is None:
        return None
    message = f"container of incarnation {broker.registration.incarnation} ended: {reason or 'no reason given'}"
    return Fence(broker=broker, reason="ContainerExited", message=message, by_expiry=False)


def _last_sign(snapshot: Snapshot, broker: Broker) -> float:
    """When the broker last gave a sign of life, as far as this observer may tell (R16)."""
    assert snapshot.observing_since is not None
    lease = snapshot.leases.get(broker.id)
    signs = [snapshot.observing_since, snapshot.registered_at.get(broker.id, snapshot.observing_since)]
    if lease is not None:
        signs.append(lease.changed_at)
    if lease is None or lease.changed_at <= snapshot.observing_since:
        signs.append(snapshot.unheard_until)
    return max(signs)


def _expired(snapshot: Snapshot, broker: Broker, now: float) -> bool:
    if snapshot.observing_since is None:
        return False
    return now - _last_sign(snapshot, broker) > _duration_s(snapshot, broker)


def _allowance(snapshot: Snapshot, now: float) -> int:
    registered = sum(1 for broker in snapshot.brokers.values() if broker.registration is not None)
    min_isr = max((view.facts.min_isr for view in snapshot.placed_topics() if view.topic.partitions), default=1)
    window = max((_duration_s(snapshot, broker) for broker in _registered(snapshot)), default=0.0)
    recent = sum(1 for fenced_at in snapshot.expiry_fences if now - fenced_at < window)
    return max(0, max(1, registered - min_isr) - recent)


def _by_expiry(snapshot: Snapshot, broker: Broker, now: float) -> Fence:
    silence = now - _last_sign(snapshot, broker)
    message = f"no Lease renewal for {silence:.1f} s (lease duration {_duration_s(snapshot, broker):g} s)"
    return Fence(broker=broker, reason="LeaseExpired", message=message, by_expiry=True)
