"""A cluster in which pods stop, start, register and join ISRs, in any order; `plan` decides what is restarted."""

from __future__ import annotations

from dataclasses import replace

from kafkalite_core.controller.actions import (
    ChangePartitions,
    CreateBroker,
    Fence,
    RestartPods,
    UpdateClusterStatus,
    UpdateTopicStatus,
)
from kafkalite_core.controller.plan import plan
from kafkalite_core.controller.snapshot import LeaseView
from kafkalite_core.model.cluster import BrokerState
from kafkalite_core.model.partition import IsrEntry
from kafkalite_core.model.pods import Pod, Rolling
from tests.unit.controller.builders import apply, entry, make_broker, snapshot, topic_view

OLD, NEW = "t1.c1", "t2.c1"


def pod(broker_id, revision=OLD, **more):
    name = f"kafkalite-broker-{broker_id}"
    return Pod(**{"name": name, "uid": f"{name}-0", "revision": revision, "ready": True, **more})


def name(broker_id):
    return f"kafkalite-broker-{broker_id}"


def cluster(*partitions, brokers=3, wanted=NEW, config=None, **more):
    """A healthy cluster, all of whose pods are of the old revision. A partition is (replicas, min ISR)."""
    entries = {
        number: entry(
            leader=replicas[0],
            isr=[(i, 10 + i) for i in replicas],
            replicas=replicas,
            min_isr=min(min_isr, len(replicas)),
        )
        for number, (replicas, min_isr) in enumerate(partitions)
    }
    lowest = min((each.min_isr for each in entries.values()), default=1)
    views = [
        topic_view(
            f"t{number}",
            partitions={0: each},
            spec={
                "partitions": 1,
                "replicas": len(each.replicas),
                "config": {"min.insync.replicas": str(each.min_isr)},
            },
        )
        for number, each in entries.items()
    ]
    assert lowest
    values = {
        "brokers": {i: make_broker(i) for i in range(brokers)},
        "pods": {i: pod(i) for i in range(brokers)},
        "cluster": {"replicas": brokers, **(config or {})},
        "revision": wanted,
        "revision_served": True,
    }
    return snapshot(*views, **{**values, **more})


def settled(state, broker_id):
    """In all its ISRs, with its pod ready."""
    broker, its_pod = state.brokers[broker_id], state.pods.get(broker_id)
    entries = [e for v in state.topics.values() for e in v.topic.partitions.values() if broker_id in e.replicas]
    in_sync = all(e.isr_epoch_of(broker_id) == broker.epoch for e in entries)
    return broker.alive and in_sync and its_pod is not None and its_pod.ready and not its_pod.deleting


