"""S11: what the store shows must fit into one history with what this broker has seen."""

from dataclasses import replace

import pytest
from msgspec import structs

from kafkalite_core.model.partition import IsrEntry, Seen
from kafkalite_core.protocol.errors import ErrorCode
from kafkalite_core.replica import events
from kafkalite_core.replica.events import FetchRequested, Role
from kafkalite_core.replica.newest import Newest
from kafkalite_core.replica.replica import Replica
from tests.scripted.cluster import Cluster

BASE = Cluster(3).store.partition


def entry(leader_epoch, partition_epoch, leader=1):
    return replace(BASE, leader_epoch=leader_epoch, partition_epoch=partition_epoch, leader=leader)


@pytest.mark.parametrize(
    ("shown", "taken", "contradicted"),
    [
        (entry(5, 20), True, False),
        (entry(5, 21), True, False),
        (entry(6, 21, leader=2), True, False),
        (entry(5, 19), False, False),
        (entry(4, 19, leader=2), False, False),
        (entry(6, 19), False, True),
        (entry(6, 20), False, True),
        (entry(4, 20), False, True),
        (entry(4, 21), False, True),
        (entry(5, 21, leader=2), False, True),
        (entry(5, 21, leader=0), False, True),
        (entry(5, 19, leader=2), False, True),
    ],
)
def test_what_fits_into_one_history(shown, taken, contradicted):
    newest, first = Newest(-1, -1).shown(entry(5, 20))
    assert first
    newest, result = newest.shown(shown)
    assert (result, newest.contradicted) == (taken, contradicted)


@pytest.mark.parametrize(("shown", "taken"), [((5, 20), True), ((6, 25), True), ((5, 19), False), ((4, 30), False)])
def test_the_first_entry_of_a_process_is_not_below_what_the_disk_knows(shown, taken):
    newest, result = Newest(5, 20).shown(entry(*shown))
    assert (result, newest.contradicted) == (taken, not taken)


def test_a_contradiction_ends_when_both_epochs_are_above_everything():
    newest, _ = Newest(5, 20).shown(entry(4, 15))
    for shown in ((5, 20), (5, 25), (6, 20), (4, 30), (6, 31), (7, 31)):
        newest, taken = newest.shown(entry(*shown))
        assert (taken, newest.contradicted) == (False, True)
    newest, taken = newest.shown(entry(8, 32))
    assert (taken, newest.contradicted) == (True, False)


def test_the_disk_is_to_note_what_it_has_noted_until_a_newer_entry_is_taken():
    noted = Seen(
        leader_epoch=9, partition_epoch=40, isr=(IsrEntry(1, 1), IsrEntry(4, 6)), isr_epoch=33, isr_leader_epoch=7
    )
    known = Newest.noted(noted, 5)
    assert known.seen == noted
    assert Newest.noted(noted, 12).seen == noted._replace(leader_epoch=12), "the log has come further"
    below, _ = known.shown(entry(10, 39))
    assert below.seen == noted._replace(leader_epoch=10), "neither epoch falls"
    refused, taken = known.shown(entry(9, 41))
    assert (taken, refused.seen) == (False, noted._replace(partition_epoch=41)), "what was refused before stays so"
    newest, taken = refused.shown(replace(entry(10, 42), isr=BASE.isr[::-1]))
    assert (taken, newest.seen) == (True, Seen(10, 42, tuple(sorted(BASE.isr)), 42, 10))


@pytest.mark.parametrize(
    ("isr", "taken"),
    [
        (BASE.isr, True),
        (BASE.isr[:2], False),
        ([IsrEntry(one.id, -1) for one in BASE.isr], True),
        ([IsrEntry(1, -1), IsrEntry(9, -1)], False),
    ],
    ids=["the same", "one less", "the same, and no broker epochs", "others, and no broker epochs"],
)
def test_a_partition_epoch_has_one_isr(isr, taken):
    known = Newest.noted(Seen(5, 20, tuple(isr), 20, 5), -1)
    assert known.shown(entry(5, 20))[1] == taken


