"""Snapshots for tests."""

from dataclasses import replace

from kafkalite_core.controller.actions import (
    AddPartitions,
    ChangePartitions,
    CompleteElections,
    CreateTopicStatus,
    Fence,
    ReadBrokers,
    ReadClusters,
    RemoveBroker,
    ResizePods,
    RestartPods,
    UpdateBrokerStatus,
    UpdateClusterStatus,
    UpdateTopicStatus,
)
from kafkalite_core.controller.snapshot import LeaseView, Snapshot, TopicView
from kafkalite_core.model.cluster import Broker, BrokerState, Cluster, Registration
from kafkalite_core.model.partition import IsrEntry, Partition, Topic, TopicRef
from kafkalite_core.model.topic import TopicSpec

NOW = 1000.0


def make_broker(broker_id, epoch=None, *, trusted=1, clean=1, fenced=-1, state=BrokerState.RUNNING, rack="", **more):
    epoch = 10 + broker_id if epoch is None else epoch
    registration = Registration(
        broker_epoch=epoch,
        incarnation=f"inc-{broker_id}-{epoch}",
        directory_id="d",
        trusted_since=trusted,
        clean_since=clean,
        host="h",
        port=1,
        rack=rack,
        state=state,
    )
    return Broker(id=broker_id, registration=registration, fenced_epoch=fenced, uid=f"b{broker_id}", **more)


def brokers(*items):
    return {broker.id: broker for broker in items}


def three(**changes):
    return brokers(*(make_broker(i) for i in range(3)))


def entry(leader=0, isr=((0, 10), (1, 11), (2, 12)), replicas=(0, 1, 2), leader_epoch=5, partition_epoch=9, min_isr=1):
    return Partition(
        leader=leader,
        leader_epoch=leader_epoch,
        partition_epoch=partition_epoch,
        min_isr=min_isr,
        replicas=tuple(replicas),
        isr=tuple(IsrEntry(i, e) for i, e in isr),
    )


def topic_view(name="orders", *, partitions=None, spec=None, uid=None, topic_id="id", **more):
    partitions = {} if partitions is None else partitions
    spec = {"partitions": max(1, len(partitions)), "replicas": 3, **(spec or {})}
    uid = uid or f"uid-{name}"
    ref = TopicRef("default", name, uid, topic_id if partitions else "", name)
    return TopicView(
        topic=Topic(
            ref=ref,
            generation=1,
            resource_version="1",
            controller_epoch=1,
            partitions=partitions,
            config=spec.get("config", {}),
        ),
        spec=TopicSpec(cluster="kafkalite", topic_name=name, **spec),
        created=more.pop("created", "2026-01-01T00:00:00Z"),
        has_status=bool(partitions),
        **more,
    )


def snapshot(*views, brokers=None, cluster=None, **more):
    values = {
        "cluster": Cluster(namespace="default", name="kafkalite", uid="c", cluster_id="x", **(cluster or {})),
        "topics": {view.topic.ref.uid: view for view in views},
        "brokers": three() if brokers is None else brokers,
        "observing_since": 0.0,
        "controller_epoch": 1,
    }
    values["registered_at"] = dict.fromkeys(values["brokers"], 0.0)
    if "leases" not in more:
        more["leases"] = {
            i: LeaseView(holder=b.registration.incarnation, changed_at=NOW)
            for i, b in values["brokers"].items()
            if b.registration
        }
    return Snapshot(**{**values, **more})


def apply(snapshot, actions):
    """The snapshot after all actions were carried out."""
    topics = dict(snapshot.topics)
    brokers = dict(snapshot.brokers)
    changes = {}
    for action in actions:
        match action:
            case Fence():
                broker = brokers[action.broker.id]
                brokers[broker.id] = replace(broker, fenced_epoch=broker.epoch)
            case ChangePartitions():
                view = topics[action.topic.uid]
                partitions = dict(view.topic.partitions)
                for number, change in action.changes.items():
                    assert partitions[number] == change.expected
                    partitions[number] = change.proposed
                topics[action.topic.uid] = _with(view, partitions=partitions)
            case CreateTopicStatus():
                view = topics[action.topic.uid]
                ref = replace(view.topic.ref, topic_id=action.topic_id or "fresh")
                topics[action.topic.uid] = _with(view, partitions=dict(action.partitions), ref=ref)
            case AddPartitions():
                view = topics[action.topic.uid]
                topics[action.topic.uid] = _with(view, partitions={**view.topic.partitions, **action.partitions})
            case CompleteElections():
                done = {"elections": {}, "elect_preferred": frozenset(), "elect_unclean": frozenset()}
                topics[action.topic.uid] = replace(topics[action.topic.uid], **done, unclean_request="")
            case UpdateTopicStatus():
                view = topics[action.topic.uid]
                kept = tuple(c for c in view.conditions if c.type not in {w.type for w in action.conditions})
                topics[action.topic.uid] = replace(
                    view,
                    conditions=kept + action.conditions,
                    in_sync=action.in_sync,
                    observed_generation=action.generation,
                    has_status=True,
                )
            case UpdateClusterStatus():
                changes = {
                    "conditions": action.conditions,
                    "observed_generation": action.generation,
                    "brokers_ready": action.brokers_ready,
                    "brokers_total": action.brokers_total,
                    "partitions": action.partitions,
                    "bootstrap": action.bootstrap,
                    **({} if action.rolling is None else {"rolling": action.rolling}),
                    **({} if action.replacing is None else {"replacing": action.replacing}),
                }
            case RestartPods():
                gone = {each.uid for each in action.restarts}
                pods = {i: replace(pod, deleting=pod.deleting or pod.uid in gone) for i, pod in snapshot.pods.items()}
                snapshot = replace(snapshot, pods=pods)
            case ResizePods():
                resized = {each.uid for each in action.resizes}
                pods = {
                    i: replace(pod, amounts=snapshot.amounts if pod.uid in resized else pod.amounts)
                    for i, pod in snapshot.pods.items()
                }
                snapshot = replace(snapshot, pods=pods)
            case RemoveBroker():
                held = {i for view in topics.values() for e in view.topic.partitions.values() for i in e.replicas}
                assert action.broker.id == max(brokers), "StatefulSets give up their highest ordinal"
                assert action.broker.id not in held, "it is not empty"
                assert action.broker.id >= snapshot.cluster.replicas, "it is wanted"
                del brokers[action.broker.id]
            case UpdateBrokerStatus():
                broker = brokers[action.broker.id]
                brokers[broker.id] = replace(broker, conditions=(action.condition,))
            case ReadBrokers():
                snapshot = replace(snapshot, brokers_age_s=0.0)
            case ReadClusters():
                snapshot = replace(snapshot, clusters_age_s=0.0)
            case _:
                brokers[action.broker_id] = Broker(id=action.broker_id, uid=f"b{action.broker_id}")
    return replace(snapshot, topics=topics, brokers=brokers, **changes)


def _with(view, **changes):
    return replace(view, topic=replace(view.topic, **changes), has_status=True)
