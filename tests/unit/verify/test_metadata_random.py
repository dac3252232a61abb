"""Random good histories of objects pass, in whatever order the watches tell them; a bad change at their end is found."""

import copy
import random

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from kafkalite_cli.verify.metadata_checker import check_changes
from kafkalite_core.model.partition import IsrEntry
from kafkalite_core.resources.members import render_members
from tests.unit.verify.test_metadata_checker import Store

REPLICAS = (0, 1, 2)
MIN_ISR = 2


def members(name, epochs):
    """The two fields of the ISR or ELR, of broker epochs by broker id."""
    return render_members(name, tuple(IsrEntry(broker, epoch) for broker, epoch in sorted(epochs.items())))


def isr(epochs):
    return members("isr", epochs)


def elr(epochs):
    return members("elr", epochs)


class World(Store):
    """Three brokers that die, come back with or without their data, and one partition that follows the rules."""

    def __init__(self, seed, steps=60):
        super().__init__()
        self.rng = random.Random(seed)
        self.next_epoch, self.controller, self.leader, self.leader_epoch, self.partition_epoch = 1, 1, -1, 0, 0
        self.epoch, self.trusted, self.fenced = dict.fromkeys(REPLICAS, 0), {}, dict.fromkeys(REPLICAS, -1)
        self.alive, self.elr = set(), {}
        for broker in REPLICAS:
            self.restart(broker)
        self.isr = dict(self.epoch)
        self.elect()
        for _ in range(steps):
            self.later(self.rng.choice([0, 0, 1, 30]))
            broker = self.rng.choice(REPLICAS)
            self.rng.choice([self.die, self.die, self.come_back, self.come_back, self.expand, self.take_over])(broker)

    # --- what happens

    def die(self, broker):
        """Fenced by the operator, which then removes it from the ISR and elects."""
        if broker in self.alive:
            self.alive.discard(broker)
            self.fence(broker)
            self.settle()

    def come_back(self, broker):
        if broker not in self.alive:
            self.restart(broker, wiped=self.rng.random() < 0.3)
            self.settle()

    def expand(self, broker):
        """The leader found a follower in sync."""
        if self.leader in self.alive and broker in self.alive and broker not in self.isr:
            self.isr[broker] = self.epoch[broker]
            self.elr.pop(broker, None)
            self.changed()

    def take_over(self, _broker):
        self.controller += 1
        self.cluster(epoch=self.controller)

    # --- the rules

    def counts(self, broker, epoch):
        return self.trusted[broker] <= epoch <= self.epoch[broker]

    def restart(self, broker, *, wiped=False):
        self.epoch[broker], self.next_epoch = self.next_epoch, self.next_epoch + 1
        if wiped or broker not in self.trusted:
            self.trusted[broker] = self.epoch[broker]
        self.alive.add(broker)
        self.registered(broker)

    def registered(self, broker):
        self.broker(broker, self.epoch[broker], trusted=self.trusted[broker], fenced=self.fenced[broker])

    def fence(self, broker):
        self.fenced[broker] = self.epoch[broker]
        self.registered(broker)

    def settle(self):
        """One decision of the operator on what the brokers are now."""
        counting = {b: e for b, e in self.isr.items() if self.counts(b, e)}
        living = {b: self.epoch[b] for b in counting if b in self.alive}
        eligible = [b for b, e in self.elr.items() if self.counts(b, e) and b in self.alive]
        dropped = {b: e for b, e in counting.items() if b not in living}
        if not living and eligible:
            living = {eligible[0]: self.epoch[eligible[0]]}
        if not living:
            if self.leader != -1:
                self.isr = counting or self.isr
                self.elect()
            return
        keep = {b: e for b, e in {**self.elr, **dropped}.items() if b not in living and self.counts(b, e)}
        before, self.isr = self.isr, living
        eligible_before, self.elr = self.elr, keep if len(living) < MIN_ISR else {}
        if self.leader in living and before.get(self.leader) == self.epoch[self.leader]:
            if (before, eligible_before) != (self.isr, self.elr):
                self.changed()
        else:
            self.elect()

    def elect(self):
        living = [b for b in self.isr if b in self.alive and self.isr[b] == self.epoch[b]]
        self.leader = self.rng.choice(living) if living else -1
        self.leader_epoch += 1
        self.changed()

    def changed(self):
        self.partition_epoch += 1
        self.put_topic(self.entry())

    def entry(self, **changes):
        shown = {**isr(self.isr), **elr(self.elr)}
        made = {"leader": self.leader, "leaderEpoch": self.leader_epoch, "partitionEpoch": self.partition_epoch}
        return {**made, "minIsr": MIN_ISR, "replicas": list(REPLICAS), **shown, **changes}

    def put_topic(self, entry, **options):
        self.topic(entry, controller=self.controller, **options)

    def next(self, **changes):
        """An entry after the present one."""
        return self.entry(partitionEpoch=self.partition_epoch + 1, **changes)

    def elected(self, broker, epoch=None):
        alone = {broker: self.epoch[broker] if epoch is None else epoch}
        return self.next(leader=broker, leaderEpoch=self.leader_epoch + 1, **isr(alone), **elr({}))