def test_a_report_names_the_epochs_of_what_was_not_taken_as_well():
    """The past that contradicts the log is lost in turn: the metadata cache has seen it, and keeps its higher epochs."""
    made = Cluster(3)
    node = made.nodes[1]
    replica = Replica(
        broker_id=1,
        number=0,
        ref=made.ref,
        log=node.log,
        high_watermark=0,
        lag_time_max_ms=1000,
        seen=Seen(leader_epoch=3, partition_epoch=1, isr=(IsrEntry(1, 1), IsrEntry(2, 2)), isr_epoch=1),
    )
    for past in (entry(1, 2), entry(3, 7)):
        changed = events.MetadataChanged(
            partition=past, brokers=made.store.brokers, broker_epoch=node.epoch, config=made.config
        )
        replica.step(0.0, changed)
    holding = replica.holding()
    assert (holding.leader_epoch, holding.partition_epoch, holding.agrees) == (3, 7, False)
    assert (holding.isr, holding.isr_epoch) == ((IsrEntry(1, 1), IsrEntry(2, 2)), 1)


# ---------------------------------------------------------------- and what a replica does about it


@pytest.fixture
def cluster() -> Cluster:
    """Broker 1 leads in epoch 1; record a is committed, b is not."""
    made = Cluster(3)
    for number in (1, 2, 3):
        made.metadata(number)
    made.produce(1, "a")
    made.flush(1)
    for number in (2, 3):
        for _ in range(2):
            made.step(number, made.ask(number, 1)[1])
            made.flush(number)
    made.produce(1, "b")
    made.flush(1)
    return made


def went_back(cluster: Cluster, number: int, *, back: bool = True, partition=None) -> list[events.Effect]:
    changed = events.MetadataChanged(
        partition=partition or cluster.store.partition,
        brokers=cluster.store.brokers,
        broker_epoch=cluster.nodes[number].epoch,
        config=cluster.config,
        went_back=back,
    )
    return cluster.step(number, changed)


def test_a_leader_acknowledges_nothing_and_is_none_any_more(cluster: Cluster) -> None:
    effects = went_back(cluster, 1)
    assert cluster.produced[2].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert next(e.event for e in effects if isinstance(e, events.Decided)) == "store_went_back"
    replica = cluster.nodes[1].replica
    assert (replica.role, replica.store_went_back) == (Role.OFFLINE, True)
    assert (cluster.nodes[1].replica.holding().agrees, cluster.nodes[2].replica.holding().agrees) == (False, True)
    cluster.produce(1, "c", 1)
    assert cluster.produced[3].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    cluster.step(
        1,
        FetchRequested(
            token=0, replica_id=2, replica_epoch=2, current_leader_epoch=1, fetch_offset=1, last_fetched_epoch=1
        ),
    )
    assert cluster.answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    cluster.now += 10_000
    cluster.step(1, events.Tick())
    assert cluster.proposals == []


def test_a_follower_neither_fetches_nor_cuts(cluster: Cluster) -> None:
    answer = cluster.ask(2, 1)[1]
    went_back(cluster, 2)
    assert cluster.nodes[2].replica.fetch_position() is None

    cluster.step(2, structs.replace(answer, diverging=(0, 0), records=memoryview(b"")))
    assert cluster.nodes[2].log.end_offset == 1


