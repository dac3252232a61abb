from dataclasses import replace

import pytest

from kafkalite_core.model.errors import BrokerError
from kafkalite_core.model.partition import IsrEntry
from kafkalite_core.protocol.errors import ErrorCode
from kafkalite_core.replica import events
from kafkalite_core.replica.events import CONSUMER_ID, FetchRequested, Role
from kafkalite_core.replica.refused import GAPS_MS
from tests.scripted.cluster import Cluster


@pytest.fixture
def cluster() -> Cluster:
    made = Cluster(3)
    for number in (1, 2, 3):
        made.metadata(number)
    return made


def code(cluster: Cluster, token: int) -> int:
    return cluster.produced[token].error_code


def fetch(cluster: Cluster, number: int, **changed: object) -> events.FetchAnswered:
    values = {
        "token": 1, "replica_id": CONSUMER_ID, "replica_epoch": -1, "current_leader_epoch": -1, "fetch_offset": 0,
        "last_fetched_epoch": -1,
    }  # fmt: skip
    cluster.step(number, FetchRequested(**(values | changed)))
    answer, cluster.answer = cluster.answer, None
    assert answer is not None
    return answer


def test_offline_before_metadata_and_while_not_registered(cluster: Cluster) -> None:
    node = cluster.start(2, cluster.nodes[2].log, -1)
    assert node.replica.role is Role.OFFLINE
    assert node.replica.fetch_position() is None
    cluster.metadata(2)
    assert node.replica.role is Role.OFFLINE


@pytest.mark.parametrize("acks", [2, -2, 7])
def test_acks_are_all_one_or_none(cluster: Cluster, acks: int) -> None:
    cluster.produce(1, "a", acks)
    assert code(cluster, 1) == ErrorCode.INVALID_REQUIRED_ACKS
    assert cluster.nodes[1].log.end_offset == 0


def test_acks_none_at_once_acks_one_after_the_own_flush_acks_all_after_the_isr(cluster: Cluster) -> None:
    for acks in (0, 1, -1):
        cluster.produce(1, f"v{acks}", acks)
    assert sorted(cluster.produced) == [1]
    cluster.flush(1)
    assert sorted(cluster.produced) == [1, 2]
    for follower in (2, 3):
        for _ in range(2):
            _, answer = cluster.ask(follower, 1)
            cluster.step(follower, answer)
            cluster.flush(follower)
    assert cluster.produced[3].base_offset == 2


def test_relaxed_flush_answers_acks_one_at_once() -> None:
    relaxed = Cluster(3, relaxed=True)
    relaxed.metadata(1)
    relaxed.produce(1, "a", 1)
    assert relaxed.produced[1].base_offset == 0


def test_a_leader_alone_commits_by_itself() -> None:
    alone = Cluster(1, min_isr=1, relaxed=True)
    alone.metadata(1)
    alone.produce(1, "a")
    assert alone.produced[1].error_code == 0
    assert alone.nodes[1].replica.high_watermark == 1


def in_sync(cluster: Cluster, isr: tuple[IsrEntry, ...]) -> None:
    """The leader is told of another ISR."""
    now = cluster.store.partition
    cluster.store.put(replace(now, isr=isr, partition_epoch=now.partition_epoch + 1))
    cluster.metadata(1)


def awake(cluster: Cluster, for_ms: float) -> None:
    """Time goes by, and the leader's process runs."""
    until_ms = cluster.now + for_ms
    while cluster.now < until_ms:
        cluster.now = min(cluster.now + 500.0, until_ms)
        cluster.step(1, events.Tick())


def test_what_was_sent_behind_a_refused_batch_is_sent_again_after_it(cluster: Cluster) -> None:
    isr = cluster.store.partition.isr
    cluster.produce(1, "p7.0")
    in_sync(cluster, isr[:1])  # too few
    cluster.produce(1, "p7.1")
    assert code(cluster, 2) == ErrorCode.NOT_ENOUGH_REPLICAS
    in_sync(cluster, isr)
    cluster.produce(1, "p7.2")  # it was under way when its predecessor was refused
    assert code(cluster, 3) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert ErrorCode.NOT_LEADER_OR_FOLLOWER.is_retriable
    cluster.produce(1, "p7.1")
    cluster.produce(1, "p7.2")
    assert [entry.value for _, entry in cluster.nodes[1].log.records()] == ["p7.0", "p7.1", "p7.2"]


