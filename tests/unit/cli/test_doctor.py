"""What `kafkalite doctor` says of operator, brokers and pods, asked of an embedded API server."""

import asyncio
import json
import re

import pytest

from kafkalite_cli.brokers import operator_lease
from kafkalite_runtime.kube import (
    BROKERS,
    CLUSTERS,
    CONFIG_MAPS,
    LEASES,
    STATEFUL_SETS,
    TOPICS,
    KubeClient,
    KubeForbidden,
)
from tests.unit.cli.world import OPERATOR, World, entry, one, only


def test_nothing_is_wrong(world, doctor):
    world.topic("orders", entry([0, 1, 2]), entry([1, 2, 0]))
    assert doctor(rc=0) == {}
    result = doctor(rc=0, text=True)
    assert result.stdout == f"{world.namespace}/kafkalite: nothing is wrong (3 brokers, 1 topics)\n"


# --- the operator ----------------------------------------------------------------------------------------------------


def test_no_operator_was_ever_there(world, doctor):
    world.delete(LEASES, OPERATOR)
    finding = one(doctor(), "NoOperator")
    assert finding["what"] == "no operator serves this cluster: there is no Lease kafkalite-operator of one"
    assert "nobody fences brokers" in finding["why"]
    assert "install or start the operator" in finding["todo"]


def test_an_operator_in_another_namespace_is_known_by_the_clusters_own_word(world, kube_server, doctor):
    other = World(kube_server)
    world.delete(LEASES, OPERATOR)
    assert one(doctor(), "NoOperator")["what"].startswith("no operator serves this cluster")
    taken = {"holder": other.operator, "epoch": 9}
    world.patch(CLUSTERS, "kafkalite", {"status": {"controller": taken}}, status=True)
    assert doctor(rc=0) == {}


def test_nobody_holds_the_lease(world, doctor):
    world.lease(OPERATOR, "")
    finding = one(doctor(), "NoOperator")
    assert finding["what"] == f"no operator holds the Lease kafkalite-operator in namespace {world.namespace}"
    assert "stopped in order" in finding["why"]


def test_the_lease_has_expired(world, doctor):
    world.lease(OPERATOR, world.operator, age_s=3600)
    finding = one(doctor(), "NoOperator")
    assert finding["what"].startswith(f"the operator {world.operator} has not renewed its Lease in namespace")
    assert re.search(r"for 3,60\d s$", finding["what"])


def test_a_clock_that_is_wrong_is_no_dead_operator(world, doctor, monkeypatch):
    """What looks expired is looked at again: a holder that renews is alive, whatever the clocks say."""
    world.lease(OPERATOR, world.operator, age_s=3600)
    read = operator_lease.read_leases

    async def renewed_meanwhile(client, cluster):
        found = await read(client, cluster)
        metadata, body = found.operators[0], {"spec": {"renewTime": "2026-01-01T00:00:00.000000Z"}}
        await client.merge_patch(LEASES, metadata.namespace, metadata.name, body)
        return found

    monkeypatch.setattr(operator_lease, "read_leases", renewed_meanwhile)
    assert doctor(rc=0) == {}


@pytest.fixture
def lists_alone(monkeypatch):
    """Leases may be listed, and not read one by one."""
    really = KubeClient.get

    async def get(self, kind, *arguments, **more):
        if kind is LEASES:
            raise KubeForbidden(403, "Forbidden", "GET /x: leases is forbidden")
        return await really(self, kind, *arguments, **more)

    monkeypatch.setattr(KubeClient, "get", get)


def test_the_right_to_list_leases_is_enough(world, doctor, lists_alone):
    world.lease(OPERATOR, world.operator, age_s=3600)
    world.lease("kafkalite-broker-1", "i-1", age_s=120)
    only(doctor(), "NoOperator", "LeaseExpired")


