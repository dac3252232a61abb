from dataclasses import replace

import pytest

from kafkalite_core.model.errors import BrokerError, StorageError
from kafkalite_core.protocol.errors import ErrorCode
from kafkalite_core.replica import events
from kafkalite_core.replica.events import Role
from kafkalite_core.replica.follower import BACK_OFF_MIN_MS
from tests.scripted.cluster import Cluster
from tests.scripted.list_log import HEAD, Entry, ListLog


def following(*entries: tuple[int, str], start: int = 0) -> tuple[Cluster, ListLog]:
    """Broker 2 follows broker 1 in epoch 9 with a flushed log of (epoch, value)."""
    cluster = Cluster(2)
    log = cluster.nodes[2].log
    log.reset_to(start)
    for epoch, value in entries:
        log.entries.append(Entry(epoch, value))
        log.epochs.assign(epoch, log.end_offset - 1)
    log.on_disk = log.end_offset
    for _ in range(8):
        cluster.elect(1)
    cluster.start(2, log, 2)
    cluster.metadata(2)
    return cluster, log


def respond(cluster: Cluster, **changed: object) -> list[events.Effect]:
    log = cluster.nodes[2].log
    values = {
        "leader_id": 1, "leader_epoch": 9, "fetch_offset": log.end_offset,
        "last_fetched_epoch": log.epochs.latest_epoch, "error_code": 0, "high_watermark": 0, "log_start_offset": 0,
        "diverging": None, "records": memoryview(b""), "wall_ms": 0,
    }  # fmt: skip
    return cluster.step(2, events.FetchResponded(**(values | changed)))


def batch(offset: int, epoch: int, value: str) -> memoryview:
    return memoryview(HEAD.pack(offset, epoch, len(value)) + value.encode())


@pytest.mark.parametrize(
    ("entries", "diverging", "end"),
    [
        ([(1, "a"), (1, "b"), (1, "c")], (1, 2), 2),
        ([(1, "a"), (3, "b"), (3, "c")], (2, 2), 1),
        ([(1, "a"), (3, "b")], (1, 5), 1),
        ([(4, "a"), (5, "b")], (2, 3), 0),
    ],
    ids=["same epoch", "the leader's epoch is not here", "the leader has more of the epoch", "nothing in common"],
)
def test_where_it_cuts(entries: list[tuple[int, str]], diverging: tuple[int, int], end: int) -> None:
    cluster, log = following(*entries)
    respond(cluster, diverging=diverging, high_watermark=3, log_start_offset=1)
    assert log.end_offset == end
    assert (cluster.nodes[2].replica.high_watermark, log.start_offset) == (0, 0), "not from such an answer"


def test_the_high_watermark_falls_with_the_log_and_only_then() -> None:
    cluster, log = following((1, "a"), (1, "b"))
    respond(cluster, high_watermark=2)
    respond(cluster, high_watermark=1)
    assert cluster.nodes[2].replica.high_watermark == 2
    respond(cluster, diverging=(1, 1))
    assert cluster.nodes[2].replica.high_watermark == 1
    assert log.end_offset == 1


def test_no_position_until_the_flush() -> None:
    cluster, log = following((1, "a"))
    replica = cluster.nodes[2].replica
    assert replica.fetch_position() == events.FetchPosition(
        leader=1, current_leader_epoch=9, fetch_offset=1, last_fetched_epoch=1, log_start_offset=0
    )
    effects = respond(cluster, records=batch(1, 9, "b"))
    assert events.FlushWanted() in effects
    assert replica.fetch_position() is None
    cluster.flush(2)
    position = replica.fetch_position()
    assert position is not None
    assert (position.fetch_offset, position.last_fetched_epoch) == (2, 9)
    assert log.end_offset == 2


def test_what_had_room_before_the_disk_was_full_is_flushed() -> None:
    """It fetches from its flushed end on: nobody else would ask for the flush, and it would stand still."""
    cluster, log = following((1, "a"))
    append = log.append_as_follower

    def one_batch(records, **how):
        append(records, **how)
        raise StorageError("no space for the next segment")

    log.append_as_follower = one_batch
    assert events.FlushWanted() in respond(cluster, records=batch(1, 9, "b"))
    log.append_as_follower = append
    cluster.flush(2)
    position = cluster.nodes[2].replica.fetch_position()
    assert position is not None
    assert position.fetch_offset == 2


