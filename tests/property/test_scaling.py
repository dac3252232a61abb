"""Brokers come and go by `spec.replicas` while they crash, restart and lose disks, and replicas move.

The world is that of `test_reassignment`. A broker that a controller removes loses its disk: that is how it shows whether
something was left there. Controllers decide on old snapshots; before a broker goes they look once more, as they must.
"""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from kafkalite_core.controller.actions import CreateBroker, RemoveBroker
from kafkalite_core.controller.plan import plan
from kafkalite_core.controller.reassignment import is_moving
from kafkalite_core.model.cluster import Broker
from tests.property.test_reassignment import BROKERS, IDS, Node, Reassignment
from tests.unit.controller.builders import NOW, make_broker, snapshot, topic_view


class Scaling(Reassignment):
    """See the module."""

    def state(self):
        if not hasattr(self, "gone"):
            self.gone, self.wanted = set(), len(IDS)
        view = topic_view(
            partitions={0: self.entry},
            spec={"replicas": self.replicas, "config": self.config, "replica_assignment": dict(self.pins)},
        )
        known = {i: broker for i, broker in self.brokers.items() if i not in self.gone}
        return snapshot(view, brokers=known, cluster={"replicas": self.wanted})

    @rule(wanted=st.integers(1, len(IDS)))
    def scale(self, wanted):
        self.wanted = wanted

    @rule(who=st.integers(0, 1))
    def scale_down(self, who):
        """What a controller does about brokers, on its old snapshot and a look at the topics."""
        for action in plan(self.copies[who], NOW):
            if isinstance(action, RemoveBroker):
                number = action.broker.id
                if number in self.entry.replicas or number < self.wanted or number in self.gone:
                    continue  # the look at the topics, the name of the pod, and the version of the object say so
                if number == max(set(IDS) - self.gone):
                    self.remove(number)
            if isinstance(action, CreateBroker) and action.broker_id in self.gone:
                self.create(action.broker_id)

    def remove(self, number):
        members = {m.id for m in (*self.entry.isr, *self.entry.elr)}
        assert number not in {*self.entry.replicas, *members}
        self.gone.add(number)
        self.nodes[number] = Node(up=False)
        self.brokers[number] = Broker(id=number)

    def create(self, number):
        self.gone.discard(number)
        self.begin_again(number)

    def begin_again(self, number):
        """An empty disk and a new object."""
        self.epoch += 1
        self.brokers[number] = make_broker(number, self.epoch, trusted=self.epoch)
        self.nodes[number] = Node()

    @rule(broker=BROKERS, wiped=st.integers(0, 3).map(lambda n: n == 0))
    def restart(self, broker, wiped):
        if broker not in self.gone:
            super().restart(broker, wiped)

    @precondition(lambda self: self.entry.replicas)
    @rule()
    def nobody_with_a_replica_is_gone(self):
        assert not self.gone & set(self.entry.replicas)

    def teardown(self):
        """Everybody is back: those who shall go have gone, if that is possible, and all others are in sync."""
        if not hasattr(self, "entry"):
            return
        for i in IDS:
            if i not in self.gone and not self.nodes[i].up:
                self.restart(i, wiped=False)
        for _ in range(60):
            before = (self.entry, set(self.gone))
            self.control(0, fresh=True)
            self.copies[0] = self.state()
            self.scale_down(0)
            for i in IDS:
                self.learn(i)
            for i in (*IDS, *IDS):
                self.fetch(i)
            for i in IDS:
                self.change_isr(i)
                self.learn(i)
            if (self.entry, self.gone) == before:
                break
        if not self.counting((*self.entry.isr, *self.entry.elr)):
            return
        width = len(self.pins[0]) if self.pins else self.replicas
        assert self.nodes[self.entry.leader].log[: len(self.acked)] == self.acked
        assert not is_moving(self.entry), self.entry
        assert sorted(self.entry.isr_ids()) == sorted(self.entry.replicas)
        if width <= self.wanted:
            assert self.gone == set(range(self.wanted, len(IDS))), (self.entry, self.wanted)
            assert max(self.entry.replicas) < self.wanted
        else:
            assert not self.gone & set(self.entry.replicas)


TestScaling = Scaling.TestCase
TestScaling.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
del Reassignment
