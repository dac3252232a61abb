"""`kafkalite status` of a cluster that is too large to be read line by line."""

import json

from click.testing import CliRunner

from kafkalite_cli import snapshot, status
from kafkalite_cli.main import main
from kafkalite_cli.pasting import Commands
from kafkalite_runtime.kube import CLUSTERS, PODS, KubeClient, KubeForbidden
from tests.unit.cli.world import entry

TIMES = {"observedGeneration": 1, "lastTransitionTime": "2026-01-01T00:00:00Z"}


def run(world, *arguments):
    result = CliRunner().invoke(main, ["status", *world.arguments, *arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_a_small_cluster_is_shown_partition_by_partition(world):
    world.topic("orders", entry([0, 1, 2]), entry([1, 2, 0], isr=[1]))
    lines = run(world).splitlines()
    assert lines[-3].split() == ["topic", "partition", "leader", "leaderEpoch", "partitionEpoch", "replicas", "isr"]
    assert lines[-1].split() == ["orders", "1", "1", "1", "1", "1,2,0", "1"]


def test_of_many_partitions_only_those_are_shown_that_need_somebody(world):
    behind = [entry([0, 1, 2], isr=[0]) for _ in range(30)]
    world.topic("orders", *[entry([0, 1, 2]) for _ in range(100)], *behind, entry([0, 1, 2], isr=[0], leader=-1))
    shown = run(world)
    lines = shown.splitlines()
    assert lines[-1] == (
        "131 partitions of 1 topics: 1 without a leader, 30 under-replicated "
        f"(--all shows every one, `{world.kafkalite('doctor')}` says why)"
    )
    assert lines[-2] == "… and 11 more"
    [first] = [at for at, line in enumerate(lines) if line == "partitions that need somebody"]
    assert lines[first + 2].split()[:3] == ["orders", "130", "-1"], "what has no leader comes first"
    assert len(run(world, "--all").splitlines()) > 131


def test_brokers_of_several_clusters_are_shown_with_their_clusters(world):
    def shown():
        lines = run(world).splitlines()
        first = lines.index("brokers") + 1
        return [line.split()[:2] for line in lines[first : lines.index("no partitions")]]

    assert shown() == [["id", "pid"], ["0", "-"], ["1", "-"], ["2", "-"]]
    world.cluster(1, name="another")
    world.broker(0, name="another-broker-0", spec={"clusterRef": {"name": "another"}})
    other, own = f"{world.namespace}/another", f"{world.namespace}/kafkalite"
    assert shown() == [["cluster", "id"], [other, "0"], [own, "0"], [own, "1"], [own, "2"]]


def test_partitions_of_several_clusters_are_shown_with_their_clusters(world):
    world.topic("orders", entry([0, 1, 2], isr=[0]))
    world.topic("waits")
    world.cluster(1, name="another")
    other, own = f"{world.namespace}/another", f"{world.namespace}/kafkalite"
    world.topic("theirs", entry([0]), topicName="orders", clusterRef={"name": "another"})
    world.topic("theirs-waits", topicName="waits", clusterRef={"name": "another"})

    def table(title, *arguments):
        lines = run(world, *arguments).splitlines()
        return [line.split()[:3] for line in lines[lines.index(title) + 1 :]]

    assert table("partitions")[:3] == [["cluster", "topic", "partition"], [other, "orders", "0"], [own, "orders", "0"]]
    assert table("topics without partitions")[1:] == [[other, "waits", "-"], [own, "waits", "-"]]
    told = json.loads(run(world, "-o", "json"))
    assert [(each["namespace"], each["cluster"], each["name"]) for each in told["topics"]] == [
        (world.namespace, cluster, name) for cluster in ("another", "kafkalite") for name in ("orders", "waits")
    ]
    assert {(each["namespace"], each["cluster"]) for each in told["brokers"]} == {(world.namespace, "kafkalite")}
    world.topic("many", *[entry([0, 1, 2]) for _ in range(100)])
    assert table("partitions that need somebody")[:2] == [["cluster", "topic", "partition"], [own, "orders", "0"]]


def test_each_of_several_clusters_has_its_line_and_says_why_it_is_not_healthy(world):
    world.cluster(1, name="another")
    condition = {"type": "Healthy", "status": "False", "reason": "BrokersMissing", "message": "1 of 1"}
    for name in ("another", "kafkalite"):
        world.patch(CLUSTERS, name, {"status": {"conditions": [condition | TIMES]}}, status=True)
    lines = run(world).splitlines()[:4]
    assert [line.split("   ")[0] for line in lines] == [
        f"cluster {world.namespace}/another",
        "not healthy (BrokersMissing): 1 of 1",
        f"cluster {world.namespace}/kafkalite",
        "not healthy (BrokersMissing): 1 of 1",
    ]


def test_what_is_not_healthy_is_said_first(world):
    world.topic("orders", entry([0, 1, 2]))

    def say(status):
        condition = {
            "type": "Healthy",
            "status": status,
            "reason": "UnderReplicated",
            "message": "Of 9 partitions 1 is",
        }
        world.patch(CLUSTERS, world.name, {"status": {"conditions": [condition | TIMES]}}, status=True)
        return run(world).splitlines()[1]

    assert say("False") == "not healthy (UnderReplicated): Of 9 partitions 1 is"
    assert say("True") == "brokers"


def test_a_thousand_topics_are_told_quickly(world, capsys):
    made = world.topic("orders", *[entry([0, 1, 2]) for _ in range(6)])
    topics = [{**made, "metadata": {**made["metadata"], "name": f"t{number}"}} for number in range(1_000)]
    many = snapshot.Snapshot(topics=topics)
    status._print(status.describe(many, None), many, Commands(), known=True, everything=False)
    assert capsys.readouterr().out.splitlines()[-1].startswith("6,000 partitions of 1,000 topics: 0 without a leader")


def test_it_needs_no_right_to_read_pods(world, monkeypatch):
    real = KubeClient.list

    async def refused(self, kind, namespace=None, **more):
        if kind is PODS:
            raise KubeForbidden(403, "Forbidden", "pods is forbidden")
        return await real(self, kind, namespace, **more)

    monkeypatch.setattr(KubeClient, "list", refused)
    assert "no partitions" in run(world)
