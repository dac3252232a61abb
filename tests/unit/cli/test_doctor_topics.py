"""What `kafkalite doctor` says of partitions and topics, and when it cannot ask; of an embedded API server."""

import json

import pytest
from click.testing import CliRunner

from kafkalite_cli.main import main
from kafkalite_runtime.kube import (
    BROKERS,
    EVENTS,
    LEASES,
    PERSISTENT_VOLUME_CLAIMS,
    PODS,
    STATEFUL_SETS,
    TOPICS,
    KubeClient,
    KubeForbidden,
)
from tests.unit.cli.world import OPERATOR, entry, one, only

# --- partitions ------------------------------------------------------------------------------------------------------


def test_a_partition_without_a_leader_and_why_no_candidate_counts(world, doctor):
    world.fence(1)
    # Broker 0 has lost its disk since epoch 10, broker 2 runs and was not in sync.
    world.tell(0, brokerEpoch=20, trustedSince=20)
    lost = entry([0, 1, 2], isr=[(0, 10)], leader=-1, elr=[1], elrBrokerEpochs=[11])
    world.topic("orders", lost, {**lost})
    finding = one(doctor(), "OfflinePartitions")
    assert finding["what"] == "2 partitions without a leader: orders-0, orders-1"
    assert finding["why"] == (
        "broker 0 (in the ISR) came back without its data (it was in sync with epoch 10); "
        "broker 1 (eligible) is fenced; broker 2 runs, and may lack acknowledged records"
    )
    assert world.kubectl("annotate klt orders kafkalite.io/elect-unclean=all") in finding["todo"]


def test_the_consent_to_a_loss_is_not_one_for_partitions_whose_broker_comes_back(world, doctor):
    """Broker 0 has lost its disk, broker 1 is away for a moment; broker 2 would be elected for both."""
    world.tell(0, brokerEpoch=20, trustedSince=20)
    world.fence(1)
    lost = entry([0, 2], isr=[(0, 10)], leader=-1)
    world.topic("orders", lost, entry([1, 2], isr=[1], leader=-1), {**lost})
    finding, other = sorted(doctor()["OfflinePartitions"], key=lambda each: each["what"], reverse=True)
    assert finding["what"] == "2 partitions without a leader: orders-0, orders-2"
    assert finding["todo"].endswith(world.kubectl("annotate klt orders kafkalite.io/elect-unclean=0,2"))
    assert other["todo"].endswith(world.kubectl("annotate klt orders kafkalite.io/elect-unclean=1"))


def test_a_partition_that_only_waits_for_the_operator(world, doctor):
    world.topic("orders", entry([0, 1, 2], isr=[1], leader=-1))
    finding = one(doctor(), "OfflinePartitions")
    assert finding["why"] == (
        "broker 1 (in the ISR) runs: the operator has to elect it; brokers 0, 2 run, and may lack acknowledged records"
    )
    assert "wait for the operator" in finding["todo"]


def test_below_min_insync_replicas(world, doctor):
    world.fence(1)
    world.topic("orders", entry([0, 1, 2], isr=[0], minIsr=2))
    found = doctor()
    finding = one(found, "UnderMinIsr")
    assert finding["what"] == "1 partition with 1 of min.insync.replicas 2 in sync: orders-0"
    assert finding["why"] == "broker 1 is fenced (LeaseExpired); broker 2 runs and is catching up"
    assert "acks=all" in finding["todo"]


def test_why_a_replica_is_missing(world, doctor):
    world.patch(BROKERS, world.broker_name(2), {"spec": {"cordoned": True}})
    world.tell(0, brokerEpoch=20, trustedSince=20)
    world.topic(
        "orders",
        entry([1, 2], isr=[1]),
        entry([1, 0], isr=[1, (0, 10)]),
        entry([1, 3], isr=[1]),
        entry([1, 0], isr=[1], removing=[0]),
        entry([0, 1], isr=[1], adding=[0]),
    )
    found = doctor()
    assert sorted((each["items"], each["why"]) for each in found["UnderReplicated"]) == [
        (["orders-0"], "broker 2 runs and is catching up, cordoned"),
        (["orders-1"], "broker 0 came back without its data and copies it from the leader"),
        (["orders-2"], "broker 3 is not registered"),
        (["orders-3"], "broker 0 runs and leaves the partition (reassignment)"),
    ]
    assert "wait while it copies" in found["UnderReplicated"][0]["todo"]
    moving = one(found, "Reassigning")
    assert moving["what"] == "replicas of 2 partitions are moving: orders-3, orders-4"
    assert moving["severity"] == "note"


def test_an_unclean_election_that_is_not_confirmed(world, doctor):
    world.topic("orders", entry([0, 1, 2], isr=[0], leaderRecoveryState="Recovering"))
    assert "elected uncleanly" in one(doctor(), "UncleanElection")["what"]