def test_what_was_sent_behind_a_refused_first_batch_is_sent_again_after_it(cluster: Cluster) -> None:
    isr = cluster.store.partition.isr
    awake(cluster, GAPS_MS)
    in_sync(cluster, isr[:1])  # too few
    cluster.produce(1, "p7.0")
    assert code(cluster, 1) == ErrorCode.NOT_ENOUGH_REPLICAS
    in_sync(cluster, isr)
    cluster.produce(1, "p7.1")  # appended it would acknowledge the first one as well, for librdkafka
    assert code(cluster, 2) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    cluster.produce(1, "p7.0")
    cluster.produce(1, "p7.1")
    assert [entry.value for _, entry in cluster.nodes[1].log.records()] == ["p7.0", "p7.1"]


def test_the_first_of_an_unknown_producer_that_was_refused_is_the_first_that_is_appended(cluster: Cluster) -> None:
    """However late what is behind it comes: appended it would acknowledge the other as well, for librdkafka."""
    awake(cluster, GAPS_MS)
    cluster.elect(1)
    cluster.metadata(1)
    awake(cluster, GAPS_MS - 1)
    cluster.produce(1, "p7.4")
    assert code(cluster, 1) == ErrorCode.NOT_LEADER_OR_FOLLOWER, "who was leader may have refused one before it"
    cluster.now += 1
    cluster.produce(1, "p7.5")
    assert code(cluster, 2) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    for value in ("p7.4", "p7.5"):
        cluster.produce(1, value)
    assert [entry.value for _, entry in cluster.nodes[1].log.records()] == ["p7.4", "p7.5"]


def test_a_batch_that_comes_twice_after_an_election_does_not_begin_behind_what_others_refused(cluster: Cluster) -> None:
    """On a connection that its producer gave up, and on the next one, before what is missing is sent again there."""
    awake(cluster, GAPS_MS)
    cluster.elect(1)
    cluster.metadata(1)
    for _ in range(3):
        cluster.produce(1, "p7.4")
    assert {code(cluster, number) for number in (1, 2, 3)} == {ErrorCode.NOT_LEADER_OR_FOLLOWER}
    for value in ("p7.0", "p7.1"):
        cluster.produce(1, value)
    assert [entry.value for _, entry in cluster.nodes[1].log.records()] == ["p7.0", "p7.1"]


def test_while_a_leader_did_not_run_what_was_sent_before_waits_in_its_sockets(cluster: Cluster) -> None:
    awake(cluster, GAPS_MS)
    cluster.elect(1)
    cluster.metadata(1)
    cluster.now += 10 * GAPS_MS  # SIGSTOP
    cluster.produce(1, "p7.4")
    assert code(cluster, 1) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    awake(cluster, GAPS_MS)
    cluster.produce(1, "p7.4")
    assert [entry.value for _, entry in cluster.nodes[1].log.records()] == ["p7.4"]


def test_what_is_refused_for_another_reason_after_an_election_is_not_the_first_either(cluster: Cluster) -> None:
    isr = cluster.store.partition.isr
    awake(cluster, GAPS_MS)
    cluster.elect(1)
    cluster.metadata(1)
    in_sync(cluster, isr[:1])  # too few
    cluster.produce(1, "p7.4")
    assert code(cluster, 1) == ErrorCode.NOT_ENOUGH_REPLICAS
    in_sync(cluster, isr)
    cluster.produce(1, "p7.4")
    assert code(cluster, 2) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    awake(cluster, GAPS_MS)
    cluster.produce(1, "p7.4")
    assert [entry.value for _, entry in cluster.nodes[1].log.records()] == ["p7.4"]


