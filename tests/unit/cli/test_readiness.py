import copy
import dataclasses

import pytest

from kafkalite_cli.local_mode.processes import Process, display_name
from kafkalite_cli.local_mode.readiness import judge
from kafkalite_cli.snapshot import Snapshot
from kafkalite_cli.status import describe, table_row
from kafkalite_cli.status import unplaced as without_partitions
from kafkalite_runtime.home import ProcessRecord

ALIVE = {"local://1-1", "local://2-2", "local://9-9"}


def pod(name, component, container_id, **state):
    status = {"containerID": container_id, "restartCount": 0, "state": {"running": {}}} | state
    return {
        "metadata": {"name": name, "labels": {"app.kubernetes.io/component": component}},
        "status": {"conditions": [{"type": "Ready", "status": "True"}], "containerStatuses": [status]},
    }


def broker(number, epoch):
    registration = {
        "brokerEpoch": epoch, "state": "Running", "host": "127.0.0.1", "port": 9092 + number, "metrics": f"http://m{number}"
    }  # fmt: skip
    return {
        "metadata": {"namespace": "default", "name": f"kafkalite-broker-{number}"},
        "spec": {"brokerId": number, "clusterRef": {"name": "kafkalite"}},
        "status": {"registration": registration, "fencing": {"fencedEpoch": epoch - 1}},
    }


@pytest.fixture
def ready():
    entry = {
        "leader": 1, "leaderEpoch": 4, "partitionEpoch": 7, "replicas": [1, 0],
        "isr": [1, 0],
        "isrBrokerEpochs": [12, 11],
    }  # fmt: skip
    return Snapshot(
        clusters=[
            {
                "metadata": {"namespace": "default", "name": "kafkalite"},
                "spec": {"replicas": 2},
                "status": {
                    "bootstrap": "b",
                    "controller": {"holder": "h", "epoch": 3},
                    "partitions": {"total": 2, "offline": 0},
                },
            }
        ],
        brokers=[broker(1, 12), broker(0, 11)],
        topics=[
            {
                "metadata": {"name": "t", "generation": 2},
                "spec": {"topicName": "T"},
                "status": {
                    "partitions": {"10": copy.deepcopy(entry), "2": copy.deepcopy(entry)},
                    "conditions": [{"type": "Ready", "status": "True", "observedGeneration": 2}],
                },
            }
        ],
        pods=[
            pod("kafkalite-broker-0", "broker", "local://1-1"),
            pod("kafkalite-broker-1", "broker", "local://2-2"),
            pod("kafkalite-operator-local", "operator", "local://9-9"),
        ],
    )


def verdict(snapshot, alive=ALIVE):
    return judge(snapshot, container_alive=alive.__contains__)


def test_ready(ready):
    assert verdict(ready).ready


def test_a_status_from_before_the_restart_does_not_count(ready):
    assert "operator is starting" in verdict(ready, ALIVE - {"local://9-9"}).operator
    assert "broker 0 is not ready" in verdict(ready, ALIVE - {"local://1-1"}).brokers
    assert "waits for a leader" in verdict(ready, ALIVE - {"local://2-2"}).topics


def test_a_leader_of_an_earlier_registration_does_not_count(ready):
    ready.brokers[0]["status"]["registration"]["brokerEpoch"] = 13
    assert verdict(ready).topics == "topic T: partition 10 waits for a leader"


def test_states_of_brokers(ready):
    ready.brokers[0]["status"]["fencing"]["fencedEpoch"] = 12
    assert verdict(ready).brokers == "broker 1 is fenced"
    ready.brokers[0]["status"]["fencing"]["fencedEpoch"] = 11
    ready.brokers[0]["status"]["registration"]["state"] = "CatchingUp"
    assert verdict(ready).brokers == "broker 1 is catching up"
    ready.brokers[0]["status"] = {}
    assert verdict(ready).brokers == "broker 1 is unregistered"
    ready.brokers.pop(0)
    assert verdict(ready).brokers == "broker 1 is not yet made"
    ready.clusters.clear()
    assert "not yet made the cluster" in verdict(ready).brokers


def test_topics_tell_why_they_wait(ready):
    condition = ready.topics[0]["status"]["conditions"][0]
    condition["observedGeneration"] = 1
    assert verdict(ready).topics == "topic T: not yet seen by the operator"
    condition.update(status="False", message="2 of 3 brokers", observedGeneration=2)
    assert verdict(ready).topics == "topic T: 2 of 3 brokers"
    ready.topics[0]["status"] = {}
    assert verdict(ready).topics == "topic T: not yet seen by the operator"


def unplaced(topic, reason, waiting):
    topic["status"] = {
        "conditions": [
            {"type": "Ready", "status": "False", "reason": reason, "message": "5 need 5", "observedGeneration": 2},
            {"type": "Progressing", "status": str(waiting), "reason": reason, "message": "5 need 5"},
        ]
    }


