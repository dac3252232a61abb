"""The CEL rules of statuses: each fence is tried by a stale or broken writer."""

from __future__ import annotations

import copy

import pytest

from tests.contract.conftest import (
    BROKERS,
    CLUSTERS,
    MERGE_PATCH,
    TOPICS,
    broker_object,
    causes,
    cluster,
    entry,
    placed_topic,
)


def isr(*ids, epoch=7):
    return {"isr": list(ids), "isrBrokerEpochs": [epoch for _ in ids]}


def elr(*ids, epoch=7):
    return {"elr": list(ids), "elrBrokerEpochs": [epoch for _ in ids]}


def replaced(**changes):
    return lambda status: status["partitions"].__setitem__("0", {**status["partitions"]["0"], **changes})


def merge_patch(old, new):
    """What makes `new` of `old` (RFC 7386)."""
    removed = {key: None for key in old if key not in new}
    changed = {
        key: merge_patch(old[key], value) if isinstance(value, dict) and isinstance(old.get(key), dict) else value
        for key, value in new.items()
        if old.get(key) != value
    }
    return removed | changed


STALE_WRITERS = {
    "a stale controller": (lambda status: status.update(controllerEpoch=2), "controllerEpoch never decreases"),
    "controllerEpoch dropped": (lambda status: status.pop("controllerEpoch"), "controllerEpoch never decreases"),
    "another topicId": (lambda status: status.update(topicId="x"), "topicId is immutable"),
    "topicId dropped": (lambda status: status.pop("topicId"), "topicId is immutable"),
    "an entry removed": (lambda status: status["partitions"].pop("1"), "a partition never disappears"),
    "all entries removed": (lambda status: status.pop("partitions"), "a partition never disappears"),
    "the ISR alone, without raising partitionEpoch": (
        replaced(**isr(0)),
        "every change raises partitionEpoch; leaderEpoch never falls, and rises when the leader changes",
    ),
    "a lower partitionEpoch": (replaced(partitionEpoch=10), "every change raises partitionEpoch"),
    "a lower leaderEpoch": (replaced(partitionEpoch=12, leaderEpoch=3), "leaderEpoch never"),
    "another leader in the same leaderEpoch": (replaced(partitionEpoch=12, leader=1), "rises when the leader changes"),
    "no leader in the same leaderEpoch": (replaced(partitionEpoch=12, leader=-1), "rises when the leader changes"),
    "a leader outside the ISR": (
        replaced(partitionEpoch=12, leaderEpoch=5, leader=2, **isr(0)),
        "the leader must be a member of the ISR",
    ),
    "an ISR member that is no replica": (
        replaced(partitionEpoch=12, **isr(0, 9)),
        "the ISR must be a subset of the replicas",
    ),
    "a member of the ISR without its epoch": (
        replaced(partitionEpoch=12, isrBrokerEpochs=[7, 7]),
        "isrBrokerEpochs must have one number for each broker of isr",
    ),
    "more epochs than members of the ISR": (
        replaced(partitionEpoch=12, isr=[0, 1]),
        "isrBrokerEpochs must have one number for each broker of isr",
    ),
    "the epochs of the ISR dropped": (
        lambda status: status["partitions"]["0"].pop("isrBrokerEpochs"),
        "Required value",
    ),
    "an eligible replica without its epoch": (
        replaced(partitionEpoch=12, **isr(0), elr=[1, 2], elrBrokerEpochs=[7]),
        "elrBrokerEpochs must have one number for each broker of elr",
    ),
    "epochs of eligible replicas of which there are none": (
        replaced(partitionEpoch=12, elrBrokerEpochs=[7]),
        "elrBrokerEpochs must have one number for each broker of elr",
    ),
    "a member of the ISR twice": (
        replaced(partitionEpoch=12, **isr(0, 1, 1)),
        "Duplicate value: 1",
    ),
    "an eligible replica twice, with two epochs": (
        replaced(partitionEpoch=12, **isr(0), elr=[2, 2], elrBrokerEpochs=[7, 8]),
        "Duplicate value: 2",
    ),
    "a replica twice": (
        replaced(partitionEpoch=12, replicas=[0, 1, 2, 1]),
        "Duplicate value: 1",
    ),
    "minIsr alone": (replaced(minIsr=1), "every change raises partitionEpoch"),
    "the ELR alone, without raising partitionEpoch": (
        replaced(**isr(0, 1), **elr(2)),
        "every change raises partitionEpoch",
    ),
    "an eligible replica that is no replica": (
        replaced(partitionEpoch=12, **isr(0), **elr(9)),
        "the ELR must be a subset of the replicas without the ISR",
    ),
    "a replica in the ISR and eligible": (
        replaced(partitionEpoch=12, **elr(2)),
        "the ELR must be a subset of the replicas without the ISR",
    ),
    "an eligible replica that was not in sync": (
        replaced(partitionEpoch=12, **isr(0), **elr(2, epoch=8)),
        "a replica becomes eligible only by having been in sync",
    ),
    "one of two eligible replicas was not in sync": (
        replaced(partitionEpoch=12, **isr(0), elr=[2, 1], elrBrokerEpochs=[7, 8]),
        "a replica becomes eligible only by having been in sync",
    ),
    "a replica to be added that is none": (
        replaced(partitionEpoch=12, adding=[9]),
        "adding and removing must be subsets of the replicas",
    ),
    "a replica to be removed that is none": (
        replaced(partitionEpoch=12, removing=[9]),
        "adding and removing must be subsets of the replicas",
    ),
    "a replica that is added and removed": (
        replaced(partitionEpoch=12, adding=[2], removing=[2]),
        "a replica is not added and removed at once",
    ),
    "every replica is to be removed": (replaced(partitionEpoch=12, removing=[0, 1, 2]), "some replica must stay"),
    "a replica that leaves in the same leaderEpoch": (
        replaced(partitionEpoch=12, replicas=[0, 1], **isr(0, 1)),
        "a replica leaves the list only with a new leaderEpoch",
    ),
    "a leader that recovers beside others": (
        replaced(partitionEpoch=12, leaderEpoch=5, leaderRecoveryState="Recovering"),
        "a leader recovers alone in the ISR",
    ),
    "a leader that recovers without an election": (
        replaced(partitionEpoch=12, **isr(0), leaderRecoveryState="Recovering"),
        "a leader recovers alone in the ISR, and only after its election",
    ),
}