def test_the_epoch_of_a_leader_without_records_is_what_it_asks_with() -> None:
    cluster, log = following((1, "a"))
    log.epochs.assign(5, 1)
    position = cluster.nodes[2].replica.fetch_position()
    assert position is not None
    assert position.last_fetched_epoch == 5
    respond(cluster, diverging=(1, 1))
    assert log.epochs.latest_epoch == 1
    assert log.end_offset == 1


def test_an_epoch_that_was_led_in_and_not_written_in_is_forgotten() -> None:
    """After a restore another leader may have written in it (S11): by its number the two logs would agree."""
    cluster, log = following((1, "a"), (1, "b"))
    log.epochs.assign(3, 2)
    cluster.elect(1)
    cluster.metadata(2)
    position = cluster.nodes[2].replica.fetch_position()
    assert position is not None
    assert (position.current_leader_epoch, position.last_fetched_epoch) == (10, 1)


def test_an_empty_log_remembers_its_epoch() -> None:
    """Its records are deleted, and it reaches as far as those logs that have them (S11)."""
    cluster, log = following(start=7)
    log.epochs.assign(3, 7)
    cluster.elect(1)
    cluster.metadata(2)
    assert log.epochs.latest_epoch == 3


def test_a_divergence_without_progress_is_not_asked_again_at_once() -> None:
    cluster, _ = following((1, "a"))
    respond(cluster, diverging=(1, 1))
    position = cluster.nodes[2].replica.fetch_position()
    assert position is not None
    assert position.not_before_ms == cluster.now + BACK_OFF_MIN_MS


