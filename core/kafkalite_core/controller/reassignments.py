"""Which partitions move, and when: the wishes in `spec` against the state, with a bound on what moves at once.

A partition's wish is its list in `spec.replicaAssignment`; without one it is `spec.replicas`, and the brokers are
chosen. A move begins when every broker that it adds is alive and fewer than
`kafkalite.reassignment.partitions.max` partitions are being copied in the cluster (a move whose new brokers are away,
or are in sync and wait for others, or that has no leader to copy from, copies nothing and does not count). Changes that
copy nothing (another order, a cancellation, fewer replicas) and new targets of moves under way need no slot.

A broker that leaves (`scale_down`) is in no wish: another one stands in for it, also where a list names it. A partition
without a list that moves although nobody it gives up leaves any more goes back to where it was.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from kafkalite_core.controller.configs import effective_min_isr
from kafkalite_core.controller.election import Verdict, describe_broker
from kafkalite_core.controller.growth import topic_load
from kafkalite_core.controller.obstacle import Obstacle
from kafkalite_core.controller.preferred import setting
from kafkalite_core.controller.reassignment import is_moving, move, origin_of, retargeted, target_of
from kafkalite_core.controller.reassignment_targets import grown, led_by_least, shrunk, stood_in, takes_replicas
from kafkalite_core.controller.scale_down import hand_over, leaving_of
from kafkalite_core.model.limits import REPLICAS_PER_PARTITION_MAX

if TYPE_CHECKING:
    from collections.abc import Collection

    from kafkalite_core.controller.placement import Load
    from kafkalite_core.controller.snapshot import Snapshot, TopicView
    from kafkalite_core.model.partition import Partition

MOVES_KEY = "kafkalite.reassignment.partitions.max"
LISTED_MAX = 5
NOTHING = Verdict(change=None, reason="")


class Reassignments:
    """The moves of one round. Call `decide` for every partition that needs no election, then `obstacle`.

    `silent`: brokers that live and are not heard at present; they are given no leadership.
    """

    def __init__(self, snapshot: Snapshot, silent: frozenset[int] = frozenset()) -> None:
        self._snapshot = snapshot
        self._silent = silent
        self._leaving = leaving_of(snapshot)
        limit = setting(snapshot.cluster.config, MOVES_KEY)
        assert isinstance(limit, int)
        self._limit = limit
        self._copying = sum(self._copies(entry) for view in snapshot.placed_topics() for entry in view.facts.moving)
        self._wished: set[str] = set()
        self._waiting: dict[str, list[str]] = {}
        self._problems: dict[str, Obstacle] = {}

    @cached_property
    def _load(self) -> Load:
        return topic_load(self._snapshot)

    def depends_on_others(self, view: TopicView) -> bool:
        """Whether a topic moves, or what was decided of it looked at the load of brokers or at what else moves."""
        uid = view.topic.ref.uid
        if uid in self._wished or uid in self._waiting or view.facts.moving:
            return True
        # Whether brokers may leave is a question of all topics.
        leaving = self._leaving.ids
        return bool(leaving) and (bool(view.spec.replica_assignment) or not leaving.isdisjoint(view.facts.held))

    def _copies(self, entry: Partition) -> bool:
        copied = set(entry.adding) <= set(entry.isr_ids())
        return not copied and entry.has_leader and not self._absent(entry.adding)

    def _absent(self, ids: tuple[int, ...]) -> list[int]:
        brokers = self._snapshot.brokers
        return [i for i in ids if i not in brokers or not brokers[i].alive]

    def decide(self, view: TopicView, number: int, entry: Partition, *, relaxed_flush: bool) -> Verdict:
        """The next step of one partition, if there is one; what it waits for is remembered for `obstacle`."""
        if view.paused:
            return NOTHING
        target = self._wish(view, number, entry)
        if target is not None:
            self._wished.add(view.topic.ref.uid)
        if target is not None and self._has_to_wait(view, number, entry, target):
            target = None
        snapshot = self._snapshot
        verdict = move(
            entry,
            target,
            snapshot.brokers,
            relaxed_flush=relaxed_flush,
            min_isr_of=lambda replicas: effective_min_isr(snapshot, view, replicas),
            silent=self._silent,
        )
        after = entry if verdict.change is None else verdict.change.proposed
        if target is not None:
            self._load.replace(target_of(entry), target_of(after))
            self._copying += self._copies(after) - self._copies(entry)
        if verdict.change is None and verdict.reason:
            self._wait(view, number, f"moving to {list(target_of(entry))}, {verdict.reason}")
        return verdict

    def hand_over(self, view: TopicView, entry: Partition) -> Verdict:
        """Another leader for a partition whose leader is on a broker that leaves."""
        if view.paused or entry.leader not in self._leaving.evacuated:
            return NOTHING
        return hand_over(entry, self._snapshot.brokers, silent=self._silent)

    def _has_to_wait(self, view: TopicView, number: int, entry: Partition, target: tuple[int, ...]) -> bool:
        new = tuple(broker_id for broker_id in target if broker_id not in entry.replicas)
        absent = self._absent(new)
        if absent:
            words = ", ".join(describe_broker(broker_id, self._snapshot.brokers) for broker_id in absent[:LISTED_MAX])
            self._wait(view, number, f"to be moved to {list(target)}, but {words}")
            return True
        wanted = retargeted(entry, target)
        if len(wanted.replicas) > REPLICAS_PER_PARTITION_MAX:
            self._problem(view, "TooManyReplicas", too_many(number, wanted))
            return True
        if not wanted.adding or self._copies(entry) or self._copying < self._limit:
            return False
        self._wait(view, number, f"to be moved to {list(target)} when it is its turn ({MOVES_KEY} is {self._limit})")
        return True

    def _wait(self, view: TopicView, number: int, text: str) -> None:
        self._waiting.setdefault(view.topic.ref.uid, []).append(f"partition {number}: {text}")

    # -- wishes -------------------------------------------------------------------------------------------------

    def _wish(self, view: TopicView, number: int, entry: Partition) -> tuple[int, ...] | None:
        """The target that is wanted and not there yet; None without such a wish, or with one that cannot be."""
        listed = view.spec.replica_assignment.get(number)
        present = target_of(entry)
        if listed is not None:
            target = self._listed(view, number, entry, listed)
            return None if target == present else target
        wished = self._before(entry, view.spec.replicas)
        if len(wished) > view.spec.replicas:
            wished = shrunk(entry, view.spec.replicas, self._snapshot.brokers, self._load)
        target = self._stood_in(view, number, entry, wished, self._leaving.evacuated)
        if target is not None and target[0] != wished[0]:
            target = led_by_least(target, self._load)
        if target is not None and len(target) < view.spec.replicas:
            target = self._grown(view, number, entry, target)
        return None if target == present else target

    def _listed(
        self, view: TopicView, number: int, entry: Partition, listed: tuple[int, ...]
    ) -> tuple[int, ...] | None:
        snapshot, present = self._snapshot, target_of(entry)
        if listed == present and self._leaving.ids.isdisjoint(listed):
            return present
        beyond = {i for i in (*listed, *present) if i >= snapshot.cluster.replicas}
        if beyond and self._leaving.acts and stood_in(entry, listed, beyond, {}, self._load, number) == present:
            return present  # others stand in for brokers that have left; the list holds again when they come back
        leaving = self._leaving.evacuated
        if not leaving.isdisjoint(present):
            leaving |= beyond  # a list that names who has left long ago keeps nobody from leaving now
        known = {*range(snapshot.cluster.replicas), *leaving, *entry.replicas}
        problem = assignment_problem(number, listed, known)
        if problem:
            self._problem(view, "InvalidReplicaAssignment", f"correct spec.replicaAssignment: {problem}")
            return None
        return self._stood_in(view, number, entry, listed, leaving)

    def _before(self, entry: Partition, replicas: int) -> tuple[int, ...]:
        """The present target; of a move away from brokers that do not leave any more, what there was before."""
        stays = any(i not in self._leaving.ids for i in entry.removing)
        if self._leaving.acts and stays and entry.adding and len(origin_of(entry)) == replicas:
            return origin_of(entry)
        return target_of(entry)

    def _stood_in(
        self, view: TopicView, number: int, entry: Partition, wished: tuple[int, ...], gone: frozenset[int]
    ) -> tuple[int, ...] | None:
        """The wish with others in the place of brokers that leave or have left."""
        leaving = gone & set(wished)
        if not leaving:
            return wished
        target = stood_in(entry, wished, gone, self._snapshot.brokers, self._load, number)
        if target is None:
            ids = ", ".join(map(str, sorted(leaving)))
            words = f"brokers {ids} leave" if len(leaving) > 1 else f"broker {ids} leaves"
            self._wait(view, number, f"{words}, and no other broker that runs and is not cordoned can take the replica")
        return target

    def _grown(self, view: TopicView, number: int, entry: Partition, begin: tuple[int, ...]) -> tuple[int, ...] | None:
        snapshot, wanted = self._snapshot, view.spec.replicas
        target = grown(entry, wanted, snapshot.brokers, self._load, number, begin=begin)
        if target is not None:
            return target
        message = f"{wanted} replicas need {wanted} brokers"
        if wanted > min(snapshot.cluster.replicas, REPLICAS_PER_PARTITION_MAX):
            message = f"{message}, but the cluster has {snapshot.cluster.replicas}; lower spec.replicas or add brokers"
            self._problem(view, "NotEnoughBrokers", message)
        else:
            able = sorted(i for i, broker in snapshot.brokers.items() if takes_replicas(broker))
            message = f"{message} that run and are not cordoned; there are {len(able)} ({able})"
            self._wait(view, number, message)
        return None

    def _problem(self, view: TopicView, reason: str, message: str) -> None:
        self._problems.setdefault(view.topic.ref.uid, Obstacle(reason, message))

    # -- what to tell -------------------------------------------------------------------------------------------

    def obstacle(self, view: TopicView) -> Obstacle | None:
        """What keeps the topic's moves from being over: what the user has to correct, else what they wait for."""
        uid = view.topic.ref.uid
        problem = self._problems.get(uid)
        if problem is not None:
            return problem
        waiting = self._waiting.get(uid)
        if not waiting:
            return None
        more = f"; and {len(waiting) - LISTED_MAX} more" if len(waiting) > LISTED_MAX else ""
        moving = sum(is_moving(entry) for entry in view.topic.partitions.values())
        message = f"{moving} of {len(view.topic.partitions)} partitions are moving: {'; '.join(waiting[:LISTED_MAX])}"
        return Obstacle("Reassigning", f"{message}{more}", waiting=True)