def test_a_lease_that_vanishes_meanwhile_has_changed(world, doctor, monkeypatch):
    world.lease("kafkalite-broker-1", "i-1", age_s=120)
    read = operator_lease.read_leases

    async def gone_meanwhile(client, cluster):
        found = await read(client, cluster)
        await client.delete(LEASES, cluster["metadata"]["namespace"], "kafkalite-broker-1")
        return found

    monkeypatch.setattr(operator_lease, "read_leases", gone_meanwhile)
    assert doctor(rc=0) == {}


def test_a_right_that_is_taken_away_meanwhile_is_a_note(world, doctor, monkeypatch):
    world.lease("kafkalite-broker-1", "i-1", age_s=120)
    really, lists = KubeClient.list, []

    async def once(self, kind, *arguments, **more):
        lists.append(kind)
        if lists.count(LEASES) > 1:
            raise KubeForbidden(403, "Forbidden", "GET /x: leases is forbidden")
        return await really(self, kind, *arguments, **more)

    monkeypatch.setattr(KubeClient, "list", once)
    assert one(doctor(rc=0), "RightMissing")["about"] == "leases"


def test_leases_of_others_are_none_of_its_business(world, doctor, monkeypatch):
    world.lease("somebody-elses", "x", age_s=3600)

    async def silent(_client, records, _now):
        assert sorted(each.name for each in records) == [f"kafkalite-broker-{i}" for i in range(3)] + [OPERATOR]
        return set()

    monkeypatch.setattr(operator_lease, "silent", silent)
    assert doctor(rc=0) == {}


def test_a_paused_operator(world, doctor):
    annotations = {"metadata": {"annotations": {"kafkalite.io/paused": "true"}}}
    world.patch(CLUSTERS, "kafkalite", annotations)
    world.topic("orders", entry([0, 1, 2]), annotations={"kafkalite.io/paused": "true"})
    found = doctor(rc=0)
    assert [each["what"] for each in found["ReconciliationPaused"]] == [
        "the operator is told to leave the cluster kafkalite alone",
        "the operator is told to leave the topic orders alone",
    ]
    assert [each["todo"] for each in found["ReconciliationPaused"]] == [
        f"when you are done: {world.kubectl(f'annotate {which} kafkalite.io/paused-')}"
        for which in ("klc kafkalite", "klt orders")
    ]


def test_the_operator_does_not_keep_up(world, doctor):
    world.topic("orders", entry([0, 1, 2]))
    world.patch(TOPICS, "orders", {"spec": {"partitions": 2}})
    world.patch(CLUSTERS, "kafkalite", {"spec": {"config": {"num.partitions": "2"}}})
    whats = [each["what"] for each in doctor()["NotSeen"]]
    assert whats == [
        "the operator has not taken up the last change of the cluster kafkalite",
        "the operator has not taken up the last change of 1 topic: orders",
    ]


def test_keys_that_kafka_does_not_know(world, doctor):
    world.patch(CLUSTERS, "kafkalite", {"spec": {"config": {"log.retention.moons": "2"}}})
    for name in ("a", "b"):
        world.topic(name, entry([0, 1, 2]), config={"retention.moons": "2"})
    world.patch(CLUSTERS, "kafkalite", {"status": {"observedGeneration": 2}}, status=True)
    cluster, topics = doctor()["InvalidConfig"]
    assert "keys of the cluster kafkalite are not in force" in cluster["what"]
    assert "log.retention.moons" in cluster["what"]
    assert "a key of 2 topics is not in force" in topics["what"]
    assert "retention.moons" in topics["what"]
    assert topics["items"] == ["a", "b"]


# --- brokers ---------------------------------------------------------------------------------------------------------