class World:
    """Time passes by `step`; what may happen next is chosen by `choose(list)`."""

    def __init__(self, state, choose, *, sick_revisions=frozenset()):
        self.state = state
        self.now = 1000.0
        self.choose = choose
        self.sick = sick_revisions
        self.restarts: list[int] = []
        self.batches: list[tuple[int, ...]] = []
        self.statuses: list[Rolling] = []
        self._epoch = 100
        self._uid = 0
        self._gone: set[int] = set()

    # -- the operator -------------------------------------------------------------------------------------------

    def plan(self):
        """One round, carried out. A status is not written while something more urgent is."""
        self.state = replace(self.state, leases=self._leases(), brokers_age_s=0.0)
        actions = plan(self.state, self.now)
        urgent = [a for a in actions if isinstance(a, Fence | ChangePartitions)]
        later = [a for a in actions if isinstance(a, UpdateTopicStatus | UpdateClusterStatus) and not urgent]
        for action in actions:
            if isinstance(action, RestartPods):
                self._check(action)
                self.batches.append(tuple(each.broker_id for each in action.restarts))
                self.restarts += [each.broker_id for each in action.restarts]
        restarts = [a for a in actions if isinstance(a, RestartPods)]
        self.state = apply(self.state, [*urgent, *restarts, *later])
        assert not [a for a in actions if isinstance(a, CreateBroker)]
        if not self.statuses or self.statuses[-1] != self.state.rolling:
            self.statuses.append(self.state.rolling)
        return actions

    def _leases(self):
        return {
            i: LeaseView(holder=b.registration.incarnation, changed_at=self.now) for i, b in self.state.brokers.items()
        }

    def _check(self, action):
        """The promise, in other words than the rule's."""
        leaving = {each.broker_id for each in action.restarts}
        for each in action.restarts:
            its_pod = self.state.pods[each.broker_id]
            assert its_pod.uid == each.uid
            assert its_pod.revision != self.state.revision, "what is of the wanted revision stays"
        alive = {i for i, b in self.state.brokers.items() if b.alive}
        for view in self.state.topics.values():
            for e in view.topic.partitions.values():
                members = {m.id for m in e.isr if m.id in alive}
                if not members & leaving:
                    continue
                left = members - leaving
                if len(left) < e.min_isr:
                    assert len(e.replicas) <= e.min_isr, f"{view.spec.topic_name} keeps {left} of {e.min_isr}"
                    assert left == set(e.replicas) - leaving, "all the others are in sync"
                    assert len(leaving & set(e.replicas)) == 1
                if e.leader in leaving:
                    assert not left, "somebody else could have led"
        if len(self.state.brokers) > 1 and alive & leaving:
            assert alive - leaving
        others = [i for i in self.state.pods if self.state.pods[i].revision == self.state.revision]
        if alive & leaving:
            assert all(settled(self.state, i) for i in others), "the last batch is not back yet"
            assert all(i in self.state.pods for i in self.state.brokers)
            assert not any(p.deleting for p in self.state.pods.values())

    # -- the world ----------------------------------------------------------------------------------------------

    def happenings(self):
        """What may happen next, one thing at a time."""
        found = []
        for i in sorted(self.state.brokers):
            its_pod, broker = self.state.pods.get(i), self.state.brokers[i]
            if its_pod is None:
                found.append((self._made, i))
            elif its_pod.deleting:
                found.append((self._stopped, i))
            elif i in self._gone:
                if its_pod.revision not in self.sick:
                    found.append((self._registered, i))
                elif not its_pod.stuck:
                    found.append((self._crashes, i))
            elif broker.alive:
                lacking = [
                    (v, n)
                    for v in self.state.topics.values()
                    for n, e in v.topic.partitions.items()
                    if i in e.replicas
                    and e.isr_epoch_of(i) != broker.epoch
                    and e.has_leader
                    and e.leader != i
                    and self.state.brokers[e.leader].alive
                ]
                found += [(self._joined, (i, v.topic.ref.uid, n)) for v, n in lacking]
                if not lacking and not its_pod.ready:
                    found.append((self._ready, i))
        return found

    def step(self):
        """One thing happens, or the operator looks. False when nothing is left to happen."""
        found = self.happenings()
        if found and self.choose([True, True, False]):
            what, about = self.choose(found)
            what(about)
        elif not self.plan() and not found:
            return False
        self.now += 1.0
        return True

    def run(self, limit=3000):
        for _ in range(limit):
            if not self.step():
                return
        raise AssertionError(f"never at rest: {self.state.rolling}")

    def _pod(self, broker_id, **changes):
        pods = dict(self.state.pods)
        pods[broker_id] = replace(pods[broker_id], **changes)
        self.state = replace(self.state, pods=pods)

    def _broker(self, broker):
        self.state = replace(self.state, brokers={**self.state.brokers, broker.id: broker})

    def _stopped(self, broker_id):
        """The process has ended in order: out of its ISRs by the operator, then fenced."""
        broker = self.state.brokers[broker_id]
        shutting = replace(broker.registration, state=BrokerState.SHUTTING_DOWN)
        self._broker(replace(broker, registration=shutting))
        self._gone.add(broker_id)
        self.state = replace(self.state, pods={i: p for i, p in self.state.pods.items() if i != broker_id})

    def _made(self, broker_id):
        self._uid += 1
        made = pod(broker_id, self.state.revision, uid=f"made-{self._uid}", ready=False, unready_since=self.now)
        self.state = replace(self.state, pods={**self.state.pods, broker_id: made})

    def _registered(self, broker_id):
        self._epoch += 1
        self._gone.discard(broker_id)
        self._broker(make_broker(broker_id, self._epoch))
        if self.state.pods[broker_id].stuck:
            self._pod(broker_id, stuck="")

    def _crashes(self, broker_id):
        self._pod(broker_id, stuck="CrashLoopBackOff", stuck_message="exit code 64")

    def _joined(self, what):
        broker_id, uid, number = what
        view = self.state.topics[uid]
        old = view.topic.partitions[number]
        isr = (*(m for m in old.isr if m.id != broker_id), IsrEntry(broker_id, self.state.brokers[broker_id].epoch))
        new = replace(old, isr=isr, partition_epoch=old.partition_epoch + 1, elr=())
        topic = replace(view.topic, partitions={**view.topic.partitions, number: new})
        self.state = replace(self.state, topics={**self.state.topics, uid: replace(view, topic=topic)})

    def _ready(self, broker_id):
        self._pod(broker_id, ready=True)
