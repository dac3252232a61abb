"""Every oracle fires: a healthy cluster, and then one hand-made lie for each invariant."""

from __future__ import annotations

import copy
from dataclasses import replace
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from kafkalite_core.model.partition import IsrEntry
from kafkalite_core.replica.events import Role
from kafkalite_core.resources import patches
from tests.simulation import run
from tests.simulation.history import History
from tests.simulation.oracles import ledger as oracles_ledger
from tests.simulation.oracles.bounds import EVENTS_MAX
from tests.simulation.oracles.groups import GroupPromises
from tests.simulation.parsed import broker_of
from tests.simulation.platter import batches
from tests.simulation.world import LimitReached, Violation, World


def fires(name: str):
    return pytest.raises(Violation, match=name)


def test_a_healthy_cluster_breaks_nothing(healthy, ledger, leader) -> None:
    oracles = healthy.oracles
    assert len(ledger.committed) > 10
    oracles.completeness.candidates(ledger, "now")
    oracles.completeness.leader(ledger, leader)
    oracles.superset.stored(ledger, ledger.entry)
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


def test_of_a_partition_made_again_only_what_no_log_has_is_forgotten(healthy, ledger) -> None:
    mark = ledger.committed[3]
    other = mark._replace(crc=1)
    roots = [host.disk.root.entries for host in healthy.host_list]
    *lost, last = found = [ledger.directory(host) for host in healthy.host_list]
    for directory in lost:
        directory.tag = None
    roots[-1]["t0-0.1.stray"] = roots[-1].pop("t0-0")
    committed = list(ledger.committed)
    ledger.made_again()
    with fires("log matching"):
        ledger.wrote(other)  # one machine has it still, if only set aside
    last.tag = None
    ledger.made_again()
    ledger.wrote(other)
    with fires("log matching"):
        ledger.wrote(mark)  # a message on its way had it still
    assert ledger.committed == committed, "what was acknowledged is not forgotten with it"
    for directory in found:
        directory.tag = ledger.tag
    roots[-1]["t0-0"] = roots[-1].pop("t0-0.1.stray")


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


def test_an_acknowledgement_beyond_the_high_watermark(ledger, leader) -> None:
    with fires("acknowledged is durable"):
        ledger.acknowledged(leader, 0, leader.replica.high_watermark + 1, -1)


def test_an_acknowledgement_that_the_disks_do_not_hold(healthy, ledger, leader, monkeypatch) -> None:
    monkeypatch.setattr(type(ledger), "durable_end", lambda _self, host: 0 if host.id else 10**9)
    with fires("acknowledged is durable"):
        ledger.oracles.durability.acknowledged(ledger, leader, 0, ledger.committed_end)


@pytest.mark.parametrize("now", ["another", None])
def test_a_leader_that_is_cut_off_goes_by_what_a_disk_had_as_it_knows_it(
    healthy, ledger, leader, monkeypatch, now
) -> None:
    """The disks of the others are lost, and the store knows it and the leader does not."""
    oracles, end, shown = healthy.oracles, ledger.committed_end, dict(healthy.oracles.brokers)
    others = [host.broker for host in healthy.host_list if host.id != ledger.entry.leader]
    monkeypatch.setattr(ledger, "_ended", {})
    known = {
        i: replace(broker, registration=replace(broker.registration, incarnation=now)) for i, broker in shown.items()
    }
    monkeypatch.setattr(oracles, "brokers", known if now else {})
    for broker in others:
        ledger.process_ended(broker)
    monkeypatch.setattr(type(ledger), "durable_end", lambda _self, host: 10**9 if host.id == ledger.entry.leader else 0)
    oracles.durability.acknowledged(ledger, leader, end - 1, end)
    monkeypatch.setattr(oracles, "brokers", shown)
    with fires("acknowledged is durable"):
        oracles.durability.acknowledged(ledger, leader, end - 1, end)  # it knows who is registered
    monkeypatch.setattr(oracles, "brokers", known if now else {})
    for broker in others:
        ledger.process_ended(broker)
    with fires("acknowledged is durable"):
        oracles.durability.acknowledged(ledger, leader, end - 1, end)  # nor had they had it when they ended


