"""Consumers of the simulator read from the replica in their rack that its leader names, and from nobody who may not."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from kafkalite_core.protocol.errors import ErrorCode
from kafkalite_core.protocol.fetch import FetchRequest, PartitionData
from tests.simulation.batches import marks_of
from tests.simulation.clients import Sent, read_for
from tests.simulation.swarm import draw
from tests.simulation.world import Violation
from tests.unit.simulation.test_edges import cluster_of, leading, run_for

KEY = ("t0", 0)


@pytest.fixture
def racked():
    cluster = cluster_of(racks=("r0", "r1", "r2"), reader_racks=("",), fetch_version=13)
    run_for(cluster, 2_000.0)
    (consumer,) = cluster.consumers
    follower = next(host for host in cluster.host_list if host is not leading(cluster))
    consumer._request = Sent(13, FetchRequest(rack_id=follower.rack))
    return SimpleNamespace(cluster=cluster, consumer=consumer, follower=follower)


def test_every_second_history_has_racks_and_some_of_its_consumers_are_in_one() -> None:
    shapes = [draw(seed) for seed in range(200)]
    racked = [shape for shape in shapes if shape.racks]
    assert 70 < len(racked) < 130
    assert all(len(shape.racks) == shape.brokers for shape in racked)
    assert {bool(rack) for shape in racked for rack in shape.reader_racks} == {True, False}
    assert {shape.fetch_version for shape in shapes} == {10, 13}


def test_a_consumer_reads_from_the_replica_in_its_rack(racked) -> None:
    registered = racked.cluster.oracles.brokers
    assert [registered[number].registration.rack for number in range(3)] == ["r0", "r1", "r2"]
    before = racked.consumer._positions[KEY][1]
    run_for(racked.cluster, 3_000.0)
    assert racked.consumer.elsewhere > 0
    assert racked.consumer._preferred[KEY][0] == racked.follower.id
    assert racked.consumer._positions[KEY][1] > before


def test_without_the_selector_nobody_is_sent_elsewhere(racked) -> None:
    driver = leading(racked.cluster).broker.driver(*KEY)
    assert (
        read_for(racked.consumer._request, driver, 0, rack_aware=True)[0].preferred_read_replica == racked.follower.id
    )
    data, records = read_for(racked.consumer._request, driver, 0, rack_aware=False)
    assert data.preferred_read_replica == -1
    assert records


def test_a_replica_that_follows_serves_up_to_the_high_watermark_that_it_knows(racked) -> None:
    driver = racked.follower.broker.driver(*KEY)
    mark = driver.replica.high_watermark
    position, end = 0, -1
    while position > end:
        end = position
        data, records = read_for(racked.consumer._request, driver, position, rack_aware=True)
        position = max([position, *(mark.next for mark, _ in marks_of(records))])
    assert position == mark == data.high_watermark
    old = Sent(10, FetchRequest(rack_id=racked.follower.rack))
    assert read_for(old, driver, 0, rack_aware=True)[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_who_lacks_what_is_asked_for_sends_the_consumer_back_to_the_leader(racked) -> None:
    cluster, consumer, follower = racked.cluster, racked.consumer, racked.follower
    driver = follower.broker.driver(*KEY)
    topic_id, beyond = driver.ref.topic_id, driver.log.end_offset + 1
    data, records = read_for(consumer._request, driver, beyond, rack_aware=True)
    assert data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    consumer._positions[KEY] = topic_id, beyond
    consumer._preferred[KEY] = follower.id, cluster.world.now + 1_000.0
    consumer._got_elsewhere(*KEY, topic_id, beyond, data, records)
    assert KEY not in consumer._preferred
    assert consumer._positions[KEY] == (topic_id, beyond)


def test_a_replica_that_is_gone_is_not_asked_again(racked) -> None:
    cluster, consumer, follower = racked.cluster, racked.consumer, racked.follower
    run_for(cluster, 2_000.0)
    assert consumer._named(KEY) is follower.broker
    read_before = consumer.elsewhere
    cluster.world.bury_now(follower.broker.process, "killed")
    assert consumer._named(KEY) is None
    before = consumer._positions[KEY][1]
    follower.held = 1
    run_for(cluster, 12_000.0)
    assert consumer.elsewhere == read_before
    assert consumer._positions[KEY][1] > before


def test_records_beyond_the_high_watermark_of_who_gives_them(racked) -> None:
    driver, consumer = racked.follower.broker.driver(*KEY), racked.consumer
    data, records = read_for(consumer._request, driver, 0, rack_aware=True)
    data.high_watermark = next(iter(marks_of(records)))[0].next - 1
    consumer._positions[KEY] = driver.ref.topic_id, 0
    with pytest.raises(Violation, match="the high watermark is"):
        consumer._got_elsewhere(*KEY, driver.ref.topic_id, 0, data, records)


@pytest.mark.parametrize(("position", "then"), [(4, 9), (2, 4)])
def test_an_answer_to_an_earlier_question_sends_nobody_back(racked, position, then) -> None:
    """That its offset is out of range counts where the consumer is still there; answers come late, and twice."""
    consumer = racked.consumer
    topic_id = consumer._positions[KEY][0]
    consumer._positions[KEY] = (topic_id, 4)
    answer = PartitionData(error_code=int(ErrorCode.OFFSET_OUT_OF_RANGE), log_start_offset=9)
    consumer._got(*KEY, topic_id, position, answer, b"")
    assert consumer._positions[KEY] == (topic_id, then)