def test_an_unknown_producer_goes_on_as_soon_as_what_was_refused_comes_again(cluster: Cluster) -> None:
    isr = cluster.store.partition.isr
    awake(cluster, GAPS_MS)
    in_sync(cluster, isr[:1])  # too few
    for value in ("p7.4", "p7.5"):
        cluster.produce(1, value)
    in_sync(cluster, isr)
    cluster.produce(1, "p7.5")
    assert code(cluster, 3) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    cluster.produce(1, "p7.4")
    cluster.produce(1, "p7.5")
    assert [entry.value for _, entry in cluster.nodes[1].log.records()] == ["p7.4", "p7.5"]


def test_what_was_refused_and_never_comes_again_is_not_waited_for(cluster: Cluster) -> None:
    isr = cluster.store.partition.isr
    awake(cluster, GAPS_MS)
    in_sync(cluster, isr[:1])  # too few
    cluster.produce(1, "p7.4")
    in_sync(cluster, isr)
    awake(cluster, GAPS_MS)
    cluster.produce(1, "p7.5")
    cluster.produce(1, "p7.6")
    assert code(cluster, 2) == code(cluster, 3) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    cluster.produce(1, "p7.5")
    cluster.produce(1, "p7.6")
    assert [entry.value for _, entry in cluster.nodes[1].log.records()] == ["p7.5", "p7.6"]


def test_a_full_disk_takes_nothing_behind_what_it_refused(cluster: Cluster) -> None:
    awake(cluster, GAPS_MS)
    cluster.nodes[1].log.full = True
    cluster.produce(1, "p7.0")
    assert code(cluster, 1) == ErrorCode.KAFKA_STORAGE_ERROR
    cluster.nodes[1].log.full = False
    awake(cluster, GAPS_MS)
    cluster.produce(1, "p7.1")
    assert code(cluster, 2) == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_producer_that_was_forgotten_goes_on_where_it_is(cluster: Cluster) -> None:
    awake(cluster, GAPS_MS)
    cluster.produce(1, "p7.4")
    assert [entry.value for _, entry in cluster.nodes[1].log.records()] == ["p7.4"]


def test_a_gap_of_which_the_leader_knows_nothing_is_out_of_order(cluster: Cluster) -> None:
    isr = cluster.store.partition.isr
    awake(cluster, GAPS_MS)
    cluster.produce(1, "p7.0")
    cluster.produce(1, "p7.2")
    assert code(cluster, 2) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    in_sync(cluster, isr[:1])  # too few
    cluster.produce(1, "p7.1")
    in_sync(cluster, isr)
    awake(cluster, GAPS_MS)
    cluster.produce(1, "p7.2")
    assert code(cluster, 4) == ErrorCode.NOT_LEADER_OR_FOLLOWER, "it was refused here"
    cluster.produce(1, "p7.2")
    assert code(cluster, 5) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_the_batch_before_may_have_been_refused_by_who_did_not_know_yet_that_it_leads(cluster: Cluster) -> None:
    awake(cluster, GAPS_MS)
    cluster.produce(1, "p7.0")
    cluster.elect(1)
    cluster.metadata(1)
    cluster.produce(1, "p7.2")
    assert code(cluster, 2) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    awake(cluster, GAPS_MS)
    cluster.produce(1, "p7.2")
    assert code(cluster, 3) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_time_outs(cluster: Cluster) -> None:
    cluster.produce(1, "a", -1, timeout_ms=100)
    cluster.produce(1, "b", 1, timeout_ms=200)
    cluster.now += 100
    cluster.step(1, events.Tick())
    assert code(cluster, 1) == ErrorCode.REQUEST_TIMED_OUT
    assert 2 not in cluster.produced
    cluster.now += 100
    cluster.step(1, events.Tick())
    assert code(cluster, 2) == ErrorCode.REQUEST_TIMED_OUT