def test_a_fenced_broker_and_what_it_leaves_behind(world, doctor):
    world.fence(1)
    world.pod(1, ready=False, restarts=7, waiting={"reason": "CrashLoopBackOff"}, terminated={
        "exitCode": 70, "reason": "Error", "message": json.dumps({"incarnation": "i-1", "reason": "the disk failed"}),
    })  # fmt: skip
    world.topic("orders", entry([0, 1, 2], isr=[0, 2]), entry([2, 0, 1], isr=[2, 0]))
    found = doctor()
    only(found, "BrokerFenced", "UnderReplicated")
    fenced = one(found, "BrokerFenced")
    assert fenced["what"] == "broker 1 is fenced: it leads nothing and counts in no ISR"
    assert "the operator fenced epoch 11 at 2026-01-01T00:00:00Z: LeaseExpired: no Lease renewal" in fenced["why"]
    assert (
        "its container keeps ending (7 restarts), the last time: exit code 70, it cannot run, or the disk failed "
        in (fenced["why"])
    )
    assert "(the disk failed)" in fenced["why"]
    assert fenced["todo"] == world.kubectl("logs kafkalite-broker-1 --previous")
    behind = one(found, "UnderReplicated")
    assert behind["what"] == "2 partitions of 1 topic without the replica on broker 1: orders-0, orders-1"
    assert behind["why"] == "broker 1 is fenced (LeaseExpired)"
    assert behind["todo"] == f"bring broker 1 back; if it is gone for good: {world.kafkalite('replace 1')}"


def test_a_registration_that_is_fenced_while_the_pod_runs(world, doctor):
    world.fence(1)
    fenced = one(doctor(), "BrokerFenced")
    assert "its pod runs and is ready, yet its registration is that of epoch 11" in fenced["why"]
    assert fenced["todo"] == f"if this stays, {world.kafkalite('restart 1')}"


@pytest.mark.parametrize(
    ("state", "what"),
    [
        ("CatchingUp", "broker 1 catches up with the state of the topics"),
        ("ShuttingDown", "broker 1 is shutting down"),
    ],
)
def test_a_broker_on_its_way(world, doctor, state, what):
    world.tell(1, state=state)
    world.topic("orders", entry([0, 1, 2], isr=[0, 2]))
    found = doctor()
    assert one(found, f"Broker{state}")["what"] == what


def test_a_broker_that_recovers_its_logs(world, doctor):
    """Its registration, fenced or not, is that of the process before."""
    world.recovers(1, logs=12, segments=1)
    world.pod(1, ready=False)
    world.topic("orders", entry([0, 1, 2], isr=[0, 2]))
    found = doctor()
    only(found, "BrokerRecovering", "UnderReplicated")
    assert one(found, "UnderReplicated")["why"].endswith("recovers its logs, 12 logs left")
    told = one(found, "BrokerRecovering")
    assert told["what"] == "broker 1 recovers its logs: 12 logs left, and 1 segment of those under way"
    assert "since 2026-01-01T00:00:00Z" in told["why"]
    world.fence(1)
    only(doctor(), "BrokerRecovering", "UnderReplicated")
    world.pod(1, ready=False, restarts=2, waiting={"reason": "CrashLoopBackOff"}, terminated={"exitCode": 137})
    only(doctor(), "BrokerFenced", "UnderReplicated")


def test_brokers_that_have_never_been_there(world, doctor):
    world.patch(CLUSTERS, "kafkalite", {"spec": {"replicas": 5}})
    world.patch(CLUSTERS, "kafkalite", {"status": {"observedGeneration": 2}}, status=True)
    world.broker(3, status={})
    world.warn("StatefulSet", "kafkalite-broker", "FailedCreate", "exceeded quota")
    found = doctor()
    only(found, "BrokerNotMade", "BrokerNotRegistered", "StatefulSetTooSmall")
    assert (
        one(found, "BrokerNotMade")["what"] == "broker 4 is wanted, and there is no KafkaLiteBroker kafkalite-broker-4"
    )
    unregistered = one(found, "BrokerNotRegistered")
    assert unregistered["what"] == "broker 3 has never registered"
    assert unregistered["why"] == "its pod kafkalite-broker-3 does not exist; FailedCreate: exceeded quota"
    assert "has 3 replicas, and the cluster wants 5 brokers" in one(found, "StatefulSetTooSmall")["what"]


