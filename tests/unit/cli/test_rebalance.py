"""`kafkalite rebalance`: which replicas it would move, and that only --execute does it."""

import json
from collections import Counter

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from kafkalite_cli.main import main
from kafkalite_cli.reassign import session
from kafkalite_cli.topics import sizes
from kafkalite_core.controller.balancing import NoRoom, evacuated, rebalanced
from kafkalite_runtime.kube import BROKERS, TOPICS, KubeClient
from tests.unit.cli.world import entry, obey


def lists(*replicas, topic="t"):
    return {(topic, number): tuple(ids) for number, ids in enumerate(replicas)}


def flat(*brokers):
    return dict.fromkeys(brokers, "")


def tally(assignment):
    return Counter(broker for ids in assignment.values() for broker in ids)


def applied(current, **more):
    return {**current, **rebalanced(current, **more)}


# --- where replicas go -----------------------------------------------------------------------------------------------


def test_a_new_broker_gets_its_share_and_nothing_else_moves():
    current = lists([0, 1], [1, 2], [2, 0], [0, 1], [1, 2], [2, 0])
    after = applied(current, racks=flat(0, 1, 2, 3))
    assert tally(after) == {0: 3, 1: 3, 2: 3, 3: 3}
    moved = sum(len(set(after[key]) - set(current[key])) for key in current)
    assert moved == 3


def test_what_is_even_stays():
    assert rebalanced(lists([0, 1], [1, 2], [2, 0]), flat(0, 1, 2)) == {}
    assert rebalanced({}, flat(0, 1)) == {}


def test_what_is_on_other_brokers_stays_there():
    """Broker 2 is down or cordoned: it gives nothing and takes nothing."""
    current = lists([0, 2], [0, 2], [0, 2], [0, 2])
    after = applied(current, racks=flat(0, 1))
    assert tally(after) == {0: 2, 1: 2, 2: 4}
    assert all(2 in ids for ids in after.values())


def test_moves_that_are_under_way_are_left_alone():
    current = lists([0], [0], [0], [0])
    assert set(rebalanced(current, flat(0, 1), fixed=[("t", 0), ("t", 1), ("t", 2)])) == {("t", 3)}


def test_no_partition_loses_a_rack_and_two_in_one_rack_part():
    racks = {0: "a", 1: "a", 2: "b", 3: "b"}
    current = lists([0, 1], [0, 2], [0, 3], [0, 2])
    after = applied(current, racks=racks)
    assert all(len({racks[i] for i in ids}) == 2 for ids in after.values())
    assert max(tally(after).values()) - min(tally(after).values()) <= 1


def test_topics_are_spread_as_well():
    """Both topics have two partitions on the full brokers: one of each moves, not two of one."""
    current = lists([0], [0], topic="a") | lists([0], [0], topic="b")
    moves = rebalanced(current, flat(0, 1))
    assert sorted(topic for topic, _ in moves) == ["a", "b"]


def test_leaders_are_evened_out_over_a_chain_of_lists():
    """Broker 2 can only get a leadership from broker 1, which has none to spare unless broker 0 gives one."""
    current = lists([0, 1], [0, 1], [1, 2])
    after = applied(current, racks=flat(0, 1, 2), leaders_only=True)
    assert Counter(ids[0] for ids in after.values()) == {0: 1, 1: 1, 2: 1}
    assert {key: set(ids) for key, ids in after.items()} == {key: set(ids) for key, ids in current.items()}


@given(st.data())
def test_whatever_there_is_becomes_even_with_as_few_moves_as_it_takes(data):
    brokers = data.draw(st.integers(1, 6))
    width = data.draw(st.integers(1, brokers))
    ids = st.permutations(range(brokers)).map(lambda found: tuple(found[:width]))
    current = {("t", number): each for number, each in enumerate(data.draw(st.lists(ids, max_size=25)))}
    after = applied(current, racks=flat(*range(brokers)))
    assert after.keys() == current.keys()
    assert all(len(set(each)) == width for each in after.values())
    counts = [tally(after)[broker] for broker in range(brokers)]
    assert max(counts) - min(counts) <= 1
    moved = sum(len(set(after[key]) - set(current[key])) for key in current)
    assert moved == sum(max(0, tally(current)[broker] - tally(after)[broker]) for broker in range(brokers))


@given(st.data())
def test_no_partition_ever_loses_a_rack(data):
    racks = {broker: data.draw(st.sampled_from("abc")) for broker in range(6)}
    ids = st.permutations(range(6)).map(lambda found: tuple(found[:3]))
    current = {("t", number): each for number, each in enumerate(data.draw(st.lists(ids, max_size=15)))}
    after = applied(current, racks=racks)
    for key, each in after.items():
        assert len({racks[i] for i in each}) >= len({racks[i] for i in current[key]})
        assert len(set(each)) == 3


