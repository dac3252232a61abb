"""Data that were set aside, and that a topic wants after all."""

from types import SimpleNamespace

import pytest

from kafkalite_core.membership.claims import is_claimed, to_set_aside
from kafkalite_core.model.partition import IsrEntry, Partition, Topic, TopicRef
from kafkalite_core.storage.partition_metadata import PartitionMetadata

ENTRY = Partition(
    leader=1, leader_epoch=1, partition_epoch=3, min_isr=1, replicas=(1, 2), isr=(IsrEntry(1, 1),), removing=(2,)
)
TOPIC = Topic(
    ref=TopicRef("ns", "t", "uid", "id", "t"), generation=1, resource_version="1", controller_epoch=1,
    partitions={4: ENTRY},
)  # fmt: skip
CACHE = SimpleNamespace(topic={"t": TOPIC}.get, unreadable={"odd"})


@pytest.mark.parametrize(
    ("name", "topic_id", "partition", "broker_id", "claimed"),
    [
        ("t", "id", 4, 1, True),
        ("t", "id", 4, 2, True),
        ("t", "id", 4, 3, False),
        ("t", "id", 5, 1, False),
        ("t", "other", 4, 1, False),
        ("gone", "id", 4, 1, False),
    ],
)
def test_what_a_topic_that_lives_has_here_is_claimed(name, topic_id, partition, broker_id, claimed):
    metadata = PartitionMetadata(topic=name, partition=partition, topic_id=topic_id, uid="u")
    assert is_claimed(CACHE, broker_id, metadata) is claimed


def test_a_topic_that_cannot_be_read_may_claim_what_it_had():
    """It is there, as a later version made it, and nobody knows what it says: neither logs nor strays of it go (S10)."""
    kept, lost = (PartitionMetadata(topic="later", partition=0, topic_id="i", uid=uid) for uid in ("odd", "gone"))
    assert is_claimed(CACHE, 3, kept)
    assert not is_claimed(CACHE, 3, lost)
    assert to_set_aside(CACHE, [("log", kept), ("another", lost)]) == [("another", lost)]