def test_a_topic_that_its_owner_must_correct_is_not_waited_for(ready):
    topic = ready.topics[0]
    good = copy.deepcopy(topic)
    unplaced(topic, "NotEnoughBrokers", waiting=False)
    ready.topics.append(good)
    judged = verdict(ready)
    assert (judged.topics, judged.to_correct, judged.ready) == ("", ("topic T: 5 need 5",), False)
    good["status"]["conditions"][0]["status"] = "False"
    assert verdict(ready).topics, "the others are waited for"
    topic["metadata"]["generation"] = 3
    assert not verdict(ready).to_correct, "the operator has not seen the correction yet"


def test_a_topic_that_becomes_ready_by_itself_is_waited_for(ready):
    unplaced(ready.topics[0], "WaitingForBrokers", waiting=True)
    assert verdict(ready).topics == "topic T: 5 need 5"
    assert not verdict(ready).to_correct


def test_crash_loops_are_final(ready):
    container = ready.pods[0]["status"]["containerStatuses"][0]
    container["state"] = {"waiting": {"reason": "CrashLoopBackOff"}}
    container["lastState"] = {"terminated": {"exitCode": 3}}
    container["restartCount"] = 1
    assert verdict(ready).fatal is None
    container["restartCount"] = 2
    assert verdict(ready).fatal == ("kafkalite-broker-0", "it keeps ending, the last time with exit code 3")
    assert not verdict(ready).ready
    container["state"] = {"waiting": {"reason": "CreateContainerError", "message": "no program"}}
    assert verdict(ready).fatal == ("kafkalite-broker-0", "no program")


def test_the_end_of_a_process_before_this_start_is_over(ready):
    container = ready.pods[0]["status"]["containerStatuses"][0]
    container |= {"state": {"waiting": {"reason": "CrashLoopBackOff"}}, "restartCount": 5}
    container["lastState"] = {"terminated": {"exitCode": 3, "finishedAt": "2026-01-31T12:00:00Z"}}
    for began, fatal in (("2026-01-31T12:00:01Z", False), ("2026-01-31T12:00:00Z", True), ("", True)):
        judged = judge(ready, container_alive=(ALIVE - {"local://1-1"}).__contains__, began=began)
        assert bool(judged.fatal) == fatal
        assert fatal or judged.brokers == "broker 0 is not ready (running)"


def test_what_is_left_of_a_cluster_that_is_gone_is_no_crash_of_another(ready):
    crash(ready.pods[0])
    ready.clusters.clear()
    assert verdict(ready).fatal is None
    assert "not yet made the cluster" in verdict(ready).brokers


def test_a_broker_that_recovers_is_not_what_its_former_process_was(ready):
    told = {"incarnation": "new", "startedAt": "2026-01-01T00:00:00Z", "remainingLogs": 12, "remainingSegments": 3}
    ready.brokers[1]["status"]["recovery"] = told
    row = describe(ready, None)["brokers"][0]
    assert row["state"] == "Recovering"
    assert row["recovery"] == {name: told[name] for name in ("startedAt", "remainingLogs", "remainingSegments")}
    assert table_row(row)["state"] == "Recovering (12 logs left)"
    assert "recovery" not in table_row(row)
    assert "broker 0 is recovering" in verdict(ready).brokers
    ready.brokers[1]["status"]["registration"]["incarnation"] = "new"
    assert describe(ready, None)["brokers"][0]["state"] == "Running"


def test_the_json_of_status(ready):
    assert describe(ready, None) == {
        "cluster": "kafkalite",
        "bootstrap": "b",
        "controller": {"holder": "h", "epoch": 3},
        "partitions": {"total": 2, "offline": 0},
        "brokers": [
            {"namespace": "default", "cluster": "kafkalite", "id": n, "pid": None, "state": "Running", "address": f"127.0.0.1:{9092 + n}", "brokerEpoch": 11 + n, "metrics": f"http://m{n}", "recovery": None}
            for n in (0, 1)
        ],
        "topics": [
            {
                "namespace": "default",
                "cluster": "kafkalite",
                "name": "T",
                "partitions": [
                    {"partition": n, "leader": 1, "leaderEpoch": 4, "partitionEpoch": 7, "replicas": [1, 0], "isr": [1, 0]}
                    for n in (2, 10)
                ],
            }
        ],
    }  # fmt: skip
    assert describe(Snapshot(), []) == {
        "cluster": None,
        "bootstrap": None,
        "controller": {"holder": None, "epoch": None},
        "partitions": None,
        "processes": [],
        "brokers": [],
        "topics": [],
    }


