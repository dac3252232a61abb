"""Rubbish closes its own connection and nothing else, and costs bounded memory."""

import os
import random
from pathlib import Path

import confluent_kafka
import pytest

from kafkalite_core.protocol.errors import ErrorCode
from kafkalite_core.protocol.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kafkalite_core.protocol.record_batch import SimpleRecord, build_batch
from tests.integration.wire import Wire

FRAME_MAX = 104_857_600


def address(cluster, broker: int = 0) -> tuple[str, int]:
    return "127.0.0.1", cluster.port + broker


@pytest.mark.parametrize("length", [-1, -(2**31), 0, FRAME_MAX + 1, 2**31 - 1])
def test_a_frame_length_out_of_bounds_closes_the_connection(cluster, length):
    with Wire(address(cluster)) as wire:
        wire.send(length.to_bytes(4, "big", signed=True) + b"x" * 100)
        assert wire.closed_by_broker()


@pytest.mark.parametrize(
    "payload",
    [
        pytest.param(b"\x7f\xff\x00\x00" + b"\x00" * 6, id="unknown api"),
        pytest.param(b"\x00\x03\x00\x63" + b"\x00" * 6, id="unknown version"),
        pytest.param(b"\x00\x00\x00\x02" + b"\x00" * 20, id="produce v2"),
        pytest.param(b"\x00\x03", id="half a header"),
        pytest.param(b"\x00\x03\x00\x01\x00\x00\x00\x01\xff\xff\x7f\xff\xff\xff", id="two billion topics"),
        pytest.param(b"\x00\x03\x00\x0c\x00\x00\x00\x01\xff\xff\x00\xff\xff\xff\xff\x0f", id="long compact array"),
    ],
)
def test_a_request_that_cannot_be_served_closes_the_connection(cluster, payload):
    with Wire(address(cluster)) as wire:
        wire.send(len(payload).to_bytes(4, "big") + payload)
        assert wire.closed_by_broker()


def test_an_unknown_api_versions_version_is_answered_in_version_0(cluster):
    payload = b"\x00\x12\x00\x63\x00\x00\x00\x07\x00\x01x"
    with Wire(address(cluster)) as wire:
        wire.send(len(payload).to_bytes(4, "big") + payload)
        answer = wire.receive_frame()
    assert int.from_bytes(answer[:4], "big") == 7
    assert int.from_bytes(answer[4:6], "big") == ErrorCode.UNSUPPORTED_VERSION
    assert int.from_bytes(answer[6:10], "big") == 1
    assert int.from_bytes(answer[10:12], "big") == 18


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_a_thousand_bad_connections_cost_little_and_disturb_nobody(cluster, topic_name):
    cluster.create_topic(topic_name)
    leader = cluster.leader(topic_name)
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    dice = random.Random(seed)
    good = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap, "linger.ms": 0})
    errors = []
    good.produce(topic_name, b"before", on_delivery=lambda error, _: error and errors.append(error))
    assert good.flush(20) == 0
    pid = cluster.pid(leader)
    before = resident_bytes(pid)
    wires = []
    for number in range(1000):
        wire = Wire(address(cluster, leader))
        wires.append(wire)
        kind = number % 4
        if kind == 0:
            # Claims almost 100 MiB, sends little, and stays.
            wire.send((FRAME_MAX - 1).to_bytes(4, "big") + dice.randbytes(50))
        elif kind == 1:
            wire.send((FRAME_MAX + 1).to_bytes(4, "big"))
        elif kind == 2:
            wire.send(dice.randbytes(200))
        else:
            wire.send((50).to_bytes(4, "big") + dice.randbytes(50))
        if number % 100 == 0:
            good.produce(topic_name, b"during", on_delivery=lambda error, _: error and errors.append(error))
    assert good.flush(20) == 0
    assert errors == []
    grown = resident_bytes(pid) - before
    for wire in wires:
        wire.socket.close()
    assert grown < 64 << 20, f"resident memory grew by {grown >> 20} MiB"
    assert cluster.pid(leader) == pid, "the broker died"
    cluster.delete_topic(topic_name)


def produce(wire: Wire, topic: str, batch: bytes, version: int = 9, acks: int = -1):
    answer = wire.request(
        0,
        version,
        ProduceRequest(
            acks=acks,
            timeout_ms=10_000,
            topic_data=[TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=batch)])],
        ),
    )
    return answer.responses[0].partition_responses[0]


def test_a_wrong_checksum_is_refused_for_that_partition_alone(cluster, topic_name):
    cluster.create_topic(topic_name)
    batch = bytearray(build_batch([SimpleRecord(1_700_000_000_000, b"k", b"v")]))
    batch[-1] ^= 1
    with Wire(address(cluster, cluster.leader(topic_name))) as wire:
        assert produce(wire, topic_name, bytes(batch)).error_code == ErrorCode.CORRUPT_MESSAGE
        batch[-1] ^= 1
        answer = produce(wire, topic_name, bytes(batch))
        assert (answer.error_code, answer.base_offset) == (0, 0)
    cluster.delete_topic(topic_name)


@pytest.mark.parametrize("acks", [2, -2, 100])
def test_acks_that_do_not_exist_are_refused(cluster, topic_name, acks):
    cluster.create_topic(topic_name)
    batch = bytes(build_batch([SimpleRecord(1_700_000_000_000, b"k", b"v")]))
    with Wire(address(cluster, cluster.leader(topic_name))) as wire:
        assert produce(wire, topic_name, batch, acks=acks).error_code == ErrorCode.INVALID_REQUIRED_ACKS
    cluster.delete_topic(topic_name)


def test_a_follower_refuses_produce_and_names_the_leader(cluster, topic_name):
    cluster.create_topic(topic_name)
    leader = cluster.leader(topic_name)
    follower = (leader + 1) % 3
    batch = bytes(build_batch([SimpleRecord(1_700_000_000_000, b"k", b"v")]))
    with Wire(address(cluster, follower)) as wire:
        answer = produce(wire, topic_name, batch, version=10)
    assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert answer.current_leader.leader_id == leader
    cluster.delete_topic(topic_name)
