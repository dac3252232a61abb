"""Rolling restarts: which pods of an older revision are restarted now, which leaderships move first, what waits why.

Let outdated be the brokers whose pod is made of another revision than the wanted one. What `roll` proposes satisfies:

    a batch is safe (`restart_safety`): every partition keeps min.insync.replicas in sync, at least one broker stays,
        and no more than spec.rolling.maxUnavailable are away, those counted that are away anyway
    a batch begins only when every broker of the wanted revision is Running and in all its ISRs
    until one broker runs the wanted revision a batch has one member: what does not start stops one broker, not many
    a broker leads nothing that another one could lead when its pod is deleted
    a batch stands in `status.rolling.restarting` before a pod of it is deleted, so a controller that takes over goes
        on with it, and a deposed one, whose write is refused, deletes nothing more
    a pod of the wanted revision is never restarted: one change restarts each pod once

A pod of an older revision that cannot run (CrashLoopBackOff, ImagePullBackOff, Pending ...) is replaced at once: it
serves nobody, so nothing waits for it. One that starts is left in peace for `NEVER_READY_S`, and one that recovers its
logs (`recovering`) until it has: the next process would begin anew. Waiting is a state with a reason, never a failure.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from kafkalite_core.controller.configs import relaxed_flush
from kafkalite_core.controller.election import Verdict, describe_broker, hand_over, leader_is_valid, may_lead
from kafkalite_core.controller.recovering import describe_recovery, recovers
from kafkalite_core.controller.resizing import why_restart
from kafkalite_core.controller.restart_safety import Guarded, Safety, not_back
from kafkalite_core.model.pods import Blocked, Rolling
from kafkalite_core.model.replacement import Phase
from kafkalite_core.model.topic import Condition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kafkalite_core.controller.restart_safety import Key, Objection
    from kafkalite_core.controller.snapshot import Snapshot
    from kafkalite_core.model.pods import Pod

NEVER_READY_S = 600.0
"""A pod of an older revision that was not ready for so long is taken for one that never will be."""

BLOCKED_PER_POD = 3
BLOCKED_MAX = 32
LISTED_MAX = 5

UNSERVED = "the StatefulSet does not make such pods yet (the condition ObjectsApplied says if that was refused)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart:
    """A pod to be deleted; the StatefulSet makes it again of the wanted revision."""

    broker_id: int
    pod: str
    uid: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Roll:
    """What a round does about restarts.

    Attributes:
        status: What `status.rolling` shall say.
        moves: Leaderships that are handed over first, by topic uid and partition number.
        restarts: Pods to be deleted now.
        waits: What the roll waits for, as sentences; empty when it goes on.
        unserved: Pods to be restarted when the StatefulSet makes any of the wanted revision: nothing has begun.
    """

    status: Rolling
    moves: Mapping[tuple[str, int], Verdict] = field(default_factory=dict)
    restarts: tuple[Restart, ...] = ()
    waits: tuple[str, ...] = ()
    unserved: tuple[str, ...] = ()

    def balanced(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot for preferred leaders: none get their leaderships back during a roll, all may at its end."""
        if self.status.in_progress:
            return replace(snapshot, balance_due=False)
        return replace(snapshot, balance_due=True) if snapshot.rolling.in_progress else snapshot


def roll(snapshot: Snapshot, now: float) -> Roll:
    """The decision. `now` is in seconds of the observer's monotonic clock."""
    before = snapshot.rolling
    if not snapshot.revision or snapshot.cluster.deleting:
        return Roll(status=before)
    outdated = {i: pod for i, pod in sorted(snapshot.pods.items()) if why_restart(snapshot, pod)}
    if not outdated and not before.in_progress:
        return Roll(status=Rolling())
    if snapshot.cluster.paused:
        names = tuple(pod.name for pod in outdated.values())
        waits = ("kafkalite.io/paused is set on the cluster",) if names else ()
        return Roll(
            status=Rolling(
                in_progress=before.in_progress,
                pending=names,
                restarting=before.restarting,
                blocked_by=tuple(Blocked(names[0], "", why) for why in waits),
            ),
            waits=waits,
        )
    if not snapshot.revision_served:
        return Roll(status=before, unserved=tuple(pod.name for pod in outdated.values()))
    return _Round(snapshot, outdated, now).decide()