def test_thousands_of_partitions_are_planned_at_once():
    current = {(f"t{n % 1000}", n // 1000): tuple((n + k) % 5 for k in range(3)) for n in range(6_000)}
    after = applied(current, racks=flat(*range(6)))
    counts = tally(after)
    assert max(counts.values()) - min(counts.values()) <= 1


def test_a_broker_is_emptied_onto_the_least_loaded_ones():
    current = lists([0, 1], [1, 0], [2, 0], [2, 1])
    moves = evacuated(current, flat(1, 2, 3), 0)
    assert moves == {("t", 0): (3, 1), ("t", 1): (1, 3), ("t", 2): (2, 3)}
    racks = {1: "a", 2: "b", 3: "a"}
    assert evacuated(lists([0, 1]), racks, 0) == {("t", 0): (2, 1)}


def test_a_broker_that_cannot_be_emptied():
    with pytest.raises(NoRoom) as stuck:
        evacuated(lists([0, 1, 2], [1, 2]), flat(1, 2), 0)
    assert stuck.value.keys == (("t", 0),)


# --- the command -----------------------------------------------------------------------------------------------------


@pytest.fixture
def run(world, monkeypatch):
    monkeypatch.setattr(sizes, "read_sizes", lambda _addresses, _topics: {("orders", 0, 0): 1 << 20})
    monkeypatch.setattr(session, "POLL_S", 0.01)

    def run(*arguments, code=0):
        result = CliRunner().invoke(main, ["rebalance", *world.arguments, *arguments])
        assert result.exit_code == code, (result.output, result.exception)
        return result

    return run


def test_nothing_is_changed_without_execute(world, run):
    world.topic("orders", entry([0, 1]), entry([0, 1]), entry([0, 1]))
    result = run()
    assert "dry run, nothing was changed: add --execute to do it" in result.stderr
    assert "replicaAssignment" not in world.get(TOPICS, "orders")["spec"]
    lines = [line.split() for line in result.stdout.splitlines()]
    assert ["orders", "0", "0,1", "0,2"] in lines
    assert ["0", "runs", "3", "->", "2", "3", "->", "1"] in lines
    assert ["2", "runs", "0", "->", "2", "0", "->", "1"] in lines
    document = json.loads(run("-o", "json").stdout)
    assert (document["copies"], document["version"]) == (2, 1)
    assert [each["replicasAfter"] for each in document["brokers"]] == [2, 2, 2]
    run("--wait", code=2)


def test_executing_writes_the_wish_waits_and_lets_the_leaders_lead(world, run, monkeypatch):
    obey(monkeypatch)
    world.topic("orders", entry([0, 1]), entry([0, 1]), entry([0, 1]))
    result = run("--execute", "--wait", "--throttle", "1000")
    assert "partitions are where they shall be" in result.stderr
    topic = world.get(TOPICS, "orders")
    held = Counter(i for each in topic["status"]["partitions"].values() for i in each["replicas"])
    assert held == {0: 2, 1: 2, 2: 2}
    assert "kafkalite.io/elect-preferred" in topic["metadata"]["annotations"]
    assert not any("throttled" in key for key in topic["spec"].get("config") or {})
    assert "nothing to move" in run().stdout


@pytest.mark.parametrize("after", range(3, 6))
def test_an_outage_does_not_end_the_waiting(world, run, away, monkeypatch, after):
    obey(monkeypatch)
    world.topic("orders", entry([0, 1]), entry([0, 1]), entry([0, 1]))
    away(2, "GET", "/kafkalitetopics", after=after)
    assert "partitions are where they shall be" in run("--execute", "--wait").stderr
    assert "kafkalite.io/elect-preferred" in world.get(TOPICS, "orders")["metadata"]["annotations"]


def test_the_operator_may_write_while_leaders_are_asked_for(world, run, monkeypatch):
    obey(monkeypatch)
    real, left = KubeClient.merge_patch, [1, 2]

    async def merge_patch(self, kind, namespace, name, body, **more):
        if "kafkalite.io/elect-preferred" in body.get("metadata", {}).get("annotations", {}) and left:
            told = {"status": {"inSync": f"{left.pop()}/6"}}
            await real(self, kind, namespace, name, told, subresource="status")
        return await real(self, kind, namespace, name, body, **more)

    monkeypatch.setattr(KubeClient, "merge_patch", merge_patch)
    world.topic("orders", entry([0, 1]), entry([0, 1]), entry([0, 1]))
    assert "partitions are where they shall be" in run("--execute", "--wait").stderr
    assert left == []
    assert "kafkalite.io/elect-preferred" in world.get(TOPICS, "orders")["metadata"]["annotations"]


def test_cordoned_and_fenced_brokers_take_nothing(world, run):
    world.patch(BROKERS, world.broker_name(2), {"spec": {"cordoned": True}})
    world.topic("orders", entry([0, 1]), entry([0, 1]), entry([0, 1]))
    document = json.loads(run("-o", "json").stdout)
    assert document["copies"] == 0
    assert document["brokers"][2]["state"].endswith("and cordoned")
    world.fence(0)
    world.fence(1)
    assert "no broker of kafkalite runs without being cordoned: broker 0 is fenced" in run(code=1).stderr


def test_leaders_alone(world, run):
    world.topic("orders", entry([0, 1]), entry([0, 1]))
    document = json.loads(run("--leaders-only", "-o", "json").stdout)
    assert [each["replicas"] for each in document["partitions"]] == [[1, 0]]


def test_very_many_moves_are_not_all_shown(world, run):
    world.topic("orders", *[entry([0, 1]) for _ in range(100)])
    moves = len(json.loads(run("-o", "json").stdout)["partitions"])
    shown = run().stdout
    assert f"… and {moves - 40} more (--all shows them)" in shown
    assert run("--all").stdout.count("orders") == moves


def test_several_clusters_have_to_be_told_apart(world, run):
    world.cluster(1, name="other")
    assert "there are several clusters" in run(code=1).stderr
    assert "nothing to move" in run("--cluster", "kafkalite").stdout
    assert "there is no KafkaLiteCluster 'third' in namespace" in run("--cluster", "third", code=1).stderr
