"""`kafkalite restart` and `kafkalite decommission`: the steps, and every refusal."""

import asyncio

import click
import pytest
from click.testing import CliRunner

from kafkalite_cli import outage
from kafkalite_cli.brokers import decommission, operator_lease, restart
from kafkalite_cli.local_mode.progress import Steps
from kafkalite_cli.main import main
from kafkalite_cli.reassign import session
from kafkalite_runtime.kube import BROKERS, CLUSTERS, LEASES, PODS, TOPICS, KubeClient, KubeForbidden
from tests.unit.cli.world import OPERATOR, entry, obey


@pytest.fixture
def run(world, monkeypatch):
    """Runs a command; at each sentence about what it waits for the next of `steps` happens."""
    for module in (decommission, restart, session):
        monkeypatch.setattr(module, "POLL_S", 0.001)
    monkeypatch.setattr(operator_lease, "SECOND_LOOK_S", 0.01)

    def run(command, *arguments, steps=(), code=0, yes=True):
        todo, said = list(steps), []

        def waiting(_self, reason):
            if said[-1:] != [reason]:
                said.append(reason)
                if todo:
                    todo.pop(0)()

        monkeypatch.setattr(Steps, "waiting", waiting)
        flags = ("--yes",) if yes else ()
        if "--timeout" not in arguments:
            flags = ("--timeout", "20", *flags)  # a test that goes wrong ends by itself
        result = CliRunner().invoke(main, [command, *world.arguments, *arguments, *flags], input="n\n")
        assert result.exit_code == code, (result.output, result.exception, said)
        result.said = said
        return result

    return run


def comes_back(world, number, *, topic="orders"):
    """What kubelet, broker and operator do after the pod was deleted, one thing at a time."""
    name, epoch = world.broker_name(number), 20 + number

    def in_sync():
        isr = [each for each in (0, 1, 2) if each != number]
        members = [(i, world.epochs.get(i, 10 + i)) for i in isr] + [(number, epoch)]
        before = world.get(TOPICS, topic)["status"]["partitions"]["0"]
        after = entry([0, 1, 2], isr=members, epoch=before["partitionEpoch"] + 1, minIsr=2)
        world.patch(TOPICS, topic, {"status": {"partitions": {"0": after}}}, status=True)
        world.epochs[number] = epoch

    return [
        lambda: None,
        lambda: world.delete(PODS, name),
        lambda: world.pod(number, ready=False, phase="Pending"),
        lambda: world.recovers(number, logs=3),
        lambda: world.tell(number, incarnation="new", brokerEpoch=epoch, state="CatchingUp"),
        lambda: world.tell(number, state="Running"),
        in_sync,
        lambda: world.pod(number),
    ]


@pytest.fixture
def orders(world):
    world.epochs = {}
    world.topic("orders", entry([0, 1, 2], minIsr=2), config={"min.insync.replicas": "2"})
    return world


# --- restart ---------------------------------------------------------------------------------------------------------


def test_a_broker_is_restarted_and_waited_for(orders, run):
    before = orders.get(PODS, "kafkalite-broker-1")["metadata"]["uid"]
    result = run("restart", "1", steps=comes_back(orders, 1))
    assert result.said == [
        "pod kafkalite-broker-1 is deleted",
        "pod kafkalite-broker-1 stops",
        "pod kafkalite-broker-1 is made again",
        "pod kafkalite-broker-1 is Pending, the new process has not registered yet",
        "broker 1 recovers its logs, 3 are left",
        "broker 1 is CatchingUp",
        "in sync in 0 of 1 partitions",
        "pod kafkalite-broker-1 is not ready",
    ]
    assert "broker 1 is back in all ISRs" in result.stderr
    assert result.stdout == "restarted 1\n"
    assert orders.get(PODS, "kafkalite-broker-1")["metadata"]["uid"] != before


def test_all_brokers_go_one_after_the_other(orders, run):
    steps = [step for number in range(3) for step in comes_back(orders, number)]
    result = run("restart", "--all", steps=steps)
    assert [said for said in result.said if said.endswith("is deleted")] == [
        f"pod kafkalite-broker-{number} is deleted" for number in range(3)
    ]
    assert result.stdout == "restarted 0, 1, 2\n"


@pytest.mark.parametrize("yes", [True, False])
def test_a_cluster_without_brokers_has_none_to_restart(world, run, yes):
    for number in range(3):
        world.delete(BROKERS, world.broker_name(number))
    result = run("restart", "--all", code=1, yes=yes)
    said = "cluster kafkalite has no brokers, nothing was restarted; "
    assert (result.stdout, result.stderr) == ("", f"Error: {said}`{world.kafkalite('doctor')}` says why\n")