@pytest.mark.parametrize("name", STALE_WRITERS)
@pytest.mark.parametrize("how", ["json-patch", "merge-patch", "put"])
async def test_stale_writers_of_a_topic_are_refused(api, ns, name, how):
    change, expected = STALE_WRITERS[name]
    stored = await placed_topic(api, ns)
    status = copy.deepcopy(stored["status"])
    change(status)
    path = f"{TOPICS.format(ns=ns)}/orders/status"
    if how == "put":
        answer = await api.call("PUT", path, {**stored, "status": status})
    elif how == "merge-patch":
        answer = await api.patch(path, {"status": merge_patch(stored["status"], status)}, MERGE_PATCH)
    else:
        answer = await api.patch(path, [{"op": "replace", "path": "/status", "value": status}])
    assert any(expected in message for _, message in causes(answer)), answer.body
    assert (await api.get(f"{TOPICS.format(ns=ns)}/orders")).revision == stored["metadata"]["resourceVersion"]


async def test_eligible_replicas_and_recovery_as_correct_writers_change_them(api, ns):
    """Shrink below min ISR, an election from the ELR, an unclean one, its confirmation, an expansion, a move."""
    await placed_topic(api, ns)
    path = f"{TOPICS.format(ns=ns)}/orders/status"
    steps = [
        {"partitionEpoch": 12, **isr(0), **elr(1, 2)},
        {"partitionEpoch": 13, "leader": 1, "leaderEpoch": 5, **isr(1, epoch=9), **elr(0)},
        {"partitionEpoch": 14, "leader": 2, "leaderEpoch": 6, **isr(2), **elr(), "leaderRecoveryState": "Recovering"},
        {"partitionEpoch": 15, "leader": -1, "leaderEpoch": 7},
        {"partitionEpoch": 16, "leader": 2, "leaderEpoch": 8},
        {"partitionEpoch": 17, "leaderRecoveryState": "Recovered"},
        {"partitionEpoch": 18, **isr(1, 2)},
        {"partitionEpoch": 19, "replicas": [0, 1, 2, 3], "adding": [3], "removing": [0]},
        {"partitionEpoch": 20, "leaderEpoch": 9, "replicas": [1, 2, 3], "adding": [], "removing": []},
    ]  # fmt: skip
    entry = (await api.get(f"{TOPICS.format(ns=ns)}/orders")).body["status"]["partitions"]["0"]
    for step in steps:
        entry = {**entry, **step}
        answer = await api.patch(path, [{"op": "replace", "path": "/status/partitions/0", "value": entry}])
        assert answer.status == 200, (step, answer.body)
    again = {**entry, "partitionEpoch": 21, **elr(3)}
    answer = await api.patch(path, [{"op": "replace", "path": "/status/partitions/0", "value": again}])
    assert any("having been in sync" in message for _, message in causes(answer))


