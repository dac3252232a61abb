"""What librdkafka gives to the program though asking again would help: the command line asks again, within limits."""

from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, KafkaException

from kafkalite_cli.errors import Failure
from kafkalite_cli.groups.takeover import from_coordinator
from kafkalite_cli.kafka import partitions_of


class Answers:
    """Answers in their order; the last one for ever."""

    def __init__(self, *answers):
        self.left = list(answers)
        self.asked = 0

    def __call__(self, *_, **__):
        self.asked += 1
        answer = self.left.pop(0) if len(self.left) > 1 else self.left[0]
        if isinstance(answer, int):
            raise KafkaException(KafkaError(answer))
        return answer


def metadata(code=None, partitions=()):
    """What `list_topics` returns for topic t."""
    error = None if code is None else KafkaError(code)
    return SimpleNamespace(topics={"t": SimpleNamespace(error=error, partitions=dict.fromkeys(partitions))})


@pytest.fixture(autouse=True)
def no_pause(monkeypatch):
    monkeypatch.setattr("kafkalite_cli.groups.takeover.RETRY_S", 0.0)


def test_a_coordinator_is_asked_again_while_it_moves():
    ask = Answers(
        KafkaError.NOT_COORDINATOR,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        "told",
    )
    assert from_coordinator(ask) == "told"
    assert ask.asked == 4


def test_what_a_coordinator_refuses_is_not_asked_again():
    ask = Answers(KafkaError.GROUP_AUTHORIZATION_FAILED)
    with pytest.raises(KafkaException) as refused:
        from_coordinator(ask)
    assert (refused.value.args[0].code(), ask.asked) == (KafkaError.GROUP_AUTHORIZATION_FAILED, 1)


def test_a_coordinator_that_never_comes_is_the_error():
    with pytest.raises(KafkaException) as away:
        from_coordinator(Answers(KafkaError.NOT_COORDINATOR), limit_s=0.05)
    assert away.value.args[0].code() == KafkaError.NOT_COORDINATOR


@pytest.mark.parametrize(
    "first", [metadata(KafkaError.LEADER_NOT_AVAILABLE), metadata(KafkaError.UNKNOWN_TOPIC_OR_PART), metadata()]
)
def test_a_topic_that_is_being_made_is_asked_for_again(first):
    client = SimpleNamespace(list_topics=Answers(first, metadata(partitions=(1, 0))))
    assert partitions_of(client, "t") == [0, 1]


@pytest.mark.parametrize(
    ("code", "words"),
    [(KafkaError.TOPIC_AUTHORIZATION_FAILED, "TOPIC_AUTHORIZATION_FAILED"), (KafkaError.TOPIC_EXCEPTION, "'t'")],
)
def test_a_topic_that_may_not_be_seen_is_asked_for_once(code, words):
    client = SimpleNamespace(list_topics=Answers(metadata(code)))
    with pytest.raises(Failure, match=words):
        partitions_of(client, "t")
    assert client.list_topics.asked == 1


def test_a_topic_without_leader_is_the_error_in_the_end():
    client = SimpleNamespace(list_topics=Answers(metadata(KafkaError.LEADER_NOT_AVAILABLE)))
    with pytest.raises(Failure, match="Leader not available"):
        partitions_of(client, "t", timeout_s=0.15)
    assert client.list_topics.asked > 1
