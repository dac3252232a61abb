"""Values of a configuration that cannot be read, as kubectl lets them pass: no default deletes, or weakens, anything."""

from dataclasses import replace

import pytest

from kafkalite_core.controller.configs import effective_min_isr
from kafkalite_core.model.config import resolve_topic_config, valid_broker_config
from tests.unit.controller.builders import entry, snapshot, topic_view

WEEK_MS = 604_800_000


def limits(topic, broker=None):
    config = resolve_topic_config(topic, broker)
    return config.cleanup_policy, config.retention_ms, config.retention_bytes


@pytest.mark.parametrize("wrong", ["Compact", "compacted", "", "keep"])
@pytest.mark.parametrize("own", [{}, {"retention.ms": "1000", "retention.bytes": "1"}])
def test_a_policy_that_cannot_be_read_keeps_everything(wrong, own):
    assert limits({"cleanup.policy": wrong, **own}) == (("delete",), -1, -1)
    assert limits(own, {"log.cleanup.policy": wrong}) == (("delete",), -1, -1)
    assert limits({"cleanup.policy": "compact"}, {"log.cleanup.policy": wrong}) == (("compact",), WEEK_MS, -1)


@pytest.mark.parametrize("wrong", ["30d", "unlimited", "-2", ""])
def test_a_retention_that_cannot_be_read_is_none(wrong):
    assert limits({"retention.ms": wrong}) == (("delete",), -1, -1)
    assert limits({"retention.ms": wrong}, {"log.retention.ms": "5000"}) == (("delete",), -1, -1)
    assert limits({}, {"log.retention.ms": wrong}) == (("delete",), -1, -1)
    assert limits({"retention.ms": "5000"}, {"log.retention.ms": wrong}) == (("delete",), 5000, -1)
    assert limits({"retention.bytes": wrong}, {"log.retention.bytes": "7"}) == (("delete",), WEEK_MS, -1)


def test_other_values_that_cannot_be_read_give_way_to_the_cluster_s_and_the_default():
    config = resolve_topic_config({"segment.bytes": "many", "segment.ms": "soon"}, {"log.segment.bytes": "4096"})
    assert (config.segment_bytes, config.segment_ms) == (4096, WEEK_MS)


@pytest.mark.parametrize(("wrong", "kept"), [
    ({"log.retention.ms": "30d"}, {"log.retention.ms": "-1"}),
    ({"log.retention.bytes": "1G"}, {"log.retention.bytes": "-1"}),
    ({"log.cleanup.policy": "Compact"}, {"log.retention.ms": "-1", "log.retention.bytes": "-1"}),
    ({"log.cleanup.policy": "Compact", "log.retention.ms": "5"}, {"log.retention.ms": "-1", "log.retention.bytes": "-1"}),
    ({"log.retention.ms": "5", "log.segment.bytes": "many"}, {"log.retention.ms": "5"}),
])  # fmt: skip
def test_brokers_that_are_told_what_is_valid_delete_nothing_either(wrong, kept):
    assert valid_broker_config(wrong) == kept


@pytest.mark.parametrize(("own", "cluster", "wanted"), [
    ({}, {"min.insync.replicas": "two"}, 2), ({"min.insync.replicas": "1"}, {"min.insync.replicas": "two"}, 1),
    ({"min.insync.replicas": "x"}, {}, 2), ({}, {"min.insync.replicas": "1"}, 1), ({}, {}, 1),
])  # fmt: skip
def test_partitions_keep_their_min_isr_while_it_cannot_be_read(own, cluster, wanted):
    view = topic_view(partitions={0: replace(entry(), min_isr=2), 1: entry()}, spec={"config": own})
    state = snapshot(view)
    state = replace(state, cluster=replace(state.cluster, config=cluster))
    assert effective_min_isr(state, view, 3) == wanted
    assert effective_min_isr(state, view, 1) == 1