class _Round:
    """One decision on a cluster with something to be restarted, or to be waited for."""

    def __init__(self, snapshot: Snapshot, outdated: Mapping[int, Pod], now: float) -> None:
        self._snapshot = snapshot
        self._brokers = snapshot.brokers
        self._pods = snapshot.pods
        self._outdated = outdated
        self._now = now
        self._uids: dict[Key, str] = {}
        self._safety = Safety(self._guarded(), snapshot.brokers)
        self._ids = [i for i in self._all_ids() if i < snapshot.cluster.replicas or self._safety.of(i)]
        # A pod that was deleted is not there for a moment: broker id = ordinal, so its name tells.
        noted = {int(name.rpartition("-")[2]): name for name in snapshot.rolling.restarting}
        self._kept = set(noted)
        self._names = noted | {i: pod.name for i, pod in snapshot.pods.items()}
        self._held = {i for i in outdated if i in self._brokers and self._brokers[i].hold}
        self._recovering = {i for i in snapshot.pods if recovers(snapshot, i, now)}
        self._stuck = {i for i in outdated if i not in self._held and self._cannot_run(i)}
        # Alive, if only to catch up: stopping these is what needs care. The others of an old revision are starting.
        # One that recovers may look alive: its predecessor is not fenced yet.
        left_alone = self._held | self._stuck | self._recovering
        self._candidates = {i for i in outdated if i not in left_alone and self._alive(i)}
        self._waits = {i: why for i in self._ids if i not in self._stuck and (why := self._waits_for(i))}
        self._blocked: list[Blocked] = []

    def _guarded(self) -> Iterable[Guarded]:
        for view in self._snapshot.placed_topics():
            relaxed = relaxed_flush(self._snapshot, view)
            for number, entry in view.topic.partitions.items():
                key = (view.spec.topic_name, number)
                self._uids[key] = view.topic.ref.uid
                yield Guarded(key, entry, relaxed)

    def _all_ids(self) -> list[int]:
        return sorted({*range(self._snapshot.cluster.replicas), *self._pods, *self._brokers})

    # -- what is ------------------------------------------------------------------------------------------------

    def _alive(self, broker_id: int) -> bool:
        broker = self._brokers.get(broker_id)
        return broker is not None and broker.alive

    def _available(self, broker_id: int) -> bool:
        pod = self._pods.get(broker_id)
        return pod is not None and pod.ready and not pod.deleting and self._alive(broker_id)

    def _cannot_run(self, broker_id: int) -> bool:
        pod = self._pods[broker_id]
        too_long = not pod.ready and self._now - pod.unready_since >= NEVER_READY_S
        too_long = too_long and broker_id not in self._recovering
        return not self._alive(broker_id) and (bool(pod.stuck) or too_long)

    def _waits_for(self, broker_id: int) -> str:
        """Why no batch may begin on account of this broker; "" when it stands in nobody's way."""
        pod = self._pods.get(broker_id)
        if pod is None:
            return f"broker {broker_id} has no pod"
        if pod.deleting:
            return f"pod {pod.name} stops"
        if self._snapshot.replacing.broker == broker_id and self._snapshot.replacing.phase is Phase.REMOVING:
            return f"broker {broker_id} is being replaced"
        if broker_id in self._outdated:
            # It is restarted once more, for a change that came during the roll; but not while it starts.
            starting = broker_id in self._kept and broker_id not in self._candidates and broker_id not in self._held
            return self._how_it_starts(pod, broker_id) if starting else ""
        if pod.stuck:
            detail = f": {pod.stuck_message}" if pod.stuck_message else ""
            return f"pod {pod.name} of the new revision cannot run, {pod.stuck}{detail}"
        if not self._alive(broker_id) or broker_id in self._recovering:
            return self._how_it_starts(pod, broker_id, describe_broker(broker_id, self._brokers))
        if any(not_back(each.entry, self._brokers[broker_id]) for each in self._safety.of(broker_id)):
            return f"broker {broker_id} is catching up"
        return "" if pod.ready else f"pod {pod.name} is not ready"

    def _how_it_starts(self, pod: Pod, broker_id: int, state: str = "") -> str:
        if broker_id in self._recovering:
            state = describe_recovery(self._brokers[broker_id])
        return f"pod {pod.name} starts" + (f": {state}" if state else "")

    # -- what shall be ------------------------------------------------------------------------------------------

    def decide(self) -> Roll:
        order = sorted(self._candidates, key=self._rank)
        batch = self._batch(order)
        moves = self._moves(batch)
        begun = sorted(i for i in self._kept if i in self._waits)
        restarting = tuple(self._names[i] for i in sorted({*batch, *begun}))
        noted = self._kept.issuperset(batch)
        now = sorted(self._stuck) + (sorted(batch) if noted and not moves else [])
        if noted:
            for i in sorted({each.change.expected.leader for each in moves.values() if each.change is not None}):
                self._block(i, "", "its leaderships move away first")
        pending = [*order, *(i for i in self._outdated if i not in self._candidates)]
        names = tuple(self._pods[i].name for i in pending)
        unheld = any(i not in self._held for i in pending)
        goes_on = self._snapshot.rolling.in_progress and bool(self._waits)
        for i in sorted(self._recovering & self._outdated.keys() - self._held):
            self._block(i, "", f"{describe_recovery(self._brokers[i])}; it is not restarted before it has")
        for i in sorted(self._held):
            self._block(i, "", "hold is set on its KafkaLiteBroker")
        status = Rolling(
            in_progress=unheld or goes_on,
            pending=names,
            restarting=restarting,
            blocked_by=tuple(self._blocked[:BLOCKED_MAX]),
        )
        waits = tuple(self._waits.values()) or tuple(dict.fromkeys(map(_sentence, status.blocked_by)))
        return Roll(status=status, moves=moves, restarts=tuple(map(self._restart, now)), waits=waits)

    def _rank(self, broker_id: int) -> tuple[bool, bool, int, int, int]:
        """Who has been chosen stays chosen; then the unready, then the load. Who hands leaderships over leads fewer."""
        replicas = self._safety.of(broker_id)
        leads = sum(each.entry.leader == broker_id for each in replicas)
        return (broker_id not in self._kept, self._available(broker_id), leads, len(replicas), broker_id)

    def _batch(self, order: list[int]) -> list[int]:
        """The largest batch that is safe, taken in order; what does not get in is noted with its reason."""
        if self._waits:
            for why in self._waits.values():
                if order:
                    self._block(order[0], "", why)
            return []
        batch: list[int] = []
        refused: list[tuple[int, str, list[Objection]]] = []
        for broker_id in order:
            obstacle = self._obstacle(broker_id, batch)
            objections = [] if obstacle else self._safety.blocks(broker_id, set(batch))
            if obstacle or objections:
                refused.append((broker_id, obstacle, objections))
            else:
                batch.append(broker_id)
        if not batch:
            for broker_id, obstacle, objections in refused:
                self._refuse(broker_id, obstacle, objections)
        return batch

    def _obstacle(self, broker_id: int, batch: list[int]) -> str:
        """What speaks against one more broker in the batch, partitions aside."""
        away = [i for i in self._ids if not self._available(i)]
        taken = sum(self._available(i) for i in batch)
        limit = self._snapshot.cluster.max_unavailable
        if limit is not None and self._available(broker_id) and len(away) + taken + 1 > limit:
            others = f", and away are {', '.join(f'broker {i}' for i in away)}" if away else ""
            return f"spec.rolling.maxUnavailable is {limit}{others}"
        proven = any(i not in self._outdated and i not in self._waits for i in self._ids)
        if batch and not proven:
            return "one broker shows first that the new revision runs"
        if len(self._ids) > 1 and sum(self._alive(i) for i in self._ids) - len(batch) < 2:
            return "one broker has to stay"
        return ""

    def _refuse(self, broker_id: int, obstacle: str, objections: list[Objection]) -> None:
        if obstacle:
            self._block(broker_id, "", obstacle)
        for each in objections[:BLOCKED_PER_POD]:
            self._block(broker_id, f"{each.key[0]}-{each.key[1]}", each.why)
        if len(objections) > BLOCKED_PER_POD:
            self._block(broker_id, "", f"{len(objections) - BLOCKED_PER_POD} more partitions speak against it")

    def _block(self, broker_id: int, partition: str, reason: str) -> None:
        self._blocked.append(Blocked(self._pods[broker_id].name, partition, reason))

    def _moves(self, batch: list[int]) -> dict[tuple[str, int], Verdict]:
        """Every leadership of the batch that another member of the ISR could have, those that are not restarted later
        first: a leadership that moves once need not move again.
        """
        moves: dict[tuple[str, int], Verdict] = {}
        for broker_id in batch:
            for each in self._safety.of(broker_id):
                entry = each.entry
                if entry.leader != broker_id or not leader_is_valid(entry, self._brokers):
                    continue
                able = [
                    i
                    for i in entry.replicas
                    if i not in batch
                    and i in self._safety.living(each.key)
                    and may_lead(entry, i, self._brokers)
                    and i < self._snapshot.cluster.replicas  # who leaves the cluster would hand it back
                ]
                if able:
                    to = min(able, key=lambda i: (i in self._outdated, entry.replicas.index(i)))
                    reason = f"broker {broker_id} is about to be restarted; broker {to} is in sync"
                    moves[self._uids[each.key], each.key[1]] = hand_over(entry, to, reason)
        return moves

    def _restart(self, broker_id: int) -> Restart:
        pod = self._pods[broker_id]
        reason = why_restart(self._snapshot, pod)
        if broker_id in self._stuck:
            reason = f"{reason}, and it cannot run ({pod.stuck or 'it never became ready'})"
        return Restart(broker_id=broker_id, pod=pod.name, uid=pod.uid, reason=reason)


