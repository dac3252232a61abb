"""`kafkalite reassign` against an API server in memory."""

import copy
import json

import jsonpatch
import pytest
from click.testing import CliRunner

from kafkalite_cli import connection, outage
from kafkalite_cli.main import main
from kafkalite_cli.reassign import session
from kafkalite_cli.topics import sizes
from kafkalite_runtime.kube import BROKERS, CLUSTERS, TOPICS, KubeGone, KubeInvalid, KubeUnavailable
from kafkalite_runtime.kube.client import KubeList
from tests.unit.cli.fakes import cluster_object, topic_object

RATES = {f"{side}.replication.throttled.rate" for side in ("leader", "follower")}


def broker_object(number, *, registered=True, rack=""):
    status = {"registration": {"host": "h", "port": 1, "rack": rack, "brokerEpoch": 5}} if registered else {}
    return {
        "metadata": {"name": f"kafkalite-broker-{number}", "namespace": "default"},
        "spec": {"brokerId": number, "clusterRef": {"name": "kafkalite"}},
        "status": status,
    }


class Api:
    """Patches are applied; `operate` plays the operator after each of them."""

    def __init__(self, *topics, brokers=5):
        self.topics = {each["metadata"]["name"]: each for each in topics}
        self.cluster = cluster_object()
        self.brokers = [broker_object(number) for number in range(brokers)] + [broker_object(9, registered=False)]
        self.operate = lambda topic: None
        self.before_patch = lambda topic: None
        self.version = 1
        self.order = []
        for topic in topics:
            topic["metadata"]["resourceVersion"] = "1"

    async def list(self, kind, namespace=None, **_more):
        items = {TOPICS: list(self.topics.values()), CLUSTERS: [self.cluster], BROKERS: self.brokers}[kind]
        return KubeList(copy.deepcopy(items), "1")

    async def get(self, _kind, _namespace, name, **_more):
        return copy.deepcopy(self.topics[name])

    async def json_patch(self, _kind, _namespace, name, operations, **_more):
        self.before_patch(self.topics[name])
        try:
            self.topics[name] = self._changed(jsonpatch.apply_patch(self.topics[name], operations))
        except jsonpatch.JsonPatchTestFailed as error:
            raise KubeInvalid(422, "Invalid", "PATCH /x: the server rejected our request") from error
        self.order.append("moves")
        self.operate(self.topics[name])
        return self.topics[name]

    async def merge_patch(self, kind, _namespace, name, body, *, strict):
        assert strict
        found = self.cluster if kind is CLUSTERS else self.topics[name]
        config = found["spec"].setdefault("config", {})
        for key, value in body["spec"]["config"].items():
            config.pop(key, None) if value is None else config.update({key: value})
        self.order.append("rates" if kind is CLUSTERS else "lists")
        return found

    def _changed(self, topic):
        self.version += 1
        topic["metadata"]["generation"] += 1
        topic["metadata"]["resourceVersion"] = str(self.version)
        return topic

    async def close(self):
        return


def entry(replicas, *, adding=(), removing=(), isr=None, epoch=5):
    members = replicas if isr is None else isr
    return {
        "leader": members[0], "leaderEpoch": 3, "partitionEpoch": epoch, "minIsr": 1, "replicas": list(replicas),
        "isr": list(members), "isrBrokerEpochs": [5 for _ in members], "adding": list(adding), "removing": list(removing),
    }  # fmt: skip


def topic(name, *entries, **spec):
    made = topic_object(name, partitions=len(entries), **spec)
    made["status"]["partitions"] = {str(number): each for number, each in enumerate(entries)}
    return made


def finish(found):
    """The operator and the brokers have moved everything."""
    for number, ids in found["spec"].get("replicaAssignment", {}).items():
        found["status"]["partitions"][number] = entry(ids, epoch=9)


