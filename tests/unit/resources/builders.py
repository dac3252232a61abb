"""Objects of the API for tests."""

from kafkalite_core.model.cluster import BrokerState, Registration


def topic_object(name="orders", *, spec=None, status=None, uid="uid-1", generation=1, version="7", **metadata):
    obj = {
        "apiVersion": "kafkalite.io/v1alpha1",
        "kind": "KafkaLiteTopic",
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": uid,
            "generation": generation,
            "resourceVersion": version,
            "creationTimestamp": "2026-01-01T00:00:00Z",
            **metadata,
        },
        "spec": {"partitions": 1, "replicas": 3, **(spec or {})},
    }
    if status is not None:
        obj["status"] = status
    return obj


def partition_json(
    leader=0, *, leader_epoch=4, partition_epoch=11, replicas=(0, 1, 2), isr=((0, 7), (1, 8)), min_isr=2
):
    return {
        "leader": leader,
        "leaderEpoch": leader_epoch,
        "partitionEpoch": partition_epoch,
        "minIsr": min_isr,
        "replicas": list(replicas),
        "isr": [i for i, _ in isr],
        "isrBrokerEpochs": [e for _, e in isr],
    }


def registration(epoch=7, **changes):
    values = {
        "broker_epoch": epoch,
        "incarnation": f"incarnation-{epoch}",
        "directory_id": "directory",
        "trusted_since": 1,
        "clean_since": 1,
        "host": "127.0.0.1",
        "port": 9092,
        "state": BrokerState.RUNNING,
        **changes,
    }
    return Registration(**values)


def broker_object(broker_id=0, *, cluster="kafkalite", status=None, version="3", **spec):
    obj = {
        "apiVersion": "kafkalite.io/v1alpha1",
        "kind": "KafkaLiteBroker",
        "metadata": {
            "name": f"{cluster}-broker-{broker_id}",
            "namespace": "default",
            "uid": f"broker-uid-{broker_id}",
            "resourceVersion": version,
        },
        "spec": {"clusterRef": {"name": cluster}, "brokerId": broker_id, **spec},
    }
    if status is not None:
        obj["status"] = status
    return obj


def cluster_object(name="kafkalite", *, spec=None, status=None, version="5", **metadata):
    obj = {
        "apiVersion": "kafkalite.io/v1alpha1",
        "kind": "KafkaLiteCluster",
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": "cluster-uid",
            "generation": 1,
            "resourceVersion": version,
            **metadata,
        },
        "spec": spec or {},
    }
    if status is not None:
        obj["status"] = status
    return obj