def test_it_goes_on_when_the_list_was_wrong_and_when_the_operator_has_written_higher_epochs(cluster: Cluster) -> None:
    went_back(cluster, 1)
    went_back(cluster, 1, back=False)
    assert cluster.nodes[1].replica.role is Role.LEADER
    older = replace(cluster.store.partition, leader=2, partition_epoch=2)
    went_back(cluster, 1, back=False, partition=older)
    assert cluster.nodes[1].replica.role is Role.OFFLINE, "another leader in the same epoch"
    went_back(cluster, 1, back=False)
    assert cluster.nodes[1].replica.role is Role.OFFLINE, "a late entry of the old history heals nothing"
    isr = (IsrEntry(1, 1), IsrEntry(2, 2))
    recovered = replace(cluster.store.partition, leader=1, leader_epoch=2, partition_epoch=3, isr=isr)
    went_back(cluster, 1, back=False, partition=recovered)
    assert cluster.nodes[1].replica.role is Role.LEADER


def test_a_restarted_replica_holds_the_store_to_what_its_disk_knows(cluster: Cluster) -> None:
    log = cluster.nodes[1].log
    for seen, role in (((-1, -1), Role.LEADER), ((2, 1), Role.OFFLINE), ((0, 9), Role.OFFLINE), ((0, 1), Role.LEADER)):
        replica = Replica(
            broker_id=1, number=0, ref=cluster.ref, log=log, high_watermark=0, lag_time_max_ms=1000, seen=Seen(*seen)
        )
        log.epochs.truncate_from_end(0)
        replica.step(
            0.0,
            events.MetadataChanged(
                partition=cluster.store.partition, brokers=cluster.store.brokers, broker_epoch=1, config=cluster.config
            ),
        )
        assert replica.role is role, seen
        holding = replica.holding()
        assert (holding.topic_id, holding.partition, holding.end_offset) == (cluster.ref.topic_id, 0, 2)
        assert holding.leader_epoch == max(seen[0], cluster.store.partition.leader_epoch)


def test_a_partition_epoch_has_one_isr_also_after_a_restart(cluster: Cluster) -> None:
    """Of the same partition epoch the disk has noted another ISR: the store was restored, and written on to it (S11)."""
    log, entry = cluster.nodes[1].log, cluster.store.partition
    epoch, same = entry.partition_epoch, tuple(sorted(entry.isr))
    others, without = (IsrEntry(1, 1), IsrEntry(9, 2)), tuple(IsrEntry(one.id, -1) for one in same)
    later = (replace(same[0], epoch=same[0].epoch + 1), *same[1:])
    for seen, went_back in (
        ((epoch, others), True),
        ((epoch, later), True),
        ((epoch, same), False),
        ((epoch, without), False),
        ((epoch - 1, others), False),
        ((epoch, ()), False),
    ):
        log.epochs.truncate_from_end(0)
        replica = Replica(
            broker_id=1, number=0, ref=cluster.ref, log=log, high_watermark=0, lag_time_max_ms=1000,
            seen=Seen(entry.leader_epoch, *seen, seen[0] if seen[1] else -1),
        )  # fmt: skip
        replica.step(
            0.0,
            events.MetadataChanged(
                partition=entry, brokers=cluster.store.brokers, broker_epoch=1, config=cluster.config
            ),
        )
        assert replica.store_went_back == went_back, seen


def restarted(cluster: Cluster, seen: Seen) -> Replica:
    """Broker 1 before it is shown anything."""
    return Replica(
        broker_id=1, number=0, ref=cluster.ref, log=cluster.nodes[1].log, high_watermark=0, lag_time_max_ms=1000,
        seen=seen,
    )  # fmt: skip


def test_who_was_shown_nothing_yet_reports_what_its_disk_has_noted(cluster: Cluster) -> None:
    isr = (IsrEntry(1, 1), IsrEntry(4, 6))
    replica = restarted(cluster, Seen(9, 40, isr, 33, 7))
    holding = replica.holding()
    assert (holding.leader_epoch, holding.partition_epoch) == (9, 40)
    assert (holding.isr, holding.isr_epoch, holding.isr_leader_epoch) == (isr, 33, 7), "others were refused since"
    assert (holding.agrees, replica.shown) == (False, (-1, -1)), "it goes by nothing so far"
    latest = restarted(cluster, Seen(9, 40, isr, 40, 7)).holding()
    assert (latest.isr_epoch, latest.isr_leader_epoch, latest.agrees) == (None, 7, False)
    assert restarted(cluster, Seen(9, 40)).holding().isr_leader_epoch is None, "it is no entry's"