def test_people_are_told_why_a_topic_has_no_partitions(ready):
    assert without_partitions(ready) == []
    unplaced(ready.topics[0], "NotEnoughBrokers", waiting=False)
    assert without_partitions(ready) == [{"topic": "T", "reason": "NotEnoughBrokers", "message": "5 need 5"}]
    [told] = describe(ready, None)["topics"]
    assert (told["name"], told["partitions"]) == ("T", []), "scripts rely on this shape"
    del ready.topics[0]["status"]
    assert without_partitions(ready)[0]["message"] == "not yet seen by the operator"


def test_an_entry_of_an_earlier_version_waits_for_a_leader(ready):
    entry = ready.topics[0]["status"]["partitions"]["10"]
    del entry["isrBrokerEpochs"]
    entry["isr"] = [{"id": 1, "epoch": 12}, {"id": 0, "epoch": 11}]
    assert verdict(ready).topics == "topic T: partition 10 waits for a leader"


def another(ready, name, namespace="default"):
    """A second cluster of two brokers and a topic, listed before the first."""
    cluster = copy.deepcopy(ready.clusters[-1])
    cluster["metadata"] = {"name": name, "namespace": namespace}
    ready.clusters.insert(0, cluster)
    for number, epoch in ((1, 32), (0, 31)):
        made = broker(number, epoch)
        made["metadata"] = {"name": f"{name}-broker-{number}", "namespace": namespace}
        made["spec"]["clusterRef"] = {"name": name}
        ready.brokers.insert(0, made)
        made = pod(f"{name}-broker-{number}", "broker", f"local://{number + 1}-{number + 1}")
        made["metadata"]["namespace"] = namespace
        ready.pods.insert(0, made)
    topic = copy.deepcopy(ready.topics[-1])
    topic["metadata"] |= {"name": "u", "namespace": namespace}
    topic["spec"] = {"clusterRef": {"name": name}}
    for entry in topic["status"]["partitions"].values():
        entry["isrBrokerEpochs"] = [32, 31]
    ready.topics.append(topic)


def test_a_topic_that_names_no_cluster_belongs_to_the_one_of_the_default_name(ready):
    another(ready, "analytics")
    assert verdict(ready).ready
    ready.topics[-1]["spec"] = {}
    assert verdict(ready).topics == "topic u: partition 10 waits for a leader"


def test_clusters_of_the_same_name_in_two_namespaces_are_two(ready):
    another(ready, "kafkalite", "x")
    ready.topics[-1]["spec"] = {}
    assert verdict(ready).ready
    ready.pods[0]["status"]["conditions"] = []
    judged = verdict(ready)
    assert judged.brokers == "broker 0 of cluster x/kafkalite is not ready (running)"
    assert judged.late == {"x/kafkalite": ("x.kafkalite-broker-0", judged.brokers)}
    assert judged.topics == "", "broker 1 leads"
    ready.pods.pop(0)
    ready.brokers.pop(0)
    assert verdict(ready).brokers == "broker 0 of cluster x/kafkalite is not ready (not yet made)"


def crash(made):
    made["status"]["containerStatuses"][0] |= {
        "state": {"waiting": {"reason": "CreateContainerError", "message": "no program"}}
    }


def test_a_cluster_that_crashes_is_told_and_the_others_go_on(ready):
    another(ready, "kafkalite", "x")
    crash(ready.pods[0])
    ready.brokers.pop(0)
    ready.topics[-1]["status"] = {}
    judged = verdict(ready)
    assert judged.crashed == {"x/kafkalite": ("x.kafkalite-broker-0", "no program")}
    assert (judged.fatal, judged.ready) == (None, False)
    assert (judged.brokers, judged.topics) == ("", ""), "nothing is waited for there"
    crash(ready.pods[2])
    assert verdict(ready).fatal == ("x.kafkalite-broker-0", "no program"), "nobody is left who could go on"


def process(name, pid):
    return Process(display_name(name), ProcessRecord(name=name, pid=pid, start_time=1, started_at=""), "running")


def test_each_broker_has_the_pid_of_its_own_process(ready):
    another(ready, "analytics")
    another(ready, "kafkalite", "x")
    names = [f"{cluster}-broker-{n}" for cluster in ("x.kafkalite", "analytics", "kafkalite") for n in (0, 1)]
    document = describe(ready, [process(name, pid) for pid, name in enumerate(names)])
    assert [(each["id"], each["pid"]) for each in document["brokers"]] == [
        (0, 2),
        (1, 3),
        (0, 4),
        (1, 5),
        (0, 0),
        (1, 1),
    ]
    one = dataclasses.replace(ready, brokers=ready.brokers[:1])
    assert describe(one, [process("kafkalite-broker-1", 7)])["brokers"][0]["pid"] is None, "that is another cluster's"
