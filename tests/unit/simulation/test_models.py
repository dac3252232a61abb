"""The simulated world itself: queue, network, disk, JSON Patch, batches."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from kafkalite_core.model.partition import TopicPartition
from kafkalite_core.protocol.record_batch import SimpleRecord, build_batch, iter_records, parse_batch_header
from kafkalite_core.storage.checkpoints import RECOVERY_POINT, encode_offsets
from kafkalite_core.storage.disk import replace_file
from kafkalite_core.storage.identity import CLEAN_SHUTDOWN_FILE, write_clean_shutdown
from kafkalite_core.storage.partition_metadata import PartitionMetadata, write_metadata
from tests.simulation.batches import batch_of, marks_of
from tests.simulation.clock import Clock
from tests.simulation.cluster import SimCluster
from tests.simulation.disk import SimDisk
from tests.simulation.network import Network
from tests.simulation.patching import FenceHelped, Refused, apply_patch, check
from tests.simulation.platter import batches, durable_last
from tests.simulation.run import unhealthy
from tests.simulation.swarm import draw
from tests.simulation.world import Process, ProcessDied, Violation, World


def disk() -> SimDisk:
    return SimDisk(room=10_000, wall_ms=lambda: 0, bite=lambda _kind: None, on_batch=lambda _tag, _mark: None)


# ---------------------------------------------------------------- world


def test_events_come_in_order_and_end_with_their_process() -> None:
    world, seen = World(1), []
    process = Process("p")
    world.at(5.0, process, seen.append, "late")
    world.at(1.0, process, seen.append, "early")
    world.at(3.0, None, world.bury_now, process, "killed")
    world.run(10.0)
    assert seen == ["early"]
    assert (world.now, world.events) == (10.0, 2)


def test_a_paused_process_catches_up_when_it_goes_on() -> None:
    world, seen = World(1), []
    process = Process("p")
    world.pause(process)
    world.at(1.0, process, seen.append, 1)
    world.run(5.0)
    assert not seen
    assert world.resume(process) == 1
    world.run(6.0)
    assert seen == [1]


def test_a_defect_is_a_violation_and_a_death_is_not() -> None:
    world, ends = World(1), []
    process = Process("p", ends.append)

    def die() -> None:
        raise ProcessDied(process, "at once")

    world.at(0.0, process, die)
    world.at(1.0, None, lambda: {}["x"])
    with pytest.raises(Violation, match="no defect"):
        world.run(2.0)
    assert [death.reason for death in ends] == ["at once"]


def test_lasting_faults_count_once() -> None:
    world = World(1)
    for _ in range(3):
        world.bite("network_drop")
    world.arm("network_drop")
    for _ in range(3):
        world.bite("network_drop")
    world.bite("crash")
    assert (world.bitten["network_drop"], world.effects["network_drop"], world.bitten["crash"]) == (1, 6, 1)


def test_a_clock_keeps_its_time_when_its_rate_changes() -> None:
    clock = Clock(mono_ms=100.0, rate=2.0)
    assert clock.mono_ms(10.0) == 120.0
    clock.set_rate(10.0, 0.5)
    assert clock.mono_ms(10.0) == 120.0
    assert clock.mono_ms(20.0) == 125.0
    assert clock.stamp(0.0, 5) != clock.stamp(0.0, 6)


# ---------------------------------------------------------------- network


def test_messages_of_a_link_arrive_in_order_or_not_at_all() -> None:
    world = World(1)
    network, seen = Network(world, delay_ms=1.0), []
    process = Process("p")
    for number in range(20):
        network.send("a", "b", process, seen.append, number)
    world.run(100.0)
    assert seen == list(range(20))
    network.link("a", "b").cut = True
    network.send("a", "b", process, seen.append, -1)
    network.heal()
    network.send("a", "b", process, seen.append, 20)
    network.reset("b", "a")
    world.run(200.0)
    assert seen == list(range(20))
    process.alive = False
    assert not network.send("a", "b", process, seen.append, 21)


def test_what_is_large_holds_up_what_comes_behind_it() -> None:
    world = World(1)
    network, seen = Network(world, delay_ms=1.0), []
    network.send_large(20.0, "a", "b", Process("p"), seen.append, 1)
    network.send("a", "b", Process("p"), seen.append, 2)
    network.send("b", "a", Process("p"), seen.append, 0)
    world.run(10.0)
    assert seen == [0]
    world.run(30.0)
    assert seen == [0, 1, 2]


def test_repeated_messages_come_twice_unless_they_must_not() -> None:
    world = World(1)
    network, seen = Network(world, delay_ms=1.0), []
    network.repeat = 1.0
    network.send("a", "b", Process("p"), seen.append, 1)
    network.send_once("a", "b", Process("p"), seen.append, 2)
    world.run(5_000.0)
    assert sorted(seen) == [1, 1, 2]


# ---------------------------------------------------------------- disk


def test_what_was_synced_outlives_the_power() -> None:
    for seed in range(50):
        made = disk()
        made.makedirs("d")
        file = made.open("d/f", create=True)
        file.append(b"safe")
        file.sync()
        made.sync_directory("d")
        made.sync_directory("")
        file.append(b"lost?")
        made.crash(random.Random(seed))
        content = made.open("d/f").pread(100, 0)
        assert content[:4] == b"safe"
        assert len(content) <= 9
        assert made.room == 10_000 - len(content)


def test_what_was_not_synced_is_sometimes_lost_and_sometimes_torn() -> None:
    outcomes = set()
    for seed in range(200):
        made = disk()
        file = made.open("f", create=True)
        made.sync_directory("")
        file.append(b"a" * 2_000)
        made.crash(random.Random(seed))
        content = made.open("f").pread(5_000, 0)
        outcomes.add("none" if not content else "all" if content == b"a" * 2_000 else "torn")
    assert outcomes == {"none", "all", "torn"}


def test_a_cut_that_was_not_synced_may_come_back() -> None:
    contents = set()
    for seed in range(50):
        made = disk()
        file = made.open("f", create=True)
        file.append(b"old")
        file.sync()
        made.sync_directory("")
        file.truncate(1)
        made.crash(random.Random(seed))
        contents.add(made.open("f").pread(10, 0))
    assert {b"old", b"o"} <= contents


def test_after_a_failed_sync_the_cache_lies() -> None:
    made = disk()
    file = made.open("f", create=True)
    made.sync_directory("")
    file.append(b"gone")
    made.sync_errors = 1
    with pytest.raises(OSError, match="Input/output"):
        file.sync()
    file.append(b"kept")
    file.sync()
    assert file.pread(10, 0) == b"gonekept"
    file.drop_cached(0)
    assert file.pread(10, 0) == b"\0\0\0\0kept"


def test_a_failed_sync_takes_what_was_not_synced_before_and_says_so() -> None:
    made = disk()
    file = made.open("f", create=True)
    file.append(b"kept")
    file.sync()
    file.append(b"gone")
    assert not made.forgot_unsynced
    made.sync_errors = 1
    with pytest.raises(OSError, match="Input/output"):
        file.sync()
    assert made.forgot_unsynced
    file.drop_cached(0)
    assert file.pread(10, 0) == b"kept\0\0\0\0"


def test_who_died_of_a_failed_sync_has_forgotten_what_was_not_synced() -> None:
    cluster = SimCluster(World(0), replace(draw(0), operators=1, brokers=3))
    host = cluster.hosts[0]
    host.disk.sync_errors = 1
    cluster.begin()
    while host.disk.sync_errors:
        cluster.world.run(cluster.world.now + 1.0)
    assert host.broker is None
    assert host.forgot_unsynced
    while host.forgot_unsynced:  # until a later incarnation has registered, which distrusts what was only written
        cluster.world.run(cluster.world.now + 10.0)
    assert host.incarnations > 1
    assert host.broker is not None
    assert host.broker.broker_epoch == cluster.oracles.brokers[0].registration.clean_since


@pytest.mark.parametrize("durable", [True, False])
def test_a_directory_whose_metadata_the_power_took_is_nobodys(durable) -> None:
    tags = set()
    for seed in range(50):
        made = disk()
        made.makedirs("t-0")
        made.sync_directory("")
        log = made.open("t-0/00000000000000000000.log", create=True)
        log.append(batch_of(1, 1, 0)[0])
        log.sync()
        made.sync_directory("t-0")
        metadata = PartitionMetadata(topic="t", partition=0, topic_id="00" * 16, uid="u")
        write_metadata(made, "t-0", metadata, durable=durable)
        directory = made.directory("t-0")
        directory.tag = ("id", 0)
        made.crash(random.Random(seed))
        assert batches(directory), "the log itself is there"
        tags.add(directory.tag)
    assert tags == ({("id", 0)} if durable else {("id", 0), None})


def test_a_bit_flips_only_where_a_recovery_looks() -> None:
    made = disk()
    made.makedirs("t-0")
    log = made.open("t-0/00000000000000000000.log", create=True)
    log.append(batch_of(1, 1, 0)[0])
    replace_file(made, RECOVERY_POINT, encode_offsets({TopicPartition("t", 0): 1}))
    intact = log.pread(1_000, 0)
    write_clean_shutdown(made, 1)
    assert not made.flip_bit(random.Random(0))
    assert log.pread(1_000, 0) == intact
    made.remove(CLEAN_SHUTDOWN_FILE)
    assert made.flip_bit(random.Random(0))
    assert log.pread(1_000, 0) != intact


@pytest.mark.parametrize("compacted", [False, True])
def test_a_bit_flips_only_where_the_scan_would_see_it(compacted) -> None:
    places = set()
    for seed in range(300):
        made = disk()
        made.makedirs("t-0")
        metadata = PartitionMetadata(topic="t", partition=0, topic_id=f"{0:032x}", uid="u", compacted=compacted)
        write_metadata(made, "t-0", metadata)
        log = made.open("t-0/00000000000000000000.log", create=True)
        intact = bytes(batch_of(1, 1, 0)[0])
        log.append(intact)
        replace_file(made, RECOVERY_POINT, encode_offsets({TopicPartition("t", 0): 1}))
        assert made.flip_bit(random.Random(seed))
        places |= {at for at, byte in enumerate(log.pread(1_000, 0)) if byte != intact[at]}
    assert places.isdisjoint(range(12, 16)), "the leader epoch"
    assert places.isdisjoint(range(8)) is compacted, "the base offset"


def test_a_full_disk_takes_what_fits() -> None:
    made = disk()
    file = made.open("f", create=True)
    assert file.append(b"a" * 9_999) == 9_999
    assert file.append(b"bb") == 1
    with pytest.raises(OSError, match="No space"):
        file.append(b"c")
    file.truncate(0)
    assert made.free_bytes() == 10_000


def test_the_fuse_ends_the_process_between_two_operations() -> None:
    made = disk()
    made.process, made.fuse = Process("p"), 3
    file = made.open("f", create=True)
    file.append(b"x")
    with pytest.raises(ProcessDied):
        file.append(b"y")
    assert file.pread(5, 0) == b"x"


def test_the_view_of_a_log_follows_the_bytes() -> None:
    made = disk()
    made.makedirs("t-0")
    directory = made.directory("t-0")
    file = made.open("t-0/00000000000000000000.log", create=True)
    first, _ = batch_of(1, 2, 0)
    file.append(first)
    assert durable_last(directory) is None
    file.sync()
    made.sync_directory("t-0")
    assert durable_last(directory).next == 2
    second, _ = batch_of(3, 1, 0)
    second[:8] = (2).to_bytes(8, "big")
    file.append(second)
    assert durable_last(directory).next == 2
    file.sync()
    assert durable_last(directory).next == 3
    file.truncate(len(first))
    assert [mark.next for mark in directory.segments()[0][1].marks] == [2]


# ---------------------------------------------------------------- objects


def test_a_patch_changes_a_copy_or_nothing() -> None:
    obj = {"metadata": {"uid": "u"}, "status": {"a": {"b": 1}, "c": {}}}
    done = apply_patch(
        obj,
        [
            {"op": "test", "path": "/metadata/uid", "value": "u"},
            {"op": "add", "path": "/status/a/b", "value": 2},
            {"op": "remove", "path": "/status/c"},
        ],
    )
    assert done == {"metadata": {"uid": "u"}, "status": {"a": {"b": 2}}}
    assert obj["status"] == {"a": {"b": 1}, "c": {}}
    assert done["metadata"] is obj["metadata"]
    for operation in (
        {"op": "test", "path": "/metadata/uid", "value": "v"},
        {"op": "replace", "path": "/status/x", "value": 1},
        {"op": "add", "path": "/nowhere/x", "value": 1},
    ):
        with pytest.raises(Refused):
            apply_patch(obj, [operation])


def test_the_fences_of_the_schemas() -> None:
    entry = {"leader": 1, "leaderEpoch": 3, "partitionEpoch": 5, "replicas": [1, 2], "isr": [1]}

    def topic(**changes):
        return {"status": {"topicId": "x", "controllerEpoch": 2, "partitions": {"0": {**entry, **changes}}}}

    check("topics", topic(), topic(partitionEpoch=6))
    for lie in (
        {"leaderEpoch": 4},
        {"partitionEpoch": 6, "leaderEpoch": 2},
        {"partitionEpoch": 6, "leader": 2, "isr": [2]},
        {"partitionEpoch": 6, "isr": [2]},
        {"partitionEpoch": 6, "isr": [1, 9]},
    ):
        with pytest.raises(FenceHelped):
            check("topics", topic(), topic(**lie))
    for new in ({}, {"status": {**topic()["status"], "controllerEpoch": 1}}, {"status": {"topicId": "x"}}):
        with pytest.raises(Refused):
            check("topics", topic(), new)


def test_fast_batches_are_true_batches() -> None:
    for count, padding in ((1, 0), (4, 0), (1, 600), (32, 5)):
        batch, header = batch_of(100, count, 1_000, producer=7, producer_epoch=0, sequence=3, padding=padding)
        values = [(100 + place).to_bytes(8, "big") + bytes(padding) for place in range(count)]
        slow = build_batch(
            [SimpleRecord(1_000, None, value) for value in values], producer_id=7, producer_epoch=0, base_sequence=3
        )
        assert batch == slow
        assert header == parse_batch_header(slow)
        view = memoryview(batch)
        assert [bytes(record.value) for record in iter_records(view, 0, header)] == values
        (found,) = marks_of(bytes(batch))
        assert found[1]
        assert found[0].next == count
        batch[-1] ^= 1
        assert not next(iter(marks_of(bytes(batch))))[1]


@pytest.mark.parametrize("bump", [True, False])
def test_a_cluster_is_not_well_before_its_brokers_have_heard_of_a_restore(bump: bool) -> None:
    cluster = SimCluster(World(1), draw(1))
    cluster.begin()
    while unhealthy(cluster):
        cluster.world.run(cluster.world.now + 500.0)
    backup = cluster.api.backup()
    cluster.api.stop()
    cluster.api.restore(backup, bump=bump)
    cluster.oracles.store_restored(cluster.api.objects)
    cluster.api.start()
    assert "has not listed anew since the store went back" in unhealthy(cluster)
    cluster.world.run(cluster.world.now + 15_000.0)
    assert not unhealthy(cluster)
