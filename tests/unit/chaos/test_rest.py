"""A cluster is at rest when every broker has written down the high watermark that clients are told."""

from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, KafkaException

from kafkalite_core.model.partition import TopicPartition as Key
from tests.chaos import judge as judging
from tests.chaos import rest
from tests.chaos.cluster import NotHealedError
from tests.chaos.judge import judge
from tests.chaos.workloads import Judgement

TOLD = {("chaos", 0): 12, ("chaos", 1): 7, (rest.OFFSETS_TOPIC, 0): 3}


class Client:
    """Of brokers that tell of one topic and of the groups' offsets."""

    troubles: list[int] = []
    topics = {"chaos": 2, rest.OFFSETS_TOPIC: 1, "elsewhere": 1}

    def __init__(self, config):
        assert config["isolation.level"] == "read_uncommitted", "the high watermark is asked for"

    def list_topics(self, timeout):
        if self.troubles:
            raise KafkaException(KafkaError(self.troubles.pop()))
        topics = {name: SimpleNamespace(partitions=range(count)) for name, count in self.topics.items()}
        return SimpleNamespace(topics=topics)

    def get_watermark_offsets(self, partition, timeout, cached):
        assert not cached
        return 0, TOLD[partition.topic, partition.partition]

    def close(self):
        pass


@pytest.fixture
def at_rest(monkeypatch):
    """What a cluster comes to at rest; the brokers write down one state after another, and the last one for good."""

    def run(*states, timeout_s=60.0, troubles=()):
        monkeypatch.setattr(Client, "troubles", list(troubles))
        left = list(states)

        def open_directory(broker):
            marks = left[0] if broker < 2 or len(left) == 1 else left.pop(0)
            return None, {Key(*key): SimpleNamespace(high_watermark=end) for key, end in marks[broker].items()}

        monkeypatch.setattr(rest, "Consumer", Client)
        monkeypatch.setattr(rest, "open_directory", open_directory)
        monkeypatch.setattr(rest, "LOOK_S", 0.0)
        cluster = SimpleNamespace(bootstrap="b", data_directory=lambda broker: broker)
        return rest.ends_at_rest(cluster, ["chaos"], timeout_s)

    return run


def test_it_is_waited_for_until_all_have_written_down_what_clients_are_told(at_rest):
    behind = TOLD | {("chaos", 1): 5}
    assert at_rest([behind] * 3, [TOLD, TOLD, behind], [TOLD] * 3, troubles=[KafkaError._TRANSPORT]) == TOLD


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({("chaos", 0): 11}, "chaos-0: clients are told 12, brokers have {0: 12, 1: 12, 2: 11}"),
        ({("chaos", 0): 13}, "chaos-0: clients are told 12, brokers have {0: 12, 1: 12, 2: 13}"),
        ({(rest.OFFSETS_TOPIC, 0): 2}, "__consumer_offsets-0: clients are told 3"),
    ],
)
def test_a_replica_that_stays_apart_did_not_heal(at_rest, changed, said):
    with pytest.raises(NotHealedError) as raised:
        at_rest([TOLD, TOLD, TOLD | changed], timeout_s=0.0)
    assert said in str(raised.value)


def test_a_replica_that_is_not_there_is_apart(at_rest):
    with pytest.raises(NotHealedError, match=r"chaos-1: clients are told 7, brokers have \{0: 7, 1: 7\}"):
        at_rest([TOLD, TOLD, {key: end for key, end in TOLD.items() if key != ("chaos", 1)}], timeout_s=0.0)


def test_replicas_are_compared_up_to_the_high_watermark_at_rest_and_so_are_the_offsets_of_groups(tmp_path, monkeypatch):
    asked = {}

    def compare(directories, **arguments):
        asked.update(arguments)
        uncompared = [f"{rest.OFFSETS_TOPIC}-7"]
        return SimpleNamespace(ok=True, counts={}, examples=[], bytes=10, uncompared=uncompared)

    monkeypatch.setattr(judging, "compare_replicas", compare)
    monkeypatch.setattr(
        judging, "check_metadata", lambda _: SimpleNamespace(ok=True, counts={}, examples=[], changes=1)
    )
    traffic = SimpleNamespace(
        topic="chaos",
        load=SimpleNamespace(acks=SimpleNamespace(highest={0: 9, 1: 9}), starts={0: 0, 1: 0}),
        judge=lambda: Judgement(ok=True, acked=20, read=20, anomalies={}, examples=(), longest_gap_ms=1.0),
        floor=lambda: 1,
    )
    cluster = SimpleNamespace(data_directory=lambda broker: tmp_path / str(broker))
    verdict = judge(cluster, [traffic], tmp_path / "metadata.jsonl", ends=TOLD)
    assert asked["topics"] == {"chaos", rest.OFFSETS_TOPIC}
    # What nobody was told of as well, and never less than what was acknowledged.
    assert asked["high_watermarks"] == {("chaos", 0): 12, ("chaos", 1): 10, (rest.OFFSETS_TOPIC, 0): 3}
    assert asked["copies"] == 3
    assert verdict.broken == []