def test_the_next_one_waits_until_it_is_not_needed(orders, run):
    def another_one_falls_behind():
        orders.pod(1)
        before = orders.get(TOPICS, "orders")["status"]["partitions"]["0"]
        members = {"isr": [1, 2], "isrBrokerEpochs": [21, 12]}
        after = {**before, **members, "leader": 1, "leaderEpoch": 90, "partitionEpoch": 90}
        orders.patch(TOPICS, "orders", {"status": {"partitions": {"0": after}}}, status=True)

    steps = [*comes_back(orders, 1)[:-1], another_one_falls_behind]
    result = run("restart", "1", "2", "--timeout", "1", steps=steps, code=1)
    needed = "it is needed: orders-0 would keep 1 of min.insync.replicas 2 in sync: broker 0 is catching up"
    assert needed in result.said
    assert result.stderr.endswith(
        "Error: broker 2 was not restarted, it is needed: orders-0 would keep 1 of min.insync.replicas 2 in sync: "
        "broker 0 is catching up; not restarted: 2\n"
    )


def test_what_is_needed_now_is_not_restarted(orders, run):
    orders.fence(0)
    result = run("restart", "1", code=1)
    assert (
        "broker 1 is needed now: orders-0 would keep 1 of min.insync.replicas 2 in sync: broker 0 is fenced. "
        f"`{orders.kafkalite('doctor')}` says more; --force does it anyway"
    ) in result.stderr
    assert "deletionTimestamp" not in orders.get(PODS, "kafkalite-broker-1")["metadata"]


def test_what_can_never_be_safe_is_told_at_once(world, run):
    world.topic("single", entry([1]))
    world.topic("tight", entry([0, 1], minIsr=2))
    result = run("restart", "--all", code=1)
    assert "single-0 would keep 0 of min.insync.replicas 1 in sync, and never more with 1 replica" in result.stderr
    assert "tight-0 would keep 1 of min.insync.replicas 2 in sync, and never more with 2 replicas" in result.stderr
    assert "Add a replica, or lower min.insync.replicas" in result.stderr


def test_no_restart_while_nobody_could_elect(orders, run):
    orders.lease(OPERATOR, "")
    result = run("restart", "1", code=1)
    assert "no operator holds the Lease: nobody would elect other leaders while a broker is away" in result.stderr
    orders.lease(OPERATOR, orders.operator, age_s=600)
    assert f"the operator {orders.operator} has not renewed its Lease since" in run("restart", "1", code=1).stderr
    orders.delete(LEASES, OPERATOR)
    assert "no operator that serves this cluster has a Lease" in run("restart", "1", code=1).stderr


def test_a_lease_that_may_not_be_read_by_itself_is_judged_all_the_same(orders, run, monkeypatch):
    really = KubeClient.get

    async def get(self, kind, *arguments, **more):
        if kind is LEASES:
            raise KubeForbidden(403, "Forbidden", "GET /x: leases is forbidden")
        return await really(self, kind, *arguments, **more)

    monkeypatch.setattr(KubeClient, "get", get)
    orders.lease(OPERATOR, orders.operator, age_s=600)
    assert "has not renewed its Lease since" in run("restart", "1", code=1).stderr


def test_force_goes_on_all_the_same(orders, run):
    orders.fence(0)
    orders.lease(OPERATOR, "")
    assert run("restart", "1", "--force", steps=comes_back(orders, 1)).stdout == "restarted 1\n"


def test_a_broker_that_does_not_return(orders, run):
    result = run("restart", "1", "2", "--timeout", "0.5", steps=comes_back(orders, 1)[:3], code=1)
    assert (
        "broker 1 is not back within 0.5 s: pod kafkalite-broker-1 is Pending, the new process has not registered yet; "
        f"`{orders.kafkalite('doctor')}` says more"
    ) in result.stderr


def test_a_broker_that_is_scaled_away_is_left_out(orders, run):
    orders.broker(3)
    orders.fence(3)
    assert "broker 3 is scaled away: spec.replicas of kafkalite is 3" in run("restart", "3", code=1).stderr
    question = run("restart", "--all", code=1, yes=False).stderr
    assert "Restart brokers 0, 1, 2 of cluster kafkalite?" in question


def test_wrong_usage_of_restart(orders, run):
    assert "say which" in run("restart", code=2).stderr
    assert "say which" in run("restart", "1", "--all", code=2).stderr
    assert "named twice" in run("restart", "1", "1", code=2).stderr
    assert "there is no broker 7 in cluster kafkalite; there are: 0, 1, 2" in run("restart", "7", code=1).stderr
    assert "Restart broker 1 of cluster kafkalite?" in run("restart", "1", code=1, yes=False).stderr


