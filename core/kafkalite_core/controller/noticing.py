"""Which brokers have noticed that a topic is gone, or lost its status, before others take over what they hold (S10).

    noticed  =>  the broker says with its Lease that it has seen the object that is to be placed; then it has set aside
                 what it held of another one of that name, and its status tells so (`membership/notice.py`)

No time is long enough instead: who is heard may hear late, and leads the lost topic until then, if need be alone. A
broker of an earlier version does not say so. It has `ADOPTION_GRACE_S`, or has noticed when it lists data of the topic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalite_core.controller.fencing import heard
from kafkalite_core.model.limits import NOTICED_MAX

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kafkalite_core.controller.snapshot import Snapshot, TopicView

ADOPTION_GRACE_S = 15.0
"""Within this time a broker that is heard notices, as a rule, that an object is gone, or that the store went back in
time: a watch that tells nothing is given up after 10 s."""


def has_noticed(snapshot: Snapshot, view: TopicView, broker_id: int, *, lists: bool, now: float) -> bool:
    """Whether a live broker has noticed the topic that is to be placed. `lists`: its status names data of it."""
    said = _said(snapshot, broker_id, now)
    if said is not None and view.topic.ref.uid in said:
        return True
    if said is not None and len(said) < NOTICED_MAX:
        return False
    return lists or now - view.first_seen >= ADOPTION_GRACE_S


def noticed_at(snapshot: Snapshot, view: TopicView) -> float:
    """What brokers list tells what is left of a topic of that name if it was asked for after this time."""
    uid = view.topic.ref.uid
    said = [
        lease.noticed_at for lease in snapshot.leases.values() if lease.noticed is not None and uid in lease.noticed
    ]
    return max(view.first_seen, *said) if said else view.first_seen


def unnoticed(snapshot: Snapshot, late: Iterable[int], now: float) -> str:
    """Why it takes a while, in a user's terms."""
    silent = [i for i in late if _said(snapshot, i, now) is None]
    saying = [i for i in late if i not in silent]
    parts = []
    if silent:
        parts.append(f"brokers {silent} list none, and have up to {ADOPTION_GRACE_S:.0f} s to notice the loss")
    if saying:
        parts.append(
            f"brokers {saying} are alive, have not noticed this object yet, and may still serve the lost topic: they "
            "hear late from the API server, or have no room to set its logs aside. If that lasts, make room or restart "
            'them, or start empty, by the annotation kafkalite.io/adopt-strays: "false"'
        )
    return "; ".join(parts)


def _said(snapshot: Snapshot, broker_id: int, now: float) -> frozenset[str] | None:
    """What the registered incarnation says; None when it does not, or is not heard."""
    lease = snapshot.leases.get(broker_id)
    return lease.noticed if lease is not None and heard(snapshot, snapshot.brokers[broker_id], now) else None
