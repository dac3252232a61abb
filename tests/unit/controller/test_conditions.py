"""What the conditions of a topic say to whoever reads them with `kubectl describe`."""

from dataclasses import replace

from kafkalite_core.controller.conditions import topic_conditions
from kafkalite_core.model.cluster import BrokerState
from kafkalite_core.model.partition import IsrEntry
from tests.unit.controller.builders import NOW, entry, make_broker, snapshot, three, topic_view

BEHIND = entry(isr=((0, 10), (1, 11)))


def healthy(partition, **brokers):
    known = three() | {int(name[1:]): broker for name, broker in brokers.items()}
    view = topic_view(partitions={0: partition})
    found = {c.type: c for c in topic_conditions(snapshot(view, brokers=known), view, None, NOW)}
    return found["Healthy"].status, found["Healthy"].reason, found["Healthy"].message


def test_nothing_is_missing():
    assert healthy(entry()) == ("True", "InSync", "every replica is in sync")


def test_a_replica_whose_broker_runs_is_copying():
    why = "replicas not in sync: partition 0: broker 2 runs, and copies from the leader, broker 0"
    assert healthy(BEHIND) == ("False", "UnderReplicated", why)


def test_without_a_leader_there_is_nothing_to_copy_from():
    assert "broker 2 runs, and there is no leader to copy from" in healthy(replace(BEHIND, leader=-1))[2]


def test_a_member_that_lost_its_disk_copies_anew():
    said = healthy(entry(), b2=make_broker(2, 22, trusted=22))[2]
    assert "partition 0: broker 2 came back without all of its data, and copies it" in said
    assert "KafkaLiteCluster" not in said, "nobody is away"


def test_who_is_away_is_told_of_by_the_cluster():
    said = healthy(BEHIND, b2=make_broker(2, fenced=12))[2]
    assert "partition 0: broker 2 is fenced. The conditions of the KafkaLiteCluster kafkalite tell what keeps" in said
    leaving = make_broker(2)
    leaving = replace(leaving, registration=replace(leaving.registration, state=BrokerState.SHUTTING_DOWN))
    assert "broker 2 is shutting down" in healthy(BEHIND, b2=leaving)[2]


def test_below_min_insync_replicas_it_says_who_else_may_lead():
    below = replace(entry(isr=((0, 10),), min_isr=2), elr=(IsrEntry(1, 11),))
    said = healthy(below)[2]
    assert "broker 1 runs, and copies from the leader, broker 0, broker 2 runs" in said
    assert said.endswith("(below min.insync.replicas 2, eligible to lead: 1)")