@pytest.fixture
def run(monkeypatch, tmp_path):
    (tmp_path / "kubeconfig").write_text("{}")
    monkeypatch.setenv("KAFKALITE_HOME", str(tmp_path))
    monkeypatch.setattr(session, "POLL_S", 0.001)
    monkeypatch.setattr(sizes, "read_sizes", lambda _addresses, _topics: {})

    def run(api, *arguments, code=0, **more):
        monkeypatch.setattr(connection.Target, "client", lambda _self: api)
        result = CliRunner().invoke(main, ["reassign", *arguments], **more)
        assert result.exit_code == code, (result.output, result.exception)
        return result

    return run


def plan_of(tmp_path, wanted):
    path = tmp_path / "plan.json"
    partitions = [{"topic": t, "partition": n, "replicas": ids, "log_dirs": ["any"]} for (t, n), ids in wanted.items()]
    path.write_text(json.dumps({"version": 1, "partitions": partitions}))
    return str(path)


def test_a_plan_is_what_the_java_tool_reads_and_changes_nothing(run):
    api = Api(topic("orders", entry([0, 1]), entry([0, 1]), entry([0, 1])))
    result = run(api, "plan", "--topics", "orders", "--brokers", "0,1,2", "-o", "json")
    document = json.loads(result.stdout)
    assert document["version"] == 1
    assert {p["partition"]: sorted(p["replicas"]) for p in document["partitions"]}.keys() == {0, 1, 2}
    assert sum(2 in p["replicas"] for p in document["partitions"]) == 2
    assert all(p["log_dirs"] == ["any", "any"] for p in document["partitions"])
    text = run(api, "plan", "--topics", "orders", "--brokers", "0,1,2").stdout
    current = json.loads(text.split("current:\n")[1].splitlines()[0])
    assert [p["replicas"] for p in current["partitions"]] == [[0, 1]] * 3
    assert api.order == []
    assert "2 replicas need 2 brokers" in run(api, "plan", "--topics", "orders", "--brokers", "0", code=1).output
    assert "brokers 9 are not registered" in run(api, "plan", "--topics", "orders", "--brokers", "0,9", code=1).output


def test_a_plan_for_no_topic_is_wrong_usage(run):
    assert "no topic is named" in run(Api(), "plan", "--topics", " , ", code=2).output


def test_executing_writes_the_wish_and_tells_what_was(run, tmp_path):
    api = Api(topic("orders", entry([0, 1]), entry([1, 2])))
    result = run(api, "execute", plan_of(tmp_path, {("orders", 1): [3, 4]}), "-o", "json")
    assert json.loads(result.stdout)["before"]["partitions"] == [
        {"topic": "orders", "partition": 1, "replicas": [1, 2], "log_dirs": ["any", "any"]}
    ]
    assert api.topics["orders"]["spec"]["replicaAssignment"] == {"1": [3, 4]}
    waiting = json.loads(run(api, "status", "-o", "json").stdout)
    assert [(row["partition"], row["state"], row["adding"]) for row in waiting] == [(1, "waiting", [3, 4])]


def test_nothing_is_changed_when_something_is_wrong(run, tmp_path):
    api = Api(topic("orders", entry([0, 1])))
    for wanted, words in (
        ({("orders", 0): [0, 9]}, "brokers [9] are not registered"),
        ({("orders", 0): [1], ("orders", 7): [1]}, "no partition orders-7"),
        ({("gone", 0): [1]}, "'gone' does not exist"),
    ):
        assert words in run(api, "execute", plan_of(tmp_path, wanted), code=1).output
    assert api.order == []