def test_no_one_else_answers_clients(cluster: Cluster) -> None:
    cluster.produce(2, "a")
    assert code(cluster, 1) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert fetch(cluster, 2).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    with pytest.raises(BrokerError) as refused:
        cluster.nodes[2].replica.list_offset_bounds(-1, False)
    assert refused.value.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_consumers_read_below_the_high_watermark_only(cluster: Cluster) -> None:
    cluster.produce(1, "a", 1)
    answer = fetch(cluster, 1, fetch_offset=1)
    assert (answer.error_code, answer.read_from, answer.read_end) == (0, 1, 1)
    assert fetch(cluster, 1, fetch_offset=2).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    answer = fetch(cluster, 1, fetch_offset=1, last_fetched_epoch=0)
    assert answer.diverging == (0, 0)


def follower_fetch(cluster: Cluster, **changed: object) -> events.FetchAnswered:
    return fetch(cluster, 1, **({"replica_id": 2, "replica_epoch": 2, "current_leader_epoch": 1} | changed))


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, ErrorCode.NONE),
        ({"current_leader_epoch": -1}, ErrorCode.UNKNOWN_LEADER_EPOCH),
        ({"current_leader_epoch": 0}, ErrorCode.FENCED_LEADER_EPOCH),
        ({"current_leader_epoch": 2}, ErrorCode.UNKNOWN_LEADER_EPOCH),
        ({"replica_id": 9}, ErrorCode.UNKNOWN_LEADER_EPOCH),
        ({"replica_epoch": 1}, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        ({"replica_epoch": -1}, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        ({"replica_epoch": 3}, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ],
)
def test_followers_are_fenced(cluster: Cluster, changed: dict[str, int], expected: ErrorCode) -> None:
    assert follower_fetch(cluster, **changed).error_code == expected


def test_a_second_look_at_a_waiting_fetch_does_not_touch_the_follower(cluster: Cluster) -> None:
    cluster.produce(1, "a", 1)
    follower_fetch(cluster, fetch_offset=1, last_fetched_epoch=1, reread=True)
    assert not cluster.nodes[1].replica._leader._followers.get(2, 2).fetched
    follower_fetch(cluster, fetch_offset=1, last_fetched_epoch=1)
    assert cluster.nodes[1].replica._leader._followers.get(2, 2).fetched


def test_a_follower_that_diverges_is_told_where_and_counts_for_nothing(cluster: Cluster) -> None:
    cluster.produce(1, "a", 1)
    assert follower_fetch(cluster, fetch_offset=5, last_fetched_epoch=1).diverging == (1, 1)
    assert follower_fetch(cluster, fetch_offset=5, last_fetched_epoch=7).diverging == (1, 1)
    assert follower_fetch(cluster, fetch_offset=5).diverging == (1, 1)
    assert not cluster.nodes[1].replica._leader._followers.get(2, 2).fetched


@pytest.mark.parametrize(
    ("offset", "epoch", "diverging"),
    [(1, 2, (1, 2)), (2, 2, None), (3, 2, None), (2, 1, None), (1, 1, None), (0, 2, (1, 2))],
)
def test_an_epoch_that_began_earlier_in_the_log_of_a_follower_is_not_the_same_one(
    cluster: Cluster, offset: int, epoch: int, diverging: tuple[int, int] | None
) -> None:  # S11
    cluster.produce(1, "a", 1)
    cluster.produce(1, "b", 1)
    cluster.elect(1)
    cluster.metadata(1)
    cluster.produce(1, "c", 1)
    answer = follower_fetch(cluster, current_leader_epoch=2, fetch_offset=offset, last_fetched_epoch=epoch)
    assert answer.diverging == diverging
    assert fetch(cluster, 1, fetch_offset=offset, last_fetched_epoch=epoch).diverging is None, "a consumer may jump"


def test_below_the_log_start_comes_before_divergence(cluster: Cluster) -> None:
    cluster.produce(1, "a", 1)
    cluster.nodes[1].log.advance_start(1)
    answer = follower_fetch(cluster, last_fetched_epoch=0)
    assert (answer.error_code, answer.log_start_offset) == (ErrorCode.OFFSET_OUT_OF_RANGE, 1)


def test_own_new_broker_epoch_ends_the_leadership(cluster: Cluster) -> None:
    cluster.produce(1, "a")
    cluster.nodes[1].epoch = 8
    effects = cluster.metadata(1)
    assert cluster.nodes[1].replica.role is Role.OFFLINE
    assert code(cluster, 1) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert any(isinstance(effect, events.RoleChanged) for effect in effects)


def test_no_leadership_in_an_epoch_that_the_log_knows_from_another_incarnation(cluster: Cluster) -> None:
    cluster.nodes[2].log.epochs.assign(2, 0)
    cluster.elect(2)
    cluster.metadata(2)
    assert cluster.nodes[2].replica.role is Role.OFFLINE


def test_re_election_keeps_those_who_wait(cluster: Cluster) -> None:
    cluster.produce(1, "a")
    cluster.flush(1)
    cluster.elect(1)
    cluster.metadata(1)
    assert not cluster.produced
    for follower in (2, 3):
        cluster.metadata(follower)
        for _ in range(2):
            _, answer = cluster.ask(follower, 1)
            cluster.step(follower, answer)
            cluster.flush(follower)
    assert cluster.produced[1].base_offset == 0


def test_the_epoch_is_compared_before_the_partition_epoch(cluster: Cluster) -> None:
    replica = cluster.nodes[2].replica
    first = cluster.store.partition
    newer = replace(first, leader=3, leader_epoch=2, partition_epoch=2)
    cluster.metadata(2, newer)
    cluster.metadata(2, replace(first, partition_epoch=9))
    assert replica.partition == newer
    cluster.metadata(2, replace(newer, partition_epoch=1))
    assert replica.partition == newer


def test_an_entry_that_comes_back_older_than_it_was_is_ignored(cluster: Cluster) -> None:
    cluster.elect(2)
    cluster.metadata(2)
    node = cluster.nodes[2]
    cluster.step(2, events.MetadataChanged(partition=None, brokers={}, broker_epoch=node.epoch, config=cluster.config))
    assert (node.replica.role, node.replica.partition) == (Role.OFFLINE, None)
    cluster.metadata(2, cluster.store.history[0])
    assert node.replica.partition is None
    cluster.metadata(2)
    assert node.replica.role is Role.LEADER


def test_gauges(cluster: Cluster) -> None:
    replica = cluster.nodes[1].replica
    assert (replica.under_replicated, replica.under_min_isr, replica.at_min_isr) == (False, False, False)
    now = cluster.store.partition
    cluster.store.put(replace(now, partition_epoch=2, isr=now.isr[:2]))
    cluster.metadata(1)
    assert (replica.under_replicated, replica.under_min_isr, replica.at_min_isr) == (True, False, True)
    cluster.store.put(replace(now, partition_epoch=3, isr=(IsrEntry(1, 1),)))
    cluster.metadata(1)
    assert (replica.under_replicated, replica.under_min_isr, replica.at_min_isr) == (True, True, False)
    assert cluster.nodes[2].replica.under_replicated is False


def test_tightened_flush_wants_a_flush() -> None:
    cluster = Cluster(2, relaxed=True)
    cluster.metadata(1)
    cluster.produce(1, "a", 1)
    cluster.nodes[1].log.relaxed = False
    assert events.FlushWanted() in cluster.metadata(1)


def test_another_lag_time_counts_from_the_next_look_on(cluster: Cluster) -> None:
    cluster.produce(1, "a")
    cluster.flush(1)
    leader = cluster.nodes[1].replica
    leader.reconfigure(lag_time_max_ms=10_000)
    cluster.now += 5000
    cluster.step(1, events.Tick())
    assert cluster.proposals == []
    leader.reconfigure(lag_time_max_ms=1000)
    cluster.step(1, events.Tick())
    assert cluster.proposals[0].effect.proposed.isr == (IsrEntry(1, 1),)