async def test_the_fence_of_one_entry_names_it(api, ns):
    await placed_topic(api, ns)
    path = f"{TOPICS.format(ns=ns)}/orders/status"
    answer = await api.patch(path, [{"op": "replace", "path": "/status/partitions/1/minIsr", "value": 1}])
    assert [field for field, _ in causes(answer)] == ["status.partitions[1]"]


async def test_good_changes_pass(api, ns):
    await placed_topic(api, ns)
    path = f"{TOPICS.format(ns=ns)}/orders/status"
    for value in (
        entry(0, 4, 12, (0, 1)),
        entry(1, 5, 13, (1,)),
        entry(-1, 6, 14, (1,)),
        entry(1, 7, 15, (1, 2)),
        entry(1, 8, 16, (1, 2)),
    ):
        answer = await api.patch(path, [{"op": "replace", "path": "/status/partitions/0", "value": value}])
        assert answer.status == 200, answer.body
    added = [{"op": "add", "path": "/status/partitions/3", "value": entry(0, 0, 0)}]
    assert (await api.patch(path, added)).status == 200


async def test_status_cannot_be_dropped(api, ns):
    stored = await placed_topic(api, ns)
    path = f"{TOPICS.format(ns=ns)}/orders/status"
    answer = await api.patch(path, [{"op": "remove", "path": "/status"}])
    assert ("<nil>", 'Invalid value: "object": status never disappears') in causes(answer)
    without = {key: value for key, value in stored.items() if key != "status"}
    assert (await api.call("PUT", path, without)).status == 422


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (CLUSTERS, cluster("c")),
        (BROKERS, broker_object()),
    ],
)
async def test_the_status_of_clusters_and_brokers_cannot_be_dropped(api, ns, path, body):
    path = path.format(ns=ns)
    name = body["metadata"]["name"]
    await api.create(path, body)
    stored = await api.patch(f"{path}/{name}/status", {"status": {"observedGeneration": 1}}, MERGE_PATCH)
    for answer in (
        await api.patch(f"{path}/{name}/status", [{"op": "remove", "path": "/status"}]),
        await api.patch(f"{path}/{name}/status", {"status": None}, MERGE_PATCH),
    ):
        assert ("<nil>", 'Invalid value: "object": status never disappears') in causes(answer)
    assert (await api.get(f"{path}/{name}")).revision == stored.revision


