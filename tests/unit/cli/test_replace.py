"""`kafkalite replace`: what it says without --yes, what it waits for with it, and every refusal."""

import pytest
from click.testing import CliRunner

from kafkalite_cli import outage
from kafkalite_cli.brokers import replace
from kafkalite_cli.local_mode.progress import Steps
from kafkalite_cli.main import main
from kafkalite_core.resources.naming import ANNOTATION_REPLACE
from kafkalite_runtime.kube import BROKERS, CLUSTERS, TOPICS, KubeClient, KubeForbidden
from tests.unit.cli.world import entry


@pytest.fixture
def run(world, monkeypatch):
    """Runs the command; at each sentence about what it waits for the next of `steps` happens."""
    monkeypatch.setattr(replace, "POLL_S", 0.001)

    def run(*arguments, steps=(), code=0):
        todo, said = list(steps), []

        def waiting(_self, reason):
            if said[-1:] != [reason]:
                said.append(reason)
                if todo:
                    todo.pop(0)()

        monkeypatch.setattr(Steps, "waiting", waiting)
        limit = () if "--timeout" in arguments else ("--timeout", "20")
        result = CliRunner().invoke(main, ["replace", *world.arguments, *arguments, *limit])
        assert result.exit_code == code, (result.output, result.exception, said)
        result.said = said
        return result

    return run


@pytest.fixture
def orders(world):
    """A healthy cluster of three with one partition on all of them."""
    world.topic("orders", entry([0, 1, 2], minIsr=2), config={"min.insync.replicas": "2"})
    return world


def declared(world):
    return (world.get(BROKERS, "kafkalite-broker-1")["metadata"].get("annotations") or {}).get(ANNOTATION_REPLACE)


def status(world, **replacing):
    world.patch(CLUSTERS, "kafkalite", {"status": {"replacing": {"broker": 1, **replacing}}}, status=True)


@pytest.mark.parametrize("number", [0, 1], ids=["that it has", "that it lost"])
def test_data_of_a_partition_that_a_living_topic_lost_are_told(orders, run, number):
    topic_id = orders.get(TOPICS, "orders")["status"]["topicId"]
    stray = {"topic": "orders", "topicId": topic_id, "partition": number, "leaderEpoch": 1, "partitionEpoch": 1}
    orders.tell(1, strays=[{**stray, "endOffset": 5}])
    assert ("data of topics that were lost are on it, and go with it: orders" in run("1").stdout) == (number == 1)


def test_without_yes_it_says_what_it_would_do(orders, run):
    result = run("1")
    assert "claim data-kafkalite-broker-1 is deleted with its data, and its pod" in result.stdout
    assert "1 replicas are copied" in result.stdout
    assert "would wait" not in result.stdout
    assert "nothing was changed" in result.stderr
    assert declared(orders) is None


def test_what_speaks_against_it_is_named(orders, run):
    orders.topic("alone", entry([1], isr=[(1, 11)], leader=1), replicas=1)
    result = run("1")
    assert "the operator would wait, and delete nothing, as long as\n" in result.stdout
    assert "  alone-0 would lose its last copy" in result.stdout


def test_with_yes_it_asks_the_operator_and_waits(orders, run):
    def nothing(*_):
        assert declared(orders) == "true"

    def end():
        orders.tell(1, **orders.registration(1, directoryId="new"))
        orders.patch(BROKERS, "kafkalite-broker-1", {"metadata": {"annotations": {ANNOTATION_REPLACE: None}}})
        orders.patch(CLUSTERS, "kafkalite", {"status": {"replacing": None}}, status=True)

    blocked = [{"pod": "p", "partition": "orders-0", "reason": "would keep 1"}]
    steps = [
        lambda: (nothing(), status(orders, phase="Waiting", blockedBy=blocked)),
        lambda: status(orders, phase="Removing", blockedBy=[]),
        lambda: status(orders, phase="Rebuilding", replicas=3, inSync=1),
        end,
    ]
    result = run("1", "--yes", steps=steps)
    assert result.said == [
        "the operator has not taken it up yet",
        "waiting, nothing is deleted meanwhile: orders-0 would keep 1",
        "its pod and its volume are made anew",
        "1 of 3 replicas are in sync again",
    ]
    assert result.stdout == "broker 1 has a new volume, and its replicas are in sync\n"