@pytest.mark.parametrize(
    "error", [KubeInvalid(422, "Invalid", "PATCH /x: no"), KubeUnavailable("gone", ambiguous=True)]
)
def test_what_was_before_is_told_when_only_some_moves_have_begun(run, tmp_path, error):
    api = Api(topic("a", entry([0, 1])), topic("b", entry([1, 2])))

    def fail(found):
        if found["metadata"]["name"] == "b":
            raise error

    api.before_patch = fail
    result = run(api, "execute", plan_of(tmp_path, {("a", 0): [3, 4], ("b", 0): [3, 4]}), "-o", "json", code=1)
    assert api.topics["a"]["spec"]["replicaAssignment"] == {"0": [3, 4]}
    (line,) = [each for each in result.stderr.splitlines() if each.startswith("{")]
    assert [entry["replicas"] for entry in json.loads(line)["partitions"]] == [[0, 1], [1, 2]]
    assert "what has begun goes on" in result.stderr


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "not JSON"),
        ('{"version": 2, "partitions": []}', "version 1"),
        ('{"partitions": []}', "no partition"),
        ('{"partitions": [{"topic": "a", "partition": 0}]}', "needs topic"),
        ('{"partitions": [{"topic": "a", "partition": 0, "replicas": [1, 1]}]}', "twice"),
        ('{"partitions": [{"topic": "a", "partition": 0, "replicas": []}]}', "not a list of broker ids"),
        ('{"partitions": [{"topic": "a", "partition": 0, "replicas": [true]}]}', "not a list of broker ids"),
        (
            (
                '{"partitions": [{"topic": "a", "partition": 0, "replicas": [1]},'
                ' {"topic": "a", "partition": 0, "replicas": [2]}]}'
            ),
            "named twice",
        ),
    ],
)
def test_files_that_are_wrong_say_so(run, text, words):
    assert words in run(Api(), "execute", "-", input=text, code=1).output


def test_waiting_shows_what_the_operator_says_and_removes_the_throttle(run, tmp_path):
    api = Api(topic("orders", entry([0, 1])))
    plan = plan_of(tmp_path, {("orders", 0): [3, 1]})
    api.operate = finish
    result = run(api, "execute", plan, "--throttle", "1000", "--wait")
    assert api.order[:3] == ["rates", "lists", "moves"], "nothing is copied without the throttle"
    assert "1 partition moved" in result.stderr
    assert not RATES & set(api.cluster["spec"]["config"])
    assert not api.topics["orders"]["spec"]["config"]


@pytest.mark.parametrize("error", [KubeUnavailable("refused", ambiguous=False), KubeGone(410, "Expired", "too old")])
def test_an_outage_does_not_end_the_waiting(run, tmp_path, monkeypatch, error):
    monkeypatch.setattr(outage, "POLL_S", 0.001)
    api = Api(topic("orders", entry([0, 1])))
    plan = plan_of(tmp_path, {("orders", 0): [3, 1]})
    really, left = api.list, [error, error]

    async def sometimes(*arguments, **more):
        if "moves" in api.order and left:
            raise left.pop()
        return await really(*arguments, **more)

    api.operate = finish
    api.list = sometimes
    assert "1 partition moved" in run(api, "execute", plan, "--throttle", "1000", "--wait").stderr
    left += [error, error]
    run(api, "status", "--wait")
    assert not left


def test_an_outage_that_lasts_says_that_the_moves_go_on(run, tmp_path, monkeypatch):
    monkeypatch.setattr(outage, "OUTAGE_S", 0.0)
    api = Api(topic("orders", entry([0, 1])))
    really = api.list

    async def until_it_moves(*arguments, **more):
        if "moves" in api.order:
            raise KubeUnavailable("refused", ambiguous=False)
        return await really(*arguments, **more)

    api.list = until_it_moves
    result = run(api, "execute", plan_of(tmp_path, {("orders", 0): [3, 1]}), "--wait", code=1)
    assert "the moves go on: `kafkalite reassign status` shows how far they are" in result.stderr