def too_many(number: int, wanted: Partition) -> str:
    """Why a move cannot begin whose old and new replicas do not fit into an entry, and how it can be made."""
    target, most = target_of(wanted), REPLICAS_PER_PARTITION_MAX
    room, beyond = most - len(target), len(wanted.replicas) - most
    remedy = f"let at most {room} of them leave at a time"
    if not room:
        remedy = (
            f"lower spec.replicas, or shorten its list in spec.replicaAssignment, by {beyond} until they have left, "
            "then raise it again"
        )
    return (
        f"partition {number} is to be moved to {list(target)}; with those that leave when the others are in sync these "
        f"are {len(wanted.replicas)} brokers, and a partition has at most {most}: {remedy}"
    )


def assignment_problem(number: int, target: tuple[int, ...], known: Collection[int]) -> str:
    """What is wrong with a manual list of replicas, as a sentence; empty when it is right."""
    if not target:
        return f"partition {number} names no broker"
    if len(set(target)) != len(target):
        return f"partition {number} names a broker twice"
    if len(target) > REPLICAS_PER_PARTITION_MAX:
        return f"partition {number} names more than {REPLICAS_PER_PARTITION_MAX} brokers"
    unknown = sorted(set(target) - set(known))
    return f"partition {number} names unknown brokers {unknown}" if unknown else ""
