"""What a broker says of topics whose flush was tightened (S4)."""

import pytest

from kafkalite_core.membership.flushed import FlushedTopics
from kafkalite_core.membership.metadata_cache import MetadataCache
from kafkalite_core.model.limits import NOTICED_MAX
from kafkalite_core.model.partition import TopicRef
from tests.unit.membership.test_metadata_cache import see, topic

RELAXED = {"log.flush.interval.messages": "1000"}


class Log:
    def __init__(self, *, flushed):
        self.reported_is_flushed = flushed


def told(*topics, logs, broker_id=0, broker_config=None, generation=7):
    """`logs` by number of the partition."""
    cache, flushed = MetadataCache(), FlushedTopics()
    for version, one in enumerate(topics):
        see(cache, one, version)
    flushed.look(
        cache,
        broker_id,
        broker_config=broker_config or {},
        generation=generation,
        log_of=lambda _ref, number: logs.get(number),
    )
    return flushed.tokens


def settling(uid="u", **changes):
    return topic(uid, flush_lag_known=True, **changes)


def test_what_is_flushed_is_told_with_the_generations_of_both_specs():
    assert told(settling(generation=4), logs={0: Log(flushed=True)}) == ("u:4:7",)
    assert told(settling(generation=5), logs={0: Log(flushed=True)}, generation=8) == ("u:5:8",)


def test_a_log_that_has_not_caught_up_is_waited_for():
    assert told(settling(), logs={0: Log(flushed=False)}) == ()


def test_a_replica_that_is_still_to_be_opened_is_waited_for():
    assert told(settling(), logs={}) == ()
    assert told(settling(), logs={}, broker_id=1) == ("u:1:7",), "broker 1 has no replica"


def test_a_log_counts_whose_replica_the_entry_does_not_name():
    """It may be on its way into the ISR of an entry that this broker has not seen."""
    assert told(settling(), logs={0: Log(flushed=False)}, broker_id=1) == ()


@pytest.mark.parametrize("flush", ["1", "1000"])
def test_the_topic_s_own_flush_comes_before_the_cluster_s(flush):
    tight = told(settling(config={"flush.messages": flush}), logs={0: Log(flushed=True)}, broker_config=RELAXED)
    assert tight == (("u:1:7",) if flush == "1" else ())
    assert told(settling(), logs={0: Log(flushed=True)}, broker_config=RELAXED) == ()


def test_nothing_is_told_before_the_operator_knows_that_the_flush_was_tightened():
    """It may hear late of the cluster's spec: what is told now would be taken for what holds when it hears of that."""
    assert told(settling(flush_may_lag=True), logs={0: Log(flushed=True)}) == ()


def test_nobody_waits_for_a_topic_whose_status_says_nothing():
    assert told(topic("u"), logs={0: Log(flushed=True)}) == ()


def test_more_than_fit_are_told_later():
    many = [
        settling(f"u{i}", ref=TopicRef("default", f"t{i:04}", f"u{i}", f"id{i}", f"t{i:04}"))
        for i in range(NOTICED_MAX + 1)
    ]
    tokens = told(*many, logs={0: Log(flushed=True)})
    assert len(tokens) == NOTICED_MAX
    assert tokens[0] == "u0:1:7"