def test_the_throttle_names_who_sends_and_who_receives(run, tmp_path):
    api = Api(topic("orders", entry([0, 1])))
    plan = plan_of(tmp_path, {("orders", 0): [3, 1]})
    run(api, "execute", plan, "--throttle", "1000")
    assert {api.cluster["spec"]["config"][key] for key in RATES} == {"1000"}
    assert api.topics["orders"]["spec"]["config"] == {
        "leader.replication.throttled.replicas": "0:0,0:1",
        "follower.replication.throttled.replicas": "0:3",
    }
    assert "in progress" in run(api, "verify", plan, code=1).output
    assert api.topics["orders"]["spec"]["config"], "not before the end"
    finish(api.topics["orders"])
    run(api, "verify", plan, "--keep-throttle")
    assert api.topics["orders"]["spec"]["config"]
    assert "completed" in run(api, "verify", plan).output
    assert not api.topics["orders"]["spec"]["config"]


def test_a_plan_that_cannot_be_carried_out_as_a_whole_leaves_no_throttle_behind(run, tmp_path):
    api = Api(topic("orders", entry([0, 1])), topic("short-lived", entry([0, 1])))
    plan = plan_of(tmp_path, {("orders", 0): [3, 1], ("short-lived", 0): [3, 1]})
    run(api, "execute", plan, "--throttle", "1000")
    del api.topics["short-lived"]
    run(api, "verify", plan, code=1)
    assert api.topics["orders"]["spec"]["config"], "it moves"
    finish(api.topics["orders"])
    assert "it does not exist" in run(api, "verify", plan, code=1).output
    assert not api.topics["orders"]["spec"]["config"]
    assert not RATES & set(api.cluster["spec"]["config"])


def test_verifying_tells_what_did_not_move(run, tmp_path):
    moving = entry([3, 1, 0], adding=[3], removing=[0], isr=[0, 1])
    api = Api(topic("orders", entry([0, 1]), moving, entry([3, 1])))
    wanted = {("orders", 0): [3, 1], ("orders", 1): [4, 1], ("orders", 2): [3, 1], ("gone", 0): [1]}
    rows = json.loads(run(api, "verify", plan_of(tmp_path, wanted), "-o", "json", code=1).stdout)
    assert {(row["topic"], row["partition"]): (row["state"], row["why"]) for row in rows} == {
        ("orders", 0): ("failed", "nothing moves, and its replicas are [0, 1]"),
        ("orders", 1): ("in progress", "it moves to [3, 1] instead"),
        ("orders", 2): ("completed", ""),
        ("gone", 0): ("failed", "it does not exist"),
    }


def test_topics_of_one_name_in_two_clusters_are_told_apart(run, tmp_path):
    moving = topic("orders", entry([3, 1, 0], adding=[3], removing=[0], isr=[0, 1]))
    other = topic("other", entry([3, 1]), topicName="orders", clusterRef={"name": "other"})
    other["spec"]["config"] = {"leader.replication.throttled.replicas": "0:3"}
    api = Api(moving, other)
    rows = json.loads(run(api, "status", "-o", "json").stdout)
    assert [(row["topic"], row["partition"], row["to"]) for row in rows] == [("orders", 0, [3, 1])]
    plan = plan_of(tmp_path, {("orders", 0): [3, 1]})
    assert "choose with --namespace or --cluster" in run(api, "verify", plan, code=1).output
    assert api.topics["other"]["spec"]["config"], "the throttle of a cluster that was not meant"
    assert "in progress" in run(api, "verify", plan, "--cluster", "kafkalite", code=1).output


def test_status_shows_how_much_is_copied(run, monkeypatch):
    moving = entry([3, 4, 0], adding=[3, 4], removing=[0], isr=[0, 4])
    api = Api(topic("orders", moving, entry([0, 1])))
    known = {("orders", 0, 0): 1000, ("orders", 0, 3): 250, ("orders", 0, 4): 1000}
    monkeypatch.setattr(sizes, "read_sizes", lambda _addresses, topics: known if topics else {})
    [row] = json.loads(run(api, "status", "-o", "json").stdout)
    assert (row["from"], row["to"], row["notInSync"], row["copiedPercent"]) == ([0], [3, 4], [3], 25)
    assert "25 %" in run(api, "status", "orders").output
    assert run(Api(topic("orders", entry([0]))), "status").output == "nothing moves\n"


