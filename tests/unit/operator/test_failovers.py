"""Elections and failovers are measured until the status is written with a leader."""

import copy
from dataclasses import replace

from kafkalite_core.controller.actions import ChangePartitions
from kafkalite_core.model.partition import PartitionChange
from kafkalite_core.resources.manifests import cluster_settings
from kafkalite_core.resources.topics import parse_topic
from kafkalite_operator.executor import Executor
from kafkalite_operator.metrics import OperatorMetrics
from kafkalite_operator.store import Store
from kafkalite_runtime.kube.kinds import TOPICS
from tests.unit.operator.test_parts import Clock, NoEvents, OneObject
from tests.unit.resources.builders import cluster_object, partition_json, topic_object

CLUSTER = cluster_settings(cluster_object())
ELECTION_MS = "kafka_controller_controllerstats_leaderelectionrateandtimems"
FAILOVER_S = "kafkalite_failover_duration_seconds"


class Operator:
    """An executor on one topic of two partitions, led by broker 0."""

    def __init__(self):
        status = {"topicId": "id", "controllerEpoch": 1, "partitions": {str(n): partition_json() for n in range(2)}}
        self.client = OneObject(topic_object(spec={"partitions": 2}, status=status, version="7"))
        self.clock = Clock()
        self.metrics = OperatorMetrics()
        store = Store(self.clock, "image")
        store.apply(TOPICS, "ADDED", copy.deepcopy(self.client.obj))
        self.executor = Executor(self.client, store, self.metrics, NoEvents(), self.clock)

    def fail(self, broker_id):
        self.executor._failovers.failed(CLUSTER.cluster.uid, broker_id, self.clock())

    async def elect(self, **leaders):
        topic = parse_topic(self.client.obj)
        changes = {}
        for name, leader in leaders.items():
            old = topic.partitions[int(name[1:])]
            new = replace(
                old, leader=leader, leader_epoch=old.leader_epoch + 1, partition_epoch=old.partition_epoch + 1
            )
            changes[int(name[1:])] = PartitionChange(old, new)
        reasons = dict.fromkeys(changes, "why")
        action = ChangePartitions(
            topic=topic.ref, generation=1, changes=changes, reasons=reasons, elected=frozenset(changes)
        )
        await self.executor.carry_out(CLUSTER, action, 2)

    def value(self, name):
        return self.metrics.registry.get_sample_value(name)

    @property
    def measured(self):
        """(elections, counted times of elections, counted failovers, seconds of all failovers)"""
        names = ("kafkalite_leader_elections_total", f"{ELECTION_MS}_count", f"{FAILOVER_S}_count", f"{FAILOVER_S}_sum")
        return tuple(self.value(name) for name in names)


async def test_a_partition_without_leader_is_measured_when_it_has_one():
    operator = Operator()
    operator.fail(0)
    operator.clock.now += 1
    await operator.elect(p0=-1, p1=1)
    assert operator.measured == (1, 1, 1, 1)
    operator.clock.now += 119
    await operator.elect(p0=1)
    assert operator.measured == (2, 2, 2, 121)
    assert operator.executor._failovers._leaderless == {}


async def test_that_nobody_can_be_elected_is_no_election():
    operator = Operator()
    operator.fail(0)
    await operator.elect(p0=-1)
    assert operator.measured == (0, 0, 0, 0)


async def test_an_election_long_after_the_failure_has_other_reasons():
    operator = Operator()
    operator.fail(0)
    operator.clock.now += 60
    await operator.elect(p0=1)
    await operator.elect(p1=-1)
    await operator.elect(p1=1)
    assert operator.measured == (2, 2, 0, 0)


async def test_what_failed_in_an_earlier_term_is_nothing_that_this_one_measures():
    operator = Operator()
    operator.fail(0)
    await operator.elect(p0=-1)
    operator.clock.now += 3600
    operator.executor.begin_term()
    await operator.elect(p0=1)
    assert operator.measured[:3] == (1, 1, 0)