def test_what_somebody_else_takes_back_is_not_told_as_done(orders, run):
    def take_back():
        orders.patch(BROKERS, "kafkalite-broker-1", {"metadata": {"annotations": {ANNOTATION_REPLACE: None}}})
        orders.patch(CLUSTERS, "kafkalite", {"status": {"replacing": None}}, status=True)

    result = run("1", "--yes", steps=[lambda: status(orders, phase="Waiting"), take_back], code=1)
    assert "broker 1 was not replaced: it was taken back, and the volume is the old one" in result.stderr
    assert "has a new volume" not in result.stdout


def test_begun_again_it_waits_for_the_new_volume_and_does_not_give_that_up(orders, run):
    status(orders, phase="Rebuilding", replicas=3, inSync=1)
    result = run("1")
    assert "broker 1 has a new volume: 1 of 3 replicas are in sync again\n" in result.stdout
    assert "annotate klb kafkalite-broker-1 kafkalite.io/replace=true" in result.stdout
    assert "is deleted" not in result.stdout
    assert "with --yes it is waited for" in result.stderr

    def end():
        assert declared(orders) is None
        orders.patch(CLUSTERS, "kafkalite", {"status": {"replacing": None}}, status=True)

    result = run("1", "--yes", steps=[end])
    assert result.stdout == "broker 1 has a new volume, and its replicas are in sync\n"
    assert declared(orders) is None


def test_it_is_taken_back(orders, run):
    orders.patch(BROKERS, "kafkalite-broker-1", {"metadata": {"annotations": {ANNOTATION_REPLACE: "true"}}})
    assert "what has begun goes on" in run("1", "--cancel").stderr
    assert declared(orders) is None


def test_what_takes_too_long(orders, run):
    result = run("1", "--yes", "--timeout", "0.1", code=1)
    assert (
        "broker 1 is not replaced in time, and the operator goes on: the operator has not taken it up" in result.stderr
    )
    assert declared(orders) == "true"


def test_refusals(orders, run, monkeypatch):
    assert "there is no broker 9 in cluster kafkalite; there are: 0, 1, 2" in run("9", code=1).stderr
    assert "there is no broker 9" in run("9", "--cancel", code=1).stderr
    assert "--cancel or --yes" in run("1", "--yes", "--cancel", code=2).stderr

    async def forbidden(*_, **__):
        raise KubeForbidden(403, "Forbidden", "no")

    monkeypatch.setattr(KubeClient, "merge_patch", forbidden)
    assert "the verb patch on kafkalitebrokers" in run("1", "--yes", code=1).stderr
    monkeypatch.undo()
    orders.patch(CLUSTERS, "kafkalite", {"spec": {"replicas": 1}})
    assert "broker 1 leaves the cluster" in run("1", code=1).stderr


def test_an_outage_does_not_end_the_waiting(orders, run, away, monkeypatch):
    def end():
        orders.tell(1, **orders.registration(1, directoryId="new"))
        orders.patch(BROKERS, "kafkalite-broker-1", {"metadata": {"annotations": {ANNOTATION_REPLACE: None}}})

    result = run("1", "--yes", steps=[lambda: away(2, "GET", "/kafkalitebrokers"), end])
    assert result.said == ["the operator has not taken it up yet", "the API server does not answer (refused)"]
    assert "has a new volume" in result.stdout
    monkeypatch.setattr(outage, "OUTAGE_S", 0.01)
    result = run("1", "--yes", steps=[lambda: away(10**9, "GET", "/kafkalitebrokers")], code=1)
    assert "the API server does not answer (refused); the operator goes on with it" in result.stderr