# --- topics ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("type_", "reason", "todo"),
    [
        ("Ready", "NotEnoughBrokers", "lower spec.replicas, or raise that of the cluster"),
        ("Ready", "WaitingForBrokers", "look at what is said about the brokers"),
        ("Ready", "StoreWentBack", "kafkalite.io/recover-store"),
        ("Ready", "SomethingNew", "describe klt orders"),
        ("Progressing", "InvalidReplicaAssignment", "correct spec.replicaAssignment"),
        ("Progressing", "NotSupported", "undo the change of the spec"),
        ("Progressing", "TooManyReplicas", "in steps"),
        ("Progressing", "InSyncLost", "kafkalite.io/recover-store"),
    ],
)
def test_what_the_operator_says_of_a_topic(world, doctor, type_, reason, todo):
    said = {"type": type_, "status": "False", "reason": reason, "message": "because"}
    world.topic("orders", conditions=[said])
    finding = one(doctor(), reason)
    assert finding["what"] == f"1 topic not as wanted, {reason}: orders"
    assert finding["why"] == "because"
    assert todo in finding["todo"]


def test_partitions_that_wait_for_brokers_while_the_others_serve(world, doctor):
    serving = {"type": "Ready", "status": "True", "reason": "Serving", "message": "all 1 partitions have a leader"}
    said = {"type": "Progressing", "status": "True", "reason": "WaitingForBrokers", "message": "waiting for broker 3"}
    world.topic("orders", entry([0, 1, 2]), conditions=[serving, said])
    finding = one(doctor(rc=0), "WaitingForBrokers")
    assert finding["severity"] == "note"
    assert finding["what"] == "partitions of 1 topic are not made, and wait for brokers: orders"
    assert finding["why"] == "waiting for broker 3"
    unready = {**serving, "status": "False", "reason": "WaitingForBrokers"}
    world.topic("other", conditions=[unready, said])
    assert [each["severity"] for each in doctor()["WaitingForBrokers"]] == ["problem", "note"], "each is told once"


def test_two_objects_of_one_name(world, doctor):
    world.topic("orders", entry([0, 1, 2]))
    conflict = {"type": "Ready", "status": "False", "reason": "ResourceConflict"}
    world.topic("other", topicName="orders", conditions=[conflict])
    found = doctor()
    only(found, "ResourceConflict")
    assert one(found, "ResourceConflict")["what"] == (
        "2 objects claim the topic name orders: orders has it, other does not"
    )


def test_a_topic_of_a_cluster_that_does_not_exist(world, doctor):
    world.topic("orders", clusterRef={"name": "elsewhere"})
    finding = one(doctor(), "ClusterNotFound")
    assert finding["what"] == (
        f"1 topic of a KafkaLiteCluster 'elsewhere' that is not in namespace {world.namespace}: orders"
    )


def test_flush_that_is_relaxed(world, doctor):
    world.topic("orders", entry([0, 1, 2]), conditions=[{"type": "DurableFlush", "status": "False"}])
    assert "may lose acknowledged records" in one(doctor(rc=0), "RelaxedFlush")["what"]


def test_an_object_that_this_version_does_not_understand(world, doctor):
    with world.before_the_rules_of(TOPICS):
        world.topic("orders", replicaAssignment={"007x": [0]})
    finding = one(doctor(), "NotUnderstood")
    assert finding["what"] == "topic/orders cannot be understood by this version"
    assert "is not a partition number" in finding["why"]


# --- what cannot be asked --------------------------------------------------------------------------------------------


@pytest.fixture
def forbid(monkeypatch):
    """The API server refuses to list these kinds, in the words of a real one."""

    def forbid(*kinds, everywhere_only=False):
        real = KubeClient.list

        async def refused(self, kind, namespace=None, **more):
            if kind.plural in {each if isinstance(each, str) else each.plural for each in kinds} and not (
                everywhere_only and namespace
            ):
                sentence = f'{kind.plural} is forbidden: User "me" cannot list resource "{kind.plural}"'
                raise KubeForbidden(403, "Forbidden", f"GET /apis/{kind.plural}: {sentence}")
            return await real(self, kind, namespace, **more)

        monkeypatch.setattr(KubeClient, "list", refused)

    return forbid


def test_without_the_right_to_read_topics_it_cannot_say_anything(world, doctor, forbid):
    forbid(TOPICS)
    said = doctor(rc=2).stderr
    assert 'kafkalitetopics is forbidden: User "me" cannot list resource "kafkalitetopics"' in said
    assert f"What is needed: the verb list on kafkalitetopics.kafkalite.io in namespace {world.namespace}" in said


