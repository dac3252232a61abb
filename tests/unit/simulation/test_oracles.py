"""Every oracle fires: a healthy cluster, and then one hand-made lie for each invariant."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from kafkalite_core.model.partition import IsrEntry
from kafkalite_core.replica.events import Role
from kafkalite_core.resources import patches
from tests.simulation import run
from tests.simulation.cluster import SimCluster
from tests.simulation.history import History
from tests.simulation.oracles.bounds import EVENTS_MAX
from tests.simulation.oracles.groups import GroupPromises
from tests.simulation.platter import batches
from tests.simulation.swarm import TopicShape, draw
from tests.simulation.world import Violation, World


@pytest.fixture(scope="module")
def healthy() -> SimCluster:
    topic = TopicShape(name="t0", partitions=1, replicas=3, config={"min.insync.replicas": "2"})
    shape = replace(
        draw(0), brokers=3, operators=1, topics=(topic,), members=0, producers=1, consumers=1, pause_ms=50.0,
        clock_rate_spread=0.0, retention=False, network_ms=1.0, fsync_ms=1.0,
    )  # fmt: skip
    cluster = SimCluster(World(0), shape)
    cluster.begin()
    run._until(cluster, 30_000.0, "the cluster starts")
    cluster.world.run(cluster.world.now + 3_000.0)
    return cluster


@pytest.fixture
def ledger(healthy):
    (found,) = healthy.oracles.ledgers.values()
    kept = {name: getattr(found, name) for name in ("committed_end", "entry", "marks", "leaders", "elected_at")}
    committed, written, sequences = list(found.committed), dict(found.written), dict(found.sequences)
    found.marks, found.leaders, found.elected_at = dict(found.marks), dict(found.leaders), dict(found.elected_at)
    yield found
    for name, value in kept.items():
        setattr(found, name, value)
    found.committed, found.written, found.sequences = committed, written, sequences


@pytest.fixture
def leader(healthy, ledger):
    return healthy.hosts[ledger.entry.leader].broker.driver("t0", 0)


@pytest.fixture
def follower(healthy, ledger):
    other = next(i for i in ledger.entry.isr_ids() if i != ledger.entry.leader)
    return healthy.hosts[other].broker.driver("t0", 0)


def fires(name: str):
    return pytest.raises(Violation, match=name)


def test_a_healthy_cluster_breaks_nothing(healthy, ledger, leader) -> None:
    oracles = healthy.oracles
    assert len(ledger.committed) > 10
    oracles.completeness.candidates(ledger, "now")
    oracles.completeness.leader(ledger, leader)
    oracles.superset.check(ledger, ledger.entry)
    oracles.watermark.advanced(ledger, leader)
    oracles.watermark.latest(leader)
    oracles.bounded.check(healthy)
    for mark in ledger.committed:
        oracles.watermark.read(ledger, "c", mark)
    run.final_read(healthy)


def test_two_leaders_in_one_epoch(ledger, leader, follower) -> None:
    with fires("one leader"):
        fake = SimpleNamespace(
            replica=SimpleNamespace(leader_epoch=leader.replica.leader_epoch), partitions=follower.partitions
        )
        ledger.oracles.one_leader.led(ledger, fake)


def test_an_entry_whose_epoch_does_not_rise(ledger) -> None:
    with fires("one leader"):
        ledger.oracles.one_leader.stored(ledger, ledger.entry, ledger.entry)
    with fires("one leader"):
        moved = replace(ledger.entry, leader=ledger.entry.leader + 1, partition_epoch=ledger.entry.partition_epoch + 1)
        ledger.oracles.one_leader.stored(ledger, ledger.entry, moved)


def test_other_bytes_at_the_same_offset_and_epoch(ledger) -> None:
    with fires("log matching"):
        ledger.wrote(ledger.committed[3]._replace(crc=1))


def test_a_leader_without_a_committed_batch(ledger, leader) -> None:
    last = ledger.committed[-1]
    ledger.committed.append(last._replace(base=last.next, next=last.next + 1))
    ledger.elected_at[leader.replica.leader_epoch] = last.next + 1
    with fires("leader completeness"):
        ledger.oracles.completeness.leader(ledger, leader)


def test_a_candidate_whose_disk_ends_early(ledger) -> None:
    ledger.committed_end += 1000
    with fires("leader-candidate completeness"):
        ledger.oracles.completeness.candidates(ledger, "now")


def test_a_tightened_flush_counts_when_the_store_says_so(healthy, ledger) -> None:
    obj = healthy.api.objects["topics"]["t0"]
    conditions = {c["type"]: c for c in obj["status"].get("conditions", [])}
    for status, relaxed in (("False", True), ("True", False)):
        told = {**conditions, "DurableFlush": {"type": "DurableFlush", "status": status, "reason": "r"}}
        new = {**obj, "status": {**obj["status"], "conditions": list(told.values())}}
        healthy.oracles.store_changed("topics", obj, new)
        assert ledger.relaxed is relaxed


def test_a_member_that_the_leader_does_not_wait_for(ledger) -> None:
    wider = replace(ledger.entry, isr=(*ledger.entry.isr, IsrEntry(9, 9)))
    with fires("quorum superset"):
        ledger.oracles.superset.check(ledger, wider)


def test_an_acknowledgement_beyond_the_high_watermark(ledger, leader) -> None:
    with fires("acknowledged is durable"):
        ledger.acknowledged(leader, 0, leader.replica.high_watermark + 1, -1)


def test_an_acknowledgement_that_the_disks_do_not_hold(healthy, ledger, leader, monkeypatch) -> None:
    monkeypatch.setattr(type(ledger), "durable_end", lambda _self, host: 0 if host.id else 10**9)
    with fires("acknowledged is durable"):
        ledger.oracles.durability.acknowledged(ledger, leader, 0, ledger.committed_end)


def test_a_high_watermark_that_falls_or_leaves_the_log(ledger, leader) -> None:
    ledger.marks[leader.replica.leader_epoch] = 10**9
    with fires("high watermark"):
        ledger.oracles.watermark.advanced(ledger, leader)
    beyond = SimpleNamespace(
        replica=SimpleNamespace(high_watermark=leader.log.end_offset + 1, role=Role.FOLLOWER, leader_epoch=0),
        log=leader.log,
    )
    with fires("high watermark"):
        ledger.oracles.watermark.advanced(ledger, beyond)


def test_an_end_below_what_was_shown_before(ledger, leader) -> None:
    ledger.elected_at[leader.replica.leader_epoch] = ledger.committed_end = leader.replica.high_watermark + 5
    with fires("high watermark"):
        ledger.oracles.watermark.latest(leader)


def test_a_consumer_that_reads_what_is_not_committed(ledger) -> None:
    last = ledger.committed[-1]
    for lie in (last._replace(base=last.next, next=last.next + 1), ledger.committed[2]._replace(crc=1)):
        with fires("consumer reads committed"):
            ledger.oracles.watermark.read(ledger, "c", lie)


def test_a_sequence_that_is_committed_twice(ledger) -> None:
    mark = next(mark for mark in ledger.committed if mark.producer >= 0)
    with fires("no duplicate"):
        ledger.oracles.sequences.check(ledger, mark._replace(base=mark.base + 1000))


def test_metadata_that_the_store_never_had(healthy, ledger, leader) -> None:
    ref = leader.ref
    lie = replace(ledger.entry, isr=())
    broker = SimpleNamespace(
        incarnation="x", host=SimpleNamespace(id=1), cache=SimpleNamespace(partition=lambda _ref, _number: lie)
    )
    with fires("metadata is history"):
        healthy.oracles.metadata.check(broker, {(ref, 0)})


def test_metadata_that_go_back(healthy, ledger, leader) -> None:
    key = (leader.ref.uid, 0)
    known = healthy.oracles.metadata._history[key]
    older = replace(ledger.entry, partition_epoch=-1)
    known[-1] = [older]
    shown = iter((ledger.entry, older))
    broker = SimpleNamespace(
        incarnation="y", host=SimpleNamespace(id=1), cache=SimpleNamespace(partition=lambda _r, _n: next(shown))
    )
    healthy.oracles.metadata.check(broker, {(leader.ref, 0)})
    with fires("metadata is history"):
        healthy.oracles.metadata.check(broker, {(leader.ref, 0)})
    del known[-1]


def test_an_election_of_somebody_who_was_no_candidate(ledger) -> None:
    old = replace(ledger.entry, isr=ledger.entry.isr[:1])
    stranger = next(i for i in ledger.entry.replicas if i != old.isr[0].id)
    new = replace(old, leader=stranger, leader_epoch=old.leader_epoch + 1, partition_epoch=old.partition_epoch + 1)
    with fires("permitted elections"):
        ledger.oracles.elections.check(ledger, old, new, unclean_allowed=False)
    late = replace(new, isr=(IsrEntry(stranger, 0),))
    ledger.oracles.elections.check(ledger, old, late, unclean_allowed=False)
    assert not ledger.lossy, "nobody leads by the entry of an earlier incarnation"
    ledger.oracles.elections.check(ledger, old, new, unclean_allowed=True)
    assert ledger.lossy
    ledger.lossy = False


def test_queues_without_bound(healthy, monkeypatch) -> None:
    monkeypatch.setattr(World, "queued", EVENTS_MAX + 1)
    with fires("bounded queues"):
        healthy.oracles.bounded.check(healthy)


def test_groups() -> None:
    promises = GroupPromises()
    promises.assigned("g", 1, "a", (0, 1))
    promises.assigned("g", 2, "b", (0, 1))
    with fires("one owner"):
        promises.assigned("g", 2, "a", (1,))
    promises.committed("g", 0, 7)
    floors = promises.floors("g", (0, 1))
    promises.fetched("g", 0, 8, floors)
    promises.fetched("g", 1, -1, floors)
    with fires("commits are not lost"):
        promises.fetched("g", 0, 6, floors)


def test_a_fence_that_had_to_help(healthy, ledger, leader) -> None:
    entry = ledger.entry
    proposed = replace(entry, isr=(), partition_epoch=entry.partition_epoch + 1)
    operations = patches._tests_of_topic(leader.ref) + patches._tests_of_partition(0, entry)
    value = patches.render_partition(proposed)
    operations.append({"op": "replace", "path": "/status/partitions/0", "value": value})
    with fires("a fence had to help"):
        healthy.api.patch("topics", "t0", operations)


def test_a_patch_that_lands_where_it_was_not_meant(healthy, ledger, leader) -> None:
    from tests.simulation.oracles.decided_on import DecidedOn

    found = healthy.api.objects["topics"]["t0"]
    DecidedOn(leader.ref, {0: ledger.entry}).check(found)
    with fires("a change lands"):
        DecidedOn(replace(leader.ref, uid="another"), {}).check(found)
    with fires("a change lands"):
        DecidedOn(leader.ref, {0: replace(ledger.entry, partition_epoch=77)}).check(found)


def test_a_producer_id_that_is_given_twice() -> None:
    history = History()
    history.id_given("a", 5)
    with fires("unique producer ids"):
        history.id_given("b", 5)


def test_the_final_read_finds_what_is_missing(healthy, ledger, follower) -> None:
    tag = ledger.tag
    healthy.history.promised[tag].append((10**6, 1, 1))
    with fires("nothing lost"):
        run.final_read(healthy)
    healthy.history.promised[tag].pop()
    directory = ledger.directory(follower.partitions.broker.host)
    marks = directory.segments()[0][1].marks
    assert batches(directory)
    last = marks.pop(3)
    with fires("equal replicas"):
        run.final_read(healthy)
    marks.insert(3, last)


def test_a_cluster_that_does_not_recover(healthy) -> None:
    host = healthy.hosts[0]
    running, host.broker = host.broker, None
    with fires("liveness"):
        run._until(healthy, 0.0, "now")
    host.broker = running