class Bad:
    """Each method appends one change that must not be, and names what must be found; None: there is no occasion."""

    @staticmethod
    def leader_epoch_falls(world):
        world.put_topic(world.next(leaderEpoch=world.leader_epoch - 1))
        return "leader-epoch-fell"

    @staticmethod
    def partition_epoch_falls(world):
        world.put_topic(world.entry(partitionEpoch=world.partition_epoch - 1))
        return "partition-epoch-fell"

    @staticmethod
    def two_changes_in_one_epoch(world):
        world.put_topic(world.entry(minIsr=1))
        return "two-changes"

    @staticmethod
    def an_epoch_is_left_out(world):
        world.put_topic(world.entry(partitionEpoch=world.partition_epoch + 2))
        return "skipped-epoch"

    @staticmethod
    def leadership_moves_without_epoch(world):
        others = [broker for broker in world.isr if broker != world.leader]
        if not others:
            return None
        world.put_topic(world.next(leader=world.rng.choice(others)))
        return "leader-without-epoch"

    @staticmethod
    def an_epoch_gets_a_second_leader_in_another_object(world):
        if world.leader == -1:
            return None
        other = (world.leader + 1) % 3
        world.put_topic(world.entry(leader=other, **isr({other: world.epoch[other]}), **elr({})), uid="again")
        return "two-leaders"

    @staticmethod
    def a_stranger_is_elected(world):
        strangers = set(REPLICAS) - set(world.isr) - set(world.elr)
        if not strangers:
            return None
        world.put_topic(world.elected(world.rng.choice(sorted(strangers))))
        return "unclean-election"

    @staticmethod
    def an_empty_disk_is_elected(world):
        broker = world.rng.choice(sorted(world.isr))
        world.restart(broker, wiped=True)
        world.put_topic(world.elected(broker))
        return "unclean-election"

    @staticmethod
    def a_former_incarnation_is_elected(world):
        counting = [broker for broker, epoch in world.isr.items() if world.counts(broker, epoch)]
        if not counting:
            return None
        broker = world.rng.choice(sorted(counting))
        former = world.epoch[broker]
        world.restart(broker)
        world.later(11).put_topic(world.elected(broker, former))
        return "wrong-broker-epoch"

    @staticmethod
    def a_fenced_broker_is_elected(world):
        broker = world.rng.choice(sorted(world.isr))
        world.fence(broker)
        world.later(11).put_topic(world.elected(broker))
        return "fenced-leader"

    @staticmethod
    def the_isr_names_an_epoch_that_nobody_had(world):
        world.put_topic(world.next(**isr(world.isr | {min(world.isr): 10_000})))
        return "never-registered"

    @staticmethod
    def the_elr_has_a_stranger(world):
        strangers = set(REPLICAS) - set(world.isr) - set(world.elr)
        if not strangers:
            return None
        world.put_topic(world.next(**elr({b: world.epoch[b] for b in strangers})))
        return "elr-from-nowhere"

    @staticmethod
    def the_leader_is_outside_the_isr(world):
        other = next(broker for broker in REPLICAS if broker != world.leader)
        keep = {b: e for b, e in world.isr.items() if b != other}
        if not keep:
            return None
        world.put_topic(world.next(leader=other, leaderEpoch=world.leader_epoch + 1, **isr(keep), **elr({})))
        return "leader-outside-isr"

    @staticmethod
    def the_isr_is_outside_the_replicas(world):
        world.put_topic(world.next(replicas=[broker for broker in REPLICAS if broker != min(world.isr)]))
        return "isr-outside-replicas"

    @staticmethod
    def the_isr_is_empty(world):
        world.put_topic(world.next(leader=-1, leaderEpoch=world.leader_epoch + 1, **isr({}), **elr({})))
        return "empty-isr"

    @staticmethod
    def the_elr_overlaps_the_isr(world):
        world.put_topic(world.next(**elr(world.isr)))
        return "elr-wrong"

    @staticmethod
    def the_controller_epoch_falls(world):
        world.put_topic(world.entry())
        world.controller -= 1
        world.put_topic(world.next())
        return "controller-epoch-fell"

    @staticmethod
    def the_topic_id_changes(world):
        world.put_topic(world.next(), topic_id="other")
        return "topic-id-changed"

    @staticmethod
    def the_partition_vanishes(world):
        world.topic(controller=world.controller)
        return "partition-vanished"

    @staticmethod
    def a_broker_epoch_falls(world):
        broker = world.rng.choice(REPLICAS)
        world.restart(broker)
        world.epoch[broker] -= 1
        world.registered(broker)
        return "broker-epoch-fell"

    @staticmethod
    def two_incarnations_share_an_epoch(world):
        world.restart(0)
        world.broker(1, world.epoch[0], trusted=1, fenced=world.fenced[1], incarnation="twin")
        return "broker-epoch-reused"

    @staticmethod
    def a_fence_falls(world):
        world.fence(2)
        world.fenced[2] -= 1
        world.registered(2)
        return "fence-fell"


