"""A leader on the log that brokers have."""

import pytest

from kafkalite_core.protocol.record_batch import SimpleRecord, build_batch, parse_batch_header
from kafkalite_core.replica import events
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