def test_a_pod_that_no_node_takes_and_one_whose_volume_is_missing(world, doctor):
    unschedulable = {"type": "PodScheduled", "status": "False", "message": "0/3 nodes: insufficient memory"}
    world.pod(0, ready=False, phase="Pending", conditions=[unschedulable])
    world.pod(1, ready=False, phase="Pending")
    world.claim(1, phase="Pending", storageClassName="fast")
    world.warn("PersistentVolumeClaim", "data-kafkalite-broker-1", "ProvisioningFailed", "no such class")
    world.pod(2, ready=False, phase="Pending")
    world.claim(2, phase="Lost")
    found = doctor()
    only(found, "PodNotReady", "VolumePending", "VolumeLost")
    first, second, third = found["PodNotReady"]
    assert first["why"] == "its pod is Pending, no node takes it: 0/3 nodes: insufficient memory"
    assert second["why"] == (
        "its pod is Pending: its volume claim data-kafkalite-broker-1 is Pending; ProvisioningFailed: no such class"
    )
    assert "look at StorageClass fast" in second["todo"]
    assert "is Lost" in third["why"]
    assert "give the cluster a spec.storage.storageClassName" in third["todo"]
    assert one(found, "VolumePending")["why"] == "ProvisioningFailed: no such class"
    todo = one(found, "VolumeLost")["todo"]
    assert todo.startswith("its volume is gone")
    assert todo.endswith(world.kafkalite("replace 2")), "it refuses to give up the last copy of a partition"
    assert "delete" not in todo


@pytest.mark.parametrize(
    ("pod", "why", "todo"),
    [
        (
            {"waiting": {"reason": "ImagePullBackOff", "message": "not found"}},
            "its container waits, ImagePullBackOff: not found",
            "correct spec.image",
        ),
        (
            {"waiting": {"reason": "CrashLoopBackOff"}, "terminated": {"exitCode": 137, "reason": "OOMKilled"}},
            "the last time: exit code 137, it was killed, OOMKilled",
            "raise the memory limit",
        ),
        ({}, "its pod kafkalite-broker-1 runs and is not ready; Unhealthy: 503", "logs kafkalite-broker-1"),
        ({"waiting": {"reason": "ContainerCreating"}}, "its container is being created: Unhealthy: 503", "describe pod"),
        ({"waiting": {"reason": "CreateContainerConfigError"}}, "its container waits, CreateContainerConfigError", "describe"),
    ],
)  # fmt: skip
def test_a_pod_that_does_not_get_on(world, doctor, pod, why, todo):
    world.pod(1, ready=False, **pod)
    world.warn("Pod", "kafkalite-broker-1", "Unhealthy", "503")
    finding = one(doctor(), "PodNotReady")
    assert finding["what"] == "broker 1 is registered as Running, but its pod is in trouble"
    assert why in finding["why"]
    assert todo in finding["todo"]


def test_a_broker_that_is_silent(world, doctor):
    world.lease("kafkalite-broker-1", "i-1", age_s=120)
    world.delete(LEASES, "kafkalite-broker-2")
    first, second = doctor()["LeaseExpired"]
    assert re.fullmatch("broker 1 is registered as Running, but has not renewed its Lease for 12\\d s", first["what"])
    assert second["what"] == "broker 2 is registered as Running, but has not renewed its Lease at all"
    assert "the operator fences it" in first["todo"]


def test_a_broker_that_registered_a_moment_ago_takes_its_lease_next(world, doctor, monkeypatch):
    world.delete(LEASES, "kafkalite-broker-2")
    waited = asyncio.sleep

    async def sleep(seconds):
        if seconds == operator_lease.SECOND_LOOK_S:
            await asyncio.to_thread(world.lease, "kafkalite-broker-2", "i-2")
        else:
            await waited(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    assert doctor(rc=0) == {}


def test_a_stateful_set_that_is_missing_or_foreign(world, doctor):
    world.delete(STATEFUL_SETS, "kafkalite-broker")
    assert "no StatefulSet kafkalite-broker" in one(doctor(), "StatefulSetMissing")["what"]
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "other", "controller": True}
    owner["uid"] = world.make(CONFIG_MAPS, "other", {})["metadata"]["uid"]
    world.stateful_set(3, ownerReferences=[owner])
    foreign = one(doctor(), "ForeignObject")
    assert (
        f"StatefulSet kafkalite-broker belongs to ConfigMap other (uid {owner['uid']}), not to this cluster"
        in foreign["what"]
    )
    assert "the operator leaves it alone" in foreign["todo"]