def test_other_missing_rights_are_told_and_gone_around(world, doctor, forbid):
    forbid(PODS, STATEFUL_SETS, PERSISTENT_VOLUME_CLAIMS, EVENTS, LEASES, "customresourcedefinitions")
    world.fence(1)
    found = doctor()
    assert one(found, "BrokerFenced")["todo"].startswith("start it: kubectl")
    notes = {each["about"]: each for each in found["RightMissing"]}
    assert set(notes) == {
        "pods", "statefulsets", "persistentvolumeclaims", "events", "leases", "customresourcedefinitions",
    }  # fmt: skip
    assert notes["pods"]["what"] == "it was not looked at why a broker does not start: pods may not be read"
    assert notes["pods"]["todo"] == (
        f"ask for the verb list on pods in namespace {world.namespace}, to be told that as well"
    )
    assert (
        "customresourcedefinitions.apiextensions.k8s.io in the whole cluster"
        in (notes["customresourcedefinitions"]["todo"])
    )


def test_an_operator_in_a_namespace_that_may_not_be_read_is_not_called_dead(world, doctor, forbid):
    forbid(LEASES, everywhere_only=True)
    world.delete(LEASES, OPERATOR)
    note = one(doctor(rc=0), "OperatorUnknown")
    assert "others may not be read" in note["what"]


def test_who_is_not_known_to_the_api_server(world, doctor, monkeypatch):
    async def refused(*_args, **_more):
        raise KubeForbidden(401, "Unauthorized", "GET /apis: Unauthorized")

    monkeypatch.setattr(KubeClient, "list", refused)
    assert "does not know who you are (Unauthorized): look at the kubeconfig" in doctor(rc=2).stderr


def test_an_api_server_that_is_away(tmp_path):
    config = {
        "contexts": [{"name": "x", "context": {"cluster": "x"}}],
        "clusters": [{"name": "x", "cluster": {"server": "http://127.0.0.1:1"}}],
    }
    (tmp_path / "config").write_text(json.dumps(config))
    result = CliRunner().invoke(main, ["doctor", "--kubeconfig", str(tmp_path / "config")])
    assert result.exit_code == 2
    assert "the API server http://127.0.0.1:1 does not answer" in result.stderr


def test_a_namespace_without_a_cluster(world, doctor):
    finding = one(doctor("--cluster", "other"), "NoCluster")
    assert finding["what"] == f"there is no KafkaLiteCluster 'other' in namespace {world.namespace}"


def test_definitions_that_are_missing_or_old(world, doctor, monkeypatch):
    real = KubeClient.list

    async def older(self, kind, namespace=None, **more):
        found = await real(self, kind, namespace, **more)
        if kind.plural == "customresourcedefinitions":
            for each in found.items:
                schema = each["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
                if each["metadata"]["name"].startswith("kafkalitebrokers"):
                    schema["properties"]["spec"]["properties"].pop("cordoned")
                    schema.pop("x-kubernetes-validations")
                if each["metadata"]["name"].startswith("kafkaliteclusters"):
                    each["spec"]["versions"][0]["name"] = "v0"
        return found

    monkeypatch.setattr(KubeClient, "list", older)
    brokers, clusters = doctor()["DefinitionOld"]
    assert brokers["what"] == (
        "the definition kafkalitebrokers.kafkalite.io lacks fields spec.cordoned and rules "
        "(a broker is named after its cluster and its id, <cluster>-broker-<id>, status never disappears)"
    )
    assert clusters["what"] == "the definition kafkaliteclusters.kafkalite.io does not serve v1alpha1"
    assert f"kubectl --kubeconfig {world.kubeconfig} apply --server-side -f crds/" in brokers["todo"]


def test_definitions_that_were_never_installed(world, doctor, monkeypatch):
    from kafkalite_runtime.kube import KubeNotFound

    async def unknown(self, kind, namespace=None, **more):
        raise KubeNotFound(404, "NotFound", "GET /x: the server could not find the requested resource")

    monkeypatch.setattr(KubeClient, "list", unknown)
    found = doctor()
    assert [each["what"] for each in found["DefinitionMissing"]] == [
        f"the API server does not know {plural}.kafkalite.io/v1alpha1"
        for plural in ("kafkaliteclusters", "kafkalitebrokers", "kafkalitetopics")
    ]


# --- how much it says ------------------------------------------------------------------------------------------------


def test_very_many_topics_make_few_lines(world, doctor, monkeypatch):
    from kafkalite_cli.doctor import gather

    world.fence(1)
    made = world.topic("orders", *[entry([0, 1, 2], isr=[0, 2]) for _ in range(6)])
    many = [
        {**made, "metadata": {**made["metadata"], "name": f"t-{number}"}, "spec": {**made["spec"]}}
        for number in range(1_000)
    ]
    real = gather.read_main

    async def read_main(reader):
        return {**await real(reader), TOPICS: many}

    monkeypatch.setattr(gather, "read_main", read_main)
    lines = doctor(text=True).stdout.splitlines()
    assert len(lines) == 7
    assert "✗ 6,000 partitions of 1,000 topics without the replica on broker 1: " in lines[3]
    assert "and 5,995 more" in lines[3]
    everything = doctor("--all", text=True).stdout.splitlines()
    assert len(everything) == 6_007
    found = one(doctor(), "UnderReplicated")
    assert (found["itemCount"], len(found["items"])) == (6_000, 200)