async def test_an_entry_cannot_be_removed_and_added_again(api, ns):
    """In one patch it is judged as a change of the entry, in two the first one fails."""
    await placed_topic(api, ns)
    path = f"{TOPICS.format(ns=ns)}/orders/status"
    remove = {"op": "remove", "path": "/status/partitions/0"}
    add = {"op": "add", "path": "/status/partitions/0", "value": entry(1, 0, 0)}
    assert (await api.patch(path, [remove])).status == 422
    assert (await api.patch(path, [remove, add])).status == 422


async def test_a_patch_for_a_deleted_topic_does_not_reach_its_successor(api, ns):
    first = await placed_topic(api, ns)
    path = f"{TOPICS.format(ns=ns)}/orders"
    assert (await api.call("DELETE", path)).status == 200
    late = [
        {"op": "test", "path": "/metadata/uid", "value": first["metadata"]["uid"]},
        {"op": "replace", "path": "/status/partitions/0", "value": entry(1, 5, 12)},
    ]
    assert (await api.patch(f"{path}/status", late)).status == 404
    second = await placed_topic(api, ns)
    assert second["metadata"]["uid"] != first["metadata"]["uid"]
    assert (await api.patch(f"{path}/status", late)).status == 422


async def test_the_main_endpoint_reaches_no_status(api, ns):
    """A stale writer with the wrong path, or kubectl apply of an old manifest, changes nothing of the status."""
    stored = await placed_topic(api, ns)
    path = f"{TOPICS.format(ns=ns)}/orders"
    stale = {**stored, "status": {"controllerEpoch": 1, "partitions": {}}}
    for answer in (
        await api.call("PUT", path, stale),
        await api.patch(path, {"status": None}, MERGE_PATCH),
        await api.patch(path, [{"op": "remove", "path": "/status"}]),
    ):
        assert answer.status == 200, answer.body
        assert answer.body["status"] == stored["status"]
        assert answer.revision == stored["metadata"]["resourceVersion"]


CLUSTER_STATUS = {
    "clusterId": "AAAAAAAAAAAAAAAAAAAAAA",
    "nextBrokerEpoch": 5,
    "nextProducerId": 1000,
    "controller": {"holder": "a", "epoch": 3},
}
CLUSTER_CHANGES = {
    "clusterId is immutable": {"clusterId": "B"},
    "clusterId is immutable ": {"clusterId": None},
    "nextBrokerEpoch never decreases": {"nextBrokerEpoch": 4},
    "nextProducerId never decreases": {"nextProducerId": None},
    "controller.epoch never decreases": {"controller": {"epoch": 2}},
    "controller.epoch never decreases ": {"controller": None},
    "controller.epoch rises when the controller changes": {"controller": {"holder": "b"}},
}


@pytest.mark.parametrize("message", CLUSTER_CHANGES)
async def test_stale_writers_of_a_cluster_are_refused(api, ns, message):
    path = CLUSTERS.format(ns=ns)
    await api.create(path, cluster())
    assert (await api.patch(f"{path}/c/status", {"status": CLUSTER_STATUS}, MERGE_PATCH)).status == 200
    answer = await api.patch(f"{path}/c/status", {"status": CLUSTER_CHANGES[message]}, MERGE_PATCH)
    assert any(message.strip() in text for _, text in causes(answer))
    onward = {"nextBrokerEpoch": 6, "controller": {"holder": "b", "epoch": 4}}
    assert (await api.patch(f"{path}/c/status", {"status": onward}, MERGE_PATCH)).status == 200


def _listener(name, kind, port, **fields):
    return {"name": name, "type": kind, "port": port, **fields}