def test_brokers_of_another_cluster(world, doctor):
    world.patch(BROKERS, world.broker_name(2), {"metadata": {"labels": {"a": "b"}}})
    body = {"spec": {"clusterRef": {"name": "gone"}, "brokerId": 0}}
    world.make(BROKERS, "gone-broker-0", body)
    with world.before_the_rules_of(BROKERS):
        world.broker(7, name="strange")
    whats = [each["what"] for each in doctor()["ForeignObject"]]
    assert whats == [
        "KafkaLiteBroker strange says that it is broker 7 of cluster kafkalite",
        f"KafkaLiteBroker gone-broker-0 is of cluster gone, which is not in namespace {world.namespace}",
    ]


def test_cordoned_and_leaving_brokers_and_strays(world, doctor):
    world.patch(BROKERS, world.broker_name(0), {"spec": {"cordoned": True}})
    world.broker(3)
    world.pod(3)
    world.topic("orders", entry([0, 1, 2]))
    strays = [{"topic": name, "topicId": "t", "partition": 0} for name in ("gone", "orders")]
    world.tell(1, strays=strays)
    found = doctor(rc=0)
    only(found, "BrokerCordoned", "BrokerLeaving", "Strays")
    assert one(found, "BrokerCordoned")["severity"] == "note"
    assert one(found, "BrokerCordoned")["what"] == "broker 0 is cordoned: no new replicas are placed there"
    assert one(found, "BrokerLeaving")["what"] == "broker 3 runs, and leaves: spec.replicas is 3"
    assert (one(found, "BrokerLeaving")["severity"], "to keep it" in one(found, "BrokerLeaving")["todo"]) == (
        "note",
        True,
    )
    gone, moved = found["Strays"]
    assert gone["what"] == "data of topics that are gone are still there, on brokers 1: gone"
    assert "adopt-strays" in gone["todo"]
    assert moved["what"] == "data of replicas that have moved away are still there, on brokers 1: orders"


def test_strays_of_partitions_that_a_topic_lost_are_not_those_of_replicas_that_moved(world, doctor):
    topic_id = world.topic("orders", entry([0, 1, 2]))["status"]["topicId"]
    world.tell(1, strays=[{"topic": "orders", "topicId": topic_id, "partition": number} for number in (0, 1)])
    lost, moved = doctor(rc=0)["Strays"]
    assert lost["what"] == "data of partitions that topics do not have any more are still there, on brokers 1: orders"
    assert "raise spec.partitions" in lost["todo"]
    assert "moved away" in moved["what"]


def test_a_cluster_that_cannot_become_what_is_wanted(world, doctor):
    condition = {
        "type": "Progressing",
        "status": "False",
        "reason": "NotEnoughBrokers",
        "message": "broker 2 cannot leave",
    }
    world.patch(CLUSTERS, "kafkalite", {"status": {"conditions": [condition]}}, status=True)
    finding = one(doctor(), "NotEnoughBrokers")
    assert (finding["why"], finding["severity"]) == ("broker 2 cannot leave", "problem")
    assert world.kafkalite("topics alter NAME --replicas N") in finding["todo"]
    condition |= {"status": "True", "reason": "ScalingDown", "message": "1 replica left on broker 3"}
    world.patch(CLUSTERS, "kafkalite", {"status": {"conditions": [condition]}}, status=True)
    finding = one(doctor(rc=0), "ScalingDown")
    assert (finding["why"], finding["severity"]) == ("1 replica left on broker 3", "note")