def test_back_off_grows_and_ends() -> None:
    cluster, _ = following((1, "a"))
    replica = cluster.nodes[2].replica
    for factor in (1, 2, 4):
        effects = respond(cluster, error_code=int(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        assert replica.fetch_position().not_before_ms == cluster.now + factor * BACK_OFF_MIN_MS
        assert events.FetchPositionChanged() in effects
    cluster.now += 1000
    assert cluster.step(2, events.Tick()) == [events.FetchPositionChanged()]
    assert cluster.step(2, events.Tick()) == []
    respond(cluster)
    respond(cluster, error_code=-1)
    assert replica.fetch_position().not_before_ms == cluster.now + BACK_OFF_MIN_MS


def test_an_empty_log_begins_inside_the_leaders_first_batch() -> None:
    cluster, log = following(start=5)
    log.relaxed = True
    respond(cluster, records=batch(4, 9, "x"), high_watermark=5, log_start_offset=5)
    assert (log.first, log.start_offset, log.end_offset) == (4, 5, 5)


def test_a_log_that_the_leader_has_deleted_whole_begins_anew_inside_its_first_batch() -> None:
    # After a divergence the follower ends where the leader's log begins; DeleteRecords cut the leader's first batch.
    cluster, log = following((1, "a"), (1, "b"))
    respond(cluster, records=batch(1, 9, "x"), high_watermark=2, log_start_offset=2)
    assert (log.first, log.end_offset, [entry.value for entry in log.entries]) == (1, 2, ["x"])
    assert (cluster.nodes[2].replica.high_watermark, log.start_offset) == (2, 2)


@pytest.mark.parametrize(
    ("counted_on", "leader_start", "kept"),
    [(False, 2, []), (False, 1, ["a", "b"]), (True, 2, ["a", "b"])],
    ids=["nobody can tell whether it agrees", "the leader's epochs tell", "somebody counts on it"],
)
@pytest.mark.parametrize("more", [b"", bytes(batch(2, 9, "x"))], ids=["nothing new", "new records"])
def test_what_is_all_below_the_leaders_log_start_is_given_up(
    counted_on: bool, leader_start: int, kept: list[str], more: bytes
) -> None:
    cluster, log = following((1, "a"), (1, "b"))
    entry = cluster.store.partition
    if not counted_on:
        alone = (entry.isr[0],)
        cluster.store.put(replace(entry, partition_epoch=entry.partition_epoch + 1, isr=alone, elr=()))
        cluster.metadata(2)
    respond(cluster, records=memoryview(more), high_watermark=2, log_start_offset=leader_start)
    if not kept:
        assert (log.start_offset, log.end_offset) == (2, 2), "and asks again with an empty log"
        cluster.flush(2)
        respond(cluster, records=memoryview(more), high_watermark=2, log_start_offset=2)
    values = [each.value for each in log.entries if each.value != "x"]
    assert values == kept
    assert log.end_offset == 2 + bool(more)


def test_a_batch_that_begins_before_the_end_of_a_log_with_records_is_refused() -> None:
    cluster, log = following((1, "a"), (1, "b"))
    respond(cluster, records=batch(1, 9, "x"), high_watermark=2, log_start_offset=1)
    assert [entry.value for entry in log.entries] == ["a", "b"]


def test_a_log_that_ends_inside_a_batch_of_the_leader_gives_its_newest_epoch_up_unless_it_is_counted_on() -> (
    None
):  # S11
    cluster, log = following((1, "a"), (2, "b"), (2, "c"), (2, "d"))
    entry = cluster.store.partition
    alone = (entry.isr[0],)
    for isr, elr, batch_offset, end in (
        (entry.isr, (), 3, 4), (alone, (entry.isr[1],), 3, 4), (alone, (), 4, 4), (alone, (), 3, 1), (alone, (), 0, 0),
    ):  # fmt: skip
        now = cluster.store.partition
        cluster.store.put(replace(now, partition_epoch=now.partition_epoch + 1, isr=isr, elr=elr))
        cluster.metadata(2)
        log.on_disk = log.end_offset
        bad = memoryview(b"") if batch_offset == log.end_offset else batch(batch_offset, 9, "x")
        respond(cluster, records=bad)
        assert log.end_offset == end


def test_a_batch_that_cannot_be_written_is_asked_for_again() -> None:
    cluster, log = following((1, "a"))
    respond(cluster, records=batch(7, 9, "hole"))
    assert log.end_offset == 1
    assert cluster.nodes[2].replica.fetch_position().not_before_ms > cluster.now


def test_a_corrupt_batch_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, log = following((1, "a"))

    def corrupt(*_args: object, **_kwargs: object) -> int:
        raise BrokerError(ErrorCode.CORRUPT_MESSAGE, "crc")

    monkeypatch.setattr(log, "append_as_follower", corrupt)
    respond(cluster, records=batch(1, 9, "b"))
    assert cluster.nodes[2].replica.fetch_position().not_before_ms > cluster.now


def test_beyond_a_leader_that_lost_everything_the_log_begins_anew() -> None:
    cluster, log = following(start=50)
    respond(cluster, diverging=(9, 3))
    assert (log.start_offset, log.end_offset) == (3, 3)


@pytest.mark.parametrize(
    "changed", [{"leader_epoch": 8}, {"leader_id": 3}, {"fetch_offset": 0}, {"last_fetched_epoch": 0}]
)
def test_an_answer_to_another_request_is_ignored(changed: dict[str, int]) -> None:
    cluster, log = following((1, "a"))
    assert respond(cluster, records=batch(1, 8, "b"), high_watermark=1, **changed) == []
    assert (log.end_offset, cluster.nodes[2].replica.high_watermark) == (1, 0)


def test_an_answer_from_before_a_cut_does_not_cut_what_came_after_it() -> None:
    cluster, log = following((1, "a"), (1, "b"))
    asked = {"fetch_offset": 2, "last_fetched_epoch": 1}
    respond(cluster, diverging=(1, 1), **asked)
    assert log.end_offset == 1
    respond(cluster, records=batch(1, 9, "c"), high_watermark=2)
    cluster.flush(2)
    respond(cluster, diverging=(1, 1), **asked)
    assert (log.end_offset, log.epochs.latest_epoch) == (2, 9)


def test_an_unclean_leader_calls_nothing_committed_that_it_has_not_flushed() -> None:  # S8
    cluster, log = following((1, "a"))
    respond(cluster, records=batch(1, 9, "b"), high_watermark=2)
    node = cluster.nodes[2]
    assert (node.replica.high_watermark, log.end_offset, log.flushed_end) == (2, 2, 1), "as a follower outside the ISR"
    cluster.elect(2, [2], unclean=True)
    cluster.set_min_isr(1)
    cluster.metadata(2)
    assert node.replica.role is Role.LEADER
    assert node.replica.high_watermark == 1
    cluster.flush(2)
    assert node.replica.high_watermark == 2
