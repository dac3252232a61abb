"""A leader on the log that brokers have."""

import itertools

import pytest

from kafkalite_core.protocol.errors import ErrorCode
from kafkalite_core.protocol.record_batch import SimpleRecord, build_batch, parse_batch_header
from kafkalite_core.replica import events
from kafkalite_core.replica.refused import AWAKE_MS, GAPS_MS
from kafkalite_core.storage.log import LogEnvironment
from kafkalite_core.storage.log_config import LogConfig
from kafkalite_core.storage.memory_disk import MemoryDisk
from kafkalite_core.storage.recovery import open_log
from kafkalite_core.storage.tail import TailBudget
from tests.scripted.cluster import Cluster


@pytest.mark.parametrize(("log_append_time", "answered_ms"), [(True, 7000), (False, -1)])
def test_a_duplicate_is_answered_with_the_append_time_of_its_original(log_append_time: bool, answered_ms: int) -> None:
    config = LogConfig(log_append_time=log_append_time, flush_messages=2)
    log, _ = open_log(MemoryDisk(), "t-0", config, LogEnvironment(TailBudget(0)), now_ms=0)
    cluster = Cluster(1, min_isr=1, relaxed=True)
    cluster.start(1, log, 1)
    cluster.metadata(1)
    for token, wall_ms in ((1, 7000), (2, 8000)):
        batch = build_batch([SimpleRecord(500, b"k", b"v")], producer_id=7, producer_epoch=0, base_sequence=0)
        cluster.step(
            1,
            events.ProduceRequested(
                token=token, acks=1, batch=batch, header=parse_batch_header(batch), received_ms=0.0,
                deadline_ms=1e9, wall_ms=wall_ms,
            ),
        )  # fmt: skip
    assert log.end_offset == 1
    answers = [
        (answer.error_code, answer.base_offset, answer.log_append_time_ms) for answer in cluster.produced.values()
    ]
    assert answers == [(0, 0, answered_ms)] * 2


@pytest.mark.parametrize("known", [True, False])
def test_what_was_sent_behind_a_batch_that_was_given_up_waits_until_that_comes_again(known: bool) -> None:
    log, _ = open_log(MemoryDisk(), "t-0", LogConfig(flush_messages=2), LogEnvironment(TailBudget(0)), now_ms=0)
    cluster = Cluster(1, min_isr=1, relaxed=True)
    cluster.start(1, log, 1)
    cluster.metadata(1)
    settled_ms = cluster.now + GAPS_MS
    while cluster.now < settled_ms:
        cluster.now += AWAKE_MS / 2
        cluster.step(1, events.Tick())
    tokens = itertools.count()

    def produce(sequence: int, given_up: str = "") -> int:
        batch = build_batch([SimpleRecord(500, b"k", b"v")], producer_id=7, producer_epoch=0, base_sequence=sequence)
        token = next(tokens)
        cluster.step(
            1,
            events.ProduceRequested(
                token=token, acks=1, batch=batch, header=parse_batch_header(batch), received_ms=cluster.now,
                deadline_ms=1e9, wall_ms=0, given_up=given_up,
            ),
        )  # fmt: skip
        return cluster.produced[token].error_code

    first = 3
    if known:
        assert produce(first - 1) == 0
    assert produce(first, "too late") == ErrorCode.REQUEST_TIMED_OUT
    assert [produce(first + n) for n in (1, 2)] == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2
    assert [produce(first + n) for n in range(3)] == [0] * 3
    assert log.end_offset == 3 + known
