"""A dead leader's unreplicated tail is cut off when it comes back; afterwards the replicas are equal byte for byte."""

import signal

from kafkalite_core.protocol.record_batch import iter_batches
from tests.integration.cluster import in_sync
from tests.integration.test_hostile import address, produce
from tests.integration.test_produce import batch, end_offset
from tests.integration.wire import Wire


def stored(cluster, broker: int, topic: str) -> bytes:
    """All batches of a replica, in the order of the segments."""
    segments = sorted(cluster.log_directory(broker, topic).glob("*.log"))
    data = b"".join(segment.read_bytes() for segment in segments)
    end = sum(header.size for _, header in iter_batches(memoryview(data)))
    return data[:end]


def test_a_divergent_tail_is_cut_off(cluster, topic_name):
    cluster.create_topic(topic_name, min_insync_replicas="2", retention_ms="-1")  # the records are of 2023
    leader = cluster.leader(topic_name)
    followers = [broker for broker in range(3) if broker != leader]
    with Wire(address(cluster, leader)) as wire:
        assert produce(wire, topic_name, batch(b"everywhere")).error_code == 0
        with cluster.frozen(*followers):
            for number in range(3):
                assert produce(wire, topic_name, batch(b"leader alone %d" % number), acks=1).error_code == 0
            assert end_offset(wire, topic_name) == 1, "what the leader alone has is not committed"
            cluster.signal(leader, signal.SIGKILL)

    def moved(topic: dict) -> bool:
        return topic["status"]["partitions"]["0"]["leader"] in followers

    cluster.wait_topic(topic_name, moved)
    cluster.wait_known(topic_name, 1)
    with Wire(address(cluster, cluster.leader(topic_name))) as wire:
        # A fetch that waited at the old leader may have brought the first of its records to a follower, not the others.
        assert produce(wire, topic_name, batch(b"another history")).base_offset in {1, 2}
    cluster.wait_topic(topic_name, in_sync)
    copies = [stored(cluster, broker, topic_name) for broker in range(3)]
    assert copies[0] == copies[1] == copies[2]
    assert b"another history" in copies[0]
    assert b"leader alone 1" not in copies[0]
    assert b"leader alone 2" not in copies[0]
    cluster.delete_topic(topic_name)