def test_an_outage_at_the_first_look_does_not_spare_the_pod(orders, run, away):
    away(2, "GET", "/pods/")
    before = orders.get(PODS, "kafkalite-broker-1")["metadata"]["uid"]
    result = run("restart", "1", steps=[lambda: None, *comes_back(orders, 1)])
    assert result.said[:3] == [
        "the API server does not answer (refused)",
        "pod kafkalite-broker-1 is deleted",
        "pod kafkalite-broker-1 stops",
    ]
    assert orders.get(PODS, "kafkalite-broker-1")["metadata"]["uid"] != before


def test_a_pod_whose_deletion_was_not_heard_is_deleted_again(orders, run, away):
    away(2, "DELETE", "/pods/")
    result = run("restart", "1", steps=[lambda: None, *comes_back(orders, 1)])
    assert result.said[:2] == ["the API server does not answer (refused)", "pod kafkalite-broker-1 is deleted"]


def test_a_deletion_that_did_not_arrive_is_repeated(orders, run, monkeypatch):
    really, asked = KubeClient.delete, []

    async def delete(self, kind, namespace, name, **more):
        if kind is PODS and more.get("uid"):
            asked.append(more["uid"])
            if len(asked) < 3:
                return
        await really(self, kind, namespace, name, **more)

    uid = orders.get(PODS, "kafkalite-broker-1")["metadata"]["uid"]
    monkeypatch.setattr(KubeClient, "delete", delete)
    assert run("restart", "1", steps=comes_back(orders, 1)).stdout == "restarted 1\n"
    assert asked == [uid] * 3


def test_an_outage_that_lasts_names_those_that_are_left(orders, run, away, monkeypatch):
    monkeypatch.setattr(outage, "OUTAGE_S", 0.01)
    steps = [*comes_back(orders, 0), lambda: away(10**9, "GET", "/pods/")]
    result = run("restart", "0", "1", "2", steps=steps, code=1)
    assert result.stderr.endswith("Error: the API server does not answer (refused); not restarted: 1, 2\n")


@pytest.mark.parametrize("command", [("restart", "1"), ("restart", "--all"), ("decommission", "2")])
def test_ctrl_c_at_the_question_is_heard(orders, run, command, monkeypatch):
    """An event loop would keep the signal for itself until somebody has answered."""
    orders.topic("pairs", entry([0, 2]))
    orders.delete(TOPICS, "orders")

    def question(_text, **_more):
        with pytest.raises(RuntimeError, match="no running event loop"):
            asyncio.get_running_loop()
        raise KeyboardInterrupt

    monkeypatch.setattr(click, "confirm", question)
    run(*command, yes=False, code=130)


# --- decommission ----------------------------------------------------------------------------------------------------


def test_a_broker_is_cordoned_and_emptied(world, run, monkeypatch):
    obey(monkeypatch)
    world.topic("orders", entry([0, 2]), entry([2, 1]), entry([0, 1]))
    result = run("decommission", "2", "--throttle", "1000")
    assert "broker 2 is cordoned: it takes no new replicas" in result.stderr
    assert "broker 2 holds no replica" in result.stderr
    assert result.stdout == (
        f"broker 2 is empty; to remove it: {world.kubectl('scale klc kafkalite --replicas=2')} (its volume stays)\n"
    )
    assert world.get(BROKERS, "kafkalite-broker-2")["spec"]["cordoned"] is True
    topic = world.get(TOPICS, "orders")
    assert [each["replicas"] for each in topic["status"]["partitions"].values()] == [[0, 1], [0, 1], [0, 1]]
    assert not any("throttled" in key for key in topic["spec"].get("config") or {})
    again = run("decommission", "2")
    assert again.stdout == result.stdout


def test_only_the_highest_ordinal_can_go(world, run):
    assert "gives up its highest ordinals only, so brokers 1 to 2 would have to be" in run("decommission", "0").stdout
    assert "so broker 2 would have to be decommissioned as well" in run("decommission", "1").stdout
    world.patch(CLUSTERS, "kafkalite", {"spec": {"storage": {"deleteClaim": True}}})
    assert "--replicas=2 (its volume is deleted with it)" in run("decommission", "2").stdout


def test_the_operator_empties_and_removes_a_broker_beyond_the_number_that_is_wanted(world, run):
    world.topic("orders", entry([0, 2]))
    world.patch(CLUSTERS, "kafkalite", {"spec": {"replicas": 2}})
    assert "not removed in time; the operator goes on" in run("decommission", "2", "--timeout", "0.1", code=1).stderr
    said = {"type": "Progressing", "status": "False", "reason": "NotEnoughBrokers", "message": "orders (3)"}
    world.patch(CLUSTERS, "kafkalite", {"status": {"conditions": [said]}}, status=True)
    assert "orders (3)" in run("decommission", "2", code=1).stderr
    assert "--replicas=3" in run("decommission", "2", "--cancel", code=1).stderr
    said = {"type": "Progressing", "status": "True", "reason": "ScalingDown", "message": "1 replica left on broker 2"}
    world.patch(CLUSTERS, "kafkalite", {"status": {"conditions": [said]}}, status=True)
    result = run("decommission", "2", steps=[lambda: world.delete(BROKERS, "kafkalite-broker-2")])
    assert result.stdout == "broker 2 is removed: spec.replicas of kafkalite is 2\n"
    spec = world.get(TOPICS, "orders")["spec"]
    assert not spec.get("replicaAssignment"), "the wishes are left alone"