INSIDE = _listener("plain", "internal", 9092)
HOST_NETWORK = "a hostport listener puts the pods into the network of their nodes, where no Service leads; it goes with no nodeport and no loadbalancer listener"
NAMED_AFTER = (
    "Services are named after a nodeport or loadbalancer listener: its name has lower-case letters, digits and hyphens"
)
TOGETHER = "the names of the cluster and of a nodeport or loadbalancer listener have at most 52 characters together, since Services are named after both"
LISTENERS = {
    "brokers use the first listener among themselves, so it is internal or hostport": [
        _listener("ext", "loadbalancer", 9094)
    ],
    "the first listener has no configuration, since brokers use it among themselves": [
        {**INSIDE, "configuration": {"advertisedHostTemplate": "h"}}
    ],
    HOST_NETWORK: [
        _listener("host", "hostport", 9092),
        _listener("ext", "nodeport", 9094),
    ],
    "listeners have different ports": [INSIDE, _listener("ext", "nodeport", 9092)],
    NAMED_AFTER: [INSIDE, _listener("EXT", "nodeport", 9094)],
    TOGETHER: [INSIDE, _listener("e" * 32, "nodeport", 9094)],
    "preferredNodePortAddressType": [
        INSIDE,
        _listener("ext", "nodeport", 9094, configuration={"preferredNodePortAddressType": "Any"}),
    ],
}


@pytest.mark.parametrize("message", LISTENERS)
async def test_listeners_that_cannot_work_are_refused(api, ns, message):
    path = CLUSTERS.format(ns=ns)
    body = {"apiVersion": "kafkalite.io/v1alpha1", "kind": "KafkaLiteCluster"}
    wrong = {**body, "metadata": {"name": "c" * 21}, "spec": {"listeners": LISTENERS[message]}}
    answer = await api.call("POST", path, wrong)
    assert answer.status == 422, answer.body
    assert any(message in text or message in field for field, text in causes(answer)), answer.body


async def test_listeners_that_work_are_taken(api, ns):
    path = CLUSTERS.format(ns=ns)
    body = {"apiVersion": "kafkalite.io/v1alpha1", "kind": "KafkaLiteCluster"}
    outside = [
        _listener("ext", "nodeport", 9094),
        _listener("e" * 8, "loadbalancer", 9095, configuration={"class": "c"}),
    ]
    same_port = [_listener("A", "hostport", 9092), _listener("b_2", "hostport", 9092, host="127.0.0.2")]
    for name, listeners in {"a" * 44: [INSIDE, *outside], "b": same_port, "c": []}.items():
        await api.create(path, {**body, "metadata": {"name": name}, "spec": {"listeners": listeners}})
    addresses = [{"broker": 0, "host": "h", "port": 31000}]
    listeners = [{"name": "ext", "type": "nodeport", "bootstrapServers": "h:31000", "addresses": addresses}]
    answer = await api.patch(f"{path}/b/status", {"status": {"listeners": listeners}}, MERGE_PATCH)
    assert answer.body["status"]["listeners"] == listeners


REGISTRATION = {"brokerEpoch": 7, "incarnation": "i1", "host": "h", "port": 9092, "state": "Running"}
BROKER_CHANGES = {
    "registration.brokerEpoch never decreases": {"registration": {"brokerEpoch": 6}},
    "registration.brokerEpoch never decreases ": {"registration": None},
    "a new incarnation registers with a greater brokerEpoch": {"registration": {"incarnation": "i2"}},
    "fencing.fencedEpoch never decreases": {"fencing": {"fencedEpoch": 4}},
    "fencing.fencedEpoch never decreases ": {"fencing": None},
}


@pytest.mark.parametrize("message", BROKER_CHANGES)
async def test_stale_writers_of_a_broker_are_refused(api, ns, message):
    path = BROKERS.format(ns=ns)
    await api.create(path, broker_object())
    status = {"registration": REGISTRATION, "fencing": {"fencedEpoch": 5, "since": "2026-01-02T03:04:05Z"}}
    answer = await api.patch(f"{path}/c-broker-0/status", {"status": status}, MERGE_PATCH)
    assert answer.status == 200, answer.body
    answer = await api.patch(f"{path}/c-broker-0/status", {"status": BROKER_CHANGES[message]}, MERGE_PATCH)
    assert any(message.strip() in text for _, text in causes(answer))