def rolling_condition(conditions: tuple[Condition, ...], done: Roll) -> tuple[Condition, ...]:
    """Conditions of a cluster, whose Progressing tells of the roll unless it has something more urgent to tell."""
    status = done.status
    if not status.in_progress and not done.unserved:
        return conditions
    waits = (*done.waits, *([UNSERVED] if done.unserved else []))
    pending = done.unserved or status.pending
    message = "; ".join(
        [
            *([f"restarting {_listed(status.restarting)}"] if status.restarting else []),
            *([f"still to be restarted: {_listed(pending)}"] if pending else []),
            *([f"waiting: {_listed(waits)}"] if waits else []),
        ]
    )
    rolling = Condition(type="Progressing", status="True", reason="RollingRestart", message=message)
    return tuple(
        rolling if each.type == "Progressing" and each.reason in {"Stable", "StartingBrokers"} else each
        for each in conditions
    )


def _listed(items: tuple[str, ...]) -> str:
    rest = len(items) - LISTED_MAX
    return ", ".join(items[:LISTED_MAX]) + (f" and {rest} more" if rest > 0 else "")


def _sentence(blocked: Blocked) -> str:
    return f"{blocked.partition} {blocked.reason}" if blocked.partition else f"{blocked.pod}: {blocked.reason}"