def test_cancelling_goes_back_and_ends_the_throttle(run, tmp_path):
    moving = entry([3, 1, 0], adding=[3], removing=[0], isr=[0, 1])
    lists = {"leader.replication.throttled.replicas": "0:0"}
    api = Api(topic("orders", moving, entry([0, 1]), replicaAssignment={"0": [3, 1]}, config=lists))
    api.operate = finish
    result = run(api, "cancel", "--all", "-o", "json")
    assert [p["replicas"] for p in json.loads(result.stdout)["partitions"]] == [[1, 0]]
    assert api.topics["orders"]["spec"]["replicaAssignment"] == {"0": [1, 0]}
    assert not api.topics["orders"]["spec"]["config"]
    assert run(api, "cancel", "--topics", "orders").output == "nothing moves\n"
    assert "say which" in run(api, "cancel", code=2).output
    assert "say which" in run(api, "cancel", "x.json", "--all", code=2).output


LISTS = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")


def test_moves_of_one_topic_keep_the_throttle_of_one_another(run, tmp_path):
    """What was begun earlier goes on with its throttle, when a move begins beside it as well as when that has ended."""
    api = Api(topic("orders", entry([0, 1]), entry([1, 2]), entry([0])))
    first, second = plan_of(tmp_path, {("orders", 0): [3, 1]}), {("orders", 1): [4, 2]}
    run(api, "execute", first, "--throttle", "1000")
    second = plan_of(tmp_path, second)
    run(api, "execute", second, "--throttle", "2000")
    config = api.topics["orders"]["spec"]["config"]
    assert [config[key] for key in LISTS] == ["0:0,0:1,1:1,1:2", "0:3,1:4"]
    api.topics["orders"]["status"]["partitions"]["1"] = entry([4, 2])
    assert "completed" in run(api, "verify", second).output
    config = api.topics["orders"]["spec"]["config"]
    assert [config[key] for key in LISTS] == ["0:0,0:1", "0:3"]
    assert {api.cluster["spec"]["config"][key] for key in RATES} == {"2000"}, "they hold for the move that goes on"
    plan = plan_of(tmp_path, {("orders", 2): [4]})
    run(api, "execute", plan, "--throttle", "1000")
    run(api, "cancel", plan)
    config = api.topics["orders"]["spec"]["config"]
    assert [config[key] for key in LISTS] == ["0:0,0:1", "0:3"], "what was cancelled is throttled no more"
    run(api, "cancel", "--all")
    assert not api.topics["orders"]["spec"]["config"]
    assert not RATES & set(api.cluster["spec"]["config"]), "though no operator has taken up the cancellation yet"


def test_a_user_s_throttle_of_every_replica_stays(run, tmp_path):
    api = Api(topic("orders", entry([0, 1]), config=dict.fromkeys(LISTS, "*")))
    api.operate = finish
    run(api, "execute", plan_of(tmp_path, {("orders", 0): [3, 1]}), "--throttle", "1000", "--wait")
    assert api.topics["orders"]["spec"]["config"] == dict.fromkeys(LISTS, "*")
    assert not RATES & set(api.cluster["spec"]["config"])


def test_a_move_that_ends_meanwhile_is_not_moved_back(run):
    api = Api(topic("orders", entry([3, 1, 0], adding=[3], removing=[0], isr=[0, 1])))

    def completed(found):
        found["status"]["partitions"]["0"] = entry([3, 1], epoch=9)
        found["metadata"]["resourceVersion"] = "77"

    api.before_patch = completed
    assert run(api, "cancel", "--all").output == "nothing moves\n"
    assert "replicaAssignment" not in api.topics["orders"]["spec"]