def test_a_dry_run_changes_nothing(world, run):
    world.topic("orders", entry([0, 2]), entry([2, 1]))
    result = run("decommission", "2", "--dry-run")
    assert ["2", "runs", "2", "->", "0"] in [line.split() for line in result.stdout.splitlines()]
    assert "dry run, nothing was changed" in result.stderr
    assert not world.get(BROKERS, "kafkalite-broker-2")["spec"].get("cordoned")


def test_what_cannot_be_emptied_is_not_even_cordoned(world, run):
    world.topic("orders", entry([0, 1, 2]))
    result = run("decommission", "2", code=1)
    assert "there is no broker left that could take the replicas of orders-0" in result.stderr
    assert world.kafkalite("topics alter orders --replicas 2") in result.stderr
    assert not world.get(BROKERS, "kafkalite-broker-2")["spec"].get("cordoned")
    assert "there is no broker 9 in cluster kafkalite; there are: 0, 1, 2" in run("decommission", "9", code=1).stderr


def test_the_last_copy_is_not_given_up(world, run):
    world.fence(2)
    world.topic("orders", entry([2]), entry([2, 0], isr=[0]))
    result = run("decommission", "2", code=1)
    assert "broker 2 is fenced, and nobody else is in sync in orders-0: start it first" in result.stderr


def test_a_decommission_is_cancelled(world, run):
    moving = entry([0, 1, 2], isr=[0, 2], adding=[1], removing=[2])
    world.topic("orders", moving, entry([0, 1]), replicaAssignment={"0": [0, 1]})
    world.patch(BROKERS, "kafkalite-broker-2", {"spec": {"cordoned": True}})
    result = run("decommission", "2", "--cancel")
    assert "broker 2 takes replicas again; 1 moves are taken back" in result.stderr
    assert world.get(BROKERS, "kafkalite-broker-2")["spec"]["cordoned"] is False
    assert world.get(TOPICS, "orders")["spec"]["replicaAssignment"] == {"0": [0, 2]}
    world.delete(TOPICS, "orders")
    assert "what has moved stays where it is" in run("decommission", "2", "--cancel").stderr
    assert "--cancel takes neither" in run("decommission", "2", "--cancel", "--dry-run", code=2).stderr
    assert "there is no broker 9" in run("decommission", "9", "--cancel", code=1).stderr


def test_a_right_that_is_missing_is_named(world, run, monkeypatch):
    async def refused(*_args, **_more):
        raise KubeForbidden(403, "Forbidden", 'PATCH /x: kafkalitebrokers "b" is forbidden: User "me" cannot patch')

    monkeypatch.setattr(KubeClient, "merge_patch", refused)
    result = run("decommission", "2", code=1)
    assert "what is needed is the verb patch on kafkalitebrokers.kafkalite.io" in result.stderr


def test_nobody_is_emptied_unasked(world, run):
    world.topic("orders", entry([0, 2]))
    assert "Move 1 replicas away from broker 2?" in run("decommission", "2", code=1, yes=False).stderr


@pytest.mark.parametrize("after", range(2, 8))
def test_an_outage_does_not_end_a_decommission(world, run, away, monkeypatch, after):
    obey(monkeypatch)
    world.topic("orders", entry([0, 2]))
    away(2, "GET", "/kafkalitetopics", after=after)
    assert "broker 2 is empty" in run("decommission", "2").stdout


def test_an_outage_does_not_end_the_wait_for_the_operator(world, run, away):
    world.patch(CLUSTERS, "kafkalite", {"spec": {"replicas": 2}})
    steps = [lambda: away(2, "GET", "/kafkalitebrokers"), lambda: world.delete(BROKERS, "kafkalite-broker-2")]
    result = run("decommission", "2", steps=steps)
    assert result.said[-1] == "the API server does not answer (refused)"
    assert "is removed" in result.stdout


def test_an_outage_that_lasts_says_that_the_moves_go_on(world, run, away, monkeypatch):
    world.topic("orders", entry([0, 2]))
    monkeypatch.setattr(outage, "OUTAGE_S", 0.01)
    result = run("decommission", "2", steps=[lambda: away(10**9, "GET", "/kafkalitetopics")], code=1)
    again = world.kafkalite("decommission 2")
    words = f"the API server does not answer (refused); what moves goes on moving: `{again}` waits for it"
    assert words in result.stderr
