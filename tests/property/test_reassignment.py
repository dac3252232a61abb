"""Replicas that move while brokers crash, restart and lose disks, and two controllers plan on old snapshots.

The store holds one partition's entry. Every broker has a log (a list of records), a view of the entry that may be old,
and leads or follows by it as the replica core does: leader epochs fence fetches, a record is acknowledged when every
member of the leader's ISR fetched beyond it in the present epoch, and the leader takes replicas in that caught up. What
the controllers write is what `plan` says, each on a snapshot as old as the schedule makes it.
"""

from dataclasses import dataclass, field, replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kafkalite_core.controller.actions import ChangePartitions
from kafkalite_core.controller.plan import plan
from kafkalite_core.controller.reassignment import is_moving, origin_of, target_of
from kafkalite_core.model.cluster import entry_counts
from kafkalite_core.model.partition import IsrEntry, Partition
from tests.unit.controller.builders import NOW, make_broker, snapshot, topic_view

IDS = range(5)
BROKERS = st.sampled_from(IDS)
TARGETS = st.lists(BROKERS, min_size=1, max_size=4, unique=True).map(tuple)


@dataclass
class Node:
    """One broker: its log as (leader epoch, record) pairs, the entry as it knows it, and what it leads with."""

    log: list = field(default_factory=list)
    view: Partition | None = None
    fetched: dict = field(default_factory=dict)
    epoch_led: int = -1
    led_from: int = 0
    up: bool = True