def test_a_high_watermark_that_falls_or_leaves_the_log(ledger, leader) -> None:
    ledger.marks[leader.replica.leader_epoch] = 10**9, "another"
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
        ledger.oracles.sequences.check(ledger, mark._replace(base=mark.base + 1000, next=mark.next + 1000))


def test_a_batch_that_was_deleted_and_comes_again_is_a_limit(ledger, monkeypatch) -> None:
    first = next(mark for mark in ledger.committed if mark.producer >= 0)
    again = first._replace(base=first.base + 1_000, next=first.next + 1_000)
    monkeypatch.setattr(ledger, "deletable", first.next - 1)
    with fires("no duplicate"):
        ledger.oracles.sequences.check(ledger, again)
    monkeypatch.setattr(ledger, "deletable", first.next)
    with fires("no duplicate"):  # somebody asked for it, but every log still has it, and knows of its producer
        ledger.oracles.sequences.check(ledger, again)
    logs = [[first, again], [again]]
    monkeypatch.setattr(oracles_ledger, "batches", lambda log: log)
    monkeypatch.setattr(ledger, "logs", lambda: [(None, "", log) for log in logs])
    with pytest.raises(LimitReached, match="S9"):
        ledger.oracles.sequences.check(ledger, again)
    ledger.oracles.sequences.check(ledger, first)


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
    candidate = replace(old, isr=(*old.isr, IsrEntry(stranger, 0)))
    ledger.oracles.elections.check(ledger, candidate, late, unclean_allowed=True)
    assert not ledger.lossy, "a clean election of that incarnation"
    ledger.oracles.elections.check(ledger, old, late, unclean_allowed=True)
    assert ledger.lossy, "its ISR lacks what the election was allowed to lose, whoever leads by it"
    ledger.lossy = False
    ledger.oracles.elections.check(ledger, old, new, unclean_allowed=True)
    assert ledger.lossy
    ledger.lossy = False


def test_a_disk_of_which_the_store_knows_an_earlier_one_is_a_loss(healthy, ledger, monkeypatch) -> None:  # S11
    now = healthy.api.objects["brokers"][healthy.hosts[0].object_name]
    mine = broker_of(now).registration.directory_id
    for directory, damaged in ((mine, False), ("another", True)):
        known = replace(broker_of(now).registration, broker_epoch=0, directory_id=directory)
        before = {**healthy.oracles.brokers, 0: replace(broker_of(now), registration=known)}
        monkeypatch.setattr(healthy.oracles, "brokers", before)
        monkeypatch.setattr(ledger, "damaged", False)
        healthy.oracles.store_changed("brokers", now, now)
        assert ledger.damaged is damaged


def test_a_placement_that_is_stored_after_the_loss_of_a_disk_was_told(healthy, ledger, monkeypatch) -> None:
    now = next(obj for obj in healthy.api.objects["topics"].values() if obj["status"]["topicId"] == ledger.tag[0])
    before = copy.deepcopy(now)
    del before["status"]["partitions"][str(ledger.number)]
    member = ledger.entry.isr[-1]
    # The first of the oracles that are asked about the entry; the placement itself is made up.
    monkeypatch.setattr(healthy.oracles, "epochs", SimpleNamespace(landed=Mock(side_effect=InterruptedError)))
    for told, lost in ((-1, False), (member.epoch, False), (member.epoch + 1, True)):
        monkeypatch.setattr(healthy.hosts[member.id], "damage_told", told)
        monkeypatch.setattr(ledger, "damaged", False)
        with pytest.raises(InterruptedError):
            healthy.oracles.store_changed("topics", before, now)
        assert ledger.damaged is lost


def test_a_loss_that_a_restored_store_does_not_know_is_unheard_of(healthy) -> None:  # S11
    host = healthy.hosts[0]
    host.forgot_unsynced = True
    host.told(7)
    assert not host.lost_unheard(relaxed=True)
    host.untold(7)
    assert not host.lost_unheard(relaxed=True)
    host.untold(6)
    assert (host.lost_unheard(relaxed=True), host.lost_unheard(relaxed=False)) == (True, False)
    host.told(8)
    host.damage_untold = True
    assert host.lost_unheard(relaxed=False)
    host.told(9)
    assert not host.lost_unheard(relaxed=True)


