"""The command line against a real API server, by itself and started by kubectl, as a user of such a cluster types it.

Nothing of local mode is near: KUBECONFIG names the cluster, PATH has `kubectl` and our plugin, and brokers are real.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.cluster.control_plane import control_plane, programs
from tests.ha.real_brokers import RealBrokers
from tests.integration.cluster import GROUP, NAMESPACE, VERSION, in_sync, running
from tests.integration.test_rolling import uids

pytestmark = pytest.mark.timeout(300)
KUBECTL = ("kubectl",)
PLUGIN = ("kubectl", "kafkalite")
BIN = Path(sys.executable).parent
RECORDS = 90


class Terminal:
    """A shell whose user has a kubeconfig, kubectl and the programs of `.venv`."""

    def __init__(self, folder: Path, kubeconfig: Path) -> None:
        folder.mkdir()
        self.folder = folder
        self.environment = {
            "PATH": os.pathsep.join([str(BIN), str(programs()), os.environ["PATH"]]),
            "HOME": str(folder),
            "KUBECONFIG": str(kubeconfig),
        }

    def run(
        self, *words: str, code: int = 0, stdin: str = "", program: tuple[str, ...] = ("kafkalite",)
    ) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [*program, *words],
            cwd=self.folder,
            env=self.environment,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        assert done.returncode == code, f"{' '.join([*program, *words])}:\n{done.stdout}\n{done.stderr}"
        return done

    def json(self, *words: str, code: int = 0, program: tuple[str, ...] = ("kafkalite",)):
        return json.loads(self.run(*words, "-o", "json", code=code, program=program).stdout)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """An operator; the first topic brings three brokers."""
    folder = tmp_path_factory.mktemp("command-line")
    with control_plane(folder / "control-plane") as plane:
        brokers = RealBrokers(plane, folder)
        brokers.up()
        try:
            yield brokers
        finally:
            brokers.close()
            brokers.down()


@pytest.fixture(scope="module")
def terminal(cluster, tmp_path_factory):
    made = Terminal(tmp_path_factory.mktemp("terminal") / "home", cluster.home / "kubeconfig")
    made.run("topics", "create", "first", "--timeout", "120")
    cluster.wait_topic("first", in_sync)
    made.run("topics", "delete", "first", "--yes")
    return made


@pytest.fixture(params=[("kafkalite",), PLUGIN], ids=" ".join)
def program(request):
    return request.param


@pytest.fixture
def topic(cluster, terminal, request):
    """A topic with a replica of each of six partitions on brokers 0 and 1, made and deleted by the command line."""
    name = request.node.name.split("[")[0].replace("_", "-")[:40].strip("-")
    made = terminal.run("topics", "create", name, "--assignment", ",".join(["0:1"] * 6))
    assert made.stdout == f"topic {name} created (6 partitions, 2 replicas)\n"
    cluster.wait_known(name, 6)
    yield name
    assert terminal.run("topics", "delete", name, "--yes").stdout == f"topic {name} deleted\n"
    assert name not in {each["metadata"]["name"] for each in topics(cluster)}


def topics(cluster):
    return cluster.api.list_namespaced_custom_object(GROUP, VERSION, NAMESPACE, "kafkalitetopics")["items"]


def held(cluster, name):
    partitions = cluster.topic(name)["status"]["partitions"].values()
    return Counter(broker for each in partitions for broker in each["replicas"])


def manifest(name, **spec):
    return {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": "KafkaLiteTopic",
        "metadata": {"name": name},
        "spec": {"partitions": 1, "replicas": 3, **spec},
    }


def merging(body):
    """Arguments of `kubectl patch`."""
    return "--type", "merge", "-p", json.dumps(body)


def plan_of(name, replicas):
    partitions = [{"topic": name, "partition": number, "replicas": replicas} for number in range(6)]
    return json.dumps({"version": 1, "partitions": partitions})


def test_status(cluster, terminal, topic, program):
    document = terminal.json("status", program=program)
    assert "processes" not in document, "a cluster that is not this machine's"
    assert (document["cluster"], document["bootstrap"].split(",")[0]) == ("kafkalite", cluster.bootstrap.split(",")[0])
    assert [(each["id"], each["state"]) for each in document["brokers"]] == [(n, "Running") for n in range(3)]
    (shown,) = document["topics"]
    assert [(each["partition"], each["replicas"]) for each in shown["partitions"]] == [(n, [0, 1]) for n in range(6)]
    text = terminal.run("status", program=program).stdout
    assert text.startswith("cluster kafkalite   bootstrap 127.0.0.1:")
    assert text.count(topic) == 6


def test_doctor(cluster, terminal, topic, program):
    document = terminal.json("doctor", program=program)
    assert document["clusters"] == ["default/kafkalite"]
    assert (document["healthy"], document["brokers"], document["topics"]) == (True, 3, 1)
    assert "nothing is wrong" in terminal.run("doctor", program=program).stdout


def test_what_the_doctor_offers_for_pasting_is_the_way_that_it_was_called(cluster, terminal):
    topic = manifest("lost", clusterRef={"name": "elsewhere"})
    terminal.run("create", "-f", "-", stdin=json.dumps(topic), program=KUBECTL)
    terminal.run("patch", "klb", "kafkalite-broker-2", *merging({"spec": {"cordoned": True}}), program=KUBECTL)
    for program in (("kafkalite",), PLUGIN):
        text = terminal.run("doctor", code=1, program=program).stdout
        assert "elsewhere" in text
        assert f"if it shall take replicas again: {' '.join(program)} decommission 2 --cancel\n" in text
    terminal.run("patch", "klb", "kafkalite-broker-2", *merging({"spec": {"cordoned": False}}), program=KUBECTL)
    terminal.run("delete", "klt", "lost", program=KUBECTL)


def test_a_topic_from_its_making_to_its_end(cluster, terminal):
    made = terminal.run("topics", "create", "Orders", "--partitions", "2", program=PLUGIN)
    assert made.stdout == "topic Orders created (2 partitions, 3 replicas)\n"
    again = terminal.run("topics", "create", "Orders", code=1)
    assert again.stderr == "Error: topic 'Orders' already exists\n"
    altered = terminal.run("topics", "alter", "Orders", "--partitions", "3", "--config", "retention.ms=3600000")
    assert altered.stdout == "topic Orders altered\n"
    (document,) = terminal.json("topics", "describe", "Orders", program=PLUGIN)
    assert (document["partitionCount"], document["config"]) == (3, {"retention.ms": "3600000"})
    (shown,) = terminal.json("topics", "list")
    assert (shown["name"], shown["partitions"], shown["ready"]) == ("Orders", 3, True)
    asked = ("get", "klt", document["object"], "-o", "jsonpath={.spec.topicName} {.spec.config}")
    assert terminal.run(*asked, program=KUBECTL).stdout == 'Orders {"retention.ms":"3600000"}'
    wrong = terminal.run("topics", "alter", "Orders", "--partitions", "1", code=1)
    assert "Error: " in wrong.stderr
    assert terminal.run("topics", "delete", "Orders", "--yes", program=PLUGIN).stdout == "topic Orders deleted\n"
    assert terminal.run("topics", "list", "-o", "name").stdout == ""


def test_manifests_are_applied(cluster, terminal):
    said = [terminal.run("apply", "-f", "-", stdin=json.dumps(manifest("applied"))).stdout for _ in range(2)]
    assert [line.split()[-1] for line in said] == ["created", "unchanged"]
    cluster.wait_topic("applied", in_sync)
    assert terminal.run("topics", "delete", "applied", "--yes").stdout == "topic applied deleted\n"


def test_replicas_are_reassigned(cluster, terminal, topic):
    proposed = terminal.json("reassign", "plan", "--topics", topic, "--brokers", "1,2")
    assert {broker for each in proposed["partitions"] for broker in each["replicas"]} == {1, 2}
    assert held(cluster, topic) == {0: 6, 1: 6}, "a plan changes nothing"
    (terminal.folder / "plan.json").write_text(json.dumps(proposed))
    moved = terminal.run("reassign", "execute", "plan.json", "--throttle", "10000000", "--wait")
    assert "started 6 partitions" in moved.stdout
    assert held(cluster, topic) == {1: 6, 2: 6}
    verified = terminal.json("reassign", "verify", "plan.json")
    assert {each["state"] for each in verified} == {"completed"}
    assert terminal.run("reassign", "status").stdout == "nothing moves\n"

    # The operator leaves a topic that is paused alone, so that the next move waits until it is taken back.
    terminal.run("annotate", "klt", topic, "kafkalite.io/paused=true", program=KUBECTL)
    (terminal.folder / "back.json").write_text(plan_of(topic, [0, 1]))
    terminal.run("reassign", "execute", "back.json")
    waiting = terminal.json("reassign", "status", topic)
    assert {(tuple(each["to"]), each["state"]) for each in waiting} == {((0, 1), "waiting")}
    assert "6 of 6 partitions not there yet" in terminal.run("reassign", "verify", "back.json", code=1).stderr
    cancelled = terminal.json("reassign", "cancel", "--topics", topic)
    assert {tuple(sorted(each["replicas"])) for each in cancelled["partitions"]} == {(1, 2)}
    assert terminal.run("reassign", "status").stdout == "nothing moves\n"
    terminal.run("annotate", "klt", topic, "kafkalite.io/paused-", program=KUBECTL)
    assert held(cluster, topic) == {1: 6, 2: 6}


def test_replicas_and_leaders_are_evened_out(cluster, terminal, topic):
    assert "dry run, nothing was changed" in terminal.run("rebalance").stderr
    assert held(cluster, topic) == {0: 6, 1: 6}
    terminal.run("rebalance", "--execute", "--wait")
    assert held(cluster, topic) == {0: 4, 1: 4, 2: 4}
    assert terminal.json("rebalance")["partitions"] == []


def test_a_broker_is_restarted_and_what_the_rules_say_is_kept(cluster, terminal, topic):
    recorder = subprocess.Popen(
        ["kafkalite", "verify", "record-metadata", "changes.jsonl", "-n", NAMESPACE],
        cwd=terminal.folder,
        env=terminal.environment,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert recorder.stderr.readline() == "recording to changes.jsonl\n"
        before = uids(cluster)
        restarted = terminal.run("restart", "1", "--yes")
        assert restarted.stdout == "restarted 1\n"
        changed = {name for name, uid in uids(cluster).items() if before[name] != uid}
        assert changed == {"kafkalite-broker-1"}
    finally:
        recorder.send_signal(signal.SIGTERM)
        said = recorder.communicate(timeout=60)[1]
    assert "changes recorded" in said
    judged = terminal.json("verify", "check-metadata", "changes.jsonl")["changes.jsonl"]
    assert (judged["ok"], judged["brokers"]) == (True, 3)
    assert judged["isr_expands"] >= 6, "it came back into every ISR"


def test_a_broker_is_emptied(cluster, terminal, topic):
    terminal.run("rebalance", "--execute", "--wait")
    shown = terminal.run("decommission", "2", "--dry-run").stdout
    assert "4 -> 0" in shown
    done = terminal.run("decommission", "2", "--yes", program=PLUGIN)
    assert done.stdout == (
        "broker 2 is empty; to remove it: kubectl -n default scale klc kafkalite --replicas=2 (its volume stays)\n"
    )
    assert held(cluster, topic) == {0: 6, 1: 6}
    codes = {each["code"] for each in terminal.json("doctor")["findings"]}
    assert codes - {"Strays"} == {"BrokerCordoned"}  # what earlier topics left behind is set aside for an hour
    cancelled = terminal.run("decommission", "2", "--cancel", program=PLUGIN).stderr
    assert cancelled.startswith("broker 2 takes replicas again")
    assert "(`kubectl kafkalite rebalance` evens out)" in cancelled


def test_a_broker_is_replaced(cluster, terminal, topic):
    before = cluster.wait_broker(1, running)["status"]["registration"]
    said = terminal.run("replace", "1").stdout
    assert "claim data-kafkalite-broker-1 is deleted with its data, and its pod\n" in said
    assert "6 replicas are copied to the new volume" in said
    done = terminal.run("replace", "1", "--yes", "--timeout", "200")
    assert done.stdout == "broker 1 has a new volume, and its replicas are in sync\n"
    after = cluster.wait_broker(1, running)["status"]["registration"]
    assert after["directoryId"] != before["directoryId"]
    terminal.run("replace", "1", "--cancel")


def test_records_and_groups(cluster, terminal, topic):
    """The addresses of the brokers are those of the custom resource."""
    lines = "".join(f"k{number}:{number}\n" for number in range(RECORDS))
    sent = json.loads(terminal.run("produce", topic, "-K", ":", "-o", "json", stdin=lines).stdout)
    assert (sent["sent"], sent["acknowledged"], sent["failed"]) == (RECORDS, RECORDS, 0)
    read = terminal.run("consume", topic, "-g", "mine", "--from-beginning", "--max-messages", str(RECORDS), "-q").stdout
    assert sorted(map(int, read.split())) == list(range(RECORDS))
    assert terminal.run("groups", "list", "-o", "name").stdout == "mine\n"
    (group,) = terminal.json("groups", "describe", "mine", program=PLUGIN)
    assert (group["state"], group["totalLag"]) == ("Empty", 0)
    terminal.run("groups", "reset-offsets", "mine", "--topic", topic, "--to-earliest", "--execute")
    assert terminal.json("groups", "describe", "mine")[0]["totalLag"] == RECORDS
    terminal.run("groups", "delete-offsets", "mine", "--topic", topic, "--yes")
    terminal.run("groups", "delete", "mine", "--yes")
    assert terminal.run("groups", "list", "-o", "name").stdout == ""
    verdict = terminal.json("verify", "run", "--topic", topic, "--duration", "3", "--rate", "50")
    assert verdict["ok"]
    internal = terminal.run("topics", "delete", "__consumer_offsets", "--yes", code=1)
    assert "belongs to the brokers" in internal.stderr
    terminal.run("topics", "delete", "__consumer_offsets", "--yes", "--internal")


def test_an_account_with_few_rights_is_told_which_it_lacks(cluster, terminal, tmp_path):
    """By the words of the real authorizer."""
    terminal.run("create", "serviceaccount", "reader", "-n", NAMESPACE, program=KUBECTL)
    token = terminal.run("create", "token", "reader", "-n", NAMESPACE, program=KUBECTL).stdout.strip()
    view = terminal.json("config", "view", "--raw", program=KUBECTL)
    view["users"] = [{"name": view["users"][0]["name"], "user": {"token": token}}]
    own = tmp_path / "kubeconfig"
    own.write_text(json.dumps(view))
    refused = terminal.run("topics", "list", "--kubeconfig", str(own), code=1)
    assert "system:serviceaccount:default:reader" in refused.stderr
    assert "kafkalitetopics" in refused.stderr
    unasked = terminal.run("doctor", "--kubeconfig", str(own), code=2)
    assert "What is needed: " in unasked.stderr