class Reassignment(RuleBasedStateMachine):
    """See the module."""

    @initialize(replicas=TARGETS, min_isr=st.integers(1, 2))
    def begin(self, replicas, min_isr):
        self.brokers = {i: make_broker(i) for i in IDS}
        self.nodes = {i: Node() for i in IDS}
        self.epoch = 20
        self.config = {"min.insync.replicas": str(min_isr)}
        self.replicas = len(replicas)
        self.pins = {}
        isr = tuple(IsrEntry(i, self.brokers[i].epoch) for i in replicas)
        self.entry = Partition(
            leader=replicas[0],
            leader_epoch=1,
            partition_epoch=1,
            min_isr=min(min_isr, len(replicas)),
            replicas=replicas,
            isr=isr,
        )
        self.entries = [self.entry]
        self.copies = [self.state(), self.state()]
        self.acked = []
        self.record = 0
        self.lost_disks = set()
        for i in IDS:
            self.learn(i)

    # -- the store ----------------------------------------------------------------------------------------------

    def state(self):
        view = topic_view(
            partitions={0: self.entry},
            spec={"replicas": self.replicas, "config": self.config, "replica_assignment": dict(self.pins)},
        )
        return snapshot(view, brokers=dict(self.brokers), cluster={"replicas": len(IDS)})

    def write(self, expected, proposed):
        """A compare-and-swap with the fences of the API server."""
        if self.entry != expected:
            return False
        assert proposed.partition_epoch > expected.partition_epoch
        assert proposed.leader_epoch >= expected.leader_epoch
        assert proposed.leader == expected.leader or proposed.leader_epoch > expected.leader_epoch
        if set(expected.replicas) - set(proposed.replicas):
            assert proposed.leader_epoch > expected.leader_epoch, "a replica leaves only with a new leader epoch"
        self.entry = proposed
        self.entries.append(proposed)
        return True

    def counting(self, members):
        return [m for m in members if entry_counts(m, self.brokers, relaxed_flush=False)]

    # -- what users and controllers do --------------------------------------------------------------------------

    @rule(replicas=TARGETS)
    def assign(self, replicas):
        self.pins = {0: replicas}

    @rule(replicas=st.integers(1, 4))
    def set_replicas(self, replicas):
        self.pins, self.replicas = {}, replicas

    @precondition(lambda self: is_moving(self.entry))
    @rule()
    def cancel(self):
        self.pins = {0: origin_of(self.entry)}

    @rule(who=st.integers(0, 1))
    def look(self, who):
        self.copies[who] = self.state()

    @rule(who=st.integers(0, 1), fresh=st.booleans())
    def control(self, who, fresh):
        """One round of a controller; on elections and when replicas leave it reads the brokers again, as it must."""
        state = self.copies[who]
        actions = [a for a in plan(state, NOW) if isinstance(a, ChangePartitions)]
        if fresh or any(action.elected for action in actions):
            state = self.copies[who] = self.state()
            actions = [a for a in plan(state, NOW) if isinstance(a, ChangePartitions)]
        for action in actions:
            change = action.changes[0]
            holders_before = self.holders()
            if self.write(change.expected, change.proposed) and holders_before:
                assert self.holders(), f"the controller gave up the last holder: {action.reasons[0]}"
            if 0 in action.moved:
                self.check_move(change.expected, change.proposed)

    def check_move(self, old, new):
        gone = set(old.replicas) - set(new.replicas)
        if gone & {m.id for m in (*old.isr, *old.elr)}:
            assert not is_moving(new), "what holds data leaves only at the end"
            members = self.counting(new.isr)
            assert members
            assert set(new.replicas) - set(old.replicas) - {m.id for m in new.isr} == set()
        assert set(new.adding) | set(new.removing) <= set(new.replicas)
        assert not set(new.adding) & set(new.removing)
        assert target_of(new)

    # -- brokers ------------------------------------------------------------------------------------------------

    @rule(broker=BROKERS)
    def learn(self, broker):
        node = self.nodes[broker]
        if node.view is self.entry or not node.up:
            return
        node.view = self.entry
        if broker not in self.entry.replicas:
            node.log = []  # set aside
        if self.leads(broker) and node.epoch_led < self.entry.leader_epoch:
            node.epoch_led, node.led_from, node.fetched = self.entry.leader_epoch, len(node.log), {}

    def leads(self, broker):
        view = self.nodes[broker].view
        return (
            self.nodes[broker].up
            and view is not None
            and view.leader == broker
            and view.isr_epoch_of(broker) == self.brokers[broker].epoch
            and not any(epoch > view.leader_epoch for epoch, _ in self.nodes[broker].log)
        )

    @rule(broker=BROKERS)
    def append(self, broker):
        if self.leads(broker) and self.nodes[broker].epoch_led == self.nodes[broker].view.leader_epoch:
            self.record += 1
            self.nodes[broker].log.append((self.nodes[broker].view.leader_epoch, self.record))
            self.acknowledge(broker)

    @rule(broker=BROKERS)
    def fetch(self, broker):
        node = self.nodes[broker]
        if not node.up or node.view is None or broker not in node.view.replicas or node.view.leader in (-1, broker):
            return
        leader = self.nodes[node.view.leader]
        same = leader.view is not None and leader.view.leader_epoch == node.view.leader_epoch
        if not same or not self.leads(node.view.leader) or broker not in leader.view.replicas:
            return
        if leader.epoch_led != leader.view.leader_epoch:
            return
        common = 0
        while common < min(len(node.log), len(leader.log)) and node.log[common] == leader.log[common]:
            common += 1
        node.log = leader.log[: len(leader.log)] if common == len(node.log) else node.log[:common]
        leader.fetched[broker, self.brokers[broker].epoch] = len(node.log)
        self.acknowledge(node.view.leader)

    def committed(self, broker):
        node = self.nodes[broker]
        ends = [len(node.log)]
        for member in node.view.isr:
            if member.id != broker:
                ends.append(node.fetched.get((member.id, member.epoch), -1))
        return min(ends)

    def acknowledge(self, broker):
        node = self.nodes[broker]
        if len(self.counting(node.view.isr)) < node.view.min_isr:
            return
        end = self.committed(broker)
        if end > len(self.acked):
            assert node.log[: len(self.acked)] == self.acked, "an acknowledged record was lost or changed"
            self.acked = node.log[:end]

    @rule(broker=BROKERS)
    def change_isr(self, broker):
        """The leader takes in who caught up, and drops who is down."""
        node = self.nodes[broker]
        if not self.leads(broker) or node.view.leader_epoch != node.epoch_led:
            return
        view, floor = node.view, max(len(self.acked), node.led_from)
        members = [m for m in view.isr if m.id == broker or self.nodes[m.id].up]
        for i in view.replicas:
            known = node.fetched.get((i, self.brokers[i].epoch), -1)
            if i not in {m.id for m in members} and self.brokers[i].alive and known >= floor:
                members.append(IsrEntry(i, self.brokers[i].epoch))
        if tuple(members) == view.isr or len(self.counting(members)) < view.min_isr:
            return
        self.write(view, replace(view, isr=tuple(members), elr=(), partition_epoch=view.partition_epoch + 1))

    @rule(broker=BROKERS)
    def crash(self, broker):
        node = self.nodes[broker]
        if node.up:
            node.up = False
            self.brokers[broker] = replace(self.brokers[broker], fenced_epoch=self.brokers[broker].epoch)

    @rule(broker=BROKERS, wiped=st.integers(0, 3).map(lambda n: n == 0))
    def restart(self, broker, wiped):
        """A wiped disk is no fault to survive when nobody else holds the data."""
        node = self.nodes[broker]
        others = self.holders() - {broker}
        if node.up:
            return
        if wiped and others:
            node.log = []
        self.epoch += 1
        trusted = self.epoch if wiped and others else self.brokers[broker].registration.trusted_since
        self.brokers[broker] = make_broker(broker, self.epoch, trusted=trusted)
        node.up, node.view, node.epoch_led, node.fetched = True, None, -1, {}

    # -- what must hold -----------------------------------------------------------------------------------------

    def holders(self):
        """Members that count and have every acknowledged record, whether they run or not."""
        members = self.counting((*self.entry.isr, *self.entry.elr))
        return {m.id for m in members if self.nodes[m.id].log[: len(self.acked)] == self.acked}

    @invariant()
    def every_member_that_counts_holds_every_acknowledged_record(self):
        for member in self.counting((*self.entry.isr, *self.entry.elr)):
            assert self.nodes[member.id].log[: len(self.acked)] == self.acked, member
        assert self.entry.isr

    def teardown(self):
        """Everybody is back: the wish is fulfilled, and the planner comes to rest."""
        if not hasattr(self, "entry"):
            return
        for i in IDS:
            if not self.nodes[i].up:
                self.restart(i, wiped=False)
        for _ in range(40):
            before = self.entry
            self.control(0, fresh=True)
            for i in IDS:
                self.learn(i)
            for i in (*IDS, *IDS):
                self.fetch(i)
            for i in IDS:
                self.change_isr(i)
                self.learn(i)
            if self.entry == before and not is_moving(before):
                break
        if not self.counting((*self.entry.isr, *self.entry.elr)):
            return
        wanted = self.pins.get(0)
        assert not is_moving(self.entry), self.entry
        assert wanted in (None, self.entry.replicas), (wanted, self.entry)
        assert wanted is not None or len(self.entry.replicas) == self.replicas
        assert sorted(self.entry.isr_ids()) == sorted(self.entry.replicas)
        assert not [a for a in plan(self.state(), NOW) if isinstance(a, ChangePartitions)]
        assert self.nodes[self.entry.leader].log[: len(self.acked)] == self.acked


TestReassignment = Reassignment.TestCase
TestReassignment.settings = settings(max_examples=150, stateful_step_count=60, deadline=None)