@pytest.mark.parametrize(
    ("shown", "broker_epoch", "disowned"),
    [
        (entry(1, 8), 1, True),
        (entry(2, 8), 1, False),
        (entry(1, 8, leader=2), 1, False),
        (entry(1, 8), 3, False),
        (entry(1, 8), 0, False),
    ],
    ids=["this incarnation", "in a new epoch", "another broker", "an earlier incarnation", "a later one"],
)
def test_who_is_to_lead_anew_in_an_epoch_that_its_log_has_was_forgotten_by_the_store(
    cluster: Cluster, shown, broker_epoch, disowned
) -> None:
    replica = restarted(cluster, Seen(1, 1))
    assert not replica.store_went_back, "nothing is shown yet"
    changed = events.MetadataChanged(
        partition=shown, brokers=cluster.store.brokers, broker_epoch=broker_epoch, config=cluster.config
    )
    replica.step(0.0, changed)
    assert (replica.store_went_back, replica.shown) == (disowned, (shown.leader_epoch, 8))


def test_a_report_tells_of_what_is_flushed(cluster: Cluster) -> None:
    log = cluster.nodes[1].log
    log.append_as_leader(b"c", leader_epoch=7, now_ms=0)
    holding = restarted(cluster, Seen(1, 1)).holding()
    assert (holding.log_epoch, holding.end_offset) == (1, 2)
    assert holding.leader_epoch == 7, "of epochs none is to be used again"


def test_what_the_disk_knows_of_the_isr_is_reported_until_a_newer_entry_is_shown(cluster: Cluster) -> None:
    noted = (IsrEntry(1, 1), IsrEntry(4, 6))
    log = cluster.nodes[1].log
    log.epochs.truncate_from_end(0)
    replica = Replica(
        broker_id=1,
        number=0,
        ref=cluster.ref,
        log=log,
        high_watermark=0,
        lag_time_max_ms=1000,
        seen=Seen(7, 9, noted, 9),
    )
    entry = cluster.store.partition
    for partition, isr in (
        (entry, noted),
        (replace(entry, leader_epoch=8, partition_epoch=10), tuple(sorted(entry.isr))),
    ):
        replica.step(
            0.0,
            events.MetadataChanged(
                partition=partition, brokers=cluster.store.brokers, broker_epoch=1, config=cluster.config
            ),
        )
        assert replica.holding().isr == isr


@pytest.mark.parametrize("seen", [(1, 1), (-1, -1)], ids=["noted", "nothing noted yet"])
@pytest.mark.parametrize("number", [1, 2], ids=["leader", "follower"])
def test_the_log_itself_knows_an_epoch(cluster: Cluster, number, seen) -> None:
    log = cluster.nodes[number].log
    log.epochs.assign(7, 2)
    replica = Replica(
        broker_id=number, number=0, ref=cluster.ref, log=log, high_watermark=0, lag_time_max_ms=1000, seen=Seen(*seen)
    )
    replica.step(
        0.0,
        events.MetadataChanged(
            partition=cluster.store.partition, brokers=cluster.store.brokers, broker_epoch=number, config=cluster.config
        ),
    )
    assert replica.store_went_back
    assert (replica.holding().leader_epoch, replica.holding().log_epoch) == (7, 1), "no record of epoch 7"
    log.epochs.truncate_from_end(0)
    log.epochs.assign(7, 0)
    assert replica.holding().log_epoch == 7
    log.epochs.truncate_from_end(0)
    log.epochs.assign(9, 0)
    assert (replica.holding().leader_epoch, replica.holding().log_epoch) == (9, 9), "whatever it was shown"
