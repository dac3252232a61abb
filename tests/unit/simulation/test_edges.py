"""Faults at the edges of processes bite, and only where they are meant to: devices, clients' links, the API server's."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.simulation.api import Outcome
from tests.simulation.batches import batch_of
from tests.simulation.cluster import SimCluster
from tests.simulation.disk import FailingDevice, SimDisk
from tests.simulation.faults import Faults
from tests.simulation.platter import batches
from tests.simulation.run import _until, run_seed
from tests.simulation.swarm import EDGE_FAULTS, FAULTS, TopicShape, draw
from tests.simulation.world import Process, World

TOPIC = TopicShape(name="t0", partitions=1, replicas=3, config={"min.insync.replicas": "2"})
SIX = replace(TOPIC, partitions=6)
SHAPE = replace(
    draw(0), brokers=3, operators=1, topics=(TOPIC,), members=0, producers=1, consumers=1, pause_ms=50.0,
    clock_rate_spread=0.0, retention=False, network_ms=1.0, fsync_ms=1.0, scales=False, faults={},
)  # fmt: skip


def cluster_of(**changes) -> SimCluster:
    cluster = SimCluster(World(0), replace(SHAPE, **changes))
    cluster.begin()
    _until(cluster, 30_000.0, "the cluster starts")
    return cluster


def run_for(cluster: SimCluster, ms: float) -> None:
    cluster.world.run(cluster.world.now + ms)


def leading(cluster: SimCluster):
    (ledger,) = cluster.oracles.ledgers.values()
    return cluster.hosts[ledger.entry.leader]


# ---------------------------------------------------------------- the draw


def test_every_edge_fault_is_in_the_default_swarm_and_has_its_action() -> None:
    seen = {kind for seed in range(200) for kind in draw(seed).faults}
    assert EDGE_FAULTS.keys() <= seen
    faults = Faults(cluster_of())
    for kind in EDGE_FAULTS:
        assert callable(getattr(faults._edges, f"_{kind}"))
    assert not EDGE_FAULTS.keys() & FAULTS.keys()


def test_edge_faults_leave_the_draw_of_the_others_as_it_is() -> None:
    with_edges = Faults(cluster_of(faults={"crash": 1.0, **EDGE_FAULTS}))
    without = Faults(cluster_of(faults={"crash": 1.0}))
    assert with_edges._faults == without._faults == {"crash": 1.0}
    with_edges._edges._chance.random()
    assert with_edges._chance.random() == without._chance.random()


# ---------------------------------------------------------------- devices


def disk(bitten: list[str]) -> SimDisk:
    made = SimDisk(room=10_000, wall_ms=lambda: 0, bite=bitten.append, on_batch=lambda _tag, _mark: None)
    made.process = Process("p")
    return made


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_a_write_fails_when_its_time_has_come_and_leaves_a_part(share) -> None:
    bitten = []
    made = disk(bitten)
    made.failing_writes = FailingDevice(succeeds=1, fails=2, share=share)
    file = made.open("f", create=True)
    assert file.append(b"abcd") == 4
    for _ in range(2):
        with pytest.raises(OSError, match="Input/output"):
            file.append(b"efgh")
    assert file.append(b"ij") == 2
    assert bytes(file.pread(100, 0)) == (b"abcdefefij" if share else b"abcdij")
    assert bitten == ["write_error"] * 2
    assert made.room == 10_000 - file.size()


def test_a_part_of_a_batch_is_no_batch() -> None:
    made = disk([])
    made.makedirs("t-0")
    file = made.open("t-0/00000000000000000000.log", create=True)
    made.failing_writes = FailingDevice(succeeds=1, fails=1, share=0.9)
    file.append(batch_of(1, 1, 0)[0])
    with pytest.raises(OSError, match="Input/output"):
        file.append(batch_of(2, 1, 0)[0])
    assert len(batches(made.directory("t-0"))) == 1


def test_reads_of_the_process_fail_and_those_of_nobody_do_not() -> None:
    bitten = []
    made = disk(bitten)
    made.makedirs("t-0")
    file = made.open("t-0/f", create=True)
    metadata = made.open("t-0/partition.metadata", create=True)
    file.append(b"abcd")
    metadata.append(b"efgh")
    made.failing_reads = FailingDevice(succeeds=1, fails=2)
    assert file.pread(2, 0) == b"ab"
    assert metadata.pread(2, 0) == b"ef"
    with pytest.raises(OSError, match="Input/output"):
        file.pread(2, 0)
    assert metadata.pread(2, 0) == b"ef", "oracles read it"
    made.process = None
    assert file.pread(2, 0) == b"ab", "nobody runs: an oracle reads"
    assert bitten == ["read_error"]


def test_a_broker_dies_of_a_failed_write_and_comes_back() -> None:
    cluster = cluster_of()
    host = leading(cluster)
    before = host.broker
    cluster.world.arm("write_error")
    host.disk.failing_writes = FailingDevice(succeeds=0, fails=1, share=0.5)
    run_for(cluster, 1_000.0)
    assert cluster.world.bitten["write_error"] == 1
    assert not before.process.alive
    assert not host.forgot_unsynced, "what was written is in the cache still"
    _until(cluster, 30_000.0, "the broker is back")
    assert host.incarnations == 2


def test_a_leader_dies_of_a_read_for_those_who_fetch() -> None:
    cluster = cluster_of(tail_bytes=0)
    host = leading(cluster)
    before = host.broker
    cluster.world.arm("read_error")
    host.disk.failing_reads = FailingDevice(succeeds=0, fails=1)
    run_for(cluster, 2_000.0)
    assert cluster.world.bitten["read_error"] == 1
    assert not before.process.alive


def test_a_recovery_that_cannot_read_is_tried_again_by_the_next_process() -> None:
    cluster = cluster_of()
    host = leading(cluster)
    run_for(cluster, 2_000.0)
    cluster.world.bury_now(host.broker.process, "killed")
    cluster.world.arm("read_error")
    host.disk.failing_reads = FailingDevice(succeeds=2, fails=1)
    _until(cluster, 60_000.0, "the broker is back")
    assert cluster.world.bitten["read_error"] == 1
    assert host.incarnations == 3


@pytest.mark.parametrize("kind", ["write_error", "read_error"])
def test_failing_devices_bite_in_a_history_that_is_clean(kind) -> None:
    result = run_seed(11, shape=replace(SHAPE, faults={kind: 1.0}, tail_bytes=0, fault_every_ms=400.0))
    assert result.ok, result.violation
    assert result.faults_bitten.get(kind, 0) >= 3
    assert set(result.faults_bitten) == {kind}


def test_heal_ends_what_devices_do() -> None:
    cluster = cluster_of()
    faults = Faults(cluster)
    for _ in range(20):
        faults._edges._write_error()
        faults._edges._read_error()
    assert any(host.disk.failing_reads for host in cluster.host_list)
    faults.heal()
    assert not any(host.disk.failing_reads or host.disk.failing_writes for host in cluster.host_list)


# ---------------------------------------------------------------- links to clients


@pytest.mark.parametrize(("towards", "takes"), [("broker", False), ("client", True)])
def test_a_cut_to_a_client_loses_requests_or_answers(towards, takes) -> None:
    cluster = cluster_of()
    run_for(cluster, 2_000.0)
    (producer,), host, (ledger,) = cluster.producers, leading(cluster), cluster.oracles.ledgers.values()
    pair = (producer.name, host.name) if towards == "broker" else (host.name, producer.name)
    cluster.world.arm("client_cut")
    cluster.network.link(*pair).cut = True
    run_for(cluster, 50.0)
    acked, committed = cluster.history.acked, ledger.committed_end
    run_for(cluster, 3_000.0)
    assert cluster.world.bitten["client_cut"] == 1
    assert cluster.history.acked == acked
    assert (ledger.committed_end > committed) is takes
    cluster.network.heal()
    run_for(cluster, 6_000.0)
    assert cluster.history.acked > acked


def test_a_client_whose_connection_broke_goes_on_before_its_patience_is_over() -> None:
    cluster = cluster_of(patience_ms=60_000.0, pause_ms=5.0, transfer_ms=12.0)
    run_for(cluster, 2_000.0)
    (producer,), host = cluster.producers, leading(cluster)
    while not any(lane._pipe is not None and lane._pipe.flying for lane in producer._lanes):
        run_for(cluster, 1.0)
    cluster.world.arm("client_reset")
    cluster.network.reset(producer.name, host.name)
    producer.connection_lost(host.name)
    acked = cluster.history.acked
    run_for(cluster, 3_000.0)
    assert cluster.world.bitten["client_reset"] == 1
    assert cluster.history.acked > acked


def test_a_member_whose_connection_broke_asks_again_at_once() -> None:
    cluster = cluster_of(members=2)
    member = cluster.members[0]
    while not member._under_way:
        run_for(cluster, 1.0)
    (name,) = set(member._under_way.values())
    cluster.world.arm("client_reset")
    cluster.network.reset(member.name, name)
    member.connection_lost(name)
    assert cluster.world.bitten["client_reset"] == 1
    run_for(cluster, 20.0)
    assert not member.stable
    _until(cluster, 9_000.0, "sooner than the patience of a request")


def test_isolation_is_from_all_others_or_from_all_clients() -> None:
    cluster = cluster_of()
    faults, network, seen = Faults(cluster), cluster.network, set()
    clients = {client.name for client in cluster.clients}
    for _ in range(40):
        network.heal()
        faults._isolate()
        ends = {end for pair, link in network._links.items() if link.cut for end in pair}
        seen.add((clients <= ends, len({"b0", "b1", "b2"} & ends), "api" in ends))
    assert seen == {(False, 3, False), (False, 3, True), (True, 1, False), (True, 1, True)}


# ---------------------------------------------------------------- links to the API server


def test_a_reset_of_the_api_servers_connections_is_noticed_at_once() -> None:
    cluster = cluster_of()
    broker, heard = cluster.hosts[1].broker, []
    broker.call("list", "topics", answer=lambda outcome, _: heard.append((outcome, cluster.world.now)))
    watches = [watch for watch in cluster.api.watches if watch.host == "b1" and not watch.dead]
    assert len(watches) == 3
    began = cluster.world.now
    cluster.world.arm("api_reset")
    cluster.api.reset("b1")
    run_for(cluster, 100.0)
    assert [outcome for outcome, _ in heard] == [Outcome.AMBIGUOUS]
    assert heard[0][1] - began < 1.0
    assert all(watch.dead for watch in watches)
    assert cluster.world.bitten["api_reset"] == 1
    run_for(cluster, 3_000.0)
    assert len([watch for watch in cluster.api.watches if watch.host == "b1" and not watch.dead]) == 3


def test_what_the_api_server_had_taken_is_done_after_a_reset() -> None:
    cluster = cluster_of()
    broker, heard = cluster.hosts[1].broker, []
    cluster.api.delay_ms = 100.0
    body = {"metadata": {"name": "other"}}
    broker.call("create", "pods", body, answer=lambda outcome, _: heard.append(outcome))
    run_for(cluster, 10.0)
    cluster.api.reset("b1")
    run_for(cluster, 500.0)
    assert heard == [Outcome.AMBIGUOUS]
    assert "other" in cluster.api.objects["pods"]


def test_calls_over_a_slow_link_are_late() -> None:
    cluster = cluster_of()
    faults = Faults(cluster)
    for _ in range(30):
        faults._edges._api_delay()
    slow = [pair for pair, link in cluster.network._links.items() if link.slow]
    assert slow
    assert all("api" in pair for pair in slow)
    run_for(cluster, 3_000.0)
    assert cluster.world.bitten["api_delay"]


LINKS = ("client_cut", "client_delay", "client_reset", "api_reset", "api_delay")


@pytest.mark.parametrize("kind", LINKS)
def test_faults_of_links_bite_in_a_history_that_is_clean(kind) -> None:
    result = run_seed(11, shape=replace(SHAPE, faults={kind: 1.0}, fault_every_ms=400.0, members=2))
    assert result.ok, result.violation
    assert result.faults_bitten.get(kind, 0) >= 3
    assert set(result.faults_bitten) <= {kind, "watch_broken"}


# ---------------------------------------------------------------- lists and watches


def test_a_late_list_shows_less_than_its_reader_has_been_told_and_changes_nothing() -> None:
    cluster = cluster_of()
    broker, heard = cluster.hosts[1].broker, []
    cluster.api.late_lists = 1.0
    cluster.world.arm("late_list")
    broker.call("list", "topics", answer=lambda _, result: heard.append([obj["metadata"]["name"] for obj in result[0]]))
    broker.link.look_at_topics()
    run_for(cluster, 10.0)
    cluster.create_topic(replace(TOPIC, name="later"))
    while broker.cache.topic("later") is None:
        run_for(cluster, 1.0)
    assert not heard
    run_for(cluster, 2_000.0)
    assert heard == [["t0"]]
    assert broker.cache.topic("later") is not None
    assert cluster.world.bitten["late_list"] == 1


def test_a_late_list_of_a_server_that_ended_does_not_come() -> None:
    cluster = cluster_of()
    broker, heard = cluster.hosts[1].broker, []
    cluster.api.late_lists = 1.0
    broker.call("list", "topics", answer=lambda outcome, _: heard.append(outcome))
    run_for(cluster, 10.0)
    cluster.api.stop()
    cluster.api.start()
    run_for(cluster, 3_000.0)
    assert heard == [Outcome.AMBIGUOUS]


@pytest.mark.parametrize("broken", [False, True])
def test_one_process_is_told_later_than_others_and_in_order_also_by_a_watch_begun_anew(broken) -> None:
    cluster = cluster_of()
    api, told = cluster.api, {"b0": [], "b1": []}
    for name, seen in told.items():
        broker = cluster.hosts[int(name[1])].broker
        reflector = next(each for each in broker.link._reflectors if each._kind == "topics")
        reflector._on_event = lambda _, obj, seen=seen: seen.append((obj["metadata"]["name"], cluster.world.now))
    faults = Faults(cluster)._edges
    faults._any_of_the_api = lambda: "b1"
    while "b1" not in api.lags or api.lags["b1"] < 1_000.0:
        api.lags.clear()
        faults._lagging_server()
    if broken:
        api.break_watches(host="b1")
    run_for(cluster, 1_000.0)
    cluster.world.arm("lagging_server")
    began = cluster.world.now
    for number in range(3):
        cluster.create_topic(replace(TOPIC, name=f"x{number}"))
    lag_ms = next(watch.lag_ms for watch in api.watches if watch.host == "b1" and watch.kind == "topics")
    assert lag_ms >= 1_000.0
    run_for(cluster, lag_ms + 100.0)
    new = {name: [seen for seen in seen_all if seen[0].startswith("x")] for name, seen_all in told.items()}
    assert [name for name, _ in new["b1"]][:3] == ["x0", "x1", "x2"] == [name for name, _ in new["b0"]][:3]
    assert new["b0"][2][1] - began < 100.0
    assert new["b1"][0][1] - began >= 1_000.0
    assert cluster.world.bitten["lagging_server"] == 1
    Faults(cluster).heal()
    assert not api.lags
    assert not any(watch.lag_ms for watch in api.watches)


@pytest.mark.parametrize("kind", ["late_list", "lagging_server"])
def test_faults_of_lists_and_watches_bite_in_a_history_that_is_clean(kind) -> None:
    result = run_seed(
        12, shape=replace(SHAPE, faults={kind: 1.0, "watch_break": 0.5, "churn": 1.0}, fault_every_ms=300.0)
    )
    assert result.ok, result.violation
    assert result.faults_bitten.get(kind, 0) >= 3


# ---------------------------------------------------------------- patches that are refused


@pytest.mark.parametrize("seed", [13, 14])
def test_patches_that_are_refused_for_no_reason_bite_in_a_history_that_is_clean(seed) -> None:
    shape = replace(SHAPE, topics=(SIX,), faults={"api_reject": 1.0, "stop": 1.0}, fault_every_ms=300.0)
    result = run_seed(seed, shape=shape)
    assert result.ok, result.violation
    assert result.faults_bitten["api_reject"] >= 3


def test_a_shared_patch_that_is_refused_for_no_reason_goes_in_halves() -> None:
    cluster = cluster_of(topics=(SIX,))
    follower = cluster.hosts[2]
    cluster.api.reject = 0.7
    Faults(cluster)._kill(follower, "crash", power=False)
    while not cluster.world.effects["patch_in_halves"]:
        run_for(cluster, 100.0)
        assert cluster.world.now < 60_000.0, "no patch was refused"
    Faults(cluster).heal()
    assert cluster.api.reject == 0.0
    _until(cluster, cluster.world.now + 60_000.0, "whole again")