def test_who_knew_of_the_end_of_a_topic_may_know_less_once_a_restore_brings_it_back(healthy, ledger, leader) -> None:
    key, newest = (leader.ref.uid, 0), ledger.entry
    older = replace(newest, partition_epoch=-1)
    known = healthy.oracles.metadata._history[key]
    known[-1] = [older]
    for restored in (False, True):
        shown = iter((newest, None, older))
        broker = SimpleNamespace(
            incarnation=f"z{restored}", host=SimpleNamespace(id=1),
            cache=SimpleNamespace(partition=lambda _r, _n, shown=shown: next(shown)),
        )  # fmt: skip
        healthy.oracles.metadata.restored = restored
        for _ in range(2):
            healthy.oracles.metadata.check(broker, {(leader.ref, 0)})
        if restored:
            healthy.oracles.metadata.check(broker, {(leader.ref, 0)})
        else:
            with fires("metadata is history"):
                healthy.oracles.metadata.check(broker, {(leader.ref, 0)})
        healthy.oracles.metadata.forget(broker)
    healthy.oracles.metadata.restored = False
    del known[-1]


def test_an_object_that_is_placed_under_another_topic_id_by_a_restored_store(healthy, leader, monkeypatch) -> None:
    metadata, ref = healthy.oracles.metadata, leader.ref
    entries = [replace(leader.replica.partition, partition_epoch=epoch) for epoch in (8, 9)]
    again = replace(ref, topic_id="another")
    monkeypatch.setattr(metadata, "_history", {(ref.uid, 0): {entry.partition_epoch: [entry] for entry in entries}})
    monkeypatch.setattr(metadata, "restored", True)
    for changed in ([(ref, 0), (again, 0)], [(again, 0), (ref, 0)]):  # a set has no order
        shown = {ref: entries[1]}
        broker = SimpleNamespace(
            incarnation="z", host=SimpleNamespace(id=1),
            cache=SimpleNamespace(partition=lambda of, _n, shown=shown: shown.get(of)),
        )  # fmt: skip
        metadata.check(broker, changed[:1] if changed[0][0] is ref else changed[1:])
        shown.clear()
        shown[again] = entries[0]
        metadata.check(broker, changed)
        metadata.forget(broker)


def test_a_partition_of_which_a_broker_knows_more_than_the_store_shows_is_not_well(
    healthy, leader, monkeypatch
) -> None:
    assert run.unhealthy(healthy) == ""
    newest = leader.replica._newest
    for more in ({"leader_epoch": newest.leader_epoch + 1}, {"partition_epoch": newest.partition_epoch + 1}):
        monkeypatch.setattr(leader.replica, "_newest", newest._replace(**more))
        assert "knows more than the store shows" in run.unhealthy(healthy)
    monkeypatch.setattr(leader.replica, "_newest", newest)
    assert run.unhealthy(healthy) == ""


def test_queues_without_bound(healthy, monkeypatch) -> None:
    monkeypatch.setattr(World, "queued", EVENTS_MAX + 1)
    with fires("bounded queues"):
        healthy.oracles.bounded.check(healthy)


@pytest.mark.parametrize("phase", ["recovers", "acknowledges", "chaos"])
def test_queues_without_bound_in_every_phase(healthy, monkeypatch, phase) -> None:
    monkeypatch.setattr(World, "queued", EVENTS_MAX + 1)
    monkeypatch.setattr(run, "unhealthy", lambda _cluster: "not yet")
    with fires("bounded queues"):
        if phase == "recovers":
            run._until(healthy, 5_000.0, "the cluster recovers")
        elif phase == "acknowledges":
            run._until_acked(healthy, healthy.history.acked)
        else:
            run._pass(healthy, healthy.world.now + 1.0)


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
    history.cluster_remade = True
    with fires("unique producer ids"):
        history.id_given("b", 5)
    history.id_given("a", 2 * 10**15)
    with pytest.raises(LimitReached):  # one clock was behind
        history.id_given("b", 2 * 10**15)
    history.cluster_remade = False
    with fires("unique producer ids"):
        history.id_given("b", 2 * 10**15)
    history.store_went_back = True
    with fires("unique producer ids"):
        history.id_given("b", 5)
    with pytest.raises(LimitReached):
        history.id_given("b", 2 * 10**15)


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