BAD = sorted(name for name in vars(Bad) if not name.startswith("_"))


def interleaved(changes, rng):
    """What watches of all kinds deliver: each kind in its order, one lagging behind the other."""
    queues = {}
    for change in changes:
        queues.setdefault(change.kind, []).append(change)
    mixed = []
    while any(queues.values()):
        queue = rng.choice([queue for queue in queues.values() if queue])
        mixed.append(queue.pop(0))
    return mixed


@given(st.integers(min_value=0, max_value=2**32))
@settings(max_examples=100, deadline=None)
def test_good_histories_have_no_anomaly(seed):
    world = World(seed)
    report = check_changes(interleaved(world.changes, world.rng))
    assert report.counts == {}
    assert report.ok
    assert (report.unclean_elections, report.unjudged, report.brokers) == (0, 0, 3)
    assert report.elections == world.leader_epoch - 1, "the first one had no state before it"
    assert report.partition_changes == world.partition_epoch - 1


@pytest.mark.parametrize("name", BAD)
@given(seed=st.integers(min_value=0, max_value=2**32))
@settings(max_examples=15, deadline=None)
def test_one_bad_change_is_found_behind_any_good_history(name, seed):
    world = World(seed, steps=20)
    world.later(60)
    good = copy.copy(world.changes)
    expected = getattr(Bad, name)(world)
    assume(expected is not None)
    report = check_changes(interleaved(world.changes, world.rng))
    assert not report.ok
    assert expected in report.counts, report
    assert check_changes(interleaved(good, world.rng)).ok


def test_every_bad_change_has_an_occasion():
    for name in BAD:
        assert any(getattr(Bad, name)(World(seed, steps=20)) for seed in range(20)), name
